"""Split the step of a pipeline rank into microbatches, with the tensors that the rank sends and receives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from ...schemas.execution_trace.arguments import call_records
from ...trace.brief import brief
from ...trace.columns import distinct
from ...trace.errors import UsageError
from ...trace.trace import Trace
from ..reshape.shapes.followed_calls import Shapes
from .model import ACCUMULATE
from .step_calls import (
    SUM,
    SUM_IN_PLACE,
    VIEWS,
    Call,
    last_step,
    read_step,
    recorded_issues,
    step_window,
    tensor_values,
    walked,
)

_MESSAGES = {"c10d::send": True, "c10d::recv_": False}


class StageMessage(NamedTuple):
    """A tensor that a stage sends or receives. `tensor` is as in ETs."""

    ts: int
    sent: bool
    onward: bool  # True for an activation, False for a gradient
    tensor: list[Any]


@dataclass(eq=False)
class StageStep:
    """The step of a pipeline rank. Tensor numbers are made unique, so that the calls can be reordered."""

    trace: Trace
    stage: int
    before: list[Call] = field(default_factory=list)  # calls before the first pass
    forward: list[list[Call]] = field(default_factory=list)  # for each microbatch, its calls
    backward: list[list[Call]] = field(default_factory=list)
    after: list[Call] = field(default_factory=list)  # calls after the last pass
    steps: list[Call] = field(default_factory=list)  # optimizer steps
    same: dict[int, int] = field(default_factory=dict)  # maps tensor and storage numbers to their replacements
    # Maps True to the activations and False to the gradients, with one list per microbatch.
    sent: dict[bool, list[list[StageMessage]]] = field(default_factory=dict)
    received: dict[bool, list[list[StageMessage]]] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)  # rows of calls that belong to the pipeline schedule
    interleaved: bool = False  # True if a backward pass starts before the last forward pass has ended

    __repr__ = brief


def read_stage(
    trace: Trace, stage: int, stages: int, step: int | None, numbers: count[int], parts: int | None = None
) -> StageStep:
    """Split the step of a rank into microbatches.

    A microbatch's forward pass ends with the call that returns the activation to send. The last stage sends none;
    its forward passes start when activations arrive. Backward calls are assigned to microbatches by sequence number.

    Args:
        numbers: yields tensor numbers that are unique over all ranks.
        parts: number of microbatches; None for the number of activations that the stage sends.
    """
    top = last_step(read_step(trace, Shapes(), step))
    found = StageStep(trace, stage)
    messages = _messages(trace, stage, stages, step)
    _renumber(top, messages, numbers)
    inner = [call for call in top if call.operator and not call.name.startswith("Optimizer.")]
    backward = [at for at, call in enumerate(inner) if call.backward]
    if not backward or not messages:
        what = "no backward pass" if not backward else "no messages"
        raise UsageError(f"{trace.file}: the step of this pipeline stage has {what}; give the trace of a whole step")
    moments = parts or _moments([message for message in messages if message.sent and message.onward], inner)
    if not moments:
        raise UsageError(
            f"{trace.file}: the first of {stages} stages sends nothing to the next stage; give the job's layout with"
            " --from, such as tp=1,dp=2,pp=4"
        )
    for sent, sides in ((True, found.sent), (False, found.received)):
        for onward in (True, False):
            some = [message for message in messages if (message.sent, message.onward) == (sent, onward)]
            sides[onward] = _by_microbatch(some, moments, trace)
    found.steps = [call for call in top if call.name.startswith("Optimizer.step")]
    found.before = [call for call in top if not call.operator and call.ts < inner[backward[0]].ts]
    found.after = inner[backward[-1] + 1 :]
    _divide(found, inner[: backward[-1] + 1], moments, last=stage == stages - 1)
    _drop_schedule(found)
    return found


def _moments(messages: Sequence[StageMessage], calls: Sequence[Call]) -> int:
    """Return how many separate times messages are sent. Messages that have no call between them belong together."""
    starts = np.array([call.ts for call in calls], np.int64)
    return len(distinct(np.searchsorted(starts, [message.ts for message in messages])))


def _by_microbatch(messages: Sequence[StageMessage], parts: int, trace: Trace) -> list[list[StageMessage]]:
    if len(messages) % max(parts, 1):
        raise UsageError(
            f"{trace.file}: {len(messages)} messages of one kind are not divisible by {parts} microbatches; "
            "a stage must send each microbatch to the next stage"
        )
    each = len(messages) // max(parts, 1)
    return [list(messages[k * each : (k + 1) * each]) for k in range(parts)] if each else []


def _messages(trace: Trace, stage: int, stages: int, step: int | None) -> list[StageMessage]:
    calls = trace.calls
    issues = recorded_issues(trace, *step_window(trace, step))
    issued = [call for call in issues if trace.names[calls.name[call]] in _MESSAGES]
    values = [record.inputs.values for record in call_records(trace, calls.source[np.array(issued, np.int64)])]
    peers = [given[2] for given in values if len(given) > 2 and type(given[2]) is int]
    if len(peers) < len(values):
        raise UsageError(f"{trace.file}: message peers were not recorded; record an execution trace that includes them")
    mine = stage if max(peers, default=0) < stages else trace.rank or 0  # a peer is a group rank or a global rank
    found = []
    for call, given, peer in zip(issued, values, peers, strict=True):
        sent = _MESSAGES[trace.names[calls.name[call]]]
        found += [
            StageMessage(int(calls.ts[call]), sent, (peer > mine) == sent, tensor) for tensor in tensor_values(given[0])
        ]
    return found


def _renumber(top: Sequence[Call], messages: Sequence[StageMessage], numbers: count[int]) -> None:
    naming = _Naming(numbers)
    events: list[tuple[int, int, Call | StageMessage]] = [(call.ts, 1, call) for call in top]
    events += [(message.ts, 0, message) for message in messages]
    for _, _, event in sorted(events, key=lambda one: one[:2]):
        if isinstance(event, Call):
            naming.follow(event)
        elif event.sent:
            naming.rename(event.tensor)
        else:
            naming.begin_anew(event.tensor)


class _Naming:
    """Assigns unique numbers to tensors and storages, because recorded numbers are addresses and may be reused.

    If a call returns a number that was not among its inputs, the number refers to a new tensor. If the call is not a
    view, its storage number also refers to a new storage.
    """

    def __init__(self, numbers: count[int]) -> None:
        self._numbers, self._time = numbers, 0
        self._tensors: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self._seen: dict[int, int] = {}
        self._made: dict[int, int] = {}

    def follow(self, call: Call, around: frozenset[int] = frozenset()) -> None:
        self._time += 1
        begin, given, storages = self._time, set[int](), set[int]()
        for value in call.tensors("inputs"):
            given.add(value[0])
            storages.add(value[1])
            self.rename(value)
        taken = around | given
        for child in call.children:
            self.follow(child, taken)
        self._time += 1
        for value in call.tensors("outputs"):
            number, storage = value[:2]
            if number not in taken and self._seen.get(number, -1) < begin:
                self._tensors[number] = next(self._numbers)
            allocates = "empty" in call.name or call.name not in VIEWS
            if storage not in storages and self._made.get(storage, -1) < begin and allocates:
                self._storages[storage], self._made[storage] = next(self._numbers), self._time
            self.rename(value)

    def rename(self, value: list[Any]) -> None:
        number, storage = value[:2]
        self._seen[number] = self._time
        for at, known, old in ((0, self._tensors, number), (1, self._storages, storage)):
            if old not in known:
                known[old] = next(self._numbers)
            value[at] = known[old]

    def begin_anew(self, value: list[Any]) -> None:
        self._tensors[value[0]], self._storages[value[1]] = next(self._numbers), next(self._numbers)
        self.rename(value)


def _divide(found: StageStep, calls: Sequence[Call], parts: int, *, last: bool) -> None:
    bounds = _bounds(found, calls, last=last)
    place = {call.row: k for k, (begin, end) in enumerate(bounds) for call in calls[begin : end + 1]}
    sequences: dict[int, int] = {}
    made_in: dict[int, int] = {}  # for each scalar, such as a loss, the microbatch that produced it
    found.forward, found.backward = [[] for _ in range(parts)], [[] for _ in range(parts)]
    current, behind, ahead = 0, False, 0  # `current` is the backward microbatch, and `ahead` is the next forward one
    for call in calls:
        if call.backward:
            mine = (sequences[one.sequence] for one in call.walk() if one.sequence in sequences)
            current = next(mine, current) if ACCUMULATE not in call.name else current
            found.interleaved |= ahead < parts
            found.backward[current].append(call)
            behind = True
            continue
        k = place.get(call.row, current if behind else min(ahead, parts - 1))
        of = {made_in[number] for number in call.tensor_ids("inputs") if number in made_in}
        k = max(of) if of and k not in of else k  # the initial gradient of a loss belongs to the loss's microbatch
        if found.backward[k]:
            found.backward[k].append(call)
            continue
        found.forward[k].append(call)
        sequences |= dict.fromkeys((one.sequence for one in call.walk() if one.sequence >= 0), k)
        numbers = {value[0] for value in call.tensors("outputs") if value[3] == 1}
        made_in |= dict.fromkeys(numbers - set(call.tensor_ids("inputs")), k)
        if call.row in place:
            ahead, behind = max(ahead, place[call.row] + 1), False


def _bounds(found: StageStep, calls: Sequence[Call], *, last: bool) -> list[tuple[int, int]]:
    starts = np.array([call.ts for call in calls], np.int64)
    backward = np.flatnonzero([call.backward for call in calls])
    known = found.received[True] if last else found.sent[True]
    found_at: list[int] = []
    for messages in known:
        wanted = {message.tensor[0] for message in messages}
        side = "inputs" if last else "outputs"
        first: dict[int, int] = {}
        for at, call in enumerate(calls):
            for number in wanted & {number for one in call.walk() for number in one.tensor_ids(side)}:
                first.setdefault(number, at)
        at = (min if last else max)(first.values(), default=-1) if last or len(first) == len(wanted) else -1
        if at <= (found_at[-1] if found_at else -1):
            raise UsageError(
                f"{found.trace.file}: cannot tell which calls compute the activations of microbatch {len(found_at)}"
                " that this pipeline stage exchanges; record the execution trace with tensors"
            )
        found_at.append(at)
    begins: list[int] = []
    for k, at in enumerate(found_at):
        behind = int(np.searchsorted(backward, at))  # number of backward calls before the call `at`
        after = int(backward[behind - 1]) + 1 if behind else 0
        arrived = found.received[True][k][-1].ts if found.received[True] else 0
        arrived_at = int(np.searchsorted(starts, arrived))
        begins.append(min(max(after, arrived_at, found_at[k - 1] + 1 if k else 0), at))
    if not last:
        return list(zip(begins, found_at, strict=True))
    ends = [
        min(int(backward[np.searchsorted(backward, at)]), following) - 1
        for at, following in zip(found_at, [*begins[1:], len(calls)], strict=True)
    ]
    return list(zip(begins, ends, strict=True))


def _drop_schedule(found: StageStep) -> None:
    """Drop the calls of the pipeline schedule.

    The schedule splits the batch, allocates memory for received tensors, detaches sent and returned tensors, scales
    gradients, and joins outputs.
    """
    used = [_taken(calls) for calls in found.forward]
    everything = set[int]().union(*used, *map(_taken, found.backward), _taken(found.after))
    for k, calls in enumerate(found.forward):
        others = set[int]().union(*(some for j, some in enumerate(used) if j != k))
        sent = {message.tensor[0] for messages in found.sent[True][k : k + 1] for message in messages}

        def of_schedule(call: Call, others: set[int] = others, sent: set[int] = sent) -> bool:
            made = set(call.tensor_ids("outputs"))
            divides = call.name == _SPLITS or (call.name in VIEWS and not made.isdisjoint(others))
            allocates = call.name.startswith("aten::empty") and made.isdisjoint(everything)
            return divides or allocates or (call.name in _DETACHES and bool(made) and made <= sent)

        found.forward[k] = _without(calls, of_schedule, found)
    for k, calls in enumerate(found.backward):
        back = {message.tensor[1] for messages in found.sent[False][k : k + 1] for message in messages}
        found.backward[k] = _without(calls, partial(_leaves, back=back, everything=everything), found)
        arrived = {message.tensor[0] for messages in found.received[False][k : k + 1] for message in messages}
        for call in found.backward[k]:
            _add_in_place(call, arrived, found.same)
    parts = len(found.forward)
    found.after = _without(found.after, lambda call: _joins(call, parts), found)
    found.after = [call for call in found.after if not _scales(call)]


_SPLITS = "aten::tensor_split"
_DETACHES = ("detach", "aten::detach", "aten::detach_")


def _leaves(call: Call, back: set[int], everything: set[int]) -> bool:
    """Return whether a backward call accumulates a gradient that is sent, detaches an output, or allocates memory."""
    if ACCUMULATE in call.name:
        return any(value[1] in back for one in call.walk() for value in one.tensors("outputs"))
    allocates = call.name.startswith("aten::empty") and everything.isdisjoint(call.tensor_ids("outputs"))
    return call.name == "aten::detach_" or allocates


def _add_in_place(call: Call, arrived: set[int], same: dict[int, int]) -> None:
    """Make gradient sums in-place again. Autograd added out of place only because the schedule held the gradient."""
    for child in call.children:
        values = list(child.tensors("inputs"))
        if child.name == SUM.name and values and values[0][0] in arrived:
            child.name, child.schema = SUM_IN_PLACE
            for made in child.tensors("outputs"):
                identify(made, values[0], same)


def _joins(call: Call, parts: int) -> bool:
    return call.name in _DETACHES or (call.name == "aten::cat" and len(call.tensor_ids("inputs")) == parts)


def _scales(call: Call) -> bool:
    tensors = call.signature.tensors if call.signature is not None else ()
    return call.name == "aten::div_" and len(tensors) == 2 and tensors[1].shape == ()


def _without(calls: Sequence[Call], leaves: Callable[[Call], bool], found: StageStep) -> list[Call]:
    kept = []
    for call in calls:
        if not leaves(call):
            kept.append(call)
            continue
        found.dropped |= {one.row for one in call.walk()}
        for one in call.walk():
            given, made = (list(one.tensors(side)) for side in ("inputs", "outputs"))
            if one.name in _DETACHES and given and made:
                identify(made[0], given[0], found.same)
    return kept


def identify(tensor: list[Any], other: list[Any], same: dict[int, int]) -> None:
    """Record that the tensor and storage numbers of `tensor` are replaced by the numbers of `other`."""
    same |= {new: old for new, old in zip(tensor[:2], other[:2], strict=True) if new != old}


def _taken(calls: Sequence[Call]) -> set[int]:
    return {number for call in walked(calls) for number in call.tensor_ids("inputs")}
