"""GPU events below the operator that launched them (linker/join.py): against a brute force, and case by case."""

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.linker import LinkReport, link
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.kinds import GPU, UNVERIFIED
from made_traces import call, op
from made_traces import event as made_event
from support import (
    GPU_CATEGORIES,
    Document,
    assert_valid,
    et_document,
    fixture_pair,
    kineto_document,
    ns,
    read_json,
    shared_pair,
)

Event = Document
Found = tuple[dict[int, Document], LinkReport, Document]

_WHOLE_US = 1000


class BruteForce:
    """Who launched what, found the slow way: every event is held against every call of its launcher's thread."""

    def __init__(self, events: list[Event], linked: set[int]) -> None:
        self.launchers: dict[int, list[Event]] = defaultdict(list)
        ops: dict[tuple[Any, Any], list[tuple[int, int, int]]] = defaultdict(list)
        for index, event in enumerate(events):  # what is not linked cannot be a parent
            category, args = event.get("cat", ""), event.get("args") or {}
            if category.endswith(("_runtime", "_driver")) and args.get("correlation", 0) > 0:
                self.launchers[args["correlation"]].append(event)
            if index in linked and event["name"] != "nccl:coalesced":
                ops[event["pid"], event["tid"]].append((ns(event["ts"]), ns(event["ts"]) + ns(event["dur"]), index))
        self.ops = {thread: np.array(sorted(rows)) for thread, rows in ops.items()}

    def launcher(self, gpu: Event) -> Event | None:
        before = [call for call in self.launchers[gpu["args"]["correlation"]] if call["ts"] <= gpu["ts"]]
        return max(before, key=lambda call: call["ts"], default=None)

    def parents(self, gpu: Event) -> set[int]:
        """The innermost linked op around the launch; several where whole µs cannot tell one from the other."""
        call = self.launcher(gpu)
        rows = None if call is None else self.ops.get((call["pid"], call["tid"]))
        if call is None or rows is None:
            return set()
        at, until = ns(call["ts"]), ns(call["ts"]) + ns(call["dur"])
        start, end, index = rows.T
        around = (start <= at) & ((end > at) | ((end == at) & (until <= end + _WHOLE_US)))
        if not around.any():
            return set()
        latest = start[around].max()
        around &= start == latest
        shortest = end[around].min()
        return set(index[around & (end == shortest)].tolist())


