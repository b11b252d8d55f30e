"""Check the links of a pair against the ids and annotations in its files. The check does not use any code of the
linker.

Ids: if an operator in the ET is linked to a Kineto event, both must have the same id in their files. Modules:
`gpu_programs.with_truth` puts an annotation `truth: MODULE` around the forward pass and the backward nodes of every
module. The innermost annotation around an operator, or around the launch of a kernel, contains the correct module.
Captures: the kernels of a replayed graph must run in the order in which they were launched during capture.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from etplus.trace.trace import Trace

_TRUTH, _ENGINE = "truth: ", "autograd::engine"
_OTHER_TRUTH = "truth again"
_MODULE = "nn.Module: "
_LAUNCHES = ("LaunchKernel", "MemcpyAsync", "MemsetAsync")
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
Event = dict[str, Any]


class Checked(NamedTuple):
    compared: int
    right: int


def events_of(kineto: Path) -> list[Event]:
    """Return the `traceEvents` list of a file."""
    data = kineto.read_bytes()
    found: list[Event] = json.loads(gzip.decompress(data) if kineto.suffix == ".gz" else data)["traceEvents"]
    return found


def check_ids(trace: Trace, events: Sequence[Event]) -> Checked:
    compared = right = 0
    for op in trace.ops:
        record = op.record
        ids = [attr["value"] for attr in record.get("attrs", ()) if attr["name"] == "rf_id"]
        at = record.get("kineto_event", -1)
        theirs = events[at].get("args", {}).get("Record function id", 0) if at >= 0 else 0
        if ids and theirs:
            compared += 1
            right += ids[0] == theirs and record["name"] == events[at]["name"]
    return Checked(compared, right)


def check_modules(trace: Trace, events: Sequence[Event]) -> tuple[Checked, Checked]:
    ops = {int(op.record["kineto_event"]): op for op in trace.ops if op.record.get("kineto_event", -1) >= 0}
    known = _innermost(events, [at for at in ops if events[at].get("cat") == "cpu_op"])
    compared = [(op.module, known[at]) for at, op in ops.items() if at in known]
    launches = {
        event["args"]["correlation"]: at
        for at, event in enumerate(events)
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    of_launch = _innermost(events, list(launches.values()))
    of_kernels = [
        (event.module, of_launch[launches[event.correlation]])
        for event in trace.device_events
        if event.correlation in launches and launches[event.correlation] in of_launch
    ]
    return _agreement(compared), _agreement(of_kernels)


def check_captured(trace: Trace, capture: Sequence[Event]) -> Checked:
    captures = _captures(capture)
    truth = _innermost(capture, [at for launches in captures for at in launches])
    replays: dict[int | None, list[Any]] = defaultdict(list)
    for event in trace.device_events:
        if event.captured_by is not None:
            replays[event.correlation].append(event)
    pairs: list[tuple[str | None, str]] = []
    for events in replays.values():
        fitting = [launches for launches in captures if len(launches) == len(events)]
        if len(fitting) != 1:
            continue
        for launch, event in zip(fitting[0], sorted(events, key=lambda one: one.start_ns), strict=True):
            if launch in truth:
                around = [name for name in event.captured_by.modules if name.startswith(_MODULE)]
                pairs.append((around[-1].removeprefix(_MODULE) if around else None, truth[launch]))
    return _agreement(pairs)


def _captures(events: Sequence[Event]) -> list[list[int]]:
    found: list[list[int]] = []
    capturing = False
    calls = [at for at, event in enumerate(events) if event.get("cat") in ("cuda_runtime", "cuda_driver")]
    for at in sorted(calls, key=lambda at: float(events[at]["ts"])):
        name = events[at]["name"]
        if "StreamBeginCapture" in name:
            capturing = True
            found.append([])
        elif "StreamEndCapture" in name:
            capturing = False
        elif capturing and any(launch in name for launch in _LAUNCHES):
            found[-1].append(at)
    return found


def _agreement(pairs: Iterable[tuple[str | None, str]]) -> Checked:
    found = [module == true for module, true in pairs]
    return Checked(len(found), sum(found))


def _innermost(events: Sequence[Event], points: Iterable[int]) -> dict[int, str]:
    threads: dict[Any, list[tuple[float, int, int]]] = defaultdict(list)
    wanted = set(points)
    for at, event in enumerate(events):
        name = event.get("name", "")
        if event.get("ph") == "X" and (at in wanted or name.startswith((_TRUTH, _ENGINE, _OTHER_TRUTH))):
            if event.get("cat") == "gpu_user_annotation":
                continue
            threads[event.get("tid")].append((float(event["ts"]), -int(1000 * float(event.get("dur", 0))), at))
    found: dict[int, str] = {}
    for calls in threads.values():
        around: list[tuple[float, str]] = []
        for begin, negative, at in sorted(calls):
            while around and around[-1][0] <= begin:
                around.pop()
            name = events[at]["name"]
            if name.startswith((_TRUTH, _ENGINE, _OTHER_TRUTH)):
                around.append((begin - negative / 1000, name))
            elif around and around[-1][1].startswith(_TRUTH) and around[-1][1] != _TRUTH:
                found[at] = around[-1][1].removeprefix(_TRUTH)
    return found
