"""Summary of a job with many ranks: key figures, collectives, stragglers, and the tables of all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..jobs.clocks import clock_offsets, synchronizing
from ..jobs.job_ranks import JobTrace, check_job, job_trace
from ..jobs.lateness import arrivals, behind_median, stragglers
from ..jobs.matching import match_collectives
from ..jobs.rank_communications import RankCommunications, communications
from ..schemas.comm_types import cut_off_note
from ..schemas.communications import kind_name
from ..trace.brief import brief
from ..trace.columns import IntColumn, StringTable, distinct_rows, grouped
from ..trace.intervals import sums
from ..trace.kernel_names import kernel_label
from ..trace.printable import shortened
from ..trace.suggest import no_attribute
from ..trace.trace import Trace
from ..trace.unattached import with_unattached
from .breakdown import device_use, iterations
from .summary import host_ops
from .table import PlainRows, Row, Table, column, inferred, listed

_FEWEST = 4  # Minimum number of ranks for outlier detection.
_LEAST_LAG = 0.01  # Minimum lag of a straggler, as a share of the time between the first and the last collective.
_LEAST_SHARE = 0.02  # Minimum deviation of an outlier from the median, as a share of the median.


class RankNumbers(Row):
    """Key figures of one rank. If start times are missing, times are sums of durations or null."""

    rank: int = column("number", "Rank number.")
    file: str = column("name", "File of the trace.")
    span_ns: int = column("ns", "Time from the start of the first event to the end of the last event.", "length")
    steps: int = column("count", "Number of iterations.")
    step_ns: float | None = column("ns", "Mean duration of an iteration.", "mean step")
    device_events: int = column("count", "Number of kernels, copies and memsets.")
    busy_ns: int | None = column("ns", "Time during which at least one GPU event runs, summed over all devices.")
    compute_ns: int = column("ns", "Time during which a compute kernel runs.", "computing")
    communication_ns: int = column("ns", "Communication time (on the CPU if there is no GPU).", "communicating")
    exposed_ns: int | None = column("ns", "Communication time during which no compute kernel runs.")
    idle_ns: int | None = column("ns", "Idle time, summed over all devices.")
    host_ns: int = column("ns", "CPU time of the topmost operators.")

    title = "ranks, ms"
    shown = ("rank", "span_ns", "step_ns", "compute_ns", "communication_ns", "exposed_ns", "idle_ns", "host_ns")


class RankSpread(Row):
    """Distribution of one quantity over all ranks; values are null if no rank has the quantity."""

    quantity: str = column("text", "Name of the compared quantity.")
    least: float | None = column("ns", "Smallest value of any rank.")
    p5: float | None = column("ns", "5th percentile over the ranks.", "5%")
    median: float | None = column("ns", "Median over the ranks.")
    p95: float | None = column("ns", "95th percentile over the ranks.", "95%")
    greatest: float | None = column("ns", "Largest value of any rank.")
    lowest_rank: int | None = column("number", "First rank with the smallest value.", "least on")
    highest_rank: int | None = column("number", "First rank with the largest value.", "greatest on")

    title = "quantities that differ between ranks, ms"


class RankOutlier(Row):
    rank: int = column("number", "Rank number.")
    quantity: str = column("text", "Name of the compared quantity.")
    value: float = column("ns", "Value on this rank.")
    median: float = column("ns", "Median over all ranks.")

    title = "ranks that stand out, ms"


class _SharedWork(Row):
    name: str = column("name", "Name of the kernel or operator.")
    ranks: int = column("count", "Number of ranks that ran it.")
    count: int = column("count", "Number of runs on all ranks.")
    total_ns: int = column("ns", "Sum of the durations on all ranks.")
    least_ns: int = column("ns", "Smallest total duration on any rank.")
    median_ns: float = column("ns", "Median of the total durations per rank.")
    greatest_ns: int = column("ns", "Largest total duration on any rank.")
    greatest_rank: int = column("number", "Rank with the largest total duration.", "on rank")


class JobKernel(_SharedWork):
    title = "kernels of all ranks: total time, then minimum, median and maximum of the totals per rank, ms"


class JobOperator(_SharedWork):
    title = "operators of all ranks: total CPU time, then minimum, median and maximum of the totals per rank, ms"


@dataclass(frozen=True)
class NamedTotals:
    names: tuple[str, ...]
    count: IntColumn
    total_ns: IntColumn


@dataclass(frozen=True)
class RankContribution:
    """Summary of one rank for the tables of its job. The summary takes only a few KB, even for a large trace."""

    numbers: RankNumbers
    kernels: NamedTotals
    operators: NamedTotals
    facts: JobTrace
    communications: RankCommunications
    damage: tuple[str, ...]

    __repr__ = brief


def rank_contribution(trace: Trace, annotation: str | None = None) -> RankContribution:
    """Return the data of one rank; its rank number is set later. `annotation` selects the iterations by name."""
    trace = with_unattached(trace)
    uses, steps, host = device_use(trace), iterations(trace, annotation), host_ops(trace)
    own = communications(trace)
    communicating = sum(use.communication_ns for use in uses) if uses else int((own.end - own.start).sum())
    names, inverse = np.unique(trace.gpu.name, return_inverse=True)
    busy: int | None = sum(use.busy_ns for use in uses)
    exposed: int | None = sum(use.exposed_communication_ns for use in uses) if uses else communicating
    idle: int | None = sum(use.window_ns - use.busy_ns for use in uses)
    compute = sum(use.compute_ns for use in uses)
    if not trace.times_recorded:
        busy = exposed = idle = None
        compute = int(trace.gpu.dur[trace.is_kernel & ~trace.is_comm].sum())
    steps_ns = float(np.mean([step.latency_ns for step in steps])) if steps else None
    rank = -1 if trace.rank is None else trace.rank
    times = busy, compute, communicating, exposed, idle, sum(op.total_ns for op in host)
    numbers = RankNumbers(rank, trace.file, trace.span.length, len(steps), steps_ns, len(trace.gpu), *times)
    inverse, kernel_names = inverse.reshape(-1), tuple(trace.names[name] for name in names.tolist())
    count, total = np.bincount(inverse, minlength=len(names)), sums(inverse, trace.gpu.dur, len(names))
    calls, host_ns = (np.array([getattr(op, name) for op in host], np.int64) for name in ("count", "total_ns"))
    kernels, operators = (
        NamedTotals(kernel_names, count, total),
        NamedTotals(tuple(op.op for op in host), calls, host_ns),
    )
    return RankContribution(numbers, kernels, operators, job_trace(trace), own, tuple(trace.damage))


@dataclass(frozen=True)
class JobSummary:
    """Summary over all ranks of a job. Kernels and operators are sorted by total time, longest first."""

    ranks: Table[RankNumbers]
    spread: Table[RankSpread]
    outliers: Table[RankOutlier]
    kernels: Table[JobKernel]
    operators: Table[JobOperator]
    collectives: Table[JobCollective]
    stragglers: Table[RankLateness]
    notes: tuple[str, ...]

    __repr__ = brief

    @property
    def tables(self) -> dict[str, Table[Row]]:
        names = ("ranks", "spread", "outliers", "kernels", "operators", "collectives", "stragglers")
        return {name: getattr(self, name) for name in names}

    @property
    def late(self) -> list[int]:
        late = [row for row in self.stragglers if row.straggler]
        return [row.rank for row in sorted(late, key=lambda row: (-row.behind_ns, row.rank))]


# Maps names of quantities to fields of `RankNumbers`.
QUANTITIES = {
    **{"length": "span_ns", "mean step": "step_ns", "computing": "compute_ns", "communicating": "communication_ns"},
    **{"exposed communication": "exposed_ns", "idle": "idle_ns", "host": "host_ns"},
}


def job_summary(ranks: Mapping[int, RankContribution]) -> JobSummary:
    """Combine the ranks of a job. Raises UsageError if the ranks do not belong to one job."""
    notes = check_job([part.facts for part in ranks.values()])
    notes += cut_off_note(group for part in ranks.values() for group in part.communications.groups)
    collectives, late = job_collectives({rank: part.communications for rank, part in ranks.items()})
    numbers = [RankNumbers(**(vars(part.numbers) | {"rank": rank})) for rank, part in sorted(ranks.items())]
    spread, outliers = [], []
    for quantity, field in QUANTITIES.items():
        known = [(row.rank, getattr(row, field)) for row in numbers if getattr(row, field) is not None]
        values = np.array([value for _, value in known], np.float64)
        if not values.any():
            continue
        low, high = int(np.argmin(values)), int(np.argmax(values))
        least, p5, middle, p95, most = (float(value) for value in np.quantile(values, [0, 0.05, 0.5, 0.95, 1]))
        spread.append(RankSpread(quantity, least, p5, middle, p95, most, known[low][0], known[high][0]))
        far = np.flatnonzero(stand_out(values, _LEAST_SHARE * middle)).tolist()
        outliers += [RankOutlier(known[at][0], quantity, float(values[at]), middle) for at in far]
    outliers.sort(key=lambda row: (row.rank, row.quantity))
    kernels = _shared(JobKernel, {rank: part.kernels for rank, part in ranks.items()})
    operators = _shared(JobOperator, {rank: part.operators for rank, part in ranks.items()})
    tables = Table(RankNumbers, numbers), Table(RankSpread, spread), Table(RankOutlier, outliers)
    return JobSummary(*tables, Table(JobKernel, kernels), Table(JobOperator, operators), collectives, late, notes)


def _shared(kind: type[_SharedWork], ranks: Mapping[int, NamedTotals]) -> list[Any]:
    table = StringTable()
    codes = [table.codes([kernel_label(name) for name in totals.names]) for totals in ranks.values()]
    if not any(map(len, codes)):
        return []
    of_rank = np.repeat(list(ranks), [len(code) for code in codes])
    rows, inverse = distinct_rows(np.concatenate(codes).astype(np.int64), of_rank)  # Several names may share a label.
    count, total = (
        sums(inverse, np.concatenate([getattr(totals, key) for totals in ranks.values()]), len(rows))
        for key in ("count", "total_ns")
    )
    shared = []
    for (code,), members in grouped(rows[:, 0]):
        own = total[members]
        times = int(own.sum()), int(own.min()), float(np.median(own)), int(own.max())
        longest = int(rows[members[int(np.argmax(own))], 1])
        shared.append(kind(table.values[code], len(members), int(count[members].sum()), *times, longest))
    return sorted(shared, key=lambda row: (-row.total_ns, row.name))


def ranks_to_show(summary: JobSummary, most: int) -> list[int]:
    """Return at most `most` ranks, ascending: the lowest rank, one of median length, stragglers and outliers."""
    numbers = sorted(summary.ranks, key=lambda row: (row.span_ns, row.rank))
    first: Sequence[int] = [summary.ranks[0].rank, numbers[len(numbers) // 2].rank]
    outliers = sorted(summary.outliers, key=lambda row: (-row.value / (row.median or 1), row.rank))
    more = [*summary.late, *(row.rank for row in outliers), *(row.rank for row in summary.stragglers), numbers[0].rank]
    return sorted([*dict.fromkeys([*first, *more])][:most])


class RankRows(PlainRows):
    """A table with rows of several ranks, as plain values. The first column is `rank`."""

    def add(self, rank: int, rows: Iterable[Mapping[str, Any]]) -> None:
        self.rows += [{"rank": rank, **row} for row in rows]

    def __repr__(self) -> str:
        ranks = len({row["rank"] for row in self.rows})
        return shortened(f"<{len(self):,} rows of {ranks:,} ranks: {', '.join(self._frame())}>", 79)


class JobCollective(Row):
    """One collective that all ranks of its group recorded, with times on a common clock."""

    collective: str = column("name", "Name of the collective.")
    group: str = column("name", "Process group; empty if it contains all ranks.")
    position: int = column("number", "Position among the collectives of the process group.")
    ranks: int = column("count", "Number of ranks in the process group.")
    bytes: int = column("bytes", "Message size on the lowest-numbered rank; −1 if unknown.", "bytes")
    start_ns: int = inferred("ns", "Wall-clock time at which the last rank arrived.")
    duration_ns: int = inferred("ns", "Time from the arrival of the last rank to the end on this rank.", "took")
    last_rank: int = inferred("number", "Rank that arrived last.", "last rank")
    wait_ns: int = inferred("ns", "Sum of the waiting times of all other ranks.", "waited")
    longest_wait_ns: int = inferred("ns", "Longest waiting time of any rank.")

    title = "collectives: last rank, and total waiting time of the other ranks, ms"
    shown = ("collective", "group", "last_rank", "wait_ns", "duration_ns", "bytes")


class RankLateness(Row):
    """How often one rank arrived last at collectives, and how long other ranks waited for it."""

    rank: int = column("number", "Rank number.")
    collectives: int = column("count", "Number of collectives of the rank that have two or more ranks.")
    last: int = inferred("count", "Number of collectives at which the rank arrived last.")
    caused_ns: int = inferred("ns", "Total time that other ranks waited for this rank.", "caused")
    waited_ns: int = inferred("ns", "Time that this rank waited for ranks that arrived last.", "waited")
    clock_offset_ns: int = inferred("ns", "Lead of this rank's clock over the lowest rank's clock; 0 if unknown.")
    behind_ns: int = inferred("ns", "Total lag behind the median rank; negative if early.", "behind")
    straggler: bool = inferred("yes/no", "True if chance cannot explain the lateness of the rank.")

    title = "ranks: how often each rank was last at a collective, and how long other ranks waited for it, ms"
    shown = ("rank", "collectives", "last", "caused_ns", "waited_ns", "behind_ns", "straggler")


def stand_out(values: npt.NDArray[Any], least: float) -> npt.NDArray[np.bool_]:
    """Return a mask of values that exceed the median by six standard deviations and by at least `least`.

    The standard deviation is estimated from the median absolute deviation, assuming a normal distribution.
    """
    if len(values) < _FEWEST:
        return np.zeros(len(values), np.bool_)
    above = values - np.median(values)
    far: npt.NDArray[np.bool_] = above > max(6 * 1.4826 * float(np.median(np.abs(above))), least)
    return far


def job_collectives(
    ranks: Mapping[int, RankCommunications], offsets: Mapping[int, int] | None = None
) -> tuple[Table[JobCollective], Table[RankLateness]]:
    """Return the collectives by time, and the ranks by the wait that they caused; both are empty if times are missing.

    Args:
        offsets: maps a rank to the time (ns) by which its clock is ahead. By default, they are derived from the
            collectives."""
    if not all(rank.times_recorded for rank in ranks.values()):
        return Table(JobCollective), Table(RankLateness)
    matched, _, _ = match_collectives(ranks)
    joint = synchronizing(matched)
    if offsets is None:
        offsets = {offset.rank: offset.offset_ns for offset in clock_offsets(joint)}
    rows = []
    behind = behind_median(joint, offsets)
    for group in joint:
        come, wait, last = arrivals(group, offsets)
        for index in range(len(group.kind)):
            who = int(last[index])
            kind, position, size = (int(column[index]) for column in (group.kind, group.position, group.bytes))
            times = int(come[index, who]), int(group.end[index, who] - group.start[index, who])
            waits = group.ranks[who], int(wait[index].sum()), int(wait[index].max())
            name = kind_name(kind).lower()
            rows.append(JobCollective(name, group.group, position, len(group.ranks), size, *times, *waits))
    rows.sort(key=lambda row: (row.start_ns, row.group, row.position))
    begin, end = (min((row.start_ns for row in rows), default=0), max((row.start_ns for row in rows), default=0))
    measured = np.array(list(behind.items()), np.int64).reshape(-1, 2)
    late_ranks = set(measured[stand_out(measured[:, 1], (end - begin) * _LEAST_LAG), 0].tolist())
    late = []
    for row in stragglers(joint, offsets):
        lateness = row.caused_ns, row.waited_ns, offsets.get(row.rank, 0), behind[row.rank]
        late.append(RankLateness(row.rank, row.collectives, row.last, *lateness, row.rank in late_ranks))
    late.sort(key=lambda row: (-row.caused_ns, row.rank))
    return Table(JobCollective, rows), Table(RankLateness, late)


_GUESSES = {
    "to_pandas": '`kernels.to_pandas()` and so on, `["kernels"]` by name',
    "to_csv": '`kernels.to_pandas().to_csv("x.csv")`',
    **{"iterations": "`iteration_list`", "ops": "`operators`"},
}


class JobAnalysis(dict[str, RankRows]):
    """Analysis tables over all ranks, by name: `tables.kernels` or `tables["kernels"]`."""

    def add(self, rank: int, tables: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
        for name, rows in tables.items():
            self.setdefault(name, RankRows()).add(rank, rows)

    def __getattr__(self, name: str) -> RankRows:
        if name in self:
            return self[name]
        raise no_attribute("JobAnalysis", name, dir(self), _GUESSES)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return listed(self)
