"""The least time that work can take on a device: what it computes and moves, at the device's peaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...analysis.devices import Device
from .task import Task

_NS_PER_S = 1e9


class Bound(NamedTuple):
    """Two lower bounds of the time of a task, ns; the greater one holds.

    Attributes:
        compute: FLOPs over the peak for the element type. memory: bytes over the bandwidth.
    """

    compute: float
    memory: float

    @property
    def ns(self) -> float:
        """The bound."""
        return max(self)


def times_at_peak(task: Task, device: Device) -> Bound:
    """FLOPs over the peak and bytes over the bandwidth of device memory; 0 for what is not known.

    An element type without a peak in the record counts as float32.
    """
    peak = device.peak_flops(task.dtype) or device.peak_flops("float32")
    compute = task.flops / peak if task.flops and peak else 0.0
    return Bound(compute * _NS_PER_S, (task.bytes or 0) / device.bytes_per_second * _NS_PER_S)


def device_of(task: Task, devices: Mapping[str, Device]) -> Device | None:
    """The record of a task's device; where it is one of two with equal peaks ("X or Y"), the first."""
    return devices.get(task.device) or devices.get(task.device.partition(" or ")[0])


def bound_of(task: Task, devices: Mapping[str, Device]) -> Bound | None:
    """What a GPU event takes at least; None if neither its FLOPs nor its bytes are known, or its device is not.

    As much as the last cache holds may come from there, at its bandwidth. An operator's FLOPs and bytes are those of
    its main kernel; of its other kernels nothing is known.

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
