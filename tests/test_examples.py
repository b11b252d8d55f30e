"""The examples run as a user runs them."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

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
