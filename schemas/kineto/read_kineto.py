"""Read Kineto traces (Chrome trace JSON from the PyTorch profiler) into numpy columns, with undecoded arguments.

Files from 2022-23 have integer µs since the epoch; files since 2024 have µs with three decimals, relative to
`baseTimeNanoseconds`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import PurePath
from typing import Any, Literal, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.brief import brief
from ...trace.columns import IntColumn, StringTable, joined_columns
from ...trace.conventions import EPOCH_NS, MAX_NS
from ...trace.errors import UNREADABLE, TraceFormatError
from ..text.files import Blob, Source, open_text
from ..text.parallel import parallel_map
from ..text.records import RecordTexts, SomeRecordTexts, check_utf8, locate, parse_records
from ..text.recover import Document, Loss, damage_of, read_tolerantly
from ..text.sniff import HEAD, is_event_array, is_pftrace
from ..text.text import Text
from .corrections import whole_us, with_copy_names, with_launch_numbers
from .event_account import EventAccount, account_for, drop_repeated
from .kineto_decode import RawArgs, read_events
from .kineto_events import INTERNED, Codes, EventPart, is_runtime
from .old_layouts import is_old, may_be_old, modern_events, modern_header

_WORTH_A_PROCESS = 1000  # Each piece of parallel work has this many events.

T = TypeVar("T")


class EventTexts(Protocol):
    def of(self, records: IntColumn) -> list[bytes]:
        """Return the JSON objects of the events with these indices. Each object contains at least `args`."""


@dataclass(frozen=True)
class EventRecords:
    texts: EventTexts

    __repr__ = brief

    def read(self, index: IntColumn, of: Callable[[bytes], T]) -> list[T]:
        shares = np.array_split(index, max(len(index) // _WORTH_A_PROCESS, 1))
        with parallel_map(lambda i: list(map(of, self.texts.of(shares[i]))), len(shares)) as results:
            return list(chain.from_iterable(results))

    def args(self, index: IntColumn) -> list[bytes]:
        """Return the undecoded `args` of events; reading events that are neighbors in the file is fastest."""
        return self.read(index, lambda text: bytes(_decode_only_args(text).args))

    def others(self, categories: frozenset[str]) -> Iterator[tuple[int, bytes]]:
        """Yield the index and JSON of every event in these categories, including events that the table omits."""
        texts, marks = self.texts, [f'"{category}"'.encode() for category in sorted(categories)]
        if isinstance(texts, RecordTexts):
            texts = SomeRecordTexts(texts, np.arange(len(texts)))
        if not isinstance(texts, SomeRecordTexts):
            return
        for first in range(0, len(texts.index), _WORTH_A_PROCESS):
            indices = texts.index[first : first + _WORTH_A_PROCESS]
            for index, text in zip(indices.tolist(), texts.of(indices), strict=True):
                if any(mark in text for mark in marks) and _decode_only_category(text).cat in categories:
                    yield index, text


@dataclass(frozen=True)
class EventTable:
    """Duration events (ph "X") in file order, one entry per event; numbers are −1 if not recorded."""

    index: IntColumn  # the event's position in `traceEvents`
    ts: IntColumn  # in ns, relative to `KinetoTrace.base_time_ns`
    dur: IntColumn  # in ns; negative if the call did not finish
    category: Codes  # indices into `categories`
    name: Codes  # indices into `names`
    thread: Codes  # indices into `threads`
    correlation: IntColumn
    external_id: IntColumn
    rf_id: IntColumn  # values of `Record function id`; 0 if the ET observer was off
    seq: IntColumn
    stream: IntColumn  # in CUDA graphs, the stream that ran the event
    device: IntColumn
    categories: list[str]
    names: list[str]
    threads: list[tuple[int | str, int | str]]  # distinct pairs (pid, tid)
    _texts: EventTexts

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.index)

    @cached_property
    def end(self) -> IntColumn:
        """End times in ns; an unfinished event ends at its start."""
        return self.ts + np.maximum(self.dur, 0)

    def args_of(self, rows: IntColumn) -> list[bytes]:
        return self.records.args(self.index[rows])

    def read(self, rows: IntColumn, of: Callable[[bytes], T]) -> list[T]:
        return self.records.read(self.index[rows], of)

    @property
    def records(self) -> EventRecords:
        return EventRecords(self._texts)

    def rows(self, *categories: str) -> IntColumn:
        return np.flatnonzero(self.mask(frozenset(categories)))

    def mask(self, categories: frozenset[str]) -> npt.NDArray[np.bool_]:
        wanted = np.array([c in categories for c in self.categories], np.bool_)
        return wanted[self.category] if len(self) else np.zeros(0, np.bool_)

    def runtime_mask(self) -> npt.NDArray[np.bool_]:
        return self.mask(frozenset(filter(is_runtime, self.categories)))


@dataclass(frozen=True)
class FlowTable:
    start: npt.NDArray[np.bool_]  # True for the start of a flow (phase "s")
    category: Codes  # indices into `EventTable.categories` ("ac2g", "fwdbwd", …)
    id: IntColumn  # −1 if missing; "ac2g" ids below `GRAPH_ARROW` are correlations
    ts: IntColumn  # in ns
    thread: Codes  # indices into `EventTable.threads`


@dataclass(frozen=True)
class FrameTable:
    """Calls of Python functions and module forwards, in file order (recorded if with_stack=True)."""

    index: IntColumn  # the call's position in `traceEvents`; negative if the file does not contain the call as an event
    ts: IntColumn  # in ns
    end: IntColumn  # in ns
    name: Codes  # indices into `names` of this table
    thread: Codes  # indices into `threads` of this table
    names: list[str]  # such as "train.py(12): step" or "nn.Module: Linear_0"
    threads: list[tuple[int | str, int | str]]

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.index)

    @staticmethod
    def none() -> FrameTable:
        none, codes = np.zeros(0, np.int64), np.zeros(0, np.int32)
        return FrameTable(none, none, none, codes, codes, [], [])


@dataclass(frozen=True)
class MemoryTable:
    """Allocator events ("[memory]"), in file order (recorded if profile_memory=True)."""

    index: IntColumn  # the event's position in `traceEvents`
    ts: IntColumn  # in ns
    thread: Codes  # indices into `EventTable.threads`
    bytes: IntColumn  # number of allocated bytes, or minus the number of freed bytes
    address: IntColumn  # −1 if not recorded
    allocated: IntColumn  # total bytes allocated by the device's allocator after the event; −1 if not recorded
    reserved: IntColumn  # total bytes reserved by the device's allocator after the event; −1 if not recorded
    device_type: IntColumn  # The device types are values of c10::DeviceType.
    device: IntColumn  # −1 for the CPU

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.index)

    @staticmethod
    def none() -> MemoryTable:
        none = np.zeros(0, np.int64)
        return MemoryTable(none, none, none.astype(np.int32), none, none, none, none, none, none)


@dataclass(frozen=True)
class KinetoTrace:
    file: str
    header: dict[str, msgspec.Raw]  # Maps all top-level keys except `traceEvents` to undecoded values.
    base_time_ns: int  # 0 if times count from the epoch
    event_count: int  # number of entries in `traceEvents`
    events: EventTable
    flows: FlowTable
    losses: tuple[Loss, ...] = ()  # damage that was repaired, and data that was lost
    account: EventAccount = field(default_factory=EventAccount)
    # If recorded, each row contains an operator and another operator that reads its output.
    data: IntColumn = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    recorder: Literal["Kineto", "Nsight Systems"] = "Kineto"
    machine_pids: tuple[int, ...] = ()  # process ids of all ranks in the same recording
    memory: MemoryTable = field(default_factory=MemoryTable.none)
    frames: FrameTable = field(default_factory=FrameTable.none)

    def header_value(self, key: str) -> Any:
        """Return a decoded header field; None if missing or unreadable. Integers beyond 64 bits become floats."""
        with contextlib.suppress(KeyError, *UNREADABLE):
            return _of_64_bits(msgspec.json.decode(self.header[key]))
        return None

    @property
    def damage(self) -> tuple[str, ...]:
        unreadable = sum(loss.count for loss in self.losses if loss.kind == "dropped_record")
        left_out = self.account.warning(unreadable)
        return (*damage_of(self), *([f"{PurePath(self.file).name}: {left_out}"] if left_out else []))

    @property
    def distributed_info(self) -> dict[str, Any]:
        info = self.header_value("distributedInfo")
        return info if isinstance(info, dict) else {}

    @property
    def modern(self) -> bool:
        """True if `External id` of a GPU event is the id of the launching operator (files since 2024)."""
        return "baseTimeNanoseconds" in self.header


def read_kineto(source: Source, *, strict: bool = False, progress: bool = False, modules: bool = False) -> KinetoTrace:
    """Read a Kineto trace of any version, or a Perfetto trace. If `modules` is True, also read "nn.Module: …" calls.

    `strict` refuses broken files instead of recovering the readable part.
    """
    return parse_kineto(open_text(source, progress=progress), strict=strict, progress=progress, modules=modules)


def parse_kineto(
    blob: Blob[Text], *, strict: bool = False, progress: bool = False, modules: bool = False
) -> KinetoTrace:
    if is_event_array(blob.data[:HEAD]):
        blob = _as_object(blob)
    if is_pftrace(blob.data[:HEAD]):
        from ..perfetto.read_perfetto import read_events as read_packets  # Importing protobuf is slow.

        losses, header, texts, part = read_packets(blob, modules=modules, progress=progress)
        return _build(blob.name, losses, header, texts, [part])
    read = partial(_read, modules=modules)
    return read_tolerantly(blob, "traceEvents", read, strict=strict, progress=progress)


def _as_object(blob: Blob[Text]) -> Blob[Text]:
    """Wrap a trace in Chrome's array format in an object; the closing bracket may be missing."""
    array = blob.data[:].strip()
    if not array.endswith(b"]"):
        array = array.rstrip(b",") + b"]" if array.rstrip(b",").endswith(b"}") else array
    return Blob(blob.name, b'{"traceEvents":%b}' % array, blob.broken_at)


