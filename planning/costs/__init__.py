"""Predict the time of kernels, operators and whole traces with fitted cost models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...trace.outer import lazy_names

if TYPE_CHECKING:
    from .end_to_end import Prediction, predict, predict_ranks
    from .fitting import FittedModel, fit, read_model, write_model
    from .measured_models import CostModel
    from .task import Estimate, MeasuredTask, Task

__all__ = [
    "CostModel", "Estimate", "FittedModel", "MeasuredTask", "Prediction", "Task", "fit", "predict", "predict_ranks",
    "read_model", "write_model",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".measured_models": "CostModel",
        ".task": "Estimate MeasuredTask Task",
        ".end_to_end": "Prediction predict predict_ranks",
        ".fitting": "FittedModel fit read_model write_model",
    },
    __all__,
)
