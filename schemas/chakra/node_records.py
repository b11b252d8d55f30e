"""Typed records for ET+ nodes and runtime calls. Older layouts are upgraded to schema 1.1.1."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ...trace.errors import UNREADABLE
from ...trace.kinds import CPU, GPU, RUNTIME
from ...trace.node_texts import Record
from ..execution_trace.arguments import ET_ATTRIBUTES, FLAT_TENSORS, TENSOR_KEYS
from .attributes import attribute
from .et_def_pb2 import AttributeProto, GlobalMetadata, IOInfo, Node

EVENT_NUMBERS = ("stream", "device", "correlation", "kineto_event")

# `EtAttributes` stores attributes that are not in ET_ATTRIBUTES in these fields. PyTorch 2.8 writes only three.
FURTHER_ATTRIBUTES = tuple(f"further_{k}" for k in range(16))

ABSENT = -(2**63)  # placeholder for a number that is missing from the record

_Int = Annotated[int, msgspec.Meta(gt=ABSENT, le=2**63 - 1)]
_UInt = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Text = Raw | UnsetType
_TYPES: dict[str, Any] = {"uint64": _UInt, "int64": _Int, "string": str}

R = TypeVar("R", bound="_Timed")


class _Timed(Struct, gc=False, forbid_unknown_fields=True):
    id: _Text = UNSET
    name: _Text = UNSET
    ts: _Text = UNSET
    dur: _Text = UNSET
    inclusive_dur: _Text = UNSET
    exclusive_dur: _Text = UNSET
    stream: _Int = ABSENT
    device: _Int = ABSENT
    correlation: _Int = ABSENT
    kineto_event: _Int = ABSENT


class RuntimeCall(_Timed):
    tid: _Text = UNSET
    parent: _Text = UNSET


class TensorTexts(Struct, gc=False, forbid_unknown_fields=True):
    values: Raw
    shapes: Raw
    types: Raw
    strides: _Text = UNSET


def _attribute(name: str, kind: str) -> type[Struct]:
    fields = [("type", Literal[kind]), ("value", _TYPES[kind])]
    return msgspec.defstruct(name, fields, tag_field="name", tag=name, gc=False, forbid_unknown_fields=True)


# The first fields are ET_ATTRIBUTES in PyTorch's order; the other fields hold additional attributes.
EtAttributes: Any = msgspec.defstruct(
    "EtAttributes",
    [
        *((name, _attribute(name, kind)) for name, (kind, _) in ET_ATTRIBUTES.items()),
        *((name, _Text, UNSET) for name in FURTHER_ATTRIBUTES),
    ],
    array_like=True,
    gc=False,
    forbid_unknown_fields=True,
)


class AttrsRecord(_Timed):
    ctrl_deps: _Text = UNSET
    inputs: TensorTexts | UnsetType = UNSET
    outputs: TensorTexts | UnsetType = UNSET
    attrs: EtAttributes | UnsetType = UNSET


class FlatRecord(_Timed):
    parent: _Text = UNSET
    inputs: _Text = UNSET
    input_shapes: _Text = UNSET
    input_types: _Text = UNSET
    outputs: _Text = UNSET
    output_shapes: _Text = UNSET
    output_types: _Text = UNSET
    rf_id: _Int = ABSENT
    fw_parent: _Int = ABSENT
    seq_id: _Int = ABSENT
    scope: _Int = ABSENT
    tid: _Int = ABSENT
    fw_tid: _Int = ABSENT
    op_schema: str = ""


# Fields that only operators have (CPU), and fields that only GPU events have (GPU).
_OF_KIND: dict[int, list[tuple[str, Any, Any]]] = {
    CPU: [("link", str | UnsetType, UNSET), ("inter_thread_dep", _Text, UNSET), ("sync_dep", _Text, UNSET)],
    GPU: [
        *((name, _Text, UNSET) for name in ("cat", "args", "comm", "captured_by", "counterpart")),
        ("ph", Literal["X"] | UnsetType, UNSET),
        ("pg_name", str | None | UnsetType, UNSET),
        *((name, _Int, ABSENT) for name in ("pid", "tid")),
    ],
}
_FORMS: dict[tuple[int, bool], type[Any]] = {
    (kind, base is FlatRecord): msgspec.defstruct(
        base.__name__, fields, bases=(base,), gc=False, forbid_unknown_fields=True
    )
    for kind, fields in _OF_KIND.items()
    for base in (AttrsRecord, FlatRecord)
}


def form_of(kind: int, *, flat: bool) -> type[Any]:
    return RuntimeCall if kind == RUNTIME else _FORMS[kind, flat]


def read_records(form: type[R], texts: Sequence[bytes]) -> tuple[list[R], dict[int, Record]]:
    """Decode JSON objects as records. Fields that `form` lacks are returned undecoded, by the record's position."""
    try:
        return msgspec.json.decode(_utf8(b"[%b]" % b",".join(texts)), type=list[form]), {}  # type: ignore[valid-type]
    except UNREADABLE:
        read = [_read_one(form, _utf8(text)) for text in texts]
    return [record for record, _ in read], {at: further for at, (_, further) in enumerate(read) if further}


def _read_one(form: type[R], text: bytes) -> tuple[R, Record]:
    with contextlib.suppress(*UNREADABLE):
        return msgspec.json.decode(text, type=form), {}
    further, known = msgspec.json.decode(text, type=Record), {}
    for field in msgspec.structs.fields(form):
        if field.name in further:
            with contextlib.suppress(*UNREADABLE):
                known[field.name] = msgspec.json.decode(further[field.name], type=field.type)
                del further[field.name]
    return form(**known), further


def _utf8(text: bytes) -> bytes:
    return text if text.isascii() else text.decode("utf-8", "replace").encode()


LAYOUT_1_1_1 = "1.1.1-chakra.0.0.4"  # the value of `schema` in the header of an ET with schema 1.1.1

_NO_TENSORS = IOInfo(**dict.fromkeys(TENSOR_KEYS, "[]"))
_decode = msgspec.json.decode


def upgraded(metadata: GlobalMetadata, nodes: Iterator[Node]) -> tuple[GlobalMetadata, Iterator[Node]]:
    """Upgrade messages to ET+ schema 1.1.1. Strides become empty lists, because older schemas do not record strides."""
    texts: dict[str, Any] = {attr.name: attr.string_val for attr in metadata.attr}
    header = _decode(texts["header"], type=dict[str, msgspec.Raw])
    header["schema"] = msgspec.Raw(msgspec.json.encode(LAYOUT_1_1_1))
    texts |= {"header": msgspec.json.encode(header).decode(), "layout": '"attrs"'}
    attributes = [AttributeProto(name=name, string_val=text) for name, text in texts.items()]
    return GlobalMetadata(version=metadata.version, attr=attributes), map(_upgraded_node, nodes)


def _upgraded_node(node: Node) -> Node:
    texts = {attr.name: attr.string_val for attr in node.attr}
    if texts.get("cat") == "runtime":
        return node
    for side in FLAT_TENSORS:
        if not node.HasField(side):
            getattr(node, side).CopyFrom(_NO_TENSORS)
        name = f"{side[:-1]}_strides"
        if name not in texts:
            node.attr.append(attribute(name, f"[{', '.join(['[]'] * _count(getattr(node, side).values))}]"))
    return node


def _count(values: str) -> int:
    try:
        return len(_decode(values, type=list[msgspec.Raw]))
    except msgspec.ValidationError:
        return 0
