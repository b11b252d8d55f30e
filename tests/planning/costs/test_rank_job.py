"""One rank to predict, in the forms of both engines, and what end-to-end predictions make of it; by hand."""

from dataclasses import replace
from math import expm1

import msgspec
import numpy as np
import pytest
from etplus.planning.costs.end_to_end import (
    Link,
    _replay_together,
    calibrated,
    checked,
    held_out_link,
    kernel_link,
    predict,
    predict_ranks,
)
from etplus.planning.costs.fitting import EndToEndError, FittedModel, fit
from etplus.planning.costs.pricing import OpRow, PricedKernel, op_rows
from etplus.planning.costs.rank_job import PricedEdges, RankJob, _parts
from etplus.planning.costs.task import Estimate, gpu_tasks
from etplus.timeline.replay_graph import DURATION
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from etplus.trace.unattached import with_unattached
from made_traces import Timeline
from support import linked
from test_rank_coupling import rank


def steps(lengths: list[int], kernels: list[int] | None = None) -> Trace:
    """Iterations of an op of the given length with ten different ones inside, 10 µs apart; and kernels, if given."""
    trace, now = Timeline(), 0
    for k, length in enumerate(lengths):
        trace.op(f"ProfilerStep#{k}", now, length + 4, category="user_annotation")
        trace.op("work", now + 2, length)
        for part in range(10):
            trace.op(f"part{part}", now + 4 + part * length // 20, length // 20)
        if kernels:
            trace.launch("k", now + 2, 1, now + 10, kernels[k])
        now += length + 14
    return trace.document()


def job(trace: Trace, model: FittedModel, **more: object) -> RankJob:
    given = {"wanted": None, "device": None, "changed": False, "shape": None} | more
    return RankJob(trace, model, **given)  # type: ignore[arg-type]


def test_the_host_speed_is_fitted_if_enough_operators_are_known() -> None:
    model, trace = fit([steps([100, 100, 100])]), steps([200, 200, 200])
    slow = job(trace, model, host="model")
    assert slow.speed == (2.0, 0.0) and slow.on_host and slow.by_model
    assert job(trace, model).speed == (1.0, 0.0), "host work is the trace's own"
    changed = job(trace, model, changed=True)
    assert changed.by_model and changed._speed_of_models == 2.0 and slow._speed_of_models == 1.0
    assert job(trace, msgspec.structs.replace(model, cpu=model.cpu[:7]), host="model").speed == (1.0, 1.0)
    some = msgspec.structs.replace(model, cpu=model.cpu[:10])  # without part9, of the eleven
    missing = 10_000 / 200_000
    assert job(trace, some, host="model").speed == (2.0, pytest.approx(missing))


def test_host_times_stay_recorded_unless_the_host_model_is_asked_for() -> None:
    model, trace = fit([steps([100, 100, 100])]), steps([200, 200, 200])
    slow = job(trace, model, host="model")
    assert slow.measured == 3 * 200_000 + 2 * 14_000 + 4000
    assert slow.replayed(slow.graph.edges.lag) == slow.measured
    # in a step 2 before the op and 2 after it, and 10 between two, of the trace's host: half
    assert slow.total() == 3 * 100_000 + 2 * 7000 + 2000
    assert slow.unknown == 0.0 and slow.priced.unknown == 0.0
    same = job(trace, model)
    assert same.total() == same.measured and same.sources["as recorded"] == 1.0
    assert same.notes == ("no GPU events: operators keep their recorded times; --host model predicts them",)
    assert slow.notes == ()


def test_rows_count_owners_and_sum_times() -> None:
    parts = [(1, 10, 20, "a"), (1, 5, 6, "b"), (2, 1, 1, "b")]
    assert op_rows({"x": parts, "z": [(3, 2, 27, "c")], "y": [(3, 2, 27, "c")], "w": [(4, 0, 99, "d")]}) == (
        OpRow("w", 1, 0, 99, ("d",)), OpRow("x", 2, 16, 27, ("b", "a")), OpRow("y", 1, 2, 27, ("c",)),
        OpRow("z", 1, 2, 27, ("c",)),
    )  # fmt: skip
    assert op_rows({}) == ()


def test_a_predicted_operator_time_is_divided_like_the_recorded_lags() -> None:
    graph = job(steps([100] * 3), fit([steps([100] * 3)])).graph
    edges = [edge for edge in range(len(graph.edges)) if graph.edges.lag[edge] > 0][:2]
    lags = graph.edges.lag[edges]
    found = _parts(graph, edges, int(lags.sum()), Estimate(1000.0, "x"))
    assert [found[edge].ns for edge in edges] == pytest.approx((1000 * lags / lags.sum()).tolist())
    assert [found.ns for found in _parts(graph, edges, 0, Estimate(10.0, "x")).values()] == [5.0, 5.0]
    none = np.zeros(0, np.int64)
    assert PricedEdges(none, {1: "unknown", 2: "a", 3: "b", 4: "unknown"}, 0).unknown == 0.5
    assert PricedEdges(none, {}, 0).unknown == 0.0


def row(name: str, predicted: int, level: str = "same kernel", low: int = 0, high: int = 0) -> PricedKernel:
    return PricedKernel(name, "", "", "d", 1, 0, predicted, low, high, None, "utilization", level)


def test_a_link_names_the_least_known_part_of_a_prediction() -> None:
    assert kernel_link(0.5, [row("a", 90), row("b", 10, "new")]).what == (
        "10% of the GPU time is in events that resemble no fitted event"
    )
    worst = kernel_link(0.5, [row("a", 91, low=80, high=100), row("b", 100, low=50, high=200), row("c", 9, "new")])
    assert worst == (0.5, "b, 50% of the GPU time, 0.5 to 2 times")
    assert kernel_link(0.1, []).what.startswith("0% of the GPU time")
    assert held_out_link(0.2, None, 0.1) == (0.2, "the model cannot predict the CPU times of 10% of the edges")
    assert held_out_link(0.2, None, 0.09).what == held_out_link(0.2, EndToEndError(), 0.0).what
    missed = held_out_link(0.2, EndToEndError((0.1, -0.5), (0.0, 0.0)), 0.0)
    assert missed.what == f"the time of a held-out trace differed by {expm1(-0.5):+.0%} from its prediction"


def test_intervals_wider_than_a_factor_of_two_are_refused_unless_forced() -> None:
    links = [Link(0.1, "less"), Link(0.5, "the weak one"), Link(0.2, "more")]
    assert checked("f", 100, 80, 125, links, force=False) is None
    assert checked("f", 100, 79, 125, links, force=False) == "the weak one"
    assert checked("f", 100, 80, 126, links, force=False) == "the weak one"
    assert checked("f", 100, 70, 140, links, force=False) == "the weak one"
    with pytest.raises(UsageError, match="wider than a factor of 2; weakest link: the weak one"):
        checked("f", 100, 70, 141, links, force=False)
    assert checked("f", 100, 70, 141, links, force=True) == "the weak one"
    with pytest.raises(UsageError, match="the replay finds no work"):
        checked("f", 0, 0, 0, links, force=False)
    assert checked("f", 0, 0, 0, links, force=True) == "the replay finds no work in the trace"


def test_calibration_and_how_held_out_traces_were_missed() -> None:
    first, second = steps([100, 102, 98]), steps([100, 102, 104])
    alone = calibrated(fit([first]), [first])
    ratios = tuple(round(float(np.log(ratio)), 4) for ratio in (114 / 110.6667, 116 / 110.6667, 102 / 110.6667))
    assert alone.end_to_end is not None and alone.end_to_end.log_ratios == pytest.approx(ratios, abs=2e-4)
    assert alone.end_to_end.unknown == (0.0,) * 3 and alone.calibration == pytest.approx(1.0, abs=0.02)
    both = calibrated(fit([first, second]), [first, second])
    assert both.end_to_end is not None and both.end_to_end.log_ratios == pytest.approx((0.0, 0.0), abs=0.05)
    gpu = steps([100] * 3, [30] * 3)
    assert calibrated(fit([gpu]), [gpu]).calibration == 1.0
    again = calibrated(fit([gpu, gpu]), [gpu, gpu])
    assert again.end_to_end is None and again.calibration == 1.0


def test_ranks_are_predicted_together() -> None:
    traces = [rank(0, 0, 10, 90).document(), rank(1, 50, 60, 40).document()]
    assert [(task.collective, task.bytes, task.group_size) for task in gpu_tasks(traces[0])] == [("allreduce", 16, 2)]
    model = fit(traces)
    done = predict_ranks(traces, model, force=True)
    assert (done.predicted_ns, done.measured_ns, done.iterations) == (100_000, 100_000, 1)
    jobs = [job(trace, model) for trace in traces]
    assert [list(of.transfers.values()) for of in jobs] == [[40_000], [40_000]]
    kernel_ns = [of.gpu_ns for of in jobs]
    lags = msgspec.structs.replace(model.lags, transfers=dict.fromkeys(model.lags.transfers, 70_000))
    longer = [job(trace, msgspec.structs.replace(model, lags=lags)) for trace in traces]
    assert _replay_together(longer, kernel_ns) == 130_000
    assert _replay_together(jobs, kernel_ns, as_recorded=True) == 100_000
    alone = predict(traces[0], model, force=True)
    assert alone.without_waiting == (50_000, 50_000), "10 until the kernel, 40 for the transfer"
    assert jobs[0].gpu_ns_waiting == [90_000.0]
    assert done.baselines["GPU time of the busiest stream, measured"] == 90_000


@pytest.fixture(scope="module")
def gpu_shaped() -> Trace:
    return linked("pairs/gpu_shaped_from_cpu")


def test_kernels_that_no_operator_launched_are_priced_unless_iterations_are_chosen(gpu_shaped: Trace) -> None:
    whole = job(gpu_shaped, fit([gpu_shaped]))
    everything = with_unattached(gpu_shaped)
    assert len(everything.gpu) > len(gpu_shaped.gpu)
    assert sum(row.count for row in whole.kernels()) == len(everything.gpu)
    assert sum(row.measured_ns for row in whole.kernels()) == everything.gpu.dur.sum()
    trace = steps([100] * 4, [30, 40, 50, 60])
    some = job(trace, fit([trace]), wanted="1-2")
    assert [(row.count, row.measured_ns) for row in some.kernels()] == [(2, 90_000)]
    assert some.baselines() == {
        "GPU time of the busiest stream, measured": 90_000,
        "mean of the fitted traces": round(2 * sum(some.model.makespans_ns) / 4),
    }  # fmt: skip
    assert some.gpu_ns == [30_000.0, 40_000.0, 50_000.0, 60_000.0]


def test_other_kernel_times_scale_only_the_lags_of_their_kernels() -> None:
    trace = steps([100] * 3, [30, 40, 50])
    one = job(trace, fit([trace]))
    usual = np.array(one.pricing.times)
    edges = one.graph.edges
    gpu = {row: event for event, row in enumerate(one.trace.gpu.source.tolist())}
    for factors in ((2.0, 1.0, 1.0), (1.0, 0.5, 3.0), (0.0, 0.0, 0.0)):
        lags = one.lags_at((usual * factors).tolist())
        for edge in range(len(edges)):
            event = gpu.get(int(edges.owner[edge]))
            mine = edges.kind[edge] == DURATION and event is not None
            assert lags[edge] == round(one.priced.lag[edge] * (factors[event] if mine and event is not None else 1))
    assert one.lags_at(None) is one.priced.lag
    assert one.event_of == gpu


def test_a_prediction_tells_its_error_ratio_and_unfamiliar_share() -> None:
    trace = steps([100, 102, 98])
    done = predict(trace, calibrated(fit([trace]), [trace]))
    rows = (row("a", 90), row("b", 10, "new"))
    some = replace(done, predicted_ns=150, measured_ns=100, low_ns=100, high_ns=200, kernels=rows)
    assert (some.error, some.ratio, some.share_unfamiliar, some.forced) == (0.5, 1.5, 0.1, False)
    assert replace(some, high_ns=201).forced and replace(some, predicted_ns=0).forced
    assert replace(some, measured_ns=0).ratio == 0.0 and replace(some, kernels=()).share_unfamiliar == 0.0
    assert replace(some, kernels=rows[1:]).share_unfamiliar == 1.0
