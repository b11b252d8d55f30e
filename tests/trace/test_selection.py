"""A part of a trace (trace/library.py) holds what ran or was launched in it, and nothing else."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etplus.analysis.summary import analyze
from etplus.converters.open import load
from etplus.linker import link
from etplus.trace.build import NO_RECORDS, TraceBuilder
from etplus.trace.derive import tables_of
from etplus.trace.errors import UsageError
from etplus.trace.intervals import Span
from etplus.trace.kinds import CPU
from etplus.trace.selection import _paths_named, call_between, parse_window, part_of, without_enclosing
from etplus.trace.steps import chosen_steps
from etplus.trace.tables import UnattachedEvents
from etplus.trace.trace import Trace
from etplus.trace.unattached import with_unattached
from made_trace import made_trace
from support import fixture_pair, linked


@pytest.fixture(scope="module")
def trace() -> Trace:
    return with_unattached(link(*fixture_pair("pairs/gpu_shaped_from_cpu")))


@pytest.mark.parametrize(
    ("text", "span"),
    [("10-12.5ms", (10_000_000, 12_500_000)), ("900us-1.2ms", (900_000, 1_200_000)), ("0-1s", (0, 10**9)),
     ("5ns-7ns", (5, 7)), ("1.5-2.25µs", (1500, 2250))],
)  # fmt: skip
def test_windows_in_any_unit_become_spans_of_ns(text: str, span: tuple[int, int]) -> None:
    assert parse_window(text) == Span(*span)


def test_windows_and_ranges_of_steps_that_are_refused() -> None:
    for text in ("", "5ms", "5-6", "6-5ms", "5ms-5ms", "-1-2ms", "1e3-2ms", "1ms-1e9s", "0-9e99s", "٣-٤ms"):
        with pytest.raises(UsageError, match="window"):
            parse_window(text)
    for text in ("4", "0-4", "3-2", "-1", "a", "1-b", "", "1-2-3", "0" * 20):
        with pytest.raises(UsageError, match="iterations '"):
            chosen_steps(text, 4, (), "")
    assert [chosen_steps(text, 4, (), "").tolist() for text in ("3", "0-3", "2-2")] == [[3], [0, 1, 2, 3], [2]]


def test_invalid_steps_and_windows_are_refused_with_a_reason(trace: Trace) -> None:
    for given, said in (
        ({"steps": "9"}, "numbered from 0"), ({"steps": "one"}, "a number from 0"),
        ({"window": "5-6s"}, "contains no event"),
        ({"steps": "0", "window": "0-1ms"}, "give one of them"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            part_of(trace, **given)


@pytest.mark.parametrize(
    ("window", "calls", "runtime", "gpu", "span"),
    [("0-100ns", [0, 10, 20, 30], [], [], (0, 100)), ("0-101ns", [0, 10, 20, 30], [100], [], (0, 101)),
     ("300-310ns", [0, 10, 20, 30], [100], [300], (100, 400)), ("450-500ns", [0, 10], [], [], (450, 500)),
     ("449-450ns", [0, 10, 400], [], [], (449, 450)), ("1000-1001ns", [1000], [], [], (1000, 1001)),
     ("2509-2510ns", [], [1900], [2500], (1900, 2510)),
     ("1600-1601ns", [1000, 1100, 1200], [1250], [1300], (1250, 1700))],
)  # fmt: skip
def test_a_window_keeps_overlapping_events_with_their_launches_and_callers(
    window: str, calls: list[int], runtime: list[int], gpu: list[int], span: tuple[int, int]
) -> None:
    part = part_of(made_trace(), window=window)
    assert (part.calls.ts.tolist(), part.runtime.ts.tolist(), part.gpu.ts.tolist()) == (calls, runtime, gpu)
    assert part.span == Span(*span) and len(part) == len(calls) + len(runtime) + len(gpu) + 1  # process
    assert part.runtime.launches.tolist() == [bool(gpu)] * len(runtime)


def test_calls_around_a_part_are_left_out_even_if_they_end_in_it() -> None:
    part = part_of(made_trace(), window="1450-1600ns")
    assert part.calls.ts.tolist() == [1000, 1100, 1200] and part.span == Span(1250, 1700)
    inner = without_enclosing(part)
    assert inner.calls.ts.tolist() == [1200] and without_enclosing(inner) is inner
    assert without_enclosing(made_trace()).calls.ts.tolist() == made_trace().calls.ts.tolist()


@pytest.mark.parametrize(("window", "waits"), [("0-50ns", [-1, -1, 1]), ("41-50ns", [-1])])
def test_a_wait_for_what_is_not_in_the_part_is_left_out(window: str, waits: list[int]) -> None:
    builder = TraceBuilder("made.json")
    builder.add(CPU, id=[1, 2, 3], name=["a", "b", "c"], ts=[0, 20, 40], dur=[9] * 3, inter_thread_dep=[-1, -1, 1])
    part = part_of(builder.build(NO_RECORDS, summary={}), window=window)
    assert part.nodes.inter_thread_dep.tolist() == waits


def test_a_step_keeps_its_calls_launches_and_gpu_events() -> None:
    part = part_of(made_trace(), steps="1")
    assert part.calls.ts.tolist() == [1000, 1100, 1200] and part.calls.parent.tolist() == [-1, 0, 1]
    assert part.gpu.ts.tolist() == [1300, 2500] and part.gpu.call.tolist() == [2, -1]
    assert part.gpu.runtime.tolist() == [0, 1] and part.runtime.call.tolist() == [2, -1]
    assert part.runtime.launches.tolist() == [True, True] and part.span == Span(1000, 2510)
    assert part.steps.names == ("ProfilerStep#1",) and part.steps.call.tolist() == [0]
    assert len(part_of(made_trace(), steps="0-1").calls) == 8 and part_of(part) is part


def test_an_operator_counts_where_no_annotation_has_the_name(trace: Trace) -> None:
    assert trace.names[trace.calls.name[call_between(trace, "aten::addmm", 1)]] == "aten::addmm"
    for between, text in ((("forward", 9), "has 3, numbered from 0"), (("nothing", 0), "has this in its name")):
        with pytest.raises(UsageError, match=text):
            part_of(trace, between=between)
    with pytest.raises(UsageError, match="--steps and --between both choose"):
        part_of(trace, steps="0", between=("forward", 0))


@pytest.mark.parametrize(
    ("name", "choice"),
    [("gpu-pairs/dlrm.rank0", {"window": "1-3ms"}), ("pairs/gpu_shaped_from_cpu", {"between": ("forward", 1)}),
     ("pairs/gpu_shaped_from_cpu", {"steps": "1", "module": "forward"})],
)  # fmt: skip
def test_rows_and_tables_of_a_part_say_the_same(name: str, choice: dict[str, Any]) -> None:
    whole = linked(name)
    part = part_of(whole, **choice)
    again = tables_of(part)
    for table in ("calls", "runtime", "gpu"):
        for field in fields(getattr(again, table)):
            mine, anew = (getattr(getattr(of, table), field.name) for of in (part.tables, again))
            if field.name == "signature":
                mine, anew = ([of[code] if code >= 0 else None for code in codes.tolist()]
                              for of, codes in ((part.signatures, mine), (again.signatures, anew)))  # fmt: skip
            assert mine == anew if isinstance(mine, (dict, list)) else np.array_equal(mine, anew), (table, field.name)
    ids = set(part.nodes.id.tolist())
    by_id = {row: k for k, row in enumerate(whole.nodes.id.tolist())}
    rows = [by_id[own] for own in part.nodes.id.tolist()]
    assert [whole.names[code] for code in whole.nodes.name[rows]] == [part.names[code] for code in part.nodes.name]
    assert part.texts.texts(np.arange(len(part))) == whole.texts.texts(np.array(rows))
    edges = {(*whole.nodes.id[edge[:2]].tolist(), edge[2]) for edge in whole.edges}
    assert {(*part.nodes.id[edge[:2]].tolist(), edge[2]) for edge in part.edges} == {
        edge for edge in edges if ids >= set(edge[:2])
    }


def test_a_part_of_a_trace_can_be_analyzed_and_narrowed_further() -> None:
    trace = linked("pairs/gpu_shaped_from_cpu")
    part = trace.step(1)
    assert part.replay().makespan_ns < trace.replay().makespan_ns and len(part.kernels) < len(trace.kernels)
    assert part.with_(own_code=("x",)).span == part.span
    inner = part.between("forward")
    assert 0 < len(inner.kernels) < len(part.kernels) and inner.selection is not None
    assert inner.selection.about == "steps 1, between forward 0"
    assert analyze(part).kernels == trace.steps[1].analyze().kernels
    assert analyze(trace.window("1ms", "3ms")).kernels == analyze(part_of(trace, window="1-3ms")).kernels
    with pytest.raises(UsageError, match="no module of"):
        trace.module("Nonesuch_9")


def test_a_part_is_converted_but_not_written_as_et_plus(tmp_path: Path) -> None:
    part = linked("pairs/gpu_shaped_from_cpu").between("forward", 1)
    part.save(tmp_path / "x.et")
    assert len(load(tmp_path / "x.et").kernels) == len(part.kernels) == 5
    for name in ("x.json", "x.parquet", "x.etplus.json.gz"):
        with pytest.raises(UsageError, match="not only between forward 1; write"):
            part.save(tmp_path / name)
        assert not (tmp_path / name).exists()


def test_a_window_that_holds_nothing_but_a_loose_event() -> None:
    numbers = np.array([700], np.int64)
    loose = UnattachedEvents(["far"], ["kernel"], numbers, numbers * 0 + 10, *(numbers * 0,) * 3,
                             np.array([1], np.int8), [b"{}"])  # fmt: skip
    trace = made_trace().with_(unattached=loose)
    part = part_of(trace, window="700-705ns")
    assert part.unattached.names == ["far"] and with_unattached(part).gpu.ts.tolist() == [700]
    assert len(part_of(trace, window="1-5ns").unattached) == 0
    assert sum("not attached" in note for note in with_unattached(part.with_(own_code=("x",))).notes) == 1


@pytest.mark.parametrize(
    ("name", "found"),
    [("Linear_1", [0]), ("Linear_10", [1]), ("Linear", [0, 1, 2]), ("Net_0.Linear_1", [0]), ("Net_0", [0, 1]),
     ("Block_2.Linear_1", []), ("et_0.Lin", [0, 1])],
)  # fmt: skip
def test_whole_module_names_match_before_parts_of_them(name: str, found: list[int]) -> None:
    assert _paths_named([("Net_0", "Linear_1"), ("Net_0", "Linear_10"), ("Other_0", "Linear_3")], name) == found
