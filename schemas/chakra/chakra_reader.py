"""Chakra protobuf traces (.et) as traces or ET+: all that `write_et` put there, and what there is in other files."""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ... import __version__
from ...trace.columns import IntColumn, StringTable, distinct_rows, positions
from ...trace.comm_kernels import Comm
from ...trace.conventions import EDGE_KINDS, MAX_DURATION_NS, MAX_NS
from ...trace.errors import UNREADABLE, TraceFormatError
from ...trace.trace import Trace
from ..etplus.captured_graphs import CapturedBy
from ..etplus.counterpart_links import Counterpart
from ..etplus.read_etplus import Node as EtPlusNode
from ..etplus.read_etplus import NodeRows
from ..etplus.record_store import TextRecords
from ..etplus.write_etplus import FORMAT_VERSION
from ..execution_trace.arguments import ATTRIBUTES, ET_ATTRIBUTES, FLAT_TENSORS, TENSOR_KEYS, listed_attributes
from ..text.files import open_output, shown_name
from .attributes import KIND_BITS, values_of
from .et_def_pb2 import CollectiveCommType, GlobalMetadata, Node, NodeType
from .node_records import EVENT_NUMBERS
from .stream import read_encoded

_SEPARATOR = b",\n    "
_FOREIGN_SCHEMA = "1.1.0-chakra.0.0.4"
_TIMES = ("ts", "dur", "inclusive_dur", "exclusive_dur")
_AGAIN = "convert the ET+ file again"
_CHECK = "run `etplus check`"
_BLOCK = 4096
"""Nodes that are held as objects at once."""
_OF_OP = ("kineto_event", "link", "inter_thread_dep", "sync_dep")
"""Attributes that are columns of a `Trace` of ops; EVENT_NUMBERS are those of GPU events."""
_REPEATED = re.compile(f'"(?:{"|".join(ATTRIBUTES)})"')
"""In further attributes: one that is a column."""
_OBJECTS = {"comm": Comm | None, "captured_by": CapturedBy | None, "counterpart": Counterpart | None}
"""Those that hold JSON objects."""

_encode = msgspec.json.Encoder().encode
_skip = msgspec.json.Decoder(msgspec.Raw).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_et(path: str | os.PathLike[str]) -> Trace:
    """Read an .et file; nodes in the order of the file, then runtime calls by start.

    Memory: the file's messages and some 250 bytes a node; the text of a record is made when it is asked for.

    Raises:
        TraceFormatError: no Chakra file, a damaged one, or a dependency on a node that is not there; the records of the
            trace raise it for an attribute that should be JSON.
    """
    metadata, messages = read_encoded(path)
    form = _Form(shown_name(path), metadata)
    rows, needs = NodeRows(form.file), _Needs(form)
    bodies: list[bytes] = []
    calls: list[_ReadNode] = []

    def add(block: list[_ReadNode], *, runtime: bool) -> None:
        rows.add([read.node for read in block], form.checked_times(block), runtime=runtime)
        bodies.extend(read.body for read in block)

    while block := [form.read(*message, needs) for message in islice(messages, _BLOCK)]:
        form.check_ids(block)
        calls += [read for read in block if read.runtime]
        add([read for read in block if not read.runtime], runtime=False)
    add(sorted(calls, key=lambda call: (call.times[0], call.node.id)), runtime=True)
    return rows.trace(form.header, form.summary, _ChakraRecords(form, bodies), needs.edges)


def write_messages(file: str, metadata: GlobalMetadata, nodes: Iterator[Node], output: str | os.PathLike[str]) -> int:
    """Write messages as ET+ and return the number of nodes and runtime calls.

    Memory: the texts of the runtime calls, and some 50 bytes a node and a dependency.

    Args:
        file: names the source in errors.

    Raises:
        TraceFormatError: a dependency on a node that is not there, or an attribute that should be JSON.
        UsageError: the output cannot be written.
    """
    form = _Form(file, metadata)
    needs = _Needs(form)
    with open_output(output) as out:
        for chunk in form.chunks(nodes, needs):
            out.write(chunk)
    return len(needs.ids)


