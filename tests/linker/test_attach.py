"""GPU events below the operator that launched them: against a brute force on real traces, and case by case."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.analysis.summary import analyze
from etplus.linker import LinkReport, link
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.conventions import NO_CPU_CALLS
from etplus.trace.kinds import EQUIVALENT, GPU
from etplus.trace.unattached import with_unattached
from hypothesis import given
from hypothesis import strategies as st
from support import (
    FIXTURES,
    GPU_CATEGORIES,
    PID,
    Document,
    assert_valid,
    et_document,
    fixture_pair,
    kineto_document,
    ns,
    read_json,
    recorded_with,
    shared_case,
    shared_pair,
    shared_trace,
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


def check_against_brute_force(et: Any, kineto: Any, **options: Any) -> Counter[str]:
    """Hold every GPU event of a pair against the brute force; how many of each category are attached."""
    document = link(et, kineto, **options).to_dict()
    assert_valid(document)
    events = read_json(kineto)["traceEvents"]
    nodes = {node["id"]: node for node in document["nodes"]}
    linked = {n["kineto_event"] for n in nodes.values() if "cat" not in n and "link" in n}
    brute = BruteForce(events, linked)
    gpu = {n["kineto_event"]: nodes[n.get("ctrl_deps", n.get("parent"))] for n in nodes.values() if "cat" in n}
    for index, event in enumerate(events):
        if event.get("cat") in GPU_CATEGORIES:
            expected = brute.parents(event)
            assert (gpu[index]["kineto_event"] in expected) if index in gpu else not expected, (index, event)
    listed = [index for indices in document["etplus"]["unattached"].values() for index in indices]
    everything = {i for i, e in enumerate(events) if e.get("cat") in GPU_CATEGORIES}
    assert sorted([*gpu, *listed]) == sorted(everything), "nothing is dropped silently, nothing is there twice"
    return Counter(events[index]["cat"] for index in gpu)


def test_resnet103_against_brute_force() -> None:
    attached = check_against_brute_force(*shared_pair("gpu-pairs/resnet103"))
    assert attached == {"kernel": 2700, "gpu_memcpy": 960, "gpu_memset": 114}


@pytest.mark.slow
def test_linear_against_brute_force() -> None:
    """Times in whole µs, so that parent and child often start together; one iteration of forty is in the ET."""
    attached = check_against_brute_force(*shared_pair("gpu-pairs/linear"))
    assert 8716 // 40 <= attached["kernel"] <= 8716 // 40 + 3 and attached["gpu_memset"] == 1640 // 40


def test_dlrm_against_brute_force() -> None:
    attached = check_against_brute_force(*shared_pair("gpu-pairs/dlrm.rank0"))
    assert attached["kernel"] > 0.95 * 245 and attached["gpu_memcpy"] == 16


def test_dlrm_with_kernels_that_were_launched_before_the_window() -> None:
    attached = check_against_brute_force(*shared_pair("gpu-pairs/dlrm.rank1"))
    assert attached["kernel"] <= 310 - 64 and attached["gpu_memcpy"] == 16


def test_the_fixture_with_a_gpu_against_brute_force() -> None:
    assert check_against_brute_force(*fixture_pair("pairs/gpu_shaped_from_cpu"))["kernel"] == 90


def test_the_fixture_with_a_gpu_against_its_truth() -> None:
    et, kineto = fixture_pair("pairs/gpu_shaped_from_cpu")
    truth = read_json(FIXTURES / "pairs" / "gpu_shaped_from_cpu.gpu.json")["gpu"]
    document = link(et, kineto).to_dict()
    nodes = {node["id"]: node for node in document["nodes"]}
    found = {n["kineto_event"]: nodes[n["ctrl_deps"]]["kineto_event"] for n in nodes.values() if "cat" in n}
    assert found == {int(i): about["parent"] for i, about in truth.items() if about["parent"] is not None}
    reasons = {
        "no launcher in the trace": "launched before the recording",
        "launched outside any op": "launcher outside any op",
    }
    expected: dict[str, list[int]] = defaultdict(list)
    for index, about in truth.items():
        if about["reason"]:
            expected[reasons[about["reason"]]].append(int(index))
    assert document["etplus"]["unattached"] == expected
    parents = {c["kineto_event"]: nodes[c["parent"]]["kineto_event"] for c in document["runtime"] if c["parent"]}
    assert all(parents.get(a["launcher"]) == a["parent"] for a in truth.values() if a["launcher"] is not None)


def join(nodes: list[Document], events: list[Event], **header: Any) -> Found:
    """Link; GPU nodes by index in traceEvents, the report, and the whole document."""
    kineto = kineto_document(events, **header)
    result = link(orjson.dumps(et_document(nodes)), orjson.dumps(kineto))
    document = result.to_dict()
    assert_valid(document)
    gpu = {node["kineto_event"]: node for node in document["nodes"] if "cat" in node}
    return gpu, result.report, document


NODES: list[Document] = [
    {"id": 3, "name": "outer", "rf_id": 1},
    {"id": 4, "name": "inner", "rf_id": 2, "parent": 3},
    {"id": 5, "name": "last", "rf_id": 3},
]


def op(name: str, ts: float, dur: float, rf_id: int, **more: Any) -> Event:
    args = {"Record function id": rf_id, **more.pop("args", {})}
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "args": args, **more}


def launch(ts: float, correlation: int, name: str = "cudaLaunchKernel", dur: float = 2, **more: Any) -> Event:
    event = {"ph": "X", "cat": "cuda_runtime", "name": name, "ts": ts, "dur": dur}
    return {**event, "args": {"correlation": correlation}, **more}


def work(ts: float, correlation: int | None, cat: str = "kernel", dur: float = 5, **args: Any) -> Event:
    known = {} if correlation is None else {"correlation": correlation}
    args = {"stream": 7, "device": 0, **known, **args}
    return {"ph": "X", "cat": cat, "name": cat, "ts": ts, "dur": dur, "tid": 7000, "args": args}


CPU: list[Event] = [op("outer", 0, 100, 1), op("inner", 10, 20, 2), op("last", 200, 100, 3)]


def parents(gpu: dict[int, Document]) -> list[int]:
    return [node["ctrl_deps"] for _, node in sorted(gpu.items())]


def reasons(document: Document) -> dict[str, list[int]]:
    unattached: dict[str, list[int]] = document["etplus"]["unattached"]
    return unattached


def test_the_op_that_is_open_not_the_last_one_started() -> None:
    gpu, _, _ = join(NODES, [*CPU, launch(15, 1), launch(50, 2), work(60, 1), work(70, 2)])
    assert parents(gpu) == [4, 3]


@pytest.mark.parametrize(
    "call", ["cudaLaunchKernelExC", "hipExtModuleLaunchKernel", "cuLaunchKernelEx", "someCallOfNextYear"]
)
@pytest.mark.parametrize("category", ["cuda_runtime", "cuda_driver", "xpu_runtime", "mtia_runtime"])
def test_launch_calls_are_known_by_correlation_not_by_name(call: str, category: str) -> None:
    gpu, _, _ = join(NODES, [*CPU, launch(15, 1, name=call, cat=category), work(60, 1)])
    assert parents(gpu) == [4]


@pytest.mark.parametrize("category", GPU_CATEGORIES)
def test_every_kind_of_gpu_work_counts(category: str) -> None:
    gpu, report, document = join(NODES, [*CPU, launch(15, 1), work(60, 1, category), work(90, 8, category)])
    assert [node["cat"] for node in gpu.values()] == [category] and parents(gpu) == [4]
    assert report.gpu["categories"][category] == {
        "total": 2,
        "attached": 1,
        "by_method": {"correlation": 1},
        "unattached": {"no launcher in the trace": 1},
    }
    assert reasons(document) == {"no launcher in the trace": [5]}
    assert (report.gpu["time_ns"], report.gpu["attached_time_ns"]) == (10_000, 5_000)


@pytest.mark.parametrize(
    "category", ["gpu_user_annotation", "cuda_sync", "overhead", "python_function", "mtia_insight", "mtia_counters"]
)
def test_what_is_no_gpu_work(category: str) -> None:
    gpu, report, document = join(NODES, [*CPU, launch(15, 1), work(60, 1, category)])
    assert not gpu and not report.gpu["categories"] and not reasons(document)


def test_a_graph_launch_has_many_events_in_order_of_gpu_start() -> None:
    starts = [90, 62, 75, 70, 61]
    gpu, _, document = join(NODES, [*CPU, launch(15, 1, "cudaGraphLaunch"), *(work(ts, 1) for ts in starts)])
    assert parents(gpu) == [4] * 5
    assert [node["ts"] for node in document["nodes"] if "cat" in node] == sorted(starts)


@pytest.mark.parametrize(
    ("correlation", "ts", "reason"),
    [
        (9, 60, "no launcher in the trace"),
        (2, 60, "launched before the recording"),
        (9, 3, "launched before the recording"),
        *((none, 60, "the event has no correlation") for none in (0, -1, None)),
    ],
)
def test_the_reason_for_a_missing_launcher(correlation: int | None, ts: float, reason: str) -> None:
    gpu, _, document = join(NODES, [*CPU, launch(15, 5), launch(20, 0), work(ts, correlation)])
    assert not gpu and reasons(document) == {reason: [5]}


def test_a_trace_without_cpu_calls_says_so_for_every_kernel() -> None:
    trace = link(None, orjson.dumps(kineto_document([work(60, 1), work(70, None)])))
    assert with_unattached(trace).gpu.reason.tolist() == [NO_CPU_CALLS] * 2
    assert [row.label for row in analyze(trace).breakdown] == ["(not attached: no CPU calls were recorded)"]
    (note,) = with_unattached(trace).notes
    assert note == "2 GPU events (0.010 ms) not attached to an operator, but counted: no CPU calls were recorded"


def test_the_reasons_of_a_trace_alone_are_those_of_its_pair() -> None:
    events = [*CPU, launch(15, 5), work(60, 2), work(70, 9), work(80, None), work(90, 5)]
    pair, alone = (link(et, orjson.dumps(kineto_document(events))) for et in (orjson.dumps(et_document(NODES)), None))
    assert with_unattached(pair).gpu.reason.tolist() == with_unattached(alone).gpu.reason.tolist()


def test_kernels_that_share_a_launch_of_one_are_not_certain() -> None:
    """Nor is any lost: which of them the call launched is not known."""
    events = [*CPU, launch(15, 1), launch(50, 2), work(60, 1), work(70, 2), work(80, 2)]
    gpu, report, document = join(NODES, events)
    assert parents(gpu) == [4, 3, 3] and [node.get("link") for node in gpu.values()] == [None, *["equivalent"] * 2]
    assert report.gpu["categories"]["kernel"]["equivalent"] == 2
    assert report.warnings == ("2 GPU events share 1 launch of one kernel each: their launches are not certain",)
    again = read_etplus(orjson.dumps(document))
    assert (again.nodes.link[again.nodes.kind == GPU] == EQUIVALENT).tolist() == [False, True, True]


@pytest.mark.parametrize("call", ["cudaGraphLaunch", "hipGraphLaunch", "cudaMemcpyBatchAsync", "cudaMemcpyAsync"])
def test_a_graph_or_a_batch_has_many_events(call: str) -> None:
    gpu, report, _ = join(NODES, [*CPU, launch(15, 1, call), *(work(ts, 1) for ts in (60, 70, 80))])
    assert parents(gpu) == [4] * 3 and not report.warnings and not any("link" in node for node in gpu.values())


def test_a_launcher_outside_any_op() -> None:
    gpu, _, document = join(NODES, [*CPU, launch(150, 1), work(160, 1)])
    assert not gpu and reasons(document) == {"launcher outside any op": [4]}


def test_a_launcher_on_another_thread_than_the_op() -> None:
    gpu, _, document = join(NODES, [*CPU, launch(15, 1, tid=8), work(60, 1)])
    assert not gpu and reasons(document) == {"launcher outside any op": [4]}


def test_an_op_of_another_process_with_the_same_thread_number() -> None:
    other = op("outer", 0, 100, 0, pid=8)
    gpu, _, document = join(NODES, [*CPU, other, launch(50, 1, pid=8), work(60, 1)])
    assert not gpu and set(reasons(document)) <= {"parent not in the ET", "outside the window of the ET"}


def test_an_op_that_the_et_does_not_have_gives_its_work_to_its_caller() -> None:
    extra = [op("unknown", 40, 30, 0), op("deeper", 45, 10, 0)]
    gpu, _, _ = join(NODES, [*CPU, *extra, launch(47, 1), work(60, 1)])
    assert parents(gpu) == [3]


def test_an_op_that_the_et_does_not_have_and_no_caller() -> None:
    gpu, _, document = join(NODES, [*CPU, op("unknown", 120, 30, 0), launch(125, 1), work(160, 1)])
    assert not gpu and reasons(document) == {"parent not in the ET": [5]}


@pytest.mark.parametrize("ts", [400.0, 320.5])
def test_work_of_other_iterations(ts: float) -> None:
    gpu, _, document = join(NODES, [*CPU, op("next", ts, 30, 0), launch(ts + 1, 1), work(ts + 50, 1)])
    assert not gpu and reasons(document) == {"outside the window of the ET": [5]}


def test_coalesced_collectives_are_passed_through() -> None:
    wrapper = op("nccl:coalesced", 40, 30, 4)
    nodes = [*NODES, {"id": 6, "name": "nccl:coalesced", "rf_id": 4, "parent": 3}]
    gpu, _, _ = join(nodes, [*CPU, wrapper, launch(45, 1), work(60, 1)])
    assert parents(gpu) == [3]


def test_a_coalesced_wrapper_without_a_caller_is_better_than_none() -> None:
    nodes = [*NODES, {"id": 6, "name": "nccl:coalesced", "rf_id": 4}]
    gpu, _, _ = join(nodes, [*CPU, op("nccl:coalesced", 140, 30, 4), launch(145, 1), work(160, 1)])
    assert parents(gpu) == [6]


def test_a_repeated_correlation_goes_to_the_last_call_before_the_event() -> None:
    """AMD files number anew now and then."""
    calls = [launch(15, 1), launch(50, 1), launch(210, 1)]
    gpu, report, _ = join(NODES, [*CPU, *calls, work(20, 1), work(60, 1), work(220, 1)])
    assert parents(gpu) == [4, 3, 5]
    assert any("share their correlation" in warning for warning in report.warnings)


def test_an_event_before_all_calls_of_its_correlation() -> None:
    gpu, _, _ = join(NODES, [*CPU, launch(15, 1), launch(50, 1), work(5, 1)])
    assert parents(gpu) == [4], "clocks of host and device may differ: the first call is nearest"


def test_flow_of_a_call_that_is_missing() -> None:
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "ts": 15}
    gpu, report, _ = join(NODES, [*CPU, flow, work(60, 1)])
    assert parents(gpu) == [4]
    assert report.gpu["categories"]["kernel"]["by_method"] == {"ac2g flow": 1}


def test_flow_ends_and_other_flows_are_no_launchers() -> None:
    flows = [
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 1, "ts": 15},
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "ts": 15},
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 2, "ts": 15},
    ]
    gpu, _, document = join(NODES, [*CPU, *flows, work(60, 1)])
    assert not gpu and reasons(document) == {"no launcher in the trace": [6]}


def rocm(events: list[Event]) -> list[Event]:
    """The events as ROCm wrote them without `correlation`: the flow's id is the `External id` of call and kernel."""
    flows = []
    for event in events:
        if event["cat"] in ("cuda_runtime", "kernel"):
            number = event["args"].pop("correlation")
            event["args"] = {"External id": number}
            place = {"pid": 2, "tid": 0} if event["cat"] == "kernel" else {"pid": PID, "tid": 7}
            event |= place
            phase = "f" if event["cat"] == "kernel" else "s"
            flows.append({"ph": phase, "cat": "ac2g", "name": "ac2g", "id": number, "ts": event["ts"], **place})
    return [*events, *flows]


