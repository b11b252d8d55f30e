"""The timeline of a trace: its streams and threads as lanes of blocks, ready for a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..analysis.roofline import Work
from ..replay.critical_chain import CriticalChain
from ..trace.columns import IntColumn, distinct_rows
from ..trace.intervals import Intervals, sums, union
from ..trace.kernel_kinds import GPU_KINDS, gpu_kind
from ..trace.printable import shortened, stream_label, thread_label
from ..trace.tables import OP
from ..trace.trace import Trace
from .chain_elements import chain_of
from .event_details import details_of
from .tiles import Layout, tiles_of
from .timeline import condense, nest

__all__ = ["KIND_COLOURS", "timeline_of"]

_HOST_KINDS = ("Operator", "Annotation and module", "Runtime call")
KIND_COLOURS = {
    "Matrix product": 4, "Convolution": 3, "Attention": 5, "Normalization": 7, "Elementwise": 1,
    "Reduction and softmax": 8, "Communication": 2, "Copy and fill": 9, "Other kernel": 6,
    "Operator": 0, "Annotation and module": 10, "Runtime call": 9,
}  # fmt: skip
"""Kind to its colour's place in the page's palette; host and device differ by their lanes."""
_LANES = 40
_NAMES_LISTED = 3000
_LONGEST_NAME = 400
_LOAD_BINS = 400
_MOST_IN_TILES = 6_000_000
"""Events of the timelines of a page beyond which it is not to hold all: some 75 MB."""


@dataclass(frozen=True)
class _Rows:
    """All GPU events, calls and runtime calls of a trace, in this order; one entry each.

    Attributes:
        lane: int64, the streams' first, then the threads'. ts: int64 ns since the trace's start. dur: int64 ns.
        name: int64 code. kind: int64, into `GPU_KINDS + _HOST_KINDS`. op: int64, name code of the topmost operator
            that launched a GPU event, −1 for others and where it is unknown.
    """

    lane: IntColumn
    ts: IntColumn
    dur: IntColumn
    name: IntColumn
    kind: IntColumn
    op: IntColumn

    def of(self, chosen: npt.NDArray[Any]) -> _Rows:
        return _Rows(*(getattr(self, field)[chosen] for field in self.__dataclass_fields__))


def timeline_of(
    trace: Trace, work: Work, budget: int, chain: CriticalChain | None = None, files: int = 1
) -> dict[str, Any]:
    """Lanes, blocks and a list of names to search in, as plain values and numpy columns.

    Args:
        work: of the trace's GPU events.
        budget: number of blocks that the page is to hold at most; short calls are merged to keep it.
        chain: the trace's critical path, to be drawn.
        files: number of traces that share the page.

    Returns:
        `span` ns; `lanes` {name, note, gpu, rows, and device, stream or thread}; `kinds` {name, colour, gpu}; `names`;
        by block `lane`, `depth`, `ts`, `dur`, `name`, `kind`, `count`, `busy`, `op` (a name or −1); `found`, by name
        and kind the number, total and longest of its calls; `load`, the part of each of many equal slices of the time
        in which a device was busy; `resolution` ns below which calls may be merged; `hidden`, the number of lanes left
        out; `tiles`, all events of the lanes (see `tiles_of`), `details` of them (see `details_of`) and `path`, the
        critical path (see `chain_of`; None without `chain`); None where the events are too many. Events are numbered
        in order of lane, depth and start, in which blocks follow one another.
    """
    rows, labels = _rows(trace)
    streams = sum(label["gpu"] for label in labels)
    load = np.bincount(rows.lane, weights=rows.dur, minlength=len(labels))
    busiest = np.argsort(-load, kind="stable")[:_LANES]
    shown = np.concatenate([np.sort(busiest[busiest < streams]), busiest[busiest >= streams]])
    events = np.flatnonzero(np.isin(rows.lane, shown))
    rows = rows.of(events)
    place = np.zeros(len(labels), np.int64)
    place[shown] = np.arange(len(shown))
    lane = place[rows.lane]
    depth = nest(lane, rows.ts, rows.ts + rows.dur)
    blocks = condense(lane, depth, rows.ts, rows.dur, budget)
    found = _found(rows)
    tiled = len(rows.ts) * files <= _MOST_IN_TILES
    named = slice(None) if tiled else blocks.first
    used = np.unique(np.concatenate([rows.name[named], rows.op[named], [one["name"] for one in found]]))
    used = used[used >= 0].astype(np.int64)
    deepest = np.zeros(len(shown), np.int64)
    np.maximum.at(deepest, lane, depth + 1)
    kinds = (*GPU_KINDS, *_HOST_KINDS)
    present = np.unique(rows.kind)
    name, kind = np.searchsorted(used, rows.name), np.searchsorted(present, rows.kind)
    op = np.where(rows.op >= 0, np.searchsorted(used, rows.op), -1)
    columns = {"ts": rows.ts, "dur": rows.dur, "name": name, "kind": kind, "op": op}
    layout = Layout.of(lane, depth, rows.ts)
    names = [trace.names[code] for code in used.tolist()]
    return {
        "span": trace.span.length,
        "resolution": blocks.resolution,
        "hidden": len(labels) - len(shown),
        "lanes": [labels[code] | {"rows": int(deepest[at])} for at, code in enumerate(shown.tolist())],
        "kinds": [
            {"name": kinds[code], "colour": KIND_COLOURS[kinds[code]], "gpu": code < len(GPU_KINDS)}
            for code in present.tolist()
        ],
        "names": [shortened(name, _LONGEST_NAME) for name in names],
        "lane": blocks.lane,
        "depth": blocks.depth,
        "ts": blocks.ts,
        "dur": blocks.dur,
        "name": name[blocks.first],
        "kind": kind[blocks.first],
        "count": blocks.count,
        "busy": blocks.busy,
        "op": op[blocks.first],
        "found": [
            one | {"name": int(np.searchsorted(used, one["name"])), "kind": int(np.searchsorted(present, one["kind"]))}
            for one in found
        ],
        "load": _load(trace),
        "tiles": tiles_of(layout, columns) if tiled else None,
        "details": details_of(trace, work, layout, events, names, int(np.sum(shown < streams))) if tiled else None,
        "path": chain_of(chain, trace, layout, events) if tiled and chain is not None else None,
    }


def _rows(trace: Trace) -> tuple[_Rows, list[dict[str, Any]]]:
    """Every row, and what is known of each lane: name, note, side (device or not), device and stream or thread."""
    gpu, calls, runtime = trace.gpu, trace.calls, trace.runtime
    pairs, stream = distinct_rows(gpu.device, gpu.stream)
    threads, thread = np.unique(np.concatenate([calls.thread, runtime.thread]), return_inverse=True)
    lane = np.concatenate([stream, len(pairs) + thread.reshape(-1)])
    ts = np.concatenate([gpu.ts, calls.ts, runtime.ts]) - trace.span.start
    end = np.concatenate([gpu.end, calls.end, runtime.end]) - trace.span.start
    owner = trace.attribution
    launcher = np.append(owner.calls.name, -1)[np.append(owner.hierarchy.top, -1)[owner.call]]
    host = np.where(calls.kind == OP, 0, 1)
    kind = np.concatenate([_gpu_kinds(trace), len(GPU_KINDS) + host, np.full(len(runtime), len(GPU_KINDS) + 2)])
    name = np.concatenate([gpu.name, calls.name, runtime.name]).astype(np.int64)
    op = np.concatenate([launcher, np.full(len(calls) + len(runtime), -1)])
    count = np.bincount(lane, minlength=len(pairs) + len(threads)).tolist()
    several = len(np.unique(pairs[:, 0])) > 1
    labels: list[dict[str, Any]] = []
    for events, (device, number) in zip(count, pairs.tolist(), strict=False):
        label = {"name": stream_label(device, number, several=several), "note": f"{events:,} events", "gpu": True}
        labels.append(label | {"device": device, "stream": number})
    for events, number in zip(count[len(pairs) :], threads.tolist(), strict=True):
        labels.append({"name": thread_label(number), "note": f"{events:,} calls", "gpu": False, "thread": number})
    return _Rows(lane, ts, np.maximum(end - ts, 0), name, kind, op), labels


def _gpu_kinds(trace: Trace) -> IntColumn:
    gpu = trace.gpu
    distinct, inverse = distinct_rows(gpu.name, gpu.category, trace.is_comm.astype(np.int64))
    kinds = [gpu_kind(trace.names[name], trace.categories[of], bool(comm)) for name, of, comm in distinct.tolist()]
    return np.array(kinds, np.int64)[inverse]


def _found(rows: _Rows) -> list[dict[str, int]]:
    """By name and kind: number, total and longest call; the longest in total first."""
    keys, inverse = distinct_rows(rows.name, rows.kind)
    total = sums(inverse, rows.dur, len(keys))
    count = np.bincount(inverse)
    longest = np.lexsort((-rows.dur, inverse))[np.cumsum(count) - count]
    listed = np.argsort(-total, kind="stable")[:_NAMES_LISTED]
    return [
        {
            "name": int(keys[key, 0]), "kind": int(keys[key, 1]), "count": int(count[key]), "total": int(total[key]),
            "ts": int(rows.ts[longest[key]]), "dur": int(rows.dur[longest[key]]),
        }
        for key in listed.tolist()
    ]  # fmt: skip


def _load(trace: Trace) -> list[list[float]]:
    """Start, ns, and busy part of equal slices of the trace's span; of the host where no device did anything."""
    of = trace.gpu if len(trace.gpu) else trace.calls
    busy = union(of.ts - trace.span.start, of.end - trace.span.start)
    edges = np.linspace(0, max(trace.span.length, 1), _LOAD_BINS + 1, dtype=np.float64)
    within = np.diff(_covered(busy, edges)) / np.diff(edges)
    return [[round(float(at)), round(float(part), 3)] for at, part in zip(edges[:-1], within, strict=True)]


def _covered(busy: Intervals, times: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How much of the intervals lies before each time."""
    edges = np.stack([busy.start, busy.end], axis=1).reshape(-1)
    before = np.repeat(np.concatenate([[0], np.cumsum(busy.end - busy.start)]), 2)[1:-1]
    return np.interp(times, edges, before) if len(edges) else np.zeros(len(times))
