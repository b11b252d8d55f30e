"""Select a part of a trace as a new trace: iterations, a window, an annotation, or a module."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from .brief import Record
from .captured import CaptureLinks
from .columns import IntColumn, distinct, inverse_positions, mask_at
from .conventions import ANNOTATION_SCOPE, MAX_NS, NS_PER_UNIT
from .counterparts import CounterpartLinks, Counterparts
from .errors import UsageError
from .index import as_column, as_positions
from .intervals import Intervals, Span, union
from .node_texts import RecordStore
from .nodes import NODE_COLUMNS, Nodes
from .steps import Steps, chosen_steps
from .tables import Tables
from .unattached import counted_events, with_unattached

if TYPE_CHECKING:
    from .trace import Trace

Mask = npt.NDArray[np.bool_]
_RANKS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_MOST_RANKS = 1_000_000
_WINDOW = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s)?-(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s)", re.ASCII)


@dataclass(frozen=True, eq=False, repr=False)
class Selection(Record):
    about: str  # description of the selection, such as "steps 2-4"
    span: Span  # selected time, extended to include all GPU events and launches
    steps: Steps  # iterations of the recording that are in the selected part
    words: tuple[str, ...] = ()  # command-line options that select this part


@dataclass(frozen=True)
class _Chosen:
    calls: Mask
    runtime: Mask
    gpu: Mask
    span: Span
    steps: IntColumn | None = None


def parse_window(text: str) -> Span:
    """Parse two times relative to the start of the trace, such as "10-12.5ms". Units are ns, us, ms and s."""
    match = _WINDOW.fullmatch(text)
    if match is None:
        raise UsageError(f"window {text[:40]!r}: give times since the trace's start, such as 10-12.5ms or 900us-1.2ms")
    low, low_unit, high, high_unit = match.groups()
    start, end = float(low) * NS_PER_UNIT[low_unit or high_unit], float(high) * NS_PER_UNIT[high_unit]
    if not start < end < MAX_NS:
        raise UsageError(f"window {text[:40]!r}: ends before it starts or after 146 years; give START-END")
    return Span(round(start), round(end))


def window_text(start: str | int, end: str | int | None = None) -> str:
    """Return a window as a string. An int is a time in ns. A string with both times is returned unchanged."""
    first, last = (f"{at}ns" if isinstance(at, int) else at for at in (start, "" if end is None else end))
    return f"{first}-{last}" if last else first


def call_between(trace: Trace, name: str, number: int = 0) -> int:
    """Return a matching call, by its number (from 0). Annotations take precedence, and then exact matches."""
    calls = trace.calls
    annotations = trace.nodes.scope[calls.source] == ANNOTATION_SCOPE
    exact = np.array([text == name for text in trace.names], np.bool_)[calls.name]
    part = np.array([name in text for text in trace.names], np.bool_)[calls.name]
    for which in (annotations & exact, annotations & part, exact, part):
        matches = np.flatnonzero(which)
        if len(matches) > number >= 0:
            return int(matches[number])
        if len(matches):
            raise UsageError(f"between {name[:60]!r} {number}: {trace.file} has {len(matches)}, numbered from 0")
    raise UsageError(f"between {name[:60]!r}: no annotation or operator of {trace.file} has this in its name")


def part_of(
    trace: Trace,
    *,
    steps: str | None = None,
    window: str | None = None,
    between: tuple[str, int] | None = None,
    module: str | None = None,
) -> Trace:
    """Return a part of a trace as a new trace. The result cannot be written as ET+.

    Iterations and annotations contain their CPU calls and the GPU events launched by these calls. A window contains
    everything that overlaps it. A module contains its calls, its backward calls, and their GPU events. The calls that
    launched the GPU events are always included. No event is shortened, even if it starts before the selected time.

    Args:
        steps: numbers of iterations (counted from 0), such as "3" or "0-19", or a phase such as "decode".
        window, between: see `parse_window` and `call_between`. Pass only one of `steps`, `window` and `between`.
        module: all or part of a name ("Linear_3") or a path ("Encoder_0.Linear_3"). It is applied last.
    """
    parts = {"--steps": steps, "--window": window, "--between": between}
    given = [option for option, value in parts.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} both choose a part of the trace; give one of them")
    if given:
        whole = with_unattached(trace)
        if steps is not None:
            chosen = _of_steps(whole, steps)
        elif between is not None:
            chosen = _of_annotation(whole, *between)
        else:
            chosen = _of_window(whole, window or "")
        value = " ".join(map(str, between)) if between is not None else steps or window
        words = part_words(steps, window, between)
        trace = _part(trace, whole, chosen, f"{given[0].removeprefix('--')} {value}", words)
    if module is not None:
        whole = with_unattached(trace)
        trace = _part(trace, whole, _of_module(whole, module), f"module {module}", part_words(module=module))
    return trace


def part_words(
    steps: str | None = None,
    window: str | None = None,
    between: tuple[str, int] | None = None,
    module: str | None = None,
) -> tuple[str, ...]:
    """Return the command-line options that select this part of a trace."""
    chosen = {"window": window, "steps": steps, "module": module}
    words = tuple(f"--{name}={value}" for name, value in chosen.items() if value is not None)
    if between is None:
        return words
    return (
        "--between",
        between[0],
        str(between[1]),
        *(words or ("--log-level=warning",)),
    )  # another option must follow the values of --between


def without_enclosing(trace: Trace) -> Trace:
    """Remove calls that enclose the selection, such as the step's annotation around a selected forward pass."""
    if trace.selection is None:
        return trace
    calls, span = trace.calls, trace.selection.span
    outer = mask_at(len(calls), calls.parent[calls.parent >= 0]) & ((calls.ts < span.start) | (calls.end > span.end))
    if not outer.any():
        return trace
    tables = replace(trace.tables, gpu=trace.gpu.take(trace.gpu.source >= 0), whole=False)
    all_runtime, all_gpu = (np.ones(len(table), np.bool_) for table in (tables.runtime, tables.gpu))
    tables = _tables(tables, ~outer, all_runtime, all_gpu)
    kept = ~mask_at(len(trace), calls.source[outer])
    steps = trace.steps.take(np.flatnonzero(~outer[trace.steps.call]), as_positions(new_places(~outer)))
    loose = np.ones(len(trace.unattached), np.bool_)
    return with_rows(trace, kept, loose, tables, replace(trace.selection, steps=steps))