def _read(document: Document, modules: bool) -> KinetoTrace:
    array = None if document.lenient else locate(document.text, "traceEvents")
    if array is not None:
        with contextlib.suppress(*UNREADABLE):  # The slower parser handles unusual events and layouts.
            check_utf8(document.text[: array.body])
            check_utf8(document.text[array.end :])
            parts = list(document.parts(array, partial(read_events, modules=modules)))
            if not may_be_old(parts):
                texts = array.texts([span for part in parts for span in part.spans])
                return _build(document.name, document.all_losses(), array.header, texts, parts)
    data = document.text[:]
    check_utf8(data)
    header, records, _ = parse_records(data, "traceEvents")
    written, pairs = records.texts, 0
    if is_old(data):
        header = modern_header(header)
        written, pairs = modern_events(written)
    texts = RecordTexts.joined(written)
    invalid = document.dropped.append if document.lenient else None
    parts = [read_events(texts.arrays(), modules=modules, invalid=invalid)]
    return _build(document.name, document.all_losses(), header, texts, parts, pairs)


def _build(
    name: str,
    losses: tuple[Loss, ...],
    header: dict[str, msgspec.Raw],
    texts: RecordTexts,
    parts: list[EventPart],
    pairs: int = 0,
) -> KinetoTrace:
    if not len(texts):
        raise TraceFormatError(name, "", "the trace has no events", "record it again with the profiler active")
    base = msgspec.json.decode(header["baseTimeNanoseconds"]) if "baseTimeNanoseconds" in header else 0
    known = type(base) is int and 0 <= base < MAX_NS
    tables = {kind: StringTable() for kind in INTERNED}
    first = 0
    for part in parts:
        part.events["index"] += first
        part.memory["index"] += first
        part.frames["index"] += first
        first += sum(count for _, _, count in part.spans)
        for kind, table in tables.items():
            codes = table.codes(part.values[kind])
            for columns in (part.events, part.flows, part.memory, part.frames):
                if kind in columns:
                    columns[kind] = codes[columns[kind]]
    kept = {of: joined_columns([getattr(part, of) for part in parts]) for of in ("events", "flows", "memory", "frames")}
    repeated = drop_repeated(kept, texts, tables["category"].values)
    account = account_for(parts, kept, tables["category"].values, pairs=pairs, repeated=repeated)
    if not account.read.keys() - {"flow"}:
        problem = f"no events of a kind that etplus reads, only {account.found}"
        raise TraceFormatError(name, "", problem, "give the trace that torch.profiler exported")
    events, flows, memory, frames = kept.values()
    if base == 0 and known and "baseTimeNanoseconds" in header:
        for columns in (events, flows, memory, frames):
            columns["ts"] = np.where(columns["ts"] > EPOCH_NS, whole_us(columns["ts"]), columns["ts"])
    if np.maximum(events["dur"], 0).sum(dtype=np.float64) >= MAX_NS:
        raise TraceFormatError(name, "", "durations that add up to over 146 years", "record it again")
    if not known:
        losses = (*losses, Loss("header", 1, -1, f"baseTimeNanoseconds {str(base)[:40]}, taken as 0"))
    categories, names, threads, frame_names, frame_threads = (table.values for table in tables.values())
    of_events = EventTable(**events, categories=categories, names=names, threads=threads, _texts=texts)
    flow_table = FlowTable(**flows)
    of_events = with_launch_numbers(with_copy_names(of_events), flow_table, modern="baseTimeNanoseconds" in header)
    return KinetoTrace(
        file=name, header={key: msgspec.Raw(bytes(value)) for key, value in header.items()},
        base_time_ns=base if known else 0, event_count=len(texts), events=of_events,
        flows=flow_table, losses=losses, account=account, memory=MemoryTable(**memory),
        frames=FrameTable(
            frames["index"], frames["ts"], frames["ts"] + frames["dur"], frames["frame"], frames["frame_thread"],
            frame_names, frame_threads,
        ),
    )  # fmt: skip


_DEEPEST = 50  # Deeper values become None. Values in real files have fewer than 50 levels, and orjson rejects 254.


def _of_64_bits(value: Any, level: int = 0) -> Any:
    """Make a value encodable. Large integers become floats; infinite and deeply nested values become None."""
    if level > _DEEPEST:
        return None
    if isinstance(value, dict):
        return {key: _of_64_bits(member, level + 1) for key, member in value.items()}
    if isinstance(value, list):
        return [_of_64_bits(member, level + 1) for member in value]
    if type(value) is not int or -(2**63) <= value < 2**64:
        return value
    return float(value) if abs(value) < sys.float_info.max else None


class _OnlyCategory(msgspec.Struct, gc=False):
    cat: Any = ""


_decode_only_category = msgspec.json.Decoder(_OnlyCategory).decode
_decode_only_args = msgspec.json.Decoder(RawArgs).decode
