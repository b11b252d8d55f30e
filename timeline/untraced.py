"""The cost of recording for the host, and replays without it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..trace.columns import IntColumn, matching, median
from ..trace.conventions import PROFILER_STEP
from ..trace.kinds import GPU
from ..trace.step_annotations import UntracedStep, untraced_step
from ..trace.tables import OP
from ..trace.trace import Trace
from .constants import Constants
from .graph_replay import Replay, replay
from .replay_graph import HOST, ReplayGraph

# Operators that compute nothing and touch no data: their time is their call (some 0.3 µs) and its recording.
_TRIVIAL = re.compile(
    r"aten::(?:as_strided|view|_unsafe_view|_reshape_alias|detach|alias|_local_scalar_dense|lift_fresh)"
)
_OWN_NS = 300
# With fewer such calls the median means nothing.
_FEWEST = 8
# Halvings of the share of host work that is left: precise to 0.4%.
_HALVINGS = 8
# Smaller shares of the makespan, or of the host's steps, are ignored.
_LITTLE = 0.02


def event_cost_ns(trace: Trace) -> int:
    """Return the ns that recording adds to each call of the host (3 to 8 µs with stacks and shapes); 0 if unknown."""
    calls = trace.calls
    leaf = np.ones(len(calls), np.bool_)
    leaf[calls.parent[calls.parent >= 0]] = False
    leaf[trace.runtime.call[trace.runtime.call >= 0]] = False
    trivial = leaf & (calls.kind == OP) & matching(calls.name, trace.names, _TRIVIAL.fullmatch)
    taken = trace.self_ns[trivial]
    return max(int(median(taken)) - _OWN_NS, 0) if len(taken) >= _FEWEST else 0


def without_recording(graph: ReplayGraph, cost_ns: Sequence[int]) -> ReplayGraph:
    """Subtract `cost_ns` (by rank) from each call, or from the pause before it if the call took less."""
    edges = graph.edges
    cost = np.asarray(cost_ns, np.int64)[graph.rank_of_row]
    host = (graph.column("kind") != GPU) & (graph.start >= 0)
    cost[~host] = 0
    own = (edges.kind == HOST) & (edges.owner >= 0)
    owner = np.maximum(edges.owner, 0)
    total = np.bincount(edges.owner[own], weights=edges.lag[own], minlength=len(cost))
    share = 1 - np.minimum(cost, total) / np.maximum(total, 1)
    lag = np.where(own, np.rint(edges.lag * share[owner]), edges.lag)
    left: IntColumn = np.rint(np.maximum(cost - total, 0)).astype(np.int64)
    row = np.maximum(graph.row[edges.target], 0)
    pause = (edges.kind == HOST) & (edges.owner < 0) & (edges.source > 0) & (edges.target == graph.start[row])
    lag = np.where(pause, np.maximum(lag - left[row], 0), lag)
    return graph.with_latencies(lag)


def untraced_step_of(traces: Sequence[Trace]) -> UntracedStep | None:
    steps = [step for trace in traces if (step := untraced_step(trace.names)) is not None]
    if not steps or len(steps) < len(traces):
        return None
    step_ns, host_ns = (round(float(np.mean(times))) for times in zip(*(step[1:] for step in steps), strict=True))
    return UntracedStep(min(step.steps for step in steps), step_ns, host_ns)


def without_recording_replays(base: Replay, constants: Sequence[Constants]) -> tuple[Replay, ...]:
    """Return replays of the unrecorded timeline that bracket the truth; none if recording cost little.

    With a measured step there are two: one subtracts the same time from each call, one shrinks all host work equally,
    until the host's steps take the measured time. Without a measured step there is one, with the least cost of a call.
    """
    graph, step = base.graph, untraced_step_of(base.graph.traces)
    cost, rows = [event_cost_ns(trace) for trace in graph.traces], _step_rows(graph)
    if step is not None and (recorded := _host_step_ns(base, rows)) is not None:
        if step.host_ns > (1 - _LITTLE) * recorded:
            return ()
        ways = (lambda left: _less_cost_first(graph, cost, left), lambda left: _scale_host(graph, left))
        return tuple(_at_pace(way, constants, rows, step.host_ns) for way in ways)
    if not any(cost):
        return ()
    cheaper = replay(without_recording(graph, cost), constants)
    return (cheaper,) if cheaper.makespan_ns < (1 - _LITTLE) * base.makespan_ns else ()


@dataclass(frozen=True)
class UntracedAnswer:
    """Step time without the recorder, ns: measured before the window, and with the changes."""

    measured_ns: int
    low_ns: int
    high_ns: int

    def to_lines(self) -> list[str]:
        low, high = (f"{ns / 1e6:,.3f}" for ns in (self.low_ns, self.high_ns))
        span = f"{low} ms" if low == high else f"{low} to {high} ms"
        return [f"untraced   a step took {self.measured_ns / 1e6:,.3f} ms before recording; with the changes {span}"]


def untraced_answer(
    base: Replay, constants: Sequence[Constants], *changes: Callable[[ReplayGraph], ReplayGraph]
) -> UntracedAnswer | None:
    step, steps = untraced_step_of(base.graph.traces), len(_step_rows(base.graph)[0])
    if step is None or not steps or not base.graph.times_recorded:
        return None
    timelines = without_recording_replays(base, constants) or (base,)
    graphs = [change(found.graph) for found in timelines for change in changes or (lambda graph: graph,)]
    took = [round(replay(graph, constants).makespan_ns / steps) for graph in graphs]
    return UntracedAnswer(step.step_ns, min(took), max(took))


def recording_note(base: Replay, step: UntracedStep) -> str:
    recorded = _host_step_ns(base, _step_rows(base.graph)) or 0.0
    return (
        f"a step on the host took {recorded / max(step.host_ns, 1):.1f} times as long while recording "
        f"({recorded / 1e6:,.3f} ms, {step.host_ns / 1e6:,.3f} ms in the {step.steps} steps before); gains are shares "
        "of the unrecorded step time"
    )


def _scale_host(graph: ReplayGraph, left: float) -> ReplayGraph:
    return graph.scaled(graph.edges.kind == HOST, left)


def _less_cost_first(graph: ReplayGraph, cost: Sequence[int], left: float) -> ReplayGraph:
    """Reduce `left` from 1 to 0.5 to take the recording cost from calls, then to 0 to shrink all work."""
    whole = without_recording(graph, [round(ns * min(2 - 2 * left, 1)) for ns in cost])
    return _scale_host(whole, min(2 * left, 1))


def _at_pace(
    way: Callable[[float], ReplayGraph], constants: Sequence[Constants], rows: Sequence[IntColumn], host_ns: int
) -> Replay:
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        taken = _host_step_ns(replay(way(middle), constants), rows)
        low, high = (middle, high) if taken is not None and taken <= host_ns else (low, middle)
    return replay(way(low), constants)


def _host_step_ns(replayed: Replay, steps: Sequence[IntColumn]) -> float | None:
    if not all(map(len, steps)):
        return None
    return float(np.mean([int(replayed.end[rows].max() - replayed.start[rows].min()) / len(rows) for rows in steps]))


def _step_rows(graph: ReplayGraph) -> list[IntColumn]:
    rows_of_ranks = list[IntColumn]()
    for first, trace in zip(graph.first_row.tolist(), graph.traces, strict=False):
        steps = matching(trace.nodes.name, trace.names, PROFILER_STEP.fullmatch) & (trace.nodes.kind != GPU)
        rows: IntColumn = first + np.flatnonzero(steps)
        rows_of_ranks.append(rows[graph.start[rows] >= 0])
    return rows_of_ranks
