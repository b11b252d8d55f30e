"""Buckets of gradients, as DistributedDataParallel fills them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_FIRST = 1 << 20
"""Bytes of the first bucket (`_DEFAULT_FIRST_BUCKET_BYTES` in torch/csrc/distributed/c10d/reducer.hpp)."""


@dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced together.

    Attributes:
        parameters: their numbers, in order. elements: of all of them. dtype, itemsize: of an element.
    """

    parameters: tuple[int, ...]
    elements: int
    dtype: str
    itemsize: int


def fill_buckets(gradients: Iterable[tuple[int, int, int, str]], cap_mib: int = 25) -> list[Bucket]:
    """Fill buckets with gradients in the order in which they are ready.

    The rule of `compute_bucket_assignment_by_size` (torch/csrc/distributed/c10d/reducer.cpp): a bucket is closed as
    soon as it has its size, the first one of a type 1 MiB, later ones `cap_mib`; types have buckets of their own.

    Args:
        gradients: number of the parameter, elements, bytes of an element, and type.

    Returns:
        the buckets in the order in which their last gradients are ready.

    Example:
        >>> gradients = [(0, 200_000, 4, "float32"), (1, 100_000, 4, "float32"), (2, 5, 4, "float32")]
        >>> [one.elements for one in fill_buckets(gradients)]
        [300000, 5]
    """
    open_by_type: dict[str, list[tuple[int, int]]] = {}
    limits: dict[str, int] = {}
    sizes: dict[str, int] = {}
    closed: list[Bucket] = []

    def close(dtype: str) -> None:
        some = open_by_type.pop(dtype)
        closed.append(Bucket(tuple(n for n, _ in some), sum(count for _, count in some), dtype, sizes[dtype]))

    for number, count, size, dtype in gradients:
        sizes[dtype] = size
        limits.setdefault(dtype, _FIRST)
        some = open_by_type.setdefault(dtype, [])
        some.append((number, count))
        if size * sum(n for _, n in some) >= limits[dtype]:
            close(dtype)
            limits[dtype] = cap_mib << 20
    for dtype in list(open_by_type):
        close(dtype)
    return closed
