"""Match collectives and messages across the ranks of a job. Describe each mismatch by its group and position."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..linker.shortest_edit import CallOrder, shortest_edit
from ..schemas.comm_types import SEND, WORLD, CollectiveCommType, Group
from ..schemas.communications import kind_name
from ..trace.columns import IntColumn, distinct, mask_at, median, run_starts
from .job_report import GroupCounts, Mismatch, RankPair
from .rank_communications import RankCommunications

Ranks = Mapping[int, RankCommunications]
Kind = Literal["missing", "size", "order", "type"]


@dataclass(frozen=True)
class Matched:
    """n collectives that match on all ranks of a group, or n messages from one rank to another."""

    group: str  # name of the group, "" for messages
    ranks: tuple[int, ...]  # the r ranks of the group, or the sender and the receiver of messages
    position: IntColumn  # position in the group's sequence of collectives; shape (n,)
    kind: IntColumn  # kind of communication on the lowest rank; shape (n,)
    bytes: IntColumn  # size in bytes on the lowest rank; shape (n,)
    node: IntColumn  # node id on each rank; shape (n, r)
    start: IntColumn  # start in wall-clock ns on each rank's clock; shape (n, r)
    end: IntColumn  # end in wall-clock ns on each rank's clock; shape (n, r)
    on_host: npt.NDArray[np.bool_]  # True if all ranks run the communication on the host; shape (n,)


def match_collectives(ranks: Ranks) -> tuple[list[Matched], list[GroupCounts], list[Mismatch]]:
    matched, counts, mismatches = [], [], []
    for group, members in sorted(_members(ranks).items()):
        rows = {rank: _rows(ranks[rank], group) for rank in members}
        if not any(map(len, rows.values())):
            continue
        sequences = {rank: CollectiveSequence.of(ranks[rank], at) for rank, at in rows.items()}
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
    lowest = ranks[members[0]]
    node, start, end, on_host = (
        np.stack([getattr(ranks[rank], key)[rows[:, i]] for i, rank in enumerate(members)], axis=1)
        for key in ("node", "start", "end", "on_host")
    )
    kind, size = lowest.kind[rows[:, 0]], lowest.bytes[rows[:, 0]]
    return Matched(group, members, position, kind, size, node, start, end, on_host.min(axis=1) > 0)


def _members(ranks: Ranks) -> dict[Group, tuple[int, ...]]:
    users: defaultdict[Group, list[int]] = defaultdict(list)
    for rank in sorted(ranks):
        for group in ranks[rank].groups:
            users[group].append(rank)
    present = tuple(sorted(ranks))
    return {
        group: present if group == WORLD else tuple(r for r in present if r in group[1]) if group[1] else tuple(of)
        for group, of in users.items()
    }


def _rows(comms: RankCommunications, group: Group) -> IntColumn:
    if group not in comms.groups:
        return np.zeros(0, np.int64)
    return np.flatnonzero((comms.group == comms.groups.index(group)) & (comms.kind >= 0))


def _most_common(sequences: Mapping[int, CollectiveSequence]) -> CollectiveSequence:
    texts = {rank: own.tokens.tobytes() for rank, own in sequences.items()}
    often = Counter(texts.values())
    rank = max(sequences, key=lambda rank: (often[texts[rank]], len(sequences[rank]), -rank))
    return sequences[rank]


@dataclass(frozen=True)
class _Case:
    group: str
    members: tuple[int, ...]
    ranks: Ranks
    sequences: Mapping[int, CollectiveSequence]
    common: CollectiveSequence
    ups: Mapping[int, LineUp]

    def deviations(self) -> Iterator[Mismatch]:
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
            for kind, deviants in deviating.items():
                place = (self.group, self.members, p, kind_name(int(common.kind[p])), int(common.bytes[p]))
                ranks, texts = zip(*((rank, self._described(rank, own)) for rank, own in deviants), strict=True)
                nodes = tuple(self._node(rank, own) for rank, own in sorted([*having, *deviants]) if own >= 0)
                yield Mismatch(kind, *place, ranks, texts, nodes)

    def extras(self) -> Iterator[Mismatch]:
        extra: defaultdict[tuple[int, int, int, int], list[tuple[int, int]]] = defaultdict(list)
        for rank, up in self.ups.items():
            ordinal: Counter[tuple[int, int, int]] = Counter()
            for own, before in up.extra:
                sequence = self.sequences[rank]
                key = (before, int(sequence.kind[own]), int(sequence.bytes[own]))
                extra[(*key, ordinal[key])].append((rank, own))
                ordinal[key] += 1
        for (before, kind, size, _), having_it in sorted(extra.items()):
            having = {rank for rank, _ in having_it}
            lacking = tuple(rank for rank in self.members if rank not in having)
            place = (self.group, self.members, before, kind_name(kind), size)
            nodes = tuple(self._node(rank, own) for rank, own in having_it)
            yield Mismatch("missing", *place, lacking, ("nothing",) * len(lacking), nodes)

    def _node(self, rank: int, own: int) -> tuple[int, int]:
        return rank, int(self.ranks[rank].node[self.sequences[rank].row[own]])

    def _described(self, rank: int, own: int) -> str:
        if own < 0:
            return "nothing"
        kind, size = int(self.sequences[rank].kind[own]), int(self.sequences[rank].bytes[own])
        return f"{kind_name(kind)} of {'unknown size' if size < 0 else f'{size:,} bytes'} at {own}"


def match_messages(ranks: Ranks) -> tuple[list[Matched], list[RankPair]]:
    """Match sent with received messages by their recorded sequence numbers or, if there are none, by their order."""
    ends: defaultdict[tuple[int, int], dict[bool, IntColumn]] = defaultdict(dict)
    for rank, comms in ranks.items():
        for kind in distinct(comms.kind[comms.kind < 0]).tolist():
            rows = np.flatnonzero(comms.kind == kind)
            for peer in distinct(comms.peer[rows]).tolist():
                key = (rank, peer) if kind == SEND else (peer, rank)
                ends[key][kind == SEND] = rows[comms.peer[rows] == peer]
    found = [_pair(ranks, *key, both) for key, both in sorted(ends.items()) if ranks.keys() >= set(key)]
    return [matched for matched, _ in found], [pair for _, pair in found]


def paired(sent: IntColumn, received: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return the positions of matching messages in `sent` and in `received`. If the sequence numbers on both sides are
    unique and known (not −1), messages with the same number match. Otherwise, the n-th messages match."""
    if all(len(side) and side.min() >= 0 and len(distinct(side)) == len(side) for side in (sent, received)):
        _, left, right = np.intersect1d(sent, received, assume_unique=True, return_indices=True)
        return left, right
    both = np.arange(min(len(sent), len(received)))
    return both, both


