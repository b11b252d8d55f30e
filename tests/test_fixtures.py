"""The fixtures hold what their README says, checked without any of etplus' own readers and linkers."""

from __future__ import annotations

import bisect
import gzip
import itertools
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from etplus.fixtures.make_gpu_shaped import main as make_gpu_shaped

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = ("demo/train_cpu", "pairs/one_of_n", "pairs/two_threads")
SYNTHETIC = "pairs/gpu_shaped_from_cpu"
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
Event = dict[str, Any]


def read(name: str) -> Any:
    path = FIXTURES / name
    return json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())


def nodes_of(name: str) -> list[Event]:
    """The ET's nodes with their attributes as keys."""
    nodes = read(f"{name}.et.json.gz")["nodes"]
    return [node | {attribute["name"]: attribute["value"] for attribute in node["attrs"]} for node in nodes]


def events_of(name: str) -> list[Event]:
    events: list[Event] = read(f"{name}.kineto.json.gz")["traceEvents"]
    return events


def is_op(event: Event) -> bool:
    return event.get("cat") in ("cpu_op", "user_annotation")


def ns(event: Event, key: str = "ts") -> int:
    return int(event[key] * 1000 + 0.5)


def end(event: Event) -> int:
    return ns(event) + ns(event, "dur")


def calls_of(events: list[Event]) -> dict[int, Event]:
    """Runtime and driver calls by correlation."""
    return {e["args"]["correlation"]: e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return events_of(SYNTHETIC)


@pytest.fixture(scope="module")
def truth() -> dict[int, Event]:
    return {int(index): about for index, about in read(f"{SYNTHETIC}.gpu.json")["gpu"].items()}


def test_the_folder_is_small() -> None:
    files = [path for path in FIXTURES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    recorded = [path for path in files if "findings" in path.parts]  # both sides of a change, of every rank
    assert sum(path.stat().st_size for path in recorded) < 2_200_000
    assert sum(path.stat().st_size for path in files) - sum(path.stat().st_size for path in recorded) < 2_800_000
    assert all(path.stat().st_size < 60_000 for path in files)


@pytest.mark.parametrize("name", [*RECORDED, SYNTHETIC])
@pytest.mark.parametrize("kind", ["et", "kineto"])
def test_nothing_names_the_machine(name: str, kind: str) -> None:
    packed = (FIXTURES / f"{name}.{kind}.json.gz").read_bytes()
    assert packed[4:8] == bytes(4), "the gzip header has a time stamp"
    text = gzip.decompress(packed)
    assert b"host_name" not in text
    assert not re.search(rb'"(/|[A-Z]:\\\\|~/)', text), "a path"
    assert not re.search(rb"@|\b\d+\.\d+\.\d+\.\d+\b", text), "an address"


@pytest.mark.parametrize("name", RECORDED)
def test_the_truth_fits_both_traces(name: str) -> None:
    events, links = events_of(name), read(f"{name}.links.json")["links"]
    assert len({index for index, _ in links.values()}) == len(links), "two nodes share an event"
    for node in nodes_of(name):
        structural = node["name"].startswith("[pytorch|profiler|execution_trace|")
        assert (str(node["id"]) in links) != structural
        if structural:
            continue
        index, ev_idx = links[str(node["id"])]
        event = events[index]
        assert is_op(event)
        assert (event["name"], event["args"]["Ev Idx"]) == (node["name"], ev_idx)
        assert (event["cat"] == "user_annotation") == (node["scope"] == 7)
        if not node["name"].startswith("autograd::engine::evaluate_function: "):
            assert event["args"].get("Sequence number", -1) == node["seq_id"]


@pytest.mark.parametrize("name", RECORDED)
def test_callers_enclose_their_callees_in_time(name: str) -> None:
    """The ET's call tree and Kineto's times agree under the truth, which ids alone do not promise."""
    events = events_of(name)
    links = {int(node): index for node, (index, _) in read(f"{name}.links.json")["links"].items()}
    pairs = [
        (events[links[node["ctrl_deps"]]], events[links[node["id"]]])
        for node in nodes_of(name)
        if node["id"] in links and node["ctrl_deps"] in links
    ]
    assert len(pairs) > 100
    for caller, callee in pairs:
        assert caller["tid"] == callee["tid"]
        assert ns(caller) <= ns(callee) and end(callee) <= end(caller)


@pytest.mark.parametrize("name", RECORDED)
def test_both_traces_are_of_one_process(name: str) -> None:
    pids = {event["pid"] for event in events_of(name) if is_op(event)}
    assert pids == {read(f"{name}.et.json.gz")["pid"]}


@pytest.mark.parametrize("name", ["demo/train_cpu", "pairs/two_threads"])
def test_same_window_and_two_threads(name: str) -> None:
    events, links = events_of(name), read(f"{name}.links.json")["links"]
    assert len(links) == sum(map(is_op, events))
    threads = {
        (node["tid"], events[links[str(node["id"])][0]]["tid"]) for node in nodes_of(name) if str(node["id"]) in links
    }
    assert len(threads) == 2
    assert len({tid for tid, _ in threads}) == len({tid for _, tid in threads}) == 2


def test_one_of_n_is_the_third_of_four_iterations() -> None:
    events, links = events_of("pairs/one_of_n"), read("pairs/one_of_n.links.json")["links"]
    steps = [event for event in events if event["name"].startswith("ProfilerStep#")]
    assert [step["name"] for step in steps] == [f"ProfilerStep#{k}" for k in (2, 3, 4, 5)]
    linked = [events[index] for index, _ in links.values()]
    assert all(ns(steps[2]) < ns(event) and end(event) < end(steps[2]) for event in linked)
    assert 4 * len(linked) + len(steps) == sum(map(is_op, events))
    others = [event for event in events if is_op(event) and event not in linked]
    assert {event["args"]["Record function id"] for event in others} == {0}


def test_two_threads_run_the_same_ops() -> None:
    names: dict[int, list[str]] = defaultdict(list)
    for event in sorted(filter(is_op, events_of("pairs/two_threads")), key=lambda e: (ns(e), -ns(e, "dur"))):
        if not event["name"].startswith("ProfilerStep#"):
            names[event["tid"]].append(event["name"])
    first, second = names.values()
    assert first == second


def test_the_generator_reproduces_the_synthetic_pair(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    for path in (FIXTURES / "demo").iterdir():
        (tmp_path / "demo" / path.name).write_bytes(path.read_bytes())
    make_gpu_shaped(tmp_path)
    for kind in ("et.json.gz", "kineto.json.gz", "gpu.json"):
        made, kept = ((root / f"{SYNTHETIC}.{kind}").read_bytes() for root in (tmp_path, FIXTURES))
        if kind.endswith(".gz"):  # zlib's own output differs between its versions
            made, kept = gzip.decompress(made), gzip.decompress(kept)
        assert made == kept, kind


def test_the_synthetic_pair_keeps_the_recorded_events(events: list[Event]) -> None:
    recorded = events_of("demo/train_cpu")
    for before, after in zip(recorded, events, strict=False):
        assert {**before, "ts": 0, "dur": 0} == {**after, "ts": 0, "dur": 0}
        assert before.get("dur", 0) <= after.get("dur", 0)
    assert nodes_of(SYNTHETIC) == nodes_of("demo/train_cpu")
    assert read(f"{SYNTHETIC}.gpu.json")["links"] == read("demo/train_cpu.links.json")["links"]


def test_calls_on_a_thread_are_properly_nested(events: list[Event]) -> None:
    host = [e for e in events if is_op(e) or e.get("cat") in ("cuda_runtime", "cuda_driver")]
    for tid in {event["tid"] for event in host}:
        stack: list[Event] = []
        for event in sorted((e for e in host if e["tid"] == tid), key=lambda e: (ns(e), -ns(e, "dur"))):
            while stack and end(stack[-1]) <= ns(event):
                stack.pop()
            assert not stack or end(event) <= end(stack[-1])
            stack.append(event)


def test_the_gpu_truth_by_brute_force(events: list[Event], truth: dict[int, Event]) -> None:
    """Launcher by correlation, parent as the shortest of all ops around the launcher's start."""
    calls = {number: events.index(call) for number, call in calls_of(events).items()}
    assert set(truth) == {index for index, event in enumerate(events) if event.get("cat") in GPU_WORK}
    for index, about in truth.items():
        launcher = calls.get(events[index]["args"]["correlation"])
        assert about["launcher"] == launcher
        around = []
        if launcher is not None:
            call = events[launcher]
            around = [
                i
                for i, op in enumerate(events)
                if is_op(op) and op["tid"] == call["tid"] and ns(op) <= ns(call) and end(call) <= end(op)
            ]
        assert about["parent"] == min(around, key=lambda i: ns(events[i], "dur"), default=None)
        assert (about["reason"] is None) == (about["parent"] is not None)
        parent = None if about["parent"] is None else events[about["parent"]]
        external = parent["args"]["External id"] if parent and parent["cat"] == "cpu_op" else None
        assert events[index]["args"].get("External id") == external
    assert {about["reason"] for about in truth.values()} == {
        None,
        "no launcher in the trace",
        "launched outside any op",
    }


def test_the_last_op_started_is_not_always_the_parent(events: list[Event], truth: dict[int, Event]) -> None:
    """The trap the pair is there for: an op launches after its children have returned."""
    starts: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for index, event in enumerate(events):
        if is_op(event):
            starts[event["tid"]].append((ns(event), index))
    wrong = 0
    for about in truth.values():
        if about["parent"] is not None:
            call = events[about["launcher"]]
            ordered = sorted(starts[call["tid"]])
            last = ordered[bisect.bisect(ordered, (ns(call), len(events))) - 1][1]
            wrong += last != about["parent"]
    assert wrong > len(truth) // 5


def test_gpu_times_are_possible(events: list[Event], truth: dict[int, Event]) -> None:
    streams: dict[int, list[Event]] = defaultdict(list)
    for index in sorted(truth, key=lambda i: ns(events[i])):
        work = events[index]
        streams[work["args"]["stream"]].append(work)
        if truth[index]["launcher"] is not None:
            call = events[truth[index]["launcher"]]
            assert ns(call) < ns(work)
            if "DtoH" in work["name"]:
                assert end(work) < end(call)
    assert set(streams) == {7, 13, 24}
    for stream in streams.values():
        assert all(end(one) <= ns(other) for one, other in itertools.pairwise(stream))


def test_waits_are_kept(events: list[Event]) -> None:
    """What follows a wait on a stream starts after all that the other stream had to do at the record."""
    calls = calls_of(events)
    work = [event for event in events if event.get("cat") in GPU_WORK]
    waits = [event for event in events if event["name"] == "Stream Wait Event"]
    unknown = [wait for wait in waits if wait["args"]["wait_on_cuda_event_record_corr_id"] not in calls]
    assert (len(waits), len(unknown)) == (9, 1)

    def launched(event: Event) -> int:
        call = calls.get(event["args"]["correlation"])
        return ns(call) if call else 0

    for wait in waits:
        if wait in unknown:
            continue
        about = wait["args"]
        record = calls[about["wait_on_cuda_event_record_corr_id"]]
        assert record["name"] == "cudaEventRecord" and end(record) <= ns(calls[about["correlation"]])
        before = [e for e in work if e["args"]["stream"] == about["wait_on_stream"] and launched(e) < ns(record)]
        after = [
            e for e in work if e["args"]["stream"] == about["stream"] and launched(e) > ns(calls[about["correlation"]])
        ]
        assert before and after
        assert max(map(end, before)) <= min(map(ns, after))


def test_flows_and_copies_of_annotations(events: list[Event], truth: dict[int, Event]) -> None:
    flows = [event for event in events if event.get("cat") == "ac2g"]
    starts = [(flow["id"], ns(flow), flow["tid"]) for flow in flows if flow["ph"] == "s"]
    assert len(starts) == len(set(starts))
    calls = calls_of(events)
    assert all((at, tid) == (ns(calls[number]), calls[number]["tid"]) for number, at, tid in starts)
    ends = Counter((flow["id"], ns(flow), flow["tid"]) for flow in flows if flow["ph"] == "f" and flow["pid"] == 0)
    for index, about in truth.items():
        work = events[index]
        expected = 0 if about["launcher"] is None else 1
        assert ends[work["args"]["correlation"], ns(work), work["tid"]] == expected
    copies = [event for event in events if event.get("cat") == "gpu_user_annotation"]
    annotations = {e["args"]["External id"]: e["name"] for e in events if e.get("cat") == "user_annotation"}
    assert copies and all(annotations[copy["args"]["External id"]] == copy["name"] for copy in copies)


def test_what_the_readme_promises(events: list[Event], truth: dict[int, Event]) -> None:
    launches = Counter(events[a["launcher"]]["name"] for a in truth.values() if a["launcher"] is not None)
    assert set(launches) == {
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cuLaunchKernel",
        "cudaMemsetAsync",
        "cudaMemcpyAsync",
        "cudaGraphLaunch",
    }
    graphs = Counter(a["launcher"] for a in truth.values() if a["launcher"] is not None)
    assert {graphs[i] for i in graphs if events[i]["name"] == "cudaGraphLaunch"} == {6}
    syncs = {event["name"] for event in events if event.get("cat") == "cuda_sync"}
    assert syncs == {"Stream Wait Event", "Stream Sync", "Context Sync"}
    nccl = [event for event in events if event["name"].startswith("ncclDevKernel_AllReduce_Sum_f32_RING_LL(")]
    assert len(nccl) == 3
    for kernel in nccl:
        assert kernel["args"]["Collective name"] == "allreduce"
        assert kernel["args"]["Process Group Ranks"] == "[0, 1]"
        assert kernel["args"]["Group size"] == 2
