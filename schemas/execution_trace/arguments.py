"""Read the arguments and attributes of ET nodes. Schema 1.0.1 has flat fields, and later schemas have objects."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from ...trace.columns import IntColumn
from ...trace.errors import UNREADABLE
from ...trace.trace import Trace

_RECORDS = 4096  # Records are fetched in blocks of this size.
# A node with this name lists the process groups in its inputs.
PROCESS_GROUPS = "## process_group:init ##"
ABSENT = msgspec.Raw(b"")  # a placeholder for a value that was not recorded; the encoder omits this object
_EMPTY, _NO_OBJECT = msgspec.Raw(b"[]"), msgspec.Raw(b"{}")
TENSOR_KEYS = ("values", "shapes", "types")  # `inputs` and `outputs` have these keys since schema 1.0.2.
# In schema 1.0.1, nodes have these keys instead of objects with TENSOR_KEYS.
FLAT_TENSORS = {
    "inputs": ("inputs", "input_shapes", "input_types"),
    "outputs": ("outputs", "output_shapes", "output_types"),
}
# PyTorch writes these attributes to every node in this order. Each name maps to a type and a null value.
ET_ATTRIBUTES: dict[str, tuple[str, Any]] = {
    **{"rf_id": ("uint64", 0), "fw_parent": ("uint64", 0), "seq_id": ("int64", -1), "scope": ("uint64", 0)},
    **{"tid": ("uint64", 0), "fw_tid": ("uint64", 0), "op_schema": ("string", "")},
}
# The numeric attributes become columns. Each name maps to the column's null value.
ATTRIBUTES: dict[str, int] = {name: none for name, (kind, none) in ET_ATTRIBUTES.items() if kind != "string"}


class Attr(msgspec.Struct, gc=False):
    name: str
    value: Any = None


def attribute_type(name: str, number: Any = int) -> Any:
    """Return a struct type that decodes an attribute with this name and rejects all other attributes."""
    kind = number if name in ATTRIBUTES else Any
    return msgspec.defstruct(name, [("value", kind)], tag_field="name", tag=name, gc=False)


class UndecodedSide(msgspec.Struct, gc=False):
    """The inputs or outputs of a call, as undecoded JSON lists with one entry per argument; b"" if not recorded."""

    values: msgspec.Raw = ABSENT
    shapes: msgspec.Raw = ABSENT
    types: msgspec.Raw = ABSENT
    strides: msgspec.Raw = ABSENT

    def decoded(self) -> DecodedSide:
        """Decode the lists. A missing or invalid list becomes an empty list."""
        values, shapes, strides = (_decoded(raw, list[Any]) for raw in (self.values, self.shapes, self.strides))
        types = _decoded(self.types, list[str])
        whole = values is not None and shapes is not None and types is not None
        whole = whole and len(values) == len(shapes) == len(types)
        return DecodedSide(values or [], shapes or [], types or [], strides, whole)


class DecodedSide(NamedTuple):
    values: list[Any]
    shapes: list[Any]
    types: list[str]
    strides: list[Any] | None  # None if strides were not recorded
    whole: bool  # True if values, shapes and types were recorded and have the same length

    def as_object(self) -> dict[str, Any]:
        found: dict[str, Any] = dict(zip(TENSOR_KEYS, self, strict=False))
        return found if self.strides is None else {**found, "strides": self.strides}

    def rows(self) -> list[tuple[Any, Any, str, Any]]:
        """Return (value, shape, type, strides or None) for each argument. Raise ValueError if `whole` is False."""
        if not self.whole:
            raise ValueError("the lists of arguments have different lengths")
        count = len(self.values)
        known = self.strides if self.strides is not None and len(self.strides) == count else [None] * count
        return list(zip(self.values, self.shapes, self.types, known, strict=True))


class Arguments(msgspec.Struct, gc=False):
    inputs: UndecodedSide = msgspec.field(default_factory=UndecodedSide)
    outputs: UndecodedSide = msgspec.field(default_factory=UndecodedSide)


class _LaterNode(Arguments, gc=False):
    input_shapes: msgspec.Raw = ABSENT  # Only nodes of schema 1.0.1 have this key.


_NODE_KEYS = (
    *("inputs", "input_shapes", "input_types", "input_strides"),
    *("outputs", "output_shapes", "output_types", "output_strides"),
)
_FURTHER_KEYS = ("op_schema", "attrs", "rf_id", "fw_parent", "seq_id", "scope", "fw_tid")
_AnyNode: Any = msgspec.defstruct(
    "_AnyNode", [(key, msgspec.Raw, ABSENT) for key in (*_NODE_KEYS, *_FURTHER_KEYS)], gc=False
)


def _arguments_of(node: Any) -> Arguments:
    sides = [getattr(node, key) for key in _NODE_KEYS]
    return Arguments(_side(*sides[:4]), _side(*sides[4:]))


class _UsualCallSide(msgspec.Struct, gc=False):
    values: list[Any]
    shapes: list[Any]
    types: list[str]
    strides: list[Any] | None = None

    def decoded(self) -> DecodedSide:
        whole = len(self.values) == len(self.shapes) == len(self.types)
        return DecodedSide(self.values, self.shapes, self.types, self.strides, whole)


class _UsualCall(msgspec.Struct, gc=False):
    """A call in PyTorch's layout since schema 1.0.2, decoded in one step. Other layouts are decoded by field."""

    inputs: _UsualCallSide
    outputs: _UsualCallSide
    attrs: list[Attr]


