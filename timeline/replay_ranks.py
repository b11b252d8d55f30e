"""Replay one trace or the ranks of a job, and find the range of the answer on another network.

A recording leaves some quantities uncertain, such as host work and the speed of transfers. The replay is repeated with
both ends of each quantity's range. Effects are combined like independent errors (root of the sum of squares).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..schemas.comm_types import CollectiveCommType as Type
from ..schemas.communications import find_communications
from ..trace.brief import brief
from ..trace.kinds import GPU
from ..trace.selection import without_enclosing
from ..trace.trace import Trace
from .beside_transfers import unevenness
from .constants import Constants, fit_constants
from .graph_building import build_graph, has_assumed_waits
from .graph_replay import Replay, replay
from .network import on_network
from .network_description import Efficiency, Network
from .network_file import parse_network
from .rank_coupling import join_ranks
from .replay_graph import HOST, ReplayGraph
from .untraced import UntracedAnswer, untraced_answer
from .whatif import Bounds, WhatIf, apply_what_ifs, parse_what_if

# Transfer times in a job may differ from a calibration on idle CPUs by this fraction.
# If ranks take turns on CPUs, the fraction is `_TURNS`, because backend threads also wait for a CPU.
_BANDWIDTH = 0.15
# Run-to-run variation of host work: in most jobs, in jobs with ranks that take turns on CPUs, and in jobs with GPUs.
_HOST_WORK, _TURNS, _DEVICE_WORK = 0.2, 0.25, 0.02
# Ranks take turns on CPUs if the ratio p90 / p10 of identical operators' times is at least this large.
_UNEVEN = 1.8
_PLENTY = 10**9
# Range of the times of a Gloo all-to-all, as multiples of the formula's time (calibration gloo-2).
# At four link speeds, messages reached up to 1.7 times the bandwidth of all-reduces, and all-gathers only 0.67 times.
_ALL_TO_ALL = (0.6, 1.5)


@dataclass(frozen=True)
class AnswerRange:
    """The range of a prediction, with reasons. For about four of five test jobs, the true time was in this range."""

    low_ns: int
    high_ns: int
    reasons: tuple[str, ...]

    __repr__ = brief

    def to_lines(self) -> list[str]:
        lines = [f"           between {self.low_ns / 1000:,.1f} and {self.high_ns / 1000:,.1f} µs"]
        return lines + [f"           ({reason})" for reason in self.reasons]

    def to_dict(self) -> dict[str, Any]:
        return {"low": self.low_ns, "high": self.high_ns, "reasons": list(self.reasons)}


def replay_ranks(
    traces: Sequence[Trace], what_ifs: Sequence[str] = (), network: str | None = None, bounds: Bounds | None = None
) -> Replay:
    """Predict the timeline of a trace or of all ranks of a job. Calls that enclose a selection are not replayed.

    Args:
        what_ifs: changes such as "kernel*0.5", in the order in which they are applied.
        network: a network such as "bandwidth=25,latency=5us". The result then has an `answer_range`.
        bounds: a function for changes relative to the device's peaks (`etplus.analysis.kernel_peaks.row_bounds`).

    Raises:
        ConvertError: no row of a trace has a time.
        UsageError: a change is invalid, or no communication can be estimated on the network.

    Example:
        >>> abs(replay_ranks([trace]).error) < 0.003
        True
    """
    graphs = [build_graph(without_enclosing(trace)) for trace in traces]
    constants = [fit_constants(graph) for graph in graphs]
    graph = join_ranks(graphs) if len(graphs) > 1 else graphs[0]
    changes = [parse_what_if(text) for text in what_ifs]
    return replay_changed(graph, constants, changes, None if network is None else parse_network(network), bounds)


def replay_changed(
    graph: ReplayGraph,
    constants: Sequence[Constants],
    changes: Sequence[WhatIf],
    network: Network | None = None,
    bounds: Bounds | None = None,
    before: Replay | None = None,
) -> Replay:
    """Replay a graph with changes. `before` is the replay without changes if it is already known.

    `answer_range` and `untraced` of the result are computed on first access. Untraced steps are not estimated for
    another network, because such estimates were correct for only 3 of 12 recorded jobs.
    """

    def changed(graph: ReplayGraph) -> ReplayGraph:
        return apply_what_ifs(graph, changes, constants, bounds)

    done = replay(changed(graph if network is None else on_network(graph, network)), constants)
    if network is not None:
        return replace(done, _range=partial(answer_range, graph, network, changes, constants, bounds))

    def untraced() -> UntracedAnswer | None:
        unchanged = before or (replay(graph, constants) if changes else done)
        return untraced_answer(unchanged, constants, changed)

    return replace(done, _untraced=untraced)


def answer_range(
    graph: ReplayGraph,
    network: Network,
    what_ifs: Sequence[WhatIf],
    constants: Constants | Sequence[Constants],
    bounds: Bounds | None = None,
) -> AnswerRange:
    """Return the range of the makespan that the replay predicts for the network and the what-ifs."""

    def answer(graph: ReplayGraph, network: Network = network, end: Any = "times") -> int:
        changed = apply_what_ifs(on_network(graph, network, end), what_ifs, constants, bounds)
        return replay(changed, constants).makespan_ns

    usual = answer(graph)
    moved: list[tuple[int, int, str]] = []
    for low, high, reason in _alternatives(graph, network, answer):
        below, _, above = sorted((low, usual, high))
        moved.append((usual - below, above - usual, f"{reason}: {below / 1e6:,.1f} to {above / 1e6:,.1f} ms"))
    moved = [move for move in sorted(moved, key=lambda move: -max(move[:2])) if max(move[:2]) > usual // 500]
    less, more = math.hypot(*(below for below, *_ in moved)), math.hypot(*(above for _, above, _ in moved))
    return AnswerRange(round(usual - less), round(usual + more), tuple(reason for *_, reason in moved))


def _alternatives(graph: ReplayGraph, network: Network, answer: Any) -> Iterator[tuple[int, int, str]]:
    """For each uncertain quantity, yield the answers for both ends of its range, and a description."""
    low, high = answer(graph, end="low"), answer(graph, end="high")
    yield low, high, "measured communication times relative to the formula"
    kinds = {comm.kind for trace in graph.traces for comm in find_communications(trace)}
    if graph.shared is not None and Type.ALL_TO_ALL in kinds - {entry.kind for entry in network.efficiency}:
        ends = [Efficiency(Type.ALL_TO_ALL, 0, by, by, by) for by in _ALL_TO_ALL]
        quick, slow = (replace(network, efficiency=(*network.efficiency, end)) for end in ends)
        yield answer(graph, quick), answer(graph, slow), "all-to-alls take 0.6 to 1.5 times the formula (not measured)"
    spread, why = _spread(graph)
    by = _TURNS if spread == _TURNS else _BANDWIDTH
    quick, slow = (network.faster(factor) for factor in (1 + by, 1 / (1 + by)))
    yield answer(graph, quick), answer(graph, slow), f"transfers {by:.0%} faster or slower"
    host = graph.edges.kind == HOST
    less, more = (answer(graph.scaled(host, factor)) for factor in (1 - spread, 1 + spread))
    yield less, more, f"host work {spread:.0%} less or more, {why}"
    if (shared := graph.shared) is not None:
        taken, plain = shared.beside
        if shared.slowdown > 1:
            beside = [(plain + round((taken - plain) * by), plain) for by in (0.6, 1.4)]
            reason = f"work during transfers takes {shared.slowdown:.2f} times as long, ±40% of the excess"
        else:
            beside = [(0, 0), (2 * _PLENTY, _PLENTY)]
            reason = "work during transfers takes up to twice as long (this job shows no slowdown)"
        less, more = (answer(replace(graph, shared=replace(shared, beside=end))) for end in beside)
        yield less, more, reason
    if any(has_assumed_waits(trace) for trace in graph.traces):
        ranks = [build_graph(trace, assumed_waits=False) for trace in graph.traces]
        free = answer(join_ranks(ranks) if len(ranks) > 1 else ranks[0])
        yield free, free, "unrecorded waits: some synchronizing calls waited for the latest work, or for nothing"


def _spread(graph: ReplayGraph) -> tuple[float, str]:
    """Return the share by which host work varies between runs, and the reason."""
    if np.any(graph.column("kind") == GPU):
        return _DEVICE_WORK, "as between runs"
    low, high = unevenness(graph)
    if high < _UNEVEN * low:
        return _HOST_WORK, "as between runs"
    return _TURNS, f"because the same calls take {low:.1f} to {high:.1f} times their median, so ranks share processors"
