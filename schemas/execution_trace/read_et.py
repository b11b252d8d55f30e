"""Read PyTorch Execution Traces (ET, schemas 1.0.1 to 1.1.1) into columns, and find each node's text.

Schema 1.0.1 has flat nodes; later schemas have `ctrl_deps` and `attrs`. ATTRIBUTES are the first entries of `attrs`.
"""

from __future__ import annotations

import calendar
import contextlib
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.brief import brief
from ...trace.call_tree import nearest, on_circles
from ...trace.columns import IntColumn, StringTable, int_column, joined_columns, matching, positions, scatter
from ...trace.conventions import STRUCTURAL
from ...trace.errors import UNREADABLE, TraceFormatError
from ..text.files import Blob, Source, open_text
from ..text.json_text import NumberRows
from ..text.records import Block, RecordTexts, check_utf8, decode_raws, locate, parse_records
from ..text.recover import Document, Loss, read_tolerantly
from ..text.text import Text
from .arguments import ATTRIBUTES, Attr, attribute_type


class _FlatNode(msgspec.Struct, gc=False):
    id: int
    name: str
    parent: int
    rf_id: int = 0
    fw_parent: int = 0
    seq_id: int = -1
    scope: int = 0
    tid: int = 0
    fw_tid: int = 0


class _NodeOfAttributes(msgspec.Struct, gc=False):
    id: int
    name: str
    ctrl_deps: int
    attrs: list[Attr]


_PlainAttrs: Any = msgspec.defstruct(
    "_PlainAttrs", [(name, attribute_type(name, float)) for name in ATTRIBUTES], array_like=True, gc=False
)


class _PlainNode(msgspec.Struct, gc=False):
    """A node for `NumberRows`: it has only PyTorch's attributes, and a double can represent each number exactly."""

    id: int
    name: str
    ctrl_deps: int
    attrs: _PlainAttrs


class NodeTexts(Protocol):
    @property
    def first(self) -> IntColumn: ...
    @property
    def block_count(self) -> int: ...
    def __len__(self) -> int: ...
    def cut(self, block: int) -> tuple[bytes, list[bytes]]: ...
    def of(self, records: IntColumn) -> list[bytes]: ...
    def tensors_of(self, records: IntColumn) -> list[bytes]: ...


@dataclass(frozen=True)
class ExecutionTrace:
    """The columns of an ET, with one entry per node in file order."""

    file: str
    schema: str  # from "1.0.1" to "1.1.1-chakra.1.0.0"
    flat: bool  # True for the flat layout of schema 1.0.1; False if nodes have `ctrl_deps` and `attrs`
    pid: int  # −1 if the process id is unknown
    started_s: int  # local start time in seconds since the epoch, computed as if it were UTC; −1 if unknown
    duration_s: float  # 0 if the duration is unknown
    before: bytes  # the file's text up to and including the "[" of `nodes`
    after: bytes  # the file's text from the "]" of `nodes` to the end
    texts: NodeTexts
    id: IntColumn
    parent: IntColumn
    rf_id: IntColumn  # the node's record function id; 0 if there is none
    fw_parent: IntColumn
    seq_id: IntColumn  # autograd's sequence number; −1 if the node has none
    scope: IntColumn
    tid: IntColumn
    fw_tid: IntColumn
    name: npt.NDArray[np.int32]  # The codes are indices into `names`.
    names: list[str]
    structural: npt.NDArray[np.bool_]  # True for process and thread nodes
    losses: tuple[Loss, ...] = ()

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.id)


def read_execution_trace(source: Source, *, strict: bool = False, progress: bool = False) -> ExecutionTrace:
    """Read an ET of any schema 1.x; `strict` refuses broken files instead of recovering the readable part."""
    return parse_execution_trace(open_text(source, progress=progress), strict=strict, progress=progress)


def parse_execution_trace(blob: Blob[Text], *, strict: bool = False, progress: bool = False) -> ExecutionTrace:
    return read_tolerantly(blob, "nodes", _read, strict=strict, progress=progress)


