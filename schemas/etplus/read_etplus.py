"""Read ET+ files from etplus and from Chakra's linker into the columns of a `Trace`, and infer missing edges."""

from __future__ import annotations

import codecs
import contextlib
import itertools
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.build import TraceBuilder, Values
from ...trace.columns import IntColumn, decimal_ns, exact_ns
from ...trace.comm_kernels import Comm
from ...trace.conventions import EDGE_KINDS, EXACT_US, MAX_DURATION_NS, MAX_NS
from ...trace.errors import UNREADABLE, TraceFormatError
from ...trace.kinds import CPU, GPU, LINK_NAMES, RUNTIME, UNLINKED
from ...trace.node_texts import Record, RecordStore
from ...trace.trace import Trace
from ..execution_trace.arguments import ATTRIBUTES, Attr, attribute_type
from ..text.files import Blob, Source, load
from ..text.records import decode_raws
from . import sections
from .captured_graphs import CapturedBy, read_captured
from .record_store import EVENT_NUMBERS, TIMES, FileRecords, decode_record, offset_in
from .sections import Counterpart, decode_section

_BLOCK = 4 << 20
_CUTS_TRIED = 64  # Maximum number of cuts to try, because a match may be inside a string or a nested array.
_OBJECT = re.compile(rb"\s*\{")
_FIRST_KEY = re.compile(rb'\s*\{\s*("(?:[^"\\]|\\.)*")')
_LINK_FIRST = "link it with a Kineto trace first (trace-link), or convert it to .et with --without-times"
_NAME_ET = "give a file written by trace-link; the name of a Chakra trace must end in .et"
_SPOILT = "create the file again with trace-link"

Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Us = Annotated[float, msgspec.Meta(ge=0, lt=MAX_NS / 1000)]
DurationUs = Annotated[float, msgspec.Meta(gt=-MAX_NS / 1000, lt=MAX_DURATION_NS / 1000)]


class _Times(msgspec.Struct, gc=False):
    ts: Us | None = None
    dur: DurationUs | None = None
    inclusive_dur: DurationUs | None = None
    exclusive_dur: DurationUs | None = None


class Node(_Times, kw_only=True, gc=False):
    """The fields of an ET node, GPU event or runtime call that become columns of a `Trace`."""

    id: Id
    name: str
    parent: Id | None = None
    ctrl_deps: Id | None = None
    attrs: list[Attr] = []
    rf_id: int = 0
    fw_parent: int = 0
    seq_id: int = -1
    scope: int = 0
    tid: int | str = 0
    fw_tid: int = 0
    cat: str | None = None
    stream: Any = -1
    device: Any = -1
    correlation: Any = -1
    kineto_event: Any = -1
    inter_thread_dep: Id | None = None
    sync_dep: list[Id] | None = None
    link: str | None = None
    comm: Comm | None = None
    captured_by: CapturedBy | None = None
    counterpart: Counterpart | None = None
    pg_name: str | int | None = None


_FURTHER = tuple(f"further_{k}" for k in range(16))
_TYPES = {name: attribute_type(name) for name in (*ATTRIBUTES, "op_schema")}
# `attrs` lists PyTorch's attributes first, in its order. Decoding this struct is twice as fast as a list of `Attr`.
_UsualAttrs: Any = msgspec.defstruct(
    "_UsualAttrs",
    [*_TYPES.items(), *((name, Attr | None, None) for name in _FURTHER)],
    array_like=True,
    gc=False,
    forbid_unknown_fields=True,
)
_UsualNode: Any = msgspec.defstruct("_UsualNode", [("attrs", _UsualAttrs | None, None)], bases=(Node,), gc=False)
_NO_ATTRS = _UsualAttrs(*(_TYPES[name](none) for name, none in ATTRIBUTES.items()), _TYPES["op_schema"](""))

_LINKS: dict[str | None, int] = {name: code for code, name in enumerate(LINK_NAMES)}
_LINKS["equivalent"] = _LINKS["unverified"]  # the name of unverified links in older files
# These columns of a trace have the same names as fields of `Node`.
_SAME_NAME = ("id", "name", "inter_thread_dep", *(key.name for key in EVENT_NUMBERS))

