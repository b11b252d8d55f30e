"""Element types in the spellings of the ET, of Kineto, of NCCL and of torch."""

from __future__ import annotations

import pytest
from etplus.trace.dtypes import UNKNOWN_DTYPE, itemsize, standard_dtype


@pytest.mark.parametrize(
    ("dtype", "size", "standard"),
    [("float", 4, "float32"), ("Float", 4, "float32"), ("torch.float32", 4, "float32"), ("c10::Half", 2, "float16"),
     ("c10::BFloat16", 2, "bfloat16"), ("BFloat16", 2, "bfloat16"), ("long int", 8, "int64"), ("long", 8, "int64"),
     ("double", 8, "float64"), ("unsigned char", 1, "uint8"), ("signed char", 1, "int8"), ("bool", 1, "bool"),
     ("short", 2, "int16"), (" Int ", 4, "int32"), ("c10::complex<float>", 8, "complex64"),
     ("c10::complex<double>", 16, "complex128"), ("c10::Float8_e4m3fn", 1, "float8_e4m3fn"),
     (UNKNOWN_DTYPE, None, ""), ("of another library", None, "of_another_library"), ("", None, "")],
)  # fmt: skip
def test_spellings(dtype: str, size: int | None, standard: str) -> None:
    assert itemsize(dtype) == size and standard_dtype(dtype) == standard


def test_a_type_that_is_not_recorded() -> None:
    assert itemsize(None) is None
