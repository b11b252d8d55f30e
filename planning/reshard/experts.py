"""Find layers of routed experts: the calls of each expert, and the tensors that enter and leave it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import NamedTuple

from ...trace.brief import brief
from ...trace.dtypes import is_floating
from ..reshape.shapes.extents import Extents
from .model import GivenTensor, Parameter, Weights, given_tensors
from .step_calls import VIEWS, Call

# A router uses such an operator to choose experts along the last dimension of the scores.
CHOOSES = frozenset(("aten::topk", "aten::max", "aten::argmax", "aten::sort"))
GROUPED = "grouped_mm"  # the names of GEMMs over all experts contain this string
_STACKED_DIMS = 3  # a tensor with all experts' weights has three dimensions: experts, rows, columns


class TensorOrigin(NamedTuple):
    """A tensor, identified by its number and the index of the call that created it (−1 for an external tensor)."""

    place: int
    number: int


@dataclass(frozen=True)
class Expert:
    """One expert, or all experts of a layer if one GEMM computes them together."""

    places: tuple[int, ...]  # indices of the expert's calls in the forward pass
    parameters: tuple[Parameter, ...]  # parameters that only this expert uses
    entry: GivenTensor
    exit: GivenTensor
    entered: TensorOrigin  # origin of `entry`
    left: TensorOrigin  # origin of `exit`
    contiguous: bool = True  # True if `entry` is contiguous, so that it can be sent without a copy

    __repr__ = brief


@dataclass(frozen=True)
class ExpertLayer:
    count: int
    top: int  # number of experts chosen per token
    router: int  # index of the call that chooses experts
    experts: tuple[Expert, ...]  # the experts in order; a single entry if one GEMM computes all of them
    stacked: tuple[Parameter, ...]  # parameters with the expert as first dimension
    scatter: int = -1  # index of the call that distributes tokens; −1 if each expert selects its own tokens
    gather: int = -1  # index of the call that joins the outputs
    counts: tuple[int, ...] = ()  # indices of the calls that compute token counts
    whole: tuple[bool, bool] = (True, True)  # before and after the experts: True if one tensor holds all tokens
    grouped: tuple[int, ...] = ()  # each expert's token extent, if one operator calls all GEMMs
    # for each other call between experts, True if it uses expert results or only prepares a call that does
    middle: Mapping[int, bool] = field(default_factory=dict)

    __repr__ = brief

    @property
    def end(self) -> int:
        return max(self.gather, *(place for expert in self.experts for place in expert.places)) + 1

    @property
    def padded(self) -> bool:
        """True if each expert has a fixed capacity for tokens."""
        return len(self.experts[0].entry.shape) == _STACKED_DIMS

    def calls(self) -> Iterator[int]:
        for expert in self.experts:
            yield from expert.places
        yield from (place for place in (self.scatter, self.gather, *self.counts) if place >= 0)


def find_layers(calls: Sequence[Call], weights: Weights, extents: Extents) -> list[ExpertLayer]:
    """Find layers of routed experts among the topmost calls of a forward pass.

    A router call chooses among E scores per token. The router is followed by E equal runs of calls with separate
    parameters and tokens, or by GEMMs with weights that have E as the first dimension. Layers in which every expert
    processes all tokens are ignored.
    """
    routers = [(at, *chosen) for at, call in enumerate(calls) if (chosen := _choice(call, extents)) is not None]
    found = list[ExpertLayer]()
    bounds = [at for at, *_ in routers] + [len(calls)]
    for (at, count, top, rows), (_, end) in zip(routers, pairwise(bounds), strict=True):
        span = _ExpertSpan(calls, at, end, weights, extents, count, rows)
        layer = span.layer(top)
        if layer is not None:
            found.append(layer)
    return found


def _choice(call: Call, extents: Extents) -> tuple[int, int, set[int]] | None:
    """Return the number of experts, experts per token, and token classes; None if the call is not a router."""
    chooses = next((inner for inner in call.walk() if inner.name in CHOOSES), None)
    if chooses is None or not chooses.input_shapes or len(chooses.input_shapes[0]) < 2:
        return None
    *rows, scores = chooses.input_shapes[0]
    result = next(iter(chooses.output_shapes), ())
    count = extents.value[scores]
    top = extents.value[result[-1]] if len(result) == len(rows) + 1 else 1
    tokens = {leaf for leaf in extents.leaves(rows) if extents.value[leaf] > 1}
    return (count, 1 if top == count else top, tokens) if count > 1 and tokens else None


class _ExpertSpan:
    """The calls after a router, up to the next router."""

    def __init__(
        self,
        calls: Sequence[Call],
        router: int,
        end: int,
        weights: Weights,
        extents: Extents,
        count: int,
        tokens: Set[int],
    ) -> None:
        self.calls, self.router, self.end = calls, router, end
        self.weights, self.extents, self.count, self.tokens = weights, extents, count, tokens
        self.taken, self.made = dict[int, set[TensorOrigin]](), dict[int, set[TensorOrigin]]()
        self.users = defaultdict[TensorOrigin, set[int]](set)
        current: dict[tuple[int, ...], TensorOrigin] = {}  # PyTorch reuses a tensor number after the tensor is freed
        for at in range(router, len(calls)):
            given, made = (
                {tuple(value[:4]): value[0] for value in calls[at].tensors(side)} for side in ("inputs", "outputs")
            )
            self.taken[at] = {current.setdefault(key, TensorOrigin(-1, number)) for key, number in given.items()}
            for origin in self.taken[at]:
                self.users[origin].add(at)
            new = {key: TensorOrigin(at, number) for key, number in made.items() if key not in given}
            self.made[at] = set(new.values())
            current |= new
        self.uses = {at: used for at in range(router + 1, end) if (used := self._used(calls[at]))}

    def layer(self, top: int) -> ExpertLayer | None:
        stacked = {
            p: None
            for used in self.uses.values()
            for p, part in used.items()
            if part is None and len(p.shape) >= _STACKED_DIMS and self.extents.value[p.shape[0]] == self.count
        }
        return self._of_products(tuple(stacked), top) if stacked else self._of_runs(top)

    def _used(self, call: Call) -> dict[Parameter, int | None]:
        """Return the parameters that a call uses, and the offset of the used part (None for the whole parameter)."""
        found: dict[Parameter, int | None] = {}
        made = list(call.tensors("outputs"))
        for inner in call.walk():
            for value in inner.tensors("inputs"):
                for parameter in self.weights.within(value):
                    views = [out for out in made if out[1] == value[1] and out[3] < parameter.elements]
                    part = value if value[3] < parameter.elements else views[0] if views else None
                    if part is not None or parameter not in found:
                        found.setdefault(parameter, None if part is None else part[2])
        return found

    def _of_products(self, weights: tuple[Parameter, ...], top: int) -> ExpertLayer | None:
        of_experts = [at for at, used in self.uses.items() if not set(weights).isdisjoint(used)]
        beside = {p for at in of_experts for p in self.uses[at] if p not in weights}
        places = list(range(of_experts[0], of_experts[-1] + 1))
        counts = self._counts(places)
        places = [at for at in places if at not in counts]
        expert = None if beside else self._expert_of(places, ())
        product = next((inner for at in places for inner in self.calls[at].walk() if GROUPED in inner.name), None)
        if expert is None or not (self._padded(expert.entry) or product is not None):
            return None
        calls = [] if product is None else parts_of(product, self.count)[1]
        parts = [sliced_extents(part, self.extents) for part in calls]
        grouped = tuple(next(iter(part)) for part in parts if part)
        return ExpertLayer(
            self.count,
            top,
            self.router,
            (expert,),
            weights,
            counts=counts,
            grouped=grouped if len(grouped) == self.count and not self._padded(expert.entry) else (),
        )

    def _padded(self, entry: GivenTensor) -> bool:
        shape, value = entry.shape, self.extents.value
        rows = {leaf for leaf in self.extents.leaves(shape[1:-1]) if value[leaf] > 1}
        return len(shape) == _STACKED_DIMS and value[shape[0]] == self.count and rows.isdisjoint(self.tokens)

    def _of_runs(self, top: int) -> ExpertLayer | None:
        uses = {at: used for at, used in self.uses.items() if self._own_tokens(at, used)}
        places = list(uses)
        if not places or len(places) % self.count:
            return None
        each = len(places) // self.count
        chunks = [places[k * each : (k + 1) * each] for k in range(self.count)]
        taken = [{(p, part) for at in chunk for p, part in uses[at].items()} for chunk in chunks]
        alike = len({tuple(map(self._kind, chunk)) for chunk in chunks}) == 1
        if not alike or sum(map(len, taken)) != len(set().union(*taken)):
            return None
        experts = list[Expert]()
        for chunk, mine in zip(chunks, taken, strict=True):
            expert = self._expert_of(self._between(chunk), {p for p, part in mine if part is None})
            if expert is None:
                return None
            experts.append(expert)
        stacked = {p: None for mine in taken for p, part in mine if part is not None}
        scatter, gather = self._scatter(experts), self._gather(experts)
        whole = scatter >= 0 or len({expert.entered for expert in experts}) == 1, gather >= 0
        layer = ExpertLayer(
            self.count,
            top,
            self.router,
            tuple(experts),
            tuple(sorted(stacked, key=lambda p: p.number)),
            scatter,
            gather,
            whole=whole,
        )
        return replace(layer, middle=self._middle(layer))

    def _own_tokens(self, at: int, used: Mapping[Parameter, int | None]) -> bool:
        """Return whether the number of rows in a call's data is independent of the number of samples."""
        data = [given for given in given_tensors(self.calls[at]) if not self._weight(given)]
        rows = {leaf for given in data for leaf in self.extents.leaves(given.shape[:-1])}
        return rows.isdisjoint(self.tokens) if data else all(part is not None for part in used.values())

    def _weight(self, given: GivenTensor) -> bool:
        return bool(self.weights.within((given.number, given.storage, given.offset, 0)))

    def _kind(self, at: int) -> tuple[object, ...]:
        sizes = tuple(tuple(self.extents.sizes(parameter.shape)) for parameter in self.uses[at])
        return (self.calls[at].name, sizes)

    def _between(self, uses: Sequence[int]) -> list[int]:
        made, places = set[TensorOrigin](), list[int]()
        for at in range(uses[0], uses[-1] + 1):
            if at in uses or not made.isdisjoint(self.taken[at]):
                places.append(at)
                made |= self.made[at]
        return places

    def _expert_of(self, places: list[int], parameters: Iterable[Parameter]) -> Expert | None:
        """Return the expert if it has a single input and output, including views created only for the expert."""
        mine = set(places)
        made = set[TensorOrigin]().union(*(self.made[at] for at in places))
        entered = {
            origin: given
            for at in places
            for given in given_tensors(self.calls[at])
            for origin in self.taken[at] - made
            if origin.number == given.number and is_floating(given.dtype) and not self._weight(given)
        }
        left = [origin for origin in made if not self.users[origin] <= mine]
        if len(entered) != 1 or len(left) != 1:
            return None
        (origin, entry), (out,) = *entered.items(), left
        maker = origin.place
        views = maker > self.router and self.calls[maker].name in VIEWS and self.made[maker] == {origin}
        if views and self.users[origin] <= mine:
            outer = self._expert_of([maker, *places], parameters)
            return None if outer is None else replace(outer, entry=entry)
        exit_ = next(given for given in returned(self.calls[out.place]) if given.number == out.number)
        own = tuple(sorted(parameters, key=lambda parameter: parameter.number))
        taker = next(at for at in places if origin in self.taken[at])
        return Expert(tuple(places), own, entry, exit_, origin, out, contiguous(self.calls[taker], origin.number))

    def _counts(self, places: Sequence[int]) -> tuple[int, ...]:
        """Return the calls that compute the offsets at which the experts' tokens end."""
        mine = {at for at in places if not self._integers(at)}
        found = set[int]()
        for at in range(places[-1], self.router, -1):
            if at not in mine and self._integers(at) and all(self.users[one] <= mine | found for one in self.made[at]):
                found.add(at)
        return tuple(sorted(found))

    def _integers(self, at: int) -> bool:
        made = [given for given in returned(self.calls[at]) if TensorOrigin(at, given.number) in self.made[at]]
        return bool(made) and not any(is_floating(given.dtype) for given in made)

    def _scatter(self, experts: Sequence[Expert]) -> int:
        """Return the call that distributes the tokens to the experts, with one tensor per expert; −1 if none does."""
        places, entered = {one.entered.place for one in experts}, {one.entered for one in experts}
        at = places.pop() if len(places) == 1 else -1
        return at if at > self.router and len(entered) == len(experts) and self.made[at] == entered else -1

    def _gather(self, experts: Sequence[Expert]) -> int:
        """Return the call that takes the outputs of all experts and no other tensors; −1 if none does."""
        left = {one.left for one in experts}
        users = {at for one in left for at in self.users[one]} - {at for one in experts for at in one.places}
        at = users.pop() if len(users) == 1 else -1
        return at if at >= 0 and self.taken[at] == left else -1

    def _middle(self, layer: ExpertLayer) -> dict[int, bool]:
        """Map each other call between experts to True if it uses expert results or only prepares calls that do."""
        own, made = set(layer.calls()), {expert.left for expert in layer.experts}
        found = dict[int, bool]()
        for at in range(min(own), layer.end):
            if at not in own:
                found[at] = not made.isdisjoint(self.taken[at])
                made |= self.made[at] if found[at] else set()
        for at in sorted(found, reverse=True):
            users = set[int]().union(*(self.users[one] for one in self.made[at]))
            found[at] |= bool(users) and all(found.get(user, user >= layer.end) for user in users)
        return found