_TIMES = tuple(attrgetter(key.name) for key in TIMES)
# Times as decimals, because a double with the time since the epoch cannot represent fractions of a µs exactly.
_ExactTimes: Any = msgspec.defstruct("_ExactTimes", [(key.name, Decimal | None, None) for key in TIMES], gc=False)
_decode_nodes = msgspec.json.Decoder(list[Node]).decode
_decode_usual_nodes = msgspec.json.Decoder(list[_UsualNode]).decode
_decode_exact_times = msgspec.json.Decoder(list[_ExactTimes]).decode
_decode_edges = msgspec.json.Decoder(list[tuple[int, int, str]]).decode


class _ArrayBlock(NamedTuple):
    at: int
    text: bytes
    decoded: list[Any]


def read_etplus(source: Source, *, without_times: bool = False) -> Trace:
    """Read an ET+ file. Infer the edges if the file comes from Chakra's linker (chakra_trace_link).

    Raise TraceFormatError if the file has another format or contradicts itself.
    """
    return parse_etplus(load(source), without_times=without_times)


def parse_etplus(blob: Blob[bytes], *, without_times: bool = False) -> Trace:
    if blob.broken_at is not None:
        raise TraceFormatError(blob.name, f"byte {blob.broken_at}", "the gzip stream is damaged", _SPOILT)
    return _Reader(blob.name, blob.data).read(without_times=without_times)


