"""Iterations of a trace: by the annotation asked for, by ProfilerStep, by one that recurs evenly, or none."""

from __future__ import annotations

import orjson
import pytest
from etplus.linker import link
from etplus.linker.segment import Iterations, find_iterations
from etplus.schemas.kineto.kineto_calls import cpu_calls
from etplus.schemas.kineto.read_kineto import read_kineto
from support import Document, fixture_pair, kineto_document, ns, read_json, shared_pair


def iterations_of(events: list[Document], annotation: str | None = None) -> Iterations:
    kineto = read_kineto(orjson.dumps(kineto_document(events)))
    return find_iterations(kineto, cpu_calls(kineto), annotation)


def event(name: str, ts: float, dur: float, cat: str = "user_annotation") -> Document:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur}


def spans(found: Iterations) -> list[tuple[float, float]]:
    return [(start / 1000, end / 1000) for start, end in zip(found.start.tolist(), found.end.tolist(), strict=True)]


STEPS = [event(f"ProfilerStep#{k}", 100 * k, 90) for k in (3, 1, 2)]
"""Out of order, as some files have them."""
OPS = [event("aten::mm", 100 * k + 10, 20, "cpu_op") for k in (1, 2, 3)]


def test_profiler_steps() -> None:
    found = iterations_of([*STEPS, *OPS])
    assert (found.annotation, found.label) == ("ProfilerStep", ["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"])
    assert spans(found) == [(100, 200), (200, 300), (300, 390)]
    assert not found.notes


def test_which_iteration_a_time_falls_into() -> None:
    found = iterations_of([*STEPS, *OPS])
    times = found.start.tolist()
    assert found.of(found.start).tolist() == [0, 1, 2]
    assert found.of(found.start - 1).tolist() == [-1, 0, 1]
    assert found.of(found.end[-1:] + 10**9).tolist() == [2] and times == sorted(times)


def test_steps_go_before_everything_else() -> None:
    loader = [event("enumerate(DataLoader)#_Single.__next__", 50 * k, 5) for k in range(8)]
    assert iterations_of([*loader, *STEPS, *OPS]).annotation == "ProfilerStep"


def test_the_annotation_of_the_data_loader() -> None:
    loader = [event("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 100 * k, 5) for k in range(1, 5)]
    other = [event("## forward ##", 100 * k + 20, 30) for k in range(1, 5)]
    found = iterations_of([*loader, *other, *OPS])
    assert found.annotation == "DataLoader" and len(found) == 4
    assert spans(found)[:2] == [(100, 200), (200, 300)]


def test_an_annotation_that_recurs_evenly_is_found() -> None:
    rows = [event("## step ##", 100 * k + (k % 2), 60) for k in range(1, 6)]
    often = [event("## layer ##", 100 * k + 10 * j, 5) for k in range(1, 6) for j in range(3)]
    found = iterations_of([*rows, *often, *OPS])
    assert found.annotation == "## step ##" and len(found) == 5


def test_running_numbers_in_names_are_one_annotation() -> None:
    found = iterations_of([*(event(f"batch {k}", 100 * k, 60) for k in range(1, 6)), *OPS])
    assert len(found) == 5 and spans(found)[0] == (100, 200)


def test_an_annotation_that_recurs_unevenly_is_none() -> None:
    rows = [event("## now and then ##", ts, 1) for ts in (1, 2, 3, 500, 502, 4000)]
    found = iterations_of([*rows, *OPS])
    assert len(found) == 0 and found.annotation == ""


@pytest.mark.parametrize("rows", [[], [event("## once ##", 10, 5)]], ids=["none", "one"])
def test_no_iterations(rows: list[Document]) -> None:
    found = iterations_of([*rows, *OPS])
    assert len(found) == 0 and found.of(found.start).tolist() == []
    assert not found.notes


def test_a_trace_without_any_call() -> None:
    for annotation in (None, "anything"):
        found = iterations_of([event("k", 1, 1, "kernel")], annotation)
        assert len(found) == 0


def test_annotation_asked_for_ends_iterations_as_in_the_original() -> None:
    """Everything up to the annotation's end is one iteration; what follows the last one, too."""
    rows = [event("my DataLoader next", 100 * k, 10) for k in (1, 2, 3)]
    found = iterations_of([event("first", 50, 5, "cpu_op"), *rows, *OPS], "DataLoader")
    assert found.annotation == "DataLoader"
    assert spans(found) == [(50, 110), (110, 210), (210, 310), (310, 330)]


def test_annotation_asked_for_may_be_an_operator() -> None:
    found = iterations_of([*STEPS, *OPS], "aten::mm")
    assert spans(found) == [(100, 130), (130, 230), (230, 330), (330, 390)]


def test_an_annotation_that_does_not_occur_is_told_with_those_that_do() -> None:
    found = iterations_of([*STEPS, *OPS, event("## forward ##", 120, 5)], "nonesuch")
    (note,) = found.notes
    assert "'nonesuch'" in note and "'## forward ##'" in note and "ProfilerStep#" in note
    assert found.annotation == "ProfilerStep", "the search goes on without it"


def test_an_annotation_that_does_not_occur_where_there_are_none() -> None:
    (note,) = iterations_of(OPS, "nonesuch").notes
    assert note.endswith("none")


def test_a_name_that_occurs_a_thousand_times_is_told_once() -> None:
    rows = [event(f"step {k}", 100 * k, 10) for k in range(1000)]
    (note,) = iterations_of([*rows, *OPS], "nonesuch").notes
    assert len(note) < 200


def test_the_fixture() -> None:
    path = fixture_pair("pairs/one_of_n")[1]
    kineto = read_kineto(path)
    found = find_iterations(kineto, cpu_calls(kineto))
    steps = [e for e in read_json(path)["traceEvents"] if e["name"].startswith("ProfilerStep#")]
    assert found.label == [step["name"] for step in steps]
    assert found.start.tolist() == [ns(step["ts"]) for step in steps]


def test_a_real_trace_of_forty_iterations() -> None:
    kineto = read_kineto(shared_pair("gpu-pairs/linear")[1])
    assert len(find_iterations(kineto, cpu_calls(kineto))) == 40


def test_a_wrong_annotation_never_spoils_the_linking() -> None:
    et, kineto = fixture_pair("pairs/one_of_n")
    for annotation in ("nonesuch", "", "ProfilerStep", "aten::mm"):
        result = link(et, kineto, annotation=annotation)
        assert result.report.linked_share == 1.0
    told = link(et, kineto, annotation="nonesuch").report.windows["notes"]
    assert any("nonesuch" in note for note in told)
