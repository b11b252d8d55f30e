"""The roofline bound of an operator or GPU event: the time for its FLOPs and bytes at the device's peak rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...analysis.devices import Device
from .task import Task

_NS_PER_S = 1e9


class Bound(NamedTuple):
    compute: float  # time in ns: FLOPs divided by the dtype's peak rate
    memory: float  # time in ns: bytes divided by the bandwidth

    @property
    def ns(self) -> float:
        return max(self)


def times_at_peak(task: Task, device: Device) -> Bound:
    """Return the compute and memory times in ns (0 if unknown). If a dtype's peak is unknown, use the float32 peak."""
    peak = device.peak_flops(task.dtype) or device.peak_flops("float32")
    compute = task.flops / peak if task.flops and peak else 0.0
    return Bound(compute * _NS_PER_S, (task.bytes or 0) / device.bytes_per_second * _NS_PER_S)


def device_of(task: Task, devices: Mapping[str, Device]) -> Device | None:
    """Return the record of a task's device. If the name is ambiguous ("X or Y"), use the first device that it lists."""
    return devices.get(task.device) or devices.get(task.device.partition(" or ")[0])


def bound_of(task: Task, devices: Mapping[str, Device]) -> Bound | None:
    """Return the minimum time of a GPU event, or None if its device is unknown or neither FLOPs nor bytes are known.

    Data that fits in the last-level cache may be read at the cache's bandwidth. An operator's FLOPs and bytes are
    attributed to its main kernel, so its other kernels have no bound.

    Example:
        >>> from etplus.analysis.devices import Device
        >>> device = Device(name="d", tflops={"float32": 1}, memory_gb_s=100, l2_bytes=1000)
        >>> bound_of(Task("aten::add", "add", bytes=5000, device="d"), {"d": device}).ns  # 4000 at 100, 1000 at 300
        43.3...
    """
    device = device_of(task, devices)
    if device is None or not task.main:
        return None
    compute, memory = times_at_peak(task, device)
    if device.peak_flops(task.dtype) is None:  # the highest peak of the device gives a safe lower bound
        compute = (task.flops or 0) / max(device.tflops.values(), default=float("inf")) / 1e3
    if task.bytes:
        memory = device.least_ns(task.bytes)
    return Bound(compute, memory) if compute or memory else None
