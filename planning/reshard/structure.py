"""What a recorded step consists of: units of layers, parameters, loss, optimizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain
from math import prod

import numpy as np

from ...schemas.execution_trace.arguments import call_records
from ...trace.brief import brief
from ...trace.dtypes import itemsize
from ...trace.errors import UsageError
from ...trace.trace import Trace
from ..reshape.shapes.extents import Extents
from ..reshape.shapes.followed_calls import Shapes, shapes_of
from ..reshape.shapes.terms import Shape
from .clipping import whole_gradients
from .data_parallel import SINK, finds_unused, recorded_buffers, trace_is_ddp, without_buffers, without_sink
from .experts import find_layers, joined_places
from .gradients import assign_gradients
from .items import Shard
from .layout import Layout
from .passes import split_step
from .step_calls import COMMUNICATES, Call, check_eager, read_step, step_window, tensor_values, walked
from .weights import (
    ACCUMULATE,
    Buffer,
    Parameter,
    Weights,
    find_buffers,
    find_weights,
    relate_gathered,
    unreached_weights,
)
from .wraps import (
    CallRange,
    RecordedWrap,
    Wrap,
    boundaries,
    in_module_order,
    recorded_wraps,
    repeated_blocks,
    unsure_blocks,
)

PRODUCTS = {"aten::mm": (0, 1), "aten::addmm": (1, 2), "aten::bmm": (0, 1), "aten::baddbmm": (1, 2)}
"""Matrix products, and the positions of their factors."""


@dataclass(eq=False)
class Unit:
    """A part of the model that begins and ends with one tensor: a block around a residual, or a single layer.

    Attributes:
        forward, backward: the topmost calls. parameters: in order of their first use.
        ready: of each AccumulateGrad in backward (by row) the parameter whose gradient it is.
        kind: equal for units with the same operators on parameters of the same shapes.
        output: extents of the residual tensor that leaves it, dtype, itemsize: of its elements, for sizes of messages.
        alone: no other activation is alive where it ends, so a pipeline can be cut there.
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
    alone: bool = True

    __repr__ = brief


@dataclass(eq=False)
class Pass:
    """One forward and backward pass: a recorded microbatch.

    Attributes:
        units: of the pass. loss_forward, loss_backward: calls around them. batch: the class of its batch extent, −1
            where none is found.
    """

    units: list[Unit]
    loss_forward: list[Call]
    loss_backward: list[Call]
    batch: int

    __repr__ = brief


