"""Intervals of end-to-end times, distributions of step times, and what `predict --json` and `fit --explain` show."""

from __future__ import annotations

import json
from functools import cache
from math import hypot, log
from pathlib import Path

import msgspec
import pytest
from etplus.analysis.devices import known_devices
from etplus.converters.open import load as read_trace
from etplus.linker import link
from etplus.planning.costs.bound import bound_of
from etplus.planning.costs.end_to_end import calibrated, predict, predict_ranks
from etplus.planning.costs.fitting import fit
from etplus.planning.costs.measured_tasks import gpu_tasks
from etplus.planning.costs.model_file import EndToEndError, read_model
from etplus.planning.costs.pricing import Pricing, drawn_in, half_width, interval
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.iterations import Outlier, Percentiles, percentiles, step_times, warm_up
from etplus.timeline.replay_summary import summarize
from etplus.timeline.replay_text import render_full
from etplus.trace.errors import TraceFormatError
from etplus.trace.trace import Trace
from etplus.trace.unattached import with_unattached
from made_traces import Timeline
from support import call, fixture_pair, linked, shared_pair, shared_trace

GPU_SHAPED = "pairs/gpu_shaped_from_cpu"


@pytest.fixture(scope="module")
def gpu_shaped() -> Trace:
    return link(*fixture_pair(GPU_SHAPED))


def kernels(lengths: dict[str, list[int]]) -> Timeline:
    """Kernels of these names and lengths in µs, one after the other."""
    trace, now = Timeline(), 0
    for name, of in lengths.items():
        for length in of:
            trace.launch(name, now, 2, now + 10, length)
            now += length + 20
    return trace


def test_errors_of_one_family_add_up_and_those_of_two_do_not() -> None:
    spread = kernels({"a_kernel": [8, 10, 12] * 6, "b_kernel": [16, 20, 24] * 6}).document()
    model = fit([spread])
    for names, expected in ((["a_kernel"], 1.0), (["a_kernel", "b_kernel"], hypot(1, 2) / 3)):
        trace = kernels({name: [10 if name == "a_kernel" else 20] for name in names}).document()
        pricing = Pricing(model, trace)
        low, high = drawn_in(pricing, range(len(names)))
        for event in range(len(names)):
            price = pricing.price(event)
            assert price.low < price.ns < price.high and price.how == "measured"
            assert low[event] == pytest.approx(price.ns - expected * (price.ns - price.low), rel=0.02)
            assert high[event] == pytest.approx(price.ns + expected * (price.high - price.ns), rel=0.02)


def test_few_held_out_traces_make_the_interval_wide() -> None:
    two, many = EndToEndError((0.05, -0.05), (0.0, 0.0)), EndToEndError((0.05, -0.05) * 10, (0.0,) * 20)
    assert half_width(two) > 2 * half_width(many) > 0.1
    assert half_width(None) == half_width(EndToEndError()) == 0.3
    mixed = EndToEndError((0.05, -0.05, 4.0), (0.0, 0.0, 0.9))
    assert half_width(mixed, 0.01) == half_width(two), "a trace of which nothing was known says nothing of this one"
    assert half_width(mixed, 0.6) > 2 > half_width(None, 0.6) > 1
    low, high = interval(1000, 900, 1500, half_width(None))
    assert log(1000 / low) == pytest.approx(hypot(0.3, log(1 / 0.9)), abs=2e-3)
    assert log(high / 1000) == pytest.approx(hypot(0.3, log(1.5)), abs=2e-3)
    assert interval(0, 0, 0, 0.3) == (0, 0)


def steps(lengths: list[int]) -> Trace:
    trace, now = Timeline(), 0
    for k, length in enumerate(lengths):
        trace.op(f"ProfilerStep#{k}", now, length, category="user_annotation")
        trace.op("aten::mm", now, length)
        now += length
    return trace.document()


