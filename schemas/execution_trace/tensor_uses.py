"""Tensors that an ET's calls read and wrote, as columns, found in the text without Python lists.

A tensor is `[tensor id, storage id, offset, numel, itemsize, device]`, offset and numel in elements, as PyTorch's
`ExecutionTraceObserver` writes it in all schemas; lists of tensors nest them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, distinct
from ...trace.tensors import MAX_STORAGE, TensorUses
from .arguments import Arguments, undecoded_arguments

_MAX_ITEMSIZE = 999
# Records that are searched together.
_RECORDS = 1 << 15
_PACKED = 7
_MAX_DIGITS = 15

_OPEN, _CLOSE, _COMMA, _QUOTE = 1, 2, 3, 4
_KIND = {"[": _OPEN, "{": _OPEN, "]": _CLOSE, "}": _CLOSE, ",": _COMMA, '"': _QUOTE}
_KINDS = bytes(_KIND.get(chr(byte), 0) for byte in range(256))
_DEPTH = np.array([0, 1, -1, 0, 0], np.int32)
_TENSOR = (_OPEN, *[_COMMA] * 5, _QUOTE, _QUOTE, _CLOSE)
_ESCAPE = re.compile(rb"\\.", re.DOTALL)


def tensor_uses(records: Sequence[bytes]) -> TensorUses:
    """Find all tensors with a storage and at least one element in the inputs and outputs of nodes."""
    codes = dict[str, int]()
    parts = [_uses_in([], codes)]
    for at in range(0, len(records), _RECORDS):
        node, *columns = _uses_in(records[at : at + _RECORDS], codes)
        parts.append((node + at, *columns))
    found = (np.concatenate(column) for column in zip(*parts, strict=True))
    return TensorUses(*found, list(codes))  # type: ignore[call-arg, arg-type]


def _uses_in(records: Sequence[bytes], codes: dict[str, int]) -> tuple[npt.NDArray[Any], ...]:
    """Find the tensors of some records; add new devices to `codes`.

    The joined texts of the values are searched for the punctuation of a tensor, `[,,,,,""]`. Other values, and numbers
    out of range, are skipped.
    """
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
    """Return the numbers in spans of a text; −1 for other characters or too many digits."""
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
