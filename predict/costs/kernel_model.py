"""What `etplus fit` learns of GPU events: the utilisation model, the order of models, intervals, held-out errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

import msgspec

from ...analysis.devices import Device
from ...trace.brief import brief
from .heldout import HeldOut, by_groups, by_traces, chosen_order
from .intervals import Intervals, fit_intervals
from .measured import Measured, pooled
from .registry import ORDER
from .utilisation import Utilisation
from .utilisation_fit import fit_utilisation

__all__ = ["KernelModel", "fit_kernels", "interval_group"]


class KernelModel(msgspec.Struct, frozen=True):
    """The model of GPU events.

    Attributes:
        utilisation: the fitted law.
        order: names of cost models; the first that serves an event prices it.
        intervals: factors around predicted times. held_out: how many traces they are from; 0 where there was one
            trace, whose own work was held out by operator and shapes.
        errors: by candidate order (names joined by " > ") factor and total error of each held-out trace's GPU events.
    """

    utilisation: Utilisation
    order: tuple[str, ...] = ORDER
    intervals: Intervals = Intervals()
    held_out: int = 0
    errors: dict[str, tuple[tuple[float, float], ...]] = {}

    __repr__ = brief


def fit_kernels(traces: Sequence[Sequence[Measured]], devices: Mapping[str, Device]) -> KernelModel | None:
    """Fit the model of GPU events; None if there are none.

    Each trace is held out once, and predicted by all candidates from the others. With one trace, fifths of its groups
    of operator and shapes are held out instead.

    Args:
        traces: of each trace its distinct GPU events. devices: records by name.
    """
    traces = [[one for one in trace if one.ns > 0] for trace in traces]
    everything = pooled(one for trace in traces for one in trace)
    if not everything:
        return None
    several = sum(1 for trace in traces if trace) > 1
    held = by_traces(traces, devices) if several else by_groups(everything, devices)
    order, errors = chosen_order(held)
    return KernelModel(
        fit_utilisation(everything, devices), order, _intervals(held, order), len(traces) if several else 0, errors
    )


def _intervals(held: Sequence[HeldOut], order: tuple[str, ...]) -> Intervals:
    groups, ratios = [], []
    for part in held:
        for one, estimate, group in zip(part.measured, part.estimates[order], part.groups, strict=True):
            groups.append(interval_group(estimate.how, group))
            ratios.append(log(one.ns / max(estimate.ns, 1.0)))
    return fit_intervals(groups, ratios)


def interval_group(how: str, group: Sequence[str]) -> tuple[str, ...]:
    """The groups of an event's interval, from wide to narrow: the model that prices it, then `Familiarity.group`."""
    return (how.partition(" at ")[0], *group)
