"""Counterparts by repetition: which later GPU event is the same work as one that was launched before the recording.

Kernels whose launch precedes the recording belong to an earlier iteration. In a trace of iterations their sequence
occurs again, with its launches. Sequences are compared stream by stream by runs of 8, 10, 12, 14, 16, 20 … events, all
of one length at once: runs of a power of two get numbers by doubling (Karp, Miller and Rosenberg 1972), others are two
of these that overlap. Whether a trace repeats itself is tried first on events whose operators are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.etplus.write_etplus import with_counterparts
from ..schemas.kineto.event_args import work_args
from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, StringTable, distinct_rows, mask_at, run_starts
from ..trace.comm_kernels import is_comm_kernel
from ..trace.conventions import UNATTACHED_REASONS
from ..trace.counterparts import UNPAIRED_REASONS, CounterpartLinks, Counterparts
from ..trace.tables import MODULE
from ..trace.trace import Trace

Mask = npt.NDArray[np.bool_]

_NO_REPETITION, _NO_RUN, _SEVERAL, _DURATION, _NO_OPERATOR = range(len(UNPAIRED_REASONS))
_NO_LAUNCHER = UNATTACHED_REASONS.index("no launcher in the trace")
_SHORTEST = 8
"""Events of the shortest run."""
_MARGIN = 2
"""Neighbours on either side that have to agree as well, but for those beyond the ends of the stream."""
_CANDIDATES = 8
"""Occurrences of a run whose operators are compared; of more than these so many, evenly chosen."""
_HIDDEN = (0.4, 0.2, 0.1)
"""Shares of the known events that a trial hides: the first that lets it say anything."""
_RIGHT = 0.99
"""Share of the trial's later pairs that has to be right for runs of a length to count, when the kernels that varied in
its earlier ones are left out."""
_REPEATED = 0.5
"""Share of the trial's events that have to be found again."""
_TRIED = 32
"""Pairs that a trial needs to say anything."""
_LONG, _NEARLY_ALL = 64, 0.9
"""Runs that speak for themselves, if so many of the unknown events are in such ones."""
_TIMES, _NEAR_NS = 4, 10_000
"""Durations that differ more, in times and in ns, are of other work, but for kernels that wait for other ranks."""


def find_repetition(trace: Trace) -> Trace:
    """The trace with counterparts of the GPU events whose launch precedes it, also in its file and its link report.

    Args:
        trace: as `link` makes it, without such counterparts.
    """
    events = _GpuSequences.of(trace)
    unknown = int(np.count_nonzero(events.unknown))
    if not unknown:
        return trace
    found = _pair(events)
    report = _report(events, found)
    summary = {**trace.summary, "link": {**trace.summary["link"]}}
    summary["link"]["gpu"] = {**summary["link"]["gpu"], "repetition": report}
    return with_counterparts(trace, _counterparts(trace, events, found), summary)


