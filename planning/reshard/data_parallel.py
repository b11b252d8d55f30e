"""What DistributedDataParallel records of buffers, and what it does for them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ...schemas.execution_trace.arguments import call_records
from ...trace.dtypes import itemsize, standard_dtype
from ...trace.index import CallIndex
from ...trace.trace import Trace
from .step_calls import Call, tensor_values
from .weights import Buffer

_FLATTEN, _UNFLATTEN = "aten::flatten_dense_tensors", "aten::unflatten_dense_tensors"


def trace_is_ddp(trace: Trace) -> bool:
    """Whether it was recorded with DistributedDataParallel."""
    return any(name.startswith("DistributedDataParallel") for name in trace.names)


def recorded_buffers(trace: Trace, begin: int, end: int) -> list[Buffer]:
    """The buffers that a step broadcasts, in order; none where it does not."""
    calls, names = trace.calls, trace.names
    if not any(name.startswith("c10d::broadcast_") for name in names) or not trace_is_ddp(trace):
        return []
    codes = [code for code, name in enumerate(names) if name == _FLATTEN]
    chosen = np.flatnonzero(np.isin(calls.name, codes) & (calls.ts >= begin) & (calls.end <= end))
    chosen = chosen[np.argsort(calls.ts[chosen], kind="stable")]
    found: dict[tuple[int, int], Buffer] = {}
    for call, record in zip(chosen.tolist(), call_records(trace, calls.source[chosen]), strict=True):
        signature = trace.signature_of(CallIndex(call))
        values = list(tensor_values(record.inputs.values))
        for value, tensor in zip(values, signature.tensors if signature is not None else (), strict=False):
            dtype = standard_dtype(tensor.dtype)
            found.setdefault(
                (value[1], value[2]), Buffer(tensor.shape, dtype, itemsize(dtype) or value[4], written=False)
            )
    return list(found.values())


def without_buffers(forward: Sequence[Call]) -> list[Call]:
    """A forward pass without what DistributedDataParallel does for buffers: flatten, broadcast, copy back."""
    found: list[Call] = []
    copied = False
    for call in forward:
        if call.name in (_FLATTEN, _UNFLATTEN):
            copied = call.name == _UNFLATTEN
        elif not (copied and call.name == "aten::copy_"):
            copied = False
            found.append(call)
    return found


SINK = "_DDPSink"
"""Copies the model's output where DDP looks for parameters that are not in use (torch/nn/parallel/distributed.py)."""


def finds_unused(trace: Trace) -> bool:
    """Whether it was recorded with `find_unused_parameters`."""
    return any(name.endswith("reducer::search_unused_parameters") for name in trace.names)


def without_sink(calls: Sequence[Call]) -> list[Call]:
    """A pass without that copy."""
    return [call for call in calls if SINK not in call.name]


def broadcasts(buffers: Sequence[Buffer]) -> list[tuple[str, int, list[tuple[int, ...]]]]:
    """By type: name and bytes of an element and the sizes of the buffers that are broadcast together, in the order of
    the first buffer of each type, as `dist._broadcast_coalesced` has them (torch/csrc/distributed/c10d/comm.cpp)."""
    found: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    first: dict[tuple[str, int], int] = {}
    for at, buffer in enumerate(buffers):
        key = buffer.dtype, buffer.itemsize
        found.setdefault(key, []).append((prod(buffer.sizes),))
        counts = buffer.written and not buffer.sizes  # a module has its counter behind what it counts the changes of
        first[key] = min(first.get(key, 2 * len(buffers)), at + len(buffers) * counts)
    return [(dtype, size, found[dtype, size]) for dtype, size in sorted(found, key=lambda key: first[key])]
