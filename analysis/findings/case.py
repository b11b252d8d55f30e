"""The input of detectors: traces and cached results. Some detectors search each rank, and report the worst one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ...timeline.constants import Constants, fit_constants
from ...timeline.critical import CriticalPath, critical_path
from ...timeline.graph_building import build_graph
from ...timeline.graph_replay import Replay, replay
from ...timeline.replay_graph import ReplayGraph
from ...timeline.replay_summary import BaseError
from ...timeline.untraced import untraced_step_of, without_recording_replays
from ...trace.columns import IntColumn, distinct
from ...trace.printable import shell_word
from ...trace.step_annotations import UntracedStep
from ...trace.trace import Trace
from ...trace.unattached import with_unattached
from ..devices import Device
from ..kernel_peaks import event_bounds
from ..summary import Analysis, analyze
from .finding import Candidate, Evidence, Intervention, Where
from .proofs import sql, where_of

_Made = TypeVar("_Made")


class Case:
    """One trace, or all ranks of a job.

    Attributes:
        traces: one trace per rank, extended by the GPU events that were not attached to any row (`trace.unattached`).

    Example:
        >>> case = Case([trace])
        >>> case.makespan_ns == case.base.makespan_ns, len(case.bounds) == len(case.analysis.trace.gpu)
        (True, True)
    """

    def __init__(
        self, traces: Sequence[Trace], *, analyses: Sequence[Analysis] | None = None, devices: Sequence[Device] = (),
        shells: Sequence[str] = (), replays: Sequence[Replay] = (),
    ) -> None:  # fmt: skip
        """Args:
        analyses: existing analyses of the traces.
        devices: user-defined devices; they override the device table.
        shells: for each trace, its name and options as quoted on a command line, such as "--steps 2-4 'my trace.json'";
            the file name by default.
        replays: existing replays of the unchanged traces.
        """
        self.traces, self._devices = tuple(map(with_unattached, traces)), tuple(devices)
        self._made: dict[str, Any] = {}
        self._shells = tuple(shells) or tuple(shell_word(trace.file) for trace in traces)
        self._replays = tuple(replays) if len(replays) == len(traces) else ()
        if analyses is not None:
            self.analyses = tuple(analyses)
            self.traces = tuple(analysis.trace for analysis in analyses)

    def shell(self, number: int = 0) -> str:
        """Return the command-line arguments that select one trace."""
        return self._shells[number]

    @property
    def shells(self) -> str:
        """Return the command-line arguments that select all traces."""
        return " ".join(self._shells)

    @property
    def trace(self) -> Trace:
        """Trace of the first rank."""
        return self.traces[0]

    @cached_property
    def analyses(self) -> tuple[Analysis, ...]:
        """One analysis per rank."""
        return tuple(analyze(trace, self._devices) for trace in self.traces)

    @property
    def analysis(self) -> Analysis:
        """Analysis of the first rank."""
        return self.analyses[0]

    @cached_property
    def graphs(self) -> tuple[ReplayGraph, ...]:
        """One replay graph per rank. Raises ConvertError if no row of a trace has a time."""
        return tuple(of.graph for of in self._replays) or tuple(map(build_graph, self.traces))

    @cached_property
    def graph(self) -> ReplayGraph:
        """Replay graph of all ranks. Communications connect the ranks; rows are numbered consecutively across ranks."""
        if len(self.graphs) > 1:
            from ...timeline.rank_coupling import join_ranks

            return join_ranks(list(self.graphs))
        # `self.trace` has the same rows, and its derived data is already cached.
        return self.graphs[0].of_trace(self.trace)

    @cached_property
    def constants(self) -> tuple[Constants, ...]:
        """Replay constants per rank."""
        return tuple(fit_constants(graph) for graph in self.graphs)

    @cached_property
    def base(self) -> Replay:
        """Replay without changes."""
        if len(self._replays) == 1:
            return replace(self._replays[0], graph=self.graph)
        return replay(self.graph, self.constants)

    @cached_property
    def base_error(self) -> BaseError:
        """Relative difference between the base replay and the recording."""
        return BaseError.of(self.base)

    @cached_property
    def unrecorded(self) -> tuple[Replay, ...]:
        """Replays with the usual, minimum and maximum profiler overhead removed; () if the overhead is small."""
        return without_recording_replays(self.base, self.constants)

    @property
    def timelines(self) -> tuple[Replay, ...]:
        """Replays for estimating gains. The first replay assumes the usual profiler overhead."""
        return self.unrecorded or (self.base,)

    @property
    def untraced_ns(self) -> int:
        """Makespan without the profiler overhead. Gains are reported as shares of this time."""
        return self.timelines[0].makespan_ns

    @cached_property
    def untraced_step(self) -> UntracedStep | None:
        """Step time without the profiler; None unless `etplus record` measured it."""
        return untraced_step_of(self.traces)

    @cached_property
    def path(self) -> CriticalPath:
        """Critical path of the base replay."""
        return critical_path(self.base)

    @property
    def makespan_ns(self) -> int:
        """Makespan of the base replay."""
        return self.base.makespan_ns

    @cached_property
    def all_bounds(self) -> tuple[IntColumn, ...]:
        """The `event_bounds` of every rank: the minimum ns of every event in `analyses[rank].trace.gpu`."""
        return tuple(event_bounds(of.trace, of.work, of.devices) for of in self.analyses)

    @property
    def bounds(self) -> IntColumn:
        """Minimum time at the device peaks for every event in `analysis.trace.gpu`, int64 ns; −1 if unknown."""
        return self.all_bounds[0]

    def once(self, make: Callable[[Case], _Made], name: str) -> _Made:
        """Return `make(self)`. The result is cached under `name`, so all detectors share it."""
        if name not in self._made:
            self._made[name] = make(self)
        made: _Made = self._made[name]
        return made

    @cached_property
    def row_bounds(self) -> IntColumn:
        """Minimum time at the device peaks for every row of `graph`, int64 ns; −1 if unknown."""
        parts = []
        for trace, analysis, bounds in zip(self.traces, self.analyses, self.all_bounds, strict=True):
            part, source = np.full(len(trace), -1, np.int64), analysis.trace.gpu.source
            part[source[source >= 0]] = bounds[source >= 0]
            parts.append(part)
        return np.concatenate(parts)


@dataclass(frozen=True)
class RankOfCase:
    case: Case
    number: int  # position of this rank's trace in the case

    @property
    def trace(self) -> Trace:
        return self.case.traces[self.number]

    @property
    def rank(self) -> int | None:
        """Rank number in a job; None for a single trace."""
        return self.case.graph.ranks[self.number] if len(self.case.traces) > 1 else None

    @property
    def file(self) -> str:
        """Command-line arguments that select the rank's trace."""
        return self.case.shell(self.number)

    def evidence(self, text: str, value: float | None, unit: str, query: str = "") -> Evidence:
        """Return evidence with a command: `etplus sql` with the query or, if there is no query, `etplus analyze`."""
        command = sql(self.file, query) if query else f"etplus analyze {self.file}"
        return Evidence(text, value, unit, command)

    def change(self, what_if: str, rows: IntColumn | None = None) -> Intervention:
        """Return a change that applies only to this rank. `rows` are rows of the rank's trace."""
        text = what_if if self.rank is None else f"rank={self.rank} {what_if}"
        if rows is None:
            return Intervention(text)
        return Intervention(text, distinct(rows[rows >= 0]) + int(self.case.graph.first_row[self.number]))

    def candidate(self, found: Candidate, changes: Sequence[Intervention], low: float, high: float) -> Candidate:
        """Return a candidate with changes that affect only this rank. `changes` contains rows of the rank's trace."""
        own = tuple(self.change(change.what_if, change.rows) for change in changes)
        return replace(found, interventions=own, low=low, high=high)

    def where(self, rows: IntColumn, **known: Any) -> Where:
        return where_of(self.trace, rows, rank=self.rank, **known)


