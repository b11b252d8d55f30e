"""Prepare jobs that communicate on the host (as Gloo does) for a simulator. Times come from a replay on the network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from ..schemas.comm_types import RECV, SEND
from ..schemas.communications import find_communications
from ..timeline.beside_transfers import transfer_edges, undisturbed_lags
from ..timeline.collective_times import LevelSpan, collective_ns
from ..timeline.constants import fit_constants
from ..timeline.graph_building import build_graph
from ..timeline.graph_replay import Replay, replay
from ..timeline.network import as_recorded, on_network
from ..timeline.network_description import Network
from ..timeline.rank_coupling import join_ranks
from ..timeline.replay_graph import COMM, HOST, ORDER
from ..timeline.replay_summary import BaseError
from ..trace.columns import IntColumn, distinct, lists_by, mask_at
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.errors import UsageError
from ..trace.index import as_column
from ..trace.intervals import union
from ..trace.trace import Trace
from .astra_links import AstraLinks
from .collectives import Agreement, Communication, RankComms, RankRecording, survey


@dataclass(frozen=True)
class ReplayedRank:
    """A rank of a job after the replay on a network. Times are in ns.

    Attributes:
        trace: the trace with replayed times, counted from the start of the job. Backend operators have no times.
        start, end: int64, replay points at which each row starts and ends, numbered in thread order; −1 if it has none.
        released: int64 (n, 3), entries of (row of a communication, point that waits for it, row of the point).
        transferred: maps the id of a communication to the time when its data arrives.
        met_ns: maps the row of a sent message to the time when both its ranks are ready.
        measured_ns: maps the row of a communication to the recorded duration until its data arrived.
        beside: the rows of communications that transfer data while the rank runs operators.
    """

    trace: Trace
    start: IntColumn
    end: IntColumn
    released: IntColumn
    transferred: dict[int, int]
    met_ns: dict[int, int]
    measured_ns: dict[int, int]
    beside: frozenset[int]

    def survey(self, rank: int, unmatched: Container[int]) -> RankComms:
        comms = survey(self.trace, rank, unmatched)
        found = [replace(comm, start_ns=max(comm.start_ns, self.met_ns.get(comm.row, 0))) for comm in comms.found]
        return replace(comms, found=tuple(found))

    def waits(self, rows: IntColumn) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """Map computations to the communications they wait for. The dicts are for waits before and during
        computations."""
        before, inside = list[tuple[int, int]](), list[tuple[int, int]]()
        by_end = dict(zip(self.end[rows].tolist(), rows.tolist(), strict=True))
        threads: dict[int, tuple[IntColumn, IntColumn]] = {}
        order = rows[np.argsort(self.start[rows], kind="stable")]
        for thread in distinct(self.trace.nodes.thread[rows]).tolist():
            computations = order[self.trace.nodes.thread[order] == thread]
            threads[thread] = computations, self.start[computations]
        for comm, point, row in self.released.tolist():
            if point in by_end:
                inside.append((comm, by_end[point]))
                continue
            computations, starts = threads.get(int(self.trace.nodes.thread[row]), (rows[:0], rows[:0]))
            place = int(np.searchsorted(starts, point))
            if place < len(computations):
                before.append((comm, int(computations[place])))
        return _by_target(before), _by_target(inside)


def _by_target(pairs: list[tuple[int, int]]) -> dict[int, list[int]]:
    unique = np.unique(np.array(pairs, np.int64).reshape(-1, 2), axis=0)
    return lists_by(unique[:, 1].tolist(), unique[:, 0].tolist())


@dataclass(frozen=True)
class HostTimeline:
    """A job after replay on a network (see `as_recorded`). `base` is the replay's error on the recorded network."""

    ranks: dict[int, ReplayedRank]
    network: Network
    slowdown: float
    base: BaseError
    replay_notes: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        doubt = self.base.doubt
        warning = f"warning: do not rely on simulations of this set: {doubt}"
        return (*([warning] if doubt else []), *self.replay_notes)

    def start_skew(self) -> dict[int, int]:
        starts = {rank: int(replayed.trace.span[0]) for rank, replayed in self.ranks.items()}
        return {rank: start - min(starts.values()) for rank, start in starts.items()}


