"""Collectives and messages matched over the ranks of a job; what does not match is named with group and place."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..schemas.comm_types import SEND, WORLD, Group
from ..trace.columns import IntColumn
from .job_report import GroupCounts, Mismatch, Pair
from .lineup import LineUp, line_up
from .lineup import Sequence as Collectives
from .rank_communications import Communications, kind_name

__all__ = ["Matched", "match_collectives", "match_messages", "paired"]

Ranks = Mapping[int, Communications]
Kind = Literal["missing", "size", "order", "type"]


@dataclass(frozen=True)
class Matched:
    """The collectives that all ranks of a group have alike; or the messages from one rank to another.

    Attributes:
        group: its name; of messages "".
        ranks: (r,) the ranks; of messages the sender and the receiver.
        position: int64 (n,), place in the order of the group.
        kind, bytes: int64 (n,), of the lowest rank.
        node: int64 (n, r), ids.
        start, end: int64 (n, r), wall-clock ns by each rank's own clock.
        on_host: bool (n,), whether it runs on the host on all ranks.
    """

    group: str
    ranks: tuple[int, ...]
    position: IntColumn
    kind: IntColumn
    bytes: IntColumn
    node: IntColumn
    start: IntColumn
    end: IntColumn
    on_host: npt.NDArray[np.bool_]


def match_collectives(ranks: Ranks) -> tuple[list[Matched], list[GroupCounts], list[Mismatch]]:
    """Match the collectives of every group over those of its ranks that are given."""
    matched, counts, mismatches = [], [], []
    for group, members in sorted(_members(ranks).items()):
        rows = {rank: _rows(ranks[rank], group) for rank in members}
        if not any(map(len, rows.values())):
            continue
        sequences = {rank: _sequence(ranks[rank], at) for rank, at in rows.items()}
        common = _most_common(sequences)
        ups = {rank: line_up(common, own) for rank, own in sequences.items()}
        whole = np.flatnonzero(np.all([up.at >= 0 for up in ups.values()], axis=0))
        column = np.stack([rows[rank][up.at[whole]] for rank, up in ups.items()], axis=1)
        matched.append(_matched(ranks, group[0], members, whole, column))
        case = _Case(group[0], members, ranks, sequences, common, ups)
        extras = list(case.extras())
        mismatches += [*case.deviations(), *extras]
        kinds = Counter(map(kind_name, common.kind.tolist()))
        absent = tuple(rank for rank in group[1] if rank not in members)
        total = len(common) + len(extras)
        counts.append(GroupCounts(group[0], members, absent, total, len(whole), dict(sorted(kinds.items()))))
    return matched, counts, mismatches


def _matched(ranks: Ranks, group: str, members: tuple[int, ...], position: IntColumn, rows: IntColumn) -> Matched:
    """What matches, by its rows on each rank, int64 (n, r)."""
    lowest = ranks[members[0]]
    columns = [
        np.stack([getattr(ranks[rank], key)[rows[:, i]] for i, rank in enumerate(members)], axis=1)
        for key in ("node", "start", "end", "on_host")
    ]
    node, start, end, on_host = columns
    kind, size = lowest.kind[rows[:, 0]], lowest.bytes[rows[:, 0]]
    return Matched(group, members, position, kind, size, node, start, end, on_host.min(axis=1) > 0)


def _members(ranks: Ranks) -> dict[Group, tuple[int, ...]]:
    """The groups in use, and those of the ranks that are in them."""
    users: defaultdict[Group, list[int]] = defaultdict(list)
    for rank in sorted(ranks):
        for group in ranks[rank].groups:
            users[group].append(rank)
    present = tuple(sorted(ranks))
    return {
        group: present if group == WORLD else tuple(r for r in present if r in group[1]) if group[1] else tuple(of)
        for group, of in users.items()
    }


def _rows(comms: Communications, group: Group) -> IntColumn:
    """Rows of the collectives of a group."""
    if group not in comms.groups:
        return np.zeros(0, np.int64)
    return np.flatnonzero((comms.group == comms.groups.index(group)) & (comms.kind >= 0))


def _sequence(comms: Communications, rows: IntColumn) -> Collectives:
    return Collectives(rows, comms.kind[rows], comms.bytes[rows], comms.seq[rows], comms.end[rows])


def _most_common(sequences: Mapping[int, Collectives]) -> Collectives:
    """The sequence that most ranks have; the longest of several, then the lowest rank's."""
    texts = {rank: own.tokens.tobytes() for rank, own in sequences.items()}
    often = Counter(texts.values())
    rank = max(sequences, key=lambda rank: (often[texts[rank]], len(sequences[rank]), -rank))
    return sequences[rank]


