"""FLOPs and bytes of GPU events, by kernel and by GEMM size, compared with the peaks of the device."""

from __future__ import annotations

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

Mask = npt.NDArray[np.bool_]


class KernelRow(WithMean, Row):
    device: int = column("number", "Device number.")
    kernel: str = column("name", "Name of the kernel.")
    category: str = column("name", "Kineto category: kernel, gpu_memcpy or gpu_memset.")
    dtype: str = inferred("name", "Dtype of the computation; empty if unknown.")
    ops: tuple[str, ...] = column("name", "Operators that launched the kernel, most frequent first.", joined=" ")
    count: int = column("count", "Number of runs of the kernel.")
    total_ns: int = column("ns", "Sum of the durations of all runs.")
    flops: int | None = inferred("flop", "Floating-point operations, summed over runs with a known number.")
    flops_ns: int
    bytes: int | None = inferred("bytes", "Bytes moved (lower bound), summed over runs with a known size.")
    most_bytes: int | None = inferred("bytes", "Upper bound for `bytes`, which may depend on tensor values.")
    bytes_ns: int
    operator_ns: int
    peak_flops_per_second: float | None = inferred("flop/s", "Peak FLOP/s of the device for the dtype.", "peak")
    flops_share: float | None = inferred("share", "Share of the peak FLOP/s of the device.", "FLOPs")
    bytes_share: float | None = inferred("share", "Share of the peak memory bandwidth, excluding cache hits.", "memory")
    bound: str = inferred("text", "Limiting resource: compute, memory or cache; empty if unknown.")
    repeated_ns: int = inferred("ns", "Part of total_ns from runs launched before the trace.", default=0)

    title = "kernels, and their share of the device peaks"
    shown = (
        TextColumn("type", lambda row: f"  {row.dtype or '-'}"),
        *("count", "mean_ns µs", "flops_per_second", "operator_flops_per_second"),
        *(TextColumn("GB/s", lambda row: row.bandwidth), "flops_share", "bytes_share", "bound"),
    )

    def above(self) -> str:
        mark = f"({100 * self.repeated_ns / self.total_ns:.1f}% by repetition)" if self.repeated_ns else ""
        return " ".join(filter(None, [",".join(self.ops), mark, kernel_label(self.kernel)]))

    @derived("flop/s", "FLOP/s", INFERRED)
    def flops_per_second(self) -> float | None:
        """Achieved FLOP/s."""
        return per_second(self.flops, self.flops_ns)

    @derived("flop/s", "of op", INFERRED)
    def operator_flops_per_second(self) -> float | None:
        """FLOPs of the operators that launched the kernels, divided by the time of all kernels of these operators."""
        return per_second(self.flops, self.operator_ns)

    @derived("bytes/s", "bytes/s", INFERRED)
    def bytes_per_second(self) -> float | None:
        """Achieved bytes/s."""
        return per_second(self.bytes, self.bytes_ns)

    @derived("bytes/s", certainty=INFERRED)
    def most_bytes_per_second(self) -> float | None:
        """Upper bound of bytes_per_second."""
        return per_second(self.most_bytes, self.bytes_ns)

    @property
    def bandwidth(self) -> str | None:
        """Bandwidth in GB/s as a string. If only bounds are known, the string is a range such as "120.5–988.0"."""
        if self.bytes_per_second is None or self.most_bytes_per_second is None:
            return None
        least, most = (f"{rate / 1e9:,.1f}" for rate in (self.bytes_per_second, self.most_bytes_per_second))
        return least if least == most else f"{least}–{most}"

    @derived("flop/byte", certainty=INFERRED)
    def intensity(self) -> float | None:
        """FLOPs per byte moved. The ratio is an upper bound if `bytes` is a lower bound."""
        return self.flops / self.bytes if self.flops is not None and self.bytes else None


def find_devices(trace: Trace, own: Sequence[Device] = ()) -> dict[int, Device]:
    """Return a map from device number to device, for devices with known peaks. `own` has user-defined devices."""
    numbers = distinct(trace.gpu.device).tolist()
    found = {number: find_device(trace.properties.get(number), own) for number in numbers}
    return {number: device for number, device in found.items() if device is not None}


