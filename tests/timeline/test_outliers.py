"""Iterations that are not like the others are found, and set apart before anything is predicted or fitted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest
from etplus.linker import link
from etplus.planning.costs.end_to_end import calibrated, predict
from etplus.planning.costs.fitting import fit
from etplus.planning.costs.model_file import read_model
from etplus.timeline.graph_building import build_graph
from etplus.timeline.iterations import find_iterations, predict_iteration
from etplus.timeline.replay_graph import ReplayGraph
from etplus.trace.errors import UsageError
from made_traces import Timeline
from support import call, kineto_document, read_json, shared_trace

WARM_UP = [183, 100, 101, 99, 100]
"""The first of five iterations loads libraries."""


def recorded(lengths: list[int], ops: list[int] | None = None) -> Timeline:
    """Iterations of an op of the given length in µs, without pauses; in each the op `aten::mm` so many times (1)."""
    trace, now = Timeline(), 0
    for k, length in enumerate(lengths):
        trace.op(f"ProfilerStep#{k}", now, length, category="user_annotation")
        parts = 1 if ops is None else ops[k]
        for part in range(parts):
            trace.op("aten::mm", now + length * part / parts, length / parts)
        now += length
    return trace


def written(trace: Timeline, path: Path) -> Path:
    link(None, orjson.dumps(kineto_document(trace.events))).write(path)
    return path


def test_models_are_fitted_without_it() -> None:
    """As on the iterations 1 to 4 alone, calibration included; with it the mean is that of all five."""
    document = recorded(WARM_UP).document()
    every, rest = (calibrated(fit([document], iterations=of), [document], of) for of in (None, "1-4"))
    assert every.lags == rest.lags and every.cpu == rest.cpu and every.calibration == rest.calibration
    assert (every.iterations, every.makespans_ns) == (4, (400_000,)) and len(every.outliers[0]) == 1
    kept = fit([document], keep_outliers=True)
    assert (kept.iterations, kept.makespans_ns, kept.outliers) == (5, (583_000,), ((),))


def test_predictions_of_iterations_leave_it_out() -> None:
    document = recorded(WARM_UP).document()
    model = fit([document])
    done = predict(document, model, iterations="0-2")
    assert (done.iterations, done.measured_ns) == (2, 201_000) and [one.iteration for one in done.set_apart] == [0]
    kept = predict(document, model, iterations="0-2", keep_outliers=True)
    assert (kept.iterations, kept.measured_ns, kept.set_apart) == (3, 384_000, ())
    assert predict(document, model).measured_ns == 583_000
    with pytest.raises(UsageError, match="--keep-outliers"):
        predict(document, model, iterations="0")


def test_the_commands_say_so(tmp_path: Path) -> None:
    plus = written(recorded(WARM_UP), tmp_path / "job.json")
    done = call("replay", plus, "--cross-validate")
    assert done.returncode == 0 and b"set apart  iteration 0 differs from the median time by +83.0%" in done.stdout
    assert max(map(len, done.stdout.decode().splitlines())) <= 80
    held = orjson.loads(call("replay", plus, "--cross-validate", "--json", "-").stdout)
    assert [one["iteration"] for one in held] == [1, 2, 3, 4]
    assert held[0]["set_apart"][0]["iteration"] == 0 and held[0]["outlier"] is None
    own = orjson.loads(call("replay", plus, "--cross-validate", "0", "--json", "-").stdout)
    assert own["outlier"] == "differs from the median time by +83.0%" and own["predicted_ns"] == 100_000
    fitted = call("predict", "fit", plus, "-o", tmp_path / "m.json")
    assert fitted.returncode == 0 and b"job.json: set apart  iteration 0" in fitted.stderr
    assert read_model(str(tmp_path / "m.json")).outliers[0][0].iteration == 0
    predict_ = ("predict", "run", plus, "--model", tmp_path / "m.json", "--steps", "0-4")
    table = call(*predict_, "--json", tmp_path / "p.json")
    assert table.returncode == 0 and b"set apart  iteration 0" in table.stdout
    assert max(map(len, table.stdout.decode().splitlines())) <= 80
    assert [one["iteration"] for one in read_json(tmp_path / "p.json")["set_apart"]] == [0]
    assert orjson.loads(call(*predict_, "--keep-outliers", "--json", "-").stdout)["iterations"] == 5


def graph_of(name: str) -> ReplayGraph:
    return build_graph(link(None, shared_trace(name)))


@pytest.mark.parametrize(("name", "expected"), [("compiled_train", [0]), ("dlrm_nodl", [])])
def test_real_traces(name: str, expected: list[int]) -> None:
    """`compiled_train` compiles in the first; the rest is predicted better without it."""
    graph = graph_of(f"cpu-pairs/{name}.kineto.json.gz")
    iterations = find_iterations(graph.trace)
    assert [one.iteration for one in iterations.outliers] == expected
    like = [k for k in range(len(iterations)) if k not in expected]
    held = [abs(predict_iteration(graph, k).error) for k in like]
    kept = [abs(predict_iteration(graph, k, keep_outliers=True).error) for k in like]
    assert max(held) < 0.1
    assert held == kept if not expected else float(np.median(held)) < float(np.median(kept))
