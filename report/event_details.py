"""Details of the events of a page: columns for each tile of the timeline, relations, and the texts they refer to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import structs

from ..analysis.relations import RELATIONS, relations_of
from ..analysis.roofline import Work
from ..trace.captured import CapturedOp
from ..trace.columns import IntColumn, StringTable
from ..trace.conventions import UNATTACHED_REASONS
from ..trace.errors import UNREADABLE, ConvertError
from ..trace.index import as_column
from ..trace.intervals import sums
from ..trace.kinds import LINK_NAMES
from ..trace.tensors import Signature
from ..trace.trace import Trace
from .packed import Field, fields_of, pack, pack_json
from .tiles import Layout

__all__ = ["LAUNCH_ARGS", "details_of"]

LAUNCH_ARGS = (
    "grid", "block", "context", "registers per thread", "shared memory", "blocks per SM", "warps per SM",
    "est. achieved occupancy %",
)  # fmt: skip
"""What the page shows of the arguments that Kineto writes on device events."""
_LOCAL = frozenset({"id", "correlation", "kineto_event"})
"""Columns whose neighbours are alike."""
_AT, _OTHER = "at", "other"
_BATCH = 65_536

Columns = dict[str, npt.NDArray[np.integer]]


def details_of(
    trace: Trace, work: Work, layout: Layout, events: IntColumn, names: Sequence[str], gpu_lanes: int
) -> dict[str, Any]:
    """Details of all events that are laid out.

    Args:
        trace: whose GPU events, calls and runtime calls, in this order, are the events.
        work: of its GPU events.
        layout: of the events that are on the page. events: int64, which ones these are.
        names: of the page, in full.
        gpu_lanes: lanes below this number are streams.

    Returns:
        `relations`, names of their kinds; `gpu`, `cpu` and `links`, the forms of columns (see `Field`): of events in
        streams, of others, and of relations; `data`, a block a tile (see `pack`) of its events' columns; `sources` and
        `targets`, a tile each, the number of relations in which its events are targets and sources, and a block of
        them: kind, the event's position in the tile, and the other event's number (−1 if it is not on the page);
        `texts`, a block of JSON with the texts that columns refer to.
    """
    texts = _Texts(trace, work, names)
    gpu, cpu = _gpu_columns(trace, work, texts), _cpu_columns(trace, texts)
    fields = {"gpu": fields_of(gpu, _LOCAL), "cpu": fields_of(cpu, _LOCAL)}
    data = []
    for part in layout.parts():
        on_gpu = bool(layout.lane[part[0]] < gpu_lanes)
        columns, rows = (gpu, events[part]) if on_gpu else (cpu, events[part] - len(trace.gpu))
        chosen = {name: column[rows] for name, column in columns.items()}
        data.append(pack(fields["gpu" if on_gpu else "cpu"], chosen))
    found = relations_of(trace)
    number = layout.numbers_among(events, len(trace.gpu) + len(trace.calls) + len(trace.runtime))
    source, target = number[found.source], number[found.target]
    link_fields = [Field("kind", 1), Field(_AT, 2, True), Field(_OTHER, 4, True)]
    return {
        "relations": RELATIONS,
        **{side: [asdict(field) for field in form] for side, form in fields.items()},
        "links": [asdict(field) for field in link_fields],
        "data": data,
        "sources": _links(link_fields, layout.starts, target, source, found.kind),
        "targets": _links(link_fields, layout.starts, source, target, found.kind),
        "texts": pack_json(texts.plain()),
    }


def _gpu_columns(trace: Trace, work: Work, texts: _Texts) -> Columns:
    gpu, row = trace.gpu, trace.gpu.source
    delay = np.maximum(gpu.ts - np.append(trace.runtime.end, 0)[gpu.runtime], 0)
    unattached = _unattached_rows(trace)
    correlation = np.append(trace.correlation, -1)[row]
    correlation[row < 0] = trace.unattached.correlation[unattached]
    return {
        "id": np.append(trace.id, -1)[row],
        "kineto_event": np.append(trace.kineto_event, -1)[row],
        "correlation": correlation,
        "category": gpu.category,
        "delay": np.where(gpu.runtime >= 0, delay, -1),
        "flops": work.flops,
        "bytes": work.bytes,
        "dtype": work.dtype,
        "config": texts.configs_of(trace, unattached),
        "comm": texts.comms_of(trace),
        "captured": texts.captured_of(trace),
        "captured_link": gpu.captured_link,
        "replay": gpu.graph_replay,
        "reason": gpu.reason,
        "link": np.append(trace.link[trace.calls.source], 0)[gpu.call],
        "step": trace.step_of_event,
    }


def _cpu_columns(trace: Trace, texts: _Texts) -> Columns:
    """Columns of the calls, then of the runtime calls."""
    calls, runtime = trace.calls, trace.runtime
    row = np.concatenate([calls.source, runtime.source])
    none, zero = np.full(len(runtime), -1, np.int64), np.zeros(len(runtime), np.int64)
    launched = trace.gpu.call >= 0
    direct = sums(trace.gpu.call[launched], np.ones(np.count_nonzero(launched), np.int64), len(calls))
    events = trace.call_tree.totals(calls.parent, as_column(direct))
    started = trace.gpu.runtime[trace.gpu.runtime >= 0]
    return {
        "id": trace.id[row],
        "kineto_event": trace.kineto_event[row],
        "correlation": np.concatenate([np.full(len(calls), -1), trace.correlation[runtime.source]]),
        "self_ns": np.concatenate([trace.self_ns, runtime.end - runtime.ts]),
        "device_ns": np.concatenate([trace.device_ns, zero]),
        "device_events": np.concatenate([events, np.bincount(started, minlength=len(runtime))[: len(runtime)]]),
        "signature": np.concatenate([calls.signature, none]),
        "path": np.concatenate([trace.hierarchy.path, none]),
        "link": np.concatenate([trace.link[calls.source], none]),
        "seq": np.concatenate([trace.seq_id[calls.source], none]),
        "step": trace.steps.of(np.concatenate([calls.ts, runtime.ts])),
    }


def _unattached_rows(trace: Trace) -> IntColumn:
    """Of each GPU event without a row its position in `trace.unattached`."""
    events, gpu = trace.unattached, trace.gpu
    columns = (events.ts, events.dur, events.device, events.stream)
    place = {key: at for at, key in enumerate(zip(*(one.tolist() for one in columns), strict=True))}
    lacking = np.flatnonzero(gpu.source < 0)
    keys = zip(*(one[lacking].tolist() for one in (gpu.ts, gpu.dur, gpu.device, gpu.stream)), strict=True)
    return np.array([place[key] for key in keys], np.int64)


def _links(fields: list[Field], starts: IntColumn, own: IntColumn, other: IntColumn, kind: IntColumn) -> dict[str, Any]:
    """Relations by the tile of one of their two events: how many, and a block of kind, position and other event."""
    here = np.flatnonzero(own >= 0)
    tile = np.searchsorted(starts, own[here], side="right") - 1
    order = np.lexsort((other[here], own[here], kind[here], tile))
    here, tile = here[order], tile[order]
    bounds = np.searchsorted(tile, np.arange(len(starts) + 1))
    columns = {"kind": kind[here], _AT: own[here] - starts[tile], _OTHER: other[here]}
    parts = [slice(*bound) for bound in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
    data = [pack(fields, {name: column[part] for name, column in columns.items()}) for part in parts]
    return {"count": np.diff(bounds), "data": data}


class _Texts:
    """What columns of details refer to by code."""

    def __init__(self, trace: Trace, work: Work, names: Sequence[str]) -> None:
        self._trace, self._dtypes, self._names = trace, work.dtypes, names
        self._configs = StringTable()
        self._comms: list[Any] = []
        self._captured: list[Any] = []

    def plain(self) -> dict[str, Any]:
        """JSON-ready."""
        trace = self._trace
        tree = trace.hierarchy
        return {
            "names": self._names,
            "categories": trace.categories,
            "dtypes": self._dtypes,
            "configs": [dict(zip(LAUNCH_ARGS, map(_value, key), strict=True)) for key in self._configs.values],
            "comms": self._comms,
            "captured": self._captured,
            "replays": msgspec.to_builtins(trace.captured.replays) if trace.captured is not None else [],
            "graphs": msgspec.to_builtins(trace.captured.graphs) if trace.captured is not None else [],
            "signatures": [_signature(one) for one in trace.signatures],
            "path_parents": tree.tree_parent,
            "path_names": [trace.names[code] if code >= 0 else "" for code in tree.tree_name.tolist()],
            "links": LINK_NAMES,
            "reasons": ["", *UNATTACHED_REASONS[1:]],
            "steps": trace.steps.names,
            "evidence": _evidence(trace),
        }

    def configs_of(self, trace: Trace, unattached: IntColumn) -> IntColumn:
        """Code of the launch arguments of each GPU event, −1 where none are recorded."""
        row = trace.gpu.source
        found = np.full(len(row), -1, np.int64)
        attached = np.flatnonzero(row >= 0)
        for at in range(0, len(attached), _BATCH):
            part = attached[at : at + _BATCH]
            found[part] = self._codes([_launch_args(text) for text in trace.texts.texts(row[part])])
        args = [b'{"args": %b}' % trace.unattached.args[at] for at in unattached.tolist()]
        found[row < 0] = self._codes([_launch_args(text) for text in args])
        return found

    def _codes(self, keys: list[tuple[bytes, ...]]) -> IntColumn:
        codes = self._configs.codes(keys).astype(np.int64)
        codes[[not any(key) for key in keys]] = -1
        return codes

    def comms_of(self, trace: Trace) -> IntColumn:
        """Code of what each GPU event communicates, −1 for none."""
        found = np.full(len(trace.gpu), -1, np.int64)
        for code, (event, comm) in enumerate(sorted(trace.gpu.comm.items())):
            found[event] = code
            self._comms.append(msgspec.to_builtins(comm))
        return found

    def captured_of(self, trace: Trace) -> IntColumn:
        """Code of the captured call of each GPU event, −1 for none."""
        by = trace.gpu.captured_by
        ops = np.unique(by[by >= 0])
        for op in ops.tolist():
            one = CapturedOp(trace, op, 0)
            self._captured.append({
                "name": one.name, "kind": one.kind, "shapes": one.shapes, "dtypes": one.dtypes, "modules": one.modules,
            })  # fmt: skip
        return np.where(by >= 0, np.searchsorted(ops, by), -1)


_NAMES = [f"value{at}" for at in range(len(LAUNCH_ARGS))]
_Args = msgspec.defstruct(
    "_Args", [(name, msgspec.Raw, msgspec.Raw(b"")) for name in _NAMES],
    rename=dict(zip(_NAMES, LAUNCH_ARGS, strict=True)), gc=False,
)  # fmt: skip
_decode = msgspec.json.Decoder(
    msgspec.defstruct("_Node", [("args", _Args, msgspec.field(default_factory=_Args))], gc=False)
).decode


def _launch_args(text: bytes) -> tuple[bytes, ...]:
    """The values of `LAUNCH_ARGS` in a record, undecoded; b"" for those that it lacks."""
    try:
        (args,) = structs.astuple(_decode(text))
    except UNREADABLE:
        return (b"",) * len(LAUNCH_ARGS)
    return tuple(map(bytes, structs.astuple(args)))


def _value(text: bytes) -> Any:
    return msgspec.json.decode(text) if text else None


def _signature(signature: Signature) -> dict[str, Any]:
    inputs, outputs = signature.tensors, signature.outputs
    return {
        "shapes": [tensor.shape for tensor in inputs],
        "dtypes": [tensor.dtype for tensor in inputs],
        "outputs": outputs and [tensor.shape for tensor in outputs],
        "output_dtypes": outputs and [tensor.dtype for tensor in outputs],
    }


def _evidence(trace: Trace) -> dict[str, Sequence[str]]:
    """By link label, sentences on what it rests on."""
    try:
        report = trace.report if trace.outputs_recorded else None
    except ConvertError:
        report = None
    if report is None:
        return {}
    method = [f"linked by {report.method}"] if report.method else []
    proves = [one.says for one in report.identity.proves] if report.identity is not None else []
    doubts = report.identity.doubts if report.identity is not None else []
    notes = report.windows.get("notes")
    notes = [str(one) for one in notes] if isinstance(notes, list) else []
    return {"certain": [*method, *proves], "equivalent": [*method, *doubts, *notes]}
