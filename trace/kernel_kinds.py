"""Kinds of GPU work, told by category and name: what a picture colours by."""

from __future__ import annotations

import re

__all__ = ["GPU_KINDS", "gpu_kind"]

GPU_KINDS = (
    "Matrix product", "Convolution", "Attention", "Normalization", "Elementwise", "Reduction and softmax",
    "Communication", "Copy and fill", "Other kernel",
)  # fmt: skip
_BY_NAME = (
    ("Attention", re.compile(r"flash|fmha|attention|attn", re.IGNORECASE)),
    ("Normalization", re.compile(r"norm(?!al_|al\b)|bn_fw|bn_bw|layer_?norm", re.IGNORECASE)),
    ("Convolution", re.compile(r"conv(?!ert)|wgrad|dgrad|winograd|fprop|implicit_gemm", re.IGNORECASE)),
    ("Matrix product", re.compile(r"gemm|gemv|cijk|cutlass|xmma|nvjet|matmul|dot_kernel|splitk", re.IGNORECASE)),
    ("Reduction and softmax", re.compile(r"reduce|softmax|cumsum|scan", re.IGNORECASE)),
    ("Elementwise", re.compile(r"elementwise|multi_tensor|foreach|pointwise|fill|gelu|relu|triton_poi", re.IGNORECASE)),
)
"""The first that fits holds: an attention kernel may be built from a library of matrix products."""


def gpu_kind(name: str, category: str, is_comm: bool) -> int:
    """Index into `GPU_KINDS`."""
    if is_comm:
        return GPU_KINDS.index("Communication")
    if category in ("gpu_memcpy", "gpu_memset"):
        return GPU_KINDS.index("Copy and fill")
    kind = next((kind for kind, pattern in _BY_NAME if pattern.search(name)), "Other kernel")
    return GPU_KINDS.index(kind)
