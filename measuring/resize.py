"""A recorded call at other shapes: strides, offsets, and sizes among its numbers follow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .recorded_calls import RecordedCall, TensorArg

_SIZES = {"size", "sizes", "shape", "input_sizes", "self_sizes", "output_size", "input_size"}
"""Arguments that have the shape of a result."""
_STRIDED = {"as_strided", "_reshape_alias", "empty_strided", "new_empty_strided"}


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps, the last dimension innermost."""
    steps, step = [0] * len(shape), 1
    for dim in reversed(range(len(shape))):
        steps[dim] = step
        step *= max(shape[dim], 1)
    return tuple(steps)


def resized(found: RecordedCall, given: Sequence[Sequence[int]], made: Sequence[Sequence[int]]) -> RecordedCall:
    """The call with tensors of other shapes.

    Args:
        given, made: shapes of the tensors that it takes and returns; as many as it has, else its own are kept. A call
            that takes one list of tensors alone (`stack`, `cat`) may be given more or fewer.
    """
    if len(given) != len(found.tensors):
        found = _of_another_number(found, len(given))
    taken, results = _with_shapes(found.tensors, given), _with_shapes(found.results, made)
    if taken == found.tensors and results == found.results:
        return found
    shapes = [result.shape for result in results] if len(made) == len(results) else []
    args = tuple(
        _renumbered(found, argument.name, value, shapes, taken)
        for argument, value in zip(found.schema.arguments, found.args, strict=False)
    )
    return RecordedCall(found.index, found.schema, args, taken, results)


def _of_another_number(found: RecordedCall, count: int) -> RecordedCall:
    """The call with so many tensors in its list, the last one repeated in other memory; without a list as it is."""
    lists = [at for at, value in enumerate(found.args) if isinstance(value, list) and {"tensor": 0} in value]
    if not count or len(lists) != 1 or len(found.args[lists[0]]) != len(found.tensors):
        return found
    last = found.tensors[-1]
    most = max(max(one.id, one.storage) for one in (*found.tensors, *found.results))
    more = (last._replace(id=most + at, storage=most + at) for at in range(1, count - len(found.tensors) + 1))
    tensors = (*found.tensors[:count], *more)
    args = [*found.args]
    args[lists[0]] = [{"tensor": at} for at in range(count)]
    return RecordedCall(found.index, found.schema, tuple(args), tensors, found.results)


def _with_shapes(tensors: tuple[TensorArg, ...], shapes: Sequence[Sequence[int]]) -> tuple[TensorArg, ...]:
    if len(shapes) != len(tensors):
        return tensors
    return tuple(_with_shape(old, tuple(shape)) for old, shape in zip(tensors, shapes, strict=True))


def _with_shape(old: TensorArg, shape: tuple[int, ...]) -> TensorArg:
    """A tensor of another shape whose dimensions follow each other in memory as before.

    A stride grows with the dimensions within it; gaps between elements, and broadcast dimensions, stay. A tensor that
    begins a multiple of its size into its storage (a part of a larger one) does so at the new size.
    """
    if shape == old.shape:
        return old
    if len(shape) != len(old.shape):
        return old._replace(shape=shape, strides=dense(shape))
    strides, was, now = [0] * len(shape), 1, 1
    for dim in sorted(range(len(shape)), key=lambda dim: (old.strides[dim], -dim)):
        strides[dim] = old.strides[dim] * now // was
        if old.strides[dim]:
            was, now = was * max(old.shape[dim], 1), now * max(shape[dim], 1)
    whole, made = (math.prod(one) for one in (old.shape, shape))
    offset = old.offset // whole * made if whole and old.offset % whole == 0 else old.offset
    return old._replace(shape=shape, strides=tuple(strides), offset=offset)


def _moved(offset: int, old: TensorArg, new: TensorArg) -> int:
    """An offset into a tensor, as a position of its elements, at its new strides."""
    found, left = 0, offset
    for was, now in sorted(zip(old.strides, new.strides, strict=True), reverse=True):
        if was:
            found += left // was * now
            left %= was
    return found + left


def _renumbered(
    found: RecordedCall, name: str, value: Any, results: Sequence[tuple[int, ...]], taken: Sequence[TensorArg]
) -> Any:
    """A number or list of numbers that says a size, as it is at the new shapes."""
    op = found.schema.name.removesuffix("_")
    if not results:
        return value
    was, to = found.results[0].shape, results[0]
    if isinstance(value, list) and name in _SIZES and len(value) == len(was):
        fits = all(one in (-1, extent) for one, extent in zip(value, was, strict=True))
        return [one if one == -1 else extent for one, extent in zip(value, to, strict=True)] if fits else value
    if isinstance(value, list) and name == "stride" and op in _STRIDED and len(value) == len(was):
        return list(_with_shape(found.results[0], to).strides)
    if type(value) is not int:
        return value
    if name == "storage_offset" and op == "as_strided" and taken:
        return _moved(value, found.tensors[0], taken[0])
    if name in ("length", "n", "end") and op in ("narrow", "randperm", "arange", "range", "slice"):
        dim = _number(found, "dim", 0)
        dim = dim if -len(was) <= dim < len(was) else 0
        if op == "slice":
            start = _number(found, "start", 0)
            return start + to[dim] if start >= 0 and value - start == was[dim] else value
        start, step = _number(found, "start", 0), _number(found, "step", 1)
        return start + step * to[dim] if was and value - start == step * was[dim] else value
    if name == "N" and op.startswith("native_group_norm") and taken and taken[0].shape:
        return taken[0].shape[0]
    if name == "split_size" and was:
        dim = _number(found, "dim", 0)
        return to[dim] if -len(was) <= dim < len(was) and value == was[dim] else value
    return value


def _number(found: RecordedCall, name: str, usual: int) -> int:
    for argument, value in zip(found.schema.arguments, found.args, strict=False):
        if argument.name == name and type(value) is int:
            return value
    return usual
