"""What recording costs the host, and the replay graph without it: gains of host work are too large with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..replaying.replay_graph import HOST, ReplayGraph
from ..trace.columns import IntColumn, matching
from ..trace.kinds import GPU
from ..trace.tables import OP
from ..trace.trace import Trace

_TRIVIAL = re.compile(
    r"aten::(?:as_strided|view|_unsafe_view|_reshape_alias|detach|alias|_local_scalar_dense|lift_fresh)"
)
"""Operators that compute nothing and touch no data: what they take is their call, some 0.3 µs, and its recording."""
_OWN_NS = 300
_FEWEST = 8
"""Of fewer such calls the median says nothing."""


def event_cost_ns(trace: Trace) -> int:
    """ns that recording adds to each call of the host; 0 where the trace does not show it.

    The median time of operators that compute nothing, less what calling them takes by itself. With stacks and shapes it
    is 3 to 8 µs on recorded CPU steps, which took so many times their calls longer than without the profiler.
    """
    calls = trace.calls
    leaf = np.ones(len(calls), np.bool_)
    leaf[calls.parent[calls.parent >= 0]] = False
    trivial = leaf & (calls.kind == OP) & matching(calls.name, trace.names, _TRIVIAL.fullmatch)
    taken = trace.self_ns[trivial]
    return max(int(np.median(taken)) - _OWN_NS, 0) if len(taken) >= _FEWEST else 0


def without_recording(graph: ReplayGraph, cost_ns: Sequence[int]) -> ReplayGraph:
    """The graph with the host's time less what recording its calls cost: their own, and where a call took less than
    that, the pause before it.

    Args:
        cost_ns: of each rank, for each call.
    """
    edges = graph.edges
    cost = np.asarray(cost_ns, np.int64)[graph.rank_of_row]
    host = (graph.column("kind") != GPU) & (graph.start >= 0)
    cost[~host] = 0
    own = (edges.kind == HOST) & (edges.owner >= 0)
    owner = np.maximum(edges.owner, 0)
    total = np.bincount(edges.owner[own], weights=edges.lag[own], minlength=len(cost))
    share = 1 - np.minimum(cost, total) / np.maximum(total, 1)
    lag = np.where(own, np.rint(edges.lag * share[owner]), edges.lag)
    left: IntColumn = np.rint(np.maximum(cost - total, 0)).astype(np.int64)
    row = np.maximum(graph.row[edges.target], 0)
    pause = (edges.kind == HOST) & (edges.owner < 0) & (edges.source > 0) & (edges.target == graph.start[row])
    lag = np.where(pause, np.maximum(lag - left[row], 0), lag)
    return replace(graph, edges=replace(edges, lag=lag.astype(np.int64)))
