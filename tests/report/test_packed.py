"""Columns of a page: how wide they are, and that a block gives back what was packed."""

from __future__ import annotations

import numpy as np
import pytest
from etplus.report.packed import Field, fields_of, pack, pack_json
from pages import unpacked, unpacked_json


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ([], 1), ([127], 1), ([128], 2), ([-128], 1), ([-129], 2), ([0, 32767], 2), ([32768], 3), ([-32768, 5], 2),
        ([2**31 - 1], 4), ([2**31], 5), ([2**62], 8), ([2**63 - 1], 8),
    ],
)  # fmt: skip
def test_columns_are_as_narrow_as_their_values(values: list[int], size: int) -> None:
    columns = {"a": np.array(values, np.int64)}
    assert fields_of(columns) == [Field("a", size)]
    field = {"name": "a", "size": size, "delta": False}
    assert unpacked(pack(fields_of(columns), columns), [field], len(values))["a"] == values


def test_distances_have_room_too() -> None:
    columns = {"a": np.array([-100, 100], np.int64)}
    assert fields_of(columns, ["a"]) == [Field("a", 2, delta=True)]
    assert fields_of(columns) == [Field("a", 1)]


@pytest.mark.parametrize(
    ("values", "size"),
    [([-128], 1), ([-129], 2), ([127, 0], 1), ([128], 2), ([0, 128], 2), ([-1, 127], 2), ([-1, 126], 1), ([], 1)],
)  # fmt: skip
def test_widths_of_distances(values: list[int], size: int) -> None:
    columns = {"a": np.array(values, np.int64)}
    fields = fields_of(columns, {"a"})
    assert fields == [Field("a", size, delta=True)]
    form = [{"name": "a", "size": size, "delta": True}]
    assert unpacked(pack(fields, columns), form, len(values))["a"] == values


def test_columns_follow_one_another() -> None:
    columns = {"a": np.array([1, -300]), "b": np.array([7, 8]), "c": np.array([2**40, 2**40 + 1])}
    fields = fields_of(columns, ["c"])
    assert [(one.name, one.size, one.delta) for one in fields] == [("a", 2, False), ("b", 1, False), ("c", 6, True)]
    form = [{"name": one.name, "size": one.size, "delta": one.delta} for one in fields]
    assert unpacked(pack(fields, columns), form, 2) == {name: column.tolist() for name, column in columns.items()}


def test_a_document() -> None:
    assert unpacked_json(pack_json({"a": np.arange(3), "b": ["é"]})) == {"a": [0, 1, 2], "b": ["é"]}
