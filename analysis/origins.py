"""Time by where it came from: by source line, with what a line's callees take, and by phase."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn, grouped
from ..trace.intervals import sums
from ..trace.kinds import ACCUMULATION, BACKWARD, GRADIENT_COMMUNICATION, PHASES, UNKNOWN
from ..trace.stacks import SourceLine, own_by
from ..trace.tables import OP
from ..trace.trace import Trace
from .table import Row, Table, TextColumn, column, inferred, repeated

_BACKWARD = (BACKWARD, ACCUMULATION, GRADIENT_COMMUNICATION)


class SourceRow(Row):
    """A line of the program.

    A line causes what is called or launched while it is the innermost line of own code in the stack (`Op.source`);
    backward counts to the line of its forward operator. Work without a line of own code counts to the innermost line.
    Work that a compiler fused from several lines counts to each of them in equal parts.
    """

    file: str = inferred("name", "File.")
    line: int = inferred("number", "Line.")
    function: str = inferred("name", "Function.")
    own: bool = inferred("yes/no", "In own code.")
    exact: bool = inferred("yes/no", "The line is that of the call, not the function's first.")
    calls: int = column("count", "Outermost operators that it called.")
    host_ns: int = column("ns", "CPU time of the operators that it called, without Python's own.")
    device_self_ns: int = column("ns", "GPU time that it caused.", "GPU self")
    device_total_ns: int = column("ns", "GPU time with that of lines called from it.", "GPU")
    backward_ns: int = inferred("ns", "Part of device_self_ns in backward.")
    launches: int = column("count", "Number of GPU events in device_self_ns.")
    idle_ns: int = inferred("ns", "Time in which the device had no work until an event of this line.", "idle caused")
    fused: int = inferred("count", "Its calls and launches that also do the work of other lines.")
    repeated_ns: int = inferred(
        "ns", "Part of device_self_ns launched before the trace, whose line is known by repetition.", default=0
    )

    title = "source lines: host and device time of what they call, device time with what is called from them, ms"
    shown = (
        TextColumn("", lambda row: ""), "calls", "host_ns", "device_self_ns", "device_total_ns", "backward_ns",
        "launches", "idle_ns", "fused",
    )  # fmt: skip

    def above(self) -> str:
        """The line and its function."""
        return str(self.source) + ("" if self.own else " (not own code)") + repeated(self)

    @property
    def source(self) -> SourceLine:
        """The line."""
        return SourceLine(self.file, self.line, self.function, self.exact, self.own)


class PhaseRow(Row):
    """Everything of one phase."""

    phase: str = inferred("text", "forward, backward, optimizer and so on, or not known.")
    calls: int = column("count", "Operators.")
    host_ns: int = column("ns", "CPU time of the operators, without the calls inside.")
    device_ns: int = column("ns", "Duration of the GPU events.", "GPU")
    share: float | None = column("share", "Share of the duration of all GPU events.")
    launches: int = column("count", "Number of the GPU events.")
    idle_ns: int | None = inferred(
        "ns", "Time in which the device had no work until an event of this phase.", "idle caused"
    )

    title = "phases, ms"
    shown = ("phase", "calls", "host_ns", "device_ns", "share", "launches", "idle_ns")


def phase_table(trace: Trace) -> Table[PhaseRow]:
    """One row a phase that occurs, in the order of `PHASES`, what is not known last.

    Example:
        >>> [row.phase for row in phase_table(trace)][:2]
        ['forward', 'backward']
    """
    origin, ops, count = trace.origin, np.flatnonzero(trace.calls.kind == OP), len(PHASES)
    phase = origin.phase[ops].astype(np.int64)
    on_gpu = origin.gpu_phase.astype(np.int64)
    columns = (
        np.bincount(phase, minlength=count), sums(phase, trace.self_ns[ops], count),
        sums(on_gpu, trace.gpu.dur, count), np.bincount(on_gpu, minlength=count),
        sums(on_gpu, idle_before(trace), count),
    )  # fmt: skip
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
    """One row a source line, the longest device time by itself first, then the longest host time; empty where no stacks
    are recorded.

    Example:
        >>> source_table(trace)
        []
    """
    if not trace.source_table.lines:
        return Table(SourceRow)
    work = LineWork(trace)
    lines, total = work.totals()
    count = len(lines)
    event, line, part = work.event, work.line, work.share
    duration = trace.gpu.dur[event] * part
    back = np.isin(trace.origin.gpu_phase[event], _BACKWARD)
    call, call_line, call_part = work.outermost_calls()
    columns = (
        np.bincount(call_line, minlength=count),
        np.bincount(call_line, (trace.calls.end - trace.calls.ts)[call] * call_part, count),
        np.bincount(line, duration, count), total, np.bincount(line[back], duration[back], count),
        np.bincount(line, minlength=count), np.bincount(line, idle_before(trace)[event] * part, count),
        np.bincount(line[part < 1], minlength=count) + np.bincount(call_line[call_part < 1], minlength=count),
        np.bincount(line, np.where(trace.attribution.repetition[event] > 0, duration, 0), count),
    )  # fmt: skip
    numbers = [np.rint(column).astype(np.int64).tolist() for column in columns]
    rows = [
        SourceRow(text.file, text.line, text.function, text.own, text.exact, *values)
        for text, *values in zip(lines, *numbers, strict=True)
        if any(values)
    ]
    order = sorted(
        rows,
        key=lambda row: (
            -row.device_self_ns, -row.device_total_ns, -row.host_ns, row.file, row.line, row.function, row.exact,
            row.own,
        ),
    )  # fmt: skip
    return Table(SourceRow, order)


def idle_before(trace: Trace) -> IntColumn:
    """int64 ns, by GPU event how long its device had nothing to run until it began, if it was launched meanwhile; else
    0: then the host is not what the device waited for."""
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
    """Which line caused which calls and GPU events.

    Attributes:
        of_call: int64, by call the code of its line in `Trace.source_table`, −1 for none.
        event, line, share: a row each pair of a GPU event and a line that caused it, and the part of it that counts.
        entry: int64, of each pair the entry of the stack.
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
        """Operators that a line called, and no other operator of the same line: position, line and share of each."""
        trace, calls = self.trace, self.trace.calls
        above = np.where(calls.parent >= 0, self.of_call[calls.parent], -1) if len(calls) else self.of_call
        inner = (above == self.of_call) & (np.where(calls.parent >= 0, calls.kind[calls.parent], -1) == OP)
        outer = np.flatnonzero((calls.kind == OP) & (self.of_call >= 0) & ~inner)
        at, entry, share = _stacks_of(trace, calls.source[outer], trace.origin.entry[outer])
        return outer[at], _looked_up(trace.source_table.of_entry, entry), share

    def totals(self) -> tuple[list[SourceLine], npt.NDArray[np.float64]]:
        """The lines of `Trace.source_table` and further ones of own code that called them; and by line, ns, the device
        time of the stacks in which it is, once each."""
        trace, stacks, is_own = self.trace, self.trace.stacks, own_by(self.trace.own_code)
        entries, at = np.unique(self.entry, return_inverse=True)
        time = np.bincount(at.reshape(-1), trace.gpu.dur[self.event] * self.share, len(entries))
        total = dict.fromkeys(trace.source_table.lines, 0.0)
        for entry, ns in zip(entries.tolist(), time.tolist(), strict=True):
            own = {line for line in stacks.lines(entry) if is_own(line.file)}
            for line in own | {trace.source_table.lines[trace.source_table.of_entry[entry]]}:
                total[line] = total.get(line, 0.0) + ns
        return list(total), np.array(list(total.values()))


