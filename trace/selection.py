"""A part of a trace by time: some of its iterations, or a window; and the ranks that a text names."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .columns import IntColumn, mask_at
from .conventions import ANNOTATION_SCOPE, MAX_NS, NS_PER_UNIT
from .errors import UsageError
from .index import as_column, as_positions
from .intervals import Intervals, Span, union
from .steps import Steps, chosen_steps
from .tables import Tables
from .unattached import with_unattached

if TYPE_CHECKING:
    from .trace import Trace

Mask = npt.NDArray[np.bool_]
_RANKS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_MOST_RANKS = 1_000_000
_WINDOW = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s)?-(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s)", re.ASCII)


def parse_window(text: str) -> Span:
    """A span of time after the trace's start; ns, us, ms or s, and a unit left out is the one that follows.

    Raises:
        UsageError: not such a text, or an empty span.

    Example:
        >>> parse_window("10-12.5ms")
        Span(start=10000000, end=12500000)
    """
    found = _WINDOW.fullmatch(text)
    if found is None:
        raise UsageError(f"window {text[:40]!r}: two times after the trace's start, such as 10-12.5ms or 900us-1.2ms")
    low, low_unit, high, high_unit = found.groups()
    start, end = float(low) * NS_PER_UNIT[low_unit or high_unit], float(high) * NS_PER_UNIT[high_unit]
    if not start < end < MAX_NS:
        raise UsageError(f"window {text[:40]!r}: ends before it starts or later than 146 years; give START-END")
    return Span(round(start), round(end))


def call_between(trace: Trace, name: str, number: int = 0) -> int:
    """Position in `trace.calls` of an annotation, the `number`-th from 0 of those with a name; −1 where it is no call.

    The name is the whole one, else a part of it; operators count where no annotation has it.

    Raises:
        UsageError: no call has the name, or not so many do.

    Example:
        >>> trace.names[trace.calls.name[call_between(trace, "forward", 1)]]
        '## forward ##'
    """
    calls = trace.calls
    annotations = trace.scope[calls.source] == ANNOTATION_SCOPE
    exact = np.array([text == name for text in trace.names], np.bool_)[calls.name]
    part = np.array([name in text for text in trace.names], np.bool_)[calls.name]
    for which in (annotations & exact, annotations & part, exact, part):
        found = np.flatnonzero(which)
        if len(found) > number >= 0:
            return int(found[number])
        if len(found):
            raise UsageError(f"between {name[:60]!r} {number}: {trace.file} has {len(found)}, numbered from 0")
    raise UsageError(f"between {name[:60]!r}: no annotation or operator of {trace.file} has this in its name")


def part_of(
    trace: Trace, *, steps: str | None = None, window: str | None = None, between: tuple[str, int] | None = None
) -> Trace:
    """A trace with the calls and GPU events of some iterations, a window or an annotation; its rows and edges stay.

    Of iterations and an annotation: what ran on the host meanwhile, and the GPU events launched meanwhile. Of a window:
    what ran in it, in part at least. With the GPU events come the calls that launched them. Nothing is cut off: an
    operator that began earlier keeps its duration. `span` is the chosen time and what the GPU events and their launches
    need beyond it; of steps that do not follow each other, as those of a phase, it is the time from the first to the
    last.

    Args:
        steps: iterations by number from 0, such as "3" or "0-19", or of a phase, such as "decode".
        window: see `parse_window`.
        between: a name and a number, see `call_between`: from its start to its end.

    Raises:
        UsageError: two of them are given, or not such a text, no such iterations or annotation, or nothing in the
            window.

    Example:
        >>> part = part_of(trace, window="0-1ms")
        >>> 0 < len(part.calls) < len(trace.calls)
        True
    """
    parts = {"--steps": steps, "--window": window, "--between": between}
    given = [option for option, value in parts.items() if value is not None]
    if not given:
        return trace
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} both choose a part of the trace; give one of them")
    trace = with_unattached(trace)
    gpu, calls, runtime = trace.gpu, trace.calls, trace.runtime
    if steps is not None:
        numbers = chosen_steps(steps, len(trace.steps), trace.steps.phases, trace.file)
        spans, step = _spans_of(trace.steps, numbers), trace.step_of_event
        launched = trace.launched_ns
        on_gpu = _in(spans, launched, launched) & ((step < 0) | np.isin(step, numbers))
    elif between is not None:
        call = call_between(trace, *between)
        spans, launched = Intervals(calls.ts[[call]], calls.end[[call]]), trace.launched_ns
        on_gpu = _in(spans, launched, launched)
    else:
        after = parse_window(window or "")
        spans = Intervals(*(np.array([trace.span.start + at], np.int64) for at in after))
        on_gpu = _in(spans, gpu.ts, gpu.end)
    chosen = Span(int(spans.start[0]), int(spans.end[-1]))
    in_runtime = _in(spans, runtime.ts, runtime.end)
    in_runtime[gpu.runtime[on_gpu & (gpu.runtime >= 0)]] = True
    in_calls = _in(spans, calls.ts, calls.end)
    _add_with_callers(in_calls, calls.parent, np.concatenate([gpu.call[on_gpu], runtime.call[in_runtime]]))
    if not (in_calls.any() or in_runtime.any() or on_gpu.any()):
        length = trace.span.length / 1e6
        raise UsageError(f"window {window}: {trace.file} has nothing in it; it is {length:,.3f} ms long")
    part = trace.with_tables(_tables(trace.tables, in_calls, in_runtime, on_gpu))
    begun = np.append(trace.launched_ns[on_gpu], chosen.start)
    part.__dict__["span"] = Span(int(begun.min()), int(np.append(gpu.end[on_gpu], chosen.end).max()))
    kept = in_calls[trace.steps.call]
    if steps is not None:
        kept &= mask_at(len(trace.steps), numbers)
    part.__dict__["steps"] = trace.steps.take(np.flatnonzero(kept), as_positions(_new_places(in_calls)))
    return part


def _spans_of(steps: Steps, numbers: IntColumn) -> Intervals:
    """The time of some steps (ordinals, ascending); between those that follow each other nothing is left out."""
    runs = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    start, end = steps.start[numbers[runs]], np.maximum.reduceat(steps.end[numbers], runs)
    return union(start, end) if np.any(start[1:] < end[:-1]) else Intervals(start, end)


def _in(spans: Intervals, start: IntColumn, end: IntColumn) -> Mask:
    """Which intervals overlap one of some spans; empty ones that are in one do."""
    begun = np.searchsorted(spans.start, np.maximum(end, start + 1))
    inside: Mask = (begun > 0) & (start < np.append(spans.end, 0)[begun - 1])
    return inside


def _add_with_callers(chosen: Mask, parent: IntColumn, calls: IntColumn) -> None:
    """Choose further calls (−1 for none) and all calls around them."""
    at = np.unique(calls)
    while len(at := at[at >= 0]):
        chosen[at] = True
        at = np.unique(parent[at])


def _tables(tables: Tables, in_calls: Mask, in_runtime: Mask, in_gpu: Mask) -> Tables:
    """Some rows of each table; what refers to a row that is left out refers to none."""
    call, runtime = _new_places(in_calls), _new_places(in_runtime)
    calls, runtime_calls = tables.calls.take(in_calls), tables.runtime.take(in_runtime)
    gpu = tables.gpu.take(in_gpu)
    launcher = runtime[gpu.runtime]
    launches = mask_at(len(runtime_calls), launcher[launcher >= 0])
    return replace(
        tables,
        calls=replace(calls, parent=as_positions(call[calls.parent])),
        runtime=replace(runtime_calls, call=as_positions(call[runtime_calls.call]), launches=as_column(launches)),
        gpu=replace(gpu, call=as_positions(call[gpu.call]), runtime=as_positions(launcher)),
    )


def _new_places(kept: Mask) -> IntColumn:
    """Of each row its position among those kept, −1 for the others; one entry more, −1, for row −1."""
    return np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)


def ranks_of(text: str) -> list[int]:
    """A list of ranks, in its order.

    Raises:
        UsageError: no such list.

    Example:
        >>> ranks_of("0-3,7")
        [0, 1, 2, 3, 7]
    """
    numbers: list[int] = []
    for part in text.split(","):
        found = _RANKS.fullmatch(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < _MOST_RANKS:
            raise UsageError(f"{text[:40]!r} must be a list of ranks such as 0-3,7")
        numbers += range(first, last + 1)
    return numbers
