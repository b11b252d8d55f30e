"""The overheads engine: operators in order on one host line, kernels on a line a stream.

The walk is that of Lin et al. (2022): the five overheads of the host (see `analysis.overheads`) place the launches,
kernels follow their launches and the kernels before them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from ..analysis.overheads import Statistic
from ..analysis.trace import Trace
from ..schemas.records import IntColumn
from .model_file import FittedModel

__all__ = ["walk"]

_BETWEEN_KERNELS_NS = 1000.0
_WAITS = re.compile(r"(?:Device|Stream|Event)Synchronize$")
_BLOCKING = re.compile(r"DtoH.*Pageable|Pageable.*DtoH", re.IGNORECASE)


def walk(trace: Trace, model: FittedModel, kernel_ns: Sequence[float], of_row: IntColumn) -> int:
    """ns that the operators of the iterations take.

    For every operator that counts (see `hierarchy`), in order of start:
    cpu += T1; if it launches, cpu += T2 and for each launch gpu[s] = max(gpu[s] + 1 µs, cpu + T4), gpu[s] += t,
    cpu += T4, with T5 between launches, then cpu += T3; if not, cpu += T5. Blocking copies and synchronising calls
    make the host wait. The end is the later of host and streams.

    Args:
        kernel_ns: time of each GPU event of the trace.
        of_row: the iteration of each row of the document, −1 for rows that do not count.
    """
    times = _Times(model)
    launched = _launches(trace)
    waiting = _waiting_ops(trace)
    top = trace.hierarchy.top
    ops = np.flatnonzero((top == np.arange(len(top))) & (of_row[trace.calls.source] >= 0))
    cpu, gpu = 0.0, defaultdict[tuple[int, int], float](float)
    for op in ops[np.argsort(trace.calls.ts[ops], kind="stable")].tolist():
        name = trace.names[trace.calls.name[op]]
        cpu += times.t1
        events = launched.get(op, [])
        if not events:
            cpu += times.of(5, name)
        for number, event in enumerate(events):
            cpu += times.of(2 if number == 0 else 5, name)
            call = times.of(4, trace.names[trace.runtime.name[trace.gpu.runtime[event]]])
            lane = int(trace.gpu.device[event]), int(trace.gpu.stream[event])
            gpu[lane] = max(gpu[lane] + _BETWEEN_KERNELS_NS, cpu + call) + kernel_ns[event]
            cpu += call
            if _BLOCKING.search(trace.names[trace.gpu.name[event]]):
                cpu = max(cpu, gpu[lane])
        if events:
            cpu += times.of(3, name)
        if op in waiting:
            cpu = max(cpu, *gpu.values()) if gpu else cpu
    return round(max([cpu, *gpu.values()]))


class _Times:
    """Overheads in ns; of an operator that was not seen the mean over all."""

    def __init__(self, model: FittedModel) -> None:
        found = model.overheads
        self.t1 = found.t1.expected * 1000
        self._of: dict[int, Mapping[str, Statistic]] = {2: found.t2, 3: found.t3, 4: found.t4, 5: found.t5}
        self._all = {kind: found.all[f"t{kind}"].mean_with_outliers * 1000 for kind in self._of}

    def of(self, kind: int, name: str) -> float:
        """ns of an overhead of an operator, or of a runtime call (T4)."""
        one = self._of[kind].get(name)
        return one.mean_with_outliers * 1000 if one is not None else self._all[kind]


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


def _waiting_ops(trace: Trace) -> set[int]:
    """Topmost operators in which a call waits for a device."""
    waits = np.array([_WAITS.search(name) is not None for name in trace.names], np.bool_)
    calls = trace.runtime.call[waits[trace.runtime.name]] if len(trace.runtime) else np.zeros(0, np.int64)
    return set(trace.hierarchy.top[calls[calls >= 0]].tolist())
