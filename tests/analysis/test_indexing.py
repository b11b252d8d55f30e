"""Bytes of operators that index, counted for small tensors."""

from __future__ import annotations

from typing import Any

import pytest
from etplus.analysis.flops import bytes_moved
from etplus.trace.tensors import Argument, Signature, Tensor


def index(*shape: int) -> Tensor:
    return Tensor(shape, "int64")


def values(*shape: int) -> Tensor:
    return Tensor(shape, "float32")


def moved(op: str, *arguments: Any, outputs: tuple[Tensor, ...] | None = None) -> int | None:
    inputs = [Argument((one,)) if isinstance(one, Tensor) else Argument((), one) for one in arguments]
    return bytes_moved(f"aten::{op}", Signature(tuple(inputs), outputs))


@pytest.mark.parametrize(
    ("op", "arguments", "size"),
    [
        ("index_select", (values(100, 8), 0, index(5)), 2 * 4 * 5 * 8 + 8 * 5),
        ("index_select", (values(100, 8), "0", index(5)), 2 * 4 * 5 * 8 + 8 * 5),
        ("index_select", (values(100, 8), 1, index(5)), None),
        ("index_select", (values(2, 8), 0, index(5)), 4 * 2 * 8 + 4 * 5 * 8 + 8 * 5),  # the table at most once
        ("gather", (values(100, 8), 1, index(5, 2)), 2 * 4 * 10 + 8 * 10),
        ("take", (values(100, 8), index(6)), 2 * 4 * 6 + 8 * 6),
        ("index", (values(100, 8), index(6)), None),
        ("embedding", (values(100, 8), index(2, 3)), 2 * 4 * 6 * 8 + 8 * 6),
        ("embedding", (values(100, 8), None), None),
        ("index_add", (values(100, 8), 0, index(5), values(5, 8)), 8 * 5 + 2 * 4 * 5 * 8),
        ("scatter", (values(100, 8), 0, index(5, 8), 1.5), 8 * 40 + 4 * 40),
        ("scatter_add", (values(100, 8), 0, index(5, 8), values(9, 9)), 8 * 40 + 2 * 4 * 40),
        ("nll_loss_forward", (values(10, 50), index(10), None, 1, -100), 8 * 10 + 4 * 10),
        ("nll_loss_forward", (values(10, 50), values(10), None, 1, -100), None),
        ("embedding_dense_backward", (values(6, 8), index(6), 100, -1, False), 4 * 6 * 8 + 8 * 6),
        ("index_put_", (values(100, 8), index(5), values(5, 8), False), 8 * 5 + 2 * 4 * 5 * 8),
        ("embedding_bag", (values(100, 8), index(6), index(2)), None),
    ],
)  # fmt: skip
def test_bytes(op: str, arguments: tuple[Any, ...], size: int | None) -> None:
    assert moved(op, *arguments) == size


def test_what_is_returned_is_taken_where_it_is_recorded() -> None:
    assert moved("index", values(100, 8), index(6), outputs=(values(6, 8),)) == 2 * 4 * 48 + 8 * 6
    assert moved("gather", values(100, 8), 1, index(5, 2), outputs=(values(3),)) == 2 * 4 * 3 + 8 * 10
