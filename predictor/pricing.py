"""What the GPU events and CPU operators of a trace cost by a fitted model, on their own device or another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property

import msgspec
import numpy as np

from ..analysis.devices import Device
from ..trace.errors import UsageError
from ..trace.trace import Trace
from .costs.element_types import retyped, time_ratio
from .costs.measured import Measured, gpu_tasks
from .costs.task import Estimate, Task
from .model_file import FittedModel

__all__ = ["Pricing"]

_NOTHING = Estimate(0.0, "unknown")


class Pricing:
    """Prices of one trace's work, each looked up when asked for.

    Args:
        device: name of the record to price for, instead of each event's own device.
        beyond: the trace may have larger work than any that was measured.
        dtype: the element type that floating-point tensors are to have, None for their own.

    Raises:
        UsageError: no record of that name.
    """

    def __init__(
        self, model: FittedModel, trace: Trace, device: str | None = None, *, beyond: bool = False,
        dtype: str | None = None,
    ) -> None:  # fmt: skip
        self._costs, self._records, self._to = model.costs(beyond=beyond), model.records(), device
        if device is not None and device not in self._records:
            raise UsageError(
                f"device {device!r} is not known; give --device-spec, or one of {', '.join(self._records)}"
            )
        self._measured_there = any(one.task.device == device for one in model.gpu)
        self._ops = {one.task.op for one in model.cpu}
        self._tasks: Sequence[Task] = gpu_tasks(trace, model.devices)
        self._dtype = dtype
        self._typed = {} if dtype is None else _by_type([*model.gpu, *model.cpu])
        self.notes: list[str] = []
        if device is not None and not self._measured_there:
            self.notes.append(f"nothing was measured on {device}: times are scaled by the peaks of the two devices")

    @property
    def kinds(self) -> list[str]:
        """Of each GPU event, what it counts to in tables (`Task.kind`)."""
        return [task.kind for task in self._tasks]

    @cached_property
    def times(self) -> list[float]:
        """ns of each GPU event."""
        return [self.event(event).ns for event in range(len(self._tasks))]

    def event(self, event: int) -> Estimate:
        """The time of a GPU event, 0 if no model serves it."""
        return self._of_type(self._tasks[event], self._event)

    def _of_type(self, task: Task, price: Callable[[Task], Estimate | None]) -> Estimate:
        """The price of a task with the wanted element type: as measured with it, else scaled by what bounds it."""
        new = task if self._dtype is None else retyped(task, self._dtype)
        if new == task:
            return price(task) or _NOTHING
        device = self._to or task.device
        known = self._typed.get(_typed_key(new, device))
        if known:
            return Estimate(float(np.median(known)), f"measured with {self._dtype}")
        found = price(task) or _NOTHING
        return Estimate(found.ns * time_ratio(task, new, self._records.get(device)), f"{found.how}, scaled")

    def _event(self, task: Task) -> Estimate:
        if self._to is None or self._to == task.device:
            return self._costs.predict(task) or _NOTHING
        if self._measured_there:
            return self._costs.predict(msgspec.structs.replace(task, device=self._to)) or _NOTHING
        found = self._costs.predict(task) or _NOTHING
        ratio = _peaks_ratio(task, self._records.get(task.device), self._records[self._to])
        return Estimate(found.ns * ratio, f"{found.how}, scaled")

    def call(self, task: Task) -> Estimate | None:
        """The own time of a CPU operator; None for one that the model has not seen."""
        return self._of_type(task, self._costs.predict) if task.op in self._ops else None


def _typed_key(task: Task, device: str) -> Hashable:
    """What equal work has in common whatever kernel does it."""
    return task.op, task.category, task.inputs, task.outputs, task.place, task.collective, device


def _by_type(measured: Sequence[Measured]) -> dict[Hashable, list[float]]:
    """ns of equal work by any kernel."""
    found = defaultdict[Hashable, list[float]](list)
    for one in measured:
        found[_typed_key(one.task, one.task.device)].append(one.ns)
    return found


def _peaks_ratio(task: Task, old: Device | None, new: Device) -> float:
    """How much longer work takes on the new device if it reaches the same share of the peak that bounds it."""
    if old is None or task.collective:
        return 1.0
    peaks = [device.peak_flops(task.dtype) or device.peak_flops("float32") for device in (old, new)]
    if task.flops and peaks[0] and peaks[1] and task.flops / peaks[0] > (task.bytes or 0) / old.bytes_per_second:
        return peaks[0] / peaks[1]
    return old.bytes_per_second / new.bytes_per_second
