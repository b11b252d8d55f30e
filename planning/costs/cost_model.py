"""The interface of cost models, built-in or from another package."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...analysis.devices import Device
from .measured_tasks import MeasuredTask
from .task import Estimate, Task


class CostModel(Protocol):
    """Predicts the time of a task from measured times of equal or similar tasks.

    A package can add a cost model for GPU events with an entry point in the group `etplus.cost_models`. The entry point
    is a class with these methods; a subclass of `CostModel` needs only `fit` and `predict`.
    """

    @classmethod
    @abstractmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        """Return a model fitted on measured tasks; `devices` maps names to device records."""

    @abstractmethod
    def predict(self, task: Task) -> Estimate | None:
        """Return the time of a task; None if this model cannot predict it, so that the next model is tried."""

    def state(self) -> Any:
        """Return JSON-ready data for the model file; None if the model is fitted again when the file is read."""
        return None

    @classmethod
    def restored(cls, state: Any, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        """Rebuild a model from its stored state. The other arguments are the same as for `fit`."""
        return cls.fit(measured, devices)


class FromMeasured(CostModel):
    """A model built from measured tasks alone."""

    @abstractmethod
    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        pass

    @classmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        """See `CostModel`."""
        return cls(measured)
