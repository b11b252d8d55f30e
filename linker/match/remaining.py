"""Calls that are on different threads on the two sides: asynchronous collectives are recorded on their caller's
thread in the ET and on their worker's in Kineto. They are paired by name and order, never with certainty."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...trace.kinds import EQUIVALENT
from ..calls import CpuCalls, EtCalls
from .result import Match

__all__ = ["match_remaining"]


def match_remaining(nodes: EtCalls, calls: CpuCalls, found: Match) -> Match:
    """Pair what a method left over within the window that it linked, where both sides have as many of a name.

    The k-th by call order goes with the k-th by time.
    """
    linked = np.flatnonzero(found.call >= 0)
    if not len(linked):
        return found
    begin, end = calls.ts[found.call[linked]].min(), calls.end[found.call[linked]].max()
    free = np.ones(len(calls), np.bool_)
    free[found.call[linked]] = False
    theirs = np.flatnonzero(free & (calls.ts >= begin) & (calls.ts <= end))
    theirs = theirs[np.argsort(calls.ts[theirs], kind="stable")]
    inside = np.arange(linked[0], linked[-1] + 1)
    ours = inside[(found.call[inside] < 0) & (nodes.name[inside] >= 0)]
    ours, theirs = (
        ours[np.argsort(nodes.name[ours], kind="stable")],
        theirs[np.argsort(calls.name[theirs], kind="stable")],
    )
    width = int(max(nodes.name.max(), calls.name.max())) + 1
    as_many = np.bincount(nodes.name[ours], minlength=width) == np.bincount(calls.name[theirs], minlength=width)
    ours, theirs = ours[as_many[nodes.name[ours]]], theirs[as_many[calls.name[theirs]]]
    if not len(ours):
        return found
    call, link, reason = found.call.copy(), found.link.copy(), found.reason.copy()
    call[ours], link[ours], reason[ours] = theirs, EQUIVALENT, 0
    note = f"{len(ours):,} calls that the two traces record on different threads: paired by name and order"
    return replace(found, call=call, link=link, reason=reason).noting(note)
