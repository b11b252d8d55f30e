"""Files that are read piece by piece."""

import json
import os
import pickle
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from etplus.linker import link
from etplus.schemas.etplus import write_etplus as etplus
from etplus.schemas.execution_trace.read_et import read_execution_trace
from etplus.schemas.kineto import read_kineto as kineto_module
from etplus.schemas.text import files, records, recover
from etplus.schemas.text import memory_limit as memory
from etplus.schemas.text.text import FileText, find, rfind
from etplus.trace.errors import TraceFormatError
from support import fixture_pair, names_in, plain

PIECES = pytest.mark.skipif(not hasattr(os, "pread"), reason="needs pread")


@PIECES
def test_slices_and_searches_of_a_file_equal_those_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = random.Random(1).randbytes(300_000) + b"needle" + random.Random(2).randbytes(300_000)
    data = data[:65_534] + b"needle" + data[65_540:]  # across the first two windows of the search
    path = tmp_path / "data"
    path.write_bytes(data)
    text = FileText(path)
    assert len(text) == len(data) and text[:] == data and text[5:9] == data[5:9] and text[-3:] == data[-3:]
    for wanted in (b"needle", b"no such bytes", b"e", data[:1], data[-1:]):
        for begin, end in ((0, len(data)), (65_535, len(data)), (65_534, 65_540), (65_534, 65_539), (9, 9)):
            assert find(text, wanted, begin, end) == data.find(wanted, begin, end)
            assert rfind(text, wanted, begin, end) == data.rfind(wanted, begin, end)
    assert pickle.loads(pickle.dumps(text)) == data
    asked: list[int] = []
    monkeypatch.setattr("etplus.schemas.text.text.require_memory", lambda name, size, *_, **more: asked.append(size))
    assert text[5:9] == data[5:9] and asked == [4]


def nameless(document: dict[str, Any]) -> dict[str, Any]:
    for key in ("kineto", "link", "damage"):
        del document["etplus"][key]
    return document


@pytest.fixture
def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_KEPT_IN_MEMORY", 0)
    monkeypatch.setattr(recover, "_PART", 40_000)
    monkeypatch.setattr(recover, "_LEAST_PART", 40_000)
    monkeypatch.setattr(records.RecordArray.blocks, "__defaults__", (None, 9_000))
    for module in (kineto_module, recover, etplus):
        monkeypatch.setattr(module, "_WORTH_A_PROCESS", 1)


@PIECES
@pytest.mark.usefixtures("in_small_pieces")
@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
def test_linking_in_pieces_and_processes_writes_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    et, kineto = tmp_path / "et.json", tmp_path / "kineto.json"
    for path, source in zip((et, kineto), fixture_pair("pairs/one_of_n"), strict=True):
        path.write_bytes(plain(source))
    whole = nameless(link(et.read_bytes(), kineto.read_bytes()).to_dict())
    assert isinstance(read_execution_trace(et).texts._text, FileText)
    fork, forked, written = os.fork, [], set()
    monkeypatch.setattr(os, "fork", lambda: (forked.append(None), fork())[1])
    for jobs in (1, 2):
        forked.clear()
        result = link(et, kineto, jobs=jobs)
        reading = len(forked)
        result.write(tmp_path / "plus.json", jobs=jobs)
        assert (reading > 0, len(forked) - reading) == (jobs == 2, jobs - 1)
        written |= {(tmp_path / "plus.json").read_bytes(), b"".join(result.chunks())}
    assert len(written) == 1
    assert nameless(json.loads(written.pop())) == whole


@PIECES
def test_a_text_that_must_be_read_whole_is_refused_without_memory_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_WORTH_ASKING", 10_000)
    monkeypatch.setattr(files, "_KEPT_IN_MEMORY", 0)
    monkeypatch.setattr(memory, "available_memory", lambda: 100_000)
    path = tmp_path / "kineto.json"
    path.write_bytes(b'{"traceEvents": [' + b"{" * 50_000)
    with pytest.raises(TraceFormatError, match=r"has to be read whole: 50\.0 kB, but only 100\.0 kB of memory"):
        kineto_module.read_kineto(path)


@PIECES
@pytest.mark.usefixtures("in_small_pieces")
def test_a_broken_file_read_in_pieces_links_the_same(tmp_path: Path) -> None:
    et, kineto = fixture_pair("pairs/one_of_n")
    broken = tmp_path / "kineto.json"
    broken.write_bytes(plain(kineto)[:-1000])
    whole, other = (link(et, one, jobs=2).to_dict() for one in (broken.read_bytes(), broken))
    assert whole["etplus"]["link"]["warnings"] and nameless(other) == nameless(whole)


@PIECES
@pytest.mark.usefixtures("in_small_pieces")
def test_a_file_changed_between_linking_and_writing_is_refused(tmp_path: Path) -> None:
    et, kineto = tmp_path / "et.json", tmp_path / "kineto.json"
    for path, source in zip((et, kineto), fixture_pair("pairs/one_of_n"), strict=True):
        path.write_bytes(plain(source))
        os.utime(path, (1, 1))
    result = link(et, kineto)
    et.write_bytes(et.read_bytes())
    for jobs in (1, 2):
        with pytest.raises(TraceFormatError, match=r"et\.json: the file was changed while it was read; try again"):
            result.write(tmp_path / "plus.json", jobs=jobs)
    assert names_in(tmp_path) == ["et.json", "kineto.json"]
