"""What etplus evaluate prints; the numbers depend on numpy."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_texts import check_texts


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "convert plus.json -o set/train/a.npz",
        "convert kineto.json -o set/train/b.npz",
        "convert slow.json -o set/test/c.npz",
        "evaluate set",
        "evaluate set --json -",
        "evaluate set --split valid",
        "evaluate set --split train -o out.txt",
        "evaluate none",
    ]
    for split in ("train", "valid", "test"):
        (tmp_path / "set" / split).mkdir(parents=True)
    check_texts("evaluate", cases, tmp_path, masked=True)
