"""Lay out the timeline: nest calls in lanes, merge short calls to fit a page, and add the critical path.

The timeline of a job shows the streams, collectives and waits of all ranks on one clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..analysis.breakdown import BreakdownRow
from ..analysis.event_relations import event_of_rows
from ..jobs.clocks import clock_offsets, synchronizes, synchronizing
from ..jobs.lateness import arrivals, stragglers
from ..jobs.matching import Matched, match_collectives
from ..jobs.rank_communications import RankCommunications, communications
from ..schemas.communications import kind_name
from ..timeline.critical import CriticalChain
from ..trace.call_tree import depths, nesting
from ..trace.columns import IntColumn, StringTable, distinct, distinct_rows, largest, run_starts
from ..trace.intervals import Intervals, sums, union
from ..trace.kernel_kinds import gpu_kind
from ..trace.kernel_names import kernel_label
from ..trace.printable import stream_label, thread_label
from ..trace.trace import Trace
from .packed import LaneLayout, tiles_of

# Merging stops when a bucket covers 1/`_COARSEST` of the span, because a screen cannot show more detail.
_COARSEST = 1 << 12
# A bucket of merged calls is this many times wider than the resolution.
_BUCKET = 4


@dataclass(frozen=True)
class DrawnBlocks:
    """Single calls, and blocks of merged neighboring calls. All calls of a block are in the same row of a lane.

    `depth` is the row in the lane; outermost calls are in row 0. `ts` and `dur` (ns) extend from the start of the first
    call to the end of the last call. `busy` is the sum of the durations of all calls. `first` is the position of the
    longest call, and `count` is the number of calls. Calls that are shorter than `resolution` (ns) may have been
    merged. If it is 0, no calls were merged."""

    lane: IntColumn
    depth: IntColumn
    ts: IntColumn
    dur: IntColumn
    first: IntColumn
    count: IntColumn
    busy: IntColumn
    resolution: int

    def __len__(self) -> int:
        return len(self.ts)


def nest(lane: IntColumn, ts: IntColumn, finish: IntColumn) -> IntColumn:
    """Return every call's row in its lane: 0, or one below the innermost call that is open when the call starts.

    Calls that overlap but are not nested get separate rows."""
    depth = np.zeros(len(ts), np.int64)
    order = np.lexsort((-finish, ts, lane))
    depth[order] = depths(nesting(lane[order], ts[order], finish[order]))
    return depth


def condense(lane: IntColumn, depth: IntColumn, ts: IntColumn, dur: IntColumn, budget: int) -> DrawnBlocks:
    """Merge the shortest calls until at most `budget` blocks remain, or until merging would hide visible detail.

    A call below the resolution is merged with its neighbors in the same row. A block covers at most `_BUCKET`
    resolutions. A longer call always ends a block, so blocks never overlap. The resolution is doubled until the budget
    is met."""
    order = np.lexsort((ts, depth, lane))
    lane, depth, ts, dur = lane[order], depth[order], ts[order], dur[order]
    whole: npt.NDArray[np.bool_] = np.ones(len(ts), np.bool_)
    resolution = 0
    span = int((ts + dur).max() - ts.min()) if len(ts) else 0
    while int(whole.sum()) > budget and resolution * _BUCKET * _COARSEST < 2 * span:
        resolution = resolution * 2 or max(1, span >> 24)
        whole = _starts(lane, depth, ts, dur, resolution)
    starts = np.flatnonzero(whole)
    block = np.cumsum(whole) - 1
    longest = largest(block, dur, len(starts))
    end = np.maximum.reduceat(ts + dur, starts)
    count, busy = np.diff(np.append(starts, len(ts))), np.add.reduceat(dur, starts)
    return DrawnBlocks(
        lane[starts], depth[starts], ts[starts], end - ts[starts], order[longest], count, busy, resolution
    )


def _starts(lane: IntColumn, depth: IntColumn, ts: IntColumn, dur: IntColumn, resolution: int) -> npt.NDArray[np.bool_]:
    long = dur >= resolution
    bucket = (ts - ts.min()) // (_BUCKET * resolution)
    starts = run_starts(lane, depth, bucket) | long
    starts[1:] |= long[:-1]
    return starts


# Parts are merged if they take less than this share of the total GPU time.
_LEAST_SHARE = 0.0004
_LEVELS_SHOWN = 24


@dataclass
class _Branch:
    """A module, operator or kernel in the tree. `kind` is −1 unless it is a kernel."""

    name: str
    level: str
    kind: int = -1
    count: int = 0
    total_ns: int = 0
    children: dict[tuple[str, str], _Branch] = field(default_factory=dict)


def time_tree(rows: Iterable[BreakdownRow], comm_kernels: frozenset[str]) -> dict[str, Any]:
    """Return all rows of `breakdown` as a tree, longest child first, in the format `Branch` of `page/src/types.d.ts`.

    If a module's only child is a module, both share a node ("outer / inner"). Small parts on the same level are merged.
    """
    root = _Branch("", "module")
    for row in rows:
        steps = [(name, "module", -1) for name in row.modules[:_LEVELS_SHOWN]]
        kind = gpu_kind(row.kernel, row.category, row.kernel in comm_kernels)
        path = [root]
        for step in [*steps, (row.label, "operator", -1), (row.kernel, "kernel", kind)]:
            path.append(path[-1].children.setdefault(step[:2], _Branch(*step)))
        for branch in path:
            branch.count += row.count
            branch.total_ns += row.total_ns
    return _plain_branch(root, root.total_ns * _LEAST_SHARE)


def _plain_branch(branch: _Branch, least: float) -> dict[str, Any]:
    small = [kid for kid in branch.children.values() if kid.total_ns < least]
    kids = [kid for kid in branch.children.values() if kid.total_ns >= least or len(small) < 2]
    for at, kid in enumerate(kids):
        while kid.level == "module" and len(kid.children) == 1:
            (only,) = kid.children.values()
            if only.level != "module":
                break
            only.name = f"{kid.name} / {only.name}"
            kids[at] = kid = only
    if len(small) > 1:
        sums_of_small = sum(kid.count for kid in small), sum(kid.total_ns for kid in small)
        kids.append(_Branch(f"{len(small)} smaller parts", "other", -1, *sums_of_small))
    kids.sort(key=lambda kid: (-kid.total_ns, kid.name))
    shown = {"name": branch.name, "level": branch.level, "count": branch.count, "total_ns": branch.total_ns}
    shown |= {"kind": branch.kind} if branch.kind >= 0 else {}
    return shown | ({"children": [_plain_branch(kid, least) for kid in kids]} if kids else {})


def chain_of(chain: CriticalChain, trace: Trace, layout: LaneLayout, events: IntColumn) -> dict[str, Any]:
    """Return the critical path within the trace's span, in the format `PathData` of `page/src/types.d.ts`.

    An element is a kernel, a wait, or the CPU time of one topmost operator. Outside operators, it is the CPU time of
    one annotation. `events` contains the events on the page, as in `details_of`."""
    unit = _units(trace, chain.row)
    starts = np.flatnonzero(run_starts(unit, chain.kind))
    if not len(starts):
        return {"makespan_ns": chain.makespan_ns, "shown_ns": 0, "kinds": chain.kinds, "tiles": None}
    ns = np.add.reduceat(chain.ns, starts)
    start = np.maximum.accumulate(chain.start[starts]) - trace.span.start  # elements follow the order of the path
    end = chain.end[np.append(starts[1:], len(unit)) - 1] - trace.span.start
    kept = np.flatnonzero((ns != 0) & (start < trace.span.length) & (end > 0))
    number = layout.numbers_among(events, len(trace.gpu) + len(trace.calls) + len(trace.runtime))
    columns = {"ts": start[kept], "dur": np.maximum(end - start, 0)[kept], "ns": ns[kept]}
    columns |= {"kind": chain.kind[starts[kept]], "event": number[unit[starts[kept]]]}
    row = np.zeros(len(kept), np.int64)
    drawn = LaneLayout.of(row, row, columns["ts"])
    parts = [sums(columns["kind"][part], columns["ns"][part], len(chain.kinds)) for part in drawn.parts()]
    return {
        "makespan_ns": chain.makespan_ns,
        "shown_ns": int(columns["ns"].sum()),
        "kinds": chain.kinds,
        "work": distinct(chain.kind[chain.work]),
        "tiles": tiles_of(drawn, columns),
        "main": [int(np.argmax(part)) for part in parts],
    }


def _units(trace: Trace, row: IntColumn) -> IntColumn:
    """Return the event that represents each row, −1 for none. A call is represented by its topmost operator."""
    calls, first = trace.calls, len(trace.gpu)
    top = np.where(trace.hierarchy.top >= 0, trace.hierarchy.top, np.arange(len(calls)))
    around = trace.runtime.call
    runtime = first + len(calls) + np.arange(len(trace.runtime))
    runtime = np.where(around >= 0, first + np.append(top, -1)[around], runtime)
    units = np.concatenate([np.arange(first), first + top, runtime, [-1]])
    return units[event_of_rows(trace)[row]]


_LOAD_BINS = 400
_PLACES_LISTED = 3000


def places_of(trace: Trace) -> list[dict[str, Any]]:
    """Return source lines and modules with the number, total time and longest of their GPU events, or else of their
    calls."""
    origin, table = trace.origin, trace.source_table
    on_gpu = len(trace.gpu) > 0
    events = trace.gpu if on_gpu else trace.calls
    entry, module = (origin.gpu_entry, origin.gpu_module) if on_gpu else (origin.entry, origin.module)
    line = np.where(entry >= 0, np.append(table.of_entry, -1)[entry], -1)
    texts = [list(map(str, table.lines)), [" / ".join(path) for path in origin.modules]]
    found: list[dict[str, Any]] = []
    for what, codes, names in zip(("Source line", "Module"), (line, module), texts, strict=True):
        known = np.flatnonzero(codes >= 0)
        if not len(known):
            continue
        dur = (events.end - events.ts)[known]
        count, total = np.bincount(codes[known], minlength=len(names)), sums(codes[known], dur, len(names))
        longest = known[largest(codes[known], dur, len(names))]
        for code, event in ((code, int(longest[code])) for code in np.flatnonzero(count).tolist()):
            row = {"text": names[code], "what": what, "count": int(count[code]), "total": int(total[code])}
            start, end = int(events.ts[event]), int(events.end[event])
            found.append(row | {"ts": start - trace.span.start, "dur": end - start})
    return sorted(found, key=lambda row: (-row["total"], row["what"], row["text"]))[:_PLACES_LISTED]


def load_of(trace: Trace) -> list[list[float]]:
    """Cut the trace into equal slices. Return each slice's start (ns) and GPU load (CPU load if there is no GPU)."""
    events = trace.gpu if len(trace.gpu) else trace.calls
    busy = union(events.ts - trace.span.start, events.end - trace.span.start)
    edges = np.linspace(0, max(trace.span.length, 1), _LOAD_BINS + 1, dtype=np.float64)
    within = np.diff(_covered(busy, edges)) / np.diff(edges)
    return [[round(float(at)), round(float(part), 3)] for at, part in zip(edges[:-1], within, strict=True)]


