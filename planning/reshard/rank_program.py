"""Write the program of one rank: its recorded calls at new sizes, and the communication that the layout adds.

`program` yields items in the order of the rank's CPU: the calls before the first pass, the pipeline schedule (forward,
backward, messages), the remaining reductions, and the optimizer.

Example: DDP over two ranks, with two units and one bucket. The items are `broadcast` (buffers), unit 0 forward, unit 1
forward, loss forward and backward, unit 1 backward, unit 0 backward. After the call that makes the last gradient of the
bucket ready, the program lists an `all_reduce` with the key "bucket 0", a `CommWait` for this key, and the optimizer.
With FSDP, an `all_gather` and a wait precede each FSDP unit in forward, and are issued one unit ahead in backward. A
`reduce_scatter` follows each unit in backward.

`_rank_of` determines the properties of the rank first; the other functions only read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import prod

from ...trace.dtypes import itemsize
from .buffers import broadcasts
from .derivation import Derivation, in_order_of_gradients
from .items import CommOp, CommOpKind, CommWait, Item, RecordedOp, Shard, SyntheticOp
from .layout import Action, Bucket, Coordinates, Layout, actions
from .model import ACCUMULATE, Model, Parameter, Unit, Wrap, accumulations
from .plan import Partial
from .step_calls import SUM, SUM_IN_PLACE, VIEWS, Call, NamedSchema, walked
from .wraps import gathered, late_units, scattered, start_gather, sums_of_units

USED = "parameters in use"  # DDP's all-reduce that finds unused parameters has this key


@dataclass(frozen=True)
class _Rank:
    derivation: Derivation
    place: Coordinates
    index: int  # index of the rank in its expert-parallel group
    changed: Mapping[int, int]  # maps extent classes to new values
    units: list[Unit]
    is_last: bool  # True if the stage computes the loss
    shard: Shard | None  # part of the parameters that this rank's optimizer updates
    fsdp: bool  # True if the rank keeps only its part of the parameters
    buckets: list[Bucket]  # the gradient buckets that all ranks have, then this rank's expert buckets
    common: int  # number of buckets that all ranks have
    reduced_after: Mapping[int, list[int]]  # maps each parameter to the buckets to reduce when its gradient is ready
    in_bucket: Set[int]
    waits: tuple[str, ...]  # keys of all reductions
    wraps: list[Wrap]
    root: Wrap | None
    sums: Set[int]  # rows of gradient sums that are in place in the program but not in the recording, or vice versa

    @property
    def layout(self) -> Layout:
        return self.derivation.layout

    @property
    def model(self) -> Model:
        return self.derivation.model

    def pass_of(self, microbatch: int) -> int:
        return min(microbatch, len(self.model.passes) - 1)

    def units_of(self, microbatch: int) -> list[Unit]:
        units = self.model.passes[self.pass_of(microbatch)].units
        stages = self.derivation.stages
        return [unit for unit, stage in zip(units, stages, strict=True) if stage == self.place.pp]

    def reduces(self, microbatch: int) -> bool:
        last = microbatch == self.derivation.microbatches - 1
        return last or (self.layout.pp == 1 and not self.layout.no_sync)

    def adds_to_shard(self, microbatch: int) -> bool:
        return self.reduces(microbatch - 1) if microbatch else self.derivation.keeps_gradients


def _rank_of(derivation: Derivation, rank: int) -> _Rank:
    layout, model = derivation.layout, derivation.model
    place = layout.coordinates(rank)
    index, units, shard = place.dp % layout.ep, derivation.units(place.pp), derivation.shard(place)
    fsdp = shard is not None and not shard.flat
    buckets = derivation.buckets(place.pp) if layout.dp > 1 and not fsdp else []
    common = len(buckets)
    if layout.dp > layout.ep > 1:
        buckets = [*buckets, *derivation.buckets(place.pp, index)]
    reduced_after = {bucket.parameters[-1]: [k] for k, bucket in enumerate(buckets)}
    if derivation.finds_unused:
        reduced_after = _launches(buckets, in_order_of_gradients(units))
    wraps = derivation.stage_wraps(place.pp) if fsdp else []
    waits = (*(f"bucket {k}" for k in range(len(buckets))), *([USED] if derivation.finds_unused else ()))
    was_fsdp = bool(model.wraps)
    return _Rank(
        derivation, place, index, derivation.experts.changed(index), units, place.pp == layout.pp - 1, shard, fsdp,
        buckets, common, reduced_after, {number for bucket in buckets for number in bucket.parameters}, waits, wraps,
        next((wrap for wrap in wraps if wrap.root), None),
        sums_of_units(model, model.wraps or wraps) if was_fsdp != fsdp else set[int](),
    )  # fmt: skip


def _launches(buckets: Sequence[Bucket], ready: Sequence[Parameter]) -> dict[int, list[int]]:
    """Map each parameter to the buckets that can be reduced once its gradient is ready, in order of reduction.

    This follows `Reducer::mark_bucket_ready` in torch/csrc/distributed/c10d/reducer.cpp.
    """
    found, seen, following = dict[int, list[int]](), set[int](), 0
    for parameter in ready:
        seen.add(parameter.number)
        while following < len(buckets) and seen.issuperset(buckets[following].parameters):
            found.setdefault(parameter.number, []).append(following)
            following += 1
    return found


def program(derivation: Derivation, number: int) -> list[Item]:
    return list(_items(_rank_of(derivation, number)))


def communications(derivation: Derivation, rank: int) -> list[CommOp]:
    found: list[CommOp] = []
    for item in program(derivation, rank):
        if isinstance(item, CommOp):
            found.append(item)
        elif isinstance(item, RecordedOp):
            found += [comm for call in item.call.walk() for comm in item.after.get(call.row, ())]
    return found


def _items(rank: _Rank) -> Iterator[Item]:
    derivation, model, layout = rank.derivation, rank.model, rank.layout
    if rank.fsdp:
        gradients = derivation.clipping.storages
        for call in model.before:
            yield RecordedOp(call, derivation.changed, shard=rank.shard, divided=gradients)
    else:
        yield from _recorded(rank, model.before, 0)
    for action in actions(layout.schedule, rank.place.pp, layout.pp, derivation.microbatches):
        if action.what == "forward":
            yield from _forward(rank, action.microbatch)
        elif action.what == "backward":
            yield from _backward(rank, action.microbatch)
        else:
            yield _message(rank, action)
    if layout.pp > 1 and derivation.microbatches > 1:
        for parameter in derivation.parameters(rank.place.pp, rank.index):
            sizes = derivation.sizes(parameter)
            yield SyntheticOp("aten::div_", (sizes, ()), (sizes,), parameter.dtype, parameter.itemsize)
    if derivation.regions is not None:
        yield from derivation.regions.sum_of_gradients(derivation.parameters(rank.place.pp))
    if rank.buckets:
        yield CommWait(rank.waits)
    yield from _around_optimizer(rank, behind=False)
    yield from _optimizer(rank)
    yield from _around_optimizer(rank, behind=True)


def _recorded(rank: _Rank, calls: Iterable[Call | Item], microbatch: int) -> Iterator[Item]:
    yield from (
        RecordedOp(call, rank.changed, microbatch, _reductions_in(rank.derivation, call))
        if isinstance(call, Call)
        else call
        for call in calls
    )


def _reductions_in(derivation: Derivation, call: Call) -> dict[int, tuple[CommOp, ...]]:
    known = derivation.reductions
    rows = [inner.row for inner in (call.walk() if known else ()) if inner.row in known]
    return {row: tuple(reduction(derivation, result) for result in known[row]) for row in rows}


def reduction(derivation: Derivation, partial: Partial) -> CommOp:
    """Return the all-reduce of a partial result, in the shape that the result has after the call `partial.after`."""
    model, changed = derivation.model, derivation.changed
    own = partial.call.output_shapes[0]
    result = next((shape for call in partial.after.walk() for shape in call.output_shapes if shape), own)
    shape, whole = (model.shape(extents, changed) for extents in (result, own))
    if prod(shape) != prod(whole):
        shape = whole
    signature = partial.call.signature
    dtype = (signature.outputs or signature.tensors)[0].dtype if signature else "float32"
    return CommOp("all_reduce", "tp", tuple(shape), prod(shape), dtype, itemsize(dtype) or 4, functional=True)


def _within(rank: _Rank, items: Iterator[Item], unit: Unit | None, *, forward: bool) -> Iterator[Item]:
    regions = rank.derivation.regions
    return items if regions is None else regions.apply(items, unit, forward=forward)


def _beginning(rank: _Rank, unit: Unit, side: int) -> list[Wrap]:
    """Return the FSDP units, except the root, that begin (side 0) or end (side 1) at this unit."""
    return [wrap for wrap in rank.wraps if not wrap.root and wrap.units[side] == unit.number]


def _gather(rank: _Rank, wrap: Wrap) -> Iterator[Item]:
    yield from start_gather(rank.derivation, wrap, "gather")
    yield from gathered(rank.derivation, wrap, "gather")


def _forward(rank: _Rank, microbatch: int) -> Iterator[Item]:
    derivation = rank.derivation
    if rank.layout.dp > 1 and not rank.fsdp and (microbatch == 0 or rank.reduces(microbatch - 1)):
        yield from _broadcast_buffers(derivation)
    if rank.root is not None:
        yield from _gather(rank, rank.root)
    for unit in rank.units_of(microbatch):
        for wrap in _beginning(rank, unit, 0):
            yield from _gather(rank, wrap)
        calls = derivation.experts.forward(unit, rank.index)
        yield from _within(rank, _recorded(rank, calls, microbatch), unit, forward=True)
    if rank.is_last:
        if rank.buckets and derivation.finds_unused:
            yield _sink(rank)
        loss = rank.model.passes[rank.pass_of(microbatch)].loss_forward
        yield from _within(rank, _recorded(rank, loss, microbatch), None, forward=True)


def _broadcast_buffers(derivation: Derivation) -> Iterator[Item]:
    for dtype, size, sizes in broadcasts(derivation.buffers):
        whole = sum(map(prod, sizes))
        if len(sizes) > 1:
            yield SyntheticOp("aten::cat", tuple(sizes), ((whole,),), dtype, size, listed=True)
        yield CommOp("broadcast", "dp", (whole,), whole, dtype, size)
    for buffer in derivation.buffers:
        both = (buffer.sizes, buffer.sizes)
        yield SyntheticOp("aten::copy_", both, both[:1], buffer.dtype, buffer.itemsize)


def _sink(rank: _Rank) -> SyntheticOp:
    """Return DDP's copy of the model output. If none was recorded, copy the last non-view result that the loss uses."""
    model, unit, shape = rank.model, rank.units[-1], rank.model.sink
    if shape is None:
        taken = {value[1] for call in walked(model.loss_forward) for value in call.tensors("inputs")}
        made = [call for one in rank.units for call in one.forward if call.name not in VIEWS and call.output_shapes]
        known = [call for call in made if call.signature is not None and call.signature.outputs]
        of_loss = [
            call
            for call in known
            if taken & {value[1] for value in call.tensors("outputs")}
            and "float" in (call.signature.outputs or call.signature.tensors)[0].dtype  # type: ignore[union-attr]
        ]
        chosen = (of_loss or known)[-1:]
        shape = chosen[0].output_shapes[0] if chosen else unit.output
    sizes = tuple(model.shape(shape, rank.changed))
    return SyntheticOp("aten::clone", (sizes,), (sizes,), unit.dtype, unit.itemsize)