@pytest.mark.parametrize("modern", [True, False])
def test_rocm_files_without_correlation_are_joined_by_flows(modern: bool) -> None:
    """Ids of flows are those of other operators, too: in files since 2024 `External id` is usually one."""
    cpu = [op("outer", 0, 100, 1, args={"External id": 41}), op("inner", 10, 20, 2, args={"External id": 42}), CPU[2]]
    events = rocm([*cpu, launch(15, 41), launch(50, 42), launch(210, 43), *map(work, (60, 70, 220), (41, 42, 43))])
    document = kineto_document(events)
    if not modern:
        del document["baseTimeNanoseconds"]
    trace = link(None, orjson.dumps(document))
    assert [kernel.op and kernel.op.name for kernel in trace.kernels] == ["inner", "outer", "last"]
    assert set(trace.gpu.device.tolist()) == {2} and set(trace.gpu.stream.tolist()) == {0}
    assert [kernel.launch_ns for kernel in trace.kernels] == [15_000, 50_000, 210_000]


def test_the_case_of_rocm_without_correlation() -> None:
    rows = analyze(link(None, shared_case("rocm-no-correlation/trace.json"))).breakdown
    assert sorted((row.label, row.count, row.total_ns) for row in rows) == [
        ("aten::add", 2, 70_000), ("aten::mm", 2, 50_000), ("aten::mul", 2, 90_000),
    ]  # fmt: skip


