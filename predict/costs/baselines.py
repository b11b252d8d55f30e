"""Plain estimates: means, rooflines, ExtraTrees. They compare with what the other models say, or are asked last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

from ...analysis.devices import Device
from .bound import device_of, times_at_peak
from .cost_model import CostModel, FromMeasured
from .features import family, features
from .measured_tasks import MeasuredTask
from .task import Estimate, Task

_TREES = 200
_OF_PEAK, _OF_BANDWIDTH, _FLOOR_NS = 0.5, 0.6, 2000.0


class KindMean(FromMeasured):
    """Geometric mean of the tasks of one kind, else of all."""

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        logs: dict[str, list[float]] = {}
        for one in measured:
            logs.setdefault(one.task.kind, []).append(np.log(max(one.ns, 1.0)))
        self._kinds = {kind: float(np.exp(np.mean(of))) for kind, of in logs.items()}
        self._all = float(np.exp(np.mean([value for of in logs.values() for value in of])))

    def predict(self, task: Task) -> Estimate:
        """ns of any task."""
        return Estimate(self._kinds.get(task.kind, self._all), "mean of its kind")


class NameMean(FromMeasured):
    """Geometric mean of the events of one kernel's name, else as `KindMean`."""

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        logs: dict[str, list[float]] = {}
        for one in measured:
            logs.setdefault(one.task.kernel, []).append(np.log(max(one.ns, 1.0)))
        self._names = {name: float(np.exp(np.mean(of))) for name, of in logs.items()}
        self._kinds = KindMean(measured)

    def predict(self, task: Task) -> Estimate:
        """ns of any task."""
        known = self._names.get(task.kernel)
        return self._kinds.predict(task) if known is None else Estimate(known, "mean of its name")


class UntunedRoofline:
    """Half of the peak FLOP/s or 60% of the bandwidth, and 2 µs at least; nothing is fitted."""

    def __init__(self, devices: Mapping[str, Device]) -> None:
        self._devices = devices

    def predict(self, task: Task) -> Estimate:
        """ns of any task."""
        device = device_of(task, self._devices)
        if device is None or not task.main:
            return Estimate(_FLOOR_NS, "floor")
        at_peak = times_at_peak(task, device)
        return Estimate(max(at_peak.compute / _OF_PEAK, at_peak.memory / _OF_BANDWIDTH, _FLOOR_NS), "untuned roofline")


def have_trees() -> bool:
    """Whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


class ExtraTrees(FromMeasured):
    """Extremely randomised trees of scikit-learn on `features` and the classes of `_Design`."""

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        from sklearn.ensemble import ExtraTreesRegressor

        self._design = _Design([one.task for one in measured])
        self._trees = ExtraTreesRegressor(_TREES, random_state=0, max_features=0.5)
        self._trees.fit(self._design.rows([one.task for one in measured]), np.log([max(one.ns, 1) for one in measured]))

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
        for one in measured:
            times.setdefault(one.task.device, []).append(one.ns)
        latency = {device: float(np.percentile(ns, 10)) for device, ns in times.items()}
        for one in measured:
            bound = _bound(one.task, devices)
            if bound is not None and one.ns > 0 and one.ns > latency[one.task.device]:
                for key in _keys(one.task):
                    shares.setdefault(key, []).append((bound, one.ns))
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
