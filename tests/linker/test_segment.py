"""Iterations of a trace: by the annotation asked for, by ProfilerStep, by one that recurs evenly, or none."""

from typing import Any

import numpy as np
import pytest
from etplus.linker.calls import EtCalls
from etplus.linker.match.result import Match
from etplus.linker.segment import Iterations, describe_windows, find_iterations
from etplus.schemas.kineto.kineto_calls import CpuCalls, cpu_calls
from etplus.schemas.kineto.read_kineto import read_kineto
from made_traces import annotation, gpu, kineto_of, op
from support import Document


def iterations_of(events: list[Document], annotation: str | None = None) -> Iterations:
    kineto = read_kineto(kineto_of(events))
    return find_iterations(kineto, cpu_calls(kineto), annotation)


def spans(found: Iterations) -> list[tuple[float, float]]:
    return [(start / 1000, end / 1000) for start, end in zip(found.start.tolist(), found.end.tolist(), strict=True)]


STEPS = [annotation(f"ProfilerStep#{k}", 100 * k, 90) for k in (3, 1, 2)]
"""Out of order, as some files have them."""
OPS = [op("aten::mm", 100 * k + 10, 20) for k in (1, 2, 3)]


def test_profiler_steps_go_before_everything_else() -> None:
    loader = [annotation("enumerate(DataLoader)#_Single.__next__", 50 * k, 5) for k in range(8)]
    found = iterations_of([*loader, *STEPS, *OPS])
    assert (found.annotation, found.label) == ("ProfilerStep", ["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"])
    assert spans(found) == [(100, 200), (200, 300), (300, 390)] and not found.notes
    assert found.of(found.start).tolist() == [0, 1, 2] and found.of(found.start - 1).tolist() == [-1, 0, 1]
    assert found.of(found.end[-1:] + 10**9).tolist() == [2]


def test_iterations_begin_at_annotations_of_the_data_loader() -> None:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    loader = [annotation(name, 100 * k, 5) for k in range(1, 5)]
    other = [annotation("## forward ##", 100 * k + 20, 30) for k in range(1, 5)]
    found = iterations_of([*loader, *other, *OPS])
    assert found.annotation == "DataLoader" and len(found) == 4
    assert spans(found)[:2] == [(100, 200), (200, 300)]


def test_an_annotation_that_recurs_evenly_is_found_whatever_number_is_in_its_name() -> None:
    rows = [annotation("## step ##", 100 * k + (k % 2), 60) for k in range(1, 6)]
    often = [annotation("## layer ##", 100 * k + 10 * j, 5) for k in range(1, 6) for j in range(3)]
    found = iterations_of([*rows, *often, *OPS])
    assert found.annotation == "## step ##" and len(found) == 5
    found = iterations_of([*(annotation(f"batch {k}", 100 * k, 60) for k in range(1, 6)), *OPS])
    assert len(found) == 5 and spans(found)[0] == (100, 200)
    found = iterations_of([*(annotation("## now and then ##", ts, 1) for ts in (1, 2, 3, 500, 502, 4000)), *OPS])
    assert len(found) == 0 and found.annotation == ""


@pytest.mark.parametrize(
    "rows", [OPS, [annotation("## once ##", 10, 5), *OPS], [gpu("k", 1, 1, 0)]], ids=["none", "one", "no call"]
)
def test_a_trace_without_recurring_annotations_has_no_iterations(rows: list[Document]) -> None:
    found = iterations_of(rows)
    assert len(found) == 0 and found.of(found.start).tolist() == [] and not found.notes


def test_an_annotation_or_operator_asked_for_ends_iterations_as_in_the_original() -> None:
    rows = [annotation("my DataLoader next", 100 * k, 10) for k in (1, 2, 3)]
    found = iterations_of([op("first", 50, 5), *rows, *OPS], "DataLoader")
    assert found.annotation == "DataLoader"
    assert spans(found) == [(50, 110), (110, 210), (210, 310), (310, 330)]
    assert spans(iterations_of([*STEPS, *OPS], "aten::mm")) == [(100, 130), (130, 230), (230, 330), (330, 390)]


