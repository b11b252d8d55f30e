"""Communication of FSDP2 units: all-gather of parameters, reduce-scatter of gradients, and the copies around them.

Example: a unit of two parameters of 6 and 4 rows over 4 ranks. Ranks keep 2 and 1 rows; each unit is padded to 4 × (2
rows + 1 row) when it is gathered and when its gradients are reduced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .derivation import Derivation
from .items import CommOp, CommWait, Item, Shard, SyntheticOp
from .layout import Layout
from .model import ACCUMULATE, Unit, Weights, Wrap
from .step_calls import VIEWS, tensor_values


class _Group(NamedTuple):
    """Parameters of a unit with one dtype: their sizes, and the elements of the largest part of each."""

    dtype: str
    itemsize: int
    sizes: list[tuple[int, ...]]
    parts: list[int]


def _by_dtype(derivation: Derivation, wrap: Wrap, *, reduced: bool = False) -> Iterator[_Group]:
    by_number = {parameter.number: parameter for parameter in derivation.model.every_parameter}
    shard = Shard(derivation.layout.dp, 0, flat=False)
    found: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for parameter in (by_number[number] for number in wrap.parameters):
        if parameter.accumulates or not reduced:
            found.setdefault((parameter.dtype, parameter.itemsize), []).append(derivation.sizes(parameter))
    for (dtype, itemsize), sizes in found.items():
        yield _Group(dtype, itemsize, sizes, [shard.padded(size) for size in sizes])


def start_gather(derivation: Derivation, wrap: Wrap, what: str) -> Iterator[Item]:
    """All-gather the parameters of a unit."""
    count = derivation.layout.dp
    for group in _by_dtype(derivation, wrap):
        part, dtype, size = sum(group.parts), group.dtype, group.itemsize
        copied = tuple((elements,) for elements in group.parts)
        yield SyntheticOp("fsdp::all_gather_copy_in", (*copied, (part * count,)), ((part,),), dtype, size)
        yield CommOp("all_gather", "dp", (part,), part * count, dtype, size, key=f"{what} {wrap.label} {dtype}")


def gathered(derivation: Derivation, wrap: Wrap, what: str) -> Iterator[Item]:
    """Wait for the parameters of a unit, and copy them out."""
    count = derivation.layout.dp
    for group in _by_dtype(derivation, wrap):
        yield CommWait((f"{what} {wrap.label} {group.dtype}",))
        given = ((count, sum(group.parts)), *((count, part) for part in group.parts))
        yield SyntheticOp("fsdp::split_with_sizes_copy", given, (), group.dtype, group.itemsize)


def scattered(derivation: Derivation, wrap: Wrap, shard: Shard | None, *, added: bool) -> Iterator[Item]:
    """Reduce-scatter the gradients of a unit, and add them to those of earlier microbatches."""
    assert shard is not None
    count = derivation.layout.dp
    for dtype, size, own, parts in _by_dtype(derivation, wrap, reduced=True):
        copied = (*own, (count, sum(parts)))
        yield SyntheticOp("fsdp::chunk_cat_mixed_dtype", copied, (), dtype, size, wrap=wrap.label)
        yield CommOp("reduce_scatter", "dp", (sum(parts) * count,), sum(parts), dtype, size)
        for sizes in own if added else ():
            part = tuple(shard.of(sizes))
            yield SyntheticOp("aten::add_", (part, part), (part,), dtype, size)


def late_units(units: Sequence[Unit], wraps: Sequence[Wrap], weights: Weights, recorded: Layout) -> list[Wrap]:
    """FSDP units that take data alone, which has no gradient.

    FSDP ends their backward after the root's, in the order of modules (`_root_post_backward_final_callback` in
    torch/distributed/fsdp/_fully_shard/_fsdp_state.py).
    """
    data = (call for unit in units for call in unit.backward if call.row not in unit.ready)
    if not wraps or any(ACCUMULATE in call.name for call in data):
        return []
    calls = [call for unit in units for call in unit.forward]
    read = [{p.number for inner in call.walk() for p in weights.taken(inner)} for call in calls]
    wrap_of: dict[int, Wrap] = {}  # by place: the unit whose parameters are used before and after
    for wrap in wraps:
        uses = [place for place, numbers in enumerate(read) if not numbers.isdisjoint(wrap.parameters)]
        wrap_of |= dict.fromkeys(range(uses[0], uses[-1] + 1) if uses and not wrap.root else (), wrap)
    made: dict[int, Wrap | None] = {}  # by storage of what depends on parameters: the unit that made it
    takes = set[Wrap | None]()
    for place, call in enumerate(calls):
        wrap_here = wrap_of.get(place)
        given, new = ({value[1] for value in tensor_values(call.record.get(side))} for side in ("inputs", "outputs"))
        new -= given if call.name in VIEWS else set()
        of_others = given & made.keys()
        if any(made[storage] is not wrap_here for storage in of_others):
            takes.add(wrap_here)
        if of_others or read[place]:
            made |= {storage: made[storage] if storage in of_others else wrap_here for storage in new}
        else:
            made = {storage: by for storage, by in made.items() if storage not in new}
    found = [wrap for wrap in wraps if not wrap.root]
    if recorded.tp > 1:  # what ranks have reduced is another tensor
        found = found[:1]
    return sorted((wrap for wrap in found if wrap not in takes), key=lambda wrap: wrap.parameters)
