"""Bandwidth of copies and collectives of small traces, against sums by hand and a brute force over time."""

from functools import partial
from typing import Any

import pytest
from etplus.analysis.bandwidth import (
    BandwidthRow,
    CommunicationRow,
    _group_size,
    _kind,
    _message,
    bandwidth_series,
    communication,
    copy_bandwidth,
)
from etplus.trace.comm_kernels import Comm
from etplus.trace.trace import Trace
from made_traces import gpu, kernel, launch, op, traced


def copy(name: str, ts: float, dur: float, size: int | None, device: int = 0, stream: int = 7) -> dict[str, Any]:
    category = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
    return gpu(name, ts, dur, 0, stream, category, device, **({} if size is None else {"bytes": size}))


def among(*events: dict[str, Any]) -> Trace:
    return traced([op("aten::copy_", 0, 100), launch(1, 1), *events])


COPIES = (
    copy("Memcpy HtoD (Pageable -> Device)", 10, 10, 3000),
    copy("Memcpy HtoD (Pinned -> Device)", 15, 10, 1000, stream=8),
    copy("Memcpy HtoD (Pinned -> Device)", 60, 2, 0), copy("Memcpy HtoD", 70, 5, None),
    copy("Memcpy DtoH (Device -> Pageable)", 30, 4, 5000), copy("Memset (Device)", 40, 0, 64, device=1),
)  # fmt: skip


def test_copies_are_summed_by_device_and_kind_with_unknown_sizes_apart() -> None:
    assert copy_bandwidth(among(*COPIES)) == [
        BandwidthRow(0, "DtoH", 1, 5000, 4_000, 4_000, 0), BandwidthRow(0, "HtoD", 3, 4000, 22_000, 17_000, 1),
        BandwidthRow(1, "Memset", 1, 64, 0, 0, 0),
    ]  # fmt: skip
    rates = [row.bytes_per_second for row in copy_bandwidth(among(*COPIES))]
    assert rates == [pytest.approx(1.25e9), pytest.approx(4000 / 22e-6), None]


def test_bandwidth_over_time_equals_a_brute_force_sum() -> None:
    trace = among(*COPIES)
    found = bandwidth_series(trace)
    assert [(one.device, one.kind) for one in found] == [(0, "DtoH"), (0, "HtoD"), (1, "Memset")]
    start = trace.span.start
    events = [(10_000, 20_000, 3000), (15_000, 25_000, 1000), (60_000, 62_000, 0)]
    for at, rate in zip(found[1].ts - start, found[1].bytes_per_second, strict=True):
        wanted = sum(size / (end - begin) * 1e9 for begin, end, size in events if begin <= at < end)
        assert rate == pytest.approx(wanted, abs=1e-3)
    assert (found[1].ts - start).tolist() == [10_000, 15_000, 20_000, 25_000, 60_000, 62_000]
    assert (found[2].ts - start).tolist() == [40_000, 40_001], "a copy of no duration counts as one of 1 ns"
    assert found[2].bytes_per_second.tolist() == [64e9, 0]
    assert bandwidth_series(among(copy("Memcpy HtoD", 1, 1, None))) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Memcpy HtoD (Pageable -> Device)", "HtoD"), ("Memset (Device)", "Memset"), ("Memcpy", "Memcpy"), ("x", "x")],
)
def test_the_name_of_a_copy_gives_its_direction_or_first_word(name: str, kind: str) -> None:
    assert _kind(name) == kind


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [("allreduce", 4, 1.5), ("allgather", 4, 0.75), ("reduce_scatter", 8, 0.875), ("all_to_allv", 2, 0.5),
     ("broadcast", None, 1.0), ("reduce", 4, 1.0), ("allreduce", None, None), ("", 4, None)],
)  # fmt: skip
def test_collective_and_ranks_decide_bus_bandwidth(collective: str, ranks: int | None, factor: float | None) -> None:
    row = CommunicationRow(collective, "float", "0", ranks, 1_000_000, 2, 4_000_000, 1_000_000)
    assert row.algorithm_bandwidth == 1_000_000 / 2e-3
    assert row.bus_bandwidth == (None if factor is None else pytest.approx(factor * 5e8))
    unknown = CommunicationRow(collective, "float", "0", ranks, None, 2, 4_000_000, 1_000_000)
    assert unknown.algorithm_bandwidth is None and unknown.bus_bandwidth is None


def test_kernels_of_one_collective_group_dtype_and_size_share_a_row() -> None:
    known = {"Collective name": "allgather", "In msg nelems": 10, "Out msg nelems": 40, "dtype": "Float",
             "Group size": 4, "Process Group Name": "1", "Process Group Description": "tp"}  # fmt: skip
    collective = partial(kernel, "ncclDevKernel_AllReduce_Sum", 0, stream=9)
    events = [
        collective(10, 5, **known), collective(20, 3, **known), collective(30, 4), kernel("gemm", 0, 40, 50),
        collective(35, 1, **known | {"dtype": "Half"}),
    ]  # fmt: skip
    assert communication(among(*events)) == [
        CommunicationRow("allgather", "float", "1 tp", 4, 160, 2, 8_000, 3_000),
        CommunicationRow("allreduce", "", "", None, None, 1, 4_000, 4_000),
        CommunicationRow("allgather", "half", "1 tp", 4, 80, 1, 1_000, 1_000),
    ]


def test_a_message_has_the_bytes_of_its_larger_side() -> None:
    assert _message(Comm()) is None
    assert _message(Comm(bytes=40, in_nelems=10, out_nelems=30)) == 120
    assert _message(Comm(bytes=40, in_nelems=10, out_nelems=5)) == 40
    assert _message(Comm(bytes=40, in_nelems=0, out_nelems=10)) == 40
    assert _message(Comm(bytes=40)) == 40


def test_group_size_comes_from_the_size_ranks_or_splits() -> None:
    assert _group_size(Comm(group_size=8, pg_ranks=[0, 1])) == 8
    assert _group_size(Comm(pg_ranks=[0, 1, 2])) == 3 and _group_size(Comm(in_split=[1, 1])) == 2
    assert _group_size(Comm()) is None
