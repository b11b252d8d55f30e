"""Compare the shapes that were derived for another size with the shapes recorded at that size, call by call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from etplus.planning.reshape.reshape import Reshaped
from etplus.trace.index import CallIndex
from etplus.trace.tables import OP
from etplus.trace.tensors import Signature
from etplus.trace.trace import Trace

__all__ = ["compared", "counterparts"]


def compared(done: Reshaped, recorded: Trace) -> tuple[Counter[str], Counter[str]]:
    """Count calls by outcome (right, listed, wrong, no counterpart). Also count wrong calls by name."""
    pairs = list(counterparts(done.trace, recorded))
    count, wrong = Counter({"no counterpart": done.calls - len(pairs)}), Counter[str]()
    for one, other in pairs:
        right = _shapes(done.trace, one) == _shapes(recorded, other)
        count["listed" if done.unknown[one] else "right" if right else "wrong"] += 1
        if not (right or done.unknown[one]):
            wrong[done.trace.names[done.trace.calls.name[one]]] += 1
    return count, wrong


def _shapes(trace: Trace, call: int) -> object:
    one = trace.signature_of(call) or Signature(())
    taken = [[tensor.shape for tensor in argument.tensors] for argument in one.inputs]
    return taken, [tensor.shape for tensor in one.outputs or ()]


def counterparts(left: Trace, right: Trace) -> Iterator[tuple[CallIndex, CallIndex]]:
    """Match the operator calls of two traces in order. Two calls match if they have the same name and their callers
    match."""
    waiting = [(-1, -1)]
    while waiting:
        pair = waiting.pop()
        mine, others = (_callees(trace, call) for trace, call in zip((left, right), pair, strict=True))
        sides = (left, mine), (right, others)
        names = ([trace.names[trace.calls.name[call]] for call in calls] for trace, calls in sides)
        for place, other in _equal(*names):
            waiting.append((mine[place], others[other]))
            if left.calls.kind[mine[place]] == OP:
                yield CallIndex(mine[place]), CallIndex(others[other])


def _equal(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[int, int]]:
    if left == right:
        yield from zip(range(len(left)), range(len(right)), strict=True)
        return
    for begin, other, size in SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks():
        yield from zip(range(begin, begin + size), range(other, other + size), strict=True)


def _callees(trace: Trace, call: int) -> Sequence[int]:
    """Return the direct callees of a call in order, or the topmost calls if `call` is −1."""
    tree = trace.call_tree
    return (tree.children(CallIndex(call)) if call >= 0 else tree.order[: tree.first[0]]).tolist()
