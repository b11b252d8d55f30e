"""Whose traces these are: whether the ET and the Kineto trace were recorded in one process at one time.

Ids, names and sequence numbers identify a call only within one process. Ranks of a job run the same program and, in
containers, have the same small process ids, so that process id and time prove nothing where there are several ranks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.execution_trace import ExecutionTrace
from ..schemas.files import Source
from ..schemas.kineto import KinetoTrace
from ..trace.columns import IntColumn, distinct, positions
from ..trace.conventions import MAX_RANKS
from ..trace.errors import TraceFormatError, UsageError
from ..trace.link_report import Finding, Identity
from .calls import TracePair
from .ranks import Claim, file_rank, rank_of_et, rank_of_kineto

__all__ = ["Claims", "Word", "identify", "linked_pids", "read_claims", "said_rank"]

Kind = Literal["pid", "time", "world_size", "rank", "names", "option", "calls"]
Weight = Literal["proves", "refutes", "unknown"]

_RUN: frozenset[Kind] = frozenset({"pid", "time"})
_RANK: frozenset[Kind] = frozenset({"rank", "names", "option"})
_TIME_ZONE_S = 900
"""The ET has local time; time zones differ by multiples of 15 minutes."""
_WEST_S, _EAST_S = 12 * 3600, 14 * 3600
"""How far local time is behind and ahead of UTC at most."""
_SLACK_S = 1.0
"""The ET's time is in whole seconds, and rounded down."""
_CLOCK_SLACK_S, _CLOCK_DRIFT = 0.002, 1e-3
"""`start_ts` and `finish_ts` are in whole ms, of another clock than Kineto's."""
_REMEDY = "name both files by rank (rank0.et.json, rank0.kineto.json) or pass --rank"


@dataclass(frozen=True)
class Word:
    """The rank that the user says both files are of, by their names or by an option."""

    rank: int
    by: Literal["names", "option"]


@dataclass(frozen=True)
class Claims:
    """What both files and the user say about the rank; see `read_claims`.

    Attributes:
        machine: how many ranks were recorded in one timeline, of which only one is of the ET's process; 0 where this
            one is of a single rank, or several or none are of that process.
    """

    et: Claim
    kineto: Claim
    word: Word | None = None
    machine: int = 0

    @property
    def world_size(self) -> int | None:
        """Ranks of the job, None if neither file says; the larger number where they disagree."""
        return max(filter(None, (self.et.world_size, self.kineto.world_size)), default=None)

    @property
    def several_ranks(self) -> bool:
        """Whether another rank of the job could have recorded one of the files."""
        if self.world_size is not None:
            return self.world_size > 1
        numbered = any(claim.rank for claim in (self.et, self.kineto)) or self.word is not None
        return numbered or self.et.communicates or self.kineto.communicates


class _Evidence(NamedTuple):
    """A `Finding`, and what follows from it."""

    by: Kind
    weight: Weight
    says: str


def said_rank(et: Source, kineto: Source, rank: int | None) -> Word | None:
    """The rank that the user says both files are of: `rank`, else that in both file names.

    Raises:
        UsageError: the names have different ranks and `rank` does not decide, or an invalid rank.

    Example:
        >>> said_rank("rank0.et.json", "rank0.kineto.json", None)
        Word(rank=0, by='names')
    """
    if rank is not None:
        if not 0 <= rank < MAX_RANKS:
            raise UsageError(f"invalid rank {rank}; give a number from 0")
        return Word(rank, "option")
    files = [_name(source) for source in (et, kineto)]
    ranks = list(map(file_rank, files))
    if None in ranks:
        return None
    if ranks[0] != ranks[1]:
        raise UsageError(
            f"{files[0]} is of rank {ranks[0]} and {files[1]} of rank {ranks[1]}, as their names say; "
            "give the two files of one rank, or pass --rank if the names are wrong"
        )
    return Word(ranks[0], "names") if ranks[0] is not None else None


def _name(source: Source) -> str:
    """The path of an input, "" for what has none."""
    named = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", "")
    return os.fspath(named) if isinstance(named, (str, os.PathLike)) else ""


