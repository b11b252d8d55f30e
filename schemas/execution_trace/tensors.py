"""Read the arguments of ET nodes into columns: the storage that each tensor uses, and the signature of each call.

In all schemas, a tensor is `[tensor id, storage id, offset, numel, itemsize, device]`. The offset counts elements.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, distinct, first_seen
from ...trace.dtypes import standard_dtype
from ...trace.errors import UNREADABLE
from ...trace.node_texts import texts_at
from ...trace.tensors import MAX_STORAGE, Argument, Signature, SignatureTable, Tensor, TensorUses
from .arguments import Arguments, undecoded_arguments

_MAX_ITEMSIZE = 999
_RECORDS = 1 << 12  # At most this many records are searched together.
_PACKED = 7
_MAX_DIGITS = 15

_OPEN, _CLOSE, _COMMA, _QUOTE = 1, 2, 3, 4
_KIND = {"[": _OPEN, "{": _OPEN, "]": _CLOSE, "}": _CLOSE, ",": _COMMA, '"': _QUOTE}
_KINDS = bytes(_KIND.get(chr(byte), 0) for byte in range(256))
_DEPTH = np.array([0, 1, -1, 0, 0], np.int32)
_TENSOR = (_OPEN, *[_COMMA] * 5, _QUOTE, _QUOTE, _CLOSE)
_ESCAPE = re.compile(rb"\\.", re.DOTALL)


def tensor_uses(records: Sequence[bytes]) -> TensorUses:
    """Find all tensors that have a storage and are not empty, in the inputs and outputs of nodes."""
    codes = dict[str, int]()
    parts = [_uses_in([], codes)]
    for at in range(0, len(records), _RECORDS):
        node, *columns = _uses_in(records[at : at + _RECORDS], codes)
        parts.append((node + at, *columns))
    found = (np.concatenate(column) for column in zip(*parts, strict=True))
    return TensorUses(*found, list(codes))  # type: ignore[call-arg, arg-type]


def _uses_in(records: Sequence[bytes], codes: dict[str, int]) -> tuple[npt.NDArray[Any], ...]:
    """Find tensors in records by their punctuation `[,,,,,""]`, without parsing. Add new devices to `codes`."""
    each = [undecoded_arguments(record) or Arguments() for record in records]
    text = b"[" + b"][".join([side.values for found in each for side in (found.inputs, found.outputs)]) + b"]"
    text = (_ESCAPE.sub(b"__", text) if b"\\" in text else text).translate(None, b" \t\r\n")
    kinds = np.frombuffer(text.translate(_KINDS), np.uint8)
    at = np.flatnonzero(kinds.astype(np.bool_))
    kind = kinds[at]
    quote = kind == _QUOTE
    outside = quote | ~np.logical_xor.accumulate(quote)
    at, kind = at[outside], kind[outside]
    depth = np.cumsum(_DEPTH.take(kind), dtype=np.int32)
    first = _occurrences(kind)
    first = first[depth[first] > 2]
    begins = np.flatnonzero((kind == _OPEN) & (depth == 1))
    section = np.searchsorted(begins, first) - 1
    commas = np.flatnonzero((kind == _COMMA) & (depth == 2))
    argument = np.searchsorted(commas, first) - np.searchsorted(commas, begins)[section]
    data = np.frombuffer(text, np.uint8)
    tensor, storage, offset, numel, itemsize = (
        _integers(data, at[first + field] + 1, at[first + field + 1]) for field in range(5)
    )
    good = (tensor >= 0) & (storage > 0) & (storage < MAX_STORAGE) & (offset >= 0) & (numel > 0)
    good &= (itemsize > 0) & (itemsize <= _MAX_ITEMSIZE)
    first, section, argument, storage, offset, numel, itemsize = (
        column[good] for column in (first, section, argument, storage, offset, numel, itemsize)
    )
    begin = offset * itemsize
    device = _device_codes(text, at[first + 6] + 1, at[first + 7], codes)
    return section // 2, section % 2 == 1, argument, storage, begin, begin + numel * itemsize, device


def _device_codes(text: bytes, begin: IntColumn, end: IntColumn, codes: dict[str, int]) -> npt.NDArray[np.int32]:
    data, length = np.frombuffer(text, np.uint8), end - begin
    packed = np.minimum(length, _PACKED + 1).astype(np.uint64)
    for place in range(_PACKED):
        has = np.flatnonzero(length > place)
        packed[has] = packed[has] << np.uint64(8) | data[begin[has] + place]
    long = np.flatnonzero(length > _PACKED)
    names = [text[b:e].decode(errors="replace") for b, e in zip(begin[long].tolist(), end[long].tolist(), strict=True)]
    short = np.flatnonzero(length <= _PACKED)
    found = np.zeros(len(begin), np.int32)
    for value in distinct(packed[short]).tolist():
        at = short[packed[short] == value]
        name = text[begin[at[0]] : end[at[0]]].decode(errors="replace")
        found[at] = codes.setdefault(name, len(codes))
    found[long] = [codes.setdefault(name, len(codes)) for name in names]
    return found


def _occurrences(kind: npt.NDArray[np.uint8]) -> IntColumn:
    size = max(len(kind) - len(_TENSOR) + 1, 0)
    found = np.ones(size, np.bool_)
    for i, expected in enumerate(_TENSOR):
        found &= kind[i : i + size] == expected
    return np.flatnonzero(found)


def _integers(data: npt.NDArray[np.uint8], begin: IntColumn, end: IntColumn) -> IntColumn:
    """Parse the number in each span of a text; −1 if the span contains other characters or too many digits."""
    length = end - begin
    good = (length > 0) & (length <= _MAX_DIGITS)
    value = np.zeros(len(begin), np.int64)
    left, place = np.flatnonzero(good), 0
    while len(left):
        digit = data[end[left] - 1 - place] - np.uint8(ord("0"))
        good[left[digit > 9]] = False
        value[left] += digit.astype(np.int64) * 10**place
        place += 1
        left = left[length[left] > place]
    return np.where(good, value, -1)


# Matches an innermost part of an argument's type: a tensor with its dtype, or any other type.
_ELEMENT = re.compile(r"Tensor\(([^()]*(?:\([^()]*\))?[^()]*)\)|[^\[\](),]+(?=[,\]]|\Z)")
_NO_TENSOR = "nullptr"
_EXPANDED = re.compile(rb"[\[,]\s*0\s*[,\]]")  # Matches a stride of 0.
_NOTHING = b"[]"  # `shapes` of a node that etplus made from a CPU operator without recorded inputs
_MAX_RANK = 64
_MAX_EXTENT = 2**48
_Key = tuple[bytes, ...]
_decode = msgspec.json.decode


@dataclass
class Signatures(SignatureTable):
    values: list[Signature] = field(default_factory=list)
    _codes: dict[_Key, int] = field(default_factory=dict)
    _arguments: dict[tuple[str, str], Argument] = field(default_factory=dict)

    def codes(
        self,
        texts: Sequence[bytes],
        wants_values: npt.ArrayLike,
        which: IntColumn | None = None,
        *,
        outputs_recorded: bool = True,
    ) -> npt.NDArray[np.int32]:
        which = np.arange(len(texts)) if which is None else which
        pairs, of_node = first_seen(2 * which + np.asarray(wants_values, np.bool_))
        keys = _keys(texts_at(texts, pairs // 2), (pairs % 2).tolist())
        if not outputs_recorded:
            keys = ((*key[:2], b"", b"", *key[4:]) if key[0] not in (b"", _NOTHING) else (b"",) for key in keys)
        return np.fromiter(map(self._code, keys), np.int32, len(pairs))[of_node]

    def _code(self, key: _Key) -> int:
        code = self._codes.get(key)
        if code is None:
            signature = None
            if key[0]:
                with contextlib.suppress(*UNREADABLE, TypeError, ValueError):  # Unusual programs may write any value.
                    signature = _signature(key, self._argument)
            code = self._codes[key] = -1 if signature is None else len(self.values)
            if signature is not None:
                self.values.append(signature)
        return code

    def _argument(self, shape: Any, kind: str, value: Any) -> Argument:
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
        steps = [*_decode(key[5], type=list[Any]), *[None] * len(inputs)]  # Some programs write no strides for numbers.
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
        return Argument((), None if value == "" else value)  # If Kineto omits a number, it writes "".
    leaves = [_checked(shape)] if kind.startswith("Tensor(") else _leaves(shape)
    each = zip(leaves, dtypes, strict=False)
    return Argument(tuple(Tensor(leaf, dtype) for leaf, dtype in each if dtype is not None))


def _expanded(argument: Argument, strides: Any) -> tuple[int, ...]:
    shape = argument.tensors[0].shape if len(argument.tensors) == 1 else ()
    if not isinstance(strides, list) or len(strides) != len(shape):
        return ()
    return tuple(dim for dim, step in enumerate(strides) if type(step) is int and step == 0 and shape[dim] > 1)


@lru_cache(maxsize=1 << 12)
def _element_types(kind: str) -> tuple[str | None, ...]:
    """Return the dtype of each innermost part of a type. The dtype is None if the part is not a tensor."""
    dtypes = _ELEMENT.findall(kind)
    return tuple(standard_dtype(dtype) if dtype and not dtype.startswith(_NO_TENSOR) else None for dtype in dtypes)


def _leaves(shape: list[Any]) -> Iterator[tuple[int, ...]]:
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
