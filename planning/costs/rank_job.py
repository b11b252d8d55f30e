"""The prediction of one rank: its replay graph, and the durations of the graph's edges.

A fitted model predicts GPU events and collectives, and on request the operator self times of traces without GPU events.
Other CPU times, and the waits of launches, streams and threads, keep their recorded values or are scaled to the speed
of another host.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import median
from typing import Literal, NamedTuple

import numpy as np

from ...schemas.communications import comm_rows
from ...timeline.constants import Constants, fit_constants
from ...timeline.critical import binding_edges
from ...timeline.graph_building import build_graph
from ...timeline.graph_replay import replay
from ...timeline.iterations import StepTimes, percentiles, warm_up
from ...timeline.replay_graph import DURATION, HOST, ReplayGraph
from ...timeline.replay_summary import BaseError
from ...timeline.untraced import UntracedAnswer, untraced_answer
from ...trace.columns import IntColumn
from ...trace.conventions import ANNOTATION_SCOPE
from ...trace.host_waits import LONG_PAUSE_NS
from ...trace.index import Row
from ...trace.kinds import GPU
from ...trace.trace import Trace
from ...trace.unattached import with_unattached
from ..measure.measured import EXECUTED, RECORDED, Measured, own_times, shares_of_sources
from ..reshape.reshape import reshaped
from ..reshape.shape_change import ShapeChange
from .edge_latencies import host_collective_keys, iterations_of, places, transfer_key
from .fitting import FittedModel, measured_ns, measured_steps, self_time
from .pricing import UNKNOWN, OpRow, PricedKernel, Pricing, drawn_in, kernel_rows, op_rows
from .task import Estimate, cpu_tasks, medians

# CPU times come from the predicted trace ("trace") or from the fitted model ("model").
# With "model", CPU work that the model cannot predict is scaled by the speed ratio of the two hosts on identical calls.
Host = Literal["trace", "model"]


class RankJob:
    def __init__(
        self, trace: Trace, model: FittedModel, wanted: str | None, device: str | None, changed: bool,
        shape: ShapeChange | None, keep_outliers: bool = True, measured: Measured | None = None,
        host: Host = "trace",
    ) -> None:  # fmt: skip
        self.original, self.model, self.host = trace, model, host
        chosen = iterations_of(trace, wanted, keep_outliers=keep_outliers)
        self.chosen, self.of_row, self.split = chosen, chosen.of_row, chosen.split
        self.shapes = None if shape is None else reshaped(trace, shape)
        self.trace: Trace = trace if self.shapes is None else self.shapes.trace
        self._price = partial(Pricing, model, device=device, beyond=shape is not None)
        self.pricing = self._price(self.trace)
        self._changed, self._moved = changed, device is not None
        self._executed = own_times(self.trace, measured or model.executed)
        self.on_host = not np.any(trace.gpu.source >= 0)
        self.by_model = self.on_host and (host == "model" or changed or shape is not None)

    @cached_property
    def measured(self) -> int:
        return measured_ns(self.original, self.chosen)

    @cached_property
    def graph(self) -> ReplayGraph:
        return build_graph(self.original)

    @cached_property
    def constants(self) -> Constants:
        """Launch and stream constants fitted to this trace, because other traces may come from other machines."""
        return fit_constants(self.graph)

    @cached_property
    def base(self) -> BaseError:
        return BaseError.of(replay(self.graph, self.constants))

    @cached_property
    def gpu_ns(self) -> list[float]:
        return [float(ns) for ns in self.trace.gpu.dur.tolist()]

    @cached_property
    def event_of(self) -> dict[int, int]:
        return {row: event for event, row in enumerate(self.trace.gpu.source.tolist())}

    @cached_property
    def speed(self) -> HostSpeed:
        if not self.by_model and self.host == "trace":
            return HostSpeed(1.0, 0.0)
        calls, own = self_time(self.graph, self.original, self.of_row)
        took = {known.task: known.ns for known in self.model.cpu}
        here = [op for op in medians(cpu_tasks(self.original, calls), own.tolist()) if op.ns > 0]
        ratios = [op.ns / took[op.task] for op in here if took.get(op.task, 0) > 0]
        if len(ratios) < _LEAST_ALIKE:
            return HostSpeed(1.0, 1.0)
        missing = sum(op.ns * op.count for op in here if op.task not in took)
        return HostSpeed(median(ratios), missing / sum(op.ns * op.count for op in here))

    @property
    def unknown(self) -> float:
        """Share of the CPU work for which the model should replace the recorded time but cannot."""
        if not self.by_model:
            return self.speed.unknown if self.host == "model" else 0.0
        return max(self.priced.unknown, self.speed.unknown if self.speed.unknown == 1 else 0.0)

    @cached_property
    def priced(self) -> PricedEdges:
        """The edge durations on the requested host: predicted by the model if possible, otherwise recorded."""
        priced = self._price_edges()
        lag, times = priced.lag.copy(), np.ones(len(self.original))
        host = self._host_work()
        if self.host == "model":
            here = host[[priced.how.get(edge, UNKNOWN) == UNKNOWN for edge in host.tolist()]]
            lag[here] = np.rint(lag[here] / self.speed.ratio)
        if self.shapes is not None:
            times[self.trace.calls.source] = self.shapes.repeats
            lag[host] = np.rint(lag[host] * times[self.graph.row[self.graph.edges.target[host]]])
        return replace(priced, lag=lag)

    def _price_edges(self) -> PricedEdges:
        """Take each edge's duration from the first source that has one.

        The sources are operators timed on this machine, the same place in the fitted traces, matching collectives, and
        the cost models.
        """
        graph, edges, of_row, table = self.graph, self.graph.edges, self.of_row, self.model.lags
        changed, speed = self._changed, self._speed_of_models
        at, collectives = places(graph, self.trace, of_row), {} if changed else host_collective_keys(graph.trace)
        found = dict[int, Estimate | None]()
        parts = defaultdict[Row, list[int]](list)  # for each operator, its CPU edges that no fitted place matches
        owners, kinds = edges.owner[at.edges].tolist(), edges.kind[at.edges].tolist()
        for edge, place, kind, owner in zip(at.edges.tolist(), at.place, kinds, owners, strict=True):
            if kind == HOST and not self.by_model:
                continue
            event = self.event_of.get(owner)
            known = None if changed or (self._moved and event is not None) else table.places.get(place)
            if known is not None:
                ratio = table.host_ratio * speed if kind == HOST else table.device_ratio if event is not None else 1.0
                found[edge] = Estimate(known * ratio, _SAME_PLACE)
            elif event is not None:
                found[edge] = self.pricing.event(event)
            elif kind == HOST:
                parts[owner].append(edge)
                found[edge] = None
            else:
                equal = table.collectives.get(collectives.get(owner, ""))
                found[edge] = None if equal is None else Estimate(equal, _EQUAL)
        whole = graph.durations
        for owner, estimate in self._own_times(parts).items():
            found |= _parts(graph, parts[owner], whole[owner], estimate)
        own = np.flatnonzero((edges.kind == HOST) & np.isin(edges.owner, list(self._executed)))
        own = own[of_row[edges.owner[own]] >= 0]
        for edge, owner in zip(own.tolist(), edges.owner[own].tolist(), strict=True):
            found |= _parts(graph, [edge], whole[owner], Estimate(self._executed[owner], EXECUTED))
        lag = edges.lag.copy()
        for edge, price in found.items():
            if price is not None and price.how != UNKNOWN:
                lag[edge] = round(price.ns)
        host = np.setdiff1d(np.flatnonzero(edges.kind == HOST), list(found))
        host = host[of_row[graph.row[edges.target[host]]] >= 0]
        how = {edge: UNKNOWN if price is None else price.how for edge, price in found.items()}
        return PricedEdges(lag, how, int(edges.lag[host].sum()))

    @property
    def _speed_of_models(self) -> float:
        return self.speed.ratio if self.host == "trace" else 1.0

    def _own_times(self, wanted: Mapping[Row, Sequence[int]]) -> dict[Row, Estimate]:
        calls, _ = self_time(self.graph, self.trace, self.of_row)
        calls = calls[np.isin(self.trace.calls.source[calls], list(wanted))]
        rows, speed = self.trace.calls.source[calls].tolist(), self._speed_of_models
        prices = zip(rows, map(self.pricing.call, cpu_tasks(self.trace, calls)), strict=True)
        return {row: Estimate(price.ns * speed, price.how) for row, price in prices if price is not None}

    def _host_work(self) -> IntColumn:
        """Return the CPU work edges in the iterations, except long pauses between calls, because these may be waits."""
        edges = self.graph.edges
        host = np.flatnonzero(edges.kind == HOST)
        host = host[self.of_row[self.graph.row[edges.target[host]]] >= 0]
        owner = edges.owner[host]
        pause = (owner < 0) | (self.original.nodes.scope[owner] == ANNOTATION_SCOPE)
        work: IntColumn = host[~pause | (edges.lag[host] <= LONG_PAUSE_NS)]
        return work

    @property
    def notes(self) -> tuple[str, ...]:
        vague = self.on_host and not self.by_model
        own = ["no GPU events: operators keep their recorded times; --host model predicts them"] * vague
        return (*self.pricing.notes, *own)

    @property
    def sources(self) -> Mapping[str, float]:
        priced = self.priced
        times = [(how, float(priced.lag[edge])) for edge, how in priced.how.items()]
        return shares_of_sources([*times, (RECORDED, float(priced.recorded_ns))])

    @cached_property
    def transfers(self) -> dict[int, int]:
        """Maps a collective's row to the minimum time, in ns, of matching collectives in the fitted traces."""
        known, gpu = self.model.lags.transfers, self.trace.gpu
        keys = {int(gpu.source[event]): transfer_key(comm) for event, comm in gpu.comm.items()}
        keys |= host_collective_keys(self.original)
        return {row: known[key] for row, key in keys.items() if self.of_row[row] >= 0 and key in known}

    def replayed(self, lags: IntColumn, *, wait: bool = True) -> int:
        """Replay with the edge durations `lags` and return the iterations' total time in ns.

        If `wait` is False, collectives do not wait for other ranks.
        """
        if not wait:
            edges = self.graph.edges
            rows = np.flatnonzero((edges.kind == DURATION) & np.isin(edges.owner, list(self.transfers)))
            lags = lags.copy()
            lags[rows] = np.minimum(lags[rows], [self.transfers[row] for row in edges.owner[rows].tolist()])
        done = replay(self.graph.with_latencies(lags), self.constants)
        if self.split is None:
            return done.makespan_ns
        return int(self.split.times(done.start, done.end)[self.chosen.index].sum())

    @cached_property
    def ends(self) -> tuple[list[float], list[float]]:
        """GPU event times in ns at both ends of their joint interval; `waiting` covers the waits in collectives."""
        source = self.trace.gpu.source
        counted = (source >= 0) & (self.of_row[source] >= 0) & ~self.trace.is_comm
        return drawn_in(self.pricing, np.flatnonzero(counted).tolist())

    def lags_at(self, times: Sequence[float] | None) -> IntColumn:
        lags = self.priced.lag
        if times is None:
            return lags
        edges, usual, lags = self.graph.edges, self.pricing.times, lags.copy()
        for edge in np.flatnonzero(edges.kind == DURATION).tolist():
            event = self.event_of.get(int(edges.owner[edge]))
            if event is not None and usual[event]:
                lags[edge] = round(lags[edge] * times[event] / usual[event])
        return lags

    def total(self, kernel_ns: Sequence[float] | None = None, *, wait: bool = True) -> int:
        return self.replayed(self.lags_at(kernel_ns), wait=wait)

    def untraced(self) -> UntracedAnswer | None:
        """Return the step time without a profiler, and both ends of its interval.

        Return None if the recording overhead is unknown, or if only some iterations are predicted.
        """
        if self.split is not None:
            return None
        lags = [self.lags_at(times) for times in (None, *self.ends)]
        host, recorded = self.graph.edges.kind == HOST, np.maximum(self.graph.edges.lag, 1)

        def changed(graph: ReplayGraph, lag: IntColumn) -> ReplayGraph:
            return graph.with_latencies(np.rint(np.where(host, lag * (graph.edges.lag / recorded), lag)))

        changes = [partial(changed, lag=lag) for lag in lags]
        return untraced_answer(replay(self.graph, self.constants), [self.constants], *changes)

    def waiting(self) -> int:
        """Return the iterations' total ns with recorded collective times: no model predicts waits for other ranks."""
        edges, lags = self.graph.edges, self.priced.lag.copy()
        met = np.flatnonzero((edges.kind == DURATION) & np.isin(edges.owner, comm_rows(self.original)))
        lags[met] = edges.lag[met]
        return self.replayed(lags)

    @property
    def gpu_ns_waiting(self) -> list[float]:
        times = zip(self.gpu_ns, self.trace.is_comm.tolist(), self.pricing.times, strict=True)
        return [here if comm else ns for here, comm, ns in times]

    def without_waiting(self, factor: float) -> tuple[int, int] | None:
        if not self.transfers or self._changed or self._moved or self.shapes is not None:
            return None
        return round(self.total(wait=False) * factor), self.replayed(self.graph.edges.lag, wait=False)

    def from_model(self) -> float:
        """Return the share of the predicted critical path that has times from the model."""
        edges, how = self.graph.edges, self.priced.how
        path = replay(self.graph.with_latencies(self.priced.lag), self.constants)
        edge = binding_edges(path)
        inside = self.of_row[self.graph.row[edges.target[edge]]] >= 0
        edge = edge[inside]
        predicted = np.array([how.get(number, UNKNOWN) != UNKNOWN for number in edge.tolist()], np.bool_)
        if self.host == "model":  # the remaining CPU work is scaled to the speed of the model's host
            predicted |= edges.kind[edge] == HOST
        whole = int(path.lag[edge].sum())
        return float(path.lag[edge][predicted].sum() / whole) if whole else 0.0

    def kernel_times(self) -> tuple[float, float, float, float]:
        """Return total times (ns) of GPU events in the iterations: measured, predicted, and both ends of the range."""
        source = self.trace.gpu.source
        counted = np.flatnonzero((source >= 0) & (self.of_row[source] >= 0))
        each = self.gpu_ns, self.pricing.times, *drawn_in(self.pricing, counted.tolist())
        measured, predicted, low, high = (float(np.array(times)[counted].sum()) for times in each)
        return measured, predicted, low, high

    def rows(self) -> tuple[OpRow, ...]:
        trace, found = self.original, dict[str, list[tuple[int, int, int, str]]]()
        edges, lags, how = self.graph.edges, self.priced.lag, self.priced.how
        kinds = {row: self.pricing.tasks[event].kind for row, event in self.event_of.items()}
        for edge in places(self.graph, self.trace, self.of_row).edges.tolist():
            owner = Row(int(edges.owner[edge]))
            if not kinds or owner in kinds:
                name = kinds.get(owner) or trace.name_of(owner)
                by = how.get(edge, RECORDED)
                found.setdefault(name, []).append((owner, int(lags[edge]), int(edges.lag[edge]), by))
        return op_rows(found)

    def steps(self, predicted: int) -> StepTimes | None:
        times, spread = measured_steps(self.original, self.chosen), self.model.steps
        if spread is None or not len(times):
            return None
        apart = self.chosen.set_apart
        each = spread.times(predicted / len(times))
        return StepTimes(len(times), warm_up(apart), apart, percentiles(times).times(1), each)

    def kernels(self) -> tuple[PricedKernel, ...]:
        trace = with_unattached(self.trace) if self.split is None else self.trace
        pricing = self.pricing if trace.gpu is self.trace.gpu else self._price(trace)  # also price unattached events
        return kernel_rows(pricing, trace, self.of_row)

    def baselines(self) -> dict[str, int]:
        gpu = np.flatnonzero((self.original.nodes.kind == GPU) & (self.of_row >= 0))
        found = {}
        if len(gpu):
            busy = np.bincount(self.original.nodes.stream_lane[gpu], weights=self.original.nodes.dur[gpu])
            found["GPU time of the busiest stream, measured"] = int(busy.max())
        if self.model.iterations:
            each = sum(self.model.makespans_ns) / self.model.iterations
            found["mean of the fitted traces"] = round(each * len(self.chosen.index))
        if self.shapes is not None and len(self.shapes.sizes) == 1:
            was, to = self.shapes.recorded_size, self.shapes.new_size
            found[f"recorded × {to}/{was}"] = round(self.measured * to / was)
        return found


