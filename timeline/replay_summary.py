"""Summarize a replay and its error relative to the measurement."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..trace.brief import brief
from ..trace.columns import IntColumn, distinct, grouped, matching
from ..trace.conventions import ANNOTATION_SCOPE, KERNEL_CATEGORIES
from ..trace.errors import UsageError
from ..trace.intervals import union
from ..trace.kinds import GPU
from ..trace.text_tables import in_short
from ..trace.trace import Trace
from .constants import Constants, of_ranks
from .critical import CriticalPath, critical_path, resource_bounds
from .graph_replay import Replay, Unexplained, relative_error
from .iterations import StepTimes, step_times

if TYPE_CHECKING:
    from .replay_ranks import AnswerRange
    from .untraced import UntracedAnswer

# If the unchanged replay's error exceeds `UNRELIABLE`, what-ifs are unreliable. Above `REFUSED`, they need --force.
UNRELIABLE, REFUSED = 0.01, 0.05


@dataclass(frozen=True)
class BaseError:
    """Errors of a replay without changes, relative to the measured makespan. Only GPU events set `kernel_starts`."""

    makespan: float
    kernel_starts: float | None
    unexplained: float = 0.0

    __repr__ = brief

    @staticmethod
    def of(unchanged: Replay) -> BaseError:
        if not unchanged.graph.times_recorded:
            return BaseError(0.0, None)
        starts, measured = start_error_ns(unchanged), unchanged.measured_ns
        relative = None if starts is None else starts / measured if measured else 0.0
        return BaseError(unchanged.error, relative, unchanged.unexplained.share)

    @property
    def largest(self) -> float:
        return max(abs(self.makespan), self.kernel_starts or 0.0)

    @property
    def reliable(self) -> bool:
        return self.largest <= UNRELIABLE

    def to_dict(self) -> dict[str, Any]:
        return {
            "makespan": self.makespan,
            "kernel_starts": self.kernel_starts,
            "reliable": self.reliable,
            "unexplained": self.unexplained,
        }

    def to_lines(self) -> list[str]:
        starts = "" if self.kernel_starts is None else f", kernel starts {self.kernel_starts:.2%}"
        unexplained = f", unexplained waits {self.unexplained:.2%}" if self.unexplained else ""
        lines = [f"base error makespan {self.makespan:+.2%}{starts}{unexplained}"]
        if not self.reliable:
            lines.append(f"           UNRELIABLE: the replay without changes is off by over {UNRELIABLE:.0%}")
        return lines

    @property
    def doubt(self) -> str:
        """A sentence about the replay's error and the resulting doubt about predicted changes. "" if it is reliable."""
        if self.reliable:
            return ""
        starts = "" if self.kernel_starts is None else f", its kernel starts by {self.kernel_starts:.1%}"
        limit, verdict = (REFUSED, "mean nothing") if self.largest > REFUSED else (UNRELIABLE, "are unreliable")
        meaning = f"above {limit:.0%}, predicted changes {verdict}"
        return f"the replay without changes is off by {self.makespan:+.1%}{starts}; {meaning}"

    def refuse(self, files: str, *, force: bool) -> None:
        if self.largest > REFUSED and not force:
            raise UsageError(f"{files}: {self.doubt}; --force computes it anyway")


def start_error_ns(replay: Replay) -> float | None:
    graph = replay.graph
    gpu = np.flatnonzero((graph.column("kind") == GPU) & graph.timed)
    return float(np.abs(replay.start[gpu] - graph.measured[graph.start[gpu]]).mean()) if len(gpu) else None


@dataclass(frozen=True)
class LaneTime:
    name: str  # "stream 7" or "thread 1"
    busy_ns: int  # time covered by events or calls, but not by annotations
    measured_busy_ns: int

    __repr__ = brief


