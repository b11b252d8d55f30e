"""Compare two traces or jobs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, overload

from ..trace.outer import outer
from ..trace.trace import Trace
from .job import Job, load

if TYPE_CHECKING:
    from ..analysis.findings.trace_changes import TraceChanges
    from ..analysis.job_diff import JobDifference


@overload
def diff(
    a: Job | list[Any] | tuple[Any, ...], b: Any, *, by_shape: bool = False, total: bool = False
) -> JobDifference: ...
@overload
def diff(a: Any, b: Any, *, by_shape: bool = False, total: bool = False) -> TraceChanges: ...
def diff(a: Any, b: Any, *, by_shape: bool = False, total: bool = False) -> TraceChanges | JobDifference:
    """Compare two traces by source line, operator, kernel and call path, and explain what became slower.

    If `a` or `b` is a job, compare two jobs, both rank by rank and all ranks together.

    Args:
        a, b: traces, jobs, or sources that `load` reads.
        by_shape: match operators by name and shapes instead of only by name.
        total: compare whole traces instead of average iterations.

    Raises:
        UsageError: the two jobs have no rank in common.

    Example:
        >>> found = diff(trace, trace.step(1), total=True)
        >>> found.ops[0].change_ns < 0, found.tables["ops"].to_pandas()["change_ns"].sum() < 0
        (True, np.True_)
        >>> [row.change_ns for row in diff([trace], [trace]).ranks]
        [0.0]
    """
    sides = [side if isinstance(side, (Job, Trace)) else load(side) for side in (a, b)]
    if any(isinstance(side, Job) for side in sides):
        first, second = (side if isinstance(side, Job) else Job([side]) for side in sides)
        return compare_jobs(first, second, by_shape=by_shape, total=total)
    analyses = map(outer("analysis.summary").analyze, sides)
    found: TraceChanges = outer("analysis.findings.trace_changes").changes(*analyses, by_shape=by_shape, total=total)
    return found


def compare_jobs(
    a: Job, b: Job, *, by_shape: bool = False, total: bool = False, annotation: str | None = None
) -> JobDifference:
    """Compare two jobs. `Job.on` selects the machines that summarize the ranks of each job. Annotations that contain
    `annotation` in their name mark iterations."""
    comparison = outer("analysis.job_diff")
    contribution = partial(comparison.compared_rank, annotation=annotation, by_shape=by_shape)
    first, second = (dict(job.map(contribution)) for job in (a, b))
    found: JobDifference = comparison.job_difference(first, second, names=(a.name, b.name), total=total)
    return found
