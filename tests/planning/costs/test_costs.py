"""Cost models: known values, what the corrected variants correct, fits that find the law their data follow."""

from __future__ import annotations

import itertools

import pytest
from etplus.analysis.devices import Device
from etplus.planning.costs.baselines import (
    EmbeddingForward,
    Embeddings,
    GemmTable,
    Products,
    backward_adagrad_ns,
    backward_sgd_ns,
)
from etplus.planning.costs.crossval import cross_validate, score
from etplus.planning.costs.measured_tasks import MeasuredTask, medians
from etplus.planning.costs.registry import MODELS, Costs, model_class
from etplus.planning.costs.task import Bag, Task
from etplus.planning.costs.utilisation import wire_factor
from etplus.trace.errors import UsageError
from etplus.trace.tensors import Tensor

V100 = Device(
    name="V100", tflops={"float32": 12.2}, memory_gb_s=809, multiprocessors=80, l2_bytes=6 * 2**20 * 4, l2_gb_s=2888
)
DEVICES = {"V100": V100}
FORWARD = Bag(batch=4096, rows=500_000, tables=197, lookups=32, dim=32, rows_per_block=128, shared_memory=True)
BACKWARD = Bag(batch=2048, rows=200_000, tables=128, lookups=128, dim=128, rows_per_block=32)
GRID = {
    size: 5 + max(_macs / 10_000e3, 4 * size[0] * (size[1] * size[2] + size[2] * size[3] + size[1] * size[3]) / 700e3)
    for size in itertools.product((1, 256), (64, 512), (64, 512, 1024), (64, 256, 512))
    for _macs in [size[0] * size[1] * size[2] * size[3]]
}


def test_embedding_known_values() -> None:
    us = 1000
    assert EmbeddingForward(DEVICES).nanoseconds(FORWARD, V100) == pytest.approx(4340.7676440049445 * us, rel=1e-12)
    assert backward_sgd_ns(BACKWARD, V100) == pytest.approx(86291.71294932015 * us, rel=1e-12)
    adagrad = backward_adagrad_ns(BACKWARD, V100)
    assert adagrad == pytest.approx(64226.252103831896 * us, rel=1e-12)


def test_hit_rate_draws_the_lookups_of_a_sample() -> None:
    """With rows that nearly all fit the cache, drawing a whole batch says "no hits", drawing a bag's rows "mostly"."""
    small = Bag(batch=4096, rows=3000, tables=2, lookups=4, dim=32, rows_per_block=1, shared_memory=True)
    fitting = Device(name="d", tflops={}, memory_gb_s=100, multiprocessors=8, l2_bytes=128 * 2900, l2_gb_s=1000)
    batch = EmbeddingForward({}).nanoseconds(small, fitting)
    lookups = EmbeddingForward({}, "lookups").nanoseconds(small, fitting)
    cached = 2900
    hits = (cached / 3000) * (cached - 1) / 2999 * (cached - 2) / 2998 * (cached - 3) / 2997
    row, index, moved = 128, 32, 4096 * 4 * 128
    expected = 2 * (4096 * (index + row) + (1 - hits) * (moved - 128 * cached) + 128 * cached) / 100
    assert lookups == pytest.approx(expected)
    assert batch == pytest.approx(2 * (4096 * (index + row) + moved) / 100)


def test_embedding_serves_its_kernels_only() -> None:
    forward = Task("lookup", "embedding_codegen_forward<float>", bag=FORWARD, device="V100")
    backward = Task("lookup", "embedding_codegen_backward_adagrad", bag=BACKWARD, device="V100")
    model = Embeddings.fit([], DEVICES)
    found = model.predict(forward)
    assert found is not None and found.ns == pytest.approx(4340767.6440049445, rel=1e-12)
    other = model.predict(backward)
    assert other is not None and other.ns == pytest.approx(64226252.103831896, rel=1e-12)
    assert model.predict(Task("lookup", "prepare", bag=FORWARD, device="V100")) is None
    assert model.predict(Task("aten::add", "add", device="V100")) is None


def test_gemm_known_values() -> None:
    legacy = GemmTable(GRID, weights="legacy", peaks=(12_200e3, 809e3))  # a V100's, per µs
    assert legacy.nanoseconds((1, 64, 64, 64)) == pytest.approx(5.0702171428571425, rel=1e-12)
    assert legacy.nanoseconds((256, 512, 1000, 400)) == pytest.approx(5252.934873386097, rel=1e-12)
    assert legacy.nanoseconds((256, 512, 2048, 512)) == pytest.approx(12385.944190359114, rel=1e-12)
    assert GemmTable(GRID, weights="legacy").nanoseconds((256, 512, 2048, 512)) is None, "peaks are not known"


