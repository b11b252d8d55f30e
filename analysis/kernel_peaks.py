"""FLOPs and bytes of GPU events, what of the peaks they reach, and which peak bounds them; by kernel, and by the
extents of matrix products."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, distinct, distinct_rows, grouped
from ..trace.intervals import sums
from ..trace.kernel_names import kernel_label
from ..trace.tables import OP
from ..trace.trace import Trace
from .devices import Device, find_device
from .event_work import Work, work_of_events
from .flops import Product, product
from .table import INFERRED, Row, Table, TextColumn, WithMean, column, derived, inferred, per_second

_TENSOR_FLOAT = re.compile(r"tf32|tfloat32|s1688|tensorop_s", re.IGNORECASE)

Mask = npt.NDArray[np.bool_]


class KernelRow(WithMean, Row):
    """All events of one kernel on one device with one dtype."""

    device: int = column("number", "Device.")
    kernel: str = column("name", "Name of the kernel.")
    category: str = column("name", "Kineto's category: kernel, gpu_memcpy or gpu_memset.")
    dtype: str = inferred("name", "Dtype that it computes in, empty if unknown.")
    ops: tuple[str, ...] = column("name", "Operators that launched it, the most frequent first.", joined=" ")
    count: int = column("count", "Number of events.")
    total_ns: int = column("ns", "Sum of their durations.")
    flops: int | None = inferred("flop", "Floating-point operations of the events for which they are known.")
    flops_ns: int
    bytes: int | None = inferred(
        "bytes", "Bytes moved by the events for which they are known; at least, if they depend on tensor values."
    )
    most_bytes: int | None = inferred("bytes", "As `bytes`, but at most.")
    bytes_ns: int
    operator_ns: int
    peak_flops_per_second: float | None = inferred("flop/s", "Peak of the device for the dtype.", "peak")
    flops_share: float | None = inferred("share", "Share of the device's peak.", "FLOPs")
    bytes_share: float | None = inferred(
        "share", "Share of the memory bandwidth, for events whose data came from memory.", "memory"
    )
    bound: str = inferred("text", "What limits it: compute, memory or cache; empty if unknown.")
    repeated_ns: int = inferred(
        "ns", "Duration of events launched before the trace, whose operator is known by repetition.", default=0
    )

    title = "kernels, and their share of the device's peaks"
    shown = (
        TextColumn("type", lambda row: f"  {row.dtype or '-'}"),
        *("count", "mean_ns µs", "flops_per_second", "operator_flops_per_second"),
        TextColumn("GB/s", lambda row: row.bandwidth), "flops_share", "bytes_share", "bound",
    )  # fmt: skip

    def above(self) -> str:
        """The operators that launched it and its name, which is long."""
        mark = f"({100 * self.repeated_ns / self.total_ns:.1f}% by repetition)" if self.repeated_ns else ""
        return " ".join(filter(None, [",".join(self.ops), mark, kernel_label(self.kernel)]))

    @derived("flop/s", "FLOP/s", INFERRED)
    def flops_per_second(self) -> float | None:
        """Achieved FLOP/s."""
        return per_second(self.flops, self.flops_ns)

    @derived("flop/s", "of op", INFERRED)
    def operator_flops_per_second(self) -> float | None:
        """FLOP/s of its operators as a whole: their FLOPs over the time of all their kernels."""
        return per_second(self.flops, self.operator_ns)

    @derived("bytes/s", "bytes/s", INFERRED)
    def bytes_per_second(self) -> float | None:
        """Achieved bytes/s."""
        return per_second(self.bytes, self.bytes_ns)

    @derived("bytes/s", certainty=INFERRED)
    def most_bytes_per_second(self) -> float | None:
        """As bytes_per_second, but at most."""
        return per_second(self.most_bytes, self.bytes_ns)

    @property
    def bandwidth(self) -> str | None:
        """The rate as text, GB/s; where it is not known from the least to the greatest, such as "120.5–988.0"."""
        if self.bytes_per_second is None or self.most_bytes_per_second is None:
            return None
        least, most = (f"{rate / 1e9:,.1f}" for rate in (self.bytes_per_second, self.most_bytes_per_second))
        return least if least == most else f"{least}–{most}"

    @derived("flop/byte", certainty=INFERRED)
    def intensity(self) -> float | None:
        """FLOPs per byte; of bytes at least the greatest."""
        return self.flops / self.bytes if self.flops is not None and self.bytes else None


def find_devices(trace: Trace, own: Sequence[Device] = ()) -> dict[int, Device]:
    """Device number to what the device can do; without those that no table has.

    Args:
        own: as in `find_device`.
    """
    numbers = distinct(trace.gpu.device).tolist()
    found = {number: find_device(trace.properties.get(number), own) for number in numbers}
    return {number: device for number, device in found.items() if device is not None}


def from_memory(trace: Trace, size: IntColumn, devices: Mapping[int, Device]) -> Mask:
    """Which GPU events moved their bytes to and from the device's memory, as far as that can be known.

    What fits the device's last cache may be there before, and stay there: such an event has no share of the bandwidth.
    Nor has one that was faster than memory is, where the cache explains it: it may hold as much of what is read when
    the event begins, and of what was written when it ends.

    Args:
        size: int64, bytes of each event, −1 if unknown.
        devices: from `find_devices`; events of others are none of these.
    """
    gpu, found = trace.gpu, np.zeros(len(trace.gpu), np.bool_)
    for number, device in devices.items():
        cache, passes = device.l2_bytes or 0, gpu.dur * (device.bytes_per_second / 1e9)
        helped = (size > passes) & (size - 2 * cache <= passes) & (cache > 0) & (gpu.dur > 0)
        found |= (gpu.device == number) & (size > cache) & ~helped
    return found


def kernel_table(
    trace: Trace, work: Work | None = None, devices: Mapping[int, Device] | None = None
) -> Table[KernelRow]:
    """One row a device, kernel and element type; the longest in total first.

    Args:
        work: from `work_of_events`; devices: from `find_devices`; found anew if None.
    """
    gpu, work, devices = trace.gpu, work or work_of_events(trace), find_devices(trace) if devices is None else devices
    if not len(gpu):
        return Table(KernelRow)
    keys, inverse = distinct_rows(gpu.device, gpu.name, gpu.category, work.dtype)
    ops = _ops_by_row(trace, inverse, len(keys))
    count, total = np.bincount(inverse), sums(inverse, gpu.dur, len(keys))
    operator_ns = sums(inverse, work.operator_ns, len(keys))
    by_repetition = sums(inverse, np.where(trace.attribution.repetition > 0, gpu.dur, 0), len(keys))
    judged = np.where(from_memory(trace, work.bytes, devices), work.bytes, -1)
    done, moved, most, passed = (
        _known_sums(inverse, column, gpu.dur, len(keys)) for column in (work.flops, work.bytes, work.most_bytes, judged)
    )
    rows = Table(KernelRow)
    for row in np.argsort(-total, kind="stable").tolist():
        number, name, category, dtype = keys[row].tolist()
        device = devices.get(number)
        peak = device.peak_flops(work.dtypes[dtype]) if device is not None else None
        (work_done, done_ns), (size, moved_ns) = done[row], moved[row]
        rows.append(
            KernelRow(
                number, trace.names[name], trace.categories[category], work.dtypes[dtype], ops[row], int(count[row]),
                int(total[row]), work_done, done_ns, size, most[row][0], moved_ns, int(operator_ns[row]), peak,
                *against_peaks(device, peak, done[row], moved[row], passed[row]), int(by_repetition[row]),
            )
        )  # fmt: skip
    return rows


def against_peaks(
    device: Device | None, peak: float | None, done: tuple[int | None, int], moved: tuple[int | None, int],
    passed: tuple[int | None, int],
) -> tuple[float | None, float | None, str]:  # fmt: skip
    """Shares of the peaks, and which of them bounds.

    Args:
        done, moved: FLOPs and bytes, and durations of the events, ns; (None, 0) where they are not known.
        passed: of them bytes that came from memory; see `from_memory`.
    """
    if device is None:
        return None, None, ""
    at_peak = done[0] / peak * 1e9 if done[0] is not None and peak else None
    at_bandwidth, from_there = (
        size / device.bytes_per_second * 1e9 if size is not None else None for size in (moved[0], passed[0])
    )
    shares = [
        least / ns if least is not None and ns else None for least, ns in ((at_peak, done[1]), (from_there, passed[1]))
    ]
    if at_bandwidth is None or (done[0] is not None and at_peak is None):
        return shares[0], shares[1], ""
    if (at_peak or 0) > at_bandwidth:
        return shares[0], shares[1], "compute"
    return shares[0], shares[1], "cache" if from_there is None else "memory"


def _ops_by_row(trace: Trace, row: IntColumn, count: int) -> list[tuple[str, ...]]:
    """Names of the launching operators of each row's events, the most frequent first."""
    calls = trace.attribution.calls
    if not len(calls):
        return [()] * count
    op = nearest(trace.attribution.call, calls.parent, calls.kind == OP)
    has = op >= 0
    pairs, of = distinct_rows(row[has], calls.name[op[has]])
    ops: list[tuple[str, ...]] = [()] * count
    for at, name in pairs[np.argsort(-np.bincount(of), kind="stable")].tolist():
        ops[at] += (trace.names[name],)
    return ops


