"""Derive a layout: the work of each stage and rank, before any program is written. `derive` performs these steps:

1. Determine the samples per data-parallel rank and the microbatches per step.
2. Derive new extents (`new_extents`): tensor parallelism divides the extents in the plan, the batch changes, and
   dependent extents follow. If an extent's dependency is unknown, the extent is scaled proportionally and reported.
3. Shard routed experts (`expert_regions.py`), assign units to pipeline stages, and choose FSDP units (`wraps.py`).
4. Find partial results and their reductions, and shard the sequence.
5. Choose DDP and FSDP options, as requested or as recorded.
6. Group ranks that run the same calls with different peers.

Example: a recorded MLP with an inner width of 4,096 and a batch of 32 is derived for tp=2, dp=4 and a global batch of
64. `changed` is {inner: 2048, batch: 16}, the partial result of the second GEMM is reduced over tp, and `alike` maps
all data-parallel ranks to the first rank. Then `rank_program.program` writes the program of each rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import prod

from ...trace.brief import brief
from ...trace.errors import UsageError
from ..reshape.reshape import in_proportion
from .clipping import Clipping, find_clipping
from .expert_regions import ExpertRegions
from .items import CommOp, Item, RecordedOp, Shard
from .layout import Bucket, Coordinates, Layout, fill_buckets
from .model import Buffer, Model, Parameter, Unit, Wrap, accumulations
from .plan import Partial, Plan, partial_results, single_heads
from .step_calls import SUM_IN_PLACE, Call, pruned, walked
from .wraps import chosen_wraps

# These operators have result sizes that depend on tensor values.
_OF_DATA = frozenset(
    ("aten::nonzero", "aten::nonzero_numpy", "aten::masked_select", "aten::_unique2", "aten::bincount")
)


@dataclass(frozen=True)
class NewExtents:
    changed: dict[int, int]
    unknown: frozenset[int] = field(default_factory=frozenset)  # extent classes of unknown size, scaled in proportion
    of_data: frozenset[int] = field(default_factory=frozenset)  # classes that depend on tensor values (expert routing)

    __repr__ = brief


@dataclass(frozen=True, eq=False)
class Derivation:
    model: Model
    plan: Plan
    layout: Layout
    recorded: Layout  # layout of the recorded job; the model was read from one of its ranks
    microbatches: int
    rank_batch: int  # samples per step on a data-parallel rank; 0 if no batch was found
    extents: NewExtents
    experts: ExpertRegions
    changed: Mapping[int, int]  # new values of extent classes, for one microbatch
    stages: list[int]  # for each unit, its pipeline stage
    wraps: list[Wrap]  # FSDP units, root first
    reductions: Mapping[int, list[Partial]]  # maps the row of a call to the results that are reduced after it
    regions: SequenceRegions | None
    clipping: Clipping
    buffers: list[Buffer]
    keeps_gradients: bool  # True if gradients are set to zero instead of None
    finds_unused: bool
    # for each stage and data-parallel index, the first index that has the same program
    alike: list[list[int]] = field(default_factory=list)
    optimizers: dict[tuple[int, int], list[Call]] = field(default_factory=dict)

    __repr__ = brief

    def units(self, stage: int) -> list[Unit]:
        return [unit for unit, of_unit in zip(self.model.units, self.stages, strict=True) if of_unit == stage]

    def parameters(self, stage: int, index: int = 0) -> list[Parameter]:
        """Return the parameters that rank `index` of a stage's expert-parallel group has, in optimizer order."""
        found = (parameter for unit in self.units(stage) for parameter in unit.parameters)
        owned = (parameter for parameter in found if self.experts.has(parameter, index))
        return sorted(owned, key=lambda parameter: parameter.number)

    def stage_wraps(self, stage: int) -> list[Wrap]:
        owned = {parameter.number for parameter in (*self.parameters(stage), *self.model.weights.frozen)}
        of_stage = [number for number, of_unit in enumerate(self.stages) if of_unit == stage]
        found = []
        for wrap in self.wraps:
            numbers = [number for number in wrap.parameters if number in owned]
            units = [unit for unit in of_stage if wrap.root or wrap.units[0] <= unit <= wrap.units[1]]
            if numbers and units:
                found.append(Wrap(wrap.label, numbers, (min(units), max(units)), wrap.again))
        return sorted(found, key=lambda wrap: (not wrap.root, wrap.units))

    def sizes(self, parameter: Parameter) -> tuple[int, ...]:
        """Return the sizes of a parameter on a rank, before ZeRO sharding."""
        return tuple(self.model.shape(self.experts.shape(parameter), self.changed))

    def shard(self, place: Coordinates) -> Shard | None:
        """Return the part of the parameters that a rank's optimizer updates; None for all of them."""
        if self.layout.zero == 0 or self.layout.dp == 1:
            return None
        return Shard(self.layout.dp, place.dp, flat=self.layout.zero < 3)

    def buckets(self, stage: int, index: int | None = None) -> list[Bucket]:
        """Return a stage's gradient buckets in reduction order, or if `index` is given, that rank's expert buckets."""
        ready = in_order_of_gradients(self.units(stage))
        own, has = self.experts.parameters, self.experts.has
        ready = [p for p in ready if (p not in own if index is None else p in own and has(p, index))]
        sized = [(p.number, prod(self.sizes(p)), p.itemsize, p.dtype) for p in ready]
        if self.finds_unused:  # DDP keeps its initial buckets, in parameter order (`_ddp_init_helper`)
            return fill_buckets(sorted(sized), self.layout.bucket_mib)[::-1]
        return fill_buckets(sized, self.layout.bucket_mib)

    def gathered_again(self, wrap: Wrap) -> bool:
        """Return whether FSDP frees a unit's parameters after forward and gathers them again in backward."""
        given = self.layout.reshard_after_forward
        return not wrap.root and (wrap.again is not False if given is None else given)

    def representative(self, rank: int) -> int:
        """Return the first rank with the same stage and shard sizes. Both ranks run the same calls with other peers."""
        place = self.layout.coordinates(rank)
        return self.layout.rank(0, self.alike[place.pp][place.dp], place.pp)

    def optimizer(self, stage: int, index: int = 0) -> list[Call]:
        key = stage, index
        if key not in self.optimizers:
            owned = {parameter.number for parameter in self.parameters(stage, index)}
            self.optimizers[key] = [
                replace(step, children=list(self._of_stage(calls, owned))) for step, calls in self.model.optimizer
            ]
        return self.optimizers[key]

    def _of_stage(self, calls: Sequence[tuple[Call, Parameter | None]], owned: Set[int]) -> Iterator[Call]:
        for call, parameter in self.experts.optimizer(calls):
            if parameter is None:
                yield from _of_lists(call, owned, self.model)
            elif parameter.number in owned:
                yield call