def worst_rank(case: Case, find: Callable[[RankOfCase], Iterable[Candidate]]) -> Iterator[Candidate]:
    """Yield the findings of the most affected rank, with the changes of all affected ranks.

    Findings of different ranks are merged if they have the same id. If a detector yields several findings for one rank,
    the findings must also have the same source line and operator. Titles contain the number of affected ranks.
    """
    found = [list(find(RankOfCase(case, number))) for number in range(len(case.traces))]
    if not any(found):
        return
    worst = int(np.argmax([sum(candidate.cost_ns or 0 for candidate in of) if of else -1 for of in found]))
    if len(found) == 1:
        yield from found[worst]
        return
    rank, by_place = case.graph.ranks[worst], any(len(of) > 1 for of in found)
    for candidate in found[worst]:
        alike = [[one for one in of if _same(one, candidate, by_place)] for of in found]
        title = f"{candidate.title} (rank {rank}; found on {sum(map(bool, alike))} of {len(found)} ranks)"
        changes = tuple(change for of in alike for one in of for change in one.interventions)
        where = replace(candidate.where, rank=rank)
        yield replace(candidate, title=title, where=where, interventions=changes)


def _same(one: Candidate, other: Candidate, by_place: bool) -> bool:
    place = (one.where.source, one.where.operator) == (other.where.source, other.where.operator)
    return one.id == other.id and (place or not by_place)


class OfWorstRank:
    """Base class of detectors that search each rank and report the most affected one."""

    def find(self, case: Case) -> Iterator[Candidate]:
        return worst_rank(case, self._of_rank)

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        raise NotImplementedError