def _read(document: Document) -> ExecutionTrace:
    array = None if document.lenient else locate(document.text, "nodes")
    if array is not None and "schema" in array.header:
        with contextlib.suppress(*UNREADABLE):  # The slower parser handles broken and unusual nodes.
            flat = _is_flat(array.first)
            parts = list(document.parts(array, partial(_read_nodes, flat=flat)))
            texts = array.texts([span for part in parts for span in part.spans])
            around = document.text[: array.body], document.text[array.end :]
            return _build(document, array.header, around, texts, parts, flat)
    data = document.text[:]
    header, records, (begin, end) = parse_records(data, "nodes")
    flat = _is_flat(records.texts[0] if records.texts else b"")
    texts = RecordTexts.joined(_readable(records.texts, flat, document) if document.lenient else records.texts)
    return _build(document, header, (data[:begin], data[end:]), texts, [_read_nodes(texts.arrays(), flat)], flat)


def _build(
    document: Document,
    header: dict[str, msgspec.Raw],
    around: tuple[bytes, bytes],
    texts: RecordTexts,
    parts: list[_NodePart],
    flat: bool,
) -> ExecutionTrace:
    schema, pid = _check_header(document.name, header)
    check_utf8(b"".join(around))
    if not len(texts):
        raise TraceFormatError(document.name, "", "the trace has no nodes", "record it again with the observer started")
    started_s, duration_s = _recorded(header)
    names = StringTable()
    name = np.concatenate([names.codes(part.names)[part.columns.pop("name")] for part in parts])
    columns = joined_columns([part.columns for part in parts])
    structural = matching(name, names.values, STRUCTURAL.fullmatch)
    circling, parent = _without_circles(columns["id"], columns["parent"], structural, columns["tid"])
    losses = document.all_losses()
    if len(circling):
        shown = ", ".join(map(str, columns["id"][circling[:_SHOWN]].tolist()))
        if not document.lenient:
            raise msgspec.ValidationError(f"nodes that call each other in a cycle: {shown}")
        losses = (*losses, Loss("caller_circle", len(circling), -1, f"ids {shown}"))
        texts, columns["parent"] = _with_callers(texts, columns["parent"], parent, flat), parent
    return ExecutionTrace(
        file=document.name, schema=schema, flat=flat, pid=pid, started_s=started_s, duration_s=duration_s,
        before=around[0], after=around[1], texts=texts, name=name, names=names.values, structural=structural,
        losses=losses, **columns,
    )  # fmt: skip


def _without_circles(
    ids: IntColumn, parent: IntColumn, structural: npt.NDArray[np.bool_], tid: IntColumn
) -> tuple[IntColumn, IntColumn]:
    """Move nodes on caller cycles below a thread or the first node. Return their rows and the caller of every node."""
    rows = positions(ids, parent)
    rows[(rows == np.arange(len(ids))) & structural] = -1
    if not np.any((parent >= ids) & (rows >= 0)):  # PyTorch gives callers smaller ids than their callees.
        return rows[:0], parent
    circling = on_circles(rows)
    outermost = nearest(np.arange(len(ids)), rows, circling | (rows < 0))
    moved = circling | (circling[outermost] & structural)  # Otherwise, a thread below the cycle would form it again.
    process, threads = np.flatnonzero(structural)[:1], np.flatnonzero(structural)[1:]
    root = int(ids[process[0]]) if len(process) else -1
    thread = positions(tid[threads], tid)
    below_thread = ~structural & (thread >= 0)
    caller = scatter(len(ids), below_thread, ids[threads[thread[below_thread]]], root)
    return np.flatnonzero(circling), np.where(moved, caller, parent)


def _with_callers(texts: RecordTexts, before: IntColumn, parent: IntColumn, flat: bool) -> RecordTexts:
    changed = np.flatnonzero(before != parent)
    every = texts.of(np.arange(len(texts)))
    for at, caller in zip(changed.tolist(), parent[changed].tolist(), strict=True):
        node = msgspec.json.decode(every[at], type=dict[str, msgspec.Raw])
        node["parent" if flat else "ctrl_deps"] = msgspec.Raw(b"%d" % caller)
        every[at] = msgspec.json.encode(node)
    return RecordTexts.joined(every)