@pytest.mark.parametrize(
    ("name", "attached"),
    [
        ("pairs/gpu_shaped_from_cpu", {"kernel": 90}),
        ("gpu-pairs/resnet103", {"kernel": 2700, "gpu_memcpy": 960, "gpu_memset": 114}),
        pytest.param("gpu-pairs/linear", {"gpu_memset": 1640 // 40}, marks=pytest.mark.slow),  # times in whole µs
        ("gpu-pairs/dlrm.rank1", {"gpu_memcpy": 16}),  # kernels that were launched before the window
    ],
)
def test_every_gpu_event_is_below_the_innermost_operator_around_its_launch(name: str, attached: dict[str, int]) -> None:
    et, kineto = fixture_pair(name) if name.startswith("pairs/") else shared_pair(name)
    document = link(et, kineto).to_dict()
    assert_valid(document)
    events = read_json(kineto)["traceEvents"]
    nodes = {node["id"]: node for node in document["nodes"]}
    brute = BruteForce(events, {n["kineto_event"] for n in nodes.values() if "cat" not in n and "link" in n})
    gpu = {n["kineto_event"]: nodes[n.get("ctrl_deps", n.get("parent"))] for n in nodes.values() if "cat" in n}
    everything = [index for index, event in enumerate(events) if event.get("cat") in GPU_CATEGORIES]
    for index in everything:
        expected = brute.parents(events[index])
        assert (gpu[index]["kineto_event"] in expected) if index in gpu else not expected, (index, events[index])
    listed = [index for indices in document["etplus"]["unattached"].values() for index in indices]
    assert sorted([*gpu, *listed]) == everything, "nothing is dropped silently, nothing is there twice"
    found = Counter(events[index]["cat"] for index in gpu)
    assert attached.items() <= found.items()


def join(nodes: list[Document], events: list[Event], **header: Any) -> Found:
    kineto = kineto_document(events, **header)
    result = link(orjson.dumps(et_document(nodes)), orjson.dumps(kineto))
    document = result.to_dict()
    assert_valid(document)
    return {node["kineto_event"]: node for node in document["nodes"] if "cat" in node}, result.report, document


NODES: list[Document] = [
    {"id": 3, "name": "outer", "rf_id": 1},
    {"id": 4, "name": "inner", "rf_id": 2, "parent": 3},
    {"id": 5, "name": "last", "rf_id": 3},
]


def launch(ts: float, correlation: int, name: str = "cudaLaunchKernel", dur: float = 2, **more: Any) -> Event:
    return call(name, ts, dur, correlation) | more


def work(ts: float, correlation: int | None, cat: str = "kernel", dur: float = 5, **args: Any) -> Event:
    known = {} if correlation is None else {"correlation": correlation}
    return made_event(cat, cat, ts, dur, {"stream": 7, "device": 0, **known, **args}, tid=7000)


CPU: list[Event] = [op("outer", 0, 100, rf_id=1), op("inner", 10, 20, rf_id=2), op("last", 200, 100, rf_id=3)]


def parents(gpu: dict[int, Document]) -> list[int]:
    return [node["ctrl_deps"] for _, node in sorted(gpu.items())]


def reasons(document: Document) -> dict[str, list[int]]:
    unattached: dict[str, list[int]] = document["etplus"]["unattached"]
    return unattached


NONE, BEFORE, UNKNOWN = "no launcher in the trace", "launched before the recording", "the event has no correlation"
OUTSIDE_OP, NO_PARENT, WINDOW = "launcher outside any op", "parent not in the ET", "outside the window of the ET"
COALESCED = {"id": 6, "name": "nccl:coalesced", "rf_id": 4}


def flow(number: int, cat: str = "ac2g", ph: str = "s") -> Event:
    return {"ph": ph, "cat": cat, "name": cat, "id": number, "ts": 15}


@pytest.mark.parametrize(
    ("node", "events", "found"),
    [
        ({}, [launch(15, 1), launch(50, 2), work(60, 1), work(70, 2)], [4, 3]),  # not the operator that started last
        ({}, [launch(15, 1), launch(50, 1), work(5, 1)], [4]),  # the clocks differ: the first call is nearest
        ({}, [work(60, 1), launch(15, 1)], [4]),
        ({}, [launch(15, 5), work(60, 9)], NONE),
        ({}, [launch(15, 5), work(60, 2)], BEFORE),
        ({}, [launch(15, 5), work(3, 9)], BEFORE),
        *(({}, [launch(15, 5), launch(20, 0), work(60, none)], UNKNOWN) for none in (0, -1, None)),
        ({}, [launch(150, 1), work(160, 1)], OUTSIDE_OP),
        ({}, [launch(15, 1, tid=8), work(60, 1)], OUTSIDE_OP),
        ({}, [op("outer", 0, 100, pid=8), launch(50, 1, pid=8), work(60, 1)], NO_PARENT),
        ({}, [op("unknown", 40, 30), op("deeper", 45, 10), launch(47, 1), work(60, 1)], [3]),
        ({}, [op("unknown", 120, 30), launch(125, 1), work(160, 1)], NO_PARENT),
        ({}, [op("next", 400, 30), launch(401, 1), work(450, 1)], WINDOW),  # another iteration
        ({**COALESCED, "parent": 3}, [op("nccl:coalesced", 40, 30, rf_id=4), launch(45, 1), work(60, 1)], [3]),
        (COALESCED, [op("nccl:coalesced", 140, 30, rf_id=4), launch(145, 1), work(160, 1)], [6]),  # better than none
        ({}, [flow(1), work(60, 1)], [4]),  # the call is missing
        ({}, [flow(1, ph="f"), flow(1, "fwdbwd"), flow(2), work(60, 1)], NONE),
        ({}, [flow(2**40), work(60, 2**40)], NONE),  # an arrow within a graph
        ({}, [flow(2**40 - 1), work(60, 2**40 - 1)], [4]),
    ],
)  # fmt: skip
def test_the_parent_of_gpu_work_or_the_reason_that_it_has_none(
    node: Document, events: list[Event], found: list[int] | str
) -> None:
    gpu, _, document = join([*NODES, *([node] if node else [])], [*CPU, *events])
    assert parents(gpu) == ([] if isinstance(found, str) else found)
    assert list(reasons(document)) == ([found] if isinstance(found, str) else [])


def test_every_kind_of_gpu_work_counts_and_nothing_else() -> None:
    for category in GPU_CATEGORIES:
        gpu, report, _ = join(NODES, [*CPU, launch(15, 1), work(60, 1, category), work(90, 8, category)])
        assert [node["cat"] for node in gpu.values()] == [category] and parents(gpu) == [4]
        counts = {"total": 2, "attached": 1, "by_method": {"correlation": 1}, "unattached": {NONE: 1}}
        assert report.gpu["categories"] == {category: counts}
        assert (report.gpu["time_ns"], report.gpu["attached_time_ns"]) == (10_000, 5_000)
    for category in ("gpu_user_annotation", "cuda_sync", "overhead", "python_function", "mtia_insight"):
        gpu, report, document = join(NODES, [*CPU, launch(15, 1), work(60, 1, category)])
        assert not gpu and not report.gpu["categories"] and not reasons(document)


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "hipGraphLaunch", "cudaMemcpyBatchAsync"])
def test_a_graph_launch_or_a_batch_has_many_events_in_order_of_gpu_start(call: str) -> None:
    starts = [90, 62, 75, 70, 61]
    gpu, report, document = join(NODES, [*CPU, launch(15, 1, call), *(work(ts, 1) for ts in starts)])
    assert parents(gpu) == [4] * 5 and not report.warnings and not any("link" in node for node in gpu.values())
    assert [node["ts"] for node in document["nodes"] if "cat" in node] == sorted(starts)


