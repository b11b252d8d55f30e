"""What etplus replay prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_texts import check_texts


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "replay plus.json",
        "replay plus.json --force --what-if kernel*0.5 --json - --chrome both.json",
        "replay plus.json --force --network bandwidth=25,latency=5us -o text.txt",
        "replay plus.json --cross-validate",
        "replay plus.json --cross-validate 0 --json -",
        "replay plus.json --cross-validate 0 --force --what-if kernel*0.5",
        "replay plus.json --cross-validate 7",
        "replay plus.json kineto.json --rank-couple",
        "replay plus.json --what-if nonsense",
    ]
    check_texts("replay_texts", cases, tmp_path)
