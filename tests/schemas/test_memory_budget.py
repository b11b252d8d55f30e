"""Small inputs that would take much memory or time: refused in one line, long before."""

import gzip
import io
import re
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from etplus import load
from etplus.linker import link
from etplus.schemas.graph_arrays import read_graph
from etplus.schemas.text import memory_limit as memory
from etplus.trace.errors import TraceFormatError
from pftraces import Maker
from support import fixture_pair, refused

_KINETO, _ET = b'{"schemaVersion": 1, "traceEvents": [', b'{"schema": "1.0.3-chakra.0.0.4", "pid": 7, "nodes": ['
_CHAKRA = b"\x07\x0a\x050.0.4"
BOMBS = {
    "string.json.gz": (_KINETO + b'{"ph": "X", "name": "', b"a"), "nested.json.gz": (_KINETO, b"["),
    "nodes.json.gz": (_ET, b'{"id":1,"name":"a","ctrl_deps":1},'), "zeros.et.gz": (_CHAKRA, b"\0"),
    "packets.pftrace.gz": (b"", b"\x0a\x02\x40\x01"), "export.sqlite.gz": (b"SQLite format 3\0", b"\0"),
}  # fmt: skip
"""Name, how it begins, and what is repeated without end."""


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_STRETCH", 1 << 10)
    monkeypatch.setattr(memory, "_GROWN", 1 << 20)
    path, (begin, repeated) = tmp_path / name, BOMBS[name]
    path.write_bytes(gzip.compress(begin) + gzip.compress(repeated * (1_000_000 // len(repeated))) * 20)
    kineto = fixture_pair("demo/train_cpu")[1]
    for read in (load, lambda et: link(et, kineto)):
        with pytest.raises(TraceFormatError, match=re.escape(name)) as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_a_sqlite_view_of_endless_rows_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "export.sqlite"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) "
            "SELECT start, start + 1 AS end, 59 AS eventType, 'a' AS text, 1 AS globalTid FROM n"
        )
    refused("analyze", "--full", path)


def test_interned_texts_that_too_many_events_repeat_are_refused() -> None:
    made = Maker()
    made.thread(1, 7, 7)
    packet = made.packet()
    packet.interned_data.debug_annotation_names.add(iid=9, name="shape")
    packet.interned_data.debug_annotation_string_values.add(iid=8, str=b"x" * 200_000)
    packet.sequence_flags = 2
    for k in range(20_000):
        made.begin(1_700_000_000_000_000_000 + k, 1, "cpu_op", "op")
        made.trace.packet[-1].track_event.debug_annotations.add(name_iid=9, string_value_iid=8)
    with pytest.raises(TraceFormatError, match=r"has interned texts that make over"):
        load(made.data())


def test_arrays_that_unpack_to_too_many_zeros_are_refused() -> None:
    held = io.BytesIO()
    np.save(held, np.zeros((70_000, 140), np.float32))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("node_feat.npy", held.getvalue())
    with pytest.raises(TraceFormatError, match=r"unpacks to over 39\.2 MB"):
        read_graph(packed.getvalue())
