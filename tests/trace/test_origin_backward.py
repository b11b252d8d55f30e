"""Modules of backward operators (trace/views.py): recordings whose truth comes from hooks.

`fixtures/record_origin.py` wrote them. Annotations around the run of each autograd node name the module in whose
forward it came into being; they are taken out before the trace is linked.
"""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest
from etplus import Trace, link
from etplus.trace.build import NO_RECORDS, TraceBuilder
from etplus.trace.kinds import CPU
from etplus.trace.origin import PHASES, THROUGH, _with_lost_callers
from etplus.trace.tables import OP
from made_traces import Timeline, frame, kineto_of, op
from support import FIXTURES, ns, read_json

FOLDER = FIXTURES / "origin"
ENGINE = "autograd::engine::evaluate_function: "


class Range(NamedTuple):
    begin: int
    end: int
    module: str
    again: bool


def true_ranges(events: list[dict[str, Any]]) -> dict[int, list[Range]]:
    found: dict[int, list[Range]] = {}
    for event in events:
        if event.get("cat") == "user_annotation" and event["name"].startswith("truth"):
            kind, _, module = event["name"].partition(": ")
            begin = ns(event["ts"])
            of = Range(begin, begin + ns(event["dur"]), module.strip(), kind == "truth again")
            found.setdefault(event["tid"], []).append(of)
    return {thread: sorted(ranges, key=lambda of: of.end - of.begin) for thread, ranges in found.items()}


def engine_within(trace: Trace, call: int, range_: Range) -> bool:
    calls = trace.calls
    while call >= 0 and calls.ts[call] >= range_.begin:
        if trace.names[calls.name[call]].startswith(ENGINE):
            return True
        call = int(calls.parent[call])
    return False


@pytest.mark.parametrize(
    ("name", "with_et"),
    [("attention", False), ("tied", False), ("twice", False), ("checkpoint", False), ("checkpoint_reentrant", False),
     ("checkpoint_thread", False), ("other_thread", False), ("fsdp", False), ("linear", True)],
)  # fmt: skip
def test_backward_work_is_at_the_module_of_its_forward(name: str, with_et: bool) -> None:
    """With an ET, which has the annotations as nodes, they stay. Where forward runs again on a thread without frames,
    the module around the checkpoint is all that is known."""
    document = read_json(FOLDER / f"{name}.kineto.json.gz")
    truth = true_ranges(document["traceEvents"])
    if not with_et:
        document["traceEvents"] = [e for e in document["traceEvents"] if not e.get("name", "").startswith("truth")]
    trace = link(FOLDER / f"{name}.et.json.gz" if with_et else None, orjson.dumps(document))
    origin, calls = trace.origin, trace.calls
    time, right, through = Counter[bool](), Counter[bool](), Counter[str]()
    for call in np.flatnonzero(calls.kind == OP).tolist():
        every = [of for ranges in truth.values() for of in ranges]
        on_thread = every if with_et else truth.get(int(calls.thread[call]), ())
        true = next((of for of in on_thread if of.begin <= calls.ts[call] and calls.end[call] <= of.end), None)
        if true is None or engine_within(trace, call, true):
            continue
        module = origin.modules[origin.module[call]][-1] if origin.module[call] >= 0 else ""
        through[THROUGH[origin.through[call]]] += 1
        fits = module == true.module or (module, name) == ("Checkpointed_0", "checkpoint_thread")
        fits &= PHASES[origin.phase[call]] == ("recomputation" if true.again else "backward")
        time[true.again] += int(trace.self_ns[call])
        right[true.again] += int(trace.self_ns[call]) * fits
    assert time[False] and right[False] >= 0.98 * time[False] and right[True] >= 0.98 * time[True]
    assert bool(time[True]) == name.startswith("checkpoint")
    assert set(through) <= {"", "sequence number"} and through["sequence number"]  # nothing is said to be recorded


