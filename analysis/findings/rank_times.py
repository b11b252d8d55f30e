"""Communication times of all ranks of a case: transfers, overlap with compute, and waits for other ranks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...jobs.job_ranks import ranks_of
from ...jobs.rank_communications import RankCommunications, communications
from ...schemas.communications import backend_rows, comm_rows, kind_name
from ...trace.columns import IntColumn, distinct, distinct_rows, matching, positions
from ...trace.conventions import ANNOTATION_SCOPE
from ...trace.find_steps import family_of
from ...trace.intervals import Intervals, intersection, union
from ...trace.kinds import GPU
from ...trace.tables import OP
from ...trace.trace import Trace
from .case import Case

if TYPE_CHECKING:
    from ...jobs.matching import Matched

# These operators issue, perform or await a communication. They are not compute.
NO_WORK = re.compile(r"_?c10d(?:_functional)?::|(?:gloo|nccl|mpi|ucc):|record_param_comms")
# Autograd runs hooks inside this call. Hooks may wait, and their compute is recorded as separate operators.
_ENGINE = re.compile(r"autograd::engine::evaluate_function")


@dataclass(frozen=True)
class RankTimes:
    """One rank's communications in program order, and its compute intervals. Times are int64 ns on the trace clock."""

    trace: Trace
    rank: int
    comms: RankCommunications  # the result of `jobs.rank_communications`
    row: IntColumn  # int64 rows of the communications in `trace`
    # Time that each communication waits for the last rank of its group, int64 ns; 0 if no other trace shows the wait.
    wait: IntColumn

    @property
    def start(self) -> IntColumn:
        start: IntColumn = self.trace.nodes.ts[self.row]
        return start

    @property
    def end(self) -> IntColumn:
        end: IntColumn = self.trace.nodes.end[self.row]
        return end

    @cached_property
    def exposed(self) -> IntColumn:
        """For every communication, the time after all ranks arrive in which this rank computes nothing, int64 ns."""
        return uncovered(self.compute, np.minimum(self.start + self.wait, self.end), self.end)

    @property
    def transfer(self) -> IntColumn:
        """For every communication, the time from the arrival of the last rank to the end, int64 ns."""
        transfer: IntColumn = np.maximum(self.end - self.start - self.wait, 0)
        return transfer

    def moving(self, at: IntColumn) -> Intervals:
        """Return the intervals in which at least one communication in `at` transfers data."""
        return union(np.minimum(self.start + self.wait, self.end)[at], self.end[at])

    def exposed_ns(self, at: IntColumn) -> int:
        """Return the time (ns) in which the rank computes nothing while a communication in `at` transfers data."""
        moving = self.moving(at)
        return int(uncovered(self.compute, moving.start, moving.end).sum())

    @cached_property
    def free_ns(self) -> int:
        """Time in ns during which the rank computes while no communication transfers data."""
        return self.compute.length - intersection(self.compute, self.moving(np.arange(len(self.row)))).length

    @cached_property
    def compute(self) -> Intervals:
        """Intervals in which the device runs a kernel that does not communicate.

        If collectives run on the host, intervals in which the host runs an operator that does not communicate also
        count."""
        trace, gpu = self.trace, self.trace.gpu
        kernels = trace.is_kernel & ~trace.is_comm
        start, end = gpu.ts[kernels], gpu.end[kernels]
        if self.comms.on_host.any():
            calls = trace.calls
            works = (calls.kind == OP) & ~matching(calls.name, trace.names, _ENGINE.match)
            works &= ~np.isin(calls.source, backend_rows(trace, comm_rows(trace)))
            around = np.flatnonzero(matching(calls.name, trace.names, NO_WORK.match))
            while len(around):  # Operators that contain a communication are not compute.
                works[around] = False
                around = distinct(calls.parent[around])
                around = around[around >= 0]
            start, end = np.concatenate([start, calls.ts[works]]), np.concatenate([end, calls.end[works]])
        return union(start, end)


@dataclass(frozen=True)
class TimesOfJob:
    ranks: tuple[RankTimes, ...]  # one entry per trace of the case, in order
    joint: tuple[Matched, ...]  # collectives that act as barriers: no rank leaves before all ranks arrive
    offsets: dict[int, int]  # clock offset per rank in ns; positive if its clock is ahead


def job_times(case: Case) -> TimesOfJob:
    return case.once(_times, "job times")


def _times(case: Case) -> TimesOfJob:
    numbers = ranks_of(case.traces)
    comms = {rank: communications(trace) for rank, trace in zip(numbers, case.traces, strict=True)}
    rows = {rank: positions(trace.nodes.id, comms[rank].node) for rank, trace in zip(numbers, case.traces, strict=True)}
    wait = {rank: np.zeros(len(of), np.int64) for rank, of in comms.items()}
    joint: list[Matched] = []
    offsets: dict[int, int] = {}
    if len(numbers) > 1:
        from ...jobs.clocks import clock_offsets, synchronizing
        from ...jobs.lateness import arrivals
        from ...jobs.matching import match_collectives, match_messages

        joint = synchronizing(match_collectives(comms)[0])
        offsets = {clock.rank: clock.offset_ns for clock in clock_offsets(joint, match_messages(comms)[0])}
        for group in joint:
            waited = arrivals(group, offsets).wait
            for i, rank in enumerate(group.ranks):
                wait[rank][positions(comms[rank].node, group.node[:, i])] = waited[:, i]
    pairs = zip(numbers, case.traces, strict=True)
    ranks = tuple(RankTimes(trace, rank, comms[rank], rows[rank], wait[rank]) for rank, trace in pairs)
    return TimesOfJob(ranks, tuple(joint), offsets)


def uncovered(busy: Intervals, start: IntColumn, end: IntColumn) -> IntColumn:
    """Return, for each span from `start` to `end`, the time in ns that the busy intervals do not cover (int64).

    Example:
        >>> uncovered(union(np.array([2, 8]), np.array([4, 9])), np.array([0, 3]), np.array([5, 10])).tolist()
        [3, 5]
    """
    return end - start - (_covered_until(busy, end) - _covered_until(busy, start))


def _covered_until(busy: Intervals, ts: IntColumn) -> IntColumn:
    total = np.concatenate([[0], np.cumsum(busy.end - busy.start)])
    begun = np.searchsorted(busy.start, ts, side="right")
    over = np.append(0, busy.end)[begun] - ts
    return total[begun] - np.where(begun > 0, np.maximum(over, 0), 0)


def work_keys(trace: Trace, rows: IntColumn, known: dict[tuple[str, bool], int]) -> IntColumn:
    """Return an int64 number for each row. Rows of the same name and side (host or device) have the same number.

    Numbers at the end of annotation names are ignored. Adds new entries to `known`.
    """
    device, annotation = trace.nodes.kind[rows] == GPU, trace.nodes.scope[rows] == ANNOTATION_SCOPE
    found, of = distinct_rows(trace.nodes.name[rows], device.astype(np.int8), annotation.astype(np.int8))
    names = [
        (family_of(trace.names[name]) if numbered else trace.names[name], bool(on_device))
        for name, on_device, numbered in found.tolist()
    ]
    return np.array([known.setdefault(key, len(known)) for key in names], np.int64)[of]


def group_label(times: RankTimes, group: int) -> str:
    name = times.comms.groups[group][0]
    return f"group {name}" if name else "all ranks"


def collective_label(kind: int) -> str:
    """Return the PyTorch spelling of a communication kind, such as "all_reduce"."""
    return kind_name(kind).lower()
