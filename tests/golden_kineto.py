"""Lines that say how random Kineto traces are read, for the golden files: odd values, duplicates and merged ranks."""

import dataclasses
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from etplus.schemas.kineto.processes import one_process, processes_of
from etplus.schemas.kineto.read_kineto import KinetoTrace, read_kineto
from etplus.trace.errors import EtplusError
from kineto_layouts import MERGES, rank_document
from support import Document

_WHOLE, _ODD, _OLD = "whole", "odd", "old"
_PHASES = {_WHOLE: "X" * 12 + "sffiiMC", _ODD: [*"X" * 20, *"sfiiMCBEbQ", "", None], _OLD: [*"XXXXsfiM", *"BE" * 4]}
_CATEGORIES = {
    _WHOLE: "cpu_op user_annotation cuda_runtime kernel gpu_memcpy gpu_memset python_function Trace",
    _ODD: "cpu_op hipLaunch hpu_op cuda_driver kernel gpu_memcpy python_function tpu_op graph_event_node overhead "
    "a_category_that_has_exactly_forty_letters a_category_that_has_more_than_forty_letters_x cuda_sync",
    _OLD: "Operator Runtime Kernel Memcpy Memset User python cpu_op async_npu task",
}
_FLOWS = {
    _WHOLE: ["ac2g", "fwdbwd"], _ODD: ["ac2g", "fwdbwd", "x", ""], _OLD: ["async", "async_npu", "forward_backward"],
}  # fmt: skip
_NAMES = ["aten::mm", "[memory]", "nn.Module: Net_0", "Memcpy", "Memset", "ProfilerStep#1", "f.py(1): g", "x"]
_PIDS = {
    _WHOLE: [70, 70, 70, 0, 1], _ODD: [70, 70, 0, 4095, 4096, "70", "Spans", -1],
    _OLD: [5, 6, "Ascend Hardware", "CUDA functions", "7"],
}  # fmt: skip
_TIDS = {
    _WHOLE: [71, 7, 7, 8], _ODD: [71, 7, 8, "stream 7", "x", 0], _OLD: ["71", "stream 7", "stream 8 user", "07", 9],
}  # fmt: skip
_TIMES = {
    _WHOLE: [0, 1, 2, 2, 5, 0.25, 100.0625, 2**43],
    _ODD: [0, 1, 2, 3.5, -0.0004, -1, 2**43, 2**43 - 1, 2**61, 2**50 + 1, 2**50 + 0.25, 2**62 / 1000, 1e15],
    _OLD: [0, "1.5", "2", 2.5, 3, "4e0", "x", -1],
}
_LENGTHS = {
    _WHOLE: [0, 1, 5, 0.5, 2**53 // 1000], _ODD: [0, 1, 0.001, -1, 2**53 / 1000, 2**53 // 1000, 2**53 // 1000 + 1],
    _OLD: [1, "2", "0.5", 0],
}  # fmt: skip
_IDS = [0, 1, 2, 3, 2**40 - 1, 2**40]
_ARGS: dict[str, list[Any]] = {
    "External id": _IDS, "correlation": [*_IDS, -1], "stream": [0, 7, 8], "device": [0, 1],
    "Record function id": [0, 1], "Sequence number": [0, 5], "original_stream": [0, 9], "Ev Idx": [0, 1],
    "copy kind": ["HtoD", 1], "Bytes": [0, 64, -64], "src kind": [0, 1, 6, 7, 8, "device_static"],
    "dst kind": [2, None], "memory kind": [0, 7, -1, "array"], "Addr": [0, 4096], "Total Allocated": [0, 64],
    "Device Type": [0, 1], "Device Id": [0, -1],
}  # fmt: skip
_OLD_ARGS = {
    "external id": [1, 2], "Input dims": [[[2]]], "Stream Id": [7], "inDevice": [0, 1],
    "name": ["Ascend Hardware", "cpu functions"], "Task Type": ["MEMCPY_ASYNC", "AI_CORE", "EVENT_WAIT"],
}  # fmt: skip
_ODD_ARGS = {
    "stream": ["7", 1.5, None], "Bytes": [2**53, "x", None], "correlation": ["5", 2**63, 1e30], "device": [True],
}  # fmt: skip
_HEADERS: dict[str, list[Document]] = {
    _WHOLE: [{"baseTimeNanoseconds": 0}, {"baseTimeNanoseconds": 5, "distributedInfo": {"rank": 0}}, {}],
    _ODD: [
        {}, {"baseTimeNanoseconds": 0},
        *({"baseTimeNanoseconds": base} for base in (-1, 2**62, 2**62 - 1, "x", 1.5, True)),
        {"schemaVersion": 2**64, "distributedInfo": [1]},
    ],
    _OLD: [{"computeProperties": [{"major": 8, "x": 1}]}, {"computeProperties": [1]}, {}],
}  # fmt: skip


def random_document(kind: str, rng: random.Random) -> Document:
    args = _ARGS | {_WHOLE: {}, _ODD: _ODD_ARGS, _OLD: _OLD_ARGS}[kind]
    events: list[Any] = []
    narrow = rng.random() < 0.6
    for _ in range(rng.randint(2, 24)):
        phase = rng.choice(_PHASES[kind])
        flow, memory = phase in ("s", "f"), phase == "i" and rng.random() < 0.8
        category = rng.choice(_FLOWS[kind]) if flow else rng.choice(_CATEGORIES[kind].split())
        event = {
            "ph": phase, "cat": category, "name": "[memory]" if memory else rng.choice(_NAMES),
            "pid": rng.choice(_PIDS[kind]), "tid": rng.choice(_TIDS[kind]), "ts": rng.choice(_TIMES[kind]),
        }  # fmt: skip
        event |= {"dur": rng.choice(_LENGTHS[kind])} if phase == "X" else {"id": rng.choice(_IDS)} if flow else {}
        if narrow and (flow or category in ("cuda_runtime", "hpu_op", "kernel")):
            event |= {"pid": 70, "tid": 71}
        if category == "python_function" and rng.random() < 0.5:
            event |= {"ts": rng.choice((-1, 0, 1)), "dur": rng.choice((-1, 0, 1, 2**53 / 1000))}
        keys = [*rng.sample([*args], rng.randint(0, 6)), *["Bytes"] * memory]
        event["args"] = {key: rng.choice(args[key]) for key in keys}
        if kind == _ODD and rng.random() < 0.1:
            event[rng.choice(["args", "cat", "tid", "id"])] = rng.choice([None, 1, [2]])
        if kind != _WHOLE and rng.random() < 0.2:
            del event[rng.choice([*event, *["cat"] * 9 * (kind == _OLD)])]
        events += [event] if rng.random() < 0.8 else [event, event | {"args": event.get("args") or {"Ev Idx": 7}}]
    odd = [7, None, [], {}] if kind == _ODD and rng.random() < 0.1 else []
    return rng.choice(_HEADERS[kind]) | {"traceEvents": events + odd}


def kineto_lines() -> Iterator[str]:
    for kind, count in ((_WHOLE, 16), (_ODD, 30), (_OLD, 16)):
        for seed in range(count):
            yield from _read(f"{kind} {seed}", random_document(kind, random.Random(f"{kind} {seed}")))
    for seed in range(24):
        yield from _read(f"merged {seed}", _merged(random.Random(seed)))


def _merged(rng: random.Random) -> Document:
    """Two or three ranks in one file: in order or mixed, on own or shared devices, some events changed or left out."""
    shared = rng.random() < 0.2
    ranks = [
        rank_document(rank, device=0 if shared else None, calls=rng.choice((1, 4, 5)))
        for rank in range(rng.randint(2, 3))
    ]
    merged = MERGES[rng.choice([*MERGES])](ranks)
    events = [event for event in merged["traceEvents"] if rng.random() < 0.98]
    if rng.random() < 0.4:
        rng.shuffle(events)
    for event in events:
        args = event.get("args", {})
        if args and rng.random() < 0.1:
            args[rng.choice(["correlation", "External id"])] = rng.choice([0, 1, 1000, 1001])
        if rng.random() < 0.05:
            event["ts"] += rng.choice([20, 25, 30, -25.001])
        if rng.random() < 0.02 and isinstance(event["pid"], int):
            event["pid"] = rng.choice([99, "[DP1] 7", "loader 500"])
    events += rng.choice([[], [{**events[0], "cat": "python_function", "name": "f", "ph": "X", "dur": 2, "ts": 3}]])
    header = rng.choice(
        [{}, {"ranks": {"100": {"distributedInfo": {"rank": 0}}, "101": {}, "102": {}}}, {"ranks": {"100": 1}}]
    )
    return merged | {"traceEvents": events} | header


def _read(label: str, document: Document) -> Iterator[str]:
    try:
        kineto = read_kineto(json.dumps(document).encode(), strict=label.endswith("9"), modules=label.endswith("8"))
        yield from timeline_lines(label, kineto)
        for rank in processes_of(kineto):
            yield f"{label} {rank.label} {rank.process} {rank.alone}"
            yield from timeline_lines(f"{label} {rank.rank}", rank.timeline)
        wanted: tuple[dict[str, int], ...] = ({"rank": 1}, {"et_pid": 101}, {"et_rank": 0})
        yield from (f"{label} {one_process(kineto, **numbers).file}" for numbers in wanted)
    except EtplusError as error:
        yield f"{label}: {type(error).__name__} {re.findall('[0-9]+', str(error))}"


def timeline_lines(label: str, kineto: KinetoTrace | None) -> Iterator[str]:
    """All columns of a Kineto trace as it is read, before it becomes a trace."""
    assert kineto is not None
    for name in (
        field.name for field in dataclasses.fields(kineto) if field.name not in ("file", "header", "base_time_ns")
    ):
        yield f"{label} {name} {shown(getattr(kineto, name))}"
    records = kineto.events.records
    yield f"{label} {records.args(kineto.events.index)} {[*records.others(frozenset({'overhead', 'Trace'}))]}"
    header = {key: bytes(value) for key, value in kineto.header.items()}
    yield f"{label} {header} {kineto.distributed_info} {len(kineto.damage)} {kineto.modern} {kineto.base_time_ns}"


def shown(value: Any) -> Any:
    match value:
        case np.ndarray() | np.generic():
            return value.tolist()
        case list() | tuple() | Iterator():
            return [*map(shown, value)]
        case dict():
            return {key: shown(member) for key, member in value.items()}
        case _ if dataclasses.is_dataclass(value):
            return {key: shown(member) for key, member in vars(value).items() if not key.startswith("_")}
        case msgspec.Raw() | memoryview():
            return bytes(value)
        case msgspec.Struct():
            return shown(msgspec.structs.asdict(value))
        case _ if isinstance(value, (set, frozenset)):
            return sorted(value)
        case _:
            return value.hex() if isinstance(value, bytes) and not value.isascii() else value
