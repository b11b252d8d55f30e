"""Sequences of kernels that operators launch repeatedly, as candidates for fusion."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ..trace.kernel_names import kernel_label
from ..trace.trace import Trace
from .table import Row, Table, TextColumn, column


class KernelSequence(Row):
    """Calls of one operator that launch the same GPU events in the same order."""

    op: str = column("name", "Name of the topmost operator.", "operator")
    kernels: tuple[str, ...] = column("name", "GPU events that the operator launched, in order of start.", joined=" | ")
    count: int = column("count", "Number of calls.", "calls")
    gpu_ns: int = column("ns", "Sum of the durations of the GPU events.", "GPU")
    host_ns: int = column("ns", "CPU time of the calls.")

    title = "sequences of kernels that an operator launches"
    shown = (
        *(TextColumn("", lambda row: ""), TextColumn("kernels", lambda row: len(row.kernels), "count")),
        *("count", "gpu_ns", "host_ns"),
    )

    def above(self) -> str:
        return f"{self.op}: {', '.join(map(kernel_label, self.kernels))}"


def kernel_sequences(trace: Trace, *, least: int = 3) -> Table[KernelSequence]:
    """Return sequences of `least` or more GPU events that one call of a topmost operator launches, most frequent first.

    HTA's `get_frequent_cuda_kernel_sequences` covers only one operator at a time; this function covers all topmost
    operators."""
    gpu, calls = trace.gpu, trace.calls
    top = np.append(trace.hierarchy.top, -1)[gpu.call]
    events = np.flatnonzero(top >= 0)
    events = events[np.lexsort((gpu.ts[events], top[events]))]
    begin = np.flatnonzero(np.diff(top[events], prepend=-1))
    long = np.diff(begin, append=len(events)) >= least
    call, kernels = top[events[begin]][long], gpu.name[events].astype(np.int32).tobytes()
    device = np.add.reduceat(gpu.dur[events], begin)[long] if len(begin) else call
    ends = 4 * begin[long], 4 * np.append(begin, len(events))[1:][long]
    groups: defaultdict[tuple[int, bytes], list[int]] = defaultdict(lambda: [0, 0, 0])
    columns = (calls.name[call], *ends, device, calls.end[call] - calls.ts[call])
    for op, start, end, on_device, on_host in zip(*(values.tolist() for values in columns), strict=True):
        sums = groups[op, kernels[start:end]]
        for k, value in enumerate((1, on_device, on_host)):
            sums[k] += value
    rows = [
        KernelSequence(trace.names[op], tuple(trace.names[code] for code in np.frombuffer(text, np.int32)), *sums)
        for (op, text), sums in groups.items()
    ]
    return Table(KernelSequence, sorted(rows, key=lambda row: (-row.count, -row.gpu_ns, row.op, row.kernels)))
