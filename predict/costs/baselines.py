"""Plain estimates, to compare the other models with: means, an untuned roofline, ridge, ExtraTrees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

from ...analysis.devices import Device
from .bound import device_of, times_at_peak
from .features import family, features
from .measured_tasks import MeasuredTask
from .task import Estimate, Task

_PENALTY = 1.0
_TREES = 200
_OF_PEAK, _OF_BANDWIDTH, _FLOOR_NS = 0.5, 0.6, 2000.0


class KindMean:
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


class NameMean:
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


class Ridge:
    """Ridge regression of log time on `features` and on device, category, operator and family of kernels."""

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        self._design = _Design([one.task for one in measured])
        rows = self._design.rows([one.task for one in measured])
        log_ns = np.log([max(one.ns, 1.0) for one in measured])
        self._mean = float(log_ns.mean())
        gram = rows.T @ rows + _PENALTY * np.eye(rows.shape[1])
        self._weights = np.linalg.solve(gram, rows.T @ (log_ns - self._mean))

    def predict(self, task: Task) -> Estimate:
        """ns of any task."""
        log_ns = self._mean + float((self._design.rows([task]) @ self._weights)[0])
        return Estimate(float(np.exp(np.clip(log_ns, 0, 40))), "ridge")


def have_trees() -> bool:
    """Whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


class ExtraTrees:
    """Extremely randomised trees of scikit-learn on the same columns as `Ridge`."""

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
