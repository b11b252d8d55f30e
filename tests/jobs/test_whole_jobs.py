"""Whole jobs: everything linked, what is broken named, what is done kept."""

import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest
from etplus.jobs.batch import Batch, find_job, link_many
from etplus.jobs.job_report import read_job_report
from job_files import outputs, write_job
from support import command, read_json, shared_trace


def test_bad_ranks_are_named_and_the_others_done(tmp_path: Path) -> None:
    job = write_job(tmp_path / "job", 8)
    (job / "rank-1.kineto.json.gz").write_bytes(b"\x1f\x8b no gzip")
    (job / "rank-2.et.json.gz").unlink()
    for kind in ("et", "kineto"):
        (job / f"rank-5.{kind}.json.gz").unlink()
    shutil.copyfile(job / "rank-3.kineto.json.gz", job / "rank-4.kineto.json.gz")
    foreign = read_json(job / "rank-6.kineto.json.gz")
    foreign["distributedInfo"]["world_size"] = 2
    (job / "rank-6.kineto.json.gz").write_bytes(gzip.compress(orjson.dumps(foreign), 1))
    batch = link_many(job, jobs=2)
    reasons = {one.rank: one.reason for one in batch.report.failed}
    assert sorted(reasons) == [1, 2, 4, 6] and not batch.complete
    assert reasons[1].startswith("rank-1.kineto.json.gz: ")
    assert reasons[2] == "no ET was found for rank-2.kineto.json.gz"
    assert reasons[4] == "rank-4.kineto.json.gz: recorded by rank 3, not by rank 4; pass two files of the same rank"
    assert reasons[6] == (
        "not from this job: rank-6.kineto.json.gz is of a job of 2 ranks, the others of a job of 8 ranks"
    )
    assert batch.report.missing == "5"
    assert read_job_report(Path(batch.output) / "job_report.json") == batch.report
    assert Path(batch.output, "job_report.txt").read_text().startswith("ranks   3 of 7 linked: 0, 3, 7\n")
    assert [one.rank for one in batch.report.ranks if one.status == "linked"] == [0, 3, 7]
    assert str(tmp_path) not in batch.report.to_json().decode()
    only = link_many(job, ranks=[0, 3, 7], jobs=2)
    assert only.complete and (only.now, only.before) == (0, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="finds child processes in /proc")
def test_an_interrupted_batch_ends_without_tracebacks_and_partial_files(tmp_path: Path) -> None:
    job, out = write_job(tmp_path / "job", 10), tmp_path / "out"
    arguments = [*command("etplus"), "link", str(job), "--output", str(out), "--jobs", "3"]
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, start_new_session=True)
    until = time.monotonic() + 60
    while not outputs(out) and time.monotonic() < until:
        time.sleep(0.002)
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT and b"Traceback" not in errors
    assert len(workers) == 3 and not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert 1 <= len(outputs(out)) < 10 and not list(out.glob(".*.part"))


@pytest.mark.parametrize(("kept", "cause"), [
    (2000, "ops are linked: rank-1.kineto.json.gz is broken: the file is cut off at byte 2,000 of the gzip stream"),
    (200, ": the file is cut off before its \"traceEvents\" array"),
])  # fmt: skip
def test_the_reason_of_a_failed_rank_is_the_damage_of_its_file(tmp_path: Path, kept: int, cause: str) -> None:
    job = write_job(tmp_path / "job", 2)
    path = job / "rank-1.kineto.json.gz"
    path.write_bytes(path.read_bytes()[:kept])
    (failed,) = link_many(job, jobs=1).report.failed
    assert cause in failed.reason and "belong together" not in failed.reason


def containers(folder: Path, *, same_pid: bool, renamed: bool = False) -> Path:
    """The two ranks of a job whose contents do not tell its ranks apart, as recorded or each as process 1."""
    folder.mkdir()
    for rank in range(2):
        for kind, of in (("et", rank), ("kineto", 1 - rank if renamed else rank)):
            text = gzip.decompress(shared_trace(f"network/ddp-1mb/2gbit/rank{of}.{kind}.json.gz").read_bytes())
            for pid in (b"5969", b"5970") if same_pid else ():
                text = re.sub(rb'("pid": ?"?)' + pid + rb"(?!\d)", rb"\g<1>1", text)
            (folder / f"rank{rank}.{kind}.json").write_bytes(text)
    return folder


def counts(batch: Batch) -> list[tuple[int, int]]:
    return [(one.certain, one.unverified) for one in batch.report.ranks]


def test_the_files_of_all_ranks_prove_which_belong_together(tmp_path: Path) -> None:
    job = containers(tmp_path / "job", same_pid=False)
    manifest = tmp_path / "manifest.csv"
    manifest.write_text("rank,et,kineto\n" + "".join(f"{r},rank{r}.et.json,rank{r}.kineto.json\n" for r in (0, 1)))
    batch = link_many(job, tmp_path / "out", jobs=1, manifest=manifest)
    assert counts(batch) == [(1335, 0)] * 2 and not any(one.warnings for one in batch.report.ranks)
    assert counts(link_many(job, tmp_path / "part", ranks=[1], jobs=1)) == [(1335, 0)], "the other rank is there"
    later = link_many(job, tmp_path / "zone", ranks=[1], jobs=1, timezone="UTC+1")
    assert counts(later) == [(0, 1335)] and "assuming UTC+1" in later.report.ranks[0].warnings[0]
    batch = link_many(containers(tmp_path / "containers", same_pid=True), ranks=[1], jobs=1)
    assert counts(batch) == [(0, 1335)]
    assert all(one.warnings[0].startswith("the traces do not prove their rank") for one in batch.report.ranks)
    (job / "rank0.kineto.json").unlink()
    assert counts(link_many(job, tmp_path / "less", ranks=[1], jobs=1)) == [(0, 1335)]


@pytest.mark.parametrize("same_pid", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_exchanged_names_in_a_job_are_never_certain(tmp_path: Path, same_pid: bool) -> None:
    job = containers(tmp_path / "job", same_pid=same_pid, renamed=True)
    assert not any(one.proved for one in find_job(job).ranks)
    assert {one.certain for one in link_many(job, jobs=1).report.ranks} == {0}
