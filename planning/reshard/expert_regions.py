"""Expert parallelism: shard routed experts over ranks that exchange tokens in all-to-all collectives.

Example: four experts on two ranks. Rank 0 has experts 0 and 1. Rank 0 sends the tokens for experts 2 and 3 to
rank 1, receives tokens for experts 0 and 1 from rank 1, and sorts tokens by expert. The results, and the gradients in
backward, return the same way. `expert_calls.py` resizes a layer's recorded calls for one rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

from ...trace.dtypes import itemsize
from ...trace.errors import UsageError
from ..reshape.shapes.terms import Shape
from .expert_calls import BackwardStages, DividedLayer, RankCalls, token_rows, with_shapes
from .experts import GROUPED, ExpertLayer, contiguous, find_layers, parts_of, sliced_extents
from .items import CommOp, Item, SyntheticOp
from .layout import Layout
from .model import GivenTensor, Model, Parameter, Pass, Unit
from .step_calls import Call

_COUNT = "int64", 8  # token counts have this dtype and this many bytes


class ExpertRegions:
    """Changes to a rank's program under expert parallelism.

    Each rank has `count / ep` experts. A rank sends its token counts and tokens to other ranks, and sorts the received
    tokens by expert. Results and gradients return the same way (S. Rajbhandari et al., "DeepSpeed-MoE", 2022). There is
    no padding (T. Gale et al., "MegaBlocks", 2022). All ranks are assumed to have the same routing.
    """

    def __init__(self, model: Model, layout: Layout, changed: Mapping[int, int]) -> None:
        self._model, self._layout, self._base = model, layout, dict(changed)
        self._known: dict[int, dict[int, int]] = {}
        self._of_unit: dict[int, list[DividedLayer]] = {}
        for one in model.passes:
            for unit in one.units:
                layers = find_layers(unit.forward, model.weights, model.extents)
                self._of_unit[id(unit)] = [self._divided(layer, unit, one) for layer in layers]
        self._base |= {root: own for one in self.layers for root, own in self._outside(one).items()}
        self._stacked: dict[Parameter, int] = {}
        self._owner: dict[Parameter, int] = {}
        if layout.ep == 1:
            return
        if not self.layers:
            raise UsageError(
                f"{model.trace.file}: no routed experts were found (a choice by topk or max, then one GEMM over all "
                "experts or separate calls for each expert's tokens); choose ep=1"
            )
        for divided in self.layers:
            if divided.layer.count % layout.ep:
                what = f"{divided.layer.count} experts are not divisible"
                raise UsageError(f"{what} by ep={layout.ep} ranks (unit {divided.unit})")
            each = divided.layer.count // layout.ep
            self._stacked |= dict.fromkeys(divided.layer.stacked, divided.experts)
            self._owner |= {p: e // each for e, expert in enumerate(divided.layer.experts) for p in expert.parameters}

    @property
    def layers(self) -> list[DividedLayer]:
        return [layer for layers in self._of_unit.values() for layer in layers]

    @property
    def parameters(self) -> set[Parameter]:
        return {*self._stacked, *self._owner}

    def has(self, parameter: Parameter, index: int) -> bool:
        """Return whether rank `index` of an expert-parallel group has all or part of a parameter."""
        return self._owner.get(parameter, index) == index

    def shape(self, parameter: Parameter) -> Shape:
        experts = self._stacked.get(parameter)
        return parameter.shape if experts is None else (experts, *parameter.shape[1:])

    def to_dict(self) -> dict[str, Any] | None:
        if not self.layers:
            return None
        one = self.layers[0]
        return {
            "count": one.layer.count,
            "top": one.layer.top,
            "layers": len({d.unit for d in self.layers}),
            "on_a_rank": one.layer.count // self._layout.ep,
            "tokens": one.routing,
            "assumed": self._layout.routing is None and not one.layer.padded,
        }

    @property
    def stated(self) -> set[int]:
        """Extent classes of token counts. The assumed routing determines their values."""
        extents, counts = self._model.extents, {d.layer.count for d in self.layers}
        rows = (one.entry.shape[d.layer.padded : -1] for d in self.layers for one in d.layer.experts)
        found = {leaf for shape in rows for leaf in extents.leaves(shape)}
        for call in self._model.calls() if counts else ():
            for part in (part for count in counts for part in parts_of(call, count)[1] if GROUPED in call.name):
                found.update(sliced_extents(part, extents))
        return found

    @property
    def rooms(self) -> set[int]:
        """Extent classes of expert capacities that are scaled in proportion to the number of tokens."""
        return {
            self._model.extents.root(one.layer.experts[0].entry.shape[1])
            for one in self.layers
            if one.layer.padded and one.own[0] != self._model.extents.value[one.tokens[0]]
        }

    def changed(self, index: int) -> dict[int, int]:
        """Return the new values of classes on rank `index` of an expert-parallel group."""
        if index not in self._known:
            self._known[index] = dict(self._base)
            for one in self.layers if self._layout.ep > 1 else ():
                self._known[index] |= self._inside(one, index)
        return self._known[index]

    def kind(self, index: int) -> tuple[int, ...]:
        """Return a key that ranks with the same program share. If every expert has separate calls, all ranks differ."""
        if self._layout.ep == 1:
            return ()
        if any(len(one.layer.experts) > 1 for one in self.layers):
            return (index,)
        return tuple(value for one in self.layers for value in self._inside(one, index).values())

    # token counts

    def _divided(self, layer: ExpertLayer, unit: Unit, one: Pass) -> DividedLayer:
        extents, batch = self._model.extents, one.batch
        ratio = (
            Fraction(self._base.get(batch, extents.value[batch]), extents.value[batch]) if batch >= 0 else Fraction(1)
        )
        entries = [prod(extents.sizes(expert.entry.shape[:-1])) for expert in layer.experts]
        recorded, routing = extents.sizes(layer.grouped) or entries, self._layout.routing or "recorded"
        total = round(sum(recorded) * ratio)
        if layer.padded:
            room = layer.experts[0].entry.shape[1]
            own, recorded, entries = [int(extents.value[room] * ratio)], [extents.value[room]], [0]
        elif len(recorded) < layer.count and self._layout.routing == "recorded":
            raise UsageError(
                f"{self._model.trace.file}: the number of tokens per expert is not recorded, because one GEMM computes "
                "all experts; choose --routing uniform"
            )
        elif len(recorded) < layer.count or routing == "uniform":
            each, more = divmod(total, layer.count)
            own, routing = [each + (e < more) for e in range(layer.count)], "uniform"
        else:
            own = _in_proportion(recorded, total)
        known = recorded if layer.padded or len(recorded) == layer.count else ()
        return DividedLayer(
            layer,
            unit.number,
            tuple(own),
            routing,
            tuple(extents.new(size) for size in known),
            extents.new(sum(entries)),
            extents.new(layer.count),
        )

    def _outside(self, one: DividedLayer) -> dict[int, int]:
        root = self._model.extents.root
        if one.layer.padded:
            return {root(one.layer.experts[0].entry.shape[1]): one.own[0]}
        if not one.tokens:
            return {}
        rows = one.layer.grouped or [token_rows(expert, self._model.extents) for expert in one.layer.experts]
        return {root(row): own for row, own in zip(rows, one.own, strict=True) if row >= 0}

    def _inside(self, one: DividedLayer, index: int) -> dict[int, int]:
        mine, parts = one.own if one.layer.padded else self._mine(one, index), self._layout.ep
        found = {one.total: parts * sum(mine), one.experts: one.layer.count // parts}
        if one.layer.padded:
            return found | {one.tokens[0]: parts * one.own[0]}
        return found | {one.tokens[e]: parts * one.own[e] for e in self._local(one, index) if one.tokens}

    def _local(self, one: DividedLayer, index: int) -> range:
        each = one.layer.count // self._layout.ep
        return range(index * each, (index + 1) * each)

    def _mine(self, one: DividedLayer, index: int) -> list[int]:
        return [one.own[e] for e in self._local(one, index)]

    # ---- rank programs ----

    def forward(self, unit: Unit, index: int) -> list[Call | Item]:
        found, at = list[Call | Item](), 0
        for one in self._of_unit[id(unit)] if self._layout.ep > 1 else ():
            layer, divide = one.layer, RankCalls(self._model, one, self._local(one, index))
            places = sorted(layer.calls())
            found += unit.forward[at : places[0]]
            found += [unit.forward[place] for place, after in layer.middle.items() if not after]
            found += self._send(one, index, forward=True)
            for place in places:
                found += divide.call(unit.forward[place], place)
            found += self._return(one, index, forward=True)
            found += [unit.forward[place] for place, after in layer.middle.items() if after]
            at = layer.end
        return [*found, *unit.forward[at:]]

    def backward(self, unit: Unit, index: int) -> list[Call | Item]:
        layers = self._of_unit[id(unit)]
        if not layers or self._layout.ep == 1:
            return list(unit.backward)
        stages = BackwardStages(unit, layers)
        found = list[Call | Item]()
        for stage in range(2 * len(layers), -1, -1):
            number, within = divmod(stage, 2)
            calls = stages.calls(stage)
            if not within:
                found += [call for call, _ in calls]
                continue
            one = layers[number]
            divide = RankCalls(self._model, one, self._local(one, index))
            first = next((inner for call, _ in calls for inner in call.walk() if inner.tensor_ids("inputs")), None)
            if first is not None and one.layer.whole[1] and not contiguous(first, first.tensor_ids("inputs")[0]):
                found.append(self._copy(one, one.layer.experts[0].exit))
            found += self._send(one, index, forward=False)
            found += divide.backward(calls)
            found += self._return(one, index, forward=False)
        return found

    def optimizer(self, owned: Iterable[tuple[Call, Parameter | None]]) -> Iterator[tuple[Call, Parameter | None]]:
        """Keep only one rank's experts in optimizer calls on parameters with an expert dimension."""
        for call, parameter in owned:
            if parameter is not None:
                yield with_shapes(call, self._of_parameter(parameter)), parameter
            else:
                yield self._of_lists(call) if self._stacked else call, None

    def _of_parameter(self, parameter: Parameter) -> Callable[[Shape], Shape]:
        sizes = self._model.extents.sizes
        return lambda shape: self.shape(parameter) if sizes(shape) == sizes(parameter.shape) else shape

    def _of_lists(self, call: Call) -> Call:
        new = [self._of_parameter(parameter) for parameter in self._model.parameters]
        count = len(new)

        def side(arguments: Sequence[tuple[Shape | None, ...]]) -> tuple[tuple[Shape | None, ...], ...]:
            return tuple(
                tuple(shape if shape is None else change(shape) for change, shape in zip(new, tensors, strict=True))
                if len(tensors) == count
                else tensors
                for tensors in arguments
            )

        before, parts = parts_of(call, count)
        children = [self._of_lists(child) for child in before]
        children += [with_shapes(child, change) for change, part in zip(new, parts, strict=False) for child in part]
        return replace(call, inputs=side(call.inputs), results=side(call.results), children=children)

    # ---- communication ----

    def _send(self, one: DividedLayer, index: int, *, forward: bool) -> Iterator[Item]:
        """Send tokens (in backward: gradients of expert outputs) to the experts' ranks, and sort them by expert."""
        expert, parts = one.layer.experts[0], self._layout.ep
        tensor = expert.entry if forward else expert.exit
        width, element = self._width(tensor.shape), _element(tensor.dtype, tensor.itemsize)
        if forward and one.layer.whole[0] and not expert.contiguous:
            yield self._copy(one, tensor)
        if one.layer.padded:
            yield from self._padded(one, width, element, sent=True)
            return
        if not one.layer.whole[0 if forward else 1]:
            yield _cat([(own, *width) for own in one.own], element)
        if forward:
            count = one.layer.count
            yield CommOp("all_to_all", "ep", (count,), count, *_COUNT)
            yield SyntheticOp("aten::sum", ((parts, count // parts),), ((parts,),), *_COUNT)
        yield self._exchange(one, index, width, element, out=True)
        yield from self._ordered(one, index, width, element, by_expert=True)

    def _return(self, one: DividedLayer, index: int, *, forward: bool) -> Iterator[Item]:
        """Send expert outputs (in backward: gradients of tokens) back to the ranks that the tokens came from."""
        tensor = one.layer.experts[0].exit if forward else one.layer.experts[0].entry
        width, element = self._width(tensor.shape), _element(tensor.dtype, tensor.itemsize)
        if one.layer.padded:
            yield from self._padded(one, width, element, sent=False)
            return
        if not one.layer.whole[1 if forward else 0]:
            yield _cat([(self._layout.ep * own, *width) for own in self._mine(one, index)], element)
        yield from self._ordered(one, index, width, element, by_expert=False)
        yield self._exchange(one, index, width, element, out=False)

    def _width(self, shape: Shape) -> tuple[int, ...]:
        return tuple(self._model.shape(shape[-1:], self._base))

    def _exchange(
        self, one: DividedLayer, index: int, width: tuple[int, ...], element: tuple[str, int], *, out: bool
    ) -> CommOp:
        parts = self._layout.ep
        here = tuple(sum(self._mine(one, other)) for other in range(parts))
        there = (sum(self._mine(one, index)),) * parts
        sent, received = (here, there) if out else (there, here)
        shape = (sum(sent), *width)
        return CommOp("all_to_all", "ep", shape, sum(received) * prod(width), *element, splits=(sent, received))

    def _ordered(
        self, one: DividedLayer, index: int, width: tuple[int, ...], element: tuple[str, int], *, by_expert: bool
    ) -> Iterator[Item]:
        mine, parts = self._mine(one, index), self._layout.ep
        if len(mine) > 1:
            rows = [own for own in mine for _ in range(parts)] if by_expert else mine * parts
            yield _cat([(own, *width) for own in rows], element)

    def _padded(
        self, one: DividedLayer, width: tuple[int, ...], element: tuple[str, int], *, sent: bool
    ) -> Iterator[Item]:
        parts, each = self._layout.ep, one.layer.count // self._layout.ep
        shape = (one.layer.count, one.own[0], *width)
        ordered = (each, parts, *shape[1:]) if sent else (parts, each, *shape[1:])
        copied = [SyntheticOp("aten::clone", (ordered,), (ordered,), *element)] if each > 1 else []
        exchanged = CommOp("all_to_all", "ep", shape, prod(shape), *element)
        items: list[Item] = [exchanged, *copied] if sent else [*copied, exchanged]
        yield from items

    def _copy(self, one: DividedLayer, tensor: GivenTensor) -> SyntheticOp:
        rows = (one.layer.count, one.own[0]) if one.layer.padded else (sum(one.own),)
        sizes = (*rows, *self._width(tensor.shape))
        return SyntheticOp("aten::clone", (sizes,), (sizes,), *_element(tensor.dtype, tensor.itemsize))


def _element(dtype: str, size: int) -> tuple[str, int]:
    return dtype, itemsize(dtype) or size


def _cat(parts: Sequence[tuple[int, ...]], element: tuple[str, int]) -> SyntheticOp:
    whole = (sum(part[0] for part in parts), *parts[0][1:])
    return SyntheticOp("aten::cat", tuple(parts), (whole,), *element, listed=True)


def _in_proportion(recorded: Sequence[int], total: int) -> list[int]:
    """Split a total into integers in proportion to recorded numbers; the largest remainders are rounded up."""
    whole = sum(recorded)
    exact = [Fraction(number * total, whole or 1) for number in recorded]
    found = [int(share) for share in exact]
    order = sorted(range(len(found)), key=lambda e: (found[e] - exact[e], e))
    for e in order[: total - sum(found)]:
        found[e] += 1
    return found
