"""Where device time goes: per device, stream, module, operator and kernel; busy, idle and overlapped time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn, StringTable, distinct, distinct_rows, grouped, matching
from ..trace.conventions import UNATTACHED_REASONS
from ..trace.intervals import Intervals, Span, intersection, step_function, sums, union
from ..trace.stacks import MODULE_FRAME, is_module
from ..trace.steps import enclosing
from ..trace.tables import ANNOTATION
from ..trace.trace import Trace
from .table import Column, Row, Table, WithMean

_LOADER = re.compile(r"enumerate\(DataLoader\)#|DataLoader")
_FORWARD = re.compile(r"forward", re.IGNORECASE)
_SPANS = "; busy: of the trace's span; of GPU: from its first event to its last"
_SHARES = ("busy_share", "busy_share_of_gpu_span")
_SHARE_COLUMNS = (Column("busy", "busy_share", "share"), Column("of GPU", "busy_share_of_gpu_span", "share"))


class BreakdownRow(WithMean, Row):
    """GPU events that agree in everything but time.

    Attributes:
        device, stream: −1 where the trace has none.
        modules: named regions around the operator, outermost first; of backward also the forward operator's modules; ()
            without any.
        op: topmost operator, "" for events that no operator is known to have launched. shapes: of its inputs, "" if
            not recorded.
        kernel: the event's name. category: one of `GPU_CATEGORIES`.
        count: number of events. total_ns: sum of their durations. share: part of all GPU events' durations, 0 to 1.
        reason: why no call is known to have launched them, one of `UNATTACHED_REASONS`; "" where one is.
        repeated: the operator is that of their repetition (equivalent, by repetition); they were launched before the
            trace.
    """

    device: int
    stream: int
    modules: tuple[str, ...]
    op: str
    shapes: str
    kernel: str
    category: str
    count: int
    total_ns: int
    share: float
    reason: str = ""
    repeated: bool = False

    derived = ("mean_ns",)
    joined = ("modules", " / ")

    @property
    def label(self) -> str:
        """The operator, or in brackets why there is none."""
        if self.op and self.repeated:
            return f"{self.op} (by repetition)"
        return self.op or (f"(not attached: {self.reason})" if self.reason else "(launched by no operator)")


class _Busy:
    """How much of two spans something was busy: of the trace's, which the host's work at either end makes longer, and
    of the GPU's own.

    Attributes:
        busy_ns: length of the union of events. window_ns: of the trace's span.
        gpu_span_ns: from the device's first GPU event to the end of its last one.
    """

    busy_ns: int | None
    window_ns: int | None
    gpu_span_ns: int | None

    @property
    def busy_share(self) -> float | None:
        """Of the trace's span, 0 to 1; None if that has no length."""
        return self.busy_ns / self.window_ns if self.window_ns and self.busy_ns is not None else None

    @property
    def busy_share_of_gpu_span(self) -> float | None:
        """Of the GPU's span, 0 to 1; None if that has no length."""
        return self.busy_ns / self.gpu_span_ns if self.gpu_span_ns and self.busy_ns is not None else None


class StreamUse(_Busy, Row):
    """What one stream did during the trace's span: busy_ns + idle_ns = window_ns.

    Attributes:
        events: number of GPU events. total_ns: sum of their durations; more than busy_ns if they overlap. Without
            recorded start times all other times are None.
        busy_ns: length of their union. idle_ns: the rest of the window.
        gpu_span_ns: of the stream's device, so that its streams can be compared.
    """

    device: int
    stream: int
    events: int
    window_ns: int | None
    gpu_span_ns: int | None
    total_ns: int
    busy_ns: int | None
    idle_ns: int | None

    title = f"streams{_SPANS}"
    columns = (
        Column("stream", lambda row: f"device {row.device} stream {row.stream}"), Column("events", "events"),
        Column("busy ms", "busy_ns", "ms"), Column("idle ms", "idle_ns", "ms"), *_SHARE_COLUMNS,
    )  # fmt: skip
    derived = _SHARES


