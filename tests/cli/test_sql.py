"""`etplus sql` as a command."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
from support import call, linked, run

QUERY = "select name, sum(dur_ns) as ns from device group by 1 order by 2 desc, 1 limit 3"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "x.json"
    linked("pairs/gpu_shaped_from_cpu").save(path)
    return path


def test_a_process_prints_a_table(trace: Path) -> None:
    done = run("etplus", "sql", trace, QUERY)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines()[0].split() == ["name", "ns"]
    assert len(done.stdout.decode().splitlines()) == 4
    assert max(map(len, done.stdout.decode().splitlines())) <= 80


def test_every_form_has_the_same_rows(trace: Path, tmp_path: Path) -> None:
    rows = linked("pairs/gpu_shaped_from_cpu").sql(QUERY).rows
    printed = call("sql", trace, QUERY, "--json").stdout
    assert [tuple(row.values()) for row in orjson.loads(printed)] == rows
    printed = call("sql", trace, QUERY, "--csv").stdout.decode()
    assert list(csv.reader(io.StringIO(printed))) == [["name", "ns"], *([name, str(ns)] for name, ns in rows)]
    call("sql", trace, QUERY, "-o", tmp_path / "x.parquet")
    assert [tuple(row.values()) for row in pq.read_table(tmp_path / "x.parquet").to_pylist()] == rows


def test_a_query_may_stand_behind_options(trace: Path) -> None:
    before, after = (
        call("sql", trace, *words).stdout for words in (("select 1 as x", "--csv"), ("--csv", "select 1 as x"))
    )
    assert before == after and before.split() == [b"x", b"1"]


def test_queries_come_from_standard_input_too(trace: Path) -> None:
    done = run("etplus", "sql", trace, "--csv", input=b"select 1 as a\n\nselect 2 as b\n")
    assert (done.returncode, done.stdout) == (0, b"a\n1\nb\n2\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["select nope from device"], "nope"), (["copy device to 'x.csv'"], "COPY is not allowed"),
        ([QUERY, "-o", "x.yaml"], "unknown extension"), (["-o", "x.csv"], "needs a query"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(arguments: list[str], problem: str, trace: Path, tmp_path: Path) -> None:
    done = run("etplus", "sql", trace, *arguments, cwd=tmp_path, input=b"")
    assert done.returncode == 2
    assert problem in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())
