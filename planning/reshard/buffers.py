"""Find the buffers of a model. DistributedDataParallel (DDP) broadcasts them before the forward pass.

A recording with DDP shows the buffers, because DDP flattens, broadcasts and copies them back (`recorded_buffers`). For
other recordings, `find_buffers` infers the buffers from external tensors that are neither parameters nor samples:
tensors written in the forward pass (running statistics), and constants without a batch dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...schemas.execution_trace.arguments import call_records
from ...trace.dtypes import itemsize, standard_dtype
from ...trace.index import CallIndex
from ...trace.trace import Trace
from ..reshape.shapes.followed_calls import Shapes
from .model import Buffer, Parameter, Weights
from .step_calls import Call, calls_named, tensor_values, walked
from .weights import outside_tensors, weights_of_layers

_FLATTEN, _UNFLATTEN = "aten::flatten_dense_tensors", "aten::unflatten_dense_tensors"
_BATCH_NORM = "aten::batch_norm"
SINK = "_DDPSink"  # DDP copies the model output if it searches for unused parameters (torch/nn/parallel/distributed.py)


def trace_is_ddp(trace: Trace) -> bool:
    return any(name.startswith("DistributedDataParallel") for name in trace.names)


def finds_unused(trace: Trace) -> bool:
    return any(name.endswith("reducer::search_unused_parameters") for name in trace.names)


def recorded_buffers(trace: Trace, begin: int, end: int) -> list[Buffer]:
    calls, names = trace.calls, trace.names
    if not any(name.startswith("c10d::broadcast_") for name in names) or not trace_is_ddp(trace):
        return []
    chosen = calls_named(trace, lambda name: name == _FLATTEN, begin, end)
    found: dict[tuple[int, int], Buffer] = {}
    for call, record in zip(chosen.tolist(), call_records(trace, calls.source[chosen]), strict=True):
        signature = trace.signature_of(CallIndex(call))
        values = list(tensor_values(record.inputs.values))
        for value, tensor in zip(values, signature.tensors if signature is not None else (), strict=False):
            dtype = standard_dtype(tensor.dtype)
            buffer = Buffer(tensor.shape, dtype, itemsize(dtype) or value[4], written=False)
            found.setdefault((value[1], value[2]), buffer)
    return list(found.values())


def without_buffers(forward: Sequence[Call]) -> list[Call]:
    """Remove the calls that DDP makes to flatten, broadcast and copy back buffers."""
    found: list[Call] = []
    copied = False
    for call in forward:
        if call.name in (_FLATTEN, _UNFLATTEN):
            copied = call.name == _UNFLATTEN
        elif not (copied and call.name == "aten::copy_"):
            copied = False
            found.append(call)
    return found


def without_sink(calls: Sequence[Call]) -> list[Call]:
    return [call for call in calls if SINK not in call.name]


def broadcasts(buffers: Sequence[Buffer]) -> list[tuple[str, int, list[tuple[int, ...]]]]:
    """Return every broadcast's dtype, itemsize and buffer sizes, ordered by the first buffer with the dtype.

    This follows `dist._broadcast_coalesced` in torch/csrc/distributed/c10d/comm.cpp.
    """
    found: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    first: dict[tuple[str, int], int] = {}
    for place, buffer in enumerate(buffers):
        key = buffer.dtype, buffer.itemsize
        found.setdefault(key, []).append((prod(buffer.sizes),))
        is_counter = buffer.written and not buffer.sizes  # a batch norm's counter follows its statistics
        first[key] = min(first.get(key, 2 * len(buffers)), place + len(buffers) * is_counter)
    return [(dtype, size, found[dtype, size]) for dtype, size in sorted(found, key=lambda key: first[key])]


def find_buffers(
    weights: Weights, forward: Sequence[Call], batch: set[int], shapes: Shapes
) -> tuple[list[Buffer], list[Parameter]]:
    """Infer the buffers, in order of use, and the frozen weights (layer weights that no optimizer changes)."""
    written = _written(forward)
    found, frozen = list[Buffer](), list[Parameter]()
    of_layers = weights_of_layers(walked(forward))
    made = {
        number
        for call in walked(forward)
        for number in set(call.tensor_ids("outputs")) - set(call.tensor_ids("inputs"))
    }
    extents, value = shapes.extents, shapes.extents.value
    recorded = {value[root] for root in batch} | {sum(value[root] for root in batch)}
    data = [source.shape for source in shapes.sources if source.data]
    known = extents.solve({root: 2 * value[root] for root in batch}, data)  # sizes at twice the batch
    for storage, given in ((storage, given) for storage, some in outside_tensors(forward).items() for given in some):
        sizes = tuple(extents.sizes(given.shape))
        if storage in weights.by_storage or given.number in weights.by_number or given.number in made:
            continue
        stays = all(known.get(root) == value[root] for root in extents.leaves(given.shape[:1]))
        has_batch_size = bool(sizes) and sizes[0] in recorded and not stays
        of_samples = has_batch_size or not batch.isdisjoint(extents.leaves(given.shape))
        if storage not in written and (not sizes or of_samples):
            continue
        if storage in written or storage not in of_layers:
            found.append(Buffer(sizes, given.dtype, given.itemsize, storage in written))
        else:
            number = len(weights.parameters) + len(frozen)
            weight = Parameter(number, given.shape, given.itemsize, given.dtype, storage=storage)
            weight.accumulates, weight.frozen = False, True
            frozen.append(weight)
    return [*found, *_counters(forward)], frozen


def _counters(forward: Sequence[Call]) -> list[Buffer]:
    """Infer the `num_batches_tracked` buffers of batch norms in evaluation mode, because no call updates them."""
    norms = [call.record.get("inputs", {}).get("values", []) for call in walked(forward) if call.name == _BATCH_NORM]
    evaluated = {tensor[1] for values in norms if values[5:6] == [False] for tensor in tensor_values(values[3:4])}
    return [Buffer((), "int64", 8, written=True)] * len(evaluated)


def _written(forward: Sequence[Call]) -> set[int]:
    found: set[int] = set()
    for call in walked(forward):
        values = call.record.get("inputs", {}).get("values", [])
        places = [0] if call.name.startswith("aten::") and call.name.endswith("_") else []
        places += [3, 4] if "batch_norm" in call.name and "backward" not in call.name else []
        for place in places:
            found |= {tensor[1] for tensor in tensor_values(values[place : place + 1])}
    return found


def unreached_weights(passes: Sequence[tuple[Sequence[Call], Sequence[Call]]], weights: Weights) -> set[int]:
    """Return the storages of weights without a gradient, in layers that do not contribute to the loss.

    The recording does not show whether these weights are frozen or unused. DDP also reduces unused parameters.
    """
    reached = {call.sequence for _, backward in passes for call in walked(backward)}
    forward = [call for part, _ in passes for call in walked(part)]
    if not reached:
        return set()
    unreached = weights_of_layers(call for call in forward if call.sequence >= 0 and call.sequence not in reached)
    unreached -= weights_of_layers(call for call in forward if call.sequence in reached)
    unreached -= {storage for storage, known in weights.by_storage.items() if not known[0].parameter.frozen}
    return unreached & set(outside_tensors(forward)) if unreached else unreached
