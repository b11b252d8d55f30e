"""Traces replayed in one call: one by itself, several as the ranks of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ..trace.selection import without_enclosing
from ..trace.trace import Trace
from .answer_range import answer_range
from .constants import Constants, fit_constants
from .graph_building import build_graph
from .graph_replay import Replay, replay
from .network import Network, on_network, parse_network
from .rank_coupling import join_ranks
from .replay_graph import ReplayGraph
from .untraced import UntracedAnswer, untraced_answer
from .whatif import Bounds, WhatIf, apply_what_ifs, parse_what_if


def replay_ranks(
    traces: Sequence[Trace], what_ifs: Sequence[str] = (), network: str | None = None, bounds: Bounds | None = None
) -> Replay:
    """Predict the timeline of one trace, or of all ranks of a job; of a selection without the calls around it.

    Args:
        what_ifs: such as "kernel*0.5", applied in order.
        network: such as "bandwidth=25,latency=5us", applied first; the result then has an `answer_range`.
        bounds: for changes to a share of the device's peaks, see `etplus.analysis.event_bounds.row_bounds`.

    Raises:
        ConvertError: no row of a trace has a time.
        UsageError: an invalid change, or no communication for the network.

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
    """Replay a graph with changes; `answer_range` and `untraced` are computed when first asked for.

    Args:
        before: the replay without changes, if it is known.
    """

    def changed(graph: ReplayGraph) -> ReplayGraph:
        priced = graph if network is None else on_network(graph, network)
        return apply_what_ifs(priced, changes, constants, bounds)

    done = replay(changed(graph), constants)
    unchanged = before or (None if changes or network is not None else done)

    def untraced() -> UntracedAnswer | None:
        return untraced_answer(unchanged or replay(graph, constants), constants, changed)

    span = None if network is None else partial(answer_range, graph, network, changes, constants, bounds)
    return replace(done, _range=span, _untraced=untraced)
