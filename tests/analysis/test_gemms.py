"""Matrix products of a small trace: extents, calls, times of all their kernels, and what of the peaks they reach."""

from typing import Any

import pytest
from etplus.analysis.devices import Device
from etplus.analysis.kernel_peaks import GemmRow, gemm_table
from etplus.trace.trace import Trace
from made_traces import kernel, launch, op, traced

DEVICE = Device(name="D", tflops={"float32": 1, "float16": 2}, memory_gb_s=1000)


def product(
    at: float, number: int, m: int, k: int, n: int, *kernels: tuple[str, float], dtype: str = "float"
) -> list[Any]:
    """A call of 10 µs at a time, and its kernels after 100 µs, one behind the other."""
    events, begin = [op("aten::mm", at, 10, [([m, k], dtype), ([k, n], dtype)])], at + 1000
    for one, (name, dur) in enumerate(kernels):
        events += [launch(number + one, at + 1 + one, 0.5), kernel(name, number + one, begin, dur)]
        begin += dur
    return events


def rows_of(*events: list[Any]) -> list[GemmRow]:
    trace: Trace = traced([one for some in events for one in some])
    return gemm_table(trace, devices={0: DEVICE})


def test_the_first_call_of_a_trace_has_a_product_row() -> None:
    (row,) = rows_of(product(0, 1, 64, 32, 16, ("gemm", 2), ("split", 1)))
    flops, size = 2 * 64 * 32 * 16, 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert (row.device, row.op, row.dtype) == (0, "aten::mm", "float32")
    assert (row.batch, row.m, row.n, row.k) == (1, 64, 16, 32)
    assert (row.count, row.total_ns, row.kernels) == (1, 3_000, ("gemm",))
    assert (row.flops, row.bytes) == (flops, size) and row.mean_ns == 3_000
    assert row.flops_per_second == pytest.approx(flops / 3e-6) and row.bytes_per_second == pytest.approx(size / 3e-6)
    assert row.flops_share == pytest.approx(flops / 3e-6 / 1e12) and row.bytes_share == pytest.approx(
        size / 3e-6 / 1e12
    )
    assert row.bound == "compute" and row.above() == "aten::mm m 64, n 16, k 32"
    batched = GemmRow(0, "aten::bmm", "", 7, 1, 2, 3, 1, 1, (), 1, None, None, None, "")
    assert batched.above() == "aten::bmm 7 × m 1, n 2, k 3" and batched.bytes_per_second is None


def test_calls_of_one_size_are_one_row_the_longest_first() -> None:
    rows = rows_of(
        product(0, 1, 8, 8, 8, ("gemm_a", 5)), product(20, 2, 8, 8, 8, ("gemm_b", 3)),
        product(40, 3, 8, 8, 8, ("gemm_b", 4)), product(60, 4, 8, 8, 4, ("gemm_a", 20)),
        product(80, 5, 8, 8, 8, ("gemm_a", 1), dtype="c10::Half"), product(100, 6, 4, 8, 8, ("gemm_a", 20)),
    )  # fmt: skip
    assert [(row.dtype, row.m, row.n, row.count, row.total_ns, row.kernels) for row in rows] == [
        ("float32", 4, 8, 1, 20_000, ("gemm_a",)), ("float32", 8, 4, 1, 20_000, ("gemm_a",)),
        ("float32", 8, 8, 3, 12_000, ("gemm_b", "gemm_a")), ("float16", 8, 8, 1, 1_000, ("gemm_a",)),
    ]  # fmt: skip
    assert rows[2].flops == 3 * 2 * 8**3 and rows[2].bytes == 3 * 4 * 3 * 64


def test_operators_that_are_no_products_have_no_row() -> None:
    events = [op("aten::relu", 0, 10, [([8, 8], "float")]), launch(1, 1), kernel("gemm", 1, 50, 5)]
    assert rows_of(events) == [] and rows_of([kernel("gemm", 1, 50, 5)]) == []
