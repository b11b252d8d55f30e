"""Pre-flight check of a set of Chakra traces: what would make a reader or simulator fail, hang or mislead.

Communications are matched over all ranks as simulators match them, the k-th with the k-th, and by nothing that the
writer of the files uses: a check that shared its matcher (`jobs.matching`) could not find its errors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..jobs.job_ranks import ONE_RANK
from ..schemas.chakra.attributes import SIMULATED_COLLECTIVES
from ..schemas.chakra.comm_groups import GROUPS_SUFFIX, Groups, find_groups, read_group_names, read_groups
from ..schemas.chakra.et_def_pb2 import CollectiveCommType, NodeType
from ..schemas.text.transaction import staged
from ..trace.columns import distinct, mask_at
from ..trace.errors import UsageError
from ..trace.printable import few
from ..trace.topological_order import IntArray, find_cycle, issue_order
from .preflight_findings import PreflightFindings, PreflightReport, Profile
from .preflight_rank import UNKNOWN_RANK, CommTable, RankFile, RankScan, scan
from .row_dependencies import Coupling, coupling

if TYPE_CHECKING:
    from ..timeline.network import Network

_RANK = re.compile(r"(?P<prefix>.+)\.(?P<rank>0|[1-9][0-9]{0,8})\.et(\.gz)?", re.ASCII | re.DOTALL)

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def check(
    source: Paths, *, profile: Profile = "chakra", groups: str | os.PathLike[str] | None = None, limit: int = 10,
    network: Network | str | None = None,
) -> PreflightReport:  # fmt: skip
    """Check a set of traces.

    A prefix stands for its files ``<prefix>.<rank>.et`` (or ``.et.gz``). These, or several files given by
    name, must be all ranks from 0 on. One file given by name is checked alone, not against other ranks.

    A rank is taken to run its communications in the order of a reader that issues the ready node with the
    lowest id and needs no time for any. A simulator can deviate from it where two communications do not
    depend on each other and become ready at different times.

    Args:
        source: a prefix, a file, or several files.
        profile: "astra-sim" makes errors of what ASTRA-sim does not survive; for "chakra" those are warnings.
        groups: the group file, ``{"<number>": [<rank>, ...], ...}``; by default ``<prefix>.comm_groups.json``
            if it is there.
        limit: how many problems of a kind are kept (all are counted).
        network: that the set is meant for, or its text (see `parse_network`).

    Raises:
        UsageError: no such files, two for a rank, an unknown profile or a negative limit.
        TraceFormatError: a file is not a Chakra trace, or the group file is invalid.
    """
    if profile not in ("chakra", "astra-sim"):
        raise UsageError(f"unknown profile {profile!r}; known are chakra and astra-sim")
    if limit < 0:
        raise UsageError(f"limit is {limit}; give 0 or more")
    files, prefix, alone = _find(source)
    group_path = os.fspath(groups) if groups is not None else None if prefix is None else find_groups(prefix)
    known = read_groups(group_path) if group_path else None
    findings = PreflightFindings(profile, limit)
    if isinstance(network, str):
        from ..timeline.network import parse_network

        network = parse_network(network)
    beside = None if prefix is None or alone else _check_network_files(prefix, len(files), findings)
    dimensions = None if beside is None else beside.dimensions
    scans = _scan(
        files, findings, alone=alone, group_path=group_path, groups=known, dimensions=dimensions, network=network
    )
    if beside is not None and not beside.endpoint_delay:
        for scanned in scans:
            if (node := scanned.begins_at_once) is not None and not scanned.flaw:
                findings.add("first-collective", scanned.file.rank, (node,), "node {} waits for nothing", node)
    if network is not None:
        _check_network(scans, prefix, known or {}, network, findings)
    return _report(scans, findings)


def check_written(files: Sequence[str], *, profile: Profile) -> PreflightReport | None:
    """Check the set, or the one file, that the present transaction writes; None if it is not one of regular files.

    `files` are the names that they are to have, group files among them.
    """
    if not all(staged(name).is_file() for name in files):
        return None
    ranks = [_rank_file(Path(name)) for name in files if name.endswith((".et", ".et.gz"))]
    groups = next((name for name in files if name.endswith(GROUPS_SUFFIX)), None)
    known = None if groups is None else read_groups(str(staged(groups)))
    placed = sorted((RankFile(staged(file.path), file.rank) for file in ranks), key=lambda file: file.rank)
    findings = PreflightFindings(profile, 0)
    scans = _scan(placed, findings, alone=len(ranks) == 1, group_path=groups, groups=known, written=True)
    return _report(scans, findings)


def _scan(
    files: list[RankFile],
    findings: PreflightFindings,
    *,
    alone: bool,
    group_path: str | None,
    groups: Groups | None,
    written: bool = False,
    dimensions: int | None = None,
    network: Network | None = None,
) -> list[RankScan]:
    """Read the ranks, and check each, the groups, and ranks against each other."""
    if group_path and "empty" in group_path:
        findings.add("groups-path", None, (), "{}", group_path)
    world = None if alone else max(file.rank for file in files) + 1
    scans = [scan(file, findings, known_attributes=written, dimensions=dimensions) for file in files]
    check_groups(scans, groups, world, findings)
    if world is None:
        findings.skip("ranks were not compared with each other: one file was given")
    else:
        _compare(scans, world, groups, network, findings)
    return scans


def _report(scans: Sequence[RankScan], findings: PreflightFindings) -> PreflightReport:
    coupled = Coupling()
    for comm, graph in ((scanned.comm, scanned.graph) for scanned in scans):
        communicates = mask_at(graph.count, comm.index)
        coupled += coupling(comm.index[comm.op >= 0], communicates, graph.source, graph.target)
    computing = sum(scanned.nodes - len(scanned.comm.op) for scanned in scans)
    if coupled.few and computing >= coupled.collectives:
        findings.add("few-waits", None, (), "{}", coupled)
    if len(scans) > 1 and not any(len(scanned.comm.op) for scanned in scans):
        findings.add("no-collective", None, (), "{} communicates", "no rank")
    return findings.report(
        files=tuple(str(scanned.file.path) for scanned in scans),
        ranks=len(scans),
        nodes=sum(scanned.nodes for scanned in scans),
        collectives=sum(int((scanned.comm.op >= 0).sum()) for scanned in scans),
        messages=sum(int((scanned.comm.op < 0).sum()) for scanned in scans),
        by_computation=coupled.by_computation,
        by_nothing=coupled.by_nothing,
    )


class _NetworkFiles(NamedTuple):
    """What the network and system files next to a set say: the number of dimensions, None if unknown, and the endpoint
    delay in ns."""

    dimensions: int | None
    endpoint_delay: float


def _check_network_files(prefix: str, ranks: int, findings: PreflightFindings) -> _NetworkFiles | None:
    """Check the network and system files next to a set, if they are there."""
    from .astra_config import dimensions_of, endpoint_delay_of, flaws_of_files, network_files_of  # few sets have them

    files = network_files_of(prefix)
    if files is None:
        return None
    for flaw in flaws_of_files(files, ranks):
        findings.add("network-files", None, (), "{}", flaw)
    dimensions = len(dimensions_of(files[0].read_text(errors="replace")).get("npus_count", ())) or None
    return _NetworkFiles(dimensions, endpoint_delay_of(files[1]))


def _check_network(
    scans: Sequence[RankScan], prefix: str | None, groups: Groups, network: Network, findings: PreflightFindings
) -> None:
    """Check a set against the network that it is meant for."""
    from .astra_config import network_files_of, same_files, unknown_groups
    from .astra_links import astra_links

    links = astra_links(network, len(scans))
    for text in links.unsaid:
        findings.add("network-inexact", None, (), "{}", text)
    names = [] if prefix is None else read_group_names(prefix)
    members = {tuple(range(len(scans))), *(tuple(sorted(ranks)) for ranks in groups.values())}
    for name in unknown_groups(network, members, names):
        findings.add("network-group", None, (), "group {}", name)
    files = None if prefix is None else network_files_of(prefix)
    if files is None:
        findings.skip("no network and system files beside the set")
    elif not same_files(files, network, links):
        findings.add("network-differs", None, (), "{} and {}; convert for this network again", *(f.name for f in files))
    for scanned in scans:
        _check_parts(scanned, len(scans), groups, findings)


def _check_parts(scanned: RankScan, world: int, groups: Groups, findings: PreflightFindings) -> None:
    """Collectives whose ranks' parts are not whole bytes: ASTRA-sim rounds these down, to 1 at least."""
    comm = scanned.comm
    ranks = np.array([len(groups.get(group, ())) or world for group in comm.group.tolist()], np.int64)
    parted = (comm.op >= 0) & (comm.op != CollectiveCommType.ALL_GATHER)
    lost = np.abs(comm.size - np.maximum(comm.size // np.maximum(ranks, 1), 1) * ranks)
    for row in np.flatnonzero(parted & (lost > _PART_LOST * comm.size)).tolist():
        node, values = int(comm.node[row]), (_op_name(comm.op[row]), comm.node[row], comm.size[row], ranks[row])
        findings.add("uneven-parts", scanned.file.rank, (node,), "{} of node {}: {} bytes over {} ranks", *values)


_PART_LOST = 0.01


def _compare(
    scans: list[RankScan], world: int, groups: Groups | None, network: Network | None, findings: PreflightFindings
) -> None:
    ranks = [scanned.file.rank for scanned in scans]
    flaws = [f"rank {scanned.file.rank} {scanned.flaw}" for scanned in scans if scanned.flaw]
    for before, after in pairwise([-1, *ranks]):
        if after > before + 1:
            gap = f"rank {before + 1}" if after == before + 2 else f"ranks {before + 1} to {after - 1}"
            findings.add("missing-rank", None, (), "no file of {}; the highest rank is {}", gap, world - 1)
            flaws.append(f"{gap} missing")
    if world == 1:
        findings.add("single-rank", None, (), "rank 0 is the only rank; {}", ONE_RANK)
    if flaws:
        findings.skip(f"communications of the ranks were not compared with each other: {', '.join(flaws)}")
    else:
        _compare_order(scans, groups, network, findings)


def _compare_order(
    scans: list[RankScan], groups: Groups | None, network: Network | None, findings: PreflightFindings
) -> None:
    """Compare communications in the order in which nodes would be issued if none took time; if that order is a problem
    for ASTRA-sim, in the order of a run with their durations."""
    found = PreflightFindings(findings.profile, max(findings.limit, 1))
    compare_ranks(scans, groups, found)
    if findings.profile != "astra-sim" or not set(found.errors) or not set(found.errors) <= _BY_ORDER:
        findings.extend(found)
        return
    from .astra_config import DEFAULT  # for few sets
    from .preflight_run import rank_ends

    if rank_ends(scans, groups or {}, network or DEFAULT) is None:
        findings.extend(found)
        return
    for problem in [of[0] for of in found.errors.values() if of][:1]:
        findings.add("free-order", problem.rank, problem.nodes, "it runs with these durations: {}", problem.text)


_BY_ORDER = frozenset(("collective", "uneven-collective", "comm-order", "world-turn", "deadlock"))
"""Errors that depend on the order in which nodes are issued."""


def _find(source: Paths) -> tuple[list[RankFile], str | None, bool]:
    """The files by rank, their prefix if they have one, and whether it is one file given by its own name."""
    paths = [Path(source)] if isinstance(source, (str, os.PathLike)) else list(map(Path, source))
    if not paths:
        raise UsageError("nothing to check; give a prefix or files")
    if len(paths) == 1 and paths[0].is_dir() and not _siblings(paths[0]):
        paths = [_prefix_in(paths[0])]
    if len(paths) == 1 and not paths[0].is_file():
        return _find_by_prefix(paths[0]), str(paths[0]), False
    files = sorted(map(_rank_file, paths), key=lambda file: (file.rank, file.path))
    if len(files) > 1:
        for file, following in zip(files, [*files[1:], None], strict=True):
            if file.rank == UNKNOWN_RANK:
                raise UsageError(f"{file.path}: the name does not end in .<rank>.et; check it alone")
            if following and file.rank == following.rank:
                raise UsageError(f"{file.path} and {following.path} are of the same rank; give one of them")
    named = _RANK.fullmatch(str(files[0].path))
    return files, named["prefix"] if named else None, len(files) == 1


def _rank_file(path: Path) -> RankFile:
    named = _RANK.fullmatch(path.name)
    return RankFile(path, int(named["rank"]) if named else UNKNOWN_RANK)


def _prefix_in(folder: Path) -> Path:
    """The prefix of the one set in a folder."""
    prefixes = sorted({named["prefix"] for path in folder.iterdir() if (named := _RANK.fullmatch(path.name))})
    if not prefixes:
        raise UsageError(f"{folder}: no file named <prefix>.<rank>.et; give a set of Chakra traces")
    if len(prefixes) > 1:
        raise UsageError(f"{folder}: {len(prefixes)} sets ({few(prefixes)}); give one as {folder / prefixes[0]}")
    return folder / prefixes[0]


def _siblings(prefix: Path) -> dict[int, Path]:
    """The files of a prefix by rank."""
    found: dict[int, Path] = {}
    siblings = sorted(prefix.parent.iterdir()) if prefix.parent.is_dir() else []
    for path in siblings:  # x.0.et comes before x.0.et.gz, and is the one that every reader would take
        named = _RANK.fullmatch(path.name)
        if named and named["prefix"] == prefix.name:
            found.setdefault(int(named["rank"]), path)
    return found


def _find_by_prefix(prefix: Path) -> list[RankFile]:
    found = _siblings(prefix)
    if not found:
        raise UsageError(f"no file {prefix}.<rank>.et; give the part of the names before .<rank>.et, or files")
    return [RankFile(found[rank], rank) for rank in sorted(found)]


ALL_RANKS = 0
_SHOWN_OF_A_CYCLE = 6


def check_groups(
    scans: Sequence[RankScan], groups: Groups | None, world: int | None, findings: PreflightFindings
) -> None:
    """Check the groups that the ranks use against the group file, if there is one; `world` is None of a rank alone."""
    used = {scan.file.rank: distinct(scan.comm.group[scan.comm.group > ALL_RANKS]).tolist() for scan in scans}
    in_use = sorted({group for of_rank in used.values() for group in of_rank})
    if groups is None:
        for group in in_use:
            findings.add("group", None, (), "group {} is used, but there is no group file", group)
        return
    for scanned in scans:
        rank = scanned.file.rank
        for group in used[rank]:
            node = int(scanned.comm.node[np.argmax(scanned.comm.group == group)])
            if group not in groups:
                findings.add("group", rank, (node,), "group {} of node {} is not in the group file", group, node)
            elif rank not in groups[group] and rank != UNKNOWN_RANK:
                findings.add("group", rank, (node,), "group {} of node {} is without the rank", group, node)
    if ALL_RANKS in groups:
        problem = "the group file has group 0, which is reserved for all ranks; number groups from 1"
        findings.add("group", None, (), problem)
    for group, ranks in groups.items():
        strange = sorted({rank for rank in ranks if rank < 0 or (world is not None and rank >= world)})
        if strange and group in in_use:
            findings.add("group", None, (), "group {} has ranks that do not exist: {}", group, strange)
        if len(set(ranks)) < len(ranks):
            findings.add("group", None, (), "group {} lists a rank twice: {}", group, list(ranks))
        if len(set(ranks)) == 1 and group in in_use:
            findings.add("one-rank-group", None, (), "group {} has only rank {}", group, ranks[0])


def compare_ranks(scans: Sequence[RankScan], groups: Groups | None, findings: PreflightFindings) -> None:
    """Match collectives and messages between all ranks, in order; if they all match, look for deadlocks.

    Without a group file a group has the ranks that use it.
    """
    table = _CommRows(scans)
    pairs = _match_messages(table, findings)
    events = _match_collectives(table, scans, groups or {}, findings)
    if pairs is None or events is None:
        findings.skip("deadlocks were not looked for, since communications do not match")
        return
    merged = _Merged(table, events, pairs)
    if merged.check_order(findings):
        merged.check_dependencies(scans, findings)
    else:
        _check_turns(table, events, findings)


class _CommRows:
    """The communication nodes of all ranks below each other: rank by rank, each in order of issue."""

    def __init__(self, scans: Sequence[RankScan]) -> None:
        self.rank = np.repeat(np.arange(len(scans)), [len(scan.comm.node) for scan in scans])
        names = CommTable.__dataclass_fields__
        self.rows = CommTable(*(np.concatenate([getattr(scan.comm, name) for scan in scans]) for name in names))

    def label(self, row: int) -> str:
        """A communication as messages name it."""
        rank, node = int(self.rank[row]), int(self.rows.node[row])
        kind, peer = int(self.rows.type[row]), int(self.rows.peer[row])
        if kind == NodeType.COMM_COLL_NODE:
            group = int(self.rows.group[row])
            name = f"{_op_name(self.rows.op[row])} of {f'group {group}' if group else 'all ranks'}"
        else:
            name = f"send to {peer}" if kind == NodeType.COMM_SEND_NODE else f"receive from {peer}"
        return f"{name} (rank {rank} node {node})"


def _op_name(op: int) -> str:
    return str(CollectiveCommType.Name(int(op)))


def _match_collectives(
    table: _CommRows, scans: Sequence[RankScan], groups: Groups, findings: PreflightFindings
) -> IntArray | None:
    """Compare the k-th collective of every group between its ranks.

    Returns:
        for each row of the table the first row that is the same event; None if anything does not match.
    """
    event = np.arange(len(table.rank))
    collective = np.flatnonzero(table.rows.type == NodeType.COMM_COLL_NODE)
    collective = collective[np.argsort(table.rows.group[collective], kind="stable")]  # by group, rank, issue
    good = True
    for rows in _runs(collective, table.rows.group):
        group = int(table.rows.group[rows[0]])
        by_rank = {int(table.rank[part[0]]): part for part in _runs(rows, table.rank)}
        members = range(len(scans)) if group == ALL_RANKS else groups.get(group, by_rank)
        first = next(iter(by_rank))
        for rank in sorted({*members, *by_rank} - {first}):
            mine = by_rank.get(rank, rows[:0])
            if _same(table, group, by_rank[first], mine, rank, len(members), findings):
                event[mine] = by_rank[first]
            else:
                good = False
    return event if good else None


def _check_turns(table: _CommRows, event: IntArray, findings: PreflightFindings) -> None:
    """Compare between ranks how many collectives that ASTRA-sim simulates came before each one of all ranks."""
    simulated = np.isin(table.rows.op, sorted(SIMULATED_COLLECTIVES)).astype(np.int64)
    before = np.cumsum(simulated) - simulated
    turn = before - before[np.searchsorted(table.rank, table.rank)]
    of_all = np.flatnonzero(table.rows.group == ALL_RANKS)
    for row in of_all[turn[of_all] != turn[event[of_all]]][:1].tolist():
        first = event[row]
        nodes = (int(table.rows.node[first]), int(table.rows.node[row]))
        values = (table.label(first), turn[first], table.label(row), turn[row])
        findings.add("world-turn", None, nodes, "{} is collective {} of its rank, {} is {} (from 0)", *values)


def _runs(rows: IntArray, key: IntArray) -> list[IntArray]:
    """Cut rows where their key changes."""
    return np.split(rows, np.flatnonzero(np.diff(key[rows])) + 1) if len(rows) else []


def _same(
    table: _CommRows, group: int, ours: IntArray, theirs: IntArray, rank: int, parts: int, findings: PreflightFindings
) -> bool:
    """Whether two ranks run the same collectives of a group; the first difference is reported."""
    name = f"group {group}" if group else "all ranks"
    if len(ours) != len(theirs) and _name_missing(table, name, ours, theirs, rank, findings):
        return False
    both = min(len(ours), len(theirs))
    one, two = ours[:both], theirs[:both]
    rows = table.rows
    other_op = rows.op[one] != rows.op[two]
    other_size = (rows.size[one] != rows.size[two]) & ~other_op
    of_parts = other_size & (rows.op[one] == CollectiveCommType.ALL_TO_ALL)  # each rank gets a whole number of bytes
    uneven = of_parts & (rows.size[one] // parts != rows.size[two] // parts)
    other_size &= uneven | ~of_parts
    text = "{}, collective {}: {} of {} bytes on rank {} (node {}), {} of {} bytes on rank {} (node {})"
    for kind, differs in (("collective", other_op | (other_size & ~uneven)), ("uneven-collective", uneven)):
        for at in np.flatnonzero(differs)[:1].tolist():
            sides = [
                (_op_name(rows.op[row]), rows.size[row], table.rank[row], rows.node[row]) for row in (one[at], two[at])
            ]
            nodes = (int(rows.node[one[at]]), int(rows.node[two[at]]))
            findings.add(kind, None, nodes, text, name, at, *sides[0], *sides[1])
    free = rows.behind[one] != rows.behind[two]
    text = "{}, collective {} waits for the communication before it on rank {}, and not on rank {} (node {})"
    for at in np.flatnonzero(free & ~other_op & ~other_size)[:1].tolist():
        waits, other = (one[at], two[at]) if rows.behind[one[at]] else (two[at], one[at])
        values = (name, at, table.rank[waits], table.rank[other], rows.node[other])
        findings.add("free-order", None, (int(rows.node[other]),), text, *values)
    if len(ours) != len(theirs):
        values = (name, len(ours), table.rank[ours[0]], len(theirs), rank)
        findings.add("collective", None, (), "{}: {} collectives on rank {}, {} on rank {}", *values)
        return False
    return not (other_op | (other_size & ~uneven)).any()


def _name_missing(
    table: _CommRows, name: str, ours: IntArray, theirs: IntArray, rank: int, findings: PreflightFindings
) -> bool:
    """Report the collectives that one of two ranks lacks, if they do not differ otherwise.

    Sizes of all-to-alls may differ, but where they need not, they show which one is missing.
    """
    few, many = sorted((ours, theirs), key=len)
    op, size = table.rows.op, table.rows.size
    for exact in (True, False):
        may_differ = (op[few] == CollectiveCommType.ALL_TO_ALL) & (not exact)
        front, back = (
            (op[few] == op[part]) & ((size[few] == size[part]) | may_differ)
            for part in (many[: len(few)], many[len(many) - len(few) :])
        )
        at = int(np.append(front, False).argmin())
        if back[at:].all():
            break
    else:
        return False
    row, others = many[at], len(many) - len(few) - 1
    has, lacks = (int(table.rank[ours[0]]), rank) if many is ours else (rank, int(table.rank[ours[0]]))
    text = "{}, collective {}: {} of {} bytes on rank {} (node {}){} missing on rank {}, which has {} of {}"
    verb = f" and {others} after it are" if others else " is"
    values = (name, at, _op_name(op[row]), size[row], has, table.rows.node[row], verb, lacks, len(few), len(many))
    findings.add("collective", None, (int(table.rows.node[row]),), text, *values)
    return True


def _match_messages(table: _CommRows, findings: PreflightFindings) -> tuple[IntArray, IntArray] | None:
    """Pair sends with receives, the k-th with the k-th of the same source, destination, tag and size.

    Returns:
        rows of the sends and of their receives; None if a receive waits for a send that does not come.
    """
    rows = np.flatnonzero(table.rows.type != NodeType.COMM_COLL_NODE)
    if not len(rows):
        return rows, rows
    sends = table.rows.type[rows] == NodeType.COMM_SEND_NODE
    own, peer = table.rank[rows], table.rows.peer[rows]
    source, target = np.where(sends, own, peer), np.where(sends, peer, own)
    keys = np.stack([source, target, table.rows.tag[rows], table.rows.size[rows]])
    by_key = np.lexsort(keys[::-1])  # within a key the order of the table stays
    rows, sends, keys = rows[by_key], sends[by_key], keys[:, by_key]
    starts = np.flatnonzero(np.r_[True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)])
    count = np.diff(np.r_[starts, len(rows)])
    sent = np.add.reduceat(sends.astype(np.int64), starts)
    unequal = np.flatnonzero(2 * sent != count).tolist()
    text = "rank {} to {}, tag {}, {} bytes: {} sends, {} receives (first: node {} of rank {})"
    for at in unequal:
        first = rows[starts[at]]
        node, rank = int(table.rows.node[first]), int(table.rank[first])
        received = count[at] - sent[at]
        values = (*keys[:, starts[at]].tolist(), sent[at], received, node, rank)
        findings.add("message" if received > sent[at] else "unreceived-message", rank, (node,), text, *values)
    if np.any(count > 2 * sent):
        return None
    before = np.cumsum(sends) - sends
    received = sends & (before - np.repeat(before[starts], count) < np.repeat(count - sent, count))
    return rows[received], rows[~sends]


@dataclass(frozen=True)
class _Merged:
    """All ranks as one graph in which a collective is one event.

    Attributes:
        table: the communications.
        event: row to event, a row that stands for it.
        messages: rows of the sends, and of the receives that wait for them.
    """

    table: _CommRows
    event: IntArray
    messages: tuple[IntArray, IntArray]

    def check_order(self, findings: PreflightFindings) -> bool:
        """Find a deadlock of ranks that each run one communication after the other, in order of issue.

        A rank's dependencies all agree with that order: where this finds nothing there is no deadlock at all.

        Returns:
            whether there is one.
        """
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
        """Name the steps of a cycle (rank, event, next event), those of one rank in a row as one."""
        turn = next(at for at in range(len(steps)) if steps[at][0] != steps[at - 1][0])
        parts = []
        for rank, run in groupby(steps[turn:] + steps[:turn], key=lambda step: step[0]):
            (_, first, _), *_ = path = list(run)
            names = f"{self.table.label(first)} before {self.table.label(path[-1][2])}"
            parts.append(names if rank is None else f"rank {rank} runs {names}")
        more = f", and {len(parts) - _SHOWN_OF_A_CYCLE} more" if len(parts) > _SHOWN_OF_A_CYCLE else ""
        return ", ".join(parts[:_SHOWN_OF_A_CYCLE]) + more

    def check_dependencies(self, scans: Sequence[RankScan], findings: PreflightFindings) -> None:
        """Find a deadlock that follows from dependencies and the order within each group alone."""
        rank, group = self.table.rank, self.table.rows.group
        rows = np.flatnonzero(self.table.rows.type == NodeType.COMM_COLL_NODE)
        rows = rows[np.argsort(group[rows], kind="stable")]  # by group, rank, issue
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
