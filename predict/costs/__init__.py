"""What work takes on a device, by models of one interface: `predict(task) -> Estimate | None`."""

from .cost_model import CostModel
from .measured_tasks import MeasuredTask
from .task import Estimate, Task

__all__ = ["CostModel", "Estimate", "MeasuredTask", "Task"]
