"""When tensors' storages were held, by the storage ids of an ET: from the first write to the last use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.execution_trace.et_tensors import MAX_STORAGE, Tensors, tensors_of
from ..trace.columns import IntColumn, begins, matching
from ..trace.index import CallIndex, Positions, as_positions
from ..trace.tables import OP
from ..trace.trace import Trace

_RESIZES = re.compile(r"aten::_?resize\w*_")
_ROUNDED = 512
"""PyTorch's allocators of devices other than the CPU give multiples of so many bytes
(kMinBlockSize in c10/core/AllocatorConfig.h)."""


@dataclass(frozen=True)
class Storages:
    """Storages, one entry for each time that one was held: an id is used again once its storage is gone.

    Attributes:
        device: as in `str(torch.device)`.
        bytes: int64, rounded as the device's allocator does.
        begin, end: int64 ns: start of the call that made it (of the trace, where it was there before) and end of the
            last call that was given it.
        call: int64, position of the call that made it, −1 if it was there before.
        first, uses: `uses[first[k]:first[k + 1]]` are the calls that were given storage k, or gave it back.
    """

    device: list[str]
    bytes: IntColumn
    begin: IntColumn
    end: IntColumn
    call: Positions[int, CallIndex]
    first: IntColumn
    uses: Positions[int, CallIndex]

    def __len__(self) -> int:
        return len(self.device)

    def any_use(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Of each storage whether one of its uses is among the wanted calls; `wanted` has one entry a call."""
        before = np.concatenate([[0], np.cumsum(wanted[self.uses])])
        found: npt.NDArray[np.bool_] = before[self.first[1:]] > before[self.first[:-1]]
        return found


def storages_of(trace: Trace) -> Storages:
    """The storages of an ET's tensors; none where the trace has no storage ids (made of a Kineto trace alone).

    A storage begins with the call that gives it back and was not given it; of several, of which each calls the next,
    with the innermost. What no call makes was there before the trace.

    Example:
        >>> held = storages_of(trace)
        >>> bool(np.all(held.end > held.begin)), set(held.device)
        (True, {'cpu'})
    """
    calls = trace.calls
    ops = np.flatnonzero(calls.kind == OP) if trace.outputs_recorded else np.zeros(0, np.int64)
    tensors = tensors_of(trace.texts.texts(calls.source[ops]), flat=trace.flat)
    accesses = _accesses(trace, ops[tensors.node], tensors)
    call, origin = accesses.call, accesses.origin
    new = begins(accesses.storage)
    new[1:] |= origin[1:] & ~origin[:-1]
    first = np.flatnonzero(new)
    made = origin[first]
    last_origin = np.flatnonzero(origin & ~np.append(origin[1:] & ~new[1:], False))
    maker = np.full(len(first), -1, np.int64)
    maker[made] = call[last_origin]
    device = [tensors.device(one) for one in accesses.tensor[first].tolist()]
    size = tensors.end[accesses.tensor[first]]
    grown = matching(calls.name[call], trace.names, _RESIZES.fullmatch)
    np.maximum.at(size, (np.cumsum(new) - 1)[grown], tensors.end[accesses.tensor[grown]])
    rounded = np.array([one != "cpu" for one in device], np.bool_)
    size = np.where(rounded, -(-size // _ROUNDED) * _ROUNDED, size)
    end = np.maximum.reduceat(calls.end[call], first) if len(first) else first
    begin = np.where(made, calls.ts[maker], trace.span.start) if len(first) else first
    return Storages(device, size, begin, end, as_positions(maker), np.append(first, len(call)), as_positions(call))


class _StorageUses(NamedTuple):
    """Uses of storages, those of one in order of time: as input at a call's start, as output at its end.

    Attributes:
        call: int64. storage: int64, its id. tensor: int64, position in the `Tensors`.
        origin: bool, not a use but the start of a call that gives back what it was not given.
    """

    call: IntColumn
    storage: IntColumn
    tensor: IntColumn
    origin: npt.NDArray[np.bool_]


def _accesses(trace: Trace, call: IntColumn, tensors: Tensors) -> _StorageUses:
    """
    Args:
        call: int64, position of each tensor's call.
    """
    calls, output = trace.calls, tensors.output
    key = call * MAX_STORAGE + tensors.storage
    fresh = np.flatnonzero(output & ~np.isin(key, key[~output]))
    tensor = np.concatenate([np.arange(len(call)), fresh])
    rank = np.concatenate([np.where(output, 2, 1), np.zeros(len(fresh), np.int64)])
    call = call[tensor]
    start, end = (2 * (column[call] - trace.span.start) for column in (calls.ts, calls.end))
    moment = np.where(rank == 2, np.maximum(end, start + 1), start + 1)  # of equal times ends come first
    order = np.lexsort((np.where(rank == 2, -call, call), rank, moment, tensors.storage[tensor]))
    tensor = tensor[order]
    return _StorageUses(call[order], tensors.storage[tensor], tensor, rank[order] == 0)
