"""What one rank of a layout runs: recorded calls with other extents, and the communication that the layout needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from ..measuring.reader import recorded_calls
from ..measuring.recorded_calls import RecordedCall
from ..trace.brief import brief
from ..trace.dtypes import itemsize
from ..trace.errors import UsageError
from ..trace.index import CallIndex
from .items import CommOp, CommOpKind, CommWait, Item, RecordedOp, Shard, SyntheticOp
from .layout import Action, Bucket, Coordinates, Layout, actions, fill_buckets
from .plan import Partial, Plan, partial_results
from .step_calls import VIEWS, Call, walked
from .structure import ACCUMULATE, Model, Parameter, Unit


@dataclass(frozen=True)
class Derivation:
    """Programs of the ranks of a layout.

    Attributes:
        recorded: the layout of the recorded job, of which the model is one rank.

    Raises:
        UsageError: something does not divide; the message says what.
    """

    model: Model
    plan: Plan
    layout: Layout
    recorded: Layout

    __repr__ = brief

    def __post_init__(self) -> None:
        _ = self.changed, self.stages, self.regions is None or self.regions.outside

    @cached_property
    def recorded_calls(self) -> Mapping[CallIndex, RecordedCall]:
        """The recorded operators whose arguments are known."""
        found = recorded_calls(self.model.trace)
        return {call: recorded for call, recorded in found if isinstance(recorded, RecordedCall)}

    @cached_property
    def rank_batch(self) -> int:
        """Samples of one data-parallel rank in a step; 0 where no batch was found."""
        model, layout = self.model, self.layout
        if model.batch < 0:
            if layout.batch is not None or layout.steps_of_pipeline > 1:
                raise UsageError(
                    f"{model.trace.file}: cannot determine the batch; leave --batch and --microbatches out"
                )
            return 0
        mine = model.extents.value[model.batch]
        if layout.batch is None:
            return mine
        if layout.batch % layout.dp:
            raise UsageError(f"a global batch of {layout.batch} does not divide over dp={layout.dp} ranks")
        return layout.batch // layout.dp

    @cached_property
    def changed(self) -> dict[int, int]:
        """New values of the classes of extents, within a microbatch."""
        found, layout = {}, self.layout
        if layout.tp > 1 and not self.plan.divisions:
            raise UsageError(
                f"{self.model.trace.file}: no pair of products is found that tensor parallelism can divide; choose tp=1"
            )
        for division in self.plan.divisions:
            whole = division.size * self.recorded.tp
            if whole % layout.tp:
                heads = [shape[1:2] for given in self.model.attentions() for shape in given if len(shape) == 4]
                of_heads = any(division.extent in self.model.extents.leaves(extents) for extents in heads)
                what = f"{whole} heads of attention do" if of_heads else f"an inner width of {whole} does"
                raise UsageError(f"{what} not divide (unit {division.unit}) over tp={layout.tp} ranks")
            if whole // layout.tp != division.size:
                found[division.extent] = whole // layout.tp
        parts = layout.steps_of_pipeline
        if self.rank_batch % parts:
            raise UsageError(f"a batch of {self.rank_batch} per rank does not divide into {parts} microbatches")
        if self.model.batch >= 0 and self.rank_batch // parts != self.model.extents.value[self.model.batch]:
            found[self.model.batch] = self.rank_batch // parts
        return found

    @cached_property
    def stages(self) -> list[int]:
        """The stage of each unit."""
        return self.plan.stage_of(self.model, self.layout.pp) if self.layout.pp > 1 else [0] * len(self.model.units)

    def units(self, stage: int) -> list[Unit]:
        """The units of a stage, in order of forward."""
        return [unit for unit, at in zip(self.model.units, self.stages, strict=True) if at == stage]

    def parameters(self, stage: int) -> list[Parameter]:
        """The parameters of a stage, in the optimizer's order."""
        return sorted(
            (parameter for unit in self.units(stage) for parameter in unit.parameters),
            key=lambda parameter: parameter.number,
        )

    def sizes(self, parameter: Parameter) -> tuple[int, ...]:
        """The sizes of a parameter on a rank before ZeRO divides it."""
        return tuple(self.model.shape(parameter.shape, self.changed))

    def shard(self, at: Coordinates) -> Shard | None:
        """How the optimizer of a rank divides parameters."""
        if self.layout.zero == 0 or self.layout.dp == 1:
            return None
        return Shard(self.layout.dp, at.dp, flat=self.layout.zero < 3)

    def buckets(self, stage: int) -> list[Bucket]:
        """Gradient buckets of a stage, in order of reduction."""
        ready = [parameter for unit in reversed(self.units(stage)) for parameter in _in_order(unit)]
        sized = [
            (parameter.number, prod(self.sizes(parameter)), parameter.itemsize, parameter.dtype) for parameter in ready
        ]
        return fill_buckets(sized, self.layout.bucket_mib)

    def representative(self, rank: int) -> int:
        """The first rank that runs the same, but for its peers: of its stage, with shards of the same sizes."""
        at = self.layout.coordinates(rank)
        return self.layout.rank(0, self._first_alike[at.pp][at.dp], at.pp)

    @cached_property
    def _first_alike(self) -> list[list[int]]:
        """Of each stage, of each data-parallel index the first one that has optimizer shards of the same sizes."""
        count, flat = self.layout.dp, self.layout.zero < 3
        found = []
        for stage in range(self.layout.pp):
            sizes = {(prod(size) if flat else (size or (1,))[0]) for size in map(self.sizes, self.parameters(stage))}
            divided = sorted(sizes) if self.layout.zero else []
            shards = (tuple(Shard(count, index, flat).of([size])[0] for size in divided) for index in range(count))
            first: dict[tuple[int, ...], int] = {}
            found.append([first.setdefault(shard, index) for index, shard in enumerate(shards)])
        return found

    @cached_property
    def optimizers(self) -> list[list[Call]]:
        """By stage, the optimizer's steps with what they do for its parameters."""
        count, found = len(self.model.parameters), list[list[Call]]()
        for stage in range(self.layout.pp):
            mine = {parameter.number for parameter in self.parameters(stage)}
            places = [k for k, parameter in enumerate(self.model.parameters) if parameter.number in mine]
            found.append([
                replace(step, children=[
                    _of_lists(call, places, count) if parameter is None else call
                    for call, parameter in owned if parameter is None or parameter.number in mine
                ])
                for step, owned in self.model.optimizer
            ])  # fmt: skip
        return found

    @cached_property
    def _partial(self) -> list[Partial]:
        """Results that tensor parallelism leaves partial."""
        return partial_results(self.model, self.plan)

    @cached_property
    def _reductions(self) -> dict[int, list[Partial]]:
        """Partial results by the row of the call after which they are reduced."""
        found: dict[int, list[Partial]] = {}
        for result in self._fused(self._partial) if self.layout.tp > 1 else ():
            found.setdefault(result.after.row, []).append(result)
        return found

    def _fused(self, partial: list[Partial]) -> Iterator[Partial]:
        """In the style of Megatron input gradients are summed before they are reduced: the last one of a run counts."""
        for result, following in zip(partial, [*partial[1:], None], strict=True):
            if (
                self.layout.tp_style == "dtensor"
                or result.forward
                or following is None
                or following.forward
                or self._gap(result, following)
            ):
                yield result

    def _gap(self, result: Partial, following: Partial) -> bool:
        """Between two partial gradients a row layer's backward makes a divided one: they are of different inputs."""
        if result.unit != following.unit:
            return True
        leaves, divided = self.model.extents.leaves, self.plan.divided
        between = list(walked(self.model.units[result.unit].backward))[result.place + 1 : following.place]
        products = (call for call in between if call.name.startswith("aten::") and "mm" in call.name)
        return any(
            not divided.isdisjoint(leaves(shape[-1:])) and self.model.batch in leaves(shape[:1])
            for call in products for shape in call.output_shapes
        )  # fmt: skip

    def _after(self, call: Call) -> dict[int, tuple[CommOp, ...]]:
        """Reductions within a call."""
        return {
            inner.row: tuple(map(self._reduction, self._reductions[inner.row]))
            for inner in (call.walk() if self._reductions else ()) if inner.row in self._reductions
        }  # fmt: skip

    def _reduction(self, partial: Partial) -> CommOp:
        mine = partial.call.output_shapes[0]
        result = next((shape for call in partial.after.walk() for shape in call.output_shapes if shape), mine)
        shape, whole = (self.model.shape(of, self.changed) for of in (result, mine))
        if prod(shape) != prod(whole):
            shape = whole
        signature = partial.call.signature
        dtype = (signature.outputs or signature.tensors)[0].dtype if signature else "float32"
        return CommOp("all_reduce", "tp", tuple(shape), prod(shape), dtype, itemsize(dtype) or 4, functional=True)

    @cached_property
    def regions(self) -> SequenceRegions | None:
        """Where the sequence is divided, None without sequence parallelism."""
        if not self.layout.sequence_parallel or self.layout.tp == 1:
            return None
        partial = {result.call.row for result in self._partial if not result.forward}
        return SequenceRegions(self.model, self.layout, self.plan.divided, partial, self.changed)

    def program(self, rank: int) -> list[Item]:
        """What a rank runs, in the order of its host."""
        return list(_Rank(self, self.layout.coordinates(rank)).items())


