"""Infer unrecorded stream waits around collectives from the calls that cause the waits.

Before a collective, NCCL's stream waits for the stream that produced the input. Later, `Work.wait` makes the stream
that reads the output wait for NCCL's stream (ProcessGroupNCCL.cpp). Such a wait may take no time, so the linker cannot
detect it from kernel times. Instead, it assigns each waiting call to a collective by the operator around the call, by
the sequence number in `record_param_comms`, or by the order of calls on a thread. The stream that waits is usually the
stream that the thread uses for its next launch. However, if the first reader of the collective's tensors is a later
operator, the collective was issued from a separate stream. FSDP does this to prefetch parameters."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, distinct, lists_by, mask_at
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.host_waits import ROUNDING_NS
from .comm import WAIT, CommRecord, comm_records
from .gpu_order import GpuOrder
from .join import Join

# Collectives are launched inside these operators. The prefix `nccl:` has one colon, but the other prefixes have two.
_COMM_CALL = re.compile(r"(?:nccl|c10d|_c10d_functional|symm_mem)::?.*|record_param_comms")


@dataclass(frozen=True)
class _CommCall:
    """A call that launches one collective, or several coalesced collectives."""

    thread: int
    outermost: int  # position in `nodes` of the outermost operator around the call; −1 if there is none
    begin: int  # start of the operator, in ns
    launch: int  # time of the operator's first launch, in ns
    end: int  # end of the operator, in ns
    first: int  # position in `gpu_row` of the first kernel that the operator launched
    last: int  # position in `gpu_row` of the last kernel that the operator launched
    record: CommRecord | None  # `record_param_comms` of the call; None if the ET has none


def find_comm_waits(linked: Join, gpu: GpuOrder, kernels: Sequence[int], waits: IntColumn) -> list[tuple[int, int]]:
    """Return pairs of GPU events on different streams. The second event waits for the first. All events, including the
    communication `kernels`, are positions in `gpu_row`. `waits` contains the stream waits without a known cause, as
    ascending positions in `runtime_row`."""
    if not kernels:
        return []
    calls = _comm_calls(linked, gpu, kernels)
    around = _Around(linked, gpu, kernels)
    entered, left = _waits_by_call(linked, calls, waits)
    events, tensors, pairs = linked.kineto.events, _TensorsOf(linked, gpu, calls), []
    begin, end = events.ts[linked.gpu_row], events.end[linked.gpu_row]
    aside = set[int]()
    for k, call in enumerate(calls):
        found = [around.reader(thread, ts) for thread, ts in left.get(k, [])]
        at_once = [around.same(call.thread, call.launch, ts) for thread, ts in left.get(k, []) if thread == call.thread]
        if not found or any(at_once):
            readers = tensors.readers(k)
            if readers and not any(i in readers for i in found):
                aside.add(k)
                found = readers
        pairs += [(call.last, i) for i in found]
    for k in sorted(entered):
        call, source = calls[k], around.writer(calls[k].thread, calls[k].launch)
        late = source >= 0 and end[source] > begin[call.first] + ROUNDING_NS
        written = tensors.writers(k) if late or k in aside else []
        pairs += [(i, call.first) for i in written or [source]]
    return sorted({(a, b) for a, b in pairs if a >= 0 and b >= 0 and gpu.stream[a] != gpu.stream[b]})


def _waits_by_call(
    linked: Join, calls: Sequence[_CommCall], waits: IntColumn
) -> tuple[set[int], dict[int, list[tuple[int, int]]]]:
    """Assign stream waits to collectives (positions in `calls`). Return the collectives that have a stream wait before
    their launch, and a dict from each collective to the later waits for it, as (thread, time)."""
    events, rows = linked.kineto.events, linked.runtime_row[waits]
    own: dict[int, list[int]] = {}
    numbered: dict[int, list[int]] = {}
    for k, call in enumerate(calls):
        own.setdefault(call.thread, []).append(k)
        if call.record is not None and call.record.sequence is not None:
            numbered.setdefault(call.record.sequence, []).append(k)
    begins = {thread: [calls[k].begin for k in of] for thread, of in own.items()}
    entered, left, unnumbered = set[int](), dict[int, list[tuple[int, int]]](), dict[int, list[int]]()
    parents = linked.runtime_parent[waits]
    records = comm_records(linked.et, linked.nodes, parents)
    places = (column.tolist() for column in (parents, events.thread[rows], events.ts[rows]))
    for record, parent, thread, ts in zip(records, *places, strict=True):
        asked = record is not None and record.collective == WAIT
        at = bisect_right(begins.get(thread, []), ts) - 1
        if record is not None and asked and (k := _numbered(calls, numbered, record, ts, left)) >= 0:
            left.setdefault(k, []).append((thread, ts))
        elif not asked and at >= 0 and ts < calls[own[thread][at]].end:
            if ts < calls[own[thread][at]].launch:
                entered.add(own[thread][at])
        elif asked or parent < 0 or linked.et.scope[linked.nodes.node[parent]] == ANNOTATION_SCOPE:
            unnumbered.setdefault(thread, []).append(ts)
    for thread, times in unnumbered.items():
        pending = [k for k in own.get(thread, []) if k not in left]
        for k, ts in _in_order(pending, [calls[k].launch for k in pending], times):
            left[k] = [(thread, ts)]
    return entered, left


def _comm_calls(linked: Join, gpu: GpuOrder, kernels: Sequence[int]) -> list[_CommCall]:
    events, calls = linked.kineto.events, linked.calls
    members: dict[tuple[int, int], list[int]] = {}
    for i in sorted(kernels, key=lambda i: (int(gpu.launch[i]), i)):
        launcher = int(linked.gpu_launcher[i])
        if launcher >= 0:
            outermost = _outermost(linked, int(linked.gpu_parent[i]))
            members.setdefault((outermost, -1 if outermost >= 0 else launcher), []).append(i)
    found, first = [], np.array([launched[0] for launched in members.values()], np.int64)
    records = comm_records(linked.et, linked.nodes, linked.gpu_parent[first])
    for (outermost, _), launched, record in zip(members, members.values(), records, strict=True):
        launcher = int(linked.gpu_launcher[launched[0]])
        call = int(linked.call_of_node[outermost]) if outermost >= 0 else -1
        launch = int(events.ts[launcher])
        begin, end = (int(calls.ts[call]), int(calls.end[call])) if call >= 0 else (launch, launch)
        thread = int(events.thread[launcher])
        found.append(_CommCall(thread, outermost, begin, launch, end, launched[0], launched[-1], record))
    return found


def _outermost(linked: Join, position: int) -> int:
    et, nodes, found = linked.et, linked.nodes, -1
    while position >= 0 and _COMM_CALL.fullmatch(et.names[et.name[nodes.node[position]]]):
        if linked.call_of_node[position] >= 0:
            found = position
        position = int(nodes.parent[position])
    return found


def _numbered(
    calls: Sequence[_CommCall], numbered: dict[int, list[int]], record: CommRecord, ts: int, waited: Container[int]
) -> int:
    """Return the last collective before `ts` that has the group and sequence number of `record`, −1 for none. Prefer a
    collective that has no wait yet. Each group numbers its collectives separately, and its messages per direction."""
    alike = numbered.get(record.sequence, []) if record.sequence is not None else []
    found = -1
    for k in reversed(alike[: bisect_left(alike, ts, key=lambda k: calls[k].launch)]):
        known = calls[k].record
        if known is not None and len({known.group, record.group} - {""}) < 2:
            if k not in waited:
                return k
            found = max(found, k)
    return found


def _in_order(pending: Sequence[int], launches: Sequence[int], waits: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pair each collective with the time of one wait. Both are in the same order, as when DDP's reducer waits for its
    buckets. A wait belongs to a launch before it. If there are fewer waits than launches since the previous waits, the
    waits belong to the last launches, because a wait for a stream includes all earlier work on that stream."""
    done = 0
    for launched, burst in lists_by((bisect_left(launches, ts) for ts in waits), waits).items():
        left = pending[done:launched]
        done = launched
        yield from zip(left[max(len(left) - len(burst), 0) :], burst, strict=False)


