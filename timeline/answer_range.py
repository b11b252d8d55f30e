"""Range of the answer of a network what-if, and an estimate of the step without the recorder.

A recording leaves some things open: how evenly the host works, how fast transfers are. Each of them is set to both
ends of what it may be, one at a time. The effects add up as independent errors do (root of the sum of squares).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..trace.brief import brief
from ..trace.columns import matching, median
from ..trace.kinds import GPU
from .beside_transfers import unevenness
from .constants import Constants
from .graph_building import build_graph, has_assumed_waits
from .graph_replay import replay
from .network import Network, on_network
from .rank_coupling import join_ranks
from .replay_graph import HOST, ReplayGraph
from .whatif import Bounds, WhatIf, apply_what_ifs

_BANDWIDTH = 0.1
"""Transfers in a job differ by so much from those of a calibration, which has the processors to itself; by `_TURNS`
where ranks take turns on processors, for which the backend's threads wait, too."""
_HOST_WORK, _TURNS, _DEVICE_WORK = 0.2, 0.25, 0.02
"""The same step computes for so much more or less when it is run again: on processors that others use, where ranks take
turns on them, on a device."""
_UNEVEN = 1.8
"""Ranks take turns on processors if some operators take so many times as long as others with their name and shapes."""
_VIEW = "aten::as_strided"
"""An operator that does next to nothing: its time is what a call costs, most of it recording."""
_RECORDING = (0.5, 1.2, 3.0)
"""What recording adds at either end of a call, times a view's time: between what most of five jobs of two ranks on four
networks lie, whose steps were timed with and without the recorder, and their median."""


@dataclass(frozen=True)
class AnswerRange:
    """What a what-if's answer may be.

    Attributes:
        low_ns, high_ns: about four of five jobs recorded on several networks lie between these.
        untraced_ns: least, usual and longest step without the recorder; None if unknown.
        reasons: what moves the answer, the largest effect first.
    """

    low_ns: int
    high_ns: int
    untraced_ns: tuple[int, int, int] | None
    reasons: tuple[str, ...]

    __repr__ = brief

    def to_lines(self) -> list[str]:
        """Return lines to print under an answer."""
        lines = [f"           between {self.low_ns / 1000:,.1f} and {self.high_ns / 1000:,.1f} µs"]
        lines += [f"           ({reason})" for reason in self.reasons]
        if self.untraced_ns is not None:
            low, usual, high = (f"{ns / 1000:,.1f}" for ns in self.untraced_ns)
            lines.append(f"           of the step as it is traced; untraced about {usual} µs ({low} to {high})")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; keys as in docs/reference/replay.md."""
        keys = ("low", "usual", "high")
        untraced = None if self.untraced_ns is None else dict(zip(keys, self.untraced_ns, strict=True))
        return {"low": self.low_ns, "high": self.high_ns, "untraced": untraced, "reasons": list(self.reasons)}


def answer_range(
    graph: ReplayGraph,
    network: Network,
    what_ifs: Sequence[WhatIf],
    constants: Constants | Sequence[Constants],
    bounds: Bounds | None = None,
) -> AnswerRange:
    """Return the range of `replay(apply_what_ifs(on_network(graph, network), …))`."""

    def answer(graph: ReplayGraph, network: Network = network, at: Any = "times") -> int:
        return replay(
            apply_what_ifs(on_network(graph, network, at), what_ifs, constants, bounds), constants
        ).makespan_ns

    usual = answer(graph)
    moved: list[tuple[int, int, str]] = []
    for low, high, reason in _alternatives(graph, network, answer):
        below, above = (sorted((low, usual, high))[end] for end in (0, 2))
        moved.append((usual - below, above - usual, f"{reason}: {below / 1e6:,.1f} to {above / 1e6:,.1f} ms"))
    moved = [one for one in sorted(moved, key=lambda one: -max(one[:2])) if max(one[:2]) > usual // 500]
    less, more = math.hypot(*(below for below, *_ in moved)), math.hypot(*(above for _, above, _ in moved))
    return AnswerRange(
        round(usual - less), round(usual + more), _untraced(graph, answer), tuple(reason for *_, reason in moved)
    )


def _alternatives(graph: ReplayGraph, network: Network, answer: Any) -> Iterator[tuple[int, int, str]]:
    """Yield the answers with one open thing at either end, and its name."""
    yield answer(graph, at="low"), answer(graph, at="high"), "what kinds of communication take over the formula"
    spread, why = _spread(graph)
    by = _TURNS if spread == _TURNS else _BANDWIDTH
    quick, slow = (network.faster(factor) for factor in (1 + by, 1 / (1 + by)))
    yield answer(graph, quick), answer(graph, slow), f"transfers {by:.0%} faster or slower"
    host = graph.edges.kind == HOST
    less, more = (answer(graph.scaled(host, factor)) for factor in (1 - spread, 1 + spread))
    yield less, more, f"the host's work {spread:.0%} less or more, {why}"
    if (shared := graph.shared) is not None:
        taken, plain = shared.beside
        if shared.slowdown > 1:
            beside = [(plain + round((taken - plain) * by), plain) for by in (0.6, 1.4)]
            reason = f"work next to transfers takes {shared.slowdown:.2f} times as long, ±40% of the excess"
        else:
            beside = [(0, 0), (2 * _PLENTY, _PLENTY)]
            reason = "work next to transfers takes up to twice as long, which this job does not show"
        less, more = (answer(replace(graph, shared=replace(shared, beside=end))) for end in beside)
        yield less, more, reason
    if any(has_assumed_waits(trace) for trace in graph.traces):
        ranks = [build_graph(trace, assumed_waits=False) for trace in graph.traces]
        free = answer(join_ranks(ranks) if len(ranks) > 1 else ranks[0])
        yield free, free, "nothing records what some synchronising calls wait for: nothing, or the latest work"


_PLENTY = 10**9


def _spread(graph: ReplayGraph) -> tuple[float, str]:
    """Return by how much the host's work differs from run to run, and why."""
    if np.any(graph.column("kind") == GPU):
        return _DEVICE_WORK, "as in another run"
    low, high = unevenness(graph)
    if high < _UNEVEN * low:
        return _HOST_WORK, "as in another run"
    return _TURNS, f"as the same operators take {low:.1f} to {high:.1f} times their median: processors are shared"


def _untraced(graph: ReplayGraph, answer: Any) -> tuple[int, int, int] | None:
    """Estimate the answer without the recorder, for jobs of the host: calls lose what recording adds at their ends."""
    if np.any(graph.column("kind") == GPU):
        return None
    views = [
        trace.nodes.dur[matching(trace.nodes.name, trace.names, _VIEW.__eq__) & trace.nodes.timed]
        for trace in graph.traces
    ]
    took = np.concatenate(views)
    if not len(took):
        return None
    edges, call = graph.edges, median(took)
    work = (edges.kind == HOST) & (edges.source > 0)
    less = [np.where(work, np.minimum(edges.lag * 0.9, call * share), 0) for share in _RECORDING[::-1]]
    low, usual, high = (answer(graph.with_latencies(edges.lag - np.rint(cut))) for cut in less)
    return low, usual, high
