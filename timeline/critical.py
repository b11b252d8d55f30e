"""Find the critical path of a replay, and compute lower bounds on the makespan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn, distinct_rows, joined_ranges, positions, scatter
from ..trace.conventions import BETWEEN
from ..trace.errors import ConvertError, UsageError
from ..trace.frames import to_pandas
from ..trace.intervals import sums
from ..trace.kinds import GPU, PHASES
from ..trace.origin import origin_of_rows
from ..trace.selection import call_between, without_enclosing
from ..trace.suggest import Suggests
from ..trace.text_tables import render
from ..trace.trace import Trace
from .beside_transfers import undisturbed_lags
from .constants import fit_constants
from .graph_building import build_graph
from .graph_replay import Replay, replay
from .host_backends import pauses_during_transfers
from .replay_graph import COMM, DURATION, HOST, LINK_KINDS, STREAM, UNKNOWN, ReplayGraph

_SHOWN = 10  # maximum number of operators in a repr
_Key = TypeVar("_Key", str, tuple[str, str])


@dataclass(frozen=True)
class CriticalPath(Suggests):
    """A longest path through a replayed timeline.

    Attributes:
        edge: int64, numbers of the path's edges in order of time.
        by_kind: maps kinds of edges to ns, largest first.
        by_op: maps (kind, name) of kernels, calls and unknown waits to ns, largest first.
        by_source, by_phase: map source lines ("train.py:7") and phases to ns. Only `Trace.critical_path` sets them.
    """

    guesses: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("duration", "duration_ns", "length", "total"), "`length_ns`"),
        **dict.fromkeys(("summary", "breakdown"), "`by_kind`"),
        **dict.fromkeys(("operators", "kernels", "ops"), "`by_op`"),
        "nodes": "`edge`",
    }

    edge: IntColumn
    by_kind: dict[str, int]
    by_op: dict[tuple[str, str], int]
    by_source: dict[str, int] = field(default_factory=dict)
    by_phase: dict[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        rows = [[kind, f"{ns / 1e6:,.3f}", f"{ns / max(self.length_ns, 1):.1%}"] for kind, ns in self.by_kind.items()]
        rows += [[f"  {name}", f"{ns / 1e6:,.3f}", ""] for (_, name), ns in list(self.by_op.items())[:_SHOWN]]
        title = f"critical path of {self.length_ns / 1e6:,.3f} ms, and its longest operators"
        return render(title, ["kind", "ms", "share"], rows, 80)

    def to_pandas(self) -> Any:
        """Return a DataFrame with the ns of each kind and name, largest first. Waits and gaps have an empty name."""
        named = Counter[str]()
        for (kind, _), ns in self.by_op.items():
            named[kind] += ns
        unnamed = Counter({(kind, ""): ns - named[kind] for kind, ns in self.by_kind.items()})
        rows = _ranked(Counter(self.by_op) + unnamed)
        kinds, names = ([key[part] for key in rows] for part in (0, 1))
        return to_pandas({"kind": kinds, "name": names, "duration_ns": list(rows.values())})

    @property
    def length_ns(self) -> int:
        """Sum of the path's lags in ns. A path through the whole replay has the length of the makespan."""
        return sum(self.by_kind.values())


def binding_edges(replay: Replay, last: int | None = None) -> IntColumn:
    """Return the edges of a longest path to the point `last` or to the last end. On ties, the lowest source wins."""
    edges = replay.graph.edges
    binding = np.flatnonzero(replay.time[edges.source] + replay.lag == replay.time[edges.target])
    into = scatter(len(replay.graph), edges.target[binding[::-1]], binding[::-1])
    if not len(edges):
        return into[:0]
    before, point = np.where(into >= 0, edges.source[into], -1), np.arange(len(into))
    head = np.maximum.accumulate(np.where(before == point - 1, 0, point))  # for each point, the first point of its run
    before_head, head_of = before.tolist(), head.tolist()
    point_on_path = int(np.argmax(replay.time)) if last is None else last
    ends = []
    while point_on_path >= 0:
        ends.append(point_on_path)
        point_on_path = before_head[head_of[point_on_path]]
    end = np.array(ends[::-1], np.int64)
    return into[joined_ranges(head[end], end - head[end] + 1)[1:]]


