"""GPU events as a prediction lists them: equal ones in one row, with interval and bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..trace.brief import brief
from ..trace.columns import IntColumn
from ..trace.trace import Trace
from .costs.task import Task
from .pricing import Pricing

__all__ = ["KernelRow", "kernel_rows"]


@dataclass(frozen=True)
class KernelRow:
    """Equal GPU events: of one kernel, operator, shapes, types and device.

    Attributes:
        name: of the kernel or copy. op: of the operator, "" where none is known. shapes: of its inputs, as text.
        count: events. measured_ns, predicted_ns, low_ns, high_ns, bound_ns: sums over them; between low and high with a
            probability of 80%; not below the bound, which is None where neither FLOPs nor bytes are known.
        how: the model that priced them. level: how like the events fitted on they are (`familiarity.LEVELS`).
    """

    name: str
    op: str
    shapes: str
    device: str
    count: int
    measured_ns: int
    predicted_ns: int
    low_ns: int
    high_ns: int
    bound_ns: int | None
    how: str
    level: str

    __repr__ = brief


def kernel_rows(pricing: Pricing, trace: Trace, of_row: IntColumn) -> tuple[KernelRow, ...]:
    """Rows of the GPU events of some iterations, and of those without a row in the trace; the longest predicted first.

    Args:
        pricing: of the trace. of_row: int64, the iteration of each row, −1 for rows that do not count.
    """
    groups: dict[Task, list[int]] = {}
    for event, (task, row) in enumerate(zip(pricing.tasks, trace.gpu.source.tolist(), strict=True)):
        if row < 0 or of_row[row] >= 0:
            groups.setdefault(task, []).append(event)
    rows = []
    for task, of in groups.items():
        price, count = pricing.price(of[0]), len(of)
        predicted, low, high = (round(one * count) for one in (price.ns, price.low, price.high))
        bound = None if price.bound is None else math.floor(price.bound * count)
        rows.append(KernelRow(
            task.kernel, task.op, task.shapes, task.device, count, int(trace.gpu.dur[of].sum()), predicted, low, high,
            bound, price.how, price.level,
        ))  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-row.predicted_ns, row.name, row.op, row.shapes)))
