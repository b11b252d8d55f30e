"""Fits the utilisation model: ridge regression of log times through the law, robust against outliers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from ...analysis.devices import Device
from .measured_tasks import MeasuredTask
from .task import Task
from .utilisation import COMPUTE, LOG_START, MEMORY, MOST_LOSS, START, THREADS, EventWork, Law, Utilisation, work_of

Floats = npt.NDArray[np.float64]

_PENALTIES: dict[bool, dict[str, dict[str, float]]] = {
    True: {
        START: {"all": 0.3, "kind": 5, "family": 10, "vendor": 10},
        COMPUTE: {"all": 1, "kind": 3, "dtype": 3, "": 3},
        MEMORY: {"all": 1, "kind": 3, "family": 2, "op": 4, "": 3},
    },
    False: {
        START: {"all": 0.1, "kind": 1, "family": 1, "op": 3, "device": 3},
        THREADS: {"all": 0.3, "kind": 1.5, "family": 2, "": 3},
    },
}
"""By whether the work is known, term and group of labels ("" are numbers), how strongly a weight is drawn to 0: as by
that many events that show no difference. Groups that are not listed have no weights in the term."""
_NUMBERS = ("bandwidth of a multiprocessor", "multiprocessors", "multiprocessors without a block")
_HUBER = 0.5
"""Log residuals above this count in proportion, not squared."""
_NAME_PENALTY, _MOST_RESIDUAL = 1.5, 1.5
_ROUNDS, _LONGEST_STEP, _SETTLED = 25, 1.5, 0.01


def fit_utilisation(measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> Utilisation:
    """Fit the three laws. Events of which more is known count in the laws for less, too, as if it were not known.

    Args:
        measured: GPU events with positive times. devices: records by name.
    """
    log_ns = np.log([max(one.ns, 1.0) for one in measured])
    sized = [one.task for one in measured]
    launched = [msgspec.structs.replace(task, main=False) for task in sized]
    named = [task.unlaunched for task in launched]

    def law(tasks: Sequence[Task], serves: Callable[[EventWork], bool], known: bool = False) -> Law:
        works = [work_of(task, devices) for task in tasks]
        rows = [i for i, work in enumerate(works) if serves(work)]
        return _fit_law([works[i] for i in rows], log_ns[rows], known)

    return Utilisation(
        law(sized, lambda work: work.known, known=True), law(launched, lambda work: work.size > 0),
        law(named, lambda _: True),
    )  # fmt: skip


class _Term:
    """The columns of one linear sum: labels, their penalties, and the values of each event."""

    def __init__(self, term: str, works: Sequence[EventWork], penalties: Mapping[str, float]) -> None:
        self.labels: dict[str, int] = {}
        self.penalty: list[float] = []
        cells: list[tuple[int, int, float]] = []
        for row, work in enumerate(works):
            for label, value in work.labels.items():
                penalty = penalties.get("" if label in _NUMBERS else label.partition(" ")[0])
                if penalty is not None:
                    if label not in self.labels:
                        self.labels[label] = len(self.penalty)
                        self.penalty.append(penalty)
                    cells.append((row, self.labels[label], value))
        self.rows: Floats = np.zeros((len(works), len(self.labels)))
        at = np.array(cells, np.float64).reshape(-1, 3)
        self.rows[at[:, 0].astype(np.int64), at[:, 1].astype(np.int64)] = at[:, 2]
        self.amount = np.array([work.amounts.get(term, 0.0) for work in works])
        self.usual = np.array([work.usual[term] for work in works])


def _fit_law(works: Sequence[EventWork], log_ns: Floats, known: bool) -> Law:
    """Gauss-Newton steps with weights by residual (Huber, 1964), towards weights of 0."""
    terms = {term: _Term(term, works, penalties) for term, penalties in _PENALTIES[known].items()}
    penalty = np.concatenate([np.array(term.penalty) for term in terms.values()])
    ends = np.cumsum([len(term.penalty) for term in terms.values()])[:-1]
    weights = np.zeros(len(penalty))
    residual = np.zeros(len(works))
    for _ in range(_ROUNDS if len(works) else 0):
        log_time, slopes = _predict(terms, np.split(weights, ends), known)
        residual = log_ns - log_time
        counts = np.minimum(1.0, _HUBER / np.maximum(np.abs(residual), 1e-9))
        weighted = slopes * counts[:, None]
        step = np.linalg.solve(slopes.T @ weighted + np.diag(penalty), weighted.T @ residual - penalty * weights)
        longest = float(np.abs(step).max(initial=0.0))
        weights += step * min(1.0, _LONGEST_STEP / max(longest, 1e-9))
        if longest < _SETTLED:
            break
    split = np.split(weights, ends)
    residual = np.clip(log_ns - _predict(terms, split, known)[0], -_MOST_RESIDUAL, _MOST_RESIDUAL)
    kernels = _by_kernel(works, residual)
    residual -= [kernels[work.kernel] for work in works]
    learned = {
        name: {label: round(float(of[at]), 4) for label, at in term.labels.items() if of[at]}
        for (name, term), of in zip(terms.items(), split, strict=True)
    }
    return Law(learned, kernels, round(float(np.exp(residual).mean()), 4) if works else 1.0)


def _predict(terms: Mapping[str, _Term], weights: Sequence[Floats], known: bool) -> tuple[Floats, Floats]:
    """Log times, and their slopes by weight (events, weights)."""
    sums = [term.usual + term.rows @ of for term, of in zip(terms.values(), weights, strict=True)]
    start = np.exp(np.clip(sums[0], *LOG_START))
    names, work = list(terms)[1:], [np.exp(np.minimum(of, MOST_LOSS)) for of in sums[1:]]
    times = [terms[name].amount * (loss + known) for name, loss in zip(names, work, strict=True)]
    longest = np.argmax(times, axis=0)
    total_ns = start + np.max(times, axis=0)
    slopes = [terms[START].rows * (start / total_ns)[:, None]]
    for at, (name, loss) in enumerate(zip(names, work, strict=True)):
        share = np.where(longest == at, terms[name].amount * loss / total_ns, 0.0)
        slopes.append(terms[name].rows * share[:, None])
    return np.log(total_ns), np.concatenate(slopes, axis=1)


def _by_kernel(works: Sequence[EventWork], residual: Floats) -> dict[str, float]:
    """Of each kernel's name the mean residual, drawn to 0 where there are few events."""
    found: dict[str, list[float]] = {}
    for work, value in zip(works, residual.tolist(), strict=True):
        found.setdefault(work.kernel, []).append(value)
    return {name: round(sum(of) / (len(of) + _NAME_PENALTY), 4) for name, of in found.items()}
