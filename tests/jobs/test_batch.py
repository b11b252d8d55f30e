"""A batch but for linking: what is refused before, why ranks fail, and the report that follows from their states."""

import time
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from etplus.jobs import batch
from etplus.jobs.batch import Batch, find_job
from etplus.jobs.engines import engine_of, failure_reason, run_all
from etplus.jobs.job_report import JobReport, RankResult
from etplus.jobs.pairing import Pairing, RankFiles
from etplus.jobs.rank_communications import COLUMNS
from etplus.jobs.rank_link import RankState, RankTask
from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType
from etplus.schemas.comm_types import WORLD
from etplus.schemas.text.storage import open_folder
from etplus.trace.errors import EtplusError, UsageError

REDUCE = CollectiveCommType.ALL_REDUCE
NS = 1_700_000_000 * 10**9


@pytest.mark.parametrize(
    ("root", "output", "inside"),
    [
        ("job", "job/out", "out"), ("job", "job/a/out", "a/out"), ("job", "job", ""), ("job", "out", ""),
        ("job", "job2/out", ""), ("job", "job/../job/out", "out"), ("s3://b/job", "s3://b/job/out/", "out"),
        ("s3://b/job", "s3://b/job2", ""), ("s3://b/job", "/tmp/out", ""), ("job", "s3://b/job", ""),
    ],
)  # fmt: skip
def test_an_output_folder_inside_the_inputs_is_recognized(root: str, output: str, inside: str) -> None:
    assert batch._inside(root, output) == inside


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EtplusError("k.json: no"), "k.json: no"), (ValueError("x"), "ValueError: x"),
        (MemoryError(), "there is not enough memory; run again with fewer --jobs"),
        *((error, "its process was killed twice, perhaps for lack of memory; run again with fewer --jobs")
          for error in (BrokenExecutor(), SystemExit(1))),
    ],
)  # fmt: skip
def test_an_error_becomes_the_reason_why_a_rank_failed(error: BaseException, reason: str) -> None:
    assert failure_reason(error) == reason


def test_only_options_other_than_the_default_are_kept() -> None:
    assert batch._other_than_default({"iteration": "median", "strict": True, "match": "auto"}) == {"strict": True}
    for unknown in ("rank", "whole_job", "jobs", "x"):
        with pytest.raises(UsageError, match=f"link has no option '{unknown}'"):
            batch._other_than_default({unknown: 1, "strict": True})


