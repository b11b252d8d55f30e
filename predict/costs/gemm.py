"""Matrix products by interpolation in a table of measured sizes."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import Literal

from ...trace.errors import UsageError
from .task import Estimate, Task

Size = tuple[int, int, int, int]
"""Batch, M, N, K of a product (M, K) × (K, N)."""
Weights = Literal["right", "legacy"]
_End = tuple[float, float]
"""An extent and its share of the weight."""
_PRODUCTS = {"mm": 0, "addmm": 1, "bmm": 0, "baddbmm": 1}


class GemmTable:
    """Times of measured sizes; between them achieved throughput and bandwidth are interpolated.

    A size that is measured keeps its time. Else every extent that the table does not have is bracketed by its
    neighbours there, and the 2^d corners give multiply-adds and bytes per time; the time is the longer of the two that
    these rates mean. Outside the table nothing is extrapolated: the rates of its nearest corner apply.

    `weights="legacy"` does what the code of the reference model does (Lin et al. 2022, the earliest notebook in their
    repository). The lower neighbour gets (x − low)/(high − low), so that the farther corner counts more, and a corner's
    weight is the mean over the extents, not the product. Above the table the device's peaks are at infinity and get
    half the weight; below it, rates are 0 at 0.

    Args:
        times: size to time, in any unit of time; `nanoseconds` answers in the same.
        weights: "right" is multilinear.
        element: bytes of an element.
        device: that the times are of; "" serves any.
        peaks: multiply-adds and bytes per unit of time that the device can do; "legacy" needs them above the table.
    """

    def __init__(
        self,
        times: Mapping[Size, float],
        *,
        weights: Weights = "right",
        element: int = 4,
        device: str = "",
        peaks: tuple[float, float] | None = None,
    ) -> None:
        if weights not in ("right", "legacy"):
            raise UsageError(f"weights {weights!r}: right or legacy")
        self.times = dict(times)
        self.weights, self.element, self.device, self.peaks = weights, element, device, peaks
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
        """Time of a product; None if a corner around it is not in the table, or peaks are needed but not known."""
        if size in self.times or not self.times:
            return self.times.get(size)
        ends_of = _legacy_ends if self.weights == "legacy" else _ends
        ends = [ends_of(axis, x) for axis, x in zip(self._axes, size, strict=True)]
        throughput = bandwidth = 0.0
        for corner in itertools.product(*ends):
            rates = self._rates(tuple(extent for extent, _ in corner))
            if rates is None:
                return None
            weight = self._weight(corner, ends)
            throughput += weight * rates[0]
            bandwidth += weight * rates[1]
        if throughput <= 0 or bandwidth <= 0:
            return None
        return max(_multiply_adds(size) / throughput, self._bytes(size) / bandwidth)

    def _rates(self, corner: tuple[float, ...]) -> tuple[float, float] | None:
        """Multiply-adds and bytes per time; nothing at 0, else the peaks at infinity."""
        if 0 in corner:
            return 0.0, 0.0
        if inf in corner:
            return self.peaks
        size = int(corner[0]), int(corner[1]), int(corner[2]), int(corner[3])
        time = self.times.get(size)
        return (_multiply_adds(size) / time, self._bytes(size) / time) if time else None

    def _weight(self, corner: Sequence[_End], ends: Sequence[Sequence[_End]]) -> float:
        """A corner's weight; the weights of all corners add up to 1 except, with "legacy", at infinity."""
        if self.weights == "right":
            return prod(share for _, share in corner)
        if any(extent == inf for extent, _ in corner):  # the reference takes all extents for the higher ones there
            corner = [of[-1] for of in ends]
        shares = [share for (_, share), of in zip(corner, ends, strict=True) if len(of) > 1]
        return sum(shares) / len(shares) / (1 << (len(shares) - 1)) if shares else 1.0

    def _bytes(self, size: Size) -> int:
        b, m, n, k = size
        return self.element * b * (m * n + n * k + m * k)


def _multiply_adds(size: Size) -> int:
    b, m, n, k = size
    return b * m * n * k


def _ends(axis: Sequence[int], x: int) -> list[_End]:
    """Neighbours of an extent in the table and their shares; one where it is in the table or outside."""
    after = bisect_right(axis, x)
    if after == 0 or after == len(axis) or axis[after - 1] == x:
        return [(axis[max(after - 1, 0)], 1.0)]
    low, high = axis[after - 1], axis[after]
    above = (x - low) / (high - low)
    return [(low, 1 - above), (high, above)]


def _legacy_ends(axis: Sequence[int], x: int) -> list[_End]:
    """The same by the reference's rules."""
    if x in axis:
        return [(x, 1.0)]
    if x > axis[-1]:
        return [(axis[-1], 0.5), (inf, 0.5)]
    after = bisect_right(axis, x)
    low, high = axis[after - 1] if after else 0, axis[after]
    above = (x - low) / (high - low)
    return [(low, above), (high, 1 - above)]


def gemm_size(task: Task) -> Size | None:
    """Batch, M, N, K of a task that is a matrix product, from the shapes of its inputs; None for others."""
    first = _PRODUCTS.get(task.op.removeprefix("aten::"))
    if first is None or len(task.inputs) < first + 2:
        return None
    left, right = task.inputs[first].shape, task.inputs[first + 1].shape
    if len(left) != len(right) or len(left) not in (2, 3) or left[-1] != right[-2]:
        return None
    return (left[0] if len(left) == 3 else 1), left[-2], right[-1], left[-1]
