"""A distribution of step times, not a number: percentiles over the iterations that are like each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from ..trace.brief import brief
from ..trace.columns import IntColumn
from ..trace.errors import ConvertError
from ..trace.trace import Trace
from .iterations import find_iterations
from .outliers import Outlier, warm_up


class Percentiles(msgspec.Struct, frozen=True):
    """Tenth percentile, median and ninetieth percentile: of step times, ns; in a model of their ratios to the mean."""

    p10: float
    p50: float
    p90: float

    def times(self, factor: float) -> Percentiles:
        """All three times a factor, in whole numbers.

        Example:
            >>> Percentiles(0.9, 1.0, 1.2).times(1000)
            Percentiles(p10=900, p50=1000, p90=1200)
        """
        return Percentiles(round(self.p10 * factor), round(self.p50 * factor), round(self.p90 * factor))


def percentiles(values: Sequence[float] | IntColumn) -> Percentiles:
    """Of any numbers; between neighbours in order of size."""
    return Percentiles(*(float(one) for one in np.percentile(np.asarray(values, np.float64), (10, 50, 90))))


@dataclass(frozen=True)
class StepTimes:
    """The iterations of a trace.

    Attributes:
        count: those that are like each other. warm_up: how many at the beginning are not.
        set_apart: all that are not; the others make the percentiles.
        measured, predicted: ns.
    """

    count: int
    warm_up: int
    set_apart: tuple[Outlier, ...]
    measured: Percentiles
    predicted: Percentiles

    __repr__ = brief

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "count": self.count, "warm_up": self.warm_up,
            "set_apart": [msgspec.structs.asdict(one) for one in self.set_apart],
            "measured_ns": msgspec.structs.asdict(self.measured),
            "predicted_ns": msgspec.structs.asdict(self.predicted),
        }  # fmt: skip

    def to_lines(self) -> list[str]:
        """Two or three lines of text, to be wrapped."""
        begin = f"{self.warm_up} at the beginning as a warm-up" if self.warm_up else ""
        others = len(self.set_apart) - self.warm_up
        rest = f"{others} {'others' if begin else 'of them'}" if others else ""
        lines = [f"steps      {self.count} like each other"]
        if begin or rest:
            lines[0] += f"; set apart: {' and '.join(filter(None, (begin, rest)))}"
        for name, of in (("predicted", self.predicted), ("measured", self.measured)):
            p10, p50, p90 = (f"{value / 1000:,.1f}" for value in (of.p10, of.p50, of.p90))
            lines.append(f"           {name} p10 {p10}, p50 {p50}, p90 {p90} µs")
        return lines


def step_times(trace: Trace, start: IntColumn, end: IntColumn) -> StepTimes | None:
    """Of a replayed trace; None where no annotation marks three iterations.

    Args:
        start, end: int64 ns, of each row of the trace, as predicted.
    """
    try:
        found = find_iterations(trace)
    except ConvertError:
        return None
    apart = found.outliers
    like = np.setdiff1d(np.arange(len(found)), [one.iteration for one in apart])
    measured, predicted = (found.times(*of)[like] for of in ((trace.ts, trace.finish), (start, end)))
    return StepTimes(len(like), warm_up(apart), apart, percentiles(measured).times(1), percentiles(predicted).times(1))
