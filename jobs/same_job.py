"""Whether traces are of the ranks of one job: what they record of it decides, not that they were given together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..trace.errors import UsageError
from ..trace.trace import Trace
from .job_ranks import RankFacts, foreign_traces

__all__ = ["JobTrace", "check_job", "job_trace"]

_REMEDY = "give only the traces of one job, one of each rank"


@dataclass(frozen=True)
class JobTrace:
    """What is kept of a trace to compare it with those of other ranks.

    Attributes:
        facts: of its job. rank: None where it is not recorded.
        content: a digest of its times; the same for the same recording.
    """

    facts: RankFacts
    rank: int | None
    content: bytes


def job_trace(trace: Trace) -> JobTrace:
    """What `check_job` wants of a trace; it holds nothing of the trace itself."""
    begin = trace.base_time_ns + trace.span.start if trace.span.length else None
    return JobTrace(RankFacts(trace.file, trace.distributed_info, begin), trace.rank, trace.digest)


def check_job(traces: Sequence[JobTrace]) -> tuple[str, ...]:
    """Refuse traces that cannot be of the ranks of one job.

    Returns:
        what could not be checked, in sentences.

    Raises:
        UsageError: the same recording or the same rank twice; jobs of other sizes or backends, or recorded over an
            hour apart; more files than the job has ranks.

    Example:
        >>> check_job([job_trace(trace)])
        ()
    """
    if len(traces) < 2:
        return ()
    _refuse_repeated(traces)
    foreign, conflicts = foreign_traces(dict(enumerate(one.facts for one in traces)))
    problem = next(iter([*foreign.values(), *conflicts]), None)
    if problem is not None:
        raise UsageError(f"not the ranks of one job: {problem}; {_REMEDY}")
    size = traces[0].facts.info.get("world_size")
    if type(size) is int and 0 < size < len(traces):
        raise UsageError(f"{len(traces)} traces of a job of {size} rank{'s' if size > 1 else ''}; {_REMEDY}")
    unknown = [one.facts.file for one in traces if one.rank is None]
    if not unknown:
        return ()
    return (
        f"{len(unknown)} of {len(traces)} traces do not record their rank (distributedInfo), first {unknown[0]}: "
        "whether all are of one job is not known",
    )


def _refuse_repeated(traces: Sequence[JobTrace]) -> None:
    by_rank: dict[int, str] = {}
    by_content: dict[bytes, JobTrace] = {}
    for one in traces:
        name = one.facts.file
        if one.rank is not None and one.rank in by_rank:
            raise UsageError(f"{by_rank[one.rank]} and {name} are both of rank {one.rank}; {_REMEDY}")
        same = by_content.setdefault(one.content, one)
        if same is not one and None in (one.rank, same.rank):
            raise UsageError(f"{same.facts.file} and {name} are the same recording; {_REMEDY}")
        if one.rank is not None:
            by_rank[one.rank] = name