@dataclass(frozen=True)
class Summary:
    """The results of a replay together with the measured values. Times are in ns."""

    files: tuple[str, ...]
    rows: int
    gpu_events: int
    constants: tuple[Constants, ...]
    predicted_ns: int
    measured_ns: int
    start_error_ns: float | None
    unexplained: Unexplained
    lanes: tuple[LaneTime, ...]
    exposed_ns: int  # time when only communication kernels ran, summed over ranks
    measured_exposed_ns: int
    base: BaseError  # error of the replay without what-ifs
    bounds: dict[str, int]
    path: CriticalPath
    what_ifs: tuple[str, ...] = ()
    before_ns: int | None = None  # makespan without what-ifs
    path_before: CriticalPath | None = None  # critical path without what-ifs
    notes: tuple[str, ...] = field(default=())
    steps: StepTimes | None = None
    span: AnswerRange | None = None  # range of the predicted makespan on another network
    untraced: UntracedAnswer | None = None  # step time without the recorder, if it was measured
    recorded: bool = True  # False if start times were not recorded; measured values are then omitted

    __repr__ = brief

    @property
    def error(self) -> float:
        return relative_error(self.predicted_ns, self.measured_ns)

    @property
    def start_error(self) -> float:
        return (self.start_error_ns or 0.0) / self.measured_ns if self.measured_ns else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return a dict that can be encoded as JSON. docs/reference/replay.md describes its keys."""
        known = self.recorded
        plain: dict[str, Any] = {
            "files": list(self.files),
            "rows": self.rows,
            "gpu_events": self.gpu_events,
            "constants": [asdict(constant) for constant in self.constants],
            "makespan_ns": {
                "predicted": self.predicted_ns,
                "measured": self.measured_ns if known else None,
                "error": self.error if known else None,
            },
            "gpu_start_error_ns": self.start_error_ns if known else None,
            "base_error": self.base.to_dict() if known else None,
            "unexplained": asdict(self.unexplained),
            "lanes": [self._lane_dict(lane) for lane in self.lanes],
            "exposed_communication_ns": {
                "predicted": self.exposed_ns,
                "measured": self.measured_exposed_ns if known else None,
            },
            "bounds_ns": self.bounds,
            "critical_path": _path_dict(self.path),
            "notes": list(self.notes),
            "steps": None if self.steps is None else self.steps.to_dict(),
            "untraced_step": None if self.untraced is None else asdict(self.untraced),
        }
        if self.path_before is not None:
            plain["what_if"] = {
                "changes": list(self.what_ifs),
                "before_ns": self.before_ns,
                "after_ns": self.predicted_ns,
                "critical_path_before": _path_dict(self.path_before),
                "range_ns": None if self.span is None else self.span.to_dict(),
            }
        return plain

    def _lane_dict(self, lane: LaneTime) -> dict[str, Any]:
        known = self.recorded
        return {
            "name": lane.name,
            "busy_ns": lane.busy_ns,
            "idle_ns": self.predicted_ns - lane.busy_ns,
            "measured_busy_ns": lane.measured_busy_ns if known else None,
            "measured_idle_ns": self.measured_ns - lane.measured_busy_ns if known else None,
        }


def summarize(
    replay: Replay,
    constants: Constants | Sequence[Constants],
    *,
    before: Replay | None = None,
    what_ifs: Sequence[str] = (),
    span: AnswerRange | None = None,
    untraced: UntracedAnswer | None = None,
) -> Summary:
    graph, recorded = replay.graph, replay.graph.times_recorded
    gpu = np.flatnonzero((graph.column("kind") == GPU) & graph.timed)
    measured_start, measured_end = (graph.of_rows(points, graph.measured) for points in (graph.start, graph.end))
    base = replay if before is None else before
    exposed, measured_exposed = (
        sum(
            exposed_ns(start[a:b], end[a:b], trace.communicates, _is_kernel(trace))
            for trace, (a, b) in zip(graph.traces, itertools.pairwise(graph.first_row.tolist()), strict=True)
        )
        for start, end in ((replay.start, replay.end), (measured_start, measured_end))
    )
    lone = graph.trace if len(graph.traces) == 1 and recorded else None
    return Summary(
        files=tuple(trace.file for trace in graph.traces),
        rows=int(np.count_nonzero(graph.timed)),
        gpu_events=len(gpu),
        constants=of_ranks(constants),
        predicted_ns=replay.makespan_ns,
        measured_ns=replay.measured_ns,
        start_error_ns=start_error_ns(replay),
        unexplained=replay.unexplained,
        lanes=tuple(_lanes(replay, measured_start, measured_end)),
        exposed_ns=exposed,
        measured_exposed_ns=measured_exposed,
        base=BaseError.of(base),
        bounds=resource_bounds(replay),
        path=critical_path(replay),
        what_ifs=tuple(what_ifs),
        before_ns=None if before is None else before.makespan_ns,
        path_before=None if before is None else critical_path(before),
        notes=(*graph.notes, *_unexplained_notes(base)),
        steps=None if lone is None else step_times(lone, replay.start, replay.end),
        span=span,
        untraced=untraced,
        recorded=recorded,
    )


def _unexplained_notes(base: Replay) -> list[str]:
    unexplained = base.unexplained
    if not unexplained.count:
        return []
    waits = f"{unexplained.count:,} wait{'s' if unexplained.count > 1 else ''}"
    return [
        f"nothing in the trace explains {waits} ({in_short(unexplained.ns)}, {unexplained.share:.1%} of the makespan): "
        "kept as measured"
    ]


def _lanes(replay: Replay, start: IntColumn, end: IntColumn) -> Iterator[LaneTime]:
    graph = replay.graph
    for k, trace in enumerate(graph.traces):
        a = int(graph.first_row[k])
        prefix = f"rank {graph.ranks[k]} " if len(graph.traces) > 1 else ""
        several = len(distinct(trace.nodes.device[trace.nodes.kind == GPU])) > 1
        timed = np.flatnonzero(trace.nodes.timed & (trace.nodes.kind == GPU))
        for _, places in grouped(trace.nodes.stream_lane[timed]):
            rows, first = timed[places] + a, timed[places[0]]
            name = f"device {trace.nodes.device[first]} " if several else ""
            yield _lane(f"{prefix}{name}stream {trace.nodes.stream[first]}", replay, start, end, rows)
        host = np.flatnonzero(trace.nodes.timed & (trace.nodes.kind != GPU) & (trace.nodes.scope != ANNOTATION_SCOPE))
        for (thread,), places in grouped(trace.nodes.thread[host]):
            rows = host[places] + a
            name = f"thread {thread}" if thread >= 0 else f"other thread {-1 - thread}"
            yield _lane(prefix + name, replay, start, end, rows)


def _lane(name: str, replay: Replay, start: IntColumn, end: IntColumn, rows: IntColumn) -> LaneTime:
    return LaneTime(name, union(replay.start[rows], replay.end[rows]).length, union(start[rows], end[rows]).length)


def _is_kernel(trace: Trace) -> npt.NDArray[np.bool_]:
    kernel = matching(trace.nodes.category, trace.categories, KERNEL_CATEGORIES.__contains__)
    is_kernel: npt.NDArray[np.bool_] = kernel & trace.nodes.timed & (trace.nodes.kind == GPU)
    return is_kernel


def exposed_ns(
    start: IntColumn, end: IntColumn, communicates: npt.NDArray[np.bool_], kernel: npt.NDArray[np.bool_]
) -> int:
    both, compute = communicates | kernel, kernel & ~communicates
    return union(start[both], end[both]).length - union(start[compute], end[compute]).length


def _path_dict(path: CriticalPath) -> dict[str, Any]:
    return {
        "by_kind_ns": path.by_kind,
        "by_op_ns": [{"kind": kind, "name": name, "ns": ns} for (kind, name), ns in path.by_op.items()],
    }
