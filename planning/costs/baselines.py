"""Estimates to compare others with, some of which are also asked last: a mean, a roofline, ExtraTrees; and the
reference's models of kernels: matrix products by a table of sizes, batched embedding lookups by the traffic that they
cause.

The latter are those of Lin et al., "Building a Performance Model for Deep Learning Recommendation Model Training on
GPUs" (2022), with their constants: DRAM and L2 traffic in sectors of 32 bytes, and a hit rate of the L2.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import inf, prod
from typing import Literal

import numpy as np
import numpy.typing as npt

from ...analysis.devices import Device
from ...trace.errors import UsageError
from .bound import times_at_peak
from .cost_model import CostModel, FromMeasured
from .measured_tasks import MeasuredTask
from .similar import family, features
from .task import Bag, Estimate, Task

_TREES = 200


class KindMean(FromMeasured):
    """Geometric mean of the tasks of one kind, else of all."""

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        logs: dict[str, list[float]] = {}
        for known in measured:
            logs.setdefault(known.task.kind, []).append(np.log(max(known.ns, 1.0)))
        self._kinds = {kind: float(np.exp(np.mean(of))) for kind, of in logs.items()}
        self._all = float(np.exp(np.mean([value for of in logs.values() for value in of])))

    def predict(self, task: Task) -> Estimate:
        """ns of any task."""
        return Estimate(self._kinds.get(task.kind, self._all), "mean of its kind")


def have_trees() -> bool:
    """Whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


class ExtraTrees(FromMeasured):
    """Extremely randomised trees of scikit-learn on `features` and the classes of `_Design`."""

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        from sklearn.ensemble import ExtraTreesRegressor

        tasks = [known.task for known in measured]
        self._design = _Design(tasks)
        self._trees = ExtraTreesRegressor(_TREES, random_state=0, max_features=0.5)
        self._trees.fit(self._design.rows(tasks), np.log([max(known.ns, 1) for known in measured]))

    def predict_all(self, tasks: Sequence[Task]) -> list[Estimate | None]:
        """ns of any tasks."""
        return [Estimate(float(np.exp(log_ns)), "trees") for log_ns in self._trees.predict(self._design.rows(tasks))]

    def predict(self, task: Task) -> Estimate | None:
        """ns of any task."""
        return self.predict_all([task])[0]


class _Design:
    """Scaled numbers, and a column for every device, category, operator and family of kernels of the given tasks."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._columns = {key: i for i, key in enumerate(dict.fromkeys(k for task in tasks for k in _classes(task)))}
        numbers = features(tasks)
        self._centre, self._scale = numbers.mean(axis=0), np.maximum(numbers.std(axis=0), 1e-9)

    def rows(self, tasks: Sequence[Task]) -> npt.NDArray[np.float64]:
        marks = np.zeros((len(tasks), len(self._columns)))
        for i, task in enumerate(tasks):
            for key in _classes(task):
                if key in self._columns:
                    marks[i, self._columns[key]] = 1.0
        return np.hstack([(features(tasks) - self._centre) / self._scale, marks])


def _classes(task: Task) -> list[tuple[str, str]]:
    return [("device", task.device), ("category", task.category), ("op", task.op), ("family", family(task.kernel))]


_CPU = Device(name="a CPU of 100 GFLOP/s and 20 GB/s", tflops={"float32": 0.1}, memory_gb_s=20)
"""Stands for every CPU; the fitted efficiency makes up for what is wrong in it, so it may exceed 1."""


@dataclass(frozen=True)
class Roofline(CostModel):
    """t = max(latency, bound / efficiency); bound = max(FLOPs / peak, bytes / bandwidth).

    Attributes:
        devices: records, by name.
        efficiency: by class (device and family of kernels, or operator of a CPU; device alone for the rest), the
            sum of bounds over the sum of measured times.
        latency_ns: by device, the tenth percentile of measured times: what the shortest kernels take.
    """

    devices: Mapping[str, Device]
    efficiency: Mapping[tuple[str, str], float]
    latency_ns: Mapping[str, float]

    @classmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> Roofline:
        """Efficiencies and latencies of measured tasks."""
        shares: dict[tuple[str, str], list[tuple[float, float]]] = {}
        times: dict[str, list[float]] = {}
        for known in measured:
            times.setdefault(known.task.device, []).append(known.ns)
        latency = {device: float(np.percentile(ns, 10)) for device, ns in times.items()}
        for known in measured:
            bound = _bound(known.task, devices)
            if bound is not None and known.ns > 0 and known.ns > latency[known.task.device]:
                for key in _keys(known.task):
                    shares.setdefault(key, []).append((bound, known.ns))
        return cls(devices, {key: sum(b for b, _ in of) / sum(t for _, t in of) for key, of in shares.items()}, latency)

    def predict(self, task: Task) -> Estimate | None:
        """ns of a task whose bytes are known; None for others and unknown devices."""
        bound = _bound(task, self.devices)
        share = next((self.efficiency[key] for key in _keys(task) if key in self.efficiency), None)
        if bound is None or share is None:
            return None
        return Estimate(max(bound / share, self.latency_ns.get(task.device, 0.0)), f"roofline at {share:.0%}")


def _keys(task: Task) -> tuple[tuple[str, str], ...]:
    return (task.device, family(task.kernel) or task.op), (task.device, "")


def _bound(task: Task, devices: Mapping[str, Device]) -> float | None:
    """ns at the device's peaks; None if bytes or device are not known, or nothing is computed or moved."""
    device = devices.get(task.device, _CPU if task.category == "cpu_op" else None)
    if device is None or task.bytes is None:
        return None
    return times_at_peak(task, device).ns or None


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


