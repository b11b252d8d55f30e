"""Times of the linked calls: start, inclusive and exclusive duration in ns."""

from __future__ import annotations

import numpy as np

from ..trace.columns import IntColumn
from .calls import CpuCalls

__all__ = ["exclusive_durations"]


def exclusive_durations(calls: CpuCalls) -> IntColumn:
    """Inclusive duration minus the union of the direct children on the same thread, int64 ns, one a call.

    Children of one caller do not overlap (a later one would be nested in the earlier), so that the union is the sum
    of their parts inside the caller.
    """
    children = np.flatnonzero(calls.parent >= 0)
    parents = calls.parent[children]
    inside = np.minimum(calls.end[children], calls.end[parents]) - calls.ts[children]
    covered = np.zeros(len(calls), np.int64)
    np.add.at(covered, parents, inside)  # not bincount: its float64 weights are inexact beyond 2**53
    return calls.end - calls.ts - covered