def _in_order(unit: Unit) -> list[Parameter]:
    """Parameters in the order in which their gradients are ready; those of which nothing is known last."""
    ready = list(unit.ready.values())
    return [*ready, *(parameter for parameter in reversed(unit.parameters) if parameter not in ready)]


class _Rank:
    """One rank's program."""

    def __init__(self, derivation: Derivation, at: Coordinates) -> None:
        self.of, self.at = derivation, at
        self.layout, self.model = derivation.layout, derivation.model
        self.units = derivation.units(at.pp)
        self.last = at.pp == self.layout.pp - 1
        self.shard = derivation.shard(at)
        self.gathers = self.shard is not None and not self.shard.flat
        self.buckets = derivation.buckets(at.pp) if self.layout.dp > 1 and not self.gathers else []
        self.bucket_of = {number: k for k, bucket in enumerate(self.buckets) for number in bucket.parameters}

    def items(self) -> Iterator[Item]:
        """All, in order."""
        model, layout = self.model, self.layout
        yield from self._recorded(model.before, 0)
        parts = layout.steps_of_pipeline
        for action in actions(layout.schedule, self.at.pp, layout.pp, parts):
            if action.what == "forward":
                yield from self._forward(action.microbatch)
            elif action.what == "backward":
                yield from self._backward(action.microbatch, parts)
            else:
                yield self._message(action)
        if parts > 1:
            for parameter in self.of.parameters(self.at.pp):
                sizes = self.of.sizes(parameter)
                yield SyntheticOp("aten::div_", (sizes, ()), (sizes,), parameter.dtype, parameter.itemsize)
        if self.of.regions is not None:
            yield from self.of.regions.sum_of_gradients(self.of.parameters(self.at.pp))
        if self.buckets:
            yield CommWait(tuple(f"bucket {k}" for k in range(len(self.buckets))))
        yield from self._recorded([call for call in model.after if any(c.name not in VIEWS for c in call.walk())], 0)
        yield from self._optimizer()

    def _recorded(self, calls: Iterable[Call], microbatch: int) -> Iterator[Item]:
        for call in calls:
            yield RecordedOp(call, self.of.changed, microbatch, self.of._after(call))

    def _within(self, items: Iterator[Item], unit: Unit | None, *, forward: bool) -> Iterator[Item]:
        """Items of a unit, or of the loss, with the sequence divided where the layout wants that."""
        regions = self.of.regions
        return items if regions is None else regions.apply(items, unit, forward=forward)

    def _forward(self, microbatch: int) -> Iterator[Item]:
        for unit in self.units:
            if self.gathers:
                yield from self._gather(unit, "gather")
                yield from self._gathered(unit, "gather")
            yield from self._within(self._recorded(unit.forward, microbatch), unit, forward=True)
        if self.last:
            yield from self._within(self._recorded(self.model.loss_forward, microbatch), None, forward=True)

    def _backward(self, microbatch: int, parts: int) -> Iterator[Item]:
        final = microbatch == parts - 1
        if self.last:
            yield from self._within(self._recorded(self.model.loss_backward, microbatch), None, forward=False)
        units = self.units[::-1]
        for place, unit in enumerate(units):
            if self.gathers:
                if place == 0:
                    yield from self._gather(unit, "gather again")
                yield from self._gathered(unit, "gather again")
                if place + 1 < len(units):
                    yield from self._gather(units[place + 1], "gather again")
            yield from self._within(self._unit_backward(unit, microbatch, final), unit, forward=False)
            if self.gathers and final:
                yield from self._scatter(unit)

    def _unit_backward(self, unit: Unit, microbatch: int, final: bool) -> Iterator[Item]:
        for call in unit.backward:
            parameter = unit.ready.get(call.row) if ACCUMULATE in call.name else None
            yield from self._recorded([call], microbatch)
            if parameter is not None:
                yield from self._ready(parameter, microbatch, final)
        for parameter in _in_order(unit)[len(unit.ready) :]:
            yield from self._ready(parameter, microbatch, final)

    def _ready(self, parameter: Parameter, microbatch: int, final: bool) -> Iterator[Item]:
        """What follows when the gradient of a parameter is known."""
        sizes = self.of.sizes(parameter)
        if microbatch:
            yield SyntheticOp("aten::add_", (sizes, sizes), (sizes,), parameter.dtype, parameter.itemsize)
        if not self.buckets or not final:
            return
        yield SyntheticOp(
            "torch::distributed::reducer::mul_out", (sizes,), (sizes,), parameter.dtype, parameter.itemsize
        )
        k = self.bucket_of[parameter.number]
        if self.buckets[k].parameters[-1] == parameter.number:
            yield self._reduced(k)

    def _reduced(self, k: int) -> CommOp:
        """The reduction of a bucket of gradients."""
        bucket, scattered = self.buckets[k], self.layout.zero == 2
        part = -(-bucket.elements // self.layout.dp) if scattered else bucket.elements
        given = part * self.layout.dp if scattered else part
        kind: CommOpKind = "reduce_scatter" if scattered else "all_reduce"
        return CommOp(kind, "dp", (given,), part, bucket.dtype, bucket.itemsize, key=f"bucket {k}")

    def _gather(self, unit: Unit, what: str) -> Iterator[Item]:
        """All-gather the parameters of a unit (FSDP2)."""
        count = self.layout.dp
        for dtype, size, _, parts in self._by_dtype(unit):
            part, copied = sum(parts), tuple((elements,) for elements in parts)
            yield SyntheticOp("fsdp::all_gather_copy_in", (*copied, (part * count,)), ((part,),), dtype, size)
            yield CommOp("all_gather", "dp", (part,), part * count, dtype, size, key=f"{what} {unit.number} {dtype}")

    def _gathered(self, unit: Unit, what: str) -> Iterator[Item]:
        count = self.layout.dp
        for dtype, size, _, parts in self._by_dtype(unit):
            yield CommWait((f"{what} {unit.number} {dtype}",))
            given = ((count, sum(parts)), *((count, part) for part in parts))
            yield SyntheticOp("fsdp::split_with_sizes_copy", given, (), dtype, size)

    def _scatter(self, unit: Unit) -> Iterator[Item]:
        """Reduce-scatter the gradients of a unit (FSDP2)."""
        count = self.layout.dp
        for dtype, size, own, parts in self._by_dtype(unit):
            yield SyntheticOp("fsdp::chunk_cat_mixed_dtype", (*own, (count, sum(parts))), (), dtype, size)
            yield CommOp("reduce_scatter", "dp", (sum(parts) * count,), sum(parts), dtype, size)

    def _by_dtype(self, unit: Unit) -> Iterator[tuple[str, int, list[tuple[int, ...]], list[int]]]:
        """By type of a unit's parameters: bytes of an element, their sizes, and elements of their largest parts."""
        found: dict[tuple[str, int], list[tuple[int, ...]]] = {}
        for parameter in unit.parameters:
            found.setdefault((parameter.dtype, parameter.itemsize), []).append(self.of.sizes(parameter))
        for (dtype, size), own in found.items():
            assert self.shard is not None
            yield dtype, size, own, [self.shard.padded(sizes) for sizes in own]

    def _message(self, action: Action) -> CommOp:
        forward = action.what.endswith("forward")
        sends = action.what.startswith("send")
        unit = self.units[-1] if forward == sends else self.of.units(self.at.pp - 1)[-1]
        regions = self.of.regions
        shape = tuple(self.model.shape(unit.output, self.of.changed if regions is None else regions.outside))
        stage = self.at.pp + (1 if forward == sends else -1)
        peer = self.layout.rank(self.at.tp, self.at.dp, stage)
        key = f"{action.what} {action.microbatch}" if sends else None
        return CommOp("send" if sends else "recv", "pp", shape, prod(shape), unit.dtype, unit.itemsize, peer, key)

    def _optimizer(self) -> Iterator[Item]:
        """The optimizer's calls for the parameters of this rank; then what ZeRO 1 and 2 gather."""
        shard = self.shard
        for step in self.of.optimizers[self.at.pp]:
            yield RecordedOp(step, self.of.changed, shard=shard)
        if shard is not None and shard.flat:
            for bucket in self.buckets:
                part = -(-bucket.elements // shard.count)
                yield CommOp("all_gather", "dp", (part,), part * shard.count, bucket.dtype, bucket.itemsize)


def _of_lists(call: Call, places: Sequence[int], count: int) -> Call:
    """A call on lists of all parameters, on some of them."""
    if len(places) == count:
        return call
    inputs = tuple(_chosen(tensors, places, count) for tensors in call.inputs)
    results = tuple(_chosen(tensors, places, count) for tensors in call.results)
    record = {**call.record}
    for side in ("inputs", "outputs"):
        if side in record:
            record[side] = {key: [_chosen(entry, places, count) for entry in value] if key != "types" else value
                            for key, value in record[side].items()}  # fmt: skip
    return replace(call, inputs=inputs, results=results, record=record,
                   children=[_of_lists(child, places, count) for child in call.children])  # fmt: skip


def _chosen(value: Any, places: Sequence[int], count: int) -> Any:
    """Of a list with one entry a parameter those of some; anything else as it is."""
    return type(value)(value[k] for k in places) if isinstance(value, (list, tuple)) and len(value) == count else value


@dataclass(frozen=True)
class SequenceRegions:
    """Sequence parallelism: where the sequence is whole, and where a rank has a part of it.

    Around each pair of column and row layers an all-gather and a reduce-scatter replace the all-reduce, in forward and
    in backward; the input is gathered again for the gradient of the column layers' weights. Norms, residuals and losses
    are of a part of the sequence; gradients of their parameters are summed over the tensor-parallel ranks once a step.
    (V. Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022.)

    Attributes:
        divided: classes of extents that tensor parallelism divides.
        partial: rows of products whose results are partial.
        changed: new values of classes within divided layers.

    Raises:
        UsageError: the tensors between units have no extent for the sequence, or it does not divide.
    """

    model: Model
    layout: Layout
    divided: Set[int]
    partial: Set[int]
    changed: Mapping[int, int]

    @cached_property
    def outside(self) -> dict[int, int]:
        """New values of classes where a rank has a part of the sequence."""
        model = self.model
        output = model.units[0].output
        leaves = model.extents.leaves(output[1:2]) if len(output) == 3 else []
        if not leaves or leaves[0] == model.batch:
            raise UsageError("no sequence is found between the layers; leave --sequence-parallel out")
        size = self.changed.get(leaves[0], model.extents.value[leaves[0]])
        if size % self.layout.tp:
            raise UsageError(f"a sequence of {size} does not divide over tp={self.layout.tp} ranks")
        return {**self.changed, leaves[0]: size // self.layout.tp}

    def apply(self, items: Iterable[Item], unit: Unit | None, *, forward: bool) -> Iterator[Item]:
        """The items of a unit's forward or backward (None: of the loss), with gathers and reduce-scatters."""
        outside = self.outside
        full = again = False
        for item in items:
            if not isinstance(item, RecordedOp) or unit is None:
                yield replace(item, changed=outside) if isinstance(item, RecordedOp) else item
                continue
            rows = [call.row for call in item.call.walk()]
            if not full and self._touches(item):
                full, again = True, False
                yield self._gather(unit, outside)
            if full and not forward and not again and not self.partial.isdisjoint(rows):
                again = True
                yield self._gather(unit, outside)
            scattered = {row: tuple(map(self._scatter, comms)) for row, comms in item.after.items()}
            yield replace(item, after=scattered) if full else replace(item, changed=outside)
            full = full and not item.after

    def sum_of_gradients(self, parameters: Iterable[Parameter]) -> Iterator[Item]:
        """The sum of the gradients of parameters that every rank has whole."""
        whole = [
            parameter for parameter in parameters if self.divided.isdisjoint(self.model.extents.leaves(parameter.shape))
        ]
        for dtype, size in sorted({(parameter.dtype, parameter.itemsize) for parameter in whole}):
            count = sum(
                prod(self.model.shape(parameter.shape, self.changed)) for parameter in whole if parameter.dtype == dtype
            )
            yield CommOp("all_reduce", "tp", (count,), count, dtype, size)

    def _touches(self, item: RecordedOp) -> bool:
        leaves = self.model.extents.leaves
        return any(not self.divided.isdisjoint(leaves(shape)) for call in item.call.walk() for shape in call.shapes)

    def _gather(self, unit: Unit, outside: Mapping[int, int]) -> CommOp:
        shape = tuple(self.model.shape(unit.output, outside))
        whole = prod(shape) * self.layout.tp
        return CommOp("all_gather", "tp", shape, whole, unit.dtype, unit.itemsize)

    def _scatter(self, comm: CommOp) -> CommOp:
        return replace(comm, kind="reduce_scatter", out_elements=comm.elements // self.layout.tp, functional=False)
