"""Which annotations mark iterations: the rules, and that linking, analysis and prediction find the same ones."""

import numpy as np
import pytest
from etplus.analysis.breakdown import iterations
from etplus.converters.open import load
from etplus.linker import link
from etplus.linker.segment import find_iterations as of_linker
from etplus.schemas.kineto.kineto_calls import cpu_calls
from etplus.schemas.kineto.read_kineto import read_kineto
from etplus.timeline.iterations import find_iterations as of_predictor
from etplus.trace.errors import ConvertError
from etplus.trace.find_steps import IterationMarks, family_of, find_marks
from etplus.trace.steps import enclosing
from hypothesis import given
from hypothesis import strategies as st
from made_trace import made_trace
from made_traces import event, kineto_of
from support import fixture_pair, plain


@pytest.mark.parametrize("name", ["pairs/one_of_n", "two"])
def test_linking_analysis_and_prediction_find_the_same_steps(name: str) -> None:
    steps = [event("user_annotation", f"ProfilerStep#{k}", 100 * k, 90) for k in range(2)]
    made = [*steps, *(event("user_annotation", "", 100 * k + 5, 90) for k in range(3))]
    source = kineto_of(made) if name == "two" else plain(fixture_pair(name)[1])
    kineto = read_kineto(source, modules=True)
    trace = link(None, source)
    expected = of_linker(kineto, cpu_calls(kineto)).start.tolist()
    assert [one.start for one in iterations(trace)] == expected
    assert [one.start for one in iterations(load(b"".join(trace.chunks())))] == expected
    if name == "two":
        assert expected == [0, 100_000]
        with pytest.raises(ConvertError):
            of_predictor(trace)
    else:
        assert trace.nodes.ts[of_predictor(trace).mark].tolist() == expected


def marks(annotations: list[tuple[str, float, float]], calls: list[float], last: float) -> IterationMarks:
    names = [name for name, _, _ in annotations]
    ts, dur = (np.array([one[k] for one in annotations], np.int64) for k in (1, 2))
    return find_marks(names, ts, ts + dur, np.zeros(len(ts), np.int64), np.array(calls, np.int64), int(last))


CALLS = [float(at) for at in range(0, 500, 10)]


def test_marks_around_at_the_beginning_and_at_the_end_of_iterations() -> None:
    found = marks([(f"train {k}", 100 * k, 80) for k in range(5)], CALLS, 490)
    assert found.encloses and found.annotation == "train #" and found.end.tolist() == [100, 200, 300, 400, 480]
    found = marks([("zero_grad", 100 * k, 5) for k in range(5)], CALLS, 495)
    assert not found.encloses and found.end.tolist() == [100, 200, 300, 400, 495]
    found = marks([("step", 100 * k + 90, 5) for k in range(5)], CALLS, 500)
    assert found.mark.tolist() == [0, 1, 2, 3] and found.end.tolist() == [190, 290, 390, 490]
    assert [family_of(name) for name in ("step 12", "a#3_4", "x")] == ["step #", "a#_#", "x"]


def test_steps_of_an_optimizer_need_not_be_even_but_the_rarest_even_mark_goes_before_them() -> None:
    uneven = [("Optimizer.step#SGD.step", at, 5.0) for at in (0, 20, 130, 140, 330, 480)]
    assert len(marks(uneven, CALLS, 600)) == 6
    assert not len(marks([("something else", at, dur) for _, at, dur in uneven], CALLS, 600))
    often = [("often", 50.0 * k, 10.0) for k in range(10)]
    rare = [("rare", 100.0 * k + 5, 10.0) for k in range(5)]
    assert marks(sorted(uneven + often + rare, key=lambda one: one[1]), CALLS, 500).annotation == "rare"


def test_annotations_that_are_too_few_or_only_early_mark_no_steps() -> None:
    for few in ([("set-up", 10 * k, 5) for k in range(5)], [], [("x", 0.0, 5.0), ("x", 100.0, 5.0)]):
        found = marks(few, CALLS, 500)
        assert len(found) == len(found.end) == 0 and found.annotation == "" and not found.steps and not found.encloses
    assert not len(marks([("ProfilerStep#1", 100, 0)], CALLS, 500))
    assert len(marks([("ProfilerStep#1", 100, 0), ("ProfilerStep#2", 200, 0)], CALLS, 500)) == 2


def test_profiler_steps_are_preferred_to_other_repeated_annotations() -> None:
    rows = [("DataLoader", 100.0 * k, 5.0) for k in range(5)] + [("ProfilerStep#7", 30.0, 60.0)]
    found = marks(sorted(rows, key=lambda one: one[1]), CALLS, 500)
    assert found.steps and found.mark.tolist() == [1] and found.end.tolist() == [90]
    assert found.labels(["DataLoader", "ProfilerStep#7"]) == ["ProfilerStep#7"]
    assert marks([("x", 100.0 * k, 80.0) for k in range(3)], CALLS, 300).labels(["x"] * 3) == ["0", "1", "2"]


def test_the_steps_of_a_trace_are_a_sequence() -> None:
    steps = made_trace().steps
    assert len(steps) == 2 and steps[-1].name == "ProfilerStep#1" and steps[-1].number == 1
    assert steps[1].duration_ns == 1000 and [one.number for one in steps[0:2]] == [0, 1] and steps[2:] == ()
    assert steps._columns()["duration_ns"].tolist() == [1000, 1000]
    with pytest.raises(IndexError):
        steps[2]
    assert [event.name for event in steps[1].kernels] == ["ncclDevKernel_AllReduce", "loose"], "of its part"
    assert steps.of(np.array([-1, 0, 999, 1000, 1999, 2000])).tolist() == [-1, 0, 0, 1, 1, -1]


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=6), st.lists(st.integers(-2, 30), max_size=8)
)
def test_each_time_gets_the_enclosing_span_that_began_last(spans: list[tuple[int, int]], times: list[int]) -> None:
    spans = sorted(spans, key=lambda one: one[0])
    expected = [max((k for k, one in enumerate(spans) if one[0] <= at < sum(one)), default=-1) for at in times]
    start, dur = (np.array([one[k] for one in spans], np.int64) for k in (0, 1))
    assert enclosing(start, start + dur, np.array(times, np.int64)).tolist() == expected
