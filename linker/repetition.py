"""Find the operators of GPU events launched before the recording began. Later iterations repeat their work.

No trace records their operators. However, if a trace has several iterations, the same sequence of kernels recurs in a
later iteration, and there its launches are recorded. Around each such event, `_find_pairs` looks for the longest run of
symbols that also occurs with launches. A symbol represents a kernel, its launch size and its message. The event's
counterpart is at the same offset in the first occurrence of the run. Identical runs get the same number. It is computed
from the numbers of the two halves of the run (Karp, Miller and Rosenberg 1972). `_trial` hides the launches of some
events to find out how long a run must be to be reliable. `_accepted` keeps a pair only if its run is long enough, its
operator is unambiguous, and the durations are similar."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
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
# Minimum length of a run. Shorter runs recur by chance, because a layer repeats two or three kernels.
# The search is skipped if fewer events are unknown, because building the trace's tables costs more than it gains.
SHORTEST_RUN = 8
# On each side of an event, a run must contain at least this many neighbors. Fewer are enough at the ends of a stream.
_MARGIN = 2
# To limit the work for frequent runs, at most this many evenly spaced occurrences are compared.
_CANDIDATES = 8
# Trials hide these shares of the known launches, in this order. In short traces, only a small share can be hidden.
_HIDDEN_SHARES = (0.4, 0.2, 0.1)
# Minimum share of correct operators in a trial. With a lower limit, kernels would get wrong operators.
_MIN_RIGHT = 0.99
# A trial is conclusive only if it pairs at least this share of its hidden events.
_MIN_REPEATED = 0.5
# A trial is conclusive only if it has at least this many pairs. With fewer, one wrong pair would be more than 3%.
_MIN_TRIED = 32
# Without a conclusive trial, only runs this long or longer are used, if they contain _NEARLY_ALL unknown events.
_LONG_RUN, _NEARLY_ALL = 64, 0.9
# Two events do different work if their durations differ by more than this factor and by more than 10 µs.
# Short kernels may vary by a larger factor. Communication kernels are exempt, because they wait for other ranks.
_TIMES, _NEAR_NS = 4, 10_000


def find_repetition(trace: Trace) -> Trace:
    """Find counterparts of GPU events launched before the trace began. Add them to the trace and its report."""
    events = _sequences(trace)
    if not events.unknown.any():
        return trace
    found = _accepted(events, _trial(events), _find_pairs(events))
    summary = {**trace.summary, "link": {**trace.summary["link"]}}
    summary["link"]["gpu"] = {**summary["link"]["gpu"], "repetition": _report(events, found)}
    return with_counterparts(trace, _counterparts(trace, events, found), summary)


@dataclass(frozen=True)
class _Sequences:
    """All GPU events, sorted by stream and start. There is a separator after each stream."""

    event: IntColumn  # position among the device events (rows, then `Trace.unattached`); −1 for a separator
    symbol: IntColumn  # same value for interchangeable events on a stream; separators have unique negative values
    operator: IntColumn  # events with the same operator and shapes have the same value; −1 if unknown
    module: IntColumn  # name code of the innermost module around the launch; −1 for none
    dur: IntColumn
    waits: Mask  # True if the duration depends on other ranks
    launched: IntColumn
    unknown: Mask  # True if the launch is not in the trace

    def take(self, kept: Mask) -> _Sequences:
        return _Sequences(**{column.name: getattr(self, column.name)[kept] for column in fields(self)})


def _sequences(trace: Trace) -> _Sequences:
    gpu, unattached = trace.gpu, trace.unattached
    in_both = ("device", "stream", "ts", "dur")
    device, stream, ts, dur = (np.append(getattr(gpu, key), getattr(unattached, key)) for key in in_both)
    args = [bytes(record.get("args", b"")) for record in trace.records(gpu.source)] + unattached.args
    unknown = np.isin(np.append(gpu.reason, unattached.reason), (LAUNCHED_BEFORE, NO_LAUNCHER))
    name = np.append(gpu.name, StringTable(trace.names).codes(unattached.names)).astype(np.int64)
    category = np.append(gpu.category, StringTable(trace.categories).codes(unattached.categories)).astype(np.int64)
    kind = distinct_rows(name, category)[1]
    symbol = distinct_rows(device, stream, kind, _work(kind, args, unknown))[1]
    operator, module = _operators(trace, np.append(gpu.call, np.full(len(unattached), -1, np.int64)))
    described = zip(unattached.names, args[len(gpu) :], strict=True)
    communicates = [is_comm_kernel(kernel) or has_collective_fields(text) for kernel, text in described]
    waits = np.append(trace.is_comm, np.array(communicates, np.bool_))

    order = np.lexsort((ts, stream, device))
    stream_starts = np.flatnonzero(run_starts(device[order], stream[order]))[1:]
    event = np.append(np.insert(order, stream_starts, -1), -1) if len(order) else order

    def placed(column: npt.NDArray[Any], separator: int = -1) -> npt.NDArray[Any]:
        return np.append(column, np.array([separator], column.dtype))[event]  # index −1 selects the last entry

    symbols = np.where(event < 0, -np.cumsum((event < 0).astype(np.int64)), placed(symbol))
    launched = placed(np.append(trace.launched_ns, unattached.ts))
    columns = placed(operator), placed(module), placed(dur), placed(waits, 0), launched, placed(unknown, 0)
    return _Sequences(event, symbols, *columns)


def _operators(trace: Trace, call: IntColumn) -> tuple[IntColumn, IntColumn]:
    calls, has = trace.calls, call >= 0
    operator, module = np.full((2, len(call)), -1, np.int64)
    operator[has] = distinct_rows(calls.name[call[has]], calls.signature[call[has]])[1]
    inside = nearest(call, calls.parent, calls.kind == MODULE)
    module[inside >= 0] = calls.name[inside[inside >= 0]]
    return operator, module


def _work(kind: IntColumn, args: list[bytes], unknown: Mask) -> IntColumn:
    """Return a code for each event's launch arguments. Ignore arguments that any unknown event of the same kind lacks.
    On ROCm, a kernel's grid and block are recorded in its launch call. If there is no launch call, both are missing."""
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


