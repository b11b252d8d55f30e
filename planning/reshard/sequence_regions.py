"""Sequence parallelism: calls that work on part of the sequence, and the gathers and scatters between calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from math import prod

from ...trace.errors import UsageError
from .items import CommOp, Item, RecordedOp
from .layout import Layout
from .model import Model, Parameter, Unit


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
