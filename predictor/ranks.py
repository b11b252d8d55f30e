"""Ranks of a job as one graph: collectives begin to transfer when their last rank is ready, and end together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from ..trace.columns import IntColumn
from ..trace.errors import UsageError
from ..trace.trace import Trace
from .constants import Constants, fit_constants
from .graph import COMM, DURATION, Edges, ReplayGraph
from .order import renumbered, topological
from .replay import Replay, replay

__all__ = ["Meeting", "couple", "match_collectives", "replay_ranks"]


@dataclass(frozen=True)
class Meeting:
    """One collective of several ranks.

    Attributes:
        rank: indices of the graphs. row: of each, the row of its kernel in its document.
        transfer_ns: what the collective takes when all are ready: the least duration over the ranks.
    """

    rank: tuple[int, ...]
    row: tuple[int, ...]
    transfer_ns: int


def replay_ranks(graphs: Sequence[ReplayGraph], constants: Sequence[Constants] | None = None) -> Replay:
    """Replay ranks of a job together.

    Args:
        graphs: one a rank, each made by `build_graph` (what-ifs may have been applied).
        constants: of each rank; fitted if None.

    Returns:
        a replay of the coupled graph: rows and points of all ranks; see `couple`.
    """
    constants = [fit_constants(graph) for graph in graphs] if constants is None else constants
    return replay(couple(graphs), constants)


def couple(graphs: Sequence[ReplayGraph]) -> ReplayGraph:
    """One graph of several, in which the kernels of a collective wait for each other.

    A matched kernel's duration is no edge any more: all its ranks' starts lead to a meeting, from which each rank's
    end follows after the transfer. The ranks' clocks are set so that the collectives end together.

    Raises:
        UsageError: fewer than two ranks.
    """
    if len(graphs) < 2:
        raise UsageError("coupling ranks takes the files of two ranks or more")
    documents = [graph.document for graph in graphs]
    meetings, notes = match_collectives(documents)
    offset = _offsets(documents, meetings)
    shift = np.cumsum([0, *(len(graph) - 1 for graph in graphs)])  # a rank's own beginning is the common one
    first_row = np.cumsum([0, *(len(document) for document in documents)])
    start, end = (
        np.concatenate([_moved(getattr(graph, name), by) for graph, by in zip(graphs, shift, strict=False)])
        for name in ("start", "end")
    )
    measured = np.concatenate([[0], *(graph.measured[1:] + by for graph, by in zip(graphs, offset, strict=True))])
    row = np.concatenate([[-1], *(_moved(graph.row[1:], by) for graph, by in zip(graphs, first_row, strict=False))])
    joint, met_at = _meet(meetings, first_row, start, end, measured)
    own = [_own_edges(graph, meetings, k, shift[k], first_row[k], offset[k]) for k, graph in enumerate(graphs)]
    edges, measured = Edges.joined([*own, joint]), np.concatenate([measured, met_at])
    order = topological(measured, edges)
    if order is None:
        raise UsageError("the collectives of these ranks are in contradicting orders; give the files of one job")
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    start, end = (np.where(of >= 0, number[of], -1) for of in (start, end))
    row = np.concatenate([row, np.full(len(meetings), -1)])[order]
    notes += [f"{document.file}: {note}" for document, graph in zip(documents, graphs, strict=True)
              for note in graph.notes]  # fmt: skip
    edges = renumbered(edges, number)
    return ReplayGraph(tuple(documents), row, start, end, measured[order], edges, None, tuple(notes))


def _moved(numbers: IntColumn, by: int) -> IntColumn:
    return np.where(numbers >= 0, numbers + by, -1)


def _own_edges(
    graph: ReplayGraph, meetings: Sequence[Meeting], rank: int, shift: int, first_row: int, offset: int
) -> Edges:
    """A rank's edges in the numbers of the coupled graph, without the durations of its matched collectives."""
    met = [m.row[m.rank.index(rank)] for m in meetings if rank in m.rank]
    edges = graph.edges.take(~((graph.edges.kind == DURATION) & np.isin(graph.edges.owner, met)))
    from_begin = edges.source == 0
    return Edges(
        np.where(from_begin, 0, edges.source + shift), edges.target + shift, edges.lag + offset * from_begin,
        edges.kind, _moved(edges.owner, first_row), edges.capped,
    )  # fmt: skip


