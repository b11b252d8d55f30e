"""What the nodes of an ET say of the calls that they record: arguments and attributes.

The one place that knows how they are laid out. Schema 1.0.1 has values, shapes and types of inputs and outputs, and the
attributes, as fields of a node; later schemas have objects `inputs` and `outputs` and a list `attrs`. Which of both a
node has is seen in the node itself.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, first_seen
from ...trace.dtypes import standard_dtype
from ...trace.errors import UNREADABLE
from ...trace.node_texts import texts_at
from ...trace.tensors import Argument, Signature, SignatureTable, Tensor
from ...trace.trace import Trace

_RECORDS = 4096
"""Texts that are fetched at once."""
PROCESS_GROUPS = "## process_group:init ##"
"""Name of the node with the process groups."""
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
ET_ATTRIBUTES: dict[str, tuple[str, Any]] = {
    "rf_id": ("uint64", 0),
    "fw_parent": ("uint64", 0),
    "seq_id": ("int64", -1),
    "scope": ("uint64", 0),
    "tid": ("uint64", 0),
    "fw_tid": ("uint64", 0),
    "op_schema": ("string", ""),
}
"""Attributes of every node, in the order in which PyTorch writes them: their types, and the values for "none"."""
ATTRIBUTES: dict[str, int] = {name: none for name, (kind, none) in ET_ATTRIBUTES.items() if kind != "string"}
"""Those that are columns, with the value for "none"."""
_ELEMENT = re.compile(r"Tensor\(([^()]*(?:\([^()]*\))?[^()]*)\)|[^\[\](),]+(?=[,\]]|\Z)")
"""In the ET's type of an argument: a tensor, with the type of its elements, or anything else but a list."""
_NO_TENSOR = "nullptr"
_EXPANDED = re.compile(rb"[\[,]\s*0\s*[,\]]")
"""In the text of strides: one that is 0."""
_NOTHING = b"[]"
"""Shapes of a node made of a CPU op whose inputs Kineto did not record."""
_MAX_RANK = 64
_MAX_EXTENT = 2**48
_Key = tuple[bytes, ...]
_decode = msgspec.json.decode


class Attr(msgspec.Struct, gc=False):
    """Any attribute of a node."""

    name: str
    value: Any = None


def attribute_type(name: str, number: Any = int) -> Any:
    """A type whose tag is the attribute's name, so that in its place no other attribute decodes; the value of those in
    ATTRIBUTES is a `number`."""
    kind = number if name in ATTRIBUTES else Any
    return msgspec.defstruct(name, [("value", kind)], tag_field="name", tag=name, gc=False)


class UndecodedSide(msgspec.Struct, gc=False):
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
        """Value, shape, type and strides of each argument; strides None where they are not recorded. ValueError if not
        whole."""
        if not self.whole:
            raise ValueError("the lists of arguments are not of one length")
        count = len(self.values)
        known = self.strides if self.strides is not None and len(self.strides) == count else [None] * count
        return list(zip(self.values, self.shapes, self.types, known, strict=True))


class Arguments(msgspec.Struct, gc=False):
    """Undecoded inputs and outputs of a call."""

    inputs: UndecodedSide = msgspec.field(default_factory=UndecodedSide)
    outputs: UndecodedSide = msgspec.field(default_factory=UndecodedSide)


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
    rf_id: msgspec.Raw = ABSENT
    fw_parent: msgspec.Raw = ABSENT
    seq_id: msgspec.Raw = ABSENT
    scope: msgspec.Raw = ABSENT
    fw_tid: msgspec.Raw = ABSENT

    @property
    def arguments(self) -> Arguments:
        return Arguments(
            _side(self.inputs, self.input_shapes, self.input_types, self.input_strides),
            _side(self.outputs, self.output_shapes, self.output_types, self.output_strides),
        )


class _UsualCallSide(msgspec.Struct, gc=False):
    values: list[Any]
    shapes: list[Any]
    types: list[str]
    strides: list[Any] | None = None

    def decoded(self) -> DecodedSide:
        whole = len(self.values) == len(self.shapes) == len(self.types)
        return DecodedSide(self.values, self.shapes, self.types, self.strides, whole)


