"""What operators return where a trace does not say: shapes and types by hand, for every form of their arguments."""

from typing import Any

import pytest
from etplus.analysis.operator_outputs import (
    _LAST_INPUT,
    REDUCTIONS,
    as_tensors,
    broadcast,
    functional,
    matmul_shape,
    plain_name,
)
from etplus.trace.tensors import Signature, Tensor
from made_calls import signature

FLOATS = "float32"


def test_plain_names_drop_namespace_overload_and_underscore() -> None:
    names = ("aten::mm.out", "aten::add_", "mm", "vllm::x.y", "aten::sum.dim_IntList")
    assert [*map(plain_name, names)] == ["mm", "add_", "mm", "vllm::x", "sum"]


@pytest.mark.parametrize(
    ("last", "name"), [(last, name) for last, names in _LAST_INPUT.items() for name in names.split()]
)
def test_tensors_behind_the_last_input_are_what_is_written(last: int, name: str) -> None:
    given = signature(*[(2, 3)] * (last + 1), 1.5, (4,))
    found = functional(f"aten::{name}.out", given)
    assert found.inputs == given.inputs[:-1] and found.outputs == (Tensor((4,), FLOATS),)
    empty = signature(*[(2, 3)] * (last + 1), (0,))
    assert functional(f"aten::{name}", empty).outputs is None, "resized by the call"
    several = signature(*[(2, 3)] * (last + 1), (4,), (5,))
    assert functional(name, several).outputs == (Tensor((4,), FLOATS), Tensor((5,), FLOATS))
    recorded = Signature(given.inputs, (Tensor((9,), "int8"),))
    assert functional(name, recorded).outputs == recorded.outputs


def test_calls_without_tensors_to_write_into_stay_as_they_are() -> None:
    for name, given in (("mm", signature((2, 3), (3, 4))), ("unheard_of", signature((2,), (3,), (4,), (5,)))):
        assert functional(name, given) is given


def test_broadcast_gives_the_common_shape_or_none() -> None:
    assert broadcast([(3, 1), (4,)]) == (3, 4) and broadcast([(2, 3, 4)]) == (2, 3, 4)
    assert broadcast([(1,), (5, 1, 2), (7, 1)]) == (5, 7, 2) and broadcast([(), (2,)]) == (2,)
    assert broadcast([(2,), (3,)]) is None and broadcast([]) is None and broadcast([(0, 3), (1, 3)]) == (0, 3)


def test_matmul_shapes_broadcast_and_mismatches_have_none() -> None:
    assert matmul_shape((2, 3), (3, 4)) == (2, 4) and matmul_shape((3,), (3,)) == ()
    assert matmul_shape((2, 3), (3,)) == (2,) and matmul_shape((3,), (3, 4)) == (4,)
    assert matmul_shape((5, 1, 2, 3), (6, 3, 4)) == (5, 6, 2, 4) and matmul_shape((3,), (7, 3, 4)) == (7, 4)
    assert matmul_shape((2, 3), (4, 3)) is None and matmul_shape((2, 2, 3), (5, 3, 4)) is None


def reduced(name: str, *arguments: Any, dtype: str = FLOATS) -> list[tuple[tuple[int, ...], str]] | None:
    (how,) = (how for names, how in REDUCTIONS.items() if name in names.split())
    returned = how.outputs(signature(*arguments, dtype=dtype))
    return None if returned is None else [(part.shape, part.dtype) for part in as_tensors(returned, FLOATS)]


def test_reductions_give_the_shape_and_type_of_their_result() -> None:
    assert reduced("sum", (2, 3), None) == [((), FLOATS)] and reduced("sum", (2, 3), 3) == [((), "int32")]
    assert reduced("sum", (2, 3, 4), [0, -1], False, None) == [((3,), FLOATS)]
    assert reduced("sum", (2, 3, 4), [1], True, 7) == [((2, 1, 4), "float64")]
    assert reduced("sum", (2, 3), [], True, None) == [((1, 1), FLOATS)]
    assert reduced("sum", (2, 3), None, dtype="bool") == [((), "int64")] == reduced("sum", (4,), None, dtype="uint8")
    assert reduced("sum", (2, 3), [0], None, None) is None, "keepdim is not recorded"
    assert reduced("mean", (2, 3), [0], False, None) == [((3,), FLOATS)]
    assert reduced("mean", (5,), None) == reduced("amax", (2, 3), [], False) == [((), FLOATS)]
    assert reduced("amax", (2, 3), [1], True) == [((2, 1), FLOATS)]
    assert reduced("max", (2, 3)) == [((), FLOATS)] and reduced("max", (2, 3), (3,)) == [((2, 3), FLOATS)]
    assert reduced("max", (2, 3), 1, False) == [((2,), FLOATS), ((2,), "int64")]
    assert reduced("max", (2, 3), (4,)) is None
    assert reduced("argmax", (2, 3), 0, False) == [((3,), "int64")]
    assert reduced("argmin", (2, 3), None, False) == [((), "int64")]
    assert reduced("all", (2, 3)) == [((), "bool")] and reduced("any", (2, 3), 0, True) == [((1, 3), "bool")]
    assert reduced("logsumexp", (2, 3), [1], False) == [((2,), FLOATS)]
    assert reduced("linalg_vector_norm", (2, 3), 2, [0], False, None) == [((3,), FLOATS)]
    assert reduced("linalg_vector_norm", (2, 3), 2, [0], True, 15) == [((1, 3), "bfloat16")]
    assert reduced("count_nonzero", (2, 3), [1], False) == [((2,), "int64")]
    assert reduced("sum", (), [0], False, None) == [((), FLOATS)]
    assert reduced("sum", [(2,), (3,)], None) is None, "several tensors"
    moved = [REDUCTIONS["mean"].moved(signature((8,), None, dtypes={0: of}, outputs=[()])) for of in (FLOATS, "odd")]
    assert moved == [36, None]
