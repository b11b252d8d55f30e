"""Intervals of held-out ratios: ranks by counting, and the group whose spread counts."""

from math import ceil, exp, floor, log

import msgspec
import numpy as np
import pytest
from etplus.analysis.devices import Device
from etplus.planning.costs.kernel_model import LEVELS, NEW, Familiarity, PredictionIntervals, Spread, fit_intervals
from etplus.planning.costs.task import MeasuredTask, Task


@pytest.mark.parametrize(("count", "low", "high"), [(16, 1, 16), (20, 2, 19), (25, 2, 24), (34, 3, 32), (98, 9, 90)])
def test_a_spread_holds_eighty_percent_with_its_ranks_rounded_outwards(count: int, low: int, high: int) -> None:
    found = fit_intervals([()] * count, [log(one) for one in range(count, 0, -1)])
    assert found.spreads == {"": Spread(count, low, high)}


def test_jobs_have_the_same_weight_however_many_events_they_have() -> None:
    rng = np.random.default_rng(5)
    jobs = np.repeat(np.arange(6), [1, 2, 3, 4, 6, 12]).tolist()
    ratios = rng.normal(size=len(jobs)).tolist()
    found = fit_intervals([()] * len(jobs), ratios, jobs).spreads[""]
    copies = sorted(ratio for ratio, job in zip(ratios, jobs, strict=True) for _ in range(12 // jobs.count(job)))
    tail = 0.1 - 0.25 * 0.9 / 6
    at = [floor(tail * len(copies)), ceil((1 - tail) * len(copies)) - 1]
    assert [found.low, found.high] == [round(exp(copies[k]), 4) for k in at] and found.count == len(jobs)


def test_groups_need_events_of_five_jobs_or_of_all() -> None:
    def keys(jobs: list[int]) -> set[str]:
        return set(fit_intervals([("a",)] * 20 + [("b",)] * 20, [0.0] * 40, jobs).spreads)

    assert keys([0, 1, 2, 3] * 5 + [4] * 20) == {""}
    assert keys([0, 1, 2, 3, 4] * 4 + [4] * 20) == {"", "a"}
    assert keys([0, 1] * 10 + [1] * 20) == {"", "a"} and keys([7] * 40) == {"", "a", "b"}


def test_groups_need_sixteen_events() -> None:
    groups = [("a", "x")] * 16 + [("a", "y")] * 15 + [("b", "x")]
    found = fit_intervals(groups, [0.0] * 16 + [1.0] * 16)
    assert {key: one.count for key, one in found.spreads.items()} == {"": 32, "a": 31, "a|x": 16}
    assert found.of(("a", "x")).high == 1 and found.of(("a", "y", "z")).count == 31
    assert found.of(("b", "x")).count == 32 and found.of(("b",)).high == round(exp(1), 4)


def test_an_unknown_group_takes_the_usual_or_overall_spread() -> None:
    usual, known = Spread(7, 0.5, 2), PredictionIntervals({"": Spread(20, 0.9, 1.1)})
    assert known.of(("a",)) == Spread(20, 0.9, 1.1) and known.of(("a",), usual) == usual
    assert PredictionIntervals().of(("a",)) == Spread(0, 1 / 3, 3.0)


DEVICES = {"d": Device(name="d", tflops={"float32": 1}, memory_gb_s=100)}


def sized(kernel: str, size: int) -> Task:
    return Task("op", kernel, bytes=size, device="d")


@pytest.mark.parametrize(
    ("kernel", "size", "level"),
    [
        ("void add<1>", 1000, 0), ("void add<1>", 16_000, 0), ("void add<1>", 125, 0), ("void add<1>", 16_010, 4),
        ("void add<1>", 124, 4), ("void add<2>", 16_000, 2), ("void add<2>", 16_010, 4), ("void mul<2>", 125, 3),
        ("void mul<2>", 124, 4),
    ],
)  # fmt: skip
def test_an_event_is_familiar_within_eight_times_a_fitted_size(kernel: str, size: int, level: int) -> None:
    known = Familiarity([MeasuredTask(sized("void add<1>", of), 10.0, 1) for of in (2000, 1000)], DEVICES)
    assert known.group(sized(kernel, size))[:2] == (LEVELS[level], "work")


def test_events_without_known_work_are_compared_by_grid_then_by_name() -> None:
    grid = Task("op", "void add<1>", blocks=4, block_threads=32, device="e")
    known = Familiarity([MeasuredTask(grid, 10.0, 1), MeasuredTask(Task("op", "void add<1>"), 5.0, 1)], DEVICES)
    assert known.group(grid)[:2] == ("same kernel and device", "grid")
    assert known.group(msgspec.structs.replace(grid, device="f"))[:2] == ("same kernel", "grid")
    assert known.group(msgspec.structs.replace(grid, kernel="void add<2>"))[:2] == ("same family", "grid")
    assert known.group(Task("op", "void add<1>", device="f"))[:2] == ("same kernel", "name")
    assert known.group(Task("op", "void add<2>"))[:2] == (NEW, "name")
