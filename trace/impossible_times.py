"""Times that no recording can have: such events count in no sum, and the trace names them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .columns import IntColumn, distinct_rows
from .conventions import EPOCH_NS

# problem of an event's times, by code
IMPOSSIBLE = (
    "",
    "has a negative duration",
    "takes over a day",
    "starts over a day from most others",
    "runs on after later events of its stream have ended",
)
_NEGATIVE, _LONG, _FAR, _OVERRUNS = range(1, 5)
# Recordings take minutes. A time that was not written is 0; others count from the epoch or from some months ago.
_DAY_NS = 86_400 * 10**9
# No event of a stream ends this long after a later one. Rounding, programmatic dependent launches and memcpys overlap
# by µs to ms. On ROCm several streams share a queue, in which a collective may wait.
_OVERRUN_NS, _QUEUE_OVERRUN_NS = 10**8, 10**9
_CONCURRENT = "mtia_ccp_events"  # MTIA's lanes hold overlapping work of several units.


def impossible_times(
    ts: IntColumn,
    dur: IntColumn,
    *,
    is_gpu: npt.NDArray[np.bool_],
    device: IntColumn,
    stream: IntColumn,
    correlation: IntColumn,
    category: IntColumn,
    categories: Sequence[str],
    names: Sequence[str],
) -> npt.NDArray[np.int8]:
    """Return an index into `IMPOSSIBLE` for each event, 0 for a possible one.

    Args:
        ts: ns, −1 for none. dur: ns; negative for an unfinished call, which is never a GPU event.
        names: of all events; they show whether the trace comes from ROCm.
    """
    found = np.zeros(len(ts), np.int8)
    timed = np.flatnonzero(ts >= 0)
    if not len(timed):
        return found
    starts = ts[timed]
    late = starts[starts >= EPOCH_NS]
    of_most = late if len(late) else starts
    middle = np.partition(of_most, len(of_most) // 2)[len(of_most) // 2]
    found[timed[np.abs(starts - middle) > _DAY_NS]] = _FAR
    found[dur > _DAY_NS] = _LONG
    found[is_gpu & (dur < 0)] = _NEGATIVE
    rows = np.flatnonzero(is_gpu & (found == 0) & (ts >= 0))
    if _CONCURRENT in categories:
        rows = rows[category[rows] != list(categories).index(_CONCURRENT)]
    shares_queues = any(name.startswith("hip") for name in names)
    limit = _QUEUE_OVERRUN_NS if shares_queues else _OVERRUN_NS
    late = rows[_overruns(ts[rows], dur[rows], device[rows], stream[rows], limit)]
    found[late[~_of_graphs(correlation, rows)[np.searchsorted(rows, late)]]] = _OVERRUNS
    return found


def _overruns(ts: IntColumn, dur: IntColumn, device: IntColumn, stream: IntColumn, limit: int) -> npt.NDArray[np.bool_]:
    """Return which GPU events end later than the limit after the end of a later event of their stream."""
    if not np.any(dur > limit):  # as in nearly every trace
        return np.zeros(len(ts), np.bool_)
    lane = distinct_rows(device, stream)[1]
    order = np.lexsort((ts, lane))
    end = (ts + dur - ts.min())[order] // 1000  # µs, so that the lanes fit into int64
    # Ends of later lanes are greater than those of earlier ones, so that each lane has its own first end.
    end += lane[order] * (int(end.max()) + 1)
    first_later = np.minimum.accumulate(end[::-1])[::-1]
    overruns = np.zeros(len(ts), np.bool_)
    overruns[order[:-1]] = end[:-1] - first_later[1:] > limit // 1000
    return overruns


def _of_graphs(correlation: IntColumn, rows: IntColumn) -> npt.NDArray[np.bool_]:
    """Return which rows share their launch, as events of a graph do; these overlap on any lane."""
    _, which, counts = np.unique(correlation[rows], return_inverse=True, return_counts=True)
    shared: npt.NDArray[np.bool_] = (counts > 1)[which] & (correlation[rows] >= 0)
    return shared
