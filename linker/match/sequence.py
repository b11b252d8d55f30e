"""Match by sequence numbers: calls with equal name and autograd sequence number anchor the rest by call order."""

from __future__ import annotations

from ...trace.columns import IntColumn
from ..calls import CpuCalls, EtCalls
from .candidate_alignments import candidates_by_sequence
from .result import Match
from .threads import place_threads

__all__ = ["match_sequence"]


def match_sequence(nodes: EtCalls, calls: CpuCalls, steps: IntColumn, iteration: str) -> Match:
    """Place each ET thread where its (name, sequence number) pairs occur in a Kineto thread; others are left out."""
    found = place_threads(nodes, calls, steps, candidates_by_sequence, iteration, "sequence")
    if not found.linked:
        return found.noting("sequence: no sequence number of the ET occurs with the same name in the Kineto trace")
    return found.noting(f"sequence: {found.linked:,} calls placed by sequence numbers and call order")
