"""What etplus report prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_texts import check_texts


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "report plus.json -o page.html",
        "report plus.json -o page.txt",
        "report --et-file et.json --kineto-file kineto.json --python-frames",
        "report kineto.json --python-frames --steps 0",
        "report plus.json -o small.html --window 0-1ms --title small",
        "report plus.json -o small.html --window 5",
    ]
    check_texts("report", cases, tmp_path)
