"""Kineto traces (Chrome trace JSON of the PyTorch profiler): an event table of numpy columns, args left undecoded.

Both generations are read: 2022-23 files with integer µs since the epoch, and 2024+ files with µs to three decimals
relative to `baseTimeNanoseconds`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from .errors import TraceFormatError
from .files import Source, load
from .records import UNREADABLE, IntColumn, StringTable, exact_ns, int_column, locate, parse_records
from .recover import Loss
from .tolerant import Document, read_tolerantly

__all__ = [
    "CPU_CATEGORIES",
    "GPU_CATEGORIES",
    "PYTHON_CATEGORY",
    "EventTable",
    "FlowTable",
    "KinetoTrace",
    "is_runtime",
    "read_kineto",
]

CPU_CATEGORIES = frozenset({"cpu_op", "user_annotation"})
"""Categories of the calls that the ET has as nodes."""
GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
"""Categories of work on a device."""
PYTHON_CATEGORY = "python_function"
"""Never needed for linking, and most of a file recorded with_stack."""
_MODULE = "nn.Module: "
"""How the names of Python calls begin that are a module's forward."""

_EXACT_US = 2.0**43
"""Below this many µs a double with three decimals rounds to the right ns (half an ulp is under 0.5 ns)."""
_MAX_NS = 2.0**62
_NO_ARGS = b"{}"

Codes = npt.NDArray[np.int32]


def is_runtime(category: str) -> bool:
    """Whether events of a category are calls into a device runtime or driver (launches, copies, synchronisation)."""
    return category.endswith(("_runtime", "_driver")) or category.startswith("hip")


class _Args(msgspec.Struct, gc=False, frozen=True):
    correlation: Any = -1
    external_id: Any = msgspec.field(default=-1, name="External id")
    rf_id: Any = msgspec.field(default=-1, name="Record function id")
    seq: Any = msgspec.field(default=-1, name="Sequence number")
    stream: Any = -1
    device: Any = -1


_CPU_ARGS = {"external_id": -1, "rf_id": -1, "seq": -1}
_OTHER_ARGS = {"external_id": -1, "correlation": -1, "stream": -1, "device": -1}
"""The arguments that events of CPU ops and annotations, and those of all others, can have; with the value for none."""
_NO_ARG_VALUES = _Args()


class _Event(msgspec.Struct, gc=False):
    """Fields in the order in which they are written, which decodes fastest."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = -1
    tid: int | str = -1
    ts: int | float = 0
    dur: int | float = 0
    args: msgspec.Raw = msgspec.Raw(_NO_ARGS)
    id: int | str = -1


class _ExactEvent(_Event, gc=False):
    """The same with the decimals of the times kept: epoch µs with a fraction do not fit a double."""

    ts: Decimal = Decimal(0)  # type: ignore[assignment]
    dur: Decimal = Decimal(0)  # type: ignore[assignment]


_decode_events = msgspec.json.Decoder(list[_Event]).decode
_decode_exact_events = msgspec.json.Decoder(list[_ExactEvent]).decode
_decode_args = msgspec.json.Decoder(list[_Args | None]).decode


@dataclass(frozen=True)
class EventTable:
    """Duration events (ph "X") in file order; every array has one entry an event.

    Attributes:
        index: int64, position in the file's `traceEvents`.
        ts, dur: int64 ns; ts relative to `KinetoTrace.base_time_ns`; dur is −1 or less for an unfinished call.
        category, name: int32 codes into `categories`, `names`.
        thread: int32 code into `threads`, the distinct (pid, tid) pairs.
        correlation, external_id, seq: int64, −1 for none.
        rf_id: int64 `Record function id`; 0 if the ET observer was off, −1 for none.
        stream, device: int64, −1 for none or not a number.
    """

    index: IntColumn
    ts: IntColumn
    dur: IntColumn
    category: Codes
    name: Codes
    thread: Codes
    correlation: IntColumn
    external_id: IntColumn
    rf_id: IntColumn
    seq: IntColumn
    stream: IntColumn
    device: IntColumn
    categories: list[str]
    names: list[str]
    threads: list[tuple[int | str, int | str]]
    _args: tuple[bytes, IntColumn]

    def __len__(self) -> int:
        return len(self.index)

    @property
    def end(self) -> IntColumn:
        """int64 ns, ts + dur; an unfinished event ends where it starts."""
        end: IntColumn = self.ts + np.maximum(self.dur, 0)
        return end

    def args(self, row: int) -> bytes:
        """The undecoded JSON text of an event's `args`."""
        blob, offset = self._args
        return blob[offset[row] : offset[row + 1] - 1]

    def rows(self, *categories: str) -> IntColumn:
        """Rows of the given categories, in file order."""
        return np.flatnonzero(self.mask(frozenset(categories)))

    def mask(self, categories: frozenset[str]) -> npt.NDArray[np.bool_]:
        """Which events are of one of the categories."""
        wanted = np.array([c in categories for c in self.categories], np.bool_)
        return wanted[self.category] if len(self) else np.zeros(0, np.bool_)

    def runtime_mask(self) -> npt.NDArray[np.bool_]:
        """Which events are runtime or driver calls."""
        return self.mask(frozenset(filter(is_runtime, self.categories)))


