"""Recognize communication kernels by their names, and store the fields of communications."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from .brief import RecordStruct
from .conventions import MAX_NAME

# Each pattern matches the names of device functions in one group of libraries.
# Only the first pattern ignores case, because its libraries spell names differently.
_LIBRARIES = {
    "NCCL, RCCL, MSCCL, HCCL, oneCCL and their relatives": r"^(?:[nrhumx]|ms|one?)ccl|nccl(?:Symk?)?(?:Dev)?Kernel"
    r"|^ccl(?:::|_(?:all|reduce|broadcast|send|recv|barrier))|mscclKernel|mscclpp|(?<![a-z])hcom_",
    "DeepEP": r"(?<![a-z])(?:deep_ep(?!::layout|\d+layout)|hybrid_ep::(?:dispatch|combine|device_sync))",
    "NVSHMEM, rocSHMEM": r"(?<![a-z])(?:nv|roc)shmem|(?:barrier|sync)_on_stream_kernel|^exchangeSplitAndOffset",
    "symmetric memory of PyTorch": r"(?<![a-z])(?:multimem|one_shot|two_shot)_|symmetric_memory::",
    "vLLM, SGLang, AITER": r"cross_device_|quickreduce::",
    "TensorRT-LLM, Transformer Engine": r"moe_?A2A|moe_?Comm(?:Kernel|unicat)|userbuffers",
    "mori": r"(?<![a-z])mori::(?!moe::Convert)|(?<![a-zA-Z])Ep(?:Dispatch|Combine)(?=[A-Z])",
    "Perplexity": r"(?<![a-z])pplx::|(?<![a-z])a2a_(?:dispatch|combine)",
}
_NCCL, *_OTHERS = _LIBRARIES.values()
_ANY_CASE, _BY_LIBRARY = re.compile(_NCCL, re.IGNORECASE), re.compile("|".join(_OTHERS))
# Matches the name of a collective in any other function name, but only as a whole word.
_BY_COLLECTIVE = re.compile(
    r"(?:(?<![A-Za-z])(?i:all)|(?<![A-Z])All)_?(?i:reduce|gather|(?:to|2)_?all)"
    r"|(?:(?<![A-Za-z])(?i:reduce)|(?<![A-Z])Reduce)_?(?i:scatter)"
)
_GENERATED = "triton_"  # Inductor names kernels after the fused operators; these kernels do not communicate.
# These functions compute, although their names mention a collective. A GEMM with a fused collective is still a GEMM.
_COMPUTES = re.compile(r"^at::native::|elementwise|pointwise|gemm|matmul", re.IGNORECASE)
# These functions do not communicate although a collective launched them. They prepare or split the collective's data.
_COMPUTES_IN_CALL = re.compile(
    r"^(?:triton|at|cub|thrust|cutlass\w*|cublas\w*|cudnn)(?:_|::)|elementwise|pointwise|gemm|matmul|softmax|norm"
    r"|copy|split|(?<![a-z])(?:cat|div|mul|add|fill)(?![a-z])",
    re.IGNORECASE,
)
# These operators launch a communication kernel directly. Operators that they call only compute the input.
_COMM_OPERATOR = re.compile(
    r"(?:[nrhumx]|ms|one?)ccl:(?!coalesced)\w+.*|record_param_comms"
    r"|c10d::(?:_?(?:all_?|reduce|broadcast|gather|scatter|send|recv|barrier)\w*)"
    r"|symm_mem::(?:multimem|one_shot|two_shot|all_to_all|nvshmem)\w*"
    r"|(?!aten::|fsdp::|c10d|_c10d)\w+::_?\w*?(?:all_?reduce|all_?to_?all)\w*"
)
_PARTS = re.compile(r"[<>(]|[^<>(]+")
_COLLECTIVE_FIELDS = (b'"Collective name"', b'"Process Group Name"')
# Maps collectives to patterns in kernel names. "reduce" comes last because other patterns contain it.
_COLLECTIVES = {
    "allreduce": re.compile("all_?reduce|cross_device_reduce", re.IGNORECASE),
    "allgather": re.compile("all_?gather", re.IGNORECASE),
    "reduce_scatter": re.compile("reduce_?scatter", re.IGNORECASE),
    "broadcast": re.compile("broadcast", re.IGNORECASE),
    "sendrecv": re.compile("send_?recv", re.IGNORECASE),
    "all_to_all": re.compile("all_?(?:to|2)_?all", re.IGNORECASE),
    "reduce": re.compile("reduce", re.IGNORECASE),
}


class Comm(RecordStruct, gc=False, frozen=True):
    """A kernel's communication. Fields that were not recorded are None. If the profiler truncated the list of ranks,
    `pg_first_rank` distinguishes groups with the same name. If there are `inferred_messages`, the numbers of elements
    are totals, and each of the remaining fields has the value that all messages share."""

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

    def members(self) -> dict[str, Any]:
        """Return the fields as files store them. The last two fields are omitted if they are None."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        for name in ("pg_first_rank", "inferred_messages"):
            if fields[name] is None:
                del fields[name]
        if self.inferred_messages is not None:
            fields["inferred_messages"] = [message.members() for message in self.inferred_messages]
        return fields

    def filled(self, other: Comm) -> Comm:
        mine = {name: getattr(self, name) for name in self.__struct_fields__}
        return Comm(**{name: getattr(other, name) if value is None else value for name, value in mine.items()})


@lru_cache(maxsize=4096)
def is_comm_kernel(name: str) -> bool:
    """Return True if a kernel communicates according to its name. `Trace.is_comm` also uses other evidence."""
    function = _function_name(name)
    if function.startswith(_GENERATED):
        return False
    if _ANY_CASE.search(function) or _BY_LIBRARY.search(function):
        return True
    return _BY_COLLECTIVE.search(function) is not None and not _COMPUTES.search(function)


def has_collective_fields(args: bytes) -> bool:
    return any(field in args for field in _COLLECTIVE_FIELDS)


def launches_collective(operator: str, kernel: str) -> bool:
    """Return True if a kernel belongs to a collective according to the operator that launched it."""
    return _COMM_OPERATOR.fullmatch(operator) is not None and may_communicate(kernel)


@lru_cache(maxsize=4096)
def may_communicate(kernel: str) -> bool:
    return _COMPUTES_IN_CALL.search(_function_name(kernel)) is None


def _function_name(kernel: str) -> str:
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
    """Return the collective that the name of a communication kernel contains, or None."""
    return next((collective for collective, pattern in _COLLECTIVES.items() if pattern.search(kernel)), None)
