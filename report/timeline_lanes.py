"""Build the timeline of a trace. Streams and threads are lanes that contain blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..analysis.event_relations import RELATIONS, relations_of
from ..analysis.event_work import Work
from ..schemas.kineto.event_args import launch_of, launch_values
from ..timeline.critical import CriticalChain
from ..trace.captured import CapturedOp
from ..trace.columns import IntColumn, StringTable, distinct, distinct_rows, inverse_positions, largest
from ..trace.conventions import UNATTACHED_REASONS
from ..trace.errors import ConvertError
from ..trace.index import as_column
from ..trace.intervals import sums
from ..trace.kernel_kinds import GPU_KINDS, gpu_kind
from ..trace.kinds import LINK_NAMES, PHASES
from ..trace.origin import origin_of_rows
from ..trace.printable import shortened, stream_label, thread_label
from ..trace.tables import OP
from ..trace.tensors import Signature
from ..trace.trace import Trace
from .packed import Field, LaneLayout, fields_of, pack, pack_json, tiles_of
from .timeline import chain_of, condense, load_of, nest, places_of

_HOST_KINDS = ("Operator", "Annotation and module", "Runtime call")
# Maps each kind of event to a color of the palette.
# Device and host kinds may have the same color, because they are never in the same lane.
KIND_COLORS = {
    "GEMM": 4, "Convolution": 3, "Attention": 5, "Normalization": 7, "Elementwise": 1,
    "Reduction and softmax": 8, "Communication": 2, "Copy and fill": 9, "Other kernel": 6,
    "Operator": 0, "Annotation and module": 10, "Runtime call": 9,
}  # fmt: skip
_KINDS = (*GPU_KINDS, *_HOST_KINDS)
_LANES = 40
_NAMES_LISTED = 3000
_LONGEST_NAME = 400
# A page contains tiles and details only if it has at most this many events (about 75 MB of data).
_MOST_IN_TILES = 6_000_000


@dataclass(frozen=True)
class _EventRows:
    """All GPU events of a trace, followed by all its calls and then its runtime calls.

    `lane` is the number of a stream or thread. Threads follow after all streams. `ts` counts in ns from the start of
    the trace. `name` is a name code, and `kind` is an index into `_KINDS`. For a GPU event, `op` is the name code of
    the topmost operator that launched it; −1 if unknown."""

    lane: IntColumn
    ts: IntColumn
    dur: IntColumn
    name: IntColumn
    kind: IntColumn
    op: IntColumn

    def of(self, chosen: npt.NDArray[Any]) -> _EventRows:
        return _EventRows(*(getattr(self, field)[chosen] for field in self.__dataclass_fields__))


def timeline_of(
    trace: Trace, work: Work, budget: int, chain: CriticalChain | None = None, files: int = 1
) -> dict[str, Any]:
    """Return the timeline of a trace in the format `TimelineData` of `page/src/types.d.ts`.

    Events are numbered by lane, depth and start. Tiles, details and the critical path are None if the page would exceed
    its event limit. Short calls are merged until at most `budget` blocks remain."""
    every, labels = _rows(trace)
    rows, lanes, events = _busiest(every, labels)
    depth = nest(rows.lane, rows.ts, rows.ts + rows.dur)
    deepest = np.zeros(len(lanes), np.int64)
    np.maximum.at(deepest, rows.lane, depth + 1)
    blocks = condense(rows.lane, depth, rows.ts, rows.dur, budget)
    found = _found(rows)
    tiled = len(rows.ts) * files <= _MOST_IN_TILES
    named = slice(None) if tiled else blocks.first
    used = distinct(np.concatenate([rows.name[named], rows.op[named], [row["name"] for row in found]])).astype(np.int64)
    used = used[used >= 0]
    present = distinct(rows.kind)
    name, kind = np.searchsorted(used, rows.name), np.searchsorted(present, rows.kind)
    op = np.where(rows.op >= 0, np.searchsorted(used, rows.op), -1)
    for row in found:
        row |= {"name": int(np.searchsorted(used, row["name"])), "kind": int(np.searchsorted(present, row["kind"]))}
    names, kinds = [trace.names[code] for code in used.tolist()], [_KINDS[code] for code in present.tolist()]
    shown: dict[str, Any] = {
        **{"span": trace.span.length, "resolution": blocks.resolution, "hidden": len(labels) - len(lanes)},
        "lanes": [lane | {"rows": rows} for lane, rows in zip(lanes, deepest.tolist(), strict=True)],
        "kinds": [{"name": text, "color": KIND_COLORS[text], "gpu": text in GPU_KINDS} for text in kinds],
        "names": [shortened(name, _LONGEST_NAME) for name in names],
        **{key: getattr(blocks, key) for key in ("lane", "depth", "ts", "dur", "count", "busy")},
        **{key: column[blocks.first] for key, column in (("name", name), ("kind", kind), ("op", op))},
        **{"found": found, "places": places_of(trace), "load": load_of(trace)},
        **{"tiles": None, "details": None, "path": None},
    }
    if tiled:
        layout = LaneLayout.of(rows.lane, depth, rows.ts)
        shown["tiles"] = tiles_of(layout, {"ts": rows.ts, "dur": rows.dur, "name": name, "kind": kind, "op": op})
        shown["details"] = details_of(trace, work, layout, events, names, sum(lane["gpu"] for lane in lanes))
        shown["path"] = chain_of(chain, trace, layout, events) if chain is not None else None
    return shown


def _busiest(rows: _EventRows, labels: list[dict[str, Any]]) -> tuple[_EventRows, list[dict[str, Any]], IntColumn]:
    """Return the rows in the busiest lanes (renumbered in drawing order), the lanes' labels, and the row numbers."""
    streams = sum(label["gpu"] for label in labels)
    load = np.bincount(rows.lane, weights=rows.dur, minlength=len(labels))
    busiest = np.argsort(-load, kind="stable")[:_LANES]
    shown = np.concatenate([np.sort(busiest[busiest < streams]), busiest[busiest >= streams]])
    place = inverse_positions(len(labels), shown)
    events = np.flatnonzero(place[rows.lane] >= 0)
    kept = rows.of(events)
    return replace(kept, lane=place[kept.lane]), [labels[code] for code in shown.tolist()], events