class _ReadNode(NamedTuple):
    """A node, and its message.

    Attributes:
        node: what columns hold of it but the times.
        times: `ts`, `dur` and `exclusive`, ns.
    """

    node: EtPlusNode
    times: tuple[int, int, int]
    body: bytes
    runtime: bool


@dataclass(frozen=True)
class _ChakraRecords(TextRecords):
    """Makes the records of rows when they are asked for.

    Attributes:
        messages: one entry a row.
    """

    form: _Form
    messages: list[bytes]

    def texts(self, rows: IntColumn) -> list[bytes]:
        """The JSON objects of rows, braces included."""
        return [_encode(self.form.record(node, values_of(node.attr))) for node in self._nodes(rows)]

    def tensor_texts(self, rows: IntColumn) -> tuple[IntColumn, Sequence[bytes]]:
        """The inputs and outputs alone, with the strides of inputs."""
        if not self.form.ours:
            return super().tensor_texts(rows)
        known = StringTable()
        strides = "input_strides"
        nodes = ((node, {attr.name: attr.string_val for attr in node.attr if attr.name == strides})
                 for node in self._nodes(rows))  # fmt: skip
        texts = (_encode(self.form.tensors(node, values)) for node, values in nodes)
        which = known.codes(list(texts))
        return which.astype(np.int64), known.values

    def chunks(self) -> Iterator[bytes]:
        """The text of the whole file, a node at a time."""
        return self.form.chunks(map(Node.FromString, self.messages), _Needs(self.form))

    def _nodes(self, rows: IntColumn) -> Iterator[Node]:
        return (Node.FromString(self.messages[row]) for row in rows.tolist())


