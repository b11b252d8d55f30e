"""Read Chakra's JSON format: `{"workload_graph": [{"Id": …, "Name": …, "NodeType": …, "data_deps": […], …}, …]}`.

`JSONNode` in Chakra's feeder defines the keys. The key `runtime` is the duration in µs. Other scalars become node
attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from ...trace.errors import UNREADABLE, TraceFormatError
from ..text.files import load
from .attributes import INTEGERS, MEMBERS
from .et_def_pb2 import AttributeProto, Node

_SCALAR = rb'"[^"]{1,60}"\s*:\s*(?:"[^"]{0,200}"|-?[0-9.]+|null)\s*,\s*'
_BEGIN = re.compile(rb'\s*\{\s*(?:%b){0,20}"workload_graph"\s*:' % _SCALAR)
_REMEDY = 'write {"workload_graph": [{"Id": 1, "Name": "x", "NodeType": 4, "data_deps": []}]}'


class _JsonNode(msgspec.Struct, rename={"number": "Id", "name": "Name", "kind": "NodeType"}):
    number: int
    kind: int
    name: str = ""
    runtime: float = 0
    data_deps: list[int] = []
    ctrl_deps: list[int] = []


_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_FIELDS = frozenset(field.encode_name for field in msgspec.structs.fields(_JsonNode))


def begins_like_workload(head: bytes) -> bool:
    return _BEGIN.match(head) is not None


def read_workload(path: str) -> Iterator[Node]:
    blob = load(path, trace=False)
    try:
        records = msgspec.json.decode(_decode(blob.data)["workload_graph"], type=list[msgspec.Raw])
    except (KeyError, *UNREADABLE) as error:
        raise TraceFormatError(blob.name, "", f"not Chakra's JSON form ({error})", _REMEDY) from None
    for at, record in enumerate(records):
        try:
            yield _node(msgspec.json.decode(record, type=_JsonNode), msgspec.json.decode(record, type=dict[str, Any]))
        except (ValueError, *UNREADABLE) as error:
            raise TraceFormatError(blob.name, f"workload_graph[{at}]", str(error), _REMEDY) from None


def _node(given: _JsonNode, record: dict[str, Any]) -> Node:
    others = ((name, value) for name, value in record.items() if name not in _FIELDS)
    attributes = [_attribute(name, value) for name, value in others if isinstance(value, (bool, int, float, str))]
    kind: Any = given.kind
    node = Node(id=given.number, name=given.name, type=kind, duration_micros=round(given.runtime), attr=attributes)
    node.data_deps.extend(given.data_deps)
    node.ctrl_deps.extend(given.ctrl_deps)
    return node


def _attribute(name: str, value: float | str) -> AttributeProto:
    usual = {bool: "bool_val", int: "int64_val", float: "double_val", str: "string_val"}[type(value)]
    member = MEMBERS.get(name, usual)
    if member.endswith("_list") or (member == "string_val" and usual in INTEGERS):
        member = usual
    if member in INTEGERS and usual not in INTEGERS:
        if not isinstance(value, float) or not value.is_integer():
            raise ValueError(f"{name} is {value!r}, not an integer")
        value = int(value)
    given: dict[str, Any] = {member: bool(value) if member == "bool_val" else value}
    return AttributeProto(name=name, **given)
