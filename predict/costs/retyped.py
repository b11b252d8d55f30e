"""Work with floating-point tensors of another element type: its bytes, and its time by what bounds it."""

from __future__ import annotations

import msgspec

from ...analysis.devices import Device
from ...reshape.shape_change import FLOATING
from ...trace.tensors import Tensor
from .bound import times_at_peak
from .measured_tasks import CPU_OP
from .task import Task


def retyped(task: Task, dtype: str) -> Task:
    """A task whose floating-point tensors are of another type; its bytes shrink or grow as those tensors do.

    The kernel is left open: a library chooses others for another type.

    Example:
        >>> from etplus.trace.tensors import Tensor
        >>> done = retyped(Task("aten::relu", inputs=(Tensor((8, 8), "float32"),), bytes=512), "bfloat16")
        >>> done.inputs[0].dtype, done.bytes
        ('bfloat16', 256)
    """
    before = (*task.inputs, *task.outputs)
    if not any(one.dtype in FLOATING and one.dtype != dtype for one in before):
        return task
    inputs, outputs = (tuple(_retyped(one, dtype) for one in some) for some in (task.inputs, task.outputs))
    sizes = [sum(one.numel * FLOATING.get(one.dtype, 0) for one in some) for some in (before, (*inputs, *outputs))]
    moved = None if task.bytes is None else round(task.bytes * sizes[1] / sizes[0]) if sizes[0] else task.bytes
    counted = dtype if task.dtype in FLOATING else task.dtype
    return msgspec.structs.replace(task, inputs=inputs, outputs=outputs, bytes=moved, dtype=counted, kernel="")


def _retyped(tensor: Tensor, dtype: str) -> Tensor:
    return Tensor(tensor.shape, dtype) if tensor.dtype in FLOATING else tensor


def time_ratio(old: Task, new: Task, device: Device | None) -> float:
    """How much longer a task takes with another type if it reaches the same share of what bounds it.

    On a device with a record that is the greater of FLOPs by the type's peak and bytes by the bandwidth; without one,
    as on a CPU, the bytes, but for work with FLOPs, whose rate is unknown: that takes as long as before.
    """
    if old == new or old.collective:
        return (new.bytes or 1) / (old.bytes or 1)
    if device is not None and old.category != CPU_OP:
        bounds = [times_at_peak(one, device).ns for one in (old, new)]
        return bounds[1] / bounds[0] if bounds[0] and bounds[1] else 1.0
    return 1.0 if old.flops else (new.bytes or 1) / (old.bytes or 1)
