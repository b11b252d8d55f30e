"""Findings of the host beside a device: the device waits for it, does not run yet, or is waited for."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, distinct, distinct_rows, grouped, matching, without
from ...trace.host_waits import SYNCHRONIZE, blocking_copies
from ...trace.intervals import sums
from ...trace.printable import shortened
from ...trace.tables import OP
from ...trace.trace import Trace
from ..launch_queues import idle_causes
from .case import Case
from .finding import LIKELY, MEASURED, Candidate
from .proofs import quoted
from .ranks_of_case import RankOfCase, worst_rank

LATE_START = 0.02
"""Share of the makespan before the first GPU event from which on a late start is reported: launching takes some time in
every recording."""
LEAST_LATE_NS = 1_000_000
"""A start that is less late is the launching of the first operator, whatever the length of the recording."""
LATE_FINISH = 0.05
"""Share of the makespan after the last GPU event: what ends a step (metrics, the profiler's own) takes some time."""
HOST_WAIT = 0.1
"""Share of the makespan in which the device waits for a launch: some waiting at the begin of each step is usual."""
FEWEST_LAUNCHES = 10  # nobody captures a graph of fewer
SLOW_LAUNCH_NS = 100_000  # launches take 5 to 20 µs
SYNC_WAIT = 0.02
"""Share of the makespan that one line's waits for the device must take."""
ONCE_GAIN = 0.1
"""Share of the makespan that dropping a wait must gain which occurs once a step: that is how a step's end is found."""
MOST_LINES = 3  # reported, those that wait longest
PAGEABLE = 0.02
"""Share of the makespan that copies from pageable memory must take."""
_PINNED_SHARE = 0.4
"""A copy from pinned memory takes 0.2 to 0.6 of the time of one from pageable memory, which is copied twice (CUDA C++
Best Practices Guide, "Pinned Memory"; 8 against 20 GB/s on PCIe 4)."""
_TO_DEVICE = re.compile(r"(?i)htod|hosttodevice")
_CAPTURE = re.compile(r"BeginCapture|EndCapture")
_PAGEABLE = re.compile(r"(?i)pageable")


def captures(trace: Trace) -> bool:
    """Whether a graph is captured: what is launched then does not run, and the device waits for nothing."""
    return bool(matching(trace.runtime.name, trace.names, _CAPTURE.search).any())


class LateStart:
    """Nothing runs on the device for a while after the recording begins."""

    id = "late-start"

    def find(self, case: Case) -> Iterator[Candidate]:
        return worst_rank(case, self._of_rank)

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
            f"the device starts {late / 1e6:,.1f} ms late: {late / of.case.makespan_ns:.1%} of the recording",
            of.where(own, start_ns=0, end_ns=late, kernel=None),
            (of.evidence("idle time before the first GPU event", late, "ns"),),
            late,
            MEASURED,
            "do what comes before the first kernel ahead of time (read, convert and compile outside of the step; "
            "prefetch with a DataLoader's workers), or record after warm-up: "
            "torch.profiler.schedule(wait=1, warmup=1, active=3)",
            "'before ms' in the idle time of `etplus analyze` falls",
            (of.change(_window(trace, begin, late)),),
            low=0.7,
        )  # fmt: skip


class LateFinish:
    """The host goes on for a while after the last GPU event."""

    id = "late-finish"

    def find(self, case: Case) -> Iterator[Candidate]:
        return worst_rank(case, self._of_rank)

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
            f"the host goes on for {rest / 1e6:,.1f} ms after the last GPU event: {rest / of.case.makespan_ns:.1%}",
            of.where(rows, start_ns=last - trace.nodes.span.start, end_ns=trace.span.end - trace.nodes.span.start),
            (of.evidence("idle time after the last GPU event", rest, "ns"),),
            rest,
            MEASURED,
            "move what is computed on the host after the step (metrics, logging, checkpoints) to a thread, or do it "
            "less often",
            "'after ms' in the idle time of `etplus analyze` falls",
            (of.change(_window(trace, last, rest)),),
            low=0.7,
        )  # fmt: skip


def _window(trace: Trace, begin: int, length: int) -> str:
    start = max(begin - trace.nodes.span.start, 0)
    return f"window={start}ns-{start + length}ns cpu*0"


def host_gaps(trace: Trace) -> tuple[IntColumn, IntColumn]:
    """GPU events before which a device had nothing to run since the host had not launched them, and for how long.

    Returns:
        positions in `Trace.gpu`, and ns from the end of all that ran before on the device, or from the launch of the
        event's operator where that is later, to the event's start.
    """
    gpu, runtime = trace.gpu, trace.runtime
    # a call that takes long submits its work at its end: it loads a module first
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


