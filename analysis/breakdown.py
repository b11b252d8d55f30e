"""GPU time per device, stream, module, operator and kernel; busy, idle and overlapped time."""

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
from .table import Row, Table, TextColumn, WithMean, column, derived, inferred

_LOADER = re.compile(r"enumerate\(DataLoader\)#|DataLoader")
_FORWARD = re.compile(r"forward", re.IGNORECASE)
_MODULES = "Modules and annotations around the operator (in backward: around its forward operator), outermost first."
_GPU_SPAN = "Time from the start of the first GPU event on the device to the end of the last."
_SPANS = "'busy' is the share of the trace duration, 'of GPU' the share of the GPU span"


class BreakdownRow(WithMean, Row):
    """GPU events that have the same device, stream, modules, operator, shapes, kernel and category."""

    device: int = column("number", "Device number; −1 if not recorded.")
    stream: int = column("number", "Stream number; −1 if not recorded.")
    modules: tuple[str, ...] = inferred("name", _MODULES, joined=" / ")
    op: str = column("name", "Topmost operator that launched the events; empty if unknown.", "operator")
    shapes: str = column("name", "Shapes of the operator's inputs; empty if not recorded.")
    kernel: str = column("name", "Name of the GPU events.")
    category: str = column("name", "Kineto category: kernel, gpu_memcpy or gpu_memset.")
    count: int = column("count", "Number of GPU events.")
    total_ns: int = column("ns", "Sum of the durations of the GPU events.")
    share: float = column("share", "Share of the summed durations of all GPU events.")
    reason: str = column("text", "Reason why the launching operator is unknown; empty if it is known.", default="")
    repeated: bool = inferred("yes/no", "True if launched before the trace; its operator is inferred.", default=False)

    @property
    def label(self) -> str:
        """The operator name or, if the operator is unknown, the reason in parentheses."""
        if self.op and self.repeated:
            return f"{self.op} (by repetition)"
        return self.op or (f"(not attached: {self.reason})" if self.reason else "(launched by no operator)")


class _Busy:
    """Mix-in for rows that show the busy time as a share of the trace duration and of the GPU span."""

    busy_ns: int | None
    window_ns: int | None
    gpu_span_ns: int | None

    @derived("share", "busy")
    def busy_share(self) -> float | None:
        """Busy share of the duration of the trace; null if the duration is 0."""
        return self.busy_ns / self.window_ns if self.window_ns and self.busy_ns is not None else None

    @derived("share", "of GPU")
    def busy_share_of_gpu_span(self) -> float | None:
        """Busy share of gpu_span_ns; null if gpu_span_ns is 0."""
        return self.busy_ns / self.gpu_span_ns if self.gpu_span_ns and self.busy_ns is not None else None


class StreamUse(_Busy, Row):
    """Use of one stream during the trace. Without recorded start times, only total_ns is known."""

    device: int = column("number", "Device number.")
    stream: int = column("number", "Stream number.")
    events: int = column("count", "Number of GPU events.")
    window_ns: int | None = column("ns", "Duration of the trace.")
    gpu_span_ns: int | None = column("ns", _GPU_SPAN, "GPU span")
    total_ns: int = column("ns", "Sum of the event durations; exceeds busy_ns if events overlap.")
    busy_ns: int | None = column("ns", "Time during which at least one event runs.")
    idle_ns: int | None = column("ns", "Time during which no GPU event runs.")

    title = f"streams; {_SPANS}"
    shown = (
        TextColumn("stream", lambda row: f"device {row.device} stream {row.stream}"),
        *("events", "busy_ns", "idle_ns", "busy_share", "busy_share_of_gpu_span"),
    )


class DeviceUse(_Busy, Row):
    device: int = column("number", "Device number.")
    window_ns: int = column("ns", "Duration of the trace.")
    gpu_span_ns: int = column("ns", _GPU_SPAN, "GPU span")
    busy_ns: int = column("ns", "Time during which at least one GPU event runs on any stream.")
    idle_ns: int = column("ns", "Time during which no GPU event runs.")
    overlapped_ns: int = column("ns", "Time during which GPU events run on two or more streams.", "overlap")
    compute_ns: int = column("ns", "Time during which a compute kernel runs (not communication, not an MTIA wait).")
    copy_ns: int = column("ns", "Time during which a copy or memset runs.")
    communication_ns: int = column("ns", "Time during which a communication kernel runs.", "comm")
    exposed_communication_ns: int = column("ns", "Communication time during which no compute kernel runs.", "exposed")

    title = f"devices, ms; {_SPANS}"
    shown = (
        TextColumn("device", lambda row: str(row.device)),
        *("busy_ns", "idle_ns", "overlapped_ns", "compute_ns", "copy_ns", "communication_ns"),
        *("exposed_communication_ns", "busy_share", "busy_share_of_gpu_span"),
    )


