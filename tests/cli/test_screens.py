"""The default output of every command fits a screen of 24 lines and 80 columns, and its first line has the answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from etplus.analysis.top import TOP_BY
from etplus.cli.parser import COMMANDS, TASKS
from support import FIXTURES, call, gpu_traces, shared_job

LINES, COLUMNS = 24, 80
PAIRS = [FIXTURES / "gpu" / "tf32", FIXTURES / "demo" / "train_cpu"]
HELD = ("gpu-kineto", "python-stacks", "serving", "graph-capture", "cuspy")


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


def assert_screen(*words: str | Path, cwd: Path, first: str = r"\d") -> list[str]:
    """Run a command; its output fits a screen, and its first line matches a pattern."""
    done = call(*words, cwd=cwd)
    lines = (done.stdout + done.stderr).decode().replace(f"{cwd}/", "").splitlines()
    text = "\n".join(lines)
    assert done.returncode in (0, 3, 4, 5), text
    assert lines and re.search(first, lines[0]), f"{words[0]}: {text}"
    assert len(lines) <= LINES, f"{words}: {len(lines)} lines\n{text}"
    assert max(map(len, lines)) <= COLUMNS, f"{words}: {max(lines, key=len)}"
    return lines


def assert_screens_of(trace: Path, folder: Path) -> None:
    """The commands that read one trace."""
    local = folder / "trace.json.gz"
    local.symlink_to(trace)
    assert_screen("why", local.name, cwd=folder)
    assert_screen("analyze", local.name, cwd=folder)
    assert_screen("replay", local.name, cwd=folder)
    assert_screen("replay", local.name, "--what-if", "cpu*0.5", "--force", cwd=folder, first=r"->")
    assert_screen("diff", local.name, local.name, cwd=folder, first=r"->|in both")
    for by in TOP_BY:
        assert_screen("top", local.name, "--by", by, cwd=folder, first=r"GPU")


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_a_pair_and_what_is_made_of_it(pair: Path, tmp_path: Path) -> None:
    for kind in ("et", "kineto"):
        (tmp_path / f"{kind}.json.gz").symlink_to(pair.with_name(f"{pair.name}.{kind}.json.gz"))
    first = r"linked [\d,]+ of [\d,]+ operators \(100.00%\), all certain"
    assert_screen("link", "et.json.gz", "kineto.json.gz", "-o", "p.json", cwd=tmp_path, first=first)
    assert_screen("convert", "p.json", "-o", "p.0.et", cwd=tmp_path, first="wrote .*nodes")
    assert_screen("check", "p.0.et", cwd=tmp_path, first="passed: 0 errors")
    assert_screen("report", "p.json", "-o", "p.html", cwd=tmp_path)
    assert_screens_of(tmp_path / "p.json", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("trace", gpu_traces(*HELD))
def test_every_shared_trace(trace: Path, tmp_path: Path) -> None:
    assert_screens_of(trace, tmp_path)


def test_a_job(tmp_path: Path) -> None:
    folder = shared_job("parallel/block.ddp2")[0][0].parent
    (tmp_path / "job").symlink_to(folder)
    lines = assert_screen("link", "job", "-o", "linked", cwd=tmp_path, first="linked 2 of 2 ranks: ")
    assert lines[-1] == "next   etplus why linked   etplus convert linked --to astra-sim -o job"
    for command in ("why", "analyze", "top"):
        assert_screen(command, "linked", cwd=tmp_path, first="")
    assert_screen("analyze", "linked", "--summary", cwd=tmp_path, first="job of 2 ranks")
    assert_screen("convert", "linked", "--to", "astra-sim", "-o", "set/job", cwd=tmp_path, first="wrote")
    assert_screen("check", "set/job", "--profile", "astra-sim", cwd=tmp_path, first="passed")
    assert_screen("replay", "linked", "--network", "bandwidth=1,latency=5us", cwd=tmp_path, first="->")
    assert_screen("diff", "linked", "linked", cwd=tmp_path, first="slowest rank")
    assert_screen("reshard", "linked/rank_0.etplus.json.gz", "--dp", "8", cwd=tmp_path, first="on 8 ranks")


@pytest.mark.parametrize("name", [*COMMANDS, *TASKS])
def test_help_fits_a_screen_and_names_the_rest(name: str, tmp_path: Path) -> None:
    if name == "predict":
        return
    done = call(*name.split(), "--help", cwd=tmp_path)
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0 and len(lines) <= LINES and max(map(len, lines)) <= COLUMNS, done.stdout.decode()
    every = call(*name.split(), "--help-all").stdout.decode()
    assert "--log-level" in every and max(map(len, every.splitlines())) <= COLUMNS, every


def test_etplus_alone_lists_the_commands() -> None:
    done = call()
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0 and len(lines) <= LINES and max(map(len, lines)) <= COLUMNS
    assert lines[0].startswith("usage: etplus COMMAND") and "Start with: etplus demo" in lines[-1]


def test_demo(tmp_path: Path) -> None:
    assert_screen("demo", cwd=tmp_path, first="linked 188 of 188 operators")


def test_quiet_prints_errors_only(tmp_path: Path) -> None:
    for words in (["why"], ["top"], ["analyze"], ["replay"], ["convert", "-o", tmp_path / "x.0.et"]):
        done = call(words[0], PAIRS[0].with_name("tf32.kineto.json.gz"), *words[1:], "-q", cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), words
    assert call("why", "none.json", "-q").stderr.count(b"\n") == 1


def test_full_has_more_than_the_screen() -> None:
    trace = PAIRS[0].with_name("tf32.kineto.json.gz")
    for command in ("why", "analyze", "replay"):
        short, full = (call(command, trace, *more).stdout for more in ([], ["--full"]))
        assert len(full.splitlines()) > len(short.splitlines())