def _known_sums(group: IntColumn, values: IntColumn, dur: IntColumn, count: int) -> list[tuple[int | None, int]]:
    """By group, sum and durations of the events whose value is known (not −1); (None, 0) if there are none."""
    known = values >= 0
    total: list[int] = [0] * count
    for at, value in zip(group[known].tolist(), values[known].tolist(), strict=True):  # sums may not fit 64 bits
        total[at] += value
    time, events = sums(group[known], dur[known], count), np.bincount(group[known], minlength=count)
    return [(total[row], int(time[row])) if events[row] else (None, 0) for row in range(count)]


class GemmRow(WithMean, Row):
    """All calls of one operator that are GEMMs of one size and dtype on one device."""

    device: int = column("number", "Device.")
    op: str = column("name", "Operator.", "operator")
    dtype: str = inferred("name", "Dtype, tf32 if the kernel's name says so.")
    batch: int = column("number", "Number of GEMMs in a call.")
    m: int = column("number", "Rows of the first matrix.")
    n: int = column("number", "Columns of the second matrix.")
    k: int = column("number", "Columns of the first matrix.")
    count: int = column("count", "Number of calls; for a replayed graph, of replays.")
    total_ns: int = column("ns", "Sum of the durations of all kernels of the calls.")
    kernels: tuple[str, ...] = column("name", "Kernels that compute the GEMMs, the most frequent first.", joined=" | ")
    flops: int = inferred("flop", "2·batch·m·n·k, over all calls.")
    bytes: int | None = inferred("bytes", "Inputs and outputs, each counted once.")
    flops_share: float | None = inferred("share", "Share of the device's peak.", "of peak")
    bytes_share: float | None = inferred("share", "Share of the memory bandwidth.", "memory")
    bound: str = inferred("text", "What limits it: compute, memory or cache; empty if unknown.")

    title = "GEMMs, over the time of all kernels of their operator"
    shown = (
        TextColumn("type", lambda row: f"  {row.dtype or '-'}"),
        *("count", "mean_ns µs", "flops_per_second", "flops_share", "bytes_per_second", "bytes_share", "bound"),
    )

    def above(self) -> str:
        """The operator with the extents."""
        return f"{self.op} {f'{self.batch} × ' if self.batch > 1 else ''}m {self.m}, n {self.n}, k {self.k}"

    @derived("flop/s", "FLOP/s", INFERRED)
    def flops_per_second(self) -> float | None:
        """FLOP/s over the time of all the operator's kernels."""
        return per_second(self.flops, self.total_ns)

    @derived("bytes/s", "bytes/s", INFERRED)
    def bytes_per_second(self) -> float | None:
        """Bytes/s over the time of all the operator's kernels."""
        return per_second(self.bytes, self.total_ns)


