"""What etplus augment prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_texts import check_texts


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "augment kineto.json -o more.json --json -",
        "augment plus.json more_plus.json --json counts.json",
        "augment --et-file et.json --kineto-file kineto.json -o of_pair.json",
        "augment plus.0.et -o of_chakra.json",
        "augment plus.json",
        "augment kineto.json plus.json -o both.json",
    ]
    check_texts("augment", cases, tmp_path)
