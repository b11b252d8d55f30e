"""Calls at other shapes: strides, offsets, and the numbers among arguments that say a size."""

from typing import Any

import pytest
from etplus.planning.measure.recorded_calls import (
    RecordedCall,
    TensorArg,
    _moved,
    _with_shape,
    dense,
    resized,
)
from recorded_ops import mm, op, read_call, scalar, tensor


def arg(shape: tuple[int, ...], strides: tuple[int, ...] | None = None, offset: int = 0, storage: int = 1) -> TensorArg:
    return TensorArg(shape, dense(shape) if strides is None else strides, "float32", 1, storage, offset, "cpu")


def test_spans_and_moved_offsets_follow_from_shapes_and_strides() -> None:
    assert dense((2, 3, 4)) == (12, 4, 1) and dense((2, 0, 4)) == (4, 4, 1) and dense(()) == ()
    assert arg((2, 3), (5, 2), 7).span == 7 + 5 + 4 + 1 and arg((2, 0), offset=7).span == 7 and arg(()).span == 1
    assert _moved(2 * 8 + 3, arg((4, 8)), arg((4, 9))) == 2 * 9 + 3
    assert _moved(3, arg((4, 8), (0, 1)), arg((4, 9), (0, 1))) == 3
    assert arg((2, 3)).nbytes == 24 and arg((2, 3))._replace(dtype="other").nbytes == 96


SHAPES = [
    (arg((4, 8)), (6, 8), (8, 1), 0), (arg((4, 8), (1, 4)), (6, 8), (1, 6), 0),
    (arg((4, 8), (10, 1)), (4, 9), (11, 1), 0),
    (arg((4, 8), (0, 1)), (6, 9), (0, 1), 0), (arg((4, 8), offset=64), (2, 8), (8, 1), 32),
    (arg((4, 8), offset=65), (2, 8), (8, 1), 65), (arg((4, 8)), (3, 2, 5), (10, 5, 1), 0),
    (arg((4, 0)), (4, 3), (3, 1), 0),
]  # fmt: skip


@pytest.mark.parametrize(("old", "shape", "strides", "offset"), SHAPES)
def test_resized_tensors_keep_their_layout(old: TensorArg, shape: tuple[int, ...], strides: Any, offset: int) -> None:
    found = _with_shape(old, shape)
    assert (found.shape, found.strides, found.offset) == (shape, strides, offset)


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
    ("add(Tensor self, int n)", [X, number(4)], (4, 8), 4),
    ("narrow(Tensor self, int dim, int start)", [X, number(0), number(4)], (4, 8), 4),
    ("narrow(Tensor self, int dim, int length)", [X, number(-2), number(4)], (4, 8), 6),
    ("narrow(Tensor self, int dim, int length)", [X, number(2), number(4)], (4, 8), 6),
    ("narrow(Tensor self, int dim, int length)", [X, number(-3), number(4)], (4, 8), 6),
    ("arange(int start, int end)", [number(3), number(7)], (4,), 9),
    ("arange(int start, int step, int end)", [number(1), number(2), number(8)], (4,), 8),
    ("slice(Tensor self, int dim, int start, int end)", [X, number(0), number(0), number(4)], (4, 8), 6),
    ("slice(Tensor self, int dim, int start, int end)", [X, number(0), number(-1), number(3)], (4, 8), 3),
    ("split(Tensor self, int split_size, int dim)", [X, number(4), number(0)], (4, 8), 0),
    ("split(Tensor self, int dim, int split_size)", [X, number(-2), number(4)], (4, 8), 6),
    ("split(Tensor self, int dim, int split_size)", [X, number(-3), number(4)], (4, 8), 4),
    ("split(Tensor self, int split_size)", [X, number(4)], (4, 8), 6),
    ("group_norm(Tensor input, int N)", [X, number(4)], (4, 8), 4),
    ("as_strided(Tensor self, int storage_offset)", [X, number(0)], (4, 8), 0),
    ("view(Tensor self, int storage_offset)", [X, number(9)], (4, 8), 9),
    ("as_strided(Tensor self, int[] stride)", [X, ints(1, 4)], (4, 8), [8, 1]),
    ("view(Tensor self, int[] stride)", [X, ints(4, 8)], (4, 8), [4, 8]),
    ("view(Tensor self, int[] size)", [X, ints(4, 8, 1)], (4, 8), [4, 8, 1]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "given", "shape", "expected"), NUMBERS)
def test_size_numbers_follow_the_shapes(schema: str, given: list[Any], shape: tuple[int, ...], expected: Any) -> None:
    name = f"aten::{schema.partition('(')[0]}"
    call = read_call(op(name, f"aten::{schema} -> Tensor", *given, outputs=(tensor(9, *shape),)))
    found = resized(call, [(6, 8)] * len(call.tensors), [(6, *shape[1:])])
    assert found.args[-1] == expected and found.results[0].shape[0] == 6
    assert resized(call, [(6, 8)] * len(call.tensors), []).args == call.args


