"""Intervals of end-to-end times, distributions of step times, and what `predict --json` and `fit --explain` show."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from etplus.linker import link
from etplus.planning.costs.end_to_end import calibrated, predict, predict_ranks
from etplus.planning.costs.fitting import fit
from etplus.timeline.iterations import percentiles
from etplus.trace.trace import Trace
from made_traces import Timeline
from support import call, shared_pair
from test_pricing import kernels, queued


def steps(lengths: list[int]) -> Trace:
    trace, now = Timeline(), 0
    for k, length in enumerate(lengths):
        trace.op(f"ProfilerStep#{k}", now, length, category="user_annotation")
        trace.op("aten::mm", now, length)
        now += length
    return trace.document()


def test_predicted_steps_are_spread_as_those_fitted_on() -> None:
    model = calibrated(fit([steps([96, 98, 100, 102, 104])]), [steps([96, 98, 100, 102, 104])])
    assert model.steps == percentiles([0.96, 0.98, 1.0, 1.02, 1.04])
    done = predict(steps([100] * 4), model, host="model")
    assert done.steps is not None and done.steps.count == 4
    assert done.steps.predicted.p90 / done.steps.predicted.p10 == pytest.approx(1.032 / 0.968, rel=1e-3)
    assert done.low_ns < done.predicted_ns < done.high_ns and done.low_ns < 400_000 < done.high_ns
    assert predict(kernels({"k": [5]}), model, force=True).steps is None


def test_json_prices_every_gpu_event(tmp_path: Path) -> None:
    """Of Kineto traces alone, one of whose kernels no fitted trace has."""
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    made = [kernels({"known_kernel": [10, 30], "k": [7]}), kernels({"unseen": [10, 30]})]
    for trace, file in zip(made, files, strict=True):
        trace.write(file)
    model = tmp_path / "m.json"
    fitted = call("predict", "fit", files[0], "-o", model, "--explain", "KNOWN")
    assert fitted.returncode == 0 and b"time = (start + " in fitted.stdout and b"predicted" in fitted.stdout
    assert max(map(len, fitted.stdout.decode().splitlines())) <= 80
    done = call("predict", "run", *files, "--model", model, "--json", "-", "--force")
    for plain, trace in zip(json.loads(done.stdout), made, strict=True):
        rows = plain["kernels"]
        assert sum(row["count"] for row in rows) == len(trace.gpu) > 0
        assert sum(row["measured_ns"] for row in rows) == trace.gpu.dur.sum()
        assert plain["low_ns"] <= plain["predicted_ns"] <= plain["high_ns"]
        for row in rows:
            keys = "name op count measured_ns predicted_ns low_ns high_ns bound_ns how"
            assert set(keys.split()) <= set(row) and 0 <= row["low_ns"] <= row["predicted_ns"] <= row["high_ns"]
    table = call("predict", "run", files[1], "--model", model, "--force").stdout.decode()
    assert "(80%: " in table and "100% of the GPU time is unfamiliar to the model" in " ".join(table.split())


def test_a_trace_without_operators_is_predicted() -> None:
    made = queued({"k": [10, 30]})
    made.call("cudaDeviceSynchronize", 5, 90)
    trace = made.document()
    model = calibrated(fit([trace]), [trace])
    assert model.calibration == 1.0, "no times of the host are the model's"
    done = predict(trace, model, force=True)
    assert 0 < done.low_ns <= 60_000 < done.high_ns


@cache
def rank(number: int) -> Trace:
    return link(*shared_pair(f"gpu-pairs/dlrm.rank{number}"))


@pytest.mark.slow
@pytest.mark.parametrize("known", [(0, 1), (2, 3)], ids=str)
def test_the_error_of_held_out_ranks_lies_in_its_interval(known: tuple[int, int]) -> None:
    given = [rank(number) for number in known]
    model = calibrated(fit(given), given)
    others = [rank(number) for number in range(4) if number not in known]
    done = predict_ranks(others, model)
    assert done.low_ns <= done.measured_ns <= done.high_ns
    assert done.high_ns < 5 * done.low_ns or known not in ((0, 1), (0, 3))
