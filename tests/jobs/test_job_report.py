"""The report of a job: its JSON, what is looked up in it, and which files are none."""

import json

import pytest
from etplus.jobs.job_report import ClockOffset, JobReport, Mismatch, RankPair, RankResult, read_job_report
from etplus.trace.errors import TraceFormatError

MISMATCH = Mismatch("missing", "tp", (0, 1), 3, "ALL_REDUCE", 8, (1,), ("nothing",), ((0, 17), (2, 18)))
REPORT = JobReport(
    "0.9", (RankResult(0, "linked", ops=5, linked=4, window_ns=(1, 2)), RankResult(1, "failed", "no ET")),
    clock_offsets=(ClockOffset(0, 0, 0, 1, 2), ClockOffset(3, 0, -700, 1, 2)), mismatches=(MISMATCH,),
    messages=(RankPair(0, 2, 1, 8, nodes=((0, 19), (2, 20))),),
)  # fmt: skip


def test_a_written_report_is_read_back() -> None:
    data = REPORT.to_json()
    assert (
        read_job_report(data) == REPORT and data.endswith(b"}\n") and data.startswith(b'{\n "tool_version": "0.9",\n')
    )
    written = json.loads(data)
    assert written["version"] == "1.0" and written["world_size"] is None and written["ranks"][0] == {
        "rank": 0, "status": "linked", "reason": "", "et": "", "kineto": "", "output": "", "ops": 5, "linked": 4,
        "certain": 0, "unverified": 0, "window_ns": [1, 2], "iterations": [], "warnings": [],
    }  # fmt: skip


def test_a_report_gives_failed_ranks_unmatched_nodes_and_offsets() -> None:
    assert [rank.rank for rank in REPORT.failed] == [1]
    assert (REPORT.unmatched(0), REPORT.unmatched(2), REPORT.unmatched(1)) == ({17, 19}, {18, 20}, frozenset())
    assert (REPORT.offset_of(0), REPORT.offset_of(3), REPORT.offset_of(7)) == (0, -700, 0)


@pytest.mark.parametrize(("version", "known"), [("1.7", True), ("2.0", False), ("0.1", False)])
def test_reports_of_another_major_version_are_refused(version: str, known: bool) -> None:
    data = REPORT.to_json().replace(b'"version": "1.0"', b'"version": "%b"' % version.encode())
    if known:
        assert read_job_report(data).version == version
    else:
        with pytest.raises(TraceFormatError, match=f"unknown version '{version}'; update etplus"):
            read_job_report(data)


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"tool_version": "1", "ranks": [{"rank": "0", "status": "linked"}]}'])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(TraceFormatError, match=r"pass the job_report.json that etplus link wrote"):
        read_job_report(data)
