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
        "analyze kineto.json --full --steps 0",
        "analyze plus.json --window 1-2.5ms",
        "analyze kineto.json plus.json",
        "analyze plus.json --csv tables -o text.txt",
    ]
    check_texts("analyze_texts", cases, tmp_path)
