"""What recording costs the host, and replays without it.

If `etplus record` timed steps before the window (`UntracedStep`), host work shrinks until its steps take that long in
the replay. Else operators that compute nothing show what recording a call costs.
"""

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

_TRIVIAL = re.compile(
    r"aten::(?:as_strided|view|_unsafe_view|_reshape_alias|detach|alias|_local_scalar_dense|lift_fresh)"
)
"""Operators that compute nothing and touch no data: what they take is their call, some 0.3 µs, and its recording."""
_OWN_NS = 300
_FEWEST = 8
"""Of fewer such calls the median says nothing."""
_HALVINGS = 8
"""Of the share of the host's work that is left: to 0.4%."""
_LITTLE = 0.02
"""Share of the makespan, or of the host's steps, that recording must have cost to be reckoned with."""


def event_cost_ns(trace: Trace) -> int:
    """Return the ns that recording adds to each call of the host; 0 if the trace does not show it.

    It is the median time of operators that compute nothing, less what calling them takes. With stacks and shapes it was
    3 to 8 µs on CPU steps.
    """
    calls = trace.calls
    leaf = np.ones(len(calls), np.bool_)
    leaf[calls.parent[calls.parent >= 0]] = False
    leaf[trace.runtime.call[trace.runtime.call >= 0]] = False
    trivial = leaf & (calls.kind == OP) & matching(calls.name, trace.names, _TRIVIAL.fullmatch)
    taken = trace.self_ns[trivial]
    return max(int(median(taken)) - _OWN_NS, 0) if len(taken) >= _FEWEST else 0


def without_recording(graph: ReplayGraph, cost_ns: Sequence[int]) -> ReplayGraph:
    """Take `cost_ns` (by rank) from each call, or from the pause before it if the call took less."""
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
    """Return the untraced step, the mean over the ranks; None if a rank does not say."""
    found = [step for trace in traces if (step := untraced_step(trace.names)) is not None]
    if not found or len(found) < len(traces):
        return None
    step_ns, host_ns = (round(float(np.mean(times))) for times in zip(*(step[1:] for step in found), strict=True))
    return UntracedStep(min(step.steps for step in found), step_ns, host_ns)


def without_recording_replays(base: Replay, constants: Sequence[Constants]) -> tuple[Replay, ...]:
    """Replays of the timeline as it would be unrecorded; the truth is between. None where recording cost little.

    With a measured step there are two: in one each call loses the same time first, in the other all host work shrinks
    alike, until the host's steps take as long as they did. Without, there is one, from what a call costs at least.
    """
    graph, step = base.graph, untraced_step_of(base.graph.traces)
    cost, rows = [event_cost_ns(trace) for trace in graph.traces], _step_rows(graph)
    if step is not None and (recorded := _host_step_ns(base, rows)) is not None:
        if step.host_ns > (1 - _LITTLE) * recorded:
            return ()
        ways = (lambda left: _less_cost_first(graph, cost, left), lambda left: _all_alike(graph, left))
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
        """Return text for a terminal, under a label of eleven columns."""
        low, high = (f"{ns / 1e6:,.3f}" for ns in (self.low_ns, self.high_ns))
        span = f"{low} ms" if low == high else f"{low} to {high} ms"
        return [f"untraced   a step took {self.measured_ns / 1e6:,.3f} ms before it was recorded; here {span}"]


def untraced_answer(
    base: Replay, constants: Sequence[Constants], *changes: Callable[[ReplayGraph], ReplayGraph]
) -> UntracedAnswer | None:
    """Return the untraced step time, with each of the changes of the graph; None if the traces do not say it.

    Example:
        >>> graph = etplus.build_graph(trace)
        >>> constants = [etplus.fit_constants(graph)]
        >>> untraced_answer(etplus.replay(graph, constants), constants) is None  # `etplus record` did not make it
        True
    """
    step, steps = untraced_step_of(base.graph.traces), len(_step_rows(base.graph)[0])
    if step is None or not steps or not base.graph.times_recorded:
        return None
    timelines = without_recording_replays(base, constants) or (base,)
    graphs = [change(found.graph) for found in timelines for change in changes or (lambda graph: graph,)]
    took = [round(replay(graph, constants).makespan_ns / steps) for graph in graphs]
    return UntracedAnswer(step.step_ns, min(took), max(took))


def recording_note(base: Replay, step: UntracedStep) -> str:
    """Say by how much recording slowed the host."""
    recorded = _host_step_ns(base, _step_rows(base.graph)) or 0.0
    return (
        f"recording made a step on the host {recorded / max(step.host_ns, 1):.1f} times as long "
        f"({recorded / 1e6:,.3f} ms, {step.host_ns / 1e6:,.3f} ms in the {step.steps} steps before); gains are shares "
        "of the time that steps take unrecorded"
    )


def _all_alike(graph: ReplayGraph, left: float) -> ReplayGraph:
    return graph.scaled(graph.edges.kind == HOST, left)


def _less_cost_first(graph: ReplayGraph, cost: Sequence[int], left: float) -> ReplayGraph:
    """From 1 to 0.5 calls lose up to what recording them costs; from there to 0 all work shrinks."""
    whole = without_recording(graph, [round(ns * min(2 - 2 * left, 1)) for ns in cost])
    return _all_alike(whole, min(2 * left, 1))


def _at_pace(
    way: Callable[[float], ReplayGraph], constants: Sequence[Constants], rows: Sequence[IntColumn], host_ns: int
) -> Replay:
    """Return the replay with the most host work whose steps take at most `host_ns`; without any if all take longer."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        taken = _host_step_ns(replay(way(middle), constants), rows)
        low, high = (middle, high) if taken is not None and taken <= host_ns else (low, middle)
    return replay(way(low), constants)


def _host_step_ns(found: Replay, steps: Sequence[IntColumn]) -> float | None:
    """Return the mean time of the profiler's steps on the host; None if a rank has none."""
    if not all(map(len, steps)):
        return None
    return float(np.mean([int(found.end[rows].max() - found.start[rows].min()) / len(rows) for rows in steps]))


def _step_rows(graph: ReplayGraph) -> list[IntColumn]:
    """Return, per rank, the rows of the profiler's steps on its host."""
    found = list[IntColumn]()
    for first, trace in zip(graph.first_row.tolist(), graph.traces, strict=False):
        steps = matching(trace.nodes.name, trace.names, PROFILER_STEP.fullmatch) & (trace.nodes.kind != GPU)
        rows: IntColumn = first + np.flatnonzero(steps)
        found.append(rows[graph.start[rows] >= 0])
    return found
