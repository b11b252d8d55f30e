"""Counterparts by repetition: which later GPU event is the same work as one that was launched before the recording.

Kernels whose launch precedes the recording belong to an earlier iteration. In a trace of iterations their sequence
occurs again, with its launches. Sequences are compared stream by stream by runs of 8, 10, 12, 14, 16, 20 … events, all
of one length at once: runs of a power of two get numbers by doubling (Karp, Miller and Rosenberg 1972), others are two
of these that overlap. Whether a trace repeats itself is tried first on events whose operators are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.etplus.write_etplus import with_counterparts
from ..schemas.kineto.event_args import work_args
from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, StringTable, distinct, distinct_rows, mask_at, run_starts
from ..trace.comm_kernels import has_collective_fields, is_comm_kernel
from ..trace.conventions import LAUNCHED_BEFORE, NO_LAUNCHER
from ..trace.counterparts import UNPAIRED_REASONS, CounterpartLinks, Counterparts
from ..trace.tables import MODULE
from ..trace.trace import Trace

Mask = npt.NDArray[np.bool_]

_NO_REPETITION, _NO_RUN, _SEVERAL, _DURATION, _NO_OPERATOR = range(len(UNPAIRED_REASONS))
SHORTEST_RUN = 8
"""Events of the shortest run; fewer that were launched before the recording are not worth the columns of the trace."""
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
        category = np.append(gpu.category, categories.codes(rest.categories)).astype(np.int64)
        unknown = np.isin(np.append(gpu.reason, rest.reason), (LAUNCHED_BEFORE, NO_LAUNCHER))
        kind = distinct_rows(name, category)[1]
        symbol = distinct_rows(columns["device"], columns["stream"], kind, _work(kind, args, unknown))[1]
        has = call >= 0
        operator, module = np.full((2, len(call)), -1, np.int64)
        operator[has] = distinct_rows(calls.name[call[has]], calls.signature[call[has]])[1]
        inside = nearest(call, calls.parent, calls.kind == MODULE)
        module[inside >= 0] = calls.name[inside[inside >= 0]]
        described = zip(rest.names, args[len(gpu) :], strict=True)
        loose = [is_comm_kernel(kernel) or has_collective_fields(text) for kernel, text in described]
        waits = np.append(trace.is_comm, np.array(loose, np.bool_))
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


def _work(kind: IntColumn, args: list[bytes], unknown: Mask) -> IntColumn:
    """Code of what tells events of a kind (name and category) apart, as far as all unknown events of the kind have it.

    On ROCm the grid and block of a kernel come from its launch call, so kernels without a launch lack them.
    """
    table = StringTable()
    code = table.codes([work_args(text) for text in args]).astype(np.int64)
    variants, variant = distinct_rows(kind, code, unknown.astype(np.int64))
    lacking = dict[int, set[int]]()
    for of_kind, of_work, is_unknown in variants.tolist():
        if is_unknown:
            missing = {field for field, value in enumerate(table.values[of_work]) if not value}
            lacking.setdefault(of_kind, set()).update(missing)
    compared = [
        tuple(b"" if field in lacking.get(of_kind, ()) else value for field, value in enumerate(table.values[of_work]))
        for of_kind, of_work, _ in variants.tolist()
    ]
    return StringTable().codes(compared).astype(np.int64)[variant]


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
            return SHORTEST_RUN
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
        distinct(here.symbol[tried[~right]]), bool(in_module >= _RIGHT * len(within)), counts,
    )  # fmt: skip


def _differ(events: _GpuSequences, partner: IntColumn) -> Mask:
    """Where durations are too different to be of the same work."""
    mine, other = events.dur, events.dur[partner]
    longer, shorter = np.maximum(mine, other), np.minimum(mine, other)
    return (partner >= 0) & ~events.waits & (longer > _TIMES * shorter) & (longer - shorter > _NEAR_NS)


def _find_pairs(events: _GpuSequences) -> _RunPairs:
    """For every unknown event the longest run around it that occurs among known ones."""
    n = len(events.event)
    pairs = _RunPairs(np.full(n, -1), np.zeros(n, np.int64), np.zeros(n, np.bool_), np.zeros(n, np.bool_))
    windows = _Windows.of(events)
    numbered = _numbered(events.symbol, windows)
    for length, number in reversed(numbered):
        for longer in (length * 7 // 4, length * 3 // 2, length * 5 // 4, length):
            open_ = np.flatnonzero(events.unknown & (pairs.partner < 0))
            count = n - longer + 1
            if not len(open_) or count <= 0:
                continue
            begin = number[:count]
            of = begin if longer == length else distinct_rows(begin, number[longer - length :][:count])[1]
            runs = _occurrences(windows, longer, of, events.unknown & (pairs.partner < 0))
            if runs is not None:
                _extend(events, pairs, runs, open_, windows.room(open_))
    return pairs


class _Windows(NamedTuple):
    """What runs may be of: of every event how many of its stream are before and after it, and running counts of
    separators and unknown events, one entry more."""

    before: IntColumn
    after: IntColumn
    ends: IntColumn
    unknown: IntColumn

    @staticmethod
    def of(events: _GpuSequences) -> _Windows:
        apart, places, n = events.symbol < 0, np.arange(len(events.symbol)), len(events.symbol)
        before = places - np.maximum.accumulate(np.where(apart, places, -1)) - 1
        after = np.minimum.accumulate(np.where(apart, places, n)[::-1])[::-1] - places - 1
        return _Windows(before, after, *(np.append(0, np.cumsum(mask)) for mask in (apart, events.unknown)))

    def room(self, events: IntColumn) -> tuple[IntColumn, IntColumn]:
        """How many neighbours of some events have to be in a run before and after them."""
        return np.minimum(self.before[events], _MARGIN), np.minimum(self.after[events], _MARGIN)

    def kinds(self, length: int) -> tuple[Mask, Mask]:
        """By first place, runs of a length within one stream: of known events alone, and others."""
        whole = self.ends[length:] == self.ends[:-length]
        known = self.unknown[length:] == self.unknown[:-length]
        return whole & known, whole & ~known


def _numbered(symbol: IntColumn, windows: _Windows) -> list[tuple[int, npt.NDArray[np.int32]]]:
    """Lengths, powers of two from the shortest run on, and the number of the run that begins at each place: equal runs
    have the same; as long as a run with unknown events occurs among known ones."""
    length, found = 1, list[tuple[int, npt.NDArray[np.int32]]]()
    number = np.unique(symbol, return_inverse=True)[1].reshape(-1).astype(np.int32)
    while len(symbol) >= 2 * length:
        number = distinct_rows(number[:-length], number[length:])[1].astype(np.int32)
        length *= 2
        known, others = windows.kinds(length)
        occurs = mask_at(int(number.max()) + 1, number[known])
        if not np.any(occurs[number[others]]):
            break
        if length >= SHORTEST_RUN:
            found.append((length, number))
    return found


class _EqualRuns(NamedTuple):
    """Runs of a length: at which places ones with unknown events begin that occur among known ones; and where these
    begin: from `first` on in `starts`, so many `times`, by place."""

    length: int
    matched: Mask
    starts: IntColumn
    first: IntColumn
    times: IntColumn


def _occurrences(windows: _Windows, length: int, number: npt.NDArray[np.integer], wanted: Mask) -> _EqualRuns | None:
    """The runs of a length around wanted events that occur among known ones, None if there is none.

    Args:
        number: of the run that begins at each place.
    """
    known, others = windows.kinds(length)
    around = np.append(0, np.cumsum(wanted))
    others &= around[length:] > around[:-length]
    size = int(number.max()) + 1
    starts = np.flatnonzero(known & mask_at(size, number[others])[number])
    if not len(starts):
        return None
    starts = starts[np.argsort(number[starts], kind="stable")]
    count = np.bincount(number[starts], minlength=size)
    first = np.cumsum(count) - count
    return _EqualRuns(length, others & (count[number] > 0), starts, first[number], count[number])


def _extend(
    events: _GpuSequences, pairs: _RunPairs, runs: _EqualRuns, orphans: IntColumn, room: tuple[IntColumn, IntColumn]
) -> None:
    """Pair unknown events that are in runs of a length.

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
    left, right = earlier[middle], later[middle]
    for side, seen in ((left, np.zeros(len(left), np.bool_)), (right, right == left)):
        has = (least <= most) & (side >= least) & (side <= most) & ~seen
        pairs.length[orphans[has]] = runs.length
        _compare(events, pairs, orphans[has], runs, side[has])


def _compare(events: _GpuSequences, pairs: _RunPairs, event: IntColumn, runs: _EqualRuns, start: IntColumn) -> None:
    """Pair events with the first occurrence of the runs that begin at `start`, and compare it with the others."""
    count, first, shift = runs.times[start], runs.first[start], event - start
    new = pairs.partner[event] < 0
    pairs.partner[event[new]] = runs.starts[first[new]] + shift[new]
    for k in range(_CANDIDATES):
        at = np.flatnonzero(count > k)
        chosen = np.where(count[at] > _CANDIDATES, k * (count[at] - 1) // (_CANDIDATES - 1), k)
        other, mine = runs.starts[first[at] + chosen] + shift[at], pairs.partner[event[at]]
        pairs.several[event[at]] |= events.operator[mine] != events.operator[other]
        pairs.modules[event[at]] |= events.module[mine] != events.module[other]


def _report(events: _GpuSequences, found: _FoundCounterparts) -> dict[str, Any]:
    """`gpu.repetition` of the link report; see docs/reference/report.md."""
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
