"""Couple ranks in one graph. A collective starts when its last rank is ready and ends on all ranks together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..jobs.clocks import clock_offsets, synchronizing, transfers
from ..jobs.job_ranks import ranks_of
from ..jobs.matching import Matched, match_collectives, match_messages
from ..jobs.rank_communications import communications
from ..schemas.communications import UNKNOWN, comm_rows
from ..trace.columns import IntColumn, lists_by
from ..trace.errors import UsageError
from ..trace.trace import Trace
from .beside_transfers import with_time_beside
from .predicted_graph import scheduled, without_turns
from .replay_graph import COMM, DURATION, HANDOFF, Edges, ReplayGraph, SharedTransfers, renumbered, topological
from .shared_links import share_alone


@dataclass(frozen=True)
class Rendezvous:
    """A collective of several ranks, or a message. The sender of a message is the first rank."""

    rank: tuple[int, ...]  # indices of the graphs that participate
    row: tuple[int, ...]  # for each graph, the communication's row in its trace
    transfer_ns: int  # duration in ns after all ranks are ready (`transfers`)
    own_ns: tuple[int, ...]  # for each rank, its additional time after the transfer; 0 on devices
    early_ns: tuple[int, ...]  # for each rank, the time from when it is ready to its recorded start
    on_host: bool = False
    message: bool = False
    sent_ns: int = -1  # ns after both ranks start until the sender of a host message ends; −1 if it ended before

    @property
    def blocked(self) -> list[tuple[int, int, int, int]]:
        blocked = [(*of, self.transfer_ns) for of in zip(self.rank, self.row, self.own_ns, strict=True)]
        if self.on_host and self.message:
            return ([(*blocked[0][:3], self.sent_ns)] if self.sent_ns >= 0 else []) + blocked[1:]
        return blocked


@dataclass(frozen=True)
class AllRendezvous:
    found: tuple[Rendezvous, ...]
    begin_ns: tuple[int, ...]  # start of every trace on the common clock
    notes: tuple[str, ...]


def join_ranks(graphs: Sequence[ReplayGraph]) -> ReplayGraph:
    """Return one graph of several ranks in which the ranks of a collective wait for each other.

    Clocks are adjusted so that collectives end at the same time. A rank continues after the transfer or, on the host,
    after its additional time.
    """
    if len(graphs) < 2:
        raise UsageError("give the files of at least two ranks")
    graphs = [without_turns(graph) for graph in graphs]  # the orders of different ranks may conflict
    traces = [graph.trace for graph in graphs]
    joined = find_rendezvous(traces)
    rendezvous, offset = joined.found, joined.begin_ns
    shift = np.cumsum([0, *(len(graph) - 1 for graph in graphs)])  # all ranks share one start point
    first_row = np.cumsum([0, *(len(trace) for trace in traces)])
    start, end = (
        np.concatenate([_moved(getattr(graph, name), by) for graph, by in zip(graphs, shift, strict=False)])
        for name in ("start", "end")
    )
    measured = np.concatenate([[0], *(graph.measured[1:] + by for graph, by in zip(graphs, offset, strict=True))])
    row = np.concatenate([[-1], *(_moved(graph.row[1:], by) for graph, by in zip(graphs, first_row, strict=False))])
    blocked = [(rank, row) for m in rendezvous for rank, row, *_ in m.blocked]
    met = lists_by((rank for rank, _ in blocked), (row for _, row in blocked))
    own = [_own_edges(graph, met.get(k, []), shift[k], first_row[k], offset[k]) for k, graph in enumerate(graphs)]
    joint, met_at = _join(rendezvous, first_row, start, end, measured, Edges.joined(own))
    edges, measured = Edges.joined([*own, joint]), np.concatenate([measured, met_at])
    order = topological(measured, edges)
    if order is None:
        raise UsageError("these ranks run collectives in conflicting orders; give the files of one job")
    row = np.concatenate([row, np.full(len(met_at), -1)])
    own_notes = [f"{trace.file}: {note}" for trace, graph in zip(traces, graphs, strict=True) for note in graph.notes]
    notes = (*joined.notes, *own_notes)
    shared = _shared(graphs, rendezvous, first_row, met_at)
    graph = ReplayGraph(tuple(traces), row, start, end, measured, edges, None, notes, shared)
    return with_time_beside(scheduled(renumbered(graph, order)))


def _shared(
    graphs: Sequence[ReplayGraph], rendezvous: Sequence[Rendezvous], first_row: IntColumn, met_at: IntColumn
) -> SharedTransfers | None:
    """Return the resources that host communications of all ranks share. A transfer involves several ranks."""
    own = [graph.shared for graph in graphs]
    parts = [(part, row) for part, row in zip(own, first_row.tolist(), strict=False) if part is not None]
    if not parts:
        return None
    queues = np.cumsum([0, *(len(part.workers) for part, _ in parts)])
    rows = np.concatenate([part.rows + row for part, row in parts])
    links = [links for part, _ in parts for links in part.links]
    alone, moved = (np.concatenate([getattr(part, name) for part, _ in parts]) for name in ("alone", "moved_ns"))
    place = {row: k for k, row in enumerate(rows.tolist())}
    met = [m for m in rendezvous if m.on_host]
    met_ns = [int(when) for m, when in zip(rendezvous, met_at.tolist(), strict=False) if m.on_host]
    sides = [[place[row + int(first_row[r])] for r, row in zip(m.rank, m.row, strict=True)] for m in met]
    together = [tuple(sorted({link for k in places for link in links[k]})) for places in sides]
    share = share_alone(met_ns, [begin + m.transfer_ns for begin, m in zip(met_ns, met, strict=True)], together)
    for m, places, part, all_links in zip(met, sides, share.tolist(), together, strict=True):
        alone[places], moved[places] = part, m.transfer_ns
        for k in places:
            links[k] = all_links
        if m.message and m.sent_ns < 0:  # a buffer holds the data until the receiver reads it
            links[places[0]], alone[places[0]] = (), 1.0
    queue = np.concatenate([_moved(part.queue, int(by)) for (part, _), by in zip(parts, queues, strict=False)])
    workers = tuple(workers for part, _ in parts for workers in part.workers)
    gap_ns = np.concatenate([part.gap_ns for part, _ in parts])
    return SharedTransfers(rows, tuple(links), alone, queue, workers, gap_ns, moved)


def _moved(numbers: IntColumn, by: int) -> IntColumn:
    return np.where(numbers >= 0, numbers + by, -1)


def _own_edges(graph: ReplayGraph, met: Sequence[int], shift: int, first_row: int, offset: int) -> Edges:
    """Return the edges of a rank with the point numbers of the coupled graph. Matched collectives have no durations."""
    edges = graph.edges.take(~((graph.edges.kind == DURATION) & np.isin(graph.edges.owner, met)))
    from_begin = edges.source == 0
    source, owner = np.where(from_begin, 0, edges.source + shift), _moved(edges.owner, first_row)
    return Edges(source, edges.target + shift, edges.lag + offset * from_begin, edges.kind, owner, edges.capped)


def _join(
    rendezvous: Sequence[Rendezvous],
    first_row: IntColumn,
    start: IntColumn,
    end: IntColumn,
    measured: IntColumn,
    own_edges: Edges,
) -> tuple[Edges, IntColumn]:
    arriving = [
        (k, row + first_row[r], early)
        for k, m in enumerate(rendezvous)
        for r, row, early in zip(m.rank, m.row, m.early_ns, strict=True)
    ]
    left = [(k, row + first_row[r], own, ns) for k, m in enumerate(rendezvous) for r, row, own, ns in m.blocked]
    to, ready, early = np.array(arriving, np.int64).reshape(-1, 3).T
    leaves, done, own, transfer = np.array(left, np.int64).reshape(-1, 4).T
    met_at = np.zeros(len(rendezvous), np.int64)
    np.maximum.at(met_at, to, measured[start[ready]] - early)
    handed = own_edges.take(own_edges.kind == HANDOFF)
    issue = np.arange(len(measured))
    issue[handed.target] = handed.source
    come = np.where(measured[start[ready]] - early == measured[issue[start[ready]]], issue[start[ready]], start[ready])
    early = early - (measured[start[ready]] - measured[come])
    late = np.flatnonzero(own)
    arrival = len(measured) + len(rendezvous) + np.arange(len(late))
    until = end[done]
    until[late] = arrival
    parts = [Edges.of(COMM, come, len(measured) + to, -early)]
    parts.append(Edges.of(COMM, len(measured) + leaves, until, transfer, done))
    parts.append(Edges.of(HANDOFF, arrival, end[done[late]], own[late]))
    return Edges.joined(parts), np.concatenate([met_at, measured[end[done[late]]] - own[late]])


def find_rendezvous(traces: Sequence[Trace]) -> AllRendezvous:
    """Match the communications of the ranks in the same way as job linking, and compare the ranks' clocks."""
    index = {rank: k for k, rank in enumerate(ranks_of(traces))}
    comms = {rank: communications(traces[k], unknown=True) for rank, k in index.items()}
    collectives, counts, _ = match_collectives(comms)
    messages, pairs = match_messages(comms)
    recorded = all(trace.times_recorded for trace in traces)
    clocks = clock_offsets(synchronizing(collectives) or collectives, messages) if recorded else []
    offsets = {clock.rank: clock.offset_ns for clock in clocks}
    rendezvous, rows = list[Rendezvous](), list[dict[int, int]]()  # for each trace, a dict from node ids to rows
    for trace in traces:
        communicating = comm_rows(trace)
        rows.append(dict(zip(trace.nodes.id[communicating].tolist(), communicating.tolist(), strict=True)))
    for matched, count in zip(collectives, counts, strict=True):
        sure = (matched.kind != UNKNOWN) | (count.matched == count.collectives)
        rendezvous += _rendezvous(traces, rows, index, matched, np.flatnonzero(sure), offsets)
    for matched in messages:
        rendezvous += _rendezvous(traces, rows, index, matched, np.arange(len(matched.kind)), offsets)
    begin = [traces[k].base_time_ns + traces[k].span[0] - offsets.get(rank, 0) for rank, k in index.items()]
    notes = [
        f"{count.collectives - count.matched} of {count.collectives} collectives of "
        f"{f'group {count.name}' if count.name else 'all ranks'} are not coupled: they differ between ranks"
        for count in counts
        if count.matched < count.collectives
    ]
    apart = sum(pair.unmatched_sends + pair.unmatched_receives + 2 * pair.other_size for pair in pairs)
    notes += [f"{apart} sends and receives without a partner are not coupled"] * (apart > 0)
    return AllRendezvous(tuple(rendezvous), tuple(at - min(begin) for at in begin), tuple(notes))


