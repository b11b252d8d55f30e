"""The least time of work on a device: its FLOPs and bytes at the device's peaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...analysis.devices import Device
from .task import Task

_NS_PER_S = 1e9


class Bound(NamedTuple):
    """Two lower bounds of the time of a task, ns; the greater one holds."""

    compute: float  # FLOPs over the peak for the dtype
    memory: float  # bytes over the bandwidth

    @property
    def ns(self) -> float:
        return max(self)


def times_at_peak(task: Task, device: Device) -> Bound:
    """Return FLOPs over the peak and bytes over the bandwidth of device memory; 0 for unknown amounts.

    A dtype without a peak in the record has the peak of float32.
    """
    peak = device.peak_flops(task.dtype) or device.peak_flops("float32")
    compute = task.flops / peak if task.flops and peak else 0.0
    return Bound(compute * _NS_PER_S, (task.bytes or 0) / device.bytes_per_second * _NS_PER_S)


def device_of(task: Task, devices: Mapping[str, Device]) -> Device | None:
    """Return the record of a task's device; the first of two with equal peaks ("X or Y")."""
    return devices.get(task.device) or devices.get(task.device.partition(" or ")[0])


def bound_of(task: Task, devices: Mapping[str, Device]) -> Bound | None:
    """Return the least time of a GPU event; None if neither its FLOPs nor its bytes are known, or its device is not.

    Bytes that fit the last cache may come from it, at its bandwidth. An operator's FLOPs and bytes belong to its main
    kernel; nothing is known about its other kernels.

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
    if device.peak_flops(task.dtype) is None:  # no peak is known to hold but the highest one
        compute = (task.flops or 0) / max(device.tflops.values(), default=float("inf")) / 1e3
    if task.bytes:
        memory = device.least_ns(task.bytes)
    return Bound(compute, memory) if compute or memory else None
