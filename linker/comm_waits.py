"""Which streams wait for which around a collective, where no record says it: from the calls that ask for the waits.

PyTorch brackets each NCCL collective by two stream waits (ProcessGroupNCCL.cpp, `syncStream` and
`WorkNCCL::synchronizeStream`): before the launch NCCL's stream waits for the stream that made the input; later
`Work.wait` makes the stream that reads the output wait for NCCL's. Such a wait holds whether or not it cost time in the
measured run, so that times do not show it. The calls do: by the operators that they are in, by the sequence number that
`record_param_comms` has, and else by their order on a thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..trace.columns import IntColumn
from ..trace.conventions import ANNOTATION_SCOPE
from .comm import WAIT, CommRecord, comm_record
from .gpu_order import GpuOrder
from .linked import LinkedTrace

__all__ = ["find_comm_waits"]

_COMM_CALL = re.compile(r"(?:nccl|c10d|_c10d_functional|symm_mem)::?.*|record_param_comms")
"""Operators around the launch of a collective. (`nccl:` has one colon, the others have two.)"""


@dataclass(frozen=True)
class _CommCall:
    """A call that launches one collective, or several that are coalesced.

    Attributes:
        thread: code of the thread.
        begin, launch, end: int ns, of the outermost operator of the call, and of its first launch.
        first, last: positions in `gpu_row` of its first and last kernel by launch.
        record: what `record_param_comms` says of it, None without one.
    """

    thread: int
    begin: int
    launch: int
    end: int
    first: int
    last: int
    record: CommRecord | None


def find_comm_waits(
    linked: LinkedTrace, gpu: GpuOrder, kernels: Sequence[int], waits: IntColumn
) -> list[tuple[int, int]]:
    """Pairs of GPU events (positions in `gpu_row`), the second of which waits for the first on another stream.

    Args:
        kernels: positions in `gpu_row` of the communication kernels.
        waits: positions in `runtime_row` of the stream waits that no record explains, ascending.
    """
    if not len(waits) or not kernels:
        return []
    calls = _comm_calls(linked, gpu, kernels)
    around = _Around(linked, gpu, kernels)
    events = linked.kineto.events
    rows = linked.runtime_row[waits]
    threads, times = events.thread[rows].tolist(), events.ts[rows].tolist()
    begins = {thread: [call for call in calls if call.thread == thread] for thread in {call.thread for call in calls}}
    pairs, waited, open_waits = [], set[int](), dict[int, list[int]]()
    for wait, thread, ts in zip(waits.tolist(), threads, times, strict=True):
        parent = int(linked.runtime_parent[wait])
        record = comm_record(linked.et, linked.nodes, parent) if parent >= 0 else None
        if record is not None and record.collective == WAIT:
            call = _numbered(calls, record, ts)
            if call is not None:
                waited.add(call.first)
                pairs.append((call.last, around.reader(thread, ts)))
            else:
                open_waits.setdefault(thread, []).append(ts)
            continue
        own = begins.get(thread, [])
        k = int(np.searchsorted([call.begin for call in own], ts, side="right")) - 1
        if k >= 0 and ts < own[k].end:
            if ts < own[k].launch:
                pairs.append((around.writer(thread, ts), own[k].first))
        elif parent < 0 or linked.et.scope[linked.nodes.node[parent]] == ANNOTATION_SCOPE:
            open_waits.setdefault(thread, []).append(ts)
    for thread, asked in open_waits.items():
        pending = [call for call in begins.get(thread, []) if call.first not in waited]
        pairs += [(call.last, around.reader(thread, ts)) for call, ts in _in_order(pending, asked)]
    return sorted({(a, b) for a, b in pairs if a >= 0 and b >= 0 and gpu.stream[a] != gpu.stream[b]})


def _comm_calls(linked: LinkedTrace, gpu: GpuOrder, kernels: Sequence[int]) -> list[_CommCall]:
    """The calls that launched communication kernels, in order of launch; kernels without a known launch have none."""
    events, calls = linked.kineto.events, linked.calls
    call_of_node = np.full(len(linked.nodes), -1, np.int64)
    at = np.flatnonzero(linked.node_of_call >= 0)
    call_of_node[linked.node_of_call[at]] = at
    members: dict[tuple[int, int], list[int]] = {}
    for i in sorted(kernels, key=lambda i: (int(gpu.launch[i]), i)):
        launcher = int(linked.gpu_launcher[i])
        if launcher >= 0:
            outermost = _outermost(linked, call_of_node, int(linked.gpu_parent[i]))
            members.setdefault((outermost, -1 if outermost >= 0 else launcher), []).append(i)
    found = []
    for (outermost, _), of in members.items():
        launcher = int(linked.gpu_launcher[of[0]])
        call = int(call_of_node[outermost]) if outermost >= 0 else -1
        launch = int(events.ts[launcher])
        found.append(
            _CommCall(
                thread=int(events.thread[launcher]),
                begin=int(calls.ts[call]) if call >= 0 else launch,
                launch=launch,
                end=int(calls.end[call]) if call >= 0 else launch,
                first=of[0],
                last=of[-1],
                record=comm_record(linked.et, linked.nodes, int(linked.gpu_parent[of[0]])),
            )
        )
    return found


def _outermost(linked: LinkedTrace, call_of_node: IntColumn, position: int) -> int:
    """The outermost linked call around a node that is part of a collective, −1 for none."""
    et, nodes, found = linked.et, linked.nodes, -1
    while position >= 0 and _COMM_CALL.fullmatch(et.names[et.name[nodes.node[position]]]):
        if call_of_node[position] >= 0:
            found = position
        position = int(nodes.parent[position])
    return found


def _numbered(calls: Sequence[_CommCall], record: CommRecord, ts: int) -> _CommCall | None:
    """The collective of a number that was launched last before a time; of its group where both are known."""
    if record.sequence is None:
        return None
    for call in reversed(calls):
        if call.launch < ts and call.record is not None and call.record.sequence == record.sequence:
            groups = {call.record.group, record.group} - {""}
            if len(groups) < 2:
                return call
    return None


def _in_order(pending: Sequence[_CommCall], waits: Sequence[int]) -> Iterator[tuple[_CommCall, int]]:
    """Collectives and the times of waits for them: one each, in order, as DDP's reducer waits for its buckets.

    Waits between two launches are for what was launched before. Where these are fewer than the collectives they are
    for the last ones; streams cover what was launched earlier.

    Args:
        pending: collectives of one thread in order of launch. waits: times of waits of that thread, ascending.
    """
    launches = [call.launch for call in pending]
    bursts: dict[int, list[int]] = {}
    for ts in waits:
        bursts.setdefault(int(np.searchsorted(launches, ts)), []).append(ts)
    done = 0
    for launched, burst in bursts.items():
        left = pending[done:launched]
        done = launched
        yield from zip(left[max(len(left) - len(burst), 0) :], burst, strict=False)


class _Around:
    """The streams on which threads work: those of what they launch next or last, collectives aside."""

    def __init__(self, linked: LinkedTrace, gpu: GpuOrder, kernels: Sequence[int]) -> None:
        self.gpu = gpu
        others = np.setdiff1d(np.flatnonzero(linked.gpu_launcher >= 0), np.array(kernels, np.int64))
        others = others[np.argsort(gpu.launch[others], kind="stable")]
        thread = linked.kineto.events.thread[linked.gpu_launcher[others]]
        self.launched = {one: others[thread == one] for one in np.unique(thread).tolist()}
        self.times = {one: gpu.launch[launched] for one, launched in self.launched.items()}

    def reader(self, thread: int, ts: int) -> int:
        """The first event after a time on the stream of what a thread launches next (else last), −1 if none."""
        k = self._next(thread, ts)
        if k < 0:
            return -1
        launched = self.launched[thread]
        return self.gpu.first_after(int(self.gpu.stream[launched[min(k, len(launched) - 1)]]), ts)

    def writer(self, thread: int, ts: int) -> int:
        """The last event before a time on the stream of what a thread launched last, −1 if there is none."""
        k = self._next(thread, ts)
        return self.gpu.last_before(int(self.gpu.stream[self.launched[thread][k - 1]]), ts) if k > 0 else -1

    def _next(self, thread: int, ts: int) -> int:
        """How many launches a thread has made by a time, −1 if it makes none."""
        return int(np.searchsorted(self.times[thread], ts)) if thread in self.times else -1
