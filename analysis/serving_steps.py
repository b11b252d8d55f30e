"""Steps of a serving engine: latency, device time, idle time and throughput of each, and of each phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..trace.columns import IntColumn
from ..trace.intervals import Intervals, union
from ..trace.medians import percentile
from ..trace.step_annotations import PHASES, PREFILL
from ..trace.trace import Trace
from .event_work import Work
from .table import Column, Row, Table, per_second

ALL_PHASES = "all"


class _Rates:
    """Of rows with tokens and the time that they took.

    Attributes:
        time_ns: what they took. wait_ns: what each output token was waited for, summed over the tokens; None where
            their number is not known.
    """

    phase: str
    tokens: int | None
    prefill_tokens: int | None
    decode_tokens: int | None
    time_ns: int
    wait_ns: int | None

    @property
    def tokens_per_second(self) -> float | None:
        """New tokens of both phases over the time."""
        return per_second(self.tokens, self.time_ns)

    @property
    def ns_per_output_token(self) -> float | None:
        """Mean time that a request in decode waits for a token: a step's, where it gets one token a step."""
        return self.wait_ns / self.decode_tokens if self.wait_ns is not None and self.decode_tokens else None

    @property
    def ns_per_prefill_token(self) -> float | None:
        """Time over prefill tokens; only of steps in prefill, since mixed steps do not separate the two."""
        return self.time_ns / self.prefill_tokens if self.phase == PREFILL and self.prefill_tokens else None


_DERIVED = ("tokens_per_second", "ns_per_output_token", "ns_per_prefill_token")


class ServingStep(_Rates, Row):
    """One step of a serving engine; it ends with its annotation or with the last device event that it launched.

    Attributes:
        step: as `--steps` takes it. phase: one of `trace.step_annotations.PHASES`.
        requests, prefill_requests, decode_requests: their numbers; tokens, prefill_tokens, decode_tokens: new ones;
            keys: of all requests, those of earlier steps included. None where the annotation does not say it.
        size: what the engine runs the step with, where it pads more than `tokens`.
        start_ns: when its annotation begins. host_ns: how long that lasts.
        host_before_ns: on the host from the end of the step before to the start of this one: scheduling, sampling,
            answers. 0 where they overlap, None of the first one and where the step before is left out.
        latency_ns: from its start to its end.
        time_ns: the part of it after the end of all steps before: with a device that is behind the host, the next step
            begins on the host while this one runs.
        device_ns: in which at least one of its device events ran. device_span_ns: from the first to the last of them.
        idle_ns: of its latency, in which no device event of any step ran.
        events: number of its device events, those of graphs that it replays included.
        flops, bytes: of its device events, as far as they are known; known_ns: the durations of those of which one of
            them is; events_ns: of all.
    """

    step: str
    phase: str
    requests: int | None
    prefill_requests: int | None
    decode_requests: int | None
    tokens: int | None
    prefill_tokens: int | None
    decode_tokens: int | None
    keys: int | None
    size: int | None
    start_ns: int
    host_ns: int
    host_before_ns: int | None
    latency_ns: int
    time_ns: int
    wait_ns: int | None
    device_ns: int
    device_span_ns: int
    idle_ns: int
    events: int
    flops: int
    bytes: int
    known_ns: int
    events_ns: int

    title = "serving steps: requests and tokens (prefill + decode), latency, host time before, GPU busy, idle, ms"
    columns = (
        Column("step", lambda row: f"{row.step} {row.phase}"),
        Column("requests", lambda row: _sides(row.prefill_requests, row.decode_requests)),
        Column("tokens", lambda row: _sides(row.prefill_tokens, row.decode_tokens)),
        Column("ms", "latency_ns", "ms"), Column("before", "host_before_ns", "ms"),
        Column("GPU", "device_ns", "ms"), Column("idle", "idle_ns", "ms"),
        Column("tokens/s", lambda row: _whole(row.tokens_per_second)),
    )  # fmt: skip
    left_out = ("wait_ns",)
    derived = _DERIVED


class ServingPhase(_Rates, Row):
    """All steps of a phase, and of all phases together.

    Attributes:
        phase: "all" of all together. steps: their number.
        requests: summed over the steps: one in ten steps counts ten times. Tokens are new ones.
        time_ns: sum of the steps' (`ServingStep.time_ns`); of all together from the start of the first step to the end
            of the last one, what the host does between them included.
        mean_latency_ns, p50_latency_ns, p90_latency_ns, p99_latency_ns, longest_ns: of the steps' latencies.
        device_ns, idle_ns, host_before_ns: sums of the steps'.
    """

    phase: str
    steps: int
    requests: int | None
    tokens: int | None
    prefill_tokens: int | None
    decode_tokens: int | None
    time_ns: int
    wait_ns: int | None
    mean_latency_ns: float
    p50_latency_ns: float
    p90_latency_ns: float
    p99_latency_ns: float
    longest_ns: int
    device_ns: int
    idle_ns: int
    host_before_ns: int

    title = "serving, by phase of the steps: latency of a step, time for an output token and for a prefill token"
    columns = (
        Column("phase", "phase"), Column("steps", "steps"), Column("tokens", "tokens"),
        Column("mean ms", "mean_latency_ns", "ms"), Column("p50", "p50_latency_ns", "ms"),
        Column("p99", "p99_latency_ns", "ms"), Column("tokens/s", lambda row: _whole(row.tokens_per_second)),
        Column("ms/output", "ns_per_output_token", "ms"), Column("µs/prefill", "ns_per_prefill_token", "µs"),
    )  # fmt: skip
    left_out = ("wait_ns",)
    derived = _DERIVED


