"""The interface of cost models, and models that use only measured tasks: lookup, interpolation, mean per kind, ….

For unseen operators and shapes, no model predicts self times of CPU operators better than the mean of their kind:
Gaussian-process regression, the nearest sizes, and growth with bytes are no more accurate. So the mean is the last
model, and sizes are used only to interpolate between measured sizes and to extrapolate with `--set`.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...analysis.devices import Device
from ...trace.columns import IntColumn
from .task import Estimate, MeasuredTask, Task


class CostModel(Protocol):
    """Predicts the time of a task from the measured times of identical or similar tasks.

    To add a cost model for GPU events, a package defines an entry point in the group `etplus.cost_models`. The entry
    point is a class with these methods; a subclass of `CostModel` needs only `fit` and `predict`.
    """

    @classmethod
    @abstractmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        """Return a model fitted on measured tasks; `devices` maps device names to device records."""

    @abstractmethod
    def predict(self, task: Task) -> Estimate | None:
        """Return the predicted time of a task. If this returns None, the next cost model is tried."""

    def state(self) -> Any:
        """Return JSON-ready data for the model file. If this returns None, the model is fitted again on loading."""
        return None

    @classmethod
    def restored(cls, state: Any, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        """Rebuild a model from the data that `state` returned. The other arguments are the same as for `fit`."""
        return cls.fit(measured, devices)


class FromMeasured(CostModel):
    @abstractmethod
    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        pass

    @classmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        return cls(measured)


class MeasuredTable(FromMeasured):
    """Looks up the median time of tasks with the same operator, shapes, dtypes, kernel, grid and device.

    If the shapes are known, the recorded grid is ignored.
    """

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        self._tasks = {known.task: known for known in measured}
        self._unlaunched = {known.task.unlaunched: known for known in reversed(measured) if known.task.inputs}

    def of(self, task: Task) -> MeasuredTask | None:
        return self._tasks.get(task) or self._unlaunched.get(task.unlaunched)

    def predict(self, task: Task) -> Estimate | None:
        known = self.of(task)
        return None if known is None else Estimate(known.ns, "measured")


class KindMean(FromMeasured):
    """Geometric mean over the measured tasks of the same category and kind, or else of the whole category."""

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        logs = defaultdict[tuple[str, str], list[float]](list)
        for known in measured:
            for kind in (known.task.kind, ""):
                logs[known.task.category, kind].append(np.log(max(known.ns, 1.0)))
        self._means = {key: float(np.exp(np.mean(values))) for key, values in logs.items()}

    def predict(self, task: Task) -> Estimate | None:
        keys = (task.category, task.kind), (task.category, "")
        ns = next((self._means[key] for key in keys if key in self._means), None)
        return None if ns is None else Estimate(ns, "mean of its kind")


# Interpolate only between tasks with at most this size ratio; over wider ranges, the library switches kernels.
_APART = 16
# A median of `_ENOUGH` times is reliable. With fewer, tasks within twice as many doublings of size also count.
_ENOUGH, _SIMILAR = 5, 1.0


class Interpolated(FromMeasured):
    """Interpolates between two measured tasks with the same operator, kernel, device and numbers of dimensions.

    One task must be at most as large as the requested task in every dimension, and the other at least as large. The
    nearest such task on each side is used; distance is the sum of |log2(size ratio)| over the dimensions. Time is
    interpolated linearly in FLOPs, bytes or elements. A library may choose another kernel for another size, so if the
    requested kernel does not have a task on both sides, tasks with other kernels are used.
    """

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        groups = defaultdict[Hashable, list[MeasuredTask]](list)
        for known in measured:
            if known.task.inputs or known.task.outputs:
                for key in _keys(known.task):
                    groups[key].append(known)
        self._groups = {
            key: (np.array([_extents(known.task) for known in members], np.int64), members)
            for key, members in groups.items()
            if len(members) > 1
        }

    def predict(self, task: Task) -> Estimate | None:
        groups = (self._groups[key] for key in _keys(task) if key in self._groups)
        return next((found for group in groups if (found := self._within(task, *group)) is not None), None)

    def _within(self, task: Task, rows: npt.NDArray[np.int64], members: Sequence[MeasuredTask]) -> Estimate | None:
        own = np.array(_extents(task), np.int64)
        low, high = np.flatnonzero((rows <= own).all(axis=1)), np.flatnonzero((rows >= own).all(axis=1))
        if not len(low) or not len(high):
            return None
        (below, least), (above, most) = (_side(rows, own, some, members) for some in (low, high))
        if most > _APART * least:
            return None
        share = (_size(task) - least) / (most - least) if most > least else 0.5
        return Estimate(below + min(max(share, 0.0), 1.0) * (above - below), "between measured")


def _side(
    rows: npt.NDArray[np.int64], own: npt.NDArray[np.int64], some: IntColumn, members: Sequence[MeasuredTask]
) -> tuple[float, int]:
    """Return the nearest task's time (ns) and size. If a CPU task has few measurements, use the median of near ones."""
    apart = np.abs(np.log2(rows[some] + 1.0) - np.log2(own + 1.0)).sum(axis=1)
    order = np.argsort(apart, kind="stable")[:_ENOUGH]
    near = [members[int(some[at])] for at in order if apart[at] <= apart[order[0]] + _SIMILAR]
    times = np.array([near[0].ns] if near[0].count >= _ENOUGH or near[0].task.kernel else [known.ns for known in near])
    return float(np.median(times)), _size(near[0].task)


