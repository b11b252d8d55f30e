"""Sizes, shapes and types of what operators are called with."""

import pytest
from etplus.trace.tensors import Argument, Signature, Tensor, numbers_matter, read_bytes, total_bytes

F32, HALF, INTS = Tensor((2, 3), "float32"), Tensor((4,), "bfloat16"), Tensor((4, 1000), "int64")
LIST = Tensor((5,), "")


def test_bytes_of_tensors_are_none_if_a_dtype_is_unknown() -> None:
    assert (F32.numel, F32.nbytes, INTS.nbytes, LIST.numel, LIST.nbytes) == (6, 24, 32_000, 5, None)
    assert Tensor((), "float64").nbytes == 8 and Tensor((0, 7), "int8").nbytes == 0
    assert total_bytes([F32, HALF]) == 32 and total_bytes([]) == 0 and total_bytes([F32, LIST]) is None


@pytest.mark.parametrize(
    ("argument", "size"),
    [(Argument((INTS,)), 32_000), (Argument((INTS,), expanded=(1,)), 32), (Argument((INTS,), expanded=(0,)), 8000),
     (Argument((INTS,), expanded=(0, 1)), 8), (Argument((F32, HALF)), 32), (Argument((), 3), 0),
     (Argument((LIST,), expanded=(0,)), None), (Argument((Tensor((0, 7), "int8"),), expanded=(0,)), 0)],
)  # fmt: skip
def test_expanded_dimensions_of_an_argument_take_memory_once(argument: Argument, size: int | None) -> None:
    assert argument.nbytes == size
    assert read_bytes([argument, Argument((HALF,))]) == (None if size is None else size + 8)


def test_a_signature_has_shapes_of_arguments_with_one_tensor() -> None:
    found = Signature((Argument((INTS,)), Argument((), 2), Argument((F32, HALF)), Argument((HALF,))), (F32,))
    assert found.tensors == (INTS, F32, HALF, HALF) and found.label == "[4,1000],[2,3],[4],[4]"
    assert [found.shape(k) for k in range(5)] == [(4, 1000), None, None, (4,), None]


@pytest.mark.parametrize(
    ("given", "dtype"),
    [((INTS, F32, HALF), "float32"), ((INTS, HALF), "bfloat16"), ((LIST, INTS), "int64"), ((LIST,), ""), ((), "")],
)
def test_a_signature_takes_its_dtype_from_floats_before_integers(given: tuple[Tensor, ...], dtype: str) -> None:
    assert Signature((Argument(given),)).dtype == dtype


@pytest.mark.parametrize(
    ("name", "matter"),
    [("aten::convolution", True), ("aten::conv2d", True), ("aten::_scaled_dot_product_flash_attention", True),
     ("aten::sum", True), ("aten::sum_", True), ("aten::cat", True), ("aten::addmm", False), ("aten::summary", False),
     ("aiter::mha_batch_prefill", True), ("_vllm_fa3_C::fwd", True), ("mine::sum", False), ("sum", True),
     ("aten::native_layer_norm_backward", True), ("aten::native_layer_norm", False)],
)  # fmt: skip
def test_numbers_matter_only_for_listed_operators(name: str, matter: bool) -> None:
    assert numbers_matter(name) == matter