class DeviceUse(_Busy, Row):
    """What one device did during the trace's span: busy_ns + idle_ns = window_ns.

    Attributes:
        busy_ns: at least one event of any stream ran. overlapped_ns: events of two streams or more ran at once.
        compute_ns: a kernel ran that is no communication, nor one of MTIA's waits. copy_ns: a copy or memset ran.
        communication_ns: a communication kernel ran; exposed_communication_ns: and no computing kernel at that time.
    """

    device: int
    window_ns: int
    gpu_span_ns: int
    busy_ns: int
    idle_ns: int
    overlapped_ns: int
    compute_ns: int
    copy_ns: int
    communication_ns: int
    exposed_communication_ns: int

    title = f"devices{_SPANS}"
    columns = (
        Column("device", lambda row: str(row.device)), Column("busy ms", "busy_ns", "ms"),
        Column("idle ms", "idle_ns", "ms"), Column("overlap", "overlapped_ns", "ms"),
        Column("compute", "compute_ns", "ms"), Column("copy", "copy_ns", "ms"),
        Column("comm", "communication_ns", "ms"), Column("exposed", "exposed_communication_ns", "ms"), *_SHARE_COLUMNS,
    )  # fmt: skip
    derived = _SHARES


@dataclass(frozen=True)
class HostUse:
    """The host: span_ns = host_ns + loading_ns.

    Attributes:
        loading_ns: from each of the data loader's annotations to the next forward pass's (where no annotation is
            called forward, the loader's own time).
        runtime_ns: within runtime and driver calls, of all threads.
    """

    span_ns: int
    loading_ns: int
    host_ns: int
    runtime_ns: int


class Iteration(Row):
    """One iteration: from `start` to `end`, ns; `gpu_ns` is how long any device was busy in that time."""

    name: str
    start: int
    end: int
    gpu_ns: int

    title = "iterations"
    columns = (
        Column("iteration", "name"), Column("latency ms", "latency_ns", "ms"), Column("GPU busy ms", "gpu_ns", "ms"),
        Column("busy", lambda row: row.gpu_ns / row.latency_ns if row.latency_ns else None, "share"),
    )  # fmt: skip
    derived = ("latency_ns",)

    @property
    def latency_ns(self) -> int:
        """Its length."""
        return self.end - self.start


def breakdown(trace: Trace) -> Table[BreakdownRow]:
    """Device time by device, stream, modules, operator with shapes, and kernel; the longest first.

    Kernels of replayed graphs count to the operators of the capture, where it was read (`Trace.attribution`).

    The sum of `total_ns` is that of all GPU events' durations.
    """
    gpu, owner = trace.gpu, trace.attribution
    calls, tree = owner.calls, owner.hierarchy
    if not len(gpu):
        return Table(BreakdownRow)
    top = np.append(tree.top, -1)[owner.call]
    path = np.append(tree.path, 0)[np.where(top >= 0, top, owner.call)] * owner.in_module
    op, signature = (np.append(column, -1)[top] for column in (calls.name, calls.signature))
    labels, label_of = shape_labels(trace)
    distinct, inverse = distinct_rows(
        gpu.device, gpu.stream, path, _modules_behind(trace, path), op, label_of[signature], gpu.name, gpu.category,
        gpu.reason, (owner.repetition > 0).astype(np.int64),
    )  # fmt: skip
    count, total = np.bincount(inverse), sums(inverse, gpu.dur, len(distinct))
    whole = max(int(total.sum()), 1)
    modules = {
        (where, behind): (
            *(trace.names[code] for code in tree.regions(where)),
            *(MODULE_FRAME + name for name in (trace.origin.modules[behind] if behind >= 0 else ())),
        )
        for where, behind in set(map(tuple, distinct[:, 2:4].tolist()))
    }
    rows = [
        BreakdownRow(
            device, stream, modules[where, behind], trace.names[name] if name >= 0 else "", labels[label],
            trace.names[kernel], trace.categories[category], int(count[row]), int(total[row]), int(total[row]) / whole,
            UNATTACHED_REASONS[reason] if reason else "", bool(repeated),
        )
        for row, (device, stream, where, behind, name, label, kernel, category, reason, repeated) in enumerate(
            distinct.tolist()
        )
    ]  # fmt: skip
    rows.sort(  # the longest first; of equal ones an order that does not depend on the file's
        key=lambda row: (-row.total_ns, row.device, row.stream, row.modules, row.op, row.shapes, row.kernel)
    )
    return Table(BreakdownRow, rows)


