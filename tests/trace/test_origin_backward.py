"""Modules of backward operators: recordings whose truth comes from hooks, without sequence numbers.

`fixtures/record_origin.py` wrote them. Annotations around the run of each autograd node name the module in whose
forward it came into being; they are taken out before the trace is linked.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from etplus import Trace, link
from etplus.trace.origin import PHASES, THROUGH
from etplus.trace.tables import OP
from support import FIXTURES, ns, read_json

FOLDER = FIXTURES / "origin"
ENGINE = "autograd::engine::evaluate_function: "


class Range(NamedTuple):
    """Work of a module, on a thread; `again` if it is forward work that runs inside of backward."""

    begin: int
    end: int
    module: str
    again: bool


class Said(NamedTuple):
    """What the trace says of a call, its host time, and the truth."""

    name: str
    host_ns: int
    phase: str
    module: str
    through: str
    truth: Range


def true_ranges(events: list[dict[str, Any]]) -> dict[int, list[Range]]:
    """By thread, the innermost ones first."""
    found: dict[int, list[Range]] = {}
    for event in events:
        if event.get("cat") == "user_annotation" and event["name"].startswith("truth"):
            kind, _, module = event["name"].partition(": ")
            begin = ns(event["ts"])
            of = Range(begin, begin + ns(event["dur"]), module.strip(), kind == "truth again")
            found.setdefault(event["tid"], []).append(of)
    return {thread: sorted(ranges, key=lambda of: of.end - of.begin) for thread, ranges in found.items()}


def said(path: Path, et: Path | None = None) -> list[Said]:
    """Every call whose module is known by the hooks; with an ET, which has the annotations as nodes, they stay."""
    document = read_json(path)
    truth = true_ranges(document["traceEvents"])
    if et is None:
        document["traceEvents"] = [e for e in document["traceEvents"] if not e.get("name", "").startswith("truth")]
    trace = link(et, orjson.dumps(document))
    origin, calls = trace.origin, trace.calls
    found = []
    for call in range(len(calls)):
        begin, end = int(calls.ts[call]), int(calls.end[call])
        thread = int(calls.thread[call])
        on_thread = truth.get(thread, ()) if et is None else [of for ranges in truth.values() for of in ranges]
        range_ = next((of for of in on_thread if of.begin <= begin and end <= of.end), None)
        if calls.kind[call] != OP or range_ is None or engine_within(trace, call, range_):
            continue
        modules = origin.modules[origin.module[call]] if origin.module[call] >= 0 else ("",)
        found.append(
            Said(
                trace.names[calls.name[call]], int(trace.self_ns[call]), PHASES[origin.phase[call]], modules[-1],
                THROUGH[origin.through[call]], range_,
            )
        )  # fmt: skip
    return found


def engine_within(trace: Trace, call: int, range_: Range) -> bool:
    """Whether the engine runs another function in a range, around the call; what that does may have no range."""
    calls = trace.calls
    while call >= 0 and calls.ts[call] >= range_.begin:
        if trace.names[calls.name[call]].startswith(ENGINE):
            return True
        call = int(calls.parent[call])
    return False


def test_there_is_a_recording_of_each_kind() -> None:
    assert {path.name.partition(".")[0] for path in FOLDER.glob("*.kineto.json.gz")} == {
        "linear", "conv", "lstm", "attention", "tied", "twice", "checkpoint", "checkpoint_reentrant",
        "checkpoint_thread", "other_thread", "ddp", "fsdp",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "with_et"),
    [("attention", False), ("tied", False), ("twice", False), ("checkpoint", False), ("checkpoint_reentrant", False),
     ("checkpoint_thread", False), ("other_thread", False), ("fsdp", False), ("linear", True)],
)  # fmt: skip
def test_backward_work_is_at_the_module_of_its_forward(name: str, with_et: bool) -> None:
    """Where forward runs again on a thread without frames, the module around the checkpoint is all that is known."""
    path, et = FOLDER / f"{name}.kineto.json.gz", FOLDER / f"{name}.et.json.gz" if with_et else None
    time, right, through = Counter[bool](), Counter[bool](), Counter[str]()
    without_frames = "Checkpointed_0" if path.name.startswith("checkpoint_thread") else None
    for call in said(path, et):
        through[call.through] += 1
        phase = "recomputation" if call.truth.again else "backward"
        fits = call.module in (call.truth.module, without_frames) and call.phase == phase
        time[call.truth.again] += call.host_ns
        right[call.truth.again] += call.host_ns * fits
    assert time[False] and right[False] >= 0.98 * time[False]
    assert right[True] >= 0.98 * time[True]
    assert bool(time[True]) == path.name.startswith("checkpoint")
    assert set(through) <= {"", "sequence number"} and through["sequence number"]  # nothing is said to be recorded


@pytest.mark.parametrize(("own", "phase"), [([], "backward"), ([("aten::mul", {})], "recomputation")])
def test_numbered_operators_in_backward_are_recomputed_only_next_to_operators_without_a_number(
    own: list[tuple[str, dict[str, int]]], phase: str
) -> None:
    """With `create_graph=True` all operators of backward have numbers; after a recomputation its own have none."""
    root = {"Sequence number": 7, "Fwd thread id": 1}
    calls = [
        ("aten::mm", {"Sequence number": 7}, 0, 10),
        (f"{ENGINE}MmBackward0", root, 20, 90),
        ("MmBackward0", root, 21, 88),
    ]
    inner = [("aten::mm", {"Sequence number": 9}), *own]
    calls += [(name, args, 30 + 20 * at, 10) for at, (name, args) in enumerate(inner)]
    events = [
        {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur, "args": args}
        for name, args, ts, dur in calls
    ]
    trace = link(None, orjson.dumps({"schemaVersion": 1, "traceEvents": events}))
    assert PHASES[trace.origin.phase[3]] == phase
