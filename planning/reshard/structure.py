"""Read the model of a recorded step. `read_model` performs these steps in order:

1. `_Recorded`: follow the shapes through the whole trace (`Shapes`), select the calls of one step, and split them into
   passes (`split_step`). Set aside calls that DDP or FSDP added, because the new layout adds such calls as needed.
2. Find the parameters (`weights.py`), then the batch: the most frequent first extent in layer data (`find_batches`).
3. Find buffers and frozen weights (`buffers.py`), blocks (`blocks.py`) and FSDP units (`wraps.py`).
4. Find the units of the first pass, their backward calls, and the same units in the other passes (`units.py`).
5. Find the parameter of each gradient (`assign_gradients`).

The order matters, because each step merges extent classes that are found to be equal.

Example: a step of a GPT with two blocks has four units (embeddings, block, block, head), each with forward and backward
calls. The classes of the batch and of the sequence are among the output extents of each unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import prod

import numpy as np

from ...trace.columns import matching
from ...trace.errors import UsageError
from ...trace.index import CallIndex
from ...trace.trace import Trace
from ..reshape.shapes.extents import Extents
from ..reshape.shapes.followed_calls import Shapes, shapes_of
from .blocks import CallRange, in_module_order, repeated_blocks, unsure_blocks
from .buffers import (
    SINK,
    find_buffers,
    finds_unused,
    recorded_buffers,
    trace_is_ddp,
    unreached_weights,
    without_buffers,
    without_sink,
)
from .clipping import whole_gradients
from .experts import CHOOSES, find_layers, joined_places
from .items import Shard
from .layout import Layout
from .model import Buffer, Model, RecordedWrap, Unit, Weights, Wrap
from .step_calls import Call, RecordedStep, check_eager, read_step, split_step, step_window, walked
from .units import alive_after, assign_backward, assign_gradients, cut_units, further_pass, relate_loss
from .weights import find_weights, relate_gathered
from .wraps import boundaries, recorded_wraps


@dataclass(frozen=True)
class _Recorded:
    shapes: Shapes
    top: list[Call]
    step: RecordedStep
    window: tuple[int, int]
    passes: list[tuple[list[Call], list[Call]]]
    gathered: list[RecordedWrap]
    buffers: list[Buffer]
    sink: Call | None
    part: Shard | None


def read_model(
    trace: Trace, step: int | None = None, layout: Layout | None = None, begins: Sequence[int] = ()
) -> Model:
    """Detect the structure of a recorded training step, or of an inference step without backward passes.

    If `layout` is None, the recorded job is assumed to be data-parallel over all ranks. `begins` contains the rows
    at which the stages of a recorded pipeline begin; a unit must start at each row.
    """
    recorded = _read_step(trace, step, layout)
    shapes, passes, gathered = recorded.shapes, recorded.passes, recorded.gathered
    weights = _find_weights(recorded)
    batches = find_batches(shapes, [forward for forward, _ in passes])
    forward = [call for part, _ in passes for call in part]
    inferred, frozen = find_buffers(weights, forward, {batch for batch in batches if batch >= 0}, shapes)
    weights.freeze(frozen)
    units, loss, wraps, blocks, loose = _first_pass(trace, recorded, weights, begins)
    loss_backward = assign_backward(units, loss, passes[0][1])
    further = [
        further_pass(trace, units, weights, shapes, part, batch)
        for part, batch in zip(passes[1:], batches[1:], strict=True)
    ]
    before, after = recorded.step.before, recorded.step.after
    kept = whole_gradients(after, weights, shapes) if gathered else after
    own_buffers = bool(recorded.buffers) or trace_is_ddp(trace)
    model = Model(
        trace, shapes.extents, units, weights.parameters, before, loss, loss_backward, kept,
        weights.optimizer, batches[0], tuple(extent for source in shapes.sources for extent in source.shape), further,
        weights, recorded.buffers or ([] if own_buffers else inferred), wraps, blocks, inferred,
        None if recorded.sink is None else next(iter(recorded.sink.input_shapes), None), finds_unused(trace),
        loose, own_buffers, len(unreached_weights(passes, weights)),
        recorded.part.count if recorded.part is not None else 1,
        data=[source.shape for source in shapes.sources if source.data], left_out=_without(after, kept),
        step=recorded.top, window=recorded.window,
    )  # fmt: skip
    relate_loss(model)
    model.unmatched = assign_gradients(model, gathered)
    for wrap in (*model.wraps, *model.blocks):
        wrap.units = _span(wrap, units, weights)
    return model


def _read_step(trace: Trace, step: int | None, layout: Layout | None) -> _Recorded:
    shapes = shapes_of(trace)
    if not shapes.sources:
        check_eager(trace)
        raise UsageError(f"{trace.file}: it has no recorded tensors; record the execution trace with tensors")
    top = read_step(trace, shapes, step)
    split = split_step(top)
    if not split.passes:
        raise UsageError(f"{trace.file}: the step has no operators; give the trace of a step")
    if not any(backward for _, backward in split.passes):  # inference
        check_eager(trace)
    window = step_window(trace, step)
    gathered, buffers = recorded_wraps(trace, *window), recorded_buffers(trace, *window)
    sink = next((call for forward, _ in split.passes for call in forward if call.name == SINK), None)
    passes = [
        (without_sink(without_buffers(forward) if buffers else forward), without_sink(backward))
        for forward, backward in split.passes
    ]
    part = Shard(*_place_in_data_parallel(trace, layout), flat=False) if gathered else None
    return _Recorded(shapes, top, split, window, passes, gathered, buffers, sink, part)


def _place_in_data_parallel(trace: Trace, layout: Layout | None) -> tuple[int, int]:
    world, rank = trace.world_size or 1, trace.rank or 0
    if layout is None or layout.ranks != world:
        return world, rank
    return layout.dp, layout.coordinates(min(max(rank, 0), world - 1)).dp


def _find_weights(recorded: _Recorded) -> Weights:
    shapes, gathered = recorded.shapes, recorded.gathered
    forward = [call for part, _ in recorded.passes for call in part]
    weights = find_weights(recorded.step.steps, shapes, forward, gathered, recorded.part)
    if gathered:
        relate_gathered(weights, (call for part in recorded.passes for side in part for call in side), shapes)
    shapes.extents.fix(extent for parameter in weights.parameters for extent in parameter.shape)
    return weights


def _first_pass(
    trace: Trace, recorded: _Recorded, weights: Weights, begins: Sequence[int]
) -> tuple[list[Unit], list[Call], list[Wrap], list[Wrap], bool]:
    """Return the first pass's units, loss, recorded FSDP units and repeated blocks, and True if blocks are unsure."""
    forward, shapes = recorded.passes[0][0], recorded.shapes
    sizes = {parameter.number: prod(shapes.extents.sizes(parameter.shape)) for parameter in weights.every}
    alive = alive_after(trace, forward, weights)
    joined = joined_places(find_layers(forward, weights, shapes.extents))
    blocks = repeated_blocks(forward, weights, alive, sizes, joined)
    wraps = _recorded_units(recorded.gathered, weights, len(recorded.passes))
    block_wraps, loose = _block_units(forward, blocks, weights, shapes.extents, alive)
    label_of = {number: wrap.label for wrap in wraps or block_wraps for number in wrap.parameters}
    cuts = boundaries(forward, weights, label_of)
    cuts |= set() if wraps else {edge for block in blocks for edge in block}
    cuts |= {place for place, call in enumerate(forward) if call.row in begins}
    units, loss = cut_units(trace, forward, weights, shapes, alive, cuts - joined, joined)
    return units, loss, wraps, block_wraps, loose


