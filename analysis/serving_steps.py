"""Latency, GPU time, idle time and throughput of serving engine steps, per step and per phase."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..trace.columns import IntColumn, percentiles_of
from ..trace.intervals import Intervals, union
from ..trace.step_annotations import PHASES, PREFILL
from ..trace.trace import Trace
from .event_work import Work
from .table import Row, Table, TextColumn, column, derived, inferred, nested, per_second

ALL_PHASES = "all"


class _Rates:
    phase: str
    tokens: int | None
    prefill_tokens: int | None
    decode_tokens: int | None
    time_ns: int
    wait_ns: int | None  # total time that decode requests waited for tokens; None if their number is unknown

    @derived("tokens", "tokens/s")
    def tokens_per_second(self) -> float | None:
        """New tokens per second, from prefill and decode together."""
        return per_second(self.tokens, self.time_ns)

    @derived("ns", "per output")
    def ns_per_output_token(self) -> float | None:
        """Mean time that a request waits for each of its output tokens."""
        return self.wait_ns / self.decode_tokens if self.wait_ns is not None and self.decode_tokens else None

    @derived("ns", "per prefill")
    def ns_per_prefill_token(self) -> float | None:
        """Time per prefill token; null for mixed steps, because they combine prefill and decode."""
        return self.time_ns / self.prefill_tokens if self.phase == PREFILL and self.prefill_tokens else None


_TOKEN_RATE = TextColumn("tokens/s", lambda row: _whole(row.tokens_per_second))


class ServingStep(_Rates, Row):
    """One step of a serving engine. A step ends with its annotation or its last GPU event, whichever is later."""

    step: str = column("name", "Name of the step, as accepted by --steps.")
    phase: str = column("text", "Phase: prefill, decode or mixed.")
    requests: int | None = column("count", "Number of requests.")
    prefill_requests: int | None = column("count", "Number of requests in prefill.")
    decode_requests: int | None = column("count", "Number of requests in decode.")
    tokens: int | None = column("tokens", "Number of new tokens.")
    prefill_tokens: int | None = column("tokens", "Number of new tokens in prefill.")
    decode_tokens: int | None = column("tokens", "Number of new tokens in decode.")
    keys: int | None = column("tokens", "Number of attention keys of all requests, including keys from earlier steps.")
    size: int | None = column("tokens", "Number of tokens after padding, if the engine pads the step.")
    start_ns: int = column("ns", "Start of the annotation of the step.")
    host_ns: int = column("ns", "Duration of the annotation of the step.")
    host_before_ns: int | None = column(
        "ns", "CPU time since the end of the previous step; null for the first step.", "before"
    )
    latency_ns: int = column("ns", "Time from the start to the end of the step.")
    time_ns: int = column("ns", "Part of the latency after the end of all earlier steps.")
    wait_ns: int | None
    device_ns: int = column("ns", "Time during which at least one GPU event of the step runs.", "GPU")
    device_span_ns: int = column("ns", "Time from the start of the first GPU event to the end of the last.")
    idle_ns: int = column("ns", "Part of the latency during which the GPU ran no event of any step.")
    events: int = column("count", "Number of GPU events of the step, including replayed graphs.")
    flops: int = inferred("flop", "Known FLOPs of the GPU events of the step.")
    bytes: int = inferred("bytes", "Known bytes moved by the GPU events of the step.")
    known_ns: int = inferred("ns", "Sum of the durations of the GPU events with known FLOPs or bytes.")
    events_ns: int = column("ns", "Sum of the durations of the GPU events of the step.")

    title = "serving steps: requests and tokens (prefill + decode), latency, CPU time before, GPU busy, idle, ms"
    shown = (
        TextColumn("step", lambda row: f"{row.step} {row.phase}"),
        TextColumn("requests", lambda row: _sides(row.prefill_requests, row.decode_requests)),
        TextColumn("tokens", lambda row: _sides(row.prefill_tokens, row.decode_tokens)),
        *("latency_ns", "host_before_ns", "device_ns", "idle_ns"),
        _TOKEN_RATE,
    )


class ServingPhase(_Rates, Row):
    phase: str = column("text", "Phase: prefill, decode, mixed, or all.")
    steps: int = column("count", "Number of steps.")
    requests: int | None = column("count", "Sum of the requests per step; a request in ten steps counts ten times.")
    tokens: int | None = column("tokens", "Number of new tokens.")
    prefill_tokens: int | None = column("tokens", "Number of new tokens in prefill.")
    decode_tokens: int | None = column("tokens", "Number of new tokens in decode.")
    time_ns: int = column("ns", "Sum of time_ns over the steps; for all phases, from the first start to the last end.")
    wait_ns: int | None
    mean_latency_ns: float = column("ns", "Mean latency of a step.", "mean")
    p50_latency_ns: float = column("ns", "Median latency of a step.", "p50")
    p90_latency_ns: float = column("ns", "90th percentile of the step latency.", "p90")
    p99_latency_ns: float = column("ns", "99th percentile of the step latency.", "p99")
    longest_ns: int = column("ns", "Longest latency of a step.")
    device_ns: int = column("ns", "Sum of the GPU busy time of the steps.", "GPU")
    idle_ns: int = column("ns", "Sum of the idle time of the steps.")
    host_before_ns: int = column("ns", "Sum of the CPU time before the steps.", "before")

    title = "serving by phase: latency per step, time per output token and per prefill token"
    shown = (
        *("phase", "steps", "tokens", "mean_latency_ns", "p50_latency_ns", "p99_latency_ns"),
        _TOKEN_RATE,
        *("ns_per_output_token", "ns_per_prefill_token µs"),
    )


def serving_steps(trace: Trace, work: Work) -> Table[ServingStep]:
    """Return the serving engine's steps, in order; empty if the trace has no annotations of a serving engine."""
    steps, gpu, rows = trace.steps, trace.gpu, Table(ServingStep)
    if not steps.batches:
        return rows
    order, whole = np.argsort(trace.step_of_event, kind="stable"), union(gpu.ts, gpu.end)
    busy = whole, np.cumsum(whole.end - whole.start)
    bounds = np.searchsorted(trace.step_of_event[order], np.arange(len(steps) + 1)).tolist()
    reached: int | None = None
    host_reached: int | None = None
    for step in steps:
        batch, events = steps.batches[step.number], order[bounds[step.number] : bounds[step.number + 1]]
        own = union(gpu.ts[events], gpu.end[events])
        last = max([step.end_ns, *own.end[-1:].tolist()])
        follows = step.number > 0 and _next(steps.names[step.number - 1], step.name)
        before = None if host_reached is None or not follows else max(0, step.start_ns - host_reached)
        time = last - max(step.start_ns, min(last, step.start_ns if reached is None else reached))
        flops, moved, dur = work.flops[events], work.bytes[events], gpu.dur[events]
        requests = batch.requests, batch.prefill.requests, batch.decode.requests
        tokens = batch.tokens, batch.prefill.q, batch.decode.q, _both(batch.prefill.k, batch.decode.k), batch.size
        wait = None if batch.decode.requests is None else batch.decode.requests * time
        device_span = int(own.end[-1] - own.start[0]) if len(own.end) else 0
        latency = last - step.start_ns
        idle = latency - _busy_until(busy, last) + _busy_until(busy, step.start_ns)
        times = step.start_ns, step.duration_ns, before, latency, time, wait, own.length, device_span, idle
        known = int(dur[(flops >= 0) | (moved >= 0)].sum())
        amounts = int(flops[flops > 0].sum()), int(moved[moved > 0].sum()), known, int(dur.sum())
        rows.append(ServingStep(*(step.name, batch.phase, *requests, *tokens, *times, len(events), *amounts)))
        reached = max(last, last if reached is None else reached)
        host_reached = max(step.end_ns, step.end_ns if host_reached is None else host_reached)
    return rows


