"""Join the stages of a recorded pipeline into the program of one rank.

Example: two stages with two microbatches. For each microbatch, the joined rank runs forward of stage 0, forward of
stage 1, backward of stage 1 and backward of stage 0. A single optimizer step follows, with the parameters of both
stages. The activation that stage 0 sends and the activation that stage 1 receives become the same tensor, so shapes can
be followed through the whole model.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count, groupby, pairwise
from typing import Any

from ...trace.brief import brief
from ...trace.errors import UsageError
from ...trace.index import Row
from ...trace.trace import Trace
from .layout import Layout
from .made_records import NodeTensors, NodeWriter, event_args
from .stage_steps import StageStep, identify, read_stage
from .step_calls import Call, is_tensor, tensor_values

_SIDES = "inputs", "outputs"
_APART = 32  # sequence numbers use this many bits; the stage number is stored in the bits above


@dataclass(frozen=True)
class JoinedPipeline:
    trace: Trace
    layout: Layout
    begins: tuple[int, ...]  # for each stage after the first, its first row
    dropped: Mapping[int, frozenset[int]]  # for each rank, rows of calls that belong to the pipeline schedule

    __repr__ = brief


def join_stages(traces: Sequence[Trace], layout: Layout, step: int | None = None) -> JoinedPipeline:
    """Join the traces of a pipeline, one per stage, into one rank's program; follow tensors across stages."""
    chosen, numbers = _chosen(traces, layout), count(1)
    first = read_stage(chosen[0], 0, layout.pp, step, numbers)
    parts = len(first.forward)
    rest = enumerate(chosen[1:], 1)
    stages = [first, *(read_stage(trace, k, layout.pp, step, numbers, parts) for k, trace in rest)]
    dropped = {stage.trace.rank or 0: frozenset(stage.dropped) for stage in stages}
    for trace in traces:
        rank = trace.rank or 0
        if rank not in dropped:
            at = layout.coordinates(rank).pp
            dropped[rank] = frozenset(read_stage(trace, at, layout.pp, step, numbers, parts).dropped)
    writer = _StageWriter(chosen[0], _joined_tensors(stages))
    writer.write(stages)
    one_by_one = stages[-1].interleaved or parts == 1
    layout = replace(layout, microbatches=parts, schedule="1f1b" if one_by_one else "gpipe")
    return JoinedPipeline(writer.trace(), layout, tuple(writer.begins), dropped)


def _chosen(traces: Sequence[Trace], layout: Layout) -> list[Trace]:
    found: dict[tuple[int, int], dict[int, Trace]] = defaultdict(dict)
    for trace in traces:
        if trace.rank is None or not 0 <= trace.rank < layout.ranks:
            stated = "no rank" if trace.rank is None else f"rank {trace.rank}"
            raise UsageError(f"{trace.file}: {stated} is recorded in a pipeline of {layout.ranks} ranks")
        at = layout.coordinates(trace.rank)
        found[at.dp, at.tp].setdefault(at.pp, trace)
    best = found[max(found, key=lambda place: (len(found[place]), -place[0], -place[1]))]
    missing = [stage for stage in range(layout.pp) if stage not in best]
    if missing:
        stages = f"stage{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        raise UsageError(
            f"{traces[0].file}: a pipeline of {layout.pp} stages without {stages}; give one trace per stage, for "
            "example by passing the job's folder"
        )
    return [best[stage] for stage in range(layout.pp)]


def _joined_tensors(stages: Sequence[StageStep]) -> dict[int, int]:
    same = {new: old for stage in stages for new, old in stage.same.items()}
    for near, far in pairwise(stages):
        for source, target, onward in ((near, far, True), (far, near, False)):
            sent, received = source.sent[onward], target.received[onward]
            counts = [list(map(len, of)) for of in (sent, received)]
            if counts[0] != counts[1]:
                what = "activations" if onward else "gradients"
                raise UsageError(
                    f"{target.trace.file}: stage {target.stage} receives {sum(counts[1])} {what}, stage {source.stage}"
                    f" sends {sum(counts[0])}; give traces of the same step"
                )
            for one, other in zip(chain.from_iterable(sent), chain.from_iterable(received), strict=True):
                identify(other.tensor, one.tensor, same)
    return same


@dataclass(eq=False)
class _StageCall:
    """A call of one stage, or a call on lists merged from several stages. `own` is the self time in ns."""

    call: Call
    stage: StageStep
    sides: dict[str, Any]  # "inputs" and "outputs" in the form of an ET
    own: int
    children: list[_StageCall] = field(default_factory=list)
    events: list[tuple[Trace, int]] = field(default_factory=list)

    __repr__ = brief

    @property
    def listed(self) -> list[int]:
        values = self.sides.get("inputs", {}).get("values", [])
        return [place for place, value in enumerate(values) if _is_list(value)]


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and not is_tensor(value) and bool(tensor_values(value))