def test_the_case_of_a_trace_of_the_device_alone() -> None:
    (row,) = analyze(link(None, shared_case("gpu-only-reason/trace.json"))).breakdown
    assert (row.label, row.count) == ("(not attached: no CPU calls were recorded)", 4)


@given(st.data())
def test_the_innermost_open_operator_also_if_operators_overlap_partly(data: st.DataObject) -> None:
    times = st.integers(0, 40)
    calls = [
        op(f"op{i}", 10 * start, 10 * data.draw(st.integers(1, 30)), i + 1, tid=data.draw(st.sampled_from([7, 8])))
        for i, start in enumerate(data.draw(st.lists(times, min_size=1, max_size=12)))
    ]
    known = data.draw(st.lists(st.sampled_from(range(len(calls))), unique=True))
    launches = [launch(10 * ts + 5, i + 1, tid=7) for i, ts in enumerate(data.draw(st.lists(times, max_size=12)))]
    events = [*calls, *launches, *(work(500 + i, i + 1) for i in range(len(launches)))]
    nodes = [{"id": 3 + i, "name": calls[i]["name"], "rf_id": i + 1} for i in sorted(known)]
    gpu, _, _ = join(nodes or NODES, events)
    for i, call in enumerate(launches):
        open_ones = [
            (calls[k]["ts"], -calls[k]["dur"], k) for k in known
            if calls[k]["tid"] == 7 and calls[k]["ts"] <= call["ts"] < calls[k]["ts"] + calls[k]["dur"]
        ]  # fmt: skip
        node = gpu.get(len(calls) + len(launches) + i)
        expected = max(open_ones)[:2] if open_ones else None
        found = None if node is None else calls[node["ctrl_deps"] - 3]
        assert (None if found is None else (found["ts"], -found["dur"])) == expected


