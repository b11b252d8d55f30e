"""Reader of ET+ files, ours and those of Chakra's own linker, into the columns of an `Trace`."""

from __future__ import annotations

import codecs
import contextlib
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, StringTable, decimal_ns, exact_ns, int_column, matching, positions
from ...trace.comm_kernels import Comm
from ...trace.conventions import EDGE_KINDS, EXACT_US, MAX_DURATION_NS, MAX_NS, STRUCTURAL
from ...trace.errors import UNREADABLE, TraceFormatError
from ...trace.kinds import CPU, GPU, LINK_NAMES, RUNTIME, UNLINKED
from ...trace.memory_events import read_memory
from ...trace.relations import parent_rows, threads_of_rows
from ...trace.trace import Record, RecordStore, Trace
from ...trace.unattached_events import read_unattached
from ..execution_trace.node_attributes import ATTRIBUTES, Attr, attribute_type
from ..text.files import Blob, Source, load
from .captured_graphs import CapturedBy, read_captured
from .inferred import infer_edges
from .record_store import FileRecords

_BLOCK = 4 << 20
_CUTS_TRIED = 64
_OBJECT = re.compile(rb"\s*\{")
_FIRST_KEY = re.compile(rb'\s*\{\s*("(?:[^"\\]|\\.)*")')
_LINK_FIRST = "link it with a Kineto trace first (trace-link)"
_NAME_ET = "give a file written by trace-link; the name of a Chakra trace must end in .et"
_SPOILT = "make the file again with trace-link"

_decode_root = msgspec.json.Decoder(Record).decode
_decode_raws = msgspec.json.Decoder(list[msgspec.Raw]).decode

Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Us = Annotated[float, msgspec.Meta(ge=0, lt=MAX_NS / 1000)]
DurationUs = Annotated[float, msgspec.Meta(gt=-MAX_NS / 1000, lt=MAX_DURATION_NS / 1000)]


class _Times(msgspec.Struct, gc=False):
    ts: Us | None = None
    dur: DurationUs | None = None
    inclusive_dur: DurationUs | None = None
    exclusive_dur: DurationUs | None = None


class _ExactTimes(msgspec.Struct, gc=False):
    """The same with the decimals kept: epoch µs with a fraction do not fit a double."""

    ts: Decimal | None = None
    dur: Decimal | None = None
    inclusive_dur: Decimal | None = None
    exclusive_dur: Decimal | None = None


class Node(_Times, kw_only=True, gc=False):
    """What columns hold of a record: an ET node, a GPU event or a runtime call."""

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
    pg_name: str | int | None = None


_FURTHER = tuple(f"further_{k}" for k in range(16))
_TYPES = {name: attribute_type(name) for name in (*ATTRIBUTES, "op_schema")}
_UsualAttrs: Any = msgspec.defstruct(
    "_UsualAttrs",
    [*_TYPES.items(), *((name, Attr | None, None) for name in _FURTHER)],
    array_like=True, gc=False, forbid_unknown_fields=True,
)  # fmt: skip
"""`attrs` as PyTorch writes them, then others; decoded in half the time of a list of `Attr`."""
_UsualNode: Any = msgspec.defstruct("_UsualNode", [("attrs", _UsualAttrs | None, None)], bases=(Node,), gc=False)
_NO_ATTRS = _UsualAttrs(*(_TYPES[name](none) for name, none in ATTRIBUTES.items()), _TYPES["op_schema"](""))

_LINKS: dict[str | None, int] = {name: code for code, name in enumerate(LINK_NAMES)}
_EVENT_COLUMNS = ("stream", "device", "correlation", "kineto_event")

_TIMES = tuple(map(attrgetter, ("ts", "dur", "inclusive_dur", "exclusive_dur")))
_decode_nodes = msgspec.json.Decoder(list[Node]).decode
_decode_usual_nodes = msgspec.json.Decoder(list[_UsualNode]).decode
_decode_exact_times = msgspec.json.Decoder(list[_ExactTimes]).decode
_decode_edges = msgspec.json.Decoder(list[tuple[int, int, str]]).decode


