"""Match by call trees: labelled ordered trees of both sides, equal subtrees first, then as much as names allow.

Calls whose name only one side has are left out, their children go to the caller. What remains is compared from the
roots down: lists of siblings are aligned by equal subtrees, then by names, and pairs that are not equal are compared
in turn. Where two small trees have the same calls in another order, networkx finds the isomorphism.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...trace.call_tree import nearest
from ...trace.columns import IntColumn
from ...trace.kinds import EQUIVALENT
from ...trace.shortest_edit import Calls, shortest_edit
from ..calls import CpuCalls, EtCalls
from .candidate_alignments import candidates_by_order
from .result import REASONS, Match

if TYPE_CHECKING:
    import networkx as nx

_MAX_ISOMORPHISM = 64
"""Calls of a tree up to which networkx looks for an isomorphism of permuted siblings; its worst case is exponential."""
_MAX_PLACES = 16
_MIN_SHARE = 0.8
"""Of the calls between the first and the last pair on either side so many must be paired: trees of unlike programs
have common parts, too."""


@dataclass(frozen=True)
class _Forest:
    """The call trees of one thread: names, children in call order (entry −1 of `children` are the roots)."""

    name: list[int]
    children: dict[int, list[int]]
    shape: dict[int, int]
    size: dict[int, int]


def match_tree(nodes: EtCalls, calls: CpuCalls) -> Match:
    """Pair the calls of each ET thread with those of the Kineto thread whose call trees have most in common.

    Shapes say nothing of which iteration it was, so that every link is `EQUIVALENT`. Linear in practice.
    """
    common = np.intersect1d(nodes.name, calls.name)
    shapes: dict[tuple[int, tuple[int, ...]], int] = {}
    ours = _forests(nodes.thread, nodes.parent, nodes.name, np.isin(nodes.name, common[common >= 0]), shapes)
    theirs = _forests(calls.thread, calls.parent, calls.name, np.isin(calls.name, common[common >= 0]), shapes)
    call = np.full(len(nodes), -1, np.int64)
    free = set(range(len(theirs)))
    for mine in sorted(ours, key=lambda forest: -forest.size[-1]):
        pairs, best = max(
            ((_pair(mine, theirs[k]), k) for k in sorted(free)), key=lambda p: len(p[0]), default=([], -1)
        )
        if not pairs or not _belong_together(pairs, nodes.thread, calls.thread):
            continue
        free.discard(best)
        for left, right in pairs:
            call[left] = right
    found = call >= 0
    reason = np.where(found, 0, REASONS.index("not in the Kineto trace")).astype(np.int8)
    match = Match(call, np.where(found, EQUIVALENT, 0).astype(np.int8), reason, "tree")
    return match.noting(f"tree: {match.linked:,} calls paired by call trees")


def _forests(
    thread: IntColumn,
    parent: IntColumn,
    name: IntColumn,
    kept: npt.NDArray[np.bool_],
    shapes: dict[tuple[int, tuple[int, ...]], int],
) -> list[_Forest]:
    """One forest a thread, of the kept calls. Equal subtrees of any forest get the same number from `shapes`."""
    above = nearest(parent, parent, kept)
    same = (above >= 0) & (thread[np.maximum(above, 0)] == thread)
    above = np.where(same, above, -1)
    names, forests = name.tolist(), []
    for t in np.unique(thread[kept]):
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
    """Whether, on both threads, nearly all calls from the first to the last that is paired are paired."""
    for side, thread in zip(np.array(pairs).T, (ours, theirs), strict=True):
        span = thread[side.min() : side.max() + 1] == thread[side[0]]
        if len(pairs) < _MIN_SHARE * np.count_nonzero(span):
            return False
    smaller = min(np.count_nonzero(ours == ours[pairs[0][0]]), np.count_nonzero(theirs == theirs[pairs[0][1]]))
    return bool(len(pairs) >= _MIN_SHARE * smaller)


def _pair(ours: _Forest, theirs: _Forest) -> list[tuple[int, int]]:
    """Pairs of the largest common part found, at the best of the places where the roots' names fit."""
    left, right = ours.children[-1], theirs.children[-1]
    best: list[tuple[int, int]] = []
    for roots in _root_places(ours, theirs, left, right):
        pairs = _descend(ours, theirs, roots)
        if len(pairs) > len(best):
            best = pairs
    return best


def _root_places(ours: _Forest, theirs: _Forest, left: list[int], right: list[int]) -> list[list[tuple[int, int]]]:
    names, others = _labels(ours.name, left), _labels(theirs.name, right)
    places = candidates_by_order(names, others)[:_MAX_PLACES]
    result = [[(left[i], right[j]) for i, j in enumerate(p.alignment.at.tolist()) if j >= 0] for p in places]
    return [*result, _align(ours, theirs, left, right)]


def _descend(ours: _Forest, theirs: _Forest, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pairs given and those below them."""
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
    """Siblings in one common order: those with equal subtrees, and between these those with equal names."""
    x, y = shortest_edit(_labels(ours.shape, left), _labels(theirs.shape, right), whole=True)
    pairs, a, b = [], 0, 0
    for i, j in [*zip(x.tolist(), y.tolist(), strict=True), (len(left), len(right))]:
        u, v = shortest_edit(_labels(ours.name, left[a:i]), _labels(theirs.name, right[b:j]), whole=True)
        pairs += [(left[a + p], right[b + q]) for p, q in zip(u.tolist(), v.tolist(), strict=True)]
        if i < len(left):
            pairs.append((left[i], right[j]))
        a, b = i + 1, j + 1
    return pairs


def _labels(labels: dict[int, int] | list[int], members: list[int]) -> Calls:
    values = np.array([labels[m] for m in members], np.int64)
    return Calls(values, np.full(len(values), -1, np.int64))


def _isomorphism(ours: _Forest, theirs: _Forest, a: int, b: int) -> list[tuple[int, int]] | None:
    """Pairs below two calls whose trees differ only in the order of siblings; None if they differ more or are large."""
    if ours.size[a] != theirs.size[b] or ours.size[a] > _MAX_ISOMORPHISM:
        return None
    import networkx as nx  # takes longer to import than a small pair to link, and is seldom needed

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
