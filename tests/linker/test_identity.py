"""What follows from what is known of two files, with the calls that one lacks (linker/call_evidence.py)."""

import calendar
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from etplus.linker import identity
from etplus.linker.identity import (
    OFFSETS_S,
    Claims,
    StatedRank,
    identify,
    modified,
    offset_name,
    offsets_of,
    read_claims,
    stated_rank,
)
from etplus.linker.rank_claims import Claim
from etplus.trace.conventions import MAX_RANKS
from etplus.trace.errors import TraceFormatError, UsageError
from etplus.trace.link_report import Identity

S = 10**9
STARTED = 1_700_000_000
"""When the ET was recorded, local time, s; for 10 s."""
TWO = Claim(world_size=2)
PID = 50_000


def a_pair(
    *, pid: int = PID, pids: tuple[int, ...] = (PID,), started: int = STARTED, begin: float = 1.0, length: float = 3.0,
    ours: list[int] | None = None, theirs: list[int] | None = None, names: tuple[list[int], list[int]] | None = None,
    threads: list[int] | None = None, losses: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
) -> Any:  # fmt: skip
    """A pair with one linked call a process of the Kineto trace, `begin` seconds after the start of the ET."""
    start = np.full(len(pids), round(begin * S))
    known, others = np.array(ours or [], np.int64), np.array(theirs or [], np.int64)
    of_nodes, of_calls = names or ([0] * len(known), [0] * len(others))
    return SimpleNamespace(
        et=SimpleNamespace(
            pid=pid, started_s=started, duration_s=10.0, losses=losses[0], names=["aten::mm", "aten::add"],
            name=np.array(of_nodes, np.int64),
        ),
        kineto=SimpleNamespace(
            base_time_ns=STARTED * S, losses=losses[1],
            events=SimpleNamespace(threads=[(process, b"1") for process in pids]),
        ),
        nodes=SimpleNamespace(
            node=np.arange(len(known)), name=np.array(of_nodes, np.int64),
            thread=np.array(threads or [1] * len(known), np.int64), seq=np.full(len(known), -1),
        ),
        calls=SimpleNamespace(
            thread=np.arange(len(pids)), ts=start, end=start + round(length * S), name=np.array(of_calls, np.int64),
            seq=np.full(len(pids), -1),
        ),
        rf_ids=(known, others),
    )  # fmt: skip


def claims_of(et: Claim = Claim(), kineto: Claim = Claim(), stated: StatedRank | None = None, **more: Any) -> Claims:  # noqa: B008
    rest = {"machine": 0, "timezone": "UTC", "modified_s": None, "whole_job": False, **more}
    return Claims(et, kineto, stated, **rest)


def judged(claims: Claims, pair: Any = None, linked: list[int] | None = None) -> Identity:
    pair = a_pair() if pair is None else pair
    calls = np.array([*range(len(pair.calls.ts))] if linked is None else linked, np.int64)
    return identify(claims, pair, calls, (calls[:0], calls[:0]), np.zeros(len(pair.nodes.name), np.bool_))


def by(found: Identity) -> tuple[list[str], list[str], list[str]]:
    return tuple([finding.by for finding in part] for part in (found.proves, found.refutes, found.unknown))  # type: ignore[return-value]


def at_rank(rank: int, world: int | None = 2) -> Claim:
    return Claim(frozenset({rank}), world)


def test_process_and_time_prove_a_run_of_one_rank() -> None:
    found = judged(claims_of())
    assert (found.verdict, found.rank, by(found)) == ("proved", None, (["pid", "time"], [], []))
    assert judged(claims_of(Claim(world_size=1), at_rank(0, 1))).verdict == "proved"


