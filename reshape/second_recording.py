"""Which operator calls of two recordings of one program correspond."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from ..trace.errors import UsageError
from ..trace.index import CallIndex
from ..trace.tables import OP
from ..trace.trace import Trace
from .shapes.followed_calls import Shapes, shapes_of
from .shapes.seeds import SizeEvidence
from .shapes.terms import Shape


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


class SecondRecording:
    """Extents of inputs, and of what is made of numbers alone, as they are in a second recording.

    Args:
        trace, shapes: the first recording. also: the second one.
    """

    def __init__(self, trace: Trace, shapes: Shapes, also: Trace) -> None:
        self._file, self._extents, self._other = trace.file, shapes.extents, also.file
        extents, values = shapes.extents, dict[int, set[int]]()
        given = [extent for one in shapes.sources for extent in one.shape] + shapes.loaded
        wanted = {root for root in extents.leaves(given) if extents.value[root] > 1}
        theirs = shapes_of(also)
        for one, other in counterparts(trace, also):
            rows = int(trace.calls.source[one]), int(also.calls.source[other])
            for mine, extent in _pairs(shapes, theirs, *rows):
                if (root := extents.root(mine)) in wanted:
                    values.setdefault(root, set()).add(theirs.extents.value[extent])
        self._values = {root: found.pop() for root, found in values.items() if len(found) == 1}

    def find(
        self, evidence: SizeEvidence, dimension: str, recorded_size: int | None, new_size: int
    ) -> tuple[dict[int, int], int]:
        """New values of the classes that change as the dimension does, or in proportion to it, and its recorded size.

        Raises:
            UsageError: nothing changed between the recordings, or it is ambiguous what is the dimension.
        """
        value = self._extents.value
        pairs = Counter((value[root], new) for root, new in self._values.items() if value[root] != new)
        if recorded_size is None and len({one for one, _ in pairs}) > 1:
            recorded_size = evidence.find(dimension, None)[1]
        pairs = Counter({pair: count for pair, count in pairs.items() if recorded_size in (None, pair[0])})
        if len(pairs) != 1:
            found = ", ".join(f"{one}:{other}" for one, other in pairs) or "none"
            raise UsageError(
                f"{self._other}: cannot determine which {dimension} size it has (changes from {self._file}: {found}); "
                f"give a recording of the same program at another {dimension} size"
            )
        ((old, new),) = pairs
        grown = {root: value[root] * new_size for root, one in self._values.items() if value[root] * new == one * old}
        return {root: size // old for root, size in grown.items() if size % old == 0}, old

    @property
    def kept(self) -> list[int]:
        """Classes that are of one size in both recordings."""
        return [root for root, new in self._values.items() if self._extents.value[root] == new]


def _pairs(left: Shapes, right: Shapes, row: int, other: int) -> Iterator[tuple[int, int]]:
    """Extents of the tensors of two calls that correspond, where there are as many of them."""
    for mine, theirs in ((left.inputs, right.inputs), (left.results, right.results)):
        for some, others in zip(mine.get(row, ()), theirs.get(other, ()), strict=False):
            for one, two in zip(some, others, strict=False):
                yield from _extents(one, two)


def _extents(one: Shape | None, other: Shape | None) -> Iterator[tuple[int, int]]:
    if one is not None and other is not None and len(one) == len(other):
        yield from zip(one, other, strict=True)
