"""What a cost model is, built-in or of another package."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...analysis.devices import Device
from .measured_tasks import MeasuredTask
from .task import Estimate, Task


class CostModel(Protocol):
    """Says what work takes, after what equal or similar work took.

    A package adds one for GPU events by an entry point of the group `etplus.cost_models`, whose value is a class with
    these methods; one that inherits from this class needs no more than `fit` and `predict`.
    """

    @classmethod
    @abstractmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        """The model that some measured tasks lead to.

        Args:
            measured: distinct tasks with what they took. devices: records by name.
        """

    @abstractmethod
    def predict(self, task: Task) -> Estimate | None:
        """What a task takes; None for one that the model does not serve: then the next model is asked."""

    def state(self) -> Any:
        """What a model file keeps of it, JSON-ready; None if it is to be fitted anew on the tasks in the file."""
        return None

    @classmethod
    def restored(cls, state: Any, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        """The model that had this state; the other arguments as in `fit`."""
        return cls.fit(measured, devices)


class FromMeasured(CostModel):
    """A model that is made of measured tasks alone."""

    @abstractmethod
    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        """Take what was measured."""

    @classmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        """See `CostModel`."""
        return cls(measured)