@pytest.mark.parametrize(
    ("et", "kineto", "stated", "several"),
    [
        (Claim(), Claim(), None, False), (Claim(world_size=1), Claim(communicates=True), None, False),
        (TWO, Claim(), None, True), (Claim(world_size=1), TWO, None, True), (at_rank(0, None), Claim(), None, False),
        (at_rank(1, None), Claim(), None, True), (Claim(), at_rank(3, None), None, True),
        (Claim(), Claim(), StatedRank(0, "names"), True), (Claim(), Claim(), StatedRank(1, "names"), True),
        (Claim(communicates=True), Claim(), None, True), (Claim(), Claim(communicates=True), None, True),
        (Claim(frozenset({1, 2})), Claim(), None, False),
    ],
)  # fmt: skip
def test_claims_allow_one_or_several_ranks(et: Claim, kineto: Claim, stated: StatedRank | None, several: bool) -> None:
    claims = claims_of(et, kineto, stated)
    assert claims.several_ranks is several and judged(claims).several_ranks is several
    assert claims.world_size == max(filter(None, (et.world_size, kineto.world_size)), default=None)
    assert (judged(claims).verdict == "proved") <= (not several), "of several ranks the rank must be proved"


@pytest.mark.parametrize(
    ("claims", "verdict", "rank", "proves", "unknown"),
    [
        (claims_of(TWO, TWO), "unknown", None, [], ["rank"]),
        (claims_of(at_rank(1), at_rank(1)), "proved", 1, ["rank"], []),
        (claims_of(at_rank(1), TWO), "unknown", None, [], ["rank"]),
        (claims_of(TWO, TWO, StatedRank(1, "names")), "stated", 1, [], ["names"]),
        (claims_of(TWO, TWO, StatedRank(1, "option")), "stated", 1, [], ["option"]),
        (claims_of(TWO, at_rank(0), StatedRank(1, "names")), "unknown", None, [], ["names", "rank"]),
        (claims_of(TWO, TWO, StatedRank(1, "names"), whole_job=True), "proved", 1, ["job"], []),
        (claims_of(TWO, TWO, whole_job=True), "proved", None, ["job"], []),
        (claims_of(TWO, at_rank(0), StatedRank(1, "names"), whole_job=True), "unknown", None, [], ["names", "rank"]),
        (claims_of(TWO, TWO, machine=2), "proved", None, ["rank"], []),
        (claims_of(TWO, TWO, machine=1), "unknown", None, [], ["rank"]),
        (claims_of(Claim(communicates=True), machine=1), "proved", None, ["rank"], []),
    ],
)
def test_the_rank_must_be_proved(
    claims: Claims, verdict: str, rank: int | None, proves: list[str], unknown: list[str]
) -> None:
    found = judged(claims)
    assert (found.verdict, found.rank) == (verdict, rank)
    assert by(found) == (["pid", "time", *proves], [], unknown)


def test_a_rank_alone_proves_no_run() -> None:
    found = judged(claims_of(at_rank(1), at_rank(1)), a_pair(pid=-1))
    assert (found.verdict, found.rank, by(found)) == ("unknown", 1, (["time", "rank"], [], ["pid"]))
    assert judged(claims_of(), a_pair(pid=-1)).verdict == "unknown"
    assert judged(claims_of(TWO, TWO, StatedRank(1, "names")), a_pair(pid=-1)).verdict == "unknown"


def test_ranks_and_jobs_that_differ_refute() -> None:
    found = judged(claims_of(at_rank(0), at_rank(1), whole_job=True))
    assert (found.verdict, found.rank, by(found)[1]) == ("refuted", None, ["rank"])
    assert "the ET was recorded by rank 0, the Kineto trace by rank 1;" in found.refutes[0].says
    for count, more in ((10, ", …"), (8, "")):
        says = judged(claims_of(Claim(frozenset(range(count)), 20), at_rank(15, 20))).refutes[0].says
        assert f"recorded by one of ranks 0, 1, 2, 3, 4, 5, 6, 7{more}, the Kineto" in says
    found = judged(claims_of(TWO, Claim(world_size=4)))
    assert (found.verdict, by(found)[1]) == ("refuted", ["world_size"])
    assert found.refutes[0].says == "two jobs: the ET is from a job of 2 ranks, the Kineto trace from one of 4"
    assert not judged(claims_of(Claim(frozenset({0, 1})), Claim(frozenset({1, 2})))).refutes


