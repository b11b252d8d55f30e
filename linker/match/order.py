"""Match by sequence numbers and call order: thread by thread, and what is on different threads on the two sides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...trace.columns import IntColumn, marked
from ...trace.kinds import EQUIVALENT
from ...trace.shortest_edit import Calls
from ..calls import CpuCalls, EtCalls, TracePair
from .candidate_alignments import CandidateAlignment, candidates_by_order, candidates_by_sequence
from .result import Match
from .threads import place_threads

__all__ = ["match_remaining", "match_sequence", "match_sequence_and_shift", "match_shift"]


def match_sequence(nodes: EtCalls, calls: CpuCalls, steps: IntColumn, iteration: str) -> Match:
    """Place each ET thread where its (name, sequence number) pairs occur in a Kineto thread; others are left out."""
    found = place_threads(nodes, calls, steps, candidates_by_sequence, iteration, "sequence")
    if not found.linked:
        return found.noting("sequence: no sequence number of the ET occurs with the same name in the Kineto trace")
    return found.noting(f"sequence: {found.linked:,} calls placed by sequence numbers and call order")


def match_shift(nodes: EtCalls, calls: CpuCalls, steps: IntColumn, iteration: str) -> Match:
    """Place each ET thread by the order of its names alone; sequence numbers only judge the places found."""
    return _noted(place_threads(nodes, calls, steps, candidates_by_order, iteration, "shift"))


def match_sequence_and_shift(nodes: EtCalls, calls: CpuCalls, steps: IntColumn, iteration: str) -> Match:
    """Place each ET thread by sequence numbers where it has any that agree, else by the order of its names."""

    def place(pattern: Calls, text: Calls) -> list[CandidateAlignment]:
        return candidates_by_sequence(pattern, text) or candidates_by_order(pattern, text)

    return _noted(place_threads(nodes, calls, steps, place, iteration, "sequence and shift"))


def _noted(found: Match) -> Match:
    if not found.linked:
        return found.noting(f"{found.method}: no run of names is common to an ET thread and a Kineto thread")
    several = max(thread["equal_places"] for thread in found.facts["threads"])
    note = f"{found.method}: {found.linked:,} calls placed by call order"
    return found.noting(note + (f", in one of {several} equal places" if several > 1 else ""))


def match_remaining(pair: TracePair, found: Match) -> Match:
    """Pair what a method left over within the window that it linked, where both sides have as many of a name.

    Asynchronous collectives are recorded on their caller's thread in the ET and on their worker's in Kineto. The k-th
    by call order goes with the k-th by time, never with certainty.
    """
    nodes, calls, linked = pair.nodes, pair.calls, np.flatnonzero(found.call >= 0)
    if not len(linked):
        return found
    begin, end = calls.ts[found.call[linked]].min(), calls.end[found.call[linked]].max()
    free = ~marked(len(calls), found.call[linked])
    theirs = np.flatnonzero(free & (calls.ts >= begin) & (calls.ts <= end))
    theirs = theirs[np.lexsort((calls.ts[theirs], calls.name[theirs]))]
    inside = np.arange(linked[0], linked[-1] + 1)
    ours = inside[(found.call[inside] < 0) & (nodes.name[inside] >= 0)]
    ours = ours[np.argsort(nodes.name[ours], kind="stable")]
    width = int(max(nodes.name.max(), calls.name.max())) + 1
    as_many = np.bincount(nodes.name[ours], minlength=width) == np.bincount(calls.name[theirs], minlength=width)
    ours, theirs = ours[as_many[nodes.name[ours]]], theirs[as_many[calls.name[theirs]]]
    if not len(ours):
        return found
    call, link, reason = found.call.copy(), found.link.copy(), found.reason.copy()
    call[ours], link[ours], reason[ours] = theirs, EQUIVALENT, 0
    note = f"{len(ours):,} calls that the two traces record on different threads: paired by name and order"
    return replace(found, call=call, link=link, reason=reason).noting(note)
