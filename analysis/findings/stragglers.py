"""Findings about stragglers: the rank that other ranks wait for, when the waits begin, and what causes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...trace.columns import IntColumn, matching
from ...trace.intervals import sums
from ...trace.kinds import CPU, GPU
from ...trace.printable import shortened
from ...trace.text_tables import in_ms
from .case import Case
from .finding import CONFIRMED, INFERRED, Candidate, Evidence, Intervention, Where
from .proofs import where_of
from .rank_times import NO_WORK, TimesOfJob, job_times, work_keys

# Minimum share of all waiting time that a straggler causes.
# If two ranks are late only by chance, each rank causes about half of the waiting.
OF_ALL_WAITING = 0.6
FEWEST = 3  # minimum number of collectives that a straggler joins last; fewer may be chance
EXPLAINS = 0.5  # minimum share of a rank's lateness that its extra work must explain
LATE_FROM = 0.5  # A rank becomes late at the first collective where others wait at least this share of the median wait.
# If a rank differs from other ranks in more than this share of its calls and GPU events, `UnlikeWork` reports it.
UNLIKE = 0.1
UNEXPLAINED = 0.05  # minimum wait, as a share of the makespan, to report a straggler without a known cause
_MOST_NAMED = 3  # maximum number of causes to change separately in the replay; more causes share one change
_NAME = 60


@dataclass(frozen=True)
class _Late:
    k: int
    rank: int
    last: int
    of: int
    wait_ns: float
    share: float
    since_ns: int
    since: int


class _LongerOnRank(NamedTuple):
    name: str
    on_device: bool
    rows: IntColumn
    own_ns: float
    usual_ns: float
    times: int
    usual_times: float

    @property
    def ns(self) -> float:
        return self.own_ns - self.usual_ns

    @property
    def factor(self) -> float:
        return self.usual_ns / self.own_ns


class Straggler:
    """A rank that joins collectives last although it does the same work as other ranks."""

    id = "straggler"
    has_other_work = False

    def find(self, case: Case) -> Iterator[Candidate]:
        for late in _late_ranks(case):
            extras, unlike = _extras(case, late)
            if (unlike > UNLIKE) == self.has_other_work:
                yield from _candidates(self.id, case, late, extras, unlike)


class UnlikeWork(Straggler):
    """A rank that joins collectives last and does different work, or more work, than other ranks."""

    id = "unlike-work"
    has_other_work = True


def _late_ranks(case: Case) -> Iterator[_Late]:
    times = job_times(case)
    if not times.joint:
        return
    from ...jobs.lateness import caused_waits  # This import is slow, and a single rank does not need it.

    causes = [caused_waits(rank.rank, times.joint, times.offsets) for rank in times.ranks]
    total = sum(float(cause.wait.sum()) for cause in causes)
    for k, cause in enumerate(causes):
        caused = float(cause.wait.sum())
        last = int(np.count_nonzero(cause.wait))
        if last < FEWEST or caused <= OF_ALL_WAITING * total:
            continue
        late = cause.wait[cause.wait > 0]
        since = int(np.argmax(cause.wait >= LATE_FROM * float(np.median(late))))
        others = float((cause.wait / np.maximum(cause.others, 1)).sum())
        rank, count = times.ranks[k], len(cause.wait)
        since_ns = int(cause.start[since]) - rank.trace.base_time_ns
        yield _Late(k, rank.rank, last, count, others, caused / total, since_ns, since)


def _extras(case: Case, late: _Late) -> tuple[list[_LongerOnRank], float]:
    graph, times = case.graph, job_times(case)
    durations = graph.durations
    known: dict[tuple[str, bool], int] = {}
    keys, parts, whole = [], [], []
    for k, (begin, end) in enumerate(_compared_time(times, late)):
        trace, first = graph.traces[k], int(graph.first_row[k])
        rows = np.flatnonzero(np.isin(trace.nodes.kind, (CPU, GPU)) & trace.nodes.timed)
        rows = rows[~matching(trace.nodes.name[rows], trace.names, NO_WORK.match) & ~np.isin(rows, times.ranks[k].row)]
        key, inside = work_keys(trace, rows, known), (trace.nodes.ts[rows] >= begin) & (trace.nodes.ts[rows] < end)
        keys.append(key[inside])
        parts.append(rows[inside] + first)
        whole.append(key)
    ns = np.stack([sums(key, durations[rows], len(known)) for key, rows in zip(keys, parts, strict=True)])
    count = np.stack([np.bincount(key, minlength=len(known)) for key in keys])
    rest = np.array([k for k, rows in enumerate(parts) if k != late.k and len(rows)], np.int64)
    if not len(rest):
        return [], 0.0
    usual, usual_count = np.median(ns[rest], axis=0), np.median(count[rest], axis=0)
    order = np.argsort(usual - ns[late.k], kind="stable")
    names = list(known)
    found = [
        _LongerOnRank(
            names[code][0], names[code][1], parts[late.k][keys[late.k] == code],
            float(ns[late.k, code]), float(usual[code]), int(count[late.k, code]), float(usual_count[code]),
        )
        for code in order[ns[late.k, order] > usual[order]].tolist()
    ]  # fmt: skip
    every = np.stack([np.bincount(key, minlength=len(known)) for key in whole])
    usual_every = np.median(every[rest], axis=0)
    return found, float(np.abs(every[late.k] - usual_every).sum() / max(usual_every.sum(), 1))


def _compared_time(times: TimesOfJob, late: _Late) -> list[tuple[int, int]]:
    largest = max((group.ranks for group in times.joint if late.rank in group.ranks), key=len)
    group = next(group for group in times.joint if group.ranks == largest)
    mine = group.start[:, group.ranks.index(late.rank)] - times.ranks[late.k].trace.base_time_ns
    at = max(int(np.searchsorted(mine, late.since_ns)) - 1, 0)
    found = []
    for rank in times.ranks:
        if rank.rank in group.ranks:
            i, base = group.ranks.index(rank.rank), rank.trace.base_time_ns
            found.append((int(group.end[at, i]) - base, int(group.start[-1, i]) - base))
        else:
            found.append((0, 0))  # this rank is not in the group
    return found


def _candidates(name: str, case: Case, late: _Late, extras: list[_LongerOnRank], unlike: float) -> Iterator[Candidate]:
    trace = case.traces[late.k]
    wait = late.wait_ns
    causes = _causes(extras, wait)
    if not causes and wait < UNEXPLAINED * case.makespan_ns:
        return
    rows = np.concatenate([extra.rows for extra in causes]) if causes else np.zeros(0, np.int64)
    own = rows - int(case.graph.first_row[late.k])
    command = f"etplus analyze --summary {case.shells}"
    since = late.since_ns - trace.nodes.span.start
    begun = "" if late.since == 0 else f" since {since / 1e6:,.1f} ms"
    more = f"; its calls and kernels differ by {unlike:.0%}" if unlike > UNLIKE else ""
    evidence = [
        Evidence(
            f"rank {late.rank} joins {late.last:,} of {late.of:,} collectives last and causes {late.share:.0%} of "
            f"all waiting; each other rank waits {in_ms(wait)} for it", round(wait), "ns", command,
        )
    ]  # fmt: skip
    evidence += [
        Evidence(
            f"{_what(extra)} takes {in_ms(extra.own_ns)} on rank {late.rank} ({extra.times:,} times), "
            f"{in_ms(extra.usual_ns)} on other ranks ({extra.usual_times:,.0f} times)", round(extra.ns), "ns",
            f"etplus analyze {case.shell(late.k)}",
        )
        for extra in causes[:_MOST_NAMED]
    ]  # fmt: skip
    cause = f": {_cause(causes, wait)}" if causes else "; the traces show no work that takes longer on this rank"
    yield Candidate(
        name,
        f"other ranks wait {in_ms(wait)} for rank {late.rank}{begun}{more}{cause}",
        where_of(trace, own, rank=late.rank) if len(own) else Where(rank=late.rank, start_ns=since),
        tuple(evidence),
        round(wait),
        CONFIRMED if causes else INFERRED,
        _advice(name, causes),
        f"`etplus.load([…]).stragglers`: rank {late.rank} no longer joins most collectives last",
        tuple(_interventions(late.rank, causes, extras)) if causes else (),
        low=0.8,
        high=1.2,
    )


def _causes(extras: list[_LongerOnRank], wait: float) -> list[_LongerOnRank]:
    for device in (True, False):
        found, ns = list[_LongerOnRank](), 0.0
        for extra in extras:
            if extra.on_device == device and ns < (1 - EXPLAINS / 2) * wait:
                found.append(extra)
                ns += extra.ns
        if ns >= EXPLAINS * wait:
            return found
    return []


def _interventions(rank: int, causes: list[_LongerOnRank], extras: list[_LongerOnRank]) -> Iterator[Intervention]:
    if len(causes) <= _MOST_NAMED:
        for extra in causes:
            target = "kernel:name=" if extra.on_device else "op:"
            yield Intervention(f"rank={rank} {target}{extra.name}*{extra.factor:.4g}", extra.rows)
        return
    alike = [extra for extra in extras if extra.on_device == causes[0].on_device]
    factor = sum(extra.usual_ns for extra in alike) / sum(extra.own_ns for extra in alike)
    rows = np.concatenate([extra.rows for extra in alike])
    yield Intervention(f"rank={rank} {'kernel' if causes[0].on_device else 'cpu'}*{factor:.4g}", rows)


def _cause(causes: list[_LongerOnRank], wait: float) -> str:
    first = causes[0]
    if first.ns >= EXPLAINS * wait:
        slower = "which other ranks do not run"
        if first.usual_ns:
            slower = f"{first.own_ns / first.usual_ns:.2f} times as long as on other ranks"
        return f"{_what(first)} takes {in_ms(first.ns)} longer, {slower}"
    ratio = sum(of.own_ns for of in causes) / max(sum(of.usual_ns for of in causes), 1.0)
    where = "kernels" if first.on_device else "operators"
    longer = in_ms(sum(of.ns for of in causes))
    return f"{len(causes):,} {where} take {longer} longer, {ratio:.2f} times as long as on other ranks"


def _what(extra: _LongerOnRank) -> str:
    return f"{'kernel ' if extra.on_device else ''}{shortened(extra.name, _NAME)}"


def _advice(name: str, causes: list[_LongerOnRank]) -> str:
    if name == UnlikeWork.id:
        return (
            "balance the work of the ranks: batches with equal numbers of tokens (sort or pack by length), an even "
            "split of experts, tables or layers; move logging, evaluation and checkpoints off the steps of this rank"
        )
    if causes and causes[0].on_device:
        return (
            "check the device of this rank: compare its clocks, temperature and power limit with other devices ("
            "nvidia-smi -q -d CLOCK), and look for other programs on the device"
        )
    return (
        "find out what this line does only on this rank: data loading, logging, sharing a processor (affinity, NUMA "
        "node), garbage collection"
    )