class CallRecord(NamedTuple):
    """The decoded call of a node. In schema 1.0.1, `op_schema` is the only attribute."""

    inputs: DecodedSide
    outputs: DecodedSide
    attributes: dict[str, Any]

    @property
    def schema(self) -> str:
        found = self.attributes.get("op_schema")
        return found if isinstance(found, str) else ""


class WholeSides(msgspec.Struct, gc=False, omit_defaults=True):
    """Undecoded inputs and outputs, in the layout that PyTorch has used since schema 1.0.2."""

    inputs: msgspec.Raw = ABSENT
    outputs: msgspec.Raw = ABSENT


_decode_usual = msgspec.json.Decoder(_UsualCall).decode
_decode_later = msgspec.json.Decoder(_LaterNode).decode
_decode_any = msgspec.json.Decoder(_AnyNode).decode
# Maps `flat` (True for schema 1.0.1) to a getter of inputs and outputs, a template of their JSON, and a null value.
_MEMBERS = {
    flat: (attrgetter(*keys), b", ".join(b'"%b": %%b' % key.encode() for key in keys), none)
    for flat, keys, none in ((True, sum(FLAT_TENSORS.values(), ()), _EMPTY), (False, tuple(FLAT_TENSORS), _NO_OBJECT))
}
_decode_side = msgspec.json.Decoder(UndecodedSide).decode
decode_whole_sides = msgspec.json.Decoder(WholeSides).decode


def undecoded_arguments(text: bytes) -> Arguments | None:
    """Return the undecoded arguments in a node's JSON text; None if the text is not an object."""
    try:
        found = _decode_later(text)
        return _arguments_of(_decode_any(text)) if found.input_shapes else found
    except UNREADABLE:  # The node has a different layout, or another program wrote it.
        with contextlib.suppress(*UNREADABLE):
            return _arguments_of(_decode_any(text))
    return None


def _side(values: msgspec.Raw, shapes: msgspec.Raw, types: msgspec.Raw, strides: msgspec.Raw) -> UndecodedSide:
    if bytes(values)[:1] == b"{":
        with contextlib.suppress(*UNREADABLE):
            return _decode_side(values)
        return UndecodedSide()
    return UndecodedSide(values, shapes, types, strides)


def decode_call(text: bytes) -> CallRecord:
    """Decode the call of a node; an unreadable call becomes empty."""
    with contextlib.suppress(*UNREADABLE):
        usual = _decode_usual(text)
        attributes = {attr.name: attr.value for attr in usual.attrs}
        return CallRecord(usual.inputs.decoded(), usual.outputs.decoded(), attributes)
    try:
        node = _decode_any(text)
    except UNREADABLE:
        node = _AnyNode()
    found = _arguments_of(node)
    return CallRecord(found.inputs.decoded(), found.outputs.decoded(), _attributes(node))


def arguments_in(record: Mapping[str, msgspec.Raw]) -> Arguments:
    return _arguments_of(_AnyNode(**{key: record[key] for key in _NODE_KEYS if key in record}))


