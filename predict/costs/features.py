"""Numbers that describe tasks, and distances between tasks."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from functools import cache
from math import log2

import numpy as np
import numpy.typing as npt

from .task import Task

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
        _log(task.bytes), _log(task.flops), _log(sizes[0] if sizes else 0), _log(sum(sizes)),
        _log(sum(tensor.numel for tensor in task.outputs)), float(len(sizes)), float(task.place),
        _log(task.group_size),
    ]  # fmt: skip
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


def class_keys(task: Task) -> tuple[Hashable, ...]:
    """From narrow to wide, the classes that a task belongs to; None where it belongs to none."""
    op = task.op or None
    return (
        (0, task.device, task.kernel, op, task.place),
        (1, task.device, task.kernel, op),
        (2, task.device, task.kernel) if task.kernel else None,
        (3, task.device, family(task.kernel)) if task.kernel else None,
        op and (4, task.device, op, task.place),
        op and (5, task.device, op),
        (6, family(task.kernel)) if task.kernel else None,
        (7, task.device, task.category),
        (8, task.category),
    )