@dataclass(frozen=True)
class FlowTable:
    """Flow events (ph "s" and "f") in file order.

    Attributes:
        start: bool, True for "s".
        category: int32 code into `EventTable.categories` ("ac2g", "fwdbwd", …).
        id: int64, −1 for none; equals the correlation for "ac2g".
        ts: int64 ns.
        thread: int32 code into `EventTable.threads`.
    """

    start: npt.NDArray[np.bool_]
    category: Codes
    id: IntColumn
    ts: IntColumn
    thread: Codes


@dataclass(frozen=True)
class KinetoTrace:
    """A Kineto trace.

    Attributes:
        file: name for messages.
        header: every top-level key but `traceEvents`, undecoded.
        base_time_ns: `baseTimeNanoseconds`; 0 where the file has none and times are since the epoch.
        event_count: length of `traceEvents`.
        losses: what a tolerant reading of a broken file repaired or lost; () for a sound file.
    """

    file: str
    header: dict[str, msgspec.Raw]
    base_time_ns: int
    event_count: int
    events: EventTable
    flows: FlowTable
    losses: tuple[Loss, ...] = ()

    def header_value(self, key: str) -> Any:
        """A decoded header field, None if there is none that can be read."""
        with contextlib.suppress(KeyError, *UNREADABLE):
            return msgspec.json.decode(self.header[key])
        return None

    @property
    def modern(self) -> bool:
        """Whether a GPU event's `External id` is that of the op that launched it (files since 2024)."""
        return "baseTimeNanoseconds" in self.header


def read_kineto(source: Source, *, strict: bool = False, progress: bool = False, modules: bool = False) -> KinetoTrace:
    """Read a Kineto trace of any generation, gzipped or not, in one pass.

    Python calls are left out.

    Args:
        source: path, "-", bytes or binary file object.
        strict: refuse a broken file instead of recovering what can be read.
        progress: show a bar for reading that takes over two seconds.
        modules: keep the Python calls "nn.Module: …" of a trace recorded with_stack.

    Raises:
        TraceFormatError: not a Kineto trace, or broken beyond (or, if strict, before) recovery.
    """
    read = partial(_read, modules=modules)
    return read_tolerantly(load(source, progress=progress), "traceEvents", read, strict=strict, progress=progress)


