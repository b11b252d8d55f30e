"""Attach GPU events to ET nodes: GPU event → launching call (by correlation) → innermost open CPU call → its node."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..schemas.kineto.kineto_launches import LAUNCH_METHODS, Launches, find_launches
from ..schemas.kineto.read_kineto import KinetoTrace
from ..trace.call_tree import nearest
from ..trace.columns import IntColumn
from ..trace.conventions import UNATTACHED_REASONS
from .calls import CpuCalls

ATTACH_METHODS = LAUNCH_METHODS


@dataclass(frozen=True)
class Attachment(Launches):
    """GPU events in order of GPU start, with launcher and parent.

    Attributes:
        call: int64, position in `CpuCalls` of `op` or its nearest ancestor that is linked, −1 if not attached.
        reason: int8 index into `UNATTACHED_REASONS`.
    """

    call: IntColumn
    reason: npt.NDArray[np.int8]


def attach_gpu_events(kineto: KinetoTrace, calls: CpuCalls, linked: npt.NDArray[np.bool_]) -> Attachment:
    """Find launcher and parent of every kernel, copy and memset.

    Args:
        linked: one entry a call of `calls`: an ET node is linked to it.
    """
    found = find_launches(kineto, calls)
    op, method = found.op, found.method
    call = nearest(op, calls.parent, linked)
    reason = np.zeros(len(op), np.int8)
    reason[call < 0] = UNATTACHED_REASONS.index("parent not in the ET")
    reason[(call < 0) & _outside(calls, linked, op)] = UNATTACHED_REASONS.index("outside the window of the ET")
    reason[op < 0] = UNATTACHED_REASONS.index("launcher outside any op")
    reason[method < 0] = UNATTACHED_REASONS.index("no launcher in the trace")
    return Attachment(**vars(found), call=call, reason=reason)


def _outside(calls: CpuCalls, linked: npt.NDArray[np.bool_], op: IntColumn) -> npt.NDArray[np.bool_]:
    """Which ops start before the first linked call or after the last one has ended; none if nothing is linked."""
    if not linked.any():
        return np.zeros(len(op), np.bool_)
    ts = calls.ts[np.maximum(op, 0)]
    outside: npt.NDArray[np.bool_] = (ts < calls.ts[linked].min()) | (ts > calls.end[linked].max())
    return (op >= 0) & outside
