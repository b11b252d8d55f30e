"""Roofline with an efficiency fitted for each class of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...analysis.devices import Device
from .bound import times_at_peak
from .features import family
from .measured_tasks import MeasuredTask
from .task import Estimate, Task

_CPU = Device(name="a CPU of 100 GFLOP/s and 20 GB/s", tflops={"float32": 0.1}, memory_gb_s=20)
"""Stands for every CPU; the fitted efficiency makes up for what is wrong in it, so it may exceed 1."""


@dataclass(frozen=True)
class Roofline:
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

    @staticmethod
    def fit(measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> Roofline:
        """Efficiencies and latencies of measured tasks."""
        shares: dict[tuple[str, str], list[tuple[float, float]]] = {}
        times: dict[str, list[float]] = {}
        for one in measured:
            times.setdefault(one.task.device, []).append(one.ns)
        latency = {device: float(np.percentile(ns, 10)) for device, ns in times.items()}
        for one in measured:
            bound = _bound(one.task, devices)
            if bound is not None and one.ns > 0 and one.ns > latency[one.task.device]:
                for key in _keys(one.task):
                    shares.setdefault(key, []).append((bound, one.ns))
        return Roofline(
            devices, {key: sum(b for b, _ in of) / sum(t for _, t in of) for key, of in shares.items()}, latency
        )

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
