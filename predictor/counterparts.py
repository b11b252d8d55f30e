"""Which operator calls of two recordings of one program correspond."""

from __future__ import annotations

from collections import defaultdict
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
    traces, callees = (left, right), (_callees(left), _callees(right))
    waiting = [(-1, -1)]
    while waiting:
        mine, others = (of.get(call, []) for of, call in zip(callees, waiting.pop(), strict=True))
        sides = zip(traces, (mine, others), strict=True)
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


def _callees(trace: Trace) -> dict[int, list[int]]:
    """Calls by the call around them, −1 for none; in order."""
    found = defaultdict[int, list[int]](list)
    for call, above in enumerate(trace.calls.parent.tolist()):
        found[above].append(call)
    return found
