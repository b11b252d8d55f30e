"""Held-out iterations: what is replaced, by what, and how well it predicts."""

import numpy as np
import pytest
from etplus.timeline import iterations
from etplus.timeline.iterations import (
    HeldOut,
    Outlier,
    Percentiles,
    StepTimes,
    find_iterations,
    find_outliers,
    median_ratio,
    outlier_lines,
    percentiles,
    predict_iteration,
    step_times,
    warm_up,
)
from etplus.timeline.replay_graph import ReplayGraph
from etplus.trace.errors import ConvertError, UsageError
from hypothesis import given
from hypothesis import strategies as st
from made_traces import Timeline
from support import examples


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


FEW = examples(40)
COLUMN = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(-3, 9), st.booleans()), max_size=12)


@FEW
@given(COLUMN)
def test_medians_and_ordinals_equal_a_brute_force_count(rows: list[tuple[int, int, int, bool]]) -> None:
    key, iteration, value = (np.array([row[k] for row in rows], np.int64) for k in range(3))
    found, middle = iterations._medians(key, value, np.array([row[3] for row in rows], np.bool_))
    for k, (own, _, _, _) in enumerate(rows):
        others = sorted(of for other, _, of, out in rows if other == own and not out)
        assert found[k] == bool(others)
        if others:
            assert middle[k] == (others[(len(others) - 1) // 2] + others[len(others) // 2]) // 2
    wanted = [sum(row[:2] == before[:2] for before in rows[:k]) for k, row in enumerate(rows)]
    assert iterations._ordinals(iteration, key).tolist() == wanted


@FEW
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, unique=True, max_size=12), st.data())
def test_median_counts_equal_a_brute_force_count(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    codes = {name: k for k, name in enumerate(sorted({name for name, _ in pairs}))}
    counts = [data.draw(st.integers(1, 5)) for _ in pairs]
    name = np.array([codes[name] for name, _ in pairs])
    for total in (5, 6):
        wanted = []
        for code in range(len(codes)):
            own = [count for k, count in enumerate(counts) if name[k] == code]
            wanted.append(float(np.median([*own, *[0] * (total - len(own))])))
        assert iterations._median_counts(name, np.array(counts), total).tolist() == wanted


def test_the_ratio_is_a_median_over_iterations_of_all_parts() -> None:

    def part(*rows: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        lag, usual, iteration = (np.array(column, np.int64) for column in zip(*rows, strict=True))
        return lag, usual, iteration

    first = part((8, 4, 0), (4, 6, 0), (7, 0, 1), (5, 10, 2))
    assert median_ratio([first]) == pytest.approx(0.85)
    assert median_ratio([first, part((30, 10, 0))]) == pytest.approx(1.2)
    assert median_ratio([part((7, 0, 0))]) == 1.0 == median_ratio([])


def test_what_a_row_belongs_to_and_how_long_iterations_take() -> None:
    """Steps 0–50, 60–110, 120–170. Before the first nothing is of one; what begins with a step is of it, what is
    launched between two of the one before, what begins as the last one ends of none. All is 10 later. The kernels are
    done at 95, when the second step is under way, at 100 and at 200."""
    trace = Timeline()
    trace.op("early", 0, 5)
    for k in range(3):
        trace.op(f"ProfilerStep#{k}", 60 * k + 10, 50, category="user_annotation")
        trace.op(f"work{k}", 60 * k + 10, 40)
    trace.launch("k0", 15, 2, 40, 65)
    trace.op("between", 122, 2)
    trace.launch("k1", 80, 2, 106, 4)
    trace.launch("k2", 140, 2, 150, 60)
    trace.op("late", 180, 5)
    document = trace.document()
    found = find_iterations(document)
    assert (
        len(found) == 3
        and found.steps
        and [found.label(k) for k in range(3)] == [f"ProfilerStep#{k}" for k in range(3)]
    )
    of = {document.name_of(row): k for row, k in enumerate(found.of_row.tolist()) if document.nodes.timed[row]}
    assert of == {
        "early": -1, "ProfilerStep#0": 0, "work0": 0, "k0": 0, "ProfilerStep#1": 1, "work1": 1, "k1": 1, "between": 1,
        "ProfilerStep#2": 2, "work2": 2, "k2": 2, "late": -1, "cudaLaunchKernel": 2,
    }  # fmt: skip
    assert (found.times(document.nodes.ts, document.nodes.end) // 1000).tolist() == [95, 25, 80]


def outliers(times: list[int], labels: str = "abcdefgh") -> list[tuple[int, str, int, str]]:
    trace = Timeline()
    trace.op("op", 0, 1)
    document = trace.document()
    found = find_outliers(document, np.full(len(document), -1), np.array(times), labels)
    return [(one.iteration, one.label, one.measured_ns, one.reason) for one in found]


def test_outliers_are_over_a_fifth_off_the_median() -> None:
    assert outliers([100, 100, 100, 100, 120]) == []
    assert outliers([100, 100, 100, 100, 121]) == [(4, "e", 121, "differs from the median time by +21.0%")]
    assert outliers([79, 100, 100, 100, 100]) == [(0, "a", 79, "differs from the median time by -21.0%")]
    assert outliers([130, 130, 100, 100]) == [] and outliers([100, 130, 100]) == [
        (1, "b", 130, "differs from the median time by +30.0%")
    ]
    assert outliers([90, 95, 100, 105, 110, 130]) == [], "within 3.5 deviations"
    assert [one[0] for one in outliers([98, 99, 100, 101, 102, 130])] == [5]
    assert outliers([0, 0, 0, 1500]) == [(3, "d", 1500, "takes 1.500 µs, while most others take 0")]


def working(counts: list[int]) -> list[tuple[int, str]]:
    """Iterations with so many calls of one op; all take as long."""
    trace, iteration = Timeline(), []
    for k, count in enumerate(counts):
        for at in range(count):
            trace.op("op", 1000 * k + at, 1)
            iteration.append(k)
    document = trace.document()
    of_row = np.full(len(document), -1)
    of_row[document.nodes.timed] = np.array(iteration)[np.argsort(np.argsort(document.nodes.ts[document.nodes.timed]))]
    found = find_outliers(document, of_row, np.full(len(counts), 100), "abcdefgh")
    return [(one.iteration, one.reason) for one in found]


def test_iterations_with_fifteen_percent_other_work_are_outliers() -> None:
    assert working([20, 20, 20, 22]) == [] == working([18, 20, 20, 20])
    assert working([20, 20, 20, 23]) == [(3, "15% of its calls and GPU events differ")]
    assert working([17, 20, 20, 20]) == [(0, "15% of its calls and GPU events differ")]
    assert working([20, 20, 30, 40]) == [] and [k for k, _ in working([20, 20, 20, 30, 40])] == [3, 4]


def outlier(iteration: int) -> Outlier:
    return Outlier(iteration, f"step {iteration}", 9, "takes longer")


@pytest.mark.parametrize(("numbers", "warm", "said"), [
    ((), 0, ""), ((1, 3), 0, "; set apart: 2 of them"),
    ((0, 1, 4), 2, "; set apart: 2 at the beginning as warm-up and 1 others"),
])  # fmt: skip
def test_step_times_are_told_as_text_and_as_numbers(numbers: tuple[int, ...], warm: int, said: str) -> None:
    apart = tuple(map(outlier, numbers))
    assert warm_up(apart) == warm
    times = StepTimes(7, warm, apart, Percentiles(1000, 2000, 3_000_000), Percentiles(1, 2, 3).times(1500))
    assert times.to_lines() == [
        f"steps      7 similar{said}", "           predicted p10 1.5, p50 3.0, p90 4.5 µs",
        "           measured p10 1.0, p50 2.0, p90 3,000.0 µs",
    ]  # fmt: skip
    assert times.to_dict() == {
        "count": 7, "warm_up": warm,
        "set_apart": [
            {"iteration": k, "label": f"step {k}", "measured_ns": 9, "reason": "takes longer"} for k in numbers
        ],
        "measured_ns": {"p10": 1000, "p50": 2000, "p90": 3_000_000},
        "predicted_ns": {"p10": 1500, "p50": 3000, "p90": 4500},
    }  # fmt: skip
    assert outlier_lines(apart) == [
        *(f"set apart  iteration {k} takes longer" for k in numbers),
        *["           these iterations differ from the others; --keep-outliers includes them"] * bool(numbers),
    ]
    assert percentiles(list(range(101))) == Percentiles(10.0, 50.0, 90.0)


def test_a_held_out_iteration_tells_error_spread_and_outlier() -> None:
    apart = (outlier(0), outlier(4))
    held = HeldOut("step", 4, 110, 100, (80, 90, 120), 0.0, apart)
    assert held.error == pytest.approx(0.1) and held.outlier is apart[1] and held.spread == pytest.approx(40 / 95)
    assert HeldOut("step", 1, 0, 0, (0,), 0.0, apart).spread == 0.0
    assert HeldOut("step", 1, 0, 0, (), 0.0, apart).outlier is None


def test_an_iteration_that_is_unlike_the_others_is_predicted_as_one_like_them() -> None:
    graph = steps([100, 100, 300, 100, 100])
    for index, wanted in ((2, 114_000), (-3, 114_000), (0, 114_000), (-5, 114_000), (4, 104_000), (-1, 104_000)):
        held = predict_iteration(graph, index)
        assert held.predicted_ns == wanted and held.index == index % 5
        assert [one.iteration for one in held.set_apart] == [2] and len(held.others_ns) == (4 if held.index == 2 else 3)
    assert len(predict_iteration(graph, 0, keep_outliers=True).others_ns) == 4
    for number in (-6, 5):
        with pytest.raises(UsageError, match="has iterations 0 to"):
            predict_iteration(graph, number)
    with pytest.raises(ConvertError, match="three iterations"):
        predict_iteration(steps([100, 100]), 0)


def test_step_times_leave_outliers_out_and_need_enough_steps() -> None:
    graph = steps([100, 100, 300, 100, 100])
    start, end = graph.trace.nodes.ts, graph.trace.nodes.end
    found = step_times(graph.trace, 2 * start, 2 * end)
    assert found is not None and (found.count, found.warm_up) == (4, 0)
    assert found.measured == Percentiles(107_000, 114_000, 114_000)
    assert found.predicted == Percentiles(214_000, 228_000, 228_000)
    assert step_times(steps([100, 100]).trace, start, end) is None
