"""Steps that nothing marks: repetitions of the kernel sequence, against programs whose law is known."""

from typing import Any

import numpy as np
import pytest
from etplus.analysis.summary import analyze
from etplus.trace.find_steps import Repetition, _even, find_repetition, first_kernels
from etplus.trace.selection import part_of
from etplus.trace.trace import Trace
from hypothesis import given
from hypothesis import strategies as st
from made_traces import event, kernel, launch, op, traced

DENOISE = ["embed", *["norm", "qkv", "attention", "mlp"] * 3, "unpatch", "scheduler"]


def pipeline(*parts: list[str], around: str | None = None, cat: str = "user_annotation", pause: int = 0) -> Trace:
    events: list[dict[str, Any]] = []
    ts = 100
    for part in parts:
        for name in part:
            number = len(events) + 1
            events += [op(f"op::{name}", ts, 8), launch(number, ts + 2, 2), kernel(name, number, ts + 5, 6)]
            ts += 10
        ts += pause
    if around is not None:
        events.append(event(cat, around, 90, ts, {"Python id": 1}))
    return traced(events)


@given(
    st.lists(st.integers(100, 999), max_size=30, unique=True), st.lists(st.integers(0, 5), min_size=2, max_size=12),
    st.integers(1, 6), st.integers(4, 12), st.integers(0, 30),
)  # fmt: skip
def test_the_outermost_repetition_is_found(
    before: list[int], layer: list[int], layers: int, steps: int, after: int
) -> None:
    step = [50, *layer * layers, 51]
    codes = [*before, *step * steps, *range(2000, 2000 + after)]
    found = find_repetition(np.array(codes))
    enough = steps * len(step) >= 0.5 * len(codes)
    assert found == (Repetition(len(before), len(step), steps, 0) if enough else None)


def test_a_repetition_begins_after_the_longest_pauses() -> None:
    codes = np.array([*[0, 1, 2, 3] * 4, 0, 1])
    launched = np.cumsum([5 if code == 2 else 1 for code in codes.tolist()])
    found = first_kernels(codes, launched)
    assert found is not None and found.tolist() == [2, 6, 10, 14, 18]
    launched = np.cumsum([{14: 9, 5: 5}.get(at, 1) for at in range(18)])
    found = first_kernels(codes, launched)
    assert found is not None and found.tolist() == [2, 6, 10, 14, 18], "also the pause before the last repetition"
    assert first_kernels(codes[:3], launched[:3]) is None


def test_denoising_steps_are_inferred() -> None:
    encoder, decoder = ["token", "encode"] * 4, ["embed", "upsample", "image"]
    trace = pipeline(encoder, *[DENOISE] * 20, decoder, around="pipeline", pause=40)
    steps, length = trace.steps, 10 * len(DENOISE) + 40
    assert len(steps) == 20 and steps.inferred and steps[3].inferred and not steps.batches
    assert np.diff(steps.start).tolist() == [length * 1000] * 19
    assert [trace.names[code] for code in trace.calls.name[steps.call].tolist()] == ["op::embed"] * 20
    assert np.bincount(trace.step_of_event + 1).tolist() == [len(encoder) + len(decoder), *[len(DENOISE)] * 20]
    assert [event.name for event in part_of(trace, steps="7").device_events] == DENOISE
    assert "inferred from the kernels" in repr(trace) and analyze(trace).iterations[0].latency_ns == length * 1000
    assert any("inferred" in note for note in analyze(trace).notes)
    assert pipeline(*[DENOISE] * 4).steps.start.tolist() == [100_000 + 150_000 * k for k in range(4)], "from call 0 on"


@pytest.mark.parametrize(("late", "even"), [(0, True), (50, True), (51, False), (-100, False)])
def test_marks_are_even_if_their_distances_differ_by_half_at_most(late: int, even: bool) -> None:
    assert _even(np.cumsum([0, *[100] * 20, *[100 + late] * 5])) == even


@pytest.mark.parametrize(
    "trace",
    [
        pipeline([f"k{n}" for n in range(60)]),
        pipeline(*[DENOISE] * 3),
        pipeline(*[["norm", "qkv", "attention", "mlp"]] * 24, around="nn.Module: Model_0", cat="python_function"),
        pipeline([f"k{n}" for n in range(99)], *[DENOISE] * 4),
    ],
    ids=["no repetition", "three", "layers of one module", "a small part"],
)  # fmt: skip
def test_traces_without_enough_repetitions_get_no_steps(trace: Trace) -> None:
    assert len(trace.steps) == 0 and not trace.steps.inferred
