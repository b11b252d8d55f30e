"""Chakra protobuf traces (.et) back to ET+: all of it from files that `write_et` wrote, what there is from others."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from .. import __version__
from ..schemas.chakra.et_def_pb2 import GlobalMetadata, Node
from ..schemas.chakra.stream import read_chakra
from ..schemas.etplus import FORMAT_VERSION
from ..schemas.etplus_reader import read_etplus
from ..schemas.files import open_output, shown_name
from ..trace.conventions import EDGE_KINDS
from ..trace.errors import TraceFormatError
from ..trace.trace import Trace
from .chakra_attributes import values_of
from .chakra_foreign import foreign_kinds, foreign_record
from .chakra_records import ET_ATTRIBUTES, FLAT_TENSORS, TENSOR_KEYS
from .dependencies import KIND_BITS

__all__ = ["etplus_chunks", "read_et", "write_etplus", "write_messages"]

_SEPARATOR = b",\n    "
_FOREIGN_SCHEMA = "1.1.0-chakra.0.0.4"
_TIMES = ("ts", "dur", "inclusive_dur", "exclusive_dur")
_AGAIN = "convert the ET+ file again"
_CHECK = "run `etplus check`"

_encode = msgspec.json.Encoder().encode
_skip = msgspec.json.Decoder(msgspec.Raw).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def read_et(path: str | os.PathLike[str]) -> Trace:
    """Read an .et file as an ET+ document; raises as `etplus_chunks` does."""
    return replace(read_etplus(b"".join(etplus_chunks(path))), file=shown_name(path))


def write_etplus(path: str | os.PathLike[str], output: str | os.PathLike[str]) -> int:
    """Write an .et file as ET+ and return the number of nodes and runtime calls.

    Raises as `etplus_chunks` does, and UsageError if the output cannot be written.
    """
    return write_messages(os.fspath(path), *read_chakra(path), output)


def write_messages(file: str, metadata: GlobalMetadata, nodes: Iterator[Node], output: str | os.PathLike[str]) -> int:
    """The same from messages; `file` names their source in errors."""
    back = _Back(file, metadata)
    with open_output(output) as out:
        for chunk in back.chunks(nodes):
            out.write(chunk)
    return len(back.ids)


def etplus_chunks(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The ET+ text of an .et file, piece by piece; nodes in the order of the file.

    Memory: the texts of the runtime calls, and some 50 bytes a node and a dependency.

    Raises:
        TraceFormatError: no Chakra file, a damaged one, or a dependency on a node that is not there.
    """
    metadata, nodes = read_chakra(path)
    return _Back(os.fspath(path), metadata).chunks(nodes)