class _Reader:
    def __init__(self, file: str, data: bytes) -> None:
        self.file, self.data = file, data
        self.rows = NodeRows(file)
        self.spans: list[npt.NDArray[np.int64]] = []

    def read(self, *, without_times: bool) -> Trace:
        header = self._header()
        ours = "etplus" in header
        for key in ("nodes", "runtime"):
            if key in header:
                self._read_nodes(key, header.pop(key))
        timed = ours or np.any(self.rows.builder.column("ts") >= 0)
        if not (timed or without_times):
            raise TraceFormatError(self.file, "", "an Execution Trace without times", _LINK_FIRST)
        raw_edges, summary = header.pop("edges", None), header.pop("etplus", msgspec.Raw(b"{}"))
        texts = FileRecords(self.data, *np.concatenate(self.spans, axis=1))
        edges: Callable[[], IntColumn] | None = None if raw_edges is None else partial(self._edges, raw_edges)
        if not timed:  # Edges cannot be inferred if the trace has no times.
            edges = np.zeros((0, 3), np.int64).copy
        return self.rows.trace(header, summary, texts, edges)

    def _header(self) -> Record:
        if not _OBJECT.match(self.data):
            raise TraceFormatError(self.file, "byte 0", "not an ET+ file: it is not a JSON object", _NAME_ET)
        decode = codecs.getincrementaldecoder("utf-8")().decode
        for at in range(0, 0 if self.data.isascii() else len(self.data), _BLOCK):
            try:
                decode(self.data[at : at + _BLOCK], at + _BLOCK >= len(self.data))
            except UnicodeDecodeError as error:
                raise TraceFormatError(self.file, f"byte {at + error.start}", "is not UTF-8", _SPOILT) from None
        try:
            header = decode_record(self.data)
        except UNREADABLE as error:
            raise TraceFormatError(self.file, "", f"not an ET+ file ({error})", _SPOILT) from None
        if "traceEvents" in header:
            remedy = "link it with an Execution Trace first (trace-link)"
            raise TraceFormatError(self.file, "", "a Kineto trace", remedy)
        if "nodes" not in header:
            raise TraceFormatError(self.file, "", 'not an ET+ file: no "nodes"', "give a file written by trace-link")
        return header

    def _parts(self, key: str, raw: msgspec.Raw, decode: Callable[[bytes], list[Any]]) -> Iterator[_ArrayBlock]:
        """Yield an array in blocks of whole elements. A cut is correct if the text before it decodes as an array."""
        at = offset_in(self.data, raw) + 1
        if self.data[at - 1 : at] != b"[":
            raise TraceFormatError(self.file, f'"{key}"', "is not an array", _SPOILT)
        between, data = self._between(at), memoryview(self.data)
        end = at + len(memoryview(raw)) - 2
        while end - at > _BLOCK:
            for _, cut in zip(range(_CUTS_TRIED), between.finditer(self.data, at + _BLOCK, end), strict=False):
                text = b"".join((b"[", data[at : cut.end(1)], b"]"))
                try:
                    decoded = decode(text)
                except UNREADABLE:
                    continue
                yield _ArrayBlock(at, text, decoded)
                at = cut.end()
                break
            else:
                break
        text = b"".join((b"[", data[at:end], b"]"))
        yield _ArrayBlock(at, text, decode_section(self.file, key, decode, text))

    def _between(self, at: int) -> re.Pattern[bytes]:
        """Return a pattern that splits an array into elements. Objects begin with "id" or the first object's key."""
        first = _FIRST_KEY.match(self.data, at)
        keys = b'"id"|' + re.escape(first[1]) if first else b""
        return re.compile(rb"(\})\s*,\s*(?=\{\s*(?:%b)\s*:)" % keys if first else rb"(\])\s*,\s*(?=\[)")

    def _read_nodes(self, key: str, raw: msgspec.Raw) -> None:
        first = self.rows.builder.count
        for part in self._parts(key, raw, decode_raws):
            try:
                nodes = self._nodes(part.text)
            except UNREADABLE:
                raise self._first_bad(key, part, self.rows.builder.count - first) from None
            lengths = np.fromiter((len(memoryview(text)) for text in part.decoded), np.int64, len(nodes))
            starts, at = list[int](), part.at
            for length in lengths.tolist():  # Searching for "{" skips the white space and comma between elements.
                starts.append(at := self.data.find(b"{", at))
                at += length
            start = np.array(starts, np.int64)
            self.spans.append(np.stack([start, start + lengths]))
            self.rows.add(nodes, _times(nodes, part.text), runtime=key == "runtime")

    def _nodes(self, text: bytes) -> list[Node]:
        if self.rows.usual:
            with contextlib.suppress(*UNREADABLE):
                nodes: list[Node] = _decode_usual_nodes(text)
                if not any(_repeats(node.attrs) for node in nodes):
                    return nodes
            self.rows.usual = False
        return _decode_nodes(text)

    def _first_bad(self, key: str, part: _ArrayBlock, before: int) -> TraceFormatError:
        for i, text in enumerate(part.decoded):
            try:
                _decode_nodes(b"[" + bytes(text) + b"]")
            except UNREADABLE as error:
                problem = str(error).replace("`$[0]", "`$[i]").removesuffix(" - at `$[i]`")
                return TraceFormatError(self.file, f"{key}[{before + i}]", problem, _SPOILT)
        return TraceFormatError(self.file, f'"{key}"', "cannot be read", _SPOILT)

    def _edges(self, raw: msgspec.Raw) -> IntColumn:
        codes = {kind: code for code, kind in enumerate(EDGE_KINDS)}
        parts = [np.zeros((0, 3), np.int64)]
        for part in self._parts("edges", raw, _decode_edges):
            for _, _, kind in part.decoded:
                if kind not in codes:
                    raise TraceFormatError(self.file, '"edges"', f"unknown kind {kind[:40]!r}", "update etplus")
            values = itertools.chain.from_iterable((a, b, codes[kind]) for a, b, kind in part.decoded)
            try:
                parts.append(np.fromiter(values, np.int64, 3 * len(part.decoded)).reshape(-1, 3))
            except OverflowError:
                raise TraceFormatError(self.file, '"edges"', "an id beyond 64 bits", _SPOILT) from None
        return np.concatenate(parts)