class LongestGap:
    """The device waits once, for longer than in all its other waits for the host together."""

    id = "longest-gap"

    def find(self, case: Case) -> Iterator[Candidate]:
        return worst_rank(case, self._of_rank)

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
        idle = max(idle_causes(trace), key=lambda idle: idle.host_wait_ns)
        yield Candidate(
            self.id,
            f"the device waits once for {gap / 1e6:,.1f} ms, {gap / of.case.makespan_ns:.1%} of the time: {why}",
            of.where(rows, start_ns=begin - trace.nodes.span.start, end_ns=begin + gap - trace.nodes.span.start),
            (
                of.evidence(
                    f"idle time of stream {idle.stream} for the host, in {idle.host_waits:,} gaps",
                    idle.host_wait_ns,
                    "ns",
                ),
            ),
            gap,
            MEASURED,
            advice,
            "the longest gap in the idle time of `etplus analyze` is short",
            (of.change(_window(trace, begin, gap)),),
            low=0.7,
        )


_FIRST_USES = (
    (re.compile(r"ModuleLoad|LibraryLoad|ModuleGetFunction|LoadData"), "a module is loaded on first use"),
    (re.compile(r"(?i)triton|inductor|dynamo|compile|autotun"), "code is compiled or tuned on first use"),
    (re.compile(r"(?i)cudnn|miopen|convolution"), "convolution algorithms are tried on first use"),
    (re.compile(r"(?i)malloc|empty|HostAlloc|MemCreate"), "memory is allocated"),
)
_FIRST_USE_ADVICE = (
    "this is paid once: leave it out of measurements (record after warm-up, torch.profiler.schedule(wait=1, warmup=2, "
    "active=3)), or move it to start-up by running one step of each shape"
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
        return "nothing is recorded on the host meanwhile", "look at what the program does there, such as I/O", row
    label = shortened(name, 60)
    for pattern, why in _FIRST_USES:
        if pattern.search(name):
            return f"in {label}, {why}", _FIRST_USE_ADVICE, row
    if "Launch" in name:
        return f"in {label}, which loads its module on first use", _FIRST_USE_ADVICE, row
    return f"the host is in {label}", _FIRST_USE_ADVICE if calls_once(trace, name) else "make that call shorter", row


def calls_once(trace: Trace, name: str) -> bool:
    """Return whether a call takes much longer the first time than later."""
    mine = trace.calls.name == trace.name_codes[name]
    taken = trace.calls.dur[mine]
    return len(taken) < 2 or bool(taken.max() > 10 * np.median(taken))


class LaunchBound:
    """The device waits for the host's launches."""

    id = "launch-bound"

    def find(self, case: Case) -> Iterator[Candidate]:
        return worst_rank(case, self._of_rank)

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace, makespan = of.trace, of.case.makespan_ns
        events, gaps = host_gaps(trace)
        if len(gaps) and 2 * gaps.max() > gaps.sum():  # `LongestGap` reports it
            kept = np.arange(len(gaps)) != np.argmax(gaps)
            events, gaps = events[kept], gaps[kept]
        waited = int(gaps.sum())
        launches = len(distinct(trace.gpu.runtime[trace.gpu.runtime >= 0]))
        if waited < HOST_WAIT * makespan or launches < FEWEST_LAUNCHES or captures(trace):
            return
        busiest = max(idle_causes(trace), key=lambda idle: idle.host_waits)
        steps = max(len(trace.steps), 1)
        count = f"{launches / steps:,.0f} launches a step" if len(trace.steps) else f"{launches:,} launches"
        lines = _lines_of_gaps(trace, events, gaps)
        yield Candidate(
            self.id,
            f"the device waits {waited / 1e6:,.1f} ms for the host's launches, {waited / makespan:.1%} of the time "
            f"({count}){lines}",
            of.where(trace.gpu.source[events], weights=gaps),
            (
                of.evidence(
                    f"idle time of stream {busiest.stream} for the host, in {busiest.host_waits:,} gaps",
                    busiest.host_wait_ns, "ns",
                ),
                of.evidence(
                    "GPU events that calls in the trace launched", int((trace.gpu.runtime >= 0).sum()), "events",
                    "select count(launch_ns) from device",
                ),
            ),
            waited,
            MEASURED,
            "launch less: capture the step in a graph (torch.cuda.graph, torch.compile(mode='reduce-overhead')), "
            "which "
            f"replaces {count} by one; or fuse (torch.compile), raise the batch size, and move work of the lines named "
            "out of the step",
            "'host ms' in the idle time of `etplus analyze` falls",
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
    parts = [f"{table.lines[at].file}:{table.lines[at].line} ({total[at] / gaps.sum():.0%})" for at in most]
    return f", most before {', '.join(parts)}" if parts else ""


class SynchronizingCalls:
    """Calls that hold the host until the device has done what it was given."""

    id = "synchronizing-calls"

    def find(self, case: Case) -> Iterator[Candidate]:
        return worst_rank(case, self._of_rank)

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace = of.trace
        calls = waiting_calls(trace)
        calls = without(calls, waits_of_copies(trace, copies_to_device(trace)))  # `PageableCopies` reports them
        runtime = trace.runtime
        if not len(calls):
            return
        op = nearest(runtime.call[calls], trace.calls.parent, trace.calls.kind == OP)
        top = np.append(trace.hierarchy.top, -1)[op]  # a trace of a device alone has no calls
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
                    f"all calls of {wait}: time", _time_of_calls(trace, wait), "ns",
                    f"select sum(duration_ns) from runtime where name = {quoted(wait)}",
                )
                for wait in waits
            ),
            taken,
            MEASURED,
            _advice(name),
            f"the time of {waits[0]} in `etplus sql` falls; the launch queue gets longer",
            (of.change(f"no wait {waits[0]}", rows),),
            low=0.5,
            high=1.2,
            least_gain=0.01 if often else ONCE_GAIN,
        )  # fmt: skip