def _calls_of(stage: StageStep) -> Callable[[Call], _StageCall]:
    events = defaultdict[int, list[int]](list)
    for event, call in enumerate(stage.trace.gpu.call.tolist()):
        if call >= 0 and event not in stage.trace.gpu.comm:
            events[call].append(event)

    def made(call: Call) -> _StageCall:
        mine = [(stage.trace, event) for event in events.get(call.index, ())]
        own = int(stage.trace.self_ns[call.index])
        return _StageCall(call, stage, call.record, own, [made(child) for child in call.children], mine)

    return made


def _merged(stages: Sequence[Sequence[_StageCall]], same: dict[int, int]) -> list[_StageCall]:
    """Merge the optimizer calls of all stages into the calls of one rank.

    Calls on lists get the concatenated lists. Calls that handle one parameter each are consecutive. Calls on scalars,
    or on results over all parameters, occur once.
    """
    runs = [[(name, list(some)) for name, some in groupby(calls, lambda one: one.call.name)] for calls in stages]
    if any([name for name, _ in run] != [name for name, _ in runs[0]] for run in runs):
        return list(chain.from_iterable(stages))
    found = list[_StageCall]()
    whole: dict[int, list[int]] = {}  # sizes of each tensor that is computed from a list
    made = set[int]()
    for some in zip(*runs, strict=True):
        parts = [calls for _, calls in some]
        aligned = len({len(calls) for calls in parts}) == 1
        listed = any(call.listed for calls in parts for call in calls)
        if aligned and listed and all(map(_are_alike, zip(*parts, strict=True))):
            found += [_on_longer_lists(calls, whole, same) for calls in zip(*parts, strict=True)]
        elif aligned and not listed and len(parts[0]) == 1 and all(_of_made(calls[0], made) for calls in parts):
            found.append(parts[0][0])
            _resize(parts[0][0], whole)
            _unite(parts, same)
        else:
            found += chain.from_iterable(parts)
            continue
        made |= {value[0] for calls in parts for one in calls for value in tensor_values(one.sides.get("outputs"))}
    return found


def _are_alike(calls: Sequence[_StageCall]) -> bool:
    def form(call: _StageCall) -> list[list[tuple[bool, int]]]:
        return [
            [
                (_is_list(value), len(shape) if isinstance(value, list) and is_tensor(value) and shape else -1)
                for value, shape in zip(side.get("values", ()), side.get("shapes", ()), strict=False)
            ]
            for side in map(call.sides.get, _SIDES)
            if side is not None
        ]

    first = form(calls[0])
    return all(form(call) == first for call in calls[1:])


def _of_made(call: _StageCall, made: set[int]) -> bool:
    return all(value[0] in made or value[3] <= 1 for value in tensor_values(call.sides.get("inputs")))


def _unite(parts: Sequence[Sequence[_StageCall]], same: dict[int, int]) -> None:
    first = list(tensor_values(parts[0][0].sides.get("outputs")))
    for calls in parts[1:]:
        for value, other in zip(first, tensor_values(calls[0].sides.get("outputs")), strict=False):
            identify(other, value, same)


def _on_longer_lists(calls: Sequence[_StageCall], whole: dict[int, list[int]], same: dict[int, int]) -> _StageCall:
    first = calls[0]
    sides = {name: _longer([one.sides.get(name) or {} for one in calls]) for name in ("inputs", "outputs")}
    outputs = sides["outputs"]
    for place, value in enumerate(outputs.get("values", [])):
        if isinstance(value, list) and is_tensor(value) and outputs["shapes"][place]:  # such as a stack of norms
            sizes = [one.sides["outputs"]["shapes"][place][0] for one in calls]
            whole[value[0]] = [sum(sizes), *outputs["shapes"][place][1:]]
    if not any(map(_is_list, outputs.get("values", []))):
        _unite([[one] for one in calls], same)
    children = list(chain.from_iterable(one.children for one in calls))
    events = list(chain.from_iterable(one.events for one in calls))
    made = _StageCall(first.call, first.stage, sides, sum(one.own for one in calls), children, events)
    _resize(made, whole)
    return made


