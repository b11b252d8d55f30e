"""SQL over traces: sums equal those of the tables, and a query reaches nothing else."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from etplus import convert, link
from etplus.analysis.sql import VIEWS, SqlTables
from etplus.jobs.rank_communications import communications
from etplus.trace.errors import UsageError
from made_jobs import Job, ddp
from support import linked

NAME = "pairs/gpu_shaped_from_cpu"


@cache
def tables() -> SqlTables:
    return SqlTables({0: linked(NAME)})


def test_sums_by_name_equal_those_of_the_table() -> None:
    trace = linked(NAME)
    expected: dict[str, int] = {}
    for event in trace.device_events:
        expected[event.name] = expected.get(event.name, 0) + event.duration_ns
    attached = "select name, sum(duration_ns) from device where row is not null group by 1"
    assert dict(trace.sql(attached).rows) == expected
    loose = trace.sql("select reason, duration_ns from device where row is null order by start_ns").rows
    assert [ns for _, ns in loose] == trace.unattached.dur.tolist()
    assert "attached" not in dict(loose)


def test_every_table_has_the_rows_of_the_trace() -> None:
    trace = linked(NAME)
    sizes = {
        "calls": int((trace.nodes.kind == 0).sum()), "device": len(trace.gpu) + len(trace.unattached),
        "runtime": len(trace.runtime), "edges": len(trace.edges), "communications": len(trace.comm),
        "memory": len(trace.memory), "steps": len(trace.steps), "exchanges": len(communications(trace)),
    }  # fmt: skip
    assert set(sizes) == set(VIEWS)
    for view, size in sizes.items():
        assert tables().query(f"select count(*) from {view}").rows == [(size,)], view


def test_stored_and_loaded_ranks_give_the_same(tmp_path: Path) -> None:
    traces = {rank: link(*pair) for rank, pair in enumerate(Job(ddp, 2).write(tmp_path))}
    convert(list(traces.values()), tmp_path / "job.parquet")
    for query in (
        "select * from ranks order by rank",
        "select e.rank, e.kind, d.name, count(*), sum(d.duration_ns) from edges e join device d on d.id = e.target "
        "and d.rank = e.rank group by all order by all",
    ):
        stored = SqlTables({}, {str(tmp_path / "job.parquet"): None}).query(query).rows
        assert len(stored) > 1 and stored == SqlTables(traces).query(query).rows


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('/etc/passwd')", "select * from '/etc/passwd'", "select * from glob('/*')",
        "copy device to 'x.csv'", "attach 'x.db'", "install httpfs", "create table t as select 1",
        "set memory_limit='90GB'", "set enable_external_access = true", "select 1; select 2", "",
        "select * from traces", "call pragma_version()", "explain analyze copy device to 'x.csv'",
        "select getenv('HOME')", "select * from query_table('/etc/passwd')",
    ],
)  # fmt: skip
def test_whatever_is_no_query_of_the_tables_is_refused(
    query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    traces = [1]  # a Python variable, which DuckDB could replace a table by
    with pytest.raises(UsageError) as caught:
        tables().query(query)
    assert "\n" not in str(caught.value) and traces and not list(tmp_path.iterdir())


def test_a_query_takes_no_more_memory_than_it_may() -> None:
    with pytest.raises(UsageError, match="SQL"):
        linked(NAME).sql("select count(*) from (select distinct random() from range(100000000))", memory="50MB")
    with pytest.raises(UsageError, match="the result takes more than 50MB; add a limit"):
        linked(NAME).sql("select a.* from calls a, calls b, calls c", memory="50MB")
    with pytest.raises(UsageError, match="pass a size"):
        linked(NAME).sql("select 1", memory="much")


def test_results_convert_and_print() -> None:
    found = linked(NAME).sql("select name, duration_ns from device order by start_ns limit 30")
    assert found.columns == ["name", "duration_ns"]
    assert found.to_pandas()["duration_ns"].tolist() == [ns for _, ns in found]
    assert found.to_arrow().num_rows == len(found) == 30
    assert repr(found).splitlines()[-1] == "… and 10 more rows"
