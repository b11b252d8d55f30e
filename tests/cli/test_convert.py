"""The screen of `etplus convert`; its texts are in test_texts.py."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from etplus.cli.convert import _formats, _lines
from etplus.converters.exporter import Conversion
from etplus.converters.registry import exporters, suffixes
from support import call, linked


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


def test_formats_are_listed_in_aligned_columns() -> None:
    formats, extensions = "\n".join(_formats()).split("\n\n")
    width = max(map(len, exporters())) + 4
    assert {len(line) - len(line.lstrip()) for line in formats.split("\n")} == {2, width}
    assert all(len(line) <= 80 for line in formats.split("\n"))
    assert [line.split()[0] for line in extensions.split("\n")] == [*dict.fromkeys(suffixes().values())]
    assert re.search(r"^  chrome +.*\.perfetto\.json\[\.gz\]", extensions, re.MULTILINE)


def test_numbers_of_a_conversion_have_its_network_and_its_check(tmp_path: Path) -> None:
    linked("pairs/gpu_shaped_from_cpu").save(tmp_path / "p.json")
    words = "convert p.json -o job --to astra-sim --replicate 2 --json -"
    told = json.loads(call(*words.split(), cwd=tmp_path).stdout)
    assert told["check"]["ok"] and told["network"]["bandwidth"] == 25 and told["files"][:2] == ["job.0.et", "job.1.et"]
    assert list(told["counts"]) == sorted(told["counts"])
    for words, said in (
        ("convert p.json --redact -o r.json --to chrome", b"--redact keeps the format of the file"),
        ("convert p.json p.json --redact -o r.json", b"--redact keeps the format of the file"),
    ):
        assert said in call(*words.split(), cwd=tmp_path).stderr
    done = call("convert", "--redact", "p.json", "-o", "r.json", "--json", "-", cwd=tmp_path)
    changed = json.loads(done.stdout)["changed"]
    assert done.returncode == 0 and f"changed {changed:,} records and header keys\n".encode() in done.stderr