def test_kernels_that_share_a_launch_of_one_are_not_certain() -> None:
    events = [*CPU, launch(15, 1), launch(50, 2), work(60, 1), work(70, 2), work(80, 2)]
    gpu, report, document = join(NODES, events)
    assert parents(gpu) == [4, 3, 3] and [node.get("link") for node in gpu.values()] == [None, *["unverified"] * 2]
    assert report.gpu["categories"]["kernel"]["unverified"] == 2
    assert report.warnings == ("2 GPU events share 1 launch of one kernel each, so their launches are not certain",)
    again = read_etplus(orjson.dumps(document))
    assert (again.nodes.link[again.nodes.kind == GPU] == UNVERIFIED).tolist() == [False, True, True]


def test_a_repeated_correlation_goes_to_the_last_call_before_the_event() -> None:
    calls = [launch(15, 1), launch(50, 1), launch(210, 1)]
    gpu, report, _ = join(NODES, [*CPU, *calls, work(20, 1), work(60, 1), work(220, 1)])
    assert parents(gpu) == [4, 3, 5]
    assert any("have the same correlation" in warning for warning in report.warnings)


def test_external_id_of_the_launching_op_in_present_files() -> None:
    cpu = [op("outer", 0, 100, (), {"External id": 1}, 1), op("inner", 10, 20, (), {"External id": 42}, 2), CPU[2]]
    gpu, report, _ = join(NODES, [*cpu, work(60, 9, **{"External id": 42}), work(70, None, **{"External id": 1})])
    assert parents(gpu) == [4, 3]
    assert report.gpu["categories"]["kernel"]["by_method"] == {"External id": 2}
    gpu, _, _ = join(NODES, [*cpu, launch(15, 1), work(60, 1, **{"External id": 1})])
    assert parents(gpu) == [4], "the correlation goes first"


def test_external_id_in_older_files_is_the_correlation_and_joins_nothing() -> None:
    nodes = [{**node, "seq_id": 10 + node["id"]} for node in NODES]
    cpu = [op("outer", 0, 100, rf_id=1, args={"External id": 1}), *CPU[1:]]
    events = [{"pid": 7, "tid": 7, **event} for event in [*cpu, work(60, 41, **{"External id": 1})]]
    document = link(orjson.dumps(et_document(nodes)), orjson.dumps({"traceEvents": events})).to_dict()
    assert document["etplus"]["link"]["ops"]["linked"] == 3
    assert reasons(document) == {"no launcher in the trace": [3]}


def test_a_launch_at_the_very_end_of_an_op_in_whole_us() -> None:
    gpu, _, document = join(NODES, [*CPU, launch(30, 1, dur=1), launch(100, 2, dur=0), work(60, 1), work(170, 2)])
    assert parents(gpu) == [4, 3]
    gpu, _, document = join(NODES, [*CPU, launch(30, 1, dur=5), launch(100, 2, dur=9), work(60, 1), work(170, 2)])
    assert parents(gpu) == [3] and reasons(document) == {"launcher outside any op": [6]}