class _Pairs(NamedTuple):
    """For each place, `partner` is its counterpart (−1 for none), and `length` is the length of their run. `several`
    and `modules` are True if other occurrences of the run have a different operator or module at this place."""

    partner: IntColumn
    length: IntColumn
    several: Mask
    modules: Mask


def _find_pairs(events: _Sequences) -> _Pairs:
    n = len(events.event)
    pairs = _Pairs(np.full(n, -1), np.zeros(n, np.int64), np.zeros(n, np.bool_), np.zeros(n, np.bool_))
    surroundings = _surroundings(events)
    for length, number in reversed(_numbered_runs(events.symbol, surroundings)):
        for longer in (length * 7 // 4, length * 3 // 2, length * 5 // 4, length):
            unpaired = events.unknown & (pairs.partner < 0)
            count = n - longer + 1
            if count <= 0 or not unpaired.any():
                continue
            run: npt.NDArray[np.integer] = number[:count]
            if longer > length:  # two overlapping shorter runs form this run
                run = distinct_rows(run, number[longer - length :][:count])[1]
            runs = _repeated_runs(surroundings, longer, run, unpaired)
            if runs is not None:
                _pair_by_runs(events, pairs, runs, np.flatnonzero(unpaired), surroundings)
    return pairs


class _Surroundings(NamedTuple):
    """For each place, `before` and `after` count the events on the same stream before and after it. `separators` and
    `unknown` count the separators and the unknown events before it, and end with their total number."""

    before: IntColumn
    after: IntColumn
    separators: IntColumn
    unknown: IntColumn

    def runs(self, length: int) -> tuple[Mask, Mask]:
        whole = self.separators[length:] == self.separators[:-length]
        known = self.unknown[length:] == self.unknown[:-length]
        return whole & known, whole & ~known


def _surroundings(events: _Sequences) -> _Surroundings:
    separator, n = events.symbol < 0, len(events.symbol)
    places = np.arange(n)
    before = places - np.maximum.accumulate(np.where(separator, places, -1)) - 1
    after = np.minimum.accumulate(np.where(separator, places, n)[::-1])[::-1] - places - 1
    return _Surroundings(before, after, *(np.append(0, np.cumsum(mask)) for mask in (separator, events.unknown)))


def _numbered_runs(symbol: IntColumn, surroundings: _Surroundings) -> list[tuple[int, npt.NDArray[np.int32]]]:
    """Return run lengths (powers of two up to the longest match). Each has the run's number at every place."""
    length, numbered = 1, list[tuple[int, npt.NDArray[np.int32]]]()
    number: npt.NDArray[np.int32] = np.unique(symbol, return_inverse=True)[1].reshape(-1).astype(np.int32)
    while len(symbol) >= 2 * length:
        number = distinct_rows(number[:-length], number[length:])[1].astype(np.int32)
        length *= 2
        known, others = surroundings.runs(length)
        if not np.any(mask_at(int(number.max()) + 1, number[known])[number[others]]):
            break
        if length >= SHORTEST_RUN:
            numbered.append((length, number))
    return numbered


class _RepeatedRuns(NamedTuple):
    """Runs of one length that contain unknown events and also occur with known events only."""

    length: int
    matched: Mask  # True where a run begins
    starts: IntColumn  # start positions of occurrences with known events only, grouped by run
    # `first` is the position in `starts` of a run's first occurrence, and `times` is its number of occurrences.
    first: IntColumn
    times: IntColumn


def _repeated_runs(
    surroundings: _Surroundings, length: int, number: npt.NDArray[np.integer], wanted: Mask
) -> _RepeatedRuns | None:
    known, others = surroundings.runs(length)
    wanted_before = np.append(0, np.cumsum(wanted))
    others &= wanted_before[length:] > wanted_before[:-length]
    size = int(number.max()) + 1
    starts = np.flatnonzero(known & mask_at(size, number[others])[number])
    if not len(starts):
        return None
    starts = starts[np.argsort(number[starts], kind="stable")]
    count = np.bincount(number[starts], minlength=size)
    first = np.cumsum(count) - count
    return _RepeatedRuns(length, others & (count[number] > 0), starts, first[number], count[number])


def _pair_by_runs(
    events: _Sequences, pairs: _Pairs, runs: _RepeatedRuns, event: IntColumn, surroundings: _Surroundings
) -> None:
    """Pair unknown events that are in repeated runs of this length. If several repeated runs contain an event, use the
    nearest ones before and after the run that has the event at its center. Both must agree."""
    size = len(runs.matched)
    places = np.arange(size)
    earlier = np.maximum.accumulate(np.where(runs.matched, places, -1))
    later = np.minimum.accumulate(np.where(runs.matched, places, size)[::-1])[::-1]
    margin_before, margin_after = (np.minimum(side[event], _MARGIN) for side in surroundings[:2])
    least = np.maximum(event - runs.length + 1 + margin_after, 0)
    most = np.minimum(event - margin_before, size - 1)
    middle = np.clip(event - runs.length // 2, least, np.maximum(most, least)).clip(0, size - 1)
    left, right = earlier[middle], later[middle]
    for start, compared in ((left, np.zeros(len(left), np.bool_)), (right, right == left)):
        has = (least <= most) & (start >= least) & (start <= most) & ~compared
        pairs.length[event[has]] = runs.length
        _pair_in_run(events, pairs, runs, event[has], start[has])


def _pair_in_run(events: _Sequences, pairs: _Pairs, runs: _RepeatedRuns, event: IntColumn, start: IntColumn) -> None:
    """Pair events with the first occurrence of the run at `start`, and compare operators with later occurrences."""
    count, first, offset = runs.times[start], runs.first[start], event - start
    new = pairs.partner[event] < 0
    pairs.partner[event[new]] = runs.starts[first[new]] + offset[new]
    for k in range(_CANDIDATES):
        at = np.flatnonzero(count > k)
        chosen = np.where(count[at] > _CANDIDATES, k * (count[at] - 1) // (_CANDIDATES - 1), k)
        other, partner = runs.starts[first[at] + chosen] + offset[at], pairs.partner[event[at]]
        pairs.several[event[at]] |= events.operator[partner] != events.operator[other]
        pairs.modules[event[at]] |= events.module[partner] != events.module[other]


class _Trial(NamedTuple):
    """Result of pairing events after their known launches were hidden. The earlier half of the pairs shows which
    symbols vary. Only later pairs without such a symbol are counted."""

    length: IntColumn  # run length for each counted pair
    right: Mask  # True for each counted pair that has the correct operator
    conclusive: bool  # True if enough events were paired
    varies: IntColumn  # symbols that have a different operator when they repeat
    same_modules: bool  # True if the pairs also have the correct modules
    counts: dict[str, int]  # facts for the report


def _trial(events: _Sequences) -> _Trial:
    known, unknown = events.take(~events.unknown), int(np.count_nonzero(events.unknown))
    trial = _trial_of(known, _HIDDEN_SHARES[0], unknown)
    for share in _HIDDEN_SHARES[1:]:
        if not trial.conclusive:
            trial = _trial_of(known, share, unknown)
    return trial


def _trial_of(events: _Sequences, share: float, most: int) -> _Trial:
    """Hide the launches of a share of the events (at most `most` or 32), pair these events, and check the operators."""
    launched = np.sort(events.launched[events.event >= 0])
    count = min(max(most, _MIN_TRIED), int(len(launched) * share))
    hidden = (events.event >= 0) & (events.launched < launched[count]) if count else np.zeros(len(events.event), bool)
    pairs = _find_pairs(replace(events, unknown=hidden))
    tried = np.flatnonzero(hidden & (pairs.partner >= 0) & ~pairs.several & ~_differ(events, pairs.partner))
    tried = tried[np.argsort(events.launched[tried], kind="stable")]
    right = events.operator[tried] == events.operator[pairs.partner[tried]]
    in_module = tried[events.module[tried] >= 0]
    same_module = np.count_nonzero(events.module[in_module] == events.module[pairs.partner[in_module]])
    half = len(tried) // 2
    later = np.arange(half, len(tried))
    later = later[~np.isin(events.symbol[tried[later]], events.symbol[tried[:half][~right[:half]]])]
    counts = {"events": int(hidden.sum()), "paired": len(tried), "right": int(right.sum())}
    conclusive = len(tried) >= max(_MIN_TRIED, _MIN_REPEATED * counts["events"])
    varies, same_modules = distinct(events.symbol[tried[~right]]), bool(same_module >= _MIN_RIGHT * len(in_module))
    return _Trial(pairs.length[tried[later]], right[later], conclusive, varies, same_modules, counts)


def _shortest_reliable(events: _Sequences, trial: _Trial, pairs: _Pairs) -> int:
    """Return the length from which runs are reliable. If none are, return a number above the number of events."""
    never = len(events.event) + 1
    if not trial.conclusive:  # a run this long recurs only if the whole sequence recurs
        long = np.count_nonzero(events.unknown & (pairs.length >= _LONG_RUN))
        return _LONG_RUN if trial.right.all() and long >= _NEARLY_ALL * np.count_nonzero(events.unknown) else never
    order = np.argsort(-trial.length, kind="stable")
    share = np.cumsum(trial.right[order]) / np.arange(1, len(order) + 1)  # cumulative share of correct pairs
    if len(share) < _MIN_TRIED // 4:
        return never
    if share[-1] >= _MIN_RIGHT:
        return SHORTEST_RUN
    last_of_length = ~np.append(trial.length[order][1:] == trial.length[order][:-1], False)
    return int(min(trial.length[order][last_of_length & (share >= _MIN_RIGHT)], default=never))


def _differ(events: _Sequences, partner: IntColumn) -> Mask:
    dur, other = events.dur, events.dur[partner]
    longer, shorter = np.maximum(dur, other), np.minimum(dur, other)
    return (partner >= 0) & ~events.waits & (longer > _TIMES * shorter) & (longer - shorter > _NEAR_NS)


class _Accepted(NamedTuple):
    partner: IntColumn
    same_module: Mask
    reason: IntColumn
    trial: dict[str, int]


def _accepted(events: _Sequences, trial: _Trial, pairs: _Pairs) -> _Accepted:
    n, reason = len(events.event), np.full(len(events.event), _NO_RUN)
    shortest = _shortest_reliable(events, trial, pairs)
    kept = events.unknown & (pairs.partner >= 0)
    checks = (
        (kept & (pairs.length < shortest), _NO_RUN),
        (kept & _differ(events, pairs.partner), _DURATION),
        (kept & (pairs.several | mask_at(n, np.isin(events.symbol, trial.varies))), _SEVERAL),
        (kept & (events.operator[pairs.partner] < 0) & ~pairs.several, _NO_OPERATOR),
    )
    for refused, code in checks:
        reason[refused & kept] = code
        kept &= ~refused
    if shortest > n:
        reason[:] = _NO_REPETITION
    same_module = kept & ~pairs.modules & trial.same_modules
    return _Accepted(np.where(kept, pairs.partner, -1), same_module, reason, trial.counts)


def _report(events: _Sequences, found: _Accepted) -> dict[str, Any]:
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


def _counterparts(trace: Trace, events: _Sequences, found: _Accepted) -> Counterparts:
    at = np.flatnonzero(found.partner >= 0)
    at = at[np.argsort(events.event[at])]
    event, partner, same = events.event[at], events.event[found.partner[at]], found.same_module[at]
    row, attached = trace.gpu.source[partner], event < len(trace.gpu)
    own = trace.gpu.source[event[attached]]
    order = np.argsort(own)
    return Counterparts(
        CounterpartLinks(own[order], row[attached][order], same[attached][order]),
        CounterpartLinks(event[~attached] - len(trace.gpu), row[~attached], same[~attached]),
    )
