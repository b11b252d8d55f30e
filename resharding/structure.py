"""What a recorded step consists of: units of layers, parameters, loss, optimizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain
from math import prod
from typing import NamedTuple

import numpy as np

from ..reshape.shapes.extents import Extents
from ..reshape.shapes.followed_calls import Shapes, shapes_of
from ..reshape.shapes.terms import Shape
from ..schemas.execution_trace.arguments import call_records
from ..trace.brief import brief
from ..trace.dtypes import itemsize
from ..trace.errors import UsageError
from ..trace.trace import Trace
from .step_calls import COMMUNICATES, Call, check_eager, read_step, tensor_values, walked

ACCUMULATE = "torch::autograd::AccumulateGrad"
PRODUCTS = {"aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::bmm": (0, 1), "aten::baddbmm": (1, 2)}
"""Matrix products, and the positions of their factors."""
_STEP = "Optimizer.step"


@dataclass(eq=False)
class Parameter:
    """A parameter of the model.

    Attributes:
        number: its place in the order of the optimizer (of `model.parameters()`).
        shape: extents. dtype: torch's name of the element type, as in ETs ("float").
        unit: which unit it belongs to. use: place of its first use in forward.
    """

    number: int
    shape: Shape
    itemsize: int
    dtype: str
    unit: int = -1
    use: int = -1


@dataclass(eq=False)
class Unit:
    """A part of the model that begins and ends with one tensor: a block around a residual, or a single layer.

    Attributes:
        forward, backward: the topmost calls. parameters: in order of their first use.
        ready: of each AccumulateGrad in backward (by row) the parameter whose gradient it is.
        kind: equal for units with the same operators on parameters of the same shapes.
        output: extents of the residual tensor that leaves it, dtype, itemsize: of its elements, for sizes of messages.
    """

    number: int
    forward: list[Call]
    backward: list[Call] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    ready: dict[int, Parameter] = field(default_factory=dict)
    kind: str = ""
    output: Shape = ()
    dtype: str = "float"
    itemsize: int = 4

    __repr__ = brief


@dataclass(eq=False)
class Model:
    """One recorded step on one device.

    Attributes:
        before, loss_forward, loss_backward, after: calls around the units; `after` is what runs between backward and
            the optimizer.
        optimizer: calls of the optimizer's steps, each with the parameter of each call below (None: of all).
        batch: the class of the batch extent. given: extents of all tensors from outside.
    """

    trace: Trace
    extents: Extents
    units: list[Unit]
    parameters: list[Parameter]
    before: list[Call]
    loss_forward: list[Call]
    loss_backward: list[Call]
    after: list[Call]
    optimizer: list[tuple[Call, list[tuple[Call, Parameter | None]]]]
    batch: int
    given: tuple[int, ...]

    __repr__ = brief

    @property
    def trains(self) -> bool:
        """Whether there is a backward pass."""
        return any(unit.backward for unit in self.units)

    def calls(self) -> Iterator[Call]:
        """All calls, in order within each part."""
        parts = [self.before, *(unit.forward for unit in self.units), self.loss_forward, self.loss_backward]
        parts += [unit.backward for unit in reversed(self.units)]
        parts += [self.after, [call for call, _ in self.optimizer]]
        return walked(chain.from_iterable(parts))

    def attentions(self) -> Iterator[list[Shape]]:
        """Extents of queries, keys and values of each call of attention in forward."""
        for call in walked(call for unit in self.units for call in unit.forward):
            if "attention" in call.name:
                yield [shape for tensors in call.inputs[:3] for shape in tensors if shape is not None]

    def size(self, extent: int, changed: Mapping[int, int]) -> int:
        """The value of an extent where some classes have other values."""
        if changed and (root := self.extents.root(extent)) in self._sums and root not in changed:
            parts = self._sums[root]
            if not changed.keys().isdisjoint(self.extents.leaves(parts)):
                return sum(self.size(part, changed) for part in parts)
        return prod(changed.get(leaf, self.extents.value[leaf]) for leaf in self.extents.leaves([extent]))

    def shape(self, shape: Iterable[int], changed: Mapping[int, int]) -> list[int]:
        """The sizes of a tensor where some classes have other values."""
        return [self.size(extent, changed) for extent in shape]

    def parts(self, shape: Iterable[int]) -> tuple[tuple[int, ...], ...]:
        """The classes of a tensor's extents, products by their factors."""
        return tuple(tuple(self.extents.leaves([extent])) for extent in shape)

    @cached_property
    def _sums(self) -> dict[int, tuple[int, ...]]:
        return dict(self.extents.sums)