def _backward(rank: _Rank, microbatch: int) -> Iterator[Item]:
    derivation, model, reduces = rank.derivation, rank.model, rank.reduces(microbatch)
    again, started = [wrap for wrap in rank.wraps if derivation.gathered_again(wrap)][::-1], set[str]()
    late = [] if rank.place.pp else late_units(rank.units, rank.wraps, model.weights, derivation.recorded)
    if rank.is_last:
        loss = model.passes[rank.pass_of(microbatch)].loss_backward
        yield from _within(rank, _recorded(rank, loss, microbatch), None, forward=False)

    def start(wraps: Sequence[Wrap]) -> Iterator[Item]:
        for wrap in wraps:
            if wrap.label not in started:
                started.add(wrap.label)
                yield from start_gather(derivation, wrap, "gather again")

    yield from start(again[:1])
    for unit in rank.units_of(microbatch)[::-1]:
        for wrap in _beginning(rank, unit, 1):
            if wrap in again and any(rank.model.units[k].backward for k in range(wrap.units[0], wrap.units[1] + 1)):
                yield from start([wrap])
                yield from gathered(derivation, wrap, "gather again")
                yield from start(again[again.index(wrap) + 1 :][:1])
        yield from _within(rank, _unit_backward(rank, unit, microbatch), unit, forward=False)
        for wrap in _beginning(rank, unit, 0) if reduces else ():
            if wrap not in late:
                yield from scattered(derivation, wrap, rank.shard, added=rank.adds_to_shard(microbatch))
    if rank.buckets and reduces and microbatch < derivation.microbatches - 1:
        yield CommWait(rank.waits)
    for last in (rank.root, *late) if reduces else ():
        if last is not None:
            yield from scattered(derivation, last, rank.shard, added=rank.adds_to_shard(microbatch))


