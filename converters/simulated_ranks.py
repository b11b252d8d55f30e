"""The ranks that a simulator gets, where they are not those of the traces: numbered anew, or one trace for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..jobs.job_ranks import ONE_RANK
from ..schemas.comm_types import WORLD, Group
from ..trace.conventions import MAX_RANKS
from ..trace.errors import UsageError
from .collectives import Communication, RankComms

_MESSAGES = "messages of a replicated trace, kept as computations of their measured duration"


@dataclass(frozen=True)
class SimulatedRanks:
    """The ranks that a simulator gets.

    Attributes:
        comms: of each rank its communications.
        sources: rank to that of the trace that it runs.
        notes: sentences for the user.
    """

    comms: list[RankComms]
    sources: dict[int, int]
    notes: tuple[str, ...] = ()


def simulated_ranks(given: Sequence[RankComms], *, renumber: bool, replicate: int | None) -> SimulatedRanks:
    """The ranks of a simulation, which are 0 to n − 1.

    Args:
        renumber: number those that are given from 0 on.
        replicate: how many ranks the one trace that is given is to stand for.

    Raises:
        UsageError: fewer than two ranks, one that is missing, or several to replicate.
    """
    if replicate is not None:
        if len(given) > 1:
            raise UsageError(f"--replicate takes one trace, not {len(given)}; choose a rank with --rank")
        (source,) = given
        note = f"all {replicate} ranks run the trace of rank {source.rank}"
        return SimulatedRanks(replicated(source, replicate), dict.fromkeys(range(replicate), source.rank), (note,))
    if len(given) < 2:
        raise UsageError(f"only rank {given[0].rank} was given; {ONE_RANK}")
    ranks = renumbered(given) if renumber else list(given)
    sources = {one.rank: source.rank for one, source in zip(ranks, given, strict=True)}
    missing = sorted(set(range(len(ranks))) - set(sources))
    if missing:
        raise UsageError(
            f"rank {missing[0]} is missing, and ASTRA-sim needs all ranks from 0 on; give its trace, "
            "or number the others with --renumber-ranks"
        )
    moved = ", ".join(f"{source} as {rank}" for rank, source in sorted(sources.items()) if rank != source)
    return SimulatedRanks(ranks, sources, (f"ranks renumbered: {moved}",) if moved else ())


def renumbered(ranks: Sequence[RankComms]) -> list[RankComms]:
    """Number ranks from 0 on in their order; groups and peers follow.

    Ranks that are not given become negative, so that none is taken for one that is.

    Example:
        >>> [one.rank for one in renumbered([RankComms(rank, 8, ()) for rank in (6, 4, 7, 5)])]
        [2, 0, 3, 1]
    """
    new = {one.rank: number for number, one in enumerate(sorted(ranks, key=lambda one: one.rank))}

    def number(rank: int) -> int:
        return new.get(rank, -1 - rank)

    def moved(comm: Communication) -> Communication:
        name, members = comm.named
        peer = number(comm.peer) if comm.kind < 0 else comm.peer
        return replace(comm, peer=peer, named=(name, tuple(sorted(map(number, members)))))

    return [replace(one, rank=new[one.rank], found=tuple(map(moved, one.found))) for one in ranks]


def replicated(one: RankComms, ranks: int) -> list[RankComms]:
    """Ranks that all run one rank's trace.

    The group of all ranks, and one whose ranks are not known, becomes that of all new ones. One of s ranks with stride
    d is laid out over them as in a device mesh: d groups of s ranks each in every s · d ranks. A group of one rank
    stays one. Messages are dropped and counted: the rank at their other end runs another program.

    Raises:
        UsageError: fewer than two ranks, or a group that cannot be laid out over so many.

    Example:
        >>> tensor_parallel = Communication(0, 0, 64, named=("tp", (4, 5)))
        >>> [rank.found[0].named for rank in replicated(RankComms(5, 8, (tensor_parallel,)), 4)]
        [('tp', (0, 1)), ('tp', (0, 1)), ('tp', (2, 3)), ('tp', (2, 3))]
    """
    if not 2 <= ranks <= MAX_RANKS:
        raise UsageError(f"--replicate {ranks}: ASTRA-sim needs at least 2 ranks and takes at most {MAX_RANKS:,}")
    collectives = [comm for comm in one.found if comm.kind >= 0]
    counts = one.counts + Counter({_MESSAGES: len(one.found) - len(collectives)})
    layouts = {group: _layout(group, ranks) for group in sorted({comm.named for comm in collectives})}
    return [
        RankComms(
            rank, ranks, tuple(replace(comm, named=layouts[comm.named][rank]) for comm in collectives), Counter(counts)
        )
        for rank in range(ranks)
    ]


def _layout(group: Group, ranks: int) -> list[Group]:
    """The group in place of a trace's that each of so many ranks is in."""
    name, members = group
    if not members:
        return [WORLD] * ranks
    if len(members) == 1:
        return [(name, (rank,)) for rank in range(ranks)]
    strides = {b - a for a, b in pairwise(members)}
    if len(strides) > 1:
        raise UsageError(
            f"--replicate: group {name!r} has ranks {', '.join(map(str, members))}, which are not evenly spaced and "
            "cannot be laid out over other ranks; convert the traces of all ranks"
        )
    (stride,) = strides
    block = stride * len(members)
    if ranks % block:
        raise UsageError(
            f"--replicate {ranks}: group {name!r} has {len(members)} ranks with a stride of {stride}; "
            f"give a multiple of {block}"
        )
    of: list[Group] = []
    for rank in range(ranks):
        first = rank - rank % block + rank % stride
        of.append((name, tuple(range(first, first + block, stride))))
    return of
