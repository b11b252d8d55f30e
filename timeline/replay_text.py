"""Format the summary of a replay as one screen of text or as all tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from ..trace.kernel_names import kernel_label
from ..trace.printable import few, printable, shortened
from ..trace.text_tables import Cell, change_text, in_short, number, rewrap, share
from ..trace.text_tables import render as table
from .critical import CriticalPath
from .replay_summary import Summary

_US = 1e3
_OPERATORS = 5  # maximum number of critical path entries on the screen
_LEAST = 0.001  # kinds of edges that take a smaller share of the critical path are omitted
_LANES = 8
_NOTE = " " * 7


def render(found: Summary, width: int = 80) -> str:
    """Return one screen of text with the answer, the error of the replay, the critical path, and notes."""
    lines = textwrap.wrap(_answer(found), width)
    if found.span is not None:
        lines.append(f"likely between {in_short(found.span.low_ns)} and {in_short(found.span.high_ns)}")
    if found.untraced is not None:
        low, high = in_short(found.untraced.low_ns), in_short(found.untraced.high_ns)
        span = low if low == high else f"{low} to {high}"
        lines.append(f"untraced step: {in_short(found.untraced.measured_ns)} measured, {span} predicted")
    lines += [_error(found), *_steps(found)] if found.recorded else []
    lines += _path(found.path, found.predicted_ns, width)
    if found.exposed_ns or found.measured_exposed_ns:
        lines.append(f"exposed communication {change_text(found.measured_exposed_ns, found.exposed_ns)}")
    if found.untraced is None and found.recorded:
        why = ": no untraced steps were timed" if found.span is None else ""  # never timed for other networks
        lines.append(f"note   times include the profiler's overhead{why}")
    lines = [part for line in lines for part in ([line] if len(line) <= width else textwrap.wrap(line, width))]
    return "\n".join([*lines, *(line for note in found.notes for line in _note(note, width)[:2])])


def render_full(found: Summary, width: int = 80) -> str:
    lines = [line for part in _parts(found, width) for text in part for line in text.split("\n")]
    return "\n".join(rewrap(lines, width, " " * 11))


def _answer(found: Summary) -> str:
    bound, ns = max(found.bounds.items(), key=lambda item: item[1], default=("", 0))
    if found.before_ns:
        least = f"; at best {in_short(ns)}, the {bound}" if ns else ""
        return f"{change_text(found.before_ns, found.predicted_ns)}{least}"
    if not found.recorded:
        return f"predicted {in_short(found.predicted_ns)} ({found.rows:,} calls and events without start times)"
    return f"replayed {in_short(found.predicted_ns)}, recorded {in_short(found.measured_ns)} ({found.error:+.2%})"


def _error(found: Summary) -> str:
    base = found.base
    starts = "" if base.kernel_starts is None else f", kernel starts {base.kernel_starts:.2%}"
    waits = f", unexplained waits {base.unexplained:.2%}" if base.unexplained else ""
    text = f"replay error on the recording: {base.makespan:+.2%}{starts}{waits}"
    return text if base.reliable else f"{text}; UNRELIABLE, over 1%"


def _steps(found: Summary) -> list[str]:
    steps = found.steps
    if steps is None:
        return []
    replayed, recorded = in_short(steps.predicted.p50), in_short(steps.measured.p50)
    return [f"median of {steps.count} steps: {replayed} replayed, {recorded} recorded"]


def _path(path: CriticalPath, total: int, width: int, count: int = _OPERATORS, when: str = "") -> list[str]:
    total = max(total, 1)
    kinds = ", ".join(f"{kind} {ns / total:.1%}" for kind, ns in path.by_kind.items() if ns >= _LEAST * total)
    lines = textwrap.wrap(f"critical path{when}: {kinds}", width, subsequent_indent="  ")
    longest = list(path.by_op.items())[:count]
    rows = [[kernel_label(name), kind, number(ns, 1, _US), share(ns / total)] for (kind, name), ns in longest]
    if rows:
        lines += table("", ["on the critical path", "kind", "time µs", "share"], rows, width).strip("\n").split("\n")
    return lines


def _note(note: str, width: int) -> list[str]:
    return textwrap.wrap(printable(f"note   {note}"), width, subsequent_indent=_NOTE)


def _parts(found: Summary, width: int) -> Iterator[list[str]]:
    gpu = f", {found.gpu_events:,} on a GPU" if found.gpu_events else ""
    files = ", ".join(found.files) if found.recorded else few(found.files)
    yield textwrap.wrap(printable(f"{files}: {found.rows:,} calls and events{gpu}"), width)
    for fitted in dict.fromkeys(found.constants) if found.gpu_events and found.recorded else ():
        limit = "no queue limit seen" if fitted.queue_limit is None else f"{fitted.queue_limit:,} launches in queue"
        yield [f"fitted     launch latency {_us(fitted.launch_latency_ns)}, gap {_us(fitted.gap_ns)}, {limit}"]
        if fitted.clock_skew_ns:
            yield [f"           the clocks of CPU and GPU differ by {_us(fitted.clock_skew_ns)} or more"]
    yield [_times(found, width)]
    yield _path(found.path, found.predicted_ns, width, _LANES)
    if found.path_before is not None:
        if found.before_ns:
            yield _path(found.path_before, found.before_ns, width, 0, " before")
        yield ["what if    " + printable("; ".join(found.what_ifs)), f"           {_answer(found)}"]
        yield [] if found.span is None else found.span.to_lines()
    yield [] if found.untraced is None else found.untraced.to_lines()
    yield found.base.to_lines() if found.recorded else []
    yield [] if found.steps is None else found.steps.to_lines()
    yield [line for note in found.notes for line in _note(note, width)]


def _times(found: Summary, width: int) -> str:
    whatif = found.before_ns is not None
    off = None if whatif else f"{found.error:+.2%}"
    rows: list[list[Cell]] = [["makespan", number(found.predicted_ns, 1, _US), number(found.measured_ns, 1, _US), off]]
    if found.start_error_ns is not None and not whatif and found.recorded:
        rows.append(
            ["mean kernel-start error", number(found.start_error_ns, 1, _US), None, f"{found.start_error:.3%} of it"]
        )
    if found.unexplained.count:
        waits = found.unexplained
        rows.append(["unexplained waits", number(waits.ns, 1, _US), None, f"{waits.share:.3%} of it"])
    rows += [
        [f"{shortened(lane.name, 18)} busy", number(lane.busy_ns, 1, _US), number(lane.measured_busy_ns, 1, _US), None]
        for lane in sorted(found.lanes, key=lambda lane: -max(lane.busy_ns, lane.measured_busy_ns))[:_LANES]
    ]
    if found.exposed_ns or found.measured_exposed_ns:
        exposed = (number(ns, 1, _US) for ns in (found.exposed_ns, found.measured_exposed_ns))
        rows.append(["exposed communication", *exposed, None])
    rows += [[name, number(ns, 1, _US), None, None] for name, ns in found.bounds.items()]
    heads = ["time", "changed µs" if whatif else "predicted µs", "measured µs", "of makespan"]
    if not found.recorded:
        heads, rows = heads[:2], [row[:2] for row in rows]
    return table("", heads, rows, width)


def _us(ns: float) -> str:
    return f"{ns / _US:,.1f} µs"
