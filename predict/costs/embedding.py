"""Batched embedding lookups by the traffic they cause: forward, backward with SGD, backward with row-wise Adagrad.

The model and its constants are those of Lin et al., "Building a Performance Model for Deep Learning Recommendation
Model Training on GPUs" (2022): DRAM and L2 traffic in sectors of 32 bytes, and a hit rate of the L2.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

from ...analysis.devices import Device
from .task import Bag, Estimate, Task

_SECTOR = 32
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
        if bag is None or device is None or not _is_forward(task):
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


@dataclass(frozen=True)
class _Backward(ABC):
    """What the backward lookups have in common."""

    devices: Mapping[str, Device]
    adagrad: ClassVar[bool]

    def predict(self, task: Task) -> Estimate | None:
        """ns of a backward lookup with this optimizer; None for other work or an unknown device."""
        device = self.devices.get(task.device)
        if task.bag is None or device is None or not _is_backward(task) or ("adagrad" in _text(task)) != self.adagrad:
            return None
        return Estimate(self.nanoseconds(task.bag, device), f"embedding traffic on {device.name}")

    @abstractmethod
    def nanoseconds(self, bag: Bag, device: Device) -> float:
        """Time of the update."""


@dataclass(frozen=True)
class EmbeddingBackwardSgd(_Backward):
    """Backward lookup that updates the rows with plain SGD: every row is read and written.

    Attributes:
        devices: records of the devices, by name.
    """

    adagrad = False

    def nanoseconds(self, bag: Bag, device: Device) -> float:
        """Time of the update; bound by memory, or by multiply-adds at the device's float32 peak if that is known."""
        row = _sectors(_FLOAT * bag.dim)
        index = _sectors(_FLOAT * bag.lookups) if bag.shared_memory else _SECTOR * bag.lookups
        gradient = row if bag.shared_memory else 2 * bag.lookups * row
        warps = bag.batch * bag.tables
        memory = warps * (64 + index + 2 * bag.lookups * row + gradient) / device.bytes_per_second
        peak = device.peak_flops("float32")
        compute = warps * bag.lookups * 4 * (bag.dim // 4) / peak if peak else 0.0
        return max(memory, compute) * _NS_PER_S


@dataclass(frozen=True)
class EmbeddingBackwardAdagrad(_Backward):
    """Backward lookup with row-wise Adagrad: of each row also one element of state is read and written.

    Attributes:
        devices: records of the devices, by name.
    """

    adagrad = True

    def nanoseconds(self, bag: Bag, device: Device) -> float:
        """Time of the update."""
        per_warp = 64 + 2 * _sectors(_FLOAT * bag.lookups) + (3 * bag.lookups + 1) * _sectors(_FLOAT * bag.dim)
        return bag.batch * bag.tables * per_warp / device.bytes_per_second * _NS_PER_S


def _text(task: Task) -> str:
    return f"{task.op} {task.kernel}".lower()


def _is_backward(task: Task) -> bool:
    return "backward" in _text(task) and "embedding" in _text(task)


def _is_forward(task: Task) -> bool:
    """The lookup itself; the operator also launches small kernels that prepare it."""
    return "embedding" in task.kernel and not _is_backward(task)
