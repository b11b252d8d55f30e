"""Match by sequence numbers and call order: thread by thread, and what is on different threads on the two sides; where
neither fits, by call trees: labelled ordered trees of both sides, equal subtrees first, then as much as names allow.

In trees calls whose name only one side has are left out, their children go to the caller. What remains is compared
from the roots down: lists of siblings are aligned by equal subtrees, then by names, and pairs that are not equal are
compared in turn. Where two small trees have the same calls in another order, networkx finds the isomorphism.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...schemas.kineto.kineto_calls import CpuCalls
from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, distinct, mask_at
from ...trace.kinds import CERTAIN, EQUIVALENT, UNLINKED
from ...trace.shortest_edit import CallOrder, shortest_edit
from ..calls import EtCalls, TracePair
from .candidate_alignments import NAMES, NUMBERS, CandidateAlignment, candidates_by_order, candidates_by_sequence
from .result import REASONS, Match

if TYPE_CHECKING:
    import networkx as nx


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

    def place(pattern: CallOrder, text: CallOrder) -> list[CandidateAlignment]:
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
    free = ~mask_at(len(calls), found.call[linked])
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


Placer = Callable[[CallOrder, CallOrder], list[CandidateAlignment]]
"""Finds the places of an ET thread (first) in a Kineto thread (second)."""

_NEARLY = 0.98
_RIVAL = 0.9
"""A place with gaps, or of another thread, is a rival if it has this share of the calls."""
_MOST = 0.5
_SAME_PROGRAM = 0.8
"""Two threads run the same program if this share of the calls of one has a name that the other has."""
_MIN_COMMON = 0.3
"""Threads of which less is common by name are not tried."""


@dataclass(frozen=True)
class _Candidate:
    """A placement of ET thread `ours` in Kineto thread `theirs` (positions in the lists of threads)."""

    ours: int
    theirs: int
    place: CandidateAlignment
    call: IntColumn  # positions in CpuCalls, −1 for none
    size: int  # calls of the Kineto thread
    start: int
    dur: int

    @property
    def gapless(self) -> bool:
        """Every call of the ET thread, or of the Kineto thread, is placed, and without a gap on the other side."""
        placed = np.flatnonzero(self.call >= 0)
        span = int(self.call[placed[-1]] - self.call[placed[0]]) + 1
        return len(placed) == span == int(placed[-1] - placed[0]) + 1 and len(placed) in (len(self.call), self.size)


@dataclass
class _Search:
    """Links made so far."""

    call: IntColumn
    link: npt.NDArray[np.int8]
    taken: npt.NDArray[np.bool_]
    chosen: dict[int, tuple[_Candidate, int]] = field(default_factory=dict)


def place_threads(
    nodes: EtCalls, calls: CpuCalls, steps: IntColumn, place: Placer, iteration: str, method: str
) -> Match:
    """Place every ET thread in a Kineto thread.

    A thread's links are certain if its one best place is proved by sequence numbers that agree, or, by names alone,
    if both traces are used up whole, and if no other thread of either side fits as well.

    Args:
        steps: codes of the names that count an iteration (ProfilerStep#7).
        iteration: which of equal places is taken: "first", "last", "median" (by total duration) or an ordinal.
    """
    ours = [np.flatnonzero(nodes.thread == t) for t in distinct(nodes.thread).tolist()]
    bounds = np.flatnonzero(np.diff(calls.thread, prepend=-1, append=-1)) if len(calls) else np.zeros(1, np.int64)
    theirs = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
    candidates = _all_candidates(nodes, calls, ours, theirs, place)
    state = _Search(np.full(len(nodes), -1, np.int64), np.zeros(len(nodes), np.int8), np.zeros(len(calls), np.bool_))

    def quality(t: int) -> tuple[int, int, int]:
        best = ((c.place.evidence, c.place.matched) for c in _best(candidates[t]))
        return (*max(best, default=(-1, 0)), len(ours[t]))

    for t in sorted(range(len(ours)), key=quality, reverse=True):
        _place_one(nodes, calls, ours, candidates, state, t, iteration)
    whole = bool(np.all(state.call >= 0) and np.all(state.taken)) and bool(np.isin(nodes.name, steps).any())
    for t, (taken, rivals) in state.chosen.items():
        state.link[ours[t]] = np.where(state.call[ours[t]] >= 0, EQUIVALENT, UNLINKED)
        if not rivals and _is_proof(taken, whole) and not _has_double(nodes, ours, state, t):
            sure = (state.call[ours[t]] >= 0) & ~taken.place.alignment.unsure
            state.link[ours[t][sure]] = CERTAIN
    reason = np.where(state.call >= 0, 0, REASONS.index("not in the Kineto trace")).astype(np.int8)
    facts = {"threads": [_facts(taken, rivals) for taken, rivals in state.chosen.values()]}
    return Match(state.call, state.link, reason, method, (), facts)


def _all_candidates(
    nodes: EtCalls, calls: CpuCalls, ours: list[IntColumn], theirs: list[tuple[int, int]], place: Placer
) -> list[list[_Candidate]]:
    width = int(max(nodes.name.max(initial=0), calls.name.max(initial=0))) + 2
    counts = [np.bincount(calls.name[a:b] + 1, minlength=width) for a, b in theirs]
    result: list[list[_Candidate]] = []
    for t, mine in enumerate(ours):
        pattern, own = CallOrder(nodes.name[mine], nodes.seq[mine]), np.bincount(nodes.name[mine] + 1, minlength=width)
        own[0] = 0
        found = []
        for k, (a, b) in enumerate(theirs):
            if np.minimum(own, counts[k]).sum() < _MIN_COMMON * min(len(mine), b - a):
                continue
            for placement in place(pattern, CallOrder(calls.name[a:b], calls.seq[a:b])):
                at = placement.alignment.at
                call = np.where(at >= 0, at + a, -1)
                linked = call[call >= 0]
                start = int(calls.ts[linked[0]])
                found.append(_Candidate(t, k, placement, call, b - a, start, int((calls.end - calls.ts)[linked].sum())))
        result.append(found)
    return result


def _best(candidates: list[_Candidate]) -> list[_Candidate]:
    """The candidates with the best evidence and, of these, nearly the most calls; a place of few calls is chance."""
    most = max((c.place.matched for c in candidates), default=0)
    large = [c for c in candidates if 2 * c.place.matched >= most]
    evidence = max((c.place.evidence for c in large), default=0)
    proved = [c for c in large if c.place.evidence == evidence]
    most = max((c.place.matched for c in proved), default=0)
    return [c for c in proved if c.place.matched >= _NEARLY * most]


def _place_one(
    nodes: EtCalls, calls: CpuCalls, ours: list[IntColumn], candidates: list[list[_Candidate]], state: _Search, t: int,
    iteration: str,
) -> None:  # fmt: skip
    free = [c for c in candidates[t] if not state.taken[c.call[c.call >= 0]].any()]
    if not free:
        return
    equal = _best(free)
    violations = [_violations(nodes, calls, state, ours[t], c) for c in equal]
    fewest = [c for c, v in zip(equal, violations, strict=True) if v == min(violations)]
    best = max(c.place.matched for c in fewest)
    thread = min((c for c in fewest if c.place.matched == best), key=lambda c: (c.start, c.theirs)).theirs
    taken = _choose([c for c in fewest if c.theirs == thread], iteration)
    rivals = [c for c in candidates[t] if c is not taken and _rivals(c, taken)]
    for other in range(len(ours)):
        if other != t:
            rivals += [c for c in candidates[other] if c.theirs == taken.theirs and _rivals(c, taken)]
    state.chosen[t] = taken, len(rivals)
    state.call[ours[t]] = taken.call
    state.taken[taken.call[taken.call >= 0]] = True


def _rivals(candidate: _Candidate, taken: _Candidate) -> bool:
    """Whether a candidate is as good as the one taken; what explains every call of a thread without a gap has rivals
    only in what does so too."""
    if candidate.place.evidence < taken.place.evidence:
        return False
    enough = candidate.place.matched >= _RIVAL * taken.place.matched
    if candidate.ours != taken.ours:  # two ET threads are not one Kineto thread, wherever in it they fit
        return enough and (candidate.gapless or not taken.gapless)
    if taken.gapless:
        return candidate.gapless and candidate.place.matched >= taken.place.matched
    return enough


def _has_double(nodes: EtCalls, ours: list[IntColumn], state: _Search, t: int) -> bool:
    """Whether another ET thread runs the same program and has no Kineto thread by its own numbers: numbers are
    counted per thread, so that it could be the one profiled. A Kineto thread used up whole by most of the ET thread
    distinguishes them, unless the other one had to take a place against its numbers."""
    taken = state.chosen[t][0]
    whole = taken.gapless and taken.place.matched == taken.size >= _MOST * len(taken.call)
    names = nodes.name[ours[t]]
    for u, theirs in enumerate(ours):
        own = state.chosen[u][0] if u in state.chosen else None
        if u == t or (own is None and whole):
            continue
        if own is not None and own.theirs != taken.theirs and own.place.evidence == NUMBERS:
            continue
        if np.isin(names, nodes.name[theirs]).mean() >= _SAME_PROGRAM:
            return True
    return False


def _violations(nodes: EtCalls, calls: CpuCalls, state: _Search, mine: IntColumn, candidate: _Candidate) -> int:
    """How many calls of a candidate are outside the times of their neighbours, in call order over all threads, that
    other threads have linked already."""
    linked = np.flatnonzero(state.call >= 0)
    at = mine[candidate.call >= 0]
    ts = calls.ts[candidate.call[candidate.call >= 0]]
    if not len(linked):
        return 0
    times = calls.ts[state.call[linked]]
    after = np.searchsorted(linked, at)
    low = np.where(after > 0, times[after - 1], np.iinfo(np.int64).min)
    high = np.where(after < len(linked), times[np.minimum(after, len(linked) - 1)], np.iinfo(np.int64).max)
    return int(np.count_nonzero((ts < low) | (ts > high)))


def _choose(candidates: list[_Candidate], iteration: str) -> _Candidate:
    ordered = sorted(candidates, key=lambda c: c.start)
    if iteration == "last":
        return ordered[-1]
    if iteration == "median":
        return sorted(ordered, key=lambda c: c.dur)[(len(ordered) - 1) // 2]
    return ordered[min(int(iteration), len(ordered) - 1) if iteration.isdecimal() else 0]


def _is_proof(taken: _Candidate, whole: bool) -> bool:
    """Sequence numbers prove a place if several different ones agree; one number alone can recur in every iteration
    (inference does not count), and is worth no more than names. Names do if both traces are used up whole and
    the step that the profiler counted is among them: one iteration has the same names as the next."""
    if taken.place.evidence == NUMBERS and taken.place.distinct > 1:
        return True
    return taken.place.evidence >= NAMES and whole


def _facts(taken: _Candidate, rivals: int) -> dict[str, Any]:
    place = taken.place
    return {
        "matched": place.matched,
        "of": len(taken.call),
        "evidence": ("other numbers", "names", "sequence numbers")[place.evidence],
        "equal_places": rivals + 1,
        "sequence_offset": place.offset,
        "unsure": int(np.count_nonzero(place.alignment.unsure)),
    }


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
    of: EtCalls | CpuCalls, common: IntColumn, shapes: dict[tuple[int, tuple[int, ...]], int]
) -> list[_Forest]:
    """One forest a thread, of the calls with common names. Equal subtrees of any get the same number from `shapes`."""
    thread, kept = of.thread, np.isin(of.name, common)
    above = nearest(of.parent, of.parent, kept)
    same = (above >= 0) & (thread[np.maximum(above, 0)] == thread)
    above = np.where(same, above, -1)
    names, forests = of.name.tolist(), []
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
    places = candidates_by_order(_labels(ours.name, left), _labels(theirs.name, right))[:_MAX_PLACES]
    roots = [[(left[i], right[j]) for i, j in enumerate(p.alignment.at.tolist()) if j >= 0] for p in places]
    return max((_descend(ours, theirs, pairs) for pairs in [*roots, _align(ours, theirs, left, right)]), key=len)


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


def _labels(labels: dict[int, int] | list[int], members: list[int]) -> CallOrder:
    return CallOrder.of_names(np.array([labels[member] for member in members], np.int64))


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