def _unit_backward(rank: _Rank, unit: Unit, microbatch: int) -> Iterator[Item]:
    known = {parameter for one in rank.units for parameter in one.ready.values()}
    receives = not rank.is_last and unit.number == rank.units[-1].number
    calls: Iterable[Call | Item] = rank.derivation.experts.backward(unit, rank.index)
    for call in _beside_received(list(calls)) if receives else calls:
        if not isinstance(call, Call):
            yield call
            continue
        call = _summed(call, rank.sums, SUM_IN_PLACE if rank.model.wraps else SUM)
        ready = [unit.ready[inner.row] for inner in accumulations([call]) if inner.row in unit.ready]
        if ready and rank.fsdp and rank.adds_to_shard(microbatch):
            call = _of_one_pass(call)
        yield from _recorded(rank, [call], microbatch)
        for parameter in ready:
            yield from _ready(rank, parameter, microbatch)
    for parameter in reversed(unit.parameters):
        has = rank.derivation.experts.has(parameter, rank.index)
        if parameter not in known and parameter.accumulates and has:
            yield from _ready(rank, parameter, microbatch)


def _ready(rank: _Rank, parameter: Parameter, microbatch: int) -> Iterator[Item]:
    derivation = rank.derivation
    sizes, keeps = derivation.sizes(parameter), derivation.keeps_gradients
    first = not rank.pass_of(microbatch) and not keeps
    recorded_alone = first or rank.model.wraps  # True if no earlier pass left gradients in the recording
    again = microbatch or (keeps and not rank.fsdp)
    if again and recorded_alone and not (rank.fsdp and rank.reduces(microbatch - 1)):
        yield SyntheticOp("aten::add_", (sizes, sizes), (sizes,), parameter.dtype, parameter.itemsize)
    if not rank.buckets or not rank.reduces(microbatch) or parameter.number not in rank.in_bucket:
        return
    name = "torch::distributed::reducer::mul_out"
    yield SyntheticOp(name, (sizes,), (sizes,), parameter.dtype, parameter.itemsize)
    for k in rank.reduced_after.get(parameter.number, ()):
        yield _reduced(rank, k)
        if derivation.finds_unused and k == len(rank.buckets) - 1:
            count = sum(len(bucket.parameters) for bucket in rank.buckets)
            yield CommOp("all_reduce", "dp", (count,), count, "int32", 4, key=USED)


