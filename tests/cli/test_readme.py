"""README shows what commands print, and no number that docs/reference/performance.md does not have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import ROOT, call

README = (ROOT / "README.md").read_text("utf-8")


def test_the_first_command_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    block = README.partition("```console\n$ ")[2].partition("```")[0]
    line, _, printed = block.partition("\n")
    words = [str(ROOT / word) if word.startswith("fixtures/") else word for word in line.split()[1:]]
    assert line.startswith("trace-link ") and call("link", *words, cwd=tmp_path).stderr.decode() == printed


def test_numbers_are_those_of_the_measurements() -> None:
    measured = (ROOT / "docs" / "reference" / "performance.md").read_text("utf-8")
    section = README.partition("## Accuracy and speed")[2].partition("## More")[0]
    for number in re.findall(r"\d+\.\d+%?", section):
        value = f"{float(number.rstrip('%')) / 100:.4f}" if number.endswith("%") else number
        assert value in measured, number
    assert "75 of 76" in section and "75 of 76" in measured
