"""Which operator calls of two recordings of one program correspond."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from ..trace.index import CallIndex
from ..trace.tables import OP
from ..trace.trace import Trace

__all__ = ["counterparts"]


def counterparts(left: Trace, right: Trace) -> Iterator[tuple[CallIndex, CallIndex]]:
    """Operator calls of two traces that correspond: of equal names, in order, below calls that correspond.

    Example:
        >>> all(one == other for one, other in counterparts(trace, trace))
        True
    """
    waiting = [(-1, -1)]
    while waiting:
        pair = waiting.pop()
        mine, others = (_callees(trace, call) for trace, call in zip((left, right), pair, strict=True))
        sides = (left, mine), (right, others)
        names = ([trace.names[trace.calls.name[call]] for call in calls] for trace, calls in sides)
        for one, other in _equal(*names):
            waiting.append((mine[one], others[other]))
            if left.calls.kind[mine[one]] == OP:
                yield CallIndex(mine[one]), CallIndex(others[other])


def _equal(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Positions of equal texts, in order in both."""
    if left == right:
        yield from zip(range(len(left)), range(len(right)), strict=True)
        return
    for one, other, size in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        yield from zip(range(one, one + size), range(other, other + size), strict=True)


def _callees(trace: Trace, call: int) -> Sequence[int]:
    """The calls directly below a call, in order; those below none where it is −1."""
    tree = trace.call_tree
    return (tree.children(CallIndex(call)) if call >= 0 else tree.order[: tree.first[0]]).tolist()
