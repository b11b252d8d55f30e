"""Communication kernels: how they are recognized, and what they communicate."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from .brief import brief
from .conventions import MAX_NAME

_LIBRARIES = (
    ("NCCL, RCCL, MSCCL, HCCL, oneCCL and their relatives",
     r"^(?:[nrhumx]|ms|one?)ccl|^ccl(?:::|_(?:all|reduce|broadcast|send|recv|barrier))|nccl(?:Symk?)?(?:Dev)?Kernel"
     r"|mscclKernel|mscclpp|(?<![a-z])hcom_"),
    ("DeepEP", r"(?<![a-z])(?:deep_ep(?!::layout|\d+layout)|hybrid_ep::(?:dispatch|combine|device_sync))"),
    ("NVSHMEM, rocSHMEM", r"(?<![a-z])(?:nv|roc)shmem|(?:barrier|sync)_on_stream_kernel|^exchangeSplitAndOffset"),
    ("symmetric memory of PyTorch", r"(?<![a-z])(?:multimem|one_shot|two_shot)_|symmetric_memory::"),
    ("vLLM, SGLang, AITER", r"cross_device_|quickreduce::"),
    ("TensorRT-LLM, Transformer Engine", r"moe_?A2A|moe_?Comm(?:Kernel|unicat)|userbuffers"),
    ("mori", r"(?<![a-z])mori::(?!moe::Convert)|(?<![a-zA-Z])Ep(?:Dispatch|Combine)(?=[A-Z])"),
    ("Perplexity", r"(?<![a-z])pplx::|(?<![a-z])a2a_(?:dispatch|combine)"),
)  # fmt: skip
"""Names of device functions by library. Only the first row ignores letter case: its libraries differ in it."""
_ANY_CASE = re.compile(_LIBRARIES[0][1], re.IGNORECASE)
_BY_LIBRARY = re.compile("|".join(pattern for _, pattern in _LIBRARIES[1:]))
_BY_COLLECTIVE = re.compile(
    r"(?:(?<![A-Za-z])(?i:all)|(?<![A-Z])All)_?(?i:reduce|gather|(?:to|2)_?all)"
    r"|(?:(?<![A-Za-z])(?i:reduce)|(?<![A-Z])Reduce)_?(?i:scatter)"
)
"""Collectives in the names of other functions, as words: "small_reduce" has none."""
_GENERATED = "triton_"
"""Inductor lists the operators that a kernel fuses in its name; such a kernel communicates nothing."""
_COMPUTES = re.compile(r"^at::native::|elementwise|pointwise|gemm|matmul", re.IGNORECASE)
"""Functions that compute even if their names contain a collective: a GEMM with a fused collective is a GEMM."""
_COMPUTES_IN_CALL = re.compile(
    r"^(?:triton|at|cub|thrust|cutlass\w*|cublas\w*|cudnn)(?:_|::)|elementwise|pointwise|gemm|matmul|softmax|norm"
    r"|copy|split|(?<![a-z])(?:cat|div|mul|add|fill)(?![a-z])",
    re.IGNORECASE,
)
"""Functions that do not communicate even if the call of a collective launched them: they prepare or divide its data."""
_COMM_OPERATOR = re.compile(
    r"(?:[nrhumx]|ms|one?)ccl:(?!coalesced)\w+.*|record_param_comms"
    r"|c10d::(?:_?(?:all_?|reduce|broadcast|gather|scatter|send|recv|barrier)\w*)"
    r"|symm_mem::(?:multimem|one_shot|two_shot|all_to_all|nvshmem)\w*"
    r"|(?!aten::|fsdp::|c10d|_c10d)\w+::_?\w*?(?:all_?reduce|all_?to_?all)\w*"
)
"""Operators that launch the kernel of a collective themselves; operators below them do the computation before."""
_PARTS = re.compile(r"[<>(]|[^<>(]+")
_COLLECTIVE_FIELDS = (b'"Collective name"', b'"Process Group Name"')
_COLLECTIVES = tuple((re.compile(part, re.IGNORECASE), name) for part, name in (
    ("all_?reduce|cross_device_reduce", "allreduce"), ("all_?gather", "allgather"),
    ("reduce_?scatter", "reduce_scatter"), ("broadcast", "broadcast"), ("send_?recv", "sendrecv"),
    ("all_?(?:to|2)_?all", "all_to_all"), ("reduce", "reduce"),
))  # fmt: skip
"""Parts of kernel names, the longer before those that they contain."""


class Comm(msgspec.Struct, gc=False, frozen=True):
    """What a communication kernel communicates; None for what neither trace records.

    `pg_first_rank` is the first rank of a group whose list of ranks the profiler cut off. Since a rank is in one group
    of a name only, name and first rank identify the group. `inferred_messages` are those of a kernel with several
    messages; the kernel then has what they have in common, and the elements sent and received by all.
    """

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
    pg_first_rank: int | None = None
    inferred_messages: list[Comm] | None = None

    __repr__ = brief

    def members(self) -> dict[str, Any]:
        """Return the fields as files have them: the last two only if known."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        for name in ("pg_first_rank", "inferred_messages"):
            if fields[name] is None:
                del fields[name]
        if self.inferred_messages is not None:
            fields["inferred_messages"] = [message.members() for message in self.inferred_messages]
        return fields

    def filled(self, other: Comm) -> Comm:
        """Return a copy with the other's values for unknown ones.

        Example:
            >>> Comm(collective="allreduce").filled(Comm(collective="x", group_size=2)).group_size
            2
        """
        mine = {name: getattr(self, name) for name in self.__struct_fields__}
        return Comm(**{name: getattr(other, name) if value is None else value for name, value in mine.items()})