class _Part(NamedTuple):
    """A block of an array of the file: offset of its first element, its text as an array of its own."""

    at: int
    text: bytes
    decoded: list[Any]


def read_etplus(source: Source) -> Trace:
    """Read an ET+ file of either layout, gzipped or not.

    Files of Chakra's own linker (chakra_trace_link) have no `edges`, `runtime` and `etplus`: edges are then inferred
    from the times and from `inter_thread_dep` and `sync_dep`; `notes` says so.

    Memory: the file's text and some 250 bytes a node.

    Raises:
        TraceFormatError: no ET+ file, a broken one, or one that contradicts itself (ids used twice, edges between
            nodes that are not there).
    """
    return parse_etplus(load(source))


def parse_etplus(blob: Blob[bytes]) -> Trace:
    """Read an ET+ file that has been loaded.

    Raises:
        TraceFormatError: see `read_etplus`.
    """
    if blob.broken_at is not None:
        raise TraceFormatError(blob.name, f"byte {blob.broken_at}", "the gzip stream is damaged", _SPOILT)
    return _Reader(blob.name, blob.data).read()


class _Reader:
    """Reads the file block by block, so that no block's Python objects outlive it."""

    def __init__(self, file: str, data: bytes) -> None:
        self.file, self.data = file, data
        self.rows = Rows(file)
        self.spans: list[npt.NDArray[np.int64]] = []

    def read(self) -> Trace:
        header = self._header()
        ours = "etplus" in header
        for key in ("nodes", "runtime"):
            if key in header:
                self._read_nodes(key, header.pop(key))
        if not ours and not np.any(self.rows.column("ts") >= 0):
            raise TraceFormatError(self.file, "", "an Execution Trace without times", _LINK_FIRST)
        raw_edges, summary = header.pop("edges", None), header.pop("etplus", msgspec.Raw(b"{}"))
        texts = FileRecords(self.data, *np.concatenate(self.spans, axis=1))
        document = self.rows.trace(header, summary, texts)
        if raw_edges is None:
            return infer_edges(document)
        return replace(document, edges=self.rows.edges(self._edges(raw_edges)))

    def _header(self) -> Record:
        if not _OBJECT.match(self.data):
            raise TraceFormatError(self.file, "byte 0", "not an ET+ file: it is not a JSON object", _NAME_ET)
        self._check_utf8()
        try:
            header = _decode_root(self.data)
        except UNREADABLE as error:
            raise TraceFormatError(self.file, "", f"no ET+ file ({error})", _SPOILT) from None
        if "traceEvents" in header:
            raise TraceFormatError(
                self.file, "", "a Kineto trace", "link it with an Execution Trace first (trace-link)"
            )
        if "nodes" not in header:
            raise TraceFormatError(self.file, "", 'no ET+ file: it has no "nodes"', "give a file written by trace-link")
        return header

    def _check_utf8(self) -> None:
        """What is left undecoded here must decode later."""
        decode = codecs.getincrementaldecoder("utf-8")().decode
        if self.data.isascii():
            return
        for at in range(0, len(self.data), _BLOCK):
            try:
                decode(self.data[at : at + _BLOCK], at + _BLOCK >= len(self.data))
            except UnicodeDecodeError as error:
                raise TraceFormatError(self.file, f"byte {at + error.start}", "is not UTF-8", _SPOILT) from None

    def _array(self, key: str, raw: msgspec.Raw) -> int:
        """Offset of the "[" of a top-level array; `raw` is a view into the text."""
        at = _address(raw) - _address(self.data)
        if self.data[at : at + 1] != b"[":
            raise TraceFormatError(self.file, f'"{key}"', "is not an array", _SPOILT)
        return at

    def _parts(self, key: str, raw: msgspec.Raw, decode: Callable[[bytes], list[Any]]) -> Iterator[_Part]:
        """An array in blocks of whole elements, some megabytes each.

        A cut is right if the text up to it is a whole array: it began at an element.
        """
        at = self._array(key, raw) + 1
        between, data = self._between(at), memoryview(self.data)
        end = at + len(memoryview(raw)) - 2
        while end - at > _BLOCK:
            for _, cut in zip(range(_CUTS_TRIED), between.finditer(self.data, at + _BLOCK, end), strict=False):
                text = b"".join((b"[", data[at : cut.end(1)], b"]"))
                try:
                    decoded = decode(text)
                except UNREADABLE:
                    continue
                yield _Part(at, text, decoded)
                at = cut.end()
                break
            else:
                break
        text = b"".join((b"[", data[at:end], b"]"))
        try:
            yield _Part(at, text, decode(text))
        except UNREADABLE as error:
            raise TraceFormatError(self.file, f'"{key}"', f"cannot be read ({error})", _SPOILT) from None

    def _between(self, at: int) -> re.Pattern[bytes]:
        """What separates the elements of an array of which the first begins at an offset.

        Objects begin with "id" (GPU events, runtime calls) or as the first one does.
        """
        first = _FIRST_KEY.match(self.data, at)
        keys = b'"id"|' + re.escape(first[1]) if first else b""
        return re.compile(rb"(\})\s*,\s*(?=\{\s*(?:%b)\s*:)" % keys if first else rb"(\])\s*,\s*(?=\[)")

    def _read_nodes(self, key: str, raw: msgspec.Raw) -> None:
        first = self.rows.count
        for part in self._parts(key, raw, _decode_raws):
            try:
                nodes = self._nodes(part.text)
            except UNREADABLE:
                raise self._first_bad(key, part, self.rows.count - first) from None
            lengths = np.fromiter((len(memoryview(text)) for text in part.decoded), np.int64, len(nodes))
            starts, at = list[int](), part.at
            for length in lengths.tolist():  # only white space and a comma are between two
                starts.append(at := self.data.find(b"{", at))
                at += length
            start = np.array(starts, np.int64)
            self.spans.append(np.stack([start, start + lengths]))
            self.rows.add(nodes, _times(nodes, part.text), runtime=key == "runtime")

    def _nodes(self, text: bytes) -> list[Node]:
        """The nodes of a block; their `attrs` are `_UsualAttrs` as long as all are as usual, then lists."""
        if self.rows.usual:
            with contextlib.suppress(*UNREADABLE):
                nodes: list[Node] = _decode_usual_nodes(text)
                if not any(_repeats(node.attrs) for node in nodes):
                    return nodes
            self.rows.usual = False
        return _decode_nodes(text)

    def _first_bad(self, key: str, part: _Part, before: int) -> TraceFormatError:
        for i, text in enumerate(part.decoded):
            try:
                _decode_nodes(b"[" + bytes(text) + b"]")
            except UNREADABLE as error:
                problem = str(error).replace("`$[0]", "`$[i]").removesuffix(" - at `$[i]`")
                return TraceFormatError(self.file, f"{key}[{before + i}]", problem, _SPOILT)
        return TraceFormatError(self.file, f'"{key}"', "cannot be read", _SPOILT)

    def _edges(self, raw: msgspec.Raw) -> IntColumn:
        """The edges between ids, (m, 3)."""
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


