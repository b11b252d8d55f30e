"""Blocks of rows out of an export, of any version's columns."""

import sqlite3
from collections.abc import Iterator

import numpy as np
import pytest
from etplus.schemas.nsys.database import Database
from etplus.trace.errors import TraceFormatError


@pytest.fixture(params=[2, 1000])
def database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.setattr("etplus.schemas.nsys.database._BLOCK", request.param)
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        """
        CREATE TABLE StringIds (id, value); INSERT INTO StringIds VALUES (1, 'a'), (2, 'b'), (3, 7);
        CREATE TABLE NVTX_EVENTS (start, end, eventType, text, globalTid);
        INSERT INTO NVTX_EVENTS VALUES (5, 9, 59, 'x', 1), (3, NULL, 60, NULL, 2), (7, 8, 59, 'y', 'odd');
        """
    )
    yield Database("x.sqlite", connection)
    connection.close()


def test_numbers_in_order_of_rows_null_is_minus_one(database: Database) -> None:
    found = database.numbers("NVTX_EVENTS", ("start", "end", "textId"))
    assert {name: column.tolist() for name, column in found.items()} == {
        "start": [5, 3, 7], "end": [9, -1, 8], "textId": [-1, -1, -1],
    }  # fmt: skip
    some = database.numbers("NVTX_EVENTS", ("end",), "eventType = ? AND start > ?", 59, 5)
    assert some["end"].tolist() == [8] and some["end"].dtype == np.int64
    assert database.numbers("NVTX_EVENTS", ("end",), "start = 0")["end"].shape == (0,)


def test_tables_that_an_export_lacks_have_no_rows(database: Database) -> None:
    table = "CUPTI_ACTIVITY_KIND_MEMSET"
    assert database.has("NVTX_EVENTS") and not database.has(table)
    assert database.numbers(table, ("start",))["start"].tolist() == [] and list(database.rows(table, ("start",))) == []
    assert (database.count(table, "1"), database.pairs(table, "start", "end")) == (0, set())


def test_a_database_returns_rows_counts_and_distinct_pairs(database: Database) -> None:
    rows = [row for block in database.rows("NVTX_EVENTS", ("text", "start")) for row in block]
    assert rows == [("x", 5), (None, 3), ("y", 7)]
    assert [database.count("NVTX_EVENTS", "eventType = ?", kind) for kind in (59, 60, 61)] == [2, 1, 0]
    assert database.pairs("NVTX_EVENTS", "eventType", "end", "eventType > ?", 59) == {(60, -1)}
    assert database.pairs("NVTX_EVENTS", "start", "-1") == {(5, -1), (3, -1), (7, -1)}
    assert database.pairs("NVTX_EVENTS", "start", "end", "start = 0") == set()


def test_names_are_looked_up_and_missing_ones_refused(database: Database) -> None:
    assert database.names(np.array([2, 1, 2])) == {1: "a", 2: "b"} == database.strings(np.array([1, 2, 3, 4]))
    with pytest.raises(TraceFormatError, match="name 3 is not in StringIds"):
        database.names(np.array([1, 4, 3]))


def test_bad_columns_and_foreign_databases_are_refused(database: Database) -> None:
    with pytest.raises(TraceFormatError, match=r"NVTX_EVENTS, globalTid.*'odd' is not an integer"):
        database.numbers("NVTX_EVENTS", ("start", "globalTid"))
    with pytest.raises(TraceFormatError, match="column id is missing"):
        database.numbers("NVTX_EVENTS", ("id",))
    with pytest.raises(TraceFormatError, match="a SQLite database without tables from Nsight Systems"):
        Database("y", sqlite3.connect(":memory:"))
    other = sqlite3.connect(":memory:")
    other.execute("CREATE TABLE rocpd_x (a)")
    with pytest.raises(TraceFormatError, match="rocprofv3"):
        Database("y", other)