def host_timeline(
    traces: Mapping[int, Trace], recorded: Mapping[int, RankRecording], network: Network
) -> HostTimeline | None:
    """Return the timeline of a job that communicates on the host, or None for any other job."""
    if not recorded or not any(np.any(recording.comms.on_host == 1) for recording in recorded.values()):
        return None
    try:
        graphs = [build_graph(traces[rank]) for rank in recorded]
        graph = join_ranks(graphs)
        network = as_recorded(graph, network)
        constants = [fit_constants(graph_of_rank) for graph_of_rank in graphs]
        base = BaseError.of(replay(graph, constants))
        slowdown, plain = 1.0, graph
        if (shared := graph.shared) is not None and (slowdown := shared.slowdown) != 1:
            plain = replace(graph.with_latencies(undisturbed_lags(graph)), shared=replace(shared, beside=(0, 0)))
        done = replay(on_network(plain, network), constants)
    except UsageError:  # The ranks run collectives in contradictory orders, or there is no estimate.
        return None
    places = _PlacesOfRanks(done)
    ranks = {rank: _rank(done, places, k) for k, rank in enumerate(recorded)}
    return HostTimeline(ranks, network, slowdown, base, graph.notes)


class _PlacesOfRanks:
    def __init__(self, done: Replay) -> None:
        graph, edges = done.graph, done.graph.edges
        rank_of_row = graph.rank_of_row
        moves = transfer_edges(graph)
        rows = distinct(edges.owner[moves])
        self.ended = np.full(len(graph), -1, np.int64)
        self.ended[graph.end[rows]] = rows
        target_row, ended_row = graph.row[edges.target], self.ended[edges.source]
        releases = np.flatnonzero(np.isin(edges.kind, (COMM, ORDER)) & (ended_row >= 0) & (target_row >= 0))
        releases = releases[~mask_at(len(graph.start), rows)[target_row[releases]]]
        releases = releases[rank_of_row[target_row[releases]] == rank_of_row[ended_row[releases]]]
        work = np.flatnonzero((edges.kind == HOST) & (edges.owner >= 0) & (done.lag > 0))
        work = work[graph.column("scope")[edges.owner[work]] != ANNOTATION_SCOPE]
        self.moves, self.releases, self.work = (
            _by_rank(chosen, rank_of_row[row[chosen]], len(graph.traces))
            for chosen, row in ((moves, edges.owner), (releases, target_row), (work, edges.owner))
        )


def _by_rank(values: IntColumn, rank: IntColumn, ranks: int) -> list[IntColumn]:
    order = np.argsort(rank, kind="stable")
    return np.split(values[order], np.searchsorted(rank[order], np.arange(1, ranks)))


def _rank(done: Replay, places: _PlacesOfRanks, k: int) -> ReplayedRank:
    graph, edges = done.graph, done.graph.edges
    trace, first = graph.traces[k], int(graph.first_row[k])
    nodes = trace.nodes
    rows = slice(first, int(graph.first_row[k + 1]))
    start, end, timed = graph.start[rows], graph.end[rows], nodes.timed
    ts = np.where(timed, done.start[rows], nodes.ts)
    dur = np.where(timed, (done.end - done.start)[rows], nodes.dur)
    moves, releases = places.moves[k], places.releases[k]
    sent = [first + found.row for found in find_communications(trace) if found.kind == SEND]
    met = moves[np.isin(edges.owner[moves], sent) & (graph.row[edges.source[moves]] < 0)]
    owner, arrived = edges.owner[moves], graph.measured[edges.target[moves]]
    took = np.maximum(arrived - graph.measured[graph.start[owner]], 0)
    target = edges.target[releases]
    begin = done.time[edges.source[moves]]
    return ReplayedRank(
        trace.with_(ts=as_column(ts), dur=as_column(dur)),
        start,
        end,
        np.stack([places.ended[edges.source[releases]] - first, target, graph.row[target] - first], axis=1),
        dict(zip(nodes.id[owner - first].tolist(), done.time[edges.target[moves]].tolist(), strict=True)),
        dict(zip((edges.owner[met] - first).tolist(), done.time[edges.source[met]].tolist(), strict=True)),
        dict(zip((owner - first).tolist(), took.tolist(), strict=True)),
        frozenset((owner[_works(done, places.work[k], begin)] - first).tolist()),
    )


_MOMENT_NS = 100_000


def _works(done: Replay, work: IntColumn, times: IntColumn) -> npt.NDArray[np.bool_]:
    """For each time, return True if operators (the edges in `work`) fill most of the following `_MOMENT_NS`."""
    until = done.time[done.graph.edges.target[work]]
    busy = union(until - done.lag[work], until)
    return busy.between(times, times + _MOMENT_NS) > _MOMENT_NS // 2


