"""What an ET+ node says, as attributes and texts of a Chakra node: typed where readers want it, the rest as JSON."""

from __future__ import annotations

import re

import msgspec

from ..schemas.chakra.et_def_pb2 import AttributeProto, IOInfo
from ..trace.kinds import CPU, GPU, RUNTIME
from ..trace.trace import Record, Trace
from .chakra_attributes import make, shared

__all__ = ["ET_ATTRIBUTES", "FLAT_TENSORS", "TENSOR_KEYS", "describe"]

ET_ATTRIBUTES = {
    "rf_id": ("uint64", 0),
    "fw_parent": ("uint64", 0),
    "seq_id": ("int64", -1),
    "scope": ("uint64", 0),
    "tid": ("uint64", 0),
    "fw_tid": ("uint64", 0),
    "op_schema": ("string", ""),
}
"""Attributes of every ET node, in the order of the `attrs` layout: their types, and the values for "none"."""
TENSOR_KEYS = ("values", "shapes", "types")
FLAT_TENSORS = {
    "inputs": ("inputs", "input_shapes", "input_types"),
    "outputs": ("outputs", "output_shapes", "output_types"),
}
"""Keys of the flat layout for what TENSOR_KEYS are inside `inputs` and `outputs` of the other layout."""

_VALUE = {"uint64": r"\d+", "int64": r"-?\d+", "string": r'"(?:[^"\\]|\\.)*"'}
_USUAL_ATTRS = re.compile(
    r"\s*\[\s*"
    + r"\s*,\s*".join(
        rf'\{{\s*"name"\s*:\s*"{name}"\s*,\s*"type"\s*:\s*"{kind}"\s*,\s*"value"\s*:\s*({_VALUE[kind]})\s*\}}'
        for name, (kind, _) in ET_ATTRIBUTES.items()
    )
    + r"\s*(?:,(.*))?\]\s*",
    re.DOTALL,
)
_EVENT_NUMBERS = ("stream", "device", "correlation", "kineto_event")
_MEASURED = ("id", "name", "ts", "dur", "inclusive_dur", "exclusive_dur")
_NUMBERS = ("rf_id", "fw_parent", "seq_id", "scope", "fw_tid")
_NONE = msgspec.Raw(b"null")

_decode_tensors = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_str = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


def describe(document: Trace, row: int, record: Record) -> tuple[list[AttributeProto], IOInfo | None, IOInfo | None]:
    """Attributes, inputs and outputs that hold all of a row but its dependencies, name and times.

    Args:
        record: the row's fields, used up.
    """
    for key in _MEASURED:
        record.pop(key, None)
    kind = document.kind[row]
    attributes = _event_attributes(document, row, record)
    if kind == RUNTIME:
        attributes += [shared("cat", "runtime"), shared("kineto_tid", _text(record.pop("tid")))]
        attributes.append(shared("tid", int(document.thread[row])))
        record.pop("parent")
        return attributes + _further(record), None, None
    attributes += _gpu_attributes(document, row, record) if kind == GPU else _cpu_attributes(document, row, record)
    attributes += _et_attributes(document, row, record)
    inputs, outputs = (_tensors(record, side, attributes) for side in FLAT_TENSORS)
    record.pop("parent" if document.flat else "ctrl_deps", None)
    return attributes + _further(record), inputs, outputs


def _event_attributes(document: Trace, row: int, record: Record) -> list[AttributeProto]:
    attributes = []
    for name in _EVENT_NUMBERS:
        value = int(getattr(document, name)[row])
        if name in record and bytes(record[name]) == b"%d" % value:
            del record[name]
            attributes.append(make(name, value) if name == "kineto_event" else shared(name, value))
    return attributes