def _pair(ranks: Ranks, source: int, target: int, both: Mapping[bool, IntColumn]) -> tuple[Matched, RankPair]:
    none = np.zeros(0, np.int64)
    sent, received = both.get(True, none), both.get(False, none)
    left, right = paired(ranks[source].seq[sent], ranks[target].seq[received])
    sizes = ranks[source].bytes[sent[left]], ranks[target].bytes[received[right]]
    same = sizes[0] == sizes[1]
    odd = (source, np.delete(sent, left[same])), (target, np.delete(received, right[same]))
    rows = np.stack([sent[left[same]], received[right[same]]], axis=1)
    matched, moved = int(same.sum()), int(np.maximum(sizes[0][same], 0).sum())
    alone, other_size = (len(sent) - len(left), len(received) - len(right)), int((~same).sum())
    nodes = tuple((rank, node) for rank, own in odd for node in ranks[rank].node[own].tolist())
    pair = RankPair(source, target, matched, moved, *alone, other_size, nodes)
    return _matched(ranks, "", (source, target), np.flatnonzero(same), rows), pair


# These collectives have the same size on all ranks. For all-to-all, gather and scatter, sizes may differ.
_SAME_SIZE = (
    CollectiveCommType.ALL_REDUCE, CollectiveCommType.REDUCE, CollectiveCommType.BROADCAST,
    CollectiveCommType.ALL_GATHER, CollectiveCommType.REDUCE_SCATTER, CollectiveCommType.REDUCE_SCATTER_BLOCK,
)  # fmt: skip
_MOVED_AT_MOST = 16
_MAX_CHOICES = 4_000_000


@dataclass(frozen=True)
class CollectiveSequence:
    """The collectives of one group on one rank, in the order of `RankCommunications`."""

    row: IntColumn  # position in the rank's `RankCommunications`
    kind: IntColumn  # this column and all following columns are copied from `RankCommunications`
    bytes: IntColumn
    seq: IntColumn
    end: IntColumn

    @staticmethod
    def of(comms: RankCommunications, rows: IntColumn) -> CollectiveSequence:
        return CollectiveSequence(rows, comms.kind[rows], comms.bytes[rows], comms.seq[rows], comms.end[rows])

    def __len__(self) -> int:
        return len(self.row)

    @property
    def tokens(self) -> IntColumn:
        """Kind and size of each collective, in an array of shape (n, 2). Sizes that may differ between ranks are −1."""
        return np.stack([self.kind, np.where(np.isin(self.kind, _SAME_SIZE), self.bytes, -1)], axis=1)


@dataclass
class LineUp:
    """Maps positions in the common sequence of collectives to positions in the sequence of one rank."""

    at: IntColumn  # the rank's position for each common position, −1 if no collective matches
    # Maps common positions to the rank's collectives that have the same position, but a different kind or size.
    other: dict[int, int] = field(default_factory=dict)
    # Maps common positions to the rank's collectives that have the same kind and size, but a different position.
    moved: dict[int, int] = field(default_factory=dict)
    # The rank's extra collectives, each paired with the next position in the common sequence.
    extra: list[tuple[int, int]] = field(default_factory=list)


