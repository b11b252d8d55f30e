"""Match communications across ranks by position, as simulators do: the k-th on one rank matches the k-th on another.

If all communications match, the ranks are merged into one graph in which each collective is a single event. A cycle in
this graph is a deadlock. Example: rank 0 runs collective A before B, and rank 1 runs B before A. Then A waits for B on
rank 1, and B waits for A on rank 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np

from ..schemas.chakra.attributes import SIMULATED_COLLECTIVES
from ..schemas.chakra.comm_groups import Groups
from ..schemas.chakra.et_def_pb2 import CollectiveCommType, NodeType
from ..timeline.topological_order import IntArray, find_cycle, issue_order
from .preflight_findings import PreflightFindings
from .preflight_rank import CommTable, RankScan

# In Chakra files, the process group of all ranks has this number.
ALL_RANKS = 0
_SHOWN_OF_A_CYCLE = 6


def compare_ranks(scans: Sequence[RankScan], groups: Groups | None, findings: PreflightFindings) -> None:
    """Match the collectives and messages of all ranks in order. If all of them match, look for deadlocks.
    If there is no group file, each group consists of the ranks that use it."""
    table = _CommRows(scans)
    pairs = _match_messages(table, findings)
    events = _match_collectives(table, scans, groups or {}, findings)
    if pairs is None or events is None:
        findings.skip("deadlocks were not checked, because communications do not match")
        return
    merged = _Merged(table, events, pairs)
    if merged.check_order(findings):
        merged.check_dependencies(scans, findings)
    else:
        _check_turns(table, events, findings)


class _CommRows:
    """One table of the communication nodes of all ranks, sorted by rank and then by issue order."""

    def __init__(self, scans: Sequence[RankScan]) -> None:
        self.rank = np.repeat(np.arange(len(scans)), [len(scan.comm.node) for scan in scans])
        names = CommTable.__dataclass_fields__
        self.rows = CommTable(*(np.concatenate([getattr(scan.comm, name) for scan in scans]) for name in names))

    def label(self, row: int) -> str:
        rank, node = int(self.rank[row]), int(self.rows.node[row])
        kind, peer = int(self.rows.type[row]), int(self.rows.peer[row])
        if kind == NodeType.COMM_COLL_NODE:
            group = int(self.rows.group[row])
            name = f"{op_name(self.rows.op[row])} of {f'group {group}' if group else 'all ranks'}"
        else:
            name = f"send to {peer}" if kind == NodeType.COMM_SEND_NODE else f"receive from {peer}"
        return f"{name} (rank {rank} node {node})"


def op_name(op: int) -> str:
    return str(CollectiveCommType.Name(int(op)))


def _match_collectives(
    table: _CommRows, scans: Sequence[RankScan], groups: Groups, findings: PreflightFindings
) -> IntArray | None:
    event = np.arange(len(table.rank))
    collective = np.flatnonzero(table.rows.type == NodeType.COMM_COLL_NODE)
    collective = collective[np.argsort(table.rows.group[collective], kind="stable")]  # sorted by group, rank, issue
    good = True
    for rows in _runs(collective, table.rows.group):
        group = int(table.rows.group[rows[0]])
        by_rank = {int(table.rank[part[0]]): part for part in _runs(rows, table.rank)}
        members = range(len(scans)) if group == ALL_RANKS else groups.get(group, by_rank)
        first = next(iter(by_rank))
        for rank in sorted({*members, *by_rank} - {first}):
            theirs = by_rank.get(rank, rows[:0])
            if _same(table, group, by_rank[first], theirs, rank, len(members), findings):
                event[theirs] = by_rank[first]
            else:
                good = False
    return event if good else None


def _check_turns(table: _CommRows, event: IntArray, findings: PreflightFindings) -> None:
    """Check that each collective of all ranks comes after the same number of simulated collectives on every rank."""
    simulated = np.isin(table.rows.op, sorted(SIMULATED_COLLECTIVES)).astype(np.int64)
    before = np.cumsum(simulated) - simulated
    turn = before - before[np.searchsorted(table.rank, table.rank)]
    of_all = np.flatnonzero(table.rows.group == ALL_RANKS)
    for row in of_all[turn[of_all] != turn[event[of_all]]][:1].tolist():
        first = event[row]
        nodes = (int(table.rows.node[first]), int(table.rows.node[row]))
        values = (table.label(first), turn[first], table.label(row), turn[row])
        findings.add("world-turn", None, nodes, "{} is collective {} on its rank, but {} is collective {}", *values)


def _runs(rows: IntArray, key: IntArray) -> list[IntArray]:
    return np.split(rows, np.flatnonzero(np.diff(key[rows])) + 1) if len(rows) else []


def _same(
    table: _CommRows, group: int, ours: IntArray, theirs: IntArray, rank: int, parts: int, findings: PreflightFindings
) -> bool:
    """Return True if two ranks run the same collectives of a group. Otherwise, report the first difference."""
    name = f"group {group}" if group else "all ranks"
    if len(ours) != len(theirs) and _name_missing(table, name, ours, theirs, rank, findings):
        return False
    both = min(len(ours), len(theirs))
    our_rows, their_rows = ours[:both], theirs[:both]
    rows = table.rows
    other_op = rows.op[our_rows] != rows.op[their_rows]
    other_size = (rows.size[our_rows] != rows.size[their_rows]) & ~other_op
    # For an all-to-all, ASTRA-sim compares sizes after dividing them by the number of ranks and rounding down.
    of_parts = other_size & (rows.op[our_rows] == CollectiveCommType.ALL_TO_ALL)
    uneven = of_parts & (rows.size[our_rows] // parts != rows.size[their_rows] // parts)
    other_size &= uneven | ~of_parts
    text = "{}, collective {}: {} of {} bytes on rank {} (node {}), {} of {} bytes on rank {} (node {})"
    for kind, differs in (("collective", other_op | (other_size & ~uneven)), ("uneven-collective", uneven)):
        for place in np.flatnonzero(differs)[:1].tolist():
            sides = [
                (op_name(rows.op[row]), rows.size[row], table.rank[row], rows.node[row])
                for row in (our_rows[place], their_rows[place])
            ]
            nodes = (int(rows.node[our_rows[place]]), int(rows.node[their_rows[place]]))
            findings.add(kind, None, nodes, text, name, place, *sides[0], *sides[1])
    free = rows.behind[our_rows] != rows.behind[their_rows]
    text = "{}, collective {} waits for the previous communication on rank {}, but not on rank {} (node {})"
    for place in np.flatnonzero(free & ~other_op & ~other_size)[:1].tolist():
        pair = our_rows[place], their_rows[place]
        waits, other = pair if rows.behind[pair[0]] else pair[::-1]
        values = (name, place, table.rank[waits], table.rank[other], rows.node[other])
        findings.add("free-order", None, (int(rows.node[other]),), text, *values)
    if len(ours) != len(theirs):
        values = (name, len(ours), table.rank[ours[0]], len(theirs), rank)
        findings.add("collective", None, (), "{}: {} collectives on rank {}, {} on rank {}", *values)
        return False
    return not (other_op | (other_size & ~uneven)).any()


def _name_missing(
    table: _CommRows, name: str, ours: IntArray, theirs: IntArray, rank: int, findings: PreflightFindings
) -> bool:
    """Report the collectives that one of two ranks lacks. Return False if the ranks also differ in other ways."""
    few, many = sorted((ours, theirs), key=len)
    op, size = table.rows.op, table.rows.size
    for exact in (True, False):
        may_differ = (op[few] == CollectiveCommType.ALL_TO_ALL) & (not exact)
        front, back = (
            (op[few] == op[part]) & ((size[few] == size[part]) | may_differ)
            for part in (many[: len(few)], many[len(many) - len(few) :])
        )
        place = int(np.append(front, False).argmin())
        if back[place:].all():
            break
    else:
        return False
    row, others = many[place], len(many) - len(few) - 1
    has, lacks = (int(table.rank[ours[0]]), rank) if many is ours else (rank, int(table.rank[ours[0]]))
    text = "{}, collective {}: {} of {} bytes on rank {} (node {}){} missing on rank {} (it has {} of {})"
    verb = f" and {others} after it are" if others else " is"
    values = (name, place, op_name(op[row]), size[row], has, table.rows.node[row], verb, lacks, len(few), len(many))
    findings.add("collective", None, (int(table.rows.node[row]),), text, *values)
    return True


def _match_messages(table: _CommRows, findings: PreflightFindings) -> tuple[IntArray, IntArray] | None:
    """Pair the k-th send with the k-th receive that has the same source, destination, tag and size."""
    rows = np.flatnonzero(table.rows.type != NodeType.COMM_COLL_NODE)
    if not len(rows):
        return rows, rows
    sends = table.rows.type[rows] == NodeType.COMM_SEND_NODE
    own, peer = table.rank[rows], table.rows.peer[rows]
    source, target = np.where(sends, own, peer), np.where(sends, peer, own)
    keys = np.stack([source, target, table.rows.tag[rows], table.rows.size[rows]])
    by_key = np.lexsort(keys[::-1])  # lexsort is stable, so equal keys keep their order.
    rows, sends, keys = rows[by_key], sends[by_key], keys[:, by_key]
    starts = np.flatnonzero(np.r_[True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)])
    count = np.diff(np.r_[starts, len(rows)])
    sent = np.add.reduceat(sends.astype(np.int64), starts)
    unequal = np.flatnonzero(2 * sent != count).tolist()
    text = "rank {} to {}, tag {}, {} bytes: {} sends, {} receives (first: node {} of rank {})"
    for group_of_key in unequal:
        first = rows[starts[group_of_key]]
        node, rank = int(table.rows.node[first]), int(table.rank[first])
        received = count[group_of_key] - sent[group_of_key]
        values = (*keys[:, starts[group_of_key]].tolist(), sent[group_of_key], received, node, rank)
        findings.add("message" if received > sent[group_of_key] else "unreceived-message", rank, (node,), text, *values)
    if np.any(count > 2 * sent):
        return None
    before = np.cumsum(sends) - sends
    received = sends & (before - np.repeat(before[starts], count) < np.repeat(count - sent, count))
    return rows[received], rows[~sends]


@dataclass(frozen=True)
class _Merged:
    """The graph of all ranks. `event` maps each row of the table to the row that represents the same event."""

    table: _CommRows
    event: IntArray
    messages: tuple[IntArray, IntArray]

    def check_order(self, findings: PreflightFindings) -> bool:
        """Return True and report a deadlock if one occurs when each rank runs its communications one at a time."""
        rows = np.arange(len(self.event) - 1)
        rows = rows[self.table.rank[:-1] == self.table.rank[1:]]
        before, after = self.event[rows], self.event[rows + 1]
        cycle = self._cycle(len(self.event), before, after)
        if not cycle:
            return False
        steps = list(zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        size = len(self.event)
        in_cycle = np.isin(before * size + after, [event * size + following for event, following in steps])
        ranks = self.table.rank[rows[in_cycle]].tolist()
        rank_of = dict(zip(zip(before[in_cycle].tolist(), after[in_cycle].tolist(), strict=True), ranks, strict=True))
        findings.add("comm-order", None, (), "{}", self._in_words([(rank_of.get(step), *step) for step in steps]))
        return True

    def _in_words(self, steps: list[tuple[int | None, int, int]]) -> str:
        """Describe the (rank, event, next event) steps of a cycle. Consecutive steps on the same rank are joined."""
        turn = next(place for place in range(len(steps)) if steps[place][0] != steps[place - 1][0])
        parts = []
        for rank, run in groupby(steps[turn:] + steps[:turn], key=lambda step: step[0]):
            (_, first, _), *_ = path = list(run)
            names = f"{self.table.label(first)} before {self.table.label(path[-1][2])}"
            parts.append(names if rank is None else f"rank {rank} runs {names}")
        more = f", and {len(parts) - _SHOWN_OF_A_CYCLE} more" if len(parts) > _SHOWN_OF_A_CYCLE else ""
        return ", ".join(parts[:_SHOWN_OF_A_CYCLE]) + more

    def check_dependencies(self, scans: Sequence[RankScan], findings: PreflightFindings) -> None:
        """Report a deadlock that the dependencies and the order within each group cause by themselves."""
        rank, group = self.table.rank, self.table.rows.group
        rows = np.flatnonzero(self.table.rows.type == NodeType.COMM_COLL_NODE)
        rows = rows[np.argsort(group[rows], kind="stable")]  # sorted by group, rank, issue
        follows = (rank[rows[:-1]] == rank[rows[1:]]) & (group[rows[:-1]] == group[rows[1:]])
        before, after = [self.event[rows[:-1][follows]]], [self.event[rows[1:][follows]]]
        count = len(self.event)
        bounds = np.searchsorted(rank, np.arange(len(scans) + 1)).tolist()
        for scanned, (start, end) in zip(scans, pairwise(bounds), strict=True):
            merged = np.arange(scanned.graph.count) + count
            merged[scanned.comm.index] = self.event[start:end]
            before.append(merged[scanned.graph.source])
            after.append(merged[scanned.graph.target])
            count += scanned.graph.count
        cycle = self._cycle(count, np.concatenate(before), np.concatenate(after))
        names = [self.table.label(row) for row in cycle if row < len(self.event)]
        if cycle:
            more = f" and {len(names) - _SHOWN_OF_A_CYCLE} more" if len(names) > _SHOWN_OF_A_CYCLE else ""
            text = "{}{} wait for each other"
            findings.add("deadlock", None, (), text, ", ".join(names[:_SHOWN_OF_A_CYCLE]), more)

    def _cycle(self, count: int, before: IntArray, after: IntArray) -> list[int]:
        sends, receives = self.messages
        before, after = np.r_[before, sends], np.r_[after, receives]
        return find_cycle(count, before, after, issue_order(count, before, after))