@pytest.mark.parametrize(
    ("pid", "pids", "proves", "refutes", "unknown"),
    [(PID, (PID,), ["pid"], [], []), (PID, (6,), [], ["pid"], []), (PID, (PID, 6), [], ["pid"], []),
     (-1, (PID,), [], [], ["pid"]), (0, (0,), [], [], ["pid"]), (0, (1,), [], ["pid"], []),
     (4096, (4096,), ["pid"], [], []), (4095, (4095,), [], [], ["pid"]), (1, (2,), [], ["pid"], [])],
)  # fmt: skip
def test_equal_large_process_ids_prove_one_run_and_different_ones_refute(
    pid: int, pids: tuple[int, ...], proves: list[str], refutes: list[str], unknown: list[str]
) -> None:
    found = judged(claims_of(), a_pair(pid=pid, pids=pids))
    assert by(found) == ([*proves, "time"], refutes, unknown)
    assert found.verdict == ("refuted" if refutes else "proved" if proves else "unknown")


def test_without_a_link_there_is_no_evidence() -> None:
    assert by(judged(claims_of(), linked=[])) == ([], [], [])
    assert by(judged(claims_of(), a_pair(started=-1))) == (["pid"], [], ["time"])
    assert by(judged(claims_of(), a_pair(started=0, begin=-STARTED + 1))) == (["pid", "time"], [], [])


@pytest.mark.parametrize(
    ("begin", "length", "inside"),
    [
        (-1.0, 3, True), (-1.01, 3, False), (0, 10, True), (0, 10.011, True), (0, 10.02, False), (9, 3, True),
        (9, 3.01, False), (2, 10, True), (2.01, 10, False), (20, 1, False),
    ],
)  # fmt: skip
def test_events_must_lie_within_the_window_of_the_et(begin: float, length: float, inside: bool) -> None:
    found = judged(claims_of(), a_pair(begin=begin, length=length))
    assert by(found) == ((["pid", "time"], [], []) if inside else (["pid"], ["time"], []))


def test_another_time_zone_needs_to_be_known() -> None:
    seven_before = a_pair(begin=7 * 3600 + 1)  # the ET's local time is 7 hours behind
    found = judged(claims_of(timezone=None), seven_before)
    assert (found.verdict, by(found)) == ("unknown", (["pid"], [], ["time"]))
    assert "in UTC-07:00, which the files do not show" in found.unknown[0].says
    assert judged(claims_of(timezone="UTC-7"), seven_before).proves[1].says.endswith("(local time UTC-07:00)")
    found = judged(claims_of(timezone="UTC-6"), seven_before)
    assert found.refutes[0].says.startswith("two windows: the linked Kineto events fall outside the time the ET")
    assert "recorded, assuming UTC-6; " in found.refutes[0].says
    assert judged(claims_of(timezone=None)).verdict == "proved", "nothing is assumed where local time is UTC"
    assert by(judged(claims_of(timezone=None), a_pair(begin=7 * 3600 + 900)))[1] == ["time"], "no zone is so"


@pytest.mark.parametrize(
    ("et_after", "kineto_after", "shown"),
    [
        (0, 0, True), (-1, -1, True), (-1.1, 0, False), (0, -1.1, False), (3, 600, True), (3.1, 0, False),
        (0, 600.5, False),
    ],
)  # fmt: skip
def test_the_times_of_files_show_the_time_zone(et_after: float, kineto_after: float, shown: bool) -> None:
    zone = 7 * 3600
    written = STARTED + zone + 10 + et_after, STARTED + zone + 4 + kineto_after
    found = judged(claims_of(timezone=None, modified_s=written), a_pair(begin=zone + 1))
    assert found.verdict == ("proved" if shown else "unknown")
    other = judged(claims_of(timezone="UTC-6", modified_s=written), a_pair(begin=zone + 1))
    assert other.verdict == "refuted", "what the user says goes before"


