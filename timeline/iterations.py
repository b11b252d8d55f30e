"""Find the iterations of a trace, their times and outliers, and predict an iteration from the other iterations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..trace.brief import brief
from ..trace.columns import IntColumn, distinct_rows, median, percentiles_of, run_starts, scatter
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.errors import ConvertError, UsageError
from ..trace.find_steps import family_of, find_marks
from ..trace.index import Row
from ..trace.kinds import CPU, GPU
from ..trace.trace import Trace
from .constants import Constants, fit_constants
from .graph_replay import relative_error, replay
from .replay_graph import DURATION, EVENT, HANDOFF, HOST, LAUNCH, STREAM, SYNC, UNKNOWN, ReplayGraph

_LEAST = 3
# Lags are predicted from other iterations only for these kinds of edges.
_MEASURED = (HOST, DURATION, LAUNCH, STREAM, EVENT, SYNC, HANDOFF, UNKNOWN)


@dataclass(frozen=True)
class MarkedIterations:
    trace: Trace
    mark: IntColumn  # row of the annotation that starts the iteration
    of_row: IntColumn  # iteration in which the row was called or launched, −1 if there is none
    steps: bool  # True if annotations enclose their iterations, as ProfilerStep does
    phases: tuple[str, ...] = ()

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.mark)

    def label(self, index: int) -> str:
        return self.trace.name_of(Row(int(self.mark[index])))

    @cached_property
    def outliers(self) -> tuple[Outlier, ...]:
        trace = self.trace
        labels = [self.label(k) for k in range(len(self))]
        return find_outliers(trace, self.of_row, self.times(trace.nodes.ts, trace.nodes.end), labels)

    def times(self, start: IntColumn, end: IntColumn) -> IntColumn:
        """Return iteration times in ns. Each starts when the host begins it and the device has ended earlier ones."""
        last = self.of_row == len(self) - 1
        over = end[self.mark[-1]] if self.steps else end[last & (self.trace.nodes.kind == CPU)].max()
        bound = np.append(start[self.mark], over)
        gpu = np.flatnonzero((self.trace.nodes.kind == GPU) & (self.of_row >= 0))
        np.maximum.at(bound, self.of_row[gpu] + 1, end[gpu])
        return np.diff(np.maximum.accumulate(bound))


def find_iterations(trace: Trace) -> MarkedIterations:
    """Find iterations by annotations or by repeated kernels. Raise ConvertError for fewer than three iterations."""
    nodes = trace.nodes
    calls = np.flatnonzero(nodes.timed & (nodes.kind == CPU))
    rows = calls[nodes.scope[calls] == ANNOTATION_SCOPE]
    rows = rows[np.argsort(nodes.ts[rows], kind="stable")]
    names, last = [trace.name_of(row) for row in rows.tolist()], int(nodes.end[calls].max(initial=0))
    marks = find_marks(names, nodes.ts[rows], nodes.end[rows], nodes.thread[rows], nodes.ts[calls], last)
    mark, last = rows[marks.mark], int(marks.end[-1]) if len(marks) else 0
    if trace.steps.inferred:
        mark, last = trace.calls.source[trace.steps.call], int(trace.steps.end[-1])
    if len(mark) < _LEAST:
        raise ConvertError(
            f"{trace.file}: no annotation marks three iterations; record several steps with torch.profiler's step() or "
            "with an annotation around each step"
        )
    called = nodes.ts.copy()
    source, target, _ = trace.edges_of("launch").T
    called[target] = nodes.ts[source]
    of_row = np.searchsorted(nodes.ts[mark], called, side="right") - 1
    of_row[~nodes.timed | (called >= last)] = -1  # work after the last iteration belongs to no iteration
    return MarkedIterations(trace, mark, of_row, marks.encloses, tuple(batch.phase for batch in marks.batches))


@dataclass(frozen=True)
class HeldOut:
    label: str
    index: int
    predicted_ns: int
    measured_ns: int
    others_ns: tuple[int, ...]
    unknown: float  # share of the edges that have no counterpart in other iterations
    set_apart: tuple[Outlier, ...] = ()

    __repr__ = brief

    @property
    def error(self) -> float:
        return relative_error(self.predicted_ns, self.measured_ns)

    @property
    def outlier(self) -> Outlier | None:
        return next((outlier for outlier in self.set_apart if outlier.iteration == self.index), None)

    @property
    def spread(self) -> float:
        times = [self.measured_ns, *self.others_ns]
        middle = median(times)
        return (max(times) - min(times)) / middle if middle else 0.0


def predict_iteration(
    graph: ReplayGraph, index: int, constants: Constants | None = None, *, keep_outliers: bool = False
) -> HeldOut:
    """Predict an iteration (0 is the first, −1 the last) of one rank's graph from the other iterations.

    Earlier iterations are replayed with their measured lags, so streams and the launch queue start in the same state.
    """
    iterations = find_iterations(graph.trace)
    count = len(iterations)
    if not -count <= index < count:
        raise UsageError(f"iteration {index}: the trace has iterations 0 to {count - 1}")
    index %= count
    set_apart = () if keep_outliers else iterations.outliers
    unused = [outlier.iteration for outlier in set_apart if outlier.iteration != index]
    held, unknown = held_out_graph(graph, iterations, index, unused)
    result = replay(held, constants or fit_constants(graph))
    measured = iterations.times(graph.trace.nodes.ts, graph.trace.nodes.end)
    predicted = iterations.times(result.start, result.end)
    others = tuple(np.delete(measured, [index, *unused]).tolist())
    return HeldOut(
        iterations.label(index), index, int(predicted[index]), int(measured[index]), others, unknown, set_apart
    )


def held_out_graph(
    graph: ReplayGraph, iterations: MarkedIterations, index: int, unused: Sequence[int]
) -> tuple[ReplayGraph, float]:
    """Replace the lags of an iteration with medians over other iterations. Also return the share of unknown edges.

    Edges are counterparts if they lead to the same point of calls with the same name, caller names and ordinal. An edge
    without a counterpart gets the median for its kind and name, or 0. A sum of medians is less than the median of sums
    (by 8% on a real trace), so host and device times are scaled by this ratio.
    """
    edges = graph.edges
    row = graph.row[edges.target]
    iteration = np.where(row >= 0, iterations.of_row[np.maximum(row, 0)], -1)
    chosen = np.flatnonzero((iteration >= 0) & ~np.isin(iteration, unused) & np.isin(edges.kind, _MEASURED))
    row, iteration = row[chosen], iteration[chosen]
    path = _paths(graph.trace)
    point = 1 + (edges.target[chosen] == graph.end[row]) - (edges.target[chosen] == graph.start[row])
    kind = edges.kind[chosen]
    _, path_key = distinct_rows(path[row], kind, point)
    _, key = distinct_rows(path_key, _ordinals(iteration, path_key))
    _, name_key = distinct_rows(graph.trace.nodes.name[row], kind, point)
    lag, is_held_out = edges.lag[chosen], iteration == index
    has_median, value = _medians(key, lag, is_held_out)
    near, stand_in = _medians(name_key, lag, is_held_out)
    value = np.where(has_median, value, np.where(near, stand_in, 0))
    shared = np.isin(key, key[is_held_out]) & ~is_held_out
    on_host = np.isin(kind, (HOST, HANDOFF))
    for some in (on_host, ~on_host):
        known = some & shared
        ratio = median_ratio([(lag[known], value[known], iteration[known])])
        value[some & is_held_out] = np.rint(value[some & is_held_out] * ratio)
    new = edges.lag.copy()
    new[chosen[is_held_out]] = value[is_held_out]
    return graph.with_latencies(new), float(np.mean(~has_median[is_held_out])) if is_held_out.any() else 0.0


def median_ratio(parts: Iterable[tuple[IntColumn, IntColumn, IntColumn]]) -> float:
    """Return the median of (total lag / total usual lag) over iterations. A part is (lag, usual lag, iteration)."""
    ratios = [np.zeros(0)]
    for lag, usual, iteration in parts:
        lags, sums = (np.bincount(iteration, weights=ns) for ns in (lag, usual))
        ratios.append(lags[sums > 0] / sums[sums > 0])
    joined = np.concatenate(ratios)
    return median(joined) if len(joined) else 1.0


def _paths(trace: Trace) -> IntColumn:
    nodes = trace.nodes
    known: dict[tuple[int, int], int] = {}
    names: dict[str, int] = {}
    code = [names.setdefault(family_of(name), len(names)) for name in trace.names]
    plain = np.array(code, np.int64)[nodes.name]
    named = np.where(nodes.scope == ANNOTATION_SCOPE, plain, nodes.name + len(names))
    order = np.lexsort((nodes.id, nodes.kind == GPU, -nodes.end, nodes.ts))
    result, parents, labels = [-1] * len(trace), nodes.parent_row.tolist(), named.tolist()
    for row in order.tolist():
        parent = parents[row]
        result[row] = known.setdefault((result[parent] if parent >= 0 else -1, labels[row]), len(known))
    return np.array(result, np.int64)


def _ordinals(iteration: IntColumn, key: IntColumn) -> IntColumn:
    order = np.lexsort((key, iteration))  # the sort is stable, so edges with the same key stay in order
    new = run_starts(key[order], iteration[order])
    return scatter(len(key), order, np.arange(len(key)) - np.flatnonzero(new)[np.cumsum(new) - 1])


def _medians(
    key: IntColumn, value: IntColumn, held_out: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.bool_], IntColumn]:
    given = np.flatnonzero(~held_out)
    order = given[np.lexsort((value[given], key[given]))]
    keys, first, count = np.unique(key[order], return_index=True, return_counts=True)
    if not len(keys):
        return np.zeros(len(key), np.bool_), np.zeros(len(key), np.int64)
    low, high = value[order[first + (count - 1) // 2]], value[order[first + count // 2]]
    place = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
    return keys[place] == key, ((low + high) // 2)[place]


# A modified z-score above 3.5 marks an outlier (Iglewicz and Hoaglin, 1993). A standard deviation is about 1.4826 MAD.
_DEVIATIONS = 3.5 * 1.4826
# An iteration that differs from the median by less than this share is never an outlier.
_LONGER = 0.2
# An iteration does different work if its call counts per name differ from the medians by more than this share.
_OTHER_WORK = 0.1


class Outlier(msgspec.Struct, frozen=True):
    iteration: int
    label: str
    measured_ns: int
    reason: str

    __repr__ = brief


def warm_up(set_apart: Sequence[Outlier]) -> int:
    """Return the number of consecutive outliers at the beginning of the trace."""
    numbers = {outlier.iteration for outlier in set_apart}
    return next(count for count in range(len(numbers) + 1) if count not in numbers)


def outlier_lines(set_apart: Sequence[Outlier]) -> list[str]:
    lines = [f"set apart  iteration {outlier.iteration} {outlier.reason}" for outlier in set_apart]
    return (
        [*lines, "           these iterations differ from the others; --keep-outliers includes them"] if lines else []
    )


def find_outliers(trace: Trace, of_row: IntColumn, times: IntColumn, labels: Sequence[str]) -> tuple[Outlier, ...]:
    """Return iterations with unusual work or an unusual time, but none if half of all iterations are unusual.

    Work is unusual if the numbers of calls and GPU events by name differ from the medians by more than 10%. A time is
    unusual if it differs from the median by more than 20% and by more than 3.5 standard deviations.
    """
    other_work = _other_work(trace, of_row, len(times))
    is_similar = other_work <= _OTHER_WORK
    if 2 * np.count_nonzero(is_similar) <= len(times):
        is_similar[:] = True
    middle = median(times[is_similar])
    off = np.abs(times - middle)
    is_apart = is_similar & (off > _LONGER * middle) & (off > _DEVIATIONS * median(off[is_similar]))
    if 2 * np.count_nonzero(is_apart | ~is_similar) >= len(times):
        is_apart, is_similar = np.zeros_like(is_apart), np.ones_like(is_similar)
    outliers = []
    for k in np.flatnonzero(is_apart | ~is_similar).tolist():
        ns, reason = int(times[k]), f"{other_work[k]:.0%} of its calls and GPU events differ"
        if is_similar[k]:
            reason = f"takes {ns / 1000:,.3f} µs, while most others take 0"
            reason = f"differs from the median time by {ns / middle - 1:+.1%}" if middle else reason
        outliers.append(Outlier(k, labels[k], ns, reason))
    return tuple(outliers)


def _other_work(trace: Trace, of_row: IntColumn, count: int) -> npt.NDArray[np.float64]:
    which = (of_row >= 0) & (trace.nodes.scope != ANNOTATION_SCOPE)
    rows = np.flatnonzero(which & np.isin(trace.nodes.kind, (CPU, GPU)))
    keys, which = distinct_rows(distinct_rows(trace.nodes.name[rows])[1], of_row[rows])
    (name, iteration), counts = keys.T, np.bincount(which, minlength=len(keys))
    usual = _median_counts(name, counts, count)
    present = np.abs(counts - usual[name]) - usual[name]  # a name that does not occur differs by its usual count
    differs: npt.NDArray[np.float64] = np.bincount(iteration, weights=present, minlength=count) + usual.sum()
    return differs / max(float(usual.sum()), 1.0)


def _median_counts(name: IntColumn, counts: IntColumn, iterations: int) -> npt.NDArray[np.float64]:
    """Return the median count of every name over all iterations. A missing count is 0."""
    order = np.lexsort((counts, name))
    first = np.flatnonzero(np.diff(name[order], prepend=-1))
    missing = iterations - np.diff(np.append(first, len(name)))
    middles = []
    for middle in ((iterations - 1) // 2, iterations // 2):
        entry = np.maximum(first + middle - missing, first)
        middles.append(np.where(middle < missing, 0, counts[order][np.minimum(entry, len(name) - 1)]))
    return np.asarray((middles[0] + middles[1]) / 2, np.float64)


class Percentiles(msgspec.Struct, frozen=True):
    """The 10th percentile, median and 90th percentile of step times in ns, or of step times relative to the mean."""

    p10: float
    p50: float
    p90: float

    def times(self, factor: float) -> Percentiles:
        return Percentiles(round(self.p10 * factor), round(self.p50 * factor), round(self.p90 * factor))


def percentiles(values: Sequence[float] | IntColumn) -> Percentiles:
    return Percentiles(*percentiles_of(np.asarray(values, np.float64), 10, 50, 90))


@dataclass(frozen=True)
class StepTimes:
    """The step times of a trace in ns, without outliers."""

    count: int
    warm_up: int  # number of consecutive outliers at the beginning
    set_apart: tuple[Outlier, ...]  # outliers anywhere in the trace
    measured: Percentiles
    predicted: Percentiles

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "warm_up": self.warm_up,
            "set_apart": [msgspec.structs.asdict(outlier) for outlier in self.set_apart],
            "measured_ns": msgspec.structs.asdict(self.measured),
            "predicted_ns": msgspec.structs.asdict(self.predicted),
        }

    def to_lines(self) -> list[str]:
        begin = f"{self.warm_up} at the beginning as warm-up" if self.warm_up else ""
        others = len(self.set_apart) - self.warm_up
        later = f"{others} {'others' if begin else 'of them'}" if others else ""
        lines = [f"steps      {self.count} similar"]
        if begin or later:
            lines[0] += f"; set apart: {' and '.join(filter(None, (begin, later)))}"
        for name, times in (("predicted", self.predicted), ("measured", self.measured)):
            p10, p50, p90 = (f"{value / 1000:,.1f}" for value in (times.p10, times.p50, times.p90))
            lines.append(f"           {name} p10 {p10}, p50 {p50}, p90 {p90} µs")
        return lines


def step_times(trace: Trace, start: IntColumn, end: IntColumn) -> StepTimes | None:
    try:
        iterations = find_iterations(trace)
    except ConvertError:
        return None
    outliers = iterations.outliers
    like = np.setdiff1d(np.arange(len(iterations)), [outlier.iteration for outlier in outliers])
    measured, predicted = (
        iterations.times(*times)[like] for times in ((trace.nodes.ts, trace.nodes.end), (start, end))
    )
    return StepTimes(
        len(like), warm_up(outliers), outliers, percentiles(measured).times(1), percentiles(predicted).times(1)
    )
