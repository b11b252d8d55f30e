"""Build the timeline of a job. It shows the streams, collectives and waits of all ranks on one clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..jobs.clocks import clock_offsets, synchronizes, synchronizing
from ..jobs.lateness import arrivals, stragglers
from ..jobs.matching import Matched, match_collectives
from ..jobs.rank_communications import RankCommunications, communications
from ..schemas.communications import kind_name
from ..trace.columns import IntColumn, StringTable, distinct, distinct_rows
from ..trace.kernel_names import kernel_label
from ..trace.printable import stream_label, thread_label
from ..trace.trace import Trace
from .timeline import condense

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