class _UsualCall(msgspec.Struct, gc=False):
    """What PyTorch writes since schema 1.0.2, decoded at once; others are decoded member by member."""

    inputs: _UsualCallSide
    outputs: _UsualCallSide
    attrs: list[Attr]


class CallRecord(NamedTuple):
    """What a node says of its call; of schema 1.0.1 `op_schema` is the only one of `attributes`."""

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


_decode_usual = msgspec.json.Decoder(_UsualCall).decode
_decode_later = msgspec.json.Decoder(_LaterNode).decode
_decode_any = msgspec.json.Decoder(_AnyNode).decode
_NODE_KEYS = tuple(key for key in _AnyNode.__struct_fields__ if key.startswith(("input", "output")))
_MEMBERS = {
    flat: (attrgetter(*keys), b", ".join(b'"%b": %%b' % key.encode() for key in keys), none)
    for flat, keys, none in ((True, sum(FLAT_TENSORS.values(), ()), _EMPTY), (False, tuple(FLAT_TENSORS), _NO_OBJECT))
}
"""By whether a node is of schema 1.0.1: its inputs and outputs, their text, and the value of those that it lacks."""
_decode_side = msgspec.json.Decoder(UndecodedSide).decode
decode_whole_sides = msgspec.json.Decoder(WholeSides).decode


def undecoded_arguments(text: bytes) -> Arguments | None:
    """The undecoded arguments in the text of a node; None for what is no JSON object."""
    try:
        found = _decode_later(text)
        return _decode_any(text).arguments if found.input_shapes else found
    except UNREADABLE:  # another layout, or written by others
        with contextlib.suppress(*UNREADABLE):
            return _decode_any(text).arguments
    return None


def _side(values: msgspec.Raw, shapes: msgspec.Raw, types: msgspec.Raw, strides: msgspec.Raw) -> UndecodedSide:
    """A side in either layout: the object of that name, or the fields of the node."""
    if bytes(values)[:1] == b"{":
        with contextlib.suppress(*UNREADABLE):
            return _decode_side(values)
        return UndecodedSide()
    return UndecodedSide(values, shapes, types, strides)


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
    """The arguments in a node whose members are undecoded."""
    return _AnyNode(**{key: record[key] for key in _NODE_KEYS if key in record}).arguments


def call_records(trace: Trace, rows: IntColumn) -> Iterator[CallRecord]:
    """What nodes (rows of a trace, any order) say of their calls, decoded one by one."""
    for at in range(0, len(rows), _RECORDS):
        yield from map(decode_call, trace.texts.texts(rows[at : at + _RECORDS]))


def _attributes(node: _AnyNode) -> dict[str, Any]:
    listed = _decoded(node.attrs, list[Any]) or []
    found = {str(attr.get("name")): attr.get("value") for attr in listed if isinstance(attr, dict)}
    return found if not node.op_schema else {"op_schema": _decoded(node.op_schema, Any), **found}


def _decoded(raw: msgspec.Raw, kind: Any) -> Any:
    """None for what is not recorded or has another form."""
    with contextlib.suppress(*UNREADABLE):
        return msgspec.json.decode(raw, type=kind) if raw else None
    return None


def recorded_groups(inputs: DecodedSide) -> list[Any]:
    """The process groups that a `PROCESS_GROUPS` node lists, [] if it lists none.

    Example:
        >>> recorded_groups(decode_call(b'{"inputs": {"values": ["[]"]}}').inputs)
        []
    """
    texts = (process_groups(value) for value in inputs.values if isinstance(value, str))
    return next((groups for groups in texts if groups is not None), [])


def process_groups(text: bytes | str, *, quoted: bool = False) -> list[Any] | None:
    """The process groups that a `## process_group:init ##` node lists in the text of one of its inputs, None if it
    lists none; `quoted` if the text is itself in a JSON string, as in the file.

    Example:
        >>> process_groups('[{"pg_name": "0", "ranks": [0, 1]}]')
        [{'pg_name': '0', 'ranks': [0, 1]}]
    """
    with contextlib.suppress(*UNREADABLE):
        groups = msgspec.json.decode(msgspec.json.decode(text, type=str) if quoted else text)
        return groups if isinstance(groups, list) else None
    return None