def _of_steps(trace: Trace, steps: str) -> _Chosen:
    numbers = chosen_steps(steps, len(trace.steps), trace.steps.phases, trace.file)
    spans, step, launched = _spans_of(trace.steps, numbers), trace.step_of_event, trace.launched_ns
    on_gpu = _in(spans, launched, launched) & ((step < 0) | np.isin(step, numbers))
    return replace(_in_spans(trace, spans, on_gpu), steps=numbers)


def _of_annotation(trace: Trace, name: str, number: int) -> _Chosen:
    call, calls, launched = call_between(trace, name, number), trace.calls, trace.launched_ns
    spans = Intervals(calls.ts[[call]], calls.end[[call]])
    return _in_spans(trace, spans, _in(spans, launched, launched) & trace.launch_known)


def _of_window(trace: Trace, window: str) -> _Chosen:
    after = parse_window(window)
    spans = Intervals(*(np.array([trace.span.start + at], np.int64) for at in after))
    chosen = _in_spans(trace, spans, _in(spans, trace.gpu.ts, trace.gpu.end))
    if not (chosen.calls.any() or chosen.runtime.any() or chosen.gpu.any()):
        length = trace.span.length / 1e6
        raise UsageError(f"window {window}: contains no event of {trace.file} (length: {length:,.3f} ms)")
    return chosen


def _of_module(trace: Trace, name: str) -> _Chosen:
    calls, gpu, origin = trace.calls, trace.gpu, trace.origin
    codes = _paths_named(origin.modules, name)
    in_calls, on_gpu = np.isin(origin.module, codes), np.isin(origin.gpu_module, codes)
    if not in_calls.any() and not on_gpu.any():
        tree = trace.hierarchy
        of_path = {code: [trace.names[at] for at in tree.regions(code)] for code in distinct(tree.path).tolist()}
        in_calls = np.isin(tree.path, [code for code, path in of_path.items() if _paths_named([path], name)])
        on_gpu = np.append(in_calls, False)[gpu.call]
    if not in_calls.any() and not on_gpu.any():
        few = ", ".join(sorted({path[-1] for path in origin.modules})[:5])
        there = f"such as {few}" if few else "the trace has no modules; record with_modules or with_stack"
        raise UsageError(f"module {name[:60]!r}: no module of {trace.file} has this in its name; {there}")
    in_runtime = mask_at(len(trace.runtime), gpu.runtime[on_gpu & (gpu.runtime >= 0)])
    in_runtime |= np.append(in_calls, False)[trace.runtime.call]
    starts, ends = np.append(calls.ts[in_calls], gpu.ts[on_gpu]), np.append(calls.end[in_calls], gpu.end[on_gpu])
    _add_with_callers(in_calls, calls.parent, np.concatenate([gpu.call[on_gpu], trace.runtime.call[in_runtime]]))
    _add_with_callers(in_calls, calls.parent, np.flatnonzero(in_calls))
    return _Chosen(in_calls, in_runtime, on_gpu, Span(int(starts.min()), int(ends.max())))


