"""One factor an engine: what the traces fitted on took over what the engine says of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..trace.trace import Trace
from .end_to_end import Engine, predict
from .model_file import FittedModel

__all__ = ["calibrated"]

_ENGINES: tuple[Engine, ...] = ("replay", "overheads")


def calibrated(
    model: FittedModel, documents: Sequence[Trace], iterations: str | None = None, *,
    keep_outliers: bool = False,
) -> FittedModel:  # fmt: skip
    """The model with its factors, which make up for what an engine leaves out, such as pauses that are too long to be
    an overhead. Without factors if there are collectives: what a rank waits for the others would be in them.

    Args:
        documents, iterations, keep_outliers: those that the model was fitted on.
    """
    if any(document.comm for document in documents):
        return model
    factors: dict[str, float] = {}
    for engine in _ENGINES:
        done = [
            predict(document, model, engine=engine, iterations=iterations, pooled=True, keep_outliers=keep_outliers)
            for document in documents
        ]
        predicted = sum(one.predicted_ns for one in done)
        factors[engine] = sum(one.measured_ns for one in done) / predicted if predicted else 1.0
    return msgspec.structs.replace(model, calibration=factors)
