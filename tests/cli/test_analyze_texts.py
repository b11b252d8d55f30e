"""What etplus analyze prints and writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_texts import check_texts


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "analyze plus.json",
        "analyze kineto.json --by-shape --top 2 --steps 0",
        "analyze plus.json --window 1-2.5ms --top 1 --batch-size 8",
        "analyze kineto.json plus.json --top 1 --overheads shared.json",
        "analyze plus.json --csv tables -o text.txt",
        "analyze plus.json --cpu-event-overhead -1",
        "analyze plus.json --consecutive-kernel-delay 30",
        "analyze plus.json --consecutive-kernel-delay 1.5us --top 1 -o more.txt",
    ]
    check_texts("analyze_texts", cases, tmp_path)
