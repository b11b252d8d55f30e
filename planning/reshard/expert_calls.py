"""Resize the calls of a routed-experts layer for one rank of an expert-parallel group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...trace.brief import brief
from ..reshape.shapes.extents import Extents
from ..reshape.shapes.terms import Shape
from .experts import GROUPED, Expert, ExpertLayer, parts_of, sliced_extents
from .layout import Routing
from .model import ACCUMULATE, Model, Unit
from .step_calls import SUM, SUM_IN_PLACE, Call, pruned


@dataclass(frozen=True)
class DividedLayer:
    """A layer of experts in one pass, with the extent classes that describe one rank's share of the tokens."""

    layer: ExpertLayer
    unit: int
    own: tuple[int, ...]  # for each expert, the number of tokens from one rank (or the capacity per rank)
    routing: Routing  # source of the token counts
    tokens: tuple[int, ...]  # for each expert, the extent class of its token count (or capacity) on its rank
    total: int  # extent class of the total number of tokens
    experts: int  # number of experts per rank

    __repr__ = brief


class BackwardStages:
    """Groups backward calls into stages, and pairs each call with the index of its forward call.

    Stage 2k + 1 contains the experts of layer k, and stage 2k the calls before these experts.
    """

    def __init__(self, unit: Unit, layers: Sequence[DividedLayer]) -> None:
        place_of = {
            inner.sequence: at for at, call in enumerate(unit.forward) for inner in call.walk() if inner.sequence >= 0
        }
        weights = {
            p: (2 * k + 1, place)
            for k, one in enumerate(layers)
            for expert in one.layer.experts
            for place in expert.places[:1]
            for p in expert.parameters
        }
        weights |= {p: (2 * k + 1, -1) for k, one in enumerate(layers) for p in one.layer.stacked}
        self._calls: dict[int, list[tuple[Call, int]]] = {}
        current = 2 * len(layers), -1
        for call in unit.backward:
            parameter = unit.ready.get(call.row) if ACCUMULATE in call.name else None
            place = next((place_of[inner.sequence] for inner in call.walk() if inner.sequence in place_of), None)
            if parameter in weights:
                current = weights[parameter]
            elif place is not None:
                current = _stage(place, layers), place
            self._calls.setdefault(current[0], []).append((call, current[1]))

    def calls(self, stage: int) -> list[tuple[Call, int]]:
        return self._calls.get(stage, [])


def _stage(place: int, layers: Sequence[DividedLayer]) -> int:
    for k, one in enumerate(layers):
        own = set(one.layer.calls())
        if place in own:
            return 2 * k + 1
        if place < min(own) or (place < one.layer.end and not one.layer.middle[place]):
            return 2 * k
    return 2 * len(layers)


class RankCalls:
    def __init__(self, model: Model, one: DividedLayer, local: range) -> None:
        self._extents, self._one, self._local = model.extents, one, local
        layer, root = one.layer, model.extents.root
        self._expert = {place: e for e, expert in enumerate(layer.experts) for place in expert.places}
        self._experts = {root(p.shape[0]) for p in layer.stacked}
        single = len(layer.experts) == 1 and not layer.padded
        tokens = [one.total] if single else one.tokens
        rows = (token_rows(expert, model.extents) for expert in layer.experts)
        self.token_rows = [{root(row): new} for row, new in zip(rows, tokens, strict=True)]
        self._all = {root: new for rows in self.token_rows for root, new in rows.items()}

    def call(self, call: Call, place: int) -> list[Call]:
        """Return the call at this rank's sizes; an empty list if the expert is on another rank."""
        layer, e = self._one.layer, self._expert.get(place, -1)
        if e >= 0 and len(layer.experts) > 1:
            return [with_shapes(call, lambda shape: self._new(shape, self.token_rows[e]))] if e in self._local else []
        if place in (layer.scatter, layer.gather) and place >= 0:
            chosen = pruned(call, list(self._local), layer.count)
            return [with_shapes(chosen, lambda shape: self._new(shape, self._all))]
        return [self._grouped(call)]

    def _grouped(self, call: Call) -> Call:
        if GROUPED in call.name and self._one.tokens:
            children, parts = parts_of(call, self._one.layer.count)
            new = [self._grouped(child) for child in children]
            for e in self._local if parts else ():
                sliced = dict.fromkeys(sliced_extents(parts[e], self._extents), self._one.tokens[e])
                new += [
                    with_shapes(child, lambda shape, of=sliced: self._new(shape, self._all | of))  # type: ignore[misc]
                    for child in parts[e]
                ]
        else:
            new = [self._grouped(child) for child in call.children]
        alone = with_shapes(replace(call, children=[]), lambda shape: self._new(shape, self._all))
        return replace(alone, children=new)

    def backward(self, calls: Sequence[tuple[Call, int]]) -> Iterator[Call]:
        """Yield this rank's backward calls.

        If one tensor holds the weights of all experts, autograd adds each expert's gradient to the previous sum. The
        first expert of this rank has no previous sum, so its additions are dropped.
        """
        ran = list(dict.fromkeys(self._expert[place] for _, place in calls if place in self._expert))
        first = next((e for e in ran if e in self._local), -1)
        for call, place in calls:
            for mine in self.call(call, place):
                alone = self._one.layer.stacked and self._expert.get(place) == first != ran[0]
                yield replace(mine, children=[c for c in mine.children if not self._adds(c)]) if alone else mine

    def _adds(self, call: Call) -> bool:
        experts = all(shape[:1] == (self._one.experts,) for shape in call.input_shapes)
        return call.name in (SUM.name, SUM_IN_PLACE.name) and experts

    def _new(self, shape: Shape, rows: Mapping[int, int]) -> Shape:
        value, one = self._extents.value, self._one
        found = [rows.get(self._extents.root(extent), extent) for extent in shape]
        size = len(shape)
        for at, extent in enumerate(shape):
            experts = value[extent] == one.layer.count and at == 0
            if experts and (
                size > 2 or self._extents.root(extent) in self._experts or (size == 1 and one.layer.counts)
            ):
                found[at] = one.experts
        return tuple(found)


def token_rows(expert: Expert, extents: Extents) -> int:
    """Return the extent of an expert's tokens; −1 if it is ambiguous."""
    rows = [extent for extent in expert.entry.shape[:-1] if extents.value[extent] != 1]
    rows = rows[1:] if len(expert.entry.shape) > 2 and len(rows) == 2 else rows
    return rows[0] if len(rows) == 1 else -1


def with_shapes(call: Call, new: Callable[[Shape], Shape]) -> Call:
    def side(arguments: Sequence[tuple[Shape | None, ...]]) -> tuple[tuple[Shape | None, ...], ...]:
        return tuple(tuple(None if shape is None else new(shape) for shape in tensors) for tensors in arguments)

    children = [with_shapes(child, new) for child in call.children]
    return replace(call, inputs=side(call.inputs), results=side(call.results), children=children)
