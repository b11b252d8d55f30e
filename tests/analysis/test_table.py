"""Rows and tables: what columns print, names of the columns of JSON, rates."""

import sys

import pytest
from etplus.analysis.table import (
    INFERRED,
    Row,
    Table,
    TextColumn,
    WithMean,
    column,
    derived,
    listed,
    nested,
    per_second,
)
from support import ROOT

sys.path.insert(0, str(ROOT / "docs"))

from column_docs import PAGE, with_tables


class Plain(WithMean, Row):
    names_of: tuple[str, ...] = column("name", "Names.", joined=" + ")
    count: int = column("count", "Number of them.", "n")
    total_ns: int = column("ns", "Sum of durations.")
    hidden: int = 7

    title = "sums"

    @derived("bytes/s", "bytes/s", INFERRED)
    def rate(self) -> float | None:
        """A rate.

        Not in the description.
        """
        return None


class Compared(Row):
    b: Plain | None = nested(Plain, "B")
    is_new: bool = column("yes/no", "New in B.")


ROW = Plain(("a", "b"), 4, 6_000_000)


def test_rows_become_json_objects_with_every_column() -> None:
    assert Plain.names() == ["names_of", "count", "total_ns", "mean_ns", "rate"]
    plain = {"names_of": "a + b", "count": 4, "total_ns": 6_000_000, "mean_ns": 1_500_000.0, "rate": None}
    assert ROW.plain() == plain
    assert Table(Plain, [ROW]).plain() == [plain] and Table(Plain).plain() == []
    assert Compared(None, True).plain() == {"b": None, "is_new": True}
    assert Compared(ROW, False).plain() == {"b": plain, "is_new": False}
    assert [Compared(row, False).flat()["b_count"] for row in (None, ROW)] == [None, 4]


def test_descriptions_follow_from_the_declarations() -> None:
    count, rate = Plain.columns()[1], Plain.columns()[-1]
    assert count == ("count", "count", "int64", False, "confirmed", "Number of them.", "n")
    assert rate == ("rate", "bytes/s", "float64", True, "inferred", "A rate.", "bytes/s")
    assert [(one.name, one.heading, one.null) for one in Compared.columns()[1:3]] == [
        ("b_count", "B n", True), ("b_total_ns", "B total", True),
    ]  # fmt: skip
    assert Compared.columns()[-1].dtype == "bool"


def test_cells_are_printed_in_the_unit_of_their_column() -> None:
    cells = {name.heading: name.cell(ROW) for name in Plain.text_columns()}
    assert cells == {"names of": "a, b", "n": 4, "total ms": "6.000", "mean ms": "1.500", "GB/s": None}

    class Shown(Row):
        total_ns: int = column("ns", "Time.", "time")
        part: float = column("share", "Part.")
        late: bool = column("yes/no", "Late.")
        bytes: int = column("bytes", "Size.", "bytes")

        title = "times, µs"
        shown = ("total_ns µs", "part", "late", "bytes", TextColumn("half", lambda row: row.part / 2, "share"))

    shown = Shown(6_000_000, 0.5, True, 3_000_000)
    assert [(one.heading, one.cell(shown)) for one in Shown.text_columns()] == [
        ("time", "6,000.00"), ("part", "50.0%"), ("late", "yes"), ("MB", "3.000"), ("half", "25.0%"),
    ]  # fmt: skip
    assert Shown.text_columns()[2].cell(Shown(1, 0.5, False, 1)) == ""


@pytest.mark.parametrize(
    ("amount", "ns", "rate"),
    [(30, 2_000, 15e6), (0, 5, 0.0), (None, 5, None), (3, 0, None), (3, None, None), (None, 0, None)],
)  # fmt: skip
def test_a_rate_without_an_amount_or_time_is_none(amount: float | None, ns: float | None, rate: float | None) -> None:
    assert per_second(amount, ns) == rate


def test_tables_are_listed_with_their_rows_and_the_empty_ones_in_one_line() -> None:
    assert listed({"a": [1, 2], "b": [], "c": []}).splitlines() == ["a                  2 rows", "no rows: b, c"]
    many = listed({f"t{number}": [0] * (number + 1) for number in range(24)}).splitlines()
    assert len(many) == 22 and many[20].split() == ["t20", "21", "rows"] and many[21] == "… 3 more"
    assert len(listed({f"t{number}": [0] for number in range(22)}).splitlines()) == 22


def test_the_docs_have_every_column() -> None:
    page = PAGE.read_text("utf-8")
    assert with_tables(page) == page and "| `bus_bandwidth` | bytes/s |" in page