def test_an_annotation_that_does_not_occur_is_told_with_those_that_do() -> None:
    found = iterations_of([*STEPS, *OPS, annotation("## forward ##", 120, 5)], "nonesuch")
    (note,) = found.notes
    assert "'nonesuch'" in note and "'## forward ##'" in note and "ProfilerStep#" in note
    assert found.annotation == "ProfilerStep", "the search goes on without it"


def numbers(*values: int) -> Any:
    return np.array(values, np.int64)


def tables(seq: list[int], of_calls: list[tuple[int, int, int]]) -> tuple[EtCalls, CpuCalls]:
    """ET calls with these sequence numbers; Kineto calls (start, end, sequence number), whose rows are 100 on."""
    none = np.full(len(seq), -1)
    ts, end, of = np.array(of_calls, np.int64).reshape(-1, 3).T
    nodes = EtCalls(np.arange(len(seq)), none, none < 0, none, none, numbers(*seq))
    at = np.arange(len(ts))
    return nodes, CpuCalls(100 + at, np.full(len(ts), -1), at, ts, end, at, of)


def match(*call: int, notes: tuple[str, ...] = (), **facts: Any) -> Match:
    some = numbers(*call)
    return Match(some, (some >= 0).astype(np.int8), np.zeros(len(some), np.int8), "ids", notes, facts)


def thread(places: int = 1, offset: int = 0) -> dict[str, int]:
    return {"equal_places": places, "sequence_offset": offset}


def some_iterations(*start: int, marker: tuple[int, ...] = (), label: list[str] | None = None) -> Iterations:
    label = label or [f"ProfilerStep#{k + 5}" for k in range(len(start))]
    return Iterations(numbers(*start), numbers(*start[1:], 999), label, numbers(*marker), "mark", ("first",))


CALLS = [(0, 90, 0), (10, 20, 1), (100, 120, 7), (210, 220, -1)]


def test_the_windows_of_both_sides_are_described() -> None:
    nodes, calls = tables([0, 3, -1, 9], CALLS)
    assert describe_windows(nodes, calls, match(0, -1, 2, 1, notes=("second",)), some_iterations()) == {
        "et_sequence": [0, 9], "kineto_sequence": [0, 7], "linked_sequence": [0, 9], "kineto_ns": [0, 220],
        "linked_ns": [0, 120], "iterations": 0, "iteration_annotation": "mark", "linked_iterations": [],
        "notes": ["first", "second"],
    }  # fmt: skip


def test_windows_are_none_where_no_call_is_linked() -> None:
    nodes, calls = tables([-1], [])
    found = describe_windows(nodes, calls, match(-1), some_iterations(0))
    keys = ("et_sequence", "kineto_sequence", "linked_sequence", "kineto_ns", "linked_ns")
    assert [found[key] for key in keys] == [None] * 5
    assert found["iterations"] == 1 and found["linked_iterations"] == [] and found["notes"] == ["first"]
    marked = describe_windows(nodes, calls, match(-1), some_iterations(0, marker=(100,)))
    assert marked == found, "no call is linked that could be asked for its time"


@pytest.mark.parametrize(
    ("start", "call", "facts", "covered", "notes"),
    [
        ((0, 100, 200), (0, 1, -1), {}, [0], ["the ET is iteration 0 of 3, counted from 0, ProfilerStep#5{}"]),
        ((0, 100, 200), (2, -1, -1), {"threads": [thread(), thread(1, 3)]}, [1],
         ["the ET is linked to iteration 1 of 3, counted from 0, ProfilerStep#6{}"]),
        ((0, 100, 200), (0, 1, 2), {"threads": [thread()]}, [0, 1],
         ["the ET covers iterations 0 to 1 of 3, counted from 0{}"]),
        ((0, 100, 200), (0, 3, 1), {"threads": [thread(2)]}, [0, 2],
         ["the ET is linked to iterations 0, 2 of 3, counted from 0{}",
          "2 places fit equally well; one was chosen (see --iteration), and its links are marked unverified"]),
        ((0, 100), (0, 2, -1), {}, [0, 1], []),  # all of them
        ((0,), (0, -1, -1), {}, [0], []),  # the only one
        ((10, 100), (0, -1, -1), {}, [], []),  # before the first
        ((0, 100), (2, -1, -1), {}, [1], ["the ET is iteration 1 of 2, counted from 0, ProfilerStep#6{}"]),
    ],
)  # fmt: skip
def test_the_iterations_that_are_linked_are_listed(
    start: tuple[int, ...], call: tuple[int, ...], facts: Any, covered: list[int], notes: list[str]
) -> None:
    for seq, told in (([4, 4, 4], " (sequence numbers 4–4)"), ([-1, -1, -1], "")):
        nodes, calls = tables(seq, [(a, b, -1) for a, b, _ in CALLS])
        found = describe_windows(nodes, calls, match(*call, **facts), some_iterations(*start))
        assert found["linked_iterations"] == [f"ProfilerStep#{k + 5}" for k in covered]
        assert found["notes"] == ["first", *(note.format(told) for note in notes)]