def _meet(
    meetings: Sequence[Meeting], first_row: IntColumn, start: IntColumn, end: IntColumn, measured: IntColumn
) -> tuple[Edges, IntColumn]:
    """Edges to and from the meetings, whose points follow the others, and the measured time of each."""
    rank = np.array([r for m in meetings for r in m.rank], np.int64)
    row = np.array([r for m in meetings for r in m.row], np.int64) + first_row[rank]
    meeting = np.repeat(np.arange(len(meetings)), [len(m.rank) for m in meetings])
    transfer = np.array([m.transfer_ns for m in meetings], np.int64)[meeting]
    met_at, points = np.zeros(len(meetings), np.int64), len(measured)
    np.maximum.at(met_at, meeting, measured[start[row]])
    ready = Edges.of(COMM, start[row], points + meeting, np.zeros_like(row))
    done = Edges.of(COMM, points + meeting, end[row], transfer, row)
    return Edges.joined([ready, done]), met_at


def _offsets(documents: Sequence[Trace], meetings: Sequence[Meeting]) -> list[int]:
    """ns from the common beginning to each rank's own.

    Clocks of the ranks are taken as they are, and then set right by the median difference of the ends of collectives
    to those of the first rank that has any.
    """
    begin = [document.base_time_ns + document.span[0] for document in documents]
    late: list[list[int]] = [[] for _ in documents]
    for m in meetings:
        ends = [documents[r].base_time_ns + int(documents[r].finish[row]) for r, row in zip(m.rank, m.row, strict=True)]
        for r, at in zip(m.rank, ends, strict=True):
            late[r].append(at - ends[0])
    begin = [at - (int(np.median(off)) if off else 0) for at, off in zip(begin, late, strict=True)]
    return [at - min(begin) for at in begin]


def match_collectives(documents: Sequence[Trace]) -> tuple[list[Meeting], list[str]]:
    """Which kernels of the ranks are one collective: by process group and sequence number, else by order in the group.

    Returns:
        the meetings; and sentences on groups that could not be matched.
    """
    groups: dict[Hashable, dict[int, list[int]]] = {}
    for rank, document in enumerate(documents):
        rows = sorted(document.comm, key=lambda row: (int(document.ts[row]), row))
        for row in rows:
            if document.timed[row]:
                groups.setdefault(_group(document, row), {}).setdefault(rank, []).append(row)
    meetings, notes = [], []
    for group, members in groups.items():
        if len(members) < 2:
            continue
        named = {rank: _numbered(documents[rank], rows) for rank, rows in members.items()}
        if any(named_rows is None for named_rows in named.values()):
            counts = {len(rows) for rows in members.values()}
            if len(counts) > 1:
                notes.append(f"collectives of group {group!r} are not coupled: {sorted(counts)} of them in the ranks")
                continue
            named = {rank: dict(enumerate(rows)) for rank, rows in members.items()}
        meetings += _meetings(documents, {rank: of for rank, of in named.items() if of is not None})
    return meetings, notes


def _group(document: Trace, row: int) -> Hashable:
    comm = document.comm[row]
    name = comm.pg_name or ""
    ranks = comm.pg_ranks or document.process_groups.get(name)
    pair = (comm.src_rank, comm.dst_rank) if comm.collective in ("send", "recv") else None
    return name, None if ranks is None else tuple(ranks), pair


def _numbered(document: Trace, rows: Sequence[int]) -> dict[int, int] | None:
    """Sequence number to row, None if they have none or one twice."""
    numbers: dict[int, int] = {}
    for row in rows:
        seq = document.comm[row].seq
        if seq is None or seq in numbers:
            return None
        numbers[seq] = row
    return numbers


def _meetings(documents: Sequence[Trace], named: dict[int, dict[int, int]]) -> list[Meeting]:
    meetings = []
    for number in sorted(set().union(*named.values())):
        met = {rank: rows[number] for rank, rows in named.items() if number in rows}
        kinds = {documents[rank].comm[row].collective for rank, row in met.items()} - {"send", "recv"}
        if len(met) > 1 and len(kinds) <= 1:
            least = min(int(documents[rank].dur[row]) for rank, row in met.items())
            meetings.append(Meeting(tuple(met), tuple(met.values()), least))
    return meetings