def gemm_table(trace: Trace, work: Work | None = None, devices: Mapping[int, Device] | None = None) -> Table[GemmRow]:
    """One row a device, operator, element type and size; the longest in total first.

    Args:
        work: from `work_of_events`; devices: from `find_devices`; found anew if None.

    Example:
        >>> [(row.op, row.m, row.n, row.k) for row in gemm_table(trace)][:1]
        [('aten::addmm', 4, 8, 8)]
    """
    gpu, work, devices = trace.gpu, work or work_of_events(trace), find_devices(trace) if devices is None else devices
    events, repetition = np.flatnonzero((work.flops >= 0) & (work.call >= 0)), trace.attribution.repetition
    size, products = _products(trace, work.call[events])
    events, size = events[size >= 0], size[size >= 0]
    passed = from_memory(trace, work.bytes, devices)
    rows = []
    for (device, dtype, code), at in grouped(gpu.device[events], work.dtype[events], size):
        mine = events[at]
        total, known = int(work.operator_ns[mine].sum()), bool((work.bytes[mine] >= 0).all())
        done, moved = sum(work.flops[mine].tolist()), int(work.bytes[mine].sum()) if known else None
        through = (moved if passed[mine].all() else None, total)
        of = devices.get(device)
        peak = of.peak_flops(work.dtypes[dtype]) if of is not None else None
        count = len(distinct_rows(work.call[mine], gpu.graph_replay[mine], repetition[mine])[0])
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