def whole_sides(text: bytes) -> WholeSides:
    """Inputs and outputs of a node, those of schema 1.0.1 in the layout of later ones."""
    node = _decode_any(text)
    if not node.input_shapes:
        return WholeSides(node.inputs, node.outputs)
    flat = ([bytes(getattr(node, key) or _EMPTY) for key in keys] for keys in FLAT_TENSORS.values())
    return WholeSides(*(msgspec.Raw(b'{"values":%b,"shapes":%b,"types":%b}' % tuple(lists)) for lists in flat))


def tensor_members(text: bytes, *, flat: bool) -> bytes:
    """The members of a node that are its inputs and outputs, for a node with the same ones in the same layout."""
    return _tensor_members(_decode_any(text), flat)


def _tensor_members(node: _AnyNode, flat: bool) -> bytes:
    values, form, none = _MEMBERS[flat]
    return form % tuple([value or none for value in values(node)])


def launched_members(text: bytes, *, flat: bool) -> bytes:
    """The members that a GPU node shares with the operator that launched it, from the operator's text: inputs, outputs
    and attributes, as Chakra's linker copies them. The flat layout leaves out `tid`: there it is a GPU node's stream,
    as the original trace_link.py writes it."""
    node = _decode_any(text)
    tensors = _tensor_members(node, flat)
    if not flat:
        return b'%b, "attrs": %b' % (tensors, node.attrs or _NO_ATTRS)
    values = ((name, getattr(node, name) or none) for name, none in _FLAT_ATTRS.items())
    return b"".join(b'"%b": %b, ' % (name.encode(), value) for name, value in values) + tensors


