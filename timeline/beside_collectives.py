"""What kernels take beside collectives on a device, which take multiprocessors and memory bandwidth from them.

Estimated from kernels of the same name, below operators with the same shapes, of which some ran beside collectives of
their rank and some did not. On another network other kernels run beside collectives, or for longer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..trace.call_tree import nearest
from ..trace.columns import IntColumn
from ..trace.index import Row
from ..trace.intervals import union
from ..trace.kinds import GPU
from .beside_transfers import alike_work, signature_of_rows, time_beside, time_within
from .replay_graph import DURATION, ReplayGraph, SharedDevice
from .shared_links import shared_times

_ROUNDS = 4
"""In each, kernels take as long as the overlap of the round before says."""


def beside_collectives(graph: ReplayGraph, collectives: IntColumn) -> ReplayGraph:
    """The graph with kernels as long as they take by themselves; what collectives then take from them the replay adds.
    The graph as it is where no collective is on a device, or nothing shows what it takes.

    Args:
        graph: with `device` what that is taken to be; None for what the trace shows.
        collectives: int64, rows of communications.
    """
    rows = collectives[(graph.column("kind")[collectives] == GPU) & (graph.start[collectives] >= 0)]
    if not len(rows):
        return graph
    device = graph.device or SharedDevice(rows)
    kernels = _kernels(graph, device)
    covered = _covered(graph, device, kernels, graph.measured)
    if graph.device is None:
        device = SharedDevice(rows, time_beside(alike_work(_kernel_times(graph, kernels, covered))))
    if device.slowdown == 1:
        return replace(graph, device=device)
    lag = graph.edges.lag.copy()
    lag[kernels] -= np.rint(covered * (1 - 1 / device.slowdown)).astype(np.int64)
    note = f"kernels take {device.slowdown:.2f} times as long while a collective of their rank runs, as recorded"
    graph = replace(graph.with_latencies(lag), device=replace(device, alone=True))
    return replace(graph, notes=(*graph.notes, note))


def times_beside_collectives(graph: ReplayGraph, lag: IntColumn) -> tuple[IntColumn, IntColumn]:
    """The time of each point, int64 ns, and the lags with what kernels lost to collectives beside them.

    Args:
        graph: whose kernels take what they do by themselves (`beside_collectives`).
        lag: int64 ns, one entry an edge.
    """
    device, counted = graph.device, lag
    assert device is not None
    lost, kernels = 1 - 1 / device.slowdown, _kernels(graph, device)
    for _ in range(_ROUNDS):
        time, counted = times_of(graph, counted)
        share = np.minimum(_covered(graph, device, kernels, time) / np.maximum(counted[kernels], 1), 1)
        counted = lag.copy()
        counted[kernels] = np.rint(lag[kernels] / (1 - share * lost)).astype(np.int64)
    return times_of(graph, counted)


def times_of(graph: ReplayGraph, lag: IntColumn) -> tuple[IntColumn, IntColumn]:
    """The time of each point, int64 ns, and the lags with what transfers of the host took."""
    return shared_times(graph, lag) if graph.shared is not None else (graph.runs.longest(lag), lag)


def _kernels(graph: ReplayGraph, device: SharedDevice) -> IntColumn:
    """Positions of the edges that are kernels, copies and fills."""
    edges = graph.edges
    other = np.ones(len(graph.start), np.bool_)
    other[device.rows] = False
    work = np.flatnonzero((edges.kind == DURATION) & (edges.owner >= 0))
    found: IntColumn = work[(other & (graph.column("kind") == GPU))[edges.owner[work]]]
    return found


def _covered(graph: ReplayGraph, device: SharedDevice, kernels: IntColumn, time: IntColumn) -> npt.NDArray[np.float64]:
    """For how long of each kernel, ns, a collective of its rank runs at some times of points."""
    edges = graph.edges
    later = graph.rank_of_row * (int(time.max()) + 1)  # ranks one after the other: none meets another's collectives
    windows = union(*(time[of[device.rows]] + later[device.rows] for of in (graph.start, graph.end)))
    begin, end = (time[of[kernels]] + later[edges.owner[kernels]] for of in (edges.source, edges.target))
    return time_within(windows, end) - time_within(windows, begin)


def _kernel_times(
    graph: ReplayGraph, kernels: IntColumn, covered: npt.NDArray[np.float64]
) -> Iterator[tuple[Hashable, int, int]]:
    """See `alike_work`."""
    owner, took = graph.edges.owner[kernels], graph.edges.lag[kernels]
    order = np.argsort(owner)
    parts = np.split(order, np.searchsorted(owner[order], graph.first_row[1:-1]))
    for first, trace, mine in zip(graph.first_row.tolist(), graph.traces, parts, strict=False):
        signature = signature_of_rows(trace)
        rows = owner[mine] - first
        above = nearest(rows, trace.parent_row, signature >= 0)
        for at, row, operator in zip(mine.tolist(), rows.tolist(), above.tolist(), strict=True):
            if operator >= 0:
                key = trace.name_of(Row(row)), trace.signatures[int(signature[operator])].label
                yield key, int(took[at]), round(float(covered[at]))
