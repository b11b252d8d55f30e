"""Traces as Parquet files: the same trace and the same bytes back, and what of a broken folder is refused."""

import hashlib
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from etplus import convert
from etplus.converters.open import load
from etplus.schemas.communications import communication_columns
from etplus.schemas.parquet import arrow_tables
from etplus.schemas.parquet.arrow_tables import arrow_bytes, arrow_lists, arrow_texts
from etplus.schemas.parquet.parquet_reader import read_parquet
from etplus.schemas.parquet.parquet_writer import write_parquet
from etplus.schemas.parquet.stored_folder import StoredRank, is_stored, stored_ranks
from etplus.schemas.parquet.stored_tables import TABLES, files_of, read_exchanges
from etplus.trace.errors import ConvertError, TraceFormatError, UsageError
from etplus.trace.frames import arrow_numbers
from made_trace import made_trace
from made_traces import program, traced
from same_traces import assert_same, assert_same_trace
from support import linked


@pytest.mark.parametrize("name", ["pairs/gpu_shaped_from_cpu", "gpu-pairs/dlrm.rank1"])
def test_a_pair_comes_back_as_its_file_gives_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etplus.schemas.parquet.parquet_writer._CHUNK", 30_000)
    trace = linked(name)
    write_parquet(trace, tmp_path / "x.parquet")
    found = read_parquet(tmp_path / "x.parquet")
    text = b"".join(trace.chunks())
    assert b"".join(found.chunks()) == text
    expected = load(text)
    assert_same_trace(found, expected)
    rows = expected.gpu.source[expected.gpu.source >= 0][::-1]
    (which, texts), (wanted, known) = (trace.texts.launch_args(rows) for trace in (found, expected))
    assert which.tolist() == wanted.tolist() and list(texts) == list(known)
    calls = expected.calls.source[::-1]
    found_uses, known_uses = (trace.texts.tensor_uses(calls) for trace in (found, expected))
    for column, known_column in zip(found_uses[:-2], known_uses[:-2], strict=True):
        assert_same(column, known_column)
    assert all(found_uses.device(at) == known_uses.device(at) for at in range(len(known_uses.node)))


def test_the_source_lines_of_operators_come_back(tmp_path: Path) -> None:
    write_parquet(traced(program({4: ("mm", 5.0), 5: ("add", 5.0)})), tmp_path / "x.parquet")
    assert [op.source and op.source.line for op in load(tmp_path / "x.parquet").ops] == [4, 5]


def test_columns_have_units_and_other_readers_see_the_same_sums(tmp_path: Path) -> None:
    trace = linked("pairs/gpu_shaped_from_cpu")
    write_parquet(trace, tmp_path / "x.parquet")
    device = pq.read_table(tmp_path / "x.parquet" / "device.parquet")
    assert device.schema.field("duration_ns").metadata[b"unit"] == b"ns"
    assert sum(device.column("duration_ns").to_pylist()) == int(trace.gpu.dur.sum() + trace.unattached.dur.sum())
    assert {"start_ns", "name", "stream", "op_name", "step"} <= set(device.column_names)
    calls = trace.gpu.call[np.argsort(trace.gpu.source)]
    names = device.column("op_name").to_pylist()[: len(trace.gpu)]
    assert names == [trace.names[code] for code in trace.calls.name[calls]]


