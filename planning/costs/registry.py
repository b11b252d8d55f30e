"""Cost models by name, the order in which they are tried, and explanations of their predictions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from math import exp

from ...analysis.devices import Device
from ...trace.errors import UsageError
from .measured_models import CostModel, Extrapolated, Interpolated, KindMean, MeasuredTable
from .task import CPU_OP, Estimate, MeasuredTask, Task, bound_of
from .utilization import START, THREADS, EventWork, Law, Utilization, fit_utilization, work_of

# Packages register a cost model in this entry point group: the name of the model, and a subclass of `CostModel`.
GROUP = "etplus.cost_models"
UTILIZATION = "utilization"

_LOG = logging.getLogger("etplus")


class Utilized(CostModel):
    """The utilization model of GPU events. Model files store it under `kernels`, because the intervals also need it."""

    def __init__(self, fitted: Utilization, devices: Mapping[str, Device]) -> None:
        self.fitted, self._devices = fitted, devices

    @classmethod
    def fit(cls, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]) -> Utilized:
        events = [event for event in measured if event.task.category != CPU_OP and event.ns > 0]
        return cls(fit_utilization(events, devices), devices)

    def predict(self, task: Task) -> Estimate | None:
        if task.category == CPU_OP:
            return None
        return Estimate(self.fitted.nanoseconds(task, self._devices), UTILIZATION)


MODELS: dict[str, type[CostModel]] = {
    "measured": MeasuredTable,
    UTILIZATION: Utilized,
    "between": Interpolated,
    "grown": Extrapolated,
    "mean": KindMean,
}
ORDER = ("measured", UTILIZATION)  # For GPU events, the first model that can predict the event wins.
CPU_ORDER = ("measured", "between", "mean")  # For CPU operators, the models are tried in this order.


@cache
def cost_models() -> Mapping[str, type[CostModel]]:
    from importlib.metadata import entry_points

    found = dict(MODELS)
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        if point.name in found:
            _LOG.warning("cost model %s (%s) is ignored: another model has this name", point.name, point.value)
            continue
        try:
            found[point.name] = point.load()
        except Exception as error:  # a broken package must not disable the other models
            _LOG.warning("cost model %s (%s) cannot be loaded: %s", point.name, point.value, error)
    return found


def candidates() -> tuple[tuple[str, ...], ...]:
    """Return the orders that `etplus predict fit` chooses from: the built-in order, and one per external model."""
    return (ORDER, *(("measured", name, UTILIZATION) for name in cost_models() if name not in MODELS))


def model_class(name: str) -> type[CostModel]:
    known = MODELS.get(name) or cost_models().get(name)  # searching entry points is slow
    if known is None:
        raise UsageError(
            f"unknown cost model {name!r}; install its package, or fit again without this model; known: "
            f"{', '.join(cost_models())}"
        )
    return known


class Costs:
    """An ordered list of cost models. Each model is fitted on the measured tasks when it is first used.

    A GPU event is predicted to take at least its lower bound, unless an identical event was measured to be faster.

    Args:
        devices: device records by name.
        order: names of the models, in the order they are tried.
        beyond: right after "measured", try "grown" for larger sizes and "between" for sizes between measured sizes.
            GPU events use "grown" only if there is no utilization model, because that model depends on size.
        fitted: models that were already fitted on these tasks.
    """

    def __init__(
        self,
        measured: Sequence[MeasuredTask],
        devices: Mapping[str, Device],
        order: Sequence[str] = ORDER,
        *,
        beyond: bool = False,
        fitted: Mapping[str, CostModel] | None = None,
    ) -> None:
        self._measured, self._devices, self._order = measured, devices, tuple(order)
        self._beyond = beyond
        self.fitted: dict[str, CostModel] = dict(fitted or {})
        self._known: dict[Task, Estimate] = {}

    def predict(self, task: Task) -> Estimate | None:
        if task not in self._known:
            if not self._measured:
                return None
            order = CPU_ORDER if task.category == CPU_OP else self._order
            if self._beyond:
                order = ("measured", *(() if UTILIZATION in order else ("grown",)), "between", *order)
            found = next((price for name in order if (price := self.model(name).predict(task)) is not None), None)
            if found is None:
                return None
            if found.how != "measured" and task.category != CPU_OP:
                bound = bound_of(task, self._devices)
                found = found if bound is None or found.ns >= bound.ns else found._replace(ns=bound.ns)
            self._known[task] = found
        return self._known[task]

    def model(self, name: str) -> CostModel:
        if name not in self.fitted:
            self.fitted[name] = model_class(name).fit(self._measured, self._devices)
        return self.fitted[name]


_EVENTS, _WEIGHTS = 3, 4  # Explanations show at most 3 events, and at most 4 learned weights per line.


def explain(
    name: str, model: Utilization, measured: Sequence[MeasuredTask], devices: Mapping[str, Device]
) -> list[str]:
    """Return lines that explain the predictions of fitted events with `name` in their kernel name, ignoring case."""
    chosen = [event for event in measured if name.lower() in event.task.kernel.lower()]
    if not chosen:
        return [f"no fitted kernel has {name!r} in its name"]
    chosen.sort(key=lambda event: (-event.ns * event.count, event.task.kernel, event.task.shapes))
    lines = []
    for event in chosen[:_EVENTS]:
        task = event.task
        launch = f", {task.blocks} blocks of {task.block_threads} threads" if task.blocks else ""
        lines += [task.kernel, f"  {task.op or 'no operator'} {task.shapes}"]
        lines.append(f"  {task.device}, {event.count} times{launch}")
        lines += [*_terms(event, model, devices), ""]
    if len(chosen) > _EVENTS:
        lines.append(f"and {len(chosen) - _EVENTS} more distinct events of these kernels")
    return lines


def _terms(event: MeasuredTask, model: Utilization, devices: Mapping[str, Device]) -> list[str]:
    work = work_of(event.task, devices)
    law, lines = model.law(work), []
    terms = law.terms(work)
    longest = max(work.amounts, key=lambda term: terms[term])
    kernel = exp(law.kernels.get(work.kernel, 0.0))
    rest = " (FLOPs and bytes are not known)" if not work.known else ""
    lines.append(f"  time = (start + {' or '.join(work.amounts)}) × kernel × smearing{rest}")
    lines.append(f"    {START:8} {terms[START] / 1000:11,.2f} µs  {_weights(law, work, START)}")
    for term, amount in work.amounts.items():
        if amount:
            of = f"efficiency {amount / terms[term]:.0%}" if term != THREADS else f"× {terms[term] / amount:.2f}"
            lines.append(
                f"    {term:8} {terms[term] / 1000:11,.2f} µs  {amount / 1000:,.2f} µs at the peak, {of}"
                f"{', longest' if term == longest and len(work.amounts) > 1 else ''}"
            )
            lines.append(f"    {'':23}{_weights(law, work, term)}")
    lines.append(f"    {'kernel':8} {kernel:11.3f} ×   measured time of this kernel / prediction that ignores its name")
    bound = f", bound {work.bound / 1000:,.2f} µs" if work.known else ""
    lines.append(f"    {'smearing':8} {law.smearing:11.3f} ×   mean / median time of similar events")
    lines.append(f"  predicted {law.nanoseconds(work) / 1000:,.2f} µs, measured {event.ns / 1000:,.2f} µs{bound}")
    return lines


def _weights(law: Law, work: EventWork, term: str) -> str:
    counts = {label: law.weights[term].get(label, 0.0) * value for label, value in work.labels.items()}
    most = sorted((label for label in counts if counts[label]), key=lambda label: (-abs(counts[label]), label))
    return ", ".join(f"{label} {counts[label]:+.2f}" for label in most[:_WEIGHTS])