def test_step_times_are_a_distribution_without_the_warm_up() -> None:
    lengths = [300, 250, *range(96, 107)]
    trace = steps(lengths)
    graph = build_graph(trace)
    done = replay(graph, fit_constants(graph))
    found = step_times(trace, done.start, done.end)
    assert found is not None and (found.count, found.warm_up, len(found.set_apart)) == (11, 2, 2)
    assert found.measured == found.predicted == Percentiles(97_000, 101_000, 105_000)
    text = render_full(summarize(done, fit_constants(graph)))
    assert "11 similar; set apart: 2 at the beginning as warm-up" in " ".join(text.split())
    assert "p10 97.0, p50 101.0, p90 105.0 µs" in text
    assert step_times(steps([100]), done.start, done.end) is None
    assert warm_up([Outlier(1, "", 9, "")]) == warm_up([]) == 0


def test_predicted_steps_are_spread_as_those_fitted_on() -> None:
    model = calibrated(fit([steps([96, 98, 100, 102, 104])]), [steps([96, 98, 100, 102, 104])])
    assert model.steps == percentiles([0.96, 0.98, 1.0, 1.02, 1.04])
    done = predict(steps([100] * 4), model, host="model")
    assert done.steps is not None and done.steps.count == 4
    assert done.steps.predicted.p90 / done.steps.predicted.p10 == pytest.approx(1.032 / 0.968, rel=1e-3)
    assert done.low_ns < done.predicted_ns < done.high_ns and done.low_ns < 400_000 < done.high_ns
    assert predict(kernels({"k": [5]}).document(), model, force=True).steps is None


def test_json_prices_every_gpu_event(tmp_path: Path) -> None:
    """Of Kineto traces alone, one of whose kernels no fitted trace has."""
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    made = [kernels({"known_kernel": [10, 30], "k": [7]}).document(), kernels({"unseen": [10, 30]}).document()]
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


def test_events_that_could_not_be_attached_are_priced(gpu_shaped: Trace) -> None:
    done = predict(gpu_shaped, fit([gpu_shaped]))
    everything = with_unattached(gpu_shaped).gpu
    assert sum(row.count for row in done.kernels) == len(everything) > len(gpu_shaped.gpu)
    assert sum(row.measured_ns for row in done.kernels) == everything.dur.sum()
    assert all(
        row.bound_ns is None or row.bound_ns <= row.predicted_ns or row.how == "measured" for row in done.kernels
    )


def test_a_trace_without_operators_is_predicted() -> None:
    made = kernels({"k": [10, 30]})
    made.call("cudaDeviceSynchronize", 5, 90)
    trace = made.document()
    model = calibrated(fit([trace]), [trace])
    assert model.calibration == 1.0, "no times of the host are the model's"
    done = predict(trace, model, force=True)
    assert 0 < done.low_ns <= 60_000 < done.high_ns


def test_bounds_are_known_where_flops_or_bytes_are() -> None:
    trace = read_trace(shared_trace("gpu-kineto/mi300_bert.json.gz"))
    model = fit([read_trace(shared_trace("gpu-kineto/torch_compile_triton.json.gz"))])
    devices = {device.name: device for device in known_devices()}
    known = {task.kernel for task in gpu_tasks(trace) if bound_of(task, devices) is not None}
    rows = predict(trace, model).kernels
    assert known and {row.name for row in rows if row.bound_ns is not None} == known
    assert all(row.predicted_ns >= (row.bound_ns or 0) for row in rows)


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


@pytest.mark.parametrize(
    "ratios", [{"log_ratios": [2**63, 0.1], "unknown": [0.0, 0.0]}, {"log_ratios": [0.1], "unknown": []}]
)
def test_errors_that_no_fit_has_are_no_model(tmp_path: Path, ratios: dict[str, list[float]]) -> None:
    model = json.loads(msgspec.json.encode(fit([linked("pairs/gpu_shaped_from_cpu")])))
    (tmp_path / "model.json").write_text(json.dumps(model | {"end_to_end": ratios}))
    with pytest.raises(TraceFormatError, match=r"model.json.*no model.*etplus predict fit"):
        read_model(tmp_path / "model.json")