def _without(calls: Sequence[Call], kept: Sequence[Call]) -> list[Call]:
    rows = {call.row for call in walked(kept)}
    return [call for call in walked(calls) if call.row not in rows]


def _recorded_units(gathered: Sequence[RecordedWrap], weights: Weights, passes: int) -> list[Wrap]:
    found = list[Wrap]()
    for unit in gathered:
        numbers = sorted(weights.by_shard[shard].number for shard in unit.shards if shard in weights.by_shard)
        found.append(Wrap(unit.label, numbers, again=len(unit.gathered) > passes))
    return found


def _block_units(
    forward: Sequence[Call], blocks: Sequence[CallRange], weights: Weights, extents: Extents, alive: Sequence[int]
) -> tuple[list[Wrap], bool]:
    taken, seen = list[set[int]](), set[int]()
    for block in blocks:
        taken.append({p.number for call in walked(forward[block.begin : block.end]) for p in weights.read(call)} - seen)
        seen |= taken[-1]
    known, loose = [sorted(block) for block in taken], unsure_blocks(forward, blocks, weights, alive)
    if weights.evidence == "optimizer":
        ordered = {parameter.number: extents.sizes(parameter.shape) for parameter in weights.parameters}
        own, more = in_module_order([block & ordered.keys() for block in taken], ordered)
        loose |= more
        frozen = [sorted(block - ordered.keys()) for block in taken]
        frozen += [[]] * (len(own) - len(taken))
        known = [numbers + others for numbers, others in zip(own, frozen, strict=True)]
    found = [Wrap(f"block {number}", numbers) for number, numbers in enumerate(known)]
    in_blocks = {number for wrap in found for number in wrap.parameters}
    root = [parameter.number for parameter in weights.every if parameter.number not in in_blocks]
    return [*([Wrap("", root)] if root else []), *found], loose


