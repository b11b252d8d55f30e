"""SQL over traces: sums equal those of the tables, and a query reaches nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from etplus import convert
from etplus.analysis.sql import VIEWS, SqlTables
from etplus.jobs.rank_communications import communications
from etplus.trace.errors import UsageError
from support import linked

NAME = "pairs/gpu_shaped_from_cpu"


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
        assert trace.sql(f"select count(*) from {view}").rows == [(size,)], view


def test_stored_and_loaded_ranks_give_the_same(tmp_path: Path) -> None:
    traces = {rank: linked(f"gpu-pairs/dlrm.rank{rank}") for rank in (0, 1)}
    convert(list(traces.values()), tmp_path / "job.parquet")
    for query in (
        "select rank, name, sum(duration_ns) from device group by all order by all",
        "select * from ranks order by rank",
        "select e.rank, e.kind, count(*) from edges e join device d on d.id = e.target and d.rank = e.rank "
        "group by all order by all",
    ):
        assert (
            SqlTables({}, {str(tmp_path / "job.parquet"): None}).query(query).rows
            == SqlTables(traces).query(query).rows
        )


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('/etc/passwd')", "select * from '/etc/passwd'",
        "select * from read_text('/etc/passwd')",
        "select * from glob('/*')", "copy device to 'x.csv'", "copy (select 1) to 'x.parquet'", "attach 'x.db'",
        "install httpfs", "load httpfs", "create table t as select 1", "drop view device", "set memory_limit='90GB'",
        "insert into device values (1)", "export database 'x'", "select 1; select 2", "", "pragma database_list",
        "select * from traces", "call pragma_version()", "select * from read_json('/etc/passwd')",
        "select * from read_parquet('/etc/*.parquet')", "select * from 'https://example.com/x.parquet'",
        "copy device from '/etc/passwd'", "attach ':memory:' as other", "detach memory", "use memory",
        "pragma enable_external_access", "set enable_external_access = true", "reset enable_external_access",
        "set lock_configuration = false", "set threads = 1", "pragma memory_limit='90GB'",
        "load '/tmp/x.duckdb_extension'",
        "force install httpfs", "update device set duration_ns = 0", "delete from device", "truncate device",
        "alter table device add column x int", "create macro m() as 1", "create view v as select 1",
        "import database 'x'",
        "prepare p as select 1", "execute p", "vacuum", "checkpoint", "begin", "explain copy device to 'x.csv'",
        "explain analyze copy device to 'x.csv'", "select getenv('HOME')", "select * from sniff_csv('/etc/passwd')",
        "select * from parquet_metadata('/x.parquet')", "select * from read_blob('/etc/passwd')",
        "select * from query('drop view device')", "select * from query_table('/etc/passwd')",
    ],
)  # fmt: skip
def test_whatever_is_no_query_of_the_tables_is_refused(
    query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    traces = [1]  # a Python variable, which DuckDB could replace a table by
    with pytest.raises(UsageError) as caught:
        linked(NAME).sql(query)
    assert "\n" not in str(caught.value)
    assert traces
    assert not list(tmp_path.iterdir())


def test_a_query_takes_no_more_memory_than_it_may() -> None:
    with pytest.raises(UsageError, match="SQL"):
        linked(NAME).sql("select count(*) from (select distinct random() from range(100000000))", memory="50MB")
    for query in (
        "select range, repeat('x', 1000) as x from range(1000000)",
        "select a.* from calls a, calls b, calls c",
    ):
        with pytest.raises(UsageError, match="the rows that it finds take more than 50MB; add a limit"):
            linked(NAME).sql(query, memory="50MB")
    assert len(linked(NAME).sql("select range from range(1000000)", memory="50MB")) == 1_000_000
    with pytest.raises(UsageError, match="give a size"):
        linked(NAME).sql("select 1", memory="much")


def test_results_convert_and_print() -> None:
    found = linked(NAME).sql("select name, duration_ns from device order by start_ns limit 30")
    assert found.columns == ["name", "duration_ns"]
    assert found.to_pandas()["duration_ns"].tolist() == [ns for _, ns in found]
    assert found.to_arrow().num_rows == len(found) == 30
    assert repr(found).splitlines()[-1] == "… and 10 more rows"