def test_a_module_has_the_kernels_of_its_backward_pass() -> None:
    made = Timeline()
    for k in range(2):
        grad = {"Sequence number": 7 + k, "Fwd thread id": 1}
        made.events += [frame(f"nn.Module: Linear_{k}", 20 * k, 19, **{"Python id": k + 1})]
        made.events += [op("aten::mm", 20 * k + 1, 9, args={"Sequence number": 7 + k})]
        made.launch(f"forward{k}", 20 * k + 2, 1, 20 * k + 5, 5)
        at = 200 - 20 * k
        made.events += [op(f"{ENGINE}MmBackward0", at, 19, args=grad, tid=9), op("aten::mm", at + 2, 9, tid=9)]
        made.events += [op("MmBackward0", at + 1, 17, args=grad, tid=9)]
        made.gpu(f"backward{k}", 300 - 20 * k, 5, made.call("cudaLaunchKernel", at + 3, 1, tid=9))
    trace = made.document()
    for k in range(2):
        assert sorted(one.name for one in trace.module(f"Linear_{k}").kernels) == [f"backward{k}", f"forward{k}"]


@pytest.mark.parametrize(("own", "phase"), [([], "backward"), ([("aten::mul", {})], "recomputation")])
def test_numbered_operators_in_backward_are_recomputed_only_next_to_operators_without_a_number(
    own: list[tuple[str, dict[str, int]]], phase: str
) -> None:
    root = {"Sequence number": 0, "Fwd thread id": 1}
    events = [op("aten::mm", 0, 10, args={"Sequence number": 0}), op(f"{ENGINE}MmBackward0", 20, 90, args=root)]
    events += [op("MmBackward0", 21, 88, args=root), op("aten::mm", 30, 10, args={"Sequence number": 9})]
    events += [op(name, 50, 10, args=args) for name, args in own]
    trace = link(None, kineto_of(events))
    assert PHASES[trace.origin.phase[3]] == phase
    forward, engine = trace.ops[0], trace.ops[1]
    assert engine.forward == forward and engine.through == "sequence number" and engine.phase == "backward"
    assert forward.forward is None and forward.through == ""


def test_a_detach_right_after_recomputed_work_is_recomputation() -> None:
    root = {"Sequence number": 0, "Fwd thread id": 1}
    events = [op("aten::mm", 0, 10, args={"Sequence number": 0}), op(f"{ENGINE}MmBackward0", 20, 90, args=root)]
    events += [op("aten::mm", 30, 10, args={"Sequence number": 9}), op("aten::detach", 45, 5), op("detach", 46, 3)]
    events += [op("aten::mul", 60, 5), op("aten::detach", 70, 5), op("aten::ones", 120, 5)]
    events += [op("c10d::allreduce_", 130, 20), op("aten::view", 135, 5)]
    found = [PHASES[code] for code in link(None, kineto_of(events)).origin.phase.tolist()]
    assert found == ["forward", "backward", *["recomputation"] * 3, *["backward"] * 2, "", *["communication"] * 2]


def test_calls_made_after_their_recorded_caller_get_the_caller_around_them() -> None:
    builder, more = TraceBuilder("made.json"), {"seq_id": [-1, 5, 6, 7], "tid": [1, 1, 1, 2]}
    names = ["CheckpointBackward", "aten::mm", "aten::relu", "aten::add"]
    times = {"ts": [0, 10, 30, 90], "dur": [100, 20, 20, 5]}
    builder.add(CPU, id=[1, 2, 3, 4], parent=[-1, 1, 2, 3], name=names, **times, **more)
    trace = builder.build(NO_RECORDS, summary={})
    for summary, parent in (({}, [-1, 0, 0, 2]), ({"times": "predicted"}, [-1, 0, 1, 2])):
        found = _with_lost_callers(trace.with_(summary=summary), np.arange(4) == 0)
        assert found.calls.parent.tolist() == parent
