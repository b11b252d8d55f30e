"""Comparison of two traces: GPU time by operator and by kernel, including work that occurs in only one trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from ..trace.brief import brief
from ..trace.columns import IntColumn
from ..trace.intervals import sums
from ..trace.kinds import PHASES
from ..trace.suggest import Suggests
from ..trace.tables import OP
from ..trace.trace import Trace
from .breakdown import BreakdownRow, Iteration, breakdown, iteration_at, launched_in
from .kernel_peaks import KernelRow, kernel_table
from .place_diff import LineRow, PathRow, line_rows, path_rows
from .serving_steps import PhaseChange, phase_changes
from .summary import Analysis
from .table import NamedTables, PlainRows, Row, Table, WithMean, column, derived, inferred, nested

_MS = 1e6
_BIGGEST = 5


class Side(Row):
    """One operator or kernel in one trace. The values are averages per iteration if iterations are compared."""

    count: float = column("count", "Number of runs.")
    total_ns: float = column("ns", "Sum of the durations of all runs.")
    flops_share: float | None = inferred("share", "Share of the peak FLOP/s of the device.", default=None)
    bytes_share: float | None = inferred("share", "Share of the peak memory bandwidth.", default=None)

    guesses = WithMean.guesses

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.count


class DiffRow(Row):
    """One operator or kernel in both traces. `a` or `b` is None if it does not occur in that trace."""

    name: str = column("name", "Name of the operator or kernel.")
    a: Side | None = nested(Side, "A")
    b: Side | None = nested(Side, "B")

    @derived("ns", "B−A")
    def change_ns(self) -> float:
        """Total in B minus total in A."""
        return (self.b.total_ns if self.b else 0) - (self.a.total_ns if self.a else 0)

    @derived("share", "B/A")
    def ratio(self) -> float | None:
        """Total in B divided by total in A; null if the row does not occur in B or the total in A is 0."""
        return self.b.total_ns / self.a.total_ns if self.a and self.b and self.a.total_ns else None


@dataclass(frozen=True)
class Difference(Suggests):
    """A comparison of two traces. Operators, kernels and times by phase are sorted by change, greatest first."""

    a: str
    b: str
    device_a: str
    device_b: str
    per_iteration: bool  # True if the numbers are means per iteration; False if they cover whole traces
    iterations_a: int
    iterations_b: int
    outside_a: tuple[int, int]  # number and total duration (ns) of the GPU events launched outside iterations
    outside_b: tuple[int, int]
    total_a: float  # device time, ns
    total_b: float
    ops: list[DiffRow]
    kernels: list[DiffRow]
    latency_a: float  # ns of a mean iteration, or of the trace if whole traces are compared; 0 if unknown
    latency_b: float
    damage: tuple[str, ...] = ()  # sentences about damage in the files
    paths: list[PathRow] = field(default_factory=list)
    phases: list[PhaseChange] = field(default_factory=list)
    lines: list[LineRow] = field(default_factory=list)
    time_by_phase: list[DiffRow] = field(default_factory=list)

    __repr__ = brief

    @property
    def tables(self) -> NamedTables:
        """The tables of `sided` by name. Columns that belong to one trace start with "a_" or "b_"."""
        return flat_tables(self.sided())

    def sided(self) -> dict[str, Table[Any]]:
        """Return the tables that compare the traces: `ops`, `kernels`, `paths`, `phases`, `lines`, `time_by_phase`."""
        kinds: dict[str, type[Row]] = {"ops": DiffRow, "kernels": DiffRow, "paths": PathRow, "phases": PhaseChange}
        kinds |= {"lines": LineRow, "time_by_phase": DiffRow}
        return {name: Table(kind, getattr(self, name)) for name, kind in kinds.items()}

    @property
    def gains(self) -> list[DiffRow]:
        """Operators that take less time in B, greatest change first."""
        return sorted((row for row in self.ops if row.change_ns < 0), key=lambda row: row.change_ns)

    @property
    def losses(self) -> list[DiffRow]:
        """Operators that take more time in B, greatest change first."""
        return sorted((row for row in self.ops if row.change_ns > 0), key=lambda row: -row.change_ns)


def flat_tables(tables: Mapping[str, Iterable[Row]]) -> NamedTables:
    """Return tables in which nested rows are flattened into columns."""
    return NamedTables((name, PlainRows(row.flat() for row in rows)) for name, rows in tables.items())


def difference(a: Analysis, b: Analysis, *, by_shape: bool = False, total: bool = False) -> Difference:
    """Compare two traces; they may come from different devices. If both have iterations, compare mean iterations.

    Args:
        by_shape: match operators by name and shapes.
        total: compare the whole traces even if both have iterations."""
    per_iteration = bool(a.iterations and b.iterations) and not total
    one, other = _ComparedPart.of(a, per_iteration), _ComparedPart.of(b, per_iteration)
    files = a.trace.file, b.trace.file, device_names(a.trace), device_names(b.trace), per_iteration
    totals = len(a.iterations), len(b.iterations), one.outside, other.outside, one.total_ns, other.total_ns
    on_gpu = bool(one.total_ns or other.total_ns)
    ops = match(*(ops_of(part.breakdown, by_shape, part.mean) for part in (one, other)))
    both = ops, match(_kernels(one), _kernels(other))
    return Difference(
        *(*files, *totals, *both, _latency(a, per_iteration), _latency(b, per_iteration)),
        (*a.trace.damage, *b.trace.damage),
        path_rows(a, b, per_iteration=per_iteration),
        phase_changes(a.serving_phases, b.serving_phases),
        line_rows(a, b, per_iteration=per_iteration),
        match(*(_by_phase(side.trace, part, on_gpu) for side, part in ((a, one), (b, other)))),
    )


def _by_phase(trace: Trace, part: _ComparedPart, on_gpu: bool) -> dict[str, Side]:
    """Return the GPU time per phase or, if not `on_gpu`, the CPU self time of the operators in the phase."""
    if on_gpu:
        phase, ns = np.asarray(trace.origin.gpu_phase)[part.events], np.asarray(trace.gpu.dur)[part.events]
    else:
        ops = np.flatnonzero(trace.calls.kind == OP)
        if part.iterations:
            ops = ops[iteration_at(part.iterations, trace.calls.ts[ops]) >= 0]
        phase, ns = np.asarray(trace.origin.phase[ops]), np.asarray(trace.self_ns[ops])
    code = phase.astype(np.int64)
    count, total = np.bincount(code, minlength=len(PHASES)), sums(code, ns, len(PHASES))
    used = np.flatnonzero(count).tolist()
    return {PHASES[at] or "not known": Side(part.mean(float(count[at])), part.mean(float(total[at]))) for at in used}


def _latency(analysis: Analysis, per_iteration: bool) -> float:
    if not analysis.trace.times_recorded:
        return 0.0
    mean = analysis.mean_latency_ns if per_iteration else None
    return analysis.trace.span.length if mean is None else mean


def regressions(difference: Difference, limit: float) -> list[str]:
    """Return sentences about GPU time and latency if they are over the limit: 0.05 allows B to be 5% slower than A."""
    span = "time of an iteration" if difference.per_iteration else "time of the whole trace"
    device = "device time", difference.total_a, difference.total_b
    pairs = (device, (span, difference.latency_a, difference.latency_b))
    slower = ", ".join(f"{row.name} +{row.change_ns / _MS:,.3f} ms" for row in difference.losses[:_BIGGEST])
    return [
        f"{name}: {a / _MS:,.3f} ms in A, {b / _MS:,.3f} ms in B{f' ({b / a - 1:+.1%})' if a else ''}"
        + (f"; operators: {slower}" if slower else "")
        for name, a, b in pairs
        if b > a * (1 + limit)
    ]


@dataclass(frozen=True)
class _ComparedPart:
    """The part of a trace that is compared. `iterations` is empty if it is the whole trace."""

    breakdown: list[BreakdownRow]
    kernels: list[KernelRow]
    iterations: Sequence[Iteration]
    events: IntColumn  # positions of the compared events in `Trace.gpu`
    outside: tuple[int, int]  # number and total duration (ns) of all other GPU events

    @classmethod
    def of(cls, analysis: Analysis, per_iteration: bool) -> _ComparedPart:
        trace, work = analysis.trace, analysis.work
        inside = launched_in(trace, analysis.iterations) >= 0
        outside = int(np.count_nonzero(~inside)), int(trace.gpu.dur[~inside].sum())
        if not per_iteration:
            return cls(analysis.breakdown, analysis.kernels, (), np.arange(len(inside)), outside)
        rows = np.flatnonzero(inside)
        part = in_iterations(trace, rows)
        kernels = kernel_table(part, work.take(rows), analysis.devices)
        return cls(breakdown(part), kernels, analysis.iterations, rows, outside)

    @property
    def total_ns(self) -> float:
        return self.mean(sum(row.total_ns for row in self.breakdown))

    def mean(self, value: float) -> float:
        return value if len(self.iterations) <= 1 else value / len(self.iterations)


def in_iterations(trace: Trace, events: IntColumn) -> Trace:
    """Return a trace that keeps only the GPU events at these positions."""
    return trace.with_tables(replace(trace.tables, gpu=trace.gpu.take(events)))


def match(a: dict[str, Side], b: dict[str, Side]) -> list[DiffRow]:
    rows = [DiffRow(name, a.get(name), b.get(name)) for name in {**a, **b}]
    return sorted(rows, key=lambda row: (-abs(row.change_ns), row.name))


def ops_of(rows: Iterable[BreakdownRow], by_shape: bool, mean: Callable[[float], float]) -> dict[str, Side]:
    """Return the operators by name (or by name and shapes). `mean` converts a sum to a mean per iteration."""
    groups: dict[str, list[int]] = {}
    for row in rows:
        total = groups.setdefault(f"{row.label} {row.shapes}".rstrip() if by_shape else row.label, [0, 0])
        total[0] += row.count
        total[1] += row.total_ns
    return {name: Side(mean(count), mean(ns)) for name, (count, ns) in groups.items()}


def _kernels(part: _ComparedPart) -> dict[str, Side]:
    """Return the kernels by name. Peak shares are averages, weighted by time."""
    groups = defaultdict(list)
    for row in part.kernels:
        groups[row.kernel].append(row)
    sides = {}
    for name, rows in groups.items():
        flops_share = _weighted((row.flops_share, row.flops_ns) for row in rows)
        bytes_share = _weighted((row.bytes_share, row.bytes_ns) for row in rows)
        count, total = sum(row.count for row in rows), sum(row.total_ns for row in rows)
        sides[name] = Side(part.mean(count), part.mean(total), flops_share, bytes_share)
    return sides


def _weighted(parts: Iterable[tuple[float | None, int]]) -> float | None:
    known = [(share, ns) for share, ns in parts if share is not None and ns]
    return sum(share * ns for share, ns in known) / sum(ns for _, ns in known) if known else None


def device_names(trace: Trace) -> str:
    names = [str(device.get("name", "no name")) for device in trace.properties.values()]
    return ", ".join(dict.fromkeys(names)) or "no device"


def json_of_difference(difference: Difference) -> dict[str, Any]:
    rows = {name: rows.plain() for name, rows in Difference.sided(difference).items()}
    plain = asdict(replace(difference, ops=[], kernels=[], paths=[], phases=[], lines=[], time_by_phase=[])) | rows
    moved = {"gains": [row.name for row in difference.gains], "losses": [row.name for row in difference.losses]}
    return plain | moved
