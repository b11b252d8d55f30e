"""Explain, for each unit, what a layout shards and communicates, and the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .derivation import Derivation
from .model import Parameter, Unit
from .plan import partial_results
from .rank_program import communications

_FOUND = {
    "optimizer": "identified as memory that forward reads and the optimizer changes",
    "shapes": "identified as layer weights with the shapes of tensors that the optimizer changes",
    "use": "identified as layer weights, because the optimizer is not recorded",
}


def explain(derivation: Derivation) -> str:
    return "\n".join([*_model(derivation), *_wraps(derivation), *_units(derivation), *_communication(derivation)])


def _model(derivation: Derivation) -> Iterator[str]:
    model = derivation.model
    yield f"parameters: {len(model.parameters)} with {model.elements():,} elements, {_FOUND[model.weights.evidence]}"
    known = {parameter.number for unit in model.units for parameter in unit.ready.values()}
    yield f"gradients: the accumulating call is known for {len(known)} parameters" + (
        f"; {model.unmatched} accumulating calls have no known parameter" if model.unmatched else ""
    )
    if model.buffers:
        written = sum(buffer.written for buffer in model.buffers)
        how = (
            "broadcast in the recording"
            if model.own_buffers
            else f"inferred: {written} written by the forward pass, {len(model.buffers) - written} external constants "
            "without a batch dimension"
        )
        yield f"buffers: {len(model.buffers)}, {how}"
    passes = len(model.passes)
    sizes = [str(model.extents.value[batch]) for batch in model.batches]
    batch = "unknown" if not sizes else " + ".join(sizes)
    recorded = f"{passes} recorded pass{'es' if passes > 1 else ''}"
    yield f"batch: {batch} samples (the most common first dimension of layer inputs) in {recorded}"
    yield from _experts(derivation)
    unknown = derivation.extents.unknown
    if unknown:
        yield (
            f"extents: {len(unknown)} depend on the batch in an unknown way and are scaled proportionally; "
            f"{len(derivation.extents.of_data)} depend on tensor values"
        )


def _experts(derivation: Derivation) -> Iterator[str]:
    layout, seen = derivation.layout, set[int]()
    for one in derivation.experts.layers:
        if one.unit in seen:
            continue
        seen.add(one.unit)
        layer = one.layer
        how = (
            "one GEMM with the weights of all experts"
            if len(layer.experts) < layer.count
            else "identical sequences of calls on separate tokens"
        )
        tokens = (
            f"capacity of {one.own[0]:,} tokens per expert"
            if layer.padded
            else f"{'uniform' if one.routing == 'uniform' else 'recorded'} routing, "
            f"{min(one.own):,} to {max(one.own):,} tokens per expert from each rank"
        )
        divided = f"; {layer.count // layout.ep} on each of {layout.ep} ranks" if layout.ep > 1 else ""
        yield (
            f"experts: {layer.count} in unit {one.unit}, {layer.top} per token: {how} after a router; {tokens}{divided}"
        )


def _wraps(derivation: Derivation) -> Iterator[str]:
    layout, model = derivation.layout, derivation.model
    if layout.zero < 3 or layout.dp == 1:
        return
    evidence = (
        f"--fsdp-wrap {layout.fsdp_wrap}"
        if layout.fsdp_wrap is not None
        else "as recorded"
        if model.wraps
        else "inferred: each repeated block of calls is a unit, and the root has all other calls"
        if model.blocks[1:]
        else "assumed: no block repeats, so all parameters are in the root"
    )
    yield f"FSDP units: {evidence}"
    for wrap in derivation.wraps:
        yield f"  {wrap.label or 'root'}: {len(wrap.parameters)} parameters, units {wrap.units[0]} to {wrap.units[1]}"


def _units(derivation: Derivation) -> Iterator[str]:
    model, layout = derivation.model, derivation.layout
    divided = {division.extent: division for division in derivation.plan.divisions} if layout.tp > 1 else {}
    results = (result for result in partial_results(model, derivation.plan) if not result.number)
    partial = Counter((result.unit, result.forward) for result in results)
    for unit in model.units:
        stage = f", stage {derivation.stages[unit.number]}" if layout.pp > 1 else ""
        yield ""
        yield f"unit {unit.number}{stage}: {unit.forward[0].name} to {unit.forward[-1].name}"
        for parameter in unit.parameters:
            yield f"  {_parameter(derivation, parameter)}"
        if divided:
            yield from _divided(derivation, unit, partial)
        output = tuple(model.extents.sizes(unit.output))
        new = tuple(model.shape(unit.output, derivation.changed))
        alone = "" if unit.alone else ", next to other live activations"
        yield f"  output {_shape(output)}" + (f" becomes {_shape(new)}" if new != output else "") + alone


def _parameter(derivation: Derivation, parameter: Parameter) -> str:
    model = derivation.model
    recorded, new = tuple(model.extents.sizes(parameter.shape)), derivation.sizes(parameter)
    text = f"parameter {parameter.number} {_shape(recorded)}"
    if new != recorded:
        text += f" divided to {_shape(new)}"
    users = len(model.users(parameter))
    if users > 1:
        text += f", tied: used by {users} units"
    if not parameter.accumulates:
        text += ", no gradient"
    return text


def _divided(derivation: Derivation, unit: Unit, partial: Counter[tuple[int, bool]]) -> Iterator[str]:
    for division in derivation.plan.divisions:
        if division.unit == unit.number and (division.columns or division.rows):
            columns, rows = (", ".join(map(str, side)) or "none" for side in (division.columns, division.rows))
            yield (
                f"  tensor parallelism divides {division.size}: dimension 0 of parameters {columns}, and "
                f"dimension 1 of {rows}; no norm or residual has this dimension"
            )
    for forward, where in ((True, "row-parallel layer outputs"), (False, "input gradients of column-parallel layers")):
        if partial[unit.number, forward]:
            yield f"  {partial[unit.number, forward]} partial results ({where}) are reduced over tp"


def _communication(derivation: Derivation) -> Iterator[str]:
    layout = derivation.layout
    for stage in range(layout.pp):
        found = Counter[tuple[str, str]]()
        elements = Counter[tuple[str, str]]()
        for comm in communications(derivation, layout.rank(0, 0, stage)):
            found[comm.dimension, comm.kind] += 1
            elements[comm.dimension, comm.kind] += comm.elements
        yield ""
        yield f"communication of one rank{f' of stage {stage}' if layout.pp > 1 else ''}:" + ("" if found else " none")
        for (dimension, kind), count in sorted(found.items()):
            yield f"  {dimension} {kind}: {count}, {elements[dimension, kind]:,} elements in total"


def _shape(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes)) or "scalar"