@dataclass(frozen=True)
class HostUse:
    """CPU time of a trace; `span_ns` is the sum of `host_ns` and `loading_ns`.

    Attributes:
        loading_ns: time from the start of each data loader annotation to the next "forward" annotation, or to the end
            of the data loader annotation if no forward follows.
        runtime_ns: total duration of runtime and driver calls on all threads.
    """

    span_ns: int
    loading_ns: int
    host_ns: int
    runtime_ns: int


class Iteration(Row):
    name: str = column("name", "Name of the annotation.", "iteration")
    start: int = column("ns", "Start time on the clock of the trace.")
    end: int = column("ns", "End time on the clock of the trace.")
    gpu_ns: int = column("ns", "Time during which at least one device is busy.", "GPU busy")

    title = "iterations"
    shown = (
        *("name", "latency_ns", "gpu_ns"),
        TextColumn("busy", lambda row: row.gpu_ns / row.latency_ns if row.latency_ns else None, "share"),
    )

    @derived("ns")
    def latency_ns(self) -> int:
        """Duration of the iteration."""
        return self.end - self.start


def breakdown(trace: Trace) -> Table[BreakdownRow]:
    """Return the GPU time per device, stream, module path, operator with shapes, and kernel, longest first.

    Kernels in a replayed CUDA graph belong to the operators that launched them during capture (`Trace.attribution`).
    """
    gpu, owner = trace.gpu, trace.attribution
    calls, tree = owner.calls, owner.hierarchy
    if not len(gpu):
        return Table(BreakdownRow)
    top = np.append(tree.top, -1)[owner.call]
    path = np.append(tree.path, 0)[np.where(top >= 0, top, owner.call)] * owner.in_module
    op, signature = (np.append(column, -1)[top] for column in (calls.name, calls.signature))
    labels, label_of = shape_labels(trace)
    keys = (gpu.device, gpu.stream, path, _modules_behind(trace, path), op, label_of[signature], gpu.name, gpu.category)
    distinct, inverse = distinct_rows(*keys, gpu.reason, (owner.repetition > 0).astype(np.int64))
    count, total = np.bincount(inverse), sums(inverse, gpu.dur, len(distinct))
    whole = max(int(total.sum()), 1)
    modules = {
        (where, behind): (
            *(trace.names[code] for code in tree.regions(where)),
            *(MODULE_FRAME + name for name in (trace.origin.modules[behind] if behind >= 0 else ())),
        )
        for where, behind in set(map(tuple, distinct[:, 2:4].tolist()))
    }
    rows = []
    for row, key in enumerate(distinct.tolist()):
        device, stream, where, behind, name, label, kernel, category, reason, repeated = key
        operator = modules[where, behind], trace.names[name] if name >= 0 else "", labels[label]
        n, ns = int(count[row]), int(total[row])
        why = UNATTACHED_REASONS[reason] if reason else ""
        event = trace.names[kernel], trace.categories[category]
        rows.append(BreakdownRow(device, stream, *operator, *event, n, ns, ns / whole, why, bool(repeated)))
    # The additional keys make the order of ties independent of the file.
    rows.sort(key=lambda row: (-row.total_ns, row.device, row.stream, row.modules, row.op, row.shapes, row.kernel))
    return Table(BreakdownRow, rows)


def _modules_behind(trace: Trace, path: IntColumn) -> IntColumn:
    """Return the forward operator's index in `Origin.modules` for GPU events outside all modules; −1 for others."""
    origin, tree = trace.origin, trace.attribution.hierarchy
    behind = np.append(origin.forward, -1)[origin.gpu_call]
    in_module = [False]
    for above, code in zip(tree.tree_parent.tolist()[1:], tree.tree_name.tolist()[1:], strict=True):
        in_module.append(in_module[above] or is_module(trace.names[code]))
    return np.where(np.array(in_module)[path], -1, np.append(origin.module, -1)[behind])


