"""`etplus analyze`, `convert --augment` and `diff` as processes."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from etplus.linker import link
from made_traces import kernel, launch, op
from support import call, fixture_pair, kineto_document, run, shared_trace


@pytest.fixture(scope="module")
def etplus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("analyze") / "et_plus.json.gz"
    link(*fixture_pair("pairs/gpu_shaped_from_cpu")).write(path)
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_tables_fit_80_columns(etplus: Path) -> None:
    done = run("etplus", "analyze", "--full", etplus)
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    parts = (
        "streams",
        "device time by operator",
        "kernels, and their share",
        "iterations",
    )
    for part in parts:
        assert part in text
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith(("file ", "note ", "        (")))


def test_an_analysis_imports_nothing_that_it_does_not_need(etplus: Path) -> None:
    """Neither other formats and what reads them, nor what is for several ranks."""
    code = (
        "import sys; from etplus.cli.main import main\n"
        f"main(['analyze', {str(etplus)!r}, '-o', {str(etplus.with_suffix('.txt'))!r}])\n"
        "heavy = ['google', 'multiprocessing', 'networkx', 'numpy.ma', 'pandas', 'pyarrow', 'sqlite3', 'tqdm']\n"
        "own = ['linker', 'schemas.kineto.read_kineto', 'schemas.execution_trace.read_et', 'schemas.text.recover',\n"
        "       'jobs.matching', 'analysis.job_summary', 'analysis.trace_diff', 'converters.job']\n"
        "print([name for name in [*heavy, *(f'etplus.{name}' for name in own)] if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_json_and_csv_agree(etplus: Path, tmp_path: Path) -> None:
    done = call("analyze", etplus, etplus, "--json", "--csv", tmp_path / "a" / "b")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    one, other = told["traces"]
    assert one == other
    for table in ("streams", "device_use", "breakdown", "kernels", "host_ops", "iteration_list"):
        rows = rows_of(tmp_path / "a" / "b" / f"{table}.csv")
        assert len(rows) == 2 * len(one[table])
    kernels = rows_of(tmp_path / "a" / "b" / "kernels.csv")
    assert [int(row["total_ns"]) for row in kernels[: len(one["kernels"])]] == [
        row["total_ns"] for row in one["kernels"]
    ]


def test_device_spec_names_the_device(etplus: Path, tmp_path: Path) -> None:
    spec = tmp_path / "mine.json"
    spec.write_text(json.dumps({"devices": [{"name": "mine", "tflops": {"float32": 1000}, "memory_gb_s": 1}]}))
    (changed,) = json.loads(call("analyze", etplus, "--json", "--device-spec", spec).stdout)["traces"]
    assert {device["known_as"] for device in changed["devices"].values()} == {"mine"}


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    name = "\x1b[2J\x1b]0;title\x07evil\r\n"
    event = {"ph": "X", "cat": "cpu_op", "name": name, "ts": 1, "dur": 2, "args": {}}
    (tmp_path / "k.json").write_text(json.dumps(kineto_document([event])))
    done = call("analyze", "--full", tmp_path / "k.json")
    assert done.returncode == 0 and b"evil" in done.stdout and b"\x1b" not in done.stdout and b"\r" not in done.stdout


def test_diff_compares_an_iteration_or_all(tmp_path: Path) -> None:
    def step(k: int) -> list[dict[str, Any]]:
        at, ids = 100 * k, {"correlation": k + 1}
        return [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{k}", "ts": at, "dur": 90},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": at, "dur": 80},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 5, "dur": 2, "args": ids},
            {"ph": "X", "cat": "kernel", "name": "gemm", "ts": at + 9, "dur": 50, "args": {"stream": 7, **ids}},
        ]

    for name, count in (("a.json", 1), ("b.json", 25)):
        (tmp_path / name).write_text(json.dumps(kineto_document([event for k in range(count) for event in step(k)])))
    done = run("etplus", "diff", "a.json", "b.json", cwd=tmp_path)
    assert done.returncode == 0 and b"step 90 \xc2\xb5s in both" in done.stdout
    done = call("diff", "a.json", "b.json", "--total", cwd=tmp_path)
    assert done.returncode == 0 and b"(+2400.0%, slower)" in done.stdout
    told = json.loads(call("diff", "a.json", "b.json", "--json", cwd=tmp_path).stdout)
    assert told["per_iteration"] and (told["iterations_a"], told["iterations_b"]) == (1, 25)
    assert told["total_a"] == told["total_b"] == 50_000


def test_slower_than_a_limit(tmp_path: Path) -> None:
    """Exit status 4, and what got slower by which operator; a faster or equal trace passes."""

    def trace(kernel_us: float) -> bytes:
        ids = {"correlation": 1}
        events = [
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 80},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 5, "dur": 2, "args": ids},
            {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 9, "dur": kernel_us, "args": {"stream": 7, **ids}},
        ]
        return json.dumps(kineto_document(events)).encode()

    (tmp_path / "a.json").write_bytes(trace(50))
    (tmp_path / "b.json").write_bytes(trace(60))
    done = call("diff", "a.json", "b.json", "--max-regression", "5%", cwd=tmp_path)
    assert done.returncode == 4
    (line,) = done.stderr.decode().splitlines()
    assert line == "slower: device time: 0.050 ms in A, 0.060 ms in B (+20.0%); operators: aten::mm +0.010 ms"
    for old, new, limit in (("b.json", "a.json", "0"), ("a.json", "b.json", "21%"), ("a.json", "a.json", "0%")):
        assert call("diff", old, new, "--max-regression", limit, cwd=tmp_path).returncode == 0


def test_augment_and_diff(etplus: Path, tmp_path: Path) -> None:
    done = run("etplus", "convert", "--augment", etplus, "-o", tmp_path / "more.json.gz")
    assert done.returncode == 0 and b"with FLOPs" in done.stderr
    done = call("diff", etplus, tmp_path / "more.json.gz")
    assert done.returncode == 0 and b"nothing changed by more than 1%" in done.stdout
    done = call("diff", "--json", etplus, tmp_path / "more.json.gz")
    assert all(row["change_ns"] == 0 for row in json.loads(done.stdout)["ops"])
    done = call("convert", "--augment", etplus, "-o", etplus)
    assert done.returncode == 2 and b"would replace an input" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["analyze", "nonesuch.json"], ["analyze", "broken"], ["analyze", "good", "--device-spec", "broken"],
     ["analyze", "good", "--csv", "broken"], ["analyze", "good", "-o", "good/o.json"],
     ["convert", "--augment", "broken", "-o", "out"], ["convert", "--augment", "good", "-o", "good/out"],
     ["diff", "good", "broken"]],
)  # fmt: skip
def test_bad_input_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 2, "args": {}}
    (tmp_path / "good").write_text(json.dumps(kineto_document([event])))
    (tmp_path / "broken").write_text("}{")
    done = call(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"error: " in done.stderr, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "good"]


@pytest.mark.parametrize(
    "arguments",
    [["analyze"], ["top", "x", "--top", "0"], ["diff", "x"],
     ["diff", "x", "y", "--max-regression", "much"], ["diff", "x", "y", "--max-regression", "-1"],
     ["convert", "--augment", "x"]],
)  # fmt: skip
def test_wrong_usage(arguments: list[str]) -> None:
    done = call(*arguments)
    assert done.returncode == 2 and b"error: " in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.slow
def test_ten_megabytes_take_seconds() -> None:
    """The process, start and all; a generous bound for busy machines."""
    done = run("etplus", "analyze", "--full", shared_trace("gpu-pairs/resnet103.kineto.json.gz"), timeout=20)
    assert done.returncode == 0 and b"ProfilerStep#5" in done.stdout


def write_steps(path: Path, steps: int) -> None:
    """Steps of 100 µs: an operator of 20 that launches, 5 after its start, a kernel that runs from 30 to 40."""
    events = []
    for k in range(steps):
        events += [op("=aten::mm", 100 * k, 20), launch(k + 1, 100 * k + 5, 2), kernel("gemm", k + 1, 100 * k + 30, 10)]
    path.write_text(json.dumps(kineto_document(events)))


def test_each_table_has_the_rows_of_all_traces(tmp_path: Path) -> None:
    """One step and two. A name that a spreadsheet would compute is quoted; a table without rows has its header."""
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
    alone = call("analyze", "--full", "a.json", cwd=tmp_path).stdout
    assert alone.decode() == text[:second] + "\n"
    assert list(json.loads(call("analyze", "a.json", "--json", cwd=tmp_path).stdout)) == ["traces"]


def test_tables_without_rows_have_their_columns(tmp_path: Path) -> None:
    _, kineto = fixture_pair("pairs/gpu_shaped_from_cpu")
    assert call("analyze", "--full", kineto, "--csv", tmp_path / "csv").returncode == 0
    texts = {path.stem: path.read_text() for path in (tmp_path / "csv").iterdir()}
    assert len(texts) > 20 and all(text.startswith("file,") for text in texts.values())
    assert texts["memory_curve"] == "file,device,ts_ns,allocated,reserved\n"
    assert texts["iteration_list"].startswith("file,name,start,end")