def test_ranks_are_partitions_that_a_dataset_finds(tmp_path: Path) -> None:
    traces = [linked(f"gpu-pairs/dlrm.rank{rank}") for rank in (0, 1)]
    convert(traces, tmp_path / "job.parquet")
    (tmp_path / "job.parquet" / "trace" / "rank=9").mkdir()
    assert [rank.rank for rank in stored_ranks(tmp_path / "job.parquet")] == [0, 1], "one without a trace is none"
    table = ds.dataset(tmp_path / "job.parquet" / "device", partitioning="hive").to_table()
    for rank, trace in enumerate(traces):
        own = table.filter(ds.field("rank") == rank)
        assert sum(own.column("duration_ns").to_pylist()) == int(trace.gpu.dur.sum() + trace.unattached.dur.sum())
        stored = StoredRank(str(tmp_path / "job.parquet"), rank)
        assert_same(load(stored), read_parquet(tmp_path / "job.parquet", rank=rank))
    with pytest.raises(UsageError, match="has ranks 0 to 1; choose one"):
        load(tmp_path / "job.parquet")
    with pytest.raises(UsageError, match="choose one"):
        load(tmp_path / "job.parquet", rank=7)
    with pytest.raises(UsageError, match="has rank 0, which is not an input"):
        convert([traces[1]], tmp_path / "job.parquet")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    write_parquet(linked("demo/train_cpu"), tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def _changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGES = [*zip(sorted({*TABLES} - {"steps"}), cycle([_changed, Path.unlink]), strict=False)]


@pytest.mark.parametrize(("table", "damage"), DAMAGES)
def test_a_broken_file_is_refused_in_one_line(table: str, damage: Any, stored: Path) -> None:
    damage(stored / f"{table}.parquet")
    with pytest.raises(TraceFormatError) as caught:
        b"".join(load(stored).chunks())
    assert "\n" not in str(caught.value)
    assert f"{table}.parquet" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"etplus_columns": 99}, "version 99"), ({"names": ["a", "a"]}, "contains a duplicate name"),
        ({"digests": {}}, "does not list all tables"), ({"rows": 1}, "are inconsistent"),
        ({"names": []}, "are inconsistent"), ({"rows": "x"}, "not a trace stored as columns"),
    ],
)  # fmt: skip
def test_a_broken_description_is_refused(change: dict[str, Any], problem: str, stored: Path) -> None:
    meta = stored / "trace.json"
    meta.write_bytes(orjson.dumps(orjson.loads(meta.read_bytes()) | change))
    with pytest.raises(TraceFormatError, match=problem):
        load(stored)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("calls", "signature", 2**40), ("calls", "text_size", 1e300), ("calls", "start_ns", 0.5),
        ("communications", "row", 2**40), ("communications", "dtype", 7), ("device", "text_at", -1),
        ("device", "launch_args", 7),
    ],
)  # fmt: skip
def test_a_table_that_another_program_wrote_is_refused(table: str, column: str, value: Any, tmp_path: Path) -> None:
    folder = tmp_path / "x.parquet"
    write_parquet(linked("pairs/gpu_shaped_from_cpu"), folder)

    path, meta = folder / f"{table}.parquet", folder / "trace.json"
    found = pq.read_table(path)
    broken = found.set_column(found.column_names.index(column), column, pa.array([value] * len(found)))
    pq.write_table(broken, path)
    described = orjson.loads(meta.read_bytes())
    described["digests"][table] = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    meta.write_bytes(orjson.dumps(described))
    with pytest.raises(TraceFormatError, match="its tables are inconsistent") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_a_folder_of_something_else_is_never_written_to(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").mkdir()
    (tmp_path / "x.parquet" / "notes.txt").write_text("mine")
    assert not is_stored(tmp_path / "x.parquet")
    with pytest.raises(UsageError, match="contains other files"):
        linked("demo/train_cpu").save(tmp_path / "x.parquet")
    assert [path.name for path in (tmp_path / "x.parquet").iterdir()] == ["notes.txt"]
    with pytest.raises(ConvertError, match="has no records to write"):
        write_parquet(made_trace(), tmp_path / "y.parquet")


def test_a_trace_may_be_written_again_but_not_over_its_own_input(stored: Path) -> None:
    before = {path.name: path.read_bytes() for path in stored.iterdir()}
    linked("demo/train_cpu").save(stored)
    assert {path.name: path.read_bytes() for path in stored.iterdir()} == before
    with pytest.raises(UsageError, match="would replace"):
        convert(stored, stored)


def test_arrow_arrays_equal_those_that_pyarrow_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    arrow, random = pa, np.random.default_rng(1)
    for dtype, count in product((np.int8, np.int32, np.int64, np.float64, np.bool_), (0, 1, 7, 8, 9, 100)):
        values, missing = random.integers(0, 2, 2 * count).astype(dtype)[::2], random.random(count) < 0.5
        for mask in (None, missing, np.zeros(count, np.bool_)):
            made = arrow_numbers(values, mask)
            made.validate(full=True)
            assert made.equals(arrow.array(values, mask=mask))
    texts = ["", "mm", None, "é", "\U0001f600"]
    lists = [[1, -(2**63)], None, [], [3]]
    for some in ([], texts, texts[:2], [None]):
        assert arrow_texts(some).equals(arrow.array(some, arrow.string()))
    for some in ([], lists, lists[2:], [None]):
        assert arrow_lists(some).equals(arrow.array(some, arrow.list_(arrow.int64())))
    monkeypatch.setattr(arrow_tables, "_MOST_BYTES", 3)
    assert arrow_bytes([b"abcd", None]).equals(arrow.array([b"abcd", None], arrow.binary()))
    with pytest.raises(arrow.ArrowInvalid):
        arrow_texts([b"\xff"])


def test_the_communications_of_a_rank_are_read_without_its_other_tables(tmp_path: Path) -> None:
    trace, folder = linked("gpu-pairs/dlrm.rank1"), tmp_path / "job.parquet"
    write_parquet(trace, folder, rank=1)
    facts, columns = read_exchanges(StoredRank(str(folder), 1))
    groups, expected = communication_columns(trace)
    assert facts.groups == list(groups) and columns.tolist() == expected.tolist() and len(columns[0])
    assert (facts.rank, facts.begin_ns) == (trace.rank, trace.base_time_ns + trace.span.start)
    written = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert sorted(files_of(1)) == written and files_of(1)[-1] == "trace/rank=1/trace.json"
    table = folder / "exchanges" / "rank=1" / "part-0.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(TraceFormatError, match=r"part-0\.parquet: cut off or edited"):
        read_exchanges(StoredRank(str(folder), 1))
    (folder / "trace" / "rank=1" / "trace.json").write_bytes(b"{")
    with pytest.raises(TraceFormatError, match=r"trace\.json: not a trace stored as columns"):
        read_exchanges(StoredRank(str(folder), 1))
