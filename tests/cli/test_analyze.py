"""`etplus analyze`: imports, devices, tables as CSV."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from etplus.cli import analyze as module
from etplus.linker import link
from made_traces import kernel, kineto_of, launch, op
from support import call, fixture_pair, run_python, succeeds


@pytest.fixture(scope="module")
def etplus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("analyze") / "et_plus.json.gz"
    link(*fixture_pair("pairs/gpu_shaped_from_cpu")).write(path)
    return path


def test_an_analysis_imports_nothing_that_it_does_not_need(etplus: Path) -> None:
    code = (
        "import sys; from etplus.cli.main import main\n"
        f"main(['analyze', {str(etplus)!r}, '-o', {str(etplus.with_suffix('.txt'))!r}])\n"
        "heavy = ['google', 'mcp', 'multiprocessing', 'networkx', 'numpy.ma', 'pandas', 'pyarrow', 'sqlite3', 'tqdm']\n"
        "own = ['linker', 'schemas.kineto.read_kineto', 'schemas.execution_trace.read_et', 'schemas.text.recover',\n"
        "       'jobs.matching', 'analysis.job_summary', 'analysis.trace_diff', 'converters.job']\n"
        "print([name for name in [*heavy, *(f'etplus.{name}' for name in own)] if name in sys.modules])"
    )
    done = run_python(code)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_device_spec_names_the_device(etplus: Path, tmp_path: Path) -> None:
    spec = tmp_path / "mine.json"
    spec.write_text(json.dumps({"devices": [{"name": "mine", "tflops": {"float32": 1000}, "memory_gb_s": 1}]}))
    (changed,) = json.loads(call("analyze", etplus, "--json", "--device-spec", spec).stdout)["traces"]
    assert {device["known_as"] for device in changed["devices"].values()} == {"mine"}


def write_steps(path: Path, steps: int) -> None:
    """Steps of 100 µs: an operator of 20 that launches, 5 after its start, a kernel that runs from 30 to 40."""
    events = []
    for k in range(steps):
        events += [op("=aten::mm", 100 * k, 20), launch(k + 1, 100 * k + 5, 2), kernel("gemm", k + 1, 100 * k + 30, 10)]
    path.write_bytes(kineto_of(events))


def test_each_table_has_the_rows_of_all_traces(tmp_path: Path) -> None:
    write_steps(tmp_path / "a.json", 1)
    write_steps(tmp_path / "b.json", 2)
    done = call("analyze", "a.json", "b.json", "--csv", "t", "-o", "x.txt", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    tables = {path.stem: path.read_text().split("\n") for path in (tmp_path / "t").iterdir()}
    assert tables["host_ops"] == [
        "file,op,shapes,count,total_ns,mean_ns", "a.json,'=aten::mm,,1,20000,20000.0",
        "b.json,'=aten::mm,,2,40000,20000.0", "",
    ]  # fmt: skip
    assert tables["copies"] == [
        "file,device,kind,count,bytes,total_ns,busy_ns,not_recorded,bytes_per_second", ""
    ]  # fmt: skip
    assert tables["memory_curve"] == ["file,device,ts_ns,allocated,reserved", ""]
    text = (tmp_path / "x.txt").read_text()
    second = text.index("\n\nfile    b.json")
    assert text.startswith("file    a.json")
    assert call("analyze", "--full", "a.json", cwd=tmp_path).stdout.decode() == text[:second] + "\n"
    assert list(json.loads(call("analyze", "a.json", "--json", cwd=tmp_path).stdout)) == ["traces"]


def test_ranks_of_a_job_are_summarized_from_a_number_of_traces_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_IN_FULL", 2)
    for rank in range(3):
        info = {"rank": rank, "world_size": 3, "backend": "nccl"}
        (tmp_path / f"{rank}.json").write_bytes(kineto_of([op("aten::mm", 0, 20)], distributedInfo=info))
    for files, words, key in (
        (2, "", "traces"),
        (3, "", "job"),
        (3, "--no-summary", "traces"),
        (2, "--summary", "job"),
    ):
        names = [f"{rank}.json" for rank in range(files)]
        told = json.loads(call("analyze", *names, *words.split(), "--json", "-", cwd=tmp_path).stdout)
        assert list(told) == [key] and len(told["job"]["ranks"] if key == "job" else told[key]) == files
    done = call("analyze", *names, "--summary", "--csv", "t", "--device-spec", "x", cwd=tmp_path)
    assert done.returncode == 2 and b"--device-spec applies to single traces only" in done.stderr
    succeeds("analyze", *names, "--summary", "--csv", "t", cwd=tmp_path)
    assert (tmp_path / "t" / "ranks.csv").read_text().count("\n") == 3


def test_the_summary_of_a_job_begins_with_the_longest_waits() -> None:
    def row(**values: int) -> Any:
        return SimpleNamespace(**values)

    waits = [row(wait_ns=1, start_ns=5), row(wait_ns=9, start_ns=7), row(wait_ns=9, start_ns=6)]
    late = [row(behind_ns=1, rank=0), row(behind_ns=3, rank=2), row(behind_ns=3, rank=1)]
    made: Any = row(ranks=[row(rank=0), row(rank=1)], late=[1], collectives=waits, stragglers=late)
    for name in ("spread", "outliers", "kernels", "operators"):
        setattr(made, name, [])
    shown: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "table_text", lambda table, width, top: shown.append((table, top)) or "table")
        assert module.summary_text(made, 80) == "job of 2 ranks, 1 stragglers: 1\n\ntable\n\ntable"
        assert shown == [([late[2], late[1], late[0]], 15), ([waits[2], waits[1], waits[0]], 15)]
        made.late, made.collectives = [], []
        assert module.summary_text(made, 80).startswith("job of 2 ranks\n")