def call_records(trace: Trace, rows: IntColumn) -> Iterator[CallRecord]:
    for at in range(0, len(rows), _RECORDS):
        yield from map(decode_call, trace.texts.texts(rows[at : at + _RECORDS]))


def _attributes(node: Any) -> dict[str, Any]:
    listed = _decoded(node.attrs, list[Any]) or []
    found = {str(attr.get("name")): attr.get("value") for attr in listed if isinstance(attr, dict)}
    return found if not node.op_schema else {"op_schema": _decoded(node.op_schema, Any), **found}


def _decoded(raw: msgspec.Raw, kind: Any) -> Any:
    with contextlib.suppress(*UNREADABLE):
        return msgspec.json.decode(raw, type=kind) if raw else None
    return None


def recorded_groups(inputs: DecodedSide) -> list[Any]:
    texts = (process_groups(value) for value in inputs.values if isinstance(value, str))
    return next((groups for groups in texts if groups is not None), [])


def process_groups(text: bytes | str, *, quoted: bool = False) -> list[Any] | None:
    """Return the process groups in a node's input value, or None. `quoted` means that `text` is a JSON string."""
    with contextlib.suppress(*UNREADABLE):
        groups = msgspec.json.decode(msgspec.json.decode(text, type=str) if quoted else text)
        return groups if isinstance(groups, list) else None
    return None


def whole_sides(text: bytes) -> WholeSides:
    node = _decode_any(text)
    if not node.input_shapes:
        return WholeSides(node.inputs, node.outputs)
    flat = ([bytes(getattr(node, key) or _EMPTY) for key in keys] for keys in FLAT_TENSORS.values())
    return WholeSides(*(msgspec.Raw(b'{"values":%b,"shapes":%b,"types":%b}' % tuple(lists)) for lists in flat))


def tensor_members(text: bytes, *, flat: bool) -> bytes:
    """Return a node's inputs and outputs as JSON members that fit into another node of the same layout."""
    return _tensor_members(_decode_any(text), flat)


def _tensor_members(node: Any, flat: bool) -> bytes:
    values, form, none = _MEMBERS[flat]
    return form % tuple([value or none for value in values(node)])


def launched_members(text: bytes, *, flat: bool) -> bytes:
    """Return the members that GPU nodes copy from their operator, as in Chakra's linker. Flat nodes omit `tid`."""
    node = _decode_any(text)
    tensors = _tensor_members(node, flat)
    if not flat:
        return b'%b, "attrs": %b' % (tensors, node.attrs or _NO_ATTRS)
    values = ((name, getattr(node, name) or none) for name, none in _FLAT_ATTRS.items())
    return b"".join(b'"%b": %b, ' % (name.encode(), value) for name, value in values) + tensors


def listed_attributes(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return an `attrs` list with exactly ET_ATTRIBUTES. Missing attributes get their null values."""
    return [
        {"name": name, "type": kind, "value": given.get(name, none)} for name, (kind, none) in ET_ATTRIBUTES.items()
    ]


def made_node(
    name: str, numbers: Mapping[str, int], inputs: Sequence[tuple[Any, Any, str]], *, flat: bool, **texts: str
) -> bytes:
    none: dict[str, list[Any]] = {key: [] for key in TENSOR_KEYS}
    given = dict(zip(TENSOR_KEYS, map(list, zip(*inputs, strict=True)), strict=True)) if inputs else none
    if flat:
        sides = zip(FLAT_TENSORS.values(), (given, none), strict=True)
        fields = {key: side[of] for keys, side in sides for key, of in zip(keys, TENSOR_KEYS, strict=True)}
        return msgspec.json.encode({"name": name, **numbers, "op_schema": "", **texts, **fields})
    attrs = listed_attributes(numbers)
    attrs += [{"name": key, "type": "string", "value": value} for key, value in texts.items()]
    members = {"id": numbers["id"], "name": name, "ctrl_deps": numbers["parent"]}
    return msgspec.json.encode({**members, "inputs": given, "outputs": none, "attrs": attrs})


_NO_ATTRS = msgspec.json.encode(listed_attributes({}))
_FLAT_ATTRS = {name: msgspec.json.encode(none) for name, (_, none) in ET_ATTRIBUTES.items() if name != "tid"}