def _recorded(header: dict[str, msgspec.Raw]) -> tuple[int, float]:
    """Return start and duration in seconds. `time` is local; `start_ts` and `finish_ts` are in ms on another clock."""
    try:
        begin = calendar.timegm(time.strptime(msgspec.json.decode(header["time"], type=str), "%Y-%m-%d %H:%M:%S"))
        start, finish = (msgspec.json.decode(header[key], type=int) for key in ("start_ts", "finish_ts"))
        return max(begin, -1), max(finish - start, 0) / 1000
    except (KeyError, ValueError, OverflowError, *UNREADABLE):
        return -1, 0.0


def _check_header(file: str, header: dict[str, msgspec.Raw]) -> tuple[str, int]:
    values = {key: msgspec.json.decode(header[key]) for key in ("schema", "pid") if key in header}
    if "etplus" in header:
        raise TraceFormatError(file, "", "this is an ET+ file, already linked", "give the original ET")
    schema, pid = values.get("schema"), values.get("pid")
    if not isinstance(schema, str):
        raise TraceFormatError(file, "", 'no "schema" version', "give an Execution Trace written by PyTorch")
    if not re.fullmatch(r"1\.[\w.-]{1,40}", schema):
        raise TraceFormatError(
            file, "", f"unknown Execution Trace schema {schema[:60]!r}", "this release reads schemas 1.x"
        )
    return schema, pid if type(pid) is int and 0 <= pid < 2**63 else -1


@dataclass(frozen=True)
class _NodePart:
    spans: list[tuple[int, int, int]]
    columns: dict[str, npt.NDArray[Any]]
    names: list[str]


_NO_ATTRS = _PlainAttrs(*(attribute_type(name, float)(0.0) for name in ATTRIBUTES))
_VALUE_OF = {name: msgspec.msgpack.encode(name) + msgspec.msgpack.encode("value") for name in ATTRIBUTES}
_number_rows = NumberRows(_NO_ATTRS, _VALUE_OF)
_NAME, _ATTRS = map(attrgetter, ("name", "attrs"))
_decode_plain = msgspec.json.Decoder(list[_PlainNode]).decode
_decode_flat = msgspec.json.Decoder(list[_FlatNode]).decode
_decode_one_flat = msgspec.json.Decoder(_FlatNode).decode
_decode_one = msgspec.json.Decoder(_NodeOfAttributes).decode


_SHOWN = 5  # An error message lists at most this many ids.


def _is_flat(first: bytes) -> bool:
    return bool(first) and b'"ctrl_deps"' not in first


def _read_nodes(blocks: Iterable[Block], flat: bool) -> _NodePart:
    names, spans = StringTable(), []
    columns: list[dict[str, npt.NDArray[Any]]] = []
    for begin, end, array in blocks:
        nodes, block = _decoded(array, flat)
        check_utf8(array)
        spans.append((begin, end, len(nodes)))
        columns.append({**block, "name": names.codes(list(map(_NAME, nodes)))})
    return _NodePart(spans, joined_columns(columns), names.values)


def _as_flat(text: msgspec.Raw) -> _FlatNode:
    node = _decode_one(text)
    values = {attr.name: attr.value for attr in node.attrs if attr.name in ATTRIBUTES}
    return _FlatNode(node.id, node.name, node.ctrl_deps, **values)


def _decoded(array: memoryview, flat: bool) -> tuple[list[Any], dict[str, IntColumn]]:
    if not flat:
        with contextlib.suppress(msgspec.ValidationError):
            plain = _decode_plain(array)
            numbers = _number_rows.columns(list(map(_ATTRS, plain)))
            if numbers is not None:
                ids = {"id": "id", "parent": "ctrl_deps"}
                numbers |= {name: int_column(list(map(attrgetter(of), plain)), 0) for name, of in ids.items()}
                return plain, numbers
    nodes = _decode_flat(array) if flat else list(map(_as_flat, decode_raws(array)))
    missing = {"id": 0, "parent": 0, **ATTRIBUTES}
    return nodes, {name: int_column(list(map(attrgetter(name), nodes)), none) for name, none in missing.items()}


def _readable(texts: list[bytes], flat: bool, document: Document) -> list[bytes]:
    kept = []
    for text in texts:
        try:
            (_decode_one_flat if flat else _decode_one)(text)
            kept.append(text)
        except UNREADABLE as error:
            document.dropped.append(str(error))
    return kept
