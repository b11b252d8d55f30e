"""Convert inputs of calls between Kineto's `record_shapes` arguments and the ET format."""

from __future__ import annotations

import contextlib
import math
import re
from functools import lru_cache
from typing import Any

import msgspec

from ...trace.dtypes import UNKNOWN_DTYPE, standard_dtype
from ...trace.errors import UNREADABLE
from ..execution_trace.arguments import TENSOR_KEYS, DecodedSide, UndecodedSide

# `Input type` has these values for arguments that are not tensors; "" means None or a value that was not recorded.
_NOT_TENSORS = frozenset({"", "Scalar", "ScalarList"})
# `Input type` has these values for lists of tensors. Kineto does not record the dtypes in such a list.
_TENSOR_LISTS = frozenset({"TensorList", "GenericList"})
# An ET node without inputs has this value as `inputs`, and a node without outputs has it as `outputs`.
NO_TENSORS = msgspec.json.encode({key: list[Any]() for key in TENSOR_KEYS})
_TENSOR = re.compile(r"Tensor\(([^)]*)\)")
_NUMBERS = {"Int", "Double", "Bool"}
_KINETO_KINDS = {"Scalar", "ScalarList"}  # Only nodes that etplus made from Kineto events have inputs with these types.
_WHOLE = 1e10  # Below this limit, Kineto writes a double without a fraction as its digits and a point.
_UNCUT = 30  # Kineto and ETs truncate lists at different lengths, but never a list that is shorter than this.
_ABSOLUTE, _RELATIVE = 1e-6, 1e-5  # tolerances for comparing numbers, because ETs have six decimal places
_NOTHING = msgspec.Raw(b"[]")
# The values, shapes, types and strides of a call in a Kineto trace, each as a JSON string.
RecordedInputs = tuple[bytes, bytes, bytes, bytes]


class _InputArgs(msgspec.Struct, gc=False):
    values: msgspec.Raw = msgspec.field(default=_NOTHING, name="Concrete Inputs")
    shapes: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input type")
    strides: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Strides")


class _InputsEvent(msgspec.Struct, gc=False):
    args: _InputArgs = msgspec.field(default_factory=_InputArgs)


_decode_values = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_lists = msgspec.json.Decoder(list[Any]).decode
_decode_event = msgspec.json.Decoder(_InputsEvent).decode


def input_shapes(event: bytes) -> list[Any]:
    try:
        listed = msgspec.json.decode(_decode_event(event).args.shapes, type=list[Any])
        return [shape for shape in listed if shape]
    except UNREADABLE:
        return []


def recorded_inputs(event: bytes) -> RecordedInputs | None:
    try:
        given = _decode_event(event).args
    except UNREADABLE:
        return None
    return bytes(given.values), bytes(given.shapes), bytes(given.types), bytes(given.strides)


def et_inputs(recorded: list[RecordedInputs | None], known: dict[RecordedInputs | None, bytes]) -> list[bytes]:
    """Return the inputs of each call as JSON in the ET format. The dictionary `known` caches the results."""
    for key in dict.fromkeys(recorded):
        if key is not None and key not in known:
            known[key] = NO_TENSORS
            with contextlib.suppress(*UNREADABLE):  # Lists with too many levels cannot be decoded.
                known[key] = msgspec.json.encode(_in_terms_of_ets(*map(msgspec.json.decode, key)))
    return [known[key] for key in recorded]


def _in_terms_of_ets(values: Any, shapes: Any, types: Any, strides: Any) -> dict[str, list[Any]]:
    values, shapes, types, strides = ([] if not isinstance(v, list) else v for v in (values, shapes, types, strides))
    if len(shapes) != len(types) or any(not isinstance(t, str) for t in types):
        return {key: [] for key in TENSOR_KEYS}
    texts = values if len(values) == len(types) else [""] * len(types)
    known = {"strides": strides} if len(strides) == len(types) > 0 else {}
    return {
        "values": [_et_value(text, kind) for text, kind in zip(texts, types, strict=True)],
        "shapes": shapes,
        "types": [_et_type(kind, shape) for kind, shape in zip(types, shapes, strict=True)],
        **known,
    }


def _et_value(text: Any, kind: str) -> Any:
    value = _concrete_value(text) if isinstance(text, str) and kind in _NOT_TENSORS else None
    return text if value is None else value


def _concrete_value(text: str) -> Any:
    """Parse a value from `Concrete Inputs`; None if it is neither a number nor a list of numbers."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        return [_concrete_value(part) for part in text[1:-1].split(",") if part.strip()]
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return None


def _et_type(kind: str, shape: Any) -> str:
    if kind in _NOT_TENSORS:
        return kind or "None"
    lists = isinstance(shape, list) and any(isinstance(extent, list) for extent in shape)
    return _list_type(shape) if lists or kind in _TENSOR_LISTS else f"Tensor({kind})"


def _list_type(shape: Any) -> str:
    members = shape if isinstance(shape, list) else []
    nested = [isinstance(member, list) and any(isinstance(extent, list) for extent in member) for member in members]
    unknown = f"Tensor({UNKNOWN_DTYPE})"
    types = (_list_type(member) if deeper else unknown for member, deeper in zip(members, nested, strict=True))
    return f"GenericList[{','.join(types)}]"


def input_args(given: DecodedSide, *, from_et: bool) -> dict[str, Any]:
    """Return Kineto's arguments for the inputs of a node; `from_et` is False for nodes created from Kineto events."""
    if not given.whole:
        return {}
    values, shapes, types, strides, _ = given
    texts = ["" if "Tensor" in kind else _text(value) for kind, value in zip(types, values, strict=True)]
    steps = {"Input Strides": strides} if strides is not None and len(strides) == len(shapes) else {}
    kinds = [_kind(kind, from_et=from_et) for kind in types]
    return {"Input Dims": shapes, "Input type": kinds, **steps, "Concrete Inputs": texts}


