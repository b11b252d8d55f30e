"""Element types in the spellings of the ET, of Kineto, of NCCL and of torch."""

import pytest
from etplus.trace.dtypes import (
    UNKNOWN_DTYPE,
    et_spelling,
    is_floating,
    itemsize,
    kineto_spelling,
    scalar_type,
    standard_dtype,
    values_per_element,
)


@pytest.mark.parametrize(
    ("dtype", "size", "standard"),
    [("float", 4, "float32"), ("Float", 4, "float32"), ("torch.float32", 4, "float32"), ("c10::Half", 2, "float16"),
     ("c10::BFloat16", 2, "bfloat16"), ("BFloat16", 2, "bfloat16"), ("long int", 8, "int64"), ("long", 8, "int64"),
     ("double", 8, "float64"), ("unsigned char", 1, "uint8"), ("signed char", 1, "int8"), ("bool", 1, "bool"),
     ("short", 2, "int16"), (" Int ", 4, "int32"), ("c10::complex<float>", 8, "complex64"),
     ("c10::complex<double>", 16, "complex128"), ("ComplexHalf", 4, "complex32"), ("short unsigned int", 2, "uint16"),
     ("unsigned int", 4, "uint32"), ("long unsigned int", 8, "uint64"), ("c10::quint4x2", None, "quint4x2"),
     ("c10::Float4_e2m1fn_x2", 1, "float4_e2m1fn_x2"),
     ("c10::dummy_uint1_7_t<4>", 1, "uint4"), ("c10::Float8_e4m3fn", 1, "float8_e4m3fn"),
     (UNKNOWN_DTYPE, None, ""), ("of another library", None, "of_another_library"), ("", None, "")],
)  # fmt: skip
def test_any_spelling_of_a_dtype_gives_size_and_torch_name(dtype: str, size: int | None, standard: str) -> None:
    assert itemsize(dtype) == size and standard_dtype(dtype) == standard and itemsize(None) is None


def test_dtypes_are_recognized_in_other_spellings() -> None:
    assert is_floating("c10::Half") and is_floating("Float")
    assert not is_floating("long") and not is_floating("c10::complex<float>")
    assert kineto_spelling("torch.bfloat16") == "BFloat16" and kineto_spelling("strange") == "strange"
    for number in (-1, 99):
        with pytest.raises(LookupError):
            scalar_type(number)


def test_only_packed_fp4_holds_several_values() -> None:
    assert (scalar_type(15), scalar_type(45)) == ("bfloat16", "float4_e2m1fn_x2")
    assert et_spelling("torch.int64") == "long int" and et_spelling("odd") == "odd"
    held = {values_per_element(scalar_type(number)): scalar_type(number) for number in range(46)}
    assert held.pop(2) == "float4_e2m1fn_x2" and held.keys() == {1}
