"""PyTorch Execution Traces (ET, schemas 1.0.1 to 1.1.1): node columns plus the untouched bytes of each node.

Field positions by schema version follow what `torch.profiler.ExecutionTraceObserver` writes: version 1.0.1 has flat
nodes, later ones have `ctrl_deps` and a list `attrs` that starts with rf_id, fw_parent, seq_id, scope, tid, fw_tid.
"""

from __future__ import annotations

import calendar
import contextlib
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from types import GenericAlias
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from .errors import TraceFormatError
from .files import Blob, Source, load
from .records import UNREADABLE, IntColumn, Records, StringTable, int_column, locate, parse_records
from .recover import Loss
from .tolerant import Document, read_tolerantly

__all__ = ["ANNOTATION_SCOPE", "ExecutionTrace", "parse_execution_trace", "read_execution_trace"]

ANNOTATION_SCOPE = 7
"""`scope` of a user annotation (record_function) in the ET; Kineto's category `user_annotation`."""

_STRUCTURAL = re.compile(r"\[pytorch\|profiler\|execution_(?:graph|trace)\|(?:process|thread)\]")
_ORDER = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid")
"""The first attributes of a node, in the order in which PyTorch writes them."""
_COLUMNS = {"rf_id": 0, "seq_id": -1, "scope": 0, "tid": 0}
"""The attributes that linking needs, with the value for "none"."""


class _FlatNode(msgspec.Struct, gc=False):
    id: int
    name: str
    parent: int
    rf_id: int = 0
    seq_id: int = -1
    scope: int = 0
    tid: int = 0


class _Attr(msgspec.Struct, gc=False):
    name: str
    value: Any = None


class _Node(msgspec.Struct, gc=False):
    """A node whose `attrs` may hold anything in any order."""

    id: int
    name: str
    ctrl_deps: int
    attrs: list[_Attr]

    def in_usual_order(self) -> _Node:
        """Itself with the attributes of `_ORDER` alone, in that order."""
        given = {attr.name: attr for attr in self.attrs}
        self.attrs = [given.get(name) or _Attr(name, _COLUMNS.get(name)) for name in _ORDER]
        return self


class _Skipped(msgspec.Struct, gc=False):
    pass


def _usual_node(attr_count: int) -> type[Any]:
    """A node type that decodes only what PyTorch writes, in its order: 1.6 times the speed of `_Node`.

    The attributes' names are the tags of six struct types, so that a node with another order does not decode.
    """
    first = [
        msgspec.defstruct(f"_{n}", [("value", int)] if n in _COLUMNS else [], tag_field="name", tag=n, gc=False)
        for n in _ORDER
    ]
    attrs = GenericAlias(tuple, (*first, *[_Skipped] * (attr_count - len(first))))
    return msgspec.defstruct("_UsualNode", [("id", int), ("name", str), ("ctrl_deps", int), ("attrs", attrs)], gc=False)


@dataclass(frozen=True)
class ExecutionTrace:
    """An ET as columns; all arrays have one entry a node, in file order.

    Attributes:
        file: name for messages.
        schema: the file's schema version, "1.0.1" to "1.1.1-chakra.1.0.0".
        flat: True for the layout of 1.0.1 (`parent` and other fields in the node), False for `ctrl_deps` and `attrs`.
        pid: process id, −1 if the file has none.
        started_s: local time at which recording began, seconds since the epoch as if it were UTC; −1 if unknown.
        duration_s: how long it went on, 0 if unknown.
        data: the whole document.
        body: offsets in `data` just after the "[" of `nodes` and of its "]".
        start, end: span of each node's text in `data`, braces included.
        id, parent, rf_id, seq_id, scope, tid: int64; seq_id −1 and rf_id 0 mean "none".
        name: int32 code into `names`.
        names: distinct node names.
        structural: True for the process and thread nodes, which are no calls.
        losses: what a tolerant reading of a broken file repaired or lost; () for a sound file.
    """

    file: str
    schema: str
    flat: bool
    pid: int
    started_s: int
    duration_s: float
    data: bytes
    body: tuple[int, int]
    start: IntColumn
    end: IntColumn
    id: IntColumn
    parent: IntColumn
    rf_id: IntColumn
    seq_id: IntColumn
    scope: IntColumn
    tid: IntColumn
    name: npt.NDArray[np.int32]
    names: list[str]
    structural: npt.NDArray[np.bool_]
    losses: tuple[Loss, ...] = ()

    def __len__(self) -> int:
        return len(self.id)


def read_execution_trace(source: Source, *, strict: bool = False, progress: bool = False) -> ExecutionTrace:
    """Read an ET of any schema 1.x, gzipped or not.

    Args:
        source: path, "-", bytes or binary file object.
        strict: refuse a broken file instead of recovering what can be read.
        progress: show a bar for reading that takes over two seconds.

    Raises:
        TraceFormatError: not an ET, an unknown schema version, or broken beyond (or, if strict, before) recovery.
    """
    return parse_execution_trace(load(source, progress=progress), strict=strict, progress=progress)


def parse_execution_trace(blob: Blob, *, strict: bool = False, progress: bool = False) -> ExecutionTrace:
    """The same of a file that is in memory."""
    return read_tolerantly(blob, "nodes", _read, strict=strict, progress=progress)


