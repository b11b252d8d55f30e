"""Stores of the texts of rows: what they decode, by hand."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pytest
from etplus.schemas.etplus import record_store
from etplus.schemas.etplus.record_store import FileRecords, TextRecords
from etplus.trace.columns import IntColumn

TEXTS = [
    b'{"id": 1, "args": {"bytes": 512}}', b'{"id": 2, "args": {}}', b'{"id": 3}', b'{"id": 4, "args": {"bytes": 7}}',
]  # fmt: skip


class Made(TextRecords):
    def texts(self, rows: IntColumn) -> list[bytes]:
        return [TEXTS[row] for row in rows.tolist()]

    def chunks(self) -> Iterator[bytes]:
        yield b'{"nodes": ['
        yield b",".join(TEXTS)
        yield b"]}"


def test_records_of_rows_are_decoded_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.array([2, 0, 3, 0, 1])
    for at_once in (4096, 2, 1):
        monkeypatch.setattr(record_store, "_RECORDS", at_once)
        assert [bytes(record["id"]) for record in Made().records(rows)] == [b"3", b"1", b"4", b"1", b"2"]
        assert Made().copy_sizes(rows).tolist() == [-1, 512, 7, 512, -1]
    assert list(Made().records(np.zeros(0, np.int64))) == [] == Made().copy_sizes(np.zeros(0, np.int64)).tolist()
    assert Made().decoded(3) == {"id": 4, "args": {"bytes": 7}}
    which, texts = Made().tensor_texts(rows)
    assert [texts[at] for at in which] == texts[:] == Made().texts(rows) and list(Made().other_events()) == []
    assert Made().args_size(b'{"bytes": 9}') == 9 and Made().args_size(b"{}") == -1
    assert Made().args_comm(b'{"Group size": 4}', "ncclDevKernel_AllReduce").group_size == 4
    assert Made().signature_table().values == []


def test_a_store_is_written_unchanged_plain_and_gzipped(tmp_path: Path) -> None:
    whole = {"nodes": [orjson.loads(text) for text in TEXTS]}
    assert Made().document() == whole
    Made().write(tmp_path / "x.json")
    Made().write(tmp_path / "x.json.gz", jobs=2)
    plain = (tmp_path / "x.json").read_bytes()
    assert plain == b'{"nodes": [' + b",".join(TEXTS) + b"]}" == gzip.decompress((tmp_path / "x.json.gz").read_bytes())


def test_records_of_a_file_in_memory_are_found_by_row() -> None:
    data = b"[" + b", ".join(TEXTS) + b"]"
    start = np.array([data.index(text) for text in TEXTS])
    records = FileRecords(data, start, start + [len(text) for text in TEXTS])
    assert records.texts(np.array([3, 0, 0])) == [TEXTS[3], TEXTS[0], TEXTS[0]]
    assert records.texts(np.zeros(0, np.int64)) == [] and list(records.chunks()) == [data]
    assert records.document() == [orjson.loads(text) for text in TEXTS] and records.decoded(1)["id"] == 2