def returned(call: Call) -> list[GivenTensor]:
    """Return the tensors that a call returns; an empty list if they are not fully recorded."""
    values = list(call.tensors("outputs"))
    outputs = call.signature.outputs or () if call.signature is not None else ()
    if not len(values) == len(call.output_shapes) == len(outputs):
        return []
    return [
        GivenTensor(value[0], shape, tensor.dtype, value[4], value[1], value[2])
        for value, shape, tensor in zip(values, call.output_shapes, outputs, strict=True)
    ]


def contiguous(call: Call, number: int) -> bool:
    """Return whether an input tensor is contiguous; True if its strides were not recorded."""
    given = call.record.get("inputs", {})
    for value, shape, strides in zip(*(given.get(key, ()) for key in ("values", "shapes", "strides")), strict=False):
        if isinstance(value, list) and value[:1] == [number] and strides:
            expected = [prod(shape[at + 1 :]) for at in range(len(shape))]
            return all(size == 1 or step == right for size, step, right in zip(shape, strides, expected, strict=False))
    return True


def parts_of(call: Call, count: int) -> tuple[list[Call], list[list[Call]]]:
    """Split the callees of a call on a list into shared callees, and a list of callees for each list entry."""
    each, before = divmod(len(call.children), count)
    parts = [call.children[before + e * each : before + (e + 1) * each] for e in range(count)]
    if not each or len({tuple(child.name for child in part) for part in parts}) > 1:
        return call.children, []
    return call.children[:before], parts


def sliced_extents(calls: Iterable[Call], extents: Extents) -> dict[int, None]:
    pairs = (
        pair
        for call in calls
        if call.name == "aten::slice"
        for before, after in zip(call.input_shapes, call.output_shapes, strict=False)
        for pair in zip(before, after, strict=False)
    )
    return {extents.root(new): None for old, new in pairs if extents.root(old) != extents.root(new)}


def joined_places(layers: Iterable[ExpertLayer]) -> set[int]:
    return {place for layer in layers for place in range(layer.router + 1, layer.end)}
