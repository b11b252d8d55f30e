"""List each rank's communications in program order, with process groups and tags that are consistent across ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..jobs.job_ranks import groups_at_hand
from ..jobs.job_report import Mismatch, RankPair
from ..jobs.matching import match_collectives, match_messages, paired
from ..jobs.rank_communications import COLUMNS, RankCommunications, communications
from ..schemas.chakra.attributes import attribute
from ..schemas.chakra.et_def_pb2 import AttributeProto, NodeType
from ..schemas.comm_types import RECV, SEND, WORLD, Group
from ..schemas.communications import find_communications
from ..trace.columns import inverse_positions, lists_by
from ..trace.errors import ConvertError
from ..trace.trace import Trace

# Number of the process group that contains all ranks.
ALL_RANKS = 0

_MAX_GROUP = 2**31 - 1
_UNKNOWN = "communications of an unknown kind, kept as computations of their measured duration"
_ALONE = "communications that differ between ranks, kept as computations of their measured duration"
_NO_PEER = "messages whose other rank is unknown, kept as computations of their measured duration"


@dataclass(frozen=True)
class Communication:
    """A communication of a rank.

    Attributes:
        kind: CollectiveCommType, SEND or RECV.
        size: the number of bytes (see `message_bytes`).
        group, tag: numbers of the process group and of the message, the same on all ranks. They are 0 before `agree`.
        named: (name of the process group in the trace, ranks of the group).
        peer: for a message, the rank at the other end; for a collective, −1.
        seq: the sequence number in the trace, or −1 if none was recorded.
        start_ns, described: see `FoundComm`.
        aside: True if this is the part of a collective that slows concurrent work (see `with_slowed_work`).
    """

    row: int
    kind: int
    size: int
    group: int = ALL_RANKS
    peer: int = -1
    tag: int = 0
    seq: int = -1
    named: Group = WORLD
    start_ns: int = 0
    aside: bool = False
    described: str = ""


@dataclass(frozen=True)
class RankComms:
    """A rank's communications, sorted by launch. `counts` maps reasons to numbers of omitted communications."""

    rank: int
    world: int | None
    found: tuple[Communication, ...]
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Agreement:
    """Group numbers and message tags that are the same on all ranks. `groups` omits groups with unknown ranks."""

    ranks: dict[int, RankComms]
    groups: dict[int, list[int]]
    names: dict[int, str]
    notes: tuple[str, ...]


def shared_rows(comms: Sequence[Communication]) -> dict[int, list[Communication]]:
    return {row: shared for row, shared in lists_by((comm.row for comm in comms), comms).items() if len(shared) > 1}


def comm_node_type(comm: Communication) -> NodeType:
    types = {SEND: NodeType.COMM_SEND_NODE, RECV: NodeType.COMM_RECV_NODE}
    return types.get(comm.kind, NodeType.COMM_COLL_NODE)


def comm_attributes(comm: Communication, rank: int) -> list[AttributeProto]:
    values: dict[str, int | str] = {"comm_type": comm.kind, "comm_size": comm.size, "pg_name": str(comm.group)}
    if comm.kind < 0:
        source, target = (rank, comm.peer) if comm.kind == SEND else (comm.peer, rank)
        values = {"comm_src": source, "comm_dst": target, "comm_tag": comm.tag, "comm_size": comm.size}
    return [attribute(name, value) for name, value in values.items()]


def survey(trace: Trace, rank: int, unmatched: Container[int] = ()) -> RankComms:
    counts: Counter[str] = Counter()
    known = []
    for comm in find_communications(trace):
        if comm.kind is None or not comm.understood:
            counts[_UNKNOWN if comm.kind is None else _NO_PEER] += 1
        elif int(trace.nodes.id[comm.row]) in unmatched:
            counts[_ALONE] += 1
        else:
            named = Communication(comm.row, comm.kind, comm.bytes or 0, peer=comm.peer, seq=comm.seq, named=comm.group)
            known.append(replace(named, start_ns=comm.start_ns, described=comm.described))
    return RankComms(rank, trace.world_size, tuple(known), counts)


