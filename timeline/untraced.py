"""Estimate the timeline without the recorder by removing the recording cost of every event.

Recording an operator costs time before its start (in its caller's time) and at its end (in its own time). Operators
that compute nothing show both costs in the trace. If `etplus record` timed steps before the window, the remaining host
work is then scaled until a step takes the measured time. Pauses without recorded events are not scaled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..trace.columns import IntColumn, distinct_rows, mask_at, matching, scatter
from ..trace.conventions import ANNOTATION_SCOPE, PROFILER_STEP
from ..trace.kinds import GPU
from ..trace.step_annotations import UntracedStep, untraced_step
from ..trace.tables import OP
from ..trace.trace import Trace
from .constants import Constants
from .graph_replay import Replay, replay
from .replay_graph import HOST, ReplayGraph

# These operators and autograd nodes compute nothing, so they only take time for dispatch (0.4 µs) and recording.
_TRIVIAL = re.compile(
    r"aten::(?:as_strided|_?(?:unsafe_)?view|_reshape_alias|detach|alias|t|transpose|permute|resolve_conj|resolve_neg"
    r"|expand|select|slice|unsqueeze|squeeze|linear|matmul|reshape|flatten|to|item|_local_scalar_dense|lift_fresh"
    r"|empty|empty_like|empty_strided|zeros|zeros_like|layer_norm|unbind|split|chunk)"
    r"|detach|autograd::engine::.*|\w*Backward\d*|torch::autograd::\w+"
)
_DISPATCH_NS, _CALL_NS = 400, 200
_FEWEST = 20
# A typical operator has this many arguments and is called inside this many Python frames.
_USUAL_ARGUMENTS, _FRAMES = 4, 3
# An operator that took more than this multiple of the expected time allocated memory or was interrupted.
_MOST = 5.0
# Usual, lowest and highest correction of costs measured on small operators. With a warm cache, these costs are too low.
# The factors come from programs that also ran without a profiler (`benchmarks/findings.py --gains`).
_SHARES = (1.5, 1.2, 2.0)
# Factors if no step was timed before the window, and factors if no operators show the recording costs.
_UNTIMED_SHARES, _UNFITTED_SHARES = (1.5, 0.8, 2.5), (1.0, 0.0, 2.0)
# A gap of at least this length in the host's events is sleep, I/O or Python code. Recording does not slow it down.
PAUSE_NS = 1_000_000
# A call was interrupted if its time exceeds the median of its kind both by this factor and by this many ns.
_INTERRUPTED, _INTERRUPTION_NS = 3.0, 300_000
# Recording overhead is not subtracted if it is below this share of the makespan.
_LITTLE = 0.02
# The remaining host work is scaled to match the untraced step, by a factor between these limits.
_LEAST_SCALE, _MOST_SCALE = 0.25, 2.0
_ROUNDS = 3
# Run-to-run variation of CPU work: this fraction of the gain plus this fraction of the step time. GPU work is stable.
_UNEVEN, _UNEVEN_STEP = 0.25, 0.005
_COSTS = re.compile(r"etplus\.costs operator_ns=(\d{1,9}) annotation_ns=(\d{1,9}) frame_ns=(\d{1,9})", re.ASCII)


@dataclass(frozen=True)
class RecordingCosts:
    """The costs of recording an event, in ns."""

    inside: float  # cost at the end of an operator, included in its self time
    argument: float  # additional cost per argument of the operator
    outside: float  # cost before the start of an operator, included in its caller's time
    annotation: float  # cost before the start of an annotation, included in its caller's time
    frames: float  # cost of recording the Python frames before an operator that Python calls
    runtime: float  # cost of a runtime call, included in its self time
    fitted: bool = False  # True if the costs of operators were fitted to the trace

    def of_rows(self, trace: Trace) -> tuple[IntColumn, IntColumn]:
        calls = trace.calls
        before, within = np.zeros(len(trace)), np.zeros(len(trace))  # costs before each row, and in its self time
        is_op = calls.kind == OP
        from_python = is_op & ~np.append(is_op, False)[calls.parent]
        before[calls.source] = np.where(is_op, self.outside, self.annotation) + self.frames * from_python
        within[calls.source] = np.where(is_op, self.inside + self.argument * _arguments(trace), 0)
        within[trace.runtime.source] = self.runtime
        return before.astype(np.int64), within.astype(np.int64)


def recording_costs(trace: Trace) -> RecordingCosts:
    """Return recording costs, fitted to operators that compute nothing if the trace has enough such operators."""
    return trace.once(_recording_costs)


def _recording_costs(trace: Trace) -> RecordingCosts:
    calls = trace.calls
    usual = _usual_costs(trace)
    is_op = calls.kind == OP
    launches = mask_at(len(calls), trace.runtime.call[trace.runtime.call >= 0])
    trivial = np.flatnonzero(is_op & ~launches & matching(calls.name, trace.names, _TRIVIAL.fullmatch))
    if len(trivial) < _FEWEST:
        return usual
    called = np.bincount(calls.parent[(calls.parent >= 0) & is_op], minlength=len(calls))[trivial]
    columns = np.stack([np.ones(len(trivial)), _arguments(trace)[trivial], called], axis=1)
    taken = trace.self_ns[trivial] - _DISPATCH_NS - _CALL_NS * called
    found = np.array([usual.inside, usual.argument, usual.outside])
    for _ in range(_ROUNDS):
        expected = columns @ found + _DISPATCH_NS
        weight = (taken < _MOST * expected) / expected
        found = np.maximum(np.linalg.lstsq(columns * weight[:, None], taken * weight, rcond=None)[0], 0)
    inside, argument, outside = found.tolist()
    return replace(usual, inside=inside, argument=argument, outside=outside, fitted=True)


def _usual_costs(trace: Trace) -> RecordingCosts:
    kinds = (2_000, 1_200, 2_500) if trace.outputs_recorded else (300, 0, 1_200)  # with an ET, otherwise without
    annotation, frame = 2 * sum(kinds), 300
    measured = next(filter(None, map(_COSTS.fullmatch, trace.names)), None)
    if measured is not None:
        operator, annotation, frame = map(int, measured.groups())
        ratio = operator / (kinds[0] + _USUAL_ARGUMENTS * kinds[1] + kinds[2])
        kinds = round(ratio * kinds[0]), round(ratio * kinds[1]), round(ratio * kinds[2])
    frames = _FRAMES * frame if len(trace.stacks) else 0
    return RecordingCosts(*kinds, annotation, frames, 1_000)


def _arguments(trace: Trace) -> IntColumn:
    counts = [
        len(signature.inputs) + sum(max(len(argument.tensors) - 1, 0) for argument in signature.inputs)
        + len(signature.outputs or ())
        for signature in trace.signatures
    ]  # fmt: skip
    return np.array([*counts, 0], np.int64)[trace.calls.signature]


def without_recording(graph: ReplayGraph, share: float = _SHARES[0], *, typical: bool = False) -> ReplayGraph:
    """Subtract the recording costs times `share` from host work, but keep at least the time of a dispatch.

    All times between the same two kinds of events shrink by the same share, because individual times are noisy. If
    `typical` is True, times that are far longer than usual for their kind are shortened first, because other programs
    probably interrupted them.
    """
    edges = graph.edges
    row, owner = graph.row[edges.target], np.maximum(edges.owner, 0)
    host = np.flatnonzero((edges.kind == HOST) & (row >= 0) & (edges.source > 0))
    row, owner = row[host], np.where(edges.owner[host] >= 0, graph.column("name")[owner[host]], -1)
    ends = edges.target[host] == graph.end[row]
    before, within = (np.concatenate(parts) for parts in zip(*map(_cost_of_rows, graph.traces), strict=True))
    signature = np.concatenate([_signatures(trace) for trace in graph.traces])
    kind = distinct_rows(graph.rank_of_row[row], ends, owner, graph.column("name")[row], signature[row])[1]
    cost = np.bincount(kind, share * np.where(ends, within[row], before[row]))
    lag = edges.lag.astype(np.float64)
    if typical:
        order = np.lexsort((lag[host], kind))
        first = np.searchsorted(kind[order], np.arange(len(cost) + 1))
        usual = lag[host][order][(first[:-1] + first[1:]) // 2]
        lag[host] = np.minimum(lag[host], np.maximum(_INTERRUPTED * usual, usual + _INTERRUPTION_NS)[kind])
    taken = np.bincount(kind, lag[host])
    least = np.bincount(kind, np.where(ends, _DISPATCH_NS * (within[row] > 0), _CALL_NS * (before[row] > 0)))
    left = np.minimum(np.maximum(taken - cost, least), taken)
    lag[host] *= (left / np.maximum(taken, 1))[kind]
    return graph.with_latencies(np.rint(lag))


def _cost_of_rows(trace: Trace) -> tuple[IntColumn, IntColumn]:
    return recording_costs(trace).of_rows(trace)


def _signatures(trace: Trace) -> IntColumn:
    return scatter(len(trace), trace.calls.source, trace.calls.signature)


def pauses(graph: ReplayGraph) -> IntColumn:
    """Return the edges of at least 1 ms of host time outside operators and runtime calls."""
    edges = graph.edges
    calls = np.append((graph.column("kind") != GPU) & (graph.column("scope") != ANNOTATION_SCOPE), False)
    long = (edges.kind == HOST) & (edges.lag >= PAUSE_NS) & (edges.source > 0)
    return np.flatnonzero(long & ~calls[edges.owner])


def untraced_step_of(traces: Sequence[Trace]) -> UntracedStep | None:
    found = [step for trace in traces if (step := untraced_step(trace.names)) is not None]
    if not found or len(found) < len(traces):
        return None
    step_ns, host_ns = (round(float(np.mean(times))) for times in zip(*(step[1:] for step in found), strict=True))
    return UntracedStep(min(step.steps for step in found), step_ns, host_ns)


def without_recording_replays(base: Replay, constants: Sequence[Constants]) -> tuple[Replay, ...]:
    """Replay without the usual, lowest and highest recording costs. Return () if the costs are low."""
    graph, step = base.graph, untraced_step_of(base.graph.traces)
    rows = _step_rows(graph)
    recorded = _host_step_ns(base, rows)
    if step is not None and recorded is not None and step.host_ns > (1 - _LITTLE) * recorded:
        return ()
    fitted = all(recording_costs(trace).fitted for trace in graph.traces)
    shares = _UNFITTED_SHARES if not fitted else _SHARES if step is not None else _UNTIMED_SHARES
    graphs = [without_recording(graph, share, typical=step is not None) for share in shares]
    if step is not None and recorded is not None:
        kept = pauses(graph)
        return tuple(_at_pace(graph, kept, constants, rows, step.host_ns) for graph in graphs)
    found = tuple(replay(graph, constants) for graph in graphs)
    return found if found[0].makespan_ns < (1 - _LITTLE) * base.makespan_ns else ()


def _at_pace(
    graph: ReplayGraph, kept: IntColumn, constants: Sequence[Constants], rows: Sequence[IntColumn], host_ns: int
) -> Replay:
    work = graph.edges.kind == HOST
    work[kept] = False
    scales, times = [0.0], [_host_step_ns(replay(graph.scaled(work, 0.0), constants), rows) or 0.0]
    scale = 1.0
    for _ in range(_ROUNDS):
        done = replay(graph.scaled(work, scale), constants)
        scales.append(scale)
        times.append(_host_step_ns(done, rows) or 0.0)
        slope = (times[-1] - times[0]) / scale  # a step consists of scaled work and of waits for devices
        if slope <= 0:
            break
        scale = float(np.clip((host_ns - times[0]) / slope, _LEAST_SCALE, _MOST_SCALE))
    return replay(graph.scaled(work, scale), constants)


@dataclass(frozen=True)
class UntracedAnswer:
    """Step time without the recorder in ns, as measured before the window, and as predicted with the changes."""

    measured_ns: int
    usual_ns: int
    low_ns: int
    high_ns: int

    def to_lines(self) -> list[str]:
        times = self.measured_ns, self.usual_ns, self.low_ns, self.high_ns
        measured, usual, low, high = (f"{ns / 1e6:,.3f}" for ns in times)
        first = f"untraced   a step took {measured} ms before recording"
        if low == high:
            return [first] if usual == measured else [f"{first}; with the changes {usual} ms"]
        change = self.usual_ns / max(self.measured_ns, 1) - 1
        return [f"{first}; with the changes {usual} ms ({low} to {high} ms), {change:+.1%}"]


def untraced_answer(
    base: Replay, constants: Sequence[Constants], *changes: Callable[[ReplayGraph], ReplayGraph]
) -> UntracedAnswer | None:
    """Return the untraced step time after a change, or None. `changes` has variants of the change, the usual one first.

    Example:
        >>> graph = etplus.build_graph(trace)
        >>> constants = [etplus.fit_constants(graph)]
        >>> untraced_answer(etplus.replay(graph, constants), constants) is None  # not made by `etplus record`
        True
    """
    step, rows = untraced_step_of(base.graph.traces), _step_rows(base.graph)
    if step is None or not all(map(len, rows)) or not base.graph.times_recorded:
        return None
    timelines = without_recording_replays(base, constants) or (base,)
    if not changes:
        return UntracedAnswer(step.step_ns, step.step_ns, step.step_ns, step.step_ns)
    gains = [
        1 - replay(change(done.graph), constants).makespan_ns / max(done.makespan_ns, 1)
        for change in changes
        for done in timelines
    ]
    low, high = gain_range(gains, base.graph) if any(gains) else (0.0, 0.0)
    times = (round(step.step_ns * (1 - gain)) for gain in (gains[0], min(high, 1.0), low))
    return UntracedAnswer(step.step_ns, *times)


def gain_range(
    gains: Sequence[float], graph: ReplayGraph, *, low: float = 1.0, high: float = 1.0, doubt: float = 0.0
) -> tuple[float, float]:
    """Return the interval of a gain. Independent errors are combined as the root of the sum of their squares.

    `gains` has the gain in every timeline as a share of its length, usual timeline first. In reality, a change may save
    `low` to `high` times its gain in the replay. `doubt` is the error of the replay as a share of the gain.
    """
    usual = gains[0]
    size = max(abs(usual), 1e-9)
    on_device = bool(np.any(graph.column("kind") == GPU))
    uneven, least = (0.0, 0.0) if on_device else (_UNEVEN, _UNEVEN_STEP)
    below = math.hypot(uneven, 1 - low, (usual - min(gains)) / size, doubt) * size + least
    above = math.hypot(uneven, high - 1, (max(gains) - usual) / size, doubt) * size + least
    return usual - below, usual + above


def recording_note(base: Replay, corrected: Replay) -> str:
    graph, step = base.graph, untraced_step_of(base.graph.traces)
    operators = sum(int(np.count_nonzero(trace.calls.kind == OP)) for trace in graph.traces)
    taken = sum(int(part.sum()) for trace in graph.traces for part in _cost_of_rows(trace)) * _SHARES[0]
    each = f"{taken / max(operators, 1) / 1e3:.1f} µs for each of {operators:,} operators"
    if step is None:
        ratio = base.makespan_ns / max(corrected.makespan_ns, 1)
        return f"recording took about {each} (estimated: the run took {ratio:.1f} times as long); gains exclude it"
    recorded = _host_step_ns(base, _step_rows(graph)) or 0.0
    return (
        f"a step on the host took {recorded / max(step.host_ns, 1):.1f} times as long while recording "
        f"({recorded / 1e6:,.3f} ms, {step.host_ns / 1e6:,.3f} ms in the {step.steps} steps before): about {each}; "
        "gains refer to steps without recording"
    )


def _host_step_ns(done: Replay, steps: Sequence[IntColumn]) -> float | None:
    if not all(map(len, steps)):
        return None
    return float(np.mean([int(done.end[rows].max() - done.start[rows].min()) / len(rows) for rows in steps]))


def _step_rows(graph: ReplayGraph) -> list[IntColumn]:
    found = list[IntColumn]()
    for first, trace in zip(graph.first_row.tolist(), graph.traces, strict=False):
        steps = matching(trace.nodes.name, trace.names, PROFILER_STEP.fullmatch) & (trace.nodes.kind != GPU)
        rows: IntColumn = first + np.flatnonzero(steps)
        found.append(rows[graph.start[rows] >= 0])
    return found
