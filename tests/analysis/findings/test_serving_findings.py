"""Findings of serving, on made traces whose time with and without the problem is known."""

from collections.abc import Sequence
from functools import partial

import pytest
from etplus.analysis.findings import Case, Findings
from etplus.analysis.findings.serving_findings import GraphGaps, PaddedBatches, WaitsForFirstKernel
from kept_findings import findings_of, ids, only
from made_jobs import COMPUTE, RECORDED, Job, Play, Rank
from made_traces import MadeDevice, annotation, kernel, launch, traced
from served import Batch

DECODE = Batch(decode=[(1, 100)] * 32)
PREFILL = Batch(prefill=[(2000, 2000)])
MIXED = Batch(prefill=[(2000, 2000)], decode=[(1, 100)] * 32)
TIMES = {id(DECODE): 20_000, id(PREFILL): 300_000, id(MIXED): 320_000}
"""ns of each kernel of a step."""


def engine(steps: Sequence[tuple[str, int]], pause: int, rank: Rank) -> Play:
    """Steps with their annotation and the ns of each of their kernels, all of one graph; the host pauses between."""
    for name, ns in steps:
        with rank.op(name, annotation=True):
            correlation, launched = rank._call("cudaGraphLaunch")
            for _ in range(10):
                start = rank._start(COMPUTE, launched)
                rank._kernel("decode_kernel", COMPUTE, start, start + ns, correlation)
        rank.synchronize()
        rank.now += pause
    yield from ()


def of_batches(batches: Sequence[Batch]) -> list[tuple[str, int]]:
    return [(batch.name("vllm"), TIMES[id(batch)]) for batch in batches]


def job(steps: Sequence[tuple[str, int]], pause: int = 1000) -> Job:
    return Job(partial(engine, steps, pause), 1)


def found(made: Job) -> Findings:
    return findings_of(*made.traces())


@pytest.mark.parametrize("waiting", [PREFILL, MIXED])
def test_prefill_that_decode_waits_for_gains_what_decode_alone_would_take_less(waiting: Batch) -> None:
    before = job(of_batches([*[DECODE] * 6, waiting, *[DECODE] * 6, waiting, *[DECODE] * 6]))
    alone = [DECODE] * (18 if waiting is PREFILL else 20)
    after = job(of_batches(alone))
    law = before.makespan_ns(RECORDED) - after.makespan_ns(RECORDED)
    finding = only(found(before), "prefill-blocks-decode")
    assert finding.gain.ns == pytest.approx(law, rel=0.3)
    assert finding.gain.low_ns <= law <= finding.gain.high_ns
    assert "prefill-blocks-decode" not in ids(found(after))


def test_prefill_before_any_decode_does_not_block_decode() -> None:
    assert "prefill-blocks-decode" not in ids(found(job(of_batches([PREFILL, PREFILL, *[DECODE] * 6]))))


def padded(size: int, tokens: int) -> tuple[str, int]:
    """A step of decode at a captured size: its kernels take a time of their own and one for each token of the size."""
    return Batch(decode=[(1, 100)] * tokens).name("vllm").replace(
        f"execute_{tokens}_", f"execute_{size}_"
    ), 5000 + 300 * size


def test_padding_gains_what_the_tokens_of_steps_of_other_sizes_take_less() -> None:
    sizes = [(64, 34), (64, 36), (32, 32), (64, 40), (128, 66)] * 3
    before = job([padded(size, tokens) for size, tokens in sizes])
    after = job([padded(tokens, tokens) for _, tokens in sizes])
    law = before.makespan_ns(RECORDED) - after.makespan_ns(RECORDED)
    finding = only(found(before), "padded-batches")
    assert finding.gain.ns == pytest.approx(law, rel=0.3)
    assert finding.certainty == "inferred"
    assert "padded-batches" not in ids(found(after))


def test_gain_of_padding_to_a_single_size_is_only_predicted() -> None:
    finding = only(found(job([padded(64, 40)] * 6)), "padded-batches")
    assert (finding.certainty, finding.gain.low_ns) == ("predicted", 0)


def test_gaps_between_graphs_gain_what_the_host_takes_between_them() -> None:
    slow, fast = (job(of_batches([DECODE] * 20), pause) for pause in (150_000, 0))
    law = slow.makespan_ns(RECORDED) - fast.makespan_ns(RECORDED)
    finding = only(found(slow), "graph-gaps")
    assert finding.gain.ns == pytest.approx(law, rel=0.3)
    share = law / slow.makespan_ns(RECORDED)  # gains are of the time without recording
    assert finding.gain.low_ns <= share * found(slow).makespan_ns <= finding.gain.high_ns
    assert "graph-gaps" not in ids(found(fast))


def products(share: float) -> Findings:
    """Steps of decode whose kernels read weights of 134 MB at a share of the bandwidth: 40 µs at all of it."""
    device = MadeDevice()
    for _ in range(4):
        with device.inside(DECODE.name("vllm"), "user_annotation"):
            for _ in range(6):
                device.linear(32, 8192, 8192, share)
            device.call("cudaDeviceSynchronize", 5, waits=True)
    return findings_of(device.trace())


def test_decode_far_from_its_roofline_gains_what_kernels_near_it_take() -> None:
    finding = only(products(0.2), "decode-roofline")
    law = 4 * 6 * 40_000 * (1 / 0.2 - 1 / 0.7)  # of kernels at 70% of the bandwidth
    assert finding.gain.ns == pytest.approx(law, rel=0.3)
    assert "decode-roofline" not in ids(products(0.7))


def late(steps: int, wait: int, rank: Rank, every: int = 1) -> Play:
    """Steps of decode in which the host works for `wait` ns before it launches."""
    for step in range(steps):
        with rank.op(DECODE.name("vllm"), annotation=True):
            rank.now += wait * (step % every == 0)
            for _ in range(10):
                rank.compute("aten::mm", 20_000)
        rank.synchronize()
    yield from ()


def test_a_step_that_waits_before_its_first_kernel_gains_the_wait() -> None:
    slow, fast = (Job(partial(late, 8, wait), 1) for wait in (400_000, 0))
    law = slow.makespan_ns(RECORDED) - fast.makespan_ns(RECORDED)
    findings = found(slow)
    finding = only(findings, "waits-for-first-kernel")
    assert finding.cost_ns == pytest.approx(law, rel=0.15)
    share = law / slow.makespan_ns(RECORDED)  # gains are of the time without recording
    assert finding.gain.low_ns <= share * findings.makespan_ns <= finding.gain.high_ns
    assert "waits-for-first-kernel" not in ids(found(fast)) | ids(found(Job(partial(late, 8, 90_000, every=8), 1)))


def test_padding_gaps_and_waits_count_from_a_tenth_or_15_per_cent_on() -> None:
    for us, tokens, found in ((15, 90, 1), (14.999, 91, 0)):
        events = [annotation(padded(100, tokens)[0], 0, 100), *(launch(k, k, name="cudaGraphLaunch") for k in (1, 2))]
        case = Case([traced([*events, kernel("k", 1, us, 40), kernel("k", 2, us + 48.5, 51.5 - us)])])
        assert [len([*of.find(case)]) for of in (PaddedBatches(), GraphGaps(), WaitsForFirstKernel())] == [found] * 3
