"""The session on a GPU: its checks find what is wrong, and a dry run on the CPU does every kind of part."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, read_json

sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_session

SESSION = ROOT / "benchmarks" / "gpu_session.py"
PYTHON = os.environ.get("ETPLUS_TEST_TORCH_PYTHON", sys.executable)


def execute(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SESSION), *map(str, words)], capture_output=True, text=True, check=False,
        **options)  # fmt: skip


def test_a_report_names_what_failed_and_what_is_wrong_first() -> None:
    facts = {
        "ops": 100, "linked": 98, "certain": 97, "unlinked": {}, "device_events": 0, "attached": 0,
        "attached_time": None, "verdict": "proved", "replay_error": 0.01, "findings": [], "ids": (90, 89),
        "modules": (5, 5), "kernel_modules": (0, 0),
    }  # fmt: skip
    wrong = gpu_session.problems("train", facts, dry=False)
    assert wrong == ["ids: 1 of 90 wrong", "98 of 100 operators linked", "1 links not certain", "no device events"]
    parts = [
        {"part": "train", "dry_run": False, "facts": facts, "problems": wrong},
        {"part": "amp", "dry_run": False, "failed": "no time left"},
    ]
    head, _, tables = gpu_session.report_text(parts).partition("## Programs")
    assert all(f"**train**: {one}" in head for one in wrong) and "**amp** failed: no time left" in head
    assert "| train | 98 of 100 |" in tables and "| amp |" not in tables


@pytest.mark.slow
@pytest.mark.skipif(
    sys.executable == PYTHON and importlib.util.find_spec("torch") is None,
    reason="needs PyTorch; ETPLUS_TEST_TORCH_PYTHON may name a Python that has it",
)
def test_a_dry_run_does_every_kind_of_part(tmp_path: Path) -> None:
    out = tmp_path / "session"
    parts = ["train", "ddp", "resnet", "capture", "measure", "change-optimizer"]
    done = execute(out, "--dry-run", "--python", PYTHON, "--only", *parts, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    found = {part["part"]: part for part in read_json(out / "report.json")}
    assert set(found) == {"machine", *parts}
    for name in ("train", "ddp", "resnet"):
        facts = found[name]["facts"]
        assert facts["certain"] == facts["linked"] >= 0.99 * facts["ops"] and facts["ids"][0] > 1000
        assert facts["ids"][0] == facts["ids"][1] and facts["modules"][0] == facts["modules"][1]
    assert found["train"]["facts"]["modules"][0] > 1000
    assert found["measure"]["facts"]["timed"] > 50 and found["change-optimizer"]["facts"]["present"]
    text = (out / "report.md").read_text()
    assert "dry run" in text and "nothing\n" in text
    again = execute(out, "--dry-run", "--python", sys.executable + "-none", "--only", "amp")
    assert again.returncode == 1 and "**amp** failed" in (out / "report.md").read_text()
    assert "| train |" in (out / "report.md").read_text()  # kept
