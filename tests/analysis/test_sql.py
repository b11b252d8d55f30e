"""SQL over traces: sums equal those of the tables, and a query reaches nothing else."""

import datetime
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import etplus
import pytest
from etplus import Trace, convert
from etplus.analysis import sql
from etplus.analysis.sql import VIEWS, QueryResult, SqlTables, _bytes_of
from etplus.jobs.rank_communications import communications
from etplus.trace.conventions import UNATTACHED_REASONS
from etplus.trace.errors import UsageError
from made_jobs import Job, ddp
from simulator import Network
from support import ROOT, linked

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


def test_stored_and_loaded_ranks_give_the_same_rows(tmp_path: Path) -> None:
    traces = dict(enumerate(Job(ddp, 2).traces()))
    convert(list(traces.values()), tmp_path / "job.parquet")
    for query in (
        "select * from ranks order by rank",
        "select e.rank, e.kind, d.name, count(*), sum(d.duration_ns) from edges e join device d on d.id = e.target "
        "and d.rank = e.rank group by all order by all",
    ):
        stored = SqlTables({}, {str(tmp_path / "job.parquet"): None}).query(query).rows
        assert len(stored) > 1 and stored == SqlTables(traces).query(query).rows


def test_whatever_is_no_query_of_the_tables_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    traces = [1]  # a Python variable, which DuckDB could replace a table by
    for query in (
        "select * from read_csv('/etc/passwd')", "select * from '/etc/passwd'", "select * from glob('/*')",
        "copy device to 'x.csv'", "attach 'x.db'", "install httpfs", "create table t as select 1",
        "set memory_limit='90GB'", "set enable_external_access = true", "select 1; select 2", "",
        "select * from traces", "call pragma_version()", "explain analyze copy device to 'x.csv'",
        "select getenv('HOME')", "select * from query_table('/etc/passwd')",
    ):  # fmt: skip
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


def test_text_takes_no_more_memory_than_it_may() -> None:
    found = linked(NAME).sql("select name, duration_ns from device limit 3")
    size = 6 * 150 + found.arrow.nbytes
    assert QueryResult(found.arrow, size).to_text(80) == QueryResult(found.arrow).to_text(80)
    with pytest.raises(UsageError, match="3 rows as text exceed"):
        QueryResult(found.arrow, size - 1).to_text()


def test_values_that_python_or_json_lack_become_text_and_repeated_names_get_numbers() -> None:
    query = "select 1::hugeint as a, interval 1 day as b, 'infinity'::date as a, date '2026-01-02' as a, 2 as a_1"
    found = tables().query(query)
    assert found.columns == ["a", "b", "a_2", "a_3", "a_1"]
    assert found.rows == [(1, "1 day", "infinity", datetime.date(2026, 1, 2), 2)]
    assert tables().query("select null as a, 1 as b, true as b").to_text(80).split() == ["a", "b", "b_1", "1", "True"]


@pytest.mark.parametrize("most", [1, 2])
def test_a_job_has_the_rows_of_all_ranks_however_many_are_in_memory(
    most: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sql, "_IN_MEMORY", most)
    query = "select rank, count(*), sum(duration_ns) from calls group by rank order by rank"
    traces = made_ranks()
    convert(traces[0], tmp_path / "stored.parquet")
    expected = SqlTables(traces).query(query).rows
    for sources in ([*traces.values()], [tmp_path / "stored.parquet", traces[1]]):
        job = etplus.load(sources)
        assert job.sql(query).rows == expected and job.select([1]).sql(query).rows == expected[1:]
        assert job.part(steps="1").sql("select distinct rank from calls order by 1").rows == [(0,), (1,)]


def test_results_convert_and_print() -> None:
    found = linked(NAME).sql("select name, duration_ns from device order by start_ns limit 30")
    assert found.columns == ["name", "duration_ns"]
    assert found.to_pandas()["duration_ns"].tolist() == [ns for _, ns in found]
    assert found.to_arrow().num_rows == len(found) == 30
    assert repr(found).splitlines()[-1] == "… and 10 more rows"


_SECTION = re.compile(r"^### (.*?)$\n+```sql\n(.*?)```$", re.MULTILINE | re.DOTALL)
QUERIES = dict(_SECTION.findall((ROOT / "docs" / "reference" / "sql.md").read_text("utf-8")))
RECORDED = "pairs/gpu_shaped_from_cpu"
Answer = Callable[[Trace], Iterable[tuple[Any, ...]]]


@cache
def made_ranks() -> dict[int, Trace]:
    return dict(enumerate(Job(ddp, 2).traces(waits=True, network=Network(30, 5000))))


@cache
def tables_of(name: str) -> tuple[Trace, SqlTables]:
    trace = linked(RECORDED) if name == "recorded" else made_ranks()[1]
    return trace, SqlTables({trace.rank or 0: trace})


