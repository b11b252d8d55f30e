"""Match by sequence numbers and call order, thread by thread: the methods sequence and shift.

An ET thread can fit into several Kineto threads, and at several iterations of one Kineto thread. `place_threads`
selects one place per thread, starting with the best evidence. Links are certain only if no other place is as good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ...schemas.kineto.kineto_calls import CpuCalls
from ...trace.columns import IntColumn, distinct, mask_at
from ...trace.kinds import CERTAIN, UNLINKED, UNVERIFIED
from ..calls import EtCalls, TracePair
from ..shortest_edit import CallOrder
from .candidate_alignments import NAMES, NUMBERS, CandidateAlignment, candidates_by_order, candidates_by_sequence
from .result import REASONS, Match


def match_sequence(nodes: EtCalls, calls: CpuCalls, steps: IntColumn, iteration: str) -> Match:
    """Place each ET thread by the names and sequence numbers that it shares with a Kineto thread."""
    found = place_threads(nodes, calls, steps, candidates_by_sequence, iteration, "sequence")
    if not found.linked:
        return found.noting("sequence: no sequence number of the ET occurs with the same name in the Kineto trace")
    return found.noting(f"sequence: {found.linked:,} calls placed by sequence numbers and call order")


def match_shift(nodes: EtCalls, calls: CpuCalls, steps: IntColumn, iteration: str) -> Match:
    """Place each ET thread by the order of its names. Sequence numbers only decide which places are better."""
    return _noted(place_threads(nodes, calls, steps, candidates_by_order, iteration, "shift"))


def match_sequence_and_shift(nodes: EtCalls, calls: CpuCalls, steps: IntColumn, iteration: str) -> Match:
    """Place each ET thread by sequence numbers if any match, otherwise by the order of its names."""

    def place(pattern: CallOrder, text: CallOrder) -> list[CandidateAlignment]:
        return candidates_by_sequence(pattern, text) or candidates_by_order(pattern, text)

    return _noted(place_threads(nodes, calls, steps, place, iteration, "sequence and shift"))


def _noted(found: Match) -> Match:
    if not found.linked:
        return found.noting(f"{found.method}: no sequence of names occurs in both an ET and a Kineto thread")
    several = max(thread["equal_places"] for thread in found.facts["threads"])
    note = f"{found.method}: {found.linked:,} calls placed by call order"
    return found.noting(note + (f", in one of {several} equally good places" if several > 1 else ""))


def match_remaining(pair: TracePair, found: Match) -> Match:
    """Pair the remaining calls in the linked window by name, if both sides have the same number of calls with this
    name. The k-th of these ET calls is paired with the k-th Kineto call in time. These links are never certain. The ET
    records asynchronous collectives on the caller's thread, and Kineto records them on the worker thread."""
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
    call[ours], link[ours], reason[ours] = theirs, UNVERIFIED, 0
    note = f"{len(ours):,} calls that the two traces record on different threads: paired by name and order"
    return replace(found, call=call, link=link, reason=reason).noting(note)


# A function that finds all places of an ET thread (first argument) in a Kineto thread (second argument).
Placer = Callable[[CallOrder, CallOrder], list[CandidateAlignment]]

# A place is considered as good as the best place if it has at least this share of the best place's calls.
_NEARLY = 0.98
# The chosen place is uncertain if a rival has at least this share of the chosen place's calls (see `_rivals`).
_RIVAL = 0.9
# A fully matched Kineto thread is conclusive only if its number of calls is at least this share of the ET thread's.
_MOST = 0.5
# Two threads run the same program if at least this share of one thread's calls have names that occur in the other.
_SAME_PROGRAM = 0.8
# Two threads are compared only if at least this share of the shorter thread's calls have names found in both.
_MIN_COMMON = 0.3


