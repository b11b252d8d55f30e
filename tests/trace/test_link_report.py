"""A report of a link as text, line by line, and as JSON-ready values."""

from dataclasses import replace
from typing import Any

import pytest
from etplus.trace.link_report import Clue, Identity, LinkReport, Verdict

RUN, RANK, PID, CALLS = (Clue(by, f"says {by}") for by in ("run", "rank", "pid", "calls"))


def identity(verdict: Verdict) -> Identity:
    return Identity(verdict, 1, 4, True, (RUN, PID, RANK), (PID,), (CALLS,))


def report(**more: Any) -> LinkReport:
    made = LinkReport(
        et={"file": "a.et", "schema": "1.1", "ops": 1200, "pid": 7},
        kineto={"file": "b.json", "events": 34567, "cpu_ops": 1300},
        ops={"total": 1200, "linked": 900, "certain": 850, "unverified": 50, "unlinked": {"not recorded": 300}},
        method="rf_id", considered=("names: 3",), windows={"notes": ["the ET starts later"]},
        gpu={"categories": {"kernel": {"total": 2000, "attached": 1500, "unattached": {"no launcher": 500}},
                            "gpu_memcpy": {"total": 1, "attached": 1, "unattached": {}}},
             "time_ns": 400, "attached_time_ns": 100},
        dependencies={"edges": {"launch": 2000, "sync": 3}, "contradicted": {"sync": 1}, "clock_skew_ns": 8140},
        warnings=("odd",),
    )  # fmt: skip
    return replace(made, **more)


def test_a_link_report_prints_shares_reasons_edges_and_warnings() -> None:
    assert report(identity=identity("proved")).to_text().splitlines() == [
        "ET      a.et: schema 1.1, 1,200 ops, pid 7", "Kineto  b.json: 34,567 events, 1,300 CPU calls",
        "linked  900 of 1,200 ET ops (75.00%) by rf_id", "        850 certain, 50 unverified",
        "        300 unlinked: not recorded", "GPU     kernel: 1,500 of 2,000 attached", "        500 not: no launcher",
        "GPU     gpu_memcpy: 1 of 1 attached", "        25.00% of GPU time attached", "edges   2,000 launch, 3 sync",
        "        1 left out: sync edges that contradict the measured order",
        "        the clocks of host and device differ by 8.1 µs or more", "run     says run", "run     says rank",
        "window  the ET starts later", "tried   names: 3", "warning odd",
    ]  # fmt: skip


def test_the_report_of_an_empty_link_has_zeros_and_no_edges() -> None:
    nothing = {"total": 0, "linked": 0, "certain": 0, "unverified": 0, "unlinked": {}}
    empty = report(
        ops=nothing, method="", considered=(), windows={"notes": []}, warnings=(),
        gpu={"categories": {}, "time_ns": 0, "attached_time_ns": 0}, dependencies={"edges": {}, "contradicted": {}},
    )  # fmt: skip
    assert empty.linked_share == 0 and report().linked_share == 0.75
    assert empty.to_text().splitlines()[2:] == [
        "linked  0 of 0 ET ops (0.00%) by no method", "        0 certain, 0 unverified", "edges   none",
    ]  # fmt: skip
    values = report(facts={"x": 1}).to_dict()
    assert set(values) == set(LinkReport.__dataclass_fields__) and values["identity"] is None
    assert values["considered"] == ["names: 3"] and values["warnings"] == ["odd"] and values["facts"] == {"x": 1}
    assert report(identity=identity("proved")).to_dict()["identity"] == identity("proved").to_dict()


def test_long_sentences_are_continued_below_and_made_printable() -> None:
    lines = report(warnings=(f"{'word ' * 30}\x1b[2J",)).to_text().splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("warning "))
    assert all(len(line) <= 79 for line in lines)
    assert all(line.startswith(" " * 8 + "word") for line in lines[at + 1 :]) and len(lines) == at + 3
    assert lines[-1].endswith("\N{REPLACEMENT CHARACTER}[2J") and len(lines[at]) == 77


@pytest.mark.parametrize(
    ("verdict", "doubts", "sentences"),
    [("proved", [], ["says run", "says rank"]), ("refuted", ["says pid"], ["says pid"]),
     ("stated", ["says calls"], ["says calls"]), ("unknown", ["says calls"], ["says calls"])],
)  # fmt: skip
def test_doubts_and_sentences_depend_on_the_verdict(verdict: Verdict, doubts: list[str], sentences: list[str]) -> None:
    found = identity(verdict)
    assert found.doubts == doubts and found.sentences == sentences
    values = found.to_dict()
    assert values["verdict"] == verdict and values["rank"] == 1 and values["several_ranks"] is True
    assert values["proves"] == [{"by": by, "says": f"says {by}"} for by in ("run", "pid", "rank")]
    assert isinstance(values["refutes"], list) and isinstance(values["unknown"], list)