def contracted(call: Call) -> tuple[int, ...]:
    """The extents over which a matrix product sums, () for other calls."""
    if call.name not in PRODUCTS:
        return ()
    at = PRODUCTS[call.name][0]
    tensors = call.inputs[at] if at < len(call.inputs) else ()
    shape = tensors[0] if tensors else None
    return shape[-1:] if shape else ()


def read_model(trace: Trace, step: int | None = None) -> Model:
    """Recognise the structure of a recorded step of training, or of inference, which has a forward pass alone.

    Units are cut where one single activation is alive, as between residual blocks. Calls of backward belong to the
    unit whose forward has their sequence numbers; gradients are those of parameters by shape, last used first.

    Raises:
        UsageError: no parameters, or no tensors are recorded, or a step of inference replays graphs.
    """
    shapes = shapes_of(trace)
    if not shapes.sources:
        check_eager(trace)
        raise UsageError(f"{trace.file}: no tensors are recorded in it; record the execution trace with its tensors")
    top = read_step(trace, shapes, step)
    first = next((i for i, call in enumerate(top) if call.backward), len(top))
    if first == len(top):  # of inference
        check_eager(trace)
    last = max((i for i, call in enumerate(top) if call.backward), default=len(top))
    steps = [call for call in top if call.name.startswith(_STEP)]
    before = [call for call in top[:first] if not call.operator]
    forward = [call for call in top[:first] if call.operator]
    backward = [call for call in top[first : last + 1] if call.operator]
    after = [call for call in top[last + 1 :] if call not in steps]
    parameters, optimizer = _optimized(steps, shapes, forward)
    units, loss = _units(trace, forward, parameters, shapes)
    loss_backward = _assign_backward(units, loss, backward)
    given = tuple(extent for source in shapes.sources for extent in source.shape)
    model = Model(
        trace, shapes.extents, units, sorted(parameters.values(), key=lambda parameter: parameter.number), before, loss,
        loss_backward, after, optimizer, _batch(shapes), given,
    )  # fmt: skip
    _relate_inner(model)
    for unit in units:
        _assign_gradients(unit, model)
    return model


def _batch(shapes: Shapes) -> int:
    """The class that is the first extent of most of what operators with weights take as data."""
    votes = Counter(shapes.extents.leaves(outer)[0] for outer in shapes.votes)
    fixed = shapes.extents.fixed()
    ranked = [root for root, _ in votes.most_common() if root not in fixed and shapes.extents.value[root] > 1]
    return ranked[0] if ranked else -1


class _Given(NamedTuple):
    """A tensor that a call takes: its number, extents, type and the size of an element."""

    number: int
    shape: Shape
    dtype: str
    itemsize: int


def _optimized(steps: Sequence[Call], shapes: Shapes, forward: Sequence[Call]
               ) -> tuple[dict[int, Parameter], list[tuple[Call, list[tuple[Call, Parameter | None]]]]]:  # fmt: skip
    """Parameters by number of their tensor in forward, and of each call of the optimizer whose it is."""
    made = {number for call in walked(forward) for number in call.tensor_ids("outputs")}
    used: dict[int, _Given] = {}
    for call in walked(forward):
        for tensor in _tensors(call):
            if tensor.number not in made and tensor.dtype.startswith(("float", "double", "Half", "c10::")):
                used.setdefault(tensor.number, tensor)
    candidates = _weight_like(forward, made)
    children = [child for step in steps for child in step.children]
    if not children:
        known = enumerate(used[number] for number in candidates)
        made_up = {tensor.number: Parameter(k, tensor.shape, tensor.itemsize, tensor.dtype) for k, tensor in known}
        return made_up, [(step, []) for step in steps]
    lists = [child for child in children if child.inputs and len(child.inputs[0]) > 1]
    entries = [
        tensor for child in (lists or children) for tensor in (_tensors(child) if lists else _tensors(child)[:1])
    ]
    direct = [entry for entry in entries if entry.number in candidates]
    taken: dict[int, Parameter] = {}
    by_tensor: dict[int, Parameter] = {}
    for entry in direct or entries:
        match: int | None = entry.number
        if match in by_tensor:
            continue
        if match not in candidates:
            sizes = shapes.extents.sizes(entry.shape)
            alike = (k for k in candidates if k not in taken and shapes.extents.sizes(used[k].shape) == sizes)
            if (match := next(alike, None)) is None:
                continue
            for extent, other in zip(used[match].shape, entry.shape, strict=True):
                shapes.extents.same(extent, other)
        taken[match] = Parameter(len(by_tensor), used[match].shape, entry.itemsize, entry.dtype)
        by_tensor[entry.number] = taken[match]
    return taken, [(step, list(_owners(step, by_tensor))) for step in steps]