def _rows(trace: Trace) -> tuple[_EventRows, list[dict[str, Any]]]:
    gpu, calls, runtime = trace.gpu, trace.calls, trace.runtime
    pairs, stream = distinct_rows(gpu.device, gpu.stream)
    threads, thread = np.unique(np.concatenate([calls.thread, runtime.thread]), return_inverse=True)
    lane = np.concatenate([stream, len(pairs) + thread.reshape(-1)])
    ts = np.concatenate([gpu.ts, calls.ts, runtime.ts]) - trace.span.start
    end = np.concatenate([gpu.end, calls.end, runtime.end]) - trace.span.start
    owner = trace.attribution
    recorded = np.where(owner.repetition > 0, -1, owner.call)
    launcher = np.append(owner.calls.name, -1)[np.append(owner.hierarchy.top, -1)[recorded]]
    host = np.where(calls.kind == OP, 0, 1)
    kind = np.concatenate([_gpu_kinds(trace), len(GPU_KINDS) + host, np.full(len(runtime), len(GPU_KINDS) + 2)])
    name = np.concatenate([gpu.name, calls.name, runtime.name]).astype(np.int64)
    op = np.concatenate([launcher, np.full(len(calls) + len(runtime), -1)])
    count = np.bincount(lane, minlength=len(pairs) + len(threads)).tolist()
    several = len(distinct(pairs[:, 0])) > 1
    labels: list[dict[str, Any]] = []
    for events, (device, number) in zip(count, pairs.tolist(), strict=False):
        label = {"name": stream_label(device, number, several=several), "note": f"{events:,} events", "gpu": True}
        labels.append(label | {"device": device, "stream": number})
    for events, number in zip(count[len(pairs) :], threads.tolist(), strict=True):
        labels.append({"name": thread_label(number), "note": f"{events:,} calls", "gpu": False, "thread": number})
    return _EventRows(lane, ts, np.maximum(end - ts, 0), name, kind, op), labels


