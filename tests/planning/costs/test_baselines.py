"""Baselines: a mean, a roofline, trees' columns, products and lookups, against calculations by hand."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from etplus.analysis.devices import Device
from etplus.planning.costs.baselines import (
    EmbeddingForward,
    Embeddings,
    GemmTable,
    KindMean,
    Products,
    Roofline,
    _Design,
    _ends,
    _hit_rate,
    _legacy_ends,
    _sectors,
    backward_adagrad_ns,
    backward_sgd_ns,
    gemm_size,
)
from etplus.planning.costs.measured_tasks import MeasuredTask
from etplus.planning.costs.task import Bag, Task
from etplus.trace.tensors import Tensor

DEVICE = Device(name="d", tflops={"float32": 1}, memory_gb_s=100, multiprocessors=8, l2_bytes=4096, l2_gb_s=200)
DEVICES = {"d": DEVICE}


def test_means_of_kinds_are_geometric() -> None:
    measured = [MeasuredTask(Task("a"), ns, 1) for ns in (10.0, 1000.0)] + [MeasuredTask(Task("b"), 0.5, 1)]
    model = KindMean(measured)
    assert model.predict(Task("a")) == (pytest.approx(100.0), "mean of its kind")
    assert model.predict(Task("b")).ns == pytest.approx(1.0), "at least a nanosecond"
    assert model.predict(Task("c")).ns == pytest.approx(1e4 ** (1 / 3))


def test_a_roofline_by_hand() -> None:
    """Bounds of 1000 and 3000 ns that took 2000 and 4000: half and three quarters, together 4/6. The shortest of the
    device's times is a latency, and tells nothing of efficiency."""

    def work(size: int, kernel: str = "void k<1>", **more: int) -> Task:
        return Task("op", kernel, bytes=size, device="d", **more)

    measured = [
        MeasuredTask(work(100_000), 2000.0, 1), MeasuredTask(work(300_000), 4000.0, 1),
        MeasuredTask(work(50_000, "other"), 1000.0, 1),
    ]  # fmt: skip
    model = Roofline.fit(measured, DEVICES)
    tenth = 1000 + 0.2 * 1000
    assert model.latency_ns == {"d": pytest.approx(tenth)}
    assert model.efficiency == {("d", "k"): pytest.approx(4 / 6), ("d", ""): pytest.approx(4 / 6)}
    assert model.predict(work(200_000)) == (pytest.approx(3000.0), "roofline at 67%")
    found = model.predict(work(10, "new"))
    assert found is not None and found.ns == pytest.approx(tenth)
    computed = model.predict(work(10, flops=10**7))
    assert computed is not None and computed.ns == pytest.approx(1e4 * 6 / 4), "10 MFLOP at 1 TFLOP/s"
    assert model.predict(Task("op", "k", device="d")) is None
    assert model.predict(Task("op", "k", bytes=5, device="unknown")) is None
    assert model.predict(Task("op", "k", bytes=0, device="d")) is None


def test_every_cpu_has_the_same_peaks() -> None:
    def op(size: int, name: str) -> Task:
        return Task(name, "", "cpu_op", bytes=size, device="any CPU")

    measured = [MeasuredTask(op(20_000 * k, "a"), 2000.0 * k, 1) for k in (1, 2, 3)]
    model = Roofline.fit(measured, {})
    assert ("any CPU", "a") in model.efficiency
    found = model.predict(op(40_000, "a"))
    assert found is not None and found.ns == pytest.approx(4000.0)


def test_columns_of_the_trees() -> None:
    """Scaled numbers, then a mark for each device, category, operator and family of those fitted on."""
    tasks = [Task("a", "k<1>", bytes=15, device="d"), Task("b", "k<2>", bytes=255, device="d")]
    design = _Design(tasks)
    rows = design.rows([*tasks, Task("c", "other", "gpu_memcpy", bytes=255, device="d")])
    assert rows[:, 0].tolist() == [-1.0, 1.0, 1.0], "log2 16 and log2 256 are 4 and 8"
    assert rows[:, 20:].tolist() == [[1, 1, 1, 1, 0], [1, 1, 0, 1, 1], [1, 0, 0, 0, 0]]
    assert rows.shape == (3, 25)