def line_up(common: CollectiveSequence, own: CollectiveSequence) -> LineUp:
    numbered = _numbered(common) and _numbered(own)
    if (not numbered or np.array_equal(common.seq, own.seq)) and np.array_equal(common.tokens, own.tokens):
        return LineUp(np.arange(len(common)))
    _, codes = np.unique(np.concatenate([common.tokens, own.tokens]), axis=0, return_inverse=True)
    a, b = np.split(codes.reshape(-1).astype(np.int64), [len(common)])
    result = LineUp(np.full(len(a), -1, np.int64))
    if numbered:
        _, left, right = np.intersect1d(common.seq, own.seq, assume_unique=True, return_indices=True)
    else:
        left, right = shortest_edit(CallOrder.of_names(a), CallOrder.of_names(b), whole=True)
    alike = a[left] == b[right]
    result.at[left[alike]] = right[alike]
    result.other.update(zip(left[~alike].tolist(), right[~alike].tolist(), strict=True))
    if not numbered:
        _settle_by_time(result.at, a, b, common.end, own.end)
        _explain(result, a, b)
    used = mask_at(len(b), [*result.at[result.at >= 0].tolist(), *result.other.values(), *result.moved.values()])
    result.extra = [(i, _before(result.at, i)) for i in np.flatnonzero(~used).tolist()]
    return result


def _numbered(sequence: CollectiveSequence) -> bool:
    return bool(len(sequence) and sequence.seq[0] >= 0 and np.all(np.diff(sequence.seq) > 0))


def _settle_by_time(places: IntColumn, a: IntColumn, b: IntColumn, a_end: IntColumn, b_end: IntColumn) -> None:
    runs = np.flatnonzero(run_starts(a)).tolist()
    for begin, end in zip(runs, [*runs[1:], len(a)], strict=True):
        matched = places[begin:end][places[begin:end] >= 0]
        if not len(matched):
            continue
        first, last = int(matched[0]), int(matched[-1])
        while first and b[first - 1] == a[begin]:
            first -= 1
        while last + 1 < len(b) and b[last + 1] == a[begin]:
            last += 1
        n, m = end - begin, last + 1 - first
        if n == m or np.any(b[first : last + 1] != a[begin]):
            continue
        elsewhere = np.flatnonzero(places >= 0)
        elsewhere = elsewhere[(elsewhere < begin) | (elsewhere >= end)]
        times = a_end[begin:end], b_end[first : last + 1]
        if min(n, m) * (abs(n - m) + 1) > _MAX_CHOICES:
            continue
        if len(elsewhere):
            ahead = [int(median(b_end[places[elsewhere]] - a_end[elsewhere]))]
        else:  # try several clock differences, because the true difference is unknown
            short = min(n, m)
            ends = (slice(short), slice(-short, None))
            ahead = [0, *(int(median(times[1][part] - times[0][part])) for part in ends)]
        tried = [(abs(shift), *_nearest(times[0] + shift, times[1])) for shift in ahead]
        _, _, left, right = min(tried, key=lambda attempt: attempt[0] + attempt[1])
        places[begin:end] = -1
        places[begin + left] = first + right


def _nearest(a: IntColumn, b: IntColumn) -> tuple[int, IntColumn, IntColumn]:
    """Pair the entries of the shorter column with entries of the longer one. Return the least distance and pairs."""
    if len(a) > len(b):
        least, right, left = _nearest(b, a)
        return least, left, right
    spare = len(b) - len(a)
    came = np.zeros((len(a), spare + 1), np.int64)
    total = np.zeros(spare + 1, np.int64)
    for i, time in enumerate(a.tolist()):  # total[s] is the smallest sum for a[:i] if s elements of b are skipped
        so_far = np.minimum.accumulate(total)
        came[i] = np.maximum.accumulate(np.where(total == so_far, np.arange(spare + 1), 0))
        total = so_far + np.abs(b[i : i + spare + 1] - time)
    right = np.zeros(len(a), np.int64)
    skipped = int(np.argmin(total))
    least_sum = int(total[skipped])
    for i in range(len(a) - 1, -1, -1):
        right[i] = i + skipped
        skipped = int(came[i, skipped])
    return least_sum, np.arange(len(a)), right


def _explain(result: LineUp, a: IntColumn, b: IntColumn) -> None:
    places = result.at
    lacking = np.flatnonzero(places < 0).tolist()
    spare = sorted(set(range(len(b))) - set(places[places >= 0].tolist()))
    for p in list(lacking):
        near = [i for i in spare if b[i] == a[p] and abs(_before(places, i) - p) <= _MOVED_AT_MOST]
        if near:
            result.moved[p] = near[0]
            spare.remove(near[0])
            lacking.remove(p)
    anchors = np.flatnonzero(places >= 0)
    gap_of_own = {i: int(np.searchsorted(places[anchors], i)) for i in spare}
    for p in lacking:
        gap = int(np.searchsorted(anchors, p))
        own = next((i for i in spare if gap_of_own[i] == gap), None)
        if own is not None:
            result.other[p] = own
            spare.remove(own)


def _before(places: IntColumn, own: int) -> int:
    anchors = np.flatnonzero(places >= 0)
    earlier = anchors[places[anchors] < own]
    return int(earlier[-1]) + 1 if len(earlier) else 0