def test_an_id_of_the_recording_decides_alone() -> None:
    one, both, other = (Claim(frozenset({k}), 4, True, frozenset(runs)) for k, runs in ((0, "a"), (0, "ab"), (1, "b")))
    found = judged(claims_of(one, both), a_pair(started=-1))
    assert (found.verdict, found.rank, by(found)) == ("proved", 0, (["run", "pid"], [], []))
    assert found.proves[0].says == "both files contain the recording id a"
    found = judged(claims_of(one, other))
    assert found.verdict == "refuted" and by(found)[1] == ["run", "rank"]
    assert found.refutes[0].says == "two runs: the ET is from recording a, the Kineto trace from recording b"
    assert by(judged(claims_of(one, at_rank(0, 4))))[1] == [], "an id in one file only says nothing"
    assert judged(claims_of(one, both), a_pair(pids=(6,))).verdict == "refuted"


@pytest.mark.parametrize(
    ("ours", "theirs", "names", "threads", "lacking"),
    [
        ([1, 2, 3], [1, 2, 3], None, None, 0),
        ([1, 2, 3], [1, 3], None, None, 1),
        ([1, 2, 3, 4], [1, 4], None, None, 2),
        ([1, 2, 3], [2, 3], None, None, 0),  # before the first common one
        ([1, 2, 3], [1, 2], None, None, 0),  # after the last one
        ([1, 2, 3], [7, 8], None, None, 0),
        ([1, 0, 3], [1, 3], None, None, 0),  # a call without an id
        ([1, 0, 3], [1, 0, 3], ([0, 1, 0], [0, 0, 0]), None, 0),
        ([1, 2, 3], [1, 3], None, [1, 2, 1], 0),  # of a thread that is not in the Kineto trace
        ([1, 2, 3, 4], [1, 3, 4], None, [1, 2, 2, 2], 0),
        ([1, 2, 3, 4], [1, 2, 4], None, [1, 2, 2, 2], 1),
        ([1, 2], [1, 2], ([0, 1], [0, 0]), None, 1),  # under another name
    ],
)
def test_calls_that_the_kineto_trace_lacks_refute_the_pair(
    ours: list[int], theirs: list[int], names: Any, threads: list[int] | None, lacking: int
) -> None:
    pair = a_pair(ours=ours, theirs=theirs, names=names, threads=threads, pids=(PID,) * max(len(theirs), 1))
    found = judged(claims_of(at_rank(0), at_rank(0)), pair)
    assert by(found)[1] == ["calls"] * bool(lacking) and (found.verdict == "proved") == (not lacking)
    if lacking:
        name = "aten::add" if names else "aten::mm"
        assert f"two processes: {lacking} calls of the ET (such as {name}) are not in" in found.refutes[0].says
    assert bool(judged(claims_of(), pair).refutes) == bool(lacking), "two runs of one rank differ, too"


@pytest.mark.parametrize("losses", [(("cut",), ()), ((), ("cut",))])
def test_calls_of_cut_files_are_no_evidence(losses: Any) -> None:
    pair = a_pair(ours=[1, 2, 3], theirs=[1, 3], pids=(PID, PID), losses=losses)
    assert judged(claims_of(at_rank(0), at_rank(0)), pair).verdict == "proved"


