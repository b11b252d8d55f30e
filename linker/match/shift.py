"""Match by call order: an ET thread's names are one run of a Kineto thread's, from some op index on."""

from __future__ import annotations

from ...analysis.shortest_edit import Calls
from ...trace.columns import IntColumn
from ..calls import CpuCalls, EtCalls
from .candidate_alignments import CandidateAlignment, candidates_by_order, candidates_by_sequence
from .result import Match
from .threads import place_threads

__all__ = ["match_sequence_and_shift", "match_shift"]


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
