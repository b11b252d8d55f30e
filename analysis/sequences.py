"""Sequences of kernels that operators launch again and again: candidates for fusion."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ..trace.kernel_names import kernel_label
from ..trace.trace import Trace
from .table import Column, Row, Table


class KernelSequence(Row):
    """Calls of one operator that launched the same GPU events in the same order.

    Attributes:
        op: the topmost operator. kernels: names of what it launched, in order of start.
        count: calls. gpu_ns: duration of those events together. host_ns: of the operator's calls together.
    """

    op: str
    kernels: tuple[str, ...]
    count: int
    gpu_ns: int
    host_ns: int

    title = "sequences of kernels that an operator launches"
    columns = (
        Column("", lambda row: ""), Column("kernels", lambda row: len(row.kernels)), Column("calls", "count"),
        Column("GPU ms", "gpu_ns", "ms"), Column("host ms", "host_ns", "ms"),
    )  # fmt: skip
    joined = ("kernels", " | ")

    def above(self) -> str:
        """The operator and what it launches."""
        return f"{self.op}: {', '.join(map(kernel_label, self.kernels))}"


def kernel_sequences(trace: Trace, *, least: int = 3) -> Table[KernelSequence]:
    """Sequences of at least `least` GPU events below one call of a topmost operator, the most frequent first.

    HTA's `get_frequent_cuda_kernel_sequences`, for all topmost operators at once.

    Example:
        >>> [one.op for one in kernel_sequences(trace, least=2)][:1]
        ['aten::linear']
    """
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
    for op, start, end, on_device, on_host in zip(*(column.tolist() for column in columns), strict=True):
        sums = groups[op, kernels[start:end]]
        for k, value in enumerate((1, on_device, on_host)):
            sums[k] += value
    rows = [
        KernelSequence(trace.names[op], tuple(trace.names[code] for code in np.frombuffer(text, np.int32)), *sums)
        for (op, text), sums in groups.items()
    ]
    return Table(KernelSequence, sorted(rows, key=lambda row: (-row.count, -row.gpu_ns, row.op, row.kernels)))
