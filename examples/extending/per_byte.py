"""A cost model that predicts times in proportion to the bytes moved. It is fitted on measured times."""

from collections.abc import Mapping, Sequence

from etplus.analysis.devices import Device
from etplus.planning.costs import CostModel, Estimate, MeasuredTask, Task


class PerByte(CostModel):
    def __init__(self, ns_per_byte: float) -> None:
        self.ns_per_byte = ns_per_byte

    @classmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> "PerByte":
        known = [(one.ns, one.task.bytes) for one in measured if one.task.bytes]
        return cls(sum(ns for ns, _ in known) / max(sum(size for _, size in known), 1))

    def predict(self, task: Task) -> Estimate | None:
        return Estimate(task.bytes * self.ns_per_byte, "per byte") if task.bytes else None
