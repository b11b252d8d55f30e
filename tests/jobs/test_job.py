"""Jobs: ranks found and read when asked for, tables with a rank column, stragglers, coupled replay, page, columns."""

from functools import partial
from pathlib import Path

import etplus
import numpy as np
import orjson
import pytest
from etplus import Job
from etplus.analysis.summary import TABLES, tables_of
from etplus.converters.folder import InputPair
from etplus.jobs.job import names_a_job
from etplus.jobs.job_report import read_job_report
from etplus.schemas.parquet.parquet_writer import write_parquet
from etplus.schemas.parquet.stored_folder import StoredRank
from etplus.trace.errors import UsageError
from etplus.trace.selection import part_of
from etplus.trace.trace import Trace
from etplus.trace.unattached import with_unattached
from etplus_files import cpu
from etplus_files import etplus as made
from made_ranks import JobTruth, make_job
from pages import data_of
from support import call, run

RANKS = (0, 1, 2)


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, JobTruth]:
    """Three ranks of a made job as ET+, by `etplus link FOLDER`."""
    source, out = tmp_path_factory.mktemp("pairs"), tmp_path_factory.mktemp("job")
    truth = make_job(source, len(RANKS), stragglers=1)
    done = run("etplus", "link", source, "-o", out, "--no-progress")
    assert done.returncode == 0, done.stderr
    return out, truth


@pytest.fixture
def folder(linked: tuple[Path, JobTruth]) -> Path:
    return linked[0]


@pytest.fixture
def job(folder: Path) -> Job:
    return etplus.load(sorted(folder.glob("rank_*.json.gz")))


def test_lists_folders_patterns_and_reports_are_the_same_job(folder: Path) -> None:
    files = sorted(map(str, folder.glob("rank_*.json.gz")))
    for source in (files, str(folder), folder, str(folder / "rank_*.json.gz"), folder / "job_report.json"):
        job = etplus.load(source)  # type: ignore[call-overload]
        assert isinstance(job, Job) and sorted(job.ranks) == list(RANKS)
    assert [trace.rank for trace in job] == list(RANKS)
    assert len(job) == 3 and repr(job) == "<Job of 3 ranks>"
    assert etplus.load(folder, rank=2).rank == 2
    with pytest.raises(KeyError, match="no rank 9; there are 0, 1, 2"):
        job[9]
    with pytest.raises(AttributeError, match="use `ranks`"):
        job.traces  # noqa: B018