@dataclass(eq=False)
class Model:
    """One recorded step on one device.

    Attributes:
        before, loss_forward, loss_backward, after: calls around the units; `after` is what runs between backward and
            the optimizer.
        optimizer: calls of the optimizer's steps, each with the parameter of each call below (None: of all).
        batch: the class of the batch extent. given: extents of all tensors from outside.
        further: passes after the first one, whose gradients are added to its own.
        weights: how parameters were found. buffers: other tensors of the model.
        wraps: units of FSDP as recorded, empty for other recordings. blocks: those that follow from repeated calls.
        unreached: how many frozen weights, or parameters without a gradient, are in layers that do not reach the loss.
        inferred: buffers that are not recorded to be broadcast. finds_unused: DDP has find_unused_parameters, with
            which it copies the model's output, of extents `sink`.
        loose_blocks: whether some parameters belong to those or to the root is not known.
        own_buffers: a data-parallel recording shows the buffers; else they are inferred.
        optimizer_parts: of how many parts of parameters the recorded optimizer had one.
        unmatched: gradients that no parameter is known for.
        left_out: calls that a recorded layout adds around the sum of norms of gradients.
        step: the topmost calls of the recorded step. window: when it begins and ends, ns.
        data: tensors from outside of which one extent may be the batch.
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
    further: list[Pass] = field(default_factory=list)
    weights: Weights = field(default_factory=Weights)
    buffers: list[Buffer] = field(default_factory=list)
    wraps: list[Wrap] = field(default_factory=list)
    blocks: list[Wrap] = field(default_factory=list)
    inferred: list[Buffer] = field(default_factory=list)
    sink: Shape | None = None
    finds_unused: bool = False
    loose_blocks: bool = False
    own_buffers: bool = False
    unreached: int = 0
    optimizer_parts: int = 1
    unmatched: int = 0
    data: list[Shape] = field(default_factory=list)
    left_out: list[Call] = field(default_factory=list)
    step: list[Call] = field(default_factory=list)
    window: tuple[int, int] = (0, 0)

    __repr__ = brief

    @property
    def trains(self) -> bool:
        """Whether there is a backward pass."""
        return any(unit.backward for unit in self.units)

    @property
    def passes(self) -> list[Pass]:
        """All forward and backward passes of the step."""
        return [Pass(self.units, self.loss_forward, self.loss_backward, self.batch), *self.further]

    @property
    def batches(self) -> list[int]:
        """Classes of the batch extents of all passes."""
        return [one.batch for one in self.passes if one.batch >= 0]

    @property
    def samples(self) -> int:
        """Samples of all passes of the recorded rank."""
        return sum(self.extents.value[batch] for batch in self.batches)

    def calls(self) -> Iterator[Call]:
        """All calls, in order within each part."""
        parts = [self.before]
        for one in self.passes:
            parts += [*(unit.forward for unit in one.units), one.loss_forward, one.loss_backward]
            parts += [unit.backward for unit in reversed(one.units)]
        parts += [self.after, [call for call, _ in self.optimizer]]
        return walked(chain.from_iterable(parts))

    def attentions(self) -> Iterator[list[Shape]]:
        """Extents of queries, keys and values of each call of attention in forward."""
        for call in walked(call for unit in self.units for call in unit.forward):
            if "attention" in call.name:
                yield [shape for tensors in call.inputs[:3] for shape in tensors if shape is not None]

    def size(self, extent: int, changed: Mapping[int, int]) -> int:
        """The value of an extent where some classes have other values."""
        return prod(self._size(leaf, changed) for leaf in self.extents.leaves([extent]))

    def _size(self, leaf: int, changed: Mapping[int, int]) -> int:
        if leaf in changed or leaf not in self._sums:
            return changed.get(leaf, self.extents.value[leaf])
        parts = self._sums[leaf]
        if changed.keys().isdisjoint(self.extents.leaves(parts)):
            return self.extents.value[leaf]
        return sum(self.size(part, changed) for part in parts)

    def shape(self, shape: Iterable[int], changed: Mapping[int, int]) -> list[int]:
        """The sizes of a tensor where some classes have other values."""
        return [self.size(extent, changed) for extent in shape]

    def leaves(self, extents: Iterable[int]) -> list[int]:
        """The classes that extents are made of: factors of products, and those of the parts of sums, such as the
        queries, keys and values of one product."""
        found: dict[int, None] = {}
        stack = self.extents.leaves(extents)[::-1]
        while stack:
            root = stack.pop()
            parts = self._sums.get(root, ()) if root not in found else ()
            found[root] = None
            stack += self.extents.leaves(parts)[::-1]
        return list(found)

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


def read_model(
    trace: Trace, step: int | None = None, layout: Layout | None = None, begins: Sequence[int] = ()
) -> Model:
    """Recognise the structure of a recorded step of training, or of inference, which has a forward pass alone.

    Units are cut where one single activation is alive, as between residual blocks, and where a repeated block begins.
    Calls of backward belong to the unit whose forward has their sequence numbers; gradients are those of parameters by
    memory, where that is not known by shape, last used first.

    Args:
        layout: that of the recorded job; None for data parallelism over all ranks.
        begins: rows of calls with which a unit begins: the stages of a recorded pipeline.

    Raises:
        UsageError: no parameters, or no tensors are recorded, passes differ, or a step of inference replays graphs.
    """
    shapes = shapes_of(trace)
    if not shapes.sources:
        check_eager(trace)
        raise UsageError(f"{trace.file}: no tensors are recorded in it; record the execution trace with its tensors")
    top = read_step(trace, shapes, step)
    recorded = split_step(top)
    if not recorded.passes:
        raise UsageError(f"{trace.file}: the step has no operators; give the trace of a step")
    if not any(backward for _, backward in recorded.passes):  # of inference
        check_eager(trace)
    window = step_window(trace, step)
    gathered = recorded_wraps(trace, *window)
    buffered = recorded_buffers(trace, *window)
    sink = next((call for forward, _ in recorded.passes for call in forward if call.name == SINK), None)
    passes = [
        (without_sink(without_buffers(forward) if buffered else forward), without_sink(backward))
        for forward, backward in recorded.passes
    ]  # fmt: skip
    forward = [call for part, _ in passes for call in part]
    parts, index = _place_in_data_parallel(trace, layout)
    part = Shard(parts, index, flat=False) if gathered else None
    weights = find_weights(recorded.steps, shapes, forward, gathered, part)
    if gathered:
        relate_gathered(weights, (call for part in passes for side in part for call in side), shapes)
    extents = shapes.extents
    extents.fix(extent for parameter in weights.parameters for extent in parameter.shape)
    batches = _batches(shapes, [part for part, _ in passes])
    inferred, frozen = find_buffers(weights, forward, {batch for batch in batches if batch >= 0}, shapes)
    weights.freeze(frozen)
    sizes = {one.number: prod(extents.sizes(one.shape)) for one in (*weights.parameters, *weights.frozen)}
    alive = list(_alive(trace, passes[0][0], weights))
    joined = joined_places(find_layers(passes[0][0], weights, extents))
    blocks = repeated_blocks(passes[0][0], weights, alive, sizes, joined)
    wraps = _recorded_units(gathered, weights, len(passes))
    block_wraps, loose = _block_units(passes[0][0], blocks, weights, extents)
    label_of = {number: wrap.label for wrap in wraps or block_wraps for number in wrap.parameters}
    cuts = boundaries(passes[0][0], weights, label_of)
    cuts |= set() if wraps else {edge for block in blocks for edge in block}
    cuts |= {at for at, call in enumerate(passes[0][0]) if call.row in begins}
    units, loss = _units(trace, passes[0][0], weights, shapes, alive, cuts - joined, joined)
    loss_backward = _assign_backward(units, loss, passes[0][1])
    further = [
        _further_pass(trace, units, weights, shapes, part, batch)
        for part, batch in zip(passes[1:], batches[1:], strict=True)
    ]
    given = tuple(extent for source in shapes.sources for extent in source.shape)
    after = whole_gradients(recorded.after, weights, shapes) if gathered else recorded.after
    model = Model(
        trace, extents, units, weights.parameters, recorded.before, loss, loss_backward, after,
        weights.optimizer, batches[0], given, further, weights,
        wraps=wraps, blocks=block_wraps, own_buffers=bool(buffered) or trace_is_ddp(trace),
        optimizer_parts=parts if gathered else 1,
        data=[source.shape for source in shapes.sources if source.data],
        step=top, window=window,
        left_out=_without(recorded.after, after), loose_blocks=loose,
        sink=None if sink is None else next(iter(sink.input_shapes), None), finds_unused=finds_unused(trace),
    )  # fmt: skip
    model.unreached = len(unreached_weights(passes, weights))
    model.inferred = inferred
    model.buffers = buffered or ([] if model.own_buffers else inferred)
    _relate_inner(model)
    model.unmatched = assign_gradients(model, gathered)
    for wrap in (*wraps, *block_wraps):
        wrap.units = _span(wrap, units, weights)
    return model


def _place_in_data_parallel(trace: Trace, layout: Layout | None) -> tuple[int, int]:
    """Over how many ranks FSDP divides, and which of them the recorded one is."""
    world, rank = trace.world_size or 1, trace.rank or 0
    if layout is None or layout.ranks != world:
        return world, rank
    return layout.dp, layout.coordinates(min(max(rank, 0), world - 1)).dp


def _without(calls: Sequence[Call], kept: Sequence[Call]) -> list[Call]:
    """The calls, and those below them, that are not among others."""
    rows = {call.row for call in walked(kept)}
    return [call for call in walked(calls) if call.row not in rows]


def _recorded_units(gathered: Sequence[RecordedWrap], weights: Weights, passes: int) -> list[Wrap]:
    """The recorded units of FSDP with the numbers of their parameters."""
    found = list[Wrap]()
    for one in gathered:
        numbers = sorted(weights.by_shard[shard].number for shard in one.shards if shard in weights.by_shard)
        found.append(Wrap(one.label, numbers, again=len(one.gathered) > passes))
    return found


def _block_units(
    forward: Sequence[Call], blocks: Sequence[CallRange], weights: Weights, extents: Extents
) -> tuple[list[Wrap], bool]:  # fmt: skip
    """Repeated blocks as units of FSDP, the rest in the root; and whether parameters may be in either."""
    taken, seen = list[set[int]](), set[int]()
    for block in blocks:
        taken.append({p.number for call in walked(forward[block.begin : block.end]) for p in weights.read(call)} - seen)
        seen |= taken[-1]
    known, loose = [sorted(block) for block in taken], unsure_blocks(forward, blocks, weights)
    every = [*weights.parameters, *weights.frozen]
    if weights.evidence == "optimizer":
        ordered = {one.number: extents.sizes(one.shape) for one in weights.parameters}
        own, more = in_module_order([block & ordered.keys() for block in taken], ordered)
        loose |= more
        known = [[*numbers, *sorted(block - ordered.keys())] for numbers, block in zip(own, taken, strict=True)]
    found = [Wrap(f"block {number}", numbers) for number, numbers in enumerate(known)]
    mine = {number for wrap in found for number in wrap.parameters}
    rest = [one.number for one in every if one.number not in mine]
    return [*([Wrap("", rest)] if rest else []), *found], loose


def _span(wrap: Wrap, units: Sequence[Unit], weights: Weights) -> tuple[int, int]:
    """The first and last unit that own parameters of a unit of FSDP."""
    mine = set(wrap.parameters)
    owners = [unit.number for unit in units if any(p.number in mine for p in unit.parameters)]
    return (min(owners), max(owners)) if owners else (-1, -1)


def _further_pass(
    trace: Trace, units: Sequence[Unit], weights: Weights, shapes: Shapes, part: tuple[list[Call], list[Call]],
    batch: int,
) -> Pass:  # fmt: skip
    """Another pass over the same units: the same operators in the same order.

    Raises:
        UsageError: it runs others.
    """
    forward, backward = part
    known = [call for unit in units for call in unit.forward]
    skipped, begin = (_first_use(calls, weights) for calls in (known, forward))
    end = begin + len(known) - skipped
    if [call.name for call in forward[begin:end]] != [call.name for call in known[skipped:]]:
        raise UsageError(
            f"{trace.file}: the forward passes of the step run different operators, from which no layout is derived; "
            "give a step of one pass with --step"
        )
    found, at = list[Unit](), begin - skipped
    for unit in units:
        first = 0 if not found else at
        found.append(replace(unit, forward=forward[first : at + len(unit.forward)], backward=[], ready={}))
        _describe(found[-1], shapes)
        at += len(unit.forward)
    return Pass(found, forward[at:], _assign_backward(found, forward[at:], backward), batch)


def _first_use(calls: Sequence[Call], weights: Weights) -> int:
    """Place of the first call that takes a parameter: what is before it prepares data."""
    uses = (at for at, call in enumerate(calls) if _takes(call, weights))
    return next(uses, 0)


def _batches(shapes: Shapes, passes: Sequence[Sequence[Call]]) -> list[int]:
    """Of each pass the class that is the first extent of most of what operators with weights take as data, −1 for none.

    Extents along which operators mix elements count where there are no others: a sequence may come first. Where most
    such data has one sample, none is found: its extent is not told from others of one, and the next is a sequence.
    """
    pass_of = {call.row: k for k, part in enumerate(passes) for call in walked(part)}
    fixed, leaves = shapes.extents.fixed(), shapes.extents.leaves
    firsts = {root for source in shapes.sources if source.data for root in leaves(source.shape[:1])}
    together = [set(leaves(outer)) for outer in shapes.votes]
    mixed = set(leaves(shapes.mixed))
    found = []
    for k in range(len(passes)):
        votes, single = Counter[int](), Counter[bool]()
        for row, outer in zip(shapes.voters, shapes.votes, strict=True):
            if pass_of.get(row, 0 if len(passes) == 1 else -1) == k:
                classes = leaves(outer)
                single.update([shapes.extents.sizes(outer)[0] == 1] if len(outer) > 1 else ())
                apart = [root for root in classes if root not in mixed and root not in fixed]
                votes.update((apart or classes)[:1])
        ranked = [root for root, _ in votes.most_common() if root not in fixed and shapes.extents.value[root] > 1]
        if not ranked or single[True] > single[False]:
            found.append(-1)
            continue
        for other in ranked[1:]:  # of another given tensor
            if other in firsts and not any({ranked[0], other} <= outer for outer in together):
                shapes.extents.same(ranked[0], other)
        found.append(_part_of(shapes.extents.root(ranked[0]), shapes, firsts))
    return [batch if batch < 0 else shapes.extents.root(batch) for batch in found]


def _part_of(batch: int, shapes: Shapes, firsts: Set[int]) -> int:
    """A batch, or what each of several equal ones has that were put together, such as both sides of pairs; where it is
    divided again into as many, those have it, too.

    Args:
        firsts: first extents of given tensors.
    """
    extents = shapes.extents
    sums = [parts for whole, parts in extents.sums if whole == batch]
    divided = (parts for whole, parts in extents.sums if whole in firsts)
    given = set(firsts).union(*(parts for parts in divided if len(set(extents.sizes(parts))) == 1))  # microbatches
    for parts in sums:
        if len(set(extents.sizes(parts))) == 1 and set(parts) <= given:
            for part in parts:
                extents.same(parts[0], part)
    sums = [extents.roots(parts) for parts in sums]
    joined = next((parts for parts in sums if len(set(parts)) == 1), None)
    if joined is None:
        return batch
    for parts in sums:
        if extents.sizes(parts) == extents.sizes(joined):
            for part in parts:
                extents.same(joined[0], part)
    return extents.root(joined[0])


def _units(
    trace: Trace, forward: Sequence[Call], weights: Weights, shapes: Shapes, alive: Sequence[int],
    cuts: Set[int] = frozenset(), joined: Set[int] = frozenset(),
) -> tuple[list[Unit], list[Call]]:  # fmt: skip
    """The units of the forward pass, and what follows the last one with parameters: the loss.

    Args:
        cuts: places where a unit begins whatever is alive. joined: where none does.
    """
    units: list[Unit] = []
    segment: list[Call] = []
    for at, (call, live) in enumerate(zip(forward, alive, strict=True)):
        segment.append(call)
        if (live == 1 and at + 1 not in joined) or at + 1 in cuts or call is forward[-1]:
            owned = _used(segment, weights)
            if owned or (units and call is forward[-1]):
                units.append(Unit(len(units), segment, parameters=owned, alone=live <= 1))
                for parameter in owned:
                    parameter.unit = units[-1].number
            elif units:  # a segment without parameters belongs to the unit before it
                units[-1].forward += segment
                units[-1].alone = live <= 1
            segment = [] if units else segment
    loss: list[Call] = []
    while units and not units[-1].parameters:
        loss = [*units.pop().forward, *loss]
    if not units:
        raise UsageError(f"{trace.file}: no parameters are found in the forward pass; record it with its tensors")
    loss = [*_trailing(units[-1], weights), *loss]
    for unit in units:
        _describe(unit, shapes)
    return units, loss


def _alive(trace: Trace, forward: Sequence[Call], weights: Weights) -> Iterator[int]:
    """How many activations are alive after each call of forward: results that later calls take, and what the model is
    given.

    What is made before the first call with parameters is data; a number that is given again is another tensor. One that
    no call has returned, in the memory of an activation, is that under another number (FSDP's hooks make such ones).
    """
    alias = _aliases(trace)
    made_in: dict[int, list[int]] = {}  # by storage the last activation that was made there
    lives: dict[int, list[int]] = {}
    memory: dict[int, int] = {}  # by number the storage
    ended: list[list[int]] = []
    begin = next((at for at, call in enumerate(forward) if _takes(call, weights)), 0)
    given = (list(tensor_values(call.record.get("inputs"))) for call in forward[begin:])
    data = next((values for values in given if any(weights.of(value) is None for value in values)), [])
    for value in data[:1]:  # of the first call that takes more than parameters, as their norms do not
        if weights.of(value) is None:
            lives[alias.get(value[0], value[0])] = [0, 0]
    outside = set[int]()
    for place, call in enumerate(forward):
        for inner in call.walk():
            taken, storages = set[int](), set[int]()
            for value in tensor_values(inner.record.get("inputs")):
                storages.add(value[1])
                number = alias.get(value[0], value[0])
                if number not in lives and number not in outside and made_in.get(value[1], [])[1:] == value[2:4]:
                    number = alias[value[0]] = made_in[value[1]][0]
                taken.add(number)
                if number not in lives:
                    outside.add(number)
                elif number != value[0] or memory.get(number, value[1]) == value[1]:
                    lives[number][1] = place
            for value in tensor_values(inner.record.get("outputs")):
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
    return accumulate(change)


def _takes(call: Call, weights: Weights) -> bool:
    """A call, or one below it, takes a parameter."""
    return any(True for inner in call.walk() for _ in weights.taken(inner))


def _trailing(unit: Unit, weights: Weights) -> list[Call]:
    """What follows the last unit's output without parameters: the loss, from its first call that makes a scalar."""
    forward = unit.forward
    uses = (i for i, call in enumerate(forward) if _takes(call, weights))
    last = max(uses, default=len(forward) - 1)
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


def _used(calls: Iterable[Call], weights: Weights) -> list[Parameter]:
    """Parameters that calls take, in order of use, that no unit has yet."""
    found = dict.fromkeys(parameter for call in walked(calls) for parameter in weights.taken(call))
    return [parameter for parameter in found if parameter.unit < 0]


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


def _relate_inner(model: Model) -> None:
    """Tensors made within a loss that have the shape of one of its inputs have its extents."""
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
