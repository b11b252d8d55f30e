"""`etplus sql` as a command."""

import csv
import io
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
from support import call, linked, read_json, refused, succeeds

QUERY = "select name, sum(duration_ns) as ns from device group by 1 order by 2 desc, 1 limit 3"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "x.json"
    linked("pairs/gpu_shaped_from_cpu").save(path)
    return path


def test_every_form_of_output_has_the_same_rows(trace: Path, tmp_path: Path) -> None:
    rows = linked("pairs/gpu_shaped_from_cpu").sql(QUERY).rows
    printed = call("sql", trace, QUERY, "--json").stdout
    assert [tuple(row.values()) for row in orjson.loads(printed)] == rows
    printed = call("sql", trace, QUERY, "--csv").stdout.decode()
    assert list(csv.reader(io.StringIO(printed))) == [["name", "ns"], *([name, str(ns)] for name, ns in rows)]
    call("sql", trace, QUERY, "-o", tmp_path / "x.parquet")
    assert [tuple(row.values()) for row in pq.read_table(tmp_path / "x.parquet").to_pylist()] == rows


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["select nope from device"], "nope"), (["copy device to 'x.csv'"], "COPY is not allowed"),
        ([QUERY, "-o", "x.yaml"], "unknown extension"), (["-o", "x.csv"], "no query given"),
    ],
)  # fmt: skip
def test_wrong_arguments_fail_with_one_line(arguments: list[str], problem: str, trace: Path, tmp_path: Path) -> None:
    assert problem in refused("sql", trace, *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_screen_has_twenty_rows_and_the_number_of_further_rows(trace: Path) -> None:
    for count, last in ((20, "19"), (21, "… 1 more rows; --full, --csv, --json or -o FILE prints all rows")):
        lines = call("sql", trace, f"select range as a from range({count})").stdout.decode().splitlines()
        assert len(lines) == count + 1 and lines[-1].strip() == last
    assert len(call("sql", trace, "select range as a from range(21)", "--full").stdout.splitlines()) == 22


def test_columns_of_one_name_are_numbered(trace: Path) -> None:
    printed = call("sql", trace, "select 1 as a, 2 as a, 3 as b, 4 as a_1", "--json").stdout
    assert orjson.loads(printed) == [{"a": 1, "a_2": 2, "b": 3, "a_1": 4}]


def test_values_that_python_or_parquet_cannot_hold_are_text(trace: Path, tmp_path: Path) -> None:
    query = (
        "select 'infinity'::timestamp as a, '-infinity'::date as b, interval '1 month' as c, union_value(x := 5) as d, "
        "[interval 1 day] as e, {'f': 'infinity'::timestamptz} as f, '2020-01-01'::date as g, bit '01' as h"
    )
    texts = ["infinity", "-infinity", "1 month", "5", "[1 day]", "{'f': infinity}", "2020-01-01", "01"]
    for form in ("txt", "csv", "json", "parquet"):
        succeeds("sql", trace, query, "-o", tmp_path / f"x.{form}")
    assert all(text in (tmp_path / "x.txt").read_text() for text in texts)
    assert list(csv.reader((tmp_path / "x.csv").open()))[1] == ["infinity", "'-infinity", *texts[2:]]
    for rows in (read_json(tmp_path / "x.json"), pq.read_table(tmp_path / "x.parquet").to_pylist()):
        assert [str(value) for value in rows[0].values()] == texts


def test_csv_escapes_cells_that_look_like_formulas(trace: Path) -> None:
    printed = call("sql", trace, "select '=1+1' as x, 'a;@b' as \"=y\", -1 as z", "--csv").stdout.decode()
    assert list(csv.reader(io.StringIO(printed))) == [["x", "'=y", "z"], ["'=1+1", "a;'@b", "-1"]]


def test_rows_printed_in_parts_form_one_document(trace: Path) -> None:
    count = 25_000
    query = f"select range as a from range({count})"
    printed = [call("sql", trace, *words).stdout for words in ((query, "--json"), ("--csv", query))]
    assert printed[0] == orjson.dumps([{"a": k} for k in range(count)], option=orjson.OPT_INDENT_2) + b"\n"
    assert printed[1] == b"a\n" + b"".join(b"%d\n" % k for k in range(count))


def test_a_table_of_text_takes_no_more_memory_than_queries_may(trace: Path) -> None:
    query = "select range as a from range(1000000)"
    assert "write .csv" in refused("sql", trace, query, "--memory", "100MB", "--full")
    assert call("sql", trace, query, "--memory", "100MB").returncode == 0  # the screen has the first rows only
