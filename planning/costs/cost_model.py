"""The interface of cost models, built-in or from another package."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...analysis.devices import Device
from .measured_tasks import MeasuredTask
from .task import Estimate, Task


class CostModel(Protocol):
    """Predicts the time of work from the times of equal or similar work.

    A package adds one for GPU events by an entry point of the group `etplus.cost_models`. Its value is a class with
    these methods; a class that inherits from this one needs only `fit` and `predict`.
    """

    @classmethod
    @abstractmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        """Return a model of measured tasks; `devices` are records by name."""

    @abstractmethod
    def predict(self, task: Task) -> Estimate | None:
        """Return the time of a task; None if the model does not serve it: then the next model is asked."""

    def state(self) -> Any:
        """Return a JSON-ready state for the model file; None to fit the model again on the tasks in the file."""
        return None

    @classmethod
    def restored(cls, state: Any, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        """Return the model of a state; the other arguments as in `fit`."""
        return cls.fit(measured, devices)


class FromMeasured(CostModel):
    """A model that is made of measured tasks alone."""

    @abstractmethod
    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        pass

    @classmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        """See `CostModel`."""
        return cls(measured)