class NodeRows:
    """Adds blocks of records to a `TraceBuilder`. `usual` becomes False when `attrs` do not fit `_UsualAttrs`."""

    def __init__(self, file: str) -> None:
        self.builder = TraceBuilder(file)
        self.captured_by: dict[int, CapturedBy] = {}
        self.counterpart: dict[int, Counterpart] = {}
        self.flat = self.usual = True

    def add(self, nodes: list[Node], times: dict[str, IntColumn], *, runtime: bool) -> None:
        """Add rows. Add all nodes before runtime calls. `times` has the columns `ts`, `dur` and `exclusive`."""
        builder = self.builder
        for row, node in enumerate(nodes, builder.count):
            if node.sync_dep:
                builder.sync_dep[row] = node.sync_dep
            if node.captured_by is not None:
                self.captured_by[row] = node.captured_by
            if node.counterpart is not None:
                self.counterpart[row] = node.counterpart
            if node.comm is not None:
                builder.comm[row] = node.comm
            elif node.pg_name is not None and node.cat is not None:  # Chakra's linker writes no other field of `comm`.
                builder.comm[row] = Comm(pg_name=str(node.pg_name))
        self.flat &= all(node.ctrl_deps is None for node in nodes)
        columns: dict[str, Values] = {name: list(map(attrgetter(name), nodes)) for name in _SAME_NAME}
        attributes = self._attribute_columns(nodes)
        for i in (i for i, node in enumerate(nodes) if node.cat is not None):  # GPU nodes copy their op's attributes
            for name, none in ATTRIBUTES.items():
                attributes[name][i] = none
        columns |= attributes
        columns["parent"] = [node.parent if node.ctrl_deps is None else node.ctrl_deps for node in nodes]
        columns["category"] = [node.cat or "" for node in nodes]
        columns["link"] = np.array([_LINKS.get(node.link, UNLINKED) for node in nodes], np.int8)
        if runtime:
            columns["tid"] = [node.tid for node in nodes]
        kinds = np.array([CPU if node.cat is None else GPU for node in nodes], np.int8)
        builder.add(RUNTIME if runtime else kinds, **columns, **times)

    def trace(
        self, header: Record, summary: msgspec.Raw, texts: RecordStore, edges: Callable[[], IntColumn] | None
    ) -> Trace:
        """Build the trace. `edges` returns the edges between ids; if `edges` is None, infer the edges."""
        builder = self.builder
        file = builder.file
        builder.check()
        report = decode_section(file, "etplus", msgspec.json.decode, summary)
        if not isinstance(report, dict):
            raise TraceFormatError(file, '"etplus"', "is not an object", _SPOILT)
        unattached = sections.read_unattached(file, bytes(header.get("unattached", b"[]")))
        captured = read_captured(file, header, self.captured_by)
        memory = sections.read_memory(file, bytes(header.get("memory", b"[]")), builder.column("id"))
        stacks = sections.read_stacks(file, bytes(header.get("stacks", b"null")), builder.column("id"))
        generated = sections.read_generated(file, bytes(header.get("generated_kernels", b"null")), builder.column("id"))
        counterparts = sections.read_counterparts(
            file, header, self.counterpart, builder.column("id"), builder.column("kind")
        )
        trace = builder.build(
            texts, summary=report, header=header, flat=self.flat, edges=None if edges is None else edges(),
            unattached=unattached, memory=memory, stacks=stacks, generated=generated, captured=captured,
            counterparts=counterparts,
        )  # fmt: skip
        return infer_edges(trace) if edges is None else trace

    def _attribute_columns(self, nodes: list[Node]) -> dict[str, list[Any]]:
        if not any(node.attrs for node in nodes):
            return {of: list(map(attrgetter(of), nodes)) for of in ATTRIBUTES}
        if self.usual:
            usual = [node.attrs or _NO_ATTRS for node in nodes]
            return {of: list(map(attrgetter(f"{of}.value"), usual)) for of in ATTRIBUTES}
        attrs = [{attr.name: attr.value for attr in node.attrs} for node in nodes]
        return {of: [attr.get(of, none) for attr in attrs] for of, none in ATTRIBUTES.items()}


def _repeats(attrs: Any) -> bool:
    """Return True if an attribute stored as a column is repeated after PyTorch's attributes; the last value wins."""
    if attrs is None or attrs.further_0 is None:
        return False
    return any(attr is not None and attr.name in ATTRIBUTES for attr in map(partial(getattr, attrs), _FURTHER))


def _times(nodes: list[Node], text: bytes) -> dict[str, IntColumn]:
    """Return `ts`, `dur` (−1 for unfinished calls) and `exclusive` in ns. Chakra's linker does not write `dur`."""
    ts, dur, inclusive, exclusive = (np.array(list(map(of, nodes)), np.float64) for of in _TIMES)  # None becomes NaN
    if any(np.any(us >= EXACT_US) for us in (ts, dur, inclusive)):
        exact = _decode_exact_times(text)
        durations = [node.inclusive_dur if node.dur is None else node.dur for node in exact]
        given = [node.ts for node in exact], durations, [node.exclusive_dur for node in exact]
        missing, columns = np.array([node.ts is None for node in exact], np.bool_), list(map(decimal_ns, given))
    else:
        dur = np.where(np.isnan(dur), inclusive, dur)
        missing, columns = np.isnan(ts), [exact_ns(np.nan_to_num(us)) for us in (ts, dur, exclusive)]
    return {
        name: np.where(missing, none, ns)
        for (name, none), ns in zip({"ts": -1, "dur": 0, "exclusive": 0}.items(), columns, strict=True)
    }


