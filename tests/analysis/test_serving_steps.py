"""Latency, device time, idle time and throughput of serving steps against sums by hand, and selection by phase."""

import numpy as np
import pytest
from etplus.analysis.summary import analyze
from etplus.analysis.trace_diff import difference, json_of_difference
from etplus.timeline.iterations import find_iterations
from etplus.trace.errors import UsageError
from etplus.trace.selection import part_of
from etplus.trace.steps import chosen_steps
from hypothesis import given
from hypothesis import strategies as st
from made_traces import annotation, gpu, launch, traced
from served import Batch, serve
from support import examples

US = 1000
PREFILL = Batch(prefill=[(64, 64), (16, 80)])
DECODE = Batch(decode=[(1, 65), (1, 81), (1, 9)])
MIXED = Batch(prefill=[(32, 32)], decode=[(1, 66), (1, 82)])
MANY = [PREFILL, DECODE, DECODE, MIXED, DECODE, PREFILL, DECODE]


def covered(spans: list[tuple[int, int]], start: int, end: int) -> int:
    """How many µs of a time are in some spans (ns), µs by µs."""
    return sum(any(a <= at * US < b for a, b in spans) for at in range(start // US, end // US)) * US


@examples(20)
@given(
    st.lists(st.sampled_from([PREFILL, DECODE, MIXED]), min_size=1, max_size=5), st.integers(0, 999),
    st.sampled_from([0, 200]), st.integers(1, 2),
)  # fmt: skip
def test_rows_of_serving_steps_equal_a_brute_force(batches: list[Batch], seed: int, delay: int, threads: int) -> None:
    made = serve(batches, seed=seed, delay=delay, threads=threads)
    rows = analyze(made.trace()).serving_steps
    every = [event for events in made.device for event in events]
    every += [
        (event["ts"] * US, (event["ts"] + event["dur"]) * US)
        for at, event in enumerate(made.events) if event["cat"] == "kernel" and made.step_of[at] < 0
    ]  # fmt: skip
    reached = host_reached = 0
    for k, (row, batch) in enumerate(zip(rows, batches, strict=True)):
        (start, host_end), events = made.spans[k], made.device[k]
        end = max([host_end, *(stop for _, stop in events)])
        assert (row.step, row.phase, row.tokens, row.events) == (str(k), batch.phase, batch.tokens, len(events))
        assert row.keys == sum(keys for _, keys in [*batch.prefill, *batch.decode])
        assert (row.start_ns, row.host_ns, row.latency_ns) == (start, host_end - start, end - start)
        assert row.time_ns == max(0, end - max(start, reached))
        assert row.host_before_ns == (max(0, start - host_reached) if k else None)
        assert row.device_ns == covered(events, 0, end)
        assert row.idle_ns == end - start - covered(every, start, end)
        assert row.events_ns == sum(stop - begin for begin, stop in events)
        reached, host_reached = max(reached, end), max(host_reached, host_end)


def test_rates_and_latencies_of_phases_follow_from_their_steps() -> None:
    analysis = analyze(serve(MANY, seed=3).trace())
    steps, phases = analysis.serving_steps, {row.phase: row for row in analysis.serving_phases}
    assert list(phases) == ["prefill", "decode", "mixed", "all"]
    prefill, decode, mixed = ([row for row in steps if row.phase == name] for name in ("prefill", "decode", "mixed"))
    assert [row.tokens for row in prefill] == [80, 80] and [row.tokens for row in mixed] == [34]
    assert decode[0].tokens_per_second == 3 / decode[0].time_ns * 1e9
    assert decode[0].ns_per_output_token == decode[0].time_ns and decode[0].ns_per_prefill_token is None
    assert mixed[0].ns_per_output_token == mixed[0].time_ns and mixed[0].ns_per_prefill_token is None
    assert prefill[0].ns_per_prefill_token == prefill[0].time_ns / 80 and prefill[0].ns_per_output_token is None
    latencies, time = [row.latency_ns for row in decode], sum(row.time_ns for row in decode)
    row = phases["decode"]
    assert (row.steps, row.requests, row.tokens, row.decode_tokens, row.prefill_tokens) == (4, 12, 12, 12, 0)
    assert row.time_ns == time and row.tokens_per_second == 12 / time * 1e9
    assert row.ns_per_output_token == time / 4 and row.mean_latency_ns == sum(latencies) / 4
    assert (row.p50_latency_ns, row.p99_latency_ns) == pytest.approx(tuple(np.percentile(latencies, [50, 99])))
    assert phases["prefill"].ns_per_prefill_token == sum(row.time_ns for row in prefill) / 160
    whole = steps[-1].start_ns + steps[-1].latency_ns - steps[0].start_ns
    assert phases["all"].time_ns == whole and phases["all"].tokens_per_second == (160 + 12 + 34) / whole * 1e9
    assert phases["all"].host_before_ns == sum(row.host_before_ns or 0 for row in steps)


def test_what_an_annotation_does_not_say_is_not_known() -> None:
    made = serve([DECODE, MIXED], form="sglang")
    made.events[0]["name"] = "execute_speculative_5_of_8"
    unknown, mixed = analyze(made.trace()).serving_steps
    assert unknown.phase == "unknown" and unknown.tokens is None
    assert unknown.tokens_per_second is unknown.ns_per_output_token is None
    assert (mixed.phase, mixed.tokens, mixed.decode_tokens, mixed.ns_per_output_token) == ("mixed", 34, None, None)
    last = analyze(made.trace()).serving_phases[-1]
    assert (last.phase, last.tokens) == ("all", None)


def test_a_part_by_phase_has_the_steps_of_that_phase() -> None:
    trace = serve(MANY, seed=5).trace()
    part = part_of(trace, steps="decode")
    assert part.steps.names == ("1", "2", "4", "6") and part.steps.phases == ("decode",) * 4
    numbers = chosen_steps("decode", len(trace.steps), trace.steps.phases, "")
    assert part.gpu.ts.tolist()[:3] and len(part.gpu) >= np.isin(trace.step_of_event, numbers).sum()
    assert not np.isin(part.gpu.ts, trace.gpu.ts[np.isin(trace.step_of_event, [0, 3, 5])]).any()
    assert [step.number for step in trace.steps.of_phase("mixed")] == [3]
    whole, chosen = analyze(trace).serving_steps, analyze(part).serving_steps
    assert [row.step for row in chosen] == ["1", "2", "4", "6"]
    for row in chosen:
        same = whole[int(row.step)]
        assert (row.device_ns, row.latency_ns, row.events) == (same.device_ns, same.latency_ns, same.events)
    assert [row.host_before_ns for row in chosen] == [None, whole[2].host_before_ns, None, None]
    assert find_iterations(trace).phases == trace.steps.phases


@pytest.mark.parametrize(
    ("wanted", "message"),
    [("idle", "its steps are prefill, decode, mixed"), ("decoding", "a phase like decode"), ("9", "has 7")],
)
def test_phases_and_steps_that_do_not_exist_are_refused(wanted: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        part_of(serve(MANY).trace(), steps=wanted)
    with pytest.raises(UsageError, match="use one of prefill, decode"):
        serve(MANY).trace().steps.of_phase("forward")


def test_phases_of_two_traces_are_compared_side_by_side() -> None:
    one, other = (analyze(serve(MANY[:count], seed=count).trace()) for count in (7, 3))
    found = difference(one, other)
    assert [row.phase for row in found.phases] == ["prefill", "decode", "mixed", "all"]
    decode, mixed = found.phases[1:3]
    assert decode.a is not None and decode.b is not None and (decode.a.steps, decode.b.steps) == (4, 2)
    assert decode.ratio == decode.b.mean_latency_ns / decode.a.mean_latency_ns and mixed.b is None is mixed.ratio
    assert json_of_difference(found)["phases"][2]["b"] is None


def test_a_copy_of_one_byte_counts_in_its_step() -> None:
    copy = gpu("Memcpy HtoD (Pageable -> Device)", 9, 2, 1, cat="gpu_memcpy", bytes=1)
    trace = traced([annotation(DECODE.name("vllm"), 0, 8), launch(1, 2, name="cudaMemcpyAsync"), copy])
    (row,) = analyze(trace).serving_steps
    assert (row.bytes, row.known_ns, row.events_ns, row.flops, row.idle_ns) == (1, 2000, 2000, 0, 9000)
