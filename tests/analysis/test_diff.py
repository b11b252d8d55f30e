"""Two traces side by side."""

from __future__ import annotations

from etplus.analysis.diff import diff_text, difference, json_of_difference
from etplus.analysis.summary import analyse
from etplus.converters.open import load as read_trace
from traces import analysis_of, kernel, kineto_of, launch, op

BERTS = ("gpu-kineto/h100_bert", "gpu-kineto/mi300_bert")


def test_berts_on_two_devices() -> None:
    a, b = map(analysis_of, BERTS)
    found = difference(a, b)
    assert (found.total_a, found.total_b) == (309_437, 390_748)
    assert ("NVIDIA H100" in found.device_a, "MI300X" in found.device_b) == (True, True)
    rows = {row.name: row for row in found.ops}
    linear = rows["aten::linear"]
    assert linear.a and linear.b and linear.a.count == linear.b.count == 26
    assert all(row.a and row.b for row in found.ops), "the same model: both have every operator"
    lacking = [(row.a is None, row.b is None) for row in found.kernels]
    assert lacking.count((True, False)) == 9 == lacking.count((False, True)) and (True, True) not in lacking
    assert found.losses[0].name == "aten::scaled_dot_product_attention" and found.gains[0].name == "aten::linear"
    for rows_of in (found.ops, found.kernels):
        assert sum(row.a.total_ns for row in rows_of if row.a) == found.total_a
        assert sum(row.b.total_ns for row in rows_of if row.b) == found.total_b
        assert sum(row.change_ns for row in rows_of) == found.total_b - found.total_a
        changes = [abs(row.change_ns) for row in rows_of]
        assert changes == sorted(changes, reverse=True)
    shaped = difference(a, b, by_shape=True)
    assert len(shaped.ops) > len(found.ops) and any(
        "[141,512]" in row.name or "[1,141,512]" in row.name for row in shaped.ops
    )


def test_text_and_json() -> None:
    found = difference(*map(analysis_of, BERTS))
    text = diff_text(found, 80, 5)
    assert max(map(len, text.splitlines())) <= 80 or all(len(line) <= 80 for line in text.splitlines()[2:])
    for part in (
        "aten::linear",
        "attn_fwd",
        "biggest gains",
        "biggest losses",
        "of 21 kernels A lacks 9 and B lacks 9",
    ):
        assert part in text
    plain = json_of_difference(found)
    assert plain["gains"][0] == "aten::linear" and plain["kernels"][0]["ratio"] is None


def test_same_trace_and_no_gpu() -> None:
    one = analyse(read_trace(kineto_of([op("aten::mm", 0, 9), launch(1, 5), kernel("gemm", 1, 20, 9)])))
    same = difference(one, one)
    assert [row.ratio for row in same.ops] == [1.0] and not same.gains and not same.losses
    empty = analyse(read_trace(kineto_of([op("aten::mm", 0, 9)])))
    found = difference(empty, one)
    assert found.total_a == 0 and found.device_a == "no device" and found.kernels[0].a is None
    assert "of 1 kernels A lacks 1 and B lacks 0" in diff_text(found, 80)