def test_external_id_of_the_launching_op_in_present_files() -> None:
    cpu = [op("outer", 0, 100, 1, args={"External id": 41}), op("inner", 10, 20, 2, args={"External id": 42}), CPU[2]]
    gpu, report, _ = join(NODES, [*cpu, work(60, 9, **{"External id": 42}), work(70, None, **{"External id": 41})])
    assert parents(gpu) == [4, 3]
    assert report.gpu["categories"]["kernel"]["by_method"] == {"External id": 2}


def test_external_id_in_older_files_is_the_correlation_and_joins_nothing() -> None:
    nodes = [{**node, "seq_id": 10 + node["id"]} for node in NODES]
    cpu = [op("outer", 0, 100, 1, args={"External id": 41}), *CPU[1:]]
    events = [{"pid": 7, "tid": 7, **event} for event in [*cpu, work(60, 41, **{"External id": 41})]]
    document = link(orjson.dumps(et_document(nodes)), orjson.dumps({"traceEvents": events})).to_dict()
    assert document["etplus"]["link"]["ops"]["linked"] == 3
    assert reasons(document) == {"no launcher in the trace": [3]}


def test_correlation_goes_before_external_id() -> None:
    cpu = [op("outer", 0, 100, 1, args={"External id": 41}), *CPU[1:]]
    gpu, _, _ = join(NODES, [*cpu, launch(15, 1), work(60, 1, **{"External id": 41})])
    assert parents(gpu) == [4]


