"""The summary of a made job against the tables of its ranks, and ranks that stand out, by hand."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from etplus import Job
from etplus.analysis.job_summary import JobSummary, rank_contribution, ranks_to_show, stand_out
from etplus.trace.kernel_names import kernel_label
from etplus.trace.trace import Trace
from made_jobs import Job as MadeJob
from made_jobs import ddp, slow_rank
from support import linked

LATE = 2


@pytest.fixture(scope="module")
def ranks() -> list[Trace]:
    return MadeJob(ddp, 5, of=slow_rank(LATE)).traces(waits=True)


@pytest.fixture
def summary(ranks: list[Trace]) -> JobSummary:
    return Job(ranks).summary()


def test_a_trace_that_does_not_say_its_rank_has_minus_one() -> None:
    assert rank_contribution(linked("demo/train_cpu")).numbers.rank == -1


def test_the_spread_of_a_quantity_and_who_stands_out(summary: JobSummary) -> None:
    computing = [row.compute_ns for row in summary.ranks]
    (row,) = [row for row in summary.spread if row.quantity == "computing"]
    assert [row.least, row.p5, row.median, row.p95, row.greatest] == np.quantile(
        computing, [0, 0.05, 0.5, 0.95, 1]
    ).tolist()
    assert (row.lowest_rank, row.highest_rank) == (0, LATE) and row.greatest == 2 * row.median
    (far,) = [row for row in summary.outliers if row.quantity == "computing"]
    assert (far.rank, far.value, far.median) == (LATE, row.greatest, row.median)


def test_the_summary_adds_up_kernels_of_all_ranks(ranks: list[Trace], summary: JobSummary) -> None:
    for row in summary.kernels:
        own = [[e.duration_ns for e in trace.device_events if kernel_label(e.name) == row.name] for trace in ranks]
        totals = [sum(durations) for durations in own]
        assert (row.ranks, row.count, row.total_ns) == (5, sum(map(len, own)), sum(totals))
        assert (row.least_ns, row.median_ns, row.greatest_ns) == (min(totals), np.median(totals), max(totals))
        assert totals[row.greatest_rank] == max(totals)
    assert [row.total_ns for row in summary.kernels] == sorted((row.total_ns for row in summary.kernels), reverse=True)
    assert summary.operators and all(row.ranks == 5 for row in summary.operators)


def test_the_late_rank_is_last_and_all_others_wait(summary: JobSummary) -> None:
    late = {row.rank: row for row in summary.stragglers}
    assert summary.late == [LATE] and [rank for rank, row in late.items() if row.straggler] == [LATE]
    slow = [row for row in summary.collectives if row.last_rank == LATE]
    assert len(slow) == late[LATE].last >= 6 and late[LATE].collectives == len(summary.collectives)
    assert late[LATE].caused_ns == sum(row.wait_ns for row in slow) > 0
    assert sum(row.waited_ns for row in late.values()) == sum(row.wait_ns for row in summary.collectives)
    for row in summary.collectives:
        assert (row.ranks, row.collective) == (5, "all_reduce") and row.bytes > 0
        assert row.wait_ns / 4 <= row.longest_wait_ns <= row.wait_ns
    assert [row.start_ns for row in summary.collectives] == sorted(row.start_ns for row in summary.collectives)


@pytest.mark.parametrize(
    ("values", "least", "far"),
    [
        ([10, 10, 99], 0, []),  # too few ranks
        ([10, 11, 9, 10, 19], 0, [4]),  # beyond 6 × 1.4826 × 1
        ([10, 11, 9, 10, 18], 0, []),
        ([10, 11, 9, 29], 0, [3]),  # as few ranks as may be
        ([10, 11, 9, 10, 19], 9, []),  # at least as much as asked
        ([10, 11, 9, 10, -90], 0, []),  # less is no problem
    ],
)
def test_values_far_above_the_others_stand_out(values: list[float], least: float, far: list[int]) -> None:
    assert np.flatnonzero(stand_out(np.array(values), least)).tolist() == far


def test_the_ranks_to_show_are_the_first_the_middle_and_those_that_stand_out() -> None:
    rows = [SimpleNamespace(rank=rank, span_ns=span) for rank, span in enumerate((50, 10, 20, 30, 40, 60))]
    far = ((1, 30, 10), (2, 50, 25), (3, 1, 0))
    outliers = [SimpleNamespace(rank=rank, value=value, median=median) for rank, value, median in far]
    made = cast("JobSummary", SimpleNamespace(ranks=rows, outliers=outliers, late=[5], stragglers=[rows[2]]))
    shown = [ranks_to_show(made, most) for most in range(1, 7)]
    assert shown == [[0], [0, 4], [0, 4, 5], [0, 1, 4, 5], [0, 1, 2, 4, 5], [0, 1, 2, 3, 4, 5]]
