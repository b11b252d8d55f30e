"""Whose gradient each AccumulateGrad of backward is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ..reshape.shapes.extents import Extents
from ..reshape.shapes.terms import match
from .model import Model, Parameter, RecordedWrap, Unit, accumulations
from .step_calls import Call, tensor_values
from .weights import gradients_of


def assign_gradients(model: Model, gathered: Sequence[RecordedWrap] = ()) -> int:
    """Match each AccumulateGrad with its parameter, as `Unit.ready`: by the memory that the optimizer takes, or that
    FSDP reduces; else, of one unit, by shape, last used first.

    Returns:
        how many gradients no parameter is known for.
    """
    known = {} if gathered else gradients_of(model.weights)  # FSDP's optimizer takes parts, in other memory
    unmatched, batches = 0, set(model.batches)

    def of_samples(call: Call) -> bool:  # of an input that requires a gradient, as of a checkpointed part
        shape = next((shape for inner in call.walk() for shape in inner.input_shapes), ())
        return not batches.isdisjoint(model.extents.leaves(shape))

    for one in model.passes:
        calls = [(unit, call) for unit in reversed(one.units) for call in accumulations(unit.backward)]
        taken = dict[int, Parameter]()
        for unit, call in calls:
            owner = _by_memory(call, known, model.extents) or _reduced(call, gathered, model)
            if owner is not None and owner.number not in taken:
                taken[owner.number] = unit.ready[call.row] = owner
                for shape in (shape for inner in call.walk() for shape in inner.input_shapes):
                    match(shape, owner.shape, model.extents)
        for unit in one.units:
            mine = [call for of, call in calls if of is unit and call.row not in unit.ready and not of_samples(call)]
            if mine:
                unmatched += _by_shape(unit, mine, model, set(taken))
                taken |= {parameter.number: parameter for parameter in unit.ready.values()}
    ready = {parameter.number for unit in model.units for parameter in unit.ready.values()}
    for parameter in model.parameters:
        parameter.accumulates = not ready or parameter.number in ready
    return unmatched


def _by_memory(call: Call, known: Mapping[tuple[int, int], Parameter], extents: Extents) -> Parameter | None:
    """The parameter for whose gradient the optimizer takes what the call is given, adds that to, or copies it to: the
    last memory counts, since that of a copied one is used again."""
    for inner in reversed(list(call.walk())):
        for side in ("outputs", "inputs"):
            for value in tensor_values(inner.record.get(side)):
                owner = known.get((value[1], value[2]))
                if owner is not None and prod(extents.sizes(owner.shape)) == value[3]:
                    return owner
    return None


def _reduced(call: Call, gathered: Sequence[RecordedWrap], model: Model) -> Parameter | None:
    """The parameter whose gradient FSDP reduces next out of the memory that the call is given."""
    storages = {value[1] for inner in call.walk() for value in tensor_values(inner.record.get("inputs"))}
    best: tuple[int, Parameter] | None = None
    for unit in gathered:
        for ts, reduced in unit.gradients:
            if ts < call.ts or (best is not None and ts > best[0]) or len(reduced) < len(unit.shards):
                continue
            for storage, shard in zip(reduced, unit.shards, strict=False):
                if storage in storages and shard in model.weights.by_shard:
                    best = ts, model.weights.by_shard[shard]
    return None if best is None else best[1]


def _by_shape(unit: Unit, calls: Sequence[Call], model: Model, taken: set[int]) -> int:
    """Match calls with the parameters of their unit that have no gradient yet; returns how many are left."""
    left, unmatched = [p for p in unit.parameters[::-1] if p.number not in taken], list[Call]()
    for call in calls:
        unmatched.append(call)
        given = [shape for inner in call.walk() for shape in inner.input_shapes]
        if not given:
            continue
        sizes, parts = model.extents.sizes(given[0]), model.parts(given[0])
        alike = [parameter for parameter in left if model.extents.sizes(parameter.shape) == sizes]
        exact = [parameter for parameter in alike if model.parts(parameter.shape) == parts]
        if alike:
            chosen = (exact or alike)[0]
            unit.ready[call.row] = chosen
            left.remove(chosen)
            unmatched.pop()
    ranks = [{len(shape) for one in call.walk() for shape in one.input_shapes} for call in unmatched]
    whole = all(not known or len(of.shape) in known for known, of in zip(ranks, left, strict=False))
    if len(unmatched) == len(left) and whole:  # of distributed tensors, which have other sizes there
        unit.ready |= {call.row: parameter for call, parameter in zip(unmatched, left, strict=True)}
        return 0
    return len(unmatched)
