"""What one rank of a layout runs: recorded calls with other extents, and the communication that the layout needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from ...trace.brief import brief
from ...trace.dtypes import itemsize
from ...trace.errors import UsageError
from ...trace.index import CallIndex
from ..measure.reader import recorded_calls
from ..measure.recorded_calls import RecordedCall
from .clipping import Clipping, find_clipping
from .data_parallel import broadcasts
from .expert_regions import ExpertRegions
from .items import CommOp, CommOpKind, CommWait, Item, RecordedOp, Shard, SyntheticOp
from .layout import Action, Bucket, Coordinates, Layout, actions, fill_buckets
from .new_extents import NewExtents, new_extents
from .plan import Partial, Plan, partial_results, single_heads
from .sequence_regions import SequenceRegions
from .step_calls import SUM, SUM_IN_PLACE, VIEWS, Call, NamedSchema, pruned, tensor_values, walked
from .structure import Model, Unit
from .vocabulary import VocabularyRegions, find_vocabulary
from .weights import ACCUMULATE, Buffer, Parameter, accumulations
from .wraps import Wrap, chosen_wraps, sums_of_units


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
        if self.layout.vocabulary == "whole":
            object.__setattr__(self, "plan", self.plan.without_words())
        _ = self.changed, self.stages, self.wraps, self.regions is None or self.regions.outside, self.vocabulary

    @cached_property
    def recorded_calls(self) -> Mapping[CallIndex, RecordedCall]:
        """The recorded operators whose arguments are known."""
        found = recorded_calls(self.model.trace)
        return {call: recorded for call, recorded in found if isinstance(recorded, RecordedCall)}

    @cached_property
    def parts(self) -> int:
        """Microbatches of a step."""
        recorded, layout = len(self.model.passes), self.layout
        if self.recorded.pp > 1 and layout.microbatches is None:
            return recorded if layout.pp <= self.recorded.pp else max(recorded, layout.pp)
        return layout.parts(recorded)

    @cached_property
    def rank_batch(self) -> int:
        """Samples of one data-parallel rank in a step; 0 where no batch was found."""
        model, layout = self.model, self.layout
        if not model.batches:
            if layout.batch is not None or self.parts != len(model.passes):
                raise UsageError(
                    f"{model.trace.file}: cannot determine the batch; leave --batch and --microbatches out"
                )
            return 0
        if layout.batch is None:
            return model.samples
        if layout.batch % layout.dp:
            raise UsageError(f"a global batch of {layout.batch} does not divide over dp={layout.dp} ranks")
        return layout.batch // layout.dp

    @cached_property
    def extents(self) -> NewExtents:
        """New values of the classes of extents, within a microbatch, and what is not known of others."""
        model, layout = self.model, self.layout
        found: dict[int, int] = {}
        if layout.tp > 1 and not self.plan.divisions:
            raise UsageError(
                f"{model.trace.file}: no pair of products is found that tensor parallelism can divide; choose tp=1"
            )
        for division in self.plan.divisions:
            whole = division.size * (1 if division.words else self.recorded.tp)
            if division.words and whole % layout.tp:
                raise UsageError(f"a vocabulary of {whole} words does not divide over tp={layout.tp} ranks")
            if whole % layout.tp:
                heads = [shape[1:2] for given in model.attentions() for shape in given if len(shape) == 4]
                of_heads = any(division.extent in model.extents.leaves(extents) for extents in heads)
                what = f"{whole} heads of attention do" if of_heads else f"an inner width of {whole} does"
                raise UsageError(f"{what} not divide (unit {division.unit}) over tp={layout.tp} ranks")
            if whole // layout.tp != division.size:
                if self.recorded.tp > 1 and division.extent in single_heads(model):
                    raise UsageError(
                        f"{model.trace.file}: each recorded rank has one head of attention, from which other numbers "
                        "are not derived; give a recording with fewer tensor-parallel ranks"
                    )
                found[division.extent] = whole // layout.tp
        if self.rank_batch % self.parts:
            raise UsageError(f"a batch of {self.rank_batch} per rank does not divide into {self.parts} microbatches")
        batch = dict.fromkeys(model.batches, self.rank_batch // self.parts)
        return new_extents(model, found, batch)

    @property
    def changed(self) -> dict[int, int]:
        """New values of the classes of extents, within a microbatch; of experts those of the first rank of a group."""
        return self.experts.changed(0)

    @cached_property
    def experts(self) -> ExpertRegions:
        """What is derived of routed experts."""
        return ExpertRegions(self.model, self.layout, self.extents.changed)

    @cached_property
    def stages(self) -> list[int]:
        """The stage of each unit."""
        return self.plan.stage_of(self.model, self.layout.pp) if self.layout.pp > 1 else [0] * len(self.model.units)

    def units(self, stage: int) -> list[Unit]:
        """The units of a stage, in order of forward."""
        return [unit for unit, at in zip(self.model.units, self.stages, strict=True) if at == stage]

    def parameters(self, stage: int, index: int = 0) -> list[Parameter]:
        """The parameters of a stage, in the optimizer's order.

        Args:
            index: which of the ranks that share experts.
        """
        found = (parameter for unit in self.units(stage) for parameter in unit.parameters)
        mine = (parameter for parameter in found if self.experts.has(parameter, index))
        return sorted(mine, key=lambda parameter: parameter.number)

    @cached_property
    def wraps(self) -> list[Wrap]:
        """What FSDP gathers together, the root first where it has parameters."""
        return chosen_wraps(self.model, self.layout.fsdp_wrap, self.sizes)

    def stage_wraps(self, stage: int) -> list[Wrap]:
        """Those of a stage, in order of forward, with the stage's parameters."""
        mine = {parameter.number for parameter in (*self.parameters(stage), *self.model.weights.frozen)}
        at = [number for number, of in enumerate(self.stages) if of == stage]
        found = []
        for wrap in self.wraps:
            numbers = [number for number in wrap.parameters if number in mine]
            units = [u for u in at if wrap.root or wrap.units[0] <= u <= wrap.units[1]]
            if numbers and units:
                found.append(Wrap(wrap.label, numbers, (min(units), max(units)), wrap.again))
        return sorted(found, key=lambda wrap: (not wrap.root, wrap.units))

    def sizes(self, parameter: Parameter) -> tuple[int, ...]:
        """The sizes of a parameter on a rank before ZeRO divides it."""
        return tuple(self.model.shape(self.experts.shape(parameter), self.changed))

    def shard(self, at: Coordinates) -> Shard | None:
        """How the optimizer of a rank divides parameters."""
        if self.layout.zero == 0 or self.layout.dp == 1:
            return None
        return Shard(self.layout.dp, at.dp, flat=self.layout.zero < 3)

    def buckets(self, stage: int, index: int | None = None) -> list[Bucket]:
        """Gradient buckets of a stage, in order of reduction: of what all ranks have, or of the experts of a rank.

        Args:
            index: which of the ranks that share experts; None for what all have.
        """
        ready = _in_order_of_gradients(self.units(stage))
        own, has = self.experts.parameters, self.experts.has
        ready = [p for p in ready if (p not in own if index is None else p in own and has(p, index))]
        sized = [
            (parameter.number, prod(self.sizes(parameter)), parameter.itemsize, parameter.dtype) for parameter in ready
        ]
        if self.finds_unused:  # as at first, in the order of the parameters (`_ddp_init_helper`)
            return fill_buckets(sorted(sized), self.layout.bucket_mib)[::-1]
        return fill_buckets(sized, self.layout.bucket_mib)

    @property
    def finds_unused(self) -> bool:
        """DDP looks for parameters that are not in use."""
        given = self.layout.find_unused_parameters
        return self.layout.zero == 0 and (self.model.finds_unused if given is None else given)

    def gathered_again(self, wrap: Wrap) -> bool:
        """FSDP frees what a unit, but the root, has gathered after its forward."""
        given = self.layout.reshard_after_forward
        return not wrap.root and (wrap.again is not False if given is None else given)

    def reduced(self, stage: int) -> list[CommOp]:
        """The reductions of gradients that the first rank of a stage issues for one microbatch."""
        program = self.program(self.layout.rank(0, 0, stage))
        kinds = ("reduce_scatter",) if self.layout.zero >= 2 else ("all_reduce",)
        found = [
            item for item in program
            if isinstance(item, CommOp) and item.dimension in ("dp", "edp") and item.kind in kinds
            and not item.functional and item.key != USED
        ]  # fmt: skip
        times = self.parts if self.layout.pp == 1 and not self.layout.no_sync else 1
        return found[: len(found) // times]

    def representative(self, rank: int) -> int:
        """The first rank that runs the same, but for its peers: of its stage, with shards of the same sizes."""
        at = self.layout.coordinates(rank)
        return self.layout.rank(0, self._first_alike[at.pp][at.dp], at.pp)

    def reduced_parameters(self, stage: int) -> list[Parameter]:
        """Those of the first rank of a stage whose gradients it communicates."""
        alone = self.experts.parameters if self.layout.ep == self.layout.dp else set()
        return [p for p in self.parameters(stage) if p.accumulates and p not in alone]

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
            kinds = [self.experts.kind(index % self.layout.ep) for index in range(count)]
            found.append([first.setdefault(shard + kinds[index], index) for index, shard in enumerate(shards)])
        return found

    def optimizer(self, stage: int, index: int = 0) -> list[Call]:
        """The optimizer's steps with what they do for the parameters of a stage.

        Args:
            index: which of the ranks that share experts.
        """
        key = stage, index
        if key not in self._optimizers:
            mine = {parameter.number for parameter in self.parameters(stage, index)}
            found = self._optimizers[key] = []
            for step, owned in self.model.optimizer:
                calls = self.experts.optimizer(owned)
                found.append(replace(step, children=[
                    one for call, parameter in calls if parameter is None or parameter.number in mine
                    for one in ((call,) if parameter is not None else self._of_lists(call, mine))
                ]))  # fmt: skip
        return self._optimizers[key]

    def _of_lists(self, call: Call, mine: Set[int]) -> Iterator[Call]:
        """A call of the optimizer on lists, with the entries of some parameters; nothing where none is among them."""
        lists = self.model.weights.lists_of(call)
        count = next((len(tensors) for tensors in call.inputs if len(tensors) in lists), 0)
        places = [k for k, owner in enumerate(lists.get(count, ())) if owner.number in mine]
        if places or not count:
            yield pruned(call, places, count)

    @cached_property
    def _optimizers(self) -> dict[tuple[int, int], list[Call]]:
        return {}

    @cached_property
    def buffers(self) -> list[Buffer]:
        """The buffers that DDP broadcasts."""
        given = self.layout.broadcast_buffers
        if given is None:
            return self.model.buffers
        return self.model.buffers or self.model.inferred if given else []

    @cached_property
    def keeps_gradients(self) -> bool:
        """Gradients are set to zero before a step and not to None: those of the first pass are added to them."""
        calls = accumulations(call for unit in self.model.units for call in unit.backward)
        if any(inner.name == SUM_IN_PLACE.name for inner in walked(calls)):
            return True
        zeroed = (call for call in self.model.before if call.name.startswith("Optimizer.zero_grad"))
        return bool(self.model.wraps) and any(inner.name.endswith("zero_") for inner in walked(zeroed))

    @cached_property
    def clipping(self) -> Clipping:
        """Where norms of gradients are taken."""
        return find_clipping(self.model)

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
        if (result.number, result.unit) != (following.number, following.unit):
            return True
        leaves, divided, one = self.model.leaves, self.plan.divided, self.model.passes[result.number]
        between = list(walked(one.units[result.unit].backward))[result.place + 1 : following.place]
        products = (call for call in between if call.name.startswith("aten::") and "mm" in call.name)
        return any(
            not divided.isdisjoint(leaves(shape[-1:])) and one.batch in leaves(shape[:1])
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

    @cached_property
    def vocabulary(self) -> VocabularyRegions | None:
        """What divided words change, None where the vocabulary is whole."""
        if self.layout.vocabulary == "whole":
            return None
        found = find_vocabulary(self.model)
        if found is None or self.recorded.tp > 1 or not self.plan.words:
            why = "in it: no output layer has as many rows as an embedding" if found is None else (
                "whole in the plan" if self.recorded.tp == 1 else "divided from recordings of one tensor-parallel rank"
            )  # fmt: skip
            raise UsageError(f"{self.model.trace.file}: no vocabulary is {why}; leave --vocab-parallel out")
        return VocabularyRegions(self.model, self.layout, found, self.changed)

    def program(self, rank: int) -> list[Item]:
        """What a rank runs, in the order of its host."""
        return list(_Rank(self, self.layout.coordinates(rank)).items())


USED = "parameters in use"
"""Names the all-reduce of how many ranks use each parameter."""


def _launches(buckets: Sequence[Bucket], ready: Sequence[Parameter]) -> dict[int, list[int]]:
    """By the number of a parameter the buckets that are reduced when its gradient is ready: in order, each once it is
    full (`Reducer::mark_bucket_ready` in torch/csrc/distributed/c10d/reducer.cpp)."""
    found, seen, following = dict[int, list[int]](), set[int](), 0
    for parameter in ready:
        seen.add(parameter.number)
        while following < len(buckets) and seen.issuperset(buckets[following].parameters):
            found.setdefault(parameter.number, []).append(following)
            following += 1
    return found


def _in_order_of_gradients(units: Sequence[Unit]) -> list[Parameter]:
    """Parameters in the order in which their gradients are ready; of a unit those of which nothing is known last."""
    known = {parameter for unit in units for parameter in unit.ready.values()}
    found: dict[Parameter, None] = {}
    for unit in reversed(units):
        found |= dict.fromkeys(unit.ready.values())
        found |= dict.fromkeys(p for p in reversed(unit.parameters) if p not in known and p.accumulates)
    return list(found)


class _Rank:
    """One rank's program."""

    def __init__(self, derivation: Derivation, at: Coordinates) -> None:
        self.of, self.at = derivation, at
        self.layout, self.model = derivation.layout, derivation.model
        self.units = derivation.units(at.pp)
        self.last = at.pp == self.layout.pp - 1
        self.shard = derivation.shard(at)
        self.gathers = self.shard is not None and not self.shard.flat
        self.experts, self.index = derivation.experts, at.dp % self.layout.ep
        self.changed = self.experts.changed(self.index)
        self.buckets = derivation.buckets(at.pp) if self.layout.dp > 1 and not self.gathers else []
        self.common = len(self.buckets)
        if self.layout.dp > self.layout.ep > 1:
            self.buckets = [*self.buckets, *derivation.buckets(at.pp, self.index)]
        self.reduced_after = {bucket.parameters[-1]: [k] for k, bucket in enumerate(self.buckets)}
        if derivation.finds_unused:
            self.reduced_after = _launches(self.buckets, _in_order_of_gradients(self.units))
        self.in_bucket = {number for bucket in self.buckets for number in bucket.parameters}
        self.waits = (*(f"bucket {k}" for k in range(len(self.buckets))), *([USED] if derivation.finds_unused else ()))
        self.wraps = derivation.stage_wraps(at.pp) if self.gathers else []
        self.root = next((wrap for wrap in self.wraps if wrap.root), None)
        gathered = bool(self.model.wraps)
        self.sums = (
            sums_of_units(self.model, self.model.wraps or self.wraps) if gathered != self.gathers else set[int]()
        )
        self.by_number = {one.number: one for one in (*self.model.parameters, *self.model.weights.frozen)}

    def items(self) -> Iterator[Item]:
        """All, in order."""
        model, layout, parts = self.model, self.layout, self.of.parts
        if self.gathers:
            gradients = self.of.clipping.storages
            yield from (RecordedOp(call, self.of.changed, shard=self.shard, divided=gradients) for call in model.before)
        else:
            yield from self._recorded(model.before, 0)
        for action in actions(layout.schedule, self.at.pp, layout.pp, parts):
            if action.what == "forward":
                yield from self._forward(action.microbatch)
            elif action.what == "backward":
                yield from self._backward(action.microbatch)
            else:
                yield self._message(action)
        if layout.pp > 1 and parts > 1:
            for parameter in self.of.parameters(self.at.pp, self.index):
                sizes = self.of.sizes(parameter)
                yield SyntheticOp("aten::div_", (sizes, ()), (sizes,), parameter.dtype, parameter.itemsize)
        if self.of.regions is not None:
            yield from self.of.regions.sum_of_gradients(self.of.parameters(self.at.pp))
        if self.buckets:
            yield CommWait(self.waits)
        yield from self._beside(behind=False)
        yield from self._optimizer()
        yield from self._beside(behind=True)

    def _reduces(self, microbatch: int) -> bool:
        """Gradients are communicated after the backward of a microbatch."""
        return microbatch == self.of.parts - 1 or (self.layout.pp == 1 and not self.layout.no_sync)

    def _added_to_part(self, microbatch: int) -> bool:
        """Reduced gradients are added to those of a microbatch, or of a step, before."""
        return self._reduces(microbatch - 1) if microbatch else self.of.keeps_gradients

    def _pass(self, microbatch: int) -> int:
        """The recorded pass that a microbatch runs."""
        return min(microbatch, len(self.model.passes) - 1)

    def _units_of(self, microbatch: int) -> list[Unit]:
        """The units of this stage in the recorded pass of a microbatch."""
        units = self.model.passes[self._pass(microbatch)].units
        return [unit for unit, stage in zip(units, self.of.stages, strict=True) if stage == self.at.pp]

    def _recorded(self, calls: Iterable[Call | Item], microbatch: int) -> Iterator[Item]:
        items = (
            RecordedOp(call, self.changed, microbatch, self.of._after(call)) if isinstance(call, Call) else call
            for call in calls
        )
        yield from items if self.of.vocabulary is None else self.of.vocabulary.apply(items)

    def _within(self, items: Iterator[Item], unit: Unit | None, *, forward: bool) -> Iterator[Item]:
        """Items of a unit, or of the loss, with the sequence divided where the layout wants that."""
        regions = self.of.regions
        return items if regions is None else regions.apply(items, unit, forward=forward)

    def _forward(self, microbatch: int) -> Iterator[Item]:
        if self.layout.dp > 1 and not self.gathers and (microbatch == 0 or self._reduces(microbatch - 1)):
            yield from self._buffers()
        if self.root is not None:
            yield from self._gather(self.root, "gather")
            yield from self._gathered(self.root, "gather")
        for unit in self._units_of(microbatch):
            for wrap in self._beginning(unit, 0):
                yield from self._gather(wrap, "gather")
                yield from self._gathered(wrap, "gather")
            calls = self.experts.forward(unit, self.index)
            yield from self._within(self._recorded(calls, microbatch), unit, forward=True)
        if self.last:
            if self.buckets and self.of.finds_unused:
                yield self._sink()
            loss = self.model.passes[self._pass(microbatch)].loss_forward
            yield from self._within(self._recorded(loss, microbatch), None, forward=True)

    def _sink(self) -> SyntheticOp:
        """DDP's copy of the model's output: as recorded, else of what the loss takes of the last operator that is no
        view."""
        unit, shape = self.units[-1], self.model.sink
        if shape is None:
            loss = self.model.loss_forward
            taken = {value[1] for call in walked(loss) for value in tensor_values(call.record.get("inputs"))}
            made = [call for one in self.units for call in one.forward if call.name not in VIEWS and call.output_shapes]
            last = [call for call in made if call.signature is not None and call.signature.outputs]
            of_loss = [
                call for call in last if taken & {value[1] for value in tensor_values(call.record.get("outputs"))}
                and "float" in (call.signature.outputs or call.signature.tensors)[0].dtype  # type: ignore[union-attr]
            ]  # fmt: skip
            chosen = (of_loss or last)[-1:]
            shape = chosen[0].output_shapes[0] if chosen else unit.output
        sizes = tuple(self.model.shape(shape, self.changed))
        return SyntheticOp("aten::clone", (sizes,), (sizes,), unit.dtype, unit.itemsize)

    def _buffers(self) -> Iterator[Item]:
        """What DDP does for buffers before a forward pass: all ranks take those of the first one."""
        for dtype, size, sizes in broadcasts(self.of.buffers):
            whole = sum(map(prod, sizes))
            if len(sizes) > 1:
                yield SyntheticOp("aten::cat", tuple(sizes), ((whole,),), dtype, size, listed=True)
            yield CommOp("broadcast", "dp", (whole,), whole, dtype, size)
        for buffer in self.of.buffers:
            both = (buffer.sizes, buffer.sizes)
            yield SyntheticOp("aten::copy_", both, both[:1], buffer.dtype, buffer.itemsize)

    def _beginning(self, unit: Unit, side: int) -> list[Wrap]:
        """The units of FSDP whose first (0) or last (1) unit this is, without the root."""
        return [wrap for wrap in self.wraps if not wrap.root and wrap.units[side] == unit.number]

    def _backward(self, microbatch: int) -> Iterator[Item]:
        again, late = [wrap for wrap in self.wraps if self.of.gathered_again(wrap)][::-1], self._without_gradient()
        if self.last:
            loss = self.model.passes[self._pass(microbatch)].loss_backward
            yield from self._within(self._recorded(loss, microbatch), None, forward=False)
        if again:
            yield from self._gather(again[0], "gather again")
        for unit in self._units_of(microbatch)[::-1]:
            for wrap in self._beginning(unit, 1):
                if wrap not in again:
                    continue
                yield from self._gathered(wrap, "gather again")
                place = again.index(wrap)
                if place + 1 < len(again):
                    yield from self._gather(again[place + 1], "gather again")
            yield from self._within(self._unit_backward(unit, microbatch), unit, forward=False)
            for wrap in self._beginning(unit, 0) if self._reduces(microbatch) else ():
                if wrap not in late:
                    yield from self._scatter(wrap, microbatch)
        if self.buckets and self._reduces(microbatch) and microbatch < self.of.parts - 1:
            yield CommWait(self.waits)
        for last in (self.root, *late) if self._reduces(microbatch) else ():
            if last is not None:
                yield from self._scatter(last, microbatch)

    def _without_gradient(self) -> list[Wrap]:
        """The units that take data alone, without a gradient of it: FSDP learns that their backward is over at the end
        of the whole backward, after the root's, in the order of modules (`_root_post_backward_final_callback` in
        torch/distributed/fsdp/_fully_shard/_fsdp_state.py)."""
        data = (call for unit in self.units for call in unit.backward if call.row not in unit.ready)
        if self.at.pp or not self.wraps or any(ACCUMULATE in call.name for call in data):
            return []
        calls = [call for unit in self.units for call in unit.forward]
        read = [{p.number for inner in call.walk() for p in self.model.weights.taken(inner)} for call in calls]
        of: dict[int, Wrap] = {}  # by place: the unit of the calls up to the last one with its parameters
        for wrap in self.wraps:
            uses = [at for at, numbers in enumerate(read) if not numbers.isdisjoint(wrap.parameters)]
            of |= dict.fromkeys(range(uses[0], uses[-1] + 1) if uses and not wrap.root else (), wrap)
        made: dict[int, Wrap | None] = {}  # by storage of what depends on parameters the unit that made it
        takes = set[Wrap | None]()
        for at, call in enumerate(calls):
            given, new = (
                {value[1] for value in tensor_values(call.record.get(side))} for side in ("inputs", "outputs")
            )
            new -= given if call.name in VIEWS else set()
            of_others = given & made.keys()
            if any(made[storage] is not of.get(at) for storage in of_others):
                takes.add(of.get(at))
            if of_others or read[at]:
                made |= {storage: made[storage] if storage in of_others else of.get(at) for storage in new}
            else:
                made = {storage: by for storage, by in made.items() if storage not in new}
        found = [wrap for wrap in self.wraps if not wrap.root]
        if self.of.recorded.tp > 1:  # what ranks have reduced is another tensor
            found = found[:1]
        return sorted((wrap for wrap in found if wrap not in takes), key=lambda wrap: wrap.parameters)

    def _unit_backward(self, unit: Unit, microbatch: int) -> Iterator[Item]:
        known = {parameter for one in self.units for parameter in one.ready.values()}
        receives = not self.last and unit.number == self.units[-1].number
        calls = self.experts.backward(unit, self.index)
        for call in _beside_what_arrives(calls) if receives else calls:
            if not isinstance(call, Call):
                yield call
                continue
            call = _summed(call, self.sums, SUM_IN_PLACE if self.model.wraps else SUM)
            found = [unit.ready[inner.row] for inner in accumulations([call]) if inner.row in unit.ready]
            if found and self.gathers and self._added_to_part(microbatch):
                call = _of_one_pass(call)
            yield from self._recorded([call], microbatch)
            for parameter in found:
                yield from self._ready(parameter, microbatch)
        for parameter in reversed(unit.parameters):
            if parameter not in known and parameter.accumulates and self.experts.has(parameter, self.index):
                yield from self._ready(parameter, microbatch)

    def _ready(self, parameter: Parameter, microbatch: int) -> Iterator[Item]:
        """What follows when the gradient of a parameter is known."""
        sizes = self.of.sizes(parameter)
        first = not self._pass(microbatch) and not self.of.keeps_gradients
        alone = first or self.model.wraps  # recorded without gradients of earlier passes
        again = microbatch or (self.of.keeps_gradients and not self.gathers)
        if again and alone and not (self.gathers and self._reduces(microbatch - 1)):
            yield SyntheticOp("aten::add_", (sizes, sizes), (sizes,), parameter.dtype, parameter.itemsize)
        if not self.buckets or not self._reduces(microbatch) or parameter.number not in self.in_bucket:
            return
        yield SyntheticOp(
            "torch::distributed::reducer::mul_out", (sizes,), (sizes,), parameter.dtype, parameter.itemsize
        )
        for k in self.reduced_after.get(parameter.number, ()):
            yield self._reduced(k)
            if self.of.finds_unused and k == len(self.buckets) - 1:
                count = sum(len(bucket.parameters) for bucket in self.buckets)
                yield CommOp("all_reduce", "dp", (count,), count, "int32", 4, key=USED)

    def _reduced(self, k: int) -> CommOp:
        """The reduction of a bucket of gradients."""
        bucket, scattered = self.buckets[k], self.layout.zero == 2
        part = -(-bucket.elements // self.layout.dp) if scattered else bucket.elements
        given = part * self.layout.dp if scattered else part
        kind: CommOpKind = "reduce_scatter" if scattered else "all_reduce"
        dimension = "dp" if k < self.common else "edp"
        return CommOp(kind, dimension, (given,), part, bucket.dtype, bucket.itemsize, key=f"bucket {k}")

    def _gather(self, wrap: Wrap, what: str) -> Iterator[Item]:
        """All-gather the parameters of a unit (FSDP2)."""
        count = self.layout.dp
        for dtype, size, _, parts in self._by_dtype(wrap):
            part, copied = sum(parts), tuple((elements,) for elements in parts)
            yield SyntheticOp("fsdp::all_gather_copy_in", (*copied, (part * count,)), ((part,),), dtype, size)
            yield CommOp("all_gather", "dp", (part,), part * count, dtype, size, key=f"{what} {wrap.label} {dtype}")

    def _gathered(self, wrap: Wrap, what: str) -> Iterator[Item]:
        count = self.layout.dp
        for dtype, size, _, parts in self._by_dtype(wrap):
            yield CommWait((f"{what} {wrap.label} {dtype}",))
            given = ((count, sum(parts)), *((count, part) for part in parts))
            yield SyntheticOp("fsdp::split_with_sizes_copy", given, (), dtype, size)

    def _scatter(self, wrap: Wrap, microbatch: int) -> Iterator[Item]:
        """Reduce-scatter the gradients of a unit (FSDP2), and add them to those of earlier microbatches."""
        count = self.layout.dp
        for dtype, size, own, parts in self._by_dtype(wrap, reduced=True):
            copied = (*own, (count, sum(parts)))
            yield SyntheticOp("fsdp::chunk_cat_mixed_dtype", copied, (), dtype, size, wrap=wrap.label)
            yield CommOp("reduce_scatter", "dp", (sum(parts) * count,), sum(parts), dtype, size)
            for sizes in own if self._added_to_part(microbatch) else ():
                assert self.shard is not None
                part = tuple(self.shard.of(sizes))
                yield SyntheticOp("aten::add_", (part, part), (part,), dtype, size)

    def _by_dtype(
        self, wrap: Wrap, *, reduced: bool = False
    ) -> Iterator[tuple[str, int, list[tuple[int, ...]], list[int]]]:
        """By type of a unit's parameters, or of those whose gradients are reduced: bytes of an element, their sizes,
        and elements of their largest parts."""
        found: dict[tuple[str, int], list[tuple[int, ...]]] = {}
        for number in wrap.parameters:
            parameter = self.by_number[number]
            if reduced and not parameter.accumulates:
                continue
            found.setdefault((parameter.dtype, parameter.itemsize), []).append(self.of.sizes(parameter))
        for (dtype, size), own in found.items():
            assert self.shard is not None
            yield dtype, size, own, [self.shard.padded(sizes) for sizes in own]

    def _beside(self, *, behind: bool) -> Iterator[Item]:
        """What runs between backward and the optimizer, such as clipping, or behind it, such as averages of weights:
        with FSDP on parts of gradients and parameters."""
        clipping = self.of.clipping
        first = min((step.ts for step, _ in self.model.optimizer), default=0)
        for call in self.model.after:
            if all(inner.name in VIEWS for inner in call.walk()) or (call.ts > first > 0) != behind:
                continue
            if not self.gathers:
                yield from self._recorded([call], 0)
                continue
            assert self.shard is not None
            if call.row in clipping.joined:
                yield from clipping.reduced(call, self.layout.dp)
            divided = clipping.storages | clipping.copies
            yield RecordedOp(call, self.of.changed, shard=self.shard, divided=divided)
            if call.row in clipping.scaled:
                yield CommOp("all_reduce", "dp", (1,), 1, "float32", 4, functional=True)

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
        for step in self.of.optimizer(self.at.pp, self.index):
            yield RecordedOp(step, self.changed, shard=shard)
        if shard is not None and shard.flat:
            for bucket in self.buckets:
                part = -(-bucket.elements // shard.count)
                yield CommOp("all_gather", "dp", (part,), part * shard.count, bucket.dtype, bucket.itemsize)


def _beside_what_arrives(backward: Sequence[Call | Item]) -> Iterator[Call | Item]:
    """Calls of backward whose first gradient is held by the schedule of a pipeline: autograd does not add to it in
    place."""
    calls = [call for call in backward if isinstance(call, Call)]
    first = next((values[0] for call in walked(calls) if (values := call.tensor_ids("inputs"))), -1)
    for call in backward:
        if not isinstance(call, Call):
            yield call
            continue
        places = [
            child.row for child in call.children
            if child.name == SUM_IN_PLACE.name and child.tensor_ids("inputs")[:1] == [first]
        ]  # fmt: skip
        if not places or not call.backward:
            yield call
            continue
        first = -1
        yield _summed(call, {places[0]}, SUM)


def _summed(call: Call, rows: Set[int], by: NamedSchema) -> Call:
    """A call in which some sums are done by another operator, in place or not."""
    if rows.isdisjoint(inner.row for inner in call.walk()):
        return call
    if call.row in rows:
        return replace(call, name=by.name, schema=by.schema)
    return replace(call, children=[_summed(child, rows, by) for child in call.children])


def _of_one_pass(call: Call) -> Call:
    """A call in which AccumulateGrad finds no gradient of a pass before it: FSDP has reduced that."""
    accumulates = ACCUMULATE in call.name
    children = [_of_one_pass(child) for child in call.children if not (accumulates and child.name == "aten::add_")]
    return replace(call, children=children)