def _reduced(rank: _Rank, k: int) -> CommOp:
    bucket, layout = rank.buckets[k], rank.layout
    scatters = layout.zero == 2
    part = -(-bucket.elements // layout.dp) if scatters else bucket.elements
    given = part * layout.dp if scatters else part
    kind: CommOpKind = "reduce_scatter" if scatters else "all_reduce"
    dimension = "dp" if k < rank.common else "edp"
    return CommOp(kind, dimension, (given,), part, bucket.dtype, bucket.itemsize, key=f"bucket {k}")


def _around_optimizer(rank: _Rank, *, behind: bool) -> Iterator[Item]:
    """Yield the calls before the optimizer (such as clipping) or, if `behind`, after it (such as weight averaging)."""
    clipping = rank.derivation.clipping
    first = min((step.ts for step, _ in rank.model.optimizer), default=0)
    for call in rank.model.after:
        if all(inner.name in VIEWS for inner in call.walk()) or (call.ts > first > 0) != behind:
            continue
        if not rank.fsdp:
            yield from _recorded(rank, [call], 0)
            continue
        if call.row in clipping.joined:
            yield from clipping.reduced(call)
        divided = clipping.storages | clipping.copies
        yield RecordedOp(call, rank.derivation.changed, shard=rank.shard, divided=divided)
        if call.row in clipping.scaled:
            yield CommOp("all_reduce", "dp", (1,), 1, "float32", 4, functional=True)


def _message(rank: _Rank, action: Action) -> CommOp:
    derivation, place = rank.derivation, rank.place
    forward, sends = action.what.endswith("forward"), action.what.startswith("send")
    unit = rank.units[-1] if forward == sends else derivation.units(place.pp - 1)[-1]
    changed = derivation.changed if derivation.regions is None else derivation.regions.outside
    shape = tuple(rank.model.shape(unit.output, changed))
    stage = place.pp + (1 if forward == sends else -1)
    peer = rank.layout.rank(place.tp, place.dp, stage)
    key = f"{action.what} {action.microbatch}" if sends else None
    return CommOp("send" if sends else "recv", "pp", shape, prod(shape), unit.dtype, unit.itemsize, peer, key)


def _optimizer(rank: _Rank) -> Iterator[Item]:
    shard = rank.shard
    for step in rank.derivation.optimizer(rank.place.pp, rank.index):
        yield RecordedOp(step, rank.changed, shard=shard)
    if shard is not None and shard.flat:
        for bucket in rank.buckets:
            part = -(-bucket.elements // shard.count)
            yield CommOp("all_gather", "dp", (part,), part * shard.count, bucket.dtype, bucket.itemsize)


def _beside_received(backward: Sequence[Call | Item]) -> Iterator[Call | Item]:
    """Change the first gradient sum to out-of-place: autograd cannot add to a gradient that the schedule holds."""
    calls = [call for call in backward if isinstance(call, Call)]
    first = next((values[0] for call in walked(calls) if (values := call.tensor_ids("inputs"))), -1)
    for call in backward:
        if not isinstance(call, Call) or not call.backward:
            yield call
            continue
        sums = [child for child in call.children if child.name == SUM_IN_PLACE.name]
        rows = [child.row for child in sums if child.tensor_ids("inputs")[:1] == [first]]
        if rows:
            first = -1
        yield _summed(call, {rows[0]}, SUM) if rows else call


def _summed(call: Call, rows: Set[int], by: NamedSchema) -> Call:
    if rows.isdisjoint(inner.row for inner in call.walk()):
        return call
    if call.row in rows:
        return replace(call, name=by.name, schema=by.schema)
    return replace(call, children=[_summed(child, rows, by) for child in call.children])


def _of_one_pass(call: Call) -> Call:
    """Remove additions to the gradients of an earlier pass, because FSDP has already reduced these gradients."""
    accumulates = ACCUMULATE in call.name
    children = [_of_one_pass(child) for child in call.children if not (accumulates and child.name == "aten::add_")]
    return replace(call, children=children)
