"""The overheads engine: operators in order on one host line, kernels on a line a stream.

The walk is that of Lin et al. (2022): the five overheads of the host (see `analysis.overheads`) place the launches,
kernels follow their launches and the kernels before them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from ...analysis.overheads import Overheads, Statistic
from ...timeline.host_time import blocking_copies, synchronising_calls
from ...trace.columns import IntColumn
from ...trace.trace import Trace
from .model_file import FittedModel

_BETWEEN_KERNELS_NS = 1000.0


@dataclass(frozen=True)
class OverheadPrediction:
    """Times of a walk, ns after its begin: the later of host and streams; and the earliest start of each GPU event that
    its own rank allows."""

    total: int
    ready: dict[int, float]


def overhead_model(
    trace: Trace,
    model: FittedModel,
    kernel_ns: Sequence[float],
    of_row: IntColumn,
    not_before: Mapping[int, float] | None = None,
) -> OverheadPrediction:
    """Walk the operators of the iterations.

    For every operator that counts (see `hierarchy`), in order of start:
    cpu += T1; if it launches, cpu += T2 and for each launch gpu[s] = max(gpu[s] + 1 µs, cpu + T4), gpu[s] += t,
    cpu += T4, with T5 between launches, then cpu += T3; if not, cpu += T5. Blocking copies and synchronizing calls
    make the host wait, those between operators before the next one.

    Args:
        kernel_ns: time of each GPU event. of_row: iteration of each row, −1 for rows that do not count.
        not_before: by GPU event, when the last rank of a collective is ready.
    """
    times, launched, top = _WorkTimes(model), _launches(trace), trace.hierarchy.top
    waiting, between = _waits(trace, of_row)
    blocking = blocking_copies(trace)
    ops = np.flatnonzero((top == np.arange(len(top))) & (of_row[trace.calls.source] >= 0))
    cpu, gpu, ready = 0.0, defaultdict[tuple[int, int], float](float), dict[int, float]()
    for op in ops[np.argsort(trace.calls.ts[ops], kind="stable")].tolist():
        while between and between[-1] <= trace.calls.ts[op]:
            between.pop()
            cpu = max([cpu, *gpu.values()])
        name, events = trace.names[trace.calls.name[op]], launched.get(op, [])
        cpu += times.t1 if events else times.t1 + times.of(5, name)
        for number, event in enumerate(events):
            cpu += times.of(2 if number == 0 else 5, name)
            call = times.of(4, trace.names[trace.runtime.name[trace.gpu.runtime[event]]])
            lane = int(trace.gpu.device[event]), int(trace.gpu.stream[event])
            ready[event] = max(gpu[lane] + _BETWEEN_KERNELS_NS, cpu + call)
            gpu[lane] = max(ready[event], (not_before or {}).get(event, 0.0)) + kernel_ns[event]
            cpu += call
            if blocking[event]:
                cpu = max(cpu, gpu[lane])
        cpu += times.of(3, name) if events else 0.0
        if op in waiting:
            cpu = max([cpu, *gpu.values()])
    return OverheadPrediction(round(max([cpu, *gpu.values()])), ready)


def overhead_model_of_ranks(
    traces: Sequence[Trace],
    models: Sequence[FittedModel],
    kernel_ns: Sequence[Sequence[float]],
    of_rows: Sequence[IntColumn],
    begin: Sequence[float],
    rendezvous: Sequence[Mapping[int, int]],
) -> int:
    """ns from the first rank's begin to the last one's end, if collectives start when their last rank is ready.

    Ranks are walked in turn until no collective starts later than in the round before.

    Args:
        rendezvous: the GPU event of each rank, by its index, for each collective.
    """
    starts: list[dict[int, float]] = [{} for _ in traces]
    for _ in range(len(rendezvous) + 1):
        walks = [
            overhead_model(trace, model, ns, of_row, after)
            for trace, model, ns, of_row, after in zip(traces, models, kernel_ns, of_rows, starts, strict=True)
        ]
        before = [dict(of) for of in starts]
        for met in rendezvous:
            latest = max(begin[rank] + walks[rank].ready.get(event, 0.0) for rank, event in met.items())
            for rank, event in met.items():
                starts[rank][event] = latest - begin[rank]
        if starts == before:
            break
    return round(max(at + walk.total for at, walk in zip(begin, walks, strict=True)) - min(begin))


def scaled(overheads: Overheads, factor: float) -> Overheads:
    """The overheads of a host that is slower by a factor."""

    def times(of: Statistic) -> Statistic:
        return Statistic(
            of.mean * factor, of.std * factor, of.n, of.clipped, of.outliers, of.mean_with_outliers * factor
        )

    tables = {
        kind: {name: times(of) for name, of in getattr(overheads, kind).items()}
        for kind in ("t2", "t3", "t4", "t5", "all")
    }
    return msgspec.structs.replace(overheads, t1=times(overheads.t1), **tables)


def with_work_of(own: Overheads, known: Overheads, speed: float) -> Overheads:
    """The overheads of a trace without GPU events, with operator times of other traces if they have the operator.

    Args:
        known: overheads of these traces. speed: factor for their times.
    """
    work = {name: of for name, of in scaled(known, speed).t5.items() if name in own.t5 and of.n}
    plain = {name: msgspec.structs.replace(of, mean_with_outliers=of.mean) for name, of in work.items()}
    return msgspec.structs.replace(own, t5=own.t5 | plain)


class _WorkTimes:
    """Overheads in ns. They include outliers, so that their sum is the host's time; unseen operators have the mean."""

    def __init__(self, model: FittedModel) -> None:
        found = model.overheads
        self.t1 = found.t1.expected * 1000
        self._of: dict[int, Mapping[str, Statistic]] = {2: found.t2, 3: found.t3, 4: found.t4, 5: found.t5}
        self._all = {kind: found.all[f"t{kind}"].mean_with_outliers * 1000 for kind in self._of}

    def of(self, kind: int, name: str) -> float:
        """ns of an overhead of an operator, or of a runtime call (T4)."""
        known = self._of[kind].get(name)
        return known.mean_with_outliers * 1000 if known is not None else self._all[kind]


def _launches(trace: Trace) -> dict[int, list[int]]:
    """Topmost operator to its GPU events, in order of their launches."""
    gpu, runtime, top = trace.gpu, trace.runtime, trace.hierarchy.top
    found: dict[int, list[int]] = defaultdict(list)
    known = np.flatnonzero(gpu.runtime >= 0)
    known = known[runtime.call[gpu.runtime[known]] >= 0]
    order = known[np.argsort(runtime.ts[gpu.runtime[known]], kind="stable")]
    for event, call in zip(order.tolist(), runtime.call[gpu.runtime[order]].tolist(), strict=True):
        found[int(top[call])].append(event)
    return found


def _waits(trace: Trace, of_row: IntColumn) -> tuple[set[int], list[int]]:
    """Topmost operators in which a call waits for a device; and when calls outside of operators do, latest first."""
    calls = synchronising_calls(trace)
    calls = calls[of_row[trace.runtime.source[calls]] >= 0]
    around = trace.runtime.call[calls]
    top = np.append(trace.hierarchy.top, -1)[around]
    return set(top[top >= 0].tolist()), sorted(trace.runtime.ts[calls[top < 0]].tolist(), reverse=True)