def _span(wrap: Wrap, units: Sequence[Unit], weights: Weights) -> tuple[int, int]:
    numbers = set(wrap.parameters)
    owners = [unit.number for unit in units if any(p.number in numbers for p in unit.parameters)]
    if not owners:
        owners = [
            unit.number
            for unit in units
            for call in walked(unit.forward)
            for p in weights.read(call)
            if p.number in numbers
        ]
    return (min(owners), max(owners)) if owners else (-1, -1)


def find_batches(shapes: Shapes, passes: Sequence[Sequence[Call]]) -> list[int]:
    """Return the likely batch dimension of each pass: the most frequent first extent in the data of layers.

    Extents along which operators mix elements are chosen only if there is no other candidate, because the sequence may
    be the first dimension. If most data has only one sample, return −1, because the next extent is then a sequence.
    """
    pass_of = {call.row: k for k, part in enumerate(passes) for call in walked(part)}
    fixed, leaves = shapes.extents.fixed(), shapes.extents.leaves
    firsts = {root for source in shapes.sources if source.data for root in leaves(source.shape[:1])}
    together = [set(leaves(outer)) for outer in shapes.votes]
    mixed = set(leaves(shapes.mixed))
    found = []
    for k in range(len(passes)):
        votes, single = Counter[int](), Counter[bool]()
        for row, outer in zip(shapes.voters, shapes.votes, strict=True):
            if pass_of.get(row, 0 if len(passes) == 1 else -1) == k:
                classes = leaves(outer)
                single.update([shapes.extents.sizes(outer)[0] == 1] if len(outer) > 1 else ())
                apart = [root for root in classes if root not in mixed and root not in fixed]
                votes.update((apart or classes)[:1])
        ranked = [root for root, _ in votes.most_common() if root not in fixed and shapes.extents.value[root] > 1]
        if not ranked or single[True] > single[False]:
            found.append(-1)
            continue
        for other in ranked[1:]:  # `other` is the batch dimension of another external tensor
            if other in firsts and not any({ranked[0], other} <= outer for outer in together):
                shapes.extents.same(ranked[0], other)
        found.append(_part_of_batch(shapes.extents.root(ranked[0]), shapes, firsts))
    return [batch if batch < 0 else shapes.extents.root(batch) for batch in found]


def _part_of_batch(batch: int, shapes: Shapes, firsts: Set[int]) -> int:
    """If the batch is a concatenation of equal parts, such as pairs, return one part's extent, otherwise `batch`.

    If the concatenated batch is later split into equal parts, the parts have the same class. `firsts` contains the
    first extents of external tensors.
    """
    extents = shapes.extents
    sums = [parts for whole, parts in extents.sums if whole == batch]
    divided = (parts for whole, parts in extents.sums if whole in firsts)
    given = set(firsts).union(*(parts for parts in divided if len(set(extents.sizes(parts))) == 1))  # microbatches
    for parts in sums:
        if len(set(extents.sizes(parts))) == 1 and set(parts) <= given:
            for part in parts:
                extents.same(parts[0], part)
    sums = [extents.roots(parts) for parts in sums]
    joined = next((parts for parts in sums if len(set(parts)) == 1), None)
    if joined is None:
        return batch
    for parts in sums:
        if extents.sizes(parts) == extents.sizes(joined):
            for part in parts:
                extents.same(joined[0], part)
    return extents.root(joined[0])


