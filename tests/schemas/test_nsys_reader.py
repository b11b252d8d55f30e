"""Reading exports of Nsight Systems: range texts, ranks, versions of the schema, and files that are broken."""

import gzip
import io
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
from etplus.schemas.kineto.read_kineto import KinetoTrace
from etplus.schemas.nsys import find_ranks, is_nsys, read_nsys
from etplus.schemas.nsys.nsys_reader import _last_record
from etplus.schemas.nsys.ranges import read_range
from etplus.trace.errors import TraceFormatError, UsageError
from hypothesis import given
from hypothesis import strategies as st
from nsys_files import call, gpu, kernel, small_export

EVALUATE = "autograd::engine::evaluate_function"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return small_export(tmp_path / "small.sqlite")


def names_of(trace: KinetoTrace, category: str) -> list[str]:
    events = trace.events
    return [events.names[code] for code in events.name[events.rows(category)].tolist()]


@given(
    st.text(alphabet="abc:_.() ,=[]", min_size=1).filter(lambda name: " = " not in name),
    st.none() | st.integers(0, 10**6),
    st.integers(1, 10**9),
    st.lists(st.lists(st.integers(0, 99), max_size=3), max_size=3),
    st.lists(st.tuples(st.integers(0, 50), st.integers(-1, 3)), max_size=3),
)
def test_range_texts_of_emit_nvtx_are_parsed_into_their_parts(
    name: str, seq: int | None, op_id: int, sizes: list[list[int]], inputs: list[tuple[int, int]]
) -> None:
    text = name + (f", seq = {seq}" if seq is not None else "") + f", op_id = {op_id}"
    text += f", sizes = {sizes}" if sizes else ""
    text += ", input_op_ids = [" + ", ".join(f"({one},{output})" for one, output in inputs) + "]" if inputs else ""
    found = read_range(text)
    assert (found.name, found.seq, found.op_id) == (name, -1 if seq is None else seq, op_id)
    assert (msgspec.json.decode(found.sizes) if found.sizes else []) == sizes
    assert found.producers == tuple(dict.fromkeys(one for one, _ in inputs if one))


@pytest.mark.parametrize(
    ("text", "name", "category"),
    [
        ("aten::mm, op_id = 3", "aten::mm", "cpu_op"),
        ("AddmmBackward0, seq = 4, op_id = 3", "AddmmBackward0", "cpu_op"),
        ("record_param_comms, op_id = 9", "record_param_comms", "cpu_op"),
        (f"{EVALUATE}: MmBackward0, op_id = 9", f"{EVALUATE}: MmBackward0", "cpu_op"),
        ("FSDP::pre_forward (layer.1), op_id = 3", "FSDP::pre_forward (layer.1)", "user_annotation"),
        ("ProfilerStep#3, op_id = 8", "ProfilerStep#3", "user_annotation"),
        ("Optimizer.step#Adam.step, seq = -1, op_id = 8", "Optimizer.step#Adam.step", "user_annotation"),
        ("aten::mm", "aten::mm", "cpu_op"),
        ("my step, sizes = big", "my step, sizes = big", "user_annotation"),
        ("layer:conv1", "nn.Module: conv1", "python_function"),
        ("{'Module': 'model.layers.0.mlp', 'Inputs': [[1, 2]]}", "nn.Module: model.layers.0.mlp", "python_function"),
        ("nn.Module: Linear_0", "nn.Module: Linear_0", "python_function"),
        ("", "", "user_annotation"),
    ],
)  # fmt: skip
def test_nvtx_range_texts_get_a_name_and_a_category(text: str, name: str, category: str) -> None:
    assert read_range(text)[:2] == (name, category)


def test_a_wait_is_for_the_last_record_of_its_event_before_it() -> None:
    keys = ("contextId", "eventId", "correlationId")
    records, waits = (
        dict(zip(keys, map(np.array, columns), strict=True))
        for columns in (([1, 1, 1, 2], [5, 5, 6, 5], [20, 10, 15, 12]),
                        ([1, 1, 1, 2, 1, 3], [5, 5, 6, 5, 5, 5], [11, 25, 15, 30, 9, 50]))
    )  # fmt: skip
    assert _last_record(records, waits).tolist() == [1, 0, -1, 3, -1, -1]


