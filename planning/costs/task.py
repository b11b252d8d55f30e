"""The tasks of a trace (GPU events and CPU operators): their times, their roofline bounds, and estimates of models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...analysis.devices import Device
from ...analysis.event_work import work_of_events
from ...analysis.flops import bytes_moved, flops
from ...analysis.kernel_peaks import find_devices
from ...schemas.kineto.event_args import launch_sizes
from ...trace.brief import brief
from ...trace.columns import IntColumn, distinct_rows, percentiles_of
from ...trace.index import CallIndex
from ...trace.tables import OP
from ...trace.tensors import Signature, Tensor
from ...trace.trace import Trace


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
    # Midpoint of the byte range / `bytes`; exceeds 1 if `bytes` is a lower bound (experts).
    byte_factor: float = 1  # an int: a file omits only this very object and states the 1.0 of every event

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


CPU_OP = "cpu_op"
_ABOUT = 2.0  # If a collective takes at most this multiple of the minimum time, it did not wait for other ranks.


class MeasuredTask(msgspec.Struct, frozen=True):
    """A task and its measured time."""

    task: Task
    ns: float  # median time of `count` identical events
    count: int
    low_ns: float = 0.0  # 10th percentile of the times
    high_ns: float = 0.0  # 90th percentile of the times
    times: tuple[float, ...] = ()  # all times of a collective on this rank, in trace order; () for other tasks

    __repr__ = brief


@dataclass(frozen=True)
class _Caller:
    name: str
    signature: Signature | None
    flops: int | None
    bytes: int | None


def gpu_tasks(trace: Trace, own: Sequence[Device] = ()) -> list[Task]:
    """Return a task for every GPU event of a trace, in the order of `Trace.gpu`."""
    work, gpu, devices = work_of_events(trace), trace.gpu, find_devices(trace, own)
    callers = _Callers(trace)
    place, before = np.zeros(len(gpu), np.int64), dict[int, int]()
    owners = [callers.above(call) for call in gpu.call.tolist()]
    for event, owner in enumerate(owners):
        if owner >= 0:
            place[event] = before.get(owner, 0)
            before[owner] = int(place[event]) + 1
    tasks, launched = [], launch_sizes(trace).tolist()
    columns = (gpu.name, gpu.category, gpu.device, gpu.bytes, work.flops, work.bytes, work.most_bytes, work.dtype)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for event, (name, kind, number, copied, flop, size, most, dtype) in enumerate(rows):
        caller, comm, category = callers.of(owners[event]), gpu.comm.get(event), trace.categories[kind]
        device = devices.get(number)
        copy = category.startswith("gpu_mem")
        main = flop >= 0 or size >= 0 or (comm is not None and comm.bytes is not None)
        properties = trace.properties.get(number) or {}
        tasks.append(
            Task(
                caller.name, trace.names[name], category,
                caller.signature.tensors if caller.signature else (),
                (caller.signature.outputs or ()) if caller.signature else (),
                None if copy else flop if flop >= 0 else None if main else caller.flops,
                comm.bytes if comm is not None else (copied if copied >= 0 else None)
                if copy else (caller.bytes if size < 0 else size),
                work.dtypes[dtype], main, int(place[event]),
                (comm.collective or "") if comm is not None else "",
                comm.group_size if comm is not None else None,
                device.name if device is not None else str(properties.get("name", "unknown device")),
                launched[event][0], launched[event][1],
                round((size + most) / 2 / size, 3) if 0 < size < most else 1.0,
            )
        )  # fmt: skip
    return tasks


def cpu_tasks(trace: Trace, calls: IntColumn) -> list[Task]:
    """Return one task per operator in `calls` (positions in `Trace.calls`)."""
    callers = _Callers(trace)
    distinct, which = distinct_rows(trace.calls.name[calls], trace.calls.signature[calls])
    tasks = []
    for key in distinct.tolist():
        caller = callers.known(*key)
        signature = caller.signature
        tasks.append(
            Task(
                caller.name,
                "",
                CPU_OP,
                signature.tensors if signature else (),
                (signature.outputs or ()) if signature else (),
                caller.flops,
                caller.bytes,
                signature.dtype if signature else "",
                device="CPU",
            )
        )
    return [tasks[at] for at in which.tolist()]


class _Callers:
    def __init__(self, trace: Trace) -> None:
        self._trace, self._calls = trace, trace.calls
        self._with_tensors = [bool(signature.tensors) for signature in trace.signatures]
        self._known: dict[tuple[int, int], _Caller] = {}

    def above(self, call: CallIndex) -> CallIndex:
        """Return the innermost operator that has tensor arguments and encloses (or is) a call. If there is none, return
        the innermost operator, or −1 if there is no operator.
        """
        calls, first = self._calls, CallIndex(-1)
        while call >= 0:
            if calls.kind[call] == OP:
                first = call if first < 0 else first
                signature = calls.signature[call]
                if signature >= 0 and self._with_tensors[signature]:
                    return call
            call = calls.parent[call]
        return first

    def of(self, call: CallIndex) -> _Caller:
        if call < 0:
            return _Caller("", None, None, None)
        return self.known(int(self._calls.name[call]), int(self._calls.signature[call]))

    def known(self, name: int, signature: int) -> _Caller:
        if (name, signature) not in self._known:
            text, given = self._trace.names[name], self._trace.signatures[signature] if signature >= 0 else None
            counted = (None, None) if given is None else (flops(text, given), bytes_moved(text, given))
            self._known[name, signature] = _Caller(text, given, *counted)
        return self._known[name, signature]


def medians(tasks: Iterable[Task], ns: Iterable[float]) -> list[MeasuredTask]:
    """Merge identical tasks into one measurement with their median time, in order of first appearance."""
    found: dict[Task, list[float]] = {}
    for task, time in zip(tasks, ns, strict=True):
        found.setdefault(task, []).append(time)
    tasks_measured = []
    for task, times in found.items():
        low, high = percentiles_of(times, 10, 90)
        kept = tuple(times) if task.collective else ()
        tasks_measured.append(MeasuredTask(task, float(median(times)), len(times), low, high, kept))
    return tasks_measured


def pooled(measured: Iterable[MeasuredTask]) -> list[MeasuredTask]:
    """Merge the measurements of identical tasks from several traces, using the median over the traces.

    For a collective, the time is instead the expected time on a rank that was not measured (`unseen_rank_duration`).
    """
    found: dict[Task, list[MeasuredTask]] = {}
    for known in measured:
        found.setdefault(known.task, []).append(known)
    return [
        of[0]
        if len(of) == 1
        else MeasuredTask(
            task,
            _together(task, of),
            sum(each.count for each in of),
            min(each.low_ns for each in of),
            max(each.high_ns for each in of),
        )
        for task, of in found.items()
    ]


def _together(task: Task, of: Sequence[MeasuredTask]) -> float:
    if of[0].times and len({len(each.times) for each in of}) == 1:
        return unseen_rank_duration(np.array([each.times for each in of]), task.group_size)
    return float(median([each.ns for each in of]))


def unseen_rank_duration(times: npt.NDArray[np.float64], ranks: int | None = None) -> float:
    """Return the mean time in ns that matching collectives are expected to take on a rank that was not measured.

    All ranks leave a collective together. The last rank to arrive does not wait, so it takes the minimum time. If no
    measured rank took about the minimum time, an unmeasured rank arrived last.

    Args:
        times: array of shape (measured ranks, collectives), in ns, with at least two ranks.
        ranks: number of ranks in the group; by default one more than were measured.

    Example:
        >>> unseen_rank_duration(np.array([[10.0, 900], [10, 700], [10, 500]]), 4)  # rank 4 is last at collective 2
        10.0
        >>> unseen_rank_duration(np.array([[10.0, 900], [10, 700], [10, 10]]), 4)  # rank 3 is last at collective 2
        405.0
    """
    known, mean, least = len(times), times.mean(axis=0), float(times.min())
    absent = (ranks or known + 1) - known
    if absent <= 0:
        return float(mean.mean())
    shortest = times.min(axis=0)
    waiting = (times.sum(axis=0) - shortest) / (known - 1)
    one_is_last = ((absent - 1) * mean + least) / absent
    return float(np.where(shortest <= _ABOUT * least, waiting, one_is_last).mean())