def _gpu_kinds(trace: Trace) -> IntColumn:
    gpu = trace.gpu
    keys, inverse = distinct_rows(gpu.name, gpu.category, trace.is_comm.astype(np.int64))
    kinds = [gpu_kind(trace.names[name], trace.categories[code], bool(comm)) for name, code, comm in keys.tolist()]
    return np.array(kinds, np.int64)[inverse]


def _found(rows: _EventRows) -> list[dict[str, int]]:
    keys, inverse = distinct_rows(rows.name, rows.kind)
    total = sums(inverse, rows.dur, len(keys))
    count = np.bincount(inverse)
    longest = largest(inverse, rows.dur, len(keys))
    listed = np.argsort(-total, kind="stable")[:_NAMES_LISTED]
    return [
        {"name": name, "kind": kind, "count": int(count[key]), "total": int(total[key])}
        | {column: int(getattr(rows, column)[longest[key]]) for column in ("ts", "dur")}
        for key, (name, kind) in zip(listed.tolist(), keys[listed].tolist(), strict=True)
    ]


_LOCAL = frozenset({"id", "correlation", "kineto_event"})
_AT, _OTHER = "at", "other"

Columns = dict[str, npt.NDArray[np.integer]]


def details_of(
    trace: Trace, work: Work, layout: LaneLayout, events: IntColumn, names: Sequence[str], gpu_lanes: int
) -> dict[str, Any]:
    """Return the details of all events on the page in the format `PackedDetails` of `page/src/types.d.ts`.

    Args:
        events: int64, the events on the page, as positions among all GPU events, calls and runtime calls.
        names: full names, indexed by the page's name codes.
        gpu_lanes: number of lanes that are streams. They come first."""
    (gpu, texts), cpu = _gpu_columns(trace, work), _cpu_columns(trace)
    fields = {"gpu": fields_of(gpu, _LOCAL), "cpu": fields_of(cpu, _LOCAL)}
    data = []
    for part in layout.parts():
        on_gpu = bool(layout.lane[part[0]] < gpu_lanes)
        columns, rows = (gpu, events[part]) if on_gpu else (cpu, events[part] - len(trace.gpu))
        chosen = {name: column[rows] for name, column in columns.items()}
        data.append(pack(fields["gpu" if on_gpu else "cpu"], chosen))
    source, target, kind = relations_of(trace)
    number = layout.numbers_among(events, len(trace.gpu) + len(trace.calls) + len(trace.runtime))
    source, target = number[source], number[target]
    link_fields = [Field("kind", 1), Field(_AT, 2, True), Field(_OTHER, 4, True)]
    return {
        "relations": RELATIONS,
        **{side: [asdict(field) for field in form] for side, form in fields.items()},
        "links": [asdict(field) for field in link_fields],
        "data": data,
        "sources": _links(link_fields, layout.starts, target, source, kind),
        "targets": _links(link_fields, layout.starts, source, target, kind),
        "texts": pack_json({"names": names} | texts | _texts(trace)),
    }


