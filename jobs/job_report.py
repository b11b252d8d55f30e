"""The report of a job, as `etplus link FOLDER` writes it: ranks, clocks, collectives over the ranks, stragglers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from ..schemas.text.files import Source, read_struct
from ..trace.brief import brief
from ..trace.errors import TraceFormatError

VERSION = "1.0"
"""Version of the format."""


class RankResult(msgspec.Struct, frozen=True, omit_defaults=False):
    """The result of one rank.

    Attributes:
        rank: the rank; −1 for files of an unknown rank.
        status: "linked", or "failed" with the reason.
        reason: why it failed, else "".
        et, kineto: the input files, below the given folder; "" if missing.
        output: name of the ET+ file, "" if none was written.
        ops, linked, certain, equivalent: counts of the ET's calls.
        window_ns: wall-clock ns of the first linked call's start and the last one's end, not corrected; None without
            links.
        iterations: labels of the linked iterations.
        warnings: of the link.
    """

    rank: int
    status: Literal["linked", "failed"]
    reason: str = ""
    et: str = ""
    kineto: str = ""
    output: str = ""
    ops: int = 0
    linked: int = 0
    certain: int = 0
    equivalent: int = 0
    window_ns: tuple[int, int] | None = None
    iterations: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    __repr__ = brief


class ClockOffset(msgspec.Struct, frozen=True):
    """How far a rank's clock is ahead of the reference rank's clock.

    Attributes:
        rank, reference: ranks; ranks that collectives join have one reference.
        offset_ns: to subtract from the rank's times.
        spread_ns: median distance of single collectives from this offset.
        collectives: number of collectives behind it.
    """

    rank: int
    reference: int
    offset_ns: int
    spread_ns: int
    collectives: int

    __repr__ = brief


class GroupCounts(msgspec.Struct, frozen=True):
    """The collectives of a process group.

    Attributes:
        name: as in the traces, "" for all ranks.
        ranks: its linked ranks. absent: its other ranks.
        collectives: number of different ones. matched: how many match on all ranks.
        kinds: count by kind.
    """

    name: str
    ranks: tuple[int, ...]
    absent: tuple[int, ...]
    collectives: int
    matched: int
    kinds: dict[str, int]

    __repr__ = brief


class Mismatch(msgspec.Struct, frozen=True):
    """A collective that does not match on all ranks of its group.

    Attributes:
        kind: "missing": some ranks lack it; "size": another size; "order": at another place; "type": another
            collective.
        group: name of the group, "" for all ranks. group_ranks: its ranks.
        position: place in the group's order of collectives, from 0, on most ranks.
        collective, bytes: what most ranks do there.
        ranks: those that deviate. found: what each of them has instead, in words.
        nodes: [rank, node id] of the communications on all ranks that have it.
    """

    kind: Literal["missing", "size", "order", "type"]
    group: str
    group_ranks: tuple[int, ...]
    position: int
    collective: str
    bytes: int
    ranks: tuple[int, ...]
    found: tuple[str, ...]
    nodes: tuple[tuple[int, int], ...]

    __repr__ = brief


class Lateness(msgspec.Struct, frozen=True):
    """A row of the table of stragglers.

    Attributes:
        rank: the rank.
        collectives: number of matched collectives of two or more ranks that it took part in.
        last: in how many of them it arrived last (ties count for the lowest rank).
        caused_ns: how long all others together waited in those.
        waited_ns: how long it waited itself in the other ones.
    """

    rank: int
    collectives: int
    last: int
    caused_ns: int
    waited_ns: int

    __repr__ = brief


class Wait(msgspec.Struct, frozen=True):
    """A collective with one of the longest waits.

    Attributes:
        group, position, collective, bytes: as in `Mismatch`.
        last: the rank that arrived last. waits_ns: [rank, ns] of all others.
    """

    group: str
    position: int
    collective: str
    bytes: int
    last: int
    waits_ns: tuple[tuple[int, int], ...]

    __repr__ = brief


class RankPair(msgspec.Struct, frozen=True):
    """The messages from one rank to another.

    Attributes:
        source, target: ranks.
        matched: number sent and received with one size. bytes: of these together.
        unmatched_sends, unmatched_receives: number without a partner.
        other_size: number of pairs with two sizes.
        nodes: [rank, node id] of communications without a partner of the same size.
    """

    source: int
    target: int
    matched: int
    bytes: int
    unmatched_sends: int = 0
    unmatched_receives: int = 0
    other_size: int = 0
    nodes: tuple[tuple[int, int], ...] = ()

    __repr__ = brief


class JobReport(msgspec.Struct, frozen=True):
    """The report of a job.

    Attributes:
        world_size: number of ranks according to the traces, None if unknown.
        missing: ranks without files, as ranges ("4-7, 9").
        not_given: ranks of the world beyond the highest given one, as ranges.
        ranks: one entry per rank, in order.
        clock_offsets: see `ClockOffset`. offsets_applied: the ET+ files have them.
        groups, mismatches, stragglers, longest_waits, messages: see there.
        notes: sentences about the whole job.
    """

    tool_version: str
    ranks: tuple[RankResult, ...]
    version: str = VERSION
    world_size: int | None = None
    missing: str = ""
    not_given: str = ""
    clock_offsets: tuple[ClockOffset, ...] = ()
    offsets_applied: bool = False
    groups: tuple[GroupCounts, ...] = ()
    mismatches: tuple[Mismatch, ...] = ()
    stragglers: tuple[Lateness, ...] = ()
    longest_waits: tuple[Wait, ...] = ()
    messages: tuple[RankPair, ...] = ()
    notes: tuple[str, ...] = ()

    __repr__ = brief

    @property
    def failed(self) -> tuple[RankResult, ...]:
        """The ranks that failed."""
        return tuple(rank for rank in self.ranks if rank.status == "failed")

    def to_json(self) -> bytes:
        """The file's bytes."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    def unmatched(self, rank: int) -> frozenset[int]:
        """Return ids of a rank's nodes whose communication does not match on all other ranks."""
        lists = [mismatch.nodes for mismatch in self.mismatches] + [message.nodes for message in self.messages]
        return frozenset(node for nodes in lists for at, node in nodes if at == rank)

    def offset_of(self, rank: int) -> int:
        """Return what to subtract from a rank's times, ns; 0 if unknown."""
        return next((clock.offset_ns for clock in self.clock_offsets if clock.rank == rank), 0)


def read_job_report(source: Source) -> JobReport:
    """Read the job.json that `etplus link FOLDER` wrote.

    Raises:
        TraceFormatError: it is not a job report.
    """
    report, name = read_struct(source, JobReport, "no job report", "give the job_report.json of etplus link")
    if report.version.partition(".")[0] != VERSION.partition(".")[0]:
        raise TraceFormatError(name, "", f"unknown version {report.version[:20]!r}", "update etplus")
    return report


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as "0-3, 7"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
