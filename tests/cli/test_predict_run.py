"""What etplus predict run prints; the numbers depend on numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_texts import check_texts
from etplus.cli.predict_run import _shapes, _text
from etplus.planning.costs.end_to_end import OpRow, Prediction
from etplus.planning.reshape.reshape import Reshaped, Underived
from etplus.planning.reshape.shape_change import SizeChange
from etplus.timeline.replay_summary import BaseError


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_texts(tmp_path: Path) -> None:
    cases = [
        "predict fit plus.json -o model.json",
        "predict run plus.json --model model.json --force",
        "predict run plus.json --model model.json --force --json -",
        "predict run plus.json --model model.json --force --engine overheads -o text.txt",
        "predict run plus.json --model model.json --force --gpu 3",
        "predict run plus.json --model model.json --force --set batch=8",
        "predict run plus.json --model model.json --force --set dtype=bfloat16",
        "predict run plus.json --model model.json --also plus.json",
        "predict run plus.json --model model.json --rank-couple --steps 0",
        "predict run plus.json --model model.json --steps 0 --keep-outliers --host model",
        "predict run plus.json kineto.json --model model.json --force --rank-couple",
        "predict run plus.json --gpu H100 --model model.json --force -o other.txt",
        "predict run plus.json --model model.json --set batch=32:8 --also slow.json --force",
        "predict run plus.json --model model.json --set batch=x",
        "predict run plus.json --model plus.json",
    ]
    check_texts("predict_run", cases, tmp_path, masked=True)


def prediction(rows: int = 1, **more: Any) -> Prediction:
    """1.5 ms, predicted for what took 1 ms."""
    plain: dict[str, Any] = {
        "file": "t.json", "engine": "replay", "iterations": 1, "predicted_ns": 1_500_000, "measured_ns": 1_000_000,
        "baselines": {"recorded again": 2_000_000}, "unknown": 0.0, "base": BaseError(0.01, None),
        "low_ns": 750_000, "high_ns": 1_250_000,
    }  # fmt: skip
    made = tuple(OpRow(f"op{at}", 2, 3_000, 4_000, ("model",)) for at in range(rows))
    return Prediction(**(plain | {"rows": made} | more))


def test_what_is_shown_of_a_prediction() -> None:
    lines = _text(prediction(), 200).splitlines()
    assert lines[0] == "t.json" and lines[1].split() == ["engine", "replay", "time", "µs", "against", "measured"]
    assert [" ".join(line.split()) for line in lines[2:7]] == [
        "predicted 1,500.0 +50.00%", "80% between 750.0 -25.00%", "and 1,250.0 +25.00%", "measured 1,000.0",
        "recorded again 2,000.0 +100.00%",
    ]  # fmt: skip
    assert " ".join(lines[-1].split()) == "op0 2 3 4 model"


def test_operators_beyond_the_table_are_counted() -> None:
    assert _text(prediction(15), 200).splitlines()[-1].split()[0] == "op14"
    shown = _text(prediction(16), 200).splitlines()
    assert shown[-1] == "and 1 more; all with --json" and shown[-2].split()[0] == "op14"


def test_what_makes_a_prediction_doubtful() -> None:
    """In its notes; a prediction of what took no time is against nothing."""
    text = _text(prediction(unknown=0.125, notes=("guessed",), weakest_link="few", high_ns=1_400_000), 200)
    assert "12.5% of the work has no counterpart in the model: as recorded" in text and text.endswith("guessed")
    assert "UNCERTAIN: the interval reaches over 25% from the prediction" in text and "weakest    few" in text
    forced = _text(prediction(weakest_link="few", low_ns=1, high_ns=3), 200)
    assert "UNRELIABLE, forced: the interval is wider than a factor of 2" in forced and "UNCERTAIN" not in forced
    assert "weakest" not in _text(prediction(), 200) and "counterpart" not in _text(prediction(), 200)
    assert "%" not in _text(prediction(measured_ns=0, base=BaseError(0.0, None)), 200).splitlines()[2]
    other = _text(prediction(changed=True), 200)
    assert "measured (other shapes or device)" in other
    waiting = [" ".join(line.split()) for line in _text(prediction(without_waiting=(3_000, 2_000)), 200).splitlines()]
    assert "predicted without waiting for other ranks 3.0 +50.00%" in waiting
    assert "measured without waiting for other ranks 2.0" in waiting
    nothing = _text(prediction(without_waiting=(3_000, 0)), 200).splitlines()
    assert any(line.split()[-2:] == ["ranks", "3.0"] for line in nothing)
    measured = _text(prediction(sources={"measured here": 0.25, "recorded": 0.75}), 200)
    assert "time 25.0% measured here, 75.0% recorded" in measured
    assert "time 100" not in _text(prediction(sources={"measured here": 0.0, "recorded": 1.0}), 200)


def reshaped(underived: int = 0, **more: Any) -> Reshaped:
    plain: dict[str, Any] = {
        "trace": None, "sizes": (SizeChange("batch", 8, 4), SizeChange("seq", 3, 2)), "unknown": np.zeros(0, np.bool_),
        "repeats": np.ones(0), "calls": 5, "changed": 3, "dtype": None,
        "underived": tuple(Underived(f"op{at}", 2, 1, 0.125) for at in range(underived)),
    }  # fmt: skip
    return Reshaped(**(plain | more))


def test_what_is_shown_of_other_shapes() -> None:
    assert _shapes(reshaped(), 200) == ["batch 4 to 8, seq 2 to 3: 3 of 5 operator calls have other shapes"]
    assert _shapes(reshaped(sizes=(), dtype="bfloat16"), 200)[0].startswith("dtype bfloat16: as measured with it")
    _, table = _shapes(reshaped(2), 200)
    lines = table.splitlines()
    assert lines[0] == "4 calls, 25.0% of the time, keep shapes that could not be re-derived:"
    assert [line.split() for line in lines[-2:]] == [["op0", "2", "1", "12.5%"], ["op1", "2", "1", "12.5%"]]
    assert len(_shapes(reshaped(15), 200)) == 2
    assert _shapes(reshaped(16), 200)[-1] == "and 1 more operators; all with --json"
    text = _text(prediction(shapes=(reshaped(dtype="half"),)), 200)
    heads = [" ".join(line.split()) for line in text.splitlines()[1:6]]
    assert (
        heads[0].endswith("time µs to the recorded") and heads[1] == "predicted at batch 8, seq 3, half 1,500.0 1.500×"
    )
    assert heads[4] == "recorded at batch 4, seq 2 1,000.0" and "recorded µs" in text
    own = _text(prediction(shapes=(reshaped(sizes=(), dtype="half"),)), 200)
    assert "recorded at its own types" in own and "predicted at half" in own
