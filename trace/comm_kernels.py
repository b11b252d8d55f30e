"""Communication kernels (NCCL, RCCL, HCCL, …): their names, and the arguments that Kineto writes on them.

Argument names are those that PyTorch's profiler writes on NCCL and RCCL kernels since 2.3.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from .brief import brief
from .conventions import MAX_NAME
from .dtypes import itemsize
from .errors import UNREADABLE

_COMM_KERNEL = re.compile(
    r"^(?:void )?(?:nccl|rccl|onccl|oneccl|msccl|hccl::)|ncclDevKernel|ncclKernel|mscclKernel"
    r"|^(?!triton_).*(?:all_?reduce|all_?to_?all|cross_device_reduce)",
    re.IGNORECASE,
)
"""Libraries' kernels, and those of serving frameworks, named by what they do (`cross_device_reduce` is vLLM's).

Kernels that Inductor generates ("triton_…") list the operators that they fuse in their names, and communicate nothing.
"""
_KERNEL_COLLECTIVES = (
    ("all_?reduce|cross_device_reduce", "allreduce"),
    ("all_?gather", "allgather"),
    ("reduce_?scatter", "reduce_scatter"),
    ("broadcast", "broadcast"),
    ("send_?recv", "sendrecv"),
    ("all_?to_?all", "all_to_all"),
    ("reduce", "reduce"),
)
"""Parts of kernel names, the longer before those that they contain."""
_COLLECTIVES = tuple((re.compile(part, re.IGNORECASE), name) for part, name in _KERNEL_COLLECTIVES)
_KERNEL_ARGS: dict[str, tuple[str, type]] = {
    "collective": ("Collective name", str),
    "dtype": ("dtype", str),
    "in_nelems": ("In msg nelems", int),
    "out_nelems": ("Out msg nelems", int),
    "group_size": ("Group size", int),
    "pg_name": ("Process Group Name", str),
    "pg_desc": ("Process Group Description", str),
    "pg_ranks": ("Process Group Ranks", list),
    "src_rank": ("Src Rank", int),
    "dst_rank": ("Dst Rank", int),
    "seq": ("Seq", int),
    "in_split": ("In split size", list),
    "out_split": ("Out split size", list),
}
"""Fields of `comm`, with the argument that Kineto writes for each and its type (a list may be written as text)."""


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


def is_comm_kernel(name: str) -> bool:
    """Whether a GPU event's name is that of a communication kernel; the one place that decides it.

    Example:
        >>> [is_comm_kernel(one) for one in ("ncclDevKernel_AllReduce_Sum_f32", "triton_poi_fused_all_reduce_0")]
        [True, False]
    """
    return _COMM_KERNEL.search(name, 0, MAX_NAME) is not None


def kernel_comm(args: bytes) -> dict[str, Any]:
    """The fields of `comm` that a kernel's `args` have, None for the others."""
    given: dict[str, Any] = msgspec.json.decode(args) or {}
    comm: dict[str, Any] = {}
    for field, (name, kind) in _KERNEL_ARGS.items():
        value = given.get(name)
        if field == "pg_name" and type(value) is int:
            value = str(value)
        comm[field] = int_list(value) if kind is list else value if type(value) is kind else None
    return comm


def int_list(value: Any) -> list[int] | None:
    """A list of numbers, or one written as text ("[0, 1]", cut off with "..." where it is long)."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.MsgspecError:
            return None
    return value if isinstance(value, list) and all(type(v) is int for v in value) else None


def collective_of(kernel: str) -> str | None:
    """The collective in a communication kernel's name, None if the name has none.

    Example:
        >>> collective_of("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL")
        'reduce_scatter'
    """
    return next((collective for pattern, collective in _COLLECTIVES if pattern.search(kernel)), None)


def size_of_copy(args: bytes) -> int:
    """The `bytes` of a copy or memset, −1 if its args do not have it."""
    try:
        size = (msgspec.json.decode(args) or {}).get("bytes")
    except UNREADABLE:
        return -1
    return size if type(size) is int and 0 <= size < 2**62 else -1


def comm_of(args: bytes, kernel: str) -> Comm:
    """What a communication kernel communicates, from its `args` and, for the collective, its name."""
    try:
        known = kernel_comm(args)
    except UNREADABLE:
        known = {}
    size, elements = itemsize(known.get("dtype")), known.get("in_nelems") or known.get("out_nelems")
    known["collective"] = known.get("collective") or collective_of(kernel)
    return Comm(**known, bytes=size * elements if size and elements is not None else None)