_SAME_PLACE, _EQUAL = "same place", "measured"
_LEAST_ALIKE = 8  # The speeds of two hosts are compared only if they have at least this number of identical operators.


@dataclass(frozen=True)
class PricedEdges:
    lag: IntColumn  # for each edge, its duration in ns
    # Maps each edge that should be predicted to the source of its time; `UNKNOWN` if it keeps its recorded time.
    how: Mapping[int, str]
    recorded_ns: int  # CPU time that deliberately keeps its recorded value

    @property
    def unknown(self) -> float:
        return sum(how == UNKNOWN for how in self.how.values()) / max(len(self.how), 1)


def _parts(graph: ReplayGraph, edges: Sequence[int], whole: int, estimate: Estimate) -> dict[int, Estimate]:
    """Distribute an operator's self time over its edges in proportion to their recorded times."""
    shares = [int(graph.edges.lag[edge]) / whole if whole else 1 / len(edges) for edge in edges]
    return {edge: Estimate(estimate.ns * share, estimate.how) for edge, share in zip(edges, shares, strict=True)}


class HostSpeed(NamedTuple):
    # Median of (time in this trace / time in the fitted traces) over common operators; 1 if there are too few of them.
    ratio: float
    unknown: float  # self-time share of operators that no fitted trace contains; 1 if too few operators are common
