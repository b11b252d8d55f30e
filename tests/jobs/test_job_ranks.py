"""What traces say of their job: groups at hand, traces of other jobs, what is refused as a set."""

from types import SimpleNamespace
from typing import Any

import pytest
from etplus.jobs.job_ranks import JobTrace, RankFacts, check_job, foreign_traces, groups_at_hand, job_trace, ranks_of
from etplus.schemas.comm_types import WORLD
from etplus.trace.errors import UsageError

S = 10**9
NCCL = {"world_size": 4, "backend": "nccl"}


def facts(rank: int, info: dict[str, Any] | None = None, begin_s: int | None = 0) -> RankFacts:
    return RankFacts(f"r{rank}.json", NCCL if info is None else info, None if begin_s is None else begin_s * S)


def test_traces_without_ranks_of_their_own_are_numbered_by_position() -> None:
    for given, ranks in (([6, 2], [6, 2]), ([6, 6], [0, 1]), ([None, 6], [0, 1]), ([None], [0]), ([], [])):
        traces: Any = [SimpleNamespace(rank=rank) for rank in given]
        assert ranks_of(traces) == ranks


def test_groups_are_cut_down_to_the_ranks_at_hand() -> None:
    dp, tp, unknown = ("dp", (0, 4)), ("tp", (4, 5)), ("x", ())
    found, notes = groups_at_hand({4: [tp, dp, WORLD], 5: [tp, unknown]}, 8)
    assert found == {tp: [4, 5], dp: [4], unknown: [5], WORLD: [4, 5]}
    assert notes == ("2 of 8 ranks were given; process groups include only these",)
    assert groups_at_hand({0: [tp], 1: [unknown]}, 0)[1] == (notes[0].replace("8", "4"),)
    assert groups_at_hand({0: [unknown], 1: [unknown]}, 2) == ({unknown: [0, 1], WORLD: [0, 1]}, ())
    assert groups_at_hand({0: [unknown], 1: [unknown]}, 0)[1] == ()


def test_one_rank_alone_has_all_ranks_of_its_groups() -> None:
    dp, unknown = ("dp", (0, 4)), ("x", ())
    assert groups_at_hand({4: [dp, unknown, WORLD]}, 8) == ({dp: [0, 4], unknown: []}, ())
    assert groups_at_hand({}, 0) == ({}, ())


def test_a_minority_of_another_size_or_backend_is_foreign() -> None:
    traces = {rank: facts(rank) for rank in range(3)}
    assert foreign_traces(traces) == ({}, [])
    other = {**traces, 3: facts(3, {"world_size": 2, "backend": "gloo"})}
    assert foreign_traces(other) == ({3: "r3.json is of a job of 2 ranks, the others of a job of 4 ranks"}, [])
    assert foreign_traces({**traces, 3: facts(3, {"world_size": 4, "backend": "gloo"})})[0] == {
        3: "r3.json is of a job with backend gloo, the others of a job with backend nccl"
    }
    single = {**traces, 3: facts(3, {"world_size": [4]})}
    assert foreign_traces(single)[0] == {3: "r3.json is of no distributed job, the others of a job of 4 ranks"}
    assert foreign_traces({}) == ({}, [])


def test_without_a_majority_a_note_names_the_jobs() -> None:
    halves = {0: facts(0), 1: facts(1, {"world_size": 2, "backend": "nccl"})}
    assert foreign_traces(halves) == ({}, ["the traces come from different jobs: a job of 2 ranks, a job of 4 ranks"])


def test_a_trace_of_another_time_is_foreign() -> None:
    begins = {0: 10_000, 1: 10_000 + 3600, 2: 10_000 - 3600, 3: None}
    assert foreign_traces({rank: facts(rank, begin_s=begin) for rank, begin in begins.items()}) == ({}, [])
    late = {0: 10_000, 1: 10_000, 2: 10_000 + 3601, 4: 10_000 - 7300}
    found, notes = foreign_traces({rank: facts(rank, begin_s=begin) for rank, begin in late.items()})
    assert found == {
        2: "r2.json was recorded 1 hours after the others", 4: "r4.json was recorded 2 hours before the others",
    } and not notes  # fmt: skip


@pytest.mark.parametrize(("apart", "notes"), [(3600, []), (3601, ["the traces were recorded 1 hours apart"])])
def test_of_two_traces_none_is_the_foreign_one(apart: int, notes: list[str]) -> None:
    assert foreign_traces({0: facts(0, begin_s=500), 1: facts(1, begin_s=500 + apart)}) == ({}, notes)


@pytest.mark.parametrize(("length", "begin"), [(7, 1020), (0, None)])
def test_a_job_trace_keeps_facts_rank_and_digest(length: int, begin: int | None) -> None:
    span = SimpleNamespace(start=20, length=length)
    trace: Any = SimpleNamespace(base_time_ns=1000, span=span, file="f", distributed_info=NCCL, rank=3, digest=b"d")
    assert job_trace(trace) == JobTrace(RankFacts("f", NCCL, begin), 3, b"d")


def of_job(*ranks: int | None, info: dict[str, Any] | None = None, content: bytes | None = None) -> list[JobTrace]:
    return [JobTrace(facts(i, info), rank, content or bytes([i])) for i, rank in enumerate(ranks)]


def test_the_ranks_of_one_job_pass() -> None:
    assert check_job(of_job(0, 1, 2, 3)) == ()
    assert check_job([]) == check_job(of_job(None)) == ()
    assert check_job(of_job(0, 1, content=b"same")) == (), "ranks of one job may be alike to the last byte"
    assert check_job(of_job(0, None, None)) == (
        "2 of 3 traces do not record their rank (distributedInfo), first r1.json: "
        "it is unknown whether they all come from one job",
    )


@pytest.mark.parametrize(
    ("traces", "problem"),
    [
        (of_job(1, 1), "r0.json and r1.json both have rank 1"),
        (of_job(0, None, content=b"same"), "r0.json and r1.json are the same recording"),
        (of_job(None, 0, content=b"same"), "r0.json and r1.json are the same recording"),
        (of_job(*range(5)), "5 traces of a job of 4 ranks"),
        (of_job(0, 1, info={"world_size": 1}), "2 traces of a job of 1 rank"),
        ([*of_job(0), JobTrace(facts(1, {"world_size": 9}), 1, b"1")],
         "not the ranks of one job: the traces come from different jobs: a job of 4 ranks, a job of 9 ranks"),
        ([*of_job(0, 1, 2), JobTrace(facts(3, begin_s=9999), 3, b"3")],
         "not the ranks of one job: r3.json was recorded 3 hours after the others"),
    ],
)  # fmt: skip
def test_traces_that_are_not_one_job_are_refused(traces: list[JobTrace], problem: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_job(traces)
    assert str(raised.value) == f"{problem}; give only the traces of one job, one per rank"
