"""What the nodes of an ET say of the calls that they record: arguments and attributes.

The one place that knows how they are laid out. Schema 1.0.1 has values, shapes and types of inputs and outputs, and the
attributes, as fields of a node; later schemas have objects `inputs` and `outputs` and a list `attrs`. Which of both a
node has is seen in the node itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ...trace.columns import IntColumn
from ...trace.errors import UNREADABLE
from ...trace.trace import Trace
from .node_attributes import ATTRIBUTES, Attr

_RECORDS = 4096
"""Texts that are fetched at once."""
ABSENT = msgspec.Raw(b"")
"""A value that is not recorded; encoding leaves out this very object."""
_EMPTY, _NO_OBJECT = msgspec.Raw(b"[]"), msgspec.Raw(b"{}")
TENSOR_KEYS = ("values", "shapes", "types")
"""Keys of `inputs` and `outputs` since schema 1.0.2."""
FLAT_TENSORS = {
    "inputs": ("inputs", "input_shapes", "input_types"),
    "outputs": ("outputs", "output_shapes", "output_types"),
}
"""Keys of schema 1.0.1 for what TENSOR_KEYS are in `inputs` and `outputs` of later ones."""


class Side(msgspec.Struct, gc=False):
    """Inputs or outputs of a call: undecoded lists with one entry an argument, b"" for what is not recorded."""

    values: msgspec.Raw = ABSENT
    shapes: msgspec.Raw = ABSENT
    types: msgspec.Raw = ABSENT
    strides: msgspec.Raw = ABSENT

    def decoded(self) -> DecodedSide:
        """The lists decoded; those that are missing or no lists are empty."""
        values, shapes, strides = (_decoded(raw, list[Any]) for raw in (self.values, self.shapes, self.strides))
        types = _decoded(self.types, list[str])
        whole = values is not None and shapes is not None and types is not None
        whole = whole and len(values) == len(shapes) == len(types)
        return DecodedSide(values or [], shapes or [], types or [], strides, whole)


class DecodedSide(NamedTuple):
    """Inputs or outputs of a call.

    Attributes:
        values, shapes, types: one entry an argument; empty where they are not recorded.
        strides: None where they are not recorded.
        whole: values, shapes and types are recorded, as many of each.
    """

    values: list[Any]
    shapes: list[Any]
    types: list[str]
    strides: list[Any] | None
    whole: bool

    def as_object(self) -> dict[str, Any]:
        """As schemas since 1.0.2 have it."""
        found: dict[str, Any] = dict(zip(TENSOR_KEYS, self, strict=False))
        return found if self.strides is None else {**found, "strides": self.strides}

    def rows(self) -> list[tuple[Any, Any, str, Any]]:
        """Value, shape, type and strides of each argument; strides None where they are not recorded.

        Raises:
            ValueError: they are not whole.
        """
        if not self.whole:
            raise ValueError("the lists of arguments are not of one length")
        count = len(self.values)
        known = self.strides if self.strides is not None and len(self.strides) == count else [None] * count
        return list(zip(self.values, self.shapes, self.types, known, strict=True))


class Arguments(msgspec.Struct, gc=False):
    """Undecoded inputs and outputs of a call."""

    inputs: Side = msgspec.field(default_factory=Side)
    outputs: Side = msgspec.field(default_factory=Side)


class _LaterNode(Arguments, gc=False):
    input_shapes: msgspec.Raw = ABSENT
    """Only in a node of schema 1.0.1."""


class _AnyNode(msgspec.Struct, gc=False):
    inputs: msgspec.Raw = ABSENT
    input_shapes: msgspec.Raw = ABSENT
    input_types: msgspec.Raw = ABSENT
    input_strides: msgspec.Raw = ABSENT
    outputs: msgspec.Raw = ABSENT
    output_shapes: msgspec.Raw = ABSENT
    output_types: msgspec.Raw = ABSENT
    output_strides: msgspec.Raw = ABSENT
    op_schema: msgspec.Raw = ABSENT
    attrs: msgspec.Raw = ABSENT

    @property
    def arguments(self) -> Arguments:
        return Arguments(
            _side(self.inputs, self.input_shapes, self.input_types, self.input_strides),
            _side(self.outputs, self.output_shapes, self.output_types, self.output_strides),
        )


class _UsualSide(msgspec.Struct, gc=False):
    values: list[Any]
    shapes: list[Any]
    types: list[str]
    strides: list[Any] | None = None

    def decoded(self) -> DecodedSide:
        whole = len(self.values) == len(self.shapes) == len(self.types)
        return DecodedSide(self.values, self.shapes, self.types, self.strides, whole)


class _UsualNode(msgspec.Struct, gc=False):
    """What PyTorch writes since schema 1.0.2, decoded at once; others are decoded member by member."""

    inputs: _UsualSide
    outputs: _UsualSide
    attrs: list[Attr]


class CallRecord(NamedTuple):
    """What a node says of its call.

    Attributes:
        attributes: of schema 1.0.2 and later, by name; of older ones `op_schema` alone.
    """

    inputs: DecodedSide
    outputs: DecodedSide
    attributes: dict[str, Any]

    @property
    def schema(self) -> str:
        """The operator's schema, "" without one."""
        found = self.attributes.get("op_schema")
        return found if isinstance(found, str) else ""


class WholeSides(msgspec.Struct, gc=False, omit_defaults=True):
    """Inputs and outputs as they are written since schema 1.0.2, each undecoded as a whole."""

    inputs: msgspec.Raw = ABSENT
    outputs: msgspec.Raw = ABSENT


