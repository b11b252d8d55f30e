"""Operators of serving frameworks: counts of experts, bytes of norms, rotations and caches, one thing off at a time."""

from __future__ import annotations

from typing import Any

import pytest
from etplus.analysis.serving import experts_flops, moved_cache, moved_in_place, moved_rotary, norm_with_add
from etplus.trace.tensors import Argument, Signature, Tensor

EXPERTS = [(6, 4), (8, 10, 4), (8, 4, 5), (6, 2), (6, 2)]
"""Six tokens of 4 numbers, eight experts with gated intermediate states of 5, two of them for each token."""


def signature(*arguments: Any, dtypes: dict[int, str] | None = None) -> Signature:
    """Tuples are shapes, everything else is a value."""
    dtypes = dtypes or {}
    return Signature(tuple(
        Argument((Tensor(one, dtypes.get(at, "float32")),)) if isinstance(one, tuple) else Argument((), one)
        for at, one in enumerate(arguments)
    ))  # fmt: skip


def test_experts() -> None:
    assert experts_flops(signature(*EXPERTS)) == 2 * 6 * 2 * (10 * 4 + 4 * 5)
    plain = [(6, 4), (8, 5, 4), (8, 4, 5), (6, 2), (6, 2)]
    assert experts_flops(signature(*plain)) == 2 * 6 * 2 * (5 * 4 + 4 * 5), "without a gate"
    assert experts_flops(signature((2, 3, 4), *EXPERTS[1:])) == 2 * 6 * 2 * (10 * 4 + 4 * 5)
    assert experts_flops(signature(*EXPERTS, None, (8,), 3)) == 2 * 6 * 2 * (10 * 4 + 4 * 5)
    for dtype in ("int32", "uint8", ""):
        assert experts_flops(signature(*EXPERTS, (8,), dtypes={5: dtype})) is None, "a map of experts"


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_experts_whose_extents_do_not_fit(at: int, axis: int | None) -> None:
    shapes: list[tuple[int, ...] | None] = [*EXPERTS]
    shape = EXPERTS[at]
    if axis is None:
        shapes[at] = None
    elif axis >= len(shape):
        shapes[at] = (*shape, 1)
    else:
        shapes[at] = (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :])
    assert experts_flops(signature(*shapes)) is None


def test_norms() -> None:
    assert norm_with_add(signature((3, 4), (3, 4))) == [(3, 4), (3, 4)] and norm_with_add(signature(None)) is None
    assert moved_in_place(signature((3, 4), (3, 4), (4,), 1e-5)) == 4 * (4 * 12 + 4)


def test_a_rotation_touches_what_it_rotates() -> None:
    """Five positions; 2 heads of the query and 1 of the key, of 8 numbers, of which 6 are rotated."""
    call = signature((5,), (5, 16), (5, 8), 8, (100, 6), True, dtypes={0: "int64", 1: "float16", 2: "float16"})
    assert moved_rotary(call) == 5 * 8 + 5 * 6 * 4 + 2 * 2 * 6 * (10 + 5)
    assert moved_rotary(signature((5,), (5, 16), (5, 8), None, (100, 6))) is None


def test_a_cache_is_written_row_by_row() -> None:
    call = signature(
        (5, 16), (5, 8), (1000, 16), (1000, 8), (5,), dtypes={2: "float8_e4m3fn", 3: "float16", 4: "int64"}
    )
    assert moved_cache(call) == 4 * 5 * (16 + 8) + 5 * 16 + 2 * 5 * 8 + 5 * 8
