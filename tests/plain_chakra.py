"""An independent reader of Chakra traces: protobuf messages declared here by hand, and nothing of the package's own."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

METADATA, COMP, SEND, RECV, COLL = 1, 4, 5, 6, 7

_SCALARS = [
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
]
_REPEATED = {"ctrl_deps", "data_deps", "attr", "values"}
_MESSAGES = {
    "Meta": [(1, "string", "version"), (2, "Attribute", "attr")],
    "Io": [(1, "string", "value"), (2, "string", "shapes"), (3, "string", "types")],
    "Node": [
        (1, "uint64", "id"), (2, "string", "name"), (3, "int32", "type"), (4, "uint64", "ctrl_deps"),
        (5, "uint64", "data_deps"), (6, "uint64", "start"), (7, "uint64", "micros"), (8, "Io", "inputs"),
        (9, "Io", "outputs"), (10, "Attribute", "attr"),
    ],
    "Attribute": [
        (1, "string", "name"), (2, "string", "doc"),
        *((3 + 2 * at, kind, f"{kind}_val") for at, kind in enumerate(_SCALARS)),
        *((4 + 2 * at, f"List_{kind}", f"{kind}_list") for at, kind in enumerate(_SCALARS)),
    ],
    **{f"List_{kind}": [(1, kind, "values")] for kind in _SCALARS},
}  # fmt: skip


class PlainNode(NamedTuple):
    """A node: `attributes` maps a name to (member of the oneof, value)."""

    id: int
    name: str
    type: int
    ctrl_deps: list[int]
    data_deps: list[int]
    start: int
    micros: int
    inputs: tuple[str, str, str] | None
    attributes: dict[str, tuple[str, Any]]

    def value(self, name: str) -> Any:
        """An attribute's value, None if it has none."""
        return self.attributes.get(name, (None, None))[1]


@cache
def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="plain.proto", package="plain", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, kind, field_name in fields:
            field = message.field.add(name=field_name, number=number)
            field.label = field.LABEL_REPEATED if field_name in _REPEATED else field.LABEL_OPTIONAL
            if kind in _SCALARS:
                field.type = getattr(field, f"TYPE_{kind.upper()}")
            else:
                field.type, field.type_name = field.TYPE_MESSAGE, f".plain.{kind}"
            if name == "Attribute" and number > 2:
                field.oneof_index = 0
        if name == "Attribute":
            message.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    make = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
    return {name: make(pool.FindMessageTypeByName(f"plain.{name}")) for name in ("Meta", "Node")}


def read_plain(path: Path) -> tuple[Any, list[PlainNode]]:
    """Metadata and nodes of a file, which must end where a message ends."""
    data, at, classes = path.read_bytes(), 0, _classes()
    messages = []
    while at < len(data):
        length = shift = 0
        while True:
            length |= (data[at] & 0x7F) << shift
            at, shift, last = at + 1, shift + 7, data[at] < 0x80
            if last:
                break
        assert at + length <= len(data), "the last message is cut off"
        messages.append(classes["Node" if messages else "Meta"].FromString(data[at : at + length]))
        at += length
    return messages[0], [_plain(node) for node in messages[1:]]


def _plain(node: Any) -> PlainNode:
    attributes = {}
    for one in node.attr:
        assert one.name not in attributes, f"node {node.id} has two attributes {one.name}"
        member = one.WhichOneof("value")
        value = getattr(one, member)
        attributes[one.name] = (member, list(value.values) if member.endswith("_list") else value)
    inputs = (node.inputs.value, node.inputs.shapes, node.inputs.types) if node.HasField("inputs") else None
    return PlainNode(
        node.id, node.name, node.type, list(node.ctrl_deps), list(node.data_deps), node.start, node.micros, inputs,
        attributes,
    )  # fmt: skip