def _gpu_columns(trace: Trace, work: Work) -> tuple[Columns, dict[str, Any]]:
    gpu, row = trace.gpu, trace.gpu.source
    delay = np.maximum(gpu.ts - np.append(trace.runtime.end, 0)[gpu.runtime], 0)
    unattached = _unattached_rows(trace)
    correlation = np.append(trace.nodes.correlation, -1)[row]
    correlation[row < 0] = trace.unattached.correlation[unattached]
    config, configs = _launch_configs(trace, unattached)
    comms = np.array(sorted(gpu.comm), np.int64)
    comm = inverse_positions(len(gpu), comms)
    captured = distinct(gpu.captured_by[gpu.captured_by >= 0])
    repeated, operators = _repeated(trace)
    columns = {
        "id": np.append(trace.nodes.id, -1)[row],
        "kineto_event": np.append(trace.nodes.kineto_event, -1)[row],
        "correlation": correlation,
        "category": gpu.category,
        "delay": np.where(gpu.runtime >= 0, delay, -1),
        "flops": work.flops,
        "bytes": work.bytes,
        "most_bytes": work.most_bytes,
        "dtype": work.dtype,
        "config": config,
        "comm": comm,
        "captured": np.where(gpu.captured_by >= 0, np.searchsorted(captured, gpu.captured_by), -1),
        "captured_link": gpu.captured_link,
        "replay": gpu.graph_replay,
        "generated": np.append(trace.generated_of_call, -1)[gpu.call],
        "reason": gpu.reason,
        "repeated": repeated,
        "link": np.append(trace.nodes.link[trace.calls.source], 0)[gpu.call],
        "step": trace.step_of_event,
        "phase": trace.origin.gpu_phase,
        "module": trace.origin.gpu_module,
        "entry": trace.origin.gpu_entry,
    }
    shown = ("name", "kind", "shapes", "dtypes", "modules")
    ops = [CapturedOp(trace, op, 0) for op in captured.tolist()]
    texts = {
        "categories": trace.categories,
        "dtypes": work.dtypes,
        "configs": list(map(launch_values, configs)),
        "comms": [msgspec.to_builtins(gpu.comm[event]) for event in comms.tolist()],
        "captured": [{key: getattr(op, key) for key in shown} for op in ops],
        "repeated": operators,
    }
    return columns, texts


def _repeated(trace: Trace) -> tuple[IntColumn, list[str]]:
    """Return a name code per GPU event, and the names. The code is −1 unless only repetition shows the operator."""
    owner, labels = trace.attribution, StringTable()
    code = np.full(len(trace.gpu), -1, np.int64)
    for event in np.flatnonzero(owner.repetition > 0).tolist():
        call = int(owner.call[event])
        signature = int(owner.calls.signature[call])
        shapes = trace.signatures[signature].label if signature >= 0 else ""
        code[event] = labels.codes([f"{trace.names[owner.calls.name[call]]} {shapes}".rstrip()])[0]
    return code, labels.values


def _cpu_columns(trace: Trace) -> Columns:
    calls, runtime, origin = trace.calls, trace.runtime, origin_of_rows(trace)
    row = np.concatenate([calls.source, runtime.source])
    none, zero = np.full(len(runtime), -1, np.int64), np.zeros(len(runtime), np.int64)
    launched = trace.gpu.call >= 0
    direct = sums(trace.gpu.call[launched], np.ones(np.count_nonzero(launched), np.int64), len(calls))
    events = trace.call_tree.totals(calls.parent, as_column(direct))
    started = trace.gpu.runtime[trace.gpu.runtime >= 0]
    return {
        "id": trace.nodes.id[row],
        "kineto_event": trace.nodes.kineto_event[row],
        "correlation": np.concatenate([np.full(len(calls), -1), trace.nodes.correlation[runtime.source]]),
        "self_ns": np.concatenate([trace.self_ns, runtime.end - runtime.ts]),
        "device_ns": np.concatenate([trace.device_ns, zero]),
        "device_events": np.concatenate([events, np.bincount(started, minlength=len(runtime))[: len(runtime)]]),
        "signature": np.concatenate([calls.signature, none]),
        "path": np.concatenate([trace.hierarchy.path, none]),
        "generated": np.concatenate([trace.generated_of_call, none]),
        "link": np.concatenate([trace.nodes.link[calls.source], none]),
        "seq": np.concatenate([trace.nodes.seq_id[calls.source], none]),
        "step": np.concatenate([trace.step_of_call, trace.steps.of(runtime.ts, runtime.thread)]),
        "phase": origin.phase[row],
        "module": origin.module[row],
        "entry": origin.entry[row],
    }


def _unattached_rows(trace: Trace) -> IntColumn:
    events, gpu = trace.unattached, trace.gpu
    columns = (events.ts, events.dur, events.device, events.stream)
    place = {key: at for at, key in enumerate(zip(*(column.tolist() for column in columns), strict=True))}
    lacking = np.flatnonzero(gpu.source < 0)
    keys = zip(*(column[lacking].tolist() for column in (gpu.ts, gpu.dur, gpu.device, gpu.stream)), strict=True)
    return np.array([place[key] for key in keys], np.int64)


