"""Find all waits for GPU events. Streams wait for other streams, and CPU calls wait for streams, events and copies.

The profiler can record these waits in the category `cuda_sync`. If it did not, the linker infers them from runtime
calls. Around collectives, it uses the order of the calls and their operators (`comm_waits`); elsewhere, it uses names
and times. The linker marks inferred waits. The replay models GPU waits only from these edges."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.kineto.event_args import sync_args
from ..trace.columns import IntColumn, grouped
from ..trace.host_waits import (
    DEVICE_SYNCHRONIZE,
    EVENT_RECORD,
    EVENT_SYNCHRONIZE,
    MAX_SKEW_NS,
    ROUNDING_NS,
    STREAM_WAIT,
    SYNCHRONIZE,
    blocking_copies,
    named,
    synchronous_readback,
)
from .comm_waits import find_comm_waits
from .gpu_order import GpuOrder, Submissions
from .join import Join

# A kernel must have waited for something if it starts this much later than its launch and its stream allow.
_LATE_NS = 5_000
# A late kernel must start within this time after the end of the event that it waited for.
_JUST_ENDED_NS = 30_000
# Assumed time from the launch call to the kernel's start on an idle stream, if the trace does not show it.
_USUAL_LATENCY_NS = 10_000
# The linker considers this many recorded CUDA events per waiting call and chooses the last event that had ended.
# DDP's timers are the first to wait, and they wait for the last event (reducer_cuda.cpp, `measureDifference`).
_RECORDS = 16
_NOTHING = np.zeros(0, np.int64)

# FSDP1 records an event when it frees parameters. Before an all-gather, it waits for the second-to-last such event.
# See torch/distributed/fsdp: `_unshard` and `_reshard` in _runtime_utils.py, and `_FreeEventQueue`.
_RATE_LIMITER = "FullyShardedDataParallel.rate_limiter"


class Waits(NamedTuple):
    """All waits, as arrays of shape (m, 2) with pairs: a GPU event (in `gpu_row`), and what waits for it."""

    event: IntColumn  # the event on another stream that waits (position in `gpu_row`)
    sync: IntColumn  # the call that returns when the event has ended (position in `runtime_row`)
    blocking: IntColumn  # for a blocking copy, its thread's next call (position in `runtime_row`)
    released: IntColumn  # the first linked operator after the call that waited (position in `EtCalls`)
    inferred: set[tuple[int, int]]  # those waits that are inferred and not recorded, as pairs of places
    unresolved: int  # number of records that name a stream or event that is not in the trace
    # Longest time by which a waiting call seems to return before its event ends, because the clocks differ.
    clock_skew_ns: int


def find_waits(linked: Join, gpu: GpuOrder, kernels: Sequence[int]) -> Waits:
    """Find every wait. `kernels` contains the positions of the communication kernels in `gpu_row`."""
    finder = _Finder(linked, gpu)
    finder.from_runtime_calls(finder.from_records(), kernels)
    finder.from_blocking_copies()
    event, sync, blocking, released = (
        np.array(sorted(set(pairs)), np.int64).reshape(-1, 2)
        for pairs in (finder.event, finder.sync, finder.blocking, finder.released)
    )
    return Waits(event, sync, blocking, released, finder.inferred, finder.unresolved, finder.skew)


class _ByThread(dict[int, tuple[IntColumn, IntColumn]]):
    """Maps each thread code to the times of its items, in ascending order, and to the items."""

    @staticmethod
    def of(thread: npt.NDArray[np.integer], ts: IntColumn, what: IntColumn) -> _ByThread:
        return _ByThread((code, (ts[at], what[at])) for (code,), at in grouped(thread))

    def first(self, thread: int, ts: int) -> int | None:
        times, what = self.get(thread, (_NOTHING, _NOTHING))
        k = int(np.searchsorted(times, ts))
        return int(what[k]) if k < len(what) else None


class _Finder:
    """Collects the pairs. All lookups are binary searches in sorted arrays, so the total time is O(n log n)."""

    def __init__(self, linked: Join, gpu: GpuOrder) -> None:
        self.linked, self.gpu = linked, gpu
        events = linked.kineto.events
        self.start, self.end = events.ts[linked.gpu_row], events.end[linked.gpu_row]
        self.by_end = np.argsort(self.end, kind="stable")
        self.ends = self.end[self.by_end]
        self.runtime_ts, self.runtime_end = events.ts[linked.runtime_row], events.end[linked.runtime_row]
        self.runtime_thread = events.thread[linked.runtime_row]
        self.runtime_of = _ByThread.of(self.runtime_thread, self.runtime_ts, np.arange(len(self.runtime_ts)))
        correlation = events.correlation[linked.runtime_row]
        self.by_correlation = np.argsort(correlation, kind="stable")
        self.correlations = correlation[self.by_correlation]
        at = np.flatnonzero(linked.node_of_call >= 0)
        self.linked_calls = _ByThread.of(linked.calls.thread[at], linked.calls.ts[at], linked.node_of_call[at])
        self.submissions = Submissions(linked, gpu)
        records = np.flatnonzero(named(events.names, events.name[linked.runtime_row], EVENT_RECORD))
        self.records = records[np.argsort(self.runtime_ts[records], kind="stable")]
        self.record_ts = self.runtime_ts[self.records]
        marks = events.rows("user_annotation")
        marks = marks[named(events.names, events.name[marks], re.compile(re.escape(_RATE_LIMITER)))]
        marks = marks[np.argsort(events.ts[marks], kind="stable")]
        self.limiters = _ByThread.of(events.thread[marks], events.end[marks], events.ts[marks])
        self.communicating: set[int] = set()
        self.event: list[tuple[int, int]] = []
        self.stated: set[tuple[int, int]] = set()
        self.carried: dict[tuple[int, int], tuple[list[int], list[dict[int, int]]]] = {}
        self.sync: list[tuple[int, int]] = []
        self.blocking: list[tuple[int, int]] = []
        self.released: list[tuple[int, int]] = []
        self.inferred: set[tuple[int, int]] = set()
        self.unresolved = 0
        self.skew = self._clock_skew()
        self.tolerance = max(self.skew, ROUNDING_NS)
        launcher = linked.gpu_launcher
        copy, call = events.name[linked.gpu_row], events.name[launcher]
        blocks = blocking_copies(events.names, copy, call, self.end - events.end[launcher], self.tolerance)
        self.copies = (launcher >= 0) & blocks

    def _clock_skew(self) -> int:
        """Return the longest time in ns by which a waiting call seems to return before its event ended. Synchronous
        copies to the host show this skew, because they cannot return earlier. A synchronizing call that took over 20 µs
        shows it if earlier work ended in the 20 µs after the call, and none in the 20 µs before."""
        events, linked = self.linked.kineto.events, self.linked
        launcher = linked.gpu_launcher
        copies = synchronous_readback(events.names, events.name[linked.gpu_row], events.name[launcher])
        late = (self.end - events.end[launcher])[copies & (launcher >= 0)]
        most = int(late[late <= MAX_SKEW_NS].max(initial=0))
        waiting = named(events.names, events.name[linked.runtime_row], SYNCHRONIZE)
        for call in np.flatnonzero(waiting & (self.runtime_end - self.runtime_ts > MAX_SKEW_NS)).tolist():
            begin, returned = self._ts(call), int(self.runtime_end[call])
            near = self._ended(returned - MAX_SKEW_NS, returned + MAX_SKEW_NS)
            near = near[self.gpu.launch[near] < begin]
            if len(near) and self.end[near].min() > returned:
                most = max(most, int(self.end[near].min()) - returned)
        return most

    def from_records(self) -> set[int]:
        events, resolved = self.linked.kineto.events, set[int]()
        decoded = [args for args in map(sync_args, events.args_of(events.rows("cuda_sync"))) if args is not None]
        called = [(call, args) for args in decoded if (call := self._call_with(args.correlation)) is not None]
        for call, args in sorted(called, key=lambda record: self._ts(record[0])):
            device = args.device if isinstance(args.device, int) else -1
            if args.kind == "Context Sync":
                resolved.add(call)
                self._wait_for(call, [self.gpu.last_before(k, self._ts(call)) for k in self.gpu.streams(device, -1)])
            elif args.kind == "Stream Sync":
                resolved.add(call)
                self._wait_for(call, self._on_stream(device, args.stream, self._ts(call)))
            elif args.kind in ("Event Sync", "Stream Wait Event"):
                record = self._call_with(args.record)
                stream = args.wait_on_stream
                if stream == -1:
                    waiting = args.stream if args.kind == "Stream Wait Event" else -1
                    stream = self._recorded_stream(record, device, waiting)
                if record is not None and self._streams(device, stream):
                    resolved.add(call)
                recorded = [] if record is None else self._recorded(device, stream, self._ts(record))
                if not recorded:
                    self.unresolved += 1
                elif args.kind == "Event Sync":
                    self._wait_for(call, recorded)
                else:
                    waiting = [self.gpu.first_after(k, self._ts(call)) for k in self._streams(device, args.stream)]
                    self.event += [(a, b) for a in recorded for b in waiting if b >= 0 and a != b]
                    self._carry(device, args.stream, self._ts(call), recorded)
        return resolved

    def _recorded(self, device: int, stream: Any, ts: int) -> list[int]:
        """Return the work before a CUDA event on its stream: the last GPU event, and what the stream waits for."""
        return [*(last := self._on_stream(device, stream, ts)), *self._waited_for(device, stream, ts, last).values()]

    def _waited_for(self, device: int, stream: Any, ts: int, last: list[int]) -> dict[int, int]:
        """Map other streams to their last GPU event that this stream has waited for since its own last launch."""
        times, sources = self.carried.get((device, stream), ([], []))
        k = bisect_left(times, ts)
        return sources[k - 1] if k and all(self.gpu.launch[i] < times[k - 1] for i in last) else {}

    def _carry(self, device: int, stream: Any, ts: int, sources: list[int]) -> None:
        """Store the events that a stream waits for, for all CUDA events recorded on it from `ts` to its next launch."""
        if not isinstance(stream, int) or stream < 0:
            return
        before = self._waited_for(device, stream, ts, self._on_stream(device, stream, ts))
        times, carried = self.carried.setdefault((device, stream), ([], []))
        times.append(ts)
        carried.append({**before, **{int(self.gpu.stream[i]): i for i in sources}})

    def from_runtime_calls(self, resolved: set[int], kernels: Sequence[int]) -> None:
        events, rows = self.linked.kineto.events, self.linked.runtime_row
        names = events.name[rows]
        self.communicating = set(kernels)
        whole = named(events.names, names, DEVICE_SYNCHRONIZE)
        of_event = named(events.names, names, EVENT_SYNCHRONIZE)
        for call in np.flatnonzero(named(events.names, names, SYNCHRONIZE)).tolist():
            if call in resolved:
                continue
            if whole[call]:
                self._wait_for(call, [self.gpu.last_before(k, self._ts(call)) for k in range(len(self.gpu.key))])
            else:
                self._infer_pending(call, bool(of_event[call]))
        stream_waits = set(np.flatnonzero(named(events.names, names, STREAM_WAIT)).tolist()) - resolved
        waits = np.array(sorted(stream_waits), np.int64)
        self.stated = set(self.event)
        self._infer_event(find_comm_waits(self.linked, self.gpu, kernels, waits))
        self._infer_stream_waits(self.runtime_ts[waits])

    def from_blocking_copies(self) -> None:
        events, linked = self.linked.kineto.events, self.linked
        for i in np.flatnonzero(self.copies).tolist():
            launcher = linked.gpu_launcher[i]
            thread, returned = int(events.thread[launcher]), int(events.end[launcher])
            call = self.runtime_of.first(thread, returned)
            if call is not None:
                self.blocking.append((i, call))
            self._release(i, thread, returned)

    def _call_with(self, correlation: Any) -> int | None:
        if not isinstance(correlation, int) or not 0 < correlation < 2**63:
            return None
        k = int(np.searchsorted(self.correlations, correlation, side="right")) - 1
        return int(self.by_correlation[k]) if k >= 0 and self.correlations[k] == correlation else None

    def _recorded_stream(self, record: int | None, device: int, waiting: Any) -> int:
        if record is None:
            return -1
        thread, waiting_code = int(self.runtime_thread[record]), next(iter(self._streams(device, waiting)), -1)
        code = self.submissions.recorded_stream(thread, self._ts(record), waiting_code)
        return self.gpu.key[code][1] if code >= 0 else -1

    def _ts(self, call: int) -> int:
        return int(self.runtime_ts[call])

    def _streams(self, device: int, stream: Any) -> list[int]:
        return self.gpu.streams(device, stream) if isinstance(stream, int) and stream >= 0 else []

    def _on_stream(self, device: int, stream: Any, ts: int) -> list[int]:
        return [i for i in (self.gpu.last_before(k, ts) for k in self._streams(device, stream)) if i >= 0]

    def _wait_for(self, call: int, gpu_events: list[int], inferred: bool = False) -> None:
        call_end, thread = int(self.runtime_end[call]), int(self.runtime_thread[call])
        source, target = self.linked.gpu_places, self.linked.runtime_places
        for i in gpu_events:
            if i < 0 or self.end[i] > call_end + self.tolerance:
                continue
            self.sync.append((i, call))
            self._release(i, thread, call_end)
            if inferred:
                self.inferred.add((int(source[i]), int(target[call])))

    def _release(self, gpu_event: int, thread: int, ts: int) -> None:
        node = self.linked_calls.first(thread, ts)
        if node is not None:
            self.released.append((gpu_event, node))

    def _ended(self, after: int, until: int) -> IntColumn:
        a, b = (int(np.searchsorted(self.ends, ts, side="right")) for ts in (after, until))
        return self.by_end[a:b][::-1]

    def _infer_pending(self, call: int, on_event: bool) -> None:
        """Infer what a call waited for if no stream or event is recorded. It is the GPU event that ended last during
        the call or, because a wait orders work even if it takes no time, the work submitted before the call."""
        for i in self._ended(self._ts(call), int(self.runtime_end[call]) + self.tolerance).tolist():
            if self.gpu.launch[i] < self._ts(call):
                self._wait_for(call, [i], inferred=True)
                return
        thread, until = int(self.runtime_thread[call]), self._ts(call)
        if not on_event:
            self._wait_for(call, self._submitted(thread, until), inferred=True)
            return
        last = int(np.searchsorted(self.record_ts, until))
        records = self.records[max(last - _RECORDS, 0) : last][::-1].tolist()
        limited = self.limiters.first(thread, until)
        if limited is not None and limited <= until:
            records = [record for record in records if self._frees(record)][1:]
        for record in records:
            found = self._submitted(int(self.runtime_thread[record]), self._ts(record))
            if found and all(self.end[i] <= self.runtime_end[call] + self.tolerance for i in found):
                self._wait_for(call, found, inferred=True)
                return

    def _frees(self, record: int) -> bool:
        """Return True if only the host waits for a CUDA event: no stream wait follows, and computation precedes it."""
        events, thread = self.linked.kineto.events, int(self.runtime_thread[record])
        following = self.runtime_of.first(thread, int(self.runtime_end[record]))
        name = "" if following is None else events.names[events.name[self.linked.runtime_row[following]]]
        found = self._submitted(thread, self._ts(record))
        return not STREAM_WAIT.search(name) and bool(found) and found[0] not in self.communicating

    def _submitted(self, thread: int, ts: int) -> list[int]:
        code = self.submissions.recorded_stream(thread, ts)
        found = self.gpu.last_before(code, ts) if code >= 0 else -1
        return [found] if found >= 0 else []

    def _infer_stream_waits(self, waits: IntColumn) -> None:
        """Infer which event each late GPU event on a stream waited for. A GPU event is late if it starts over 5 µs
        later than its launch and its stream allow. It waited for an event on another stream that ended at most 30 µs
        before it started. `waits` contains the ascending times (ns) of calls that make a stream wait. One of them must
        lie between the previous launch on the event's stream and the event's own launch."""
        launched = self.linked.gpu_launcher >= 0
        returned = self.linked.kineto.events.end[self.linked.gpu_launcher]
        submitted = np.where(launched & ~self.copies, np.minimum(returned, self.start), self.gpu.launch)
        idle = launched & (self.gpu.free > 0) & (self.gpu.free <= self.gpu.launch)
        latency = int(np.median((self.start - submitted)[idle])) if idle.any() else _USUAL_LATENCY_NS
        earlier = np.full(len(self.start), -1, np.int64)
        order = np.argsort(self.gpu.stream, kind="stable")
        same = np.flatnonzero(self.gpu.stream[order[1:]] == self.gpu.stream[order[:-1]])
        earlier[order[same + 1]] = self.gpu.launch[order[same]]
        asked = np.searchsorted(waits, self.gpu.launch) > np.searchsorted(waits, earlier)
        late = self.start - np.maximum(submitted + latency, self.gpu.free) > _LATE_NS
        explained = {target for source, target in self.event if self.start[target] - self.end[source] <= _JUST_ENDED_NS}
        for i in np.flatnonzero(launched & asked & late).tolist():
            if i in explained:
                continue
            for source in self._ended(int(self.start[i]) - _JUST_ENDED_NS, int(self.start[i])).tolist():
                if self.gpu.stream[source] != self.gpu.stream[i]:
                    self._infer_event([(source, i)])
                    break

    def _infer_event(self, pairs: list[tuple[int, int]]) -> None:
        places = self.linked.gpu_places
        new = [pair for pair in pairs if pair not in self.stated]
        self.event += new
        self.inferred.update((int(places[source]), int(places[target])) for source, target in new)
