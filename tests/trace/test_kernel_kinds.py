"""Kinds of GPU work by name and category, as names of real kernels say it."""

import pytest
from etplus.trace.conventions import MAX_NAME
from etplus.trace.kernel_kinds import GPU_KINDS, computes_products, gpu_kind, is_device_copy, is_device_wait

MTIA = "mtia_ccp_events"


@pytest.mark.parametrize(
    ("name", "category", "copies", "waits", "kind"),
    [("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", True, False, "Copy and fill"),
     ("Memset (Device)", "gpu_memset", True, False, "Copy and fill"),
     ("dma_request", MTIA, True, False, "Copy and fill"), ("dma_request", "kernel", False, False, "Other kernel"),
     ("a dma", MTIA, False, False, "Other kernel"), ("gemm", MTIA, False, False, "GEMM"),
     ("waitOnEvent gemm", MTIA, False, True, "Other kernel"),
     ("waitOnEvent gemm", "kernel", False, False, "GEMM"),
     ("a waitOnEvent", MTIA, False, False, "Other kernel"), ("", "", False, False, "Other kernel")],
)  # fmt: skip
def test_only_mtia_has_copies_and_waits_by_name(name: str, category: str, copies: bool, waits: bool, kind: str) -> None:
    assert (is_device_copy(name, category), is_device_wait(name, category)) == (copies, waits)
    assert GPU_KINDS[gpu_kind(name, category, is_comm=False)] == kind
    assert GPU_KINDS[gpu_kind(name, category, is_comm=True)] == "Communication"


@pytest.mark.parametrize(
    ("name", "kind", "product"),
    [("ampere_sgemm_128x64_tn", "GEMM", True), ("Cijk_Ailk_Bljk_SB_MT64x64", "GEMM", True),
     ("void flash_fwd_kernel<128>", "Attention", True), ("fmha_cutlassF_f32", "Attention", True),
     ("cudnn_infer_winograd", "Convolution", True), ("implicit_convolve_sgemm", "Convolution", True),
     ("convert_f32", "Other kernel", False), ("void splitKreduce_kernel<32, 16>", "GEMM", False),
     ("nchwToNhwcKernel conv", "Convolution", False), ("layer_norm_kernel", "Normalization", False),
     ("normal_kernel", "Other kernel", False), ("softmax_warp_forward", "Reduction and softmax", False),
     ("vectorized_elementwise_kernel", "Elementwise", False), ("gemm_elementwise", "GEMM", False)],
)  # fmt: skip
def test_kernel_names_give_the_kind_and_whether_products_are_computed(name: str, kind: str, product: bool) -> None:
    assert GPU_KINDS[gpu_kind(name, "kernel", is_comm=False)] == kind
    assert computes_products(name) == product


def test_only_the_beginning_of_very_long_names_is_searched() -> None:
    assert computes_products("x" * (MAX_NAME - 4) + "gemm") and not computes_products("x" * (MAX_NAME - 3) + "gemm")
    assert not computes_products("gemm transpose") and computes_products("gemm" + "x" * MAX_NAME + "transpose")