def test_resizing_to_the_same_shapes_gives_the_same_call() -> None:
    call = read_call(mm())
    assert resized(call, [(4, 8), (8, 2)], [(4, 2)]) is call and resized(call, [(4, 8)], [(4, 2)]) is call
    assert resized(call, [(6, 8), (8, 2)], [(6, 2)]).key == read_call(mm(6)).key
    assert call.needed_bytes == 4 * (32 + 16 + 8)


def test_only_sizes_of_operators_that_allocate_need_memory() -> None:
    def asked(name: str, kind: str, value: Any, op_name: str = "x") -> int:
        schema = f"aten::{op_name}({kind} {name}) -> Tensor"
        return read_call(op(f"aten::{op_name}", schema, value)).needed_bytes

    assert asked("size", "int[]", ints(5, 5)) == 200 and asked("other", "int[]", ints(5, 5)) == 0
    assert asked("output_size", "int[]", ints(3)) == 24 == asked("output_size", "int", number(3))
    assert asked("size", "int", number(3)) == 0 and asked("size", "int[]", scalar([], "GenericList[]")) == 0
    assert asked("n", "int", number(7)) == 56 and asked("k", "int", number(7)) == 0
    assert asked("n", "bool", scalar(True, "Bool")) == 0 and asked("size", "int[]", ints(0, 0)) == 8
    for free in ("slice", "slice_", "slice_backward", "view", "expand", "reshape", "_unsafe_view", "narrow"):
        assert asked("size", "int[]", ints(5, 5), free) == 0
    both = op(
        "aten::x", "aten::x(int[] size, int[] pad, int m, int n) -> Tensor", ints(2, 2), ints(3), number(9), number(8)
    )
    assert read_call(both).needed_bytes == 72


def test_a_call_lists_its_tensors_with_storages_offsets_and_fills() -> None:
    given = [tensor(1, 4, dtype="long int", storage=7, offset=100), tensor(2, 3, storage=8, offset=5),
             tensor(3, 2, storage=7, offset=110)]  # fmt: skip
    schema = "aten::embedding_dense_backward(Tensor indices, Tensor g, Tensor h, int num_weights) -> Tensor"
    out = (tensor(9, 2, storage=7),)
    call = read_call(op("aten::embedding_dense_backward", schema, *given, number(50), outputs=out))
    made = [
        {"shape": [4], "strides": [1], "dtype": "int64", "offset": 0, "storage": 0, "cpu": False,
         "fill": {"kind": "index", "low": 0, "high": 50}},
        {"shape": [3], "strides": [1], "dtype": "float32", "offset": 0, "storage": 1, "cpu": False,
         "fill": {"kind": "uniform"}},
        {"shape": [2], "strides": [1], "dtype": "float32", "offset": 10, "storage": 0, "cpu": False,
         "fill": {"kind": "uniform"}},
    ]  # fmt: skip
    assert call.call == {
        "op": "aten::embedding_dense_backward", "overload": "", "names": ["indices", "g", "h", "num_weights"],
        "args": [{"tensor": 0}, {"tensor": 1}, {"tensor": 2}, 50], "tensors": made,
    }  # fmt: skip
    assert call.places == [("indices", 0), ("g", 0), ("h", 0)]
    assert call.needed_bytes == 8 * 104 + 4 * 3
    apart = read_call(op("aten::add", "aten::add(Tensor a, Tensor b) -> Tensor", given[0], given[2]))
    assert apart.needed_bytes == 4 * 12


def listed(*shapes: tuple[int, ...], more: tuple[Any, ...] = ()) -> RecordedCall:
    parts = [tensor(at + 1, *shape) for at, shape in enumerate(shapes)]
    values, extents, types, strides = (list(column) for column in zip(*parts, strict=True))
    given = (values, extents, f"GenericList[{','.join(types)}]", strides)
    schema = f"aten::cat(Tensor[] tensors{''.join(f', Tensor[] t{at}' for at in range(len(more)))}) -> Tensor"
    return read_call(op("aten::cat", schema, given, *more, outputs=(tensor(9, 6, storage=1030),)))


def test_a_list_argument_is_resized_to_more_or_fewer_tensors() -> None:
    call = listed((4,), (2,))
    more = resized(call, [(4,), (2,), (3,), (5,)], [(14,)])
    assert more.args == ([{"tensor": at} for at in range(4)],) and [one.shape for one in more.tensors] == [
        (4,), (2,), (3,), (5,),
    ]  # fmt: skip
    assert [(one.id, one.storage) for one in more.tensors] == [(1, 1001), (2, 1002), (1031, 1031), (1032, 1032)]
    fewer = resized(call, [(7,)], [(7,)])
    assert fewer.args == ([{"tensor": 0}],) and [one.id for one in fewer.tensors] == [1]
    assert resized(call, [], [(6,)]) is call
    one = tensor(5, 3)
    several = listed((4,), (2,), more=(([one[0]], [one[1]], f"GenericList[{one[2]}]", [one[3]]),))
    assert resized(several, [(4,), (2,)], [(6,)]) is several
    alone = read_call(op("aten::relu", "aten::relu(Tensor x) -> Tensor", X, outputs=Y))
    assert resized(alone, [(4, 8), (4, 8)], [(4, 8)]) is alone
