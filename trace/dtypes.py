"""A table of PyTorch dtypes with their sizes and their spellings in ETs, Kineto traces, NCCL and torch."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

UNKNOWN_DTYPE = "unknown"  # ET+ writes `Tensor(unknown)` if the dtype is not recorded


class _Dtype(NamedTuple):
    name: str  # name in PyTorch without the prefix "torch."
    size: int | None  # bytes per element, None if several elements share a byte
    others: str = ""  # other lowercase spellings, with "_" for spaces, without "c10::" and " int"
    # `et` is the C++ spelling in ETs. `kineto` is the `ScalarType` spelling that Kineto records for collectives.
    # `et` and `kineto` are empty if etplus never writes the dtype.
    et: str = ""
    kineto: str = ""
    values: int = 1  # number of values in one element


# In the order of `ScalarType` (c10/core/ScalarType.h), because traces record a `dtype` argument as its number there.
_SCALAR_TYPES = (
    _Dtype("uint8", 1, "byte unsigned_char"),
    _Dtype("int8", 1, "char signed_char"),
    _Dtype("int16", 2, "short"),
    _Dtype("int32", 4, "int"),
    _Dtype("int64", 8, "long longlong long_long", "long int", "Long"),
    _Dtype("float16", 2, "half", "c10::Half", "Half"),
    _Dtype("float32", 4, "float", "float", "Float"),
    _Dtype("float64", 8, "double", "double", "Double"),
    _Dtype("complex32", 4, "complexhalf complex<half>"),
    _Dtype("complex64", 8, "complexfloat complex<float>"),
    _Dtype("complex128", 16, "complexdouble complex<double>"),
    _Dtype("bool", 1),
    _Dtype("qint8", 1),
    _Dtype("quint8", 1),
    _Dtype("qint32", 4),
    _Dtype("bfloat16", 2, "", "c10::BFloat16", "BFloat16"),
    _Dtype("quint4x2", None),  # each byte contains two elements
    _Dtype("quint2x4", None),
    *(_Dtype(name, 1) for name in ("bits1x8", "bits2x4", "bits4x2", "bits8")),  # the shape counts bytes
    _Dtype("bits16", 2),
    *(_Dtype(f"float8_{kind}", 1) for kind in ("e5m2", "e4m3fn", "e5m2fnuz", "e4m3fnuz")),
    _Dtype("uint16", 2, "unsigned_short short_unsigned"),
    _Dtype("uint32", 4, "unsigned unsigned_int"),
    _Dtype("uint64", 8, "unsigned_long long_unsigned unsigned_long_long long_long_unsigned"),
    *(_Dtype(f"uint{bits}", 1, f"dummy_uint1_7_t<{bits}>") for bits in range(1, 8)),
    *(_Dtype(f"int{bits}", 1, f"dummy_int1_7_t<{bits}>") for bits in range(1, 8)),
    _Dtype("float8_e8m0fnu", 1),
    _Dtype("float4_e2m1fn_x2", 1, values=2),  # an element is a byte with two values
)
_OTHERS = (_Dtype("float8", 1), _Dtype("", None, UNKNOWN_DTYPE))
_BY_SPELLING = {
    spelling: known for known in (*_SCALAR_TYPES, *_OTHERS) for spelling in (known.name, *known.others.split())
}
_FLOATING = ("float", "bfloat")


def itemsize(dtype: str | None) -> int | None:
    """Return the bytes per element, or None if the dtype is unknown or several elements share a byte."""
    known = _known(dtype) if dtype is not None else None
    return None if known is None else known.size


def values_per_element(dtype: str) -> int:
    """Return the number of values per tensor element (2 for packed FP4, 1 for all other dtypes)."""
    known = _known(dtype)
    return 1 if known is None else known.values


def standard_dtype(dtype: str) -> str:
    """Return the name in torch, such as "bfloat16" for "c10::BFloat16". `UNKNOWN_DTYPE` becomes ""."""
    known = _known(dtype)
    return _plain(dtype) if known is None else known.name


def is_floating(dtype: str) -> bool:
    """Return True for real floating-point types, in any spelling."""
    return standard_dtype(dtype).startswith(_FLOATING)


def scalar_type(number: int) -> str:
    """Return the torch name for a `ScalarType` number. Traces record `dtype` arguments as these numbers."""
    if number < 0:
        raise LookupError(number)
    return _SCALAR_TYPES[number].name


def et_spelling(dtype: str) -> str:
    known = _known(dtype)
    return dtype if known is None else known.et or dtype


def kineto_spelling(dtype: str) -> str:
    """Return the spelling that Kineto uses for a collective's dtype. A dtype that is not in the table is unchanged."""
    known = _known(dtype)
    return dtype if known is None else known.kineto or dtype


@lru_cache(maxsize=1 << 12)
def _known(dtype: str) -> _Dtype | None:
    return _BY_SPELLING.get(_plain(dtype))


def _plain(dtype: str) -> str:
    name = dtype.strip().lower().removeprefix("torch.").replace("c10::", "")
    return name.removesuffix(" int").replace(" ", "_")
