"""The communications of all ranks of a set matched before it is written: what does not match is refused or degraded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..jobs.job_report import Mismatch, RankPair
from ..jobs.matching import match_collectives, match_messages
from ..jobs.rank_communications import COLUMNS, RankCommunications
from ..trace.errors import ConvertError
from .collectives import RankComms

_MOST_RANKS = 8
_REMEDY = (
    "a simulator would wait for ever: link that rank again with its Kineto trace, or keep what does not match as "
    "computations of fixed duration with --degrade"
)


@dataclass(frozen=True)
class Recorded:
    """What a rank communicates as it was recorded.

    Attributes:
        file: name of the trace for messages.
        comms: all its communications.
        fixed: ids of those that are to be computations anyway.
    """

    file: str
    comms: RankCommunications
    fixed: Collection[int] = ()


def matched(
    ranks: Sequence[RankComms], recorded: Mapping[int, Recorded], *, degrade: bool
) -> tuple[list[RankComms], tuple[str, ...]]:
    """The communications that all ranks have alike; and sentences for the user.

    Args:
        ranks: the ranks of a set, each with its communications but for those that are to be computations anyway.
        recorded: of each rank what it communicates; of one rank alone {}.
        degrade: leave out what not all ranks have alike, so that it becomes a computation, and say how much.

    Raises:
        ConvertError: not `degrade`, and a collective or message does not match.
    """
    times = {rank: _without(one.comms, one.fixed) for rank, one in recorded.items()}
    mismatches = match_collectives(times)[2]
    pairs = [pair for pair in match_messages(times)[1] if pair.nodes and pair.source != pair.target]
    if not mismatches and not pairs:
        return list(ranks), ()
    if not degrade:
        raise ConvertError(_refusal({rank: one.file for rank, one in recorded.items()}, mismatches, pairs))
    lone = {node for nodes in [*(one.nodes for one in mismatches), *(one.nodes for one in pairs)] for node in nodes}
    kept, fixed_ns = [], 0
    for rank in ranks:
        own = times[rank.rank]
        stays = np.array([(rank.rank, node) not in lone for node in own.node.tolist()], np.bool_)
        fixed_ns += int((own.end - own.start)[~stays].sum())
        found = tuple(comm for comm, stay in zip(rank.found, stays.tolist(), strict=True) if stay)
        kept.append(replace(rank, found=found))
    what = f"{len(lone):,} communication{'s' * (len(lone) != 1)} that not all ranks have alike"
    return kept, (f"warning: degraded: {what}, {fixed_ns / 1e6:,.3f} ms, became computation of fixed duration",)


def _without(comms: RankCommunications, ids: Collection[int]) -> RankCommunications:
    stays = ~np.isin(comms.node, list(ids))
    return RankCommunications(comms.groups, *(getattr(comms, column)[stays] for column in COLUMNS))


def _refusal(files: Mapping[int, str], mismatches: Sequence[Mismatch], pairs: Sequence[RankPair]) -> str:
    """What is wrong with the first, how many more there are, and what to do."""
    problems = [*(_mismatch(files, one) for one in mismatches), *(_pair(files, one) for one in pairs)]
    more = f" (and {len(problems) - 1:,} more)" if len(problems) > 1 else ""
    return f"{problems[0]}{more}; {_REMEDY}"


def _mismatch(files: Mapping[int, str], one: Mismatch) -> str:
    group = f"group {one.group}" if one.group else "all ranks"
    size = f" of {one.bytes:,} bytes" if one.bytes >= 0 else ""
    having = [(rank, node) for rank, node in one.nodes if rank not in one.ranks]
    there = f"{one.collective}{size}, collective {one.position} (from 0) of {group}"
    if having:
        (first, node), others = having[0], [rank for rank, _ in having]
        there += f", which {_ranks(others, 'has', 'have')} (node {node} of rank {first})"
    verb = ("lacks", "lack") if one.kind == "missing" else ("has another", "have another")
    instead = "" if one.kind == "missing" else f": {one.found[0]}"
    return f"{files[one.ranks[0]]}: {_ranks(one.ranks, *verb)} {there}{instead}"


def _pair(files: Mapping[int, str], one: RankPair) -> str:
    parts = [
        (one.unmatched_sends, "without a receive"), (one.unmatched_receives, "received and not sent"),
        (one.other_size, "with two sizes"),
    ]  # fmt: skip
    told = ", ".join(f"{count:,} {what}" for count, what in parts if count)
    return f"{files[one.source]}: messages from rank {one.source} to rank {one.target}: {told}"


def _ranks(ranks: Sequence[int], one: str, several: str) -> str:
    """Ranks, and the verb for so many."""
    some = ", ".join(map(str, ranks[:_MOST_RANKS]))
    more = f" and {len(ranks) - _MOST_RANKS:,} more" if len(ranks) > _MOST_RANKS else ""
    return f"rank {some} {one}" if len(ranks) == 1 else f"ranks {some}{more} {several}"
