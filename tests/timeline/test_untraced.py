"""Gains where the steps before the recorded window were timed: `fixtures/gpu/tf32`, recorded on an H100."""

from pathlib import Path

import numpy as np
import pytest
from etplus import build_graph, fit_constants, link, replay
from etplus.analysis.findings.case import Case
from etplus.analysis.findings.find import find_findings
from etplus.timeline.untraced import (
    gain_range,
    pauses,
    recording_costs,
    recording_note,
    untraced_answer,
    without_recording,
    without_recording_replays,
)
from etplus.timeline.whatif import apply_what_ifs, parse_what_if
from etplus.trace.step_annotations import untraced_step
from etplus.trace.trace import Trace
from made_traces import Timeline
from support import linked, shared_pair

FIXTURE = Path(__file__).parents[2] / "fixtures" / "gpu" / "tf32"
MEASURED_GAIN = 0.761
"""Of this change on the same machine, without a profiler, both ways in turn (`benchmarks/gpu_session.py`)."""
MEASURED_STEP_NS = 5_699_374


@pytest.fixture(scope="module")
def trace() -> Trace:
    return link(f"{FIXTURE}.et.json.gz", f"{FIXTURE}.kineto.json.gz")


@pytest.fixture(scope="module")
def case(trace: Trace) -> Case:
    return Case([trace])


def test_the_timeline_without_recording_takes_as_long_as_the_steps_before_the_window(trace: Trace, case: Case) -> None:
    """The recorder timed the step as it takes without a profiler. Its steps on the host are set; that the whole takes
    as long as it did follows from the replay."""
    step = untraced_step(trace.names)
    assert step is not None and step.steps == 5 and step.step_ns == pytest.approx(MEASURED_STEP_NS, rel=0.05)
    assert step.host_ns < step.step_ns / 5  # the device is behind, which recording hides
    assert len(case.unrecorded) == 3
    for found in case.unrecorded:
        assert found.makespan_ns / len(trace.steps) == pytest.approx(step.step_ns, rel=0.1)


def test_the_measured_gain_is_in_the_interval(case: Case) -> None:
    found = find_findings(case)
    first = found.first[0]
    assert first.id == "float32-without-tf32" and first.gain is not None
    assert first.gain.low_ns < MEASURED_GAIN * found.makespan_ns < first.gain.high_ns
    assert any(note.startswith("a step on the host took ") for note in found.notes)


def test_without_the_annotation_the_recorded_timeline_counts(trace: Trace, case: Case) -> None:
    part = trace.step(1)
    assert untraced_step(part.names) is not None  # a part of a trace keeps it
    assert untraced_step(tuple(name.replace("etplus.untraced", "other") for name in trace.names)) is None
    assert all(found.makespan_ns < case.makespan_ns for found in without_recording_replays(case.base, case.constants))


def test_a_changed_step_takes_as_long_as_it_did_without_a_profiler(trace: Trace) -> None:
    graph = build_graph(trace)
    constants = [fit_constants(graph)]
    change = parse_what_if("kernel:name~gemm*0.1635")
    found = untraced_answer(replay(graph, constants), constants, lambda of: apply_what_ifs(of, [change], constants))
    assert found is not None and found.measured_ns == pytest.approx(MEASURED_STEP_NS, rel=0.05)
    assert found.low_ns == pytest.approx(1_360_453, rel=0.1) and found.high_ns == pytest.approx(1_360_453, rel=0.1)


def test_without_timed_steps_nothing_is_said_of_them() -> None:
    graph = build_graph(linked("pairs/gpu_shaped_from_cpu"))
    constants = [fit_constants(graph)]
    assert untraced_answer(replay(graph, constants), constants) is None


def test_recording_costs_are_fitted_and_taken_off_the_replay(trace: Trace, case: Case) -> None:
    costs = recording_costs(trace)
    assert (costs.inside, costs.argument, costs.outside) == pytest.approx((5738.36, 2462.83, 9385.57), rel=1e-4)
    assert (costs.annotation, costs.frames, costs.runtime, costs.fitted) == (11_400, 900, 1000, True)
    makespans = [done.makespan_ns for done in (case.base, *case.unrecorded)]
    assert makespans == pytest.approx([18_556_847, 17_718_860, 17_725_320, 17_711_347], rel=1e-5)
    for share, left in ((0.5, 231_524_557), (1.0, 230_066_578)):
        assert without_recording(case.graph, share).edges.lag.sum() == pytest.approx(left, rel=1e-5)
    told = "(3.136 ms, 0.650 ms in the 5 steps before): about 35.7 µs for each of 177 operators"
    assert told in recording_note(case.base, case.unrecorded[0])
    assert gain_range([0.5, 0.4, 0.7], case.graph) == pytest.approx((0.4, 0.7))
    both = gain_range([0.5, 0.4, 0.7], case.graph, low=0.8, high=1.4, doubt=0.1)
    assert both == pytest.approx((0.5 - 0.15, 0.5 + 0.5 * (0.4**2 + 0.4**2 + 0.1**2) ** 0.5))


@pytest.mark.parametrize(("length", "count"), [(1000, 1), (999.999, 0)])
def test_a_pause_takes_a_millisecond_outside_of_operators(length: float, count: int) -> None:
    made = Timeline()
    for start, dur in ((0, 2000), (2000 + length, 5)):
        made.op("op", start, dur)
    assert len(pauses(made.graph())) == count


def test_a_pause_keeps_its_time_without_recording() -> None:
    case = Case([link(*shared_pair("gains/sleep_removed/rank-0"))])
    kept = pauses(case.graph)
    assert len(kept) == 3 and np.all(case.graph.edges.lag[kept] > 4_000_000)
    for done in case.unrecorded:
        assert np.all(done.graph.edges.lag[kept] > 0.95 * case.graph.edges.lag[kept])
        assert done.makespan_ns / 3 == pytest.approx(case.untraced_step.host_ns, rel=0.02)
