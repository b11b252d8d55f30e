"""What could not be derived: operators whose extents cannot be followed, parameters that no rule divides."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from ..trace.brief import brief
from .program import Derivation

__all__ = ["NotDerived", "not_derived"]


@dataclass(frozen=True)
class NotDerived:
    """Something that stays as it was recorded.

    Attributes:
        what: the operator, or the kind of parameters. reason: why.
        count: calls or parameters. share: of the recorded operators' own time, or of the parameters' elements.
    """

    what: str
    reason: str
    count: int
    share: float

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def not_derived(derivation: Derivation) -> tuple[NotDerived, ...]:
    """Operators with an extent that follows from divided ones in an unknown way; parameters that stay whole."""
    model = derivation.model
    extents, changed = model.extents, derivation.changed
    loose: set[int] = set()
    related = {leaf for whole, parts in extents.sums for leaf in extents.leaves([whole, *parts])}
    for some, basis in extents.following:
        moved = [one for one in extents.leaves(basis) if one in changed]
        if moved:
            loose |= {
                leaf for leaf in extents.leaves(some)
                if leaf not in changed and leaf not in related
                and any(extents.value[leaf] % extents.value[one] == 0 for one in moved) and extents.value[leaf] > 1
            }  # fmt: skip
    loose -= set(extents.leaves(model.given))
    count, time = Counter[str](), Counter[str]()
    whole = 0
    self_ns = model.trace.self_ns
    for call in model.calls():
        own = int(self_ns[call.index])
        whole += own
        if any(not loose.isdisjoint(extents.leaves(shape)) for shape in call.shapes):
            count[call.name] += 1
            time[call.name] += own
    found = [
        NotDerived(name, "an extent follows from divided ones in an unknown way", number, time[name] / max(whole, 1))
        for name, number in count.items()
    ]
    if derivation.layout.tp > 1:
        divided = derivation.plan.divided
        kept = [one for one in model.parameters
                if len(one.shape) > 1 and divided.isdisjoint(extents.leaves(one.shape))]  # fmt: skip
        elements = sum(prod(extents.value[e] for e in one.shape) for one in model.parameters)
        if kept:
            mine = sum(prod(extents.value[e] for e in one.shape) for one in kept)
            found.append(
                NotDerived("parameters", "whole on every tensor-parallel rank", len(kept), mine / max(elements, 1))
            )
    return tuple(sorted(found, key=lambda one: (-one.share, one.what)))
