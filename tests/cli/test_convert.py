"""What etplus convert prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_texts import check_texts


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "convert plus.json -o job.0.et",
        "convert plus.json -o job.0.et --json -",
        "convert plus.json -o step.dot",
        "convert plus.json",
        "convert --et-file et.json --kineto-file kineto.json -o of_pair.json --json out.json",
        "convert plus.json -o three.dot --option max-nodes=3",
        "convert plus.json -o few.dot --option max_nodes",
        "convert plus.json -o few.dot --max-nodes 3",
        "convert plus.json -o few.npz --config threads",
        "convert plus.json -o few.npz --config threads=2.5",
        "convert plus.json -o job --to astra-sim",
        "convert plus.json -o job --to astra-sim --no-skew --roofline 100 --json -",
        "convert plus.json -o job --to chakra --memory-nodes --degrade",
    ]
    check_texts("convert", cases, tmp_path)
