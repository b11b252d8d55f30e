"""Compare what traces record about their rank and job, and find traces that belong to another job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..schemas.comm_types import WORLD, Group, cut_off_note
from ..trace.columns import median
from ..trace.errors import UsageError
from ..trace.trace import Trace

ONE_RANK = "ASTRA-sim needs at least two; convert the traces of all ranks together, or one with --replicate N"

_APART_S = 3600  # All ranks of a job are expected to start recording within this many seconds.


class RankFacts(NamedTuple):
    """The file name of a rank's trace, its `distributedInfo` ({} if missing), and its wall-clock start in ns."""

    file: str
    info: Mapping[str, Any]
    begin_ns: int | None


def ranks_of(traces: Sequence[Trace]) -> list[int]:
    """Return the ranks of the traces if all ranks are different. Otherwise, return the positions of the traces."""
    stated = [trace.rank for trace in traces]
    known = [rank for rank in stated if rank is not None]
    return known if len(set(known)) == len(stated) else list(range(len(stated)))


def groups_at_hand(used: Mapping[int, Iterable[Group]], world: int) -> tuple[dict[Group, list[int]], tuple[str, ...]]:
    """Map each process group to the ranks that a simulation or replay uses for it. Also return notes for the user.

    Several ranks are treated as the whole job. Ranks that were not given are removed from groups, and a group with
    unknown members consists of the ranks that use it. WORLD contains all given ranks. A single rank represents its
    whole job, so its groups keep all members.

    Args:
        used: maps each given rank to the groups in which it communicates.
        world: number of ranks in the job, 0 if unknown.

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
        return {group: ranks if group[1] else [] for group, ranks in members.items()}, ()
    world = max(world, len({*present, *(rank for ranks in members.values() for rank in ranks)}))
    members = {group: sorted(set(ranks) & set(present)) for group, ranks in members.items()}
    notes = cut_off_note(members)
    partial = f"{len(present)} of {world} ranks were given; process groups include only these"
    return {**members, WORLD: present}, (partial, *notes) if world > len(present) else notes


def foreign_traces(traces: Mapping[int, RankFacts]) -> tuple[dict[int, str], list[str]]:
    """Find traces from other jobs that differ from most traces in job size, backend or recording time. Map the keys of
    such traces to reasons. Also return notes that describe the differences if there is no majority."""
    foreign: dict[int, str] = {}
    notes: list[str] = []
    for key, wording in (("world_size", "a job of {} ranks"), ("backend", "a job with backend {}")):
        stated = {rank: facts.info.get(key) for rank, facts in traces.items()}
        values = {rank: value if isinstance(value, (int, str)) else None for rank, value in stated.items()}
        usual, often = Counter(values.values()).most_common(1)[0] if values else (None, 0)
        others = {rank: value for rank, value in values.items() if value != usual}
        if 2 * often <= len(values) and others:
            listed = ", ".join(sorted({_job(wording, value) for value in values.values()}))
            notes.append(f"the traces come from different jobs: {listed}")
            continue
        for rank, value in others.items():
            foreign.setdefault(
                rank, f"{traces[rank].file} is of {_job(wording, value)}, the others of {_job(wording, usual)}"
            )
    begins = {rank: facts.begin_ns // 10**9 for rank, facts in traces.items() if facts.begin_ns is not None}
    if len(begins) > 2:
        middle = int(median(list(begins.values())))
        for rank, begin in begins.items():
            if abs(begin - middle) > _APART_S:
                when = f"{_hours(begin - middle)} {'after' if begin > middle else 'before'}"
                foreign.setdefault(rank, f"{traces[rank].file} was recorded {when} the others")
    elif begins and max(begins.values()) - min(begins.values()) > _APART_S:
        notes.append(f"the traces were recorded {_hours(max(begins.values()) - min(begins.values()))} apart")
    return foreign, notes


def _job(wording: str, value: Any) -> str:
    return "no distributed job" if value is None else wording.format(value)


def _hours(seconds: int) -> str:
    return f"{abs(seconds) / 3600:,.0f} hours"


_REMEDY = "give only the traces of one job, one per rank"


class JobTrace(NamedTuple):
    """Facts about a rank that `check_job` compares. `content` is a digest that identifies the recording."""

    facts: RankFacts
    rank: int | None
    content: bytes


def job_trace(trace: Trace) -> JobTrace:
    """Return the facts that `check_job` needs, so the trace does not have to stay in memory."""
    begin = trace.base_time_ns + trace.span.start if trace.span.length else None
    return JobTrace(RankFacts(trace.file, trace.distributed_info, begin), trace.rank, trace.digest)


def check_job(traces: Sequence[JobTrace]) -> tuple[str, ...]:
    """Raise UsageError if the traces cannot be ranks of one job. Return sentences about facts that are not recorded."""
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
        "it is unknown whether they all come from one job",
    )


def _refuse_repeated(traces: Sequence[JobTrace]) -> None:
    by_rank: dict[int, str] = {}
    by_content: dict[bytes, JobTrace] = {}
    for trace in traces:
        name = trace.facts.file
        if trace.rank is not None and trace.rank in by_rank:
            raise UsageError(f"{by_rank[trace.rank]} and {name} both have rank {trace.rank}; {_REMEDY}")
        same = by_content.setdefault(trace.content, trace)
        if same is not trace and None in (trace.rank, same.rank):
            raise UsageError(f"{same.facts.file} and {name} are the same recording; {_REMEDY}")
        if trace.rank is not None:
            by_rank[trace.rank] = name