def _modules_behind(trace: Trace, path: IntColumn) -> IntColumn:
    """Of each GPU event that is in no module, the modules of the forward call behind it, into `Origin.modules`; else
    −1."""
    origin, tree = trace.origin, trace.attribution.hierarchy
    behind = np.append(origin.forward, -1)[origin.gpu_call]
    in_module = [False]
    for above, code in zip(tree.tree_parent.tolist()[1:], tree.tree_name.tolist()[1:], strict=True):
        in_module.append(in_module[above] or is_module(trace.names[code]))
    return np.where(np.array(in_module)[path], -1, np.append(origin.module, -1)[behind])


def stream_use(trace: Trace) -> Table[StreamUse]:
    """Time of every stream that ran something: the sum of its events and, with recorded start times, how long it was
    busy and idle."""
    window, gpu, spans = trace.span, trace.gpu, _gpu_spans(trace)
    found = Table(StreamUse)
    for device, stream, events in gpu.by_stream():
        busy = union(gpu.ts[events], gpu.end[events]).length
        total = int(gpu.dur[events].sum())
        if not trace.times_recorded:
            found.append(StreamUse(device, stream, len(events), None, None, total, None, None))
            continue
        found.append(
            StreamUse(device, stream, len(events), window.length, spans[device], total, busy, window.length - busy)
        )
    return found


def device_use(trace: Trace) -> Table[DeviceUse]:
    """Busy, idle and overlapped time of every device, and how much of the communication nothing hides; empty if start
    times were not recorded."""
    if not trace.times_recorded:
        return Table(DeviceUse)
    window, gpu, kernels = trace.span, trace.gpu, trace.is_kernel
    spans = _gpu_spans(trace)
    found = Table(DeviceUse)
    for device in distinct(gpu.device).tolist():
        mine = gpu.device == device
        busy = _busy(trace, mine)
        compute, communication = _busy(trace, mine & kernels & ~trace.is_comm), _busy(trace, mine & trace.is_comm)
        found.append(
            DeviceUse(
                device, window.length, spans[device], busy.length, window.length - busy.length,
                _overlapped(trace, mine), compute.length, _busy(trace, mine & trace.is_copy).length,
                communication.length,
                communication.length - intersection(communication, compute).length,
            )
        )  # fmt: skip
    return found


def _gpu_spans(trace: Trace) -> dict[int, int]:
    """By device, from the start of its first event to the end of its last one, ns."""
    gpu = trace.gpu
    devices = distinct(gpu.device).tolist()
    return {device: int(gpu.end[gpu.device == device].max() - gpu.ts[gpu.device == device].min()) for device in devices}


def host_use(trace: Trace) -> HostUse:
    """Span of the trace, and what of it the data loader takes."""
    calls, loaded = trace.calls, []
    rows = np.flatnonzero(calls.kind == ANNOTATION)
    rows = rows[np.argsort(calls.ts[rows], kind="stable")]
    loads, forwards = _named(trace, rows, _LOADER), _named(trace, rows, _FORWARD)
    for row in loads.tolist():
        later = forwards[(calls.thread[forwards] == calls.thread[row]) & (calls.ts[forwards] >= calls.end[row])]
        next_load = loads[(calls.thread[loads] == calls.thread[row]) & (calls.ts[loads] >= calls.end[row])]
        reach = int(calls.end[row])
        if len(later) and not (len(next_load) and calls.ts[next_load[0]] < calls.ts[later[0]]):
            reach = int(calls.ts[later[0]])
        loaded.append((int(calls.ts[row]), reach))
    loading = union(*np.array(loaded, np.int64).reshape(-1, 2).T).length
    span = trace.span.length
    runtime = int((trace.runtime.end - trace.runtime.ts).sum())
    return HostUse(span, loading, span - loading, runtime)