def _read(document: Document) -> ExecutionTrace:
    array = locate(document.data, "nodes")
    if array is not None and "schema" in array.header and not document.lenient:
        with contextlib.suppress(*UNREADABLE):  # a broken node, or an odd layout: the parser tells
            blocks = array.blocks(document.task, document.progress)
            return _build(document, array.header, (array.body, array.end), map(array.records, blocks))
    header, records, body = parse_records(document.data, "nodes")
    return _build(document, header, body, [records])


def _build(
    document: Document, header: dict[str, msgspec.Raw], body: tuple[int, int], blocks: Iterable[Records]
) -> ExecutionTrace:
    schema, pid = _check_header(document.name, header)
    started_s, duration_s = _recorded(header)
    names = StringTable()
    flat = False
    parts: list[dict[str, npt.NDArray[Any]]] = []
    for block in blocks:
        if not parts:
            flat = bool(block.texts) and b'"ctrl_deps"' not in block.texts[0]
        nodes = _decode_flat(block.texts, document) if flat else _decode(block.texts, document)
        kept = np.fromiter((node is not None for node in nodes), np.bool_, len(nodes))
        nodes = [node for node in nodes if node is not None]
        columns = _flat_columns(nodes) if flat else _columns(nodes)
        columns["name"] = names.codes([node.name for node in nodes])
        parts.append({**columns, "start": block.start[kept], "end": block.end[kept]})
    if not any(len(part["id"]) for part in parts):
        raise TraceFormatError(document.name, "", "the trace has no nodes", "record it again with the observer started")
    together = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    structural = np.array([_STRUCTURAL.fullmatch(name) is not None for name in names.values])
    return ExecutionTrace(
        file=document.name, schema=schema, flat=flat, pid=pid, started_s=started_s, duration_s=duration_s,
        data=document.data, body=body, names=names.values,
        structural=structural[together["name"]], losses=document.all_losses(), **together,
    )  # fmt: skip


def _recorded(header: dict[str, msgspec.Raw]) -> tuple[int, float]:
    """When the ET was recorded: `time` is local, `start_ts` and `finish_ts` are ms of a clock of their own."""
    try:
        begin = calendar.timegm(time.strptime(msgspec.json.decode(header["time"], type=str), "%Y-%m-%d %H:%M:%S"))
        start, finish = (msgspec.json.decode(header[key], type=int) for key in ("start_ts", "finish_ts"))
    except (KeyError, ValueError, *UNREADABLE):
        return -1, 0.0
    return max(begin, -1), max(finish - start, 0) / 1000


def _check_header(file: str, header: dict[str, msgspec.Raw]) -> tuple[str, int]:
    values = {key: msgspec.json.decode(header[key]) for key in ("schema", "pid") if key in header}
    if "etplus" in header:
        raise TraceFormatError(file, "", "this is an ET+ file, already linked", "give the ET that it was made from")
    schema, pid = values.get("schema"), values.get("pid")
    if not isinstance(schema, str):
        raise TraceFormatError(file, "", 'no "schema" version', "give an Execution Trace written by PyTorch")
    if not re.fullmatch(r"1\.[\w.-]{1,40}", schema):
        raise TraceFormatError(
            file, "", f"unknown Execution Trace schema {schema[:60]!r}", "this release reads schemas 1.x"
        )
    return schema, pid if type(pid) is int and 0 <= pid < 2**63 else -1


def _decode(texts: list[bytes], document: Document) -> list[Any]:
    """Nodes with id, name, ctrl_deps and attrs in the order of `_ORDER`; None for one that is dropped."""
    usual: Callable[[bytes], Any] = msgspec.json.Decoder(_usual_node(max(_attr_count(texts), len(_ORDER)))).decode
    general = msgspec.json.Decoder(_Node).decode

    def decode(text: bytes) -> Any:
        try:
            return usual(text)
        except msgspec.ValidationError:
            return general(text).in_usual_order()

    return _decode_each(texts, usual, decode, document)


def _decode_flat(texts: list[bytes], document: Document) -> list[Any]:
    decode = msgspec.json.Decoder(_FlatNode).decode
    return _decode_each(texts, decode, decode, document)


def _decode_each(
    texts: list[bytes], usual: Callable[[bytes], Any], general: Callable[[bytes], Any], document: Document
) -> list[Any]:
    with contextlib.suppress(*UNREADABLE):
        return list(map(usual, texts))
    nodes: list[Any] = []
    for text in texts:
        try:
            nodes.append(general(text))
        except UNREADABLE as error:
            if not document.lenient:
                raise
            document.dropped.add(error)
            nodes.append(None)
    return nodes


def _attr_count(texts: list[bytes]) -> int:
    """How many attributes the first node has."""
    try:
        return len(msgspec.json.decode(texts[0], type=_Node).attrs)
    except (IndexError, *UNREADABLE):
        return 0


def _columns(nodes: list[Any]) -> dict[str, Any]:
    columns = {
        "id": int_column([n.id for n in nodes], 0),
        "parent": int_column([n.ctrl_deps for n in nodes], 0),
    }
    attrs = [n.attrs for n in nodes]
    for column, none in _COLUMNS.items():
        k = _ORDER.index(column)
        columns[column] = int_column([a[k].value for a in attrs], none)
    return columns


def _flat_columns(nodes: list[Any]) -> dict[str, Any]:
    columns = {"id": int_column([n.id for n in nodes], 0), "parent": int_column([n.parent for n in nodes], 0)}
    for column, none in _COLUMNS.items():
        columns[column] = int_column(list(map(attrgetter(column), nodes)), none)
    return columns
