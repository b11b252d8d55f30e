"""What etplus link FOLDER prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_texts import check_texts


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "link . --dry-run",
        "link . --dry-run --ranks 0-1,4",
        "link . --dry-run --ranks 3-1",
        "link . --dry-run --ranks a",
        "link . --ranks 0 --et et.json --kineto kineto.json --jobs 1 --no-progress -o out --json -",
    ]
    check_texts("link_folder", cases, tmp_path)