def critical_path(replay: Replay, between: tuple[str, int] | None = None) -> CriticalPath:
    """Return the longest path of a replay. `binding_edges` resolves ties.

    `call_between` finds the annotation for `between`. The path then leads from the start of the annotation to the last
    end of the work that it calls and launches. An edge that crosses the start is shortened to begin there.
    """
    edges, first, last = replay.graph.edges, 0, None
    if between is not None:
        first, last = _ends_between(replay, between)
    edge = binding_edges(replay, last)
    begin = int(replay.time[first])
    edge = edge[replay.time[edges.target[edge]] > begin] if between is not None else edge
    lags = np.minimum(replay.lag[edge], replay.time[edges.target[edge]] - begin)
    kind = edges.kind[edge].astype(np.int64)
    kinds = dict(zip(LINK_KINDS, sums(kind, lags, len(LINK_KINDS)).tolist(), strict=True))
    return CriticalPath(edge, _ranked(kinds), _ranked(_by_name(replay.graph, edge, kind, lags)))


def _by_name(graph: ReplayGraph, edge: IntColumn, kind: IntColumn, ns: IntColumn) -> Counter[tuple[str, str]]:
    named = np.isin(kind, (HOST, DURATION, COMM, UNKNOWN))
    edge, kind, ns = edge[named], kind[named], ns[named]
    owner = np.where(kind == UNKNOWN, graph.row[graph.edges.target[edge]], graph.edges.owner[edge])
    none, row = owner < 0, np.maximum(owner, 0)
    rank, name = np.where(none, -1, graph.rank_of_row[row]), np.where(none, -1, graph.column("name")[row])
    keys, inverse = distinct_rows(kind, rank, name)
    totals: Counter[tuple[str, str]] = Counter()
    for (kind_of_key, k, code), total in zip(keys.tolist(), sums(inverse, ns, len(keys)).tolist(), strict=True):
        totals[LINK_KINDS[kind_of_key], BETWEEN if k < 0 else graph.traces[k].names[code]] += total
    return totals


def _ends_between(replay: Replay, between: tuple[str, int]) -> tuple[int, int]:
    graph = replay.graph
    if len(graph.traces) > 1:
        raise UsageError("--between accepts an annotation from one rank only; give only the file of this rank")
    trace = graph.trace
    call, calls, gpu = call_between(trace, *between), trace.calls, trace.gpu
    begin, end = int(calls.ts[call]), int(calls.end[call])
    launched = gpu.source[(trace.launched_ns >= begin) & (trace.launched_ns < end) & (gpu.source >= 0)]
    points = graph.end[np.append(launched, calls.source[call])]
    points = points[points >= 0]
    return int(graph.start[calls.source[call]]), int(points[np.argmax(replay.time[points])])


def with_origins(path: CriticalPath, replay: Replay, trace: Trace) -> CriticalPath:
    edges, origin, table = replay.graph.edges, origin_of_rows(trace), trace.source_table
    edge = path.edge[np.isin(edges.kind[path.edge], (HOST, DURATION, COMM))]
    sources, phases = Counter[str](), Counter[str]()
    for row, lag in zip(edges.owner[edge].tolist(), replay.lag[edge].tolist(), strict=True):
        entry, phase = (int(origin.entry[row]), int(origin.phase[row])) if row >= 0 else (-1, 0)
        code = int(table.of_entry[entry]) if entry >= 0 else -1
        sources[table.lines[code].file_line if code >= 0 else ""] += lag
        phases[PHASES[phase]] += lag
    return replace(path, by_source=_ranked(sources), by_phase=_ranked(phases))


