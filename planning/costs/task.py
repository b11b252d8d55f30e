"""A piece of work with a wanted or measured time, and a model's estimate of it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ...trace.brief import brief
from ...trace.tensors import Tensor


class Estimate(NamedTuple):
    """A predicted time, ns, and the model that predicted it."""

    ns: float
    how: str


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """A GPU event, or the self time of a CPU operator."""

    op: str  # the operator, "" if unknown
    kernel: str = ""  # name of the kernel or copy; "" for a CPU operator
    category: str = "kernel"  # "kernel", "gpu_memcpy", "gpu_memset", or "cpu_op"
    inputs: tuple[Tensor, ...] = ()  # inputs, outputs: the operator's tensors
    outputs: tuple[Tensor, ...] = ()
    # flops, bytes: of the operator; of the event itself for a copy or collective. None if unknown.
    flops: int | None = None
    bytes: int | None = None
    dtype: str = "float32"  # selects the peak
    main: bool = True  # the kernel does the operator's main work
    place: int = 0  # number of the event among the operator's own
    collective: str = ""  # of a communication kernel, "" for others
    group_size: int | None = None  # its ranks
    device: str = ""  # name of the device's record, else of the device; of a CPU an identifier
    blocks: int = 0  # blocks, block_threads: blocks of the grid and threads of a block; 0 if not recorded
    block_threads: int = 0
    byte_factor: float = 1.0  # middle of the possible bytes over `bytes`, if these are a lower bound (experts)

    __repr__ = brief

    @property
    def shapes(self) -> str:
        """Shapes and types of the inputs as text."""
        return ";".join(f"{tensor.dtype}{list(tensor.shape)}" for tensor in self.inputs)

    @property
    def group(self) -> tuple[str, str]:
        """Key of work that is held out together: operator and shapes; without an operator kernel and bytes."""
        if self.op and not self.collective:
            return self.op, self.shapes
        return self.kernel or self.collective, f"{self.collective} {self.bytes} {self.shapes}"

    @property
    def unlaunched(self) -> Task:
        """The task without the sizes of its launch, because known shapes determine them."""
        return msgspec.structs.replace(self, blocks=0, block_threads=0)

    @property
    def kind(self) -> str:
        """Operator, collective or category, the most specific one."""
        return self.collective or (self.category if self.category.startswith("gpu_mem") else self.op or self.category)
