"""Matrix products by interpolation in a table of measured sizes."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Literal

from ...schemas.errors import UsageError
from .task import Estimate, Task

__all__ = ["GemmTable", "gemm_size"]

Size = tuple[int, int, int, int]
"""Batch, M, N, K of a product (M, K) × (K, N)."""
Weights = Literal["right", "legacy"]
_PRODUCTS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1}


class GemmTable:
    """Times of measured sizes; between them achieved throughput and bandwidth are interpolated.

    A size that is measured keeps its time. Else every extent that the table does not have is bracketed by its
    neighbours there, and the 2^d corners give multiply-adds and bytes per time; the time is the longer of the two that
    these rates mean. Outside the table nothing is extrapolated: the rates of its nearest corner stand.

    Args:
        times: size to time, in any unit of time; `nanoseconds` answers in the same.
        weights: "right" is multilinear. "legacy" is what the reference model's code does: the lower neighbour gets
            (x − low)/(high − low), so that the farther corner counts more, and a corner's weight is the mean over
            the extents, not the product.
        element: bytes of an element.
        device: that the times are of; "" serves any.
    """

    def __init__(
        self, times: Mapping[Size, float], *, weights: Weights = "right", element: int = 4, device: str = ""
    ) -> None:
        if weights not in ("right", "legacy"):
            raise UsageError(f"weights {weights!r}: right or legacy")
        self.times = dict(times)
        self.weights, self.element, self.device = weights, element, device
        self._axes = [sorted({size[i] for size in self.times}) for i in range(4)]

    def predict(self, task: Task) -> Estimate | None:
        """ns of the main kernel of a matrix product; None for other work or where corners are not measured."""
        if self.device not in ("", task.device) or not task.main or task.kernel == "":
            return None
        size = gemm_size(task)
        ns = None if size is None else self.nanoseconds(size)
        if ns is None:
            return None
        return Estimate(ns, "measured product" if size in self.times else "products interpolated")

    def nanoseconds(self, size: Size) -> float | None:
        """Time of a product; None if a corner around it is not in the table."""
        if size in self.times:
            return self.times[size]
        brackets = [_bracket(axis, x) for axis, x in zip(self._axes, size, strict=True)]
        if any(one is None for one in brackets):
            return None
        inside = [one for one in brackets if one is not None]
        free = [i for i, (low, high) in enumerate(inside) if low != high]
        throughput = bandwidth = 0.0
        for choice in itertools.product((0, 1), repeat=len(free)):
            corner = [low for low, _ in inside]
            for i, side in zip(free, choice, strict=True):
                corner[i] = inside[i][side]
            b, m, n, k = corner
            time = self.times.get((b, m, n, k))
            if not time:
                return None
            shares = [_share(size[i], inside[i], side, self.weights) for i, side in zip(free, choice, strict=True)]
            weight = _joined(shares, self.weights)
            throughput += weight * _multiply_adds((b, m, n, k)) / time
            bandwidth += weight * self._bytes((b, m, n, k)) / time
        if throughput <= 0 or bandwidth <= 0:
            return None
        return max(_multiply_adds(size) / throughput, self._bytes(size) / bandwidth)

    def _bytes(self, size: Size) -> int:
        b, m, n, k = size
        return self.element * b * (m * n + n * k + m * k)


def _multiply_adds(size: Size) -> int:
    b, m, n, k = size
    return b * m * n * k


def _bracket(axis: list[int], x: int) -> tuple[int, int] | None:
    """Neighbours of an extent in the table, twice the same where it is there or lies outside."""
    if not axis:
        return None
    after = bisect_right(axis, x)
    if after == 0 or after == len(axis) or axis[after - 1] == x:
        nearest = axis[max(after - 1, 0)]
        return nearest, nearest
    return axis[after - 1], axis[after]


def _share(x: int, bracket: tuple[int, int], side: int, weights: Weights) -> float:
    low, high = bracket
    above = (x - low) / (high - low)
    return above if (side == 1) == (weights == "right") else 1 - above


def _joined(shares: Iterable[float], weights: Weights) -> float:
    """A corner's weight; the weights of all corners add up to 1 either way."""
    parts = list(shares)
    if weights == "legacy" and parts:
        return sum(parts) / len(parts) / (1 << (len(parts) - 1))
    weight = 1.0
    for part in parts:
        weight *= part
    return weight


def gemm_size(task: Task) -> Size | None:
    """Batch, M, N, K of a task that is a matrix product, from the shapes of its inputs; None for others."""
    first = _PRODUCTS.get(task.op.removeprefix("aten::"))
    if first is None or len(task.inputs) < first + 2:
        return None
    left, right = task.inputs[first].shape, task.inputs[first + 1].shape
    if len(left) != len(right) or len(left) not in (2, 3) or left[-1] != right[-2]:
        return None
    return (left[0] if len(left) == 3 else 1), left[-2], right[-1], left[-1]
