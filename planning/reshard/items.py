"""The items of a rank's program: recorded calls, added operators, communication, waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from .step_calls import SUM_IN_PLACE, Call

CommOpKind = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", "recv", "all_to_all"]


@dataclass(frozen=True)
class Shard:
    """The part of a parameter in a rank's optimizer: a `torch.chunk` of the parameter, or a range of its elements."""

    count: int
    index: int
    flat: bool  # True if the parameter is flattened before it is split (ZeRO 1, 2)

    def of(self, sizes: Sequence[int]) -> list[int]:
        """Return the sizes of this part."""
        if self.flat:
            whole = prod(sizes)
            part = -(-whole // self.count)
            return [max(0, min(part, whole - self.index * part))]
        if not sizes:
            return []
        part = -(-sizes[0] // self.count)
        return [max(0, min(part, sizes[0] - self.index * part)), *sizes[1:]]

    def padded(self, sizes: Sequence[int]) -> int:
        """Return the number of elements in the largest part, to which all ranks pad."""
        if self.flat or not sizes:
            return -(-prod(sizes) // self.count)
        return -(-sizes[0] // self.count) * prod(sizes[1:])


@dataclass(frozen=True)
class CommOp:
    """A collective or a message."""

    kind: CommOpKind
    dimension: str  # "tp", "dp", "pp", "ep" (ranks that share experts) or "edp" (ranks with the same experts)
    shape: tuple[int, ...]  # shape of the input tensor
    out_elements: int
    dtype: str
    itemsize: int
    peer: int = -1  # peer rank of a message; −1 for a collective
    key: str | None = None  # name that a `CommWait` refers to; None if the next call waits
    functional: bool = False  # True if issued as a functional collective, as in DTensor
    # rows that an all-to-all sends to and receives from each rank; empty if all parts are equal
    splits: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    @property
    def elements(self) -> int:
        """Number of elements in the input tensor."""
        return prod(self.shape)


@dataclass(frozen=True)
class CommWait:
    """A wait of the host for communication."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class RecordedOp:
    """A recorded call, with its callees."""

    call: Call
    changed: Mapping[int, int]  # new values of extent classes
    microbatch: int = 0  # number of the microbatch, which makes tensor numbers unique
    after: Mapping[int, tuple[CommOp, ...]] = field(default_factory=dict)  # communication after inner calls, by row
    shard: Shard | None = None  # part of the parameters, gradients and optimizer state on this rank
    divided: Set[int] | None = None  # storages that `shard` divides; None for all storages


@dataclass(frozen=True)
class SyntheticOp:
    """An operator that the new layout adds."""

    name: str
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    dtype: str
    itemsize: int
    listed: bool = False  # True if the inputs form a list
    wrap: str | None = None  # FSDP unit whose gradients are copied

    @property
    def schema(self) -> str:
        """Schema of the operator; "" for operators outside ATen."""
        return _SCHEMAS.get(self.name, "")

    @property
    def bytes(self) -> int:
        """Number of bytes read and written."""
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
