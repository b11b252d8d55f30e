"""Findings about steps that take longer than others, with the causes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...timeline.iterations import MarkedIterations, Outlier, find_iterations, find_outliers
from ...trace.columns import IntColumn, distinct, inverse_positions, median, scatter
from ...trace.errors import ConvertError
from ...trace.intervals import sums
from ...trace.kinds import CPU, GPU
from ...trace.printable import shortened
from ...trace.text_tables import in_ms
from ...trace.trace import Trace
from ..breakdown import shape_labels
from .case import Case
from .finding import CONFIRMED, INFERRED, Candidate, Evidence, Intervention
from .proofs import quoted, sql, where_of
from .rank_times import work_keys

EXPLAINS = 0.5  # minimum share of a step's extra time that the causes must explain
_FEWEST = 3  # minimum number of steps in a phase for outlier detection
_MOST_LOOKED_AT = 100  # maximum number of names to examine as possible causes
_MOST_NAMED = 3  # maximum number of causes per step to report and replay
_MOST_STEPS = 3  # maximum number of steps to report, longest first
_NAME = 60
Flags = npt.NDArray[np.bool_]


class _LongerInStep(NamedTuple):
    key: tuple[str, bool]
    rows: IntColumn
    own_ns: float
    usual_ns: float
    times: int
    usual_times: float
    shapes: bool
    several: bool = False

    @property
    def ns(self) -> float:
        return self.own_ns - self.usual_ns


class OutlierStep:
    id = "outlier-step"

    def find(self, case: Case) -> Iterator[Candidate]:
        for k, trace in enumerate(case.traces):
            try:
                steps = find_iterations(trace)
            except ConvertError:
                continue
            durations = case.graph.durations[int(case.graph.first_row[k]) : int(case.graph.first_row[k + 1])]
            rows = _RowsOfSteps.of(trace, steps, durations)
            found = [outlier for outlier in _longer(steps) if outlier[1] > 0]
            for outlier, longer, like in sorted(found, key=lambda of: -of[1])[:_MOST_STEPS]:
                yield self._candidate(case, k, rows, outlier, longer, like)

    def _candidate(
        self, case: Case, k: int, rows: _RowsOfSteps, outlier: Outlier, longer: float, like: IntColumn
    ) -> Candidate:
        trace = rows.trace
        causes = _causes(rows.extras(outlier.iteration, like), longer)
        mark = rows.steps.mark[outlier.iteration : outlier.iteration + 1]
        own = np.concatenate([cause.rows for cause in causes]) if causes else mark
        usual = outlier.measured_ns - longer
        first = " (the first recorded step, which may include warm-up)" if outlier.iteration == 0 else ""
        file = case.shell(k)
        evidence = [
            Evidence(
                f"{outlier.label}, which {outlier.reason}; {len(like):,} other steps take {in_ms(usual)} (median)",
                outlier.measured_ns, "ns", f"etplus replay {file} --cross-validate {outlier.iteration}",
            ),
            *(_proof(trace, cause, outlier.iteration, file) for cause in causes),
        ]  # fmt: skip
        why = f": {_why(causes)}" if causes else "; no operator or kernel explains the difference"
        rank = case.graph.ranks[k] if len(case.traces) > 1 else None
        within = f"{'' if rank is None else f'rank={rank} '}step={outlier.iteration}"
        return Candidate(
            self.id,
            f"{outlier.label} takes {in_ms(longer)} longer than other steps{first}{why}",
            where_of(trace, own, rank=rank, step=outlier.label),
            tuple(evidence),
            round(longer),
            CONFIRMED if causes else INFERRED,
            _advice(causes, outlier.iteration),
            f"`etplus replay {file} --cross-validate {outlier.iteration}` no longer reports this step",
            tuple(_interventions(causes, within, int(case.graph.first_row[k]))),
            low=0.7,
            high=1.3,
        )


def _proof(trace: Trace, cause: _LongerInStep, step: int, shell: str) -> Evidence:
    table, name = ("device" if cause.key[1] else "calls"), trace.name_at(int(trace.nodes.name[cause.rows[0]]))
    text = (
        f"{_what(cause)} in this step: {cause.times:,} times, {in_ms(cause.own_ns)} without waiting; in other steps: "
        f"{in_ms(cause.usual_ns)}, {cause.usual_times:,.0f} times{_SHAPES if cause.shapes else ''}"
    )
    query = f"select sum(duration_ns) from {table} where name = {quoted(name)} and step = {step}"
    return Evidence(text, int(trace.nodes.dur[cause.rows].sum()), "ns", sql(shell, query))


def _longer(steps: MarkedIterations) -> Iterator[tuple[Outlier, float, IntColumn]]:
    trace, count = steps.trace, len(steps)
    times = steps.times(trace.nodes.ts, trace.nodes.end)
    phases = np.array(steps.phases) if steps.phases else np.zeros(count, np.int8)
    for phase in distinct(phases).tolist():
        members = np.flatnonzero(phases == phase)
        if len(members) < _FEWEST:
            continue
        place = scatter(count + 1, members, np.arange(len(members)))
        labels = [steps.label(k) for k in members.tolist()]
        apart = find_outliers(trace, place[steps.of_row], times[members], labels)
        like = np.delete(members, [outlier.iteration for outlier in apart])
        usual = median(times[like])
        for outlier in apart:
            step = int(members[outlier.iteration])
            yield Outlier(step, outlier.label, outlier.measured_ns, outlier.reason), times[step] - usual, like


@dataclass(frozen=True)
class _RowsOfSteps:
    trace: Trace
    steps: MarkedIterations
    row: IntColumn
    step: IntColumn
    key: IntColumn
    names: list[tuple[str, bool]]
    ns: IntColumn
    shapes: IntColumn

    @staticmethod
    def of(trace: Trace, steps: MarkedIterations, ns: IntColumn) -> _RowsOfSteps:
        row = np.flatnonzero((steps.of_row >= 0) & np.isin(trace.nodes.kind, (CPU, GPU)))
        known: dict[tuple[str, bool], int] = {}
        key = work_keys(trace, row, known)
        shapes = scatter(len(trace), trace.calls.source, shape_labels(trace)[1][trace.calls.signature])
        return _RowsOfSteps(trace, steps, row, steps.of_row[row], key, list(known), ns, shapes)

    def extras(self, step: int, like: IntColumn) -> list[_LongerInStep]:
        wide = len(self.names)
        mine = self.step == step
        own = sums(self.key[mine], self.ns[self.row[mine]], wide)
        times = np.bincount(self.key[mine], minlength=wide)
        place = inverse_positions(len(self.steps), like)
        other = place[self.step] >= 0
        cell = self.key[other] * len(like) + place[self.step[other]]
        usual = np.median(sums(cell, self.ns[self.row[other]], wide * len(like)).reshape(wide, -1), axis=1)
        usual_times = np.median(np.bincount(cell, minlength=wide * len(like)).reshape(wide, -1), axis=1)
        order = np.argsort(usual - own, kind="stable")
        return [
            _LongerInStep(
                self.names[key], self.row[mine & (self.key == key)], float(own[key]), float(usual[key]),
                int(times[key]), float(usual_times[key]), self._other_shapes(key, mine, other),
            )
            for key in order[own[order] > usual[order]][:_MOST_LOOKED_AT].tolist()
        ]  # fmt: skip

    def _other_shapes(self, key: int, mine: Flags, other: Flags) -> bool:
        shapes = [set(self.shapes[self.row[which & (self.key == key)]].tolist()) for which in (mine, other)]
        return not self.names[key][1] and bool(shapes[0] - shapes[1])


_SHAPES = "; some of its shapes occur only in this step"


def _causes(extras: list[_LongerInStep], longer: float) -> list[_LongerInStep]:
    for most in (_MOST_NAMED, _MOST_LOOKED_AT):
        for device in (True, False):
            found, ns = list[_LongerInStep](), 0.0
            for extra in extras:
                if extra.key[1] == device and len(found) < most and ns < (1 - EXPLAINS / 2) * longer:
                    found.append(extra)
                    ns += extra.ns
            if ns >= EXPLAINS * longer:
                return found if most == _MOST_NAMED else [_together(found)]
    return []


def _together(extras: list[_LongerInStep]) -> _LongerInStep:
    device = extras[0].key[1]
    sizes = (sum(getattr(extra, name) for extra in extras) for name in ("own_ns", "usual_ns", "times", "usual_times"))
    own_ns, usual_ns, times, usual_times = sizes
    key = (f"{len(extras)} {'kernels' if device else 'operators'} together", device)
    rows = np.concatenate([extra.rows for extra in extras])
    return _LongerInStep(
        key, rows, own_ns, usual_ns, times, usual_times, any(extra.shapes for extra in extras), several=True
    )


def _interventions(causes: list[_LongerInStep], within: str, first_row: int) -> Iterator[Intervention]:
    for cause in causes:
        target = "kernel" if cause.key[1] else "cpu"
        if not cause.several:
            name = cause.key[0].replace("#", "").rstrip()
            exact = "=" if name == cause.key[0] else "~"
            target = f"kernel:name{exact}{name}" if cause.key[1] else f"op:{exact if exact == '~' else ''}{name}"
        yield Intervention(f"{within} {target}*{cause.usual_ns / cause.own_ns:.4g}", cause.rows + first_row)


def _why(causes: list[_LongerInStep]) -> str:
    cause = causes[0]
    if cause.times > cause.usual_times:
        how = f"is called {cause.times:,} times instead of {cause.usual_times:,.0f}"
    elif cause.shapes:
        how = "has shapes that occur only in this step"
    else:
        how = f"takes {cause.own_ns / max(cause.usual_ns, 1):,.1f} times as long"
    others = f" and {len(causes) - 1} more" if len(causes) > 1 else ""
    return f"{_what(cause)}{others} {how}, {in_ms(sum(of.ns for of in causes))} more"


def _what(cause: _LongerInStep) -> str:
    return f"{'kernel ' if cause.key[1] and not cause.several else ''}{shortened(cause.key[0], _NAME)}"


def _advice(causes: list[_LongerInStep], step: int) -> str:
    if causes and any(cause.shapes for cause in causes):
        return (
            "pad or bucket the inputs to a few sizes: each new size may cause compilation, tuning or allocation "
            "(torch.compile(dynamic=True), cudnn.benchmark=False)"
        )
    if step and causes and causes[0].times > causes[0].usual_times:
        return "find out what this line does only in this step: evaluation, logging, a checkpoint, a longer batch"
    if step == 0:
        return "record after some warm-up steps: torch.profiler.schedule(wait=1, warmup=2, active=3)"
    if causes and not causes[0].key[1]:
        return "find out what this line does only in this step: logging, a checkpoint, garbage collection, a new file"
    return "check the device's clocks at this time, and look for other programs on the device"
