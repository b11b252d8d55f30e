"""Tensors found in the text of nodes are those that decoding it finds."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from etplus.schemas.execution_trace.tensors import tensor_uses
from etplus.trace.tensors import MAX_STORAGE, TensorUses
from hypothesis import given
from hypothesis import strategies as st
from support import examples

Found = tuple[int, bool, int, int, int, int, str]


def node(inputs: list[Any], outputs: list[Any]) -> bytes:
    return json.dumps({"inputs": {"values": inputs}, "outputs": {"values": outputs}}).encode()


def rows(found: TensorUses) -> list[Found]:
    columns = (found.node, found.output, found.argument, found.storage, found.begin, found.end)
    each = zip(*(column.tolist() for column in columns), strict=True)
    return [(*row, found.device(i)) for i, row in enumerate(each)]


def by_decoding(nodes: list[tuple[list[Any], list[Any]]]) -> Iterator[Found]:
    for i, sides in enumerate(nodes):
        for side, values in enumerate(sides):
            for argument, value in enumerate(values):
                for _, storage, offset, numel, itemsize, device in tensors_in(value):
                    if 0 < storage < MAX_STORAGE and numel > 0 and 0 < itemsize <= 999:
                        begin = offset * itemsize
                        yield i, bool(side), argument, storage, begin, begin + numel * itemsize, device


def tensors_in(value: Any) -> Iterator[list[Any]]:
    if isinstance(value, list):
        if len(value) == 6 and isinstance(value[5], str) and all(type(part) is int for part in value[:5]):
            yield value
        else:
            for part in value:
                yield from tensors_in(part)


def test_tensors_are_found_with_storage_byte_range_and_device() -> None:
    first = node(
        [[7, 8, 2, 24, 8, "cpu"], 3, [[1, 9, 0, 1, 4, "cuda:0"], [2, 9, 5, 2, 4, "cuda:1"]]], [[3, 10, 0, 6, 2, "cpu"]]
    )
    assert rows(tensor_uses([first, b"no node", node([], ["x", [4, 11, 1, 1, 1, "meta"]])])) == [
        (0, False, 0, 8, 16, 208, "cpu"), (0, False, 2, 9, 0, 4, "cuda:0"), (0, False, 2, 9, 20, 28, "cuda:1"),
        (0, True, 0, 10, 0, 12, "cpu"), (2, True, 1, 11, 1, 2, "meta"),
    ]  # fmt: skip
    assert rows(tensor_uses([])) == [] == rows(tensor_uses([node([], [])]))


@pytest.mark.parametrize(
    "tensor",
    [
        [1, 0, 0, 1, 4, "cpu"], [1, MAX_STORAGE, 0, 1, 4, "cpu"], [1, 2, 0, 0, 4, "cpu"], [1, 2, 0, 1, 0, "cpu"],
        [1, 2, 0, 1, 1000, "cpu"], [1, 2, -1, 1, 4, "cpu"], [-1, 2, 0, 1, 4, "cpu"], [1, 2, 0, 1, 4],
        [1, 2, 0, 1, 4, 5], [1, 2, 0, 10**15, 4, "cpu"], [1.5, 2, 0, 1, 4, "cpu"], [1, 2, 0, 1, 4, "cpu", 0],
        [None, 2, 0, 1, 4, "cpu"], [1, 2, 0, 1, [4], "cpu"],
    ],
)  # fmt: skip
def test_values_that_are_no_valid_tensor_are_skipped(tensor: list[Any]) -> None:
    assert rows(tensor_uses([node([tensor, [5, 6, 0, 1, 4, "cpu"]], [])])) == [(0, False, 1, 6, 0, 4, "cpu")]


def test_the_largest_storage_and_offset_are_read_exactly() -> None:
    largest = [10**15 - 1, MAX_STORAGE - 1, 10**15 - 1, 1, 999, "cpu"]
    begin = (10**15 - 1) * 999
    assert rows(tensor_uses([node([largest], [])])) == [(0, False, 0, MAX_STORAGE - 1, begin, begin + 999, "cpu")]


def test_texts_beside_tensors_are_skipped_whatever_is_in_them() -> None:
    odd = ['a [1,2,3,4,5,"cpu"] "b\\" [[', "]]\\", {"a": [1, 2, 3]}, "", None, True]
    assert rows(tensor_uses([node([*odd, [1, 2, 0, 3, 4, "cpu"]], odd)])) == [(0, False, 6, 2, 0, 12, "cpu")]


TENSOR = st.tuples(
    st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.integers(0, 20), st.integers(0, 8),
    st.sampled_from(["cpu", "cuda:0"]),
).map(list)  # fmt: skip
VALUE = st.recursive(
    TENSOR | st.integers(-5, 5) | st.sampled_from(["", "x", '"', "[1,2,3,4,5]", "\\"]), st.lists, max_leaves=6
)
SIDE = st.lists(VALUE, max_size=4)


@examples(50)
@given(st.lists(st.tuples(SIDE, SIDE), max_size=4))
def test_tensor_uses_equal_those_found_by_decoding(nodes: list[tuple[list[Any], list[Any]]]) -> None:
    assert rows(tensor_uses([node(*sides) for sides in nodes])) == list(by_decoding(nodes))


@given(st.lists(st.integers(0, 3), max_size=12))
def test_nodes_with_equal_texts_have_the_tensors_of_one(picks: list[int]) -> None:
    tensor = [[7, 1, 0, 4, 4, "cpu"], [8, 2, 1, 3, 8, "cuda:0"], [9, 3, 0, 0, 4, "cpu"]]
    known = [node([], []), node(tensor, []), node(tensor[:1], tensor[1:]), node([], tensor[:2])]
    found = tensor_uses(known).of(np.array(picks, np.int64))
    assert rows(found) == rows(tensor_uses([known[k] for k in picks]))
