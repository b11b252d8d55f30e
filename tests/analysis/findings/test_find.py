"""Candidates are priced, dropped where they cost nothing, sorted by gain; those of other packages are checked.

Modules: analysis.findings.find, analysis.findings.case, analysis.findings.proofs.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import etplus
import numpy as np
import pytest
from etplus import build_graph, fit_constants, replay
from etplus.analysis.findings import Candidate, Case, Evidence, Intervention, Where, builtin, find, where_of
from etplus.analysis.findings.case import worst_rank
from etplus.analysis.findings.find import find_findings
from etplus.analysis.findings.proofs import place_of
from etplus.timeline.whatif import apply_what_ifs, parse_what_if
from etplus.trace.errors import EtplusError
from etplus.trace.trace import Trace
from made_traces import frame, kernel, kineto_of, launch, op
from support import PluginStub, linked, succeeds

PROOF = (Evidence("by hand", 1, "events", "etplus analyze x"),)


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    """A trace of which recording is taken to have cost nothing."""
    monkeypatch.setattr(Case, "unrecorded", ())
    return linked("pairs/gpu_shaped_from_cpu")


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Candidates in place of what all detectors find."""

    def set_to(*candidates: Any) -> None:
        monkeypatch.setattr(find, "detectors", lambda: {"made": lambda _: iter(candidates)})

    return set_to


def candidate(name: str, cost: int | None, *what_ifs: str, **more: Any) -> Candidate:
    changes = tuple(map(Intervention, what_ifs))
    return Candidate(name, name, Where(), PROOF, cost, "confirmed", "nothing", "never", changes, **more)


def test_the_gain_equals_the_time_saved_in_the_replay(trace: Trace, only: Callable[..., None]) -> None:
    graph = build_graph(trace)
    constants = fit_constants(graph)

    def makespan(*what_ifs: str) -> int:
        return replay(apply_what_ifs(graph, [*map(parse_what_if, what_ifs)], constants), constants).makespan_ns

    base = makespan()
    changes = {"a": "op:~aten*0.5", "b": "cpu*0.5", "c": "cpu*0.9"}
    only(*(candidate(name, base, what_if) for name, what_if in changes.items()), candidate("d", base, "cpu*2"))
    found = trace.findings()
    gains = {name: base - makespan(what_if) for name, what_if in changes.items()}
    assert {one.id: one.gain.ns for one in found if one.gain} == {k: ns for k, ns in gains.items() if ns > base / 100}
    assert [one.id for one in found] == sorted((one.id for one in found), key=lambda name: -gains[name])
    assert found.together is not None
    assert found.together.ns == base - makespan(*(changes[one.id] for one in found[:3]))
    given = Case([trace]).base
    assert Case([trace], replays=[given]).base.time is given.time


def test_an_intervention_with_rows_changes_only_those_rows(trace: Trace, only: Callable[..., None]) -> None:
    gpu = trace.gpu
    some = candidate("a", 10**9, least_gain=0)
    one = gpu.source[:1]
    halved = Case([trace])
    changes = {"a": Intervention("kernel*0.5", one), "b": Intervention("kernel*0.5"), "c": Intervention("kernel*1")}
    only(*(replace(some, id=name, interventions=(change,)) for name, change in changes.items()))
    found = {one.id: one.gain.ns for one in find_findings(halved) if one.gain is not None}
    assert 0 == found["c"] <= found["a"] <= gpu.dur[0] / 2 + 1 < found["b"]
    bounds = dict(zip(halved.analysis.trace.gpu.source.tolist(), halved.bounds.tolist(), strict=True))
    assert halved.row_bounds.tolist() == [bounds.get(row, -1) for row in range(len(trace))]


