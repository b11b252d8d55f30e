"""The items of a rank's program: recorded calls, added operators, communication and waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from .step_calls import SUM_IN_PLACE, Call

CommOpKind = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "send", "recv", "all_to_all"]


@dataclass(frozen=True)
class Shard:
    """The part of a parameter that a rank's optimizer updates: a range of elements if `flat`, else a `torch.chunk`."""

    count: int
    index: int
    flat: bool  # True if the parameter is flattened before it is split (ZeRO 1, 2)

    def of(self, sizes: Sequence[int]) -> list[int]:
        if self.flat:
            whole = prod(sizes)
            part = -(-whole // self.count)
            return [max(0, min(part, whole - self.index * part))]
        if not sizes:
            return []
        part = -(-sizes[0] // self.count)
        return [max(0, min(part, sizes[0] - self.index * part)), *sizes[1:]]

    def padded(self, sizes: Sequence[int]) -> int:
        """Return the number of elements in the largest part. All ranks pad their parts to this size."""
        if self.flat or not sizes:
            return -(-prod(sizes) // self.count)
        return -(-sizes[0] // self.count) * prod(sizes[1:])


@dataclass(frozen=True)
class CommOp:
    kind: CommOpKind
    dimension: str  # "tp", "dp", "pp", "ep" (ranks with different experts) or "edp" (ranks with the same experts)
    shape: tuple[int, ...]  # shape of the input tensor
    out_elements: int
    dtype: str
    itemsize: int
    peer: int = -1  # peer rank of a message; −1 for a collective
    key: str | None = None  # a `CommWait` refers to the operation by this key; None if the next call waits for it
    functional: bool = False  # True if this is a functional collective, as in DTensor
    # rows that an all-to-all sends to each rank, and rows that it receives from each; empty if all parts are equal
    splits: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class CommWait:
    """A point at which the host waits for the communication with this `CommOp.key`."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class RecordedOp:
    call: Call
    changed: Mapping[int, int]  # new values of extent classes
    microbatch: int = 0  # index of the microbatch; it makes tensor numbers unique
    after: Mapping[int, tuple[CommOp, ...]] = field(default_factory=dict)  # maps a callee's row to later communication
    shard: Shard | None = None  # this rank's part of the parameters, gradients and optimizer state
    divided: Set[int] | None = None  # storages that `shard` applies to; None for all storages


@dataclass(frozen=True)
class SyntheticOp:
    """An operator that the new layout adds."""

    name: str
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    dtype: str
    itemsize: int
    listed: bool = False  # True if the operator takes its inputs as one list
    wrap: str | None = None  # if the operator copies an FSDP unit's gradients, the label of this unit

    @property
    def schema(self) -> str:
        return _SCHEMAS.get(self.name, "")

    @property
    def bytes(self) -> int:
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
