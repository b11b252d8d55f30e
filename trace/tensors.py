"""Inputs and outputs of operators, as nodes of the ET record them: shapes, types, numbers."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from .brief import brief
from .dtypes import itemsize, standard_dtype
from .errors import UNREADABLE

_ELEMENT = re.compile(r"Tensor\(([^()]*(?:\([^()]*\))?[^()]*)\)|[^\[\](),]+(?=[,\]]|\Z)")
"""In the ET's type of an argument: a tensor, with the type of its elements, or anything else but a list."""
_NO_TENSOR = "nullptr"
_EXPANDED = re.compile(rb"[\[,]\s*0\s*[,\]]")
"""In the text of strides: one that is 0."""
_NOTHING = b"[]"
"""Shapes of a node made of a CPU op whose inputs Kineto did not record."""
_MAX_RANK = 64
_MAX_EXTENT = 2**48

_WITH_NUMBERS = re.compile(
    r"(?:aten::|_C::|sgl_kernel::|flash_attn::)?_?(?:"
    r"\w*conv\w*|\w*attention\w*|flash_attn\w*|_flash_attn\w*|rotary_embedding|\w*norm\w*_backward"
    r"|all|any|amax|amin|argmax|argmin|cat|concat|concatenate|count_nonzero|gather|index|index_select|linalg_vector_norm"
    r"|logsumexp|max|mean|min|nansum|prod|sum|take)_?"
)
"""Operators whose work depends on numbers among their arguments (strides, dimensions, flags), not on shapes alone."""
_more_with_numbers: set[str] = set()


def numbers_matter(name: str) -> bool:
    """Whether an operator's numbers are kept in its signature; of others only shapes and types are.

    Example:
        >>> [numbers_matter(name) for name in ("aten::convolution", "aten::addmm")]
        [True, False]
    """
    return _WITH_NUMBERS.fullmatch(name) is not None or name in _more_with_numbers


def keep_numbers(*names: str) -> None:
    """Keep the numbers of further operators, of traces that are read from now on."""
    _more_with_numbers.update(names)


_decode = msgspec.json.decode


class Tensor(NamedTuple):
    """Shape, and torch's name of the element type ("bfloat16"), "" where it is not recorded (lists in Kineto)."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int | None:
        """Size in bytes, None for an unknown type."""
        size = itemsize(self.dtype)
        return None if size is None else self.numel * size


def total_bytes(tensors: Iterable[Tensor]) -> int | None:
    """Size of tensors together, bytes; None if the type of one is unknown.

    Example:
        >>> total_bytes([Tensor((2, 3), "float32"), Tensor((4,), "bfloat16")])
        32
    """
    sizes = [tensor.nbytes for tensor in tensors]
    return None if None in sizes else sum(size for size in sizes if size is not None)


class Argument(NamedTuple):
    """One argument.

    Attributes:
        tensors: its tensors: one, those of a list, or none.
        value: of other values the value, if recorded.
        expanded: dimensions of its one tensor along which all elements lie at one place of memory: their strides are 0.
    """

    tensors: tuple[Tensor, ...] = ()
    value: Any = None
    expanded: tuple[int, ...] = ()

    def __repr__(self) -> str:
        given = {name: value for name, value in self._asdict().items() if value != self._field_defaults[name]}
        return f"Argument({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    @property
    def nbytes(self) -> int | None:
        """Memory in which its tensors lie, bytes; None if the type of one is unknown."""
        size = total_bytes(self.tensors)
        return size if not size else size // math.prod(self.tensors[0].shape[dim] for dim in self.expanded)


def read_bytes(arguments: Iterable[Argument]) -> int | None:
    """Memory in which the tensors of arguments lie, bytes; None if the type of one is unknown.

    Example:
        >>> read_bytes([Argument((Tensor((4, 1000), "int64"),), expanded=(1,))])
        32
    """
    sizes = [argument.nbytes for argument in arguments]
    return None if None in sizes else sum(size for size in sizes if size is not None)


@dataclass(frozen=True)
class Signature:
    """What an operator was called with.

    Attributes:
        inputs: the arguments in the order of the operator's schema.
        outputs: the tensors it returned, () for none; None where that is not recorded (by Kineto; in an ET node without
            the field, or with null).
    """

    inputs: tuple[Argument, ...]
    outputs: tuple[Tensor, ...] | None = None

    __repr__ = brief

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors among the inputs."""
        return tuple(tensor for argument in self.inputs for tensor in argument.tensors)

    def shape(self, position: int) -> tuple[int, ...] | None:
        """Shape of the tensor at a position, None if there is none."""
        tensors = self.inputs[position].tensors if position < len(self.inputs) else ()
        return tensors[0].shape if len(tensors) == 1 else None

    @property
    def label(self) -> str:
        """The shapes of the inputs, such as "[512],[1024,256],[256,512]"."""
        return ",".join("[" + ",".join(map(str, tensor.shape)) + "]" for tensor in self.tensors)

    @property
    def dtype(self) -> str:
        """Element type of the first tensor of floating-point numbers, else of the first one; "" if unknown."""
        dtypes = [tensor.dtype for tensor in self.tensors if tensor.dtype]
        return next((d for d in dtypes if "float" in d), dtypes[0] if dtypes else "")


class _Flat(msgspec.Struct, gc=False):
    inputs: msgspec.Raw = msgspec.Raw(b"")
    input_shapes: msgspec.Raw = msgspec.Raw(b"")
    input_types: msgspec.Raw = msgspec.Raw(b"")
    output_shapes: msgspec.Raw = msgspec.Raw(b"")
    output_types: msgspec.Raw = msgspec.Raw(b"")


