"""The text of a job's report: every line of a made report, and where long lists are cut."""

import pytest
from etplus.jobs.job_report import ClockOffset, GroupCounts, JobReport, Lateness, Mismatch, RankPair, RankResult, Wait
from etplus.jobs.job_text import render, report_text, warnings_of


def linked(rank: int, **more: object) -> RankResult:
    return RankResult(rank, "linked", ops=1000, linked=999, certain=900, **more)  # type: ignore[arg-type]


def lines(report: JobReport) -> list[str]:
    text = report_text(report)
    assert text.endswith("\n") and max(map(len, text.splitlines())) <= 79
    return text.splitlines()


def mismatch(kind: str, ranks: tuple[int, ...], found: tuple[str, ...], size: int = 8) -> Mismatch:
    return Mismatch(kind, "", (0, 1, 2), 4, "ALL_REDUCE", size, ranks, found, ())  # type: ignore[arg-type]


def test_a_report_of_one_rank_is_one_line_and_its_ops() -> None:
    assert lines(JobReport("1", (linked(3),))) == [
        "ranks   1 of 1 linked: 3", "        999 of 1,000 ET ops (99.90%), 900 certain",
    ]  # fmt: skip
    assert lines(JobReport("1", ())) == ["ranks   0 of 0 linked"]


def test_a_warning_of_many_ranks_is_one_line_with_their_range() -> None:
    ranks = [
        RankResult(
            rank, "linked", et=f"a/et{rank}.json", kineto=f"a/k{rank}.json",
            warnings=("recorded in UTC-7", f"et{rank}.json: both are of rank {rank} of 12", *(["cut"] * (rank == 10))),
        )
        for rank in (0, 1, 2, 10)
    ]  # fmt: skip
    assert warnings_of(ranks) == [
        "ranks 0-2, 10: recorded in UTC-7", "ranks 0-2, 10: the Execution Trace: both are of rank N of 12",
        "rank 10: cut",
    ]  # fmt: skip
    assert warnings_of(ranks[1:3])[0] == "ranks 1-2: recorded in UTC-7"
    assert warnings_of(ranks[3:])[1] == "rank 10: et10.json: both are of rank 10 of 12"


def test_a_full_report_has_every_kind_of_line() -> None:
    failed = RankResult(2, "failed", "no ET was found for k.json")
    report = JobReport(
        "1", (linked(0, warnings=("one is cut",)), linked(1), failed), world_size=9, missing="3", not_given="4-8",
        groups=(
            GroupCounts("", (0, 1), (), 5, 5, {"ALL_GATHER": 2, "ALL_REDUCE": 3}),
            GroupCounts("tp", (0, 1), (4, 5), 1200, 7, {"BARRIER": 1200}),
        ),
        mismatches=(
            mismatch("missing", (1,), ("nothing",)), mismatch("missing", (1, 2), ("nothing", "nothing"), -1),
            mismatch("size", (1,), ("ALL_REDUCE of 9 bytes at 4",)),
            mismatch("order", (0, 1), ("ALL_REDUCE of 8 bytes at 5",) * 2),
            mismatch("type", (2,), ("BARRIER at 4",), 0),
        ),
        messages=(RankPair(0, 1, 3, 4000, 1, 2, 0), RankPair(1, 0, 2, 96), RankPair(1, 2, 0, 0, other_size=5)),
        clock_offsets=(ClockOffset(0, 0, 0, 10, 9), ClockOffset(1, 0, -2_345_678, 1049, 9)),
        stragglers=(Lateness(0, 40, 3, 1_000_000, 2_000_000), Lateness(1, 40, 37, 5_500_000, 0)),
        longest_waits=(Wait("tp", 3, "ALL_REDUCE", 64, 1, ((0, 1_000_000), (2, 3_000_000))),),
        notes=("a note",),
    )  # fmt: skip
    assert lines(report) == [
        "ranks   2 of 3 linked: 0-1",
        "        1,998 of 2,000 ET ops (99.90%), 1,800 certain",
        "        of 9 in the job; not given: 4-8",
        "missing ranks without any file: 3",
        "failed  rank 2: no ET was found for k.json",
        "groups  the whole job, ranks 0-1: 5 collectives, all matched (2 ALL_GATHER, 3",
        "        ALL_REDUCE)",
        "groups  group 'tp', ranks 0-1: 1,200 collectives, 7 matched (1,200 BARRIER);",
        "        without ranks 4-5",
        "differ  the whole job, position 4: ALL_REDUCE of 8 bytes is missing on rank 1",
        "differ  the whole job, position 4: ALL_REDUCE is missing on ranks 1-2",
        "differ  the whole job, position 4: ALL_REDUCE of 8 bytes: another size on rank",
        "        1, which has ALL_REDUCE of 9 bytes at 4",
        "differ  the whole job, position 4: ALL_REDUCE of 8 bytes: another order on",
        "        ranks 0-1, which have ALL_REDUCE of 8 bytes at 5",
        "differ  the whole job, position 4: ALL_REDUCE of 0 bytes: another collective on",
        "        rank 2, which has BARRIER at 4",
        "p2p     5 messages of 4,096 bytes matched between 3 pairs of ranks",
        "differ  rank 0 to 1: 1 sent, not received, 2 received, not sent",
        "differ  rank 1 to 2: 5 with two sizes",
        "clocks  ahead of rank 0: rank 1 -2345.7 ±1.0 µs",
        "late       rank     last in    the others waited ms    waited itself ms",
        "              1       37/40                   5.500               0.000",
        "              0        3/40                   1.000               2.000",
        "waits   group 'tp', position 3: ALL_REDUCE of 64 bytes: rank 1 arrived last;",
        "        the others waited 4.000 ms in total, rank 2 3.000 ms",
        "warning rank 0: one is cut",
        "note    a note",
    ]


