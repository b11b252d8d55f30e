"""What etplus fit and predict print; the numbers depend on numpy."""

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
        "predict plus.json --model model.json --force",
        "predict plus.json --model model.json --force --json -",
        "predict plus.json --model model.json --force --engine overheads -o text.txt",
        "predict plus.json --model model.json --force --gpu 3",
        "predict plus.json --model model.json --force --set batch=8",
        "predict plus.json --model model.json --force --set dtype=bfloat16",
        "predict plus.json --model model.json --also plus.json",
        "predict plus.json --model model.json --rank-couple --steps 0",
        "predict plus.json --model model.json --steps 0 --keep-outliers --host model",
    ]
    check_texts("fit", cases, tmp_path, masked=True)
