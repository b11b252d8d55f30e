"""Columns of numbers from many small objects, and texts of many rows of numbers."""

import msgspec
import numpy as np
import pytest
from etplus.schemas.text.json_text import NumberRows, choice, integers, joined_rows, microseconds, rows, signed
from hypothesis import given
from hypothesis import strategies as st


class _Pair(msgspec.Struct):
    a: float = -1.0
    b: float = -1.0


def columns_of(*pairs):
    return NumberRows(_Pair(), {"a": b"\xa1a", "b": b"\xa1b"}).columns([*pairs])


def test_columns_of_records_hold_their_numbers_as_integers():
    columns = columns_of(_Pair(1.0, -2.0), _Pair(), _Pair(2.0**53 - 1, 0.0))
    assert columns is not None
    assert {name: column.tolist() for name, column in columns.items()} == {"a": [1, -1, 2**53 - 1], "b": [-2, -1, 0]}


@pytest.mark.parametrize("value", [0.5, 2.0**53, -(2.0**60)])
def test_numbers_that_a_column_would_change_make_none(value):
    assert columns_of(_Pair(), _Pair(b=value)) is None


def texts(part):
    return [text.decode() for text in rows(len(part), [part])]


NUMBERS = [0, 7, 10, 99, 100, 9_999, 10_000, 10_001, 123_456_789, 10**12 - 1, 10**18 - 1, 10**18]


@pytest.mark.parametrize("most", range(1, len(NUMBERS) + 1))
def test_integers_are_padded_and_written_as_python_writes_them(most):
    column = np.array(NUMBERS[:most])
    width = len(str(NUMBERS[most - 1]))
    assert texts(integers(column)) == [str(value).rjust(width) for value in NUMBERS[:most]]
    assert texts(signed(-column)) == [str(-value).rjust(width + 1) for value in NUMBERS[:most]]
    assert texts(signed(column)) == [str(value).rjust(width + 1) for value in NUMBERS[:most]]


def test_minus_one_becomes_the_none_text_in_padded_integers():
    assert texts(integers(np.array([-1, 5]))) == ["-1", " 5"]
    assert texts(integers(np.array([-1, 5]), b"null")) == ["null", "   5"]
    assert texts(integers(np.array([12345, -1]), b"null")) == ["12345", " null"]
    assert texts(integers(np.array([-1]))) == ["-1"] and texts(integers(np.array([12, -1]))) == ["12", "-1"]


@given(st.lists(st.integers(-(10**18), 10**18), min_size=1, max_size=8))
def test_signed_numbers_are_written_as_python_writes_them_in_equal_width(values):
    found = texts(signed(np.array(values)))
    assert [text.strip() for text in found] == list(map(str, values)) and len({*map(len, found)}) == 1


@given(st.lists(st.integers(0, 10**18), min_size=1, max_size=8))
def test_times_have_three_decimals(values):
    found = texts(microseconds(np.array(values)))
    assert [text.strip() for text in found] == [f"{value // 1000}.{value % 1000:03}" for value in values]


def test_choices_and_constants_are_joined_into_padded_rows():
    part = choice(np.array([2, 0, 1, 2]), [b"a", b"", b"ccc"])
    parts = [b"<", part, b"|", integers(np.array([1, 22, 333, -1])), b">"]
    assert rows(4, parts) == [b"<ccc|  1>", b"<a  | 22>", b"<   |333>", b"<ccc| -1>"]
    assert joined_rows(4, parts) == b"".join(rows(4, parts))
    assert rows(0, parts) == [] and joined_rows(0, parts) == b""
    assert rows(2, [b"x"]) == [b"x", b"x"]