def test_legacy_weights_outside_the_table() -> None:
    """Above it half of the peaks, below it nothing at 0; corners at infinity and at 0 count nothing."""
    legacy = GemmTable({(1, 1, 1, 10): 5.0, (1, 1, 1, 20): 5.0}, weights="legacy", element=1, peaks=(8.0, 1e9))
    rate = 20 / 5
    assert legacy.nanoseconds((1, 1, 1, 40)) == pytest.approx(40 / (rate / 2 + 8 / 2))
    nine_bytes_at = (21 / 5) * (10 - 4) / 10
    assert legacy.nanoseconds((1, 1, 1, 4)) == pytest.approx(9 / nine_bytes_at)
    # both extents above: three of four corners are at infinity, all weights are half of a half
    assert legacy.nanoseconds((1, 1, 2, 40)) == pytest.approx(80 / ((0.5 * rate + 3 * 0.5 * 8) / 2))
    right = GemmTable(legacy.times, element=1).nanoseconds((1, 1, 1, 40))
    assert right == pytest.approx(10.0), "nothing is extrapolated"


def test_right_weights_interpolate_and_legacy_ones_do_not() -> None:
    """Near a measured corner the right weights give nearly its rate, the legacy ones that of the far corner."""
    near = (256, 512, 1000, 512)
    true = 5 + 256 * 512 * 1000 * 512 / 10_000e3
    right, legacy = (GemmTable(GRID, weights=name).nanoseconds(near) for name in ("right", "legacy"))  # type: ignore[arg-type]
    assert right is not None and legacy is not None
    assert abs(right - true) < 0.1 * abs(legacy - true)
    half = GemmTable({(1, 1, 1, n): n / r for n, r in ((10, 1.0), (20, 3.0))}, element=0).nanoseconds((1, 1, 1, 15))
    assert half is None, "rates without bytes are no rates"
    rates = GemmTable({(1, 1, 1, n): n / r for n, r in ((10, 1.0), (20, 3.0))}, element=1)
    assert rates.nanoseconds((1, 1, 1, 10)) == 10.0
    with pytest.raises(UsageError, match="right or legacy"):
        GemmTable(GRID, weights="wrong")  # type: ignore[arg-type]


def test_gemm_takes_shapes_from_operators() -> None:
    def product(m: int, n: int, k: int) -> Task:
        return Task("aten::mm", "gemm", inputs=(Tensor((m, k), "float32"), Tensor((k, n), "float32")), device="V100")

    measured = [MeasuredTask(product(64, 64, k), 100.0 * k, 1) for k in (64, 256)]
    model = Products.fit(measured, DEVICES)
    found = model.predict(product(64, 64, 128))
    assert found is not None and found.how == "products interpolated" and found.ns == pytest.approx(12800)
    assert model.predict(product(63, 64, 128)) is not None, "outside the table the nearest corner's rates stand"
    assert model.predict(Task("aten::add", "k", device="V100")) is None


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
    for name, within in (("nearest", 0.5), ("similar", 0.1), ("roofline", 0.1)):
        one = model_class(name).fit(measured, DEVICES).predict(between)
        assert one is not None and one.ns == pytest.approx(true, rel=within), name
    elsewhere = Task("aten::add", "add<float>", category="gpu_memcpy", device="other")
    assert model_class("similar").fit(measured, DEVICES).predict(elsewhere) is None
    assert Costs([], DEVICES).predict(known) is None


def test_cross_validation_holds_groups_out() -> None:
    """Work that differs only in its kernel is in one fold, so that no model sees its twin."""
    measured = _adds(range(10))
    found = cross_validate(measured, DEVICES)
    assert {"nearest", "similar", "roofline", "mean", "product", "embedding", "in order"} <= set(found.predicted)
    assert set(MODELS) - {"measured", "close"} <= set(found.predicted)
    scores = found.scores()
    assert scores["similar"].geomean < 0.2 < scores["mean"].geomean and scores["similar"].count == 10
    assert found.by_kind()["aten::add"]["similar"] == scores["similar"]
    assert cross_validate(measured, DEVICES).predicted["similar"].tolist() == found.predicted["similar"].tolist()
    twins = [MeasuredTask(one.task, one.ns, 1) for one in measured[:1]] * 2
    with_twins = cross_validate(twins, DEVICES)
    assert all(one.count == 0 for one in with_twins.scores().values()), "the only group cannot predict itself"


def test_scores() -> None:
    import numpy as np

    one = score(np.array([110.0, 100.0, np.nan]), np.array([100.0, 200.0, 50.0]), np.array([1.0, 3.0, 1.0]))
    assert one.count == 2 and one.served == pytest.approx(2 / 3)
    assert one.geomean == pytest.approx((0.1 * 0.5) ** 0.5) and one.mape == pytest.approx(0.3)
    assert one.bias == pytest.approx((110 + 300) / (100 + 600) - 1)


def test_equal_work_is_one_row() -> None:
    task = Task("aten::add", "k")
    assert medians([task, task, Task("b"), task], [1, 5, 7, 3]) == [
        MeasuredTask(task, 3.0, 3, 1.4, 4.6), MeasuredTask(Task("b"), 7.0, 1, 7.0, 7.0),
    ]  # fmt: skip
