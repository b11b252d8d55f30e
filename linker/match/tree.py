"""Match by call trees, if neither numbers nor order fit: the isomorphism method.

Calls whose name only one side has are left out; their children go to the caller. Then both forests are compared from
the roots down: siblings are aligned first by equal subtrees, then by name, and pairs that differ are compared in turn.
If two small trees have the same calls in another order, networkx finds the isomorphism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...schemas.kineto.kineto_calls import CpuCalls
from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, distinct
from ...trace.kinds import EQUIVALENT
from ..calls import EtCalls
from ..shortest_edit import CallOrder, shortest_edit
from .candidate_alignments import candidates_by_order
from .result import REASONS, Match

if TYPE_CHECKING:
    import networkx as nx

_MAX_ISOMORPHISM = 64
"""Largest tree in which networkx looks for permuted siblings; its worst case is exponential."""
_MAX_PLACES = 16
"""Placements of the roots that are compared all the way down."""
_MIN_SHARE = 0.8
"""Share of the calls between the first and the last pair on either side that must be paired. Trees of different
programs have common parts, too."""


@dataclass(frozen=True)
class _Forest:
    """The call trees of one thread: name, children in call order, shape and size by call; −1 is above the roots."""

    name: list[int]
    children: dict[int, list[int]]
    shape: dict[int, int]
    size: dict[int, int]


def match_tree(nodes: EtCalls, calls: CpuCalls) -> Match:
    """Pair the calls of each ET thread with the Kineto thread whose call trees have most in common.

    Trees are the same in every iteration, so every link is `EQUIVALENT`. Linear in practice.
    """
    common = np.intersect1d(nodes.name[nodes.name >= 0], calls.name)
    shapes: dict[tuple[int, tuple[int, ...]], int] = {}
    ours, theirs = _forests(nodes, common, shapes), _forests(calls, common, shapes)
    call = np.full(len(nodes), -1, np.int64)
    free = set(range(len(theirs)))
    for mine in sorted(ours, key=lambda forest: -forest.size[-1]):
        found = ((_pair(mine, theirs[k]), k) for k in sorted(free))
        pairs, best = max(found, key=lambda pairs_of: len(pairs_of[0]), default=([], -1))
        if not pairs or not _belong_together(pairs, nodes.thread, calls.thread):
            continue
        free.discard(best)
        for left, right in pairs:
            call[left] = right
    reason = np.where(call >= 0, 0, REASONS.index("not in the Kineto trace")).astype(np.int8)
    match = Match(call, np.where(call >= 0, EQUIVALENT, 0).astype(np.int8), reason, "tree")
    return match.noting(f"tree: {match.linked:,} calls paired by call trees")


def _forests(
    calls: EtCalls | CpuCalls, common: IntColumn, shapes: dict[tuple[int, tuple[int, ...]], int]
) -> list[_Forest]:
    """Return a forest per thread, of the calls with common names; `shapes` numbers equal subtrees of all forests."""
    thread, kept = calls.thread, np.isin(calls.name, common)
    above = nearest(calls.parent, calls.parent, kept)
    same = (above >= 0) & (thread[np.maximum(above, 0)] == thread)
    above = np.where(same, above, -1)
    names, forests = calls.name.tolist(), []
    for t in distinct(thread[kept]):
        members = np.flatnonzero(kept & (thread == t))
        children: dict[int, list[int]] = {-1: []}
        for i, p in zip(members.tolist(), above[members].tolist(), strict=True):
            children.setdefault(p, []).append(i)
        shape: dict[int, int] = {}
        size: dict[int, int] = {}
        for i in members[::-1].tolist():  # callers precede callees
            below = children.get(i, [])
            shape[i] = shapes.setdefault((names[i], tuple(shape[c] for c in below)), len(shapes))
            size[i] = 1 + sum(size[c] for c in below)
        size[-1] = len(members)
        forests.append(_Forest(names, children, shape, size))
    return forests


def _belong_together(pairs: list[tuple[int, int]], ours: IntColumn, theirs: IntColumn) -> bool:
    """Return whether nearly all calls between the first and the last pair are paired, on both threads."""
    for side, thread in zip(np.array(pairs).T, (ours, theirs), strict=True):
        span = thread[side.min() : side.max() + 1] == thread[side[0]]
        if len(pairs) < _MIN_SHARE * np.count_nonzero(span):
            return False
    smaller = min(np.count_nonzero(ours == ours[pairs[0][0]]), np.count_nonzero(theirs == theirs[pairs[0][1]]))
    return bool(len(pairs) >= _MIN_SHARE * smaller)


def _pair(ours: _Forest, theirs: _Forest) -> list[tuple[int, int]]:
    """Return the pairs of the largest common part, over all placements of the roots."""
    left, right = ours.children[-1], theirs.children[-1]
    places = candidates_by_order(_labels(ours.name, left), _labels(theirs.name, right))[:_MAX_PLACES]
    roots = [[(left[i], right[j]) for i, j in enumerate(p.alignment.at.tolist()) if j >= 0] for p in places]
    return max((_descend(ours, theirs, pairs) for pairs in [*roots, _align(ours, theirs, left, right)]), key=len)


def _descend(ours: _Forest, theirs: _Forest, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the given pairs and the pairs below them."""
    found, pending = [], list(pairs)
    while pending:
        a, b = pending.pop()
        found.append((a, b))
        left, right = ours.children.get(a, []), theirs.children.get(b, [])
        if not left or not right:
            continue
        if ours.shape[a] == theirs.shape[b]:
            pending += zip(left, right, strict=True)
        elif (permuted := _isomorphism(ours, theirs, a, b)) is not None:
            found += permuted
        else:
            pending += _align(ours, theirs, left, right)
    return found


def _align(ours: _Forest, theirs: _Forest, left: list[int], right: list[int]) -> list[tuple[int, int]]:
    """Align siblings: those with equal subtrees, and between these those with equal names."""
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


def _isomorphism(ours: _Forest, theirs: _Forest, a: int, b: int) -> list[tuple[int, int]] | None:
    """Return the pairs below two calls if only the order of siblings differs; None if more does, or if large."""
    if ours.size[a] != theirs.size[b] or ours.size[a] > _MAX_ISOMORPHISM:
        return None
    import networkx as nx  # importing it takes longer than linking a small pair

    left, right = _graph(ours, a), _graph(theirs, b)
    mapping = nx.vf2pp_isomorphism(left, right, node_label="name")
    return None if mapping is None else [(u, v) for u, v in mapping.items() if u != a]


def _graph(forest: _Forest, root: int) -> nx.Graph[int]:
    import networkx as nx

    graph: nx.Graph[int] = nx.Graph()
    graph.add_node(root, name="root")
    pending = [root]
    while pending:
        node = pending.pop()
        for child in forest.children.get(node, []):
            graph.add_node(child, name=forest.name[child])
            graph.add_edge(node, child)
            pending.append(child)
    return graph