def serving_steps(trace: Trace, work: Work) -> Table[ServingStep]:
    """The steps that annotations of a serving engine mark, in order; none in other traces.

    Args:
        work: of the trace's device events.
    """
    steps, gpu, found = trace.steps, trace.gpu, Table(ServingStep)
    if not steps.batches:
        return found
    order, whole = np.argsort(trace.step_of_event, kind="stable"), union(gpu.ts, gpu.end)
    busy = whole, np.cumsum(whole.end - whole.start)
    bounds = np.searchsorted(trace.step_of_event[order], np.arange(len(steps) + 1)).tolist()
    reached: int | None = None
    host_reached: int | None = None
    for step in steps:
        batch, mine = steps.batches[step.number], order[bounds[step.number] : bounds[step.number + 1]]
        own = union(gpu.ts[mine], gpu.end[mine])
        last = max([step.end_ns, *own.end[-1:].tolist()])
        follows = step.number > 0 and _next(steps.names[step.number - 1], step.name)
        before = None if host_reached is None or not follows else max(0, step.start_ns - host_reached)
        time = last - max(step.start_ns, min(last, step.start_ns if reached is None else reached))
        flops, moved = work.flops[mine], work.bytes[mine]
        found.append(ServingStep(
            step.name, batch.phase, batch.requests, batch.prefill.requests, batch.decode.requests,
            batch.tokens, batch.prefill.q, batch.decode.q, _both(batch.prefill.k, batch.decode.k), batch.size,
            step.start_ns, step.duration_ns, before, last - step.start_ns, time,
            None if batch.decode.requests is None else batch.decode.requests * time, own.length,
            int(own.end[-1] - own.start[0]) if len(own.end) else 0,
            last - step.start_ns - _busy_until(busy, last) + _busy_until(busy, step.start_ns), len(mine),
            int(flops[flops > 0].sum()), int(moved[moved > 0].sum()),
            int(gpu.dur[mine][(flops >= 0) | (moved >= 0)].sum()), int(gpu.dur[mine].sum()),
        ))  # fmt: skip
        reached = max(last, last if reached is None else reached)
        host_reached = max(step.end_ns, step.end_ns if host_reached is None else host_reached)
    return found


def serving_phases(steps: Sequence[ServingStep]) -> Table[ServingPhase]:
    """The steps by phase, in the order of `PHASES`, and all together where there are several phases or steps."""
    found = Table(ServingPhase)
    for phase in PHASES:
        if mine := [step for step in steps if step.phase == phase]:
            found.append(_phase(phase, mine, sum(step.time_ns for step in mine)))
    if len(steps) > 1:
        start = min(step.start_ns for step in steps)
        end = max(step.start_ns + step.latency_ns for step in steps)
        found.append(_phase(ALL_PHASES, steps, end - start))
    return found


class PhaseChange(Row):
    """A phase in two traces, None where one has no step of it."""

    phase: str
    a: ServingPhase | None
    b: ServingPhase | None

    @property
    def ratio(self) -> float | None:
        """Mean latency in B by that in A, None where one lacks the phase."""
        return self.b.mean_latency_ns / self.a.mean_latency_ns if self.a and self.b and self.a.mean_latency_ns else None

    def plain(self) -> dict[str, Any]:
        """With the rows of both traces as plain values."""
        sides = {name: side and side.plain() for name, side in (("a", self.a), ("b", self.b))}
        return {"phase": self.phase, **sides, "ratio": self.ratio}


def phase_changes(a: Sequence[ServingPhase], b: Sequence[ServingPhase]) -> Table[PhaseChange]:
    """The phases that either trace has, in their order."""
    sides = [{row.phase: row for row in rows} for rows in (a, b)]
    names = [name for name in (*PHASES, ALL_PHASES) if any(name in side for side in sides)]
    return Table(PhaseChange, (PhaseChange(name, *(side.get(name) for side in sides)) for name in names))


def _phase(phase: str, steps: Sequence[ServingStep], time: int) -> ServingPhase:
    latencies = [step.latency_ns for step in steps]
    p50, p90, p99 = (percentile(latencies, percent) for percent in (50, 90, 99))
    return ServingPhase(
        phase, len(steps), _total(steps, "requests"), _total(steps, "tokens"), _total(steps, "prefill_tokens"),
        _total(steps, "decode_tokens"), time, _total(steps, "wait_ns"), sum(latencies) / len(steps),
        p50, p90, p99, max(latencies), sum(step.device_ns for step in steps), sum(step.idle_ns for step in steps),
        sum(step.host_before_ns or 0 for step in steps),
    )  # fmt: skip


def _total(steps: Sequence[ServingStep], name: str) -> int | None:
    """A sum, None if one of the steps does not say it."""
    values = [getattr(step, name) for step in steps]
    return None if None in values else sum(values)


def _next(before: str, step: str) -> bool:
    """Whether nothing is left out between two steps; their names are ordinals."""
    return not (before.isdecimal() and step.isdecimal()) or int(step) == int(before) + 1


def _busy_until(busy: tuple[Intervals, IntColumn], ts: int) -> int:
    """How much of the time before `ts` is in intervals, given with the running sum of their lengths."""
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