def _owners(step: Call, by_tensor: Mapping[int, Parameter]) -> Iterator[tuple[Call, Parameter | None]]:
    """Calls of an optimizer for one parameter each end with the one that changes it; None for calls on lists."""
    waiting: list[Call] = []
    for child in step.children:
        waiting.append(child)
        ids, on_lists = child.tensor_ids("inputs"), any(len(tensors) > 1 for tensors in child.inputs)
        if on_lists or (ids and ids[0] in by_tensor):
            yield from ((earlier, None if on_lists else by_tensor[ids[0]]) for earlier in waiting)
            waiting = []
    yield from ((earlier, None) for earlier in waiting)


def _weight_like(forward: Sequence[Call], made: set[int]) -> dict[int, None]:
    """Numbers of tensors that layers take as weights or biases, in order of use."""
    found: dict[int, None] = {}
    for call in walked(forward):
        values = call.record.get("inputs", {}).get("values", [])
        for place in _weight_places(call.name):
            for tensor in tensor_values(values[place : place + 1]):
                if tensor[0] not in made:
                    found.setdefault(tensor[0])
    return found


def _weight_places(name: str) -> Iterable[int]:
    """Positions of the weights and biases of an operator."""
    if "norm" in name:
        return range(1, 5)
    if name == "aten::linear" or "conv" in name:
        return 1, 2
    if "embedding" in name or name in ("aten::t", "aten::div"):
        return (0,)
    return (0, 1, 2) if name in ("aten::addmm", "aten::mm") else ()


def _tensors(call: Call) -> list[_Given]:
    """The tensors that a call takes; none where they are not recorded whole."""
    values = list(tensor_values(call.record.get("inputs")))
    signature = call.signature.tensors if call.signature is not None else ()
    if not len(values) == len(call.input_shapes) == len(signature):
        return []
    return [
        _Given(value[0], shape, tensor.dtype, itemsize(tensor.dtype) or value[4])
        for value, shape, tensor in zip(values, call.input_shapes, signature, strict=True)
    ]


def _units(trace: Trace, forward: Sequence[Call], parameters: Mapping[int, Parameter], shapes: Shapes
           ) -> tuple[list[Unit], list[Call]]:  # fmt: skip
    """The units of the forward pass, and what follows the last one with parameters: the loss."""
    units: list[Unit] = []
    segment: list[Call] = []
    for call, live in zip(forward, _alive(trace, forward, parameters), strict=True):
        segment.append(call)
        if live == 1 or call is forward[-1]:
            owned = _used(segment, parameters)
            if owned or (units and call is forward[-1]):
                units.append(Unit(len(units), segment, parameters=owned))
            elif units:  # a segment without parameters belongs to the unit before it
                units[-1].forward += segment
            segment = [] if units else segment
    loss: list[Call] = []
    while units and not units[-1].parameters:
        loss = [*units.pop().forward, *loss]
    if not units:
        raise UsageError(f"{trace.file}: no parameters are found in the forward pass; record it with its tensors")
    loss = [*_trailing(units[-1], parameters), *loss]
    for unit in units:
        _describe(unit, shapes)
    return units, loss


def _alive(trace: Trace, forward: Sequence[Call], parameters: Mapping[int, Parameter]) -> Iterator[int]:
    """How many activations are alive after each call of forward."""
    alias = _aliases(trace)
    produced: dict[int, int] = {}
    last_use: dict[int, int] = {}
    outside = set(parameters)
    for place, call in enumerate(forward):
        for inner in call.walk():
            for number in inner.tensor_ids("inputs"):
                last_use[alias.get(number, number)] = place
                if number not in produced:
                    outside.add(number)
            for number in inner.tensor_ids("outputs"):
                if number not in outside:
                    produced.setdefault(alias.get(number, number), place)
    entries = (ids for call in forward if not parameters.keys().isdisjoint(ids := call.tensor_ids("inputs")))
    for number in next(entries, [])[:1]:  # what the model is given
        if number not in parameters:
            produced.setdefault(alias.get(number, number), 0)
    change = [0] * len(forward)
    for number, begin in produced.items():
        end = last_use.get(number, begin)
        if end > begin:
            change[begin] += 1
            change[end] -= 1
    return accumulate(change)


