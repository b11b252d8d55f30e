"""Work of kernels in small traces: whose FLOPs they are, how they are shared out, and which peak bounds."""

from typing import Any

import numpy as np
import pytest
from etplus.analysis.devices import Device
from etplus.analysis.event_work import _innermost, work_of_events
from etplus.analysis.kernel_peaks import _known_sums, against_peaks, kernel_table, row_bounds
from hypothesis import given
from hypothesis import strategies as st
from made_traces import kernel, launch, op, traced

DEVICE = Device(name="D", tflops={"float32": 2}, memory_gb_s=1000)
"""2 FLOPs take a ps, and so does a byte."""
PRODUCT = [([64, 32], "float"), ([32, 16], "float")]
FLOPS = 2 * 64 * 32 * 16
BYTES = 4 * (64 * 32 + 32 * 16 + 64 * 16)


def rows_of(*events: dict[str, Any]) -> dict[str, Any]:
    return {row.kernel: row for row in kernel_table(traced(list(events)), devices={0: DEVICE})}


def test_operators_of_a_kernel_are_sorted_by_frequency() -> None:
    events = [op("aten::a", 0, 9), op("aten::b", 10, 30), op("aten::b", 50, 9)]
    for at, ts in enumerate((1, 11, 12, 51), 1):
        events += [launch(at, ts, 0.5), kernel("k", at, 100 * at, 7)]
    rows = rows_of(*events, launch(9, 60), kernel("none", 9, 900, 5), kernel("j", 10, 950, 1))
    assert {name: row.ops for name, row in rows.items()} == {"k": ("aten::b", "aten::a"), "none": (), "j": ()}
    assert [(row.count, row.total_ns) for row in rows.values()] == [(4, 28_000), (1, 5_000), (1, 1_000)]
    assert rows["k"].above() == "aten::b,aten::a k" and rows["none"].above() == "none"


def test_kernels_of_a_trace_without_calls_have_rows() -> None:
    rows = rows_of(kernel("k", 1, 0, 5), kernel("k", 2, 10, 6), kernel("j", 3, 20, 1))
    assert [(row.kernel, row.ops, row.count, row.flops, row.bytes) for row in rows.values()] == [
        ("k", (), 2, None, None), ("j", (), 1, None, None)
    ]  # fmt: skip
    assert rows_of(op("aten::a", 0, 9)) == {}


def test_work_of_an_operator_counts_at_its_main_kernel() -> None:
    events = [op("aten::mm", 0, 50, PRODUCT)]
    for at, (name, dur) in enumerate((("fill", 90), ("gemm_a", 3), ("gemm_b", 4)), 1):
        events += [launch(at, at, 0.5), kernel(name, at, 100 * at, dur)]
    rows = rows_of(*events)
    assert {name: (row.flops, row.bytes, row.operator_ns) for name, row in rows.items()} == {
        "fill": (None, None, 0), "gemm_a": (None, None, 0), "gemm_b": (FLOPS, BYTES, 97_000)
    }  # fmt: skip
    main = rows["gemm_b"]
    assert main.flops_per_second == pytest.approx(FLOPS / 4e-6) and main.bytes_per_second == pytest.approx(BYTES / 4e-6)
    assert main.operator_flops_per_second == pytest.approx(FLOPS / 97e-6) and main.intensity == FLOPS / BYTES
    assert main.flops_share == pytest.approx(FLOPS / 4e-6 / 2e12) and main.bound == "compute"
    assert main.bytes_share == pytest.approx(BYTES / 4e-6 / 1e12) and main.peak_flops_per_second == 2e12


def test_work_is_that_of_the_innermost_counted_operator() -> None:
    outer = [([64, 32], "float"), ([16, 32], "float")]
    events = [op("aten::linear", 0, 50, outer), op("aten::mm", 5, 40, PRODUCT), launch(1, 10), kernel("gemm", 1, 60, 4)]
    trace = traced(events)
    work = work_of_events(trace)
    assert trace.names[trace.calls.name[work.call[0]]] == "aten::mm"
    assert (work.flops.tolist(), work.bytes.tolist(), work.operator_ns.tolist()) == ([FLOPS], [BYTES], [4_000])
    assert work.dtypes[work.dtype[0]] == "float32"


def test_several_launches_of_the_main_kernel_share_by_duration() -> None:
    events = [op("aten::mm", 0, 50, PRODUCT)]
    for at, dur in enumerate((1, 3, 3), 1):
        events += [launch(at, at, 0.5), kernel("gemm", at, 100 * at, dur)]
    work = work_of_events(traced(events))
    assert work.flops.sum() == FLOPS and work.bytes.sum() == BYTES and work.operator_ns.tolist() == [1000, 3000, 3000]
    assert work.flops.tolist()[0] == pytest.approx(FLOPS / 7, abs=3)


@given(st.lists(st.tuples(st.integers(-1, 9), st.booleans()), max_size=12))
def test_innermost_choices_equal_those_found_by_walking_up(drawn: list[tuple[int, bool]]) -> None:
    parent = [min(above, at - 1) for at, (above, _) in enumerate(drawn)]
    chosen = [one for _, one in drawn]
    wanted = list(chosen)
    for at in range(len(drawn)):
        above = parent[at]
        while chosen[at] and above >= 0:
            wanted[above], above = False, parent[above]
    assert _innermost(np.array(parent, np.int64), np.array(chosen, np.bool_)).tolist() == wanted


@pytest.mark.parametrize(
    ("done", "moved", "passed", "shares"),
    [
        ((4_000, 2), (1_000, 2), (1_000, 2), (1.0, 0.5, "compute")),
        ((2_000, 2), (1_000, 2), (1_000, 4), (0.5, 0.25, "memory")),  # as long: the memory
        ((1_000, 1), (1_000, 1), (None, 0), (0.5, None, "cache")),
        ((None, 0), (1_000, 1), (1_000, 1), (None, 1.0, "memory")),
        ((1_000, 1), (None, 0), (None, 0), (0.5, None, "")),
        ((0, 0), (0, 0), (0, 0), (None, None, "memory")),
    ],
)  # fmt: skip
def test_the_limit_is_the_resource_that_needs_longest_at_peak(done: Any, moved: Any, passed: Any, shares: Any) -> None:
    assert against_peaks(DEVICE, 2e12, done, moved, passed) == pytest.approx(shares)
    unknown = (None, shares[1], "" if done[0] is not None else shares[2])
    assert against_peaks(DEVICE, None, done, moved, passed) == unknown
    assert against_peaks(None, 2e12, done, moved, passed) == (None, None, "")


def test_sums_leave_out_values_that_are_unknown() -> None:
    group, values, dur = np.array([2, 0, 2, 2, 3]), np.array([2**62, -1, 2**62, -1, 0]), np.array([1, 2, 4, 8, 16])
    assert _known_sums(group, values, dur, 4) == [(None, 0), (None, 0), (2**63, 5), (0, 16)]


def test_least_times_of_events_at_the_peaks_of_the_device() -> None:
    events = [op("aten::mm", 0, 50, PRODUCT), launch(1, 5), kernel("gemm", 1, 20, 5), kernel("other", 9, 90, 5)]
    trace = traced(events)
    bounds = row_bounds([trace, trace], [DEVICE])
    assert bounds[trace.gpu.source].tolist()[0] == 33 and len(bounds) == 2 * len(trace)
    assert bounds[len(trace) :].tolist() == bounds[: len(trace)].tolist()
    assert (bounds >= 0).sum() == 2 and set(bounds.tolist()) == {33, -1}, "of other rows nothing is known"
