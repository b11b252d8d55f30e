"""Sentences about counterparts, compiled code and parts that are not installed; times and clauses as text."""

from typing import Any

import numpy as np
import pytest
from etplus.trace import outer
from etplus.trace.counterparts import CounterpartLinks, Counterparts, repetition_sentences
from etplus.trace.errors import EtplusError, MissingFileError, UsageError
from etplus.trace.generated import compiled_summary
from etplus.trace.link_report import Clue, Identity, LinkReport
from etplus.trace.printable import few
from etplus.trace.selection import part_words, ranks_of
from etplus.trace.text_tables import change_text, first_clause, fitting, in_short


def test_events_launched_before_the_trace_are_summed_up_in_sentences() -> None:
    report: dict[str, Any] = {"events": 6, "time_ns": 400, "paired": 3, "paired_time_ns": 300, "same_module": 2,
                              "unpaired": {"b": 1, "a": 1, "c": 2}}  # fmt: skip
    paired = "3 of 6 GPU events that were launched before the trace (75.0% of their time) get their operator from"
    assert repetition_sentences({"repetition": report}) == [
        f"{paired} their repetition in the trace (unverified, by repetition), 1 of them from a different layer",
        "2 GPU events that were launched before the trace have no operator: c",
        "1 GPU event that was launched before the trace has no operator: a",
        "1 GPU event that was launched before the trace has no operator: b",
    ]
    none = {**report, "time_ns": 0, "paired": 0, "same_module": 0, "unpaired": {}}
    assert repetition_sentences({"repetition": none}) == repetition_sentences({}) == repetition_sentences(3) == []
    (sentence,) = repetition_sentences({"repetition": {**report, "same_module": 3, "unpaired": {}}})
    assert sentence.endswith("(unverified, by repetition)")


def test_events_have_their_counterpart_row_or_minus_one() -> None:
    links = CounterpartLinks(np.array([3, 8]), np.array([20, 10]), np.array([True, False]))
    row, same_module = links.of(np.array([8, 4, 3]))
    assert (row.tolist(), same_module.tolist()) == ([10, -1, 20], [False, False, True])
    assert len(Counterparts(links, links)) == 4 and len(Counterparts()) == 0
    assert {len(column) for column in vars(CounterpartLinks.none()).values()} == {0}
    assert [side.tolist() for side in CounterpartLinks.none().of(np.array([3]))] == [[-1], [False]]


def test_kernels_covered_by_compiler_files_are_counted_in_sentences() -> None:
    given = {"files": ["a.json", "b.json"], "graph_calls": 1200, "kernels": 3400, "refused": {"x": 150, "y": 50},
             "annotated": 0}  # fmt: skip
    found = compiled_summary({"compiled": given})
    told, rest = "of 3,400 kernels in 1,000 of 1,200 calls of compiled graphs", ", by a.json, b.json"
    unknown = ["not of 150 calls of compiled graphs: x", "not of 50 calls of compiled graphs: y"]
    assert found is not None and found.sentences == [told + rest, *unknown]
    found = compiled_summary({"compiled": {**given, "annotated": 7, "refused": {}}})
    assert found is not None
    assert found.sentences == [told.replace("1,000", "1,200") + " and of 7 device events" + rest]
    assert compiled_summary({}) is compiled_summary({"compiled": 3}) is None


def test_a_part_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outer.installed("analysis") and not outer.installed("nonesuch")
    get, listed = outer.lazy_names("etplus.trace", {".printable": "few"}, ["few", "b"])
    assert get("few") is few and listed() == ["b", "few"]
    with pytest.raises(AttributeError, match=r"'etplus\.trace' has no attribute 'fe'"):
        get("fe")
    assert outer.outer("analysis.counters").__name__ == "etplus.analysis.counters"
    monkeypatch.setattr(outer, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"etplus\.analysis is required here but is not installed"):
        outer.outer("analysis.counters")
    said = "etplus.report is required here but is not installed; install all parts of etplus"
    assert outer.missing_part(ModuleNotFoundError(name="etplus.report")) == said
    for other in (ModuleNotFoundError(name="etplus.trace"), ModuleNotFoundError(), ImportError(name="etplus.report")):
        assert outer.missing_part(other) == ""


