"""Write Chakra traces that ASTRA-sim can run to completion, and their process-group file.

The limits of ASTRA-sim were found by running it; see docs/reference/chakra.md.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, pairwise
from typing import NamedTuple

import numpy as np

from ..jobs.clocks import clock_offsets, synchronizing, transfers
from ..jobs.job_ranks import ONE_RANK
from ..jobs.job_report import ClockOffset
from ..jobs.matching import Matched, match_collectives, match_messages
from ..jobs.rank_communications import RankCommunications
from ..schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from ..schemas.comm_types import WORLD, Group
from ..trace.conventions import MAX_RANKS
from ..trace.errors import ConvertError, UsageError
from ..trace.trace import Trace
from .astra_gpu_only import fold
from .astra_nodes import after_start, write_nodes
from .chakra import Written
from .collectives import ALL_RANKS, Agreement, Communication, RankComms, RankRecording
from .host_timeline import ReplayedRank

_LEAST_BYTES = 4
_MAX_GBPS = 1e9
_BARRIER_BYTES = 1024


class Substitute(NamedTuple):
    """A replacement collective. `size` computes its bytes from the original's bytes and number of ranks (2 or more)."""

    kind: int
    size: Callable[[int, int], int]
    text: str


# A substitute moves the same number of bytes through the busiest link (the root's) as the original collective.
# A broadcast or reduce moves its size; a gather or scatter moves n − 1 ranks' parts (doc/PERFORMANCE.md in nccl-tests).
# In an all-gather of ASTRA-sim (astra-sim/system/collective/Ring.cc), each rank sends n − 1 times the size.
# In a reduce-scatter of ASTRA-sim, each rank sends only (n − 1)/n times the size.
SUBSTITUTES: dict[int, Substitute] = {
    Type.BROADCAST: Substitute(
        Type.ALL_GATHER,
        lambda size, ranks: _share(size, ranks - 1),
        "broadcast run as an all-gather of the same number of bytes",
    ),
    Type.REDUCE: Substitute(
        Type.REDUCE_SCATTER,
        lambda size, ranks: ranks * _share(size, ranks - 1),
        "reduce run as a reduce-scatter of the same number of bytes",
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
_NO_PARTNER = "communication of a rank with itself, kept as a computation of its measured duration"
_ABSENT = "messages to or from ranks that were not given, kept as computations of their measured duration"


def _least(sizes: Iterable[int]) -> int:
    return min(filter(None, sizes), default=0)


# ASTRA-sim needs one size per collective. If the sizes on the ranks differ, this function chooses one.
# If a gather or scatter has no metadata, the root's tensors have the data of all ranks, so the root's size is larger.
_AGREED: dict[int, tuple[Callable[[Iterable[int]], int], str]] = {
    Type.ALL_TO_ALL: (max, "all-to-all with sizes that differ between ranks, run with the largest size"),
    Type.GATHER: (_least, "gather with sizes that differ between ranks, run with the smallest size"),
    Type.SCATTER: (_least, "scatter with sizes that differ between ranks, run with the smallest size"),
}
_ENLARGED = f"collectives of under {_LEAST_BYTES} bytes, enlarged"
_EMPTY = "messages of 0 bytes, enlarged to 1 byte"


def for_simulator(agreement: Agreement) -> Agreement:
    sizes = _agreed_sizes(agreement)
    ranks = {}
    for rank, comms in agreement.ranks.items():
        counts, able = Counter(comms.counts), []
        for comm in comms.found:
            reason = _unable(comm, comms, agreement)
            if reason:
                counts[reason] += 1
                continue
            if comm.size != (size := sizes.get((rank, comm.row), comm.size)):
                counts[_AGREED[comm.kind][1]] += 1
            able.append(_able(replace(comm, size=size), _group_size(comm, comms, agreement), counts))
        ranks[rank] = replace(comms, found=tuple(able), counts=counts)
    used = {comm.group for comms in ranks.values() for comm in comms.found}
    groups = {number: members for number, members in agreement.groups.items() if number in used}
    return _in_turn(replace(agreement, ranks=ranks, groups=groups))


# To match a collective of all ranks, ASTRA-sim counts the collectives before it, including other process groups.
_OWN_GROUP = (
    "the set lists all ranks as a process group, because ASTRA-sim matches collectives of all ranks by the number of "
    "earlier collectives, and this number differs between ranks"
)


def _in_turn(agreement: Agreement) -> Agreement:
    """Declare a group of all ranks if ASTRA-sim would otherwise match the wrong collectives; see `_OWN_GROUP`."""
    turns = {
        tuple(turn for turn, comm in enumerate(c for c in comms.found if c.kind >= 0) if comm.group == ALL_RANKS)
        for comms in agreement.ranks.values()
    }
    if len(turns) < 2 or len({len(turn) for turn in turns}) > 1:
        return agreement
    number = next(number for number in count(1) if number not in agreement.names)

    def moved(comm: Communication) -> Communication:
        return replace(comm, group=number) if comm.kind >= 0 and comm.group == ALL_RANKS else comm

    return replace(
        agreement,
        ranks={rank: replace(comms, found=tuple(map(moved, comms.found))) for rank, comms in agreement.ranks.items()},
        groups={**agreement.groups, number: sorted(agreement.ranks)},
        names={**agreement.names, number: "all ranks"},
        notes=(*agreement.notes, _OWN_GROUP),
    )


def write_astra_sim(
    trace: Trace,
    path: str | os.PathLike[str],
    comms: RankComms,
    skew_ns: int = 0,
    transferred: Mapping[int, int] | None = None,
    roofline: float | None = None,
    on_host: ReplayedRank | None = None,
) -> Written:
    """Write one rank's file. The file contains the GPU nodes, and delays that represent host time.
    `comms` are from `for_simulator`. The rank starts `skew_ns` after the first rank. An extra computation at the
    beginning represents the time before the rank starts. `fold` explains `transferred` and `on_host`. `roofline` is the
    memory bandwidth of the device in GB/s (see `roofline_work`)."""
    if roofline is not None and not 0 < roofline < _MAX_GBPS:
        raise UsageError(
            f"invalid roofline {roofline:g}; give the bandwidth of the device's memory in GB/s, such as 2000"
        )
    if not trace.nodes.timed.any():
        raise ConvertError(f"{trace.file}: no node has a time, so there is nothing to simulate; link the ET again")
    trace = trace if on_host is None else on_host.trace
    nodes = fold(trace, comms.found, transferred, on_host)
    if skew_ns >= 500:
        nodes = after_start(nodes, (skew_ns + 500) // 1000)
    return Written(write_nodes(trace, path, nodes, comms.rank, roofline), comms.counts)


def _unable(comm: Communication, own: RankComms, agreement: Agreement) -> str:
    alone = len(agreement.ranks) == 1  # The other ranks of the job may be converted separately.
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
    """Return the number of ranks in a communication's process group, or 2 if it is unknown."""
    members = agreement.groups.get(comm.group)
    if members is not None:
        return len(members)
    return len(agreement.ranks) if len(agreement.ranks) > 1 else max(own.world or 0, 2)


def _share(size: int, parts: int) -> int:
    return -(-size // parts)  # The division rounds up.


def _able(comm: Communication, ranks: int, counts: Counter[str]) -> Communication:
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
    sequences: defaultdict[int, list[list[tuple[int, Communication]]]] = defaultdict(list)
    for rank, comms in agreement.ranks.items():
        own: defaultdict[int, list[tuple[int, Communication]]] = defaultdict(list)
        for comm in comms.found:
            if comm.kind >= 0:
                own[comm.group].append((rank, comm))
        for group, comms_of_group in own.items():
            sequences[group].append(comms_of_group)
    agreed: dict[tuple[int, int], int] = {}
    for ranks in sequences.values():
        if len(set(map(len, ranks))) > 1:
            continue
        for together in zip(*ranks, strict=True):
            kinds = {comm.kind for _, comm in together}
            if len(kinds) == 1 and (kind := kinds.pop()) in _AGREED:
                size = _AGREED[kind][0](comm.size for _, comm in together)
                agreed.update({(rank, comm.row): size for rank, comm in together})
    return agreed


_MESSAGES = "messages in the replicated trace, kept as computations of their measured duration"


def simulated_ranks(
    given: Sequence[RankComms], *, renumber: bool, replicate: int | None
) -> tuple[list[RankComms], dict[int, int], tuple[str, ...]]:
    """Return the simulated ranks 0 to n − 1, a map from each simulated rank to the rank of its trace, and notes."""
    if replicate is not None:
        if len(given) > 1:
            raise UsageError(f"--replicate takes one trace, not {len(given)}; choose a rank with --rank")
        (source,) = given
        note = f"all {replicate} ranks run the trace of rank {source.rank}"
        return replicated(source, replicate), dict.fromkeys(range(replicate), source.rank), (note,)
    if len(given) < 2:
        raise UsageError(f"only rank {given[0].rank} was given; {ONE_RANK}")
    ranks = renumbered(given) if renumber else list(given)
    sources = {rank.rank: source.rank for rank, source in zip(ranks, given, strict=True)}
    missing = sorted(set(range(len(ranks))) - set(sources))
    if missing:
        raise UsageError(
            f"rank {missing[0]} is missing, but ASTRA-sim needs all ranks, starting at 0; give its trace, "
            "or renumber the given ranks with --renumber-ranks"
        )
    moved = ", ".join(f"{source} as {rank}" for rank, source in sorted(sources.items()) if rank != source)
    return ranks, sources, (f"ranks renumbered: {moved}",) if moved else ()


def renumbered(ranks: Sequence[RankComms]) -> list[RankComms]:
    new = {rank: number for number, rank in enumerate(sorted(comms.rank for comms in ranks))}

    def number(rank: int) -> int:
        return new.get(rank, -1 - rank)

    def moved(comm: Communication) -> Communication:
        name, members = comm.named
        peer = number(comm.peer) if comm.kind < 0 else comm.peer
        return replace(comm, peer=peer, named=(name, tuple(sorted(map(number, members)))))

    return [replace(comms, rank=new[comms.rank], found=tuple(map(moved, comms.found))) for comms in ranks]


def replicated(given: RankComms, ranks: int) -> list[RankComms]:
    """Return simulated ranks that all run the same single trace.

    If a process group contains all ranks, or its ranks are unknown, its copy contains all simulated ranks. If a group
    has s ranks with stride d, it is repeated as in a device mesh: every s · d ranks contain d groups. Messages are
    dropped and counted.

    Example:
        >>> tensor_parallel = Communication(0, 0, 64, named=("tp", (4, 5)))
        >>> [rank.found[0].named for rank in replicated(RankComms(5, 8, (tensor_parallel,)), 4)]
        [('tp', (0, 1)), ('tp', (0, 1)), ('tp', (2, 3)), ('tp', (2, 3))]
    """
    if not 2 <= ranks <= MAX_RANKS:
        raise UsageError(f"--replicate {ranks}: ASTRA-sim needs at least 2 ranks and supports at most {MAX_RANKS:,}")
    collectives = [comm for comm in given.found if comm.kind >= 0]
    counts = given.counts + Counter({_MESSAGES: len(given.found) - len(collectives)})
    layouts = {group: _layout(group, ranks) for group in sorted({comm.named for comm in collectives})}
    found = [tuple(replace(comm, named=layouts[comm.named][rank]) for comm in collectives) for rank in range(ranks)]
    return [RankComms(rank, ranks, comms, Counter(counts)) for rank, comms in enumerate(found)]


def _layout(group: Group, ranks: int) -> list[Group]:
    name, members = group
    if not members:
        return [WORLD] * ranks
    if len(members) == 1:
        return [(name, (rank,)) for rank in range(ranks)]
    strides = {b - a for a, b in pairwise(members)}
    if len(strides) > 1:
        raise UsageError(
            f"--replicate: group {name!r} has ranks {', '.join(map(str, members))}, which are not evenly spaced, so it "
            "cannot be laid out over other ranks; convert the traces of all ranks"
        )
    (stride,) = strides
    block = stride * len(members)
    if ranks % block:
        raise UsageError(
            f"--replicate {ranks}: group {name!r} has {len(members)} ranks with a stride of {stride}; "
            f"give a multiple of {block}"
        )
    layout: list[Group] = []
    for rank in range(ranks):
        first = rank - rank % block + rank % stride
        layout.append((name, tuple(range(first, first + block, stride))))
    return layout


@dataclass(frozen=True)
class JobTimes:
    """Start times of a job's ranks. Collectives end at about the same time on all ranks, so they align the clocks."""

    ranks: Mapping[int, RankRecording]

    @cached_property
    def _comms(self) -> dict[int, RankCommunications]:
        return {rank: recording.comms for rank, recording in self.ranks.items()}

    @cached_property
    def _collectives(self) -> list[Matched]:
        return match_collectives(self._comms)[0]

    @cached_property
    def _messages(self) -> list[Matched]:
        return match_messages(self._comms)[0]

    @cached_property
    def _clocks(self) -> list[ClockOffset]:
        return clock_offsets(synchronizing(self._collectives), self._messages)

    def start_skew(self) -> tuple[dict[int, int], tuple[str, ...]]:
        """Map each rank to the time in ns by which it starts after the first rank. Also return notes."""
        joined: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for clock in self._clocks:
            joined[clock.reference][clock.rank] = self.ranks[clock.rank].start_ns - clock.offset_ns
        skew = dict.fromkeys(self.ranks, 0)
        for starts in joined.values():
            first = min(starts.values())
            skew |= {rank: start - first for rank, start in starts.items()}
        notes = []
        apart = len(joined) + len(self.ranks) - sum(map(len, joined.values()))
        if apart > 1:
            notes.append(
                f"no collective includes all ranks, so {apart} sets of ranks with unknown clock offsets start together"
            )
        if any(skew.values()):
            last = max(skew, key=lambda rank: (skew[rank], -rank))
            notes.append(f"ranks start as measured, up to {skew[last] / 1e6:,.3f} ms apart (rank {last} last)")
        return skew, tuple(notes)

    def transferred(self) -> dict[int, dict[int, int]]:
        offsets = {clock.rank: clock.offset_ns for clock in self._clocks}
        arrivals: dict[int, dict[int, int]] = {rank: {} for rank in self.ranks}
        for matched in (*self._collectives, *self._messages):
            seen = transfers(matched, offsets)
            arrived = seen.begin + seen.duration
            for i, rank in enumerate(matched.ranks):
                until = np.clip(arrived + offsets.get(rank, 0), matched.start[:, i], matched.end[:, i])
                until = until[seen.seen] - self.ranks[rank].base_ns
                arrivals[rank] |= dict(zip(matched.node[seen.seen, i].tolist(), until.tolist(), strict=True))
        return arrivals
