"""Work of serving engines' kernels, in made and real traces: attention, experts, how much of the time is known."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from captured import capture_events, encode, replay_events
from etplus import link
from etplus.analysis.event_work import work_of_events
from etplus.analysis.kernel_peaks import kernel_table
from etplus.analysis.summary import analyze
from etplus.trace.trace import Trace
from made_traces import annotation, kernel, launch, op, traced
from support import Document


def step(prefill: Sequence[tuple[int, int]], decode: Sequence[tuple[int, int]]) -> str:
    def sums(batch: Sequence[tuple[int, int]]) -> str:
        return (
            f"sq{sum(q for q, _ in batch)}sk{sum(k for _, k in batch)}"
            f"sqsq{sum(q * q for q, _ in batch)}sqsk{sum(q * k for q, k in batch)}"
        )

    tokens = sum(q for q, _ in [*prefill, *decode])
    return f"execute_{tokens}_context_{len(prefill)}({sums(prefill)})_generation_{len(decode)}({sums(decode)})"


BF = "c10::BFloat16"
ATTENTION = "vllm::unified_attention_with_output"


def attention(rows: int, ts: float) -> Document:
    shapes = [([rows, 8, 64], BF), ([rows, 2, 64], BF), ([rows, 2, 64], BF), ([rows, 8, 64], BF)]
    return op(ATTENTION, ts, 10, shapes)


def two_steps(duration: float, first: str | None = None, device: str = "NVIDIA H100 80GB HBM3") -> Trace:
    """A decode step, and one with prefill, of one layer each."""
    decode = [(1, 100), (1, 300)]
    events = [
        annotation(first or step([], decode), 0, 100), attention(2, 10), launch(1, 12),
        kernel("flash", 1, 20, duration),
        annotation(step([(5, 9), (3, 3)], decode), 200, 100), attention(10, 210), launch(2, 212),
        kernel("flash", 2, 220, duration),
    ]  # fmt: skip
    return traced(events, device)


def test_attention_work_uses_the_sums_of_its_own_step() -> None:
    work = work_of_events(two_steps(50))
    assert work.flops.tolist() == [4 * 64 * 8 * one for one in [400, 400 + (5 + 6 + 7 + 8 + 9) + (1 + 2 + 3)]]
    assert work.bytes.tolist() == [2 * 2 * 64 * (q * 8 + k * 2) for q, k in ((2, 400), (10, 412))]
    assert work.most_bytes.tolist() == work.bytes.tolist() and not work.notes


def test_replays_of_one_graph_have_the_sums_of_their_steps() -> None:
    captured = capture_events([[("flash", ATTENTION), ("gemm", "aten::mm")]])
    for event in captured:
        if event["name"] == ATTENTION:
            event["args"] |= {key: attention(4, 0)["args"][key] for key in ("Input Dims", "Input type")}
    replayed = replay_events([[("flash", 7), ("gemm", 7)]] * 2)
    batches = [[(1, 100), (1, 200), (1, 300)], [(1, 7), (1, 8), (1, 9)]]
    launches = [event for event in replayed if event["name"] == "hipGraphLaunch"]
    for batch, one in zip(batches, launches, strict=True):
        replayed.append({"pid": 1, "tid": 1} | one | annotation(step([], batch), one["ts"] - 1, 3))
    trace = link(None, encode(replayed), graph_captures=[encode(captured)])
    work = work_of_events(trace)
    found = [event for event, name in enumerate(trace.gpu.name.tolist()) if "flash" in trace.names[name]]
    assert work.flops[found].tolist() == [4 * 64 * 8 * sum(k for _, k in batch) for batch in batches]
    assert work.bytes[found].tolist() == [2 * 2 * 64 * (3 * 8 + 2 * sum(k for _, k in batch)) for batch in batches]


def test_a_step_without_sums_has_unknown_work_and_a_note() -> None:
    trace = two_steps(50, "step[DECODE bs=2]")
    work = work_of_events(trace)
    assert work.flops[0] == work.bytes[0] == -1 and work.flops[1] > 0
    assert work.notes == ("calls without FLOPs: 1 (the step annotation has no sums of sequence lengths)",)
    assert work.notes[0] in analyze(trace).notes


def test_kernels_that_were_launched_before_the_trace_have_no_sums() -> None:
    trace = two_steps(50)
    trace.__dict__["attribution"] = replace(trace.attribution, repetition=np.array([1, 0]))
    work = work_of_events(trace)
    assert work.flops[0] == -1 and work.flops[1] > 0 and "no sums of sequence lengths" in work.notes[0]


def test_sums_that_no_device_can_do_in_the_time_are_left_out() -> None:
    work = work_of_events(two_steps(50, step([], [(1, 10**8), (1, 10**7)])))
    assert work.flops[0] == work.bytes[0] == -1 and work.flops[1] > 0
    assert "see only some keys" in work.notes[0]


def test_attention_bytes_depend_on_the_type_of_the_cache() -> None:
    cache = [([2, 2, 64], BF), ([2, 2, 64], BF), ([9, 16, 2, 64], "unsigned char"), ([9, 16, 2, 64], "unsigned char")]
    events = [
        annotation(step([], [(1, 100), (1, 300)]), 0, 100),
        op("_C_cache_ops::reshape_and_cache_flash", 5, 4, [*cache, ([2], "long int")]), launch(3, 6),
        kernel("cache", 3, 12, 2), attention(2, 10), launch(1, 12), kernel("flash", 1, 20, 50),
    ]  # fmt: skip
    assert work_of_events(traced(events)).bytes[1] == 2 * 2 * 64 * 2 * 8 + 2 * 64 * 400 * 2


def test_experts_share_their_work_among_the_kernels_of_their_products() -> None:
    shapes = [([7, 64], BF), ([5, 192, 64], BF), ([5, 64, 96], BF), ([7, 2], "float"), ([7, 2], "int")]
    names = ["moe_align", "fused_moe_kernel", "silu_and_mul", "fused_moe_kernel", "moe_sum"]
    events = [op("vllm::outplace_fused_experts", 0, 100, shapes)]
    for number, name in enumerate(names):
        events += [launch(number + 1, 10 * number + 5), kernel(name, number + 1, 200 + 10 * number, 5)]
    work = work_of_events(traced(events))
    assert work.flops.tolist() == [-1, 2 * 14 * 192 * 64, -1, 2 * 14 * 96 * 64, -1]
    assert work.counted.all() and work.operator_ns.sum() == 5 * 5000
    up, down = 192 * 64 * 2, 64 * 96 * 2
    for touched in range(2, 6):
        assert work.bytes[1] <= touched * up + 7 * 64 * 2 + 14 * 192 * 2 <= work.most_bytes[1]
        assert work.bytes[3] <= touched * down + 14 * 96 * 2 + 14 * 64 * 2 <= work.most_bytes[3]
    assert work.bytes[4] == work.most_bytes[4] == 14 * 64 * 2 + 7 * 64 * 2


def test_a_product_inside_of_experts_is_its_own() -> None:
    events = [
        op("vllm::moe_forward_shared", 0, 100, [([7, 64], BF), ([7, 8], BF)]),
        op("aten::mm", 10, 20, [([7, 64], BF), ([64, 32], BF)]), launch(1, 15), kernel("gemm", 1, 200, 5),
        launch(2, 50), kernel("fused_moe_kernel", 2, 210, 5),
    ]  # fmt: skip
    work = work_of_events(traced(events))
    assert work.flops.tolist() == [2 * 7 * 64 * 32, -1]
    assert work.notes == ("calls without FLOPs: 1 (neither the weights nor the experts per token are recorded)",)


def test_shares_of_products_in_eight_bits_are_of_their_peak() -> None:
    f8 = "c10::Float8_e4m3fn"
    shapes = [([64, 128], BF), ([64, 256], f8), ([256, 128], f8), ([64, 1], "float"), ([1, 128], "float")]
    events = [op("_C::cutlass_scaled_mm", 0, 10, shapes), launch(1, 5), kernel("gemm", 1, 20, 5)]
    (row,) = analyze(traced(events)).kernels
    assert row.dtype == "float8_e4m3fn" and row.flops == 2 * 64 * 128 * 256
    assert row.flops_share == pytest.approx(row.flops / 5e-6 / 1978.9e12)


def test_the_table_shows_from_where_to_where_bytes_are() -> None:
    shapes = [([7, 64], BF), ([5, 192, 64], BF), ([5, 64, 96], BF), ([7, 2], "float"), ([7, 2], "int")]
    events = [op("vllm::outplace_fused_experts", 0, 100, shapes), launch(1, 5), kernel("fused_moe_kernel", 1, 20, 1)]
    (row,) = kernel_table(traced(events))
    assert row.flops == 2 * 14 * (192 * 64 + 64 * 96)
    assert row.bytes is not None and row.most_bytes is not None and row.bytes < row.most_bytes
    assert row.bandwidth == f"{row.bytes / 1e-6 / 1e9:.1f}–{row.most_bytes / 1e-6 / 1e9:.1f}"
    assert row.plain()["most_bytes_per_second"] == row.most_bytes * 1e6
    events[-1]["name"] = "fused_moe"
    assert not kernel_table(traced(events))[0].bytes, "no kernel that computes the products of experts"


def test_sums_beyond_all_numbers_and_arguments_that_are_missing() -> None:
    for device in ("NVIDIA H100 80GB HBM3", "nobody's"):
        assert work_of_events(two_steps(50, step([], [(1, 10**17), (1, 10**17)]), device)).flops[0] == -1
    for name in ("vllm::moe_forward", "vllm::outplace_fused_experts", "aiter::ck_moe_stage1", "_C::awq_gemm"):
        for shapes in ([([0, 64], BF)], [([7, 64], BF)], [([7, 64], BF), ([0, 4, 64], BF), ([0, 64, 4], BF)]):
            events = [op(name, 0, 9, shapes), launch(1, 5), kernel("fused_moe_kernel", 1, 20, 5)]
            assert work_of_events(traced(events)).flops.tolist() == [-1]
