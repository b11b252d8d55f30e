"""Traces by rank: which rank a trace is of, how often it is read, and what the job's report changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from etplus.converters import traces as module
from etplus.converters.traces import Traces
from etplus.schemas.nsys import NsysRank
from etplus.trace.errors import UsageError
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


def test_one_of_several(opened: list[Any]) -> None:
    traces = Traces(["rank0.json", "rank1.json"], rank=1)
    assert (len(traces), list(traces), traces.source) == (1, [1], "rank1.json")
    with pytest.raises(KeyError):
        traces[0]
    with pytest.raises(UsageError, match="no file of rank 3; there are ranks 0, 1"):
        list(Traces(["rank1.json", "rank0.json"], rank=3))
    with pytest.raises(KeyError):
        Traces(["rank0.json"])[2]


def test_one_that_is_alone_is_not_read_for_its_name(opened: list[Any]) -> None:
    assert Traces(["rank0.json"]).source == "rank0.json" and opened == []


def test_two_of_one_rank_are_refused(opened: list[Any]) -> None:
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


def test_the_only_source_that_is_wanted(opened: list[Any]) -> None:
    """Alone, but of a rank that is asked for, it is read to see whether it is that one; of several none is the one."""
    assert Traces(["rank0.json"], rank=0).source == "rank0.json" and opened == ["rank0.json"]
    with pytest.raises(UsageError, match=r"no file of rank 3; there are ranks 0$"):
        assert Traces(["rank0.json"], rank=3).source
    with pytest.raises(ValueError, match="too many"):
        assert Traces(["rank0.json", "rank1.json"]).source
    assert Traces(["rank1.json", "rank0.json"], rank=0).source == "rank0.json"