class _Form:
    """How the nodes of a file are read: those that `write_et` wrote, or those of another program."""

    def __init__(self, file: str, metadata: GlobalMetadata) -> None:
        self.file = file
        texts = {attr.name: attr.string_val for attr in metadata.attr}
        self.ours = {"header", "etplus", "layout"} <= set(texts)
        self.flat = texts.get("layout") == '"flat"'
        self.header = self._object(texts["header"]) if self.ours else {"schema": msgspec.Raw(_encode(_FOREIGN_SCHEMA))}
        self.summary = self._raw(texts["etplus"], "metadata") if self.ours else msgspec.Raw(_encode(self._foreign()))

    def chunks(self, nodes: Iterable[Node], needs: _Needs) -> Iterator[bytes]:
        """The ET+ text of nodes, in their order; `needs` gets what they wait for."""
        runtime: list[tuple[int, int, bytes]] = []
        yield b"{" + b"".join(b"\n  %b: %b," % (_encode(k), bytes(v)) for k, v in self.header.items())
        yield b'\n  "nodes": [\n    '
        between = b""
        for node in nodes:
            values = values_of(node.attr)
            needs.add(node, values)
            text = _encode(self.record(node, values))
            if values.get("cat") == "runtime":
                runtime.append((values.get("start_ns", 0), node.id, text))
            else:
                yield between + text
                between = _SEPARATOR
        yield b'\n  ],\n  "runtime": [' + _SEPARATOR.join(text for _, _, text in sorted(runtime)) + b"]"
        kinds = [_encode(kind) for kind in EDGE_KINDS]
        edges = (b"[%d, %d, %b]" % (a, b, kinds[kind]) for a, b, kind in needs.edges().tolist())
        yield b',\n  "edges": [' + _SEPARATOR.join(edges) + b"]"
        yield b',\n  "etplus": %b\n}\n' % bytes(self.summary)

    def read(self, node: Node, body: bytes, needs: _Needs) -> _ReadNode:
        """A node; `needs` gets what it waits for."""
        values = values_of(node.attr)
        needs.add(node, values)
        runtime = values.get("cat") == "runtime"
        if not self.ours:
            return _ReadNode(foreign_node(node, values), foreign_times(node), body, runtime)
        return _ReadNode(self._node(node, values), self._ns(values), body, runtime)

    def _node(self, node: Node, values: dict[str, Any]) -> EtPlusNode:
        """What columns hold of a node of ours."""
        category, parent = values.get("cat"), self._parent(node, values)
        names = EVENT_NUMBERS if category is not None else _OF_OP if "start_ns" in values else ()
        found: dict[str, Any] = {name: values[name] for name in names if name in values}
        if category == "runtime":
            found = {
                "parent": parent, "correlation": values.get("correlation", -1),
                "tid": self._typed(values.get("kineto_tid", "0"), node, int | str),
                "kineto_event": values.get("kineto_event", 0),
            }  # fmt: skip
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
        """The columns of a node with what its further fields and attributes say in place of the usual ones."""
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
            raise TraceFormatError(self.file, f"node {node.id}", str(error), _AGAIN) from None
        found |= {name: getattr(read, name) for name in further if name != "attrs"}
        return found | {attr.name: attr.value for attr in read.attrs if attr.name in ATTRIBUTES}

    def _ns(self, values: dict[str, Any]) -> tuple[int, int, int]:
        """`ts`, `dur` and `exclusive`."""
        if "start_ns" not in values and "cat" not in values:
            return -1, 0, 0
        inclusive, exclusive = self._durations(values)
        return max(values.get("start_ns", 0), 0), inclusive, 0 if values.get("cat") == "runtime" else exclusive

    def check_ids(self, block: list[_ReadNode]) -> None:
        """Refuse nodes with the same id at once: of a file that repeats itself there may be no end."""
        if len({read.node.id for read in block}) < len(block):
            node, count = Counter(read.node.id for read in block).most_common(1)[0]
            raise TraceFormatError(self.file, f"node {node}", f"{count} nodes have this id", _CHECK)

    def checked_times(self, block: list[_ReadNode]) -> dict[str, IntColumn]:
        """The times of rows as columns."""
        times = np.array([read.times for read in block], np.int64).reshape(-1, 3)
        late = np.flatnonzero(np.any(times >= (MAX_NS, MAX_DURATION_NS, MAX_DURATION_NS), axis=1))
        if len(late):
            place = f"node {block[late[0]].node.id}"
            raise TraceFormatError(self.file, place, "a time of over 146 years, or a duration of over 104 days", _AGAIN)
        return dict(zip(("ts", "dur", "exclusive"), times.T, strict=True))

    def record(self, node: Node, values: dict[str, Any]) -> dict[str, Any]:
        """The fields of a node in ET+."""
        if not self.ours:
            return foreign_record(node, values)
        parent = self._parent(node, values)
        if values.get("cat") == "runtime":
            return {
                "id": node.id, "name": node.name, **self._times(values, _TIMES[:2]),
                "tid": self._raw(values.get("kineto_tid", "0"), node), "correlation": values.get("correlation", -1),
                "parent": parent, "kineto_event": values.get("kineto_event", 0), **self._further(node, values),
            }  # fmt: skip
        record: dict[str, Any] = {"id": node.id, "name": node.name}
        if parent is not None:
            record["parent" if self.flat else "ctrl_deps"] = parent
        record |= self.tensors(node, values)
        record |= self._et_attributes(node, values)
        record |= self._event(node, values)
        return record | self._further(node, values)

    def tensors(self, node: Node, values: dict[str, Any]) -> dict[str, Any]:
        """The inputs and outputs, with strides where `values` have them."""
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
        """What linking added to a node."""
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
        us = (_us(ns) for ns in (max(values.get("start_ns", 0), 0), inclusive, inclusive, exclusive))
        return dict(zip(keys, us, strict=False))

    def _further(self, node: Node, values: dict[str, Any]) -> dict[str, msgspec.Raw]:
        return self._object(values["et_fields"], node) if "et_fields" in values else {}

    def _durations(self, values: dict[str, Any]) -> tuple[int, int]:
        """Inclusive and exclusive, ns."""
        own = values.get("duration_ns", 0)
        return max(values.get("inclusive_ns", own), 0), max(values.get("exclusive_ns", own), 0)

    def _parent(self, node: Node, values: dict[str, Any]) -> int | None:
        return node.ctrl_deps[0] if node.ctrl_deps else values.get("call_parent")

    def _foreign(self) -> dict[str, Any]:
        """The root's `etplus` of a file that has none."""
        kineto = {"file_name": Path(self.file).name, "base_time_ns": 0, "distributed_info": None}
        return {"version": FORMAT_VERSION, "tool_version": __version__, "kineto": kineto}

    def _typed(self, text: str, node: Node, kind: Any) -> Any:
        """The value of an attribute that is JSON."""
        try:
            return msgspec.json.decode(self._raw(text, node), type=kind)
        except UNREADABLE as error:
            raise TraceFormatError(
                self.file, f"node {node.id}", f"an attribute of another form ({error})", _AGAIN
            ) from None

    def _raw(self, text: str, node: Node | str) -> msgspec.Raw:
        """A text that is JSON, as we wrote it."""
        try:
            return _skip(text.encode())
        except (msgspec.MsgspecError, RecursionError):
            place = node if isinstance(node, str) else f"node {node.id}"
            raise TraceFormatError(self.file, place, "an attribute that should be JSON", _AGAIN) from None

    def _object(self, text: str, node: Node | str = "metadata") -> dict[str, msgspec.Raw]:
        try:
            return _decode_object(self._raw(text, node))
        except msgspec.ValidationError:
            place = node if isinstance(node, str) else f"node {node.id}"
            raise TraceFormatError(self.file, place, "an attribute that should be a JSON object", _CHECK) from None


