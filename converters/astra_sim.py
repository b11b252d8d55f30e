"""ET+ to Chakra traces that ASTRA-sim can run to the end, and the file of process groups that it is started with.

What it can and cannot run was observed by running it; see docs/converters.md.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import msgspec

from ..schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from ..schemas.text.files import open_output
from ..trace.errors import ConvertError, UsageError
from ..trace.trace import Trace
from .astra_gpu_only import fold
from .astra_nodes import after_start, write_nodes
from .chakra import Written
from .collectives import ALL_RANKS, Agreement, Communication, RankComms

_HOSTS = ("fold",)

_LEAST_BYTES = 4
_MAX_GBPS = 1e9
_BARRIER_BYTES = 1024


class Substitute(NamedTuple):
    """A collective that is simulated in place of one that is not.

    Attributes:
        kind: one of `SIMULATED_COLLECTIVES`.
        size: bytes of the original (as in `message_bytes`) and ranks of the group, 2 or more, to bytes.
        text: what to say of it.
    """

    kind: int
    size: Callable[[int, int], int]
    text: str


SUBSTITUTES: dict[int, Substitute] = {
    Type.BROADCAST: Substitute(
        Type.ALL_GATHER, lambda size, ranks: _share(size, ranks - 1), "broadcast run as all-gather of as many bytes"
    ),
    Type.REDUCE: Substitute(
        Type.REDUCE_SCATTER,
        lambda size, ranks: ranks * _share(size, ranks - 1),
        "reduce run as reduce-scatter of as many bytes",
    ),
    Type.GATHER: Substitute(Type.ALL_GATHER, lambda size, ranks: size, "gather run as all-gather"),
    Type.SCATTER: Substitute(Type.REDUCE_SCATTER, lambda size, ranks: size * ranks, "scatter run as reduce-scatter"),
    Type.REDUCE_SCATTER_BLOCK: Substitute(
        Type.REDUCE_SCATTER, lambda size, ranks: size, "reduce-scatter of blocks run as reduce-scatter"
    ),
    Type.BARRIER: Substitute(
        Type.ALL_REDUCE, lambda size, ranks: _BARRIER_BYTES, f"barrier run as all-reduce of {_BARRIER_BYTES} bytes"
    ),
}
"""Every other collective to one with as many bytes through the busiest link, the root's.

That is S for a broadcast or reduce of S bytes, and n − 1 times a rank's share for a gather or scatter: the factors of
"Performance reported by NCCL tests" (doc/PERFORMANCE.md of nccl-tests). ASTRA-sim's ring sends n − 1 times the size of
an all-gather, and n − 1 times the n-th part of that of a reduce-scatter (`Ring` in astra-sim/system/collective).
"""
_NO_PARTNER = "communication of a rank with itself kept as computation of its measured duration"
_ABSENT = "messages with ranks that were not given, kept as computations of their measured duration"


def _least(sizes: Iterable[int]) -> int:
    """The least size that is known."""
    return min(filter(None, sizes), default=0)


_AGREED: dict[int, tuple[Callable[[Iterable[int]], int], str]] = {
    Type.ALL_TO_ALL: (max, "all-to-all whose size differs between ranks, given the largest"),
    Type.GATHER: (_least, "gather whose size differs between ranks, given the least"),
    Type.SCATTER: (_least, "scatter whose size differs between ranks, given the least"),
}
"""Collectives whose ranks can have other sizes: which of these is that of all, since the simulator needs one.