def _stacks_of(
    trace: Trace, source: IntColumn, first: IntColumn
) -> tuple[IntColumn, IntColumn, npt.NDArray[np.float64]]:
    """Position, entry and share of each stack: of what has several all of them, those of one line once, in equal
    parts; of all else the one in `first`.

    Args:
        source: int64, rows of the trace, −1 for none. first: int64, an entry of each, −1 for none.
    """
    stacks, of_entry = trace.stacks, trace.source_table.of_entry
    begin = np.searchsorted(stacks.row, source)
    several = np.flatnonzero((source >= 0) & (np.searchsorted(stacks.row, source, side="right") - begin > 1))
    kept = np.ones(len(first), np.bool_)
    kept[several] = False
    at, entry, share = [np.flatnonzero(kept)], [first[kept]], [np.ones(int(np.count_nonzero(kept)))]
    for place in several.tolist():
        by_line = {int(of_entry[found]): found for found in reversed(stacks.entries(int(source[place])))}
        found = [by_line[line] for line in sorted(by_line) if line >= 0] or [int(first[place])]
        at.append(np.full(len(found), place))
        entry.append(np.array(found, np.int64))
        share.append(np.full(len(found), 1 / len(found)))
    return np.concatenate(at), np.concatenate(entry), np.concatenate(share)


def _looked_up(of_entry: IntColumn, entry: IntColumn) -> IntColumn:
    """The codes of entries, −1 for none."""
    return np.where(entry >= 0, np.append(of_entry, -1)[entry], -1)