@dataclass(frozen=True)
class _GpuSequences:
    """All GPU events, those of one stream together in order of start, and a separator after each stream.

    Attributes:
        event: int64, position among the device events (those that are rows, then `Trace.unattached`), −1 of a
            separator.
        symbol: int64, equal for events of one stream that are alike: name, sizes of the launch, what is communicated.
            Separators have negative ones, each another.
        operator: int64, equal for events of equal operators and shapes; −1 where none is known to have launched it.
        module: int64, code of the name of the innermost module around the launch, −1 for none.
        dur: int64 ns. waits: bool, its duration depends on other ranks. launched: int64 ns.
        unknown: bool, its launch is not in the trace.
    """

    event: IntColumn
    symbol: IntColumn
    operator: IntColumn
    module: IntColumn
    dur: IntColumn
    waits: Mask
    launched: IntColumn
    unknown: Mask

    @staticmethod
    def of(trace: Trace) -> _GpuSequences:
        gpu, calls, rest = trace.gpu, trace.calls, trace.unattached
        names, categories = StringTable(trace.names), StringTable(trace.categories)
        args = [bytes(record.get("args", b"")) for record in trace.records(gpu.source)] + rest.args
        none = np.full(len(rest), -1, np.int64)
        call = np.append(gpu.call, none)
        columns = {key: np.append(getattr(gpu, key), getattr(rest, key)) for key in ("device", "stream", "ts", "dur")}
        name = np.append(gpu.name, names.codes(rest.names)).astype(np.int64)
        alike = StringTable()
        work = alike.codes([work_args(text) for text in args]).astype(np.int64)
        category = np.append(gpu.category, categories.codes(rest.categories)).astype(np.int64)
        symbol = distinct_rows(columns["device"], columns["stream"], name, category, work)[1]
        has = call >= 0
        operator, module = np.full((2, len(call)), -1, np.int64)
        operator[has] = distinct_rows(calls.name[call[has]], calls.signature[call[has]])[1]
        inside = nearest(call, calls.parent, calls.kind == MODULE)
        module[inside >= 0] = calls.name[inside[inside >= 0]]
        waits = np.array([is_comm_kernel(text) for text in names.values], np.bool_)[name] if len(name) else has
        unknown = np.append(gpu.reason, rest.reason) == _NO_LAUNCHER
        launched = np.append(trace.launched_ns, rest.ts)
        order = np.lexsort((columns["ts"], columns["stream"], columns["device"]))
        first = np.flatnonzero(run_starts(columns["device"][order], columns["stream"][order]))[1:]
        event = np.append(np.insert(order, first, -1), -1) if len(order) else order
        apart = event < 0
        placed_symbol = np.where(apart, -np.cumsum(apart.astype(np.int64)), np.append(symbol, -1)[event])
        placed = _GpuSequences(
            event, placed_symbol, operator, module, columns["dur"], waits, launched, unknown,
        )  # fmt: skip
        return replace(placed, **{key: _placed(getattr(placed, key), event) for key in _BY_EVENT})

    def take(self, kept: Mask) -> _GpuSequences:
        """Some of the events; separators have to be among them."""
        columns = {key: getattr(self, key)[kept] for key in ("event", "symbol", *_BY_EVENT)}
        return _GpuSequences(**columns)


_BY_EVENT = ("operator", "module", "dur", "waits", "launched", "unknown")


def _placed(column: npt.NDArray[Any], event: IntColumn) -> npt.NDArray[Any]:
    none = np.zeros(1, column.dtype) if column.dtype == np.bool_ else np.full(1, -1, column.dtype)
    return np.append(column, none)[event]


class _RunPairs(NamedTuple):
    """Of each event the place of its counterpart, −1 for none; how long the run is in which both are; whether others
    are possible whose operator, or whose module, is another; all 0 for events that are known."""

    partner: IntColumn
    length: IntColumn
    several: Mask
    modules: Mask


class _FoundCounterparts(NamedTuple):
    """Of each event the place of its counterpart, −1 for none; whether it is in the same module; the reason why an
    unknown event has none; and the trial's numbers for the report."""

    partner: IntColumn
    same_module: Mask
    reason: IntColumn
    trial: dict[str, int]


def _pair(events: _GpuSequences) -> _FoundCounterparts:
    """Counterparts, as far as the trial says that they are right."""
    trial, pairs = _trial(events), _find_pairs(events)
    n, reason = len(events.event), np.full(len(events.event), _NO_RUN)
    shortest = trial.shortest(events, pairs)
    found = events.unknown & (pairs.partner >= 0)
    checks = (
        (found & (pairs.length < shortest), _NO_RUN),
        (found & _differ(events, pairs.partner), _DURATION),
        (found & (pairs.several | mask_at(n, np.isin(events.symbol, trial.varies))), _SEVERAL),
        (found & (events.operator[pairs.partner] < 0) & ~pairs.several, _NO_OPERATOR),
    )
    for wrong, code in checks:
        reason[wrong & found] = code
        found &= ~wrong
    if shortest > n:
        reason[:] = _NO_REPETITION
    same = found & ~pairs.modules & trial.same_modules
    return _FoundCounterparts(np.where(found, pairs.partner, -1), same, reason, trial.counts)


class _PairingTrial(NamedTuple):
    """What pairing events whose operators are known, as if they were not, showed.

    Attributes:
        length: int64, of the run of each of the later pairs. right: bool, its operator is.
        says: it has as many pairs as it takes to say anything, of as many of its events as a trace has that repeats
            itself.
        varies: symbols whose operator differs between repetitions. same_modules: modules are right, too.
        counts: for the report.
    """

    length: IntColumn
    right: Mask
    says: bool
    varies: IntColumn
    same_modules: bool
    counts: dict[str, int]

    def shortest(self, events: _GpuSequences, pairs: _RunPairs) -> int:
        """The length of runs from which on pairs count; more than there are events if none does."""
        never = len(events.event) + 1
        if not self.says:  # too little is known: the whole sequence occurs again, or nothing counts
            long = np.count_nonzero(events.unknown & (pairs.length >= _LONG))
            whole = self.right.all() and long >= _NEARLY_ALL * np.count_nonzero(events.unknown)
            return _LONG if whole else never
        order = np.argsort(-self.length, kind="stable")
        share = np.cumsum(self.right[order]) / np.arange(1, len(order) + 1)
        if len(share) < _TRIED // 4:
            return never
        if share[-1] >= _RIGHT:
            return _SHORTEST
        last = ~np.append(self.length[order][1:] == self.length[order][:-1], False)
        return int(min(self.length[order][last & (share >= _RIGHT)], default=never))


