"""What traces record of their rank and job, and which of several do not belong to the job of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..schemas.comm_types import WORLD, Group, cut_off_note
from ..trace.columns import median
from ..trace.errors import UsageError
from ..trace.trace import Trace

ONE_RANK = "ASTRA-sim needs at least two; convert the traces of all ranks together, or one with --replicate N"
"""What to do about a job of one rank, wherever it is met."""

_APART_S = 3600
"""Ranks of one job begin to record within this time of each other."""


class RankFacts(NamedTuple):
    """What is known of the trace of a rank: its name for messages, Kineto's `distributedInfo` ({} where it has none),
    wall-clock ns of the first call (None where it is not known)."""

    file: str
    info: Mapping[str, Any]
    begin_ns: int | None


def ranks_of(traces: Sequence[Trace]) -> list[int]:
    """The rank of each trace, as all state it; else their positions."""
    stated = [trace.rank for trace in traces]
    known = [rank for rank in stated if rank is not None]
    return known if len(set(known)) == len(stated) else list(range(len(stated)))


def groups_at_hand(used: Mapping[int, Iterable[Group]], world: int) -> tuple[dict[Group, list[int]], tuple[str, ...]]:
    """The ranks of each process group that simulate or replay it; the one rule for all that do.

    Several ranks are taken to be all that there are: groups are cut down to them, and a group whose ranks are not known
    is that of those that use it. One rank stands for a job of which the others are not at hand: its groups stay whole.

    Args:
        used: by rank that is given, the groups of its communications.
        world: number of ranks of the job, 0 if unknown.

    Returns:
        by group its ranks, [] where they are not known; of several ranks with WORLD, which is all that are given. And
        what to tell the user.

    Example:
        >>> groups_at_hand({4: [("tp", (4, 5)), ("dp", (0, 4))], 5: [("tp", (4, 5))]}, 8)[0]
        {('dp', (0, 4)): [4], ('tp', (4, 5)): [4, 5], ('', ()): [4, 5]}
    """
    present = sorted(used)
    members: dict[Group, list[int]] = {}
    for rank, groups in used.items():
        for group in sorted(set(groups) - {WORLD}):
            members.setdefault(group, list(group[1])).extend([] if group[1] else [rank])
    if len(present) < 2:
        return {group: of if group[1] else [] for group, of in members.items()}, ()
    world = max(world, len({*present, *(rank for of in members.values() for rank in of)}))
    members = {group: sorted(set(of) & set(present)) for group, of in members.items()}
    notes = cut_off_note(members)
    partial = f"{len(present)} of {world} ranks were given; groups are cut down to these"
    return {**members, WORLD: present}, (partial, *notes) if world > len(present) else notes


def foreign_traces(traces: Mapping[int, RankFacts]) -> tuple[dict[int, str], list[str]]:
    """Find traces of another job: one of another size or backend than most, or recorded at another time.

    Args:
        traces: by rank, or whatever else distinguishes them.

    Returns:
        of each such trace why it does not belong; and, without a majority, notes instead.
    """
    found: dict[int, str] = {}
    notes: list[str] = []
    for key, what in (("world_size", "a job of {} ranks"), ("backend", "a job with backend {}")):
        stated = {rank: facts.info.get(key) for rank, facts in traces.items()}
        values = {rank: value if isinstance(value, (int, str)) else None for rank, value in stated.items()}
        usual, often = Counter(values.values()).most_common(1)[0] if values else (None, 0)
        others = {rank: value for rank, value in values.items() if value != usual}
        if 2 * often <= len(values) and others:
            listed = ", ".join(sorted({_job(what, value) for value in values.values()}))
            notes.append(f"the traces are of different jobs: {listed}")
            continue
        for rank, value in others.items():
            found.setdefault(rank, f"{traces[rank].file} is of {_job(what, value)}, the others of {_job(what, usual)}")
    begins = {rank: facts.begin_ns // 10**9 for rank, facts in traces.items() if facts.begin_ns is not None}
    if len(begins) > 2:
        middle = int(median(list(begins.values())))
        for rank, begin in begins.items():
            if abs(begin - middle) > _APART_S:
                when = f"{_hours(begin - middle)} {'after' if begin > middle else 'before'}"
                found.setdefault(rank, f"{traces[rank].file} was recorded {when} the others")
    elif begins and max(begins.values()) - min(begins.values()) > _APART_S:
        notes.append(f"the traces were recorded {_hours(max(begins.values()) - min(begins.values()))} apart")
    return found, notes


def _job(what: str, value: Any) -> str:
    return "no distributed job" if value is None else what.format(value)


def _hours(seconds: int) -> str:
    return f"{abs(seconds) / 3600:,.0f} hours"


_REMEDY = "give only the traces of one job, one of each rank"


class JobTrace(NamedTuple):
    """What is kept of a trace to compare it with those of other ranks: the rank, None where it is not recorded; and a
    digest of its times, the same for the same recording."""

    facts: RankFacts
    rank: int | None
    content: bytes


def job_trace(trace: Trace) -> JobTrace:
    """What `check_job` compares; it holds nothing of the trace itself."""
    begin = trace.base_time_ns + trace.span.start if trace.span.length else None
    return JobTrace(RankFacts(trace.file, trace.distributed_info, begin), trace.rank, trace.digest)


def check_job(traces: Sequence[JobTrace]) -> tuple[str, ...]:
    """Refuse traces that cannot be of the ranks of one job.

    Returns:
        what could not be checked, in sentences.

    Raises:
        UsageError: the same recording or the same rank twice; jobs of other sizes or backends, or recorded over an
            hour apart; more files than the job has ranks.

    Example:
        >>> check_job([job_trace(trace)])
        ()
    """
    if len(traces) < 2:
        return ()
    _refuse_repeated(traces)
    foreign, conflicts = foreign_traces(dict(enumerate(trace.facts for trace in traces)))
    problem = next(iter([*foreign.values(), *conflicts]), None)
    if problem is not None:
        raise UsageError(f"not the ranks of one job: {problem}; {_REMEDY}")
    size = traces[0].facts.info.get("world_size")
    if type(size) is int and 0 < size < len(traces):
        raise UsageError(f"{len(traces)} traces of a job of {size} rank{'s' if size > 1 else ''}; {_REMEDY}")
    unknown = [trace.facts.file for trace in traces if trace.rank is None]
    if not unknown:
        return ()
    return (
        f"{len(unknown)} of {len(traces)} traces do not record their rank (distributedInfo), first {unknown[0]}: "
        "whether all are of one job is not known",
    )


def _refuse_repeated(traces: Sequence[JobTrace]) -> None:
    by_rank: dict[int, str] = {}
    by_content: dict[bytes, JobTrace] = {}
    for trace in traces:
        name = trace.facts.file
        if trace.rank is not None and trace.rank in by_rank:
            raise UsageError(f"{by_rank[trace.rank]} and {name} are both of rank {trace.rank}; {_REMEDY}")
        same = by_content.setdefault(trace.content, trace)
        if same is not trace and None in (trace.rank, same.rank):
            raise UsageError(f"{same.facts.file} and {name} are the same recording; {_REMEDY}")
        if trace.rank is not None:
            by_rank[trace.rank] = name