Of a gather or scatter without metadata the root's holds the tensors of all ranks.
"""
_ENLARGED = f"collectives of under {_LEAST_BYTES} bytes, enlarged"
_EMPTY = "messages of 0 bytes, given 1 byte"


def for_simulator(agreement: Agreement) -> Agreement:
    """The communications as the simulator can run them; what it cannot is counted, and left to be a computation."""
    sizes = _agreed_sizes(agreement)
    ranks = {}
    for rank, comms in agreement.ranks.items():
        counts, found = Counter(comms.counts), []
        for comm in comms.found:
            reason = _unable(comm, comms, agreement)
            if reason:
                counts[reason] += 1
                continue
            if comm.size != (size := sizes.get((rank, comm.row), comm.size)):
                counts[_AGREED[comm.kind][1]] += 1
            found.append(_able(replace(comm, size=size), _group_size(comm, comms, agreement), counts))
        ranks[rank] = replace(comms, found=tuple(found), counts=counts)
    used = {comm.group for comms in ranks.values() for comm in comms.found}
    groups = {number: of for number, of in agreement.groups.items() if number in used}
    return replace(agreement, ranks=ranks, groups=groups)


def write_astra_sim(
    trace: Trace,
    path: str | os.PathLike[str],
    comms: RankComms,
    *,
    skew_ns: int = 0,
    transferred: Mapping[int, int] | None = None,
    roofline: float | None = None,
) -> Written:
    """Write one rank: GPU nodes, and the host's time as delays beside them.

    Args:
        comms: from `for_simulator`.
        skew_ns: how much later than the job the rank starts, which becomes a computation before all others.
        transferred: see `fold`.
        roofline: memory bandwidth of a roofline simulation, GB/s: all computations on the GPU get `num_ops` and
            `tensor_size`, see `roofline_work`.

    Raises:
        UsageError: an invalid `roofline` bandwidth, or the file cannot be written.
        ConvertError: the trace has no times, or its edges form a cycle.
    """
    if roofline is not None and not 0 < roofline < _MAX_GBPS:
        raise UsageError(
            f"invalid roofline {roofline:g}; give the bandwidth of the device's memory in GB/s, such as 2000"
        )
    if not trace.timed.any():
        raise ConvertError(f"{trace.file}: no node has a time, nothing to simulate; link the ET again")
    nodes = fold(trace, comms.found, transferred)
    if skew_ns >= 500:
        nodes = after_start(nodes, (skew_ns + 500) // 1000)
    return Written(write_nodes(trace, path, nodes, comms.rank, roofline), comms.counts)


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
    if host not in _HOSTS:
        raise UsageError(f"unknown host mode {host!r}; expected: {', '.join(_HOSTS)}")


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
    return ""


def _group_size(comm: Communication, own: RankComms, agreement: Agreement) -> int:
    """Ranks of a communication's group, 2 where that is not known."""
    members = agreement.groups.get(comm.group)
    if members is not None:
        return len(members)
    return len(agreement.ranks) if len(agreement.ranks) > 1 else max(own.world or 0, 2)


def _share(size: int, parts: int) -> int:
    return -(-size // parts)


def _able(comm: Communication, ranks: int, counts: Counter[str]) -> Communication:
    """A communication that the simulator can run, in place of one that it might not."""
    kind, size = comm.kind, comm.size
    if kind in SUBSTITUTES:
        substitute = SUBSTITUTES[kind]
        counts[substitute.text] += 1
        kind, size = substitute.kind, substitute.size(size, ranks)
    if kind >= 0 and size < _LEAST_BYTES:
        counts[_ENLARGED] += 1
        size = _LEAST_BYTES
    if kind < 0 and not size:
        counts[_EMPTY] += 1
        size = 1
    return replace(comm, kind=kind, size=size)


def _agreed_sizes(agreement: Agreement) -> dict[tuple[int, int], int]:
    """Rank and row of each collective of `_AGREED` to the size that all ranks of its group are to have for it.

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
    agreed: dict[tuple[int, int], int] = {}
    for ranks in sequences.values():
        if len({len(of) for of in ranks}) > 1:
            continue
        for together in zip(*ranks, strict=True):
            kinds = {comm.kind for _, comm in together}
            if len(kinds) == 1 and (kind := kinds.pop()) in _AGREED:
                size = _AGREED[kind][0](comm.size for _, comm in together)
                agreed.update({(rank, comm.row): size for rank, comm in together})
    return agreed
