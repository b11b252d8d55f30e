"""When tensors' storages were held, by the storage ids of an ET: from the first write to the last use."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..trace.brief import brief
from ..trace.columns import IntColumn, among, matching, run_starts
from ..trace.index import CallIndex, Positions, as_positions
from ..trace.tables import OP
from ..trace.tensors import MAX_STORAGE, TensorUses
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

    __repr__ = brief

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
    tensors = trace.texts.tensor_uses(calls.source[ops])
    call, tensor, origin = _uses(trace, ops[tensors.node], tensors)
    new = run_starts(tensors.storage[tensor])
    new[1:] |= origin[1:] & ~origin[:-1]
    first = np.flatnonzero(new)
    made = origin[first]
    last_origin = np.flatnonzero(origin & ~np.append(origin[1:] & ~new[1:], False))
    maker = np.full(len(first), -1, np.int64)
    maker[made] = call[last_origin]
    device = [tensors.device(at) for at in tensor[first].tolist()]
    size = tensors.end[tensor[first]]
    grown = matching(calls.name[call], trace.names, _RESIZES.fullmatch)
    np.maximum.at(size, (np.cumsum(new) - 1)[grown], tensors.end[tensor[grown]])
    rounded = np.array([name != "cpu" for name in device], np.bool_)
    size = np.where(rounded, -(-size // _ROUNDED) * _ROUNDED, size)
    end = np.maximum.reduceat(calls.end[call], first) if len(first) else first
    begin = np.where(made, calls.ts[maker], trace.span.start) if len(first) else first
    return Storages(device, size, begin, end, as_positions(maker), np.append(first, len(call)), as_positions(call))


def _uses(trace: Trace, call: IntColumn, tensors: TensorUses) -> tuple[IntColumn, IntColumn, npt.NDArray[np.bool_]]:
    """Uses of storages, those of one in order of time: as input at a call's start, as output at its end.

    Args:
        call: int64, position of each tensor's call.

    Returns:
        int64, the calls and the tensors (positions in `tensors`); and bool, where it is not a use but the start of a
        call that gives back what it was not given.
    """
    calls, output = trace.calls, tensors.output
    key = call * MAX_STORAGE + tensors.storage
    fresh = np.flatnonzero(output & ~among(key, key[~output]))
    tensor = np.concatenate([np.arange(len(call)), fresh])
    rank = np.concatenate([np.where(output, 2, 1), np.zeros(len(fresh), np.int64)])
    call = call[tensor]
    start, end = (2 * (column[call] - trace.span.start) for column in (calls.ts, calls.end))
    moment = np.where(rank == 2, np.maximum(end, start + 1), start + 1)  # of equal times ends come first
    order = np.lexsort((np.where(rank == 2, -call, call), rank, moment, tensors.storage[tensor]))
    tensor = tensor[order]
    return call[order], tensor, rank[order] == 0
