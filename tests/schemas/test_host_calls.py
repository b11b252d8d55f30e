"""Which call issued which collective on the host."""

from typing import Any

import numpy as np
import pytest
from etplus.schemas.kineto.host_calls import (
    WAIT,
    group_size_of,
    named_group,
    outermost_calls,
    pair_with_calls,
    remaining_group,
)


def test_of_calls_of_one_name_inside_each_other_the_outermost_issues() -> None:
    names = ["aten::mm", "c10d::send", "c10d::recv", "c10d::send!"]
    name, parent = np.array([1, 1, 2, 0, 1, 1, 3]), np.array([-1, 0, 1, -1, 3, -1, -1])
    timed = np.array([True, True, True, True, True, False, True])
    assert outermost_calls(parent, name, names, timed).tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    ("runs", "calls", "numbered", "expected"),
    [(["gloo:all_reduce", "gloo:send"], ["c10d::send", "c10d::allreduce_"], False, [[10, 1], [11, 0]]),
     (["gloo:recv", "gloo:recv"], ["c10d::recv_"] * 2, False, [[10, 0], [11, 1]]),
     (["gloo:recv"], ["c10d::recv_"] * 2, False, [[10, 1]]),
     (["gloo:recv"], [], False, []),
     (["gloo:recv", "gloo:recv"], ["c10d::recv_"] * 2, True, [[10, 1], [11, 1]]),
     (["a:sendrecv"], ["c10d::send"], False, [[10, 0]])],
)  # fmt: skip
def test_host_collectives_pair_with_the_calls_of_their_kind(
    runs: list[str], calls: list[str], numbered: bool, expected: list[list[int]]
) -> None:
    numbers = list(range(10, 10 + len(runs)))
    found = pair_with_calls(numbers, runs, list(range(len(calls))), calls, numbered=numbered)
    assert found.tolist() == expected and found.shape == (len(expected), 2)


def test_a_run_before_all_calls_is_paired_with_no_call() -> None:
    assert pair_with_calls([1, 5], ["x", "x"], [2, 3, 4], ["y"] * 3).tolist() == [[5, 4]]


@pytest.mark.parametrize(("values", "group"), [(["3"], "3"), ([3], None), (["4"], None), ([], None), (["3", 1], None)])
def test_the_last_input_names_the_group(values: list[Any], group: str | None) -> None:
    assert named_group(values, {"0", "3"}) == group


def tensor(elements: Any) -> list[Any]:
    return [1, 2, 0, elements, 4, "cpu"]


@pytest.mark.parametrize(
    ("call", "values", "size"),
    [
        ("allgather", [tensor(12), tensor(4)], 3), ("reduce_scatter", [tensor(4), tensor(8)], 2),
        ("allgather", [tensor(12), tensor(5)], None), ("allgather", [tensor(12), 1, tensor(4)], None),
        ("allgather", [tensor(12)], None), ("allgather", [tensor(0), tensor(4)], None),
        ("allgather", [tensor(4.0), tensor(4)], None), ("allgather", [tensor(4)[:5], tensor(4)], None),
        ("allgather", [tensor(1), tensor(1)], 1),
    ],
)  # fmt: skip
def test_group_size_is_how_often_a_shard_fits_the_full_tensor(call: str, values: list[Any], size: int | None) -> None:
    assert group_size_of(f"c10d::_{call}_base_", values) == size
    assert group_size_of(f"c10d::{call}_", values) is None


def test_the_only_group_of_a_size_that_is_not_named() -> None:
    groups = {"0": [0, 1, 2, 3], "a": [0, 1], "b": [0, 2]}
    assert [remaining_group(size, groups, {"a"}) for size in (4, 2, 3, None)] == ["0", "b", None, None]
    assert remaining_group(2, groups, ()) is None and remaining_group(2, groups, {"a", "b"}) is None
    assert remaining_group(4, groups, {"0"}) == "0"


def test_only_wait_tensor_of_functional_collectives_is_a_wait() -> None:
    names = ["_c10d_functional::wait_tensor", "c10d_functional::wait_tensor", "x::wait_tensor", "c10d_functional::wait"]
    assert [bool(WAIT.fullmatch(name)) for name in names] == [True, True, False, False]