def read_claims(et: ExecutionTrace, kineto: KinetoTrace, word: Word | None) -> Claims:
    """What both files and the user say about the rank.

    Raises:
        TraceFormatError: a file says that it is of another rank than the option.
    """
    pids = kineto.machine_pids
    machine = len(pids) if len(pids) > 1 and pids.count(et.pid) == 1 else 0
    claims = Claims(rank_of_et(et), rank_of_kineto(kineto), word, machine)
    if word is not None and word.by == "option":
        for file, claim in ((kineto.file, claims.kineto), (et.file, claims.et)):
            if claim.ranks is not None and word.rank not in claim.ranks:
                raise TraceFormatError(
                    file, "", f"recorded by {_ranks(claim)}, not by rank {word.rank}", "give the two files of one rank",
                )  # fmt: skip
    return claims


def identify(claims: Claims, pair: TracePair, linked: IntColumn) -> Identity:
    """Weigh everything that is known about the process and the time of both files.

    Where there is one rank, process id and time prove the run. Where there can be several, the rank must be proved,
    too: by the contents of both files, or by the user's word if nothing contradicts it.

    Args:
        linked: int64, positions in `pair.calls` of the linked ones.
    """
    evidence = [*_pid(pair, linked), *_time(pair, linked), *_rank(claims)]
    if claims.several_ranks and not (pair.et.losses or pair.kineto.losses):
        evidence += _calls(pair)
    proved = {one.by for one in evidence if one.weight == "proves"}
    refuted = any(one.weight == "refutes" for one in evidence)
    is_proved = proved >= _RUN and (not claims.several_ranks or bool(proved & _RANK))
    rank = claims.et.rank if "rank" in proved else claims.word.rank if claims.word and proved & _RANK else None
    weights: tuple[Weight, ...] = ("proves", "refutes", "unknown")
    return Identity(
        "refuted" if refuted else "proved" if is_proved else "unknown",
        None if refuted else rank, claims.world_size, claims.several_ranks,
        *(tuple(Finding(one.by, one.says) for one in evidence if one.weight == weight) for weight in weights),
    )  # fmt: skip


def _pid(pair: TracePair, linked: IntColumn) -> Iterator[_Evidence]:
    et = pair.et
    if et.pid < 0:
        yield _Evidence("pid", "unknown", "the ET names no process, so that nothing proves one run")
        return
    pids = linked_pids(pair, linked)
    if not pids:
        return
    if pids == [str(et.pid)]:
        yield _Evidence("pid", "proves", f"both files are of process {et.pid}")
        return
    yield _Evidence(
        "pid", "refutes",
        f"two runs: the ET is of process {et.pid}, the linked Kineto events of {', '.join(pids[:8])}; "
        "the structure is the same, the times are those of the Kineto run",
    )  # fmt: skip


def linked_pids(pair: TracePair, linked: IntColumn) -> list[str]:
    """Process ids of linked Kineto calls (positions in `pair.calls`), as text."""
    threads = pair.kineto.events.threads
    return sorted({str(threads[code][0]) for code in distinct(pair.calls.thread[linked]).tolist()})


def _time(pair: TracePair, linked: IntColumn) -> Iterator[_Evidence]:
    """Whether the linked events are in the ET's window, as far as its time zone is known."""
    et, calls = pair.et, pair.calls
    if et.started_s < 0:
        says = "the ET has no time of recording (time, start_ts, finish_ts), so that nothing proves one run"
        yield _Evidence("time", "unknown", says)
        return
    if not len(linked):
        return
    begin_ns, end_ns = int(calls.ts[linked].min()), int(calls.end[linked].max())
    length = (end_ns - begin_ns) / 1e9
    ahead = et.started_s - (pair.kineto.base_time_ns + begin_ns) / 1e9
    after = (-ahead + _SLACK_S) % _TIME_ZONE_S - _SLACK_S
    inside = after + length <= et.duration_s + 2 * _SLACK_S
    near = -_WEST_S - et.duration_s - 2 * _SLACK_S <= ahead <= _EAST_S + 2 * _SLACK_S
    if not inside or not near:
        yield _Evidence(
            "time", "refutes",
            "two windows: the linked Kineto events lie outside the time in which the ET was recorded; "
            "the structure is the same, the times are of another window or another run",
        )  # fmt: skip
    elif length > et.duration_s * (1 + _CLOCK_DRIFT) + _CLOCK_SLACK_S:
        yield _Evidence(
            "time", "refutes",
            f"two windows: the linked Kineto events take {1000 * length:,.0f} ms, the ET was recorded for only "
            f"{1000 * et.duration_s:,.0f} ms; the times are of another window or another process",
        )  # fmt: skip
    else:
        yield _Evidence("time", "proves", "the linked Kineto events lie in the time in which the ET was recorded")