_MARKS = {
    "fsdp": ("FSDP::", "fsdp::"),
    "fsdp1": ("FullyShardedDataParallel",),
    "tp": ("Redistribute", "_ToTorchTensor"),
    "pp": ("c10d::send", "c10d::recv_", "gloo:send", "gloo:recv", "nccl:send", "nccl:recv"),
    "dp": ("DistributedDataParallel.forward", "torch::distributed::reducer"),
}


def recorded_layout(traces: Sequence[Trace]) -> Layout:
    """Detect the layout of a recorded job.

    DTensor wrappers indicate tensor parallelism; calls of the DDP reducer or FSDP indicate data parallelism. A job with
    point-to-point messages is a pipeline. It has one stage per rank, or per member of the most widely spread group.
    """
    trace = traces[0]
    names = set(trace.names)
    if any(name.startswith("c10d::alltoall") for name in names) and not CHOOSES.isdisjoint(names):
        raise _refused(trace, "experts sharded over ranks (all-to-all of tokens)")
    found = {kind for kind, marks in _MARKS.items() if any(name.startswith(marks) for name in names)}
    world = trace.world_size or 1
    if world == 1:
        return Layout()
    if "fsdp1" in found:
        raise _refused(trace, "FSDP1")
    if "pp" in found:
        if "fsdp" in found:
            raise _refused(trace, "FSDP within a pipeline")
        return _of_pipeline(trace, world, divided="tp" in found)
    if "fsdp" in found:
        shards = _gathered_from(trace) or world
        if world % shards or (shards != world and "tp" not in found):
            raise _refused(trace, f"FSDP over {shards} of {world} ranks")
        return Layout(tp=world // shards, dp=shards, zero=3)
    if "tp" not in found:
        return Layout(dp=world)
    sizes = {len(ranks) for ranks in trace.process_groups.values() if len(ranks) > 1}
    if "dp" not in found or len(sizes) < 2:
        return Layout(tp=world)
    tp = min(sizes)
    return Layout(tp=tp, dp=world // tp)


def _of_pipeline(trace: Trace, world: int, *, divided: bool) -> Layout:
    rank = trace.rank or 0
    groups = [ranks for ranks in trace.process_groups.values() if 1 < len(ranks) < world and rank in ranks]
    if not groups:
        return Layout(pp=world)
    strides = {max(ranks) - min(ranks): len(ranks) for ranks in groups}
    stages = strides[max(strides)]
    tp = strides[min(strides)] if divided and len(strides) > 1 else 1
    if world % (stages * tp):
        raise _refused(trace, f"groups of {stages} and {tp} ranks of {world}")
    return Layout(tp=tp, dp=world // (stages * tp), pp=stages)


def _refused(trace: Trace, what: str) -> UsageError:
    return UsageError(
        f"{trace.file}: recorded with {what}, which is not supported; "
        "give a recording of one rank, of tensor- or data-parallel ranks, or of a pipeline"
    )


def _gathered_from(trace: Trace) -> int:
    """Return the number of ranks that FSDP2 gathers parameters from; 0 if no gathers are recorded."""
    calls, names = trace.calls, trace.names
    gathers = matching(calls.name, names, lambda name: name.startswith("c10d::_allgather_base_"))
    for call in np.flatnonzero(gathers).tolist():
        above = int(calls.parent[call])
        signature = trace.signature_of(CallIndex(call))
        if above >= 0 and names[calls.name[above]].startswith("FSDP::all_gather") and signature is not None:
            whole, part = (tensor.numel for tensor in signature.tensors[:2])
            return whole // max(part, 1)
    return 0
