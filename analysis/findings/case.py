"""What detectors look at: traces with analysis, replay graph, base replay and critical path, each made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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
from ...trace.columns import IntColumn
from ...trace.printable import shell_word
from ...trace.step_annotations import UntracedStep
from ...trace.trace import Trace
from ...trace.unattached import with_unattached
from ..devices import Device
from ..kernel_peaks import event_bounds
from ..summary import Analysis, analyze

_Made = TypeVar("_Made")


class Case:
    """One trace, or the ranks of a job.

    Attributes:
        traces: one a rank, with the GPU events that could not be attached (`trace.unattached`); these have no row.

    Example:
        >>> case = Case([trace])
        >>> case.makespan_ns == case.base.makespan_ns, len(case.bounds) == len(case.analysis.trace.gpu)
        (True, True)
    """

    def __init__(
        self, traces: Sequence[Trace], *, analyses: Sequence[Analysis] | None = None, devices: Sequence[Device] = (),
        shells: Sequence[str] = (), replays: Sequence[Replay] = (),
    ) -> None:  # fmt: skip
        """
        Args:
            analyses: of the traces, where they are there already.
            devices: own ones, that come before those of the table.
            shells: what names each trace in a command line, options and quotes included, such as
                "--steps 2-4 'my trace.json'"; by default the name of its file.
            replays: those of the traces without changes, where they are there already.
        """
        self.traces, self._devices = tuple(map(with_unattached, traces)), tuple(devices)
        self._made: dict[str, Any] = {}
        self._shells = tuple(shells) or tuple(shell_word(trace.file) for trace in traces)
        self._replays = tuple(replays) if len(replays) == len(traces) else ()
        if analyses is not None:
            self.analyses = tuple(analyses)
            self.traces = tuple(analysis.trace for analysis in analyses)

    def shell(self, number: int = 0) -> str:
        """What names a trace in a command line, between the command and a query."""
        return self._shells[number]

    @property
    def shells(self) -> str:
        """What names all of them."""
        return " ".join(self._shells)

    @property
    def trace(self) -> Trace:
        """The trace, of several ranks the first one's."""
        return self.traces[0]

    @cached_property
    def analyses(self) -> tuple[Analysis, ...]:
        """Of each rank."""
        return tuple(analyze(trace, self._devices) for trace in self.traces)

    @property
    def analysis(self) -> Analysis:
        """Of the first rank."""
        return self.analyses[0]

    @cached_property
    def graphs(self) -> tuple[ReplayGraph, ...]:
        """Of each rank. ConvertError where no row of a trace has a time."""
        return tuple(of.graph for of in self._replays) or tuple(map(build_graph, self.traces))

    @cached_property
    def graph(self) -> ReplayGraph:
        """That of the trace, of several ranks coupled by their communications; rows count through all traces."""
        if len(self.graphs) > 1:
            from ...timeline.rank_coupling import join_ranks

            return join_ranks(list(self.graphs))
        # the same rows; what has been derived of this trace need not be derived of the graph's own again
        return self.graphs[0].of_trace(self.trace)

    @cached_property
    def constants(self) -> tuple[Constants, ...]:
        """Of each rank."""
        return tuple(fit_constants(graph) for graph in self.graphs)

    @cached_property
    def base(self) -> Replay:
        """The replay without changes."""
        if len(self._replays) == 1:
            return replace(self._replays[0], graph=self.graph)
        return replay(self.graph, self.constants)

    @cached_property
    def base_error(self) -> BaseError:
        """How far it is from what was recorded."""
        return BaseError.of(self.base)

    @cached_property
    def unrecorded(self) -> tuple[Replay, ...]:
        """Replays without recording: usual, with the least and the most costs; () if recording cost little."""
        return without_recording_replays(self.base, self.constants)

    @property
    def timelines(self) -> tuple[Replay, ...]:
        """Timelines on which gains are estimated, the usual one first."""
        return self.unrecorded or (self.base,)

    @property
    def untraced_ns(self) -> int:
        """Makespan without recording, of which gains are shares."""
        return self.timelines[0].makespan_ns

    @cached_property
    def untraced_step(self) -> UntracedStep | None:
        """Time of a step before it was recorded, if `etplus record` measured it."""
        return untraced_step_of(self.traces)

    @cached_property
    def path(self) -> CriticalPath:
        """The critical path of the replay without changes."""
        return critical_path(self.base)

    @property
    def makespan_ns(self) -> int:
        """Of the replay without changes."""
        return self.base.makespan_ns

    @cached_property
    def all_bounds(self) -> tuple[IntColumn, ...]:
        """Of each rank `event_bounds`: by event of `analyses[rank].trace.gpu`, ns."""
        return tuple(event_bounds(of.trace, of.work, of.devices) for of in self.analyses)

    @property
    def bounds(self) -> IntColumn:
        """int64 ns by GPU event of `analysis.trace.gpu`, what it takes at the device's peaks; −1 where not known."""
        return self.all_bounds[0]

    def once(self, make: Callable[[Case], _Made], name: str) -> _Made:
        """What a function makes of this case, made once: what several detectors look at.

        Args:
            name: of what it makes; the same one for the same function.
        """
        if name not in self._made:
            self._made[name] = make(self)
        made: _Made = self._made[name]
        return made

    @cached_property
    def row_bounds(self) -> IntColumn:
        """int64 ns by row of `graph`, what a GPU event takes at the device's peaks; −1 where that is not known."""
        parts = []
        for trace, analysis, bounds in zip(self.traces, self.analyses, self.all_bounds, strict=True):
            part, source = np.full(len(trace), -1, np.int64), analysis.trace.gpu.source
            part[source[source >= 0]] = bounds[source >= 0]
            parts.append(part)
        return np.concatenate(parts)
