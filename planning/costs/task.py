"""A piece of work whose time is wanted or was measured, and what a model says of it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ...trace.brief import brief
from ...trace.tensors import Tensor


class Estimate(NamedTuple):
    """A predicted time, ns, and by which model and from what."""

    ns: float
    how: str


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """A GPU event, or the self time of a CPU operator.

    Attributes:
        op: the operator, "" if unknown. kernel: name of the kernel or copy; "" for a CPU operator.
        category: "kernel", "gpu_memcpy", "gpu_memset", or "cpu_op". inputs, outputs: the operator's tensors.
        flops, bytes: of the operator; of the event itself for a copy or collective. None if unknown.
        byte_factor: middle of the possible bytes over `bytes`, if these are a lower bound (experts).
        dtype: selects the peak. main: the kernel does the operator's main work.
        place: number of the event among the operator's own.
        collective: of a communication kernel, "" for others. group_size: its ranks.
        device: name of the device's record, else of the device; of a CPU an identifier.
        blocks, block_threads: blocks of the grid and threads of a block; 0 if not recorded.
    """

    op: str
    kernel: str = ""
    category: str = "kernel"
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    flops: int | None = None
    bytes: int | None = None
    dtype: str = "float32"
    main: bool = True
    place: int = 0
    collective: str = ""
    group_size: int | None = None
    device: str = ""
    blocks: int = 0
    block_threads: int = 0
    byte_factor: float = 1.0

    __repr__ = brief

    @property
    def shapes(self) -> str:
        """Shapes and types of the inputs as text."""
        return ";".join(f"{tensor.dtype}{list(tensor.shape)}" for tensor in self.inputs)

    @property
    def group(self) -> tuple[str, str]:
        """What is held out together in cross-validation: operator and shapes; of work without an operator the kernel
        and what it moves."""
        if self.op and not self.collective:
            return self.op, self.shapes
        return self.kernel or self.collective, f"{self.collective} {self.bytes} {self.shapes}"

    @property
    def unlaunched(self) -> Task:
        """The task without the sizes of its launch, which follow from the rest where shapes are known."""
        return msgspec.structs.replace(self, blocks=0, block_threads=0)

    @property
    def kind(self) -> str:
        """Operator, collective or category, whichever says most."""
        return self.collective or (self.category if self.category.startswith("gpu_mem") else self.op or self.category)