class _Around:
    def __init__(self, linked: Join, gpu: GpuOrder, kernels: Sequence[int]) -> None:
        self.gpu = gpu
        others = np.flatnonzero((linked.gpu_launcher >= 0) & ~mask_at(len(linked.gpu_launcher), kernels))
        others = others[np.argsort(gpu.launch[others], kind="stable")]
        thread = linked.kineto.events.thread[linked.gpu_launcher[others]].astype(np.int64)
        self.launched = {code: others[thread == code] for code in distinct(thread).tolist()}
        self.times = {code: gpu.launch[launched] for code, launched in self.launched.items()}

    def reader(self, thread: int, ts: int) -> int:
        k = self._next(thread, ts)
        if k < 0:
            return -1
        launched = self.launched[thread]
        return self.gpu.first_after(int(self.gpu.stream[launched[min(k, len(launched) - 1)]]), ts)

    def writer(self, thread: int, ts: int) -> int:
        k = self._next(thread, ts)
        return self.gpu.last_before(int(self.gpu.stream[self.launched[thread][k - 1]]), ts) if k > 0 else -1

    def same(self, thread: int, ts: int, other: int) -> bool:
        return self._next(thread, ts) == self._next(thread, other)

    def _next(self, thread: int, ts: int) -> int:
        return int(np.searchsorted(self.times[thread], ts)) if thread in self.times else -1


class _TensorsOf:
    def __init__(self, linked: Join, gpu: GpuOrder, calls: Sequence[_CommCall]) -> None:
        self.linked, self.gpu, self.calls = linked, gpu, calls

    def readers(self, k: int) -> list[int]:
        return self._first_a_stream(k, self.linked.data_edges, 0)

    def writers(self, k: int) -> list[int]:
        return self._first_a_stream(k, self.linked.data_edges[::-1], -1)

    def _first_a_stream(self, k: int, edges: tuple[IntColumn, ...], end: Literal[0, -1]) -> list[int]:
        (near, far), own = edges, self.calls[k].outermost
        nodes = distinct(far[(own >= 0) & (self._within[near] == own) & (self._within[far] != own)])
        events = [launched[end] for node in nodes.tolist() if (launched := self._launched.get(node))]
        ordered = sorted(events, key=lambda i: (int(self.gpu.launch[i]), i), reverse=end == 0)
        return sorted({int(self.gpu.stream[i]): i for i in ordered}.values())

    @cached_property
    def _within(self) -> IntColumn:
        outermost = mask_at(len(self.linked.nodes), [call.outermost for call in self.calls if call.outermost >= 0])
        return nearest(np.arange(len(outermost)), self.linked.nodes.parent, outermost)

    @cached_property
    def _launched(self) -> dict[int, list[int]]:
        ends = mask_at(len(self.linked.nodes), np.concatenate(self.linked.data_edges))
        operator = nearest(self.linked.gpu_parent, self.linked.nodes.parent, ends)
        order = np.argsort(self.gpu.launch, kind="stable")
        return lists_by(operator[order].tolist(), order.tolist())