# Traces with inferred edges get this note.
NO_EDGES = "the file has no edges (written by another linker); they were inferred from times and parents"


def infer_edges(trace: Trace) -> Trace:
    """Infer and add edges, except edges to rows that start before their source. A note counts the omitted edges."""
    parent, events = trace.nodes.parent_row, np.flatnonzero(trace.nodes.kind == GPU)
    on_top = trace.nodes.timed & (trace.nodes.kind == CPU) & ((parent < 0) | trace.nodes.structural[parent])
    launched = events[parent[events] >= 0]
    given = {
        "thread": _along(trace, trace.nodes.thread, np.flatnonzero(on_top), nested=True),
        "launch": np.stack([parent[launched], launched], axis=1),
        "stream": _along(trace, trace.nodes.stream_lane, events, nested=False),
        "sync": _sync(trace),
        "thread_handoff": _handoffs(trace),
        "comm": _successive_collectives(trace),
    }
    parts = [np.c_[pairs, np.full(len(pairs), EDGE_KINDS.index(kind))] for kind, pairs in given.items()]
    edges = np.unique(np.concatenate(parts), axis=0)
    source, target = edges[:, 0], edges[:, 1]
    ts, ids = trace.nodes.ts, trace.nodes.id
    forward = (ts[source] < ts[target]) | ((ts[source] == ts[target]) & (ids[source] < ids[target]))
    forward &= trace.nodes.timed[source] & trace.nodes.timed[target]
    notes = [NO_EDGES]
    if not forward.all():
        notes.append(f"{np.count_nonzero(~forward)} inferred edges that lead back in time were left out")
    return trace.with_(edges=edges[forward], notes=(*trace.notes, *notes))


def _along(trace: Trace, lane: IntColumn, rows: IntColumn, *, nested: bool) -> IntColumn:
    order, before = trace.nodes.lane_order(lane, rows, nested=nested)
    return np.stack([before, order], axis=1)[before >= 0]


def _sync(trace: Trace) -> IntColumn:
    """Return edges from GPU events to the CPU operators that wait for them. GPU nodes only copy `sync_dep`."""
    row_of = dict(zip(trace.nodes.id.tolist(), range(len(trace)), strict=True))
    waits = [(row, ids) for row, ids in trace.sync_dep.items() if trace.nodes.kind[row] == CPU]
    return _pairs([(row_of[i], row) for row, ids in waits for i in ids if i in row_of])


def _handoffs(trace: Trace) -> IntColumn:
    """Return edges to operators that wait for another thread, but only one edge for consecutive identical waits."""
    rows = np.flatnonzero(trace.nodes.timed & (trace.nodes.kind == CPU))
    order, before = trace.nodes.lane_order(trace.nodes.thread, rows, nested=True)
    waits_for = trace.nodes.inter_thread_dep[order]
    first = (waits_for >= 0) & ((before < 0) | (waits_for != trace.nodes.inter_thread_dep[before]))
    row_of = dict(zip(trace.nodes.id.tolist(), range(len(trace)), strict=True))
    waits = zip(waits_for[first].tolist(), order[first].tolist(), strict=True)
    return _pairs([(row_of[i], row) for i, row in waits if i in row_of])


def _successive_collectives(trace: Trace) -> IntColumn:
    rows = np.flatnonzero(trace.communicates)
    groups: dict[str | None, int] = {}
    lane = np.full(len(trace), -1, np.int64)
    for row in rows.tolist():
        comm = trace.comm.get(row)
        lane[row] = groups.setdefault(comm.pg_name if comm else None, len(groups))
    return _along(trace, lane, rows, nested=False)


def _pairs(found: list[tuple[int, int]]) -> IntColumn:
    return np.array(found, np.int64).reshape(-1, 2)