def test_a_launch_at_the_very_end_of_an_op_in_whole_us() -> None:
    """Cut to whole µs, an op's last launch may seem to begin when the op ends."""
    gpu, _, document = join(NODES, [*CPU, launch(30, 1, dur=1), launch(100, 2, dur=0), work(60, 1), work(170, 2)])
    assert parents(gpu) == [4, 3]
    gpu, _, document = join(NODES, [*CPU, launch(30, 1, dur=5), launch(100, 2, dur=9), work(60, 1), work(170, 2)])
    assert parents(gpu) == [3] and reasons(document) == {"launcher outside any op": [6]}


def test_an_unlinked_pair_lists_all_its_gpu_events() -> None:
    strangers = [{"id": 3 + i, "name": f"stranger{i}", "rf_id": 50 + i} for i in range(5)]
    gpu, report, document = join(strangers, [*CPU, launch(15, 1), work(60, 1), work(70, 9)])
    assert not gpu and report.ops["linked"] == 0
    assert sum(len(indices) for indices in reasons(document).values()) == 2


def test_runtime_calls_of_the_window_are_kept_with_their_parents() -> None:
    calls = [launch(15, 1), launch(50, 0, "cudaEventQuery"), launch(150, 3), launch(500, 4), launch(55, 5, tid=9)]
    _, _, document = join(NODES, [*CPU, *calls, work(60, 1)])
    found = {call["kineto_event"]: call["parent"] for call in document["runtime"]}
    assert found == {3: 4, 4: 3, 5: None, 7: None}
    assert [call["ts"] for call in document["runtime"]] == sorted(call["ts"] for call in document["runtime"])


