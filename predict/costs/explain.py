"""How the utilisation model prices a kernel: the terms of the law, the weights behind them, and similar events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp

import numpy as np

from ...analysis.devices import Device
from .features import distances, features
from .measured import Measured
from .task import Task
from .utilisation import START, THREADS, Law, Utilisation, Work, kernel_family, work_of

__all__ = ["explain"]

_EVENTS, _WEIGHTS, _NEIGHBOURS = 3, 4, 4


def explain(name: str, model: Utilisation, measured: Sequence[Measured], devices: Mapping[str, Device]) -> list[str]:
    """How the fitted events whose kernel's name contains a text are priced; those that take most time, in lines.

    Args:
        name: part of a kernel's name, in any case.
        measured: the events fitted on. devices: records by name.
    """
    chosen = [one for one in measured if name.lower() in one.task.kernel.lower()]
    if not chosen:
        return [f"no kernel was fitted on whose name contains {name!r}"]
    chosen.sort(key=lambda one: (-one.ns * one.count, one.task.kernel, one.task.shapes))
    lines = []
    for one in chosen[:_EVENTS]:
        lines += [*_head(one), *_terms(one, model, devices), *_neighbours(one, model, measured, devices), ""]
    if len(chosen) > _EVENTS:
        lines.append(f"and {len(chosen) - _EVENTS} more distinct events of such kernels")
    return lines


def _head(one: Measured) -> list[str]:
    task = one.task
    launch = f", {task.blocks} blocks of {task.block_threads} threads" if task.blocks else ""
    return [task.kernel, f"  {task.op or 'no operator'} {task.shapes}", f"  {task.device}, {one.count} times{launch}"]


def _terms(one: Measured, model: Utilisation, devices: Mapping[str, Device]) -> list[str]:
    """The formula with this event's numbers."""
    work = work_of(one.task, devices)
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
    lines.append(f"    {'kernel':8} {kernel:11.3f} ×   what events of this name take over the rest of the law")
    bound = f", bound {work.bound / 1000:,.2f} µs" if work.known else ""
    lines.append(f"    {'smearing':8} {law.smearing:11.3f} ×   the mean over the median of such events")
    lines.append(f"  predicted {law.nanoseconds(work) / 1000:,.2f} µs, measured {one.ns / 1000:,.2f} µs{bound}")
    return lines


def _weights(law: Law, work: Work, term: str) -> str:
    """The labels that count most."""
    counts = {label: law.weights[term].get(label, 0.0) * value for label, value in work.labels.items()}
    most = sorted((label for label in counts if counts[label]), key=lambda label: (-abs(counts[label]), label))
    return ", ".join(f"{label} {counts[label]:+.2f}" for label in most[:_WEIGHTS])


def _neighbours(
    one: Measured, model: Utilisation, measured: Sequence[Measured], devices: Mapping[str, Device]
) -> list[str]:
    """The least different events of the same family, others than this one."""
    family = kernel_family(one.task.kernel)
    near = [other for other in measured if other is not one and kernel_family(other.task.kernel) == family]
    if not near:
        return ["  no other event of this family was fitted on"]
    apart = distances(features([one.task]), features([other.task for other in near]))[0]
    lines = ["  nearest events of this family: measured, predicted µs"]
    for at in np.argsort(apart, kind="stable")[:_NEIGHBOURS].tolist():
        other: Task = near[at].task
        lines.append(
            f"    {near[at].ns / 1000:10,.2f} {model.nanoseconds(other, devices) / 1000:10,.2f}  {other.device}, "
            f"{other.op} {other.shapes}"
        )
    return lines