def _read(document: Document, modules: bool) -> KinetoTrace:
    array = locate(document.data, "traceEvents")
    if array is not None and not document.lenient:
        with contextlib.suppress(*UNREADABLE):  # a broken event, or an odd layout: the parser tells
            data, blocks = document.data, array.blocks(document.task, document.progress)
            arrays = (b"[" + data[a:b] + b"]" for a, b in blocks)
            return _build(document, array.header, arrays, modules)
    header, records, _ = parse_records(document.data, "traceEvents")
    texts = _well_formed(records.texts, document) if document.lenient else records.texts
    return _build(document, header, [b"[" + b",".join(texts) + b"]"], modules)


def _well_formed(texts: list[bytes], document: Document) -> list[bytes]:
    """The texts with each event of the wrong form replaced by an empty one, so that indices stay."""
    decode, decode_args = msgspec.json.Decoder(_Event).decode, msgspec.json.Decoder(_Args | None).decode
    kept = []
    for text in texts:
        try:
            event = decode(text)
            decode_args(event.args)
            _times([event])
            kept.append(text)
        except UNREADABLE as error:
            document.dropped.add(error)
            kept.append(b"{}")
    return kept


def _build(document: Document, header: dict[str, msgspec.Raw], blocks: Iterable[bytes], modules: bool) -> KinetoTrace:
    builder = _Builder(modules)
    for block in blocks:
        builder.add(block)
    if not builder.count:
        raise TraceFormatError(document.name, "", "the trace has no events", "record it again with the profiler active")
    base = msgspec.json.decode(header["baseTimeNanoseconds"]) if "baseTimeNanoseconds" in header else 0
    return KinetoTrace(
        file=document.name,
        header={key: msgspec.Raw(bytes(value)) for key, value in header.items()},
        base_time_ns=base if type(base) is int else 0,
        event_count=builder.count,
        events=builder.event_table(),
        flows=builder.flow_table(),
        losses=document.all_losses(),
    )


