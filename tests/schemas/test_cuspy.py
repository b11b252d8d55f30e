"""Cuspy's form of a trace against Kineto's of the same run: the same calls, parents, edges, replay and analysis."""

from typing import Any

import numpy as np
import orjson
import pytest
from etplus.linker import link
from etplus.schemas.kineto.corrections import whole_us
from etplus.schemas.kineto.read_kineto import read_kineto
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.trace import Trace
from support import SHARED, assert_valid, kineto_document

TRACES = SHARED / "traces"
KINETO = {
    "alexnet": "gpu-kineto/alexnet.json.gz",
    "cuda_event_sync": "gpu-kineto/cuda_event_sync.json.gz",
    "simple_add": "gpu-pairs/simple_add.kineto.json.gz",
}

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no {TRACES}: real traces are not at hand")


@pytest.fixture(scope="module", params=KINETO)
def both(request: pytest.FixtureRequest) -> tuple[Trace, Trace]:
    name = request.param
    et = TRACES / "gpu-pairs" / "simple_add.et.json.gz" if name == "simple_add" else None
    return link(et, TRACES / KINETO[name]), link(et, TRACES / "cuspy" / f"{name}.json.gz")


def edges(trace: Trace) -> set[tuple[str, Any, Any]]:
    """Kind and ends of every edge; an end is a node's id, or the kind and correlation of a call or GPU event."""
    nodes = zip(trace.nodes.kind.tolist(), trace.nodes.correlation.tolist(), trace.nodes.id.tolist(), strict=True)
    ends = [(kind, correlation) if kind else own for kind, correlation, own in nodes]
    return {(EDGE_KINDS[kind], ends[source], ends[target]) for source, target, kind in trace.edges.tolist()}


def test_names_parents_and_edges_are_those_of_kineto(both: tuple[Trace, Trace]) -> None:
    kineto, cuspy = both
    assert_valid(cuspy.to_dict())
    assert edges(kineto) == edges(cuspy)
    assert [kineto.name_of(row) for row in range(len(kineto))] == [cuspy.name_of(row) for row in range(len(cuspy))]
    for column in ("parent_row", "link", "stream", "device"):
        assert np.array_equal(getattr(kineto.nodes, column), getattr(cuspy.nodes, column)), column
    assert np.array_equal(np.abs(kineto.nodes.thread), np.abs(cuspy.nodes.thread)), "it writes no negative thread ids"
    assert np.array_equal(kineto.gpu.call, cuspy.gpu.call) and np.array_equal(kineto.gpu.runtime, cuspy.gpu.runtime)
    assert kineto.gpu.bytes.tolist() == cuspy.gpu.bytes.tolist()
    assert np.abs(kineto.nodes.ts - cuspy.nodes.ts).max() <= 1, "it computed with doubles of µs"


@pytest.mark.parametrize(
    ("category", "args", "expected"),
    [("gpu_memcpy", {"copy kind": "PtoP", "src kind": "device", "dst kind": "array"}, "Memcpy PtoP (Device -> Array)"),
     ("gpu_memcpy", {"copy kind": "HtoD", "src kind": 2, "dst kind": 99}, "Memcpy HtoD (Pinned -> Unknown)"),
     ("gpu_memcpy", {"copy kind": 9}, "Memcpy"), ("gpu_memset", {"memory kind": 3}, "Memset (Device)")],
)  # fmt: skip
def test_copies_are_named_as_kineto_names_them(category: str, args: dict[str, Any], expected: str) -> None:
    event = {"ph": "X", "cat": category, "name": expected.split()[0], "ts": 1, "dur": 1, "args": args}
    events = read_kineto(orjson.dumps(kineto_document([event]))).events
    assert [events.names[code] for code in events.name] == [expected]


def test_times_since_the_epoch_are_rounded_to_whole_us() -> None:
    assert whole_us(np.array([499, 500, 1499, 1500])).tolist() == [0, 1000, 1000, 2000]


def test_missing_correlations_and_devices_are_taken_from_flows_and_threads() -> None:
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 5, "dur": 1}
    events = [
        {**call, "args": {"External id": 5}}, {**call, "ts": 6, "args": {"External id": 6}},
        {**call, "cat": "kernel", "ts": 9, "pid": 1, "tid": 7, "args": {"External id": 5, "stream": 0}},
        {"ph": "s", "cat": "ac2g", "id": 5, "ts": 5}, {"ph": "s", "cat": "fwdbwd", "id": 6, "ts": 6},
    ]  # fmt: skip
    found = read_kineto(orjson.dumps(kineto_document(events))).events
    assert found.correlation.tolist() == [5, -1, 5]
    assert (found.device.tolist(), found.stream.tolist()) == ([-1, -1, 1], [-1, -1, 0])


@pytest.mark.parametrize("given", [{}, {"device": 3}, {"stream": 4}, {"device": 3, "stream": 4}])
def test_only_a_missing_device_or_stream_is_taken_from_process_and_thread(given: dict[str, int]) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "pid": 1, "tid": 7, "args": given}
    found = read_kineto(orjson.dumps(kineto_document([kernel]))).events
    assert (found.device.tolist(), found.stream.tolist()) == ([given.get("device", 1)], [given.get("stream", 7)])


def test_work_of_a_graph_is_on_the_stream_where_it_ran() -> None:
    args = {"device": 0, "stream": 1000, "original_stream": 23, "correlation": 5}
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1, "pid": 0, "tid": 1000, "args": args}
    trace = link(None, orjson.dumps(kineto_document([event])))
    assert trace.gpu.stream.tolist() == [23]
    assert trace.to_dict()["nodes"][-1]["args"] == args
