"""Jobs of the host in simulated sets: their computations without what transfers beside them took of processors.

A simulator gives a computation its time, whatever runs beside it, and a wait its dependency. So each rank's times are
shrunk to what they would be without the slowdown that the job itself shows (`beside_transfers`); a collective ends
where its caller resumed (`with_settled_ends`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from ..replaying.beside_transfers import plain_traces
from ..replaying.graph_building import build_graph
from ..replaying.host_backends import with_settled_ends
from ..replaying.network import Network
from ..replaying.rank_coupling import join_ranks
from ..replaying.recorded_efficiency import as_recorded
from ..schemas.comm_types import RECV, SEND
from ..trace.columns import IntColumn
from ..trace.errors import UsageError
from ..trace.index import as_column
from ..trace.trace import Trace
from .collectives import Agreement, Communication, RankRecording

Clock = Callable[[IntColumn], IntColumn]


def host_clocks(
    traces: Mapping[int, Trace], recorded: Mapping[int, RankRecording], network: Network
) -> tuple[dict[int, Clock], Network]:
    """Of each rank of a job whose communications run on the host a function from its times to shrunk ones; nothing for
    other jobs, and for one rank. And the network with what the job itself says of it (`as_recorded`).

    Args:
        recorded: how each of several ranks was recorded.
    """
    if not recorded or not any(np.any(recording.comms.on_host == 1) for recording in recorded.values()):
        return {}, network
    given = [traces[rank] for rank in recorded]
    try:
        graph = join_ranks([build_graph(trace) for trace in given])
    except UsageError:  # orders that contradict each other; `check` names them
        return {}, network
    return dict(zip(recorded, plain_traces(given, graph), strict=True)), as_recorded(graph, network)[0]


def on_clock(trace: Trace, clock: Clock) -> Trace:
    """A trace on its rank's shrunk clock."""
    trace = with_settled_ends(trace)
    ts = np.where(trace.timed, clock(trace.ts), trace.ts)
    dur = np.where(trace.timed, clock(trace.finish) - ts, trace.dur)
    return trace.with_(ts=as_column(ts), dur=as_column(dur))


def moved_times(times: Mapping[int, int], clock: Clock) -> dict[int, int]:
    """Times by some key, on a rank's shrunk clock."""
    return dict(zip(times, clock(np.fromiter(times.values(), np.int64, len(times))).tolist(), strict=True))


def sized_by(agreement: Agreement, network: Network) -> Agreement:
    """The communications with sizes that take on a plain network what theirs take on this one: times its efficiency."""
    if not network.efficiency:
        return agreement

    def sized(comm: Communication) -> Communication:
        of = network.efficiency_of(SEND if comm.kind == RECV else comm.kind, comm.size)
        return comm if of is None or comm.size == 0 else replace(comm, size=max(round(comm.size * of.times), 1))

    ranks = {rank: replace(of, found=tuple(sized(comm) for comm in of.found)) for rank, of in agreement.ranks.items()}
    note = "sizes of kinds that take longer than the formula are as many times larger, so that their times agree"
    return replace(agreement, ranks=ranks, notes=(*agreement.notes, note))
