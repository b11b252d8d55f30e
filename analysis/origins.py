"""Time per source line (including and excluding callees) and per phase."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn, grouped
from ..trace.intervals import sums
from ..trace.kinds import ACCUMULATION, BACKWARD, GRADIENT_COMMUNICATION, PHASES, UNKNOWN
from ..trace.stacks import SourceLine, own_by
from ..trace.tables import OP
from ..trace.trace import Trace
from .table import Row, Table, TextColumn, column, inferred, repeated

_REPEATED = "Part of device_self_ns launched before the trace; its line comes from a later repetition."
_BACKWARD = (BACKWARD, ACCUMULATION, GRADIENT_COMMUNICATION)


class SourceRow(Row):
    """One source line of the program.

    A call or launch belongs to the innermost running line of your own code (`Op.source`). If none of your code is
    running, it belongs to the innermost line of any code. Backward work belongs to the line of the forward operator. If
    a compiler fused work from several lines, the work is divided equally among them.
    """

    file: str = inferred("name", "Path of the source file.")
    line: int = inferred("number", "Line number.")
    function: str = inferred("name", "Name of the function.")
    own: bool = inferred("yes/no", "True for your own code, false for libraries.")
    exact: bool = inferred("yes/no", "False before PyTorch 2.14, where `line` is the first line of the function.")
    calls: int = column("count", "Number of outermost operators that the line called.")
    host_ns: int = column("ns", "CPU time of the operators that the line called, excluding Python code.")
    device_self_ns: int = column("ns", "GPU time that the line itself caused.", "GPU self")
    device_total_ns: int = column("ns", "GPU time that the line and the lines called from it caused.", "GPU")
    backward_ns: int = inferred("ns", "Part of device_self_ns that was spent in backward.")
    launches: int = column("count", "Number of GPU events in device_self_ns.")
    idle_ns: int = inferred("ns", "Idle time of the device before events of this line.", "idle caused")
    fused: int = inferred("count", "Number of calls and launches that the line shares with other lines after fusion.")
    repeated_ns: int = inferred("ns", _REPEATED, default=0)

    title = "source lines: CPU and GPU time of their calls, and GPU time including callees, ms"
    shown = (
        *(TextColumn("", lambda row: ""), "calls", "host_ns", "device_self_ns", "device_total_ns", "backward_ns"),
        *("launches", "idle_ns", "fused"),
    )

    def above(self) -> str:
        return str(self.source) + ("" if self.own else " (not own code)") + repeated(self)

    @property
    def source(self) -> SourceLine:
        return SourceLine(self.file, self.line, self.function, self.exact, self.own)


class PhaseRow(Row):
    phase: str = inferred("text", "Phase, such as forward, backward or optimizer; 'not known' if unknown.")
    calls: int = column("count", "Number of operators.")
    host_ns: int = column("ns", "CPU time of the operators, excluding callees.")
    device_ns: int = column("ns", "Sum of the durations of the GPU events.", "GPU")
    share: float | None = column("share", "Share of the summed durations of all GPU events.")
    launches: int = column("count", "Number of GPU events.")
    idle_ns: int | None = inferred("ns", "Idle time of the device before events of this phase.", "idle caused")

    title = "phases, ms"
    shown = ("phase", "calls", "host_ns", "device_ns", "share", "launches", "idle_ns")


def phase_table(trace: Trace) -> Table[PhaseRow]:
    origin, ops, count = trace.origin, np.flatnonzero(trace.calls.kind == OP), len(PHASES)
    phase = origin.phase[ops].astype(np.int64)
    on_gpu = origin.gpu_phase.astype(np.int64)
    columns = (
        *(np.bincount(phase, minlength=count), sums(phase, trace.self_ns[ops], count)),
        *(sums(on_gpu, trace.gpu.dur, count), np.bincount(on_gpu, minlength=count)),
        sums(on_gpu, idle_before(trace), count),
    )
    whole = int(trace.gpu.dur.sum())
    rows = []
    for code in (*range(UNKNOWN + 1, count), UNKNOWN):
        calls, host, device, launches, idle = (int(column[code]) for column in columns)
        if calls or launches:
            part = device / whole if whole else None
            caused = idle if trace.times_recorded else None
            rows.append(PhaseRow(PHASES[code] or "not known", calls, host, device, part, launches, caused))
    return Table(PhaseRow, rows)


def source_table(trace: Trace) -> Table[SourceRow]:
    """Return one row per source line, longest GPU time first, then CPU time; empty if no stacks are recorded."""
    if not trace.source_table.lines:
        return Table(SourceRow)
    work = LineWork(trace)
    lines, total = work.totals()
    count = len(lines)
    event, line, part = work.event, work.line, work.share
    duration = trace.gpu.dur[event] * part
    back = np.isin(trace.origin.gpu_phase[event], _BACKWARD)
    call, call_line, call_part = work.outermost_calls()
    host, again = (trace.calls.end - trace.calls.ts)[call] * call_part, trace.attribution.repetition[event] > 0
    columns = (
        *(np.bincount(call_line, minlength=count), np.bincount(call_line, host, count)),
        *(np.bincount(line, duration, count), total, np.bincount(line[back], duration[back], count)),
        *(np.bincount(line, minlength=count), np.bincount(line, idle_before(trace)[event] * part, count)),
        np.bincount(line[part < 1], minlength=count) + np.bincount(call_line[call_part < 1], minlength=count),
        np.bincount(line, np.where(again, duration, 0), count),
    )
    numbers = [np.rint(column).astype(np.int64).tolist() for column in columns]
    rows = [
        SourceRow(text.file, text.line, text.function, text.own, text.exact, *values)
        for text, *values in zip(lines, *numbers, strict=True)
        if any(values)
    ]

    def order(row: SourceRow) -> tuple[Any, ...]:
        times = -row.device_self_ns, -row.device_total_ns, -row.host_ns
        return (*times, row.file, row.line, row.function, row.exact, row.own)

    return Table(SourceRow, sorted(rows, key=order))


def idle_before(trace: Trace) -> IntColumn:
    """Return the time (ns) that the device was idle before each GPU event because it waited for the host.

    The value is 0 if the event was launched before the idle time began, because then the host was not the cause.
    """
    gpu, idle = trace.gpu, np.zeros(len(trace.gpu), np.int64)
    launched = np.append(trace.runtime.ts, -1)[gpu.runtime]
    for _, events in grouped(gpu.device):
        events = events[np.argsort(gpu.ts[events], kind="stable")]
        reach = np.maximum.accumulate(gpu.end[events])[:-1]
        after = events[1:]
        gap = np.maximum(gpu.ts[after] - reach, 0)
        idle[after] = np.where(launched[after] > reach, gap, 0)
    return idle


class LineWork:
    """The source lines that caused each call and each GPU event.

    `of_call` contains each call's line (index into `Trace.source_table`; −1 if unknown). The arrays `event`, `line`,
    `share` and `entry` (stack entry) have one element per pair of a GPU event and a line that caused it.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        of_entry = trace.source_table.of_entry
        self.of_call = _looked_up(of_entry, trace.origin.entry)
        event, entry, share = _stacks_of(trace, trace.gpu.source, trace.origin.gpu_entry)
        line = _looked_up(of_entry, entry)
        has = line >= 0
        self.event, self.entry, self.line, self.share = event[has], entry[has], line[has], share[has]

    def outermost_calls(self) -> tuple[IntColumn, IntColumn, npt.NDArray[np.float64]]:
        """Return positions, lines and shares of the outermost calls of each line."""
        trace, calls = self.trace, self.trace.calls
        above = np.where(calls.parent >= 0, self.of_call[calls.parent], -1) if len(calls) else self.of_call
        inner = (above == self.of_call) & (np.where(calls.parent >= 0, calls.kind[calls.parent], -1) == OP)
        outer = np.flatnonzero((calls.kind == OP) & (self.of_call >= 0) & ~inner)
        which, entry, share = _stacks_of(trace, calls.source[outer], trace.origin.entry[outer])
        return outer[which], _looked_up(trace.source_table.of_entry, entry), share

    def totals(self) -> tuple[list[SourceLine], npt.NDArray[np.float64]]:
        """Return all source lines, including own code that only calls other lines, and the GPU time (ns) per line.

        If a line occurs several times in one stack, its time is counted once.
        """
        trace, stacks, is_own = self.trace, self.trace.stacks, own_by(self.trace.own_code)
        entries, entry = np.unique(self.entry, return_inverse=True)
        time = np.bincount(entry.reshape(-1), trace.gpu.dur[self.event] * self.share, len(entries))
        total = dict.fromkeys(trace.source_table.lines, 0.0)
        for entry, ns in zip(entries.tolist(), time.tolist(), strict=True):
            own = {line for line in stacks.lines(entry) if is_own(line.file)}
            for line in own | {trace.source_table.lines[trace.source_table.of_entry[entry]]}:
                total[line] = total.get(line, 0.0) + ns
        return list(total), np.array(list(total.values()))


