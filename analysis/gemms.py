"""Matrix products by their extents, with the rates that they reach and what of the device's peaks that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from ..trace.columns import IntColumn, grouped
from ..trace.trace import Trace
from .devices import Device
from .flops import Product, product
from .kernel_peaks import Work, against_peaks, find_devices, from_memory, work_of_events
from .table import Column, Row, Table, WithMean, per_second


class GemmRow(WithMean, Row):
    """All calls of one operator that multiply matrices of one size and type on one device.

    Attributes:
        op: the operator. dtype: element type, "tf32" where the kernel's name says so.
        batch, m, n, k: `batch` products (m, k) · (k, n).
        count: number of calls (of a replayed graph: of replays). total_ns: durations of all their kernels.
        kernels: names of the kernels that compute the products, the most frequent first.
        flops: 2·batch·m·n·k of each call. bytes: inputs and outputs once, None if not known.
        flops_share, bytes_share: of the device's peaks, 1 is all; None where unknown. bound: "compute", "memory" or
            "cache", by which the time at peak is longer; "" where it is not known. See `KernelRow`.
    """

    device: int
    op: str
    dtype: str
    batch: int
    m: int
    n: int
    k: int
    count: int
    total_ns: int
    kernels: tuple[str, ...]
    flops: int
    bytes: int | None
    flops_share: float | None
    bytes_share: float | None
    bound: str

    title = "matrix products, over the time of all their operator's kernels"
    columns = (
        Column("type", lambda row: f"  {row.dtype or '-'}"), Column("count", "count"),
        Column("mean µs", "mean_ns", "µs"), Column("TFLOP/s", "flops_per_second", "TFLOP/s"),
        Column("of peak", "flops_share", "share"), Column("GB/s", "bytes_per_second", "GB/s", 1),
        Column("memory", "bytes_share", "share"), Column("bound", "bound"),
    )  # fmt: skip
    derived = ("mean_ns", "flops_per_second", "bytes_per_second")
    joined = ("kernels", " | ")

    def above(self) -> str:
        """The operator with the extents."""
        return f"{self.op} {f'{self.batch} × ' if self.batch > 1 else ''}m {self.m}, n {self.n}, k {self.k}"

    @property
    def flops_per_second(self) -> float | None:
        """Achieved rate over the time of all the operator's kernels."""
        return per_second(self.flops, self.total_ns)

    @property
    def bytes_per_second(self) -> float | None:
        """Achieved rate over the time of all the operator's kernels."""
        return per_second(self.bytes, self.total_ns)


def gemm_table(trace: Trace, work: Work | None = None, devices: Mapping[int, Device] | None = None) -> Table[GemmRow]:
    """One row a device, operator, element type and size; the longest in total first.

    Args:
        work: from `work_of_events`; devices: from `find_devices`; found anew if None.

    Example:
        >>> [(row.op, row.m, row.n, row.k) for row in gemm_table(trace)][:1]
        [('aten::addmm', 4, 8, 8)]
    """
    work = work_of_events(trace) if work is None else work
    devices = find_devices(trace) if devices is None else devices
    gpu = trace.gpu
    events = np.flatnonzero((work.flops >= 0) & (work.call >= 0))
    size, products = _products(trace, work.call[events])
    events, size = events[size >= 0], size[size >= 0]
    passed = from_memory(trace, work.bytes, devices)
    rows = []
    for (device, dtype, code), at in grouped(gpu.device[events], work.dtype[events], size):
        mine = events[at]
        total, known = int(work.operator_ns[mine].sum()), bool((work.bytes[mine] >= 0).all())
        done, moved = sum(work.flops[mine].tolist()), int(work.bytes[mine].sum()) if known else None
        through = (moved, total) if passed[mine].all() else (None, 0)
        of = devices.get(device)
        peak = of.peak_flops(work.dtypes[dtype]) if of is not None else None
        count = len(np.unique(np.stack([work.call[mine], gpu.graph_replay[mine]]), axis=1).T)
        op, extents = products[code]
        names = Counter(trace.names[name] for name in gpu.name[mine].tolist())
        rows.append(
            GemmRow(
                device, op, work.dtypes[dtype], *extents, count, total, tuple(name for name, _ in names.most_common()),
                done, moved, *against_peaks(of, peak, (done, total), (moved, total), through),
            )
        )  # fmt: skip
    rows.sort(key=lambda row: (-row.total_ns, row.device, row.op, row.dtype, row.batch, row.m, row.n, row.k))
    return Table(GemmRow, rows)


def _products(trace: Trace, call: IntColumn) -> tuple[IntColumn, list[tuple[str, Product]]]:
    """Of each call the code of its matrix product, −1 if it computes none; and by code operator and extents."""
    calls = trace.attribution.calls
    known: dict[tuple[str, Product], int] = {}
    codes = np.full(len(call), -1, np.int64)
    for (name, signature), at in grouped(calls.name[call], calls.signature[call]):
        size = product(trace.names[name], trace.signatures[signature]) if signature >= 0 else None
        if size is not None:
            codes[at] = known.setdefault((trace.names[name], size), len(known))
    return codes, list(known)