def _covered(busy: Intervals, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    edges = np.stack([busy.start, busy.end], axis=1).reshape(-1)
    before = np.repeat(np.concatenate([[0], np.cumsum(busy.end - busy.start)]), 2)[1:-1]
    return np.interp(times, edges, before) if len(edges) else np.zeros(len(times))


_LANES = 8
_SHOWN = 4000
# Values of a block's `kind`.
COMPUTE, COPY, COMMUNICATION, HOST = range(4)


@dataclass(frozen=True)
class RankLanes:
    """The blocks that the timeline of a job shows for one rank.

    `base_ns` is the wall-clock time on the rank's clock at which `ts` is 0. `begin` and `end` are the start and end of
    the trace in ns. `lanes` contains the names of streams, or of threads if the trace has no GPU events. `kind` and
    `name` describe each block's longest event; `ts` and `dur` are in ns."""

    base_ns: int
    begin: int
    end: int
    lanes: tuple[str, ...]
    lane: IntColumn
    ts: IntColumn
    dur: IntColumn
    kind: IntColumn
    count: IntColumn
    name: tuple[str, ...]
    communications: RankCommunications


def rank_lanes(trace: Trace, budget: int) -> RankLanes:
    """Return the busiest streams (or, if there are no GPU events, outermost calls) as at most `budget` blocks."""
    keys, ts, dur, code, kind = _events(trace)
    rows, lane = distinct_rows(*keys)
    busy = np.bincount(lane, weights=dur, minlength=len(rows))
    shown = np.sort(np.argsort(-busy, kind="stable")[:_LANES])
    kept = np.flatnonzero(np.isin(lane, shown))
    blocks = condense(np.searchsorted(shown, lane[kept]), np.zeros(len(kept), np.int64), ts[kept], dur[kept], budget)
    longest = kept[blocks.first]
    several = len(distinct(trace.gpu.device)) > 1
    lanes = [stream_label(*row, several=several) if len(row) > 1 else thread_label(*row) for row in rows.tolist()]
    drawn, names = tuple(lanes[row] for row in shown.tolist()), [trace.names[name] for name in code[longest].tolist()]
    times = (trace.base_time_ns, trace.span.start, trace.span.end)
    columns = (blocks.lane, blocks.ts, blocks.dur, kind[longest], blocks.count)
    return RankLanes(*times, drawn, *columns, tuple(map(kernel_label, names)), communications(trace))


def _events(trace: Trace) -> tuple[tuple[IntColumn, ...], IntColumn, IntColumn, IntColumn, IntColumn]:
    gpu, calls = trace.gpu, trace.calls
    if len(gpu):
        kind = np.where(trace.is_comm, COMMUNICATION, np.where(trace.is_copy, COPY, COMPUTE))
        return (gpu.device, gpu.stream), gpu.ts, gpu.dur, gpu.name.astype(np.int64), kind
    outer = np.flatnonzero((calls.parent < 0) | (np.append(calls.thread, 0)[calls.parent] != calls.thread))
    dur, name = calls.end[outer] - calls.ts[outer], calls.name[outer].astype(np.int64)
    return (calls.thread[outer],), calls.ts[outer], dur, name, np.full(len(outer), HOST)


def job_timeline(ranks: Sequence[tuple[int | None, RankLanes]]) -> dict[str, Any]:
    """Return all ranks in the format `JobTimeline` of `page/src/types.d.ts`. Times are on the clock of the lowest rank.

    The clocks are aligned by `clock_offset_ns` in the file, and by collectives. No rank can leave a synchronizing
    collective before all ranks have arrived, so the collective ends at the same time on all ranks. If there are too
    many collectives, only those that caused the longest waits are kept.

    Args:
        ranks: the ranks in drawing order. Collectives are matched only if all ranks are known and distinct."""
    known = [rank for rank, _ in ranks if rank is not None]
    matched: list[Matched] = []
    mismatches: Sequence[Any] = ()
    recorded = all(lanes.communications.times_recorded for _, lanes in ranks)
    if len(set(known)) == len(ranks) and recorded:
        matched, _, mismatches = match_collectives({int(rank or 0): lanes.communications for rank, lanes in ranks})
    joint = synchronizing(matched)
    offsets = {clock_offset.rank: clock_offset for clock_offset in clock_offsets(joint)}
    shift = {rank: offset.offset_ns for rank, offset in offsets.items()}
    lateness = {late.rank: late for late in stragglers(joint, shift)}
    zero = [lanes.base_ns - shift.get(-1 if rank is None else rank, 0) for rank, lanes in ranks]
    begin = min((at + lanes.begin for at, (_, lanes) in zip(zero, ranks, strict=True)), default=0)
    end = max((at + lanes.end for at, (_, lanes) in zip(zero, ranks, strict=True)), default=0)
    names = StringTable()
    shown = []
    for at, (rank, lanes) in zip(zero, ranks, strict=True):
        offset, late = (None, None) if rank is None else (offsets.get(rank), lateness.get(rank))
        row: dict[str, Any] = {"first": lanes.begin, "begin": at + lanes.begin - begin, "end": at + lanes.end - begin}
        row |= {"offset": offset.offset_ns, "spread": offset.spread_ns} if offset else {"offset": None, "spread": None}
        row |= {"lanes": lanes.lanes}
        row |= {"lane": lanes.lane, "ts": lanes.ts + (at - begin), "dur": lanes.dur, "kind": lanes.kind}
        row |= {"count": lanes.count, "name": names.codes(list(lanes.name))}
        row |= {"collectives": late.collectives if late else 0, "last": late.last if late else 0}
        shown.append(row | {"caused": late.caused_ns if late else 0, "waited": late.waited_ns if late else 0})
    place = {rank: at for at, rank in enumerate(known)}
    collectives = sorted(_collectives(matched, shift, begin, place), key=lambda found: -found["weight"])
    listed = sorted(collectives[:_SHOWN], key=lambda found: (min(found["start"]), found["group"], found["kind"]))
    return {
        "span": end - begin,
        "ranks": shown,
        "names": names.values,
        "collectives": [{key: value for key, value in found.items() if key != "weight"} for found in listed],
        "left_out": len(collectives) - len(listed),
        "unmatched": len(mismatches),
    }


def _collectives(
    matched: Sequence[Matched], shift: Mapping[int, int], begin: int, place: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    for group in matched:
        if len(group.ranks) < 2:
            continue
        come, wait, last = arrivals(group, shift)
        joint = synchronizes(group.kind)
        for at in range(len(group.kind)):
            start = come[at] - begin
            yield {
                **{"kind": kind_name(int(group.kind[at])).lower(), "bytes": int(group.bytes[at]), "group": group.group},
                **{"members": [place[rank] for rank in group.ranks], "start": start.tolist()},
                "end": (start + group.end[at] - group.start[at]).tolist(),
                "wait": wait[at].tolist() if joint[at] else None,
                "last": place[group.ranks[int(last[at])]] if joint[at] else None,
                "weight": int(wait[at].sum()) if joint[at] else 0,
            }
