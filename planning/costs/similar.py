"""Times of measured tasks carried over to others: the same, similar ones, sizes between and beyond."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from itertools import zip_longest
from math import log2

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn
from .cost_model import FromMeasured
from .measured_tasks import MeasuredTask
from .task import Estimate, Task

_NOISE = 0.01
_NEAR, _FAR = 20.0, 160.0
_MOST_TASKS = 1500


class MeasuredTable(FromMeasured):
    """The median of the same operator, shapes, dtypes and kernel, launched with the same grid, on the same device.

    If shapes are known, the recorded grid does not matter.
    """

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        self._tasks = {known.task: known for known in measured}
        self._unlaunched = {known.task.unlaunched: known for known in reversed(measured) if known.task.inputs}

    def of(self, task: Task) -> MeasuredTask | None:
        """The same task as it was measured; None for others."""
        return self._tasks.get(task) or self._unlaunched.get(task.unlaunched)

    def predict(self, task: Task) -> Estimate | None:
        """ns of a task that was measured; None for others."""
        known = self.of(task)
        return None if known is None else Estimate(known.ns, "measured")


class Similar(FromMeasured):
    """`Gaussian` over all measured tasks, or, where they are many, over those of each operator apart."""

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        self._apart = len(measured) > _MOST_TASKS
        self._groups: dict[str, list[MeasuredTask]] = {}
        for known in measured:
            self._groups.setdefault(self._group(known.task), []).append(known)
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
                for i, estimate in zip(
                    members, self._fitted[group].predict_all([tasks[i] for i in members]), strict=True
                ):
                    found[i] = estimate
        return found


class Gaussian:
    """Gaussian-process regression of log time over measured tasks.

    The covariance falls off exponentially with the distance of sizes and shapes. It grows if tasks share device,
    operator, and words of the kernel's name.
    """

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        if len(measured) > _MOST_TASKS:  # the most frequent, in the order given
            often = sorted(range(len(measured)), key=lambda i: (-measured[i].count, i))[:_MOST_TASKS]
            measured = [measured[i] for i in sorted(often)]
        self._tasks = [known.task for known in measured]
        self._rows = features(self._tasks)
        self._keys = [[key(task) for task in self._tasks] for key in _KEYS]
        self._kernels = [task.kernel for task in self._tasks]
        log_ns = np.log([max(known.ns, 1.0) for known in measured])
        self._mean = float(log_ns.mean()) if len(measured) else 0.0
        covariance = self._covariance(self._tasks, self._rows)
        self._solved = np.linalg.solve(covariance + _NOISE * np.eye(len(measured)), log_ns - self._mean)

    def predict_all(self, tasks: Sequence[Task]) -> list[Estimate | None]:
        """ns of tasks, of those whose category was measured."""
        known = {task.category for task in self._tasks}
        log_ns = self._mean + self._covariance(tasks, features(tasks)) @ self._solved
        ns = np.exp(np.clip(log_ns, 0, 40)).tolist()
        return [
            Estimate(t, "similar measured") if task.category in known else None
            for task, t in zip(tasks, ns, strict=True)
        ]

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
    lambda task: task.device,
    lambda task: task.op,
    lambda task: (task.device, task.kernel, task.op, task.place),
)


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


_APART = 16
"""Times by which the greater neighbour may be larger than the lesser one."""
_ENOUGH, _ALIKE = 5, 1.0
"""Times after which a median is one; doublings of extents within which tasks are nearly of one size."""


class Interpolated(FromMeasured):
    """Serves a task between two measured ones of the same operator, kernel, device and numbers of dimensions.

    One measured task has no larger extent, the other no smaller one; the nearest such two count, by the sum of the
    logarithms of extents. Time is interpolated linearly in FLOPs, bytes, or elements, so it is between theirs. Since a
    library may choose another kernel for another size, tasks with any kernel count if the task's kernel has no two.
    """

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        groups = defaultdict[Hashable, list[MeasuredTask]](list)
        for known in measured:
            if known.task.inputs or known.task.outputs:
                for key in _keys(known.task):
                    groups[key].append(known)
        self._groups = {
            key: (np.array([_extents(known.task) for known in of], np.int64), of)
            for key, of in groups.items()
            if len(of) > 1
        }

    def predict(self, task: Task) -> Estimate | None:
        """ns of a task between two measured ones; None for others."""
        groups = (self._groups[key] for key in _keys(task) if key in self._groups)
        return next((found for of in groups if (found := self._within(task, *of)) is not None), None)

    def _within(self, task: Task, rows: npt.NDArray[np.int64], of: Sequence[MeasuredTask]) -> Estimate | None:
        mine = np.array(_extents(task), np.int64)
        low, high = np.flatnonzero((rows <= mine).all(axis=1)), np.flatnonzero((rows >= mine).all(axis=1))
        if not len(low) or not len(high):
            return None
        (below, least), (above, most) = (_side(rows, mine, some, of) for some in (low, high))
        if most > _APART * least:
            return None
        share = (_size(task) - least) / (most - least) if most > least else 0.5
        return Estimate(below + min(max(share, 0.0), 1.0) * (above - below), "between measured")


def _side(
    rows: npt.NDArray[np.int64], mine: npt.NDArray[np.int64], some: IntColumn, of: Sequence[MeasuredTask]
) -> tuple[float, int]:
    """ns and size of the nearest of some rows. What was measured but once or twice on a CPU may have been disturbed:
    then the median over several of nearly its size."""
    apart = np.abs(np.log2(rows[some] + 1.0) - np.log2(mine + 1.0)).sum(axis=1)
    order = np.argsort(apart, kind="stable")[:_ENOUGH]
    near = [of[int(some[at])] for at in order if apart[at] <= apart[order[0]] + _ALIKE]
    times = np.array([near[0].ns] if near[0].count >= _ENOUGH or near[0].task.kernel else [known.ns for known in near])
    return float(np.median(times)), _size(near[0].task)


def _keys(task: Task) -> Sequence[Hashable]:
    """What tasks that are compared have in common; at last whatever their kernels are."""
    ranks = tuple((len(tensor.shape), tensor.dtype) for tensor in (*task.inputs, *task.outputs))
    common = task.op, task.category, task.device, task.place, len(task.inputs), ranks
    return tuple((kernel, *common) for kernel in dict.fromkeys((task.kernel, "")))


def _extents(task: Task) -> list[int]:
    return [extent for tensor in (*task.inputs, *task.outputs) for extent in tensor.shape]


def _size(task: Task) -> int:
    return max(task.flops or task.bytes or sum(tensor.numel for tensor in (*task.inputs, *task.outputs)), 1)


_BEYOND, _MOST = 1.2, 16
"""Times the greatest measured size from which on a task counts as larger, and up to which it is served."""


class Extrapolated(FromMeasured):
    """Serves tasks that are larger than all measured ones of the same operator and kernel on the same device.

    The least of their times stays (for tasks of one size, the least of all work of the category), and the rest of the
    nearest task's time grows with its FLOPs, or bytes. The nearest task is the nearest by `distances`, or that with the
    fewest other extents, such as the same layer at a smaller batch: whichever gives less, as the other one has more
    that does not grow.
    """

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        groups = defaultdict[tuple[str, ...], list[MeasuredTask]](list)
        for known in measured:
            if _amount(known.task):
                groups[_key(known.task)].append(known)
        usual = defaultdict[tuple[str, str], list[float]](list)
        for known in measured:
            usual[known.task.category, known.task.device].append(known.ns)
        self._groups = {}
        for key, of in groups.items():
            sizes = {_amount(known.task) for known in of}
            base = min(known.ns for known in of)
            if len(sizes) == 1:
                base = min(base, float(np.median(usual[of[0].task.category, of[0].task.device])))
            self._groups[key] = of, max(sizes), base, features([known.task for known in of])

    def predict(self, task: Task) -> Estimate | None:
        """ns of a task beyond what was measured; None for others."""
        found, size = self._groups.get(_key(task)), _amount(task)
        if found is None or not _BEYOND * found[1] <= size <= _MOST * found[1]:
            return None
        of, _, least, rows = found
        apart = distances(features([task]), rows)[0]
        changed = np.array([_changed(task, known.task) for known in of])
        ends = [
            least + (near.ns - least) * size / _amount(near.task)
            for near in (of[int(apart.argmin())], of[int(np.lexsort((apart, changed))[0])])
        ]
        return Estimate(min(ends), "grown from measured")


def _key(task: Task) -> tuple[str, ...]:
    return task.op, task.kernel, task.category, task.device, task.dtype


def _changed(task: Task, other: Task) -> int:
    """How many extents of the inputs differ; all, if the inputs are not as many or not of as many dimensions."""
    pairs = [
        extents
        for left, right in zip(task.inputs, other.inputs, strict=False)
        for extents in zip_longest(left.shape, right.shape)
    ]
    alike = len(task.inputs) == len(other.inputs) and all(None not in extents for extents in pairs)
    return sum(left != right for left, right in pairs) if alike else sys.maxsize


def _amount(task: Task) -> int:
    return task.flops or task.bytes or 0


FloatMatrix = npt.NDArray[np.float64]

_DIMS, _TENSORS = 4, 3
FEATURES = (
    "bytes", "flops", "largest input", "inputs", "outputs", "tensors", "place", "ranks",
    *(f"extent {dim} of input {tensor}" for tensor in range(_TENSORS) for dim in range(_DIMS)),
)  # fmt: skip
"""Columns of `features`; sizes and extents as log2(1 + x), tensors and place as they are."""
WEIGHTS = np.array([1, 1, 1, 1, 0.5, 0.5, 0.3, 1] + [0.3] * (_DIMS * _TENSORS))
"""What a difference in each column counts in `distances`."""

_TEMPLATE = re.compile(r"[<(]")
_WORD = re.compile(r"[A-Za-z]+|\d+")


def features(tasks: Sequence[Task]) -> FloatMatrix:
    """One row a task, columns as in FEATURES."""
    return np.array([_row(task) for task in tasks], np.float64).reshape(len(tasks), len(FEATURES))


def _row(task: Task) -> list[float]:
    sizes = sorted((tensor.numel for tensor in task.inputs), reverse=True)
    row = [
        _log(task.bytes),
        _log(task.flops),
        _log(sizes[0] if sizes else 0),
        _log(sum(sizes)),
        _log(sum(tensor.numel for tensor in task.outputs)),
        float(len(sizes)),
        float(task.place),
        _log(task.group_size),
    ]
    largest = sorted(task.inputs, key=lambda tensor: -tensor.numel)[:_TENSORS]
    for tensor in largest:
        shape = tensor.shape[-_DIMS:]
        row += [0.0] * (_DIMS - len(shape)) + [_log(extent) for extent in shape]
    return row + [0.0] * (len(FEATURES) - len(row))


def _log(value: int | None) -> float:
    return log2(1 + value) if value is not None and value > 0 else 0.0


def distances(left: FloatMatrix, right: FloatMatrix) -> FloatMatrix:
    """(n, m): weighted sums of absolute differences of n and m rows."""
    total = np.zeros((len(left), len(right)))
    for column, weight in enumerate(WEIGHTS):
        total += weight * np.abs(left[:, column, None] - right[None, :, column])
    return total


@cache
def family(kernel: str) -> str:
    """A kernel's name without template arguments and parameters."""
    return _TEMPLATE.split(kernel.removeprefix("void "))[0]


@cache
def words(kernel: str) -> frozenset[str]:
    """Letters and numbers of a kernel's name, such as tile sizes and element types."""
    return frozenset(_WORD.findall(kernel))
