"""Operator calls in the form that shape rules use, and building blocks of shape rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .extents import Extents

Shape = tuple[int, ...]  # a tensor's extents, each an ID in an `Extents` object


@dataclass(frozen=True)
class Operand:
    tensors: tuple[Shape | None, ...] = ()
    value: Any = None  # the value of an argument that is not a tensor
    masks: tuple[bool, ...] = ()  # for each tensor, True if it is a boolean mask


@dataclass(frozen=True)
class OpCall:
    name: str  # the name that follows "aten::"
    arguments: tuple[Operand, ...]
    results: tuple[Shape, ...]
    temporaries: tuple[Shape, ...] = ()  # tensors that are created inside the call

    def tensor(self, position: int) -> Shape | None:
        """Return the extents of a tensor argument; None if the argument is a list or not a tensor."""
        tensors = self.arguments[position].tensors if position < len(self.arguments) else ()
        return tensors[0] if len(tensors) == 1 else None

    def result(self, position: int = 0) -> Shape | None:
        return self.results[position] if position < len(self.results) else None

    def value(self, position: int) -> Any:
        return self.arguments[position].value if position < len(self.arguments) else None

    @property
    def inputs(self) -> list[Shape]:
        return [shape for argument in self.arguments for shape in argument.tensors if shape is not None]


Rule = Callable[[OpCall, Extents], None]  # a rule records the relations between the extents of a call


def table(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Return one entry per operator name, from keys that contain several names separated by spaces."""
    return {name: rule for names, rule in rules.items() for name in names.split()}


def equal(left: Sequence[int], right: Sequence[int], extents: Extents) -> None:
    if len(left) == len(right):
        for mine, other in zip(left, right, strict=True):
            extents.same(mine, other)


def match(left: Shape, right: Shape, extents: Extents) -> None:
    if extents.sizes(left) == extents.sizes(right):
        equal(left, right, extents)


def broadcast(shapes: Iterable[Shape], extents: Extents) -> None:
    """Merge extents that broadcasting aligns (from the right), except extents of size 1."""
    columns: dict[int, int] = {}
    for shape in shapes:
        for place, extent in enumerate(reversed(shape)):
            if extents.value[extent] > 1:
                extents.same(columns.setdefault(place, extent), extent)


def part(whole: int, part: int, extents: Extents) -> None:
    if extents.value[whole] == extents.value[part]:
        extents.same(whole, part)
    elif extents.value[whole] == extents.value[part] + 1 > 2:
        extents.sum_of(whole, (part, extents.new(1)))
    else:
        extents.follow([part], [whole])


def each(many: int, few: int, extents: Extents) -> None:
    if extents.value[few] and extents.value[many] % extents.value[few] == 0:
        times = extents.new(extents.value[many] // extents.value[few])
        extents.fix([times])
        extents.view([many], [few, times])


def product(pattern: str) -> Rule:
    """Return a rule for an einsum-like pattern such as "mk,kn->mn", with one group of letters per tensor.

    "*" matches any number of extents. "!" after a group marks a parameter. "&" marks a tensor that is broadcast to the
    first result. An empty group adds no relation.
    """
    left, _, right = pattern.partition("->")

    def rule(call: OpCall, extents: Extents) -> None:
        bound: dict[str, int] = {}
        many: dict[int, int] = {}
        for side, find in ((left, call.tensor), (right, call.result)):
            for position, group in enumerate(side.split(",")):
                shape = find(position)
                if shape is None or not group:
                    continue
                if group.endswith("!"):
                    extents.fix(shape)
                if group == "&":
                    broadcast([shape, call.results[0]], extents)
                    continue
                _bind(group.rstrip("!"), shape, extents, bound, many)

    return rule


def _bind(group: str, shape: Shape, extents: Extents, bound: dict[str, int], many: dict[int, int]) -> None:
    """Bind the letters of a group to extents. Extents that match "*" are bound by position from the left."""
    head, star, tail = group.partition("*")
    if len(shape) < len(head) + len(tail) or (not star and len(shape) != len(head)):
        return
    end = len(shape) - len(tail)
    named = [*zip(head, shape, strict=False), *zip(tail, shape[end:], strict=True)]
    for letter, extent in named:
        extents.same(bound.setdefault(letter, extent), extent)
    if star:
        for place, extent in enumerate(shape[len(head) : end]):
            extents.same(many.setdefault(place, extent), extent)
