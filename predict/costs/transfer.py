"""Collectives and copies by size: a constant below a size, a bandwidth above another, a sigmoid between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log2

import msgspec
import numpy as np

from .task import Estimate, Task

_ALL_REDUCE = ("allreduce", "all_reduce")
_SCATTERED = ("alltoall", "all_to_all", "allgather", "all_gather", "reducescatter", "reduce_scatter")


def wire_factor(collective: str, ranks: int | None) -> float:
    """What of a buffer passes the slowest link: 2(n−1)/n for all-reduce, (n−1)/n for all-to-all, all-gather and
    reduce-scatter, else 1."""
    name = collective.lower().replace("-", "_")
    if not ranks or ranks < 2:
        return 1.0
    if any(part in name for part in _ALL_REDUCE):
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if any(part in name for part in _SCATTERED) else 1.0


class SizeCurve(msgspec.Struct, frozen=True):
    """Time of a transfer by its size.

    Attributes:
        overhead_ns: time below 2**low_log2 bytes.
        max_gb_s: bandwidth above 2**high_log2 bytes, 10⁹ bytes per second.
        low_log2, high_log2: where the two hold.
        height, slope, centre, base: between, log10 of the bandwidth in GB/s is
            height / (1 + exp(−slope (log2 bytes − centre))) + base.
    """

    overhead_ns: float
    max_gb_s: float
    low_log2: float
    high_log2: float
    height: float = 0.0
    slope: float = 1.0
    centre: float = 0.0
    base: float = 0.0

    def nanoseconds(self, size: float, factor: float = 1.0) -> float:
        """ns of a transfer of so many bytes, of which `factor` (see `wire_factor`) counts."""
        x = log2(size) if size > 0 else -inf
        if x < self.low_log2:
            return self.overhead_ns
        if x > self.high_log2:
            return size / self.max_gb_s * factor
        at = -self.slope * (x - self.centre)
        bandwidth: float = 10 ** (self.height / (1 + exp(min(at, 700.0))) + self.base)
        return size / bandwidth * factor


def fit_curve(sizes: Sequence[float], ns: Sequence[float]) -> SizeCurve:
    """Fit a curve: the overhead is the least time, and the bandwidths follow a logistic function of the size.

    The slope and centre are chosen from a grid, height and base by least squares of log bandwidth, with the weight of
    every size the same. Beyond the measured sizes the values at the ends apply.

    Args:
        sizes: bytes, positive. ns: times, positive.
    """
    x, t = np.log2(np.asarray(sizes, np.float64)), np.asarray(ns, np.float64)
    y = np.log10(2**x / t)
    overhead, low, high = float(np.median(t[x <= x.min() + 1])), float(x.min()), float(x.max())
    if high - low < 1:
        return SizeCurve(overhead, float(10 ** np.median(y)), low, low)
    best: tuple[float, SizeCurve] | None = None
    for slope in (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0):
        for centre in np.linspace(low, high, 33).tolist():
            bend = 1 / (1 + np.exp(-slope * (x - centre)))
            design = np.stack([bend, np.ones_like(bend)], axis=1)
            (height, base), *_ = np.linalg.lstsq(design, y, rcond=None)
            if height < 0:
                height, base = 0.0, float(y.mean())
            wrong = float(np.abs(design @ np.array([height, base]) - y).sum())
            if best is None or wrong < best[0] - 1e-12:
                top = float(height / (1 + exp(-slope * (high - centre))) + base)
                curve = SizeCurve(overhead, 10**top, low, high, float(height), slope, float(centre), float(base))
                best = wrong, curve
    assert best is not None
    return best[1]


@dataclass(frozen=True)
class Transfers:
    """Curves by device and what is transferred (collective, or the direction of a copy)."""

    curves: dict[str, SizeCurve]

    @staticmethod
    def key(task: Task) -> str | None:
        """Which curve serves a task, None for anything but a transfer of known size."""
        if task.bytes is None or task.bytes <= 0:
            return None
        if task.collective:
            return f"{task.device}|{task.collective}"
        return f"{task.device}|{task.kernel}" if task.category.startswith("gpu_mem") else None

    @staticmethod
    def fit(tasks: Sequence[Task], ns: Sequence[float]) -> Transfers:
        """Curves of the transfers among measured tasks."""
        found: dict[str, list[tuple[float, float]]] = {}
        for task, time in zip(tasks, ns, strict=True):
            key = Transfers.key(task)
            if key is not None and task.bytes:
                factor = wire_factor(task.collective, task.group_size)
                found.setdefault(key, []).append((task.bytes, max(time, 1.0) / factor))
        return Transfers({
            key: fit_curve([size for size, _ in of], [time for _, time in of]) for key, of in sorted(found.items())
        })  # fmt: skip

    def predict(self, task: Task) -> Estimate | None:
        """ns of a copy or collective whose curve is known; None for others."""
        key = self.key(task)
        curve = self.curves.get(key) if key is not None else None
        if curve is None or task.bytes is None:
            return None
        ns = curve.nanoseconds(task.bytes, wire_factor(task.collective, task.group_size))
        return Estimate(ns, "curve of transfers by size")