def stream_use(trace: Trace) -> Table[StreamUse]:
    window, gpu, spans = trace.span, trace.gpu, _gpu_spans(trace)
    rows = Table(StreamUse)
    for device, stream, events in gpu.by_stream():
        busy = union(gpu.ts[events], gpu.end[events]).length
        total = int(gpu.dur[events].sum())
        if not trace.times_recorded:
            rows.append(StreamUse(device, stream, len(events), None, None, total, None, None))
            continue
        times = window.length, spans[device], total, busy, window.length - busy
        rows.append(StreamUse(device, stream, len(events), *times))
    return rows


def device_use(trace: Trace) -> Table[DeviceUse]:
    """Return busy, idle, overlapped and communication times per device; empty if no start times are recorded."""
    if not trace.times_recorded:
        return Table(DeviceUse)
    window, gpu, kernels = trace.span, trace.gpu, trace.is_kernel
    spans = _gpu_spans(trace)
    rows = Table(DeviceUse)
    for device in distinct(gpu.device).tolist():
        own = gpu.device == device
        busy, copying = _busy(trace, own).length, _busy(trace, own & trace.is_copy).length
        compute, communication = _busy(trace, own & kernels & ~trace.is_comm), _busy(trace, own & trace.is_comm)
        exposed = communication.length - intersection(communication, compute).length
        times = window.length, spans[device], busy, window.length - busy, _overlapped(trace, own)
        rows.append(DeviceUse(device, *times, compute.length, copying, communication.length, exposed))
    return rows


def _gpu_spans(trace: Trace) -> dict[int, int]:
    gpu = trace.gpu
    devices = distinct(gpu.device).tolist()
    return {device: int(gpu.end[gpu.device == device].max() - gpu.ts[gpu.device == device].min()) for device in devices}


def host_use(trace: Trace) -> HostUse:
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
    """Return the iterations that `Trace.steps` detects, in order; empty if no start times are recorded.

    Args:
        annotation: return the annotations that have this string in their names, instead of `Trace.steps`.
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
    pairs = zip(names, spans, strict=True)
    return Table(Iteration, (Iteration(name, *span, _within(busy, span)) for name, span in pairs))


def launched_in(trace: Trace, iterations: Sequence[Iteration]) -> IntColumn:
    """Return the index of the iteration in which each event was launched (or started, if unknown); −1 if none."""
    return iteration_at(iterations, trace.launched_ns)


def iteration_at(iterations: Sequence[Iteration], ts: IntColumn) -> IntColumn:
    """Return the index of the iteration that contains each time; −1 if none. The iterations must be sorted by start."""
    start, end = (
        np.array([getattr(iteration, name) for iteration in iterations], np.int64) for name in ("start", "end")
    )
    return enclosing(start, end, ts)


def shape_labels(trace: Trace) -> tuple[Sequence[str], IntColumn]:
    """Return the distinct shape labels, and each signature's index in them. The last index belongs to signature −1."""
    labels = StringTable([""])
    label_of = labels.codes([*(signature.label for signature in trace.signatures), ""]).astype(np.int64)
    return labels.values, label_of


def _busy(trace: Trace, chosen: npt.NDArray[np.bool_]) -> Intervals:
    return union(trace.gpu.ts[chosen], trace.gpu.end[chosen])


def _overlapped(trace: Trace, chosen: npt.NDArray[np.bool_]) -> int:
    gpu, events = trace.gpu, np.flatnonzero(chosen)
    of_streams = [union(gpu.ts[events[at]], gpu.end[events[at]]) for _, at in grouped(gpu.stream[events])]
    edges = np.concatenate([stream.start for stream in of_streams] + [stream.end for stream in of_streams])
    times, running = step_function(edges, np.repeat([1, -1], len(edges) // 2))
    return int(np.diff(times)[running[:-1] >= 2].sum())


def _named(trace: Trace, rows: IntColumn, pattern: re.Pattern[str]) -> IntColumn:
    return rows[matching(trace.calls.name[rows], trace.names, pattern.search)]


def _within(busy: Intervals, span: Span) -> int:
    near = slice(np.searchsorted(busy.end, span.start), np.searchsorted(busy.start, span.end))
    start, end = np.maximum(busy.start[near], span.start), np.minimum(busy.end[near], span.end)
    return int(np.maximum(end - start, 0).sum())
