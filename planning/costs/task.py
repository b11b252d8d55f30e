"""A task with a measured or predicted time, a model's estimate of the time, and the task's roofline bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from ...analysis.devices import Device
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


_NS_PER_S = 1e9


class Bound(NamedTuple):
    compute: float  # time in ns: FLOPs divided by the dtype's peak rate
    memory: float  # time in ns: bytes divided by the bandwidth

    @property
    def ns(self) -> float:
        return max(self)


def times_at_peak(task: Task, device: Device) -> Bound:
    """Return the compute and memory times in ns (0 if unknown). If a dtype's peak is unknown, use the float32 peak."""
    peak = device.peak_flops(task.dtype) or device.peak_flops("float32")
    compute = task.flops / peak if task.flops and peak else 0.0
    return Bound(compute * _NS_PER_S, (task.bytes or 0) / device.bytes_per_second * _NS_PER_S)


def device_of(task: Task, devices: Mapping[str, Device]) -> Device | None:
    """Return the record of a task's device. If the name is ambiguous ("X or Y"), use the first device that it lists."""
    return devices.get(task.device) or devices.get(task.device.partition(" or ")[0])


def bound_of(task: Task, devices: Mapping[str, Device]) -> Bound | None:
    """Return the minimum time of a GPU event, or None if its device is unknown or neither FLOPs nor bytes are known.

    Data that fits in the last-level cache may be read at the cache's bandwidth. An operator's FLOPs and bytes are
    attributed to its main kernel, so its other kernels have no bound.

    Example:
        >>> from etplus.analysis.devices import Device
        >>> device = Device(name="d", tflops={"float32": 1}, memory_gb_s=100, l2_bytes=1000)
        >>> bound_of(Task("aten::add", "add", bytes=5000, device="d"), {"d": device}).ns  # 4000 at 100, 1000 at 300
        43.3...
    """
    device = device_of(task, devices)
    if device is None or not task.main:
        return None
    compute, memory = times_at_peak(task, device)
    if device.peak_flops(task.dtype) is None:  # the highest peak of the device gives a safe lower bound
        compute = (task.flops or 0) / max(device.tflops.values(), default=float("inf")) / 1e3
    if task.bytes:
        memory = device.least_ns(task.bytes)
    return Bound(compute, memory) if compute or memory else None
