"""Simple predictors of graph times, used as baselines, and error metrics. This module needs only numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...schemas.graph_arrays import GraphArrays, opcodes

_FLOPS, _BYTES, _CALLS = 3, 4, 10
_PENALTY = 1.0
_LEAST_ERROR = 1e-3  # Minimum error per prediction. A single error of 0 would make the geometric mean of all errors 0.

Floats = npt.NDArray[np.float64]


def runs(graphs: Sequence[GraphArrays]) -> list[tuple[GraphArrays, int]]:
    return [(graph, c) for graph in graphs for c in range(len(graph.config_runtime))]


def log_times(graphs: Sequence[GraphArrays]) -> Floats:
    return np.log(np.maximum(np.concatenate([graph.config_runtime for graph in graphs]), 1).astype(np.float64))


def baselines(train: Sequence[GraphArrays], held: Sequence[GraphArrays]) -> dict[str, Floats]:
    """Fit the baselines on `train`, and map each baseline to its predicted times of the runs of `held`.

    The baselines are the mean time, and a ridge regression on graph totals, opcode counts and the configuration.
    """
    y = log_times(train)
    x, z = _features(train), _features(held)
    center, scale = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
    a, b = (x - center) / scale, (z - center) / scale
    weights = np.linalg.solve(a.T @ a + _PENALTY * np.eye(a.shape[1]), a.T @ (y - y.mean()))
    ridge = np.exp(np.clip(y.mean() + b @ weights, 0, 60))
    return {"mean": np.full(len(z), float(np.exp(y.mean()))), "ridge": ridge}


def _features(graphs: Sequence[GraphArrays]) -> Floats:
    rows = []
    count = len(opcodes()) + 1
    for graph, c in runs(graphs):
        leaf = graph.node_feat[:, _CALLS] == 0
        flops, moved = (np.exp2(graph.node_feat[leaf, i].astype(np.float64)) - 1 for i in (_FLOPS, _BYTES))
        sums = [np.log1p(flops.sum()), np.log1p(moved.sum()), np.log(len(graph)), np.log1p(flops.max(initial=0))]
        config = graph.node_config_feat[c].mean(axis=0) if len(graph.node_config_ids) else np.zeros(18)
        tile = graph.config_feat[c] if graph.config_feat is not None else np.zeros(24)
        codes = np.bincount(np.where(graph.node_opcode < count, graph.node_opcode, 0), minlength=count)
        rows.append(np.concatenate([sums, config, tile, np.log1p(codes)]))
    return np.array(rows, np.float64)


@dataclass(frozen=True)
class Score:
    count: int  # number of predictions
    served: float  # share of tasks that have a prediction
    geomean: float  # geometric mean of |predicted/measured − 1|, with smaller errors set to 0.1%
    median: float  # median of |predicted/measured − 1|
    mape: float  # mean of |predicted/measured − 1|
    factor: float  # exp(mean |log(predicted/measured)|) − 1: typical error, whether too high or too low
    bias: float  # relative error of the weighted sum of predictions


def score(predicted: Floats, measured: Floats, weight: Floats | None = None) -> Score:
    """Return the error metrics. NaN marks a missing prediction; `weight` is the number of times each task ran."""
    has = np.isfinite(predicted) & (measured > 0)
    if not has.any():
        nan = float("nan")
        return Score(0, 0.0, nan, nan, nan, nan, nan)
    guess, true = predicted[has], measured[has]
    often = np.ones(len(true)) if weight is None else weight[has]
    error = np.abs(guess / true - 1)
    return Score(
        len(true),
        float(has.mean()),
        float(np.exp(np.log(np.maximum(error, _LEAST_ERROR)).mean())),
        float(np.median(error)),
        float(error.mean()),
        float(np.exp(np.abs(np.log(np.maximum(guess, 1.0) / true)).mean()) - 1),
        float((guess * often).sum() / (true * often).sum() - 1),
    )


@dataclass(frozen=True)
class Quality:
    errors: Score
    tau: float  # Kendall's τ-b over all graphs
    pairs: float  # share of graph pairs that are predicted in the right order
    top1: float  # (measured time of the variant predicted fastest) / (best measured time) − 1, mean over models
    top5: float  # like `top1`, but with the best measured time of the 5 variants predicted fastest


def quality(predicted: Floats, measured: Floats, model: Sequence[str]) -> Quality:
    return Quality(
        score(predicted, measured),
        kendall_tau(predicted, measured),
        ordered_pairs(predicted, measured),
        top_slowdown(predicted, measured, model, 1),
        top_slowdown(predicted, measured, model, 5),
    )


def _signs(values: Floats) -> Floats:
    upper = np.triu_indices(len(values), 1)
    signs: Floats = np.sign(values[:, None] - values[None, :])[upper]
    return signs


def kendall_tau(predicted: Floats, measured: Floats) -> float:
    """Return Kendall's τ-b: 1 for the same order, −1 for the reverse order, 0 if all values are equal."""
    a, b = _signs(predicted), _signs(measured)
    scale = float(np.sqrt(np.count_nonzero(a) * np.count_nonzero(b)))
    return float((a * b).sum()) / scale if scale else 0.0


def ordered_pairs(predicted: Floats, measured: Floats) -> float:
    """Return the share of pairs with different measured times that are predicted in the right order; ties are wrong."""
    a, b = _signs(predicted), _signs(measured)
    unlike = b != 0
    return float((a[unlike] == b[unlike]).mean()) if unlike.any() else 1.0


def top_slowdown(predicted: Floats, measured: Floats, model: Sequence[str], k: int) -> float:
    """Return (best measured time of the k variants predicted fastest) / (best measured time) − 1, mean over models."""
    names = np.array(model)
    lost = []
    for name in dict.fromkeys(model):
        mine = np.flatnonzero(names == name)
        if len(mine) > 1:
            chosen = mine[np.argsort(predicted[mine], kind="stable")[:k]]
            lost.append(measured[chosen].min() / measured[mine].min() - 1)
    return float(np.mean(lost)) if lost else 0.0
