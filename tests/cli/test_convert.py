"""The screen of `etplus convert`; its texts are in test_texts.py."""

from __future__ import annotations

from collections import Counter

import pytest
from etplus.cli.convert import _lines
from etplus.converters.exporter import Conversion


def test_the_screen_has_nine_files_and_five_notes_with_warnings_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    files = tuple(f"job.{rank}.et" for rank in range(10))
    notes = ("b", "warning a", "c " + "word " * 99, "d")
    done = Conversion(files, 12_345, Counter({"y": 2, "x": 1_000}), notes)
    lines = _lines(done, full=False)
    assert lines[0] == "wrote   job.0.et (12,345 nodes)" and lines[7:10] == [
        "wrote   job.7.et", "        and 1 more", "wrote   job.9.et"
    ]  # fmt: skip
    assert lines[10:12] == ["note    warning a", "note    b"] and lines[12].startswith("note    c word")
    assert lines[13].startswith("        word") and lines[13].endswith(" …")
    assert lines[14:] == ["note    d", "note    1,000 x", "        and 1 more: --full"]
    full = _lines(done, full=True)
    assert full[1:10] == [f"wrote   {name}" for name in files[1:]] and full[-1] == "note    2 y"
    assert len(_lines(Conversion(files[:9], 1), full=False)) == 9
