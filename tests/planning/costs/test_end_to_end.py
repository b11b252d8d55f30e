"""End-to-end prediction: steps, intervals, iterations that are set apart, the commands.

The tests also cover rank_job.py.
"""

import json
from pathlib import Path

import orjson
import pytest
from etplus.planning.costs.end_to_end import calibrated, predict
from etplus.planning.costs.fitting import fit, read_model
from etplus.timeline.iterations import percentiles
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from made_traces import Timeline
from support import call, linked, read_json, refused, run, succeeds
from test_pricing import kernels, queued


def test_predict_run_uses_a_fitted_model_and_refuses_another_file(tmp_path: Path) -> None:
    file, model = tmp_path / "a.json", tmp_path / "m.json.gz"
    linked("pairs/gpu_shaped_from_cpu").write(file)
    fitted = call("predict", "fit", file, "-o", model)
    assert fitted.returncode == 0 and b"models in order" in fitted.stdout and b"ridge" not in fitted.stdout
    table = run("etplus", "predict", "run", file, "--model", model)
    assert table.returncode == 0 and b"predicted" in table.stdout
    assert max(map(len, table.stdout.decode().splitlines())) <= 80
    numbers = json.loads(call("predict", "run", file, "--model", model, "--json", "-").stdout)
    assert abs(numbers["error"]) < 0.05 and numbers["ops"]
    assert "etplus predict fit" in refused("predict", "run", file, "--model", file)


def test_a_step_that_the_host_limits_says_so() -> None:
    trace = Timeline()
    for k in range(4):
        trace.op("work", 60 * k, 50)
        trace.launch("kernel", 60 * k + 5, 2, 60 * k + 10, 1)
    one = trace.document()
    done = predict(one, fit([one]))
    assert done.limited_by_host and done.from_model < 0.5 and not done.forced and done.to_dict()["limited_by_host"]
    assert done.kernel_total is not None and done.kernel_total.measured == done.kernel_total.predicted == 4000
    assert done.kernel_total.low < 4000 < done.kernel_total.high and done.low_ns < done.predicted_ns < done.high_ns
    busy = Timeline()
    for k in range(4):
        busy.op("work", 10 * k, 5)
        busy.launch("kernel", 10 * k + 1, 2, 60 * k + 5, 58)
    two = busy.document()
    done = predict(two, fit([two]), force=True)
    assert not done.limited_by_host and done.from_model > 0.5


def steps(lengths: list[int]) -> Trace:
    """Iterations of one op, without pauses."""
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


def test_a_trace_without_operators_is_predicted() -> None:
    made = queued({"k": [10, 30]})
    made.call("cudaDeviceSynchronize", 5, 90)
    trace = made.document()
    model = calibrated(fit([trace]), [trace])
    assert model.calibration == 1.0, "no times of the host are the model's"
    done = predict(trace, model, force=True)
    assert 0 < done.low_ns <= 60_000 < done.high_ns


LOADING = [183, 100, 101, 99, 100]
"""Iterations of which the first loads libraries."""


def test_models_are_fitted_without_iterations_that_are_unlike_the_others() -> None:
    document = steps(LOADING)
    every, rest = (calibrated(fit([document], iterations=of), [document], of) for of in (None, "1-4"))
    assert every.lags == rest.lags and every.cpu == rest.cpu and every.calibration == rest.calibration
    assert (every.iterations, every.makespans_ns) == (4, (400_000,)) and len(every.outliers[0]) == 1
    kept = fit([document], keep_outliers=True)
    assert (kept.iterations, kept.makespans_ns, kept.outliers) == (5, (583_000,), ((),))


def test_predicted_iterations_leave_outliers_out_unless_they_are_kept() -> None:
    document = steps(LOADING)
    model = fit([document])
    done = predict(document, model, iterations="0-2")
    assert (done.iterations, done.measured_ns) == (2, 201_000) and [one.iteration for one in done.set_apart] == [0]
    kept = predict(document, model, iterations="0-2", keep_outliers=True)
    assert (kept.iterations, kept.measured_ns, kept.set_apart) == (3, 384_000, ())
    assert predict(document, model).measured_ns == 583_000
    with pytest.raises(UsageError, match="--keep-outliers"):
        predict(document, model, iterations="0")


def test_the_commands_say_which_iterations_are_set_apart(tmp_path: Path) -> None:
    plus = tmp_path / "job.json"
    steps(LOADING).write(plus)
    done = call("replay", plus, "--cross-validate")
    assert done.returncode == 0 and b"set apart  iteration 0 differs from the median time by +83.0%" in done.stdout
    held = orjson.loads(call("replay", plus, "--cross-validate", "--json", "-").stdout)
    assert [one["iteration"] for one in held] == [1, 2, 3, 4] and len(held[0]["base_error"]) > 1
    own = orjson.loads(call("replay", plus, "--cross-validate", "0", "--json", "-").stdout)
    assert own["outlier"] == "differs from the median time by +83.0%" and own["predicted_ns"] == 100_000
    assert b"job.json: set apart  iteration 0" in succeeds("predict", "fit", plus, "-o", tmp_path / "m.json").stderr
    assert read_model(str(tmp_path / "m.json")).outliers[0][0].iteration == 0
    predict_ = ("predict", "run", plus, "--model", tmp_path / "m.json", "--steps", "0-4")
    assert b"set apart  iteration 0" in succeeds(*predict_, "--json", tmp_path / "p.json").stdout
    assert [one["iteration"] for one in read_json(tmp_path / "p.json")["set_apart"]] == [0]
    assert orjson.loads(call(*predict_, "--keep-outliers", "--json", "-").stdout)["iterations"] == 5
