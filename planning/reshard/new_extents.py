"""What the extents of a recording are in another layout: divided ones, the batch, and what follows from both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...trace.brief import brief
from ..reshape.reshape import in_proportion

if TYPE_CHECKING:
    from .structure import Model

_OF_DATA = frozenset((
    "aten::nonzero", "aten::nonzero_numpy", "aten::masked_select", "aten::_unique2", "aten::bincount",
))  # fmt: skip
"""Operators whose results have sizes that depend on values."""


@dataclass(frozen=True)
class NewExtents:
    """New values of classes of extents.

    Attributes:
        changed: new values of the classes that change. batch: those of them that were given for the batch.
        unknown: classes that follow changed ones in an unknown way; they are taken in proportion.
        of_data: those of them that depend on values, such as how many tokens a router sends to an expert.
    """

    changed: dict[int, int]
    unknown: frozenset[int] = field(default_factory=frozenset)
    of_data: frozenset[int] = field(default_factory=frozenset)

    __repr__ = brief


def new_extents(model: Model, divided: Mapping[int, int], batch: Mapping[int, int]) -> NewExtents:
    """Carry another batch through all relations of the extents (`Extents.solve`).

    Args:
        divided: new values of what tensor parallelism divides. batch: of the batch extents, also where they stay.
    """
    extents = model.extents
    moved = {root: new for root, new in batch.items() if extents.value[root] != new}
    if not moved:
        return NewExtents(dict(divided))
    known = extents.solve(moved, list(model.data))
    products, sums = extents.products, {whole for whole, _ in extents.sums}
    changed = {
        root: new for root, new in known.items()
        if new != extents.value[root] and root not in products and root not in sums
    } | moved  # fmt: skip
    likely = in_proportion(extents, known)
    used = {root for call in model.calls() for shape in call.shapes for root in extents.leaves(shape)}
    stay = _beside_batch(model, moved) | _as_others(model, known, likely)
    unknown = frozenset(
        root for root in used if root not in known and root not in sums and root not in divided and root not in stay
    )
    of_data = frozenset(
        root for call in model.calls() if call.name in _OF_DATA
        for shape in call.output_shapes for root in extents.leaves(shape[:1]) if root not in moved
    )  # fmt: skip
    changed |= {root: new for root, new in likely.items() if root in unknown or root in of_data}
    return NewExtents(changed | dict(divided), unknown | of_data, of_data)


def _as_others(model: Model, known: Mapping[int, int], likely: Mapping[int, int]) -> set[int]:
    """Classes that follow nothing, such as a mask's that is made of a number: with the value of others that stay, and
    of none that change."""
    value = model.extents.value
    sizes = {value[root] for root, new in known.items() if new == value[root]}
    sizes -= {value[root] for root, new in known.items() if new != value[root]}
    return {root for root, size in enumerate(value) if root not in known and root not in likely and size in sizes}


def _beside_batch(model: Model, moved: Mapping[int, int]) -> set[int]:
    """Classes that one tensor has beside the batch and that are not a multiple of it, such as the layers of a recurrent
    state: of the extents of a tensor one counts samples."""
    extents, periods = model.extents, {model.extents.value[root] for root in moved}
    found = set[int]()
    for shape in (shape for call in model.calls() for shape in call.shapes):
        roots = {extents.root(extent) for extent in shape}
        if not roots.isdisjoint(moved):
            found |= {root for root in roots - moved.keys() if all(extents.value[root] % size for size in periods)}
    return found