def _of_lists(call: Call, owned: Set[int], model: Model) -> Iterator[Call]:
    lists = model.weights.lists_of(call)
    count = next((len(tensors) for tensors in call.inputs if len(tensors) in lists), 0)
    places = [k for k, owner in enumerate(lists.get(count, ())) if owner.number in owned]
    if places or not count:
        yield pruned(call, places, count)


def derive(model: Model, plan: Plan, layout: Layout, recorded: Layout) -> Derivation:
    divided = _divided_extents(model, plan, layout, recorded)
    microbatches = _microbatches(model, layout, recorded)
    rank_batch = _rank_batch(model, layout, microbatches)
    if rank_batch % microbatches:
        raise UsageError(f"a batch of {rank_batch} per rank is not divisible by {microbatches} microbatches")
    extents = new_extents(model, divided, dict.fromkeys(model.batches, rank_batch // microbatches))
    experts = ExpertRegions(model, layout, extents.changed)
    changed = experts.changed(0)
    stages = plan.stage_of(model, layout.pp) if layout.pp > 1 else [0] * len(model.units)
    wraps = chosen_wraps(model, layout.fsdp_wrap, lambda p: model.shape(experts.shape(p), changed))
    partial = partial_results(model, plan) if layout.tp > 1 else []
    regions = None
    if layout.sequence_parallel and layout.tp > 1:
        rows = {result.call.row for result in partial if not result.forward}
        regions = divide_sequence(model, layout, plan.divided, rows, changed)
    reductions: dict[int, list[Partial]] = {}
    for result in reduced_results(model, plan, layout, partial):
        reductions.setdefault(result.after.row, []).append(result)
    given = layout.find_unused_parameters
    derivation = Derivation(
        model, plan, layout, recorded, microbatches, rank_batch, extents, experts, changed, stages, wraps, reductions,
        regions, find_clipping(model), _buffers(model, layout),
        _keeps_gradients(model), layout.zero == 0 and (model.finds_unused if given is None else given),
    )  # fmt: skip
    return replace(derivation, alike=[_alike(derivation, stage) for stage in range(layout.pp)])


def _microbatches(model: Model, layout: Layout, recorded: Layout) -> int:
    passes = len(model.passes)
    if recorded.pp > 1 and layout.microbatches is None:
        return passes if layout.pp <= recorded.pp else max(passes, layout.pp)
    return layout.parts(passes)


def _rank_batch(model: Model, layout: Layout, microbatches: int) -> int:
    if not model.batches:
        if layout.batch is not None or microbatches != len(model.passes):
            raise UsageError(f"{model.trace.file}: cannot determine the batch; leave --batch and --microbatches out")
        return 0
    if layout.batch is None:
        return model.samples
    if layout.batch % layout.dp:
        raise UsageError(f"a global batch of {layout.batch} is not divisible by dp={layout.dp} ranks")
    return layout.batch // layout.dp


def _divided_extents(model: Model, plan: Plan, layout: Layout, recorded: Layout) -> dict[int, int]:
    found: dict[int, int] = {}
    if layout.tp > 1 and not plan.divisions:
        raise UsageError(
            f"{model.trace.file}: no pair of GEMMs was found that tensor parallelism can divide; choose tp=1"
        )
    for division in plan.divisions:
        whole = division.size * recorded.tp
        if whole % layout.tp:
            heads = [shape[1:2] for given in model.attentions() for shape in given if len(shape) == 4]
            of_heads = any(division.extent in model.extents.leaves(extents) for extents in heads)
            what = f"{whole} attention heads are" if of_heads else f"an inner width of {whole} is"
            raise UsageError(f"{what} not divisible by tp={layout.tp} ranks (unit {division.unit})")
        if whole // layout.tp != division.size:
            if recorded.tp > 1 and division.extent in single_heads(model):
                raise UsageError(
                    f"{model.trace.file}: each recorded rank has one attention head, so its number of heads cannot "
                    "change; give a recording with fewer tensor-parallel ranks"
                )
            found[division.extent] = whole // layout.tp
    return found


def new_extents(model: Model, divided: Mapping[int, int], batch: Mapping[int, int]) -> NewExtents:
    """Propagate a new batch size and divided extents through all relations (`Extents.solve`)."""
    extents = model.extents
    moved = {root: new for root, new in batch.items() if extents.value[root] != new}
    if not moved:
        return NewExtents(dict(divided))
    known = extents.solve(moved, list(model.data))
    products, sums = extents.products, {whole for whole, _ in extents.sums}
    given = {root: new for root, new in known.items() if new != extents.value[root]}
    changed = {root: new for root, new in given.items() if root not in products and root not in sums} | moved
    likely = in_proportion(extents, known)
    used = {root for call in model.calls() for shape in call.shapes for root in extents.leaves(shape)}
    stay = _beside_batch(model, moved) | _like_others(model, known, likely)
    unknown = frozenset(used - known.keys() - sums - divided.keys() - stay)
    of_data = frozenset(
        root
        for call in model.calls()
        if call.name in _OF_DATA
        for shape in call.output_shapes
        for root in extents.leaves(shape[:1])
        if root not in moved
    )
    changed |= {root: new for root, new in likely.items() if root in unknown or root in of_data}
    return NewExtents(changed | dict(divided), unknown | of_data, of_data)


def _like_others(model: Model, known: Mapping[int, int], likely: Mapping[int, int]) -> set[int]:
    """Return unrelated classes (such as in a mask) that have the value of some unchanged and of no changed class."""
    value = model.extents.value
    sizes = {value[root] for root, new in known.items() if new == value[root]}
    sizes -= {value[root] for root, new in known.items() if new != value[root]}
    return {root for root, size in enumerate(value) if root not in known and root not in likely and size in sizes}


def _beside_batch(model: Model, moved: Mapping[int, int]) -> set[int]:
    """Return classes next to the batch in a tensor that keep their value, such as the layers in a recurrent state."""
    extents, periods = model.extents, {model.extents.value[root] for root in moved}
    found = set[int]()
    for shape in (shape for call in model.calls() for shape in call.shapes):
        roots = {extents.root(extent) for extent in shape}
        if not roots.isdisjoint(moved):
            found |= {root for root in roots - moved.keys() if all(extents.value[root] % size for size in periods)}
    return found


def reduced_results(model: Model, plan: Plan, layout: Layout, partial: Sequence[Partial]) -> Iterator[Partial]:
    """Yield the partial results that need a reduction.

    DTensor reduces every partial result. Megatron adds consecutive input gradients and reduces only their sum.
    """
    for place, result in enumerate(partial):
        following = partial[place + 1] if place + 1 < len(partial) else None
        if (
            layout.tp_style == "dtensor"
            or result.forward
            or following is None
            or following.forward
            or _of_other_input(model, plan, result, following)
        ):
            yield result


def _of_other_input(model: Model, plan: Plan, result: Partial, following: Partial) -> bool:
    """Return whether a row layer's backward runs between two partial gradients, so they belong to different inputs."""
    if (result.number, result.unit) != (following.number, following.unit):
        return True
    leaves, divided, one = model.leaves, plan.divided, model.passes[result.number]
    between = list(walked(one.units[result.unit].backward))[result.place + 1 : following.place]
    shapes = (
        shape
        for call in between
        if call.name.startswith("aten::") and "mm" in call.name
        for shape in call.output_shapes
    )
    return any(not divided.isdisjoint(leaves(s[-1:])) and one.batch in leaves(s[:1]) for s in shapes)


def _buffers(model: Model, layout: Layout) -> list[Buffer]:
    given = layout.broadcast_buffers
    if given is None:
        return model.buffers
    return model.buffers or model.inferred if given else []


def _keeps_gradients(model: Model) -> bool:
    calls = accumulations(call for unit in model.units for call in unit.backward)
    if any(inner.name == SUM_IN_PLACE.name for inner in walked(calls)):
        return True
    zeroed = (call for call in model.before if call.name.startswith("Optimizer.zero_grad"))
    return bool(model.wraps) and any(inner.name.endswith("zero_") for inner in walked(zeroed))


def _alike(derivation: Derivation, stage: int) -> list[int]:
    """For each data-parallel index, return the first index with the same experts and shard sizes."""
    layout, experts = derivation.layout, derivation.experts
    flat = layout.zero < 3
    sizes = {
        (prod(size) if flat else (size or (1,))[0]) for size in map(derivation.sizes, derivation.parameters(stage))
    }
    divided = sorted(sizes) if layout.zero else []
    kinds = [experts.kind(index) for index in range(layout.ep)]
    first: dict[tuple[int, ...], int] = {}
    found = []
    for index in range(layout.dp):
        shard = tuple(Shard(layout.dp, index, flat).of([size])[0] for size in divided)
        found.append(first.setdefault(shard + kinds[index % layout.ep], index))
    return found


def in_order_of_gradients(units: Sequence[Unit]) -> list[Parameter]:
    """Return parameters in the order of their gradients. Parameters without a known gradient are last in their unit."""
    known = {parameter for unit in units for parameter in unit.ready.values()}
    found: dict[Parameter, None] = {}
    for unit in reversed(units):
        found |= dict.fromkeys(unit.ready.values())
        found |= dict.fromkeys(p for p in reversed(unit.parameters) if p not in known and p.accumulates)
    return list(found)


@dataclass(frozen=True)
class SequenceRegions:
    """The changes that sequence parallelism makes to a program.

    In forward and backward, each pair of column and row layers has an all-gather before it and a reduce-scatter after
    it, but no all-reduce. Backward gathers the input again. Norms, residuals and losses work on part of the sequence.
    The gradients of their parameters are summed over tensor-parallel ranks once per step (V. Korthikanti et al.,
    "Reducing Activation Recomputation in Large Transformer Models", 2022).
    """

    model: Model
    layout: Layout
    divided: Set[int]
    partial: Set[int]
    changed: Mapping[int, int]
    outside: Mapping[int, int]

    def apply(self, items: Iterable[Item], unit: Unit | None, *, forward: bool) -> Iterator[Item]:
        """Yield the items of a unit, or of the loss (`unit` is None), with all-gathers and reduce-scatters."""
        outside = self.outside
        full = again = False
        for item in items:
            if not isinstance(item, RecordedOp) or unit is None:
                yield replace(item, changed=outside) if isinstance(item, RecordedOp) else item
                continue
            rows = [call.row for call in item.call.walk()]
            shapes = (shape for call in item.call.walk() for shape in call.shapes)
            if not full and not all(self.divided.isdisjoint(self.model.leaves(shape)) for shape in shapes):
                full, again = True, False
                yield self._gather(unit, outside)
            if full and not forward and not again and not self.partial.isdisjoint(rows):
                again = True
                yield self._gather(unit, outside)
            scattered = {row: tuple(map(self._scatter, comms)) for row, comms in item.after.items()}
            yield replace(item, after=scattered) if full else replace(item, changed=outside)
            full = full and not item.after

    def sum_of_gradients(self, parameters: Iterable[Parameter]) -> Iterator[Item]:
        """Yield the all-reduces that sum, over ranks, the gradients of parameters that every rank has in full."""
        whole = [parameter for parameter in parameters if self.divided.isdisjoint(self.model.leaves(parameter.shape))]
        for dtype, size in sorted({(parameter.dtype, parameter.itemsize) for parameter in whole}):
            count = sum(
                prod(self.model.shape(parameter.shape, self.changed)) for parameter in whole if parameter.dtype == dtype
            )
            yield CommOp("all_reduce", "tp", (count,), count, dtype, size)

    def _gather(self, unit: Unit, outside: Mapping[int, int]) -> CommOp:
        shape = tuple(self.model.shape(unit.output, outside))
        whole = prod(shape) * self.layout.tp
        return CommOp("all_gather", "tp", shape, whole, unit.dtype, unit.itemsize)

    def _scatter(self, comm: CommOp) -> CommOp:
        return replace(comm, kind="reduce_scatter", out_elements=comm.elements // self.layout.tp, functional=False)


def divide_sequence(
    model: Model, layout: Layout, divided: Set[int], partial: Set[int], changed: Mapping[int, int]
) -> SequenceRegions:
    outside = dict(changed)
    for one in model.passes:
        output = one.units[0].output
        leaves = model.extents.leaves(output[1:2]) if len(output) == 3 else []
        if not leaves or leaves[0] == one.batch:
            raise UsageError("no sequence dimension was found between the layers; leave --sequence-parallel out")
        size = changed.get(leaves[0], model.extents.value[leaves[0]])
        if size % layout.tp:
            raise UsageError(f"a sequence of {size} is not divisible by tp={layout.tp} ranks")
        outside[leaves[0]] = size // layout.tp
    return SequenceRegions(model, layout, divided, partial, changed, outside)
