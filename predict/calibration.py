"""What fitting learns of the engines: one factor each, and how far each is off for traces that were not fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import msgspec
import numpy as np

from ..schemas.communications import comm_rows
from ..trace.kinds import GPU
from ..trace.medians import median
from ..trace.trace import Trace
from .end_to_end import totals
from .fitting import fit_parts, prepare
from .model_file import EndToEndError, FittedModel
from .rank_job import ENGINES

_FOLDS = 6
"""Into how many parts traces are dealt to be held out."""


def calibrated(
    model: FittedModel, traces: Sequence[Trace], iterations: str | None = None, *,
    keep_outliers: bool = False,
) -> FittedModel:  # fmt: skip
    """The model with its factors, which make up for what an engine leaves out, such as pauses that are too long to be
    an overhead, and with its errors. Without factors if there are collectives: what a rank waits for the others would
    be in them.

    Args:
        traces, iterations, keep_outliers: those that the model was fitted on.
    """
    on_host = [trace for trace in traces if not np.any(trace.kind == GPU)]
    model = msgspec.structs.replace(model, end_to_end=_errors(model, traces, on_host, iterations, keep_outliers))
    if not on_host or any(len(comm_rows(trace)) for trace in on_host):
        return model
    ratios: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for trace in on_host:
        one = totals(trace, model, iterations, keep_outliers=keep_outliers)
        for engine, predicted in one.predicted.items():
            ratios[engine].append(one.measured / predicted if predicted else 1.0)
    return msgspec.structs.replace(model, calibration={engine: median(of) for engine, of in ratios.items()})


def _errors(
    model: FittedModel, traces: Sequence[Trace], on_host: Sequence[Trace], iterations: str | None,
    keep_outliers: bool,
) -> dict[str, EndToEndError]:  # fmt: skip
    """Of each engine, from models of the other traces; with one trace from how its iterations differ, if there are."""
    if len(traces) == 1:
        ratios = tuple(round(log(ratio), 4) for ratio in prepare(traces[0], iterations, (), keep_outliers).step_ratios)
        return {engine: EndToEndError(ratios, (0.0,) * len(ratios)) for engine in ENGINES if ratios}
    parts = [prepare(trace, iterations, model.devices, keep_outliers) for trace in on_host]
    found: dict[str, list[tuple[float, float]]] = {engine: [] for engine in ENGINES}
    for fold in range(min(_FOLDS, len(parts)) if len(parts) > 1 else 0):
        other = fit_parts([part for k, part in enumerate(parts) if k % _FOLDS != fold], model.devices, None)
        for trace in on_host[fold::_FOLDS]:
            one = totals(trace, other, iterations, keep_outliers=keep_outliers)
            for engine, predicted in one.predicted.items():
                if predicted and one.measured:
                    found[engine].append((round(log(one.measured / predicted), 4), round(one.unknown, 4)))
    return {
        engine: EndToEndError(tuple(ratio for ratio, _ in of), tuple(unknown for _, unknown in of))
        for engine, of in found.items() if of
    }  # fmt: skip
