"""What fitting learns of the engines: one factor each, and how far each is off for traces that were not fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import msgspec

from ..trace.trace import Trace
from .end_to_end import ENGINES, totals
from .fitting import fit_parts, plain_kernels, prepare
from .model_file import EndToEndError, FittedModel

__all__ = ["calibrated"]

_FOLDS = 6
"""Into how many parts traces are dealt to be held out."""


def calibrated(
    model: FittedModel, documents: Sequence[Trace], iterations: str | None = None, *,
    keep_outliers: bool = False,
) -> FittedModel:  # fmt: skip
    """The model with its factors, which make up for what an engine leaves out, such as pauses that are too long to be
    an overhead, and with its errors. Without factors if there are collectives: what a rank waits for the others would
    be in them.

    Args:
        documents, iterations, keep_outliers: those that the model was fitted on.
    """
    errors = _errors(model, documents, iterations, keep_outliers)
    if any(document.comm for document in documents):
        return msgspec.structs.replace(model, end_to_end=errors)
    done = [totals(document, model, iterations, keep_outliers=keep_outliers) for document in documents]
    factors, measured = {}, sum(one.measured for one in done)
    for engine in ENGINES:
        predicted = sum(one.predicted[engine] for one in done)
        factors[engine] = measured / predicted if predicted else 1.0
    return msgspec.structs.replace(model, calibration=factors, end_to_end=errors)


def _errors(
    model: FittedModel, documents: Sequence[Trace], iterations: str | None, keep_outliers: bool
) -> dict[str, EndToEndError]:
    """Of each engine, from models of the other traces; with one trace from how its iterations differ, if there are."""
    parts = [prepare(document, iterations, model.devices, keep_outliers) for document in documents]
    if len(parts) == 1:
        ratios = tuple(round(log(ratio), 4) for ratio in parts[0].step_ratios)
        return {engine: EndToEndError(ratios, (0.0,) * len(ratios)) for engine in ENGINES if ratios}
    found: dict[str, list[tuple[float, float]]] = {engine: [] for engine in ENGINES}
    for fold in range(min(_FOLDS, len(parts))):
        given = [part for k, part in enumerate(parts) if k % _FOLDS != fold]
        other = fit_parts(given, model.devices, plain_kernels(given, model.devices))
        for document in documents[fold::_FOLDS]:
            one = totals(document, other, iterations, keep_outliers=keep_outliers)
            for engine, predicted in one.predicted.items():
                if predicted and one.measured:
                    found[engine].append((round(log(one.measured / predicted), 4), round(one.unknown, 4)))
    return {
        engine: EndToEndError(tuple(ratio for ratio, _ in of), tuple(unknown for _, unknown in of))
        for engine, of in found.items() if of
    }  # fmt: skip
