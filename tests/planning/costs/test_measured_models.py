"""Models made of measured tasks, on tasks worked out by hand."""

import numpy as np
import pytest
from etplus.planning.costs.measured_models import Extrapolated, Interpolated, KindMean, MeasuredTable, _side
from etplus.planning.costs.task import MeasuredTask, Task
from etplus.trace.tensors import Tensor
from msgspec.structs import replace


def tensor(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(shape, dtype)


def add(size: int, kernel: str = "add_kernel", *, device: str = "gpu", blocks: int = 0, moved: int | None = -1) -> Task:
    return Task(
        "aten::add", kernel, inputs=(tensor(size),), outputs=(tensor(size),), bytes=8 * size if moved == -1 else moved,
        device=device, blocks=blocks,
    )  # fmt: skip


def test_the_table_has_equal_tasks_whatever_is_recorded_of_their_launch() -> None:
    first, second = MeasuredTask(add(8, blocks=1), 10.0, 1), MeasuredTask(add(8, blocks=2), 20.0, 1)
    table = MeasuredTable([first, second, MeasuredTask(Task("aten::x", "k", blocks=3), 30.0, 1)])
    assert table.of(add(8, blocks=2)) is second
    assert table.of(add(8, blocks=7)) is first, "the first of those with other grids"
    assert table.of(Task("aten::x", "k", blocks=4)) is None, "the work is not known where shapes are not"
    assert table.predict(add(8, blocks=2)) == (20.0, "measured") and table.predict(add(9)) is None


def test_the_mean_of_a_kind_else_of_its_category() -> None:
    mean = KindMean([MeasuredTask(add(1), 2.0, 1), MeasuredTask(add(2), 8.0, 1), MeasuredTask(Task("x"), 64.0, 1)])
    assert mean.predict(add(77)) == (pytest.approx(4.0), "mean of its kind")
    assert mean.predict(Task("unseen")) == (pytest.approx(1024 ** (1 / 3)), "mean of its kind")
    assert mean.predict(Task("unseen", category="cpu_op")) is None


@pytest.mark.parametrize(("size", "expected"), [(150, 15.0), (100, 10.0), (300, 30.0), (99, None), (301, None)])
def test_between_two_measured_sizes_times_are_interpolated(size: int, expected: float | None) -> None:
    measured = [
        MeasuredTask(add(100), 10.0, 9), MeasuredTask(add(300), 30.0, 9), MeasuredTask(add(200, "odd"), 99.0, 9)
    ]  # fmt: skip
    found = Interpolated(measured).predict(add(size))
    assert (None if found is None else found.ns) == (None if expected is None else pytest.approx(expected))
    assert found is None or found.how == "between measured"


def test_interpolation_by_any_kernel_where_the_own_is_not_on_both_sides() -> None:
    measured = [MeasuredTask(add(100, "small"), 10.0, 9), MeasuredTask(add(300, "large"), 30.0, 9)]
    found = Interpolated(measured).predict(add(200, "middle"))
    assert found is not None and found.ns == pytest.approx(20.0)
    assert Interpolated(measured).predict(add(200, device="else")) is None
    assert Interpolated(measured).predict(replace(add(200), place=1)) is None
    assert Interpolated(measured[:1]).predict(add(100, "small")) is None, "one is no interval"


def test_sizes_more_than_sixteen_times_apart_are_not_interpolated() -> None:
    measured = [MeasuredTask(add(10), 1.0, 9), MeasuredTask(add(160), 9.0, 9)]
    assert Interpolated(measured).predict(add(20)) is not None
    assert Interpolated([measured[0], MeasuredTask(add(161), 9.0, 9)]).predict(add(20)) is None


def test_interpolation_goes_by_flops_else_bytes_else_elements() -> None:
    def square(side: int, **known: int) -> Task:
        return Task("aten::mm", "gemm", inputs=(tensor(side, side),), device="gpu", **known)

    for law, expected in (({}, (9 - 4) / (16 - 4)), ({"bytes": 1}, 1 / 2), ({"bytes": 1, "flops": 3}, 19 / 56)):
        known = [{name: side**of for name, of in law.items()} if law else {} for side in (2, 3, 4)]
        measured = [MeasuredTask(square(2, **known[0]), 0.0, 9), MeasuredTask(square(4, **known[2]), 1.0, 9)]
        found = Interpolated(measured).predict(square(3, **known[1]))
        assert found is not None and found.ns == pytest.approx(expected)


def test_equal_sizes_on_both_sides_count_half_each() -> None:
    def task(rows: int, columns: int) -> Task:
        return Task("aten::sum", "sum", inputs=(tensor(rows, columns),), device="gpu", bytes=64)

    measured = [MeasuredTask(task(4, 4), 10.0, 9), MeasuredTask(task(8, 8), 20.0, 9)]
    found = Interpolated(measured).predict(task(4, 8))
    assert found is not None and found.ns == 15.0


def test_rare_times_on_a_cpu_are_medians_of_nearly_equal_sizes() -> None:
    """Of 1000 … 1003, measured once each, the lower side is the median of the four; on the upper side one was measured
    five times, which is enough."""

    def op(size: int) -> Task:
        return Task("aten::add", "", "cpu_op", inputs=(tensor(size),), device="cpu")

    low = [MeasuredTask(op(1000 + k), ns, 1) for k, ns in enumerate((10.0, 500.0, 12.0, 14.0))]
    high = [MeasuredTask(op(2000), 40.0, 5), MeasuredTask(op(2001), 900.0, 1)]
    found = Interpolated([*low, *high]).predict(op(1500))
    middle, share = (12.0 + 14.0) / 2, (1500 - 1003) / (2000 - 1003)
    assert found is not None and found.ns == pytest.approx(middle + share * (40.0 - middle))


def test_beyond_the_greatest_the_part_above_the_least_grows_in_proportion() -> None:
    model = Extrapolated([MeasuredTask(add(1, moved=100), 5.0, 1), MeasuredTask(add(10, moved=1000), 14.0, 1)])
    assert model.predict(add(20, moved=2000)) == (5 + 9 * 2, "grown from measured")
    for served, size in ((True, 1200), (False, 1199), (True, 16_000), (False, 16_001)):
        assert (model.predict(add(20, moved=size)) is not None) is served, size
    assert model.predict(add(20, "other", moved=2000)) is None
    assert model.predict(replace(add(20, moved=2000), dtype="float16")) is None
    assert Extrapolated([MeasuredTask(add(1, moved=None), 5.0, 1)]).predict(add(20, moved=2000)) is None


def test_where_all_are_of_one_size_what_stays_is_the_usual_time_of_the_category() -> None:
    big = MeasuredTask(add(10, "big", moved=1000), 14.0, 1)
    others = [MeasuredTask(Task("aten::x", f"k{i}", device="gpu"), ns, 1) for i, ns in enumerate((2.0, 4.0))]
    found = Extrapolated([big, *others]).predict(add(20, "big", moved=2000))
    assert found is not None and found.ns == pytest.approx(4 + (14 - 4) * 2), "the median of 14, 2 and 4"
    alone = Extrapolated([big]).predict(add(20, "big", moved=2000))
    assert alone is not None and alone.ns == 14.0, "it may all be start-up"


def test_of_two_neighbors_the_one_that_says_less_counts() -> None:
    """A task of 8 × 100 is nearest to 7 × 90 (both extents differ, 40 µs for 5040 FLOPs), and in fewest extents to
    2 × 100 (12 µs for 1600)."""

    def linear(rows: int, columns: int) -> Task:
        return Task("aten::mm", "gemm", inputs=(tensor(rows, columns),), flops=8 * rows * columns, device="gpu")

    measured = [MeasuredTask(linear(1, 10), 2.0, 1), MeasuredTask(linear(7, 90), 40.0, 1)]
    wide = MeasuredTask(linear(2, 100), 12.0, 1)
    task = linear(8, 100)
    near = 2 + 38 * (8 * 100) / (7 * 90)
    found = Extrapolated(measured).predict(task)
    assert found is not None and found.ns == pytest.approx(near)
    found = Extrapolated([*measured, wide]).predict(task)
    assert found is not None and found.ns == pytest.approx(2 + 10 * 4) and near > 42


@pytest.mark.parametrize(("count", "rows", "ns"), [(4, [1, 3], 20.0), (5, [1, 3], 10.0), (4, [1, 4], 10.0)])
def test_few_calls_are_joined_by_those_up_to_twice_as_large(count: int, rows: list[int], ns: float) -> None:
    members = [MeasuredTask(add(1, ""), 10.0, count), MeasuredTask(add(3, ""), 30.0, 1)]
    assert _side(np.array(rows)[:, None], np.array([1]), np.arange(2), members) == (ns, 8)
