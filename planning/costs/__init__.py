"""Predict the time of kernels, operators and whole traces with fitted cost models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...trace.outer import lazy_names

if TYPE_CHECKING:
    from .cost_model import CostModel
    from .end_to_end import Prediction, predict, predict_ranks
    from .fitting import fit
    from .measured_tasks import MeasuredTask
    from .model_file import FittedModel, read_model, write_model
    from .task import Estimate, Task

__all__ = [
    "CostModel", "Estimate", "FittedModel", "MeasuredTask", "Prediction", "Task", "fit", "predict", "predict_ranks",
    "read_model", "write_model",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".cost_model": "CostModel",
        ".measured_tasks": "MeasuredTask",
        ".task": "Estimate Task",
        ".end_to_end": "Prediction predict predict_ranks",
        ".fitting": "fit",
        ".model_file": "FittedModel read_model write_model",
    },
    __all__,
)
