"""What etplus convert --augment prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_texts import check_texts


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "convert --augment kineto.json -o more.json --json -",
        "convert --augment plus.json -o more_plus.json --json counts.json",
        "convert --augment --et-file et.json --kineto-file kineto.json -o of_pair.json",
        "convert --augment plus.0.et -o of_chakra.json",
        "convert --augment plus.json",
        "convert --augment kineto.json plus.json -o both.json",
    ]
    check_texts("convert_augment", cases, tmp_path)