_decode_usual = msgspec.json.Decoder(_UsualNode).decode
_decode_later = msgspec.json.Decoder(_LaterNode).decode
_decode_any = msgspec.json.Decoder(_AnyNode).decode
_NODE_KEYS = tuple(key for key in _AnyNode.__struct_fields__ if key.startswith(("input", "output")))
_decode_side = msgspec.json.Decoder(Side).decode
decode_whole_sides = msgspec.json.Decoder(WholeSides).decode


def arguments_of(texts: Sequence[bytes]) -> list[Arguments | None]:
    """The undecoded arguments in texts of nodes; None for what is no JSON object."""
    return list(map(_arguments, texts))


def _arguments(text: bytes) -> Arguments | None:
    try:
        found = _decode_later(text)
        return _decode_any(text).arguments if found.input_shapes else found
    except UNREADABLE:  # another layout, or written by others
        with contextlib.suppress(*UNREADABLE):
            return _decode_any(text).arguments
    return None


def _side(values: msgspec.Raw, shapes: msgspec.Raw, types: msgspec.Raw, strides: msgspec.Raw) -> Side:
    """A side in either layout: the object of that name, or the fields of the node."""
    if bytes(values)[:1] == b"{":
        with contextlib.suppress(*UNREADABLE):
            return _decode_side(values)
        return Side()
    return Side(values, shapes, types, strides)


def decode_call(text: bytes) -> CallRecord:
    """What a node says of its call; nothing where it cannot be read.

    Example:
        >>> decode_call(b'{"inputs": {"values": [3], "shapes": [[]], "types": ["Int"]}}').inputs.rows()
        [(3, [], 'Int', None)]
    """
    with contextlib.suppress(*UNREADABLE):
        usual = _decode_usual(text)
        attributes = {attr.name: attr.value for attr in usual.attrs}
        return CallRecord(usual.inputs.decoded(), usual.outputs.decoded(), attributes)
    try:
        node = _decode_any(text)
    except UNREADABLE:
        node = _AnyNode()
    found = node.arguments
    return CallRecord(found.inputs.decoded(), found.outputs.decoded(), _attributes(node))


def arguments_in(record: Mapping[str, msgspec.Raw]) -> Arguments:
    """The arguments in a node of which the members are undecoded."""
    return _AnyNode(**{key: record[key] for key in _NODE_KEYS if key in record}).arguments


def call_records(trace: Trace, rows: IntColumn) -> Iterator[CallRecord]:
    """What nodes (rows of a trace, any order) say of their calls, decoded one by one."""
    for at in range(0, len(rows), _RECORDS):
        yield from map(decode_call, trace.texts.texts(rows[at : at + _RECORDS]))


def _attributes(node: _AnyNode) -> dict[str, Any]:
    listed = _decoded(node.attrs, list[Any]) or []
    found = {str(one.get("name")): one.get("value") for one in listed if isinstance(one, dict)}
    return found if not node.op_schema else {"op_schema": _decoded(node.op_schema, Any), **found}


def _decoded(raw: msgspec.Raw, kind: Any) -> Any:
    """None for what is not recorded or has another form."""
    with contextlib.suppress(*UNREADABLE):
        return msgspec.json.decode(raw, type=kind) if raw else None
    return None


def whole_sides(text: bytes) -> WholeSides:
    """Inputs and outputs of a node, those of schema 1.0.1 in the layout of later ones."""
    node = _decode_any(text)
    if node.input_shapes:
        return WholeSides(*(msgspec.Raw(_joined(node, keys)) for keys in FLAT_TENSORS.values()))
    return WholeSides(node.inputs, node.outputs)


def _joined(node: _AnyNode, keys: Sequence[str]) -> bytes:
    return b'{"values":%b,"shapes":%b,"types":%b}' % tuple(bytes(getattr(node, key) or _EMPTY) for key in keys)


def tensor_members(text: bytes, *, flat: bool) -> bytes:
    """The members of a node that are its inputs and outputs, for a node with the same ones in the same layout."""
    node = _decode_any(text)
    keys, none = (sum(FLAT_TENSORS.values(), ()), _EMPTY) if flat else (tuple(FLAT_TENSORS), _NO_OBJECT)
    return b", ".join(b'"%b": %b' % (key.encode(), getattr(node, key) or none) for key in keys)


def made_node(name: str, numbers: Mapping[str, int], inputs: Sequence[tuple[Any, Any, str]], *, flat: bool,
              **texts: str) -> bytes:  # fmt: skip
    """A node as PyTorch writes it, without outputs.

    Args:
        numbers: `id`, `parent` and those of ATTRIBUTES.
        inputs: value, shape and type of each.
        texts: further attributes.
    """
    none: dict[str, list[Any]] = {key: [] for key in TENSOR_KEYS}
    given = dict(zip(TENSOR_KEYS, map(list, zip(*inputs, strict=True)), strict=True)) if inputs else none
    texts = {"op_schema": "", **texts}
    if flat:
        sides = zip(FLAT_TENSORS.values(), (given, none), strict=True)
        fields = {key: side[of] for keys, side in sides for key, of in zip(keys, TENSOR_KEYS, strict=True)}
        return msgspec.json.encode({"name": name, **numbers, **texts, **fields})
    attrs: list[dict[str, Any]] = [
        {"name": key, "type": "int64" if key == "seq_id" else "uint64", "value": numbers[key]} for key in ATTRIBUTES
    ]
    attrs += [{"name": key, "type": "string", "value": value} for key, value in texts.items()]
    return msgspec.json.encode({
        "id": numbers["id"], "name": name, "ctrl_deps": numbers["parent"], "inputs": given, "outputs": none,
        "attrs": attrs,
    })  # fmt: skip