@pytest.mark.parametrize("source", ["nothing*.json", []])
def test_a_job_of_nothing_is_an_error(source: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no"):
        etplus.load(source)  # type: ignore[call-overload]


def test_tables_of_a_job_hold_the_rows_of_its_ranks(job: Job) -> None:
    found = job.analyze()
    assert set(TABLES) <= set(found)
    for rank, trace in job.ranks.items():
        own = tables_of(trace.analyze())
        for name, rows in found.items():
            assert [row for row in rows if row["rank"] == rank] == [{"rank": rank, **row} for row in own[name]], name
    assert found.kernels.to_pandas().groupby("rank").total_ns.sum().to_dict() == {
        rank: int(trace.gpu.dur.sum() + trace.unattached.dur.sum()) for rank, trace in job.ranks.items()
    }
    assert len(repr(found).splitlines()) <= 24 and len(repr(found.kernels)) <= 80
    with pytest.raises(AttributeError, match="did you mean 'kernels'"):
        found.kernel  # noqa: B018


def test_stragglers_and_clocks_are_the_known_ones_and_those_of_the_report(
    job: Job, linked: tuple[Path, JobTruth]
) -> None:
    folder, truth = linked
    report = read_job_report(folder / "job_report.json")
    known = {row.rank: (row.collectives, row.last, row.caused_ns, row.waited_ns) for row in report.stragglers}
    assert {row.rank: (row.collectives, row.last, row.caused_ns, row.waited_ns) for row in job.stragglers} == known
    late = {row.rank: row for row in job.stragglers}
    assert job.stragglers[0].rank == truth.stragglers[0]
    clock = np.array([late[rank].clock_offset_ns for rank in RANKS])
    assert np.abs(clock - truth.clock_ns).max() <= 2  # times are in µs with three decimals
    assert clock.tolist() == [offset.offset_ns for offset in report.clock_offsets]
    assert [row.last_rank for row in job.collectives] == truth.come_ns.argmax(axis=0).tolist()
    behind = (truth.come_ns - np.median(truth.come_ns, axis=0)).sum(axis=1)
    assert np.abs(np.array([late[rank].behind_ns for rank in RANKS]) - behind).max() <= 8 * len(job.collectives)
    for rank, (_, last, caused, _) in known.items():
        own = [row for row in job.collectives if row.last_rank == rank]
        assert (len(own), sum(row.wait_ns for row in own)) == (last, caused)


def test_ranks_are_replayed_together(job: Job, folder: Path) -> None:
    assert job.replay("comm*0.5").makespan_ns <= job.replay().makespan_ns
    done = call("replay", "--rank-couple", folder, "--json", "-")
    assert orjson.loads(done.stdout)["makespan_ns"]["predicted"] == job.replay().makespan_ns


def test_a_job_is_saved_as_columns_and_asked_in_sql(job: Job, tmp_path: Path) -> None:
    job.save(tmp_path / "job.parquet")
    stored = etplus.load(tmp_path / "job.parquet")
    assert isinstance(stored, Job)
    query = "select rank, name, sum(duration_ns) from device group by all order by all"
    assert stored.sql(query).rows == job.sql(query).rows
    assert b"".join(stored.ranks[1].chunks()) == b"".join(job.ranks[1].chunks())
    job.select([2, 1]).save(tmp_path / "two.parquet")
    job.window("2-9ms").select([1]).save(tmp_path / "part.et")
    assert sorted(Job([tmp_path / "two.parquet"]).ranks) == [1, 2]
    assert len(etplus.load(tmp_path / "part.et")) == len(job.window("2-9ms")[1]) < len(job[1])


def test_a_part_of_a_job_is_that_part_of_each_rank(job: Job, tmp_path: Path) -> None:
    part = job.window("2ms", "9ms")
    assert isinstance(part, Job) and len(part) == 3 and repr(part) == "<Job of 3 ranks>"
    for rank, trace in part.ranks.items():
        assert trace.nodes.id.tolist() == part_of(job[rank], window="2-9ms").nodes.id.tolist()
        assert 0 < len(trace) < len(job[rank])
    for other, choice in (
        (job.window("2-9ms"), {"window": "2-9ms"}), (job.between("## forward ##"), {"between": ("## forward ##", 0)}),
        (job.part(window="1-4ms"), {"window": "1-4ms"}), (job.step(1), {"steps": "1"}),
    ):  # fmt: skip
        assert other[2].nodes.id.tolist() == part_of(job[2], **choice).nodes.id.tolist()
    frame = part.analyze().kernels.to_pandas()
    assert frame.groupby("rank")["count"].sum().to_dict() == {
        rank: len(with_unattached(trace).gpu) for rank, trace in part.ranks.items()
    }
    assert part.sql("select count(*) from device").rows == [(frame["count"].sum(),)]
    assert [rank for rank, _ in job.step(0).select([1, 2]).map(len)] == [1, 2]
    part.select([1]).write_report(tmp_path / "part.html", title="one rank")
    assert data_of((tmp_path / "part.html").read_bytes())["title"] == "one rank"


def tiny(rank: int, name: str = "a") -> Trace:
    return made([cpu(3, name, 0, 1)], rank=rank, world_size=3)


def test_a_job_is_called_like_its_file_or_their_folder() -> None:
    assert Job(["x/a.json"]).name == "x/a.json" and Job(["a.json"]).name == "a.json"
    assert Job(["x/a.json", "x/b.json"]).name == "x"
    assert Job(["x/a.json", "y/b.json", "y/c.json"]).name == "x/a.json and 2 more"
    assert Job(["a.json", "b.json"]).name == "a.json and 1 more"


def test_lists_patterns_reports_and_folders_mean_several_traces(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("")
    for source in ([], ("a.json",), "x/rank*.json", tmp_path / "job_report.json", tmp_path):
        assert names_a_job(source), source
    tiny(0).save(tmp_path / "one.etplus")
    pair = InputPair("e.json", "k*.json")
    for one in (tmp_path / "t.json", b"{}", tmp_path / "one.etplus", "-", pair, StoredRank(str(tmp_path), 0)):
        assert not names_a_job(one), one
    for rank in (0, 1):
        write_parquet(tiny(rank), tmp_path / "two.etplus", rank=rank)
    assert names_a_job(tmp_path / "two.etplus")


def test_functions_that_choose_are_applied_in_order_and_ranks_known_from_reading_are_not_read_again() -> None:
    asked: list[str] = []

    def noting(name: str, trace: Trace) -> Trace:
        asked.append(f"{name}{trace.rank}")
        return trace

    job = Job([tiny(rank) for rank in (2, 0, 1)])
    both = job.choosing(partial(noting, "a")).choosing(partial(noting, "b"))
    assert list(both.map(len)) == [(2, 3), (0, 3), (1, 3)] and asked == ["a2", "b2", "a0", "b0", "a1", "b1"]
    assert sorted(both.select([0, 2]).select("0-1").ranks) == [0]
    assert job[1].rank == 1 and [trace.rank for trace in job] == [2, 0, 1]
    assert len(both.select([1])._chosen.sources) == 1, "the ranks of all sources are known"
    assert len(Job([tiny(0), tiny(1)]).select([1])._chosen.sources) == 2
