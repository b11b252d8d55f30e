"""Element sizes of tensor types in every spelling that traces use (ET, Kineto, NCCL)."""

from __future__ import annotations

from functools import lru_cache

UNKNOWN_DTYPE = "unknown"
"""What ET+ writes for an element type that is not recorded: `Tensor(unknown)`."""
_BYTES = {
    8: "long double int64 float64 complex<float> complex64 c10::complex<float> uint64 longlong",
    4: "int float int32 float32 uint32 c10::complex<c10::half> complex32 qint32",
    2: "short half bfloat16 float16 int16 c10::half c10::bfloat16 uint16",
    1: "char byte bool int8 uint8 unsigned_char signed_char float8 float8_e4m3fn float8_e5m2 float8_e4m3fnuz "
    "float8_e5m2fnuz float8_e8m0fnu c10::float8_e4m3fn c10::float8_e5m2 c10::float8_e4m3fnuz c10::float8_e5m2fnuz "
    "c10::qint8 c10::quint8 qint8 quint8",
    16: "complex<double> complex128 c10::complex<double>",
}
_STANDARD = {
    "half": "float16", "float": "float32", "double": "float64", "char": "int8", "signed_char": "int8", "byte": "uint8",
    "unsigned_char": "uint8", "short": "int16", "int": "int32", "long": "int64", "longlong": "int64",
    "complex<float>": "complex64", "complex<double>": "complex128", "complex<c10::half>": "complex32",
    UNKNOWN_DTYPE: "",
}  # fmt: skip
_ITEMSIZE = {name: size for size, names in _BYTES.items() for name in names.split()}


def itemsize(dtype: str | None) -> int | None:
    """Bytes of one element; None for an unknown type.

    Spellings: the ET's ("float", "c10::Half", "unsigned char", "long int"), Kineto's ("Float", "BFloat16"), torch's.
    """
    if dtype is None:
        return None
    return _ITEMSIZE.get(_plain(dtype))


def standard_dtype(dtype: str) -> str:
    """Torch's name of a type ("bfloat16" for "c10::BFloat16"), the spelling itself for one that is not known.

    "" for `UNKNOWN_DTYPE`.
    """
    name = _plain(dtype).removeprefix("c10::")
    return _STANDARD.get(name, name)


@lru_cache(maxsize=1 << 12)
def _plain(dtype: str) -> str:
    return dtype.strip().lower().removeprefix("torch.").removesuffix(" int").replace(" ", "_")
