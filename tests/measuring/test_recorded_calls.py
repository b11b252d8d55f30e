"""Calls at other shapes: strides, offsets, and the numbers among arguments that say a size."""

from __future__ import annotations

from typing import Any

import pytest
from etplus.measuring.reader import recorded_calls
from etplus.measuring.recorded_calls import RecordedCall, TensorArg, _moved, _with_shape, bytes_of, dense, resized
from recorded_ops import mm, op, scalar, tensor, trace_of


def arg(shape: tuple[int, ...], strides: tuple[int, ...] | None = None, offset: int = 0, storage: int = 1) -> TensorArg:
    return TensorArg(shape, dense(shape) if strides is None else strides, "float32", 1, storage, offset, "cpu")


def test_spans() -> None:
    assert dense((2, 3, 4)) == (12, 4, 1) and dense((2, 0, 4)) == (4, 4, 1) and dense(()) == ()
    assert arg((2, 3), (5, 2), 7).span == 7 + 5 + 4 + 1 and arg((2, 0), offset=7).span == 7 and arg(()).span == 1
    assert arg((2, 3)).nbytes == 24 and arg((2, 3))._replace(dtype="other").nbytes == 96
    assert bytes_of([arg((4,)), arg((2,), offset=3), arg((1,), storage=2)]) == 20 + 4


SHAPES = [
    (arg((4, 8)), (6, 8), (8, 1), 0), (arg((4, 8), (1, 4)), (6, 8), (1, 6), 0),
    (arg((4, 8), (10, 1)), (4, 9), (11, 1), 0),
    (arg((4, 8), (0, 1)), (6, 9), (0, 1), 0), (arg((4, 8), offset=64), (2, 8), (8, 1), 32),
    (arg((4, 8), offset=65), (2, 8), (8, 1), 65), (arg((4, 8)), (3, 2, 5), (10, 5, 1), 0),
    (arg((4, 0)), (4, 3), (3, 1), 0),
]  # fmt: skip


@pytest.mark.parametrize(("old", "shape", "strides", "offset"), SHAPES)
def test_tensors_of_another_shape(old: TensorArg, shape: tuple[int, ...], strides: Any, offset: int) -> None:
    """Dimensions follow each other in memory as before; parts of larger tensors begin at multiples of their size."""
    found = _with_shape(old, shape)
    assert (found.shape, found.strides, found.offset) == (shape, strides, offset)


def test_positions_at_new_strides() -> None:
    assert _moved(2 * 8 + 3, arg((4, 8)), arg((4, 9))) == 2 * 9 + 3
    assert _moved(3, arg((4, 8), (0, 1)), arg((4, 9), (0, 1))) == 3


def only(document: Any) -> RecordedCall:
    ((_, found),) = recorded_calls(trace_of(document))
    assert isinstance(found, RecordedCall)
    return found


def ints(*values: int) -> Any:
    return scalar(list(values), f"GenericList[{','.join(['Int'] * len(values))}]")


def number(value: int) -> Any:
    return scalar(value, "Int")


X, Y = tensor(1, 4, 8), (tensor(2, 4, 8),)
NUMBERS = [
    ("view(Tensor self, int[] size)", [X, ints(4, 8)], (4, 8), [6, 8]),
    ("view(Tensor self, int[] size)", [X, ints(-1, 8)], (4, 8), [-1, 8]),
    ("view(Tensor self, int[] size)", [X, ints(5, 8)], (4, 8), [5, 8]),
    ("view(Tensor self, int[] other)", [X, ints(4, 8)], (4, 8), [4, 8]),
    ("empty_strided(int[] size, int[] stride)", [ints(4, 8), ints(8, 1)], (4, 8), [8, 1]),
    ("as_strided(Tensor self, int[] size, int[] stride, int storage_offset)", [X, ints(4, 8), ints(1, 4), number(9)],
     (4, 8), 9),
    ("narrow(Tensor self, int dim, int start, int length)", [X, number(0), number(0), number(4)], (4, 8), 6),
    ("narrow(Tensor self, int dim, int start, int length)", [X, number(1), number(0), number(4)], (4, 8), 4),
    ("slice(Tensor self, int dim, int start, int end)", [X, number(0), number(2), number(6)], (4, 8), 8),
    ("slice(Tensor self, int dim, int start, int end)", [X, number(0), number(-4), number(0)], (4, 8), 0),
    ("slice(Tensor self, int dim, int start, int end)", [X, number(0), number(2), number(9)], (4, 8), 9),
    ("arange(int end)", [number(4)], (4,), 6),
    ("range(int start, int step, int end)", [number(1), number(2), number(9)], (4,), 13),
    ("randperm(int n)", [number(5)], (4,), 5),
    ("split(Tensor self, int dim, int split_size)", [X, number(0), number(4)], (4, 8), 6),
    ("split(Tensor self, int dim, int split_size)", [X, number(2), number(4)], (4, 8), 4),
    ("native_group_norm(Tensor input, int N)", [X, number(4)], (4, 8), 6),
    ("add(Tensor self, int alpha)", [X, number(4)], (4, 8), 4),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "given", "shape", "expected"), NUMBERS)
def test_numbers_that_say_a_size(schema: str, given: list[Any], shape: tuple[int, ...], expected: Any) -> None:
    """The last argument, where tensors of 4 rows get 6."""
    name = f"aten::{schema.partition('(')[0]}"
    call = only(op(name, f"aten::{schema} -> Tensor", *given, outputs=(tensor(9, *shape),)))
    found = resized(call, [(6, 8)] * len(call.tensors), [(6, *shape[1:])])
    assert found.args[-1] == expected and found.results[0].shape[0] == 6
    assert resized(call, [(6, 8)] * len(call.tensors), []).args == call.args


def test_the_same_shapes_are_the_same_call() -> None:
    call = only(mm())
    assert resized(call, [(4, 8), (8, 2)], [(4, 2)]) is call and resized(call, [(4, 8)], [(4, 2)]) is call
    assert resized(call, [(6, 8), (8, 2)], [(6, 2)]).key == only(mm(6)).key
    assert call.needed_bytes == 4 * (32 + 16 + 8) == call.storage_bytes


def test_numbers_ask_for_memory() -> None:
    """Of factories and repetitions; not of views."""
    assert only(op("aten::zeros", "aten::zeros(int[] size) -> Tensor", ints(10, 0, -3))).needed_bytes == 8 * 30
    assert only(op("aten::arange", "aten::arange(int end) -> Tensor", number(-50))).storage_bytes == 400
    view = op("aten::view", "aten::view(Tensor self, int[] size) -> Tensor", X, ints(4, 8))
    assert only(view).needed_bytes == 128