def test_iterations_that_have_only_a_number_are_not_named_twice() -> None:
    nodes, calls = tables([-1], CALLS)
    found = describe_windows(nodes, calls, match(2), some_iterations(0, 100, label=["0", "1"]))
    assert found["notes"][1:] == ["the ET is iteration 1 of 2, counted from 0"]


def test_annotations_that_are_linked_tell_the_iterations() -> None:
    nodes, calls = tables([-1] * 3, CALLS)

    def covered(call: tuple[int, ...], *start: int, marker: tuple[int, ...]) -> list[str]:
        iterations = some_iterations(*start, marker=marker, label=list("abc"))
        found: list[str] = describe_windows(nodes, calls, match(*call), iterations)["linked_iterations"]
        return found

    assert covered((0, 2, -1), 0, 100, 400, marker=(100, 102, 107)) == ["a", "b"]
    assert covered((0, 2, -1), 0, 120, 121, marker=(100, 102, 107)) == ["a", "b"], "the last link ends at 120"
    assert covered((0, 2, -1), 0, 119, 120, marker=(100, 102, 107)) == ["a"], "one is not linked: by times"
    assert covered((2, -1, -1), 0, 100, 400, marker=(100, 102, 107)) == ["b"]
    assert covered((2, -1, -1), 0, 101, 121, marker=(100, 107, 107)) == ["a"]
    assert covered((1, -1, -1), 0, 100, 400, marker=(101, 102, 107)) == ["a"], "no annotation between the links"


@pytest.mark.parametrize(("outside", "covered"), [(1, [1]), (2, [0, 1])])
def test_an_iteration_with_a_twentieth_of_the_calls_is_only_touched(outside: int, covered: list[int]) -> None:
    spans = [(k, k + 1, -1) for k in range(outside)] + [(100 + k, 101 + k, -1) for k in range(20 - outside)]
    nodes, calls = tables([-1] * 20, spans)
    found = describe_windows(nodes, calls, match(*range(20)), some_iterations(0, 100, 200, label=list("012")))
    assert found["linked_iterations"] == [str(k) for k in covered]


@pytest.mark.parametrize(
    ("offsets", "told"),
    [([1], "a later"), ([-1, -1, 0], "an earlier"), ([0], ""), ([1, 2], ""), ([3, 3], "a later"), ([], "")],
)
def test_other_sequence_numbers_are_told(offsets: list[int], told: str) -> None:
    nodes, calls = tables([0, 4], [(0, 1, 5), (1, 2, 9)])
    threads = [thread(offset=offset) for offset in offsets]
    found = describe_windows(nodes, calls, match(0, 1, threads=threads), some_iterations())
    said = "the ET covers sequence 0–4, the Kineto trace 5–9: the structure is the same, but"
    said += " the durations are from"
    assert found["notes"][1:] == ([f"{said} {told} iteration"] if told else [])
    for seq, of in (([-1, -1], 5), ([0, 4], -1)):
        nodes, calls = tables(seq, [(0, 1, of), (1, 2, of)])
        assert not describe_windows(nodes, calls, match(0, 1, threads=threads), some_iterations())["notes"][1:]


def test_iterations_end_where_the_next_begins_but_for_those_of_no_duration() -> None:
    rows = [annotation("x", 50, 0), annotation("x", 60, 40), annotation("x", 70, 30), op("aten::mm", 150, 20)]
    found = iterations_of(rows, "x")
    assert spans(found) == [(50, 100), (100, 170)] and found.label == ["0", "1"] and len(found.marker) == 0
    assert spans(iterations_of(rows, "mm")) == [(50, 170)]
