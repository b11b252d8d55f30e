"""Kinds of GPU work, by category and name: for colors of pictures, and to find an operator's main kernel.

`trace.comm_kernels` decides which kernels communicate. Opcodes of exported graphs are a versioned vocabulary of their
own (`converters.npz`).
"""

from __future__ import annotations

import re
from functools import lru_cache

from .conventions import COPY_CATEGORIES, MAX_NAME

GPU_KINDS = (
    "Matrix product",
    "Convolution",
    "Attention",
    "Normalization",
    "Elementwise",
    "Reduction and softmax",
    "Communication",
    "Copy and fill",
    "Other kernel",
)
_BY_NAME = (
    ("Attention", re.compile(r"flash|fmha|attention|attn|BatchPrefill|BatchDecode", re.IGNORECASE)),
    ("Normalization", re.compile(r"norm(?!al_|al\b)|bn_fw|bn_bw|layer_?norm", re.IGNORECASE)),
    ("Convolution", re.compile(r"conv(?!ert)|wgrad|dgrad|winograd|fprop|implicit_gemm|cudnn_\d+x\d", re.IGNORECASE)),
    (
        "Matrix product",
        re.compile(
            r"gemm|gemv|cijk|cutlass|xmma|nvjet|matmul|mm_kernel|dot_kernel|splitk|fused_moe_kernel|fmoe", re.IGNORECASE
        ),
    ),
    ("Reduction and softmax", re.compile(r"reduce|softmax|cumsum|scan", re.IGNORECASE)),
    ("Elementwise", re.compile(r"elementwise|multi_tensor|foreach|pointwise|fill|gelu|relu|triton_poi", re.IGNORECASE)),
)
"""The first match holds: an attention kernel may be built from a GEMM library."""
_MTIA = "mtia_ccp_events"
_PRODUCTS = frozenset({"Matrix product", "Convolution", "Attention"})
_HELPER = re.compile(r"nchwToNhwc|nhwcToNchw|splitk|reduction|transpose|im2col|col2im|elementwise|setZero", re.I)
"""Kernels next to a GEMM: changes of layout, sums of partial results."""


def is_device_copy(name: str, category: str) -> bool:
    """Return whether an event is a memcpy or memset; MTIA has one category for all, and names its copies
    ("dma_request").

    Example:
        >>> is_device_copy("dma_request", "mtia_ccp_events"), is_device_copy("dma_request", "kernel")
        (True, False)
    """
    return category in COPY_CATEGORIES or (category == _MTIA and name.startswith("dma"))


def is_device_wait(name: str, category: str) -> bool:
    """Return whether an event does no work but waits, as some of MTIA's do."""
    return category == _MTIA and name.startswith("waitOnEvent")


def gpu_kind(name: str, category: str, is_comm: bool) -> int:
    """Return an index into `GPU_KINDS`.

    Example:
        >>> GPU_KINDS[gpu_kind("pytorch_flash::flash_fwd_kernel", "kernel", is_comm=False)]
        'Attention'
    """
    if is_comm:
        return GPU_KINDS.index("Communication")
    if is_device_copy(name, category):
        return GPU_KINDS.index("Copy and fill")
    if is_device_wait(name, category):
        return GPU_KINDS.index("Other kernel")
    return GPU_KINDS.index(_kind_of(name))


@lru_cache(maxsize=4096)
def computes_products(name: str) -> bool:
    """Return whether a kernel's name is that of a GEMM, a convolution or attention: an operator's main kernel.

    Example:
        >>> computes_products("volta_sgemm_64x64_tn"), computes_products("void splitKreduce_kernel<32, 16, int>")
        (True, False)
    """
    return _kind_of(name) in _PRODUCTS and not _HELPER.search(name, 0, MAX_NAME)


@lru_cache(maxsize=4096)
def _kind_of(name: str) -> str:
    return next((kind for kind, pattern in _BY_NAME if pattern.search(name, 0, MAX_NAME)), "Other kernel")