def test_what_costs_or_gains_little_is_left_out(trace: Trace, only: Callable[..., None]) -> None:
    share = Case([trace]).makespan_ns // 100
    only(
        candidate("cheap", share - 10, "kernel*0.5"),
        candidate("named", share // 2, "cpu*0.5", least_share=0.001, least_gain=0.001),
        candidate("off the path", 10**9, "copy*0.9999"), candidate("said", None), candidate("not replayed", share * 2),
    )  # fmt: skip
    found = trace.findings()
    assert [one.id for one in found] == ["named", "not replayed", "said"]
    assert [one.gain is None for one in found] == [False, True, True]
    assert found.together is None


def test_the_first_screen_shows_seven_findings(trace: Trace, only: Callable[..., None]) -> None:
    only(*(candidate(f"made-{number}", 10**9) for number in range(9)))
    found = trace.findings()
    assert (len(found), len(found.first)) == (9, 7)


def test_a_trace_without_problems_says_so(trace: Trace, only: Callable[..., None]) -> None:
    only()
    found = trace.findings()
    assert not found.all and found.none_reason == "no problems found (1 check)"
    assert found.to_dict()["found"] == [] and found.to_dict()["together"] is None


def test_a_base_that_is_far_off_gives_no_gain(
    trace: Trace, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from etplus.timeline.replay_summary import BaseError

    only(candidate("a", 10**9, "kernel*0.5"))
    monkeypatch.setattr(Case, "base_error", BaseError(0.06, None))
    found = trace.findings()
    assert [one.gain for one in found] == [None] and "off by 6.0%" in found.notes[0]


def test_a_trace_without_times_says_that_no_checks_ran() -> None:
    trace = linked("pairs/gpu_shaped_from_cpu")
    from etplus.trace.index import as_column

    found = trace.with_(ts=as_column(np.full(len(trace), -1, np.int64))).findings()
    assert not found.all and found.base is None and found.none_reason == "no checks ran"


def test_a_trace_in_which_nothing_takes_time_has_no_findings_but_a_reason(tmp_path: Path) -> None:
    operators = [op("aten::add", 5, 0)] * 20
    device = [event for k in range(20) for event in (launch(k, 5, 0), kernel("k", k, 5, 0))]
    files = [tmp_path / "all.json", tmp_path / "host.json"]
    for file, events in zip(files, (operators + device, operators), strict=True):
        file.write_bytes(kineto_of([op("ProfilerStep#1", 5, 0, cat="user_annotation"), *events]))
        found = etplus.load(file).findings()
        assert (found.all, found.none_reason, found.notes) == ((), "no checks ran", ("all events have duration 0",))
        succeeds("report", file, "-o", tmp_path / "page.html")
    for a, b in itertools.product(files, files):
        compared = etplus.diff(a, b)
        assert "all events of A have duration 0" in compared.findings.notes[0]
        assert all(finding.cost_ns is None for finding in compared.findings)


def test_where_names_what_most_of_the_time_belongs_to(trace: Trace) -> None:
    gpu = trace.gpu
    name = int(np.bincount(gpu.name, weights=gpu.dur * ~trace.is_comm).argmax())
    rows = gpu.source[gpu.name == name]
    where = where_of(trace, rows, phase="said")
    assert where.kernel == trace.names[name] and where.phase == "said" and where.operator is not None
    assert len(where.rows) == min(len(rows), 20)
    longest = trace.nodes.dur[rows].max()
    assert trace.nodes.dur[np.flatnonzero(trace.nodes.id == where.rows[0])[0]] == longest
    assert where.start_ns == int(trace.nodes.ts[rows].min() - trace.nodes.span.start)
    assert where_of(trace, rows[:0]) == Where()


def test_a_finding_as_plain_data_has_the_known_parts_of_its_place(trace: Trace, only: Callable[..., None]) -> None:
    only(replace(candidate("a", 10**9), where=Where(rank=0, kernel="k")))
    (found,) = trace.findings().to_dict()["found"]
    assert {key: found["where"][key] for key in ("rank", "kernel")} == {"rank": 0, "kernel": "k"}
    assert "module" not in found["where"] and "source" not in found["where"]


def test_rows_of_several_equal_modules_have_their_class_and_number() -> None:
    events = [op("aten::mm", 0, 1), frame("net.py(1): main", 2, 500), frame("nn.Module: Net_0", 3, 490)]
    for layer, us in enumerate((10, 10, 30, 20)):
        at = 10 + 100 * layer
        events += [frame(f"nn.Module: Layer_{layer}", at, 80), op("aten::mm", at + 5, 20)]
        events += [launch(layer + 1, at + 6), kernel("gemm", layer + 1, at + 30, us)]
    made = etplus.link(None, kineto_of(events))
    rows = made.gpu.source
    parts = (rows, rows[:2], rows[1:3], np.append(rows, -1), np.append(0, rows))
    found = [place_of(made, part).module for part in parts]
    one, all_of = [f"Net_0 / {name}" for name in ("Layer_0", "Layer_2")], "Net_0 / Layer × 4"
    assert found == [all_of, *one, all_of, None] and place_of(made, rows[:0]) == Where()


def test_detectors_of_plugins_run_and_their_errors_name_them(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtin, "_plugins", lambda: {"mine": PluginStub("find", lambda _: [candidate("mine", 10**9)])})
    assert "mine" in [one.id for one in trace.findings()]
    monkeypatch.setattr(builtin, "_plugins", lambda: {"mine": PluginStub("find", lambda _: ["text"])})
    with pytest.raises(EtplusError, match=r"^plugin tiny returned str, not Candidate; tell the plugin's authors$"):
        trace.findings()


def test_two_findings_have_a_joint_gain_and_the_most_at_stake_is_replayed_first(
    trace: Trace, only: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    only(candidate("a", 10**9, "op:~aten*0.5"), candidate("b", 10**9, "cpu*0.5"))
    assert len(trace.findings()) == 2 and trace.findings().together is not None
    monkeypatch.setattr("etplus.analysis.findings.find.MOST_REPLAYS", 1)
    only(candidate("less", 10**8, "cpu*0.5"), candidate("more", 10**9, "cpu*0.5"))
    assert {one.id: one.gain is not None for one in trace.findings()} == {"more": True, "less": False}


def test_the_worst_rank_is_shown_with_the_changes_of_all() -> None:
    def placed(line: str, cost: int | None) -> Candidate:
        return replace(candidate("a", cost, f"cpu*{cost}"), where=Where(source=line))

    found = [[placed("x", 5)], [placed("x", 3), placed("y", 4)], [], [placed("y", None), placed("z", 1)]]
    case: Any = SimpleNamespace(traces=found, graph=SimpleNamespace(ranks=[4, 5, 6, 7]))

    def worst() -> list[tuple[Any, ...]]:
        every = list(worst_rank(case, lambda of: found[of.number]))
        return [(one.title, one.where.rank, [change.what_if for change in one.interventions]) for one in every]

    assert worst() == [
        ("a (rank 5; found on 2 of 4 ranks)", 5, ["cpu*5", "cpu*3"]),
        ("a (rank 5; found on 2 of 4 ranks)", 5, ["cpu*4", "cpu*None"]),
    ]
    del found[1][0], found[3][1]
    assert worst() == [("a (rank 4; found on 3 of 4 ranks)", 4, ["cpu*5", "cpu*4", "cpu*None"])]
    case.traces = found[:1]
    assert worst() == [("a", None, ["cpu*5"])]
