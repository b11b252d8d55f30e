"""Perfetto traces: those of PyTorch against the JSON of the same runs, made ones of other writers, broken ones."""

import gzip
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etplus import load
from etplus.linker import link
from etplus.schemas.kineto.read_kineto import KinetoTrace, read_kineto
from etplus.schemas.perfetto.packets import protos
from etplus.schemas.perfetto.read_perfetto import ends_of_slices
from etplus.schemas.text.sniff import is_pftrace
from etplus.trace.conventions import MAX_DURATION_NS
from etplus.trace.errors import EtplusError, TraceFormatError, UsageError
from hypothesis import given
from hypothesis import strategies as st
from made_traces import edge_names
from pftraces import NS, Maker, graph_launch, pb
from support import SHARED, assert_valid

CUSPY = SHARED / "traces" / "cuspy"
NAMES = ("cuda_event_sync", "simple_add")

real = pytest.mark.skipif(not CUSPY.is_dir(), reason=f"no {CUSPY}: real traces are not at hand")


def rows(trace: KinetoTrace) -> list[tuple[Any, ...]]:
    events = trace.events
    found = []
    for k in range(len(events)):
        category, name = events.categories[events.category[k]], events.names[events.name[k]]
        name = name.split(" ")[0] if name.startswith("Memcpy") else name
        ids = (int(getattr(events, key)[k]) for key in ("correlation", "external_id", "rf_id", "seq"))
        found.append((category, name, int(events.ts[k]) + trace.base_time_ns, int(events.dur[k]), *ids))
    return sorted(row for row in found if row[0] != "Trace")


@real
@pytest.mark.parametrize("name", NAMES)
def test_perfetto_events_equal_those_of_the_json_within_one_ns(name: str) -> None:
    json, perfetto = (read_kineto(CUSPY / f"{name}.{suffix}") for suffix in ("json.gz", "pftrace"))
    assert perfetto.base_time_ns == json.base_time_ns
    one, other = rows(json), rows(perfetto)
    assert [row[:2] + row[3:] for row in one] == [row[:2] + row[3:] for row in other]
    assert max(abs(a[2] - b[2]) for a, b in zip(one, other, strict=True)) <= 1


def test_waits_of_render_stages_become_edges() -> None:
    trace = link(None, graph_launch().data())
    assert edge_names(trace, "graph") == {("a", "b"), ("a", "c")}
    assert edge_names(trace, "launch") == {("cudaGraphLaunch", name) for name in "abc"}
    assert [op.name for op in trace.ops] == ["aten::mm"] and trace.gpu.call.tolist() == [0, 0, 0]
    assert trace.base_time_ns + trace.calls.ts[0] == NS


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 10)), min_size=1, max_size=20))
def test_ends_are_found_by_place_and_by_nesting(slices: list[tuple[int, int, int]]) -> None:
    track = np.array([lane for lane, _, _ in slices] * 2, np.int64)
    ts = np.array([at for _, at, _ in slices] + [at + dur for _, at, dur in slices], np.int64)
    begins = np.arange(2 * len(slices)) < len(slices)
    end = ends_of_slices(begins, track, ts)
    chronological = all(np.all(np.diff(ts[track == one]) >= 0) for one in range(3))
    if not chronological:
        assert (ts[end] - ts[: len(slices)]).tolist() == [dur for _, _, dur in slices]
    assert np.all(end >= 0)


def test_each_slice_is_paired_with_its_end_by_nesting() -> None:
    begins = np.array([True, True, False, True, False, False, True])
    found = ends_of_slices(begins, np.ones(7, np.int64), np.array([0, 1, 2, 2, 4, 5, 9]))
    assert found.tolist() == [5, 2, 4, -1]
    equal = ends_of_slices(np.array([True, True, False, False]), np.ones(4, np.int64), np.array([0, 2, 2, 5]))
    assert equal.tolist() == [3, 2]


