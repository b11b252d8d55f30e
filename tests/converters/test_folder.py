"""The traces that a folder holds: of one kind, by number, with notes on what is left out."""

import json
from pathlib import Path

import pytest
from etplus.converters.folder import InputPair, is_pattern, named_by, stored_in, traces_in
from etplus.jobs.job_report import JobReport, RankResult
from etplus.schemas.parquet.parquet_writer import write_parquet
from etplus.trace.errors import UsageError
from etplus_files import cpu, etplus

ET = '{"schema": "1.0.1", "pid": 5, "nodes": []}'


def kineto(rank: int) -> str:
    return json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": []})


def job_report(folder: Path, *ranks: RankResult, missing: str = "") -> None:
    (folder / "job_report.json").write_bytes(JobReport("1", ranks, missing=missing).to_json())


def test_etplus_files_come_before_others_and_by_number(tmp_path: Path) -> None:
    for name in ("rank10.etplus.json", "rank2.etplus.json", "sub/a_plus.json.gz", "t.0.et", ".hidden.etplus.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")
    (tmp_path / "k.json").write_text(kineto(0))
    found, notes = traces_in(str(tmp_path))
    assert found == [str(tmp_path / name) for name in ("rank2.etplus.json", "rank10.etplus.json", "sub/a_plus.json.gz")]
    assert notes == [f"{tmp_path}: etplus reads the 3 ET+ and ignores the 1 Chakra traces and 1 recorded traces"]
    for path in tmp_path.glob("**/*.json*"):
        path.unlink()
    assert traces_in(str(tmp_path)) == ([str(tmp_path / "t.0.et")], [])


def test_pairs_are_linked_and_timelines_alone_are_read(tmp_path: Path) -> None:
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.kineto.json").write_text(kineto(rank))
    assert traces_in(str(tmp_path)) == ([str(tmp_path / f"rank{rank}.kineto.json") for rank in (0, 1)], [])
    (tmp_path / "rank1.et.json").write_text(ET)
    (pair,), notes = traces_in(str(tmp_path))
    assert isinstance(pair, InputPair)
    assert (pair.et, pair.kineto) == (str(tmp_path / "rank1.et.json"), str(tmp_path / "rank1.kineto.json"))
    assert (pair.rank, pair.one_of_several) == (1, True) and str(tmp_path / "rank1.kineto.json") == pair.__fspath__()
    assert notes == [f"{tmp_path}: rank 0: no ET was found for rank0.kineto.json"]
    (tmp_path / "rank1.kineto.json").unlink()
    with pytest.raises(UsageError, match="no ET matches a Kineto trace; pair the files with etplus link"):
        traces_in(str(tmp_path))


def test_a_linked_job_is_what_its_report_lists(tmp_path: Path) -> None:
    failed = RankResult(1, "failed", "no ET", output="elsewhere/rank_1.etplus.json.gz")
    job_report(tmp_path, RankResult(0, "linked", output="elsewhere/rank_0.etplus.json.gz"), failed, missing="2-3")
    found, notes = traces_in(str(tmp_path))
    assert found == [str(tmp_path / "rank_0.etplus.json.gz")]
    told = [note.removeprefix(f"{tmp_path}: ") for note in notes]
    assert told == [f"{what} was not linked and is left out" for what in ("rank 1 (no ET)", "ranks 2-3 (no files)")]
    job_report(tmp_path, failed)
    with pytest.raises(UsageError, match=r"no rank of this job was linked; see job_report\.json"):
        traces_in(str(tmp_path))


def test_stored_ranks_that_were_not_linked_are_left_out(tmp_path: Path) -> None:
    assert stored_in(str(tmp_path)) == ([str(tmp_path)], [])
    for rank in (0, 1):
        write_parquet(etplus([cpu(3, "a", 0, 1)], rank=rank, world_size=2), tmp_path, rank=rank)
    ranks, notes = stored_in(str(tmp_path))
    assert [getattr(found, "rank", None) for found in ranks] == [0, 1] and notes == []
    job_report(tmp_path, RankResult(0, "failed", "no ET"), RankResult(1, "linked"))
    ranks, notes = stored_in(str(tmp_path))
    assert [getattr(found, "rank", None) for found in ranks] == [1]
    assert notes == [f"{tmp_path}: rank 0 (no ET) was not linked and is left out"]


def test_a_folder_without_a_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no trace")
    with pytest.raises(UsageError, match="no ET\\+, Kineto or Chakra trace among 1 files; pass a trace"):
        traces_in(str(tmp_path))


def test_names_of_existing_files_are_no_patterns(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", "c[1].json"):
        (tmp_path / name).write_text("")
    assert named_by(str(tmp_path / "?.json")) == [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    assert is_pattern(str(tmp_path / "*.json")) and is_pattern("x[0-3]") and is_pattern("x?")
    assert not is_pattern(str(tmp_path / "c[1].json")) and not is_pattern("plain.json")
