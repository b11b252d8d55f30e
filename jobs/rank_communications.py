"""The communications of one rank as columns."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..schemas.comm_types import Group
from ..schemas.communications import COMMUNICATION_COLUMNS, communication_columns
from ..schemas.parquet.stored_folder import StoredRank
from ..schemas.parquet.stored_tables import read_exchanges
from ..trace.columns import IntColumn
from ..trace.trace import Trace
from .job_ranks import JobTrace, RankFacts

COLUMNS = COMMUNICATION_COLUMNS


@dataclass(frozen=True)
class RankCommunications:
    """The communications of one rank in launch order. Host communications are in call order."""

    groups: tuple[Group, ...]  # process groups of the communications
    node: IntColumn  # node id of the communication in the ET+
    kind: IntColumn  # a CollectiveCommType, UNKNOWN, SEND or RECV
    bytes: IntColumn  # size as `message_bytes` computes it, −1 if unknown
    group: IntColumn  # index of the process group in `groups`
    peer: IntColumn  # the other rank of a message, −1 for collectives
    seq: IntColumn  # recorded sequence number, −1 if there is none
    start: IntColumn  # start in wall-clock ns on the rank's clock, from `FoundComm.start_ns`
    end: IntColumn  # end in wall-clock ns on the rank's clock
    on_host: IntColumn  # 1 if the communication runs on the host, otherwise 0
    times_recorded: bool = True  # False if times do not show which rank waited; see `Trace.times_recorded`

    def __len__(self) -> int:
        return len(self.node)


def stored_communications(stored: StoredRank) -> tuple[JobTrace, RankCommunications]:
    """Return the results of `job_trace` and `communications` from stored columns, without reading the trace."""
    facts, columns = read_exchanges(stored)
    file = f"{os.fspath(stored)} ({stored.label})"
    trace = JobTrace(RankFacts(file, facts.info, facts.begin_ns), facts.rank, facts.digest)
    return trace, RankCommunications(
        tuple(facts.groups), **dict(zip(COLUMNS, columns, strict=True)), times_recorded=facts.times_recorded
    )


def communications(trace: Trace, *, unknown: bool = False) -> RankCommunications:
    """Return the communications of a rank. Messages with unknown peers are left out. `unknown` adds unknown kinds."""
    groups, columns = communication_columns(trace, unknown=unknown)
    return RankCommunications(groups, **dict(zip(COLUMNS, columns, strict=True)), times_recorded=trace.times_recorded)
