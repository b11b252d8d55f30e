"""Pre-flight check of a set of Chakra traces: what would make a reader or simulator fail, hang or mislead."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ..jobs.job_ranks import ONE_RANK
from ..schemas.chakra.comm_groups import GROUPS_SUFFIX, Groups, read_groups
from ..schemas.text.transaction import staged
from ..trace.columns import mask_at
from ..trace.errors import UsageError
from .coupling import Coupling, coupling
from .preflight_comm import check_groups, compare_ranks
from .preflight_findings import KINDS, Findings, PreflightReport, Problem, Profile
from .preflight_rank import UNKNOWN_RANK, RankFile, RankScan, scan

__all__ = ["KINDS", "PreflightReport", "Problem", "Profile", "check", "check_written"]

_RANK = re.compile(r"(?P<prefix>.+)\.(?P<rank>0|[1-9][0-9]{0,8})\.et(\.gz)?", re.ASCII | re.DOTALL)

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def check(
    source: Paths, *, profile: Profile = "chakra", groups: str | os.PathLike[str] | None = None, limit: int = 10
) -> PreflightReport:
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

    Raises:
        UsageError: no such files, two for a rank, an unknown profile or a negative limit.
        TraceFormatError: a file is not a Chakra trace, or the group file is invalid.
    """
    if profile not in ("chakra", "astra-sim"):
        raise UsageError(f"unknown profile {profile!r}; known are chakra and astra-sim")
    if limit < 0:
        raise UsageError(f"limit is {limit}; give 0 or more")
    files, prefix, alone = _find(source)
    group_path = _group_path(prefix, groups)
    known = read_groups(group_path) if group_path else None
    return _check(files, Findings(profile, limit), alone=alone, group_path=group_path, groups=known)


def check_written(files: Sequence[str], *, profile: Profile) -> PreflightReport | None:
    """Check the set, or the one file, that the present transaction writes; None if it is not one of regular files.

    Args:
        files: the names that the files are to have, group files among them.
    """
    if not all(staged(name).is_file() for name in files):
        return None
    ranks = [_rank_file(Path(name)) for name in files if not name.endswith(".json")]
    groups = next((name for name in files if name.endswith(GROUPS_SUFFIX)), None)
    known = None if groups is None else read_groups(str(staged(groups)))
    placed = sorted((RankFile(staged(one.path), one.rank) for one in ranks), key=lambda one: one.rank)
    return _check(placed, Findings(profile, 0), alone=len(ranks) == 1, group_path=groups, groups=known)


def _check(
    files: list[RankFile], findings: Findings, *, alone: bool, group_path: str | None, groups: Groups | None
) -> PreflightReport:
    if group_path and "empty" in group_path:
        findings.add("groups-path", None, (), "{}", group_path)
    world = None if alone else max(file.rank for file in files) + 1
    scans = [scan(file, findings) for file in files]
    check_groups(scans, groups, world, findings)
    if world is None:
        findings.skip("ranks were not compared with each other: one file was given")
    else:
        _compare(scans, world, groups, findings)
    coupled = sum((_coupling(one) for one in scans), Coupling())
    computing = sum(one.nodes - len(one.comm.op) for one in scans)
    if coupled.few and computing >= coupled.collectives:
        findings.add("few-waits", None, (), "{}", coupled)
    if len(scans) > 1 and not any(len(one.comm.op) for one in scans):
        findings.add("no-collective", None, (), "{} communicates", "no rank")
    return findings.report(
        files=tuple(str(file.path) for file in files),
        ranks=len(files),
        nodes=sum(one.nodes for one in scans),
        collectives=sum(int((one.comm.op >= 0).sum()) for one in scans),
        messages=sum(int((one.comm.op < 0).sum()) for one in scans),
        by_computation=coupled.by_computation,
        by_nothing=coupled.by_nothing,
    )


def _coupling(scanned: RankScan) -> Coupling:
    comm, graph = scanned.comm, scanned.graph
    return coupling(comm.index[comm.op >= 0], mask_at(graph.count, comm.index), graph.source, graph.target)


def _compare(scans: list[RankScan], world: int, groups: Groups | None, findings: Findings) -> None:
    ranks = [one.file.rank for one in scans]
    flaws = [f"rank {one.file.rank} {one.flaw}" for one in scans if one.flaw]
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
        compare_ranks(scans, groups, findings)


def _find(source: Paths) -> tuple[list[RankFile], str | None, bool]:
    """The files by rank, their prefix if they have one, and whether it is one file given by its own name."""
    paths = [Path(one) for one in ([source] if isinstance(source, (str, os.PathLike)) else source)]
    if not paths:
        raise UsageError("nothing to check; give a prefix or files")
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


def _find_by_prefix(prefix: Path) -> list[RankFile]:
    found: dict[int, Path] = {}
    siblings = sorted(prefix.parent.iterdir()) if prefix.parent.is_dir() else []
    for path in siblings:  # x.0.et comes before x.0.et.gz, and is the one that every reader would take
        named = _RANK.fullmatch(path.name)
        if named and named["prefix"] == prefix.name:
            found.setdefault(int(named["rank"]), path)
    if not found:
        raise UsageError(f"no file {prefix}.<rank>.et; give the part of the names before .<rank>.et, or files")
    return [RankFile(found[rank], rank) for rank in sorted(found)]


def _group_path(prefix: str | None, groups: str | os.PathLike[str] | None) -> str | None:
    if groups is not None:
        return os.fspath(groups)
    beside = f"{prefix}{GROUPS_SUFFIX}"
    return beside if prefix is not None and Path(beside).is_file() else None
