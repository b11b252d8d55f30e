"""Cost models: known values, what the corrected variants correct, fits that find the law their data follow."""

from __future__ import annotations

import numpy as np
import pytest
from etplus.analysis.devices import Device
from etplus.planning.costs.measured_tasks import MeasuredTask, medians
from etplus.planning.costs.registry import Costs, model_class
from etplus.planning.costs.task import Task
from etplus.planning.costs.utilization import wire_factor
from etplus.planning.learned.graph_baselines import score
from etplus.trace.tensors import Tensor

V100 = Device(
    name="V100", tflops={"float32": 12.2}, memory_gb_s=809, multiprocessors=80, l2_bytes=6 * 2**20 * 4, l2_gb_s=2888
)
DEVICES = {"V100": V100}


def test_wire_factors() -> None:
    assert wire_factor("allreduce", 8) == 2 * 7 / 8
    assert wire_factor("all_to_allv", 4) == wire_factor("_allgather_base", 4) == 3 / 4
    assert wire_factor("broadcast", 8) == wire_factor("allreduce", None) == 1


def _adds(sizes: range, rate: float = 2.0) -> list[MeasuredTask]:
    """Element-wise kernels that take 3 µs and a time by their size."""
    return [
        MeasuredTask(Task("aten::add", "add<float>", inputs=(Tensor((n,), "float32"),), bytes=12 * n, device="V100"),
                 3000 + 12 * n / rate, 2)
        for n in (1000 * 2**i for i in sizes)
    ]  # fmt: skip


def test_models_over_measured_work() -> None:
    measured = _adds(range(12))
    known = measured[5].task
    between = Task("aten::add", "add<float>", inputs=(Tensor((48_000,), "float32"),), bytes=12 * 48_000, device="V100")
    true = 3000 + 12 * 48_000 / 2
    costs = Costs(measured, DEVICES)
    found = costs.predict(known)
    assert found is not None and found == (measured[5].ns, "measured")
    one = model_class("between").fit(measured, DEVICES).predict(between)
    assert one is not None and one.ns == pytest.approx(true, rel=0.1)
    elsewhere = Task("aten::add", "add<float>", category="gpu_memcpy", device="other")
    assert model_class("mean").fit(measured, DEVICES).predict(elsewhere) is None
    assert Costs([], DEVICES).predict(known) is None


def test_scores() -> None:
    one = score(np.array([110.0, 100.0, np.nan]), np.array([100.0, 200.0, 50.0]), np.array([1.0, 3.0, 1.0]))
    assert one.count == 2 and one.served == pytest.approx(2 / 3)
    assert one.geomean == pytest.approx((0.1 * 0.5) ** 0.5) and one.mape == pytest.approx(0.3)
    assert one.bias == pytest.approx((110 + 300) / (100 + 600) - 1)


def test_equal_work_is_one_row() -> None:
    task = Task("aten::add", "k")
    assert medians([task, task, Task("b"), task], [1, 5, 7, 3]) == [
        MeasuredTask(task, 3.0, 3, 1.4, 4.6), MeasuredTask(Task("b"), 7.0, 1, 7.0, 7.0),
    ]  # fmt: skip
