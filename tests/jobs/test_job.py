"""Jobs: ranks found and read when asked for, tables with a rank column, stragglers, coupled replay, page, columns."""

from __future__ import annotations

from pathlib import Path

import etplus
import orjson
import pytest
from etplus import Job, load
from etplus.analysis.summary import TABLES, tables_of
from etplus.jobs.job_report import read_job_report
from etplus.trace.errors import UsageError
from etplus.trace.selection import part_of
from etplus.trace.unattached import with_unattached
from support import linked, run, shared_pair

RANKS = (0, 1, 2, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The four ranks of a recorded job as ET+, by `etplus link FOLDER`."""
    source, out = tmp_path_factory.mktemp("pairs"), tmp_path_factory.mktemp("job")
    for rank in RANKS:
        for file in shared_pair(f"gpu-pairs/dlrm.rank{rank}"):
            (source / file.name).symlink_to(file)
    done = run("etplus", "link", source, "-o", out, "--no-progress")
    assert done.returncode == 0, done.stderr
    return out


def test_lists_folders_patterns_and_reports_are_the_same_job(folder: Path) -> None:
    files = sorted(map(str, folder.glob("rank_*.json.gz")))
    for source in (
        files,
        tuple(files),
        str(folder),
        folder,
        str(folder / "rank_*.json.gz"),
        folder / "job_report.json",
    ):
        job = etplus.load(source)  # type: ignore[call-overload]
        assert isinstance(job, Job)
        assert sorted(job.ranks) == list(RANKS)
        assert [trace.rank for trace in job] == list(RANKS)
    assert len(job) == 4 and repr(job) == "<Job of 4 ranks>"
    assert etplus.load(folder, rank=2).rank == 2
    with pytest.raises(KeyError, match="no rank 9; there are 0, 1, 2, 3"):
        job[9]


def test_a_folder_of_pairs_is_linked(tmp_path: Path) -> None:
    for file in shared_pair("gpu-pairs/dlrm.rank1"):
        (tmp_path / file.name).symlink_to(file)
    job = etplus.load(tmp_path)
    assert isinstance(job, Job)
    assert [(rank, len(trace.calls)) for rank, trace in job.ranks.items()] == [(1, 1672)]


@pytest.mark.parametrize("source", ["nothing*.json", []])
def test_a_job_of_nothing_is_an_error(source: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no"):
        etplus.load(source)  # type: ignore[call-overload]


def test_tables_are_those_of_the_ranks(folder: Path) -> None:
    job = etplus.load(sorted(folder.glob("rank_*.json.gz")))
    found = job.analyze()
    assert set(TABLES) <= set(found)
    for rank, trace in job.ranks.items():
        own = tables_of(trace.analyze())
        for name, rows in found.items():
            assert [row for row in rows if row["rank"] == rank] == [{"rank": rank, **row} for row in own[name]], name
    frame = found.kernels.to_pandas()
    assert frame.groupby("rank").total_ns.sum().to_dict() == {
        rank: int(trace.gpu.dur.sum() + trace.unattached.dur.sum()) for rank, trace in job.ranks.items()
    }
    with pytest.raises(AttributeError, match="did you mean 'kernels'"):
        found.kernel  # noqa: B018


def test_stragglers_are_those_of_the_batch_report(folder: Path) -> None:
    job = etplus.load(sorted(folder.glob("rank_*.json.gz")))
    report = read_job_report(folder / "job_report.json")
    known = {row.rank: (row.collectives, row.last, row.caused_ns, row.waited_ns) for row in report.stragglers}
    found = {row.rank: (row.collectives, row.last, row.caused_ns, row.waited_ns) for row in job.stragglers}
    assert found == known
    assert [row.caused_ns for row in job.stragglers] == sorted(
        (caused for _, _, caused, _ in known.values()), reverse=True
    )
    for rank, (_, last, caused, _) in known.items():
        mine = [row for row in job.collectives if row.last_rank == rank]
        assert (len(mine), sum(row.wait_ns for row in mine)) == (last, caused)
    offsets = {offset.rank: offset.offset_ns for offset in report.clock_offsets}
    assert {row.rank: row.clock_offset_ns for row in job.stragglers} == offsets


def test_ranks_are_replayed_together(folder: Path) -> None:
    job = etplus.load(sorted(folder.glob("rank_*.json.gz")))
    assert job.replay("comm*0.5").makespan_ns <= job.replay().makespan_ns
    done = run("etplus", "replay", "--rank-couple", folder, "--json", "-")
    assert orjson.loads(done.stdout)["makespan_ns"]["predicted"] == job.replay().makespan_ns


def test_a_job_is_saved_as_columns_and_asked_in_sql(folder: Path, tmp_path: Path) -> None:
    job = etplus.load(sorted(folder.glob("rank_*.json.gz")))
    job.save(tmp_path / "job.parquet")
    stored = etplus.load(tmp_path / "job.parquet")
    assert isinstance(stored, Job)
    query = "select rank, name, sum(duration_ns) from device group by all order by all"
    assert stored.sql(query).rows == job.sql(query).rows
    for rank in RANKS:
        assert b"".join(stored.ranks[rank].chunks()) == b"".join(job.ranks[rank].chunks())


def test_a_page_of_the_job_is_that_of_the_command(folder: Path, tmp_path: Path) -> None:
    job = etplus.load(sorted(folder.glob("rank_*.json.gz")))
    job.write_report(tmp_path / "a.html")
    assert run("etplus", "report", folder, "-o", tmp_path / "b.html").returncode == 0
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_part_is_that_of_each_rank(tmp_path: Path) -> None:
    """Each rank's part is what the trace's own choice gives, read when it is asked for."""
    traces = {rank: linked(f"gpu-pairs/dlrm.rank{rank}") for rank in (0, 1)}
    for rank, trace in traces.items():
        trace.save(tmp_path / f"rank{rank}.json")
    job = load([tmp_path / "rank0.json", tmp_path / "rank1.json"])
    for part, choice in (
        (job.window("10ms", "40ms"), {"window": "10-40ms"}), (job.window("10-40ms"), {"window": "10-40ms"}),
        (job.between("## forward ##"), {"between": ("## forward ##", 0)}),
        (job.part(window="1-9ms"), {"window": "1-9ms"}),
    ):  # fmt: skip
        assert isinstance(part, Job) and len(part) == 2 and repr(part) == "<Job of 2 ranks>"
        for rank, trace in part.ranks.items():
            assert trace.nodes.id.tolist() == part_of(traces[rank], **choice).nodes.id.tolist()
            assert 0 < len(trace) < len(traces[rank])
        assert [len(trace) for trace in part] == [len(trace) for trace in part.ranks.values()]
    part = job.window("10-40ms")
    frame = part.analyze().kernels.to_pandas()
    assert frame.groupby("rank")["count"].sum().to_dict() == {
        rank: len(with_unattached(trace).gpu) for rank, trace in part.ranks.items()
    }
    assert part.sql("select count(*) from device").rows == [
        (sum(len(trace.gpu) + len(trace.unattached) for trace in part),)
    ]
    assert part.replay().makespan_ns < job.replay().makespan_ns
    assert len(repr(job.analyze()).splitlines()) <= 24 and len(repr(job.analyze().kernels)) <= 80
    part.window("0-5ms").write_report(tmp_path / "part.html")
    assert (tmp_path / "part.html").exists()
    with pytest.raises(AttributeError, match="use `ranks`"):
        job.traces  # noqa: B018