@lru_cache(maxsize=4096)
def is_comm_kernel(name: str) -> bool:
    """Return whether a GPU event's name is that of a communication kernel; only the function's own name counts.

    Other evidence (`has_collective_fields`, `launches_collective`) precedes names; `Trace.is_comm` knows both.

    Example:
        >>> [is_comm_kernel(one) for one in ("ncclDevKernel_AllReduce_Sum_f32", "triton_poi_fused_all_reduce_0")]
        [True, False]
    """
    function = _function_name(name)
    if function.startswith(_GENERATED):
        return False
    if _ANY_CASE.search(function) or _BY_LIBRARY.search(function):
        return True
    return _BY_COLLECTIVE.search(function) is not None and not _COMPUTES.search(function)


def has_collective_fields(args: bytes) -> bool:
    """Return whether Kineto's arguments of a GPU event say what it communicates."""
    return any(field in args for field in _COLLECTIVE_FIELDS)


def launches_collective(operator: str, kernel: str) -> bool:
    """Return whether a kernel is a collective's because of the operator that launched it, whatever the kernel's name.

    Example:
        >>> [launches_collective("nccl:all_reduce", name) for name in ("ring_kernel", "at::native::copy_kernel<4>")]
        [True, False]
    """
    return _COMM_OPERATOR.fullmatch(operator) is not None and may_communicate(kernel)


@lru_cache(maxsize=4096)
def may_communicate(kernel: str) -> bool:
    """Return whether a kernel's name allows that it communicates."""
    return _COMPUTES_IN_CALL.search(_function_name(kernel)) is None


def _function_name(kernel: str) -> str:
    """Return the function in a demangled signature, without return type `void`, template arguments, and parameters."""
    text = kernel[:MAX_NAME].removeprefix("void ").replace("(anonymous namespace)::", "")
    kept, depth = [], 0
    for part in _PARTS.findall(text):
        if part == "(" and not depth:
            break
        depth = max(depth + (part == "<") - (part == ">"), 0)
        if not depth and part not in "<>":
            kept.append(part)
    return "".join(kept)


def collective_of(kernel: str) -> str | None:
    """Return the collective in a communication kernel's name, None if the name has none.

    Example:
        >>> collective_of("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL")
        'reduce_scatter'
    """
    return next((collective for pattern, collective in _COLLECTIVES if pattern.search(kernel)), None)