def _gpu_attributes(document: Trace, row: int, record: Record) -> list[AttributeProto]:
    attributes = [shared("cat", document.categories[document.category[row]])]
    del record["cat"]
    attributes += [make(name, _text(record.pop(name))) for name in ("args", "comm", "captured_by") if name in record]
    if document.captured is not None and row in document.captured.op_names:
        attributes.append(shared("captured_op", document.captured.op_names[row]))
    comm = document.comm.get(row)
    expected = {"ph": b'"X"', "pg_name": _encode(comm.pg_name) if comm else None}
    for name, value in expected.items():
        if name in record and bytes(record[name]) == value:
            del record[name]
    return attributes


def _cpu_attributes(document: Trace, row: int, record: Record) -> list[AttributeProto]:
    attributes = []
    if _text(record.get("link", _NONE)).startswith('"'):
        attributes.append(shared("link", _decode_str(record.pop("link"))))
    if record.pop("inter_thread_dep", None) is not None and document.inter_thread_dep[row] >= 0:
        attributes.append(make("inter_thread_dep", int(document.inter_thread_dep[row])))
    if record.pop("sync_dep", None) is not None and row in document.sync_dep:
        attributes.append(make("sync_dep", document.sync_dep[row]))
    return attributes


def _et_attributes(document: Trace, row: int, record: Record) -> list[AttributeProto]:
    """The ET's own attributes; on a GPU event, where all are "none", only if another linker gave it others."""
    values: dict[str, int | str] = {name: int(getattr(document, name)[row]) for name in _NUMBERS}
    values["tid"] = int(document.thread[row]) if document.kind[row] == CPU else 0
    values["op_schema"], more = _take_flat(record, values) if document.flat else _take_listed(record, values)
    plain = document.kind[row] == GPU and values == {name: none for name, (_, none) in ET_ATTRIBUTES.items()}
    attributes = [] if plain else [shared(name, values[name]) for name in ET_ATTRIBUTES]
    return attributes + ([shared("et_attrs", f"[{more.strip()}]")] if more is not None else [])


def _take_flat(record: Record, values: dict[str, int | str]) -> tuple[str, None]:
    for name, value in values.items():
        if name in record and _text(record[name]) == str(value):
            del record[name]
    schema = _text(record.get("op_schema", _NONE)).startswith('"')
    return _decode_str(record.pop("op_schema")) if schema else "", None


def _take_listed(record: Record, values: dict[str, int | str]) -> tuple[str, str | None]:
    """Take `attrs` out of the fields if it is as PyTorch writes it: its op_schema, and the text of what follows."""
    usual = _USUAL_ATTRS.fullmatch(_text(record.get("attrs", _NONE)))
    if usual is None or any(usual[at] != str(values[name]) for at, name in enumerate(ET_ATTRIBUTES, 1) if at < 7):
        return "", None
    del record["attrs"]
    return _decode_str(usual[7]), usual[8]


def _tensors(record: Record, side: str, attributes: list[AttributeProto]) -> IOInfo | None:
    """Take `inputs` or `outputs` out of the fields, if they are as in one of the layouts."""
    given = _text(record.get(side, _NONE))
    if given.startswith("{"):
        inside = _decode_tensors(given)
        if set(inside) == {*TENSOR_KEYS, "strides"}:
            attributes.append(shared(f"{side[:-1]}_strides", _text(inside.pop("strides"))))
        elif set(inside) != set(TENSOR_KEYS):
            return None
        del record[side]
        return IOInfo(**{key: _text(inside[key]) for key in TENSOR_KEYS})
    keys = FLAT_TENSORS[side]
    if not all(key in record for key in keys):
        return None
    return IOInfo(**{key: _text(record.pop(flat)) for key, flat in zip(TENSOR_KEYS, keys, strict=True)})


def _further(record: Record) -> list[AttributeProto]:
    return [make("et_fields", _encode(record).decode("utf-8", "replace"))] if record else []


def _text(raw: msgspec.Raw) -> str:
    """JSON as text; bytes that are not UTF-8 become U+FFFD."""
    return bytes(raw).decode("utf-8", "replace")