def test_a_trace_of_rocprofv3_is_read_with_its_launches_and_clocks() -> None:
    made = Maker()
    clocks = made.packet()
    for number, value in ((6, 5_000), (1, NS)):
        clocks.clock_snapshot.clocks.add(clock_id=number, timestamp=value)
    clocks.clock_snapshot.clocks.add(clock_id=64, timestamp=5, is_incremental=True, unit_multiplier_ns=1000)
    made.packet().trace_packet_defaults.timestamp_clock_id = 64
    made.thread(1, 100, 101)
    queue = made.packet().track_descriptor
    queue.uuid, queue.name = 2, "AGENT [4] QUEUE [0] (GPU)"
    made.begin(1, 1, "hip_api", "hipLaunchKernel", corr_id=77, tid=101)
    made.end(2, 1)
    made.begin(3, 2, "kernel_dispatch", "gemm", corr_id=77, agent=4, queue=1)
    made.end(10, 2)
    counter = made.packet(1).track_event
    counter.type, counter.counter_value = pb.TrackEvent.TYPE_COUNTER, 3
    trace = link(None, made.data())
    assert edge_names(trace, "launch") == {("hipLaunchKernel", "gemm")}
    assert trace.gpu.device.tolist() == [4] and trace.gpu.stream.tolist() == [1] and trace.gpu.dur.tolist() == [10_000]
    assert trace.base_time_ns + trace.runtime.ts[0] == NS + 1000


def test_work_on_unknown_stages_is_reported() -> None:
    made = graph_launch()
    made.work(NS, 5, "Vertex shader", "")
    assert ["GPU events of stage Vertex shader" in one for one in link(None, made.data()).damage] == [True]


@pytest.mark.parametrize(
    "data",
    [b'{"traceEvents": []}', b'\n{"traceEvents": []}', b"\n" * 200, b"", b"\n", b"\n\x00", b"\n\x05abcde123",
     b'\n"' + b"x" * 33 + b"\n" * 30],
)  # fmt: skip
def test_other_files_are_no_perfetto_traces(data: bytes) -> None:
    assert not is_pftrace(data)


def test_perfetto_traces_are_known_by_their_content() -> None:
    data = graph_launch().data()
    assert all(is_pftrace(data[:length]) for length in (40, 200, len(data)))


def test_of_forty_broken_traces_some_are_read_and_the_others_refused() -> None:
    outcomes = Counter[str]()
    for seed in range(40):
        rng, data = random.Random(seed), bytearray(graph_launch().data())
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(8, len(data))] = rng.randrange(256)
        try:
            trace = link(None, bytes(data[: rng.choice([len(data), rng.randrange(8, len(data))])]))
        except EtplusError:
            outcomes["refused"] += 1
        else:
            assert_valid(trace.to_dict())
            outcomes["read"] += 1
    assert min(outcomes["read"], outcomes["refused"]) > 2, outcomes


@pytest.mark.parametrize("cut", [9, -1])
def test_a_trace_that_is_cut_off_is_refused_in_one_line(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.pftrace"
    for data, problem in ((graph_launch().data()[:cut], "byte"), (gzip.compress(graph_launch().data())[:-30], "gzip")):
        path.write_bytes(data)
        with pytest.raises(TraceFormatError, match=rf"^.*cut\.pftrace.*{problem}.*$"):
            load(path)


def test_a_name_that_is_not_interned_is_an_error() -> None:
    made = graph_launch()
    made.packet(NS).track_event.category_iids.append(99)
    made.trace.packet[-1].track_event.type = 1
    with pytest.raises(TraceFormatError, match="interned value 99"):
        link(None, made.data())


def test_a_missing_perfetto_package_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    protos.cache_clear()
    with pytest.raises(UsageError, match=r"pip install 'etplus\[perfetto\]'"):
        read_kineto(graph_launch().data())
    protos.cache_clear()


def test_events_of_over_104_days_are_left_out_and_counted() -> None:
    made, longest = Maker(), MAX_DURATION_NS - 1
    made.thread(1, 100, 101)
    for number, dur in ((1, longest), (2, MAX_DURATION_NS)):
        made.begin(NS, number, "cpu_op", f"op{number}", **{"External id": number})
        made.end(NS + dur, number)
        made.work(NS, dur, "Kernel", f"k{number}", id=number, stream_id="7")
    trace = read_kineto(made.data())
    events = trace.events
    found = {events.names[name]: dur for name, dur in zip(events.name.tolist(), events.dur.tolist(), strict=True)}
    assert found == {"op1": longest, "k1": longest} and [loss.count for loss in trace.losses] == [2]


@pytest.mark.parametrize(("durations", "count"), [([0], 0), ([1], 1), ([0, 1, 5], 2)])
def test_work_without_a_stage_is_counted_if_it_takes_time(durations: list[int], count: int) -> None:
    made = graph_launch()
    for duration in durations:
        made.packet(NS).gpu_render_stage_event.duration = duration
    losses = read_kineto(made.data()).losses
    assert [(loss.count, loss.example) for loss in losses] == [(count, "GPU events without a stage")] * bool(count)
