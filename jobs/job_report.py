"""The job report of `etplus link FOLDER` with ranks, clocks, collectives, messages and stragglers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from ..schemas.text.files import Source, read_struct
from ..trace.brief import RecordStruct
from ..trace.errors import TraceFormatError

VERSION = "1.0"  # version of the report's format


class RankResult(RecordStruct, frozen=True, omit_defaults=False):
    rank: int  # rank in the job, −1 if it is unknown
    status: Literal["linked", "failed"]
    reason: str = ""  # reason why the rank failed
    et: str = ""  # input ET, relative to the given folder; "" if missing
    kineto: str = ""  # input Kineto trace, relative to the given folder; "" if missing
    output: str = ""  # name of the ET+ file, "" if no file was written
    ops: int = 0  # number of ET calls
    linked: int = 0  # number of linked ET calls
    certain: int = 0  # number of ET calls with a certain link
    unverified: int = 0  # number of ET calls with an unverified link
    # Start of the first linked call and end of the last one, in uncorrected wall-clock ns. None if there are no links.
    window_ns: tuple[int, int] | None = None
    iterations: tuple[str, ...] = ()  # names of the linked iterations
    warnings: tuple[str, ...] = ()  # warnings that linking produced


class ClockOffset(RecordStruct, frozen=True):
    """Time by which the clock of a rank is ahead of the clock of its reference rank."""

    rank: int
    reference: int  # reference rank, shared by all ranks that collectives connect
    offset_ns: int  # subtract this number of ns from the rank's times
    spread_ns: int  # median deviation of the collectives from this offset
    collectives: int  # number of collectives used for the estimate


class GroupCounts(RecordStruct, frozen=True):
    name: str  # name of the group in the traces, "" for all ranks
    ranks: tuple[int, ...]  # linked ranks in the group
    absent: tuple[int, ...]  # ranks in the group that are not linked
    collectives: int  # number of distinct collectives
    matched: int  # number of collectives that match on all ranks
    kinds: dict[str, int]  # maps each kind of collective to its number


class Mismatch(RecordStruct, frozen=True):
    """A collective that does not match on all ranks of its group."""

    # "missing": some ranks lack the collective. "size", "order" or "type": its size, position or kind differs.
    kind: Literal["missing", "size", "order", "type"]
    group: str  # name of the group, "" for all ranks
    group_ranks: tuple[int, ...]  # ranks in the group
    position: int  # 0-based position among the group's collectives on most ranks
    collective: str  # name of the collective on most ranks
    bytes: int  # size of the collective on most ranks
    ranks: tuple[int, ...]  # ranks that differ from most ranks
    found: tuple[str, ...]  # descriptions of the collectives on the ranks that differ
    nodes: tuple[tuple[int, int], ...]  # [rank, node id] of the collective on each rank that has it


class Lateness(RecordStruct, frozen=True):
    """A row of the table of stragglers."""

    rank: int
    collectives: int  # number of the rank's matched synchronizing collectives in groups of two or more ranks
    last: int  # number of collectives at which this rank arrived last (lowest rank on ties)
    caused_ns: int  # total time that other ranks waited at these collectives
    waited_ns: int  # total time that this rank waited for other ranks


class Wait(RecordStruct, frozen=True):
    """A collective with one of the longest waits."""

    group: str  # `Mismatch` describes this field and the next three
    position: int
    collective: str
    bytes: int
    last: int  # the rank that arrived last
    waits_ns: tuple[tuple[int, int], ...]  # [rank, ns] for each rank that waited


class RankPair(RecordStruct, frozen=True):
    """The messages from one rank to another."""

    source: int  # rank that sends
    target: int  # rank that receives
    matched: int  # number of messages that were sent and received with the same size
    bytes: int  # total size of the matched messages
    unmatched_sends: int = 0  # number of sent messages without a matching receive
    unmatched_receives: int = 0  # number of received messages without a matching send
    other_size: int = 0  # number of messages that were sent and received with different sizes
    nodes: tuple[tuple[int, int], ...] = ()  # [rank, node id] of communications without a partner of the same size


class JobReport(RecordStruct, frozen=True):
    tool_version: str
    ranks: tuple[RankResult, ...]  # one entry per rank, in order
    version: str = VERSION
    world_size: int | None = None  # number of ranks according to the traces, None if unknown
    missing: str = ""  # ranks that have no file, as ranges such as "4-7, 9"
    not_given: str = ""  # ranks of the job that are higher than all given ranks, as ranges
    clock_offsets: tuple[ClockOffset, ...] = ()
    groups: tuple[GroupCounts, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    stragglers: tuple[Lateness, ...] = ()
    longest_waits: tuple[Wait, ...] = ()
    messages: tuple[RankPair, ...] = ()
    notes: tuple[str, ...] = ()  # sentences about the job as a whole

    @property
    def failed(self) -> tuple[RankResult, ...]:
        return tuple(rank for rank in self.ranks if rank.status == "failed")

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    def unmatched(self, rank: int) -> frozenset[int]:
        """Return the ids of the rank's communication nodes that have no match on at least one other rank."""
        lists = [mismatch.nodes for mismatch in self.mismatches] + [message.nodes for message in self.messages]
        return frozenset(node for nodes in lists for at, node in nodes if at == rank)

    def offset_of(self, rank: int) -> int:
        """Return the number of ns to subtract from the times of a rank, or 0 if the clock offset is unknown."""
        return next((clock.offset_ns for clock in self.clock_offsets if clock.rank == rank), 0)


def read_job_report(source: Source) -> JobReport:
    """Read a job_report.json that `etplus link FOLDER` wrote. Raise TraceFormatError for any other file."""
    report, name = read_struct(source, JobReport, "not a job report", "pass the job_report.json that etplus link wrote")
    if report.version.partition(".")[0] != VERSION.partition(".")[0]:
        raise TraceFormatError(name, "", f"unknown version {report.version[:20]!r}", "update etplus")
    return report


def ranges(numbers: Iterable[int]) -> str:
    """Return sorted numbers as ranges, such as "0-3, 7"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