def waiting_calls(trace: Trace) -> IntColumn:
    """Positions in `Trace.runtime` of calls that wait for the device: those that synchronize, and copies that block."""
    waits = np.flatnonzero(matching(trace.runtime.name, trace.names, SYNCHRONIZE.search))
    return distinct(np.concatenate([waits, trace.gpu.runtime[blocked_copies(trace)]]))


def copies_to_device(trace: Trace) -> IntColumn:
    """Positions in `Trace.gpu` of copies to the device from pageable memory, or that their calls waited for."""
    gpu = trace.gpu
    blocks = np.zeros(len(gpu), np.bool_)
    blocks[blocked_copies(trace)] = True
    slow = matching(gpu.name, trace.names, _PAGEABLE.search) | blocks
    return np.flatnonzero(trace.is_copy & matching(gpu.name, trace.names, _TO_DEVICE.search) & slow)


def waits_of_copies(trace: Trace, copies: IntColumn) -> IntColumn:
    """Of the calls that wait for the device those that wait for some copies: their own calls, and what synchronizes in
    the same operator (PyTorch waits for the stream after it has copied from pageable memory, `copy_kernel_cuda` in
    aten/src/ATen/native/cuda/Copy.cu)."""
    runtime, waits = trace.runtime, waiting_calls(trace)
    launched = trace.gpu.runtime[copies]
    launched = launched[launched >= 0]
    ops = runtime.call[launched]
    return waits[np.isin(waits, launched) | np.isin(runtime.call[waits], ops[ops >= 0])]


def blocked_copies(trace: Trace) -> IntColumn:
    """Positions of the GPU events that are copies which their calls waited for."""
    gpu, runtime = trace.gpu, trace.runtime
    copies = np.flatnonzero(trace.is_copy & (gpu.runtime >= 0))
    call = gpu.runtime[copies]
    late = gpu.end[copies] - runtime.end[call]
    tolerance = max(trace.clock_skew_ns, 1000)
    return copies[blocking_copies(trace.names, gpu.name[copies], runtime.name[call], late, tolerance)]


def _advice(name: str) -> str:
    if name.endswith(("item", "_local_scalar_dense", "is_nonzero", "tolist", "equal")):
        return (
            "read values of the device less often: sum them on the device and read them every N steps, or read the "
            "value "
            "of the step before (copy with non_blocking=True to pinned memory and an event)"
        )
    if "nonzero" in name or "unique" in name or "masked_select" in name or name.endswith("index"):
        return "its output's size is read by the host: use torch.where or a mask of fixed size, or nonzero_static"
    if name.endswith(("to", "copy_", "_to_copy", "cpu")):
        return "copy to pinned memory with non_blocking=True, and wait for an event where the values are needed"
    return "drop the synchronization, or wait for an event of what is needed where it is needed"


class PageableCopies:
    """Copies to the device from memory that is not pinned."""

    id = "pageable-copies"

    def find(self, case: Case) -> Iterator[Candidate]:
        return worst_rank(case, self._of_rank)

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
        what = "from pageable memory" if _PAGEABLE.search(kinds[0]) else "that hold the host"
        where = of.where(rows)
        yield Candidate(
            self.id,
            f"{len(slow):,} copies to the device {what} take {taken / 1e6:,.1f} ms{amount}",
            where,
            tuple(
                of.evidence(
                    f"{kind}: time", int(gpu.dur[gpu.name == trace.name_codes[kind]].sum()), "ns",
                    f"select sum(duration_ns) from device where name = {quoted(kind)}",
                )
                for kind in kinds
            ),
            taken,
            LIKELY,
            "pin the memory (DataLoader(pin_memory=True), tensor.pin_memory()) and copy with non_blocking=True; "
            "copy the "
            "next batch on a stream of its own while this one is worked on",
            "copies are named '(Pinned -> Device)' and their calls return at once",
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
