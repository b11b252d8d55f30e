"""A task with a measured or predicted time, and a model's estimate of the time."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ...trace.brief import brief
from ...trace.tensors import Tensor


class Estimate(NamedTuple):
    """A predicted time in ns, and the name of the model that predicted it."""

    ns: float
    how: str


class Task(msgspec.Struct, frozen=True, omit_defaults=True):
    """A GPU event, or the self time of a CPU operator."""

    op: str  # name of the operator, "" if unknown
    kernel: str = ""  # name of the kernel, memcpy or memset; "" for a CPU operator
    category: str = "kernel"  # "kernel", "gpu_memcpy", "gpu_memset", or "cpu_op"
    inputs: tuple[Tensor, ...] = ()  # the operator's input tensors
    outputs: tuple[Tensor, ...] = ()  # the operator's output tensors
    # FLOPs and bytes of the whole operator, or of the event if it is a memcpy or collective. None if unknown.
    flops: int | None = None
    bytes: int | None = None
    dtype: str = "float32"  # dtype that determines the peak rate
    main: bool = True  # True if the kernel does the operator's main work
    place: int = 0  # index of the event among the events of its operator
    collective: str = ""  # kind of collective; "" for other work
    group_size: int | None = None  # number of ranks in the collective's group
    device: str = ""  # name of the device record; if there is none, name of the device or identifier of the CPU
    blocks: int = 0  # blocks per grid; 0 if not recorded
    block_threads: int = 0  # threads per block; 0 if not recorded
    byte_factor: float = 1.0  # midpoint of the byte range / `bytes`; exceeds 1 if `bytes` is a lower bound (experts)

    __repr__ = brief

    @property
    def shapes(self) -> str:
        return ";".join(f"{tensor.dtype}{list(tensor.shape)}" for tensor in self.inputs)

    @property
    def group(self) -> tuple[str, str]:
        """The group that the task is held out with: operator and shapes, or kernel and bytes if it has no operator."""
        if self.op and not self.collective:
            return self.op, self.shapes
        return self.kernel or self.collective, f"{self.collective} {self.bytes} {self.shapes}"

    @property
    def unlaunched(self) -> Task:
        """A copy of the task without launch sizes, for shapes at which the library would choose other launch sizes."""
        return msgspec.structs.replace(self, blocks=0, block_threads=0)

    @property
    def kind(self) -> str:
        """The most specific name available: the collective, the kind of copy, the operator, or the category."""
        return self.collective or (self.category if self.category.startswith("gpu_mem") else self.op or self.category)
