"""What etplus diff prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_texts import check_texts


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "diff kineto.json slow.json",
        "diff kineto.json slow.json --by-shape --total",
        "diff kineto.json slow.json --total -o tables.txt --json numbers.json",
        "diff kineto.json slow.json -o page.html",
        "diff kineto.json slow.json --steps 0 --max-regression 5",
        "diff kineto.json",
        "diff kineto.json slow.json --max-regression never",
        "diff slow.json kineto.json --max-regression 5%",
    ]
    check_texts("diff", cases, tmp_path)
