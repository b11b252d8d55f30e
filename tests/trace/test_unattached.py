"""GPU events without a node beside those with one: which are counted, in which order, and what is said of them."""

import numpy as np
import pytest
from etplus.trace.build import NO_RECORDS, TraceBuilder
from etplus.trace.comm_kernels import Comm
from etplus.trace.tables import UnattachedEvents
from etplus.trace.trace import Trace
from etplus.trace.unattached import with_unattached
from made_trace import made_trace

Row = tuple[str, str, int, int, int, int]


def events(*rows: Row) -> UnattachedEvents:
    names, categories, *numbers = ([row[k] for row in rows] for k in range(6))
    ts, dur, correlation, reason = (np.array(one, np.int64) for one in numbers)
    stream = np.full(len(rows), 3)
    return UnattachedEvents(
        names, categories, ts, dur, stream - 3, stream, correlation, reason.astype(np.int8),  # type: ignore[arg-type]
        [b"{}"] * len(rows),
    )  # fmt: skip


def test_events_are_counted_in_order_of_start() -> None:
    trace = made_trace(
        unattached=events(
            ("gemm", "kernel", 10, 5, 5, 4), ("ncclKernel", "kernel", 1000, 300_000, 77, 1),
            ("new", "kernel", 2509, 7, 1, 1), ("Memset", "gpu_memset", 2509, 1, -1, 1),
        )
    )  # fmt: skip
    found = with_unattached(trace)
    gpu = found.gpu
    assert gpu.ts.tolist() == [10, 250, 300, 1000, 1300, 2500, 2509, 2509]
    assert [found.names[code] for code in gpu.name.tolist()] == [
        "gemm", "Memcpy DtoH", "gemm", "ncclKernel", "ncclDevKernel_AllReduce", "loose", "new", "Memset",
    ]  # fmt: skip
    assert [found.categories[code] for code in gpu.category.tolist()][-2:] == ["kernel", "gpu_memset"]
    assert gpu.runtime.tolist() == [2, 1, 0, -1, 3, 4, 0, -1] and gpu.call.tolist() == [-1, 2, 3, -1, 7, -1, -1, -1]
    assert gpu.source.tolist() == [-1, 11, 10, -1, 12, 13, -1, -1] and gpu.reason.tolist() == [4, 0, 0, 1, 0, 2, 1, 1]
    assert gpu.comm[3] == Comm() and sorted(gpu.comm) == [3, 4, 5] and gpu.bytes.tolist() == [-1, 1100] + [-1] * 5 + [2]
    assert gpu.stream.tolist() == [3, 8, 7, 3, 9, 7, 3, 3] and gpu.device.tolist() == [0, 0, 0, 0, 1, 0, 0, 0]
    assert found.runtime.launches.tolist() == [True] * 5 and trace.runtime.launches.tolist()[2] is False
    assert with_unattached(trace.with_(edges=trace.edges[1:])).runtime.launches[0], "of the event `new` alone"
    assert found.notes == (
        "3 GPU events (0.300 ms) not attached to an operator, but counted: no launcher in the trace",
        "1 GPU event (0.000 ms) not attached to an operator, but counted: parent not in the ET",
    )
    assert with_unattached(found) is found and found.span.end == 301_000


@pytest.mark.parametrize(
    ("ts", "dur", "counted"), [(0, 1, True), (2510, 3, False), (2509, 3, True), (0, 9000, True), (3000, 1, False)]
)
def test_events_count_that_ran_while_the_nodes_did(ts: int, dur: int, counted: bool) -> None:
    found = with_unattached(made_trace(unattached=events(("k", "kernel", ts, dur, 1, 1))))
    assert len(found.gpu) == 4 + counted and found.tables.whole
    outside = "1 GPU event outside the window of the ET, not counted"
    assert (outside in found.notes) == (not counted) and len(found.notes) == 1
    untimed = TraceBuilder("a").build(NO_RECORDS, summary={}, unattached=events(("k", "kernel", ts, dur, 1, 1)))
    assert with_unattached(untimed).gpu.ts.tolist() == [ts]


def noted(counts: dict[str, int], *rows: Row) -> tuple[str, ...]:
    listed = {reason: list(range(count)) for reason, count in counts.items()}
    trace: Trace = made_trace({"unattached": listed}, unattached=events(*rows) if rows else None)
    return with_unattached(trace.with_(notes=("earlier",))).notes


def test_events_that_are_not_in_the_file_are_noted() -> None:
    outside, launcher = "outside the window of the ET", "no launcher in the trace"
    assert noted({}) == ("earlier",)
    assert noted({outside: 3}) == ("earlier", "3 GPU events outside the window of the ET, not counted")
    old = " not attached to an operator and missing in this file, because an older etplus wrote it: not counted;" \
          " link the traces again"  # fmt: skip
    assert noted({launcher: 1}) == ("earlier", f"1 GPU event{old}")
    assert noted({outside: 2, launcher: 4})[1:] == (
        "2 GPU events outside the window of the ET, not counted", f"4 GPU events{old}",
    )  # fmt: skip
    row: Row = ("k", "kernel", 2_000, 1_000_000, 0, 1)
    counted = "1 GPU event (1.000 ms) not attached to an operator, but counted: no launcher in the trace"
    assert noted({launcher: 1}, row) == ("earlier", counted)
    assert noted({launcher: 3, outside: 1}, row)[1:] == (
        counted, "1 GPU event outside the window of the ET, not counted", f"2 GPU events{old}",
    )  # fmt: skip
