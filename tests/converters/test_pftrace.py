"""Perfetto traces that we write: what their packets hold, and that reading them gives the trace back."""

import gzip
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etplus.converters import pftrace
from etplus.converters.pftrace import write_pftrace
from etplus.linker import link
from etplus.trace.kinds import GPU, RUNTIME
from etplus.trace.trace import Trace
from pftraces import graph_launch, pb
from random_step import random_step
from support import fixture_pair

BEGIN, END = pb.TrackEvent.TYPE_SLICE_BEGIN, pb.TrackEvent.TYPE_SLICE_END
INSTANT = pb.TrackEvent.TYPE_INSTANT


@pytest.fixture(scope="module", params=["fixture", "graph"])
def trace(request: pytest.FixtureRequest) -> Trace:
    if request.param == "fixture":
        return link(*fixture_pair("pairs/gpu_shaped_from_cpu"))
    return link(None, graph_launch().data())


def test_packets_hold_every_slice_stage_and_launch(trace: Trace, tmp_path: Path) -> None:
    write_pftrace({0: trace}, tmp_path / "x.pftrace")
    packets = pb.Trace.FromString((tmp_path / "x.pftrace").read_bytes()).packet
    events = [packet.track_event for packet in packets if packet.HasField("track_event")]
    stages = [packet.gpu_render_stage_event for packet in packets if packet.HasField("gpu_render_stage_event")]
    host, gpu = trace.nodes.timed & (trace.nodes.kind != GPU), trace.nodes.timed & (trace.nodes.kind == GPU)
    kinds = Counter(event.type for event in events)
    assert kinds[BEGIN] == kinds[END] == np.count_nonzero(host) and len(stages) == np.count_nonzero(gpu)
    source, target, _ = trace.edges_of("launch").T
    launches = Counter(target[gpu[target] & trace.nodes.timed[source]].tolist())
    begun = Counter(flow for event in events for flow in event.flow_ids)
    ended = Counter(flow for event in events for flow in event.terminating_flow_ids)
    assert begun == ended and sum(begun.values()) == sum(launches.values()) == kinds[INSTANT]
    assert set(begun) <= {stage.event_id for stage in stages}
    interned: dict[str, set[int]] = defaultdict(set)
    for packet in packets:
        for kind, values in packet.interned_data.ListFields():
            interned[kind.name].update(one.iid for one in values)
        event, stage = packet.track_event, packet.gpu_render_stage_event
        assert not event.name_iid or event.name_iid in interned["event_names"]
        assert not stage.name_iid or stage.name_iid in interned["event_names"]
        assert not stage.stage_iid or {stage.stage_iid, stage.hw_queue_iid} <= interned["gpu_specifications"]
        assert {one.name_iid for one in event.debug_annotations} <= interned["debug_annotation_names"]


def flat(trace: Trace) -> dict[str, Any]:
    """What reading our file gives back; calls by their names, since their ids are new."""
    gpu, call = trace.gpu, trace.calls
    order = np.lexsort((gpu.name, gpu.stream, gpu.device, gpu.ts))
    names = np.array(trace.names, object)
    return {
        "gpu": [
            (names[gpu.name[k]], int(gpu.ts[k]) + trace.base_time_ns, int(gpu.dur[k]), int(gpu.stream[k]),
             int(gpu.device[k]), int(gpu.bytes[k]))
            for k in order if gpu.source[k] >= 0
        ],
        "calls": sorted(zip(names[call.name].tolist(), (call.ts + trace.base_time_ns).tolist(), strict=True)),
        "graph": sorted((trace.name_of(a), trace.name_of(b)) for a, b, _ in trace.edges_of("graph").tolist()),
        "launches": sorted(
            (trace.name_of(a), trace.name_of(b), int(trace.nodes.ts[b]) + trace.base_time_ns)
            for a, b, _ in trace.edges_of("launch").tolist() if trace.nodes.kind[a] == RUNTIME
        ),
    }  # fmt: skip


def test_a_written_pftrace_is_read_back_unchanged(trace: Trace, tmp_path: Path) -> None:
    write_pftrace({0: trace}, tmp_path / "x.pftrace.gz")
    back = link(None, tmp_path / "x.pftrace.gz")
    one, other = flat(trace), flat(back)
    if trace.edges_of("graph").size and not trace.summary["inferred_edges"]:
        assert one.pop("graph") == other.pop("graph")
    one.pop("graph", None), other.pop("graph", None)
    assert one == other


def test_packed_it_has_the_same_bytes_and_the_number_of_rows_encoded_at_once_changes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = random_step(0)
    write_pftrace({0: trace}, tmp_path / "a.pftrace")
    monkeypatch.setattr(pftrace, "_ROWS", 7)
    write_pftrace({0: trace}, tmp_path / "b.pftrace.gz")
    packed = (tmp_path / "b.pftrace.gz").read_bytes()
    assert (tmp_path / "a.pftrace").read_bytes() == gzip.decompress(packed)
