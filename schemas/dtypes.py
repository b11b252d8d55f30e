"""Element sizes of tensor types in every spelling that traces use (ET, Kineto, NCCL)."""

from __future__ import annotations

__all__ = ["itemsize"]

_BYTES = {
    8: "long double int64 float64 complex<float> complex64 c10::complex<float> uint64 longlong",
    4: "int float int32 float32 uint32 c10::complex<c10::half> complex32 qint32",
    2: "short half bfloat16 float16 int16 c10::half c10::bfloat16 uint16",
    1: "char byte bool int8 uint8 unsigned_char signed_char float8 float8_e4m3fn float8_e5m2 float8_e4m3fnuz "
    "float8_e5m2fnuz float8_e8m0fnu c10::float8_e4m3fn c10::float8_e5m2 c10::float8_e4m3fnuz c10::float8_e5m2fnuz "
    "c10::qint8 c10::quint8 qint8 quint8",
    16: "complex<double> complex128 c10::complex<double>",
}
_ITEMSIZE = {name: size for size, names in _BYTES.items() for name in names.split()}


def itemsize(dtype: str | None) -> int | None:
    """Bytes of one element; None for an unknown type.

    Spellings: the ET's ("float", "c10::Half", "unsigned char", "long int"), Kineto's ("Float", "BFloat16"), torch's.
    """
    if dtype is None:
        return None
    name = dtype.strip().lower().removeprefix("torch.").removesuffix(" int").replace(" ", "_")
    return _ITEMSIZE.get(name)