class _Needs:
    """What the nodes of a file wait for, gathered node by node."""

    def __init__(self, form: _Form) -> None:
        self.form = form
        self.ids, self.lanes = array("q"), array("q")
        self.source, self.target, self.kinds = array("q"), array("q"), array("q")

    def add(self, node: Node, values: dict[str, Any]) -> None:
        """Take the dependencies of a node."""
        if max(node.id, *node.data_deps, *node.ctrl_deps, 0) >= 2**63:
            raise TraceFormatError(self.form.file, f"node {node.id}", "an id beyond 63 bits", "number the nodes anew")
        if self.form.ours:
            deps, kinds = list(node.data_deps), values.get("data_dep_kinds", [])
            if len(kinds) != len(deps):
                problem = f"{len(deps)} data_deps but {len(kinds)} kinds"
                raise TraceFormatError(self.form.file, f"node {node.id}", problem, _AGAIN)
        else:
            self.lanes.append(foreign_lane(node, values))
            deps = [*dict.fromkeys([*node.data_deps, *node.ctrl_deps[1:]])]
            kinds = [0] * len(deps)
        self.ids.append(node.id)
        self.source.extend(deps)
        self.target.extend([node.id] * len(deps))
        self.kinds.extend(kinds)

    def edges(self) -> IntColumn:
        """The edges between ids, int64 (m, 3), with an index into EDGE_KINDS; sorted, no duplicates."""
        ids, source, target, kinds = (
            np.frombuffer(a, np.int64) for a in (self.ids, self.source, self.target, self.kinds)
        )
        at = positions(ids, source)
        if np.any(at < 0):
            a, b = int(source[at < 0][0]), int(target[at < 0][0])
            raise TraceFormatError(self.form.file, f"node {b}", f"depends on {a}, which is not in the file", _CHECK)
        if not self.form.ours:
            kinds = foreign_kinds(np.frombuffer(self.lanes, np.int64), at, positions(ids, target))
        which, kind = np.nonzero(kinds[:, None] & KIND_BITS)
        return distinct_rows(source[which], target[which], kind)[0]


