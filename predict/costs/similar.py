"""Times of measured tasks carried over to others: the same one, the nearest one, all similar ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .cost_model import FromMeasured
from .features import class_keys, distances, features, words
from .measured_tasks import MeasuredTask
from .task import Estimate, Task

_NOISE = 0.01
_NEAR, _FAR = 20.0, 160.0
_MOST_TASKS = 1500
_CLOSE = 4.0
"""Distance (`distances`) up to which the nearest measured task is taken as it is."""


class MeasuredTable(FromMeasured):
    """The median of the same operator, shapes, types and kernel, launched with the same grid, on the same device.

    Work whose shapes are known is the same whatever is recorded of its launch.
    """

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        self._tasks = {one.task: one for one in measured}
        self._unlaunched = {one.task.unlaunched: one for one in reversed(measured) if one.task.inputs}

    def of(self, task: Task) -> MeasuredTask | None:
        """The same task as it was measured; None for others."""
        return self._tasks.get(task) or self._unlaunched.get(task.unlaunched)

    def predict(self, task: Task) -> Estimate | None:
        """ns of a task that was measured; None for others."""
        one = self.of(task)
        return None if one is None else Estimate(one.ns, "measured")


class Nearest(FromMeasured):
    """The time of the measured task that is least different, of the narrowest class that has any (`class_keys`)."""

    reach: ClassVar[float] = float("inf")

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        self._ns = np.array([one.ns for one in measured])
        self._rows = features([one.task for one in measured])
        self._members: dict[Hashable, list[int]] = {}
        for i, one in enumerate(measured):
            for key in class_keys(one.task):
                if key is not None:
                    self._members.setdefault(key, []).append(i)

    def predict(self, task: Task) -> Estimate | None:
        """ns of the nearest task; None if none of the category was measured, or none within reach."""
        members = next((found for key in class_keys(task) if key and (found := self._members.get(key))), None)
        if members is None:
            return None
        apart = distances(features([task]), self._rows[members])[0]
        best = int(np.argmin(apart))
        if apart[best] > self.reach:
            return None
        return Estimate(float(self._ns[members[best]]), "nearest measured")


class Close(Nearest):
    """The same, where the least different task is close."""

    reach = _CLOSE


class Similar(FromMeasured):
    """`Gaussian` over all measured tasks, or, where they are many, over those of each operator apart."""

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        self._apart = len(measured) > _MOST_TASKS
        self._groups: dict[str, list[MeasuredTask]] = {}
        for one in measured:
            self._groups.setdefault(self._group(one.task), []).append(one)
        self._fitted: dict[str, Gaussian] = {}

    def _group(self, task: Task) -> str:
        return f"{task.category} {task.op}" if self._apart else ""

    def predict(self, task: Task) -> Estimate | None:
        """ns of a task of a category, and of many an operator, that was measured."""
        return self.predict_all([task])[0]

    def predict_all(self, tasks: Sequence[Task]) -> list[Estimate | None]:
        """As `predict`, for many tasks at once."""
        by_group: dict[str, list[int]] = {}
        for i, task in enumerate(tasks):
            by_group.setdefault(self._group(task), []).append(i)
        found: list[Estimate | None] = [None] * len(tasks)
        for group, members in by_group.items():
            if group in self._groups:
                if group not in self._fitted:
                    self._fitted[group] = Gaussian(self._groups[group])
                for i, one in zip(members, self._fitted[group].predict_all([tasks[i] for i in members]), strict=True):
                    found[i] = one
        return found


class Gaussian:
    """Gaussian-process regression of log time over measured tasks.

    Covariance falls off exponentially with the distance of sizes and shapes, and grows with what else two tasks share:
    device, operator and kernel, kernel names by the share of their words.
    """

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        if len(measured) > _MOST_TASKS:  # the most frequent, in the order given
            often = sorted(range(len(measured)), key=lambda i: (-measured[i].count, i))[:_MOST_TASKS]
            measured = [measured[i] for i in sorted(often)]
        self._tasks = [one.task for one in measured]
        self._rows = features(self._tasks)
        self._keys = [[key(task) for task in self._tasks] for key in _KEYS]
        self._kernels = [task.kernel for task in self._tasks]
        log_ns = np.log([max(one.ns, 1.0) for one in measured])
        self._mean = float(log_ns.mean()) if len(measured) else 0.0
        covariance = self._covariance(self._tasks, self._rows)
        self._solved = np.linalg.solve(covariance + _NOISE * np.eye(len(measured)), log_ns - self._mean)

    def predict_all(self, tasks: Sequence[Task]) -> list[Estimate | None]:
        """ns of tasks, of those whose category was measured."""
        known = {task.category for task in self._tasks}
        log_ns = self._mean + self._covariance(tasks, features(tasks)) @ self._solved
        ns = np.exp(np.clip(log_ns, 0, 40)).tolist()
        return [Estimate(t, "similar measured") if task.category in known else None
                for task, t in zip(tasks, ns, strict=True)]  # fmt: skip

    def _covariance(self, tasks: Sequence[Task], rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """(len(tasks), n): with the measured tasks."""
        device, op, narrow = (
            _same([key(task) for task in tasks], keys) for key, keys in zip(_KEYS, self._keys, strict=True)
        )
        names = _shared_words([task.kernel for task in tasks], self._kernels)
        apart = distances(rows, self._rows)
        near = np.exp(-apart / _NEAR) * (0.2 + 0.8 * device) * (0.2 + 2 * names**2 + narrow + 0.3 * op)
        covariance: npt.NDArray[np.float64] = near + 3 * np.exp(-apart / _FAR) * (1 + device) * (1 + names)
        return covariance


_KEYS: tuple[Callable[[Task], Hashable], ...] = (
    lambda task: task.device, lambda task: task.op, lambda task: class_keys(task)[0],
)  # fmt: skip


def _same(left: Sequence[Hashable], right: Sequence[Hashable]) -> npt.NDArray[np.float64]:
    codes = {value: i for i, value in enumerate(dict.fromkeys([*left, *right]))}
    columns = [np.array([codes[value] for value in values], np.int64) for values in (left, right)]
    same: npt.NDArray[np.float64] = (columns[0][:, None] == columns[1][None, :]).astype(np.float64)
    return same


def _shared_words(left: Sequence[str], right: Sequence[str]) -> npt.NDArray[np.float64]:
    """Words that two names share over words that either has; 1 for two names without any."""
    distinct = list(dict.fromkeys([*left, *right]))
    of = {name: words(name) for name in distinct}
    rows, columns = list(dict.fromkeys(left)), list(dict.fromkeys(right))
    shared = [_jaccard(of[a], of[b]) for a in rows for b in columns]
    table = np.array(shared, np.float64).reshape(len(rows), len(columns))
    row_of, column_of = ({name: i for i, name in enumerate(names)} for names in (rows, columns))
    picked: npt.NDArray[np.float64] = table[np.ix_([row_of[a] for a in left], [column_of[b] for b in right])]
    return picked


def _jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / len(left | right) if left or right else 1.0