def test_sizes_of_products() -> None:
    def of(op: str, *shapes: tuple[int, ...]) -> tuple[int, ...] | None:
        return gemm_size(Task(op, "k", inputs=tuple(Tensor(shape, "float32") for shape in shapes)))

    assert of("aten::mm", (2, 3), (3, 5)) == (1, 2, 5, 3)
    assert of("aten::bmm", (7, 2, 3), (7, 3, 5)) == (7, 2, 5, 3)
    assert of("aten::addmm", (5,), (2, 3), (3, 5)) == (1, 2, 5, 3)
    assert of("aten::baddbmm", (1,), (7, 2, 3), (7, 3, 5)) == (7, 2, 5, 3)
    for op, *shapes in (
        ("aten::mm", (2, 3)), ("aten::addmm", (2, 3), (3, 5)), ("aten::mm", (2, 3), (4, 5)), ("aten::mm", (3,), (3,)),
        ("aten::mm", (2, 3), (1, 3, 5)), ("aten::add", (2, 3), (3, 5)), ("aten::mm", (1, 1, 2, 3), (1, 1, 3, 5)),
    ):  # fmt: skip
        assert of(op, *shapes) is None, (op, shapes)


def test_neighbours_of_an_extent() -> None:
    axis = [10, 20, 40]
    assert [_ends(axis, x) for x in (5, 10, 20, 40, 50)] == [[(e, 1.0)] for e in (10, 10, 20, 40, 40)]
    assert _ends(axis, 25) == [(20, 0.75), (40, 0.25)] and _ends(axis, 12) == [(10, 0.8), (20, 0.2)]
    assert _legacy_ends(axis, 25) == [(20, 0.25), (40, 0.75)] and _legacy_ends(axis, 20) == [(20, 1.0)]
    assert _legacy_ends(axis, 50) == [(40, 0.5), (inf, 0.5)] and _legacy_ends(axis, 5) == [(0, 0.5), (10, 0.5)]


def test_a_table_of_products() -> None:
    """Rates of 2 and 4 multiply-adds a unit of time at K 10 and 20: at 15, half of each; elements of 2 bytes."""
    table = GemmTable({(1, 1, 1, 10): 5.0, (1, 1, 1, 20): 5.0}, element=2, device="d")
    rate, bandwidth = (2 + 4) / 2, 2 * ((1 + 10 + 10) + (1 + 20 + 20)) / 5 / 2
    expected = max(15 / rate, 2 * (1 + 15 + 15) / bandwidth)
    assert table.nanoseconds((1, 1, 1, 15)) == pytest.approx(expected)
    assert table.nanoseconds((1, 1, 1, 10)) == 5.0 and GemmTable({}).nanoseconds((1, 1, 1, 1)) is None
    task = Task("aten::mm", "k", inputs=(Tensor((1, 15), "float32"), Tensor((15, 1), "float32")), device="d")
    assert table.predict(task) == (pytest.approx(expected), "products interpolated")
    exact = Task("aten::mm", "k", inputs=(Tensor((1, 10), "float32"), Tensor((10, 1), "float32")), device="d")
    assert table.predict(exact) == (5.0, "measured product")
    for other in (
        Task("aten::mm", "", inputs=exact.inputs, device="d"), Task("aten::mm", "k", inputs=exact.inputs, device="e"),
        Task("aten::mm", "k", inputs=exact.inputs, device="d", main=False), Task("aten::add", "k", device="d"),
    ):  # fmt: skip
        assert table.predict(other) is None
    assert GemmTable(table.times).predict(Task("aten::mm", "k", inputs=exact.inputs, device="e")) is not None
    corners = GemmTable({(1, 1, 1, 10): 5.0, (1, 1, 2, 20): 5.0})
    assert corners.nanoseconds((1, 1, 1, 15)) is None, "a corner is not measured"


def test_products_have_a_table_for_each_device_and_type() -> None:
    def product(dtype: str, device: str, *, main: bool = True) -> Task:
        inputs = (Tensor((2, 4), dtype), Tensor((4, 2), dtype))
        return Task("aten::mm", "k", inputs=inputs, dtype=dtype, device=device, main=main)

    model = Products([
        MeasuredTask(product("float32", "d"), 10.0, 1), MeasuredTask(product("float16", "d"), 5.0, 1),
        MeasuredTask(product("float32", "e", main=False), 1.0, 1),
    ])  # fmt: skip
    assert model.predict(product("float16", "d")) == (5.0, "measured product")
    assert model.predict(product("float32", "e")) is None and model.predict(product("int8", "d")) is None


def test_sectors_and_hits() -> None:
    assert [_sectors(size) for size in (0, 1, 32, 33)] == [0, 32, 32, 64]
    assert _hit_rate(5, 10, 2) == pytest.approx(5 / 10 * 4 / 9)
    assert _hit_rate(5, 10, 5) == pytest.approx(1 / 252) and _hit_rate(5, 10, 6) == 0.0
    assert _hit_rate(10, 10, 11) == 1.0 and _hit_rate(20, 10, 10) == pytest.approx(
        np.prod([(20 - i) / (10 - i) for i in range(10)])
    )


