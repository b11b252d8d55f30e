"""Check a set of Chakra traces for faults that make a reader or simulator fail, hang, or give misleading results.

The check shares no code with the writers. If the check used their matcher (`jobs.matching`), it would miss errors in
the matcher.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..jobs.job_ranks import ONE_RANK
from ..schemas.chakra.comm_groups import GROUPS_SUFFIX, Groups, find_groups, read_groups
from ..schemas.chakra.et_def_pb2 import CollectiveCommType
from ..schemas.text.transaction import staged
from ..trace.columns import distinct, mask_at
from ..trace.errors import UsageError
from ..trace.printable import few
from .preflight_findings import PreflightFindings, PreflightReport, Profile
from .preflight_match import ALL_RANKS, compare_ranks, op_name
from .preflight_rank import UNKNOWN_RANK, RankFile, RankScan, scan
from .row_dependencies import Coupling, coupling

if TYPE_CHECKING:
    from ..timeline.network_description import Network

_RANK = re.compile(r"(?P<prefix>.+)\.(?P<rank>0|[1-9][0-9]{0,8})\.et(\.gz)?", re.ASCII | re.DOTALL)

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def check(
    source: Paths,
    *,
    profile: Profile = "chakra",
    groups: str | os.PathLike[str] | None = None,
    limit: int = 10,
    network: Network | str | None = None,
) -> PreflightReport:
    """Check a set of traces. The check assumes that each rank issues its nodes as if they took no time.

    Args:
        source: the files of all ranks from 0 on, the prefix in ``<prefix>.<rank>.et``, or a single file.
        profile: problems that make only ASTRA-sim fail are errors with "astra-sim", and warnings with "chakra".
        groups: the process-group file. The default is ``<prefix>.comm_groups.json`` if that file exists.
        limit: the maximum number of problems to keep per kind. Problems beyond the limit are only counted.
        network: the network on which the set will be simulated, or a description of it (see `parse_network`).

    Raises:
        UsageError: files are missing, two files have the same rank, the profile is unknown, or the limit is negative.
        TraceFormatError: a file is not a Chakra trace, or the group file is invalid.
    """
    if profile not in ("chakra", "astra-sim"):
        raise UsageError(f"unknown profile {profile!r}; choose chakra or astra-sim")
    if limit < 0:
        raise UsageError(f"limit is {limit}; give 0 or more")
    files, prefix, alone = _find(source)
    group_path = os.fspath(groups) if groups is not None else None if prefix is None else find_groups(prefix)
    known = read_groups(group_path) if group_path else None
    findings = PreflightFindings(profile, limit)
    if isinstance(network, str):
        from ..timeline.network_file import parse_network

        network = parse_network(network)
    dimensions, endpoint_delay = None, 1.0
    if prefix is not None and not alone:
        dimensions, endpoint_delay = _check_network_files(prefix, len(files), findings)
    scans = _scan(
        files, findings, alone=alone, group_path=group_path, groups=known, dimensions=dimensions, network=network
    )
    for scanned in scans if not endpoint_delay else ():
        if (node := scanned.begins_at_once) is not None and not scanned.flaw:
            findings.add("first-collective", scanned.file.rank, (node,), "node {} waits for nothing", node)
    if network is not None:
        _check_network(scans, prefix, known or {}, network, findings)
    return _report(scans, findings)


def check_written(files: Sequence[str], *, profile: Profile) -> PreflightReport | None:
    """Check the set or file that the current transaction is writing. Return None if an output is not a regular file."""
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
    if group_path and "empty" in group_path:
        findings.add("groups-path", None, (), "{}", group_path)
    world = None if alone else max(file.rank for file in files) + 1
    scans = [scan(file, findings, known_attributes=written, dimensions=dimensions) for file in files]
    check_groups(scans, groups, world, findings)
    if world is None:
        findings.skip("ranks were not compared with each other, because only one file was given")
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


def _check_network_files(prefix: str, ranks: int, findings: PreflightFindings) -> tuple[int | None, float]:
    """Check the network files next to a set. Return the number of dimensions and the endpoint delay in ns."""
    from .astra_config import dimensions_of, endpoint_delay_of, flaws_of_files, network_files_of  # few sets have any

    files = network_files_of(prefix)
    if files is None:
        return None, 1.0
    for flaw in flaws_of_files(files, ranks):
        findings.add("network-files", None, (), "{}", flaw)
    dimensions = len(dimensions_of(files[0].read_text(errors="replace")).get("npus_count", ())) or None
    return dimensions, endpoint_delay_of(files[1])


def _check_network(
    scans: Sequence[RankScan], prefix: str | None, groups: Groups, network: Network, findings: PreflightFindings
) -> None:
    from .astra_config import network_files_of, same_files
    from .astra_links import astra_links

    links = astra_links(network, len(scans))
    for text in links.unsaid:
        findings.add("network-inexact", None, (), "{}", text)
    files = None if prefix is None else network_files_of(prefix)
    if files is None:
        findings.skip("network files were not checked, because there are none next to the set")
    elif not same_files(files, network, links):
        findings.add("network-differs", None, (), "{} and {}; convert for this network again", *(f.name for f in files))
    for scanned in scans:
        _check_parts(scanned, len(scans), groups, findings)


def _check_parts(scanned: RankScan, world: int, groups: Groups, findings: PreflightFindings) -> None:
    """Find collectives that lose bytes. ASTRA-sim divides sizes by the number of ranks and rounds down (minimum 1)."""
    comm = scanned.comm
    ranks = np.array([len(groups.get(group, ())) or world for group in comm.group.tolist()], np.int64)
    parted = (comm.op >= 0) & (comm.op != CollectiveCommType.ALL_GATHER)
    lost = np.abs(comm.size - np.maximum(comm.size // np.maximum(ranks, 1), 1) * ranks)
    for row in np.flatnonzero(parted & (lost > _PART_LOST * comm.size)).tolist():
        node, values = int(comm.node[row]), (op_name(comm.op[row]), comm.node[row], comm.size[row], ranks[row])
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
            findings.add("missing-rank", None, (), "no file for {}; the highest rank is {}", gap, world - 1)
            flaws.append(f"{gap} missing")
    if world == 1:
        findings.add("single-rank", None, (), "rank 0 is the only rank; {}", ONE_RANK)
    if flaws:
        findings.skip(f"communications were not compared between ranks: {', '.join(flaws)}")
    else:
        _compare_order(scans, groups, network, findings)


def _compare_order(
    scans: list[RankScan], groups: Groups | None, network: Network | None, findings: PreflightFindings
) -> None:
    compared = PreflightFindings(findings.profile, max(findings.limit, 1))
    compare_ranks(scans, groups, compared)
    if findings.profile != "astra-sim" or not set(compared.errors) or not set(compared.errors) <= _BY_ORDER:
        findings.extend(compared)
        return
    from .astra_config import DEFAULT  # Few sets need this.
    from .preflight_run import rank_ends

    if rank_ends(scans, groups or {}, network or DEFAULT) is None:
        findings.extend(compared)
        return
    for problem in [problems[0] for problems in compared.errors.values() if problems][:1]:
        findings.add("free-order", problem.rank, problem.nodes, "no deadlock with these durations: {}", problem.text)


# These errors depend on the order in which nodes are issued.
_BY_ORDER = frozenset(("collective", "uneven-collective", "comm-order", "world-turn", "deadlock"))


def _find(source: Paths) -> tuple[list[RankFile], str | None, bool]:
    """Return the files sorted by rank, their common prefix (or None), and True if only a single file is checked."""
    paths = [Path(source)] if isinstance(source, (str, os.PathLike)) else list(map(Path, source))
    if not paths:
        raise UsageError("nothing to check; pass a prefix or files")
    if len(paths) == 1 and paths[0].is_dir() and not _siblings(paths[0]):
        paths = [_prefix_in(paths[0])]
    if len(paths) == 1 and not paths[0].is_file():
        found = _siblings(paths[0])
        if not found:
            raise UsageError(f"no file {paths[0]}.<rank>.et; give the file-name prefix before .<rank>.et, or the files")
        return [RankFile(found[rank], rank) for rank in sorted(found)], str(paths[0]), False
    files = sorted(map(_rank_file, paths), key=lambda file: (file.rank, file.path))
    if len(files) > 1:
        for file, following in zip(files, [*files[1:], None], strict=True):
            if file.rank == UNKNOWN_RANK:
                raise UsageError(f"{file.path}: the name does not end in .<rank>.et; check it separately")
            if following and file.rank == following.rank:
                raise UsageError(f"{file.path} and {following.path} belong to the same rank; give one of them")
    named = _RANK.fullmatch(str(files[0].path))
    return files, named["prefix"] if named else None, len(files) == 1


def _rank_file(path: Path) -> RankFile:
    named = _RANK.fullmatch(path.name)
    return RankFile(path, int(named["rank"]) if named else UNKNOWN_RANK)


def _prefix_in(folder: Path) -> Path:
    prefixes = sorted({named["prefix"] for path in folder.iterdir() if (named := _RANK.fullmatch(path.name))})
    if not prefixes:
        raise UsageError(f"{folder}: no file named <prefix>.<rank>.et; give a set of Chakra traces")
    if len(prefixes) > 1:
        raise UsageError(f"{folder}: {len(prefixes)} sets ({few(prefixes)}); give one as {folder / prefixes[0]}")
    return folder / prefixes[0]


def _siblings(prefix: Path) -> dict[int, Path]:
    files: dict[int, Path] = {}
    siblings = sorted(prefix.parent.iterdir()) if prefix.parent.is_dir() else []
    for path in siblings:  # All readers prefer x.0.et over x.0.et.gz, so it comes first.
        named = _RANK.fullmatch(path.name)
        if named and named["prefix"] == prefix.name:
            files.setdefault(int(named["rank"]), path)
    return files


def check_groups(
    scans: Sequence[RankScan], groups: Groups | None, world: int | None, findings: PreflightFindings
) -> None:
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
                findings.add("group", rank, (node,), "group {} of node {} does not include the rank", group, node)
    if ALL_RANKS in groups:
        problem = "the group file has group 0, but 0 means all ranks; number groups from 1"
        findings.add("group", None, (), problem)
    for group, ranks in groups.items():
        strange = sorted({rank for rank in ranks if rank < 0 or (world is not None and rank >= world)})
        if strange and group in in_use:
            findings.add("group", None, (), "group {} has ranks that do not exist: {}", group, strange)
        if len(set(ranks)) < len(ranks):
            findings.add("group", None, (), "group {} lists a rank twice: {}", group, list(ranks))
        if len(set(ranks)) == 1 and group in in_use:
            findings.add("one-rank-group", None, (), "group {} has only rank {}", group, ranks[0])