def from_memory(trace: Trace, size: IntColumn, devices: Mapping[int, Device]) -> Mask:
    """Return a mask of the GPU events that moved their bytes to and from device memory.

    Data that fits in the last-level cache may stay there. An event that is faster than device memory is assumed to be
    cached if the cache can explain the speed. The cache may be full of inputs before the event, and full of outputs
    after the event. The mask is False for events on devices that are not in `devices` (see `find_devices`).

    Args:
        size: bytes of each event, int64; −1 if unknown.
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
    """Return one row per device, kernel and dtype, longest total first. Pass `work` and `devices` if you have them."""
    gpu, work, devices = trace.gpu, work or work_of_events(trace), find_devices(trace) if devices is None else devices
    if not len(gpu):
        return Table(KernelRow)
    keys, inverse = distinct_rows(gpu.device, gpu.name, gpu.category, work.dtype)
    ops = _ops_by_row(trace, inverse, len(keys))
    count, total = np.bincount(inverse), sums(inverse, gpu.dur, len(keys))
    operator_ns = sums(inverse, work.operator_ns + work.elements_ns, len(keys))
    again = sums(inverse, np.where(trace.attribution.repetition > 0, gpu.dur, 0), len(keys))
    judged = np.where(from_memory(trace, work.bytes, devices), work.bytes, -1)
    columns = (work.all_flops, work.flops, work.bytes, work.most_bytes, judged)
    done, products, moved, most, passed = (_known_sums(inverse, column, gpu.dur, len(keys)) for column in columns)
    rows = Table(KernelRow)
    for row in np.argsort(-total, kind="stable").tolist():
        number, name, category, dtype = keys[row].tolist()
        device = devices.get(number)
        peak = device.peak_flops(work.dtypes[dtype]) if device is not None else None
        # If the peak is unknown, leave out the FLOPs of elementwise kernels, so that memory can be the limit.
        bounds = against_peaks(device, peak, done[row] if peak else products[row], moved[row], passed[row])
        kernel = number, trace.names[name], trace.categories[category], work.dtypes[dtype], ops[row]
        (flops, flops_ns), (size, size_ns) = done[row], moved[row]
        amounts = flops, flops_ns, size, most[row][0], size_ns, int(operator_ns[row])
        rows.append(KernelRow(*kernel, int(count[row]), int(total[row]), *amounts, peak, *bounds, int(again[row])))
    return rows


_Amount = tuple[int | None, int]  # total over events with known values, and the ns of these events; (None, 0) if none


def against_peaks(
    device: Device | None, peak: float | None, done: _Amount, moved: _Amount, passed: _Amount
) -> tuple[float | None, float | None, str]:
    """Return the share of the peak FLOP/s, the share of the peak bandwidth, and the limiting resource.

    Args:
        done, moved: FLOPs and bytes. passed: bytes to and from device memory (see `from_memory`).
    """
    if device is None:
        return None, None, ""
    at_peak = done[0] / peak * 1e9 if done[0] is not None and peak else None
    at_bandwidth, at_memory = (
        size / device.bytes_per_second * 1e9 if size is not None else None for size in (moved[0], passed[0])
    )
    pairs = ((at_peak, done[1]), (at_memory, passed[1]))
    shares = [least / ns if least is not None and ns else None for least, ns in pairs]
    if at_bandwidth is None or (done[0] is not None and at_peak is None):
        return shares[0], shares[1], ""
    if (at_peak or 0) > at_bandwidth:
        return shares[0], shares[1], "compute"
    return shares[0], shares[1], "cache" if at_memory is None else "memory"


def _ops_by_row(trace: Trace, row: IntColumn, count: int) -> list[tuple[str, ...]]:
    calls = trace.attribution.calls
    if not len(calls):
        return [()] * count
    op = nearest(trace.attribution.call, calls.parent, calls.kind == OP)
    has = op >= 0
    pairs, pair = distinct_rows(row[has], calls.name[op[has]])
    ops: list[tuple[str, ...]] = [()] * count
    for index, name in pairs[np.argsort(-np.bincount(pair), kind="stable")].tolist():
        ops[index] += (trace.names[name],)
    return ops


def _known_sums(group: IntColumn, values: IntColumn, dur: IntColumn, count: int) -> list[_Amount]:
    known = values >= 0
    total: list[int] = [0] * count
    for index, value in zip(group[known].tolist(), values[known].tolist(), strict=True):  # The sums may exceed 64 bits.
        total[index] += value
    time, events = sums(group[known], dur[known], count), np.bincount(group[known], minlength=count)
    return [(total[row], int(time[row])) if events[row] else (None, 0) for row in range(count)]


class GemmRow(WithMean, Row):
    device: int = column("number", "Device number.")
    op: str = column("name", "Name of the operator.", "operator")
    dtype: str = inferred("name", "Dtype; tf32 if the kernel name contains it.")
    batch: int = column("number", "Number of GEMMs per call.")
    m: int = column("number", "Rows of the first matrix.")
    n: int = column("number", "Columns of the second matrix.")
    k: int = column("number", "Columns of the first matrix.")
    count: int = column("count", "Number of calls; in a replayed CUDA graph, number of replays.")
    total_ns: int = column("ns", "Sum of the durations of all kernels that the calls launched.")
    kernels: tuple[str, ...] = column("name", "Kernels that compute the GEMMs, most frequent first.", joined=" | ")
    flops: int = inferred("flop", "2·batch·m·n·k, summed over all calls.")
    bytes: int | None = inferred("bytes", "Inputs and outputs, each counted once.")
    flops_share: float | None = inferred("share", "Share of the peak FLOP/s of the device.", "of peak")
    bytes_share: float | None = inferred("share", "Share of the peak memory bandwidth.", "memory")
    bound: str = inferred("text", "Limiting resource: compute, memory or cache; empty if unknown.")

    title = "GEMMs; rates refer to the time of all kernels of the operator"
    shown = (
        TextColumn("type", lambda row: f"  {row.dtype or '-'}"),
        *("count", "mean_ns µs", "flops_per_second", "flops_share", "bytes_per_second", "bytes_share", "bound"),
    )

    def above(self) -> str:
        return f"{self.op} {f'{self.batch} × ' if self.batch > 1 else ''}m {self.m}, n {self.n}, k {self.k}"

    @derived("flop/s", "FLOP/s", INFERRED)
    def flops_per_second(self) -> float | None:
        """FLOPs divided by the time of all kernels that the calls launched."""
        return per_second(self.flops, self.total_ns)

    @derived("bytes/s", "bytes/s", INFERRED)
    def bytes_per_second(self) -> float | None:
        """Bytes divided by the time of all kernels that the calls launched."""
        return per_second(self.bytes, self.total_ns)


def gemm_table(trace: Trace, work: Work | None = None, devices: Mapping[int, Device] | None = None) -> Table[GemmRow]:
    gpu, work, devices = trace.gpu, work or work_of_events(trace), find_devices(trace) if devices is None else devices
    events, repetition = np.flatnonzero((work.flops >= 0) & (work.call >= 0)), trace.attribution.repetition
    size, products = _products(trace, work.call[events])
    events, size = events[size >= 0], size[size >= 0]
    passed = from_memory(trace, work.bytes, devices)
    rows = []
    for (device, dtype, code), members in grouped(gpu.device[events], work.dtype[events], size):
        own = events[members]
        total, known = int(work.operator_ns[own].sum()), bool((work.bytes[own] >= 0).all())
        done, moved = sum(work.flops[own].tolist()), int(work.bytes[own].sum()) if known else None
        through = (moved if passed[own].all() else None, total)
        known_device = devices.get(device)
        peak = known_device.peak_flops(work.dtypes[dtype]) if known_device is not None else None
        count = len(distinct_rows(work.call[own], gpu.graph_replay[own], repetition[own])[0])
        names = tuple(name for name, _ in Counter(trace.names[name] for name in gpu.name[own].tolist()).most_common())
        op, dimensions = products[code]
        bounds = against_peaks(known_device, peak, (done, total), (moved, total), through)
        rows.append(GemmRow(device, op, work.dtypes[dtype], *dimensions, count, total, names, done, moved, *bounds))
    rows.sort(key=lambda row: (-row.total_ns, row.device, row.op, row.dtype, row.batch, row.m, row.n, row.k))
    return Table(GemmRow, rows)


def _products(trace: Trace, call: IntColumn) -> tuple[IntColumn, list[tuple[str, Product]]]:
    """Return each call's GEMM code (−1 if it is not a GEMM), and each code's operator and dimensions."""
    calls = trace.attribution.calls
    known: dict[tuple[str, Product], int] = {}
    codes = np.full(len(call), -1, np.int64)
    for (name, signature), members in grouped(calls.name[call], calls.signature[call]):
        size = product(trace.names[name], trace.signatures[signature]) if signature >= 0 else None
        if size is not None:
            codes[members] = known.setdefault((trace.names[name], size), len(known))
    return codes, list(known)


def event_bounds(trace: Trace, work: Work | None = None, devices: Mapping[int, Device] | None = None) -> IntColumn:
    """Return the minimum time (ns) that every GPU event needs at the peak FLOP/s and at the peak bandwidth.

    The minimum never exceeds the event's duration. Copies and cached data have no minimum for their bytes. The minimum
    is −1 if neither FLOPs nor bytes have a minimum, or if the FLOPs are known but their peak is unknown."""
    work, devices = work or work_of_events(trace), find_devices(trace) if devices is None else devices
    gpu, bounds = trace.gpu, np.full(len(trace.gpu), -1, np.int64)
    in_memory = from_memory(trace, work.bytes, devices) & ~trace.is_copy
    for number, device in devices.items():
        for dtype, name in enumerate(work.dtypes):
            own = (gpu.device == number) & (work.dtype == dtype)
            if not own.any():
                continue
            peak = device.peak_flops(name)
            computes = own & (work.flops >= 0)
            moves = own & in_memory & (~computes | (peak is not None))
            bounds[moves] = np.rint(work.bytes[moves] / device.bytes_per_second * 1e9).astype(np.int64)
            if peak:
                at_peak = np.rint(work.flops[computes] / peak * 1e9)
                bounds[computes] = np.maximum(bounds[computes], at_peak).astype(np.int64)
    return np.minimum(bounds, gpu.dur)


def row_bounds(traces: Sequence[Trace], own: Sequence[Device] = ()) -> IntColumn:
    """Return the `event_bounds` of all rows, concatenated over all traces; −1 for rows that are not GPU events."""
    parts = [np.full(len(trace), -1, np.int64) for trace in traces]
    for part, trace in zip(parts, traces, strict=True):
        source = trace.gpu.source
        part[source[source >= 0]] = event_bounds(trace, devices=find_devices(trace, own))[source >= 0]
    return np.concatenate(parts)