def serving_phases(steps: Sequence[ServingStep]) -> Table[ServingPhase]:
    """Return one row per phase, in the order of `PHASES`. With several steps, the last row covers all phases."""
    rows = Table(ServingPhase)
    for phase in PHASES:
        if own := [step for step in steps if step.phase == phase]:
            rows.append(_phase(phase, own, sum(step.time_ns for step in own)))
    if len(steps) > 1:
        start = min(step.start_ns for step in steps)
        end = max(step.start_ns + step.latency_ns for step in steps)
        rows.append(_phase(ALL_PHASES, steps, end - start))
    return rows


class PhaseChange(Row):
    """One phase in two traces. `a` or `b` is None if the trace does not have steps in this phase."""

    phase: str = column("text", "Phase: prefill, decode, mixed, or all.")
    a: ServingPhase | None = nested(ServingPhase, "A")
    b: ServingPhase | None = nested(ServingPhase, "B")

    @derived("share", "B/A")
    def ratio(self) -> float | None:
        """Mean latency in B divided by mean latency in A; null if a trace lacks the phase."""
        return self.b.mean_latency_ns / self.a.mean_latency_ns if self.a and self.b and self.a.mean_latency_ns else None


def phase_changes(a: Sequence[ServingPhase], b: Sequence[ServingPhase]) -> Table[PhaseChange]:
    """Return one row for each phase that occurs in one of the traces or in both, in the order of `PHASES`."""
    sides = [{row.phase: row for row in rows} for rows in (a, b)]
    names = [name for name in (*PHASES, ALL_PHASES) if any(name in side for side in sides)]
    return Table(PhaseChange, (PhaseChange(name, *(side.get(name) for side in sides)) for name in names))


def _phase(phase: str, steps: Sequence[ServingStep], time: int) -> ServingPhase:
    latencies = [step.latency_ns for step in steps]
    p50, p90, p99 = percentiles_of(latencies, 50, 90, 99)
    requests, tokens = _total(steps, "requests"), _total(steps, "tokens")
    split = _total(steps, "prefill_tokens"), _total(steps, "decode_tokens")
    times = time, _total(steps, "wait_ns"), sum(latencies) / len(steps), p50, p90, p99, max(latencies)
    device, idle = sum(step.device_ns for step in steps), sum(step.idle_ns for step in steps)
    before = sum(step.host_before_ns or 0 for step in steps)
    return ServingPhase(*(phase, len(steps), requests, tokens, *split, *times, device, idle, before))


def _total(steps: Sequence[ServingStep], name: str) -> int | None:
    values = [getattr(step, name) for step in steps]
    return None if None in values else sum(values)


def _next(before: str, step: str) -> bool:
    """Return whether a step directly follows another, judging by their numbers; True if a step has no number."""
    return not (before.isdecimal() and step.isdecimal()) or int(step) == int(before) + 1


def _busy_until(busy: tuple[Intervals, IntColumn], ts: int) -> int:
    """Return the busy time before `ts`. `busy` consists of the busy intervals and their cumulative lengths."""
    spans, length = busy
    begun = int(np.searchsorted(spans.start, ts))
    return int(length[begun - 1]) - max(0, int(spans.end[begun - 1]) - ts) if begun else 0


def _both(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _sides(prefill: int | None, decode: int | None) -> str | None:
    known = [f"{number:,}" if number is not None else "?" for number in (prefill, decode)]
    return " + ".join(known) if (prefill, decode) != (None, None) else None


def _whole(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:,.0f}"
