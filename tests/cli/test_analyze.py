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
from support import call, fixture_pair, kineto_document, run, shared_trace
from traces import kernel, launch, op


@pytest.fixture(scope="module")
def etplus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("analyze") / "et_plus.json.gz"
    link(*fixture_pair("pairs/gpu_shaped_from_cpu")).write(path)
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_tables_fit_80_columns(etplus: Path) -> None:
    done = run("etplus", "analyze", "--full", etplus, "--batch-size", "32")
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    parts = (
        "streams",
        "device time by operator",
        "kernels, and their share",
        "iterations",
        "samples/s",
        "T4 cudaLaunchKernel",
    )
    for part in parts:
        assert part in text
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith(("file ", "note ")))


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


def test_json_csv_and_overheads_agree(etplus: Path, tmp_path: Path) -> None:
    done = call("analyze", etplus, etplus, "--json", "--csv", tmp_path / "a" / "b", "--overheads", tmp_path / "o")
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
    pooled = json.loads((tmp_path / "o").read_bytes())
    assert pooled == told["overheads"]
    assert pooled["all"]["t4"]["n"] + pooled["all"]["t4"]["outliers"] == 2 * (
        one["overheads"]["all"]["t4"]["n"] + one["overheads"]["all"]["t4"]["outliers"]
    )
    assert pooled["t4"]["cudaLaunchKernel"]["mean"] == pytest.approx(one["overheads"]["t4"]["cudaLaunchKernel"]["mean"])


def test_options_change_what_they_say(etplus: Path, tmp_path: Path) -> None:
    spec = tmp_path / "mine.json"
    spec.write_text(json.dumps({"devices": [{"name": "mine", "tflops": {"float32": 1000}, "memory_gb_s": 1}]}))
    plain, changed = (
        json.loads(call("analyze", etplus, "--json", *options).stdout)["traces"][0]
        for options in ((), ("--cpu-event-overhead", "0", "--by-shape", "--device-spec", spec))
    )
    assert {device["known_as"] for device in changed["devices"].values()} == {"mine"}
    assert changed["overheads"]["cpu_event_overhead_us"] == 0
    assert (
        changed["overheads"]["all"]["t2"]["mean_with_outliers"] > plain["overheads"]["all"]["t2"]["mean_with_outliers"]
    )
    assert len(changed["host_ops"]) > len(plain["host_ops"])


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
     ["analyze", "good", "--csv", "broken"], ["analyze", "good", "--overheads", "good/o.json"],
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
    [["analyze"], ["analyze", "x", "--top", "0"], ["analyze", "x", "--batch-size", "-1"],
     ["analyze", "x", "--cpu-event-overhead", "nan"], ["diff", "x"],
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
    done = call("analyze", "a.json", "b.json", "--csv", "t", "-o", "x.txt", "--overheads", "o.json", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    tables = {path.stem: path.read_text().split("\n") for path in (tmp_path / "t").iterdir()}
    assert tables["host_ops"] == [
        "file,op,shapes,count,total_ns,mean_ns", "a.json,'=aten::mm,,1,20000,20000.0",
        "b.json,'=aten::mm,,2,40000,20000.0", "",
    ]  # fmt: skip
    assert tables["overheads"] == [
        "file,type,key,mean,std,n,clipped,outliers,mean_with_outliers", "a.json,t1,,0.0,0.0,0,0,0,0.0",
        "a.json,t2,'=aten::mm,5.0,0.0,1,0,0,5.0", "a.json,t3,'=aten::mm,13.0,0.0,1,0,0,13.0",
        "a.json,t4,cudaLaunchKernel,2.0,0.0,1,0,0,2.0", "b.json,t1,,78.0,0.0,1,0,0,78.0",
        "b.json,t2,'=aten::mm,5.0,0.0,2,0,0,5.0", "b.json,t3,'=aten::mm,13.0,0.0,2,0,0,13.0",
        "b.json,t4,cudaLaunchKernel,2.0,0.0,2,0,0,2.0", "",
    ]  # fmt: skip
    assert tables["copies"] == [
        "file,device,kind,count,bytes,total_ns,busy_ns,not_recorded,bytes_per_second", ""
    ]  # fmt: skip
    assert tables["memory_curve"] == ["file,device,ts_ns,allocated,reserved", ""]
    pooled = (tmp_path / "o.json").read_text()
    assert pooled.startswith('{\n "t1": {\n  "mean": 78.0,') and pooled.endswith("}\n") and pooled.count("\n\n") == 0
    assert json.loads(pooled)["t2"] == {"=aten::mm": {
        "mean": 5.0, "std": 0.0, "n": 3, "clipped": 0, "outliers": 0, "mean_with_outliers": 5.0}}  # fmt: skip
    text = (tmp_path / "x.txt").read_text()
    parts = [
        text.index(part) for part in ("file    a.json", "\n\nfile    b.json", "\n\nall 2 traces\n\nhost overheads")
    ]
    assert parts == sorted(parts) and text.count("T1 between operators") == 2
    alone = call("analyze", "--full", "a.json", cwd=tmp_path).stdout
    assert b"all 1 traces" not in alone and alone.decode() == text[: parts[1]] + "\n"
    alone = call("analyze", "a.json", "--json", cwd=tmp_path).stdout
    assert sorted(json.loads(alone)) == ["overheads", "traces"]


@pytest.mark.parametrize(("text", "mean"), [("0", 80.0), ("2", 78.0), ("0.5", 79.5), ("999999", None), ("1e6", None)])
def test_the_cost_of_an_event_is_from_0_to_a_second(text: str, mean: float | None, tmp_path: Path) -> None:
    write_steps(tmp_path / "a.json", 2)
    done = call("analyze", "a.json", "--cpu-event-overhead", text, "--json", cwd=tmp_path)
    if text == "1e6":
        assert done.returncode == 2 and b"must be from 0 to a second" in done.stderr
    elif mean is not None:
        assert json.loads(done.stdout)["overheads"]["t1"]["mean"] == mean
    assert done.returncode == 2 * (text == "1e6")


def test_tables_without_rows_have_their_columns(tmp_path: Path) -> None:
    _, kineto = fixture_pair("pairs/gpu_shaped_from_cpu")
    assert call("analyze", "--full", kineto, "--csv", tmp_path / "csv").returncode == 0
    texts = {path.stem: path.read_text() for path in (tmp_path / "csv").iterdir()}
    assert len(texts) > 20 and all(text.startswith("file,") for text in texts.values())
    assert texts["memory_curve"] == "file,device,ts_ns,allocated,reserved\n"
    assert texts["iteration_list"].startswith("file,name,start,end")
