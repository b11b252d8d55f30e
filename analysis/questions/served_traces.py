"""Traces loaded by the MCP server, with cached results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

from ...jobs.job_ranks import check_job, job_trace
from ...trace.errors import UsageError
from ...trace.selection import part_of
from ...trace.trace import Trace
from ...trace.unattached import with_unattached
from ..findings.case import Case
from ..findings.find import Findings, find_findings
from ..findings.trace_changes import TraceChanges, changes
from ..job_summary import JobSummary, job_summary, rank_contribution
from ..sql import SqlTables
from ..summary import Analysis

_T = TypeVar("_T")
_KEPT = 12  # Maximum number of cached results for selected steps. Results for whole traces always stay cached.


class ServedTraces:
    """Loaded traces by number, with results that are computed on demand and cached.

    The number is the rank if `job` is true, and otherwise the position, starting at 0. If `job` is true, the traces are
    the ranks of one job, and the tools answer for all ranks together."""

    def __init__(self, traces: Mapping[int, Trace], *, job: bool = False) -> None:
        if not traces:
            raise UsageError("no trace was given")
        self.traces = {number: with_unattached(trace) for number, trace in traces.items()}
        self.job = job and len(self.traces) > 1
        self.sql: SqlTables | None = None
        self._made: dict[tuple[object, ...], object] = {}

    @staticmethod
    def of(traces: Sequence[Trace]) -> ServedTraces:
        """Return the traces as one job if they have different ranks and belong together; otherwise, keep them apart."""
        ranks = {trace.rank: trace for trace in traces if trace.rank is not None}
        if len(traces) > 1 and len(ranks) == len(traces):
            try:
                check_job([job_trace(trace) for trace in traces])
            except UsageError:
                return ServedTraces(dict(enumerate(traces)))
            return ServedTraces(dict(sorted(ranks.items())), job=True)
        return ServedTraces(dict(enumerate(traces)))

    def chosen(self, number: int | None) -> list[int]:
        """Return `[number]`. By default, return all ranks of a job; without a job, return only the first trace.
        Unknown numbers raise UsageError."""
        if number is not None and number not in self.traces:
            raise UsageError(f"no trace {number}; there are {', '.join(map(str, [*self.traces][:8]))}")
        if number is not None:
            return [number]
        return list(self.traces) if self.job else [next(iter(self.traces))]

    def analysis(self, number: int, steps: str | None = None) -> Analysis:
        return self._case([number], steps).analysis

    def case(self, number: int | None, steps: str | None = None) -> Case:
        """Return a case with one trace or all ranks for the replay, restricted to `steps` if they are set."""
        return self._case(self.chosen(number), steps)

    def findings(self, number: int | None) -> Findings:
        numbers = self.chosen(number)
        return self._kept(("findings", *numbers, None), lambda: find_findings(self._case(numbers, None)))

    @cached_property
    def summary(self) -> JobSummary:
        return job_summary({number: rank_contribution(trace) for number, trace in self.traces.items()})

    @cached_property
    def difference(self) -> TraceChanges | None:
        if self.job or len(self.traces) < 2:
            return None
        a, b = [*self.traces][:2]
        return changes(self.analysis(a), self.analysis(b))

    def _case(self, numbers: Sequence[int], steps: str | None) -> Case:
        def made() -> Case:
            analyses = [self.analysis(number, steps) for number in numbers] if len(numbers) > 1 else None
            parts = [self.traces[number] for number in numbers]
            return Case([part_of(part, steps=steps) if steps else part for part in parts], analyses=analyses)

        return self._kept(("case", *numbers, steps), made)

    def _kept(self, key: tuple[object, ...], make: Callable[[], _T]) -> _T:
        if key not in self._made:
            made = make()
            of_steps = [known for known in self._made if known[-1] is not None]
            for old in of_steps[: max(len(of_steps) - _KEPT, 0)]:
                del self._made[old]
            self._made[key] = made
        return self._made[key]  # type: ignore[return-value]