def late(count: int) -> dict[str, object]:
    return {"stragglers": tuple(Lateness(rank, 1, 1, 1000 - rank, 0) for rank in range(count))}


def clocks(count: int) -> dict[str, object]:
    return {"clock_offsets": tuple(ClockOffset(rank, 0, 1000 * rank, 0, 1) for rank in range(count + 1))}


@pytest.mark.parametrize(
    ("given", "first", "shown", "rest"),
    [
        ({"notes": ("n",) * 20}, "note    n", 20, []),
        ({"notes": ("n",) * 1023}, "note    n", 20, ["        and 1,003 more notes"]),
        (late(12), "", 12, []),
        (late(13), "", 12, ["        and 1 more ranks that caused shorter waits"]),
        ({"longest_waits": (Wait("g", 0, "BARRIER", -1, 0, ((1, 5),)),) * 4}, "waits", 3, []),
    ],
)
def test_long_lists_are_cut(given: dict[str, object], first: str, shown: int, rest: list[str]) -> None:
    found = lines(JobReport("1", (), **given))[1:]  # type: ignore[arg-type]
    begin = first or "         "  # a row of the table of late ranks
    assert sum(line.startswith(begin) for line in found) == shown
    assert [line for line in found if " more " in line] == rest


def test_of_many_clocks_the_worst_are_shown_by_rank() -> None:
    shown = " ".join(line[8:] for line in lines(JobReport("1", (), **clocks(8)))[1:])  # type: ignore[arg-type]
    assert shown.endswith(", ".join(f"rank {rank} {rank}.0 ±0.0 µs" for rank in range(1, 9)))
    shown = " ".join(line[8:] for line in lines(JobReport("1", (), **clocks(10)))[1:])  # type: ignore[arg-type]
    expected = ", ".join(f"rank {rank} {rank}.0 ±0.0 µs" for rank in range(3, 11))
    assert shown == f"ahead of rank 0: {expected}, 2 more are smaller"


def screen(*ranks: RankResult, **more: object) -> list[str]:
    return render(JobReport("1", ranks, **more), "out/").splitlines()  # type: ignore[arg-type]


def test_the_screen_has_what_failed_what_was_written_and_what_to_do_next() -> None:
    ranks = [linked(0, output="rank_0.gz", warnings=("cut",)), linked(2, output="rank_2.gz")]
    failed = [RankResult(rank, "failed", f"no ET {rank}") for rank in range(3, 8)]
    found = screen(
        *ranks, *failed, missing="1", notes=("n1", "n2"), groups=(GroupCounts("", (0, 2), (), 50, 40, {}),),
        stragglers=(Lateness(0, 50, 3, 1, 0), Lateness(2, 50, 30, 2_500_000, 0)),
    )  # fmt: skip
    assert found == [
        "linked 2 of 7 ranks: 1,998 of 2,000 operators, 1,800 certain", "missing  ranks without any file: 1",
        "failed  rank 3: no ET 3", "failed  rank 4: no ET 4", "failed  rank 5: no ET 5",
        "failed  and 2 more in job_report.txt",
        "40 of 50 collectives match on all ranks; rank 2 is last in 30 of 50, the others", "  wait 2.5 ms",
        "wrote  out/rank_0.gz to rank_2.gz, job_report.json, job_report.txt", "warning rank 0: cut", "note   n1",
        "note   n2", "next   etplus why out/   etplus convert out/ --to astra-sim -o job",
    ]  # fmt: skip
    assert screen(RankResult(0, "linked", ops=5, linked=5, certain=5, output="a"))[:2] == [
        "linked 1 of 1 ranks: 5 operators, all certain", "wrote  out/a, job_report.json, job_report.txt",
    ]  # fmt: skip
    assert screen(RankResult(0, "linked", ops=5, linked=5, output="a"))[0].endswith("none certain")
    assert screen(failed[0]) == ["linked 0 of 1 ranks", "failed  rank 3: no ET 3"]
    assert screen(*failed[:3])[-1] == "failed  rank 5: no ET 5", "three fit"
    none_late = {"groups": (GroupCounts("", (0, 1), (), 5, 5, {}),), "stragglers": (Lateness(0, 5, 5, 0, 0),)}
    assert "5 of 5 collectives match on all ranks" in screen(ranks[0], **none_late)


@pytest.mark.parametrize(("length", "whole"), [(139, True), (140, False)])
def test_a_note_on_the_screen_is_cut_behind_two_lines(length: int, whole: bool) -> None:
    note = ("word " * 40)[: length - 1] + "."
    found = [line.strip() for line in screen(notes=(note,)) if line.startswith(("note", "  "))]
    assert len(found) == 2 and (" ".join(found) == f"note   {note}") == whole
