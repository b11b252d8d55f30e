"""What etplus predict run prints; the numbers depend on numpy."""

from typing import Any

import numpy as np
from etplus.cli.predict_run import _full, _screen, _shape_notes
from etplus.planning.costs.end_to_end import KernelTotal, OpRow, Prediction
from etplus.planning.reshape.reshape import Reshaped, Underived
from etplus.planning.reshape.shape_change import SizeChange
from etplus.timeline.replay_summary import BaseError


def prediction(rows: int = 1, **more: Any) -> Prediction:
    """1.5 ms, predicted for what took 1 ms."""
    plain: dict[str, Any] = {
        "file": "t.json", "iterations": 1, "predicted_ns": 1_500_000, "measured_ns": 1_000_000,
        "baselines": {"recorded again": 2_000_000}, "unknown": 0.0, "base": BaseError(0.01, None),
        "low_ns": 750_000, "high_ns": 1_250_000,
    }  # fmt: skip
    made = tuple(OpRow(f"op{at}", 2, 3_000_000, 4_000_000, ("model",)) for at in range(rows))
    return Prediction(**(plain | {"rows": made} | more))


def test_the_first_line_has_the_prediction_and_its_interval() -> None:
    first, *others = _screen(prediction(), 200).splitlines()
    assert first == "predicted 1.5 ms (80%: 750 µs to 1.2 ms), recorded 1.0 ms (+50.00%)"
    assert " ".join(others[-1].split()) == "op0 2 3,000 4,000 model"
    assert _screen(prediction(measured_ns=0), 200).splitlines()[0].endswith("recorded 0 ns")


def test_full_output_has_every_time_of_a_prediction() -> None:
    lines = [" ".join(line.split()) for line in _full(prediction(without_waiting=(3_000, 2_000)), 200).splitlines()]
    expected = ["predicted 1,500.0 +50.00%", "80% from 750.0 -25.00%", "to 1,250.0 +25.00%", "measured 1,000.0"]
    expected += ["recorded again 2,000.0 +100.00%", "predicted without waiting for other ranks 3.0 +50.00%"]
    assert set(expected) <= set(lines)


def test_operators_beyond_the_screen_are_counted() -> None:
    assert _screen(prediction(8), 200).splitlines()[-1].split()[0] == "op7"
    assert _screen(prediction(9), 200).splitlines()[-1] == "and 1 more with --full"
    assert _full(prediction(9), 200).splitlines()[-1].split()[0] == "op8"


def test_a_doubtful_prediction_says_why_it_is_doubtful() -> None:
    text = _screen(prediction(unknown=0.125, notes=("guessed",), weakest_link="few", high_ns=1_400_000), 200)
    assert "12.5% of the work has no counterpart in the model and keeps its recorded times" in text and text.endswith(
        "guessed"
    )
    assert "UNCERTAIN: the interval extends more than 25% from the prediction" in text and "weakest    few" in text
    forced = _screen(prediction(weakest_link="few", low_ns=1, high_ns=3), 200)
    assert "UNRELIABLE, forced: the interval is wider than a factor of 2" in forced and "UNCERTAIN" not in forced
    assert "weakest" not in _screen(prediction(), 200) and "counterpart" not in _screen(prediction(), 200)
    measured = _screen(prediction(sources={"measured here": 0.25, "recorded": 0.75}), 200)
    assert "time 25.0% measured here, 75.0% recorded" in measured


def reshaped(underived: int = 0, **more: Any) -> Reshaped:
    plain: dict[str, Any] = {
        "trace": None, "sizes": (SizeChange("batch", 8, 4), SizeChange("seq", 3, 2)), "unknown": np.zeros(0, np.bool_),
        "repeats": np.ones(0), "calls": 5, "changed": 3,
        "underived": tuple(Underived(f"op{at}", 2, 1, 0.125) for at in range(underived)),
    }  # fmt: skip
    return Reshaped(**(plain | more))


def test_a_prediction_for_other_shapes_tells_the_change() -> None:
    assert _shape_notes(reshaped()) == ["batch 4 to 8, seq 2 to 3: 3 of 5 operator calls have new shapes"]
    assert _shape_notes(reshaped(2))[1].startswith("4 calls, 25.0% of the time, keep their recorded shapes")
    first = _screen(prediction(shapes=(reshaped(),)), 200).splitlines()[0]
    assert first.startswith("predicted 1.5 ms at batch 8, seq 3 (80%: ") and first.endswith("seq 2 (1.500×)")
    assert "op1" in _full(prediction(shapes=(reshaped(2),)), 200)


def test_a_step_that_the_host_limits_has_its_gpu_time_predicted() -> None:
    total = KernelTotal(measured=400_000, predicted=300_000, low=200_000, high=350_000)
    found = prediction(kernel_total=total, from_model=0.02)
    first = " ".join(_screen(found, 400).splitlines()[0].split())
    assert first.startswith("GPU time 300 µs (80%: 200 µs to 350 µs), recorded 400 µs; ")
    assert "(2% of the critical path is predicted)" in first and "1.0 ms" in first
    lines = [" ".join(line.split()) for line in _full(found, 200).splitlines()]
    for line in ("measured 1,000.0", "GPU time, predicted 300.0 -25.00%", "GPU time, to 350.0 -12.50%",
                 "critical path that the model predicts 2%"):  # fmt: skip
        assert line in lines
    assert not any(line.startswith(("predicted ", "80% from")) for line in lines)