def _stacks_of(
    trace: Trace, source: IntColumn, first: IntColumn
) -> tuple[IntColumn, IntColumn, npt.NDArray[np.float64]]:
    """Return three arrays with one element per call or event and stack: position of the item, stack entry, and share.

    An item with several stacks has one element per source line, with equal shares. Other items have one element, with
    the stack entry in `first`. `source` contains the items' rows. In `source` and `first`, −1 means that there is none.
    """
    stacks, of_entry = trace.stacks, trace.source_table.of_entry
    begin = np.searchsorted(stacks.row, source)
    several = np.flatnonzero((source >= 0) & (np.searchsorted(stacks.row, source, side="right") - begin > 1))
    kept = np.ones(len(first), np.bool_)
    kept[several] = False
    which, entry, share = [np.flatnonzero(kept)], [first[kept]], [np.ones(int(np.count_nonzero(kept)))]
    for place in several.tolist():
        by_line = {int(of_entry[stack]): stack for stack in reversed(stacks.entries(int(source[place])))}
        own = [by_line[line] for line in sorted(by_line) if line >= 0] or [int(first[place])]
        which.append(np.full(len(own), place))
        entry.append(np.array(own, np.int64))
        share.append(np.full(len(own), 1 / len(own)))
    return np.concatenate(which), np.concatenate(entry), np.concatenate(share)


def _looked_up(of_entry: IntColumn, entry: IntColumn) -> IntColumn:
    return np.where(entry >= 0, np.append(of_entry, -1)[entry], -1)
