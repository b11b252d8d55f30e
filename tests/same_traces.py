"""Whether two traces are the same, column by column, and with the same texts."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec
import numpy as np
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.trace import Trace


def assert_same(one: Any, other: Any, where: str = "trace") -> None:
    """Equal values; columns have equal types, and JSON may differ in white space."""
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and np.array_equal(one, other), where
    elif isinstance(one, Mapping):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, msgspec.Raw):
        assert bytes(one).split() == bytes(other).split(), where
    elif is_dataclass(one) and not isinstance(one, type):
        for field in fields(one):
            if field.name not in ("file", "texts"):
                assert_same(getattr(one, field.name), getattr(other, field.name), f"{where}.{field.name}")
    else:
        assert one == other, where


def assert_same_trace(trace: Trace, other: Trace) -> None:
    assert_same(trace, other)
    assert_same(trace.tables, other.tables, "tables")
    rows = np.random.default_rng(1).permutation(len(trace))[:500]
    assert list(map(bytes.split, trace.texts.texts(rows))) == list(map(bytes.split, other.texts.texts(rows)))


def assert_saved_alike(trace: Trace) -> Trace:
    """The trace, if it is the one that reading its ET+ file gives."""
    assert_same_trace(trace, read_etplus(b"".join(trace.chunks())))
    return trace
