"""The detectors of the device and of memory."""

from __future__ import annotations

from .double_precision import DoublePrecision
from .eager_attention import EagerAttention
from .finding import Detector
from .fusable import ElementwiseChains, OptimizerLoop
from .layouts import Copies, LayoutConversions, Recomputation
from .like_work import SlowerThanLike
from .memory_use import AllocatorCalls, MemoryNearlyFull
from .products import NoTensorFloat, OldKernels, ProductDimensions
from .small_operators import SmallOperators

DEVICE: tuple[Detector, ...] = (
    EagerAttention(), ProductDimensions(), OldKernels(), NoTensorFloat(), DoublePrecision(), ElementwiseChains(),
    OptimizerLoop(), SmallOperators(), LayoutConversions(), Copies(), Recomputation(), SlowerThanLike(),
    AllocatorCalls(), MemoryNearlyFull(),
)  # fmt: skip
