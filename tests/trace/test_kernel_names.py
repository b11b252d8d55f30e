"""Readable names of kernels: of all kernels of the real traces, and of whatever else a trace may call one."""

import pytest
from etplus.trace.kernel_names import kernel_label
from hypothesis import given
from hypothesis import strategies as st

WORDS = ("reduce_kernel", "elementwise_kernel", "Kernel2", "ReduceOp", "float", "4", "_ZN", "4abcd", "lambda()#1")
PARTS = st.sampled_from([*WORDS, *"<>(){},", "::", "->", "operator()"])


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("triton_poi_fused_add_cos_sin_0", "triton_poi_fused_add_cos_sin_0"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
         "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::gelu_kernel(at::TensorIteratorBase&)::{lambda()"
         "#2}::operator()() const::{lambda(c10::BFloat16)#1}, std::array<char*, 2ul> >(int)",
         "elementwise gelu_kernel<BFloat16>"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
         "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, "
         "unsigned int, float, 4> >(at::native::ReduceOp<float>)", "reduce sum_functor<float>"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>"
         "(cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2::Params)",
         "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2"),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8ELb0EEEvPT0_PT_", "aiter::add_rmsnorm_quant_kernel"),
        ("Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1_SN_LDSB0_AFC1",
         "Cijk_Ailk_Bjlk_SB_MT64x16x16_MI16x16x1"),
        ("lib::deep::space::kernel<4, float>(int)", "lib::kernel<4, float>"),
        ("at::native::mine::kernel", "mine::kernel"),
        ("kernel<float, float, 3, 3, true, true>", "kernel<float, 3, 3, true, true>"),
        ("kernel<1, 2, 3, 4, 5, 6>", "kernel<1, 2, 3, 4, 5, 6>"),
        ("kernel<true, 2, 3, 4, 5, 6, 7ul>", "kernel<2, 3, 4, 5, 6, 7>"),
        ("kernel<1, 2, 3, 4, 5, 6, 7>", "kernel<1, 2, 3, 4, 5, 6>"),
        ("_ZN7cutlass6KernelI8ClassOneE", "cutlass::ClassOne"),
        ("_ZN7cutlass6KernelIi8ClassOne3FooE", "cutlass::Foo"),
        ("_ZN7cutlass6KernelI9ClassOne", "cutlass::Kernel"),
        ("_ZN7cutlass6KernelI8ClassOne9cute5ShapeILi128ELi64ELi32E", "cutlass::ClassOne 128x64x32"),
        ("_Z4gemmPf", "gemm"),
        ("_ZN2at6native12_GLOBAL__N_113reduce_kernelEv", "reduce_kernel"),
    ],
)  # fmt: skip
def test_long_kernel_names_are_shortened_to_readable_labels(name: str, label: str) -> None:
    assert kernel_label(name) == label


@given(st.lists(PARTS, max_size=20).map("".join) | st.text("aZ_0<>(){}:,* é\n", max_size=40))
def test_any_name_has_a_label(name: str) -> None:
    label = kernel_label(name)
    assert len(label) <= 80 and bool(label) == bool(name.removeprefix("void "))
