"""ET+ to Chakra traces that ASTRA-sim can run to the end, and the file of process groups that it is started with.

What it can and cannot run was observed by running it; see docs/converters.md.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

import msgspec

from ..schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from ..schemas.files import open_output
from ..trace.errors import ConvertError, UsageError
from ..trace.trace import Trace
from .astra_gpu_only import fold
from .astra_nodes import write_nodes
from .chakra import Written
from .collectives import ALL_RANKS, Agreement, Communication, RankComms

__all__ = ["HOSTS", "Host", "check_host", "for_simulator", "write_astra_sim", "write_groups"]

Host = Literal["fold"]
HOSTS: tuple[str, ...] = get_args(Host)

_LEAST_BYTES = 4
_BARRIER_BYTES = 1024
_REPLACED: dict[int, tuple[int, str]] = {
    Type.REDUCE: (Type.ALL_REDUCE, "reduce run as all-reduce"),
    Type.GATHER: (Type.ALL_GATHER, "gather run as all-gather"),
    Type.REDUCE_SCATTER_BLOCK: (Type.REDUCE_SCATTER, "reduce-scatter of blocks run as reduce-scatter"),
    Type.BARRIER: (Type.ALL_REDUCE, f"barrier run as all-reduce of {_BARRIER_BYTES} bytes"),
}
_REPLAYED: frozenset[int] = frozenset({Type.SCATTER})
_NO_PARTNER = "communication of a rank with itself kept as computation of its measured duration"
_ABSENT = "messages with ranks that were not given, kept as computations of their measured duration"
_UNKNOWN = "scatter kept as computation of its measured duration"
_UNEVEN = "all-to-all whose size differs between ranks, given the largest"
_ENLARGED = f"collectives of under {_LEAST_BYTES} bytes, enlarged"


def for_simulator(agreement: Agreement) -> Agreement:
    """The communications as the simulator can run them; what it cannot is counted, and left to be a computation."""
    uneven = _largest_all_to_alls(agreement) if len(agreement.ranks) > 1 else {}
    ranks = {}
    for rank, comms in agreement.ranks.items():
        counts, found = Counter(comms.counts), []
        for comm in comms.found:
            reason = _unable(comm, comms, agreement)
            if reason:
                counts[reason] += 1
                continue
            found.append(_able(comm, uneven.get((rank, comm.row), 0), counts))
        ranks[rank] = replace(comms, found=tuple(found), counts=counts)
    used = {comm.group for comms in ranks.values() for comm in comms.found}
    groups = {number: of for number, of in agreement.groups.items() if number in used}
    return replace(agreement, ranks=ranks, groups=groups)


def write_astra_sim(document: Trace, path: str | os.PathLike[str], comms: RankComms, *, host: Host = "fold") -> Written:
    """Write one rank.

    Args:
        comms: from `for_simulator`.
        host: "fold", the only mode: GPU nodes, and the host's time as delays beside them.

    Raises:
        UsageError: an unknown `host`, or the file cannot be written.
        ConvertError: the document has no times, or its edges form a cycle.
    """
    check_host(host)
    if not document.timed.any():
        raise ConvertError(f"{document.file}: no node has a time, so there is nothing to simulate; link the ET anew")
    return Written(write_nodes(document, path, fold(document, comms.found), comms.rank), comms.counts)


def check_host(host: str) -> None:
    """Refuse an unknown host mode.

    Raises:
        UsageError: it is unknown, or "keep", which was removed.

    Example:
        >>> check_host("fold")
    """
    if host == "keep":
        raise UsageError(
            "host mode 'keep' was removed: operators kept the waits of the measured run; use 'fold' (the default), "
            "where the host's time runs beside the GPU's and waits follow the simulation"
        )
    if host not in HOSTS:
        raise UsageError(f"unknown host mode {host!r}; expected: {', '.join(HOSTS)}")


def write_groups(agreement: Agreement, prefix: str) -> list[str]:
    """Write `<prefix>.comm_groups.json` (number to ranks) and, if there are groups, their names to
    `<prefix>.comm_group_names.json`. The group of all ranks is in neither: it has number 0, which needs no file.

    Returns:
        the names of the files.
    """
    tables: dict[str, Mapping[int, object]] = {"comm_groups": agreement.groups}
    if agreement.groups:
        tables["comm_group_names"] = {number: agreement.names[number] for number in agreement.groups}
    paths = []
    for name, table in tables.items():
        paths.append(f"{prefix}.{name}.json")
        with open_output(paths[-1]) as file:
            file.write(msgspec.json.encode({str(number): value for number, value in table.items()}) + b"\n")
    return paths


def _unable(comm: Communication, own: RankComms, agreement: Agreement) -> str:
    """Why the simulator cannot run a communication, "" if it can."""
    alone = len(agreement.ranks) == 1  # the other ranks of the job are converted some other time, if there are any
    if comm.kind < 0:
        if comm.peer == own.rank:
            return _NO_PARTNER
        return _ABSENT if comm.peer < 0 or not (alone or comm.peer in agreement.ranks) else ""
    members = agreement.groups.get(comm.group)
    if comm.group == ALL_RANKS and alone and own.world == 1:
        return _NO_PARTNER
    if comm.group != ALL_RANKS and members is not None and (len(members) < 2 or own.rank not in members):
        return _NO_PARTNER
    return _UNKNOWN if comm.kind in _REPLAYED else ""


def _able(comm: Communication, largest: int, counts: Counter[str]) -> Communication:
    """A communication that the simulator can run, in place of one that it might not."""
    kind, size = comm.kind, comm.size
    if kind in _REPLACED:
        counts[_REPLACED[kind][1]] += 1
        size = _BARRIER_BYTES if kind == Type.BARRIER else size
        kind = _REPLACED[kind][0]
    if largest > size:
        counts[_UNEVEN] += 1
        size = largest
    if kind >= 0 and size < _LEAST_BYTES:
        counts[_ENLARGED] += 1
        size = _LEAST_BYTES
    return replace(comm, kind=kind, size=size)


def _largest_all_to_alls(agreement: Agreement) -> dict[tuple[int, int], int]:
    """Rank and row of each all-to-all to the largest size that any rank of its group has for it.

    The n-th collectives of a group belong together, if all its ranks have equally many.
    """
    sequences: defaultdict[int, list[list[tuple[int, Communication]]]] = defaultdict(list)
    for rank, comms in agreement.ranks.items():
        own: defaultdict[int, list[tuple[int, Communication]]] = defaultdict(list)
        for comm in comms.found:
            if comm.kind >= 0:
                own[comm.group].append((rank, comm))
        for group, of in own.items():
            sequences[group].append(of)
    largest: dict[tuple[int, int], int] = {}
    for ranks in sequences.values():
        if len({len(of) for of in ranks}) > 1:
            continue
        for together in zip(*ranks, strict=True):
            if all(comm.kind == Type.ALL_TO_ALL for _, comm in together):
                size = max(comm.size for _, comm in together)
                largest.update({(rank, comm.row): size for rank, comm in together})
    return largest
