"""A job of many ranks in tables that do not grow with its traces: what each rank contributes, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..jobs.job_ranks import JobTrace, check_job, job_trace
from ..jobs.rank_communications import RankCommunications, communications
from ..schemas.comm_types import cut_off_note
from ..trace.brief import brief
from ..trace.columns import IntColumn, StringTable, distinct_rows, grouped
from ..trace.intervals import sums
from ..trace.kernel_names import kernel_label
from ..trace.trace import Trace
from ..trace.unattached import with_unattached
from .breakdown import device_use, iterations
from .job_tables import JobCollective, RankLateness, job_collectives, stand_out
from .summary import host_ops
from .table import Row, Table, column

_LEAST_SHARE = 0.02
"""Of the median: what an outlier is above it at the least."""


class RankNumbers(Row):
    """A rank in numbers. Without recorded start times busy, exposed and idle time are null, the others sums of
    durations."""

    rank: int = column("number", "Rank.")
    file: str = column("name", "File of the trace.")
    span_ns: int = column("ns", "From its first event to the end of its last.", "length")
    steps: int = column("count", "Iterations.")
    step_ns: float | None = column("ns", "Mean duration of an iteration.", "mean step")
    device_events: int = column("count", "Kernels, copies and memsets.")
    busy_ns: int | None = column("ns", "Time with at least one event, over all devices.")
    compute_ns: int = column("ns", "Time with a compute kernel.", "computing")
    communication_ns: int = column(
        "ns", "Time of collectives and messages; without a GPU, on the CPU.", "communicating"
    )
    exposed_ns: int | None = column("ns", "Communication time without a compute kernel.")
    idle_ns: int | None = column("ns", "Idle time of the devices.")
    host_ns: int = column("ns", "CPU time of the topmost operators.")

    title = "ranks, ms"
    shown = ("rank", "span_ns", "step_ns", "compute_ns", "communication_ns", "exposed_ns", "idle_ns", "host_ns")


class RankSpread(Row):
    """A quantity over all ranks, null if no rank has it."""

    quantity: str = column("text", "Quantity.")
    least: float | None = column("ns", "Least value.")
    p5: float | None = column("ns", "5th percentile.", "5%")
    median: float | None = column("ns", "Median.")
    p95: float | None = column("ns", "95th percentile.", "95%")
    greatest: float | None = column("ns", "Greatest value.")
    lowest_rank: int | None = column("number", "First rank with the least value.", "least on")
    highest_rank: int | None = column("number", "First rank with the greatest value.", "greatest on")

    title = "quantities that differ over the ranks, ms"


class RankOutlier(Row):
    """A rank with a quantity far above the others' (`stand_out`)."""

    rank: int = column("number", "Rank.")
    quantity: str = column("text", "Quantity.")
    value: float = column("ns", "Value of this rank.")
    median: float = column("ns", "Median of all ranks.")

    title = "ranks that stand out, ms"


class _SharedWork(Row):
    """All events of one name on all ranks."""

    name: str = column("name", "Name.")
    ranks: int = column("count", "Ranks that have it.")
    count: int = column("count", "Number of events on all ranks.")
    total_ns: int = column("ns", "Sum of their durations.")
    least_ns: int = column("ns", "Least total of a rank.")
    median_ns: float = column("ns", "Median total of a rank.")
    greatest_ns: int = column("ns", "Greatest total of a rank.")
    greatest_rank: int = column("number", "Rank with the greatest total.", "on rank")


class JobKernel(_SharedWork):
    """A kernel of all ranks together, by name."""

    title = "kernels of all ranks: total, and the least, median and greatest total of a rank, ms"


class JobOperator(_SharedWork):
    """A topmost operator of all ranks together, by name."""

    title = "operators of all ranks: total host time, and the least, median and greatest total of a rank, ms"


@dataclass(frozen=True)
class NamedTotals:
    """Totals of a rank by name: int64 columns of one length."""

    names: tuple[str, ...]
    count: IntColumn
    total_ns: IntColumn


@dataclass(frozen=True)
class RankContribution:
    """What a rank contributes to the tables of its job; a few KB, however long its trace is."""

    numbers: RankNumbers
    kernels: NamedTotals
    operators: NamedTotals
    facts: JobTrace
    communications: RankCommunications
    damage: tuple[str, ...]

    __repr__ = brief