def _us(ns: int) -> msgspec.Raw:
    """ns as µs with three decimals."""
    return msgspec.Raw(b"%d.%03d" % (ns // 1000, ns % 1000))


_COMM_TYPES = (NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
_MEMORY_TYPES = (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE)
_METADATA_TYPES = (NodeType.METADATA_NODE, NodeType.INVALID_NODE)
_MAX_MICROS = 2**51
_LANES = 1 << 40
"""A lane is class · _LANES + stream or thread; the classes: host, GPU, communication."""
_HOST, _GPU, _COMM = 0, 1, 2


def foreign_node(node: Node, values: dict[str, Any]) -> EtPlusNode:
    """What columns hold of a node but the times."""
    found: dict[str, Any] = {"id": node.id, "name": node.name, "ctrl_deps": node.ctrl_deps[0] if node.ctrl_deps else 0}
    if _class_of(node, values) == _HOST:
        return EtPlusNode(**found, **{name: values[name] for name in ATTRIBUTES if name in values})
    category = "gpu_memcpy" if node.type in _MEMORY_TYPES else "kernel"
    comm = _comm(node, values) if node.type in _COMM_TYPES else None
    return EtPlusNode(**found, cat=category, stream=values.get("stream", 0), device=0, correlation=0, comm=comm)


def foreign_record(node: Node, values: dict[str, Any]) -> dict[str, Any]:
    """Fields of an ET+ node, with what its columns hold."""
    found = foreign_node(node, values)
    record: dict[str, Any] = {"id": node.id, "name": node.name, "ctrl_deps": found.ctrl_deps}
    record |= {side: {key: [] for key in TENSOR_KEYS} for side in FLAT_TENSORS}
    record["attrs"] = listed_attributes(values if found.cat is None else {})
    if node.type not in _METADATA_TYPES:
        ts, dur = (msgspec.Raw(b"%d.000" % us) for us in _micros(node))
        record |= {"ts": ts, "dur": dur, "inclusive_dur": dur, "exclusive_dur": dur}
    if found.cat is not None:
        record |= {"cat": found.cat, "ph": "X"}
        record |= {name: getattr(found, name) for name in ("stream", "device", "correlation")}
        record["args"] = {}
    if found.comm is not None:
        record |= {"comm": found.comm, "pg_name": found.comm.pg_name}
    return record


def foreign_times(node: Node) -> tuple[int, int, int]:
    """`ts`, `dur` and `exclusive` of the record, ns."""
    if node.type in _METADATA_TYPES:
        return -1, 0, 0
    ts, dur = _micros(node)
    return 1000 * ts, 1000 * dur, 1000 * dur


def foreign_lane(node: Node, values: dict[str, Any]) -> int:
    """A number for where a node runs, for `foreign_kinds`."""
    runs = _class_of(node, values)
    return runs * _LANES + int(values.get("tid" if runs == _HOST else "stream", 0)) % _LANES


def _class_of(node: Node, values: dict[str, Any]) -> int:
    if node.type in _COMM_TYPES:
        return _COMM
    return _HOST if node.type in _METADATA_TYPES or values.get("is_cpu_op") else _GPU


def _micros(node: Node) -> tuple[int, int]:
    """Start, 0 where the file has none, and duration."""
    return min(node.start_time_micros, _MAX_MICROS), min(node.duration_micros, _MAX_MICROS)


def foreign_kinds(lanes: IntColumn, source: IntColumn, target: IntColumn) -> IntColumn:
    """Kinds of dependencies, a bit each, from where both ends run.

    Args:
        lanes: one entry a node, from `foreign_lane`.
        source, target: int64 indices of nodes.
    """
    a, b = lanes[source] // _LANES, lanes[target] // _LANES
    same = lanes[source] == lanes[target]
    kind = np.select(
        [(a == _HOST) & (b == _HOST) & same, (a == _HOST) & (b == _HOST), a == _HOST, b == _HOST,
         (a == _COMM) & (b == _COMM), same],
        [EDGE_KINDS.index(name) for name in ("thread", "thread_handoff", "launch", "sync", "comm", "stream")],
        EDGE_KINDS.index("event"),
    )  # fmt: skip
    return np.left_shift(1, kind.astype(np.int64))


def _comm(node: Node, values: dict[str, Any]) -> Comm:
    kind: int = values.get("comm_type", -1)
    names = {NodeType.COMM_SEND_NODE: "send", NodeType.COMM_RECV_NODE: "recv"}
    known = kind in CollectiveCommType.values()
    return Comm(
        collective=names.get(node.type) or (CollectiveCommType.Name(kind).lower() if known else None),
        bytes=values.get("comm_size"), pg_name=values.get("pg_name"),
        src_rank=values.get("comm_src"), dst_rank=values.get("comm_dst"),
    )  # fmt: skip