@cache
def rows_of(name: str, title: str) -> list[tuple[Any, ...]]:
    return tables_of(name)[1].query(QUERIES[title]).rows


def sums(rows: Iterable[tuple[Any, ...]], keys: int) -> dict[tuple[Any, ...], list[float]]:
    """Rows whose first `keys` values are equal, with the sums of the others."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        total = found.setdefault(row[:keys], [0] * (len(row) - keys))
        for at, value in enumerate(row[keys:]):
            total[at] += value
    return found


def top(rows: Iterable[tuple[Any, ...]], by: int, most: int | None = None) -> list[tuple[Any, ...]]:
    """The rows with the greatest values in a column first, then in order of the others."""
    return sorted(rows, key=lambda row: (-row[by], *row))[:most]


def flat(found: dict[tuple[Any, ...], list[float]]) -> list[tuple[Any, ...]]:
    return [(*key, *values) for key, values in found.items()]


def events(trace: Trace) -> list[Any]:
    """All device events in order of start, those that could not be attached included: the rows of `device`."""
    found = [(e.device, e.stream, e.start_ns, e.duration_ns, e.name) for e in trace.device_events]
    loose = trace.unattached
    columns = (loose.device, loose.stream, loose.ts, loose.dur)
    found += list(zip(*(column.tolist() for column in columns), loose.names, strict=True))
    return sorted(found, key=lambda event: event[2])


ANSWERS: dict[str, Answer] = {
    "Kernels that take the most time": lambda t: top(
        flat(sums(((e[4], 1, e[3]) for e in events(t)), 1)), 2, 10),
    "Operators by kernel time": lambda t: top(
        flat(sums(((k.op.name if k.op else "", k.duration_ns) for k in t.kernels), 1)), 1, 10),
    "Device time of each step": lambda t: sorted(flat(sums(
        ((int(t.step_of_event[k.index]), k.duration_ns) for k in t.kernels if k.step is not None), 1))),
    "Unattached events by reason": lambda t: sorted(flat(sums((
        (UNATTACHED_REASONS[code], 1, dur)
        for code, dur in zip(t.unattached.reason.tolist(), t.unattached.dur.tolist(), strict=True)), 1))),
    "Copies by kind": lambda t: sorted(flat(sums(
        ((e.name, 1, int(t.gpu.bytes[e.index]), e.duration_ns) for e in t.device_events
         if t.gpu.bytes[e.index] >= 0), 1))),
    "Bytes of each collective": lambda t: [
        (name, len(found), sum(known) if (known := [c.bytes for c in found if c.bytes is not None]) else None)
        for name in sorted({c.collective for c in t.comm.values()})
        for found in [[c for c in t.comm.values() if c.collective == name]]],
}  # fmt: skip


@pytest.mark.parametrize("name", ["recorded", "made"])
def test_queries_of_the_page_give_the_expected_rows(name: str) -> None:
    for title, answer in ANSWERS.items():
        assert rows_of(name, title) == [*map(tuple, answer(tables_of(name)[0]))], title


def test_all_queries_of_the_page_but_one_find_rows() -> None:
    assert len(QUERIES) >= 20 and set(ANSWERS) < set(QUERIES)
    empty = [title for title in QUERIES if not rows_of("recorded", title) and not rows_of("made", title)]
    assert empty == ["Largest allocations"]


def test_sums_equal_the_analysis_tables() -> None:
    analysis = linked(RECORDED).analyze()
    by_kernel = sums(((row.kernel, row.count, row.total_ns) for row in analysis.kernels), 1)
    assert rows_of("recorded", "Kernels that take the most time") == top(flat(by_kernel), 2, 10)
    assert rows_of("recorded", "Busy time of each device") == [
        (use.device, use.busy_ns) for use in analysis.device_use]  # fmt: skip
    idle = {(of.device, of.stream): of.host_wait_ns + of.kernel_wait_ns + of.other_ns for of in analysis.idle_causes}
    assert {key[:2]: key[2] or 0 for key in rows_of("recorded", "Gaps between the events of a stream")} == idle
    assert {(name, count, delay) for name, count, delay in rows_of("recorded", "Launch calls and delays")} == {
        (row.call, row.count, row.delay_ns) for row in analysis.launches}  # fmt: skip
    assert [ns for *_, ns in rows_of("recorded", "Time of each step")] == [
        row.latency_ns for row in analysis.iterations]  # fmt: skip


def test_sizes_are_read_as_duckdb_writes_them() -> None:
    assert [_bytes_of(text) for text in ("7 bytes", "95.5 KiB", "2 MiB")] == [7, 95.5 * 1024, 2 << 20]