def _keys(task: Task) -> Sequence[Hashable]:
    ranks = tuple((len(tensor.shape), tensor.dtype) for tensor in (*task.inputs, *task.outputs))
    common = task.op, task.category, task.device, task.place, len(task.inputs), ranks
    return tuple((kernel, *common) for kernel in dict.fromkeys((task.kernel, "")))


def _extents(task: Task) -> list[int]:
    return [extent for tensor in (*task.inputs, *task.outputs) for extent in tensor.shape]


def _size(task: Task) -> int:
    return max(task.flops or task.bytes or sum(tensor.numel for tensor in (*task.inputs, *task.outputs)), 1)


# Extrapolate only to tasks that are 1.2 to 16 times as large as the largest measured task.
_BEYOND, _MOST = 1.2, 16


class Extrapolated(FromMeasured):
    """Extrapolates to tasks larger than every measured task with the same operator, kernel and device.

    The fixed cost is the minimum measured time; if all tasks have one size, it is at most the category's median time.
    Beyond the fixed cost, the time of a measured task grows with FLOPs or bytes. Two tasks are tried: the nearest in
    size, and the one with the fewest differing dimensions, such as the same layer at a smaller batch size. The smaller
    result is used, because the larger result comes from a task with more fixed cost.
    """

    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        groups = defaultdict[tuple[str, ...], list[MeasuredTask]](list)
        usual = defaultdict[tuple[str, str], list[float]](list)
        for known in measured:
            usual[known.task.category, known.task.device].append(known.ns)
            if _amount(known.task):
                groups[_key(known.task)].append(known)
        self._groups = {}
        for key, members in groups.items():
            sizes = {_amount(known.task) for known in members}
            base = min(known.ns for known in members)
            if len(sizes) == 1:
                base = min(base, float(np.median(usual[members[0].task.category, members[0].task.device])))
            self._groups[key] = members, max(sizes), base

    def predict(self, task: Task) -> Estimate | None:
        group, size = self._groups.get(_key(task)), _amount(task)
        if group is None or not _BEYOND * group[1] <= size <= _MOST * group[1]:
            return None
        members, _, base = group
        nearest = max(members, key=lambda known: _amount(known.task))
        least_changed = min(members, key=lambda known: (_changed(task, known.task), -_amount(known.task)))
        grown = (base + (near.ns - base) * size / _amount(near.task) for near in (nearest, least_changed))
        return Estimate(min(grown), "grown from measured")


def _key(task: Task) -> tuple[str, ...]:
    return task.op, task.kernel, task.category, task.device, task.dtype


def _changed(task: Task, other: Task) -> int:
    """Return the number of input dimensions that differ; `sys.maxsize` if the numbers of dimensions differ."""
    pairs = [
        extents
        for left, right in zip(task.inputs, other.inputs, strict=False)
        for extents in zip_longest(left.shape, right.shape)
    ]
    comparable = len(task.inputs) == len(other.inputs) and all(None not in extents for extents in pairs)
    return sum(left != right for left, right in pairs) if comparable else sys.maxsize


def _amount(task: Task) -> int:
    return task.flops or task.bytes or 0