class _Values(msgspec.Struct, gc=False):
    values: msgspec.Raw = msgspec.Raw(b"")
    shapes: msgspec.Raw = msgspec.Raw(b"")
    types: msgspec.Raw = msgspec.Raw(b"")
    strides: msgspec.Raw = msgspec.Raw(b"")


class _Nested(msgspec.Struct, gc=False):
    inputs: _Values = msgspec.field(default_factory=_Values)
    outputs: _Values = msgspec.field(default_factory=_Values)


_Key = tuple[bytes, ...]


@dataclass
class Signatures:
    """Interned signatures: equal texts are decoded once.

    Attributes:
        values: the signatures, by code.
    """

    values: list[Signature] = field(default_factory=list)
    _codes: dict[_Key, int] = field(default_factory=dict)
    _arguments: dict[tuple[str, str], Argument] = field(default_factory=dict)

    def from_et(
        self, texts: Sequence[bytes], wants_values: Sequence[bool], *, flat: bool, outputs_recorded: bool = True
    ) -> npt.NDArray[np.int32]:
        """Codes of the signatures in the texts of ET nodes, −1 where nothing is recorded.

        Args:
            wants_values: whether numbers matter, and are not to be left out.
            flat: the layout is that of schema 1.0.1.
            outputs_recorded: without outputs, a node returns none. Else it was made of a Kineto event: its outputs are
                unknown, and so are its inputs if it has none.
        """
        each = list(zip(map(id, texts), wants_values, strict=True))  # one object stands for many equal texts
        distinct = dict(zip(each, texts, strict=True))
        keys = _et_keys(list(distinct.values()), [wanted for _, wanted in distinct], flat)
        if not outputs_recorded:
            keys = ((*key[:2], b"", b"", *key[4:]) if key[0] not in (b"", _NOTHING) else (b"",) for key in keys)
        codes = dict(zip(distinct, map(self._code, keys), strict=True))
        return np.fromiter(map(codes.__getitem__, each), np.int32, len(texts))

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
        """See `_et_argument`; of tensors, most of which come again, each is made once."""
        key = kind, str(shape)
        known = self._arguments.get(key)
        if known is None:
            known = _et_argument(shape, kind, value)
            if known.tensors:
                self._arguments[key] = known
        return known


def _decode_all(texts: Sequence[bytes], kind: Any) -> list[Any]:
    """Decode many objects; None for one that has another form."""
    try:
        return list(msgspec.json.decode(b"[%b]" % b",".join(texts), type=list[kind | None]))
    except UNREADABLE:
        return [_decode_one(text, kind) for text in texts]


def _decode_one(text: bytes, kind: Any) -> Any:
    with contextlib.suppress(*UNREADABLE):
        return msgspec.json.decode(text, type=kind)
    return None


def _et_keys(texts: Sequence[bytes], wants_values: Sequence[bool], flat: bool) -> Iterator[_Key]:
    for one, wanted in zip(_decode_all(texts, _Flat if flat else _Nested), wants_values, strict=True):
        if one is None:
            yield (b"",)
        elif flat:
            raws = (one.input_shapes, one.input_types, one.output_shapes, one.output_types)
            yield (*map(bytes, raws), bytes(one.inputs) if wanted else b"", b"")
        else:
            given, made = one.inputs, one.outputs
            values, strides = bytes(given.values) if wanted else b"", bytes(given.strides)
            strides = strides if _EXPANDED.search(strides) else b""
            yield bytes(given.shapes), bytes(given.types), bytes(made.shapes), bytes(made.types), values, strides


def _signature(key: _Key, argument: Callable[[Any, str, Any], Argument]) -> Signature:
    shapes, types = _decode(key[0], type=list[Any]), _decode(key[1], type=list[str])
    values = _decode(key[4], type=list[Any]) if key[4] else [None] * len(shapes)
    if len(values) != len(shapes):
        values = [None] * len(shapes)
    inputs = tuple(argument(*one) for one in zip(shapes, types, values, strict=True))
    if key[5]:
        steps = [*_decode(key[5], type=list[Any]), *[None] * len(inputs)]  # some writers leave out those of numbers
        inputs = tuple(one._replace(expanded=_expanded(one, step)) for one, step in zip(inputs, steps, strict=False))
    if not key[2]:
        return Signature(inputs)
    out_shapes, out_types = _decode(key[2], type=list[Any]), _decode(key[3] or b"[]", type=list[str])
    outputs = (argument(shape, kind, None) for shape, kind in zip(out_shapes, out_types, strict=True))
    return Signature(inputs, tuple(tensor for one in outputs for tensor in one.tensors))


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
    return tuple(standard_dtype(one) if one and not one.startswith(_NO_TENSOR) else None for one in dtypes)


def _leaves(shape: list[Any]) -> Iterator[tuple[int, ...]]:
    """The shapes in nested lists of them."""
    for one in shape:
        if isinstance(one, list) and any(isinstance(extent, list) for extent in one):
            yield from _leaves(one)
        else:
            yield _checked(one)


def _checked(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or len(shape) > _MAX_RANK:
        raise ValueError("no shape")
    if not all(type(extent) is int and 0 <= extent < _MAX_EXTENT for extent in shape):
        raise ValueError("no shape")
    return tuple(shape)