def agree(ranks: Sequence[RankComms]) -> Agreement:
    """Number the process groups and tag the messages consistently across all ranks (see `groups_at_hand`)."""
    present = sorted(rank.rank for rank in ranks)
    world = max((rank.world or 0 for rank in ranks), default=0)
    members, notes = groups_at_hand({rank.rank: [comm.named for comm in rank.found] for rank in ranks}, world)
    members = {group: known for group, known in members.items() if known != present or len(present) < 2}
    numbers = group_numbers(members)
    grouped = [
        replace(rank, found=tuple(replace(comm, group=numbers.get(comm.named, ALL_RANKS)) for comm in rank.found))
        for rank in ranks
    ]
    return Agreement(
        ranks={rank.rank: rank for rank in _tagged(grouped)},
        groups={numbers[group]: members[group] for group in sorted(members, key=numbers.__getitem__) if members[group]},
        names={number: group[0] for group, number in sorted(numbers.items(), key=lambda item: item[1])},
        notes=notes,
    )


def group_numbers(groups: Iterable[Group]) -> dict[Group, int]:
    """Number the groups from 1. If the name of a group is an unused number, the group gets this number. All other
    groups get the lowest unused numbers."""
    numbers: dict[Group, int] = {}
    taken: set[int] = set()
    others = []
    for group in sorted(groups):
        name = group[0]
        wish = int(name) if name.isascii() and name.isdecimal() and len(name) < 11 else 0
        if 0 < wish <= _MAX_GROUP and wish not in taken:
            numbers[group] = wish
            taken.add(wish)
        else:
            others.append(group)
    free = (number for number in range(1, len(taken) + len(others) + 1) if number not in taken)
    numbers.update(zip(others, free, strict=False))
    return numbers


def _tagged(ranks: Sequence[RankComms]) -> Iterator[RankComms]:
    """Give the n-th message from one rank to another the tag n on both ranks."""
    sequences: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
    for rank in ranks:
        for comm in rank.found:
            if comm.kind < 0:
                sequences[_ends(rank.rank, comm)].append(comm.seq)
    tags: dict[tuple[int, int, int], list[int]] = {}
    for (kind, source, target), own in sequences.items():
        other = sequences.get((SEND + RECV - kind, source, target), own)
        tags[kind, source, target] = _aligned(own, other)[::-1]
    for rank in ranks:
        number = rank.rank
        found = [replace(comm, tag=tags[_ends(number, comm)].pop()) if comm.kind < 0 else comm for comm in rank.found]
        yield replace(rank, found=tuple(found))


def _ends(rank: int, comm: Communication) -> tuple[int, int, int]:
    return (comm.kind, rank, comm.peer) if comm.kind == SEND else (comm.kind, comm.peer, rank)


def _aligned(own: list[int], other: list[int]) -> list[int]:
    """Return each message's position in sequence order. Messages that both sides recorded come first."""
    left, _ = paired(np.array(own, np.int64), np.array(other, np.int64))
    first = np.concatenate([left, np.setdiff1d(np.arange(len(own)), left)])
    ordinals: list[int] = inverse_positions(len(own), first).tolist()
    return ordinals


_MOST_RANKS = 8
_REMEDY = (
    "a simulator would wait forever; link that rank again with its Kineto trace, or keep unmatched communications as "
    "computations of fixed duration with --degrade"
)


@dataclass(frozen=True)
class RankRecording:
    """Start and communications of a rank, on its own clock. Communications with ids in `fixed` become computations."""

    file: str
    base_ns: int
    start_ns: int
    comms: RankCommunications
    fixed: Collection[int] = ()


def rank_recording(trace: Trace, fixed: Collection[int] = ()) -> RankRecording:
    base = trace.base_time_ns
    return RankRecording(trace.file, base, base + trace.span[0], communications(trace), fixed)


