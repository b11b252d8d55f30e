"""`etplus analyze`: imports, devices, tables as CSV."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from etplus.linker import link
from made_traces import kernel, launch, op
from support import call, fixture_pair, kineto_document


@pytest.fixture(scope="module")
def etplus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("analyze") / "et_plus.json.gz"
    link(*fixture_pair("pairs/gpu_shaped_from_cpu")).write(path)
    return path


def test_an_analysis_imports_nothing_that_it_does_not_need(etplus: Path) -> None:
    """Neither other formats and what reads them, nor what is for several ranks."""
    code = (
        "import sys; from etplus.cli.main import main\n"
        f"main(['analyze', {str(etplus)!r}, '-o', {str(etplus.with_suffix('.txt'))!r}])\n"
        "heavy = ['google', 'mcp', 'multiprocessing', 'networkx', 'numpy.ma', 'pandas', 'pyarrow', 'sqlite3', 'tqdm']\n"
        "own = ['linker', 'schemas.kineto.read_kineto', 'schemas.execution_trace.read_et', 'schemas.text.recover',\n"
        "       'jobs.matching', 'analysis.job_summary', 'analysis.trace_diff', 'converters.job']\n"
        "print([name for name in [*heavy, *(f'etplus.{name}' for name in own)] if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
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