def _paths_named(paths: Sequence[Sequence[str]], name: str) -> list[int]:
    dotted = [f".{'.'.join(path)}." for path in paths]
    exact = [at for at, path in enumerate(dotted) if f".{name}." in path]
    return exact or [at for at, path in enumerate(dotted) if name in path]


def _in_spans(trace: Trace, spans: Intervals, on_gpu: Mask) -> _Chosen:
    gpu, calls, runtime = trace.gpu, trace.calls, trace.runtime
    in_runtime = _in(spans, runtime.ts, runtime.end)
    in_runtime[gpu.runtime[on_gpu & (gpu.runtime >= 0)]] = True
    in_calls = _in(spans, calls.ts, calls.end)
    _add_with_callers(in_calls, calls.parent, np.concatenate([gpu.call[on_gpu], runtime.call[in_runtime]]))
    return _Chosen(in_calls, in_runtime, on_gpu, Span(int(spans.start[0]), int(spans.end[-1])))


def _part(trace: Trace, whole: Trace, chosen: _Chosen, about: str, words: tuple[str, ...]) -> Trace:
    gpu = whole.gpu
    begun = np.append(whole.launched_ns[chosen.gpu], chosen.span.start)
    span = Span(int(begun.min()), int(np.append(gpu.end[chosen.gpu], chosen.span.end).max()))
    steps = trace.steps
    kept = chosen.calls[steps.call]
    if chosen.steps is not None:
        kept &= mask_at(len(steps), chosen.steps)
    places = as_positions(new_places(chosen.calls))
    loose = mask_at(len(trace.unattached), counted_events(trace)[chosen.gpu[gpu.source < 0]])
    tables = replace(whole.tables, whole=False)
    tables = _tables(tables, chosen.calls, chosen.runtime, chosen.gpu & (gpu.source >= 0))
    if trace.selection is not None:
        about, words = f"{trace.selection.about}, {about}", trace.selection.words + words
    selection = Selection(about, span, steps.take(np.flatnonzero(kept), places), words)
    rows = np.concatenate([table.source for table in (tables.calls, tables.runtime, tables.gpu)])
    return with_rows(trace, mask_at(len(trace), rows), loose, tables, selection)


def _spans_of(steps: Steps, numbers: IntColumn) -> Intervals:
    runs = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    start, end = steps.start[numbers[runs]], np.maximum.reduceat(steps.end[numbers], runs)
    return union(start, end) if np.any(start[1:] < end[:-1]) else Intervals(start, end)


def _in(spans: Intervals, start: IntColumn, end: IntColumn) -> Mask:
    begun = np.searchsorted(spans.start, np.maximum(end, start + 1))
    return (begun > 0) & (start < np.append(spans.end, 0)[begun - 1])


def _add_with_callers(chosen: Mask, parent: IntColumn, calls: IntColumn) -> None:
    added = distinct(calls)
    while len(added := added[added >= 0]):
        chosen[added] = True
        added = distinct(parent[added])


def _tables(tables: Tables, in_calls: Mask, in_runtime: Mask, in_gpu: Mask) -> Tables:
    call, runtime = new_places(in_calls), new_places(in_runtime)
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


