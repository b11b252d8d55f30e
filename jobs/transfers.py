"""When the data of a communication moves: once all its ranks have come, and for as long on each of them.

A kernel on the device runs while it waits, so that its least duration over the ranks is the transfer. On the host a
rank comes and leaves when its backend's thread gets a processor: there the transfer lasts from the last rank's start to
the first one's end, and the rest is the rank's own time. A message takes no longer than its sender does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn
from .clocks import synchronises
from .matching import Matched


@dataclass(frozen=True)
class JobTransfers:
    """Transfers of some matched communications.

    Attributes:
        begin: int64 (n,) ns by the common clock, when the last rank has come; of a message when it is sent.
        duration: int64 (n,) ns.
        seen: bool (n,), whether `duration` is that of a transfer on the host as the times show it.
    """

    begin: IntColumn
    duration: IntColumn
    seen: npt.NDArray[np.bool_]


def transfers(one: Matched, offsets: Mapping[int, int]) -> JobTransfers:
    """When the data of matched communications moves.

    Args:
        offsets: what each rank's clock is ahead, ns; see `clock_offsets`.

    Example:
        Two ranks are in an all-reduce on the host from 10 to 50 and from 30 to 40 us: it transfers from 30 to 40 us.
    """
    ahead = np.array([offsets.get(rank, 0) for rank in one.ranks], np.int64)
    start, end = one.start - ahead, one.end - ahead
    last, least = start.max(axis=1), (end - start).min(axis=1)
    message = one.kind < 0
    until = np.where(message, np.minimum(end[:, -1], last + end[:, 0] - start[:, 0]), end.min(axis=1))
    seen = one.on_host & (message | (synchronises(one.kind) & (until >= last)))
    duration = np.where(seen, np.maximum(until - last, 0), least)
    return JobTransfers(np.where(seen & message, start[:, 0], last), duration, seen)