def _trailing(unit: Unit, parameters: Mapping[int, Parameter]) -> list[Call]:
    """What follows the last unit's output without parameters: the loss, from its first call that makes a scalar."""
    forward = unit.forward
    last = max((i for i, call in enumerate(forward) if _used([call], parameters)), default=len(forward) - 1)
    for i in range(last + 1, len(forward)):
        call = forward[i]
        if "loss" in call.name or call.name == "aten::broadcast_tensors" or _scalar(call):
            unit.forward = forward[:i]
            return forward[i:]
    return []


def _scalar(call: Call) -> bool:
    outputs = call.signature.outputs if call.signature is not None else None
    return bool(outputs) and all(output.shape == () for output in outputs or ())


def _aliases(trace: Trace) -> dict[int, int]:
    """Tensors that are results of communication, by what they were made of."""
    alias: dict[int, int] = {}
    codes = [code for code, name in enumerate(trace.names) if COMMUNICATES.fullmatch(name)]
    for record in call_records(trace, np.flatnonzero(np.isin(trace.name, codes))):
        sides = [[tensor[0] for tensor in tensor_values(side.values)] for side in (record.inputs, record.outputs)]
        if sides[0] and sides[1] and sides[0][0] != sides[1][0]:
            alias.setdefault(sides[1][0], alias.get(sides[0][0], sides[0][0]))
    return alias


def _used(calls: Iterable[Call], parameters: Mapping[int, Parameter]) -> list[Parameter]:
    """Parameters that calls take, in order of use, that no unit has yet."""
    found: dict[int, Parameter] = {}
    for call in walked(calls):
        for number in call.tensor_ids("inputs"):
            if number in parameters:
                found.setdefault(number, parameters[number])
    return [parameter for parameter in found.values() if parameter.unit < 0]


def _describe(unit: Unit, shapes: Shapes) -> None:
    value = shapes.extents.value
    for parameter in unit.parameters:
        parameter.unit = unit.number
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


def _assign_backward(units: Sequence[Unit], loss: Sequence[Call], backward: Sequence[Call]) -> list[Call]:
    """Give each unit its calls of backward; returns those of the loss."""
    parts = [*((unit.number, unit.forward) for unit in units), (len(units), loss)]
    place = {call.sequence: number for number, calls in parts for call in walked(calls) if call.sequence >= 0}
    of_loss: list[Call] = []
    current = len(units)
    for call in backward:
        if ACCUMULATE not in call.name:
            current = min(
                current, next((place[inner.sequence] for inner in call.walk() if inner.sequence in place), current)
            )
        (of_loss if current == len(units) else units[current].backward).append(call)
    return of_loss


def _assign_gradients(unit: Unit, model: Model) -> None:
    """Match each AccumulateGrad of a unit with the parameter of its shape that was used last."""
    left, unmatched = unit.parameters[::-1], list[Call]()
    for call in unit.backward:
        if ACCUMULATE not in call.name:
            continue
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
    if len(unmatched) == len(left):  # of distributed tensors, which have other sizes there
        unit.ready |= {call.row: parameter for call, parameter in zip(unmatched, left, strict=True)}


def _relate_inner(model: Model) -> None:
    """Tensors made within a loss that have the shape of one of its inputs have its extents."""
    extents = model.extents
    loose = {root for some, _ in extents.following for root in some}

    def visit(call: Call, known: Sequence[Shape]) -> None:
        for shape in call.shapes:
            if len(shape) > 1 and any(extents.root(extent) in loose for extent in shape):
                sizes = extents.sizes(shape)
                for other in known:
                    if extents.sizes(other) == sizes:
                        for left, right in zip(other, shape, strict=True):
                            extents.same(left, right)
                        break
        inputs = [shape for shape in call.input_shapes if shape]
        for child in call.children:
            visit(child, inputs or known)

    for call in (*model.loss_forward, *model.loss_backward):
        visit(call, ())