class _Builder:
    """Gathers columns block by block, so that no block's Python objects outlive it."""

    def __init__(self, modules: bool) -> None:
        self.modules = modules
        self.categories, self.names, self.threads = StringTable(), StringTable(), StringTable()
        self.pids, self.tids = StringTable(), StringTable()
        self.columns: dict[str, list[npt.NDArray[Any]]] = {}
        self.flow_columns: dict[str, list[npt.NDArray[Any]]] = {}
        self.args: list[bytes] = []
        self.args_size = 0
        self.count = 0

    def add(self, text: bytes) -> None:
        """Take a block, the text of a JSON array of events."""
        decoded: list[Any] = _decode_events(text)
        ts = [e.ts for e in decoded]
        if ts and max(ts) >= _EXACT_US and float in set(map(type, ts)):
            decoded = _decode_exact_events(text)
        rows = [i for i, e in enumerate(decoded) if e.ph == "X" and (e.cat != PYTHON_CATEGORY or self._is_module(e))]
        self._add_events([decoded[i] for i in rows], np.array(rows, np.int64) + self.count)
        self._add_flows([e for e in decoded if e.ph == "s" or (e.ph == "f" and e.cat != "ac2g")])
        self.count += len(decoded)

    def _is_module(self, event: Any) -> bool:
        return self.modules and event.name.startswith(_MODULE)

    def _add_events(self, events: list[Any], index: IntColumn) -> None:
        texts: list[Any] = [e.args for e in events]  # a Raw is a buffer, as bytes are
        joined = b",".join(texts)
        args = [a or _NO_ARG_VALUES for a in _decode_args(b"[" + joined + b"]")]
        lengths = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
        columns: dict[str, npt.NDArray[Any]] = {
            "index": index,
            **_times(events),
            "category": self.categories.codes([e.cat for e in events]),
            "name": self.names.codes([e.name for e in events]),
            "thread": self._thread_codes(events),
            "offset": self.args_size + np.cumsum(lengths) - lengths,
        }
        columns.update(self._arg_columns(args, columns["category"]))
        if texts:
            self.args.append(joined + b",")
            self.args_size += len(joined) + 1
        _append(self.columns, columns)

    def _arg_columns(self, args: list[_Args], category: Codes) -> dict[str, IntColumn]:
        """The columns of `_CPU_ARGS` and `_OTHER_ARGS`, each looked up only in the events that can have it."""
        on_cpu = (
            np.array([name in CPU_CATEGORIES for name in self.categories.values], np.bool_)[category]
            if args
            else np.zeros(0, np.bool_)
        )
        columns: dict[str, IntColumn] = {
            name: np.full(len(args), none, np.int64) for name, none in (_CPU_ARGS | _OTHER_ARGS).items()
        }
        for members, wanted in ((on_cpu, _CPU_ARGS), (~on_cpu, _OTHER_ARGS)):
            rows = np.flatnonzero(members)
            mine = [args[i] for i in rows.tolist()]
            for name, none in wanted.items():
                columns[name][rows] = int_column(list(map(attrgetter(name), mine)), none)
        return columns

    def _thread_codes(self, events: list[Any]) -> Codes:
        """Codes of the (pid, tid) pairs, made from codes of either so that no pair is made per event."""
        pid, tid = self.pids.codes([e.pid for e in events]), self.tids.codes([e.tid for e in events])
        pairs, first, back = np.unique(pid.astype(np.int64) << 32 | tid, return_index=True, return_inverse=True)
        order = np.argsort(first)
        codes = np.empty(len(pairs), np.int32)
        codes[order] = self.threads.codes([(events[i].pid, events[i].tid) for i in first[order].tolist()])
        return codes[back]

    def _add_flows(self, events: list[Any]) -> None:
        columns: dict[str, npt.NDArray[Any]] = {
            "start": np.fromiter([e.ph == "s" for e in events], np.bool_, len(events)),
            "category": self.categories.codes([e.cat for e in events]),
            "id": int_column([e.id for e in events], -1),
            "ts": _nanoseconds([e.ts for e in events]),
            "thread": self._thread_codes(events),
        }
        _append(self.flow_columns, columns)

    def event_table(self) -> EventTable:
        columns = {key: np.concatenate(parts) for key, parts in self.columns.items()}
        offset = np.append(columns.pop("offset"), self.args_size)
        return EventTable(
            **columns, categories=self.categories.values, names=self.names.values, threads=self.threads.values,
            _args=(b"".join(self.args), offset),
        )  # fmt: skip

    def flow_table(self) -> FlowTable:
        return FlowTable(**{key: np.concatenate(parts) for key, parts in self.flow_columns.items()})


def _append(columns: dict[str, list[npt.NDArray[Any]]], block: dict[str, npt.NDArray[Any]]) -> None:
    for key, column in block.items():
        columns.setdefault(key, []).append(column)


def _times(events: list[Any]) -> dict[str, IntColumn]:
    """`ts` and `dur` of events.

    Raises:
        msgspec.ValidationError: a time before the trace's base, or out of range.
    """
    ts, dur = _nanoseconds([e.ts for e in events]), _nanoseconds([e.dur for e in events])
    if len(ts) and ts.min() < 0:
        raise msgspec.ValidationError("a negative time stamp")
    return {"ts": ts, "dur": dur}


def _nanoseconds(values: list[Any]) -> IntColumn:
    """µs, as doubles or Decimals, to int64 ns.

    Raises:
        msgspec.ValidationError: a time beyond 2**62 ns, 146 years.
    """
    kinds = set(map(type, values))
    if kinds <= {int} and max(map(abs, values), default=0) * 1000 < _MAX_NS:
        return np.fromiter(values, np.int64, len(values)) * 1000
    if Decimal in kinds:
        exact = [int((v * 1000).to_integral_value()) if abs(v) * 1000 < _MAX_NS else None for v in values]
        if None not in exact:
            return np.array(exact, np.int64)
    us = np.fromiter(values, np.float64, len(values))
    if np.any(np.abs(us) >= _MAX_NS / 1000):
        raise msgspec.ValidationError("a time of over 146 years")
    return exact_ns(us)
