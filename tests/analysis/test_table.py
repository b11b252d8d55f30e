"""Rows and tables: what columns print, names of the columns of JSON, rates."""

from __future__ import annotations

import pytest
from etplus.analysis.breakdown import BreakdownRow
from etplus.analysis.table import SCALES, Column, Row, Table, WithMean, per_second


class Plain(WithMean, Row):
    names_of: tuple[str, ...]
    count: int
    total_ns: int
    hidden: int = 7

    derived = ("mean_ns",)
    left_out = ("hidden",)
    joined = ("names_of", " + ")


ROW = Plain(("a", "b"), 4, 6_000_000)


def test_columns_of_json() -> None:
    assert Plain.names() == ["names_of", "count", "total_ns", "mean_ns"]
    assert ROW.plain() == {"names_of": "a + b", "count": 4, "total_ns": 6_000_000, "mean_ns": 1_500_000.0}
    assert Table(Plain, [ROW]).plain() == [ROW.plain()] and Table(Plain).plain() == []


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        (Column("", "count"), 4), (Column("", "names_of"), ("a", "b")), (Column("", lambda row: row.count + 1), 5),
        (Column("", "total_ns", "ms"), "6.000"), (Column("", "total_ns", "ms", 0), "6"),
        (Column("", "total_ns", "µs"), "6,000.00"), (Column("", "total_ns", "MB"), "6.000"),
        (Column("", lambda row: 0.5, "share"), "50.0%"), (Column("", lambda row: 2.5e12, "TFLOP/s"), "2.50"),
    ],
)  # fmt: skip
def test_cells(column: Column, cell: object) -> None:
    assert column.cell(ROW) == cell
    assert column.unit is None or column.unit in SCALES


@pytest.mark.parametrize(
    ("amount", "ns", "rate"),
    [(30, 2_000, 15e6), (0, 5, 0.0), (None, 5, None), (3, 0, None), (3, None, None), (None, 0, None)],
)  # fmt: skip
def test_rates(amount: float | None, ns: float | None, rate: float | None) -> None:
    assert per_second(amount, ns) == rate


def test_a_mean_is_of_the_count() -> None:
    row = BreakdownRow(0, 0, (), "op", "", "k", "kernel", 4, 10, 0.5)
    assert row.mean_ns == 2.5 and row.label == "op"