def ranks_of(text: str) -> list[int]:
    """Parse a list of ranks such as "0-3,7". Ranks stay in the given order."""
    numbers: list[int] = []
    for part in text.split(","):
        found = _RANKS.fullmatch(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < _MOST_RANKS:
            raise UsageError(f"{text[:40]!r} must be a list of ranks such as 0-3,7")
        numbers += range(first, last + 1)
    return numbers


def new_places(kept: Mask) -> IntColumn:
    """Return the new position of each row, or −1 for dropped rows. The extra last entry maps row −1 to itself."""
    return inverse_positions(len(kept) + 1, np.flatnonzero(kept))


def with_rows(trace: Trace, chosen: Mask, loose: Mask, tables: Tables, selection: Selection) -> Trace:
    """Return a trace of the chosen nodes, the structural nodes, and the unattached events in the mask `loose`."""
    kept = chosen | trace.nodes.structural
    rows, place = np.flatnonzero(kept), new_places(kept)
    columns: dict[str, Any] = {name: getattr(trace.nodes, name)[rows] for name in NODE_COLUMNS}
    columns["parent_row"] = place[columns["parent_row"]]
    waits = columns["inter_thread_dep"]
    columns["inter_thread_dep"] = np.where(np.isin(waits, columns["id"]), waits, -1)
    edges = trace.edges[kept[trace.edges[:, 0]] & kept[trace.edges[:, 1]]]
    ids = set(columns["id"].tolist())
    waiting = {row: [of for of in needed if of in ids] for row, needed in trace.sync_dep.items() if kept[row]}
    captured = trace.captured
    if captured is not None:
        links, unattached = _links(captured.links, place), _links(captured.unattached, new_places(loose))
        captured = replace(captured, links=links, unattached=unattached)
    part = trace.with_(
        nodes=Nodes(**columns),
        header={key: value for key, value in trace.header.items() if key != "unattached"},
        texts=_SomeRecords(trace.texts, rows, trace.file, selection.about),
        edges=np.column_stack([place[edges[:, 0]], place[edges[:, 1]], edges[:, 2]]).astype(np.int64),
        sync_dep={int(place[row]): needed for row, needed in waiting.items() if needed},
        comm={int(place[row]): comm for row, comm in trace.comm.items() if kept[row]},
        unattached=trace.unattached.take(np.flatnonzero(loose)),
        memory=replace(trace.memory, row=as_positions(place[trace.memory.row])),
        captured=captured,
        stacks=_of_kept(trace.stacks, kept, place, "entry", "evidence"),
        generated=_of_kept(trace.generated, kept, place, "kernel"),
        counterparts=Counterparts(
            _counterparts(trace.counterparts.links, place, place),
            _counterparts(trace.counterparts.unattached, new_places(loose), place),
        ),
        selection=selection,
    )
    return part.with_tables(_placed(tables, place))


def _placed(tables: Tables, place: IntColumn) -> Tables:
    calls, runtime, gpu = tables.calls, tables.runtime, tables.gpu
    return replace(
        tables,
        calls=replace(calls, source=as_positions(place[calls.source])),
        runtime=replace(runtime, source=as_positions(place[runtime.source])),
        gpu=replace(gpu, source=as_positions(place[gpu.source]), counterpart=as_positions(place[gpu.counterpart])),
    )


def _of_kept(table: Any, kept: Mask, place: IntColumn, *columns: str) -> Any:
    at = np.flatnonzero(kept[table.row])
    taken = {name: getattr(table, name)[at] for name in columns}
    return replace(table, row=as_positions(place[np.asarray(table.row)[at]]), **taken)


def _counterparts(links: CounterpartLinks, event: IntColumn, row: IntColumn) -> CounterpartLinks:
    at = np.flatnonzero((event[links.event] >= 0) & (row[links.row] >= 0))
    return CounterpartLinks(event[links.event[at]], row[links.row[at]], links.same_module[at])


def _links(links: CaptureLinks, place: IntColumn) -> CaptureLinks:
    at = np.flatnonzero(place[links.event] >= 0)
    return CaptureLinks(place[links.event[at]], links.op[at], links.link[at], links.replay[at])


def _of_rows(method: str) -> Any:
    return lambda part, rows: getattr(part.whole, method)(part.rows[rows])


def _of_whole(method: str) -> Any:
    return lambda part, *given: getattr(part.whole, method)(*given)


@dataclass(frozen=True)
class _SomeRecords(RecordStore):
    whole: RecordStore
    rows: IntColumn
    file: str
    about: str

    texts, records = _of_rows("texts"), _of_rows("records")
    tensor_texts, tensor_uses = _of_rows("tensor_texts"), _of_rows("tensor_uses")
    launch_args, copy_sizes = _of_rows("launch_args"), _of_rows("copy_sizes")
    signature_table, other_events = _of_whole("signature_table"), _of_whole("other_events")
    args_size, args_comm = _of_whole("args_size"), _of_whole("args_comm")

    def decoded(self, row: int) -> dict[str, Any]:
        return self.whole.decoded(int(self.rows[row]))

    def document(self) -> NoReturn:
        raise UsageError(f"{self.file}: ET+ files contain whole traces, not only {self.about}; write the whole trace")

    def chunks(self) -> NoReturn:
        self.document()

    def write(self, path: str | os.PathLike[str], *, jobs: int = 1) -> NoReturn:
        self.document()
