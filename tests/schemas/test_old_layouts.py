"""Kineto files in other layouts than that of today have the same tables; every event is accounted for."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.analysis.summary import analyze
from etplus.converters.open import load
from etplus.schemas.kineto.old_layouts import modern_events
from etplus.schemas.kineto.read_kineto import read_kineto
from etplus.trace.trace import Trace
from support import Document, call, kineto_document, shared_case

EPOCH_US = 1_600_000_000_000_000


def made_job(base: int = 0) -> list[Document]:
    """Two steps on one thread from `base` µs on: nested operators, kernels on two streams, a copy, flows, metadata."""
    events: list[Document] = [{"ph": "M", "name": "process_name", "pid": 70, "tid": 0, "args": {"name": "python"}}]

    def add(ph: str, cat: str, name: str, ts: int, dur: int, tid: int = 71, pid: int = 70, **args: Any) -> None:
        times = {"ts": base + ts} | ({"dur": dur} if ph == "X" else {})
        events.append({"ph": ph, "cat": cat, "name": name, "pid": pid, "tid": tid, **times, "args": args})

    for k in range(6):
        at, number, stream = 100 * k, 10 * k + 10, 7 + k % 2
        if k % 3 == 0:
            add("X", "user_annotation", f"ProfilerStep#{k // 3}", at, 290, **{"External id": number + 9})
        dims = {"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]}
        add("X", "cpu_op", "aten::linear", at + 5, 60, **{"External id": number}, **dims)
        add("X", "cpu_op", "aten::mm", at + 10, 40, **{"External id": number + 1}, **dims)
        add("X", "cuda_runtime", "cudaLaunchKernel", at + 20, 5, **{"External id": number + 1}, correlation=500 + k)
        flow = {"cat": "ac2g", "name": "ac2g", "id": 500 + k}
        events.append({"ph": "s", **flow, "pid": 70, "tid": 71, "ts": base + at + 20})
        sizes = {"grid": [k + 1, 1, 1], "block": [32, 1, 1]}
        kernel = ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)") if k == 5 else ("kernel", "gemm")
        add("X", *kernel, at + 50, 30, stream, 0, correlation=500 + k, device=0, stream=stream, **sizes)
        events.append({"ph": "f", **flow, "pid": 0, "tid": stream, "ts": base + at + 50})
    return events


def in_2021(events: list[Document]) -> list[Document]:
    """The events as PyTorch 1.8 to 1.12 wrote them."""
    categories = {"cpu_op": "Operator", "user_annotation": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel",
                  "gpu_memcpy": "Memcpy", "ac2g": "async"}  # fmt: skip
    old = []
    for event in events:
        event = {**event, "tid": f"stream {event['tid']}" if event["pid"] == 0 else str(event["tid"])}
        args = {key.replace("Input Dims", "Input dims"): value for key, value in event.get("args", {}).items()}
        if event.get("cat") in ("cuda_runtime", "kernel", "gpu_memcpy"):
            args = {key.replace("External id", "external id"): value for key, value in args.items()}
        old.append({**event, **({"cat": categories[event["cat"]]} if "cat" in event else {}), "args": args})
    return old


def in_pairs(events: list[Document]) -> list[Document]:
    """Begins and ends in place of durations, in order of time, the ends of inner calls first."""
    edges = []
    for event in events:
        if event["ph"] != "X":
            edges.append((event.get("ts", 0), 1, 0, event))
            continue
        rest = {key: value for key, value in event.items() if key != "dur"}
        end = {key: event[key] for key in ("name", "pid", "tid", "cat")} | {"ts": event["ts"] + event["dur"], "ph": "E"}
        edges += [(event["ts"], 1, -event["dur"], {**rest, "ph": "B"}), (end["ts"], 0, event["dur"], end)]
    return [edge[-1] for edge in sorted(edges, key=lambda edge: edge[:3])]


def with_text_times(events: list[Document]) -> list[Document]:
    return [event | {key: f"{event[key]}.000" for key in ("ts", "dur") if key in event} for event in events]


def without_correlation(events: list[Document]) -> list[Document]:
    """As some files of ROCm: calls and GPU work have the id of their flow; device and stream are process and thread."""

    def moved(args: Document) -> Document:
        kept = {key: value for key, value in args.items() if key not in ("correlation", "device", "stream")}
        return {"args": kept | {"External id": args["correlation"]}}

    return [one | moved(one["args"]) if "correlation" in one.get("args", {}) else one for one in events]


LAYOUTS = {
    "ROCm": lambda: orjson.dumps({"schemaVersion": 1, "traceEvents": without_correlation(made_job(EPOCH_US))}),
    "2022-23": lambda: orjson.dumps({"schemaVersion": 1, "traceEvents": made_job(EPOCH_US)}),
    "2021": lambda: orjson.dumps({"schemaVersion": 1, "traceEvents": in_2021(made_job(EPOCH_US))}),
    "2021 pairs": lambda: orjson.dumps({"schemaVersion": 1, "traceEvents": in_2021(in_pairs(made_job()))}),
    "pairs": lambda: orjson.dumps(kineto_document(in_pairs(made_job()))),
    "times as texts": lambda: orjson.dumps({"traceEvents": with_text_times(made_job(EPOCH_US))}),
    "array without its end": lambda: orjson.dumps(made_job())[:-1] + b",\n",
    "UTF-8 with mark": lambda: b"\xef\xbb\xbf" + orjson.dumps(kineto_document(made_job())),
    "UTF-16 big-endian array": lambda: b"\xfe\xff" + json.dumps(in_2021(made_job())).encode("utf-16-be"),
}


def told(trace: Trace) -> Any:
    """The rows of a trace with times from its start, the arguments of its operators, and all tables of its analysis."""
    ts = np.where(trace.nodes.timed, trace.nodes.ts - trace.span.start, -1).tolist()
    keys = ("dur", "kind", "stream", "device", "correlation", "parent_row")
    columns = [getattr(trace.nodes, key).tolist() for key in keys]
    analysis = {name: list(map(str, rows)) for name, rows in analyze(trace).tables.items() if name != "iteration_list"}
    return (  # the list of iterations has the times of the rows, not from the start
        list(zip([trace.names[code] for code in trace.nodes.name], ts, *columns, strict=True)),
        analysis, trace.damage,
    )  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_job_has_the_same_tables_in_every_layout(layout: str, tmp_path: Path) -> None:
    path, data = tmp_path / "trace.json", LAYOUTS[layout]()
    path.write_bytes(gzip.compress(data) if layout.startswith("UTF") else data)
    wanted = load(orjson.dumps(kineto_document(made_job())))
    assert len(wanted.gpu) == 6 and len(wanted.calls) == 14 and not wanted.damage
    assert told(load(path)) == told(wanted)
    account = read_kineto(path).account
    assert account.total == len(in_pairs(made_job()) if "pairs" in layout else made_job()) and not account.dropped


def rank_one(events: list[Document]) -> list[Document]:
    """The events of a second process on device 1, with the same ids and other durations of kernels."""
    moved = []
    for event in events:
        event = event | {"pid": 170 if event["pid"] == 70 else 1}
        args = event.get("args", {})
        moved.append(event | {"args": args | {"device": 1}, "dur": 20} if "device" in args else event)
    return moved


@pytest.mark.parametrize("layout", [in_2021, in_pairs, without_correlation])
def test_two_ranks_in_one_file_have_the_tables_of_each_alone(layout: Callable[..., Any], tmp_path: Path) -> None:
    path, jobs = tmp_path / "merged.json", [made_job(), rank_one(made_job())]
    path.write_bytes(orjson.dumps({"schemaVersion": 1, "traceEvents": layout(jobs[0] + jobs[1])}))
    for rank, job in enumerate(jobs):
        assert told(load(path, rank=rank)) == told(load(orjson.dumps(kineto_document(job))))


def test_profiler_annotations_of_2021_are_steps_and_not_operators() -> None:
    trace = read_kineto(LAYOUTS["2021"]())
    assert trace.account.read["user_annotation"] == 2 and trace.account.read["cpu_op"] == 12
    assert trace.events.threads == [(70, 71), (0, 7), (0, 8)]


def test_begins_and_ends_are_paired_by_name_and_the_others_counted() -> None:
    edges = [("B", "a", 0), ("B", "b", 2), ("E", "a", 5), ("E", "b", 9), ("B", "c", 10), ("B", "d", 11),
             ("E", None, 13), ("E", "nowhere", 14)]  # fmt: skip
    events = [
        {"ph": ph, "cat": "cpu_op", "ts": ts} | ({} if name is None else {"name": name}) for ph, name, ts in edges
    ]
    trace = read_kineto(orjson.dumps(kineto_document([*events, {"ph": "E", "ts": 15, "tid": 8}])))
    found = [(trace.events.names[code], dur) for code, dur in zip(trace.events.name, trace.events.dur, strict=True)]
    assert found == [("a", 5000), ("b", 7000), ("d", 2000)]
    assert trace.account.dropped == {"begin (B) without its end": 1, "end (E) without its begin": 2}
    assert trace.account.read == {"cpu_op": 3, "end of a pair": 3} and trace.account.total == 9


def test_times_as_texts_are_exact() -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "a", "ts": "1699529623106000.437", "dur": "0.001"}
    events = read_kineto(orjson.dumps({"traceEvents": [event]})).events
    assert (events.ts.tolist(), events.dur.tolist()) == ([1699529623106000437], [1])


def test_events_that_a_file_holds_twice_count_once_and_are_told() -> None:
    events = made_job()
    twice = [event for event in events if event["ph"] == "X"]
    random.Random(1).shuffle(twice)
    again = [event | {"args": {**event["args"], "Ev Idx": 900 + k}} for k, event in enumerate(twice)]
    trace, once = (load(orjson.dumps(kineto_document(given))) for given in ([*events, *again], events))
    assert told(trace)[:-1] == told(once)[:-1]
    assert trace.damage == ("<bytes>: 26 of 65 events were left out: 26 × duplicate event",)


def test_calls_that_only_ids_tell_apart_are_kept() -> None:
    call_ = {"ph": "X", "cat": "cpu_op", "name": "aten::mul", "ts": 5, "dur": 1}
    node = {"ph": "X", "cat": "kernel", "name": "k", "ts": 9, "dur": 1}
    args = {"correlation": 4, "stream": 7}
    events = [call_ | {"args": {"External id": 1}}, call_ | {"args": {"External id": 2}}]
    events += [node | {"args": {**args, "graph node id": 1}}, node | {"args": {**args, "graph node id": 2}}]
    assert read_kineto(orjson.dumps(kineto_document(events))).account.dropped == {}
    numbered = [call_ | {"cat": "cuda_runtime", "args": {"correlation": 4}}, node | {"cat": "gpu_memset"}] * 2
    assert read_kineto(orjson.dumps(kineto_document(numbered))).account.dropped == {"duplicate event": 2}


def test_unknown_events_are_one_warning_and_in_the_report(tmp_path: Path) -> None:
    odd = [{"ph": "X", "cat": "tpu_op", "name": "a", "ts": 1, "dur": 1}] * 3
    odd += [{"ph": "X", "name": "b", "ts": 1, "dur": 1}, {"ph": "?", "name": "c"}, {"ph": "B", "name": "d", "ts": 1}]
    path = tmp_path / "odd.json"
    path.write_bytes(orjson.dumps(kineto_document([*made_job(), *odd])))
    run = call("analyze", "--full", path)
    said = (
        b"warning: odd.json: 6 of 45 events were left out: 3 \xc3\x97 category 'tpu_op', 1 \xc3\x97 no category, "
        b"1 \xc3\x97 phase '?', 1 \xc3\x97 begin (B) without its end\n"
    )
    assert (run.returncode, run.stderr) == (0, said)
    report = load(path).summary["link"]["kineto"]
    assert report["dropped"]["category 'tpu_op'"] == 3
    assert sum(sum(report[key].values()) for key in ("read", "not_used", "dropped")) == report["events"] == 45


def test_a_file_in_which_nothing_is_known_is_an_error_that_says_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    spans = [{"ph": "b", "cat": "gpu", "name": "a", "ts": k, "id": k} for k in range(7)]
    path.write_bytes(orjson.dumps([*spans, {"ph": "X", "cat": "task", "name": "b", "ts": 1, "dur": 2}]))
    run = call("analyze", "--full", path)
    assert run.returncode == 2 and run.stderr.count(b"\n") == 1
    assert b"only 7 \xc3\x97 phase b, 1 \xc3\x97 category 'task'; give the trace" in run.stderr


def test_events_that_are_no_objects_of_fields_stay_what_they_are() -> None:
    texts = [
        b"7", b'{"ph": "B", "name": [], "ts": 1}', b'{"ph": "X", "cat": [1], "pid": "Ascend Hardware"}',
        b'{"ph": "B", "ts": [], "args": 4}', b'{"ph": "E", "ts": null}', b'{"ph":"M","args":[1]}',
    ]  # fmt: skip
    assert [orjson.loads(text) for text in modern_events(texts)[0]] == [orjson.loads(text) for text in texts]


@pytest.mark.parametrize(
    ("name", "calls", "gpu", "attached", "gpu_ns"),
    [("kineto-2021-categories/trace", 7, 7, 6, 190_000), ("begin-end-events/trace", 4, 4, 4, 120_000),
     ("times-as-strings/trace", 4, 4, 4, 120_000), ("array-bom-utf16/array", 1, 1, 1, 30_000),
     ("array-bom-utf16/bom", 1, 1, 1, 30_000), ("array-bom-utf16/utf16", 1, 1, 1, 30_000),
     ("array-bom-utf16/ascend", 4, 4, 4, 120_000)],
)  # fmt: skip
def test_reported_files(name: str, calls: int, gpu: int, attached: int, gpu_ns: int) -> None:
    trace = load(shared_case(f"{name}.json"))
    assert (len(trace.calls), len(trace.gpu), int(trace.gpu.dur.sum())) == (calls, gpu, gpu_ns)
    below = [row.launches for row in analyze(trace).operators if row.op == "aten::mm"]
    assert below == [attached] and trace.damage == ()


def test_tasks_of_ascend_keep_their_arguments_and_get_a_category() -> None:
    events = [
        {"ph": "M", "name": "process_name", "pid": 5, "args": {"name": "Ascend Hardware"}},
        {"ph": "X", "name": "a", "pid": 5, "ts": "1.5", "dur": 2, "args": {"Task Type": "MEMCPY_ASYNC", "x": 1}},
        {"ph": "X", "name": "b", "pid": 5, "tid": 1, "ts": 4, "dur": 2, "args": {"Task Type": "AI_CORE"}},
    ]  # fmt: skip
    _, copy, kernel = map(orjson.loads, modern_events(list(map(orjson.dumps, events)))[0])
    assert (copy["cat"], copy["ts"], copy["args"]) == (
        "gpu_memcpy", 1.5, {"Task Type": "MEMCPY_ASYNC", "x": 1, "device": 0}
    )  # fmt: skip
    assert (kernel["cat"], kernel["args"]) == ("kernel", {"Task Type": "AI_CORE", "device": 0})
