"""Differences of two small traces, row by row: operators, call paths, iterations, and what the text says."""

from types import SimpleNamespace
from typing import Any, cast

import etplus
import pytest
from etplus import link
from etplus.analysis.findings import changes
from etplus.analysis.place_diff import _files, line_rows
from etplus.analysis.summary import Analysis, analyze
from etplus.analysis.trace_diff import _weighted, difference, regressions
from etplus.report import diff_text
from made_traces import frame, kernel, kineto_of, launch, op, program, traced


def analyzed(*calls: tuple[str, float]) -> Analysis:
    """Calls of 20 µs of aten::outer, each with an operator that launches a kernel of so many µs."""
    events: list[dict[str, Any]] = []
    for at, (name, dur) in enumerate(calls):
        start = 100 + 100 * at
        events += [op("aten::outer", start, 20), op(name, start + 1, 15), launch(at + 1, start + 2)]
        events += [kernel(f"k {name}", at + 1, start + 20, dur)]
    return analyze(traced(events))


def stepped(optimizer: float, steps: int, gpu: bool) -> Analysis:
    """Steps of 1 ms with a forward operator of 50 µs and an optimizer that takes so many µs, on the CPU or the GPU."""
    events: list[dict[str, Any]] = []
    for at in range(steps):
        start = 1000 * at
        events += [op(f"ProfilerStep#{at}", start, 1000, cat="user_annotation"), op("aten::mm", start + 10, 50)]
        events += [op("Optimizer.step#SGD.step", start + 100, 400, cat="user_annotation")]
        events += [op("aten::add_", start + 150, 20 if gpu else optimizer)]
        if gpu:
            events += [launch(at + 1, start + 155), kernel("k", at + 1, start + 200, optimizer)]
    return analyze(traced(events))


@pytest.mark.parametrize("gpu", [False, True])
def test_time_of_a_step_is_compared_by_phase(gpu: bool) -> None:
    found = changes(stepped(200, 2, gpu), stepped(100, 3, gpu))
    change = {row.name: (row.a and row.a.total_ns, row.b and row.b.total_ns) for row in found.time_by_phase}
    assert change.pop("optimizer") == ((200_000, 100_000) if gpu else (pytest.approx(200_000), pytest.approx(100_000)))
    assert set(change.values()) == (set() if gpu else {(50_000, 50_000)})
    assert (
        diff_text.render(changes(stepped(200, 2, gpu), stepped(100, 3, gpu))).count("by phase  optimizer -0.1 ms") == 1
    )


@pytest.mark.parametrize(("limit", "names"), [(0.5, []), (0.49, ["device time"]), (0.0, ["device time"])])
def test_device_time_over_the_limit_is_a_regression_naming_operators(limit: float, names: list[str]) -> None:
    one, other = analyzed(("aten::a", 40)), analyzed(("aten::a", 60), ("aten::a", 0))
    found = [one for one in regressions(difference(one, other, total=True), limit) if one.startswith("device time")]
    assert [text.split(":")[0] for text in found] == names
    if names:
        assert found[0] == "device time: 0.040 ms in A, 0.060 ms in B (+50.0%); operators: aten::outer +0.020 ms"


def test_shares_are_weighted_by_time() -> None:
    assert _weighted([(0.5, 100), (0.1, 300), (None, 50), (0.9, 0)]) == pytest.approx(0.2)
    assert _weighted([(None, 5)]) is None and _weighted([]) is None


BEFORE = {7: ("aten::mm", 30.0), 8: ("aten::relu", 20.0), 9: ("aten::add", 10.0), 10: ("aten::mm", 30.0)}


def compared(before: list[dict[str, object]], after: list[dict[str, object]]) -> list[tuple[object, ...]]:
    a, b = (link(None, kineto_of(events)).analyze() for events in (before, after))
    return [
        (row.a and row.a.line, row.b and row.b.line, row.what_changed, round(row.change_ns / 1000))
        for row in line_rows(a, b, per_iteration=False)
    ]


def test_a_changed_line_comes_first_though_all_moved() -> None:
    after = {17: ("aten::mm", 35.0), 18: ("aten::gelu", 21.0), 19: ("aten::add", 10.0), 20: ("aten::mm", 80.0)}
    found = compared(program(BEFORE), program(after, first=13))
    assert found == [(8, 18, "other operators", 1), (10, 20, "", 50), (7, 17, "", 5), (9, 19, "", 0)]


def test_the_greatest_change_comes_first_whatever_its_sign() -> None:
    after = {7: ("aten::mm", 25.0), 8: ("aten::relu", 2.0), 9: ("aten::add", 20.0), 10: ("aten::mm", 30.0)}
    assert [row[0] for row in compared(program(BEFORE), program(after))] == [8, 9, 7, 10]


def test_lines_that_only_one_trace_has_are_marked() -> None:
    more = {6: ("aten::zeros", 5.0), **BEFORE}
    assert compared(program(BEFORE), program(more))[0] == (None, 6, "only in B", 5)
    assert compared(program(more), program(BEFORE))[0] == (6, None, "only in A", -5)


def test_lines_of_moved_or_renamed_files_are_paired() -> None:
    one, other = program(BEFORE, file="/a/v1/train.py"), program(BEFORE, file="/b/v2/train.py")
    assert {row[2] for row in compared(one, other)} == {""}
    assert {row[2] for row in compared(one, program(BEFORE, file="/a/main.py"))} == {""}


@pytest.mark.parametrize("exact", [True, False])
def test_the_finding_of_a_changed_line_has_its_file_and_line(exact: bool) -> None:
    traces = []
    for first, name in ((3, "aten::relu"), (5, "aten::gelu")):
        events = program({7: (name, 20.0 + first)}, first=first)
        for event in [] if exact else events:
            event.get("args", {}).pop("CallFrom", None)
        traces.append(link(None, kineto_of(events)))
    (finding,) = (found for found in etplus.diff(*traces).findings.all if found.id == "other-line")
    assert finding.where.source == ("train.py:7" if exact else "train.py:3 → 5")


def test_lines_without_own_code_are_left_out() -> None:
    events = [frame("torch/x.py(1): f", 0, 50), *program({}, first=1)[1:]]
    assert compared(events + program({}), events + program({})) == []


def test_renamed_files_pair_by_the_end_of_their_path_and_then_by_half_of_their_functions() -> None:
    def pairs(*sides: dict[str, str]) -> list[tuple[str, str]]:
        lines = [[SimpleNamespace(file=file, function=one) for file in side for one in side[file]] for side in sides]
        return _files(*(cast(Any, SimpleNamespace(lines=each)) for each in lines))

    found = pairs({"a/x": "f", "a/y": "g", "a/z": "k", "a/v": "mno"}, {"b/x": "g", "b/y": "f", "b/w": "kl", "b/u": "m"})
    assert found == [("a/x", "b/x"), ("a/y", "b/y"), ("a/z", "b/w")]