def _trial(events: _GpuSequences) -> _PairingTrial:
    """Pair the first events whose launch is known with later ones."""
    here = events.take(~events.unknown)
    trial = None
    for share in _HIDDEN:
        trial = _trial_of(here, share, int(np.count_nonzero(events.unknown)))
        if trial.says:
            return trial
    assert trial is not None
    return trial


def _trial_of(here: _GpuSequences, share: float, most: int) -> _PairingTrial:
    """Hide a share of known events, the first ones, but at most so many."""
    launched = np.sort(here.launched[here.event >= 0])
    count = min(max(most, _TRIED), int(len(launched) * share))
    hidden = (here.event >= 0) & (here.launched < launched[count]) if count else np.zeros(len(here.event), np.bool_)
    pairs = _find_pairs(replace(here, unknown=hidden))
    tried = np.flatnonzero(hidden & (pairs.partner >= 0) & ~pairs.several & ~_differ(here, pairs.partner))
    tried = tried[np.argsort(here.launched[tried], kind="stable")]
    right = here.operator[tried] == here.operator[pairs.partner[tried]]
    within = tried[here.module[tried] >= 0]
    in_module = np.count_nonzero(here.module[within] == here.module[pairs.partner[within]])
    half = len(tried) // 2
    later = np.arange(half, len(tried))
    later = later[~np.isin(here.symbol[tried[later]], here.symbol[tried[:half][~right[:half]]])]
    counts = {"events": int(hidden.sum()), "paired": len(tried), "right": int(right.sum())}
    return _PairingTrial(
        pairs.length[tried[later]], right[later], len(tried) >= max(_TRIED, _REPEATED * counts["events"]),
        np.unique(here.symbol[tried[~right]]), bool(in_module >= _RIGHT * len(within)), counts,
    )  # fmt: skip


def _differ(events: _GpuSequences, partner: IntColumn) -> Mask:
    """Where durations are too different to be of the same work."""
    mine, other = events.dur, events.dur[partner]
    longer, shorter = np.maximum(mine, other), np.minimum(mine, other)
    return (partner >= 0) & ~events.waits & (longer > _TIMES * shorter) & (longer - shorter > _NEAR_NS)


def _find_pairs(events: _GpuSequences) -> _RunPairs:
    """For every unknown event the longest run around it that occurs among known ones."""
    n, orphans = len(events.event), np.flatnonzero(events.unknown)
    pairs = _RunPairs(np.full(n, -1), np.zeros(n, np.int64), np.zeros(n, np.bool_), np.zeros(n, np.bool_))
    apart = events.symbol < 0
    places = np.arange(n)
    before = places - np.maximum.accumulate(np.where(apart, places, -1)) - 1
    after = np.minimum.accumulate(np.where(apart, places, n)[::-1])[::-1] - places - 1
    room = np.minimum(before, _MARGIN)[orphans], np.minimum(after, _MARGIN)[orphans]
    ends, unknown = (np.append(0, np.cumsum(mask)) for mask in (apart, events.unknown))
    for length, number in _runs(events.symbol):
        whole = ends[length:] == ends[:-length]
        known = whole & (unknown[length:] == unknown[:-length])
        starts = np.flatnonzero(known)
        starts = starts[np.argsort(number[starts], kind="stable")]
        first, stop = (np.searchsorted(number[starts], number, side=side) for side in ("left", "right"))
        matched = whole & ~known & (stop > first)
        if not matched.any():
            return pairs
        _extend(events, pairs, _EqualRuns(length, matched, starts, first, stop), orphans, room)
    return pairs