def matched(
    ranks: Sequence[RankComms], recorded: Mapping[int, RankRecording], *, degrade: bool
) -> tuple[list[RankComms], tuple[str, ...]]:
    """Return the communications that match on all ranks, and notes. If some communications do not match, raise
    ConvertError unless `degrade` is set."""
    times = {rank: _without(recording.comms, recording.fixed) for rank, recording in recorded.items()}
    mismatches = match_collectives(times)[2]
    pairs = [pair for pair in match_messages(times)[1] if pair.nodes and pair.source != pair.target]
    if not mismatches and not pairs:
        return list(ranks), ()
    if not degrade:
        files = {rank: recording.file for rank, recording in recorded.items()}
        problems = [_mismatch(files, mismatch) for mismatch in mismatches] + [_pair(files, pair) for pair in pairs]
        more = f" (and {len(problems) - 1:,} more)" if len(problems) > 1 else ""
        raise ConvertError(f"{problems[0]}{more}; {_REMEDY}")
    lone = {node for mismatch in mismatches for node in mismatch.nodes}
    lone.update(node for pair in pairs for node in pair.nodes)
    kept, fixed_ns = [], 0
    for rank in ranks:
        own = times[rank.rank]
        stays = np.array([(rank.rank, node) not in lone for node in own.node.tolist()], np.bool_)
        fixed_ns += int((own.end - own.start)[~stays].sum())
        matching_comms = tuple(comm for comm, stay in zip(rank.found, stays.tolist(), strict=True) if stay)
        kept.append(replace(rank, found=matching_comms))
    lost = f"{len(lone):,} communication{'s' * (len(lone) != 1)} that differ between ranks"
    return kept, (f"warning: degraded: {lost}, {fixed_ns / 1e6:,.3f} ms, became computations of fixed duration",)


def _without(comms: RankCommunications, ids: Collection[int]) -> RankCommunications:
    stays = ~np.isin(comms.node, list(ids))
    return RankCommunications(comms.groups, *(getattr(comms, column)[stays] for column in COLUMNS))


def _mismatch(files: Mapping[int, str], mismatch: Mismatch) -> str:
    group = f"group {mismatch.group}" if mismatch.group else "all ranks"
    size = f" of {mismatch.bytes:,} bytes" if mismatch.bytes >= 0 else ""
    having = [(rank, node) for rank, node in mismatch.nodes if rank not in mismatch.ranks]
    there = f"{mismatch.collective}{size}, collective {mismatch.position} (from 0) of {group}"
    if having:
        (first, node), others = having[0], [rank for rank, _ in having]
        there += f", which {_ranks(others, 'has', 'have')} (node {node} of rank {first})"
    verb = ("lacks", "lack") if mismatch.kind == "missing" else ("has another", "have another")
    instead = "" if mismatch.kind == "missing" else f": {mismatch.found[0]}"
    return f"{files[mismatch.ranks[0]]}: {_ranks(mismatch.ranks, *verb)} {there}{instead}"


def _pair(files: Mapping[int, str], pair: RankPair) -> str:
    parts = [
        (pair.unmatched_sends, "without a receive"),
        (pair.unmatched_receives, "received and not sent"),
        (pair.other_size, "with two sizes"),
    ]
    problems = ", ".join(f"{count:,} {problem}" for count, problem in parts if count)
    return f"{files[pair.source]}: messages from rank {pair.source} to rank {pair.target}: {problems}"


def _ranks(ranks: Sequence[int], singular: str, plural: str) -> str:
    some = ", ".join(map(str, ranks[:_MOST_RANKS]))
    more = f" and {len(ranks) - _MOST_RANKS:,} more" if len(ranks) > _MOST_RANKS else ""
    return f"rank {some} {singular}" if len(ranks) == 1 else f"ranks {some}{more} {plural}"
