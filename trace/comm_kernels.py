"""Communication kernels (NCCL, RCCL, HCCL, …): their names, and what they communicate."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from .brief import brief
from .conventions import MAX_NAME

_COMM_KERNEL = re.compile(
    r"^(?:void )?(?:nccl|rccl|onccl|oneccl|msccl|hccl::)|ncclDevKernel|ncclKernel|mscclKernel"
    r"|^(?!triton_).*(?:all_?reduce|all_?to_?all|cross_device_reduce)",
    re.IGNORECASE,
)
"""Libraries' kernels, and those of serving frameworks, named by what they do (`cross_device_reduce` is vLLM's).

Kernels that Inductor generates ("triton_…") list the operators that they fuse in their names, and communicate nothing.
"""
_COLLECTIVES = tuple((re.compile(part, re.IGNORECASE), name) for part, name in (
    ("all_?reduce|cross_device_reduce", "allreduce"), ("all_?gather", "allgather"),
    ("reduce_?scatter", "reduce_scatter"), ("broadcast", "broadcast"), ("send_?recv", "sendrecv"),
    ("all_?to_?all", "all_to_all"), ("reduce", "reduce"),
))  # fmt: skip
"""Parts of kernel names, the longer before those that they contain."""


class Comm(msgspec.Struct, gc=False, frozen=True):
    """What a communication kernel communicates; None where neither trace records it."""

    collective: str | None = None
    dtype: str | None = None
    in_nelems: int | None = None
    out_nelems: int | None = None
    bytes: int | None = None
    group_size: int | None = None
    pg_name: str | None = None
    pg_desc: str | None = None
    pg_ranks: list[int] | None = None
    src_rank: int | None = None
    dst_rank: int | None = None
    seq: int | None = None
    in_split: list[int] | None = None
    out_split: list[int] | None = None

    __repr__ = brief

    def filled(self, other: Comm) -> Comm:
        """With the other's values for what is not known here.

        Example:
            >>> Comm(collective="allreduce").filled(Comm(collective="x", group_size=2)).group_size
            2
        """
        mine = {name: getattr(self, name) for name in self.__struct_fields__}
        return Comm(**{name: getattr(other, name) if value is None else value for name, value in mine.items()})


@lru_cache(maxsize=4096)
def is_comm_kernel(name: str) -> bool:
    """Whether a GPU event's name is that of a communication kernel; the one place that decides it.

    Example:
        >>> [is_comm_kernel(one) for one in ("ncclDevKernel_AllReduce_Sum_f32", "triton_poi_fused_all_reduce_0")]
        [True, False]
    """
    return _COMM_KERNEL.search(name, 0, MAX_NAME) is not None


def collective_of(kernel: str) -> str | None:
    """The collective in a communication kernel's name, None if the name has none.

    Example:
        >>> collective_of("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL")
        'reduce_scatter'
    """
    return next((collective for pattern, collective in _COLLECTIVES if pattern.search(kernel)), None)
