"""Read Chakra protobuf traces (.et) as a `Trace` or as ET+, with all fields that `write_et` writes."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ...trace.columns import IntColumn, StringTable, distinct_rows
from ...trace.comm_kernels import Comm
from ...trace.errors import UNREADABLE, TraceFormatError
from ...trace.trace import Trace
from ..etplus.captured_graphs import CapturedBy
from ..etplus.read_etplus import Node as EtPlusNode
from ..etplus.read_etplus import NodeRows
from ..etplus.record_store import MadeRecords
from ..etplus.sections import Counterpart
from ..execution_trace.arguments import ATTRIBUTES, ET_ATTRIBUTES, FLAT_TENSORS, TENSOR_KEYS, listed_attributes
from ..text.files import open_output, shown_name
from . import row_reading as reading
from .attributes import KIND_BITS, MESSAGES, is_message, values_of
from .et_def_pb2 import GlobalMetadata, Node
from .foreign_reader import read_foreign
from .node_records import EVENT_NUMBERS
from .stream import read_encoded

_TIMES = ("ts", "dur", "inclusive_dur", "exclusive_dur")
# Columns of a `Trace` that are read from operator attributes; EVENT_NUMBERS lists the columns of GPU events.
_OF_OP = ("kineto_event", "link", "inter_thread_dep", "sync_dep")
_REPEATED = re.compile(f'"(?:{"|".join(ATTRIBUTES)})"')  # Matches an additional attribute with the name of a column.
# Maps each attribute that contains a JSON object to the type of the object.
_OBJECTS = {"comm": Comm | None, "captured_by": CapturedBy | None, "counterpart": Counterpart | None}

_encode = msgspec.json.Encoder().encode
_skip = msgspec.json.Decoder(msgspec.Raw).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_et(path: str | os.PathLike[str]) -> Trace:
    """Read an .et file: first nodes in file order, then runtime calls by start time. Each node takes 250 bytes."""
    metadata, messages = read_encoded(path)
    file = shown_name(path)
    if not written_by_etplus(metadata):
        return read_foreign(file, messages, os.fspath(path))
    return _read(file, metadata, messages)


def written_by_etplus(metadata: GlobalMetadata) -> bool:
    return {"header", "etplus", "layout"} <= {attr.name for attr in metadata.attr}


def _read(file: str, metadata: GlobalMetadata, messages: Iterator[reading.Encoded]) -> Trace:
    form = _Form(file, metadata)
    rows, needs = NodeRows(file), _Needs(form)
    bodies: list[bytes] = []
    calls: list[_ReadNode] = []

    def add(block: list[_ReadNode], *, runtime: bool) -> None:
        times = reading.time_columns(file, [read.node.id for read in block], [read.times for read in block])
        rows.add([read.node for read in block], times, runtime=runtime)
        bodies.extend(read.body for read in block)

    for block in reading.blocks_of(messages):
        reading.check_ids(file, block)
        nodes = [form.read(*message, needs) for message in block if not is_message(message[0])]
        calls += [read for read in nodes if read.runtime]
        add([read for read in nodes if not read.runtime], runtime=False)
    add(sorted(calls, key=lambda call: (call.times[0], call.node.id)), runtime=True)
    texts = MadeRecords(
        partial(_texts, form, bodies), partial(_file_text, form, bodies), partial(_tensor_texts, form, bodies)
    )
    return rows.trace(form.header, form.summary, texts, needs.edges)


def write_messages(file: str, metadata: GlobalMetadata, nodes: Iterator[Node], output: str | os.PathLike[str]) -> int:
    """Write messages as ET+; return the number of nodes and calls. Nodes and dependencies take 50 bytes each."""
    if not written_by_etplus(metadata):
        trace = read_foreign(file, ((node, node.SerializeToString()) for node in nodes), file)
        trace.write(output)
        return len(trace)
    form = _Form(file, metadata)
    needs = _Needs(form)
    with open_output(output) as out:
        for chunk in form.chunks(nodes, needs):
            out.write(chunk)
    return len(needs.ids)


class _ReadNode(NamedTuple):
    """A decoded node without times, its times (`ts`, `dur` and `exclusive` in ns), and its encoded message."""

    node: EtPlusNode
    times: tuple[int, int, int]
    body: bytes
    runtime: bool


def _texts(form: _Form, messages: list[bytes], rows: IntColumn) -> list[bytes]:
    return [_encode(form.record(node, values_of(node.attr))) for node in _nodes(messages, rows)]


def _tensor_texts(form: _Form, messages: list[bytes], rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
    known, strides, texts = StringTable(), "input_strides", list[bytes]()
    for node in _nodes(messages, rows):
        values = {attr.name: attr.string_val for attr in node.attr if attr.name == strides}
        texts.append(_encode(form.tensors(node, values)))
    return known.codes(texts).astype(np.int64), known.values


def _file_text(form: _Form, messages: list[bytes]) -> Iterator[bytes]:
    return form.chunks(map(Node.FromString, messages), _Needs(form))


def _nodes(messages: list[bytes], rows: IntColumn) -> Iterator[Node]:
    return (Node.FromString(messages[row]) for row in rows.tolist())


class _Form:
    def __init__(self, file: str, metadata: GlobalMetadata) -> None:
        self.file = file
        texts = {attr.name: attr.string_val for attr in metadata.attr}
        self.flat = texts["layout"] == '"flat"'
        self.header = self._object(texts["header"])
        self.summary = self._raw(texts["etplus"], None)

    def chunks(self, nodes: Iterable[Node], needs: _Needs) -> Iterator[bytes]:
        runtime: list[tuple[int, int, bytes]] = []
        yield reading.document_head(self.header)
        between = b""
        for node in nodes:
            if is_message(node):
                continue
            values = values_of(node.attr)
            needs.add(node, values)
            text = _encode(self.record(node, values))
            if values.get("cat") == "runtime":
                runtime.append((values.get("start_ns", 0), node.id, text))
            else:
                yield between + text
                between = reading.SEPARATOR
        yield from reading.document_tail((text for _, _, text in sorted(runtime)), needs.edges(), bytes(self.summary))

    def read(self, node: Node, body: bytes, needs: _Needs) -> _ReadNode:
        values = values_of(node.attr)
        needs.add(node, values)
        return _ReadNode(self._node(node, values), self._ns(values), body, values.get("cat") == "runtime")

    def _node(self, node: Node, values: dict[str, Any]) -> EtPlusNode:
        category, parent = values.get("cat"), self._parent(node, values)
        names = EVENT_NUMBERS if category is not None else _OF_OP if "start_ns" in values else ()
        found: dict[str, Any] = {name: values[name] for name in names if name in values}
        if category == "runtime":
            found = {
                "parent": parent,
                "correlation": values.get("correlation", -1),
                "tid": self._typed(values.get("kineto_tid", "0"), node, int | str),
                "kineto_event": values.get("kineto_event", 0),
            }
        else:
            if category is None:
                found |= {name: values[name] for name in ATTRIBUTES if name in values}
            found["parent" if self.flat else "ctrl_deps"] = parent
            if category is not None:
                found["cat"] = category
                found |= {name: self._typed(values[name], node, of) for name, of in _OBJECTS.items() if name in values}
        if "et_fields" in values or _REPEATED.search(values.get("et_attrs", "")):
            found = self._corrected(node, values, found)
        return EtPlusNode(**{"name": node.name, **found, "id": node.id})

    def _corrected(self, node: Node, values: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
        further = {
            name: raw for name, raw in self._further(node, values).items() if name in EtPlusNode.__struct_fields__
        }
        more = self._raw(values.get("et_attrs", "[]"), node)
        if "attrs" not in further and not self.flat and bytes(more).lstrip()[:1] == b"[":
            further["attrs"] = more
        elif "attrs" in further:
            found = {name: value for name, value in found.items() if name not in ATTRIBUTES}
        try:
            read = msgspec.json.decode(_encode({"id": node.id, "name": node.name, **further}), type=EtPlusNode)
        except UNREADABLE as error:
            raise self._refusal(node, str(error), reading.AGAIN) from None
        found |= {name: getattr(read, name) for name in further if name != "attrs"}
        return found | {attr.name: attr.value for attr in read.attrs if attr.name in ATTRIBUTES}

    def _ns(self, values: dict[str, Any]) -> tuple[int, int, int]:
        if "start_ns" not in values and "cat" not in values:
            return -1, 0, 0
        inclusive, exclusive = self._durations(values)
        return max(values.get("start_ns", 0), 0), inclusive, 0 if values.get("cat") == "runtime" else exclusive

    def record(self, node: Node, values: dict[str, Any]) -> dict[str, Any]:
        parent = self._parent(node, values)
        record: dict[str, Any] = {"id": node.id, "name": node.name}
        if values.get("cat") == "runtime":
            record |= self._times(values, _TIMES[:2])
            record |= {"tid": self._raw(values.get("kineto_tid", "0"), node)}
            record |= {"correlation": values.get("correlation", -1), "parent": parent}
            return record | {"kineto_event": values.get("kineto_event", 0)} | self._further(node, values)
        if parent is not None:
            record["parent" if self.flat else "ctrl_deps"] = parent
        record |= self.tensors(node, values)
        record |= self._et_attributes(node, values)
        record |= self._event(node, values)
        return record | self._further(node, values)

    def tensors(self, node: Node, values: dict[str, Any]) -> dict[str, Any]:
        record: dict[str, Any] = {}
        for side, flat_keys in FLAT_TENSORS.items():
            if not node.HasField(side):
                continue
            texts = [self._raw(getattr(getattr(node, side), key), node) for key in TENSOR_KEYS]
            if self.flat:
                record |= dict(zip(flat_keys, texts, strict=True))
                continue
            record[side] = dict(zip(TENSOR_KEYS, texts, strict=True))
            strides = values.get(f"{side[:-1]}_strides")
            if strides is not None:
                record[side]["strides"] = self._raw(strides, node)
        return record

    def _et_attributes(self, node: Node, values: dict[str, Any]) -> dict[str, Any]:
        if self.flat:
            return {name: values.get(name, none) for name, (_, none) in ET_ATTRIBUTES.items()}
        attrs = listed_attributes(values)
        more = msgspec.json.decode(self._raw(values.get("et_attrs", "[]"), node))
        return {"attrs": attrs + more if isinstance(more, list) else attrs}

    def _event(self, node: Node, values: dict[str, Any]) -> dict[str, Any]:
        if "cat" not in values:
            if "start_ns" not in values:
                return {}
            record = self._times(values, _TIMES)
            record |= {name: values[name] for name in ("kineto_event", "link") if name in values}
            waits = {"inter_thread_dep": values.get("inter_thread_dep"), "sync_dep": values.get("sync_dep", [])}
            return record | waits
        record = {"cat": values["cat"], "ph": "X", **self._times(values, _TIMES)}
        record |= {name: values[name] for name in EVENT_NUMBERS if name in values}
        if "pid" in values:
            record |= {"pid": values["pid"]} | ({} if self.flat else {"tid": values.get("stream", -1)})
        for name in ("args", "comm", "captured_by", "counterpart"):
            if name in values:
                record[name] = self._raw(values[name], node)
        if "comm" in record:
            comm = msgspec.json.decode(record["comm"])
            record["pg_name"] = comm.get("pg_name") if isinstance(comm, dict) else None
        return record

    def _times(self, values: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
        inclusive, exclusive = self._durations(values)
        us = (reading.micros_text(ns) for ns in (max(values.get("start_ns", 0), 0), inclusive, inclusive, exclusive))
        return dict(zip(keys, us, strict=False))

    def _further(self, node: Node, values: dict[str, Any]) -> dict[str, msgspec.Raw]:
        return self._object(values["et_fields"], node) if "et_fields" in values else {}

    def _durations(self, values: dict[str, Any]) -> tuple[int, int]:
        own = values.get("duration_ns", 0)
        return values.get("inclusive_ns", own), values.get("exclusive_ns", own)

    def _parent(self, node: Node, values: dict[str, Any]) -> int | None:
        return node.ctrl_deps[0] if node.ctrl_deps else values.get("call_parent")

    def _typed(self, text: str, node: Node, kind: Any) -> Any:
        raw = self._raw(text, node)
        try:
            return msgspec.json.decode(raw, type=kind)
        except UNREADABLE as error:
            raise self._refusal(node, f"an attribute has the wrong type ({error})", reading.AGAIN) from None

    def _raw(self, text: str, node: Node | None) -> msgspec.Raw:
        try:
            return _skip(text.encode())
        except (msgspec.MsgspecError, RecursionError):
            raise self._refusal(node, "an attribute is not JSON", reading.AGAIN) from None

    def _object(self, text: str, node: Node | None = None) -> dict[str, msgspec.Raw]:
        raw = self._raw(text, node)
        try:
            return _decode_object(raw)
        except msgspec.ValidationError:
            raise self._refusal(node, "an attribute is not a JSON object", reading.CHECK) from None

    def _refusal(self, node: Node | None, problem: str, remedy: str) -> TraceFormatError:
        return TraceFormatError(self.file, "metadata" if node is None else f"node {node.id}", problem, remedy)


class _Needs:
    def __init__(self, form: _Form) -> None:
        self.form = form
        self.ids = array("q")
        self.source, self.target, self.kinds = array("q"), array("q"), array("q")

    def add(self, node: Node, values: dict[str, Any]) -> None:
        reading.check_range(self.form.file, node)
        deps, kinds = list(node.data_deps), values.get("data_dep_kinds", [])
        deps = deps[: len(deps) - values.get(MESSAGES, 0)]
        if len(kinds) != len(deps):
            problem = f"{len(deps)} data_deps but {len(kinds)} kinds"
            raise TraceFormatError(self.form.file, f"node {node.id}", problem, reading.AGAIN)
        self.ids.append(node.id)
        self.source.extend(deps)
        self.target.extend([node.id] * len(deps))
        self.kinds.extend(kinds)

    def edges(self) -> IntColumn:
        """Return the distinct edges as sorted int64 rows. Each row is (source id, target id, index into EDGE_KINDS)."""
        ids, source, target, kinds = (
            np.frombuffer(a, np.int64) for a in (self.ids, self.source, self.target, self.kinds)
        )
        reading.rows_of_dependencies(self.form.file, ids, source, target)
        which, kind = np.nonzero(kinds[:, None] & KIND_BITS)
        return distinct_rows(source[which], target[which], kind)[0]