def _rank(claims: Claims) -> Iterator[_Evidence]:
    ours, theirs, word = claims.et, claims.kineto, claims.word
    if ours.world_size and theirs.world_size and ours.world_size != theirs.world_size:
        says = (
            f"two jobs: the ET is of a job of {ours.world_size} ranks, the Kineto trace of one of {theirs.world_size}"
        )
        yield _Evidence("world_size", "refutes", says)
    if ours.ranks is not None and theirs.ranks is not None and not ours.ranks & theirs.ranks:
        yield _Evidence(
            "rank", "refutes",
            f"two processes: the ET was recorded by {_ranks(ours)}, the Kineto trace by {_ranks(theirs)}; "
            "the structure is the same, the times are those of the Kineto trace's rank",
        )  # fmt: skip
        return
    if not claims.several_ranks:
        return
    of = f" of {claims.world_size}" if claims.world_size else ""
    if ours.rank is not None and ours.rank == theirs.rank:
        says = (
            f"both files are of rank {ours.rank}{of}: process groups or messages of the ET, distributedInfo of Kineto"
        )
        yield _Evidence("rank", "proves", says)
    elif word is not None and all(one.ranks is None or word.rank in one.ranks for one in (ours, theirs)):
        by = "the names of both files say" if word.by == "names" else "was given (--rank)"
        yield _Evidence(word.by, "proves", f"both files are of rank {word.rank}{of}, as {by}; nothing contradicts it")
    elif word is None and claims.machine >= (claims.world_size or 1):
        says = f"the timeline is of {claims.machine} ranks of the job, and only one of them is of the ET's process"
        yield _Evidence("rank", "proves", says)
    else:
        if word is not None:
            other = next(one for one in (theirs, ours) if one.ranks is not None and word.rank not in one.ranks)
            which = "Kineto trace" if other is theirs else "ET"
            says = f"the names of both files say rank {word.rank}, but the {which} was recorded by {_ranks(other)}"
            yield _Evidence("names", "unknown", says)
        known = [
            f"the {what} is of {_ranks(one)}" for what, one in (("ET", ours), ("Kineto trace", theirs)) if one.ranks
        ]
        size = f"the job has {claims.world_size} ranks" if claims.world_size else "the job can have several ranks"
        yield _Evidence(
            "rank", "unknown",
            f"{', '.join([size, *known])}, and nothing but process id and time says that one rank recorded both files, "
            f"so that no link is certain; {_REMEDY}",
        )  # fmt: skip


def _ranks(claim: Claim) -> str:
    ranks = sorted(claim.ranks or ())
    shown = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"one of ranks {shown}"


def _calls(pair: TracePair) -> Iterator[_Evidence]:
    """Calls of the ET within what both files cover that Kineto lacks, or has under another name.

    Of 123,725 calls in 77 recorded pairs none is such: on each thread, from the first to the last call with an id that
    both files have, Kineto has every call that the ET has.
    """
    (ours, theirs), nodes = pair.rf_ids, pair.nodes
    at = positions(theirs, ours)
    joined = (ours > 0) & (at >= 0)
    if not joined.any():
        return
    other_name = joined & (nodes.name != pair.calls.name[at])
    lacking = np.flatnonzero(other_name | ((ours > 0) & ~joined & _between(nodes.thread, joined)))
    if len(lacking):
        name = pair.et.names[pair.et.name[nodes.node[lacking[0]]]]
        yield _Evidence(
            "calls", "refutes",
            f"two processes: {len(lacking):,} calls of the ET (such as {name}) are not in the Kineto trace, though "
            "both cover that time",
        )  # fmt: skip


def _between(thread: IntColumn, joined: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which calls are between the first and the last joined call of their own thread."""
    of = positions(distinct(thread), thread)
    rows = np.flatnonzero(joined)
    first, last = np.full(len(thread), len(thread)), np.full(len(thread), -1)
    np.minimum.at(first, of[rows], rows)
    np.maximum.at(last, of[rows], rows)
    row = np.arange(len(thread))
    between: npt.NDArray[np.bool_] = (row > first[of]) & (row < last[of])
    return between