def rank_contribution(trace: Trace, annotation: str | None = None) -> RankContribution:
    """What a rank contributes; its number is set where the ranks of the job are known.

    Args:
        annotation: part of the name of the annotations that are the iterations.
    """
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
    numbers = RankNumbers(
        -1 if trace.rank is None else trace.rank, trace.file, trace.span.length, len(steps),
        float(np.mean([step.latency_ns for step in steps])) if steps else None, len(trace.gpu),
        busy, compute, communicating, exposed, idle, sum(op.total_ns for op in host),
    )  # fmt: skip
    kernels = NamedTotals(
        tuple(trace.names[name] for name in names.tolist()), np.bincount(inverse.reshape(-1), minlength=len(names)),
        sums(inverse.reshape(-1), trace.gpu.dur, len(names)),
    )  # fmt: skip
    operators = NamedTotals(
        tuple(op.op for op in host), np.array([op.count for op in host], np.int64),
        np.array([op.total_ns for op in host], np.int64),
    )  # fmt: skip
    return RankContribution(numbers, kernels, operators, job_trace(trace), own, tuple(trace.damage))


@dataclass(frozen=True)
class JobSummary:
    """The ranks of a job together.

    Attributes:
        ranks: each in numbers. spread: how these differ. outliers: which stand out.
        kernels, operators: what all ranks do, the longest in total first.
        collectives, stragglers: see `job_collectives`.
        notes: what could not be checked, in sentences.
    """

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
        """All of them by name."""
        names = ("ranks", "spread", "outliers", "kernels", "operators", "collectives", "stragglers")
        return {name: getattr(self, name) for name in names}

    @property
    def late(self) -> list[int]:
        """The stragglers, the latest first."""
        found = [row for row in self.stragglers if row.straggler]
        return [row.rank for row in sorted(found, key=lambda row: (-row.behind_ns, row.rank))]


QUANTITIES = {
    "length": "span_ns", "mean step": "step_ns", "computing": "compute_ns", "communicating": "communication_ns",
    "exposed communication": "exposed_ns", "idle": "idle_ns", "host": "host_ns",
}  # fmt: skip
"""Of a rank, by what they are called: fields of `RankNumbers`."""


def job_summary(ranks: Mapping[int, RankContribution]) -> JobSummary:
    """What the ranks of a job come to.

    Raises:
        UsageError: they are not of one job.
    """
    notes = check_job([found.facts for found in ranks.values()])
    notes += cut_off_note(group for found in ranks.values() for group in found.communications.groups)
    collectives, late = job_collectives({rank: found.communications for rank, found in ranks.items()})
    numbers = [RankNumbers(**(vars(found.numbers) | {"rank": rank})) for rank, found in sorted(ranks.items())]
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
    return JobSummary(
        Table(RankNumbers, numbers), Table(RankSpread, spread), Table(RankOutlier, outliers),
        Table(JobKernel, _shared(JobKernel, {rank: found.kernels for rank, found in ranks.items()})),
        Table(JobOperator, _shared(JobOperator, {rank: found.operators for rank, found in ranks.items()})),
        collectives, late, notes,
    )  # fmt: skip


def _shared(kind: type[_SharedWork], ranks: Mapping[int, NamedTotals]) -> list[Any]:
    """The totals of all ranks by name, the longest first."""
    table = StringTable()
    codes = [table.codes([kernel_label(name) for name in found.names]) for found in ranks.values()]
    if not any(map(len, codes)):
        return []
    of_rank = np.repeat(list(ranks), [len(code) for code in codes])
    rows, inverse = distinct_rows(np.concatenate(codes).astype(np.int64), of_rank)  # names may share a label
    count, total = (
        sums(inverse, np.concatenate([getattr(found, key) for found in ranks.values()]), len(rows))
        for key in ("count", "total_ns")
    )
    found = []
    for (code,), at in grouped(rows[:, 0]):
        own = total[at]
        longest = at[int(np.argmax(own))]
        found.append(kind(
            table.values[code], len(at), int(count[at].sum()), int(own.sum()), int(own.min()), float(np.median(own)),
            int(own.max()), int(rows[longest, 1]),
        ))  # fmt: skip
    return sorted(found, key=lambda row: (-row.total_ns, row.name))


def ranks_to_show(summary: JobSummary, most: int) -> list[int]:
    """Which ranks to look at closely: stragglers, outliers, the one in the middle, the lowest; ascending.

    Args:
        most: number of ranks.
    """
    numbers = sorted(summary.ranks, key=lambda row: (row.span_ns, row.rank))
    first: Sequence[int] = [summary.ranks[0].rank, numbers[len(numbers) // 2].rank]
    far = sorted(summary.outliers, key=lambda row: (-row.value / (row.median or 1), row.rank))
    more = [*summary.late, *(row.rank for row in far), *(row.rank for row in summary.stragglers), numbers[0].rank]
    return sorted([*dict.fromkeys([*first, *more])][:most])