def test_the_rank_is_stated_by_the_option_or_the_names(tmp_path: Path) -> None:
    assert stated_rank("rank1.et.json", "rank1.kineto.json", None) == StatedRank(1, "names")
    assert stated_rank("rank1.et.json", "rank2.kineto.json", 0) == StatedRank(0, "option")
    assert stated_rank("rank1.et.json", "kineto.json", None) is None
    assert stated_rank(b"{}", io.BytesIO(), None) is None
    with (tmp_path / "rank3.json").open("wb") as file:
        assert stated_rank(file, tmp_path / "rank3.kineto.json", None) == StatedRank(3, "names")
    with pytest.raises(
        UsageError, match=r"rank1.et.json is from rank 1 and rank0.json from rank 0, according to their names; "
    ):
        stated_rank("rank1.et.json", "rank0.json", None)
    for rank in (-1, MAX_RANKS):
        with pytest.raises(UsageError, match=f"invalid rank {rank}; pass a number from 0 to"):
            stated_rank("a", "b", rank)


def test_modification_times_are_none_unless_both_sources_are_files(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"")
    assert modified(path, path) == (path.stat().st_mtime,) * 2
    assert modified(path, tmp_path / "none") is modified(b"", path) is modified("a\0", path) is None


@pytest.mark.parametrize(
    ("pids", "pid", "machine"), [([5], 5, 0), ([5, 6], 5, 2), ([5, 6, 7], 6, 3), ([5, 5, 6], 5, 0), ([5, 6], 7, 0)]
)
def test_ranks_of_a_timeline_are_counted_by_its_processes(pids: list[int], pid: int, machine: int) -> None:
    et = SimpleNamespace(pid=pid, names=[], file="et.json")
    events = SimpleNamespace(names=[])
    kineto = SimpleNamespace(machine_pids=pids, distributed_info={"rank": 1}, events=events, file="k.json")
    read: Any = read_claims
    claims = read(et, kineto, None, timezone=None, modified_s=None, whole_job=True)
    assert claims == claims_of(Claim(), at_rank(1, None), machine=machine, timezone=None, whole_job=True)


@pytest.mark.parametrize(("peer", "more"), [(None, ""), (3, r" \(the ET by rank 3\)")])
def test_a_rank_that_a_file_contradicts_is_refused(
    peer: int | None, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = Claim() if peer is None else Claim(frozenset({peer}))
    monkeypatch.setattr(identity, "rank_of_et", lambda et: ranks)
    monkeypatch.setattr(identity, "rank_of_kineto", lambda kineto: at_rank(1))
    et: Any = SimpleNamespace(pid=5, file="et.json")
    kineto: Any = SimpleNamespace(machine_pids=[], file="k.json")
    with pytest.raises(TraceFormatError, match=rf"k\.json: recorded by rank 1, not by rank 0{more}; pass two files"):
        read_claims(et, kineto, StatedRank(0, "option"), timezone=None, modified_s=None, whole_job=False)


def test_time_zones_are_read_as_offsets_or_refused() -> None:
    assert offsets_of("utc", 0) == offsets_of("Z", 0) == {0}
    assert offsets_of("UTC+5:45", 0) == offsets_of("+0545", 0) == {20_700}
    assert offsets_of("-03:30", 0) == {-12_600} and offset_name(-12_600) == "UTC-03:30"
    assert offset_name(0) == "UTC" and offset_name(20_700) == "UTC+05:45"
    assert OFFSETS_S[:3] == (0, -3600, 3600) and len(OFFSETS_S) == len(set(OFFSETS_S)) == 40
    for name in ("UTC+15", "+05:10", "-13"):
        with pytest.raises(UsageError, match="no time zone has the offset"):
            offsets_of(name, 0)
    for name in ("Berlin", "", "../etc"):
        with pytest.raises(UsageError, match="unknown time zone"):
            offsets_of(name, 0)


def test_a_time_zone_with_summer_time_has_offsets_by_date() -> None:
    november, october = (calendar.timegm((2026, month, 21, 3, 0, 0)) for month in (11, 10))
    assert offsets_of("America/New_York", november) == {-5 * 3600} and offsets_of("America/New_York", october) == {
        -4 * 3600
    }
    assert offsets_of("America/New_York", calendar.timegm((2026, 11, 1, 1, 30, 0))) == {-5 * 3600, -4 * 3600}
