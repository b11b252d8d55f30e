"""Cut the forward pass of a model into units, and assign backward calls to units.

`alive_after` counts the live activations after each topmost call: results that later calls use. A unit ends when a
single activation is live. Example: in `x → linear → gelu → linear → add(x)`, the input x is live until `add`, so the
whole block with the residual is a unit. In `linear → relu → linear`, a single activation is live after each call. A
segment without parameters joins the previous unit, so there are two units.

Backward calls are assigned by sequence number: an autograd call has the sequence number of the forward call that it
computes the gradient of. A call without a sequence number joins the unit of the previous call. The loss consists of all
calls without parameters after the output of the last unit, starting at the first scalar. `assign_gradients` finds the
parameter of each AccumulateGrad call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from itertools import accumulate
from math import prod

import numpy as np

from ...schemas.execution_trace.arguments import call_records
from ...trace.columns import matching
from ...trace.dtypes import itemsize
from ...trace.errors import UsageError
from ...trace.trace import Trace
from ..reshape.shapes.extents import Extents
from ..reshape.shapes.followed_calls import Shapes
from ..reshape.shapes.terms import Shape, match
from .model import ACCUMULATE, PRODUCTS, Model, Parameter, Pass, RecordedWrap, Unit, Weights, accumulations
from .step_calls import COMMUNICATES, Call, tensor_values, walked
from .weights import gradients_of


def alive_after(trace: Trace, forward: Sequence[Call], weights: Weights) -> list[int]:
    """For each forward call, count the activations that are live after it: results used later, and the model input.

    Results from before the first call with parameters are data. A tensor number that is reused belongs to a new tensor.
    A number that no call returned, but that refers to an activation's memory, is this activation (due to FSDP hooks).
    """
    alias = _aliases(trace)
    lives: dict[int, list[int]] = {}  # for each tensor number, the index of its first and last use
    made_in: dict[int, list[int]] = {}  # maps each storage to the number, offset and size of its last activation
    memory: dict[int, int] = {}  # for each tensor number, its storage
    ended: list[list[int]] = []
    begin = next((place for place, call in enumerate(forward) if weights.takes(call)), 0)
    given = (list(call.tensors("inputs")) for call in forward[begin:])
    data = next((values for values in given if any(weights.of(value) is None for value in values)), [])
    for value in data[:1]:  # the first call that has inputs other than parameters
        if weights.of(value) is None:
            lives[alias.get(value[0], value[0])] = [0, 0]
    outside = set[int]()
    for place, call in enumerate(forward):
        for inner in call.walk():
            taken, storages = set[int](), set[int]()
            for value in inner.tensors("inputs"):
                storages.add(value[1])
                number = alias.get(value[0], value[0])
                if number not in lives and number not in outside and made_in.get(value[1], [])[1:] == value[2:4]:
                    number = alias[value[0]] = made_in[value[1]][0]
                taken.add(number)
                if number not in lives:
                    outside.add(number)
                elif number != value[0] or memory.get(number, value[1]) == value[1]:
                    lives[number][1] = place
            for value in inner.tensors("outputs"):
                number = alias.get(value[0], value[0])
                known = number in taken or (number in lives and lives[number][0] == place)
                if weights.of(value) is not None:
                    ended += [lives.pop(number)] if number in lives else []
                elif place >= begin and not (known or number in outside):
                    ended += [lives[number]] if number in lives else []
                    lives[number] = [place, place]
                    if value[1] not in storages:
                        made_in[value[1]] = [number, *value[2:4]]
                memory[number] = value[1]
    change = [0] * len(forward)
    for first, last in (*ended, *lives.values()):
        if last > first:
            change[first] += 1
            change[last] -= 1
    return list(accumulate(change))


def _aliases(trace: Trace) -> dict[int, int]:
    alias: dict[int, int] = {}
    communicates = matching(trace.nodes.name, trace.names, COMMUNICATES.fullmatch)
    for record in call_records(trace, np.flatnonzero(communicates)):
        sides = [[tensor[0] for tensor in tensor_values(side.values)] for side in (record.inputs, record.outputs)]
        if sides[0] and sides[1] and sides[0][0] != sides[1][0]:
            alias.setdefault(sides[1][0], alias.get(sides[0][0], sides[0][0]))
    return alias


def cut_units(
    trace: Trace,
    forward: Sequence[Call],
    weights: Weights,
    shapes: Shapes,
    alive: Sequence[int],
    cuts: Set[int] = frozenset(),
    joined: Set[int] = frozenset(),
) -> tuple[list[Unit], list[Call]]:
    units: list[Unit] = []
    segment: list[Call] = []
    for place, (call, live) in enumerate(zip(forward, alive, strict=True)):
        segment.append(call)
        following = place + 1
        if (live == 1 and following not in joined) or following in cuts or call is forward[-1]:
            owned = _used(segment, weights)
            reads = (True for one in walked(segment) for _ in weights.read(one))
            frozen = not cuts.isdisjoint((following, following - len(segment))) and any(reads)
            if owned or frozen or (units and call is forward[-1]):
                units.append(Unit(len(units), segment, parameters=owned, alone=live <= 1))
                for parameter in owned:
                    parameter.unit = units[-1].number
            elif units:  # a segment without parameters joins the previous unit
                units[-1].forward += segment
                units[-1].alone = live <= 1
            segment = [] if units else segment
    loss: list[Call] = []
    while units and not units[-1].parameters and not any(_in_model(call, weights) for call in units[-1].forward):
        loss = [*units.pop().forward, *loss]
    if not units:
        raise UsageError(f"{trace.file}: no parameters were found in the forward pass; record the ET with tensors")
    loss = [*_split_loss(units[-1], weights), *loss]
    for unit in units:
        _describe(unit, shapes)
    return units, loss


def _in_model(call: Call, weights: Weights) -> bool:
    """Return whether a call uses a parameter, or a frozen weight with autograd enabled."""
    return any(not p.frozen or inner.sequence >= 0 for inner in call.walk() for p in weights.read(inner))


def _used(calls: Iterable[Call], weights: Weights) -> list[Parameter]:
    found = dict.fromkeys(parameter for call in walked(calls) for parameter in weights.taken(call))
    return [parameter for parameter in found if parameter.unit < 0]


def _split_loss(unit: Unit, weights: Weights) -> list[Call]:
    """Remove and return the loss from the last unit: calls after the last parameter, starting at the first scalar."""
    forward = unit.forward
    last = max((i for i, call in enumerate(forward) if _in_model(call, weights)), default=len(forward) - 1)
    for i in range(last + 1, len(forward)):
        call = forward[i]
        outputs = (call.signature.outputs if call.signature is not None else None) or ()
        scalar = len(outputs) > 0 and all(output.shape == () for output in outputs)
        if "loss" in call.name or call.name == "aten::broadcast_tensors" or scalar:
            unit.forward = forward[:i]
            return forward[i:]
    return []


def _describe(unit: Unit, shapes: Shapes) -> None:
    value = shapes.extents.value
    weights = ["x".join(str(value[extent]) for extent in parameter.shape) for parameter in unit.parameters]
    work = Counter(call.name for call in walked(unit.forward) if call.name in PRODUCTS)
    unit.kind = " ".join([*weights, *(f"{count}*{name}" for name, count in sorted(work.items()))])
    for call in reversed(unit.forward):
        output = next(filter(None, call.output_shapes), None)
        if output is not None:
            unit.output = output
            outputs = call.signature.outputs if call.signature is not None else ()
            unit.dtype = outputs[0].dtype if outputs else "float32"
            unit.itemsize = itemsize(unit.dtype) or 4
            break


def assign_backward(units: Sequence[Unit], loss: Sequence[Call], backward: Sequence[Call]) -> list[Call]:
    parts = [*((unit.number, unit.forward) for unit in units), (len(units), loss)]
    unit_of = {call.sequence: number for number, calls in parts for call in walked(calls) if call.sequence >= 0}
    of_loss: list[Call] = []
    current = len(units)
    for call in backward:
        if ACCUMULATE not in call.name:
            known = (unit_of[inner.sequence] for inner in call.walk() if inner.sequence in unit_of)
            current = min(current, next(known, current))
        (of_loss if current == len(units) else units[current].backward).append(call)
    return of_loss


def further_pass(
    trace: Trace,
    units: Sequence[Unit],
    weights: Weights,
    shapes: Shapes,
    part: tuple[list[Call], list[Call]],
    batch: int,
) -> Pass:
    forward, backward = part
    known = [call for unit in units for call in unit.forward]
    uses = ((place for place, call in enumerate(calls) if weights.takes(call)) for calls in (known, forward))
    skipped, begin = (next(places, 0) for places in uses)
    end = begin + len(known) - skipped
    if [call.name for call in forward[begin:end]] != [call.name for call in known[skipped:]]:
        raise UsageError(
            f"{trace.file}: the step's forward passes run different operators, which is not supported; "
            "use --step to choose a step with a single forward pass"
        )
    found, place = list[Unit](), begin - skipped
    for unit in units:
        first = place if found else 0
        found.append(replace(unit, forward=forward[first : place + len(unit.forward)], backward=[], ready={}))
        _describe(found[-1], shapes)
        place += len(unit.forward)
    return Pass(found, forward[place:], assign_backward(found, forward[place:], backward), batch)


def relate_loss(model: Model) -> None:
    """Merge the extents of tensors created inside a loss with the extents of an input that has the same sizes."""
    extents = model.extents
    loose = {root for some, _ in extents.following for root in some}

    def visit(call: Call, known: Sequence[Shape]) -> None:
        for shape in call.shapes:
            if len(shape) > 1 and shape not in known and any(extents.root(extent) in loose for extent in shape):
                sizes = extents.sizes(shape)
                for other in known:
                    if extents.sizes(other) == sizes:
                        for left, right in zip(other, shape, strict=True):
                            extents.same(left, right)
                        break
        inputs = [shape for shape in call.input_shapes if shape]
        for child in call.children:
            visit(child, inputs or known)

    for one in model.passes:
        for call in (*one.loss_forward, *one.loss_backward):
            visit(call, ())


def assign_gradients(model: Model, gathered: Sequence[RecordedWrap] = ()) -> int:
    """Assign a parameter to each AccumulateGrad call (`Unit.ready`); return the number of unmatched calls.

    Calls are matched by the memory that the optimizer reads or FSDP reduces. Other calls are matched by shape within a
    unit, starting with the parameter used last.
    """
    known = {} if gathered else gradients_of(model.weights)  # with FSDP, the optimizer reads separate shards
    unmatched, batches = 0, set(model.batches)

    def of_samples(call: Call) -> bool:  # with checkpointing, inputs may have gradients
        shape = next((shape for inner in call.walk() for shape in inner.input_shapes), ())
        return not batches.isdisjoint(model.extents.leaves(shape))

    for one in model.passes:
        calls = [(unit, call) for unit in reversed(one.units) for call in accumulations(unit.backward)]
        taken = dict[int, Parameter]()
        for unit, call in calls:
            owner = _by_memory(call, known, model.extents) or _reduced(call, gathered, model)
            if owner is not None and owner.number not in taken:
                taken[owner.number] = unit.ready[call.row] = owner
                for shape in (shape for inner in call.walk() for shape in inner.input_shapes):
                    match(shape, owner.shape, model.extents)
        for unit in one.units:
            mine = [call for of, call in calls if of is unit and call.row not in unit.ready and not of_samples(call)]
            if mine:
                unmatched += _by_shape(unit, mine, model, set(taken))
                taken |= {parameter.number: parameter for parameter in unit.ready.values()}
    ready = {parameter.number for unit in model.units for parameter in unit.ready.values()}
    for parameter in model.parameters:
        parameter.accumulates = not ready or parameter.number in ready
    return unmatched


def _by_memory(call: Call, known: Mapping[tuple[int, int], Parameter], extents: Extents) -> Parameter | None:
    """Find the parameter for the gradient that the call writes or copies. The last match wins: memory is reused."""
    for inner in reversed(list(call.walk())):
        for side in ("outputs", "inputs"):
            for value in inner.tensors(side):
                owner = known.get((value[1], value[2]))
                if owner is not None and prod(extents.sizes(owner.shape)) == value[3]:
                    return owner
    return None


def _reduced(call: Call, gathered: Sequence[RecordedWrap], model: Model) -> Parameter | None:
    storages = {value[1] for inner in call.walk() for value in inner.tensors("inputs")}
    best: tuple[int, Parameter] | None = None
    for unit in gathered:
        for ts, reduced in unit.gradients:
            if ts < call.ts or (best is not None and ts > best[0]) or len(reduced) < len(unit.shards):
                continue
            for storage, shard in zip(reduced, unit.shards, strict=False):
                if storage in storages and shard in model.weights.by_shard:
                    best = ts, model.weights.by_shard[shard]
    return None if best is None else best[1]


def _by_shape(unit: Unit, calls: Sequence[Call], model: Model, taken: set[int]) -> int:
    left, unmatched = [p for p in unit.parameters[::-1] if p.number not in taken], list[Call]()
    for call in calls:
        unmatched.append(call)
        given = [shape for inner in call.walk() for shape in inner.input_shapes]
        if not given:
            continue
        sizes, parts = model.extents.sizes(given[0]), model.parts(given[0])
        alike = [parameter for parameter in left if model.extents.sizes(parameter.shape) == sizes]
        exact = [parameter for parameter in alike if model.parts(parameter.shape) == parts]
        if alike:
            chosen = (exact or alike)[0]
            unit.ready[call.row] = chosen
            left.remove(chosen)
            unmatched.pop()
    ranks = [{len(shape) for one in call.walk() for shape in one.input_shapes} for call in unmatched]
    whole = all(not known or len(of.shape) in known for known, of in zip(ranks, left, strict=False))
    if len(unmatched) == len(left) and whole:  # sizes may differ for calls on distributed tensors
        unit.ready |= {call.row: parameter for call, parameter in zip(unmatched, left, strict=True)}
        return 0
    return len(unmatched)
