"""The benchmark runs, and the pair that it makes of a small one is a sound one."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from etplus import __version__
from etplus.cli.parser import parse
from support import ROOT, fixture_pair, shared_pair

BENCHMARKS = ROOT / "benchmarks"


def execute(script: str, *arguments: str | Path) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=True, timeout=120).stdout.decode()


@pytest.mark.slow
def test_the_benchmark_prints_its_table() -> None:
    pair = str(fixture_pair("demo/train_cpu")[0]).removesuffix(".et.json.gz")
    text = execute("bench_link.py", "--pair", pair, "--runs", "1", "--more", "2")
    assert max(map(len, text.splitlines())) <= 80
    for part in (
        "orjson.loads of both files",
        "garbage collector off",
        "read, link, write",
        "time per event",
        "bar 0.5",
    ):
        assert part in text


def test_a_release_that_costs_more_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    history = importlib.import_module("history")

    def ratios(cpu: float) -> dict[str, dict[str, float]]:
        return {layout: {"cpu": cpu, "memory": 0.2} for layout in history.LAYOUTS} | {}

    kept = {"1": ratios(0.5), "2": ratios(0.8)}
    assert not [line for line in history.lines(kept, ratios(0.52)) if "DEARER" in line]
    dearer = [line for line in history.lines(kept, ratios(0.7)) if "DEARER" in line]
    assert dearer == [f"DEARER: cpu, {layout}: 0.70, was 0.50" for layout in history.LAYOUTS]
    assert set(history.read_history()) >= {"0.2.0", __version__}, "a release is without figures"


@pytest.mark.slow
def test_every_bar_of_the_score_is_met_and_its_tables_are_current(tmp_path: Path) -> None:
    shared_pair("cpu-pairs/conv_same")  # skips where there are no recorded traces
    docs = tmp_path / "performance.md"
    docs.write_bytes((ROOT / "docs" / "reference" / "performance.md").read_bytes())
    execute("score_table.py", "--into", docs)  # fails if a bar is missed
    assert docs.read_text("utf-8") == (ROOT / "docs" / "reference" / "performance.md").read_text("utf-8")


def test_the_replay_table_prints_the_error_of_each_trace(tmp_path: Path) -> None:
    kineto = fixture_pair("demo/train_cpu")[1]
    (tmp_path / "cpu-pairs").mkdir()
    (tmp_path / "cpu-pairs" / kineto.name).write_bytes(kineto.read_bytes())
    text = execute("replay_table.py", "--traces", tmp_path)
    assert "| train_cpu | 3 |" in text and "largest makespan error 0.000%" in text


@pytest.mark.parametrize("script", sorted(path.stem for path in BENCHMARKS.glob("*.py")))
def test_every_benchmark_finds_what_it_imports(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    try:
        importlib.import_module(script)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        pytest.skip("torch is not installed")


def test_the_measured_commands_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for words in importlib.import_module("bench_commands").commands(tmp_path).values():
        assert words[1] == "-c" or parse([*words[3:]])
