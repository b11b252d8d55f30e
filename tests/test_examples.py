"""The examples run as a user runs them."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
    assert "540 equivalent" in done.stdout.decode()
    assert {path.name for path in tmp_path.iterdir()} == {"tour.etplus.json.gz", "tour.0.et", "tour.html"}


@pytest.mark.slow
def test_the_tour_in_jupyter(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="needs Jupyter: pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="needs Jupyter: pip install nbclient ipykernel")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(ROOT / "examples" / "tour.ipynb", as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(one.get("text", "") for cell in notebook.cells for one in cell.get("outputs", []))
    assert "540 equivalent" in printed and (tmp_path / "tour.html").exists()
