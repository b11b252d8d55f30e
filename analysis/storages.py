"""Lifetimes of tensor storages, from the first write to the last use, based on the storage ids in an ET."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..trace.brief import brief
from ..trace.columns import IntColumn, among, matching, run_starts, scatter
from ..trace.index import CallIndex, Positions, as_positions
from ..trace.tables import OP
from ..trace.tensors import MAX_STORAGE, TensorUses
from ..trace.trace import Trace

_RESIZES = re.compile(r"aten::_?resize\w*_")
_ROUNDED = 512  # Allocators use blocks of this size, except on CPU (kMinBlockSize in c10/core/AllocatorConfig.h).


@dataclass(frozen=True)
class Storages:
    """Lifetimes of tensor storages. Ids are reused after a storage is freed, so one id may have several lifetimes."""

    device: list[str]  # formatted like `str(torch.device)`
    bytes: IntColumn  # size in bytes, rounded up to whole blocks of the device's allocator
    begin: IntColumn  # start of the creating call in ns, or start of the trace if the storage is older
    end: IntColumn  # end of the last call that uses the storage, ns
    call: Positions[int, CallIndex]  # the call that created the storage, or −1 if the storage is older than the trace
    first: IntColumn  # `uses[first[k]:first[k + 1]]` are the calls that use storage k as input or output
    uses: Positions[int, CallIndex]

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.device)

    def any_use(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return a mask of the storages that at least one wanted call uses. `wanted` has one entry per call."""
        before = np.concatenate([[0], np.cumsum(wanted[self.uses])])
        used: npt.NDArray[np.bool_] = before[self.first[1:]] > before[self.first[:-1]]
        return used


def storages_of(trace: Trace) -> Storages:
    """Return the storages of an ET's tensors; empty if no storage ids are recorded, as in a Kineto trace alone.

    A storage is created by the innermost call that returns it without having received it. If there is no such call, the
    storage existed before the trace.
    """
    calls = trace.calls
    ops = np.flatnonzero(calls.kind == OP) if trace.outputs_recorded else np.zeros(0, np.int64)
    tensors = trace.texts.tensor_uses(calls.source[ops])
    call, tensor, origin = _uses(trace, ops[tensors.node], tensors)
    new = run_starts(tensors.storage[tensor])
    new[1:] |= origin[1:] & ~origin[:-1]
    first = np.flatnonzero(new)
    made = origin[first]
    last_origin = np.flatnonzero(origin & ~np.append(origin[1:] & ~new[1:], False))
    maker = scatter(len(first), made, call[last_origin])
    device = [tensors.device(row) for row in tensor[first].tolist()]
    size = tensors.end[tensor[first]]
    grown = matching(calls.name[call], trace.names, _RESIZES.fullmatch)
    np.maximum.at(size, (np.cumsum(new) - 1)[grown], tensors.end[tensor[grown]])
    rounded = np.array([name != "cpu" for name in device], np.bool_)
    size = np.where(rounded, -(-size // _ROUNDED) * _ROUNDED, size)
    end = np.maximum.reduceat(calls.end[call], first) if len(first) else first
    begin = np.where(made, calls.ts[maker], trace.span.start) if len(first) else first
    return Storages(device, size, begin, end, as_positions(maker), np.append(first, len(call)), as_positions(call))


def _uses(trace: Trace, call: IntColumn, tensors: TensorUses) -> tuple[IntColumn, IntColumn, npt.NDArray[np.bool_]]:
    """Return the uses of storages, sorted by storage and time, as three arrays: call, index in `tensors`, and flag.

    A call uses its inputs when it starts and its outputs when it ends. An entry with the flag is not a use. It marks
    the start of a call that returns a storage without having received it. The argument `call` contains the call of each
    tensor."""
    calls, output = trace.calls, tensors.output
    key = call * MAX_STORAGE + tensors.storage
    fresh = np.flatnonzero(output & ~among(key, key[~output]))
    tensor = np.concatenate([np.arange(len(call)), fresh])
    rank = np.concatenate([np.where(output, 2, 1), np.zeros(len(fresh), np.int64)])
    call = call[tensor]
    start, end = (2 * (column[call] - trace.span.start) for column in (calls.ts, calls.end))
    moment = np.where(rank == 2, np.maximum(end, start + 1), start + 1)  # at equal times, ends precede starts
    order = np.lexsort((np.where(rank == 2, -call, call), rank, moment, tensors.storage[tensor]))
    tensor = tensor[order]
    return call[order], tensor, rank[order] == 0
