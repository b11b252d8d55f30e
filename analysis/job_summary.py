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
from .table import Column, Row, Table

_LEAST_SHARE = 0.02
"""Of the median: what an outlier is above it at the least."""


class RankNumbers(Row):
    """A rank in numbers.

    Attributes:
        span_ns: from its first event to its last one. steps: its iterations; step_ns: their mean length, None without.
        device_events: kernels, copies and memsets. busy_ns, compute_ns, exposed_ns: see `DeviceUse`, all devices
            together. communication_ns: of the kernels of collectives and messages, without a GPU of those on the host.
        idle_ns: of the devices. Without recorded start times, busy_ns, exposed_ns and idle_ns are None, and the others
            are sums of durations.
        host_ns: of the topmost operators.
    """

    rank: int
    file: str
    span_ns: int
    steps: int
    step_ns: float | None
    device_events: int
    busy_ns: int | None
    compute_ns: int
    communication_ns: int
    exposed_ns: int | None
    idle_ns: int | None
    host_ns: int

    title = "ranks, ms"
    columns = (
        Column("rank", "rank"), Column("length", "span_ns", "ms"), Column("mean step", "step_ns", "ms"),
        Column("computing", "compute_ns", "ms"), Column("communicating", "communication_ns", "ms"),
        Column("exposed", "exposed_ns", "ms"), Column("idle", "idle_ns", "ms"), Column("host", "host_ns", "ms"),
    )  # fmt: skip


class RankSpread(Row):
    """How a quantity differs over the ranks; ns, null where no rank has it.

    Attributes:
        lowest_rank, highest_rank: where it is least and greatest, the lowest of several.
    """

    quantity: str
    least: float | None
    p5: float | None
    median: float | None
    p95: float | None
    greatest: float | None
    lowest_rank: int | None
    highest_rank: int | None

    title = "what differs over the ranks, ms"
    columns = (
        Column("quantity", "quantity"), Column("least", "least", "ms"), Column("5%", "p5", "ms"),
        Column("median", "median", "ms"), Column("95%", "p95", "ms"), Column("greatest", "greatest", "ms"),
        Column("least on", "lowest_rank"), Column("greatest on", "highest_rank"),
    )  # fmt: skip


class RankOutlier(Row):
    """A rank of which a quantity is far above that of the others, see `stand_out`."""

    rank: int
    quantity: str
    value: float
    median: float

    title = "ranks that stand out, ms"
    columns = (
        Column("rank", "rank"), Column("quantity", "quantity"), Column("value", "value", "ms"),
        Column("median", "median", "ms"),
    )  # fmt: skip


class _SharedWork(Row):
    """What all ranks together do under a name.

    Attributes:
        ranks: on how many of them. count, total_ns: on all of them.
        least_ns, median_ns, greatest_ns: of the totals of these ranks. greatest_rank: where it takes longest.
    """

    name: str
    ranks: int
    count: int
    total_ns: int
    least_ns: int
    median_ns: float
    greatest_ns: int
    greatest_rank: int

    columns = (
        Column("name", "name"), Column("ranks", "ranks"), Column("count", "count"), Column("total", "total_ns", "ms"),
        Column("least", "least_ns", "ms"), Column("median", "median_ns", "ms"), Column("greatest", "greatest_ns", "ms"),
        Column("on rank", "greatest_rank"),
    )  # fmt: skip


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
