"""What etplus predict prints; the numbers depend on numpy."""

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
        "predict plus.json --model model.json --force",
        "predict plus.json --model model.json --force --json -",
        "predict plus.json --model model.json --force --engine overheads -o text.txt",
        "predict plus.json --model model.json --force --gpu 3",
        "predict plus.json --model model.json --force --set batch=8",
        "predict plus.json --model model.json --force --set dtype=bfloat16",
        "predict plus.json --model model.json --also plus.json",
        "predict plus.json --model model.json --rank-couple --steps 0",
        "predict plus.json --model model.json --steps 0 --keep-outliers --host model",
        "predict plus.json kineto.json --model model.json --force --rank-couple",
        "predict plus.json --device H100 --model model.json --force -o other.txt",
        "predict plus.json --model model.json --set batch=32:8 --also slow.json --force",
        "predict plus.json --model model.json --set batch=x",
        "predict plus.json --model plus.json",
    ]
    check_texts("predict", cases, tmp_path, masked=True)
