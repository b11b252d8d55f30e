"""The examples run as a user runs them."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from astra_sim import RUNNER
from made_jobs import JOBS

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"


def run(folder: Path, example: str, *arguments: str | Path) -> str:
    command = [sys.executable, str(ROOT / "examples" / example), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, cwd=folder, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="recording needs PyTorch")
def test_train_and_record(tmp_path: Path) -> None:
    text = run(tmp_path, "train_and_record.py", "made")
    assert "(100.00%)" in text and "written: made" in text
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == [
        "rank-0.et.json.gz",
        "rank-0.etplus.json.gz",
        "rank-0.kineto.json.gz",
    ]


def calls(text: str, operator: str) -> list[tuple[str, ...]]:
    """The rows of one operator: calls, certain, median, sum and GPU time."""
    return re.findall(rf"^{operator} +(\d+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) ", text, re.MULTILINE)


def test_replay_benchmark_on_the_packaged_pair(tmp_path: Path) -> None:
    text = run(tmp_path, "replay_benchmark.py")
    addmm = calls(text, "aten::addmm")
    assert [(count, certain, gpu) for count, certain, _, _, gpu in addmm] == [("3", "3", "0.0")] * 2
    assert all(0 < float(middle) < float(total) for _, _, middle, total, _ in addmm)


def test_replay_benchmark_on_a_pair_with_gpu_work(tmp_path: Path) -> None:
    name = FIXTURES / "pairs" / "gpu_shaped_from_cpu"
    text = run(tmp_path, "replay_benchmark.py", f"{name}.et.json.gz", f"{name}.kineto.json.gz")
    multiplications = calls(text, "aten::mm")
    assert multiplications and all(float(gpu) > 100 for *_, gpu in multiplications)


@pytest.fixture(scope="module")
def eight_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eight") / "traces"
    replace(JOBS["ddp"], ranks=8).write(folder)
    return folder


def feed_astra_sim(traces: Path, output: Path, simulator: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "ASTRA_SIM": simulator}
    command = ["sh", str(ROOT / "examples" / "feed_astra_sim.sh"), str(traces), str(output)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)


def test_eight_ranks_are_linked_gated_converted_and_checked(eight_ranks: Path, tmp_path: Path) -> None:
    done = feed_astra_sim(eight_ranks, tmp_path / "new" / "out")
    assert done.returncode == 0 and "set ASTRA_SIM" in done.stdout, done.stderr
    assert done.stdout.startswith("passed: 0 errors, 0 warnings: 8 ranks, ")
    assert {f"job.{rank}.et" for rank in range(8)} <= {path.name for path in (tmp_path / "new" / "out").iterdir()}
    for path in (tmp_path / "new" / "out" / "reports").iterdir():
        report = json.loads(path.read_bytes())
        assert report["status"] == "linked" and all(gate["passed"] for gate in report["gates"].values())


def test_eight_ranks_are_simulated(eight_ranks: Path, tmp_path: Path) -> None:
    if not os.access(RUNNER, os.X_OK):
        pytest.skip(f"no {RUNNER}: ASTRA-sim is not at hand")
    simulator = RUNNER.with_name("AstraSim_Analytical_Congestion_Unaware")
    done = feed_astra_sim(eight_ranks, tmp_path / "out", str(simulator))
    rows = re.findall(r"^(\d) +(\d+) of (\d+) +([\d.]+) ", done.stdout, re.MULTILINE)
    assert done.returncode == 0 and [int(rank) for rank, *_ in rows] == [*range(8)], done.stderr
    assert all(run == nodes != "0" and float(time) > 0 for _, run, nodes, time in rows)


def test_a_rank_below_the_gates_ends_the_script(eight_ranks: Path, tmp_path: Path) -> None:
    shutil.copytree(eight_ranks, tmp_path / "cut")
    kineto = tmp_path / "cut" / "rank3.kineto.json"
    kineto.write_bytes(kineto.read_bytes()[:20_000])
    done = feed_astra_sim(tmp_path / "cut", tmp_path / "out")
    assert done.returncode == 3 and "less than --min-match 0.99" in done.stderr
    report = json.loads((tmp_path / "out" / "reports" / "rank3.json").read_bytes())
    assert report["exit_code"] == 3 and any("cut off at byte" in text for text in report["warnings"])
    assert not list((tmp_path / "out").glob("job*"))


def tour() -> list[dict[str, Any]]:
    """The cells of the notebook."""
    cells: list[dict[str, Any]] = json.loads((ROOT / "examples" / "tour.ipynb").read_text())["cells"]
    return cells


def test_the_tour_stores_no_outputs() -> None:
    assert all(
        not cell["outputs"] and cell["execution_count"] is None for cell in tour() if cell["cell_type"] == "code"
    )


def test_the_code_of_the_tour(tmp_path: Path) -> None:
    """In order, in one process, as a notebook runs it."""
    code = "\n\n".join("".join(cell["source"]) for cell in tour() if cell["cell_type"] == "code")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=tmp_path, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert "540 unverified" in done.stdout.decode()
    assert "tour.0.et" in done.stdout.decode() and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_tour_in_jupyter(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="needs Jupyter: pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="needs Jupyter: pip install nbclient ipykernel")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(ROOT / "examples" / "tour.ipynb", as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(one.get("text", "") for cell in notebook.cells for one in cell.get("outputs", []))
    assert "540 unverified" in printed