@pytest.mark.parametrize(
    ("engine", "jobs", "scheduler", "message"),
    [
        ("threads", None, None, "unknown engine 'threads'; one of: processes, dask"),
        ("dask", None, None, "a scheduler requires engine"), ("processes", 2, "tcp://h:1", "a scheduler requires"),
        ("processes", 0, None, "invalid number of processes: 0; use 1 or more"),
    ],
)  # fmt: skip
def test_impossible_engines_are_refused(engine: str, jobs: int | None, scheduler: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        engine_of(engine, jobs, scheduler)


def test_no_more_than_the_window_runs_at_once() -> None:
    active, most = list[int](), list[int]()

    def task(number: int) -> int:
        active.append(number)
        most.append(len(active))
        time.sleep(0.005)
        active.remove(number)
        return number

    engine = batch.Engine(lambda count: ThreadPoolExecutor(6), window=2)
    assert sorted(run_all(engine, task, range(6))) == [(k, k) for k in range(6)] and max(most) == 2


def task_of(source: Path, target: Path, et: str = "e.json") -> RankTask:
    return RankTask(0, et, "k.json", open_folder(source), open_folder(target), 0.95)


def test_an_output_never_replaces_an_input(tmp_path: Path) -> None:
    job, out = tmp_path / "job", tmp_path / "new" / "out"
    job.mkdir()
    for name in ("e.json", "k.json", "rank_0.etplus.json.gz", "job_report.txt"):
        (job / name).write_bytes(b"")
    batch._keep_inputs([task_of(job, out)], open_folder(out), job / "m.csv")
    assert out.is_dir()
    for et in ("rank_0.etplus.json.gz", "job_report.txt"):
        with pytest.raises(UsageError, match=et):
            batch._keep_inputs([task_of(job, job, et)], open_folder(job), None)
    with pytest.raises(UsageError, match=r"job_report\.txt"):
        batch._keep_inputs([task_of(job, job)], open_folder(job), job / "job_report.txt")
    folder: Any = SimpleNamespace(place=lambda name: f"s3://b/{name}", root="s3://b")
    with pytest.raises(UsageError, match=r"^s3://b/.*: the output would replace an input; choose another --output$"):
        batch._keep_inputs([RankTask(0, "s3://b/job_report.json", "k.json", folder, folder, 0.95)], folder, None)
    batch._keep_inputs([RankTask(0, "e.json", "k.json", folder, folder, 0.95)], folder, None)


def test_a_folder_without_pairs_is_refused_with_reasons(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="omit the patterns for ETs and Kineto traces"):
        find_job(tmp_path, manifest="m.csv", et="*")
    for rank in range(5):
        (tmp_path / f"rank{rank}.et.json").write_bytes(b"")
    with pytest.raises(UsageError) as raised:
        find_job(tmp_path)
    reasons = "; ".join(f"rank {k}: no Kineto trace was found for rank{k}.et.json" for k in range(3))
    assert str(raised.value) == (
        f"{open_folder(tmp_path).root}: no pair of an Execution Trace and a Kineto trace was found: {reasons}"
    )
    (tmp_path / "rank1.kineto.json").write_bytes(b"")
    assert [rank.rank for rank in find_job(tmp_path, ranks=[1, 7]).ranks] == [1]
    (tmp_path / "etplus").mkdir()
    (tmp_path / "etplus" / "rank9.et.json").write_bytes(b"")
    assert [rank.rank for rank in find_job(tmp_path).ranks] == [0, 1, 2, 3, 4], "outputs are no inputs"


def a_state(
    rank: int, ends: list[int], start_ns: int = NS, info: dict[str, Any] | None = None, took: int = 5, **more: Any
) -> RankState:
    """All-reduces of 8 bytes that end at these times."""
    count, end = len(ends), NS + np.array(ends, np.int64)
    columns = {"node": np.arange(count), "kind": np.full(count, REDUCE), "bytes": np.full(count, 8), "start": end - 10,
               "end": end, "peer": np.full(count, -1), "seq": np.full(count, -1)}  # fmt: skip
    table = np.concatenate([columns.get(name, np.zeros(count, np.int64)) for name in COLUMNS]).astype("<i8").tobytes()
    result = RankResult(rank, "linked", kineto=f"k{rank}", window_ns=(start_ns, start_ns + took), **more)
    return RankState("1", {}, None, None, None, result, {"world_size": 4} if info is None else info, [WORLD], table)


def a_pairing(count: int, **more: Any) -> Pairing:
    return Pairing(tuple(RankFiles(rank, f"e{rank}", f"k{rank}") for rank in range(count)), **more)


def test_a_rank_of_a_folder_of_several_is_linked_as_one_of_several_even_if_it_is_chosen_alone(tmp_path: Path) -> None:
    def options(pairing: Pairing) -> list[dict[str, Any]]:
        return [task.options for task in batch._tasks(pairing, task_of(tmp_path, tmp_path))]

    assert options(a_pairing(2).of([1])) == [{"one_of_several": True, "rank": 1}]
    assert options(a_pairing(1).of([0])) == [{"rank": 0}]


def test_the_report_lists_ranks_clocks_and_groups() -> None:
    states = {rank: a_state(rank, [100 + 3 * rank, 200 + 3 * rank], iterations=("a",)) for rank in (1, 0)}
    report = batch._report(a_pairing(3, missing=(3, 4), notes=("n",)), states, {2: "no"})
    assert [(clock.rank, clock.offset_ns) for clock in report.clock_offsets] == [(0, 0), (1, 3)]
    assert [(r.rank, r.status, r.reason) for r in report.ranks] == [
        (0, "linked", ""), (1, "linked", ""), (2, "failed", "no"),
    ]  # fmt: skip
    assert (report.world_size, report.missing, report.not_given, report.notes) == (4, "3-4", "", ("n",))
    (group,) = report.groups
    assert (group.collectives, group.matched, report.mismatches) == (2, 2, ())
    assert batch._report(a_pairing(2), states, {}).not_given == "2-3"
    assert not Batch(report, "out", 2, 0).complete and Batch(JobReport("1", report.ranks[:2]), "out", 2, 0).complete
    assert not Batch(JobReport("1", report.ranks[:2], missing="2"), "out", 2, 0).complete


def test_notes_tell_different_iterations_and_a_lone_rank() -> None:
    apart = {0: a_state(0, [100], iterations=("a", "b")), 1: a_state(1, [103])}
    (note,) = batch._report(a_pairing(2), apart, {}).notes
    assert note.startswith("the ranks are linked to different iterations (none; a, b)")
    (note,) = batch._report(a_pairing(1), {0: a_state(0, [])}, {}).notes
    assert note.startswith("only rank 0 was linked; ")


def test_a_rank_of_another_job_fails_and_is_left_out_of_the_rest() -> None:
    states = {rank: a_state(rank, [100]) for rank in range(3)}
    states[3] = a_state(3, [], info={"world_size": 64}, iterations=("x",))
    report = batch._report(a_pairing(4), states, {})
    assert report.ranks[3].status == "failed" and [rank.status for rank in report.ranks[:3]] == ["linked"] * 3
    assert report.ranks[3].reason == "not from this job: k3 is of a job of 64 ranks, the others of a job of 4 ranks"
    assert report.world_size == 4 and not report.notes and not report.mismatches
    assert [clock.rank for clock in report.clock_offsets] == [0, 1, 2]
    states[3] = a_state(3, [100], start_ns=NS + 4 * 3600 * 10**9)
    assert "was recorded 4 hours after the others" in batch._report(a_pairing(4), states, {}).ranks[3].reason
    states[3] = a_state(3, [100], took=4 * 3600 * 10**9)
    assert batch._report(a_pairing(4), states, {}).ranks[3].status == "linked", "the start counts"


def test_a_world_size_that_is_no_count_is_unknown() -> None:
    for size, world in ((True, None), (0, None), (64, 64), (10**7 + 1, None), ("4", None)):
        report = batch._report(a_pairing(1), {0: a_state(0, [], info={"world_size": size})}, {})
        assert report.world_size == world
