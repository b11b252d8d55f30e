"""Kineto files of one job in the layouts of other writers, and files that merge the traces of several ranks."""

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import orjson
from support import Document, kineto_document

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


def rank_one(events: list[Document]) -> list[Document]:
    """The events of a second process on device 1, with the same ids and other durations of kernels."""
    moved = []
    for event in events:
        event = event | {"pid": 170 if event["pid"] == 70 else 1}
        args = event.get("args", {})
        moved.append(event | {"args": args | {"device": 1}, "dur": 20} if "device" in args else event)
    return moved


OPS = ("aten::mm", "aten::add", "aten::relu", "aten::sum", "aten::mul")
Merge = Callable[[Sequence[Document]], Document]


def rank_document(rank: int, *, device: int | None = None, calls: int = 30) -> Document:
    """A rank's trace; correlations, ids of operators and of flows begin anew in each."""
    rng, pid, gpu = random.Random(rank), 100 + rank, rank if device is None else device
    host: list[Document] = []
    work: list[Document] = []
    ts = 0.0
    for k in range(calls):
        ts += 100 + rng.randrange(50)
        name, ids = rng.choice(OPS), {"External id": k + 1}
        common = {"ph": "X", "pid": pid, "tid": pid}
        host.append({**common, "cat": "cpu_op", "name": name, "ts": ts, "dur": 20, "args": ids})
        args = {**ids, "correlation": 1000 + k}
        call = {**common, "name": "cudaLaunchKernel", "ts": ts + 5, "dur": 5, "args": args}
        work.append({**call, "cat": "cuda_runtime"})
        kernel = {"ph": "X", "cat": "kernel", "name": f"kernel_{name}", "pid": gpu, "tid": 7, "ts": ts + 30}
        work.append({**kernel, "dur": 10 + rank, "args": {**args, "device": gpu, "stream": 7}})
        flow = {"cat": "ac2g", "name": "ac2g", "id": 1000 + k}
        work += [{"ph": "s", **flow, "pid": pid, "tid": pid, "ts": ts + 5}]
        work += [{"ph": "f", **flow, "pid": gpu, "tid": 7, "ts": ts + 30, "bp": "e"}]
    window = {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "PyTorch Profiler"}
    work.append({**window, "ts": 0, "dur": ts})
    return kineto_document([*host, *work], distributedInfo={"rank": rank, "world_size": 2})


def plainly(ranks: Sequence[Document]) -> Document:
    return {**ranks[0], "traceEvents": [event for rank in ranks for event in rank["traceEvents"]]}


def labeled(ranks: Sequence[Document]) -> Document:
    """As SGLang merges."""
    return plainly([
        {**rank, "traceEvents": [{**event, "pid": f"[TP{k:02d}] {event['pid']}"} for event in rank["traceEvents"]]}
        for k, rank in enumerate(ranks)
    ])  # fmt: skip


def shifted(ranks: Sequence[Document]) -> Document:
    """As TraceLens merges: numbers of each rank differ."""
    merged = copy.deepcopy([rank["traceEvents"] for rank in ranks])
    for k, events in enumerate(merged):
        for event in events:
            for holder, key in ((event, "pid"), (event, "id"), (event.get("args", {}), "correlation")):
                if isinstance(holder.get(key), int):
                    holder[key] += k * 10**8
    return {**ranks[0], "traceEvents": [event for events in merged for event in events]}


def by_time(merge: Merge) -> Merge:
    def merged(ranks: Sequence[Document]) -> Document:
        document = merge(ranks)
        return {**document, "traceEvents": sorted(document["traceEvents"], key=lambda event: float(event["ts"]))}

    return merged


MERGES = {"plainly": plainly, "labeled": labeled, "shifted": shifted, "by time": by_time(plainly)}