def _rendezvous(
    traces: Sequence[Trace],
    rows: Sequence[dict[int, int]],
    index: Mapping[int, int],
    matched: Matched,
    chosen: IntColumn,
    offsets: Mapping[int, int],
) -> list[Rendezvous]:
    ranks = tuple(index[rank] for rank in matched.ranks)
    if len(set(ranks)) < 2:
        return []
    moved = transfers(matched, offsets)
    ahead = np.array([offsets.get(rank, 0) for rank in matched.ranks], np.int64)
    arrived = (matched.start - ahead).max(axis=1) + moved.duration
    own = np.maximum(matched.end - ahead - arrived[:, None], 0)
    own[~moved.seen] = 0
    duration, sent = moved.duration.copy(), np.full(len(matched.kind), -1, np.int64)
    if len(ranks) == 2:  # a host message ends when the receiver has the data, even if the sender ended earlier
        there = matched.on_host & (matched.kind < 0)
        came = (matched.start - ahead).max(axis=1)
        done = matched.end - ahead - came[:, None]
        duration[there] = np.maximum(done[there, 1], 0)
        own[there] = 0
        sent[there] = np.where(done[there, 0] >= 0, np.minimum(done[there, 0], duration[there]), -1)
    of_rank = zip(ranks, matched.node.T.tolist(), strict=True)
    row = np.array([[rows[k][node] for node in nodes] for k, nodes in of_rank], np.int64)
    begin = np.stack([traces[k].nodes.ts[rows] + traces[k].base_time_ns for k, rows in zip(ranks, row, strict=True)])
    sides = (row.T, own, begin.T - matched.start)
    own_rows, own_ns, early_ns = ([tuple(side) for side in column[chosen].tolist()] for column in sides)
    others = (column[chosen].tolist() for column in (matched.on_host, matched.kind < 0, sent))
    columns = own_rows, duration[chosen].tolist(), own_ns, early_ns, *others
    return [Rendezvous(ranks, *values) for values in zip(*columns, strict=True)]
