"""Columns of numbers: their distinct rows, runs and positions, and what makes them of Python values."""

from decimal import Decimal

import numpy as np
import pytest
from etplus.trace.columns import (
    StringTable,
    among,
    decimal_ns,
    distinct,
    distinct_rows,
    exact_ns,
    grouped,
    int_column,
    inverse_positions,
    joined_columns,
    lists_by,
    mask_at,
    matching,
    median,
    percentiles_of,
    positions,
    run_starts,
    scatter,
    without,
)
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.integers(-3, 3) | st.sampled_from([2**62, -(2**62), 2**31])


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=20))
def test_distinct_rows_are_sorted_and_give_the_table_back(rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, np.int64).reshape(-1, 3)
    found, inverse = distinct_rows(*table.T)
    assert list(map(tuple, found.tolist())) == sorted(set(rows))
    assert found[inverse].tolist() == table.tolist()
    positions = {key: [at for at, row in enumerate(rows) if row == key] for key in rows}
    assert {key: at.tolist() for key, at in grouped(*table.T)} == positions


@given(st.lists(NUMBERS, max_size=20), st.lists(NUMBERS, max_size=20))
def test_distinct_among_and_without_agree_with_python_sets(some: list[int], others: list[int]) -> None:
    values, gone = np.array(some, np.int64), np.array(others, np.int64)
    assert distinct(values).tolist() == sorted(set(some))
    assert among(values, gone).tolist() == [value in others for value in some]
    assert without(values, gone).tolist() == sorted(set(some) - set(others))


near, far = st.integers(-20, 20), st.sampled_from([-(2**63), -(2**40), -1, 0, 7, 2**40, 2**63 - 1])
columns = st.lists(near, max_size=30) | st.lists(near | far, max_size=30)


@given(columns, columns)
def test_values_are_found_at_their_first_position_or_minus_one(among: list[int], wanted: list[int]) -> None:
    found = positions(np.array(among, np.int64), np.array(wanted, np.int64))
    assert found.tolist() == [among.index(value) if value in among else -1 for value in wanted]


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=10))
def test_runs_start_where_a_row_differs_from_the_one_before(rows: list[tuple[int, int]]) -> None:
    table = np.array(rows)
    expected = [at == 0 or rows[at] != rows[at - 1] for at in range(len(rows))]
    assert run_starts(table[:, 0], table[:, 1]).tolist() == expected


def test_texts_are_interned_in_order() -> None:
    table = StringTable(["b"])
    assert table.codes(["a", "b", "c", "a"]).tolist() == [1, 0, 2, 1] and table.values == ["b", "a", "c"]
    assert (table.code("c"), table.code("x")) == (2, -1) and table.values == ["b", "a", "c"], "asking adds nothing"
    assert table.recode(["y", "c", "z"], np.array([2, 1, 0, 2])).tolist() == [3, 2, 4, 3], "by first appearance"


def test_columns_masks_and_lists_are_built_from_positions() -> None:
    assert scatter(4, [2, 0], np.array([7, 8])).tolist() == [8, -1, 7, -1]
    assert scatter(3, [1], np.array([7.5]), 0).tolist() == [0, 7.5, 0]
    assert mask_at(4, np.array([3, 1])).tolist() == [False, True, False, True]
    assert inverse_positions(4, np.array([3, 1])).tolist() == [-1, 1, -1, 0]
    assert lists_by([7, 5, 7], [3, 2, 1]) == {7: [3, 1], 5: [2]}


def test_parts_are_joined_and_emptied() -> None:
    parts = [{"a": np.array([1]), "b": np.array([2])}, {"a": np.array([3, 4]), "b": np.array([5, 6])}]
    joined = joined_columns(parts)
    assert {name: column.tolist() for name, column in joined.items()} == {"a": [1, 3, 4], "b": [2, 5, 6]}
    assert parts == [{}, {}] and joined_columns([]) == {}


@given(st.integers(0, 2**43 * 1000 - 1))
def test_times_in_microseconds_convert_to_exact_ns(ns: int) -> None:
    us = Decimal(ns) / 1000
    assert exact_ns(np.array([float(us)])).tolist() == decimal_ns([us]).tolist() == [ns]


def test_a_time_that_is_not_written_is_none() -> None:
    assert decimal_ns([None, Decimal("1.0004"), Decimal("1.0006"), Decimal(-2)]).tolist() == [0, 1000, 1001, -2000]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(5, 5), (-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1), (2**63, -7), (-(2**63) - 1, -7), (2.0, 2), (2.5, -7),
     (True, -7), (None, -7), ("3", -7), (float("inf"), -7), (float("nan"), -7), (1e300, -7), ([], -7)],
)  # fmt: skip
def test_values_that_are_no_integers_are_missing(value: object, expected: int) -> None:
    assert int_column([value], -7).tolist() == [expected]
    assert int_column([1, value, 2], -7).tolist() == [1, expected, 2]
    assert int_column([], -7).dtype == np.int64


@given(st.lists(st.integers(-(10**12), 10**12) | st.floats(-1e6, 1e6), min_size=1, max_size=20), st.integers(0, 100))
def test_medians_and_percentiles_are_those_of_numpy(values: list[float], percent: int) -> None:
    column = np.array(values, np.float64)
    assert median(column) == np.median(column) and np.isnan(median([]))
    assert percentiles_of(column, percent, 25) == np.percentile(column, [percent, 25]).tolist()


@given(st.lists(st.text("ab", max_size=2), unique=True), st.lists(st.integers(0, 50)))
def test_rows_by_name_are_those_of_a_look_at_every_row(values: list[str], numbers: list[int]) -> None:
    codes = np.array([n % len(values) for n in numbers] if values else [], np.int32)
    found = matching(codes, values, lambda value: value.startswith("a"))
    assert found.dtype == np.bool_ and found.tolist() == [values[code].startswith("a") for code in codes]
