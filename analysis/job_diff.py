"""Comparison of two jobs, per rank and over all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..jobs.job_report import ranges
from ..trace.brief import as_html, as_text, brief
from ..trace.columns import IntColumn, distinct_rows
from ..trace.errors import UsageError
from ..trace.intervals import sums
from ..trace.outer import outer
from ..trace.text_tables import number
from ..trace.trace import Trace
from ..trace.unattached import with_unattached
from .breakdown import breakdown, iteration_at, iterations, launched_in
from .table import NamedTables, Row, TextColumn, column, derived
from .trace_diff import (
    Difference,
    DiffRow,
    Side,
    device_names,
    flat_tables,
    in_iterations,
    json_of_difference,
    match,
    ops_of,
)

_Mask = npt.NDArray[np.bool_]
_NAMED = ("ops", "kernels", "host_ops")


@dataclass(frozen=True)
class PartTotals:
    """Times of one rank, over the whole trace or per mean iteration. `ops` has GPU times, `host_ops` has CPU times."""

    latency_ns: float
    device_ns: float
    communication_ns: float
    ops: Mapping[str, Side]
    kernels: Mapping[str, Side]
    host_ops: Mapping[str, Side]


@dataclass(frozen=True)
class ComparedRank:
    """Summary of one rank for comparing two jobs. The summary takes only a few KB, even for a large trace."""

    devices: str  # names of the devices of this rank
    iterations: int
    whole: PartTotals
    iteration: PartTotals | None  # times of a mean iteration, or None if there are no iterations
    outside: tuple[int, int]  # number and total duration (ns) of the GPU events launched outside iterations
    damage: tuple[str, ...]

    __repr__ = brief


def compared_rank(trace: Trace, *, annotation: str | None = None, by_shape: bool = False) -> ComparedRank:
    trace = with_unattached(trace)
    steps = iterations(trace, annotation)
    everything = np.ones(len(trace.gpu), np.bool_), np.ones(len(trace.calls), np.bool_)
    whole = _totals(trace, trace.span.length, *everything, 1, by_shape)
    inside = launched_in(trace, steps) >= 0
    outside = int(np.count_nonzero(~inside)), int(trace.gpu.dur[~inside].sum())
    mean = None
    if steps:
        latency = float(np.mean([step.latency_ns for step in steps]))
        called = iteration_at(steps, trace.calls.ts) >= 0
        mean = _totals(trace, latency, inside, called, len(steps), by_shape)
    return ComparedRank(device_names(trace), len(steps), whole, mean, outside, tuple(trace.damage))


def _totals(trace: Trace, latency_ns: float, events: _Mask, calls: _Mask, count: int, by_shape: bool) -> PartTotals:
    part = trace if events.all() else in_iterations(trace, np.flatnonzero(events))
    gpu, top = part.gpu, np.flatnonzero(calls & (trace.hierarchy.top == np.arange(len(trace.calls))))
    took = (trace.calls.end - trace.calls.ts)[top]
    ops = ops_of(breakdown(part), by_shape, lambda total: total / count)
    kernels, host_ops = _by_name(trace, gpu.name, gpu.dur, count), _by_name(trace, trace.calls.name[top], took, count)
    device_ns, communication_ns = int(gpu.dur.sum()) / count, int(gpu.dur[part.is_comm].sum()) / count
    return PartTotals(latency_ns, device_ns, communication_ns, ops, kernels, host_ops)


def _by_name(trace: Trace, names: npt.NDArray[np.integer], took: IntColumn, by: int) -> dict[str, Side]:
    if not len(names):
        return {}
    distinct, inverse = distinct_rows(np.asarray(names, np.int64))
    columns = (distinct[:, 0], np.bincount(inverse), sums(inverse, took, len(distinct)))
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {trace.names[name]: Side(count / by, ns / by) for name, count, ns in rows}


class RankChange(Row):
    """One rank's times in both jobs: per mean iteration if iterations are compared, otherwise for the whole traces."""

    rank: int = column("number", "Rank number.")
    a_ns: float = column("ns", "Duration of the rank's trace in A.", "A")
    b_ns: float = column("ns", "Duration of the rank's trace in B.", "B")
    a_device_ns: float = column("ns", "Sum of the durations of GPU events in A.", "device A")
    b_device_ns: float = column("ns", "Sum of the durations of GPU events in B.", "device B")
    a_communication_ns: float = column("ns", "Sum of the durations of communication kernels in A.", "comm A")
    b_communication_ns: float = column("ns", "Sum of the durations of communication kernels in B.", "comm B")

    title = "ranks by change in time, ms"
    shown = (
        *("rank", "a_ns", "b_ns", "change_ns"),
        TextColumn("B/A", lambda row: number(row.ratio, 2)),
        *("a_device_ns", "b_device_ns", "a_communication_ns", "b_communication_ns"),
    )

    @derived("ns", "B−A")
    def change_ns(self) -> float:
        """Duration in B minus duration in A."""
        return self.b_ns - self.a_ns

    @derived("share", "B/A")
    def ratio(self) -> float | None:
        """Duration in B divided by duration in A; null if the duration in A is 0."""
        return self.b_ns / self.a_ns if self.a_ns else None