def _ranked(counter: Mapping[_Key, int]) -> dict[_Key, int]:
    return {key: ns for key, ns in sorted(counter.items(), key=lambda item: (-item[1], item[0])) if ns}


def resource_bounds(replay: Replay) -> dict[str, int]:
    """Return lower bounds on the makespan in ns: the GPU work of the busiest stream and the host work of the busiest
    thread. The slowdown of host work during transfers is removed. Waits for collectives are excluded.
    """
    graph, edges = replay.graph, replay.graph.edges
    row = np.maximum(graph.row[edges.target], 0)
    rank = graph.rank_of_row[row]
    stream, thread = graph.column("stream_lane")[row], graph.column("thread")[row]
    on_device = (graph.row[edges.target] >= 0) & (graph.column("kind")[row] == GPU)  # host collectives may overlap
    on_stream = np.isin(edges.kind, (DURATION, COMM, STREAM)) & on_device
    work = np.where(edges.kind == STREAM, np.minimum(replay.lag, 0), replay.lag)  # only overlaps are added
    host = (edges.kind == HOST) & (edges.source > 0) & ~pauses_during_transfers(graph)
    return {
        "busiest stream": _largest(rank, stream, work, on_stream),
        "busiest thread": _largest(rank, thread, np.minimum(replay.lag, undisturbed_lags(graph)), host),
    }


def _largest(rank: IntColumn, lane: npt.NDArray[np.integer], ns: IntColumn, which: npt.NDArray[np.bool_]) -> int:
    lanes, codes = distinct_rows(rank[which], lane[which])
    return int(sums(codes, ns[which], len(lanes)).max()) if len(lanes) else 0


@dataclass(frozen=True)
class CriticalChain:
    """The edges of a critical path in order, as columns of the same length.

    Attributes:
        kind: index into `kinds`, a list of the names of all kinds of edges.
        ns: int64, contribution to the makespan (negative if a kernel overlaps its predecessor).
        row: int64, the `Trace` row that does the work. Edges without work have the row that they lead to, or −1.
        work: bool, True if the edge is work of its row, False if it is a wait or a latency.
        start, end: int64, measured times in ns on the clock of the trace.
    """

    kinds: tuple[str, ...]
    kind: IntColumn
    ns: IntColumn
    row: IntColumn
    work: npt.NDArray[np.bool_]
    start: IntColumn
    end: IntColumn
    makespan_ns: int


def unchanged_replay(trace: Trace) -> Replay | None:
    """Replay a trace without changes. Calls that enclose a selection are removed. Return None if no row has a time."""
    try:
        graph = build_graph(without_enclosing(trace))
    except ConvertError:
        return None
    return replay(graph, fit_constants(graph))


def critical_chain(trace: Trace, unchanged: Replay | None = None) -> CriticalChain | None:
    """Return the critical path of a replay without changes, or None if no row has a time.

    Example:
        >>> chain = critical_chain(trace)
        >>> int(chain.ns.sum()) == chain.makespan_ns == trace.critical_path().length_ns
        True
    """
    result = unchanged_replay(trace) if unchanged is None else unchanged
    if result is None:
        return None
    graph = result.graph
    place = np.append(positions(trace.nodes.id, graph.trace.nodes.id), -1)  # for each graph row, its row in `trace`
    edge, edges = binding_edges(result), graph.edges
    start = int(graph.trace.nodes.ts[graph.trace.nodes.timed].min())
    work = np.isin(edges.kind[edge], (HOST, DURATION, COMM))
    source, target, kind = edges.source[edge], edges.target[edge], edges.kind[edge].astype(np.int64)
    row = place[np.where(work, edges.owner[edge], graph.row[target])]
    since, until = start + graph.measured[source], start + graph.measured[target]
    return CriticalChain(LINK_KINDS, kind, result.lag[edge], row, work, since, until, result.makespan_ns)