@pytest.mark.parametrize("name", ["h100_bert", "mi300_bert", "mi250_minitoy", "sglang_decode_graph", "alexnet"])
def test_real_gpu_traces_with_an_et_made_of_their_own_ops(name: str) -> None:
    """No ET was recorded with these: one made of every op, by ids, puts the attachment to the test on real GPUs."""
    kineto = read_json(shared_trace(f"gpu-kineto/{name}.json.gz"))
    nodes = []
    for event in kineto["traceEvents"]:
        if event.get("cat") in ("cpu_op", "user_annotation"):
            event["args"] = {**event.get("args", {}), "Record function id": 1 + len(nodes)}
            nodes.append({"id": 3 + len(nodes), "name": event["name"], "rf_id": 1 + len(nodes)})
    et = et_document(nodes, **recorded_with(kineto))
    document = link(orjson.dumps(et), orjson.dumps(kineto)).to_dict()
    assert_valid(document)
    events = kineto["traceEvents"]
    assert document["etplus"]["link"]["ops"]["linked"] == len(nodes)
    by_id = {node["id"]: node for node in document["nodes"]}
    gpu = {n["kineto_event"]: by_id[n["ctrl_deps"]]["kineto_event"] for n in document["nodes"] if "cat" in n}
    brute = BruteForce(events, {n["kineto_event"] for n in document["nodes"] if "link" in n})
    for index, parent in gpu.items():
        if brute.launcher(events[index]):
            assert parent in brute.parents(events[index])
    everything = [i for i, e in enumerate(events) if e.get("cat") in GPU_CATEGORIES]
    listed = [index for indices in document["etplus"]["unattached"].values() for index in indices]
    assert sorted([*gpu, *listed]) == everything
    assert len(gpu) > 0.9 * len(everything)


def test_the_launch_may_be_the_first_event_of_the_file() -> None:
    gpu, report, _ = join(NODES, [launch(15, 1), work(60, 1), *CPU])
    assert parents(gpu) == [4]
    assert report.gpu["categories"]["kernel"]["by_method"] == {"correlation": 1}


def test_an_arrow_within_a_graph_is_no_launch() -> None:
    """Flows of that category with ids from 2**40 on."""
    for number, found in ((2**40, []), (2**40 - 1, [4])):
        flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": number, "ts": 15}
        assert parents(join(NODES, [*CPU, flow, work(60, number)])[0]) == found


def test_a_correlation_of_zero_is_none() -> None:
    gpu, report, document = join(NODES, [*CPU, launch(15, 0), launch(16, 0), work(60, 0)])
    assert not gpu and reasons(document) == {"the event has no correlation": [5]} and not report.warnings