def inputs_key(given: UndecodedSide) -> tuple[bytes | int, ...]:
    """Return a key that is the same for inputs with the same `input_args`, even if their tensor ids differ."""
    shapes, types, strides = bytes(given.shapes), bytes(given.types), bytes(given.strides)
    try:
        values = _decode_values(given.values)
        shown = [bytes(values[k]) for k in _not_tensors(types)]
    except (IndexError, *UNREADABLE):
        return shapes, types, strides, bytes(given.values)
    return shapes, types, strides, len(values), *shown


@lru_cache(maxsize=1 << 12)
def _not_tensors(types: bytes) -> list[int]:
    return [k for k, kind in enumerate(msgspec.json.decode(types, type=list[str])) if "Tensor" not in kind]


def _kind(of_et: str, *, from_et: bool) -> str:
    tensor = _TENSOR.fullmatch(of_et)
    if tensor:
        return tensor[1]
    if of_et.startswith("GenericList["):
        return "ScalarList" if from_et and "Tensor(" not in of_et else "TensorList"
    if of_et in _KINETO_KINDS:
        return of_et
    return "Scalar" if of_et in _NUMBERS else ""


def _text(value: Any) -> str:
    """Format a value like Kineto (`operator<<` in aten/src/ATen/core/ivalue.cpp): 1, 0.5, 2., True, [1, 1]."""
    if isinstance(value, float):
        return f"{value:.0f}." if abs(value) < _WHOLE and value.is_integer() else f"{value:.17g}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return "" if value is None or value == "<None>" else str(value)


def other_input(given: UndecodedSide, recorded: RecordedInputs) -> str:
    """Describe the first input that the ET and Kineto record differently; "" if all inputs agree.

    A missing record is not a difference: Kineto omits long lists, nested lists and undefined tensors.

    Example:
        >>> raws = (msgspec.Raw(text) for text in (b"[2]", b"[[4, 6]]", b'["Tensor(float)"]'))
        >>> other_input(UndecodedSide(*raws), (b'[""]', b"[[8, 6]]", b'["float"]', b"[]"))
        'float [4, 6] in the ET, float [8, 6] in the Kineto trace (input 1)'
    """
    try:
        ours, theirs = _decode_lists(given.shapes), _decode_lists(recorded[1])
        kinds = _comparable(bytes(given.types), recorded[2])
        if not len(ours) == len(theirs) == len(kinds):
            return ""
        scalars = any(how == "scalar" for how, _, _ in kinds)
        values, texts = (_decode_lists(given.values), _decode_lists(recorded[0])) if scalars else ([], [])
    except UNREADABLE:
        return ""
    if not len(values) == len(texts) == len(kinds):
        values = texts = [""] * len(kinds)
    for at, (how, kind, other) in enumerate(kinds):
        if how == "scalar":
            found = (values[at], texts[at])
            fits = not isinstance(texts[at], str) or _fits(values[at], _concrete_value(texts[at]))
        else:
            found = (f"{kind} {ours[at]}", f"{other} {theirs[at]}")
            fits = not how or (how == "shape" and _fits(ours[at], theirs[at]))
        if not fits:
            return f"{found[0]} in the ET, {found[1]} in the Kineto trace (input {at + 1})"
    return ""


@lru_cache(maxsize=1 << 12)
def _comparable(types: bytes, kinds: bytes) -> list[tuple[str, str, str]]:
    """Return (comparison, dtype in the ET, type in Kineto) for each input; an empty list if the counts differ."""
    listed = msgspec.json.decode(types, type=list[str]), msgspec.json.decode(kinds, type=list[str])
    result = []
    for ours, theirs in zip(*listed, strict=False):
        tensor, how = _TENSOR.fullmatch(ours), ""
        if tensor and theirs not in _NOT_TENSORS | _TENSOR_LISTS:
            dtypes = {standard_dtype(tensor[1]), standard_dtype(theirs)} - {""}
            how = "shape" if len(dtypes) < 2 else "dtype"
        elif "Tensor(" in ours and theirs in _TENSOR_LISTS:
            how = "shape"
        elif "Tensor" not in ours and theirs in _KINETO_KINDS:
            how = "scalar"
        result.append((how, tensor[1] if tensor else "tensors", theirs))
    return result if len(listed[0]) == len(listed[1]) else []


def _fits(ours: Any, theirs: Any) -> bool:
    """Return True if two records of a shape or number may describe the same value. An empty list matches any list."""
    if isinstance(ours, list) and isinstance(theirs, list):
        same = len(ours) == len(theirs) or not ours or not theirs or min(len(ours), len(theirs)) >= _UNCUT
        return same and all(map(_fits, ours, theirs))
    if type(ours) is int and type(theirs) is int:
        return ours == theirs
    if isinstance(ours, (int, float)) and isinstance(theirs, (int, float)):
        close = math.isclose(ours, theirs, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
        return close or not (math.isfinite(ours) and math.isfinite(theirs))
    return True
