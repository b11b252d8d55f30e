"""Match by call trees if neither sequence numbers nor call order fit.

First, skip each call with a name that occurs on only one side, and give its children to its caller. Then compare both
forests from the roots down. Siblings are aligned by identical subtrees first and then by name. If two aligned calls
have different subtrees, their children are aligned in the same way. The order of siblings does not matter: the shape of
a subtree is its name and the sorted shapes of its children (Aho, Hopcroft and Ullman 1974)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...schemas.kineto.kineto_calls import CpuCalls
from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, distinct, lists_by
from ...trace.kinds import UNVERIFIED
from ..calls import EtCalls
from ..shortest_edit import CallOrder, shortest_edit
from .candidate_alignments import candidates_by_order
from .result import REASONS, Match

# Maximum number of root placements to try. Each placement is compared down to the leaves.
_MAX_PLACES = 16
# Minimum share of paired calls in the range from the first to the last pair. Even different programs share subtrees.
_MIN_SHARE = 0.8


@dataclass(frozen=True)
class _Forest:
    """The call trees of one thread, with every call's name, shape and children. The roots are children of call −1."""

    name: list[int]
    children: dict[int, list[int]]
    shape: dict[int, int]


def match_tree(nodes: EtCalls, calls: CpuCalls) -> Match:
    """Pair each ET thread's calls with the Kineto thread that shares most call trees with it. Trees look the same in
    every iteration, so all links are `UNVERIFIED`. Takes linear time in practice."""
    common = np.intersect1d(nodes.name[nodes.name >= 0], calls.name)
    shapes: dict[tuple[int, tuple[int, ...]], int] = {}
    ours, theirs = _forests(nodes, common, shapes), _forests(calls, common, shapes)
    call = np.full(len(nodes), -1, np.int64)
    free = set(range(len(theirs)))
    for forest in sorted(ours, key=lambda own: -len(own.shape)):
        found = ((_pair(forest, theirs[k]), k) for k in sorted(free))
        pairs, best = max(found, key=lambda pairs_of: len(pairs_of[0]), default=([], -1))
        if not pairs or not _belong_together(pairs, nodes.thread, calls.thread):
            continue
        free.discard(best)
        for left, right in pairs:
            call[left] = right
    reason = np.where(call >= 0, 0, REASONS.index("not in the Kineto trace")).astype(np.int8)
    match = Match(call, np.where(call >= 0, UNVERIFIED, 0).astype(np.int8), reason, "tree")
    return match.noting(f"tree: {match.linked:,} calls paired by call trees")


def _forests(
    calls: EtCalls | CpuCalls, common: IntColumn, shapes: dict[tuple[int, tuple[int, ...]], int]
) -> list[_Forest]:
    thread, kept = calls.thread, np.isin(calls.name, common)
    above = nearest(calls.parent, calls.parent, kept)
    same = (above >= 0) & (thread[np.maximum(above, 0)] == thread)
    above = np.where(same, above, -1)
    names, forests = calls.name.tolist(), []
    for t in distinct(thread[kept]):
        members = np.flatnonzero(kept & (thread == t))
        children: dict[int, list[int]] = {-1: [], **lists_by(above[members].tolist(), members.tolist())}
        shape: dict[int, int] = {}
        for i in members[::-1].tolist():  # callers precede callees
            below = tuple(sorted(shape[callee] for callee in children.get(i, ())))
            shape[i] = shapes.setdefault((names[i], below), len(shapes))
        forests.append(_Forest(names, children, shape))
    return forests


def _belong_together(pairs: list[tuple[int, int]], ours: IntColumn, theirs: IntColumn) -> bool:
    """Return True if nearly all calls between the first and the last pair are paired, in both threads."""
    sizes = []
    for side, thread in zip(np.array(pairs).T, (ours, theirs), strict=True):
        own = thread == thread[side[0]]
        if len(pairs) < _MIN_SHARE * np.count_nonzero(own[side.min() : side.max() + 1]):
            return False
        sizes.append(np.count_nonzero(own))
    return bool(len(pairs) >= _MIN_SHARE * min(sizes))


def _pair(ours: _Forest, theirs: _Forest) -> list[tuple[int, int]]:
    left, right = ours.children[-1], theirs.children[-1]
    places = candidates_by_order(_labels(ours.name, left), _labels(theirs.name, right))[:_MAX_PLACES]
    roots = [[(left[i], right[j]) for i, j in enumerate(p.alignment.at.tolist()) if j >= 0] for p in places]
    return max((_descend(ours, theirs, pairs) for pairs in [*roots, _align(ours, theirs, left, right)]), key=len)


def _descend(ours: _Forest, theirs: _Forest, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found, pending = [], list(pairs)
    while pending:
        a, b = pending.pop()
        found.append((a, b))
        left, right = ours.children.get(a, []), theirs.children.get(b, [])
        if ours.shape[a] == theirs.shape[b]:
            by_shape = sorted(left, key=ours.shape.__getitem__), sorted(right, key=theirs.shape.__getitem__)
            pending += zip(*by_shape, strict=True)
        else:
            pending += _align(ours, theirs, left, right)
    return found


def _align(ours: _Forest, theirs: _Forest, left: list[int], right: list[int]) -> list[tuple[int, int]]:
    """Align siblings by identical subtrees first. In the gaps between them, align siblings by name."""
    x, y = shortest_edit(_labels(ours.shape, left), _labels(theirs.shape, right), whole=True)
    pairs, a, b = [], 0, 0
    for i, j in [*zip(x.tolist(), y.tolist(), strict=True), (len(left), len(right))]:
        u, v = shortest_edit(_labels(ours.name, left[a:i]), _labels(theirs.name, right[b:j]), whole=True)
        pairs += [(left[a + p], right[b + q]) for p, q in zip(u.tolist(), v.tolist(), strict=True)]
        if i < len(left):
            pairs.append((left[i], right[j]))
        a, b = i + 1, j + 1
    return pairs


def _labels(labels: dict[int, int] | list[int], members: list[int]) -> CallOrder:
    return CallOrder.of_names(np.array([labels[member] for member in members], np.int64))