def listed_attributes(given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`attrs` of a node that has nothing but ET_ATTRIBUTES; those that are not given are none."""
    return [
        {"name": name, "type": kind, "value": given.get(name, none)} for name, (kind, none) in ET_ATTRIBUTES.items()
    ]


def made_node(name: str, numbers: Mapping[str, int], inputs: Sequence[tuple[Any, Any, str]], *, flat: bool,
              **texts: str) -> bytes:  # fmt: skip
    """A node as PyTorch writes it, without outputs: `numbers` are `id`, `parent` and those of ATTRIBUTES, `inputs`
    value, shape and type of each, `texts` attributes beside ET_ATTRIBUTES."""
    none: dict[str, list[Any]] = {key: [] for key in TENSOR_KEYS}
    given = dict(zip(TENSOR_KEYS, map(list, zip(*inputs, strict=True)), strict=True)) if inputs else none
    if flat:
        sides = zip(FLAT_TENSORS.values(), (given, none), strict=True)
        fields = {key: side[of] for keys, side in sides for key, of in zip(keys, TENSOR_KEYS, strict=True)}
        return msgspec.json.encode({"name": name, **numbers, "op_schema": "", **texts, **fields})
    attrs = listed_attributes(numbers)
    attrs += [{"name": key, "type": "string", "value": value} for key, value in texts.items()]
    return msgspec.json.encode({
        "id": numbers["id"], "name": name, "ctrl_deps": numbers["parent"], "inputs": given, "outputs": none,
        "attrs": attrs,
    })  # fmt: skip


_NO_ATTRS = msgspec.json.encode(listed_attributes({}))
_FLAT_ATTRS = {name: msgspec.json.encode(none) for name, (_, none) in ET_ATTRIBUTES.items() if name != "tid"}


@dataclass
class Signatures(SignatureTable):
    """Those of nodes of an ET."""

    values: list[Signature] = field(default_factory=list)
    _codes: dict[_Key, int] = field(default_factory=dict)
    _arguments: dict[tuple[str, str], Argument] = field(default_factory=dict)

    def codes(
        self, texts: Sequence[bytes], wants_values: npt.ArrayLike, which: IntColumn | None = None, *,
        outputs_recorded: bool = True,
    ) -> npt.NDArray[np.int32]:  # fmt: skip
        """See `SignatureTable`."""
        which = np.arange(len(texts)) if which is None else which
        pairs, of_node = first_seen(2 * which + np.asarray(wants_values, np.bool_))
        keys = _keys(texts_at(texts, pairs // 2), (pairs % 2).tolist())
        if not outputs_recorded:
            keys = ((*key[:2], b"", b"", *key[4:]) if key[0] not in (b"", _NOTHING) else (b"",) for key in keys)
        found: npt.NDArray[np.int32] = np.fromiter(map(self._code, keys), np.int32, len(pairs))[of_node]
        return found

    def _code(self, key: _Key) -> int:
        code = self._codes.get(key)
        if code is None:
            signature = None
            if key[0]:
                with contextlib.suppress(*UNREADABLE, TypeError, ValueError):  # written by others: anything is possible
                    signature = _signature(key, self._argument)
            code = self._codes[key] = -1 if signature is None else len(self.values)
            if signature is not None:
                self.values.append(signature)
        return code

    def _argument(self, shape: Any, kind: str, value: Any) -> Argument:
        """See `_et_argument`; each tensor is made once, since most come again."""
        key = kind, str(shape)
        known = self._arguments.get(key)
        if known is None:
            known = _et_argument(shape, kind, value)
            if known.tensors:
                self._arguments[key] = known
        return known


def _keys(texts: Iterable[bytes], wants_values: Sequence[int]) -> Iterator[_Key]:
    for found, wanted in zip(map(undecoded_arguments, texts), wants_values, strict=True):
        if found is None:
            yield (b"",)
            continue
        given, returned = found.inputs, found.outputs
        values, strides = bytes(given.values) if wanted else b"", bytes(given.strides)
        strides = strides if _EXPANDED.search(strides) else b""
        yield bytes(given.shapes), bytes(given.types), bytes(returned.shapes), bytes(returned.types), values, strides


def _signature(key: _Key, argument: Callable[[Any, str, Any], Argument]) -> Signature:
    shapes, types = _decode(key[0], type=list[Any]), _decode(key[1], type=list[str])
    values = _decode(key[4], type=list[Any]) if key[4] else [None] * len(shapes)
    if len(values) != len(shapes):
        values = [None] * len(shapes)
    inputs = tuple(argument(*given) for given in zip(shapes, types, values, strict=True))
    if key[5]:
        steps = [*_decode(key[5], type=list[Any]), *[None] * len(inputs)]  # some writers leave out those of numbers
        inputs = tuple(
            given._replace(expanded=_expanded(given, step)) for given, step in zip(inputs, steps, strict=False)
        )
    if not key[2]:
        return Signature(inputs)
    out_shapes, out_types = _decode(key[2], type=list[Any]), _decode(key[3] or b"[]", type=list[str])
    outputs = (argument(shape, kind, None) for shape, kind in zip(out_shapes, out_types, strict=True))
    return Signature(inputs, tuple(tensor for output in outputs for tensor in output.tensors))


def _et_argument(shape: Any, kind: str, value: Any) -> Argument:
    dtypes = _element_types(kind)
    if all(dtype is None for dtype in dtypes):
        return Argument((), None if value == "" else value)  # "" is what Kineto has for a number that it left out
    leaves = [_checked(shape)] if kind.startswith("Tensor(") else _leaves(shape)
    each = zip(leaves, dtypes, strict=False)
    return Argument(tuple(Tensor(leaf, dtype) for leaf, dtype in each if dtype is not None))


def _expanded(argument: Argument, strides: Any) -> tuple[int, ...]:
    """See `Argument`; none where the strides are not those of one tensor."""
    shape = argument.tensors[0].shape if len(argument.tensors) == 1 else ()
    if not isinstance(strides, list) or len(strides) != len(shape):
        return ()
    return tuple(dim for dim, step in enumerate(strides) if type(step) is int and step == 0 and shape[dim] > 1)


@lru_cache(maxsize=1 << 12)
def _element_types(kind: str) -> tuple[str | None, ...]:
    """Of the leaves of an argument's type; None for a leaf that is not a tensor (it has a shape, too)."""
    dtypes = _ELEMENT.findall(kind)
    return tuple(standard_dtype(dtype) if dtype and not dtype.startswith(_NO_TENSOR) else None for dtype in dtypes)


def _leaves(shape: list[Any]) -> Iterator[tuple[int, ...]]:
    """The shapes in nested lists of them."""
    for item in shape:
        if isinstance(item, list) and any(isinstance(extent, list) for extent in item):
            yield from _leaves(item)
        else:
            yield _checked(item)


def _checked(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > _MAX_RANK:
        raise ValueError("no shape")
    if not all(type(extent) is int and 0 <= extent < _MAX_EXTENT for extent in shape):
        raise ValueError("no shape")
    return tuple(shape)
