"""Signatures of ET nodes: their tensors and values, once per distinct text."""

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

from ...trace.columns import IntColumn, first_seen
from ...trace.dtypes import standard_dtype
from ...trace.errors import UNREADABLE
from ...trace.node_texts import texts_at
from ...trace.tensors import Argument, Signature, SignatureTable, Tensor
from .arguments import undecoded_arguments

# In an argument's type: a tensor with its element type, or another leaf.
_ELEMENT = re.compile(r"Tensor\(([^()]*(?:\([^()]*\))?[^()]*)\)|[^\[\](),]+(?=[,\]]|\Z)")
_NO_TENSOR = "nullptr"
# A stride of 0.
_EXPANDED = re.compile(rb"[\[,]\s*0\s*[,\]]")
# Shapes of a node made from a CPU op without recorded inputs.
_NOTHING = b"[]"
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
        found: npt.NDArray[np.int32] = np.fromiter(map(self._code, keys), np.int32, len(pairs))[of_node]
        return found

    def _code(self, key: _Key) -> int:
        code = self._codes.get(key)
        if code is None:
            signature = None
            if key[0]:
                with contextlib.suppress(*UNREADABLE, TypeError, ValueError):  # other writers: anything is possible
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
        steps = [*_decode(key[5], type=list[Any]), *[None] * len(inputs)]  # some writers leave out strides of numbers
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
        return Argument((), None if value == "" else value)  # Kineto has "" for a number that it left out
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
    """Return the dtypes of the leaves of a type; None for a leaf that is not a tensor."""
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