def test_each_process_and_gpu_of_an_export_becomes_one_rank(tmp_path: Path) -> None:
    whose = ({"pid": 9}, {"device": 1}, {"pid": 8})
    path = small_export(
        tmp_path / "x.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[kernel(20_000, 26_000, 101, **one) for one in whose],
        CUPTI_ACTIVITY_KIND_RUNTIME=[call(14_000, 15_000, 1, 101), call(14_000, 15_000, 1, 101, pid=8)],
        CUPTI_ACTIVITY_KIND_MEMCPY=[], CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=[
            {**gpu(45_000, 45_100, 105), "contextId": context, "syncType": 4, "eventId": 0} for context in (1, 2, 3)
        ],
    )  # fmt: skip
    assert [(one.rank, one.pid, one.device) for one in find_ranks(path)] == [(0, 8, 0), (1, 9, 0), (2, 7, 1)]
    of_seven = read_nsys(path, pid=7)
    assert names_of(of_seven, "kernel") == ["void gemm<float>(int)"] and len(of_seven.events.rows("cpu_op")) == 4
    assert len(read_nsys(path, rank=0).events.rows("cpu_op")) == 0
    with pytest.raises(UsageError, match="no pid 7, GPU 0"):
        read_nsys(path, pid=7, device=0)


def test_a_graph_recorded_as_a_whole_becomes_one_kernel(tmp_path: Path) -> None:
    graphs = [{**gpu(40_000, 43_000, 102), "graphId": 9}]
    trace = read_nsys(small_export(tmp_path / "x.sqlite", CUPTI_ACTIVITY_KIND_GRAPH_TRACE=graphs))
    assert names_of(trace, "kernel")[-1] == "CUDA graph 9"


def test_an_export_without_newer_columns_and_tables_is_read(tmp_path: Path) -> None:
    old = {key: value for key, value in kernel(20_000, 26_000, 101).items() if key not in ("graphId", "graphNodeId")}
    path = small_export(
        tmp_path / "x.sqlite", CUPTI_ACTIVITY_KIND_KERNEL=[old], CUPTI_ACTIVITY_KIND_CUDA_EVENT=[],
        TARGET_INFO_GPU=[], ANALYSIS_DETAILS=[], TARGET_INFO_SESSION_START_TIME=[],
    )  # fmt: skip
    trace = read_nsys(path)
    assert len(trace.events.rows("kernel")) == 1 and trace.base_time_ns == 0


def test_exports_from_paths_bytes_and_gzip_are_read_the_same(small: Path, tmp_path: Path) -> None:
    data = small.read_bytes()
    packed = tmp_path / "small.sqlite.gz"
    packed.write_bytes(gzip.compress(data))
    expected = read_nsys(small).events.ts.tolist()
    for source in (small, str(small), packed, data, gzip.compress(data), io.BytesIO(data)):
        assert isinstance(source, io.BytesIO) or is_nsys(source)
        assert read_nsys(source).events.ts.tolist() == expected
    assert not is_nsys(tmp_path) and not is_nsys("-") and not is_nsys(tmp_path / "none") and not is_nsys(b"{}")
    assert small.read_bytes() == data and not list(tmp_path.glob("*-wal")) and not list(tmp_path.glob("*-shm"))


def _execute(statement: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(statement)

    return change


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("change", "message"),
    [(_cut, "cannot be read as a SQLite database"),
     (_execute("ALTER TABLE NVTX_EVENTS DROP COLUMN start"), "NVTX_EVENTS: column start is missing; export it"),
     (_execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon'"), "KERNEL, start: 'soon' is not an integer"),
     (_execute("UPDATE NVTX_EVENTS SET start = -5"), "a time that is negative"),
     (_execute("DELETE FROM StringIds WHERE id = 3"), "KERNEL: name 3 is not in StringIds")],
)  # fmt: skip
def test_a_broken_export_is_refused_with_the_reason(small: Path, change: Callable[[Path], None], message: str) -> None:
    change(small)
    with pytest.raises(TraceFormatError, match=rf"small\.sqlite: .*{message}"):
        read_nsys(small)


@pytest.mark.parametrize(
    ("name", "value", "size"),
    [("x:ENVIRONMENT_VARIABLE", "WORLD_SIZE=4", 4), ("x:ENVIRONMENT_VARIABLE", 'SLURM_NTASKS="16"', 16),
     ("x:ENVIRONMENT_VARIABLE", "WORLD_SIZE=0", None), ("x:OTHER", "WORLD_SIZE=4", None)],
)  # fmt: skip
def test_the_world_size_is_read_from_the_environment(name: str, value: str, size: int | None, tmp_path: Path) -> None:
    path = small_export(tmp_path / "x.sqlite", META_DATA_CAPTURE=[{"name": name, "value": value}])
    assert read_nsys(path).distributed_info == ({} if size is None else {"world_size": size})
