"""Operators of serving frameworks: bytes of norms, rotations and caches, one thing off at a time."""

from __future__ import annotations

from typing import Any

from etplus.analysis.serving import moved_cache, moved_in_place, moved_rotary, norm_with_add
from etplus.trace.tensors import Argument, Signature, Tensor


def signature(*arguments: Any, dtypes: dict[int, str] | None = None) -> Signature:
    """Tuples are shapes, everything else is a value."""
    dtypes = dtypes or {}
    return Signature(tuple(
        Argument((Tensor(one, dtypes.get(at, "float32")),)) if isinstance(one, tuple) else Argument((), one)
        for at, one in enumerate(arguments)
    ))  # fmt: skip


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