def test_times_and_their_changes_are_written_in_fitting_units() -> None:
    assert [in_short(ns) for ns in (0, 999, 1000, 1500, 12_300, 2_500_000, 123_456_789, 5e9)] == [
        "0 ns", "999 ns", "1.0 µs", "1.5 µs", "12 µs", "2.5 ms", "123 ms", "5.0 s",
    ]  # fmt: skip
    assert change_text(138e6, 84.6e6) == "138.0 -> 84.6 ms (-38.7%)" and change_text(0, 2e9) == "0.0 -> 2.0 s"
    assert change_text(1e3, 2e3) == "1.0 -> 2.0 µs (+100.0%)" and change_text(5e6, 1e6) == "5.0 -> 1.0 ms (-80.0%)"


def test_sentences_are_cut_after_a_clause() -> None:
    text = "a sentence that goes on for a while (with, or; without parentheses), and then some; at last it ends"
    assert first_clause(text, 200) == text and first_clause(text, len(text)) == text
    assert first_clause(text, 85) == text.partition("; at")[0]
    call = "the host calls several times aten::copy_ in a loop: make it one call"
    assert first_clause(call, 60) == "the host calls several times aten::copy_ in a loop"
    assert not first_clause(call, 45).endswith("aten"), "a colon inside a name ends no clause"
    assert first_clause(text, 70) == "a sentence that goes on for a while (with, or; without parentheses)"
    assert first_clause(text, 60) == "a sentence that goes on for a while"
    assert first_clause("x" * 50, 9) == "xxxxx…xxx"
    assert few(["a", "b"]) == "a, b" and few(list("abc")) == "a, b, c" and few(["x"] * 2000) == "x, x, x and 1,997 more"
    assert fitting("etplus analyze {}", "a.json", 30) == "etplus analyze a.json"
    assert fitting("etplus analyze {}", "a" * 30, 30) == "etplus analyze FILE"


def test_lists_of_ranks_are_parsed_and_bad_ones_refused() -> None:
    assert ranks_of("0-3,7") == [0, 1, 2, 3, 7] and ranks_of(" 5 ,5-5") == [5, 5]
    for text in ("", "3-1", "a", "0-99999999", "1,,2"):
        with pytest.raises(UsageError, match="must be a list of ranks"):
            ranks_of(text)
    assert part_words("3", None, None, "M") == ("--steps=3", "--module=M") and part_words() == ()
    assert part_words(between=("a", 1)) == ("--between", "a", "1", "--log-level=warning")
    error = MissingFileError("x.json")
    assert isinstance(error, EtplusError) and isinstance(error, FileNotFoundError)
    assert str(error) == "x.json: no such file; check the path" and error.filename == "x.json" and error.errno == 2


def test_a_link_reaches_shares_and_tells_its_doubts() -> None:
    identity = Identity("stated", 1, 4, True, (), (), (Clue("names", "only names"),))
    ops = {"total": 10, "linked": 9, "certain": 5, "unverified": 4, "unlinked": {}}
    report = LinkReport({}, {}, ops, "ids", (), {"notes": []}, {}, {}, ("odd",), {}, identity)
    assert report.all_warnings(["graphs"]) == ("odd", "graphs", "only names")
    for shares, reached in (((0.9,), True), ((0.91,), False), ((0.5, 0.5), True), ((0.5, 0.51), False)):
        assert report.reaches(*shares) is reached
    nothing = LinkReport({}, {}, {**ops, "linked": 0}, "", (), {}, {}, {}, (), {}, None)
    assert not nothing.reaches(0.0) and nothing.all_warnings() == ()
