"""Gunzipping what a damaged file still holds."""

import gzip
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from broken_records import fixture
from etplus.schemas.text import files
from etplus.schemas.text.files import gunzip
from etplus.schemas.text.text import FileText
from etplus.trace.errors import TraceFormatError


def test_whole_streams_of_one_and_of_several_members() -> None:
    text = fixture("pairs/one_of_n", "et")
    members = gzip.compress(text[:1000]) + gzip.compress(b"") + gzip.compress(text[1000:])
    for packed in (gzip.compress(text), members, members + bytes(512)):
        assert gunzip(packed) == (text, None)
    assert gunzip(b"plain text")[0] == b"" and gunzip(b"plain text")[1] is not None


PIECES = pytest.mark.skipif(not hasattr(os, "pread"), reason="needs pread")


@PIECES
def test_a_large_text_is_put_into_a_file_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    text = random.Random(3).randbytes(100_000).hex().encode()
    packed = gzip.compress(text) + gzip.compress(text)
    for damage in (b"", b"\xff" * 64):
        at = 3 * len(packed) // 4
        broken = packed[:at] + damage + packed[at + len(damage) :]
        in_memory, in_file = gunzip(broken), gunzip(broken, kept=1000)
        assert isinstance(in_memory[0], bytes) and isinstance(in_file[0], FileText)
        assert in_file[0][:] == in_memory[0] and in_file[1] == in_memory[1]
        assert in_memory[0].startswith(text) and len(in_memory[0]) > 1.4 * len(text), "damage costs what follows it"
        assert (in_file[1] is None) == (not damage) and (in_file[1] or at) >= at
        assert list(tmp_path.iterdir()) == [], "a killed process leaves nothing"


@pytest.mark.parametrize("kept", [1000, sys.maxsize])
def test_a_bomb_is_refused_with_its_sizes(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb, unpacked = gzip.compress(bytes(30_000_000), 1), list[int]()
    monkeypatch.setattr(files, "available_memory", lambda: 5_000_000)
    with pytest.raises(TraceFormatError, match=r"^b\.gz: is too large: [0-9.]+ kB of gzip .* MB.* memory"):
        gunzip(bomb, "b.gz", kept=kept, done=unpacked.append)
    assert sum(unpacked) < len(bomb)
    assert len(gunzip(gzip.compress(bytes(2_000_000)), kept=kept)[0]) == 2_000_000


@PIECES
def test_a_temporary_folder_that_cannot_be_written_to_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nonesuch"))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(TraceFormatError, match=r"writing it to .*nonesuch failed"):
        gunzip(gzip.compress(bytes(9_000_000)), "b.gz", kept=1000)
