"""Held-out iterations: what is replaced, by what, and how well it predicts."""

from __future__ import annotations

import numpy as np
import pytest
from etplus.linker import link
from etplus.replaying.graph_building import build_graph
from etplus.replaying.iterations import find_iterations, predict_iteration
from etplus.replaying.replay_graph import ReplayGraph
from etplus.trace.errors import ConvertError, UsageError
from support import cpu_pairs, shared_trace
from synthetic import Timeline


def steps(lengths: list[int], kernels: list[int] | None = None, *, named: str = "ProfilerStep#{}") -> ReplayGraph:
    """Iterations of an op of the given length, 10 µs apart; the op launches a kernel at once, if kernels are given."""
    trace, now = Timeline(), 0
    for k, length in enumerate(lengths):
        trace.op(named.format(k), now, length + 4, category="user_annotation")
        trace.op("work", now + 2, length)
        if kernels:
            trace.launch("k", now + 2, 3, now + 10, kernels[k])
        now += length + 14
    return trace.graph()


def test_the_host_work_of_an_iteration_is_the_median_of_the_others() -> None:
    """Iterations of 104, 114, 164, 124 (and 10 between two): the third from the others takes median(100, 110, 120) + 4
    + 10, where the 10 are the median of the pauses before the next step."""
    held = predict_iteration(steps([100, 110, 160, 120]), 2)
    assert (held.predicted_ns, held.measured_ns, held.label) == (124_000, 174_000, "ProfilerStep#2")
    assert held.others_ns == (114_000, 124_000, 124_000) and held.unknown == 0
    assert held.spread == pytest.approx((174 - 114) / 124)


def test_the_device_counts_where_it_is_the_slower_one() -> None:
    """Kernels of 300 on ops of 50 (a step every 64): a step takes what its kernel takes, 300 and the gap; the third
    step's kernel of 500 is predicted as 300. The device begins a kernel when it has done the one before: 10, then as
    long as kernels take."""
    trace, free = Timeline(), 0
    for k, length in enumerate([300, 300, 500, 300]):
        now = 64 * k
        trace.op(f"ProfilerStep#{k}", now, 54, category="user_annotation")
        trace.op("work", now + 2, 50)
        start = max(now + 12, free + 1)
        trace.launch("k", now + 2, 3, start, length)
        free = start + length
    held = predict_iteration(trace.graph(), 2)
    assert (held.predicted_ns, held.measured_ns) == (301_000, 501_000)


def test_a_call_that_only_this_iteration_has_takes_what_its_name_takes_elsewhere() -> None:
    trace, now = Timeline(), 0
    for k in range(3):
        trace.op(f"ProfilerStep#{k}", now, 100, category="user_annotation")
        trace.op("work", now + 10, 20)
        if k == 1:
            trace.op("work", now + 50, 40)
        now += 110
    held = predict_iteration(trace.graph(), 1)
    assert held.unknown > 0
    assert held.predicted_ns != held.measured_ns


def test_any_annotation_that_recurs_evenly_will_do() -> None:
    graph = steps([100, 110, 105, 100], named="train#{}")
    assert len(find_iterations(graph.trace)) == 4
    assert predict_iteration(graph, -1).label == "train#3"


def test_too_few_iterations_and_none_of_that_number() -> None:
    with pytest.raises(ConvertError, match="three iterations"):
        predict_iteration(steps([100, 100]), 0)
    with pytest.raises(UsageError, match="numbered from 0"):
        predict_iteration(steps([100, 100, 100]), 3)


def held_errors(name: str) -> tuple[list[float], float]:
    """Relative errors of all iterations, and the measured spread."""
    graph = build_graph(link(None, shared_trace(name)))
    held = [predict_iteration(graph, k) for k in range(len(find_iterations(graph.trace)))]
    return [one.error for one in held], held[0].spread


def test_iterations_of_resnet103_are_predicted_from_each_other() -> None:
    errors, _ = held_errors("gpu-pairs/resnet103.kineto.json.gz")
    assert max(map(abs, errors)) <= 0.03


@pytest.mark.slow
def test_the_median_iteration_of_linear_is_predicted() -> None:
    """Its 40 iterations differ by 20% (the host's speed drifts), so that no prediction fits each of them."""
    graph = build_graph(link(None, shared_trace("gpu-pairs/linear.kineto.json.gz")))
    iterations = find_iterations(graph.trace)
    times = iterations.times(graph.trace.ts, graph.trace.finish)
    assert len(times) == 40
    assert abs(predict_iteration(graph, int(np.argsort(times)[20])).error) <= 0.03


def test_cpu_recordings_are_predicted_better_than_their_iterations_agree() -> None:
    """Over every second recorded pair, where it has three iterations or more (benchmarks/replay_table.py takes all)."""
    shared_trace("cpu-pairs")
    medians, spreads = [], []
    for name in cpu_pairs()[::2]:
        try:
            errors, spread = held_errors(f"cpu-pairs/{name}.kineto.json.gz")
        except ConvertError:
            continue
        medians.append(float(np.median(np.abs(errors))))
        spreads.append(spread)
    assert len(medians) >= 15
    assert float(np.median(medians)) <= float(np.median(spreads))