class JobDiffRow(DiffRow):
    rank: int = column("number", "Rank with the largest change.")
    rank_change_ns: float = column("ns", "Change on the rank that changed most.")


@dataclass(frozen=True)
class JobDifference(Difference):
    """Comparison of two jobs. The comparison covers only the ranks that occur in both jobs.

    Times and counts are sums over these ranks, per iteration if iterations are compared. `latency_a` and `latency_b`
    are the latencies of the slowest rank in each job. Ranks are sorted by change, greatest first.
    """

    ranks: list[RankChange] = field(default_factory=list)
    host_ops: list[DiffRow] = field(default_factory=list)
    only_a: tuple[int, ...] = ()
    only_b: tuple[int, ...] = ()

    __repr__ = as_text
    _repr_html_ = as_html

    @property
    def tables(self) -> NamedTables:
        """The tables `ranks`, `ops`, `kernels` and `host_ops`, each with `to_pandas()`."""
        return flat_tables({name: getattr(self, name) for name in ("ranks", *_NAMED)})

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON-ready data."""
        further = {"ranks": [row.plain() for row in self.ranks], "host_ops": [row.plain() for row in self.host_ops]}
        return json_of_difference(self) | further

    def to_text(self, width: int = 80) -> str:
        """Return one screen of text, at most `width` columns wide."""
        text: str = outer("report.diff_text").render_job(self, width)
        return text


def job_difference(
    a: Mapping[int, ComparedRank], b: Mapping[int, ComparedRank], *, names: tuple[str, str], total: bool = False
) -> JobDifference:
    """Compare two jobs using the data of their ranks, per iteration if every rank has iterations.

    Args:
        names: names of the jobs, for messages. total: compare whole traces even if all ranks have iterations.

    Raises:
        UsageError: no rank occurs in both jobs.
    """
    ranks = sorted({*a} & {*b})
    if not ranks:
        has = [f"{name} has {ranges(sorted(side))}" for name, side in zip(names, (a, b), strict=True)]
        raise UsageError(f"no rank occurs in both jobs: {', '.join(has)}")
    sides = [[side[rank] for rank in ranks] for side in (a, b)]
    per_iteration = not total and all(rank.iteration is not None for side in sides for rank in side)
    parts = [[rank.iteration if per_iteration and rank.iteration else rank.whole for rank in side] for side in sides]
    one, other = parts
    changed = [
        RankChange(rank, x.latency_ns, y.latency_ns, x.device_ns, y.device_ns, x.communication_ns, y.communication_ns)
        for rank, x, y in zip(ranks, one, other, strict=True)
    ]
    a_ranks, b_ranks = sides
    return JobDifference(
        *(*names, _joined(a_ranks), _joined(b_ranks), per_iteration),
        *(sum(rank.iterations for rank in a_ranks), sum(rank.iterations for rank in b_ranks)),
        *(_outside(a_ranks), _outside(b_ranks)),
        *(sum(part.device_ns for part in one), sum(part.device_ns for part in other)),
        ops=_changes(ranks, parts, lambda part: part.ops),
        kernels=_changes(ranks, parts, lambda part: part.kernels),
        latency_a=max(part.latency_ns for part in one),
        latency_b=max(part.latency_ns for part in other),
        damage=tuple(dict.fromkeys(sentence for rank in (*a_ranks, *b_ranks) for sentence in rank.damage)),
        ranks=sorted(changed, key=lambda row: (-abs(row.change_ns), row.rank)),
        host_ops=_changes(ranks, parts, lambda part: part.host_ops),
        only_a=tuple(sorted({*a} - {*b})),
        only_b=tuple(sorted({*b} - {*a})),
    )


def _outside(ranks: Sequence[ComparedRank]) -> tuple[int, int]:
    return sum(rank.outside[0] for rank in ranks), sum(rank.outside[1] for rank in ranks)


def _changes(
    ranks: Sequence[int], parts: Sequence[Sequence[PartTotals]], table: Callable[[PartTotals], Mapping[str, Side]]
) -> list[DiffRow]:
    """Return one table with sums over all ranks. Each row names the rank with the largest change."""
    change: dict[str, tuple[float, int]] = {}
    for rank, *both in zip(ranks, *parts, strict=True):
        one, other = map(table, both)
        for name in {**one, **other}:
            sides = (one.get(name), other.get(name))
            ns = DiffRow(name, *sides).change_ns
            if name not in change or abs(ns) > abs(change[name][0]):
                change[name] = ns, rank
    rows = match(*(_summed(map(table, side)) for side in parts))
    return [JobDiffRow(row.name, row.a, row.b, change[row.name][1], change[row.name][0]) for row in rows]


def _summed(ranks: Iterable[Mapping[str, Side]]) -> dict[str, Side]:
    count, total = Counter[str](), Counter[str]()
    for rank in ranks:
        for name, side in rank.items():
            count[name] += side.count  # type: ignore[assignment]
            total[name] += side.total_ns  # type: ignore[assignment]
    return {name: Side(float(count[name]), float(total[name])) for name in count}


def _joined(ranks: Sequence[ComparedRank]) -> str:
    return ", ".join(dict.fromkeys(rank.devices for rank in ranks))