class Products(FromMeasured):
    """A table of matrix products for each device and element type that was measured."""

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        times: dict[tuple[str, str], dict[Size, float]] = {}
        for known in measured:
            size = gemm_size(known.task)
            if size is not None and known.task.main and known.task.kernel:
                times.setdefault((known.task.device, known.task.dtype), {})[size] = known.ns
        self._tables = {key: GemmTable(of, device=key[0]) for key, of in times.items()}

    def predict(self, task: Task) -> Estimate | None:
        """ns of the main kernel of a matrix product; None for other work."""
        table = self._tables.get((task.device, task.dtype))
        return None if table is None else table.predict(task)


_SECTOR = 32  # bytes that DRAM and L2 move at once
_FLOAT = 4
_NS_PER_S = 1e9


def _sectors(size: int) -> int:
    return -(-size // _SECTOR) * _SECTOR


@dataclass(frozen=True)
class EmbeddingForward:
    """Forward lookup.

    Attributes:
        devices: records of the devices, by name.
        hit_rate_draws: how many rows must all be in the L2 for a hit. "batch" is what the reference's code does,
            "lookups" what its comment says and what the formula means: the indices of one sample.
    """

    devices: Mapping[str, Device]
    hit_rate_draws: Literal["batch", "lookups"] = "batch"

    def predict(self, task: Task) -> Estimate | None:
        """ns of a forward lookup; None for other work, or on a device whose caches are not known."""
        bag, device = task.bag, self.devices.get(task.device)
        # the operator also launches small kernels that prepare the lookup
        if bag is None or device is None or "embedding" not in task.kernel or _is_backward(task):
            return None
        if device.multiprocessors is None or not device.l2_bytes:
            return None
        return Estimate(self.nanoseconds(bag, device), f"embedding traffic on {device.name}")

    def nanoseconds(self, bag: Bag, device: Device) -> float:
        """Time of the lookups; by DRAM alone where the L2's bandwidth is not known.

        Raises:
            ValueError: the device's multiprocessors or L2 size are not known.
        """
        if device.multiprocessors is None or not device.l2_bytes:
            raise ValueError(f"{device.name}: multiprocessors and l2_bytes must be known")
        index, row = _sectors(_FLOAT * bag.lookups), _sectors(_FLOAT * bag.dim)
        tables = -(-device.multiprocessors * bag.rows_per_block // bag.batch)
        cached = min(device.l2_bytes // tables, _FLOAT * bag.rows * bag.dim)
        cached_rows = max((cached - (0 if bag.shared_memory else index)) // _FLOAT // bag.dim, 0)
        draws = bag.batch if self.hit_rate_draws == "batch" else bag.lookups
        hits = _hit_rate(cached_rows, bag.rows, draws)
        lookups = bag.batch * bag.lookups * row
        dram = bag.tables * (bag.batch * (index + row) + (1 - hits) * (lookups - cached) + cached)
        threads = max(bag.dim / 4, 1024 / bag.rows_per_block)
        index_l2 = 0 if bag.shared_memory else bag.dim // (4 * threads) * index
        l2 = bag.tables * (bag.batch * (64 + index_l2) + hits * (lookups - cached))
        cache = l2 / (device.l2_gb_s * 1e9) if device.l2_gb_s else 0.0
        return max(dram / device.bytes_per_second, cache) * _NS_PER_S


def _hit_rate(cached: int, rows: int, draws: int) -> float:
    """Probability that rows drawn without replacement are all among those in the cache."""
    if draws > min(cached, rows):
        return 0.0 if cached < rows else 1.0
    return prod((cached - i) / (rows - i) for i in range(draws))


def backward_sgd_ns(bag: Bag, device: Device) -> float:
    """Time of a backward lookup with plain SGD, which reads and writes every row; bound by memory, or by multiply-adds
    at the device's float32 peak if that is known."""
    row = _sectors(_FLOAT * bag.dim)
    index = _sectors(_FLOAT * bag.lookups) if bag.shared_memory else _SECTOR * bag.lookups
    gradient = row if bag.shared_memory else 2 * bag.lookups * row
    warps = bag.batch * bag.tables
    memory = warps * (64 + index + 2 * bag.lookups * row + gradient) / device.bytes_per_second
    peak = device.peak_flops("float32")
    compute = warps * bag.lookups * 4 * (bag.dim // 4) / peak if peak else 0.0
    return max(memory, compute) * _NS_PER_S


def backward_adagrad_ns(bag: Bag, device: Device) -> float:
    """Time of one with row-wise Adagrad: of each row also one element of state is read and written."""
    per_warp = 64 + 2 * _sectors(_FLOAT * bag.lookups) + (3 * bag.lookups + 1) * _sectors(_FLOAT * bag.dim)
    return bag.batch * bag.tables * per_warp / device.bytes_per_second * _NS_PER_S


def _text(task: Task) -> str:
    return f"{task.op} {task.kernel}".lower()


def _is_backward(task: Task) -> bool:
    return "backward" in _text(task) and "embedding" in _text(task)


class Embeddings(CostModel):
    """Batched lookups, forward and backward; nothing is fitted.

    Args:
        devices: records by name.
    """

    def __init__(self, devices: Mapping[str, Device]) -> None:
        self._devices, self._forward = devices, EmbeddingForward(devices)

    @classmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> Embeddings:
        """Of the devices alone."""
        return cls(devices)

    def predict(self, task: Task) -> Estimate | None:
        """ns of a lookup; None for other work."""
        device = self._devices.get(task.device)
        if not _is_backward(task):
            return self._forward.predict(task)
        if task.bag is None or device is None:
            return None
        nanoseconds = backward_adagrad_ns if "adagrad" in _text(task) else backward_sgd_ns
        return Estimate(nanoseconds(task.bag, device), f"embedding traffic on {device.name}")
