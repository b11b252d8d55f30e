"""Items of a rank's program: recorded calls, operators that the layout adds, communication, waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from .step_calls import SUM_IN_PLACE, Call

CommOpKind = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", "recv", "all_to_all"]


@dataclass(frozen=True)
class Shard:
    """The part of a parameter that an optimizer holds: by `torch.chunk`, or a range of all elements."""

    count: int
    index: int
    flat: bool  # all elements as one row (ZeRO 1, 2)

    def of(self, sizes: Sequence[int]) -> list[int]:
        """Sizes of the part."""
        if self.flat:
            whole = prod(sizes)
            part = -(-whole // self.count)
            return [max(0, min(part, whole - self.index * part))]
        if not sizes:
            return []
        part = -(-sizes[0] // self.count)
        return [max(0, min(part, sizes[0] - self.index * part)), *sizes[1:]]

    def padded(self, sizes: Sequence[int]) -> int:
        """Elements of the largest part, which all ranks communicate."""
        if self.flat or not sizes:
            return -(-prod(sizes) // self.count)
        return -(-sizes[0] // self.count) * prod(sizes[1:])


@dataclass(frozen=True)
class CommOp:
    """One communication."""

    kind: CommOpKind
    dimension: str  # "tp", "dp", "pp", "ep" (ranks that share experts) or "edp" (ranks with the same experts)
    shape: tuple[int, ...]  # shape of the input
    out_elements: int
    dtype: str
    itemsize: int
    peer: int = -1  # other rank of a message, else −1
    key: str | None = None  # name for a `CommWait`; None if the next call waits
    functional: bool = False  # issued as DTensor does
    # rows of an all-to-all sent to and received from each rank; empty for equal parts
    splits: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    @property
    def elements(self) -> int:
        """Elements of the input."""
        return prod(self.shape)


@dataclass(frozen=True)
class CommWait:
    """The host waits for communications here."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class RecordedOp:
    """A recorded call with its callees."""

    call: Call
    changed: Mapping[int, int]  # new values of classes
    microbatch: int = 0  # makes tensor numbers unique
    after: Mapping[int, tuple[CommOp, ...]] = field(default_factory=dict)  # items that follow inner calls, by row
    shard: Shard | None = None  # part of parameters, gradients and state
    divided: Set[int] | None = None  # storages that `shard` divides; None for all


@dataclass(frozen=True)
class SyntheticOp:
    """An operator that the layout adds."""

    name: str
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    dtype: str
    itemsize: int
    listed: bool = False  # the inputs are one list
    wrap: str | None = None  # FSDP unit of copied gradients

    @property
    def schema(self) -> str:
        """Schema of the operator, "" if PyTorch registers it outside ATen."""
        return _SCHEMAS.get(self.name, "")

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.itemsize * sum(prod(shape) for shape in (*self.inputs, *self.outputs))


_SCHEMAS = {
    "aten::clone": "aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
    "aten::cat": "aten::cat(Tensor[] tensors, int dim=0) -> Tensor",
    "aten::copy_": "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
    "aten::pow": "aten::pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor",
    SUM_IN_PLACE.name: SUM_IN_PLACE.schema,
    "aten::div_": "aten::div_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)",
}

Item = RecordedOp | CommOp | CommWait | SyntheticOp