@dataclass(frozen=True)
class _Case:
    """A group in which not all ranks have the same."""

    group: str
    members: tuple[int, ...]
    ranks: Ranks
    sequences: Mapping[int, Collectives]
    common: Collectives
    ups: Mapping[int, LineUp]

    def deviations(self) -> Iterator[Mismatch]:
        """Collectives that most ranks have, and some do not have alike."""
        common, ups = self.common, self.ups
        for p in np.flatnonzero(np.any([up.at < 0 for up in ups.values()], axis=0)).tolist():
            having = [(rank, int(up.at[p])) for rank, up in ups.items() if up.at[p] >= 0]
            deviating: dict[Kind, list[tuple[int, int]]] = defaultdict(list)
            for rank, up in ups.items():
                if up.at[p] >= 0:
                    continue
                if p in up.moved:
                    deviating["order"].append((rank, up.moved[p]))
                elif p in up.other:
                    same = self.sequences[rank].kind[up.other[p]] == common.kind[p]
                    deviating["size" if same else "type"].append((rank, up.other[p]))
                else:
                    deviating["missing"].append((rank, -1))
            for kind, of in deviating.items():
                yield Mismatch(
                    kind, self.group, self.members, p, kind_name(int(common.kind[p])), int(common.bytes[p]),
                    ranks=tuple(rank for rank, _ in of), found=tuple(self._described(*one) for one in of),
                    nodes=tuple(self._node(rank, own) for rank, own in sorted([*having, *of]) if own >= 0),
                )  # fmt: skip

    def extras(self) -> Iterator[Mismatch]:
        """Those that most ranks lack; alike at the same place they are one, on however many ranks."""
        found: defaultdict[tuple[int, int, int, int], list[tuple[int, int]]] = defaultdict(list)
        for rank, up in self.ups.items():
            ordinal: Counter[tuple[int, int, int]] = Counter()
            for own, before in up.extra:
                one = self.sequences[rank]
                key = (before, int(one.kind[own]), int(one.bytes[own]))
                place = (*key, ordinal[key])
                found[place].append((rank, own))
                ordinal[key] += 1
        for (before, kind, size, _), of in sorted(found.items()):
            having = {rank for rank, _ in of}
            lacking = tuple(rank for rank in self.members if rank not in having)
            yield Mismatch(
                "missing", self.group, self.members, before, kind_name(kind), size,
                ranks=lacking, found=("nothing",) * len(lacking), nodes=tuple(self._node(*one) for one in of),
            )  # fmt: skip

    def _node(self, rank: int, own: int) -> tuple[int, int]:
        return rank, int(self.ranks[rank].node[self.sequences[rank].row[own]])

    def _described(self, rank: int, own: int) -> str:
        if own < 0:
            return "nothing"
        one, size = self.sequences[rank], int(self.sequences[rank].bytes[own])
        size_text = "unknown size" if size < 0 else f"{size:,} bytes"
        return f"{kind_name(int(one.kind[own]))} of {size_text} at {own}"


def match_messages(ranks: Ranks) -> tuple[list[Matched], list[Pair]]:
    """Match the n-th message from one rank to another that was sent with the n-th received; by number if there is one.

    Messages to and from ranks that are not given are left out.
    """
    ends: defaultdict[tuple[int, int], dict[bool, IntColumn]] = defaultdict(dict)
    for rank, comms in ranks.items():
        for kind in np.unique(comms.kind[comms.kind < 0]).tolist():
            rows = np.flatnonzero(comms.kind == kind)
            for peer in np.unique(comms.peer[rows]).tolist():
                key = (rank, peer) if kind == SEND else (peer, rank)
                ends[key][kind == SEND] = rows[comms.peer[rows] == peer]
    found = [_pair(ranks, *key, both) for key, both in sorted(ends.items()) if ranks.keys() >= set(key)]
    return [matched for matched, _ in found], [pair for _, pair in found]


def paired(sent: IntColumn, received: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Positions of the messages on both sides that belong together, in an order that both sides have.

    Args:
        sent, received: int64, the numbers of the messages from one rank to another in program order, −1 for none.
            Where both sides number theirs, each anew, equal numbers belong together, else the n-th and the n-th.

    Example:
        >>> paired(np.array([4, 5, 6]), np.array([5, 6]))
        (array([1, 2]), array([0, 1]))
    """
    if all(len(one) and one.min() >= 0 and len(np.unique(one)) == len(one) for one in (sent, received)):
        _, left, right = np.intersect1d(sent, received, assume_unique=True, return_indices=True)
        return left, right
    both = np.arange(min(len(sent), len(received)))
    return both, both


def _pair(ranks: Ranks, source: int, target: int, both: Mapping[bool, IntColumn]) -> tuple[Matched, Pair]:
    none = np.zeros(0, np.int64)
    sent, received = both.get(True, none), both.get(False, none)
    left, right = paired(ranks[source].seq[sent], ranks[target].seq[received])
    sizes = ranks[source].bytes[sent[left]], ranks[target].bytes[received[right]]
    same = sizes[0] == sizes[1]
    odd = (source, np.delete(sent, left[same])), (target, np.delete(received, right[same]))
    rows = np.stack([sent[left[same]], received[right[same]]], axis=1)
    return _matched(ranks, "", (source, target), np.flatnonzero(same), rows), Pair(
        source, target, matched=int(same.sum()), bytes=int(np.maximum(sizes[0][same], 0).sum()),
        unmatched_sends=len(sent) - len(left), unmatched_receives=len(received) - len(right),
        other_size=int((~same).sum()),
        nodes=tuple((rank, node) for rank, rows in odd for node in ranks[rank].node[rows].tolist()),
    )  # fmt: skip
