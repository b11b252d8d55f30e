"""What etplus link prints, and which of two files it takes for which."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_texts import check_texts


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "link et.json kineto.json --jobs 1",
        "link kineto.json et.json -o plus2.json --jobs 1 --json -",
        "link --et-file et.json --kineto-file kineto.json --rank 3 --jobs 1",
        "link kineto.json -o alone.json --jobs 1 --json report.json",
        "link kineto.json -o alone.et",
        "link et.json kineto.json -o less.json --min-match 1 --jobs 1 --match ids",
        "link et.json",
        "link et.json et.json",
        "link kineto.json kineto.json",
        "link et.json kineto.json plus.json",
        "link",
        "link et.json --kineto-file kineto.json",
        "link --et-file -  --kineto-file -",
        "link - -o x.json --min-match 1.5",
        "link et.json kineto.json --pid 3",
    ]
    check_texts("link", cases, tmp_path)
