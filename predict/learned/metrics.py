"""How good predictions of graphs' times are, absolutely and as a ranking. Needs numpy alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..costs.crossval import Score, score

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Quality:
    """Metrics of predictions.

    Attributes:
        errors: geometric mean, median, mean of relative errors, factor, bias of the total.
        tau: Kendall's τ (b) over all graphs. pairs: share of pairs of unlike graphs that are in the right order.
        top1, top5: over models, mean of the best true time among the K variants predicted fastest over the best of
            all, less 1.
    """

    errors: Score
    tau: float
    pairs: float
    top1: float
    top5: float


def quality(predicted: Floats, measured: Floats, model: Sequence[str]) -> Quality:
    """All metrics.

    Args:
        model: of each graph, of which it is a variant.
    """
    return Quality(
        score(predicted, measured), kendall_tau(predicted, measured), ordered_pairs(predicted, measured),
        top_slowdown(predicted, measured, model, 1), top_slowdown(predicted, measured, model, 5),
    )  # fmt: skip


def _signs(values: Floats) -> Floats:
    upper = np.triu_indices(len(values), 1)
    signs: Floats = np.sign(values[:, None] - values[None, :])[upper]
    return signs


def kendall_tau(predicted: Floats, measured: Floats) -> float:
    """Kendall's τ-b, 1 for the same order and −1 for the reverse; 0 where all are equal."""
    a, b = _signs(predicted), _signs(measured)
    scale = float(np.sqrt(np.count_nonzero(a) * np.count_nonzero(b)))
    return float((a * b).sum()) / scale if scale else 0.0


def ordered_pairs(predicted: Floats, measured: Floats) -> float:
    """Share of the pairs with unlike measurements that are predicted in their order; ties are wrong."""
    a, b = _signs(predicted), _signs(measured)
    unlike = b != 0
    return float((a[unlike] == b[unlike]).mean()) if unlike.any() else 1.0


def top_slowdown(predicted: Floats, measured: Floats, model: Sequence[str], k: int) -> float:
    """Over models with several variants, what the best of the K predicted fastest loses on the best of all."""
    names = np.array(model)
    lost = []
    for name in dict.fromkeys(model):
        mine = np.flatnonzero(names == name)
        if len(mine) > 1:
            chosen = mine[np.argsort(predicted[mine], kind="stable")[:k]]
            lost.append(measured[chosen].min() / measured[mine].min() - 1)
    return float(np.mean(lost)) if lost else 0.0
