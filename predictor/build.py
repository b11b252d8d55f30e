"""ET+ document → replay graph, by the rules of docs/replay.md."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..schemas.errors import ConvertError
from ..schemas.etplus_document import GPU, RUNTIME, EtPlusDocument
from ..schemas.records import IntColumn
from .graph import DURATION, EVENT, HANDOFF, LAUNCH, ORDER, PIN, STREAM, SYNC, Edges, ReplayGraph
from .order import ordered_graph
from .threads import host_chains

__all__ = ["build_graph"]

_ROUNDING_NS = 1000
"""Times of older files are whole µs."""
_SYNC_COST_NS = 3_000
"""What a synchronising call takes by itself; the rest of its time it waits."""
_SYNCHRONIZE = re.compile(r"Synchronize")
_COPY = re.compile(r"[Mm]emcpy")
_PINNED = re.compile(r"Pinned|DtoD|Device -> Device|PtoP|DeviceToDevice")


def build_graph(document: EtPlusDocument) -> ReplayGraph:
    """Make the replay graph of one rank.

    Raises:
        ConvertError: no row of the document has a time.
    """
    rows = np.flatnonzero(document.timed)
    if not len(rows):
        raise ConvertError(f"{document.file}: no node has a time, so there is nothing to replay; link the ET anew")
    builder = _Builder(document, rows)
    return ordered_graph(document, builder.start, builder.end, builder.measured, builder.edges(), builder.notes)


class _Builder:
    """Points before they are put in order: row k of the timed rows has points 2k + 1 and 2k + 2."""

    def __init__(self, document: EtPlusDocument, rows: IntColumn) -> None:
        self.document, self.rows = document, rows
        self.zero = int(document.ts[rows].min())
        self.start, self.end = (np.full(len(document), -1, np.int64) for _ in range(2))
        self.start[rows] = np.arange(len(rows)) * 2 + 1
        self.end[rows] = self.start[rows] + 1
        self.measured = np.zeros(2 * len(rows) + 1, np.int64)
        self.measured[self.start[rows]] = document.ts[rows] - self.zero
        self.measured[self.end[rows]] = document.finish[rows] - self.zero
        self.notes: list[str] = []
        self.launcher = np.full(len(document), -1, np.int64)
        source, target, _ = document.edges_of("launch").T
        known = document.timed[source] & document.timed[target] & (document.kind[target] == GPU)
        self.launcher[target[known]] = source[known]

    def edges(self) -> Edges:
        gpu = np.flatnonzero(self.document.timed & (self.document.kind == GPU))
        waits = self._sync_edges()
        blocking = self._blocking_copies(gpu)
        chains = host_chains(self.document, self.start, self.end, self.measured)
        handoffs, chains = self._handoffs(chains)
        chains = self._without_waiting(chains, Edges.joined([waits, blocking]))
        parts = [chains, handoffs, waits, blocking]
        parts.append(Edges.of(DURATION, self.start[gpu], self.end[gpu], self.document.dur[gpu], gpu))
        parts += self._launch_edges(gpu)
        parts += self._stream_edges(gpu)
        parts.append(self._others("event", EVENT, capped=True))
        parts.append(self._others("comm", ORDER))
        parts.append(self._others("data", ORDER))
        return Edges.joined(parts)

    def _between(self, source: IntColumn, target: IntColumn) -> IntColumn:
        lag: IntColumn = self.measured[target] - self.measured[source]
        return lag

    def _launch_edges(self, gpu: IntColumn) -> list[Edges]:
        launched = gpu[self.launcher[gpu] >= 0]
        source, target = self.start[self.launcher[launched]], self.start[launched]
        return [Edges.of(LAUNCH, source, target, self._between(source, target), capped=True)]

    def _stream_edges(self, gpu: IntColumn) -> list[Edges]:
        """Each GPU event after the one before it on its stream. What nobody launched keeps its gap; a stream's first
        event is pinned if nobody launched it or the stream was not free yet."""
        order, before = self.document.lane_order(self.document.stream_lane, gpu, nested=False)
        first, launched = before < 0, self.launcher[order] >= 0
        source, target = self.end[np.maximum(before, 0)], self.start[order]
        lag = self._between(source, target)
        own = Edges.of(STREAM, source, target, lag)
        queued = Edges.of(STREAM, source, target, lag, capped=True)
        pinned = self.start[order[first]]
        pins = Edges.of(PIN, np.zeros_like(pinned), pinned, self.measured[pinned])
        return [queued.take(~first & launched), own.take(~first & ~launched), pins]

    def _others(self, name: str, kind: int, *, capped: bool = False) -> Edges:
        """End → start for edges of the document of one kind, where the measured order agrees."""
        source, target, _ = self.document.edges_of(name).T
        known = self.document.timed[source] & self.document.timed[target]
        if name == "data":  # along a thread order is given anyway
            known &= self.document.thread[source] != self.document.thread[target]
        source, target = self.end[source[known]], self.start[target[known]]
        lag = self._between(source, target)
        agree = lag >= 0
        lag = lag if capped else np.zeros_like(lag)
        return Edges.of(kind, source, target, lag, capped=capped).take(agree)

    def _sync_edges(self) -> Edges:
        """GPU event's end → the end of a synchronising call, or the start of the call after a blocking one."""
        document = self.document
        source, target, _ = document.edges_of("sync").T
        known = document.timed[source] & document.timed[target] & (document.kind[source] == GPU)
        source, target = source[known], target[known]
        waits = self._named(target, _SYNCHRONIZE) | (document.finish[source] > document.ts[target])
        source, target = self.end[source], np.where(waits, self.end[target], self.start[target])
        lag = self._between(source, target)
        return Edges.of(SYNC, source, target, np.maximum(lag, 0), capped=True).take(lag >= -_ROUNDING_NS)

    def _blocking_copies(self, gpu: IntColumn) -> Edges:
        """Copies to or from pageable memory whose call returned after they had ended."""
        document = self.document
        copy = gpu[(document.category[gpu] == _code(document.categories, "gpu_memcpy")) & (self.launcher[gpu] >= 0)]
        call = self.launcher[copy]
        late = document.finish[copy] <= document.finish[call] + _ROUNDING_NS
        waits = ~self._named(copy, _PINNED) | ~self._named(call, re.compile("Async"))
        chosen = late & waits & (document.kind[call] == RUNTIME) & self._named(call, _COPY)
        source, target = self.end[copy[chosen]], self.end[call[chosen]]
        return Edges.of(SYNC, source, target, np.maximum(self._between(source, target), 0), capped=True)

    def _handoffs(self, chains: Edges) -> tuple[Edges, Edges]:
        """Thread handoffs; the target's pause is no host work any more, but what remains of it after the source.

        Between the target and the op before it may stand boundaries of annotations; the longest piece is the pause.
        """
        document = self.document
        source, target, _ = document.edges_of("thread_handoff").T
        known = document.timed[source] & document.timed[target] & (document.finish[source] <= document.ts[target])
        edge_into = np.full(len(self.measured), -1, np.int64)
        edge_into[chains.target] = np.arange(len(chains))
        operator = np.zeros(len(self.measured), np.bool_)
        ops = document.timed & (document.scope != _ANNOTATION)
        operator[self.start[ops]] = operator[self.end[ops]] = True
        lag, ends, points = chains.lag.copy(), [], []
        for a, b in zip(source[known].tolist(), target[known].tolist(), strict=True):
            done = self.end[a]
            best = at = edge_into[self.start[b]]
            while at >= 0 and chains.source[at] > 0 and not operator[chains.source[at]]:
                at = edge_into[chains.source[at]]
                if self.measured[chains.target[at]] >= self.measured[done] and lag[at] > lag[best]:
                    best = at
            if best < 0:
                continue
            ends.append(done)
            points.append(chains.target[best])
            lag[best] = 0
        source, target = np.array(ends, np.int64), np.array(points, np.int64)
        remaining = np.maximum(self._between(source, target), 0)
        return Edges.of(HANDOFF, source, target, remaining), replace(chains, lag=lag)

    def _without_waiting(self, chains: Edges, waits: Edges) -> Edges:
        """A call that waited takes only its own cost; one that found nothing pending keeps its duration.

        Args:
            waits: edges into ends of calls, from what they wait for.
        """
        row = np.full(len(self.measured), -1, np.int64)
        row[self.end[self.rows]] = self.rows
        call = row[waits.target]
        pending = (call >= 0) & (self.measured[waits.source] > self.measured[self.start[np.maximum(call, 0)]])
        waited = np.zeros(len(self.document), np.bool_)
        waited[call[pending]] = True
        own = waited[np.maximum(chains.owner, 0)] & (chains.owner >= 0)
        return replace(chains, lag=np.where(own, np.minimum(chains.lag, _SYNC_COST_NS), chains.lag))

    def _named(self, rows: IntColumn, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
        wanted = np.array([pattern.search(name) is not None for name in self.document.names], np.bool_)
        return wanted[self.document.name[rows]]


_ANNOTATION = 7


def _code(values: list[str], value: str) -> int:
    return values.index(value) if value in values else -1
