"""What the edges of one rank's replay graph take: work by a fitted model, all other lags as the trace itself has them.

Work are GPU events and collectives; if asked for, also the operators' own times of a trace without GPU events. What
else a host does, and what a launch, a stream or a thread waits, says nothing of another job: it stays as recorded, or
is scaled to the speed of another host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..measuring.lookup import EXECUTED
from ..replaying.edge_latencies import EdgeLatencies, host_collective_keys, places
from ..replaying.replay_graph import HOST, ReplayGraph
from ..trace.columns import IntColumn
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.host_waits import LONG_PAUSE_NS
from ..trace.index import Row
from ..trace.medians import median
from ..trace.trace import Trace
from .costs.measured_tasks import MeasuredTask, cpu_tasks, medians
from .costs.task import Estimate
from .fitting import self_time
from .pricing import UNKNOWN, Pricing

_SAME_PLACE, _EQUAL = "same place", "measured"
_LEAST_ALIKE = 8
"""So many distinct equal calls tell the speed of one machine from that of another; fewer may have been disturbed."""


@dataclass(frozen=True)
class PricedEdges:
    """Lags of a graph.

    Attributes:
        lag: int64 ns, one an edge. how: of each edge that the model is asked for, what priced it; `UNKNOWN` where
            nothing did and it is as recorded.
        recorded_ns: host work that the model is not asked for.
    """

    lag: IntColumn
    how: Mapping[int, str]
    recorded_ns: int

    @property
    def unknown(self) -> float:
        """Share of the edges that the model is asked for and has no counterpart of."""
        return sum(one == UNKNOWN for one in self.how.values()) / max(len(self.how), 1)


def price_edges(
    graph: ReplayGraph, trace: Trace, of_row: IntColumn, table: EdgeLatencies, pricing: Pricing, *, speed: float,
    executed: Mapping[Row, float], operators: bool, reshaped: bool = False, moved: bool = False,
) -> PricedEdges:  # fmt: skip
    """Price the work of some iterations.

    In order: operators that were executed here, the same place in the traces fitted on, equal collectives, the cost
    models.

    Args:
        trace: with the shapes to be priced. of_row: int64, the iteration of each row, −1 for rows that stay.
        speed: what own times of operators are multiplied with; see `host_speed`. operators: price them.
        executed: own times of operators, ns, by row.
        reshaped: times at the same place are of other shapes or types. moved: GPU events are priced for another device.
    """
    edges, at = graph.edges, places(graph, trace, of_row)
    event_of = {row: event for event, row in enumerate(trace.gpu.source.tolist())}
    collectives = {} if reshaped else host_collective_keys(graph.trace)
    own = np.flatnonzero((edges.kind == HOST) & np.isin(edges.owner, list(executed)))
    own = own[of_row[edges.owner[own]] >= 0]
    found = dict[int, Estimate | None]()
    parts = defaultdict[Row, list[int]](list)  # host work without a place, by operator
    owners, kinds = edges.owner[at.edges].tolist(), edges.kind[at.edges].tolist()
    for edge, place, kind, owner in zip(at.edges.tolist(), at.place, kinds, owners, strict=True):
        if kind == HOST and not operators:
            continue
        event = event_of.get(owner)
        known = None if reshaped or (moved and event is not None) else table.places.get(place)
        if known is not None:
            ratio = table.host_ratio * speed if kind == HOST else table.device_ratio if event is not None else 1.0
            found[edge] = Estimate(known * ratio, _SAME_PLACE)
        elif event is not None:
            found[edge] = pricing.event(event)
        elif kind == HOST:
            parts[owner].append(edge)
            found[edge] = None
        else:
            equal = table.collectives.get(collectives.get(owner, ""))
            found[edge] = None if equal is None else Estimate(equal, _EQUAL)
    whole = graph.durations
    for owner, estimate in _own_times(graph, trace, of_row, pricing, parts, speed).items():
        found |= _parts(graph, parts[owner], whole[owner], estimate)
    for edge, owner in zip(own.tolist(), edges.owner[own].tolist(), strict=True):
        found |= _parts(graph, [edge], whole[owner], Estimate(executed[owner], EXECUTED))
    lag = edges.lag.copy()
    for edge, one in found.items():
        if one is not None and one.how != UNKNOWN:
            lag[edge] = round(one.ns)
    host = np.setdiff1d(np.flatnonzero(edges.kind == HOST), list(found))
    host = host[of_row[graph.row[edges.target[host]]] >= 0]
    how = {edge: UNKNOWN if one is None else one.how for edge, one in found.items()}
    return PricedEdges(lag, how, int(edges.lag[host].sum()))


def _own_times(
    graph: ReplayGraph, trace: Trace, of_row: IntColumn, pricing: Pricing, wanted: Mapping[Row, Sequence[int]],
    speed: float,
) -> dict[Row, Estimate]:  # fmt: skip
    """Own times of operators by the cost models, by row; without those that the model has not seen."""
    calls, _ = self_time(graph, trace, of_row)
    calls = calls[np.isin(trace.calls.source[calls], list(wanted))]
    rows, tasks = trace.calls.source[calls].tolist(), cpu_tasks(trace, calls)
    prices = ((row, pricing.call(task)) for row, task in zip(rows, tasks, strict=True))
    return {row: Estimate(one.ns * speed, one.how) for row, one in prices if one is not None}


def _parts(graph: ReplayGraph, edges: Sequence[int], whole: int, estimate: Estimate) -> dict[int, Estimate]:
    """What parts of an operator's own time take, if the whole takes so long: in proportion to the recorded ones."""
    shares = [int(graph.edges.lag[edge]) / whole if whole else 1 / len(edges) for edge in edges]
    return {edge: Estimate(estimate.ns * share, estimate.how) for edge, share in zip(edges, shares, strict=True)}


