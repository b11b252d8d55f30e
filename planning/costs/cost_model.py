"""The interface of cost models, both of built-in models and of models from other packages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ...analysis.devices import Device
from .measured_tasks import MeasuredTask
from .task import Estimate, Task


class CostModel(Protocol):
    """Predicts the time of a task from the measured times of identical or similar tasks.

    To add a cost model for GPU events, a package defines an entry point in the group `etplus.cost_models`. The entry
    point is a class with these methods; a subclass of `CostModel` needs only `fit` and `predict`.
    """

    @classmethod
    @abstractmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        """Return a model fitted on measured tasks; `devices` maps device names to device records."""

    @abstractmethod
    def predict(self, task: Task) -> Estimate | None:
        """Return the predicted time of a task. If this returns None, the next cost model is tried."""

    def state(self) -> Any:
        """Return JSON-ready data for the model file. If this returns None, the model is fitted again on loading."""
        return None

    @classmethod
    def restored(cls, state: Any, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        """Rebuild a model from the data that `state` returned. The other arguments are the same as for `fit`."""
        return cls.fit(measured, devices)


class FromMeasured(CostModel):
    @abstractmethod
    def __init__(self, measured: Sequence[MeasuredTask]) -> None:
        pass

    @classmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> CostModel:
        return cls(measured)
