"""Time each distinct operator call of the traces on this machine."""

from __future__ import annotations

import itertools
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from re import Pattern

import numpy as np

from ...schemas.text.files import progress_bar
from ...trace.index import CallIndex
from ...trace.intervals import sums
from ...trace.tables import OP
from ...trace.trace import Trace
from .measured import VERSION, Conditions, Measured, NotExecuted, Timing
from .process import MAX_BYTES, ExecutionError, WorkerProcess
from .recorded_calls import RecordedCall, recorded_calls

Timed = tuple[float, float, int]  # Each entry has a median in ns, an interquartile range in ns, and a number of runs.


_ROUND_S = 0.004
_LONG_S = 0.2  # A call that takes longer than this in one round is skipped in later rounds.
_TOO_LARGE, _NOT_ASKED, _NO_TIME = "over --max-bytes", "not among --ops", "over --budget"


@dataclass(frozen=True)
class Options:
    """Selection and limits for a measurement."""

    ops: Pattern[str] | None = None  # measure only operators with a matching name; None measures all operators
    budget_s: float | None = None  # time limit for the whole measurement
    timeout_s: float = 30.0  # time limit for each call
    threads: int = 0  # number of torch threads; 0 means torch's default
    max_bytes: int = MAX_BYTES  # memory limit per call, for its tensors
    rounds: int = 5  # number of passes over all calls; several passes average out slow changes in the machine's speed


@dataclass
class _Distinct:
    call: RecordedCall
    below: Sequence[str | None]
    calls: int = 0
    self_ns: int = 0
    recorded: list[int] = field(default_factory=list)
    recorded_own: list[int] = field(default_factory=list)


@dataclass
class _Asked:
    distinct: dict[str, _Distinct] = field(default_factory=dict)
    keys: list[tuple[Trace, Mapping[CallIndex, str], Mapping[CallIndex, str]]] = field(default_factory=list)


@dataclass
class TimedShare:
    """Total self times in ns, for all calls, for operators, and for operators that were not executed."""

    all_ns: int = 0
    operators_ns: int = 0
    lost: dict[tuple[str, str], list[int]] = field(default_factory=dict)  # by operator name and reason

    @staticmethod
    def sum(several: Iterable[TimedShare]) -> TimedShare:
        total = TimedShare()
        for share in several:
            total.all_ns += share.all_ns
            total.operators_ns += share.operators_ns
            for key, times in share.lost.items():
                total.lost.setdefault(key, []).extend(times)
        return total

    @property
    def lost_ns(self) -> int:
        return sum(map(sum, self.lost.values()))

    @property
    def executed(self) -> float:
        return 1 - self.lost_ns / self.operators_ns if self.operators_ns else 0.0

    @property
    def outside(self) -> float:
        return 1 - self.operators_ns / self.all_ns if self.all_ns else 0.0

    def not_executed(self) -> tuple[NotExecuted, ...]:
        whole = max(self.operators_ns, 1)
        found = [NotExecuted(op, why, len(times), sum(times) / whole) for (op, why), times in self.lost.items()]
        return tuple(sorted(found, key=lambda row: (-row.share, row.op, row.reason)))


def measure(
    traces: Trace | Iterable[Trace],
    device: str = "cpu",
    *,
    reshaped: Iterable[Trace] = (),
    options: Options | None = None,
    progress: bool = False,
) -> Measured:
    """On this machine, time each distinct operator call of the traces. The calls run repeatedly in a separate process.

    Args:
        device: "cpu" or "cuda:N".
        reshaped: traces with new shapes (`reshaped`); their recorded times are ignored.
        progress: show a progress bar on standard error if the measurement takes over two seconds.

    Raises:
        UsageError: torch is not installed, the device does not exist, or there is nothing to call.

    Example:
        >>> measured = etplus.measure(trace)                           # doctest: +SKIP
        >>> f"{measured.executed:.0%}", measured.timings[0].op         # doctest: +SKIP
        ('100%', 'aten::convolution_backward')
    """
    options = options or Options()
    work = _Asked()
    for trace in [traces] if isinstance(traces, Trace) else traces:
        _add(work, trace, device, recorded=not trace.is_derived)
    for trace in reshaped:
        _add(work, trace, device, recorded=False)
    with WorkerProcess(
        device, threads=options.threads, max_bytes=options.max_bytes, timeout_s=options.timeout_s
    ) as process:
        about = process.about()
        conditions = Conditions(about["device"], about["threads"], about["torch"])
        done, failed = _execute(work, process, conditions, options, progress)
    return _measured(work, conditions, done, failed)