class HostSpeed(NamedTuple):
    """How two hosts compare.

    Attributes:
        ratio: what operators take on the host of a trace over what equal ones took in the traces fitted on: the median
            over distinct operators, each the median of its calls. 1 where the two have next to none in common.
        unknown: share of the trace's own time in operators that none of the traces fitted on has; 1 with that ratio.
    """

    ratio: float
    unknown: float


def host_speed(graph: ReplayGraph, trace: Trace, of_row: IntColumn, known: Sequence[MeasuredTask]) -> HostSpeed:
    """Compare the host of a trace with that of the traces fitted on.

    Args:
        trace: as recorded, without other shapes. known: CPU operators of the traces fitted on.
    """
    calls, own = self_time(graph, trace, of_row)
    took = {one.task: one.ns for one in known}
    here = [one for one in medians(cpu_tasks(trace, calls), own.tolist()) if one.ns > 0]
    ratios = [one.ns / took[one.task] for one in here if took.get(one.task, 0) > 0]
    if len(ratios) < _LEAST_ALIKE:
        return HostSpeed(1.0, 1.0)
    missing = sum(one.ns * one.count for one in here if one.task not in took)
    return HostSpeed(median(ratios), missing / sum(one.ns * one.count for one in here))


def host_work(graph: ReplayGraph, of_row: IntColumn) -> IntColumn:
    """Positions of the edges of some iterations that are work of a host, of which another one takes more or less: all
    but long pauses outside of calls, which may be waits."""
    edges, trace = graph.edges, graph.trace
    host = np.flatnonzero(edges.kind == HOST)
    host = host[of_row[graph.row[edges.target[host]]] >= 0]
    owner = edges.owner[host]
    pause = (owner < 0) | (trace.scope[owner] == ANNOTATION_SCOPE)
    work: IntColumn = host[~pause | (edges.lag[host] <= LONG_PAUSE_NS)]
    return work