def _runs(symbol: IntColumn) -> Iterator[tuple[int, IntColumn]]:
    """Lengths, ascending, and for each the number of the run that begins at each place: equal runs have the same."""
    length, number = 1, np.unique(symbol, return_inverse=True)[1].reshape(-1)
    while True:
        for quarter in range(4 if length >= _SHORTEST else 1):
            longer = length + quarter * length // 4
            count = len(symbol) - longer + 1
            if count <= 0:
                return
            if longer >= _SHORTEST:
                begin = number[:count]
                yield longer, begin if not quarter else distinct_rows(begin, number[longer - length :][:count])[1]
        if len(symbol) < 2 * length:
            return
        number = distinct_rows(number[:-length], number[length:])[1]
        length *= 2


class _EqualRuns(NamedTuple):
    """Runs of a length: at which places ones with unknown events begin that occur among known ones; and where these
    begin, from `first` to `stop` of each place in `starts`."""

    length: int
    matched: Mask
    starts: IntColumn
    first: IntColumn
    stop: IntColumn


def _extend(
    events: _GpuSequences, pairs: _RunPairs, runs: _EqualRuns, orphans: IntColumn, room: tuple[IntColumn, IntColumn]
) -> None:
    """Pair the unknown events in runs of a length, in place of what shorter runs said of them.

    Of the runs around an event the nearest to the one that has it in its middle are taken, on either side: they have
    to agree.

    Args:
        room: how many neighbours of each of `orphans` have to be in the run before and after it.
    """
    size = len(runs.matched)
    places = np.arange(size)
    earlier = np.maximum.accumulate(np.where(runs.matched, places, -1))
    later = np.minimum.accumulate(np.where(runs.matched, places, size)[::-1])[::-1]
    least = np.maximum(orphans - runs.length + 1 + room[1], 0)
    most = np.minimum(orphans - room[0], size - 1)
    middle = np.clip(orphans - runs.length // 2, least, np.maximum(most, least)).clip(0, size - 1)
    for side in (earlier[middle], later[middle]):
        has = (least <= most) & (side >= least) & (side <= most)
        event, start = orphans[has], side[has]
        new = pairs.length[event] < runs.length
        for column, none in ((pairs.partner, -1), (pairs.several, False), (pairs.modules, False)):
            column[event[new]] = none
        pairs.length[event] = runs.length
        _compare(events, pairs, event, runs, start)


def _compare(events: _GpuSequences, pairs: _RunPairs, event: IntColumn, runs: _EqualRuns, start: IntColumn) -> None:
    """Pair events with the first occurrence of the runs that begin at `start`, and compare it with the others."""
    count = runs.stop[start] - runs.first[start]
    for k in range(_CANDIDATES):
        chosen = np.where(count > _CANDIDATES, k * (count - 1) // (_CANDIDATES - 1), np.minimum(k, count - 1))
        other = runs.starts[runs.first[start] + chosen] + event - start
        mine = pairs.partner[event]
        has = mine >= 0
        pairs.several[event] |= has & (events.operator[mine] != events.operator[other])
        pairs.modules[event] |= has & (events.module[mine] != events.module[other])
        pairs.partner[event] = np.where(has, mine, other)


def _report(events: _GpuSequences, found: _FoundCounterparts) -> dict[str, Any]:
    """`gpu.repetition` of the link report; see docs/report.md."""
    unknown, paired = events.unknown, found.partner >= 0
    count = np.bincount(found.reason[unknown & ~paired], minlength=len(UNPAIRED_REASONS)).tolist()
    return {
        "events": int(unknown.sum()),
        "time_ns": int(events.dur[unknown].sum()),
        "paired": int(paired.sum()),
        "paired_time_ns": int(events.dur[paired].sum()),
        "same_module": int(found.same_module.sum()),
        "unpaired": {reason: n for reason, n in zip(UNPAIRED_REASONS, count, strict=True) if n},
        "trial": found.trial,
    }


def _counterparts(trace: Trace, events: _GpuSequences, found: _FoundCounterparts) -> Counterparts:
    at = np.flatnonzero(found.partner >= 0)
    at = at[np.argsort(events.event[at])]
    event, partner = events.event[at], events.event[found.partner[at]]
    row, same, here = trace.gpu.source[partner], found.same_module[at], event < len(trace.gpu)
    own = trace.gpu.source[event[here]]
    order = np.argsort(own)
    links = CounterpartLinks(own[order], row[here][order], same[here][order])
    return Counterparts(links, CounterpartLinks(event[~here] - len(trace.gpu), row[~here], same[~here]))
