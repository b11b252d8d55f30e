"""Findings about a host that delays its device: late start or finish, launch gaps, synchronization, pageable copies."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, distinct, distinct_rows, grouped, mask_at, matching, without
from ...trace.host_waits import SYNCHRONIZE, blocking_copies
from ...trace.intervals import sums
from ...trace.printable import shortened
from ...trace.tables import OP
from ...trace.trace import Trace
from ..launch_queues import idle_causes
from .case import OfWorstRank, RankOfCase
from .finding import CONFIRMED, INFERRED, Candidate, Intervention
from .proofs import quoted

LATE_START = 0.02  # minimum idle time before the first GPU event, as a share of the makespan
LEAST_LATE_NS = 1_000_000  # minimum idle ns before the first GPU event; up to 1 ms passes before the first launch
# Minimum idle time after the last GPU event, as a share of the makespan. Metrics and the profiler always take time.
LATE_FINISH = 0.05
# Minimum time that the device waits for launches, as a share of the makespan. Short waits at a step's start are normal.
HOST_WAIT = 0.1
FEWEST_LAUNCHES = 10  # A CUDA graph is not worthwhile for fewer launches than this.
SLOW_LAUNCH_NS = 100_000  # A launch that takes longer than this is slow; a typical launch takes 5 to 20 µs.
SYNC_WAIT = 0.02  # minimum wait for the device per source line, as a share of the makespan
# Minimum gain from removing a wait that occurs once per step. The program may need this wait to detect a step's end.
ONCE_GAIN = 0.1
MOST_LINES = 3  # maximum number of lines to report, longest wait first
PAGEABLE = 0.02  # minimum total time of copies from pageable memory, as a share of the makespan
# A pinned copy takes 20% to 60% as long as a pageable copy, because the driver copies pageable memory twice.
# See the CUDA C++ Best Practices Guide, "Pinned Memory"; typical rates are 8 and 20 GB/s on PCIe 4.
_PINNED_SHARE = 0.4
_TO_DEVICE = re.compile(r"(?i)htod|hosttodevice")
_CAPTURE = re.compile(r"BeginCapture|EndCapture")
_PAGEABLE = re.compile(r"(?i)pageable")


def captures(trace: Trace) -> bool:
    """Return whether the trace captures a graph. Captured launches do not run, so the device cannot wait for them."""
    return bool(matching(trace.runtime.name, trace.names, _CAPTURE.search).any())


class LateStart(OfWorstRank):
    """The device stays idle after the recording begins."""

    id = "late-start"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace = of.trace
        if not len(trace.gpu) or captures(trace):
            return
        late = min(idle.before_first_ns for idle in idle_causes(trace))
        if late < max(LATE_START * of.case.makespan_ns, LEAST_LATE_NS):
            return
        begin = trace.span.start
        tops = trace.calls.source[(trace.calls.kind == OP) & (trace.calls.ts < begin + late)]
        own = tops[trace.nodes.ts[tops] >= begin]
        yield Candidate(
            self.id,
            f"the device is idle for the first {late / 1e6:,.1f} ms, {late / of.case.makespan_ns:.1%} of the recording",
            of.where(own, start_ns=0, end_ns=late, kernel=None),
            (of.evidence("idle time before the first GPU event", late, "ns"),),
            late,
            CONFIRMED,
            "move the work before the first kernel out of the step (reading, conversion, compilation), prefetch data "
            "with DataLoader workers, or record after warm-up: torch.profiler.schedule(wait=1, warmup=1, active=3)",
            "'before ms' in the idle times of `etplus analyze` falls",
            (of.change(_window(trace, begin, late)),),
            low=0.7,
        )  # fmt: skip


class LateFinish(OfWorstRank):
    """The host continues long after the last GPU event."""

    id = "late-finish"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace = of.trace
        if not len(trace.gpu) or captures(trace):
            return
        rest = min(idle.after_last_ns for idle in idle_causes(trace))
        if rest < LATE_FINISH * of.case.makespan_ns:
            return
        last = trace.span.end - rest
        rows = trace.calls.source[(trace.calls.kind == OP) & (trace.calls.ts >= last)]
        yield Candidate(
            self.id,
            f"the host continues {rest / 1e6:,.1f} ms after the last GPU event: {rest / of.case.makespan_ns:.1%}",
            of.where(rows, start_ns=last - trace.nodes.span.start, end_ns=trace.span.end - trace.nodes.span.start),
            (of.evidence("idle time after the last GPU event", rest, "ns"),),
            rest,
            CONFIRMED,
            "move work that follows the step to a thread (metrics, logging, checkpoints), or do this work less often",
            "'after ms' in the idle times of `etplus analyze` falls",
            (of.change(_window(trace, last, rest)),),
            low=0.7,
        )  # fmt: skip


def _window(trace: Trace, begin: int, length: int) -> str:
    start = max(begin - trace.nodes.span.start, 0)
    return f"window={start}ns-{start + length}ns cpu*0"


def host_gaps(trace: Trace) -> tuple[IntColumn, IntColumn]:
    """Return the GPU events that an idle device had to wait for because the host launched them too late.

    Returns:
        positions of the events in `Trace.gpu`, and the time (ns) that the device waited for each event. A wait lasts
            from the end of all earlier work on the device to the start of the event.
    """
    gpu, runtime = trace.gpu, trace.runtime
    # The first launch of a kernel loads its module, so a long launch call submits the work only near its end.
    launched = np.append(np.maximum(runtime.ts, runtime.end - SLOW_LAUNCH_NS), -1)[gpu.runtime]
    events, gaps = [], []
    for _, at in grouped(gpu.device):
        order = at[np.argsort(gpu.ts[at], kind="stable")]
        reach = np.maximum.accumulate(gpu.end[order])[:-1]
        gap = gpu.ts[order[1:]] - reach
        waits = (gap > 0) & (launched[order[1:]] > reach)
        events.append(order[1:][waits])
        gaps.append(gap[waits])
    return np.concatenate([*events, np.zeros(0, np.int64)]), np.concatenate([*gaps, np.zeros(0, np.int64)])


class LongestGap(OfWorstRank):
    """One wait of the device for the host that is longer than all of the other waits together."""

    id = "longest-gap"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace = of.trace
        events, gaps = host_gaps(trace)
        if not len(gaps) or 2 * gaps.max() <= gaps.sum() or captures(trace):
            return
        longest = int(np.argmax(gaps))
        gap, event = int(gaps[longest]), int(events[longest])
        if gap < HOST_WAIT * of.case.makespan_ns:
            return
        begin = int(trace.gpu.ts[event]) - gap
        why, advice, rows = _cause_of_gap(trace, event, begin)
        waits = waiting_calls(trace)
        blocked = np.minimum(trace.runtime.end[waits], begin + gap) - np.maximum(trace.runtime.ts[waits], begin)
        changes: tuple[Intervention, ...] = (of.change(_window(trace, begin, gap)),)
        if 2 * blocked.max(initial=0) > gap:  # The replay cannot shorten waits for unrecorded work.
            name = trace.names[int(trace.runtime.name[waits[np.argmax(blocked)]])]
            why, advice, changes = f"{name} blocks the host", _BLOCKED_ADVICE, ()
        idle = max(idle_causes(trace), key=lambda idle: idle.host_wait_ns)
        waited = f"time that stream {idle.stream} waits for the host, in {idle.host_waits:,} gaps"
        yield Candidate(
            self.id,
            f"the device waits once for {gap / 1e6:,.1f} ms ({gap / of.case.makespan_ns:.1%}): {why}",
            of.where(rows, start_ns=begin - trace.nodes.span.start, end_ns=begin + gap - trace.nodes.span.start),
            (of.evidence(waited, idle.host_wait_ns, "ns"),),
            gap,
            CONFIRMED,
            advice,
            "`etplus analyze` no longer shows a gap this long among the idle times",
            changes,
            low=0.7,
        )


_FIRST_USES = (
    (re.compile(r"ModuleLoad|LibraryLoad|ModuleGetFunction|LoadData"), "which loads a module on first use"),
    (re.compile(r"(?i)triton|inductor|dynamo|compile|autotun"), "which compiles or tunes code on first use"),
    (re.compile(r"(?i)cudnn|miopen|convolution"), "which tries convolution algorithms on first use"),
    (re.compile(r"(?i)malloc|empty|HostAlloc|MemCreate"), "which allocates memory"),
)
_FIRST_USE_ADVICE = (
    "this cost occurs once: exclude it from measurements (record after a warm-up, torch.profiler.schedule(wait=1, "
    "warmup=2, active=3)), or move it to startup by running one step per shape"
)
_BLOCKED_ADVICE = (
    "record what the call waits for, because a trace shows only one process, not other processes or requests"
)


def _cause_of_gap(trace: Trace, event: int, begin: int) -> tuple[str, str, IntColumn]:
    runtime, calls, end = trace.runtime, trace.calls, int(trace.gpu.ts[event])
    best, name, row = 0, "", trace.gpu.source[event : event + 1]
    operators = np.where(calls.kind == OP, trace.self_ns, 0)
    for table, own in ((runtime, runtime.end - runtime.ts), (calls, operators)):
        inside = np.minimum(table.end, end) - np.maximum(table.ts, begin)
        share = np.minimum(inside, own)
        if len(share) and share.max() > best:
            at = int(np.argmax(share))
            best, name, row = int(share[at]), trace.names[int(table.name[at])], table.source[at : at + 1]
    if 2 * best < end - begin:
        return "the trace shows no host work in the gap", "look for unrecorded work at this place, such as I/O", row
    label = shortened(name, 60)
    for pattern, why in _FIRST_USES:
        if pattern.search(name):
            return f"the host runs {label}, {why}", _FIRST_USE_ADVICE, row
    if "Launch" in name:
        return f"the host runs {label}, which loads its module on first use", _FIRST_USE_ADVICE, row
    return f"the host runs {label}", _FIRST_USE_ADVICE if calls_once(trace, name) else "make this call faster", row


def calls_once(trace: Trace, name: str) -> bool:
    """Return whether the name has one call, or a call that takes over ten times the median: a cost of first use."""
    mine = trace.calls.name == trace.name_codes[name]
    taken = trace.calls.dur[mine]
    return len(taken) < 2 or bool(taken.max() > 10 * np.median(taken))


class LaunchBound(OfWorstRank):
    id = "launch-bound"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace, makespan = of.trace, of.case.makespan_ns
        events, gaps = host_gaps(trace)
        if len(gaps) and 2 * gaps.max() > gaps.sum():  # `LongestGap` already reports this gap.
            kept = np.arange(len(gaps)) != np.argmax(gaps)
            events, gaps = events[kept], gaps[kept]
        waited = int(gaps.sum())
        launches = len(distinct(trace.gpu.runtime[trace.gpu.runtime >= 0]))
        if waited < HOST_WAIT * makespan or launches < FEWEST_LAUNCHES or captures(trace):
            return
        busiest = max(idle_causes(trace), key=lambda idle: idle.host_waits)
        steps = max(len(trace.steps), 1)
        count = f"{launches / steps:,.0f} launches per step" if len(trace.steps) else f"{launches:,} launches"
        lines = _lines_of_gaps(trace, events, gaps)
        waits = f"time that stream {busiest.stream} waits for the host, in {busiest.host_waits:,} gaps"
        launched, query = int((trace.gpu.runtime >= 0).sum()), "select count(launch_ns) from device"
        yield Candidate(
            self.id,
            f"the device waits {waited / 1e6:,.1f} ms for launches, {waited / makespan:.1%} of the time "
            f"({count}){lines}",
            of.where(trace.gpu.source[events], weights=gaps),
            (
                of.evidence(waits, busiest.host_wait_ns, "ns"),
                of.evidence("GPU events launched by calls in the trace", launched, "events", query),
            ),
            waited,
            CONFIRMED,
            "launch less: capture the step in a CUDA graph (torch.cuda.graph, torch.compile(mode='reduce-overhead')), "
            f"so that one launch replaces {count}; fuse operators (torch.compile); increase the batch size; or move "
            "work of the named lines out of the step",
            "'host ms' in the idle times of `etplus analyze` falls",
            (of.change("no launch gaps"),),
            low=0.6,
        )  # fmt: skip


def _lines_of_gaps(trace: Trace, events: IntColumn, gaps: IntColumn) -> str:
    table, entry = trace.source_table, trace.origin.gpu_entry[events]
    code = np.append(table.of_entry, -1)[entry] if len(table.of_entry) else np.full(len(events), -1)
    known = code >= 0
    if not known.any():
        return ""
    total = sums(code[known], gaps[known], len(table.lines))
    most = [at for at in np.argsort(-total, kind="stable")[:MOST_LINES].tolist() if total[at] > 0.1 * gaps.sum()]
    parts = [f"{table.lines[at].file_line} ({total[at] / gaps.sum():.0%})" for at in most]
    return f", most before {', '.join(parts)}" if parts else ""


class SynchronizingCalls(OfWorstRank):
    """Calls that block the host until the device finishes."""

    id = "synchronizing-calls"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace = of.trace
        calls = waiting_calls(trace)
        calls = without(calls, waits_of_copies(trace, copies_to_device(trace)))  # `PageableCopies` reports these waits.
        runtime = trace.runtime
        if not len(calls):
            return
        op = nearest(runtime.call[calls], trace.calls.parent, trace.calls.kind == OP)
        top = np.append(trace.hierarchy.top, -1)[op]  # A trace that contains only device events has no calls.
        name = np.where(top >= 0, np.append(trace.calls.name, -1)[top], runtime.name[calls])
        line = _lines(trace, runtime.source[calls])
        keys, group = distinct_rows(name, line)
        taken = sums(group, runtime.end[calls] - runtime.ts[calls], len(keys))
        for at in np.argsort(-taken, kind="stable")[:MOST_LINES].tolist():
            if taken[at] >= SYNC_WAIT * of.case.makespan_ns:
                yield self._candidate(of, calls[group == at], trace.names[int(keys[at, 0])], int(taken[at]))

    def _candidate(self, of: RankOfCase, calls: IntColumn, name: str, taken: int) -> Candidate:
        trace, rows = of.trace, of.trace.runtime.source[calls]
        waits = sorted({trace.names[code] for code in trace.runtime.name[calls].tolist()})
        times = "once" if len(calls) == 1 else f"{len(calls):,} times"
        by = "" if name in waits else f" in {', '.join(waits)}"
        where = of.where(rows)
        at = "" if where.source is None else f" at {where.source}"
        often = len(calls) > max(len(trace.steps), 1)
        return Candidate(
            self.id,
            f"{name}{at} waits for the device {times}, {taken / 1e6:,.1f} ms{by}",
            where,
            tuple(
                of.evidence(
                    f"time of all {wait} calls", _time_of_calls(trace, wait), "ns",
                    f"select sum(duration_ns) from runtime where name = {quoted(wait)}",
                )
                for wait in waits
            ),
            taken,
            CONFIRMED,
            _advice(name),
            f"this query shows less time in {waits[0]}, and launch queues are longer",
            (of.change(f"no wait {waits[0]}", rows),),
            low=0.5,
            high=1.2,
            least_gain=0.01 if often else ONCE_GAIN,
        )  # fmt: skip


def waiting_calls(trace: Trace) -> IntColumn:
    """Return the positions in `Trace.runtime` of synchronizations and blocking copies. They wait for the device."""
    waits = np.flatnonzero(matching(trace.runtime.name, trace.names, SYNCHRONIZE.search))
    return distinct(np.concatenate([waits, trace.gpu.runtime[blocked_copies(trace)]]))


def copies_to_device(trace: Trace) -> IntColumn:
    """Return the positions in `Trace.gpu` of host-to-device copies that block the host or read pageable memory."""
    gpu = trace.gpu
    slow = matching(gpu.name, trace.names, _PAGEABLE.search) | mask_at(len(gpu), blocked_copies(trace))
    return np.flatnonzero(trace.is_copy & matching(gpu.name, trace.names, _TO_DEVICE.search) & slow)


def waits_of_copies(trace: Trace, copies: IntColumn) -> IntColumn:
    """Return the calls that wait for these copies: blocking copy calls, and synchronizations in the same operator.

    PyTorch synchronizes the stream after a copy from pageable memory (`copy_kernel_cuda` in
    aten/src/ATen/native/cuda/Copy.cu).
    """
    runtime, waits = trace.runtime, waiting_calls(trace)
    launched = trace.gpu.runtime[copies]
    launched = launched[launched >= 0]
    ops = runtime.call[launched]
    return waits[np.isin(waits, launched) | np.isin(runtime.call[waits], ops[ops >= 0])]


def blocked_copies(trace: Trace) -> IntColumn:
    gpu, runtime = trace.gpu, trace.runtime
    copies = np.flatnonzero(trace.is_copy & (gpu.runtime >= 0))
    call = gpu.runtime[copies]
    late = gpu.end[copies] - runtime.end[call]
    tolerance = max(trace.clock_skew_ns, 1000)
    return copies[blocking_copies(trace.names, gpu.name[copies], runtime.name[call], late, tolerance)]


def _advice(name: str) -> str:
    if name.endswith(("item", "_local_scalar_dense", "is_nonzero", "tolist", "equal")):
        return (
            "read values from the device less often: add them up on the device and read the sum every N steps, or read "
            "the value of the previous step (copy it to pinned memory with non_blocking=True and record an event)"
        )
    if "nonzero" in name or "unique" in name or "masked_select" in name or name.endswith("index"):
        return "avoid outputs whose size the host must read: use torch.where, a mask of fixed size, or nonzero_static"
    if name.endswith(("to", "copy_", "_to_copy", "cpu")):
        return "copy to pinned memory with non_blocking=True, and wait for an event before using the values"
    return "remove the synchronization, or wait only for an event recorded after the work that you need"


class PageableCopies(OfWorstRank):
    """Host-to-device copies from memory that is not pinned."""

    id = "pageable-copies"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace, gpu = of.trace, of.trace.gpu
        slow = copies_to_device(trace)
        taken = int(gpu.dur[slow].sum())
        if not len(slow) or taken < PAGEABLE * of.case.makespan_ns:
            return
        rows = gpu.source[slow]
        calls = trace.runtime.source[waits_of_copies(trace, slow)]
        size = gpu.bytes[slow]
        amount = f", {size.sum() / 1e6:,.1f} MB at {size.sum() / max(taken, 1):,.1f} GB/s" if (size >= 0).all() else ""
        kinds = sorted({trace.names[code] for code in gpu.name[slow].tolist()})
        what = "from pageable memory" if _PAGEABLE.search(kinds[0]) else "that block the host"
        where = of.where(rows)
        yield Candidate(
            self.id,
            f"{len(slow):,} copies to the device {what} take {taken / 1e6:,.1f} ms{amount}",
            where,
            tuple(
                of.evidence(
                    f"time of all {kind} copies", int(gpu.dur[gpu.name == trace.name_codes[kind]].sum()), "ns",
                    f"select sum(duration_ns) from device where name = {quoted(kind)}",
                )
                for kind in kinds
            ),
            taken,
            INFERRED,
            "pin the memory (DataLoader(pin_memory=True), tensor.pin_memory()), copy with non_blocking=True, and copy "
            "the next batch on a separate stream during the current step",
            "copies are named '(Pinned -> Device)' and their calls return immediately",
            (
                *((of.change("no wait ~Synchronize", calls),) if len(calls) else ()),
                of.change(f"copy*{_PINNED_SHARE}", rows),
                of.change("overlap copy", rows),
            ),
            low=0.5,
            high=1.1,
        )  # fmt: skip


def _lines(trace: Trace, rows: IntColumn) -> IntColumn:
    from ...trace.origin import origin_of_rows

    entry = origin_of_rows(trace).entry[rows]
    return np.append(trace.source_table.of_entry, -1)[entry].astype(np.int64)


def _time_of_calls(trace: Trace, name: str) -> int:
    runtime = trace.runtime
    mine = runtime.name == trace.name_codes[name]
    return int((runtime.end[mine] - runtime.ts[mine]).sum())
