"""The communications of one rank as columns."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..schemas.comm_types import Group
from ..schemas.communications import COMMUNICATION_COLUMNS, communication_columns
from ..schemas.parquet import StoredRank, read_exchanges
from ..trace.columns import IntColumn
from ..trace.trace import Trace
from .job_ranks import JobTrace, RankFacts

COLUMNS = COMMUNICATION_COLUMNS


@dataclass(frozen=True)
class RankCommunications:
    """The communications of a rank, in launch order (on the host, in call order)."""

    groups: tuple[Group, ...]  # the process groups
    node: IntColumn  # int64, id in the ET+
    kind: IntColumn  # int64, a CollectiveCommType, UNKNOWN, SEND or RECV
    bytes: IntColumn  # int64, as in `message_bytes`, −1 if unknown
    group: IntColumn  # int64, index in `groups`
    peer: IntColumn  # int64, peer rank of a message, −1 for collectives
    seq: IntColumn  # int64, number recorded in the trace, −1 for none
    start: IntColumn  # start, end: int64, wall-clock ns on the rank's clock; the start is `FoundComm.start_ns`
    end: IntColumn
    on_host: IntColumn  # int64, 1 if it runs on the host, else 0
    times_recorded: bool = True  # see `Trace.times_recorded`; if False, times do not show which rank waited

    def __len__(self) -> int:
        return len(self.node)


def stored_communications(stored: StoredRank) -> tuple[JobTrace, RankCommunications]:
    """Return `job_trace` and `communications` of a rank stored as columns, without reading its trace."""
    facts, columns = read_exchanges(stored)
    file = f"{os.fspath(stored)} ({stored.label})"
    trace = JobTrace(RankFacts(file, facts.info, facts.begin_ns), facts.rank, facts.digest)
    return trace, RankCommunications(
        tuple(facts.groups), **dict(zip(COLUMNS, columns, strict=True)), times_recorded=facts.times_recorded
    )


def communications(trace: Trace, *, unknown: bool = False) -> RankCommunications:
    """Return the communications of a rank, except messages without a peer; `unknown` includes other kinds."""
    groups, columns = communication_columns(trace, unknown=unknown)
    return RankCommunications(groups, **dict(zip(COLUMNS, columns, strict=True)), times_recorded=trace.times_recorded)