def _add(work: _Asked, trace: Trace, device: str, *, recorded: bool) -> None:
    found = list(recorded_calls(trace))
    keys = {call: recorded.key for call, recorded in found if isinstance(recorded, RecordedCall)}
    reasons = {call: recorded for call, recorded in found if isinstance(recorded, str)}
    work.keys.append((trace, keys, reasons))
    below = _callees(trace, dict(found))
    on_gpu, self_ns = device != "cpu", trace.self_ns.tolist()
    took, own = (trace.calls.end - trace.calls.ts).tolist(), self_ns
    if on_gpu:  # use the time of the GPU work that each call launches, with and without its callees' work
        whole, parent = trace.device_ns, trace.calls.parent
        inner = np.flatnonzero(parent >= 0)
        took, own = whole.tolist(), (whole - sums(parent[inner], whole[inner], len(whole))).tolist()
    recorded &= on_gpu == bool(len(trace.gpu))
    for call, called in found:
        if isinstance(called, str):
            continue
        at = work.distinct.get(called.key)
        if at is None:
            at = _Distinct(called, [keys.get(callee) for callee in below.get(call, ())])
            work.distinct[called.key] = at
        at.calls += 1
        at.self_ns += self_ns[call]
        if recorded:
            at.recorded.append(took[call])
            at.recorded_own.append(own[call])


def _callees(trace: Trace, found: Container[CallIndex]) -> dict[CallIndex, list[CallIndex]]:
    parents, below = trace.calls.parent.tolist(), dict[CallIndex, list[CallIndex]]()
    for at in np.flatnonzero(trace.calls.kind == OP).tolist():
        call, above = CallIndex(at), parents[at]
        while above >= 0 and CallIndex(above) not in found:
            above = parents[above]
        if above >= 0 and call in found:
            below.setdefault(CallIndex(above), []).append(call)
    return below


def _execute(
    work: _Asked, process: WorkerProcess, conditions: Conditions, options: Options, bar: bool
) -> tuple[dict[str, Timed], dict[str, str]]:
    wanted, failed = _wanted(work, options)
    times: dict[str, list[Timed]] = {}
    begin, empty, long = time.monotonic(), process.about()["empty_call_ns"], set[str]()
    with progress_bar(len(wanted) * options.rounds, "measure", bar) as shown:
        for _, call in itertools.product(range(options.rounds), wanted):
            key, began = call.key, time.monotonic()
            shown.update(1)
            if key in failed or key in long:
                continue
            if options.budget_s is not None and began - begin > options.budget_s:
                failed[key] = _NO_TIME
                continue
            try:
                answer = process.ask(
                    call=call.call, device=process.device, threads=conditions.threads, min_time=_ROUND_S
                )
            except ExecutionError as error:
                failed[key] = str(error)
                continue
            timed = max(answer["ns"] - empty, 0.0), answer["iqr_ns"], answer["runs"]
            times.setdefault(key, []).append(timed)
            if time.monotonic() - began > _LONG_S:
                long.add(key)
    done = {call.key: _together(times[call.key]) for call in wanted if call.key in times}
    return done, {key: why for key, why in failed.items() if key not in done}