def _longer(sides: Sequence[dict[str, Any]]) -> dict[str, Any]:
    first = sides[0]
    found = {key: list(values) for key, values in first.items()}
    counts = [[len(value) for value in side.get("values", []) if _is_list(value)] for side in sides]
    for place, value in enumerate(first.get("values", [])):
        numbers = (
            isinstance(value, list)
            and not is_tensor(value)
            and all(
                isinstance(one := side["values"][place], list) and len(one) in known
                for side, known in zip(sides, counts, strict=True)
            )
        )
        if not _is_list(value) and not numbers:  # `numbers` means a list with one number per tensor
            continue
        for key in ("values", "shapes", "strides"):
            if key in found and all(isinstance(side[key][place], list) for side in sides):
                found[key][place] = list(chain.from_iterable(side[key][place] for side in sides))
        inner = [str(side["types"][place]).partition("[")[2].removesuffix("]") for side in sides]
        found["types"][place] = f"GenericList[{','.join(filter(None, inner))}]"
    return found


def _resize(call: _StageCall, whole: Mapping[int, list[int]]) -> None:
    for side in call.sides.values():
        for place, value in enumerate(side.get("values", [])):
            if isinstance(value, list) and is_tensor(value) and value[0] in whole:
                side["shapes"][place], value[3] = whole[value[0]], whole[value[0]][0]


class _StageWriter(NodeWriter):
    def __init__(self, source: Trace, same: dict[int, int]) -> None:
        super().__init__(source)
        self.same = same
        self.begins: list[int] = []

    def write(self, stages: Sequence[StageStep]) -> None:
        made = [_calls_of(stage) for stage in stages]
        self._add(self._together([list(map(of, stage.before)) for of, stage in zip(made, stages, strict=True)]))
        for k in range(len(stages[0].forward)):
            for number, stage in enumerate(stages):
                if number and not k:
                    self.begins.append(len(self.nodes))
                self._add(list(map(made[number], stage.forward[k])))
            for number, stage in reversed(list(enumerate(stages))):
                self._add(list(map(made[number], stage.backward[k])))
        self._add(_merged([list(map(of, stage.after)) for of, stage in zip(made, stages, strict=True)], self.same))
        self._add(self._together([list(map(of, stage.steps)) for of, stage in zip(made, stages, strict=True)]))

    def trace(self) -> Trace:
        return self.finish(1, {"rank": 0, "world_size": 1, "pg_count": 0, "pg_config": []}, own=False)

    def _together(self, stages: Sequence[Sequence[_StageCall]]) -> list[_StageCall]:
        if len({tuple(one.call.name for one in calls) for calls in stages}) > 1:
            return list(chain.from_iterable(stages))
        found = list[_StageCall]()
        for alike in zip(*stages, strict=True):
            children = _merged([one.children for one in alike], self.same)
            first = alike[0]
            found.append(_StageCall(first.call, first.stage, first.sides, sum(one.own for one in alike), children))
        return found

    def _add(self, calls: Sequence[_StageCall]) -> None:
        for place, call in enumerate(calls):
            self.now += call.call.lead if place else 0
            self._call(call, self.step.id)

    def _call(self, made: _StageCall, parent: int) -> None:
        call, trace = made.call, made.stage.trace
        sequence = call.sequence + (made.stage.stage << _APART) if call.sequence >= 0 else -1
        tid, scope = max(int(trace.nodes.thread[call.row]), 1), int(trace.nodes.scope[call.row])
        tensors = partial(self._tensors, made.sides)
        node = self.node(call.name, parent, tid, tensors, scope=scope, sequence=sequence, schema=call.schema)
        begin = self.now
        gap, left = divmod(max(made.own, 1), len(made.children) + 1)
        self.now += gap + left
        for child in made.children:
            self._call(child, node.id)
            self.now += gap
        for source, event in made.events:
            self._event(source, event, node.id, tid)
        node.close(begin, self.now, max(made.own, 1))

    def _tensors(self, sides: Mapping[str, Any]) -> NodeTensors:
        found = [side and side | {"values": self._renamed(side["values"])} for side in map(sides.get, _SIDES)]
        return found[0], found[1]

    def _renamed(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        if not is_tensor(value):
            return [self._renamed(one) for one in value]
        return [*(self._known(number) for number in value[:2]), *value[2:]]

    def _known(self, number: int) -> int:
        while number in self.same:
            number = self.same[number]
        return number

    def _event(self, source: Trace, event: int, caller: int, tid: int) -> None:
        gpu = source.gpu
        stream, dur, device = int(gpu.stream[event]), int(gpu.dur[event]), max(int(gpu.device[event]), 0)
        name, category = source.names[gpu.name[event]], source.categories[gpu.category[event]]
        args = partial(event_args, source, Row(int(gpu.source[event])))
        self.event(name, category, stream, dur, caller, tid, stream=stream, device=device, args=args)