def iterations(trace: Trace, annotation: str | None = None) -> Table[Iteration]:
    """Iterations in order, as `Trace.steps` finds them.

    An iteration lasts as long as its annotation where that encloses it, else until the next one begins. There are none
    if start times were not recorded.

    Args:
        annotation: part of the name of the annotations that are the iterations, instead.
    """
    if not trace.times_recorded:
        return Table(Iteration)
    steps = trace.steps
    start, ends, names = steps.start, steps.end, list(steps.names)
    if annotation is not None:
        calls = trace.calls
        rows = np.flatnonzero(calls.kind == ANNOTATION)
        marked = _named(trace, rows[np.argsort(calls.ts[rows], kind="stable")], re.compile(re.escape(annotation)))
        start, ends = calls.ts[marked], calls.end[marked]
        names = [trace.names[code] for code in calls.name[marked].tolist()]
    busy = union(trace.gpu.ts, trace.gpu.end)
    spans = map(Span, start.tolist(), ends.tolist())
    found = (Iteration(name, *span, _within(busy, span)) for name, span in zip(names, spans, strict=True))
    return Table(Iteration, found)


def launched_in(trace: Trace, iterations: Sequence[Iteration]) -> IntColumn:
    """int64, for each GPU event the ordinal of the iteration in which it was launched (where that is unknown, in which
    it started), −1 for none; iterations in order of start."""
    return iteration_at(iterations, trace.launched_ns)


def iteration_at(iterations: Sequence[Iteration], ts: IntColumn) -> IntColumn:
    """int64, for each time the ordinal of the iteration that it is in, −1 for none; iterations in order of start."""
    start, end = (
        np.array([getattr(iteration, name) for iteration in iterations], np.int64) for name in ("start", "end")
    )
    return enclosing(start, end, ts)


def shape_labels(trace: Trace) -> tuple[Sequence[str], IntColumn]:
    """Distinct labels of shapes, and the label of each signature; the last entry is for the signature −1."""
    labels = StringTable([""])
    label_of = labels.codes([*(signature.label for signature in trace.signatures), ""]).astype(np.int64)
    return labels.values, label_of


def _busy(trace: Trace, chosen: npt.NDArray[np.bool_]) -> Intervals:
    return union(trace.gpu.ts[chosen], trace.gpu.end[chosen])


def _overlapped(trace: Trace, chosen: npt.NDArray[np.bool_]) -> int:
    """How long events of two streams or more ran at once."""
    gpu, events = trace.gpu, np.flatnonzero(chosen)
    of_streams = [union(gpu.ts[events[at]], gpu.end[events[at]]) for _, at in grouped(gpu.stream[events])]
    edges = np.concatenate([stream.start for stream in of_streams] + [stream.end for stream in of_streams])
    times, running = step_function(edges, np.repeat([1, -1], len(edges) // 2))
    return int(np.diff(times)[running[:-1] >= 2].sum())


def _named(trace: Trace, rows: IntColumn, pattern: re.Pattern[str]) -> IntColumn:
    """Those of the calls whose names have a pattern in them."""
    return rows[matching(trace.calls.name[rows], trace.names, pattern.search)]


def _within(busy: Intervals, span: Span) -> int:
    near = slice(np.searchsorted(busy.end, span.start), np.searchsorted(busy.start, span.end))
    start, end = np.maximum(busy.start[near], span.start), np.minimum(busy.end[near], span.end)
    return int(np.maximum(end - start, 0).sum())