def test_a_forward_lookup_by_hand() -> None:
    """8 multiprocessors · 4 rows / 16 samples: 2 tables share the L2, 2048 bytes each; 64 rows of 8 · 4 bytes are 2048.
    An index of 3 · 4 bytes is a sector, taken off where indices are not in shared memory: 63 rows."""
    bag = Bag(batch=16, rows=64, tables=3, lookups=3, dim=8, rows_per_block=4)
    forward = EmbeddingForward(DEVICES, "lookups")
    hits = 63 / 64 * 62 / 63 * 61 / 62
    moved, cached = 16 * 3 * 32, 2048
    dram = 3 * (16 * (32 + 32) + (1 - hits) * (moved - cached) + cached)
    threads = max(2, 256)
    l2 = 3 * (16 * (64 + 8 // (4 * threads) * 32) + hits * (moved - cached))
    assert forward.nanoseconds(bag, DEVICE) == pytest.approx(max(dram / 100, l2 / 200))
    small = Bag(batch=16, rows=10, tables=3, lookups=3, dim=8, rows_per_block=4, shared_memory=True)
    dram = 3 * (16 * (32 + 32) + 320)
    assert forward.nanoseconds(small, DEVICE) == pytest.approx(max(dram / 100, 3 * (16 * 64 + moved - 320) / 200))
    unknown = Device(name="e", tflops={}, memory_gb_s=100)
    task = Task("x", "embedding_forward", bag=bag, device="e")
    assert EmbeddingForward({"e": unknown}).predict(task) is None
    with pytest.raises(ValueError, match="multiprocessors and l2_bytes"):
        forward.nanoseconds(bag, unknown)


def test_the_l2_counts_where_it_is_the_slower_one() -> None:
    slow = Device(name="s", tflops={}, memory_gb_s=1e6, multiprocessors=8, l2_bytes=2**30, l2_gb_s=1)
    bag = Bag(batch=1024, rows=64, tables=2, lookups=4, dim=4096, rows_per_block=1024)
    row, index = 16384, 32
    threads = max(4096 / 4, 1)
    cached, lookups = 4 * 64 * 4096, 1024 * 4 * row
    l2 = 2 * (1024 * (64 + 4096 // (4 * threads) * index) + 0.0 * (lookups - cached))
    forward = EmbeddingForward({"s": slow}, "batch")
    dram = 2 * (1024 * (index + row) + (lookups - cached) + cached) / 1e6
    assert forward.nanoseconds(bag, slow) == pytest.approx(max(l2, dram))
    assert EmbeddingForward({}, "lookups").nanoseconds(bag, slow) > 2 * (1024 * 64)


def test_backward_lookups_by_hand() -> None:
    bag = Bag(batch=2, rows=64, tables=3, lookups=5, dim=8)
    memory = 6 * (64 + 32 * 5 + 2 * 5 * 32 + 2 * 5 * 32) / 100
    assert backward_sgd_ns(bag, DEVICE) == pytest.approx(memory)
    shared = Bag(batch=2, rows=64, tables=3, lookups=5, dim=8, shared_memory=True)
    assert backward_sgd_ns(shared, DEVICE) == pytest.approx(6 * (64 + 32 + 2 * 5 * 32 + 32) / 100)
    weak = Device(name="w", tflops={"float32": 1e-6}, memory_gb_s=100)
    assert backward_sgd_ns(bag, weak) == pytest.approx(6 * 5 * 4 * 2 / 1e6 * 1e9)
    assert backward_sgd_ns(bag, Device(name="n", tflops={}, memory_gb_s=100)) == pytest.approx(memory)
    assert backward_adagrad_ns(bag, DEVICE) == pytest.approx(6 * (64 + 2 * 32 + 16 * 32) / 100)


def test_which_lookup_a_kernel_is() -> None:
    bag = Bag(batch=2, rows=64, tables=3, lookups=5, dim=8)
    model = Embeddings.fit([], DEVICES)

    def ns(op: str, kernel: str, *, device: str = "d", sizes: Bag | None = bag) -> float | None:
        found = model.predict(Task(op, kernel, bag=sizes, device=device))
        return None if found is None else found.ns

    assert ns("Lookup_Backward", "Embedding_sgd") == backward_sgd_ns(bag, DEVICE)
    assert ns("lookup", "embedding_backward_AdaGrad") == backward_adagrad_ns(bag, DEVICE)
    assert ns("lookup", "embedding_forward") == EmbeddingForward(DEVICES).nanoseconds(bag, DEVICE)
    assert EmbeddingForward(DEVICES).predict(Task("", "embedding_backward", bag=bag, device="d")) is None
    for found in (
        ns("lookup", "prepare"), ns("x_backward", "prepare"), ns("l", "embedding_backward", device="e"),
        ns("l", "embedding_backward", sizes=None), ns("l", "embedding_forward", sizes=None),
        ns("l", "embedding_forward", device="e"),
    ):  # fmt: skip
        assert found is None