@dataclass(frozen=True)
class _Candidate:
    """One way to place ET thread `ours` in Kineto thread `theirs` (both are positions in the lists of threads)."""

    ours: int
    theirs: int
    place: CandidateAlignment
    call: IntColumn  # positions in CpuCalls, −1 for none
    size: int  # number of calls in the Kineto thread
    start: int
    dur: int

    @property
    def gapless(self) -> bool:
        placed = np.flatnonzero(self.call >= 0)
        span = int(self.call[placed[-1]] - self.call[placed[0]]) + 1
        return len(placed) == span == int(placed[-1] - placed[0]) + 1 and len(placed) in (len(self.call), self.size)


@dataclass(frozen=True)
class _CallThreads:
    nodes: EtCalls
    calls: CpuCalls
    ours: list[IntColumn]
    theirs: list[tuple[int, int]]

    @staticmethod
    def of(nodes: EtCalls, calls: CpuCalls) -> _CallThreads:
        ours = [np.flatnonzero(nodes.thread == thread) for thread in distinct(nodes.thread).tolist()]
        bounds = np.flatnonzero(np.diff(calls.thread, prepend=-1, append=-1)).tolist() if len(calls) else []
        return _CallThreads(nodes, calls, ours, list(pairwise(bounds)))


@dataclass
class _Search:
    call: IntColumn
    link: npt.NDArray[np.int8]
    taken: npt.NDArray[np.bool_]
    chosen: dict[int, tuple[_Candidate, int]] = field(default_factory=dict)


def place_threads(
    nodes: EtCalls, calls: CpuCalls, steps: IntColumn, place: Placer, iteration: str, method: str
) -> Match:
    """Find the best place of every ET thread in a Kineto thread. `steps` contains the codes of numbered step names
    (ProfilerStep#7). A thread's links are certain if it has a single best place, no other thread in either trace fits
    as well, and sequence numbers prove the place. Names can also prove it if all calls of both traces are matched."""
    threads = _CallThreads.of(nodes, calls)
    ours, candidates = threads.ours, _all_candidates(threads, place)
    state = _Search(np.full(len(nodes), -1, np.int64), np.zeros(len(nodes), np.int8), np.zeros(len(calls), np.bool_))

    def quality(t: int) -> tuple[int, int, int]:
        best = ((c.place.evidence, c.place.matched) for c in _best(candidates[t]))
        return (*max(best, default=(-1, 0)), len(ours[t]))

    for t in sorted(range(len(ours)), key=quality, reverse=True):
        _place_one(threads, candidates, state, t, iteration)
    whole = bool(np.all(state.call >= 0) and np.all(state.taken)) and bool(np.isin(nodes.name, steps).any())
    for t, (taken, rivals) in state.chosen.items():
        state.link[ours[t]] = np.where(state.call[ours[t]] >= 0, UNVERIFIED, UNLINKED)
        if not rivals and _is_proof(taken, whole) and not _has_double(threads, state, t):
            sure = (state.call[ours[t]] >= 0) & ~taken.place.alignment.unsure
            state.link[ours[t][sure]] = CERTAIN
    reason = np.where(state.call >= 0, 0, REASONS.index("not in the Kineto trace")).astype(np.int8)
    facts = {"threads": [_facts(taken, rivals) for taken, rivals in state.chosen.values()]}
    return Match(state.call, state.link, reason, method, (), facts)


def _all_candidates(threads: _CallThreads, place: Placer) -> list[list[_Candidate]]:
    nodes, calls, theirs = threads.nodes, threads.calls, threads.theirs
    width = int(max(nodes.name.max(initial=0), calls.name.max(initial=0))) + 2
    counts = [np.bincount(calls.name[a:b] + 1, minlength=width) for a, b in theirs]
    result: list[list[_Candidate]] = []
    for t, own in enumerate(threads.ours):
        pattern, names = CallOrder(nodes.name[own], nodes.seq[own]), np.bincount(nodes.name[own] + 1, minlength=width)
        names[0] = 0  # this entry counts all names that Kineto lacks
        found = []
        for k, (a, b) in enumerate(theirs):
            if np.minimum(names, counts[k]).sum() < _MIN_COMMON * min(len(own), b - a):
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
    """Return the candidates with the strongest evidence and nearly the most matched calls. Few may match by chance."""
    most = max((c.place.matched for c in candidates), default=0)
    large = [c for c in candidates if 2 * c.place.matched >= most]
    evidence = max((c.place.evidence for c in large), default=0)
    proved = [c for c in large if c.place.evidence == evidence]
    most = max((c.place.matched for c in proved), default=0)
    return [c for c in proved if c.place.matched >= _NEARLY * most]