def _wanted(work: _Asked, options: Options) -> tuple[list[RecordedCall], dict[str, str]]:
    wanted, left_out = list[RecordedCall](), dict[str, str]()
    for key, entry in sorted(work.distinct.items(), key=lambda item: (-item[1].self_ns, item[0])):
        if options.ops is not None and not options.ops.search(entry.call.schema.op):
            left_out[key] = _NOT_ASKED
        elif entry.call.needed_bytes > options.max_bytes:
            left_out[key] = _TOO_LARGE
        else:
            wanted.append(entry.call)
    return wanted, left_out


def _together(rounds: Sequence[Timed]) -> Timed:
    """Return the median time over all rounds, the larger interquartile range (within or between them), and all runs."""
    ns, iqr_ns, runs = np.array(rounds).T
    low, middle, high = np.percentile(ns, (25, 50, 75))
    return float(middle), max(float(np.median(iqr_ns)), float(high - low)), int(runs.sum())


def _measured(work: _Asked, conditions: Conditions, done: Mapping[str, Timed], failed: Mapping[str, str]) -> Measured:
    timings = [_timing(key, distinct, done) for key, distinct in work.distinct.items() if key in done]
    timings.sort(key=lambda timing: (-_self_ns(timing) * timing.count, timing.op, timing.key))
    shares = []
    for trace, keys, reasons in work.keys:
        why = {**reasons, **{call: failed[key] for call, key in keys.items() if key in failed}}
        executed = {call for call, key in keys.items() if key in done}
        shares.append(covered(trace, executed, {*keys, *reasons}, why))
    share = TimedShare.sum(shares)
    files = tuple(dict.fromkeys(Path(trace.file).name for trace, _, _ in work.keys))
    return Measured(VERSION, files, conditions, tuple(timings), share.not_executed(), share.executed, share.outside)


def covered(
    trace: Trace,
    done: Container[CallIndex],
    operators: Container[CallIndex],
    reasons: Mapping[CallIndex, str],
) -> TimedShare:
    """Return the self times of all calls. Calls in `done` and their callees are executed."""
    parents, own = trace.calls.parent.tolist(), trace.self_ns.tolist()
    whole, found = [False] * len(parents), TimedShare()
    for at, (above, self_ns) in enumerate(zip(parents, own, strict=True)):
        call = CallIndex(at)
        whole[at] = call in done or (above >= 0 and whole[above])
        found.all_ns += self_ns
        if call in operators or whole[at]:
            found.operators_ns += self_ns
            if not whole[at]:
                name = trace.name_at(trace.calls.name[call])
                found.lost.setdefault((name, reasons.get(call, "")), []).append(self_ns)
    return found


# Maximum self time of an operator that only dispatches. Slower operators call additional operators on this machine.
_DISPATCH_NS = 5000


def _timing(key: str, distinct: _Distinct, done: Mapping[str, Timed]) -> Timing:
    ns, iqr_ns, runs = done[key]
    callees = [done[below][0] for below in distinct.below if below is not None and below in done]
    own = max(ns - sum(callees), 0.0) if len(callees) == len(distinct.below) else None
    if own is not None and max(callees, default=0.0) > ns / 2 and own > max(ns / 5, _DISPATCH_NS):
        own = None
    op, number_of_callees = distinct.call.schema.op, len(distinct.below)
    if op == "aten::stack":  # `stack` calls `unsqueeze` once per tensor, and new shapes may add tensors
        number_of_callees = max(number_of_callees, len(distinct.call.tensors) + 1)
    tensors = distinct.call.tensors
    shapes = " ".join("x".join(map(str, tensor.shape)) or "()" for tensor in tensors)
    dtypes = " ".join(dict.fromkeys(tensor.dtype for tensor in tensors))
    return Timing(
        key, op, shapes, dtypes, ns, iqr_ns, runs, own, distinct.calls, _median(distinct.recorded),
        _median(distinct.recorded_own), number_of_callees, len(tensors) + len(distinct.call.results),
    )  # fmt: skip


def _self_ns(timing: Timing) -> float:
    known = (own for own in (timing.recorded_own_ns, timing.own_ns) if own is not None)
    return next(known, timing.ns)


def _median(values: Sequence[int]) -> float | None:
    return float(np.median(values)) if values else None