def _links(fields: list[Field], starts: IntColumn, own: IntColumn, other: IntColumn, kind: IntColumn) -> dict[str, Any]:
    here = np.flatnonzero(own >= 0)
    tile = np.searchsorted(starts, own[here], side="right") - 1
    order = np.lexsort((other[here], own[here], kind[here], tile))
    here, tile = here[order], tile[order]
    bounds = np.searchsorted(tile, np.arange(len(starts) + 1))
    columns = {"kind": kind[here], _AT: own[here] - starts[tile], _OTHER: other[here]}
    parts = [slice(*bound) for bound in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
    data = [pack(fields, {name: column[part] for name, column in columns.items()}) for part in parts]
    return {"count": np.diff(bounds), "data": data}


def _launch_configs(trace: Trace, unattached: IntColumn) -> tuple[IntColumn, list[bytes]]:
    row, table = trace.gpu.source, StringTable()
    which, texts = trace.texts.launch_args(row[row >= 0])
    found = np.empty(len(row), np.int64)
    found[row >= 0] = table.codes(list(texts))[which]
    found[row < 0] = table.codes([launch_of(b'{"args": %b}' % trace.unattached.args[at]) for at in unattached.tolist()])
    return np.where(found == table.code(b"{}"), -1, found), table.values


def _texts(trace: Trace) -> dict[str, Any]:
    tree, captured = trace.hierarchy, trace.captured
    return {
        "replays": msgspec.to_builtins(captured.replays) if captured is not None else [],
        "graphs": msgspec.to_builtins(captured.graphs) if captured is not None else [],
        "generated": _generated(trace),
        "signatures": [_signature(signature) for signature in trace.signatures],
        "path_parents": tree.tree_parent,
        "path_names": [trace.names[code] if code >= 0 else "" for code in tree.tree_name.tolist()],
        "links": LINK_NAMES,
        "reasons": ["", *UNATTACHED_REASONS[1:]],
        "steps": trace.steps.names,
        "phases": PHASES,
        "modules": [" / ".join(path) for path in trace.origin.modules],
        "stacks": _stacks(trace),
        "evidence": _evidence(trace),
    }


def _generated(trace: Trace) -> list[dict[str, Any]]:
    generated, told = trace.generated, trace.stacks.stated(trace.generated.row)
    row = dict(zip(generated.kernel[told].tolist(), generated.row[told].tolist(), strict=True))
    shown = []
    for code, kernel in enumerate(generated.kernels):
        entries = trace.stacks.entries(row[code]) if code in row else []
        sources = map(trace.stacks.source, entries)
        lines = dict.fromkeys(str(line) for line in sources if line is not None)
        shown.append({**msgspec.to_builtins(kernel), "lines": list(lines)})
    return shown


def _stacks(trace: Trace) -> dict[str, Any] | None:
    stacks, table = trace.stacks, trace.source_table
    if not len(stacks):
        return None
    names = [shortened(name, _LONGEST_NAME) for name in stacks.names]
    columns = {"above": stacks.above, "name": stacks.name, "line": table.of_entry}
    places = [line.file_line for line in table.lines]
    return {"names": names, "lines": list(map(str, table.lines)), "places": places, **columns}


def _signature(signature: Signature) -> dict[str, Any]:
    inputs, outputs = signature.tensors, signature.outputs
    return {
        "shapes": [tensor.shape for tensor in inputs],
        "dtypes": [tensor.dtype for tensor in inputs],
        "outputs": outputs and [tensor.shape for tensor in outputs],
        "output_dtypes": outputs and [tensor.dtype for tensor in outputs],
    }


def _evidence(trace: Trace) -> dict[str, Sequence[str]]:
    try:
        report = trace.report if trace.outputs_recorded else None
    except ConvertError:
        report = None
    if report is None:
        return {}
    method = [f"linked by {report.method}"] if report.method else []
    proves = [evidence.says for evidence in report.identity.proves] if report.identity is not None else []
    doubts = report.identity.doubts if report.identity is not None else []
    notes = report.windows.get("notes")
    notes = [str(note) for note in notes] if isinstance(notes, list) else []
    return {"certain": [*method, *proves], "unverified": [*method, *doubts, *notes]}