class Rows:
    """The columns of a `Trace`, made of records block by block.

    Attributes:
        count: number of rows so far.
        usual: the `attrs` of nodes are `_UsualAttrs`, not lists.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.names, self.categories = StringTable(), StringTable()
        self.categories.codes([""])
        self.columns: defaultdict[str, list[npt.NDArray[Any]]] = defaultdict(list)
        self.sync_dep: dict[int, list[int]] = {}
        self.comm: dict[int, Comm] = {}
        self.captured_by: dict[int, CapturedBy] = {}
        self.runtime_tids: list[int | str] = []
        self.flat = self.usual = True
        self.count = 0

    def add(self, nodes: list[Node], times: dict[str, IntColumn], *, runtime: bool) -> None:
        """Add rows.

        Args:
            times: `ts`, `dur` and `exclusive` as in `Trace`, ns; those of the nodes are not looked at.
            runtime: runtime calls, which follow after all nodes.
        """
        for key, column in {**times, **self._columns(nodes, runtime)}.items():
            self.columns[key].append(column)
        self.count += len(nodes)

    def column(self, name: str) -> npt.NDArray[Any]:
        """A column of all rows."""
        return np.concatenate(self.columns[name])

    def trace(self, header: Record, summary: msgspec.Raw, texts: RecordStore) -> Trace:
        """The trace of the rows, without edges.

        Args:
            header: the root's other keys, undecoded. summary: its `etplus`.

        Raises:
            TraceFormatError: ids used twice, times out of range, or a broken root.
        """
        columns: dict[str, Any] = {name: self.column(name) for name in self.columns}
        if columns["dur"].sum(dtype=np.float64) >= MAX_NS or columns["exclusive"].sum(dtype=np.float64) >= MAX_NS:
            raise TraceFormatError(self.file, "", "durations of over 146 years together", _SPOILT)
        report = self._summary(summary)
        columns |= self._relations(columns, same_tids=report.get("nodes_from") == "kineto")
        unattached = read_unattached(self.file, bytes(header.get("unattached", b"[]")))
        self.names.codes(unattached.names)
        self.categories.codes(unattached.categories)
        captured = read_captured(self.file, header, self.captured_by)
        self.names.codes(captured.names if captured is not None else [])
        return Trace(
            file=self.file, header=header, summary=report, flat=self.flat, texts=texts,
            names=self.names.values, categories=self.categories.values, sync_dep=self.sync_dep, comm=self.comm,
            edges=np.zeros((0, 3), np.int64), unattached=unattached, captured=captured,
            memory=read_memory(self.file, bytes(header.get("memory", b"[]")), columns["id"]), **columns,
        )  # fmt: skip

    def _summary(self, raw: msgspec.Raw) -> dict[str, Any]:
        try:
            summary = msgspec.json.decode(raw)
        except UNREADABLE as error:
            raise TraceFormatError(self.file, '"etplus"', f"cannot be read ({error})", _SPOILT) from None
        if not isinstance(summary, dict):
            raise TraceFormatError(self.file, '"etplus"', "is not an object", _SPOILT)
        return summary

    def _columns(self, nodes: list[Node], runtime: bool) -> dict[str, npt.NDArray[Any]]:
        parents = [node.parent if node.ctrl_deps is None else node.ctrl_deps for node in nodes]
        kinds = [RUNTIME if runtime else CPU if node.cat is None else GPU for node in nodes]
        columns: dict[str, npt.NDArray[Any]] = {
            "id": int_column([node.id for node in nodes], -1),
            "parent": int_column(parents, -1),
            "kind": np.array(kinds, np.int8),
            "name": self.names.codes([node.name for node in nodes]),
            "category": self.categories.codes([node.cat or "" for node in nodes]),
            "link": np.array([_LINKS.get(node.link, UNLINKED) for node in nodes], np.int8),
            "inter_thread_dep": int_column([node.inter_thread_dep for node in nodes], -1),
        }
        self.flat &= all(node.ctrl_deps is None for node in nodes)
        columns |= self._et_columns(nodes)
        for column in _EVENT_COLUMNS:
            columns[column] = int_column(list(map(attrgetter(column), nodes)), -1)
        if runtime:
            self.runtime_tids += [node.tid for node in nodes]
        for row, node in enumerate(nodes, self.count):
            if node.sync_dep:
                self.sync_dep[row] = node.sync_dep
            if node.captured_by is not None:
                self.captured_by[row] = node.captured_by
            if node.comm is not None:
                self.comm[row] = node.comm
            elif node.pg_name is not None and node.cat is not None:  # Chakra's linker writes no more than that
                self.comm[row] = Comm(pg_name=str(node.pg_name))
        return columns

    def _et_columns(self, nodes: list[Node]) -> dict[str, npt.NDArray[Any]]:
        """What attributes say, or fields of the nodes themselves."""
        if not any(node.attrs for node in nodes):
            return {of: int_column(list(map(attrgetter(of), nodes)), none) for of, none in ATTRIBUTES.items()}
        if self.usual:
            usual = [node.attrs or _NO_ATTRS for node in nodes]
            values = {of: map(attrgetter(f"{of}.value"), usual) for of in ATTRIBUTES}
            return {of: int_column(list(values[of]), none) for of, none in ATTRIBUTES.items()}
        attrs = [{attr.name: attr.value for attr in node.attrs} for node in nodes]
        return {of: int_column([one.get(of, none) for one in attrs], none) for of, none in ATTRIBUTES.items()}

    def _relations(self, columns: dict[str, npt.NDArray[Any]], *, same_tids: bool) -> dict[str, npt.NDArray[Any]]:
        """The columns that follow from all rows together."""
        ids, kind, tid = columns["id"], columns["kind"], columns.pop("tid")
        ordered = np.sort(ids)
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(repeated):
            raise TraceFormatError(self.file, f"id {repeated[0]}", "two nodes have it", _SPOILT)
        parent_row = parent_rows(ids, columns["parent"])
        tids = StringTable()
        codes = tids.codes(self.runtime_tids)
        thread = threads_of_rows(kind, tid, parent_row, codes, tids.values, same_tids=same_tids)
        structural = matching(columns["name"], self.names.values, STRUCTURAL.fullmatch) & (kind == CPU)
        return {"structural": structural, "parent_row": parent_row, "thread": thread}

    def edges(self, edges: IntColumn) -> IntColumn:
        """`Trace.edges` from edges between ids.

        Raises:
            TraceFormatError: an edge that does not join two rows.
        """
        ends = positions(self.column("id"), edges[:, :2].reshape(-1)).reshape(-1, 2)
        strange = np.flatnonzero(np.any(ends < 0, axis=1) | (ends[:, 0] == ends[:, 1]))
        if len(strange):
            a, b, kind = edges[strange[0]].tolist()
            problem = f"[{a}, {b}, {EDGE_KINDS[kind]!r}] does not join two nodes of the file"
            raise TraceFormatError(self.file, f"edges[{strange[0]}]", problem, _SPOILT)
        return np.concatenate([ends, edges[:, 2:]], axis=1)


def _address(buffer: bytes | msgspec.Raw) -> int:
    address: int = np.frombuffer(buffer, np.uint8).ctypes.data
    return address


def _repeats(attrs: Any) -> bool:
    """Whether an attribute with a column comes once more, after the usual ones: the last one counts."""
    if attrs is None or attrs.further_0 is None:
        return False
    return any(one is not None and one.name in ATTRIBUTES for one in map(partial(getattr, attrs), _FURTHER))


def _times(nodes: list[Node], text: bytes) -> dict[str, IntColumn]:
    """`ts`, `dur` and `exclusive` of nodes in ns. Chakra's linker writes no `dur`; −1 for unfinished calls."""
    ts, dur, inclusive, exclusive = (np.array(list(map(of, nodes)), np.float64) for of in _TIMES)  # None becomes NaN
    if any(np.any(us >= EXACT_US) for us in (ts, dur, inclusive)):
        exact = _decode_exact_times(text)
        return _columns_of_times(
            np.array([one.ts is None for one in exact], np.bool_),
            decimal_ns([one.ts for one in exact]),
            decimal_ns([one.inclusive_dur if one.dur is None else one.dur for one in exact]),
            decimal_ns([one.exclusive_dur for one in exact]),
        )
    dur = np.where(np.isnan(dur), inclusive, dur)
    return _columns_of_times(np.isnan(ts), *(exact_ns(np.nan_to_num(us)) for us in (ts, dur, exclusive)))


def _columns_of_times(
    missing: npt.NDArray[np.bool_], ts: IntColumn, dur: IntColumn, exclusive: IntColumn
) -> dict[str, IntColumn]:
    return {
        "ts": np.where(missing, -1, ts),
        "dur": np.where(missing, 0, np.maximum(dur, 0)),
        "exclusive": np.where(missing, 0, np.maximum(exclusive, 0)),
    }
