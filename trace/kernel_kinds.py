"""Classify GPU work by category and name, to choose colors in charts and to find an operator's main kernel."""

from __future__ import annotations

import re
from functools import lru_cache

from .conventions import COPY_CATEGORIES, MAX_NAME

GPU_KINDS = (
    "GEMM",
    "Convolution",
    "Attention",
    "Normalization",
    "Elementwise",
    "Reduction and softmax",
    "Communication",
    "Copy and fill",
    "Other kernel",
)
# The order matters, because the name of an attention kernel may also contain the name of a GEMM library.
_PATTERNS = {
    "Attention": r"flash|fmha|attention|attn|BatchPrefill|BatchDecode",
    "Normalization": r"norm(?!al_|al\b)|bn_fw|bn_bw|layer_?norm",
    "Convolution": r"conv(?!ert)|wgrad|dgrad|winograd|fprop|implicit_gemm|cudnn_\d+x\d",
    "GEMM": r"gemm|gemv|cijk|cutlass|xmma|nvjet|matmul|mm_kernel|dot_kernel|splitk|fused_moe_kernel|fmoe",
    "Reduction and softmax": r"reduce|softmax|cumsum|scan",
    "Elementwise": r"elementwise|multi_tensor|foreach|pointwise|fill|gelu|relu|triton_poi",
}
_BY_NAME = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _PATTERNS.items()}
_MTIA = "mtia_ccp_events"
_PRODUCTS = frozenset({"GEMM", "Convolution", "Attention"})
# These kernels only help a GEMM by changing layouts or adding up partial results.
_HELPER = re.compile(r"nchwToNhwc|nhwcToNchw|splitk|reduction|transpose|im2col|col2im|elementwise|setZero", re.I)


def is_device_copy(name: str, category: str) -> bool:
    """Return True for a memcpy or memset. On MTIA, copies have names such as "dma_request"."""
    return category in COPY_CATEGORIES or (category == _MTIA and name.startswith("dma"))


def is_device_wait(name: str, category: str) -> bool:
    """Return True if an event only waits, as some MTIA events do."""
    return category == _MTIA and name.startswith("waitOnEvent")


def gpu_kind(name: str, category: str, is_comm: bool) -> int:
    if is_comm:
        return GPU_KINDS.index("Communication")
    if is_device_copy(name, category):
        return GPU_KINDS.index("Copy and fill")
    if is_device_wait(name, category):
        return GPU_KINDS.index("Other kernel")
    return GPU_KINDS.index(_kind_of(name))


@lru_cache(maxsize=4096)
def computes_products(name: str) -> bool:
    """Return True for the name of a GEMM, convolution or attention kernel that can be an operator's main kernel."""
    return _kind_of(name) in _PRODUCTS and not _HELPER.search(name, 0, MAX_NAME)


@lru_cache(maxsize=4096)
def _kind_of(name: str) -> str:
    return next((kind for kind, pattern in _BY_NAME.items() if pattern.search(name, 0, MAX_NAME)), "Other kernel")
