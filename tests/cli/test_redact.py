"""What etplus redact prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_texts import check_texts


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "redact kineto.json -o copy.json",
        "redact kineto.json -o copy2.json --hosts --users --paths --json -",
        "redact kineto.json --dry-run",
        "redact kineto.json --dry-run --paths --json -",
        "redact kineto.json --dry-run --json found.json",
        "redact plus.0.et -o copy3.json",
        "redact secret.json -o masked.json",
        "redact secret.json --dry-run",
        "redact secret.json --dry-run --hosts --users --paths --json -",
        "redact secret.json --dry-run --users --json found2.json",
        "redact kineto.json",
        "redact kineto.json -o kineto.json",
    ]
    check_texts("redact", cases, tmp_path)
