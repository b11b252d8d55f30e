"""What etplus fit prints; the numbers depend on numpy."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_texts import check_texts


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "fit plus.json -o model.json",
        "fit plus.json -o model2.json --explain gemm --json -",
        "fit plus.json -o model3.json --explain gemm --compare",
        "fit plus.json -o model4.json --explain nothing --keep-outliers",
        "fit plus.json -o model5.json --compare --json numbers.json",
    ]
    check_texts("fit", cases, tmp_path, masked=True)