def sized_by(agreement: Agreement, network: Network) -> Agreement:
    """Scale sizes to account for the network's efficiency, because the simulator does not model efficiency."""
    if not network.efficiency:
        return agreement

    def sized(comm: Communication) -> Communication:
        measured = network.efficiency_of(SEND if comm.kind == RECV else comm.kind, comm.size)
        if measured is None or comm.size == 0:
            return comm
        return replace(comm, size=max(round(comm.size * measured.times), 1))

    ranks = {rank: replace(own, found=tuple(map(sized, own.found))) for rank, own in agreement.ranks.items()}
    note = "communications that take longer than the formula predicts have enlarged sizes"
    return replace(agreement, ranks=ranks, notes=(*agreement.notes, note))


def with_slowed_work(
    agreement: Agreement, timeline: HostTimeline, sources: Mapping[int, int], links: AstraLinks | None = None
) -> tuple[dict[int, RankComms], tuple[str, ...]]:
    """Return the communications per rank, and notes. Communications that slow other work are split into two parts.
    During a transfer of length T, concurrent work advances by T / `slowdown`. Therefore, the work waits for the first T
    − T / `slowdown` of the transfer and overlaps the remaining part. The first part is a message to the next rank in
    the group, because a collective would not delay the last rank to arrive. `sources` maps ranks of the set to ranks of
    the timeline. If all links are identical and all collectives use rings, `links` is None."""
    if timeline.slowdown <= 1:
        return agreement.ranks, ()
    share, ranks = 1 - 1 / timeline.slowdown, dict(agreement.ranks)
    everyone = sorted(ranks)
    slowing, others = set[tuple[int, int]](), 0  # (group, index of a collective in the group)
    for rank, comms in ranks.items():
        beside = timeline.ranks[sources[rank]].beside
        slow = [(place, comm.kind in _ON_RINGS) for place, comm in _places(comms) if comm.row in beside]
        slowing |= {place for place, on_ring in slow if on_ring}
        others += sum(not on_ring for _, on_ring in slow)
    tag = max((comm.tag for comms in ranks.values() for comm in comms.found), default=0) + 1
    tags = dict(zip(sorted(slowing), range(tag, tag + len(slowing)), strict=True))

    def parts(place: tuple[int, int], comm: Communication, rank: int) -> tuple[Communication, ...]:
        members = agreement.groups.get(comm.group, everyone)
        if place not in slowing or len(members) < 2:
            return (comm,)
        own_place, count = members.index(rank), len(members)
        passed = collective_ns(comm.kind, comm.size, [LevelSpan(count, 1.0, 0.0)])  # The speed is 1 byte per ns.
        whole = 0.0 if links is None else links.transfer_ns(comm.kind, comm.size, members)

        def message(kind: int, source: int, peer: int) -> Communication:
            ends = members[source % count], members[(source + 1) % count]
            size = round(share * passed) if links is None else links.size_of(SEND, ends, share * whole)
            return replace(comm, kind=kind, size=max(size, 1), peer=members[peer % count], tag=tags[place], aside=True)

        sent, got = message(SEND, own_place, own_place + 1), message(RECV, own_place - 1, own_place - 1)
        size = round((1 - share) * comm.size)
        if links is not None:
            size = links.size_of(comm.kind, members, (1 - share) * whole)
        rest = replace(comm, size=max(size, 4))
        return (got, sent, rest) if own_place % 2 else (sent, got, rest)  # Alternating avoids a circular wait.

    for rank, comms in ranks.items():
        found = tuple(part for place, comm in _places(comms) for part in parts(place, comm, rank))
        ranks[rank] = replace(comms, found=found)
    longer = f"work during transfers takes {timeline.slowdown:.2f}× as long in this job; in the set, this work"
    notes = {
        f"{longer} waits for parts of {len(slowing):,} collectives, sent as messages to the next rank": len(slowing),
        f"{longer} is not slowed by {others:,} messages and other transfers": others,
    }
    return ranks, tuple(note for note, count in notes.items() if count)


_ON_RINGS = frozenset({Type.ALL_REDUCE, Type.REDUCE_SCATTER, Type.ALL_GATHER})


def _places(comms: RankComms) -> Iterator[tuple[tuple[int, int], Communication]]:
    """Yield each communication after its place, (group, number of earlier collectives in the group)."""
    count = Counter[int]()
    for comm in comms.found:
        yield (comm.group, count[comm.group]) if comm.kind >= 0 else (-1, -1), comm
        count[comm.group] += comm.kind >= 0