class _Back:
    def __init__(self, file: str, metadata: GlobalMetadata) -> None:
        self.file = file
        texts = {one.name: one.string_val for one in metadata.attr}
        self.ours = {"header", "etplus", "layout"} <= set(texts)
        self.flat = texts.get("layout") == '"flat"'
        self.header = self._object(texts["header"]) if self.ours else {"schema": msgspec.Raw(_encode(_FOREIGN_SCHEMA))}
        self.summary = self._raw(texts["etplus"], "metadata") if self.ours else msgspec.Raw(_encode(self._foreign()))
        self.runtime: list[tuple[int, int, bytes]] = []
        self.ids, self.lanes = array("q"), array("q")
        self.source, self.target, self.kinds = array("q"), array("q"), array("q")

    def chunks(self, nodes: Iterator[Node]) -> Iterator[bytes]:
        yield b"{" + b"".join(b"\n  %b: %b," % (_encode(k), bytes(v)) for k, v in self.header.items())
        yield b'\n  "nodes": [\n    '
        first = True
        for node in nodes:
            text = self._node(node)
            if text is not None:
                yield text if first else _SEPARATOR + text
                first = False
        yield b'\n  ],\n  "runtime": [' + _SEPARATOR.join(text for _, _, text in sorted(self.runtime)) + b"]"
        yield b',\n  "edges": [' + b",\n    ".join(self._edges()) + b"]"
        yield b',\n  "etplus": %b\n}\n' % bytes(self.summary)

    def _node(self, node: Node) -> bytes | None:
        """The node's text; None for a runtime call, which is kept for later."""
        if max(node.id, *node.data_deps, *node.ctrl_deps, 0) >= 2**63:
            raise TraceFormatError(self.file, f"node {node.id}", "an id beyond 63 bits", "number the nodes anew")
        values = values_of(node.attr)
        if self.ours:
            kinds = values.get("data_dep_kinds", [])
            if len(kinds) != len(node.data_deps):
                problem = f"{len(node.data_deps)} data_deps but {len(kinds)} kinds"
                raise TraceFormatError(self.file, f"node {node.id}", problem, _AGAIN)
            record = self._record(node, values)
            deps = list(node.data_deps)
        else:
            record, lane = foreign_record(node, values)
            self.lanes.append(lane)
            deps = [*dict.fromkeys([*node.data_deps, *node.ctrl_deps[1:]])]
            kinds = [0] * len(deps)
        self.ids.append(node.id)
        self.source.extend(deps)
        self.target.extend([node.id] * len(deps))
        self.kinds.extend(kinds)
        text = _encode(record)
        if values.get("cat") != "runtime":
            return text
        self.runtime.append((values.get("start_ns", 0), node.id, text))
        return None

    def _record(self, node: Node, values: dict[str, Any]) -> dict[str, Any]:
        """The fields of a node of ours."""
        parent = node.ctrl_deps[0] if node.ctrl_deps else values.get("call_parent")
        if values.get("cat") == "runtime":
            return {
                "id": node.id, "name": node.name, **self._times(values, ("ts", "dur")),
                "tid": self._raw(values.get("kineto_tid", "0"), node), "correlation": values.get("correlation", -1),
                "parent": parent, "kineto_event": values.get("kineto_event", 0), **self._further(node, values),
            }  # fmt: skip
        record: dict[str, Any] = {"id": node.id, "name": node.name}
        if parent is not None:
            record["parent" if self.flat else "ctrl_deps"] = parent
        record |= self._tensors(node, values)
        record |= self._et_attributes(node, values)
        record |= self._event(node, values)
        return record | self._further(node, values)

    def _tensors(self, node: Node, values: dict[str, Any]) -> dict[str, Any]:
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
        given = {name: values.get(name, none) for name, (_, none) in ET_ATTRIBUTES.items()}
        if self.flat:
            return given
        attrs: list[Any] = [
            {"name": name, "type": kind, "value": given[name]} for name, (kind, _) in ET_ATTRIBUTES.items()
        ]
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
        record = {
            "cat": values["cat"],
            "ph": "X",
            **self._times(values, ("ts", "dur", "inclusive_dur", "exclusive_dur")),
        }
        for name in ("stream", "device", "correlation", "kineto_event"):
            if name in values:
                record[name] = values[name]
        for name in ("args", "comm", "captured_by"):
            if name in values:
                record[name] = self._raw(values[name], node)
        if "comm" in record:
            comm = msgspec.json.decode(record["comm"])
            record["pg_name"] = comm.get("pg_name") if isinstance(comm, dict) else None
        return record

    def _times(self, values: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
        inclusive = values.get("inclusive_ns", values.get("duration_ns", 0))
        exclusive = values.get("exclusive_ns", values.get("duration_ns", 0))
        ns = {"ts": values.get("start_ns", 0), "dur": inclusive, "inclusive_dur": inclusive, "exclusive_dur": exclusive}
        return {key: _us(ns[key]) for key in keys}

    def _further(self, node: Node, values: dict[str, Any]) -> dict[str, msgspec.Raw]:
        return self._object(values["et_fields"], node) if "et_fields" in values else {}

    def _edges(self) -> Iterator[bytes]:
        """The edges' texts, sorted."""
        if len(self.ids) == 0:
            return
        ids, source, target, kinds = (
            np.frombuffer(a, np.int64) for a in (self.ids, self.source, self.target, self.kinds)
        )
        order = np.argsort(ids)
        at = np.minimum(np.searchsorted(ids, source, sorter=order), len(ids) - 1)
        found = ids[order[at]] == source
        if not found.all():
            a, b = int(source[~found][0]), int(target[~found][0])
            raise TraceFormatError(self.file, f"node {b}", f"depends on {a}, which is not in the file", _CHECK)
        if not self.ours:
            target_at = order[np.searchsorted(ids, target, sorter=order)]
            kinds = foreign_kinds(np.frombuffer(self.lanes, np.int64), order[at], target_at)
        names = [_encode(kind) for kind in EDGE_KINDS]
        which, kind = np.nonzero(kinds[:, None] & KIND_BITS)
        table = np.unique(np.stack([source[which], target[which], kind], axis=1), axis=0)
        for a, b, k in table.tolist():
            yield b"[%d, %d, %b]" % (a, b, names[k])

    def _foreign(self) -> dict[str, Any]:
        """The root's `etplus` of a file that has none."""
        kineto = {"file_name": Path(self.file).name, "base_time_ns": 0, "distributed_info": None}
        return {"version": FORMAT_VERSION, "tool_version": __version__, "kineto": kineto}

    def _raw(self, text: str, node: Node | str) -> msgspec.Raw:
        """A text that is JSON, as we wrote it."""
        try:
            return _skip(text.encode())
        except (msgspec.MsgspecError, RecursionError):
            place = node if isinstance(node, str) else f"node {node.id}"
            raise TraceFormatError(
                self.file, place, "an attribute that should be JSON", "convert the ET+ file again"
            ) from None

    def _object(self, text: str, node: Node | str = "metadata") -> dict[str, msgspec.Raw]:
        try:
            return _decode_object(self._raw(text, node))
        except msgspec.ValidationError:
            place = node if isinstance(node, str) else f"node {node.id}"
            raise TraceFormatError(self.file, place, "an attribute that should be a JSON object", _CHECK) from None


def _us(ns: int) -> msgspec.Raw:
    """ns as µs with three decimals."""
    ns = max(ns, 0)
    return msgspec.Raw(b"%d.%03d" % (ns // 1000, ns % 1000))
