"""Decide whether one process recorded the ET and the Kineto trace at the same time.

Ids, names and sequence numbers identify a call only within one process. All ranks of a job run the same program, so the
process id and the time do not prove the rank. Containers assign the same small process ids in every run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.execution_trace.read_et import ExecutionTrace
from ..schemas.kineto.read_kineto import KinetoTrace
from ..schemas.text.files import Source
from ..trace.columns import IntColumn, distinct
from ..trace.conventions import MAX_RANKS
from ..trace.errors import TraceFormatError, UsageError
from ..trace.link_report import Clue, Identity, Verdict
from .call_evidence import contradictions
from .calls import TracePair
from .naming import file_rank
from .rank_claims import Claim, rank_of_et, rank_of_kineto

Kind = Literal[
    "run", "pid", "time", "world_size", "rank", "job", "names", "option", "calls", "numbers", "threads", "inputs"
]
Weight = Literal["proves", "refutes", "stated", "unknown"]

_ONE_TIME: frozenset[Kind] = frozenset({"pid", "time"})
# Lower process ids do not identify a run, because containers number processes from 1. Hosts exceed it within a day.
_SMALL_PID = 4096
_ONE_RANK: frozenset[Kind] = frozenset({"rank", "job"})
# The ET records its time in whole seconds, rounded down.
_SLACK_S = 1.0
# Maximum time from the end of the recording to a file's last write: first for the ET, then for the Kineto trace.
# The ET is closed first (0.01 s later in measurements), and then the Kineto trace is exported.
_ET_WRITTEN_S, _KINETO_WRITTEN_S = 2.0, 600.0
# The tolerances exist because `start_ts` and `finish_ts` are whole ms and use a different clock than Kineto.
_CLOCK_SLACK_S, _CLOCK_DRIFT = 0.002, 1e-3
_UNVERIFIED = "links are marked unverified"
_REMEDY = "record with etplus record, which writes an id, or link the whole job with etplus link FOLDER"


@dataclass(frozen=True)
class StatedRank:
    rank: int
    by: Literal["names", "option"]


@dataclass(frozen=True)
class Claims:
    """The ranks that both files and the user claim, and other facts about the files; see `read_claims`."""

    et: Claim
    kineto: Claim
    stated: StatedRank | None
    machine: int  # number of ranks in the timeline if the ET's process id belongs to exactly one of them, otherwise 0
    timezone: str | None  # time zone of the machine that recorded the ET, if the user gave it; see `offsets_of`
    modified_s: tuple[float, float] | None  # when both files were last written, in s since the epoch; None if unknown
    whole_job: bool  # True if the files of all ranks are available and these two files match only each other
    one_of_several: bool = False  # True if files of other ranks are available

    @property
    def same_run(self) -> bool:
        return bool(self.et.runs & self.kineto.runs)

    @property
    def world_size(self) -> int | None:
        """Number of ranks in the job; None if unknown. If the files disagree, use the larger number."""
        return max(filter(None, (self.et.world_size, self.kineto.world_size)), default=None)

    @property
    def several_ranks(self) -> bool:
        """True if another rank of the job could have recorded either file."""
        if self.one_of_several or self.world_size is not None:
            return self.one_of_several or self.world_size != 1
        numbered = self.et.rank or self.kineto.rank or self.stated is not None
        return bool(numbered) or self.et.communicates or self.kineto.communicates

    @property
    def agreed(self) -> bool:
        """False if a file contradicts the rank that the user gives."""
        stated, claims = self.stated, (self.et, self.kineto)
        return stated is None or all(claim.ranks is None or stated.rank in claim.ranks for claim in claims)


class _Weighed(NamedTuple):
    by: Kind
    weight: Weight
    says: str


def stated_rank(et: Source, kineto: Source, rank: int | None) -> StatedRank | None:
    """Return the rank of both files according to the user: `rank` if given, else the rank in both file names. Raise
    UsageError if the file names contain different ranks and `rank` is not given, or if `rank` is invalid."""
    if rank is not None:
        if not 0 <= rank < MAX_RANKS:
            raise UsageError(f"invalid rank {rank}; pass a number from 0 to {MAX_RANKS - 1:,}")
        return StatedRank(rank, "option")
    files = [_name(source) for source in (et, kineto)]
    ours, theirs = map(file_rank, files)
    if ours is None or theirs is None:
        return None
    if ours != theirs:
        named = f"{files[0]} is from rank {ours} and {files[1]} from rank {theirs}, according to their names"
        raise UsageError(f"{named}; pass two files of the same rank, or set --rank if the names are wrong")
    return StatedRank(ours, "names")


def _name(source: Source) -> str:
    named = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", "")
    return os.fspath(named) if isinstance(named, (str, os.PathLike)) else ""


def modified(et: Source, kineto: Source) -> tuple[float, float] | None:
    """Return when both files were last written, in seconds since the epoch; None if either source is not a file."""
    try:
        return os.stat(_name(et)).st_mtime, os.stat(_name(kineto)).st_mtime  # noqa: PTH116 (a name may be bytes)
    except (OSError, ValueError):
        return None


def read_claims(et: ExecutionTrace, kineto: KinetoTrace, stated: StatedRank | None, **facts: Any) -> Claims:
    """Return the `Claims`; `facts` are its last four fields. Raise TraceFormatError if a file contradicts --rank."""
    pids = kineto.machine_pids
    machine = len(pids) if len(pids) > 1 and pids.count(et.pid) == 1 else 0
    of_et, of_kineto = rank_of_et(et), rank_of_kineto(kineto)
    claims = Claims(of_et, of_kineto, stated, machine, **facts)
    if stated is not None and stated.by == "option":
        sides = ((kineto.file, of_kineto, "the ET", of_et), (et.file, of_et, "the Kineto trace", of_kineto))
        for file, claim, side, other in sides:
            if claim.ranks is not None and stated.rank not in claim.ranks:
                said = f" ({side} by {_ranks(other)})" if other.ranks is not None else ""
                problem = f"recorded by {_ranks(claim)}, not by rank {stated.rank}{said}"
                raise TraceFormatError(file, "", problem, "pass two files of the same rank")
    return claims


def identify(
    claims: Claims,
    pair: TracePair,
    linked: IntColumn,
    certain: tuple[IntColumn, IntColumn],
    unlinked: npt.NDArray[np.bool_],
) -> Identity:
    """Judge whether one process recorded both files at the same time. The same recording id in both files is complete
    proof. Without it, process id and time prove a common run if the job has one rank, the process id is large, and the
    files agree about their common calls. If the job may have several ranks, the rank must also be proved, either by
    both files or by the files of all ranks. A rank from the user proves nothing, because files get renamed. `linked`
    lists positions in `pair.calls`. `certain` contains the links that are certain if one process recorded both files,
    as positions in `pair.nodes` and `pair.calls`. `unlinked` is True for each unlinked call in `pair.nodes`."""
    weighed = [*_run(claims), *_pid(claims, pair, linked)]
    if not claims.same_run:
        weighed += [*_time(claims, pair, linked), *_rank(claims)]
        weighed += [_Weighed(found.by, "refutes", found.says) for found in contradictions(pair, *certain, unlinked)]
    verdict, rank = _verdict(claims, weighed)
    proves, refutes, stated, unknown = (
        tuple(Clue(found.by, found.says) for found in weighed if found.weight == weight)
        for weight in ("proves", "refutes", "stated", "unknown")
    )
    return Identity(verdict, rank, claims.world_size, claims.several_ranks, proves, refutes, (*stated, *unknown))


def _verdict(claims: Claims, weighed: list[_Weighed]) -> tuple[Verdict, int | None]:
    proved = {found.by for found in weighed if found.weight == "proves"}
    weights = {found.weight for found in weighed}
    sources = (claims.kineto, claims.et, claims.stated)
    rank = next((source.rank for source in sources if source and source.rank is not None), None)
    if "refutes" in weights:
        return "refuted", None
    if "run" in proved or (proved >= _ONE_TIME and not claims.several_ranks):
        return "proved", rank if claims.several_ranks else None
    if proved >= _ONE_TIME and proved & _ONE_RANK:
        return "proved", rank
    if proved >= _ONE_TIME and "stated" in weights:
        return "stated", rank
    return "unknown", rank if proved & _ONE_RANK else None


def _run(claims: Claims) -> Iterator[_Weighed]:
    ours, theirs = claims.et.runs, claims.kineto.runs
    if ours & theirs:
        yield _Weighed("run", "proves", f"both files contain the recording id {min(ours & theirs)}")
    elif ours and theirs:
        says = f"two runs: the ET is from recording {min(ours)}, the Kineto trace from recording {min(theirs)}"
        yield _Weighed("run", "refutes", says)


def _pid(claims: Claims, pair: TracePair, linked: IntColumn) -> Iterator[_Weighed]:
    pid, pids = pair.et.pid, linked_pids(pair, linked)
    if pid < 0:
        yield _Weighed("pid", "unknown", f"the ET has no process id, so the runs may differ; {_UNVERIFIED}")
    elif not pids:
        return
    elif pids != [str(pid)]:
        says = f"two runs: the ET is from process {pid}, but the linked Kineto events are from {', '.join(pids[:8])}; "
        yield _Weighed("pid", "refutes", says + "only the structure is the same; the times are from the Kineto run")
    elif pid < _SMALL_PID and not claims.same_run:
        says = f"both files are from process {pid}, but processes of two containers can share this id; {_UNVERIFIED}; "
        yield _Weighed("pid", "unknown", says + "`etplus record` writes an id that identifies the run")
    else:
        yield _Weighed("pid", "proves", f"both files are from process {pid}")


def linked_pids(pair: TracePair, linked: IntColumn) -> list[str]:
    threads = pair.kineto.events.threads
    return sorted({str(threads[code][0]) for code in distinct(pair.calls.thread[linked]).tolist()})


def _time(claims: Claims, pair: TracePair, linked: IntColumn) -> Iterator[_Weighed]:
    """Judge whether the linked events are within the time that the ET was being recorded, in any possible time zone."""
    et, calls = pair.et, pair.calls
    if et.started_s < 0:
        says = "the ET has no time of recording (time, start_ts, finish_ts), so the runs may differ"
        yield _Weighed("time", "unknown", f"{says}; {_UNVERIFIED}")
        return
    if not len(linked):
        return
    begin_ns, end_ns = int(calls.ts[linked].min()), int(calls.end[linked].max())
    begin_s, length = (pair.kineto.base_time_ns + begin_ns) / 1e9, (end_ns - begin_ns) / 1e9
    known = None if claims.timezone is None else offsets_of(claims.timezone, et.started_s)
    longest = et.duration_s + 2 * _SLACK_S - length
    zones = [zone for zone in OFFSETS_S if -_SLACK_S <= begin_s - (et.started_s - zone) <= longest]
    shown = [zone for zone in zones if known is None and _were_written(claims, et, zone, begin_s + length)]
    fitting = shown or [zone for zone in zones if known is None or zone in known]
    if not fitting:
        where = f", assuming {claims.timezone}" if zones else ""
        says = (
            f"two windows: the linked Kineto events fall outside the time the ET was being recorded{where}; "
            "only the structure is the same; the times are from another window or another run"
        )
        yield _Weighed("time", "refutes", says)
    elif length > et.duration_s * (1 + _CLOCK_DRIFT) + _CLOCK_SLACK_S:
        says = (
            f"two windows: the linked Kineto events take {1000 * length:,.0f} ms, but the ET was recorded for only "
            f"{1000 * et.duration_s:,.0f} ms; the times are from another window or another process"
        )
        yield _Weighed("time", "refutes", says)
    elif known is None and not shown and fitting[0]:
        zone = offset_name(fitting[0])
        says = (
            "the linked Kineto events fall within the time the ET was being recorded only if that machine was in "
            f"{zone}, which the files do not show; two runs can be that far apart; {_UNVERIFIED}; "
            f"if it was, pass --timezone {zone}"
        )
        yield _Weighed("time", "unknown", says)
    else:
        zone = f" (local time {offset_name(fitting[0])})" if fitting[0] else ""
        yield _Weighed(
            "time", "proves", f"the linked Kineto events fall within the time the ET was being recorded{zone}"
        )


def _were_written(claims: Claims, et: ExecutionTrace, zone: int, end_s: float) -> bool:
    """Return True if both files were last written right after the recording, assuming that local time is `zone` seconds
    ahead of UTC. A copy of a file has a later time, so files that were written this early belong to this run."""
    if claims.modified_s is None:
        return False
    after_et = claims.modified_s[0] - (et.started_s - zone + et.duration_s)
    after_kineto = claims.modified_s[1] - end_s
    return -_SLACK_S <= after_et <= _ET_WRITTEN_S + _SLACK_S and -_SLACK_S <= after_kineto <= _KINETO_WRITTEN_S


def _rank(claims: Claims) -> Iterator[_Weighed]:
    ours, theirs = claims.et, claims.kineto
    if ours.world_size and theirs.world_size and ours.world_size != theirs.world_size:
        jobs = f"the ET is from a job of {ours.world_size} ranks, the Kineto trace from one of {theirs.world_size}"
        yield _Weighed("world_size", "refutes", f"two jobs: {jobs}")
    if ours.ranks is not None and theirs.ranks is not None and not ours.ranks & theirs.ranks:
        says = (
            f"two processes: the ET was recorded by {_ranks(ours)}, the Kineto trace by {_ranks(theirs)}; "
            "only the structure is the same; the times are from the Kineto trace's rank"
        )
        yield _Weighed("rank", "refutes", says)
    elif claims.several_ranks:
        yield from _one_of_several(claims)


def _one_of_several(claims: Claims) -> Iterator[_Weighed]:
    ours, theirs, stated = claims.et, claims.kineto, claims.stated
    of_job = f" of {claims.world_size}" if claims.world_size else ""
    if ours.rank is not None and ours.rank == theirs.rank:
        by = "process groups or messages of the ET, distributedInfo of Kineto"
        yield _Weighed("rank", "proves", f"both files are from rank {ours.rank}{of_job}: {by}")
    elif claims.agreed and claims.machine >= (claims.world_size or 1):
        says = f"the timeline has {claims.machine} ranks of the job, and only one of them has the ET's process id"
        yield _Weighed("rank", "proves", says)
    elif claims.agreed and claims.whole_job:
        says = "the files of all ranks are available, and process ids and process groups allow only this pair"
        yield _Weighed("job", "proves", says)
    elif stated is not None and claims.agreed:
        by = "was taken from the file names" if stated.by == "names" else "was given (--rank)"
        says = f"the traces do not prove their rank; rank {stated.rank}{of_job} {by}; {_UNVERIFIED}; {_REMEDY}"
        yield _Weighed(stated.by, "stated", says)
    else:
        if stated is not None:
            other = next(side for side in (theirs, ours) if side.ranks is not None and stated.rank not in side.ranks)
            which = "Kineto trace" if other is theirs else "ET"
            says = f"both file names contain rank {stated.rank}, but the {which} was recorded by {_ranks(other)}"
            yield _Weighed("names", "unknown", says)
        files = ("ET", ours), ("Kineto trace", theirs)
        known = [f"the {file} is from {_ranks(claim)}" for file, claim in files if claim.ranks]
        size = f"the job has {claims.world_size} ranks" if claims.world_size else "the job can have several ranks"
        says = f"{', '.join([size, *known])}, and only process id and time show that one rank recorded both files; "
        yield _Weighed("rank", "unknown", f"{says}{_UNVERIFIED}; {_REMEDY}")


def _ranks(claim: Claim) -> str:
    ranks = sorted(claim.ranks or ())
    shown = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"one of ranks {shown}"


_HOUR_S = 3600
_PARTS_OF_HOURS = (-9.5, -3.5, -2.5, 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75, 13.75)
# Possible offsets of local time from UTC in s, smallest first: whole hours, and the other offsets in the IANA database.
OFFSETS_S = tuple(
    sorted((int(hours * _HOUR_S) for hours in (*range(-12, 15), *_PARTS_OF_HOURS)), key=lambda s: (abs(s), s))
)
_OFFSET = re.compile(r"(?:UTC)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)


def offset_name(offset_s: int) -> str:
    """Return an offset in the form that `offsets_of` reads, such as "UTC-03:30"."""
    hours, rest = divmod(abs(offset_s), _HOUR_S)
    return f"UTC{'-' if offset_s < 0 else '+'}{hours:02}:{rest // 60:02}" if offset_s else "UTC"


def offsets_of(name: str, local_s: int) -> frozenset[int]:
    """Return all possible offsets of a time zone from UTC, in s. There are two during the hour that repeats when
    daylight saving time ends. `name` is an offset ("UTC-7", "+05:30", "UTC") or an IANA name ("Europe/Berlin"). Raise
    UsageError for any other name. `local_s` is local time in seconds since the epoch, as if local time were UTC."""
    if name.upper() in ("UTC", "Z"):
        return frozenset((0,))
    if found := _OFFSET.fullmatch(name):
        sign, hours, minutes = found.groups()
        offset_s = (int(hours) * _HOUR_S + int(minutes or 0) * 60) * (-1 if sign == "-" else 1)
        if offset_s not in OFFSETS_S:
            raise UsageError(f"no time zone has the offset {name}; pass one such as UTC-7, or Europe/Berlin")
        return frozenset((offset_s,))
    from zoneinfo import ZoneInfo

    try:
        zone = ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"unknown time zone {name!r}; pass an offset such as UTC-7, or Europe/Berlin") from None
    local = datetime.fromtimestamp(local_s, timezone.utc).replace(tzinfo=None)
    both = (local.replace(fold=fold, tzinfo=zone).utcoffset() for fold in (0, 1))
    return frozenset(int(offset / timedelta(seconds=1)) for offset in both if offset is not None)
