"""What etplus check prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_texts import check_texts


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "check plus",
        "check plus.0.et --profile astra-sim",
        "check plus.0.et --profile astra-sim --limit 1",
        "check plus.0.et --json -",
        "check --json plus",
        "check plus --json report.json -o text.txt",
        "check",
        "check nothing",
    ]
    check_texts("check", cases, tmp_path)
