"""Requested changes to the batch size or sequence length of a recording."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...trace.errors import UsageError

DIMENSIONS = ("batch", "seq")
_CHANGE = re.compile(r"([^=]*)=(?:(\d+):)?(\d+)", re.ASCII)
_MOST = 2**31


@dataclass(frozen=True)
class SizeChange:
    """A new size for a dimension (one of DIMENSIONS). If `recorded_size` is None, the recorded size is detected."""

    dimension: str
    new_size: int
    recorded_size: int | None = None


@dataclass(frozen=True)
class ShapeChange:
    sizes: tuple[SizeChange, ...] = ()


def batch_change(new_size: int, recorded_size: int | None = None) -> ShapeChange:
    return ShapeChange((SizeChange("batch", new_size, recorded_size),))


def parse_changes(texts: Sequence[str]) -> ShapeChange:
    """Parse texts such as "batch=128" and "seq=512:2048" (recorded:new).

    Example:
        >>> parse_changes(["batch=32:128"])
        ShapeChange(sizes=(SizeChange(dimension='batch', new_size=128, recorded_size=32),))
    """
    sizes = list(map(_size, texts))
    for name in DIMENSIONS:
        if sum(size.dimension == name for size in sizes) > 1:
            raise UsageError(f"--set {name}: given more than once; give each dimension once")
    return ShapeChange(tuple(sizes))


def _size(text: str) -> SizeChange:
    found = _CHANGE.fullmatch(text)
    if found is None:
        raise UsageError(f"--set {text!r}: give NAME=SIZE or NAME=RECORDED:SIZE in whole numbers, such as batch=128")
    name, recorded_size, new_size = found.groups()
    if name not in DIMENSIONS:
        raise UsageError(f"--set {text!r}: unknown dimension {name!r}; one of {', '.join(DIMENSIONS)}")
    change = SizeChange(name, int(new_size), None if recorded_size is None else int(recorded_size))
    if not 0 < change.new_size < _MOST or (change.recorded_size is not None and not 1 < change.recorded_size < _MOST):
        raise UsageError(f"--set {text!r}: the new size must be 1 or more, the recorded size 2 or more (below 2^31)")
    return change
