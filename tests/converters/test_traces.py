"""Traces by rank: which rank a trace is of, how often it is read, and what the job's report changes."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from etplus.converters import traces as module
from etplus.converters.traces import RankCall, Traces, run_on
from etplus.jobs.engines import engine_of
from etplus.schemas.nsys import NsysRank
from etplus.trace.errors import EtplusError, UsageError
from etplus.trace.trace import Trace
from etplus_files import cpu, etplus


def of_rank(rank: int | None = None) -> Trace:
    return etplus([cpu(3, "a", 0, 1)], **({} if rank is None else {"rank": rank, "world_size": 9}))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was read; each file is a trace that does not say its rank."""
    read: list[Any] = []

    def open_trace(source: Any) -> Trace:
        if not isinstance(source, Trace):
            read.append(source)
        return source if isinstance(source, Trace) else of_rank()

    monkeypatch.setattr(module, "open_trace", open_trace)
    return read


def test_the_rank_is_what_the_trace_says_then_its_name_then_its_position(opened: list[Any]) -> None:
    several, alone = NsysRank("x.sqlite", 5, 1, 0), NsysRank("rank8.sqlite", 5, 1, 0, alone=True)
    sources = [of_rank(), of_rank(7), "rank3.json", Path("job.4.et"), several, alone, "plain.json"]
    assert list(Traces(sources)) == [0, 7, 3, 4, 5, 8, 6]
    assert list(Traces([of_rank(7), of_rank(7)], independent=True)) == [0, 1]


def test_only_the_last_trace_is_held(opened: list[Any]) -> None:
    traces = Traces(["rank0.json", "rank1.json"])
    assert [rank for rank, _ in traces.items()] == [0, 1] == [0, len(traces) - 1]
    assert opened == ["rank0.json", "rank1.json"]
    assert traces[1] is traces[1] and len(opened) == 2
    assert traces[0] is traces[0] and opened[2:] == ["rank0.json"]
    assert set(traces.notes) == set(traces.damage) == {0, 1}


def test_only_the_chosen_rank_is_there_and_missing_ones_are_refused(opened: list[Any]) -> None:
    traces = Traces(["rank0.json", "rank1.json"], rank=1)
    assert (len(traces), list(traces), traces.source) == (1, [1], "rank1.json")
    with pytest.raises(KeyError):
        traces[0]
    with pytest.raises(UsageError, match="no file for rank 3; there are ranks 0, 1"):
        list(Traces(["rank1.json", "rank0.json"], rank=3))
    with pytest.raises(KeyError):
        Traces(["rank0.json"])[2]


def test_one_that_is_alone_is_not_read_for_its_name(opened: list[Any]) -> None:
    assert Traces(["rank0.json"]).source == "rank0.json" and opened == []


def test_two_traces_of_one_rank_are_refused(opened: list[Any]) -> None:
    with pytest.raises(UsageError, match="are both rank 0; give one of them"):
        list(Traces(["rank0.json", "folder/rank0.json"]))
    with pytest.raises(UsageError, match=f"^{of_rank(2).file} and {of_rank(2).file} are both rank 2"):
        list(Traces([of_rank(2), of_rank(2)]))


class Job:
    """A report of which two methods are asked."""

    def offset_of(self, rank: int) -> int:
        return 500 * rank

    def unmatched(self, rank: int) -> set[int]:
        return {rank}


def test_a_job_gives_offsets_and_what_does_not_match(opened: list[Any]) -> None:
    job: Any = Job()
    traces = Traces([of_rank(1), of_rank(2)], job=job)
    plain = of_rank(1).base_time_ns
    bases = [traces[rank].base_time_ns for rank in (1, 2)]
    assert bases[0] != plain and bases[1] - plain == 2 * (bases[0] - plain)
    assert (traces.unmatched(2), Traces([of_rank(1)]).unmatched(1)) == ({2}, ())


def test_the_source_of_the_wanted_rank_is_returned(opened: list[Any]) -> None:
    assert Traces(["rank0.json"], rank=0).source == "rank0.json" and opened == ["rank0.json"]
    with pytest.raises(UsageError, match=r"no file for rank 3; there are ranks 0$"):
        assert Traces(["rank0.json"], rank=3).source
    with pytest.raises(ValueError, match="too many"):
        assert Traces(["rank0.json", "rank1.json"]).source
    assert Traces(["rank1.json", "rank0.json"], rank=0).source == "rank0.json"


def test_only_traces_of_wanted_ranks_are_passed_to_choose(opened: list[Any]) -> None:
    chosen: list[int | None] = []

    def choose(trace: Trace) -> Trace:
        chosen.append(trace.rank)
        return trace

    traces = Traces([of_rank(4), of_rank(2), of_rank(7)], ranks={2, 7}, choose=choose)
    assert list(traces) == [2, 7] and len(traces) == 2
    assert chosen == [2, 7] and traces[7].rank == 7 and chosen == [2, 7]


def test_a_call_on_a_rank_answers_for_wanted_ranks_alone(opened: list[Any]) -> None:
    def call(source: Any, ranks: set[int] | None) -> Any:
        return RankCall(len, source, 3, None if ranks is None else frozenset(ranks), None).run()

    assert call(of_rank(1), None) == call(of_rank(1), {1}) == (1, 3) and call(of_rank(1), {0}) is None
    assert call("plain.json", {3}) == (3, 3) and call("plain.json", {0}) is None
    assert RankCall(len, of_rank(1), 0, None, lambda trace: of_rank(5)).run() == (1, 3)


def test_answers_of_processes_come_in_the_order_of_the_sources_and_one_rank_answers_once(opened: list[Any]) -> None:
    def own_error(trace: Trace) -> None:
        raise UsageError("its own")

    with ThreadPoolExecutor(2) as pool:
        engine = engine_of(pool, None, None)
        assert list(run_on(engine, len, [of_rank(2), of_rank(0), of_rank(1)], frozenset({0, 2}))) == [(2, 3), (0, 3)]
        assert list(run_on(engine, len, [of_rank(2), of_rank(1), of_rank(0)], frozenset({0}))) == [(0, 3)]
        with pytest.raises(UsageError, match=r"rank5\.json and rank5\.json are both rank 5; give one of them"):
            list(run_on(engine, len, ["rank5.json", of_rank(1), "rank5.json"]))
        with pytest.raises(EtplusError, match=r"^rank5\.json: ZeroDivisionError: "):
            list(run_on(engine, lambda trace: 1 // 0, ["rank5.json"]))
        with pytest.raises(UsageError, match="its own"):
            list(run_on(engine, own_error, ["rank5.json"]))


def test_whole_files_are_converted_as_they_are_only_if_nothing_is_chosen(opened: list[Any]) -> None:
    assert Traces(["a.et", Path("b.et")]).whole_files == ["a.et", "b.et"]
    assert Traces(["a.et"], part={"steps": None}).whole_files == ["a.et"]
    changed = [Traces(["a.et"], part={"steps": "1"}), Traces(["a.et"], ranks={0}), Traces(["a.et"], job=Job())]  # type: ignore[arg-type]
    assert [traces.whole_files for traces in (*changed, Traces(["a.et", of_rank()]))] == [None] * 4
