"""Matching ET nodes to Kineto CPU events: the methods, and the choice among them."""

from __future__ import annotations

import numpy as np

from ...schemas.execution_trace import ExecutionTrace
from ...schemas.kineto import KinetoTrace
from ..calls import CpuCalls, EtCalls
from ..segment import Iterations
from .ids import match_ids
from .result import EQUIVALENT, Match

__all__ = ["METHODS", "match_calls"]

METHODS = ("ids",)
"""Names of the methods, best evidence first."""


def match_calls(
    et: ExecutionTrace,
    kineto: KinetoTrace,
    nodes: EtCalls,
    calls: CpuCalls,
    iterations: Iterations,
    *,
    method: str = "auto",
    exact: bool = False,
    strict: bool = False,
    iteration: str = "first",
) -> tuple[Match, list[str]]:
    """Match by the method asked for, or by the best that works.

    Returns:
        The match that stands, and a sentence on each method that was tried.
    """
    found = match_ids(et, kineto, nodes, calls)
    considered = list(found.notes)
    found = Match(found.call, found.link, found.reason, found.method, (), found.facts)
    found = _doubt_other_run(et, kineto, calls, found)
    return found, considered


def _doubt_other_run(et: ExecutionTrace, kineto: KinetoTrace, calls: CpuCalls, found: Match) -> Match:
    """Nothing is certain where the pids say that the files are of two runs."""
    linked = found.call[found.call >= 0]
    threads = np.unique(calls.thread[linked]).tolist()
    pids = sorted({str(kineto.events.threads[code][0]) for code in threads})
    facts = {"et_pid": et.pid, "kineto_pids": pids}
    if not len(linked) or pids == [str(et.pid)]:
        return found.noting(**facts)
    link = np.minimum(found.link, EQUIVALENT).astype(np.int8)
    note = (
        f"two runs: the ET is of process {et.pid}, the linked Kineto events of {', '.join(pids)}; "
        "the structure is the same, the times are those of the Kineto run"
    )
    return Match(found.call, link, found.reason, found.method, (*found.notes, note), {**found.facts, **facts})