def _place_one(
    threads: _CallThreads, candidates: list[list[_Candidate]], state: _Search, t: int, iteration: str
) -> None:
    free = [c for c in candidates[t] if not state.taken[c.call[c.call >= 0]].any()]
    if not free:
        return
    equal = _best(free)
    violations = [_violations(threads, state, c) for c in equal]
    fewest = [c for c, v in zip(equal, violations, strict=True) if v == min(violations)]
    best = max(c.place.matched for c in fewest)
    thread = min((c for c in fewest if c.place.matched == best), key=lambda c: (c.start, c.theirs)).theirs
    taken = _choose([c for c in fewest if c.theirs == thread], iteration)
    rivals = [c for c in candidates[t] if c is not taken and _rivals(c, taken)]
    for other in range(len(candidates)):
        if other != t:
            rivals += [c for c in candidates[other] if c.theirs == taken.theirs and _rivals(c, taken)]
    state.chosen[t] = taken, len(rivals)
    state.call[threads.ours[t]] = taken.call
    state.taken[taken.call[taken.call >= 0]] = True


def _rivals(candidate: _Candidate, taken: _Candidate) -> bool:
    """Return True if a candidate is as good as the chosen place. If that has no gaps, the candidate must have none."""
    if candidate.place.evidence < taken.place.evidence:
        return False
    enough = candidate.place.matched >= _RIVAL * taken.place.matched
    if candidate.ours != taken.ours:  # one Kineto thread cannot match two ET threads, not even in different places
        return enough and (candidate.gapless or not taken.gapless)
    if taken.gapless:
        return candidate.gapless and candidate.place.matched >= taken.place.matched
    return enough


def _has_double(threads: _CallThreads, state: _Search, t: int) -> bool:
    """Return True if another ET thread runs the same program and could therefore be the profiled thread. Sequence
    numbers cannot tell two threads apart, because each thread counts its own. Rule out a thread if its numbers prove a
    different Kineto thread. If this thread is mostly matched and covers its Kineto thread, also rule out threads
    without a place."""
    taken = state.chosen[t][0]
    whole = taken.gapless and taken.place.matched == taken.size >= _MOST * len(taken.call)
    names = threads.nodes.name[threads.ours[t]]
    for u, other in enumerate(threads.ours):
        own = state.chosen[u][0] if u in state.chosen else None
        if u == t or (own is None and whole):
            continue
        if own is not None and own.theirs != taken.theirs and own.place.evidence == NUMBERS:
            continue
        if np.isin(names, threads.nodes.name[other]).mean() >= _SAME_PROGRAM:
            return True
    return False


def _violations(threads: _CallThreads, state: _Search, candidate: _Candidate) -> int:
    """Count the candidate's calls that start before the previous linked call in call order or after the next one."""
    linked = np.flatnonzero(state.call >= 0)
    if not len(linked):
        return 0
    at = threads.ours[candidate.ours][candidate.call >= 0]
    ts = threads.calls.ts[candidate.call[candidate.call >= 0]]
    times = threads.calls.ts[state.call[linked]]
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
    """Return True if the place of a thread is proved. Sequence numbers prove a place if several agree. A single number
    can recur in every iteration, because inference does not increment it. Names recur in every iteration. They prove a
    place only if all calls of both traces are matched and both traces contain the profiler's numbered step."""
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
