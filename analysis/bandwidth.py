"""Bandwidth of copies, memsets and collectives by kind and size, and the bandwidth of copies over time."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..schemas.comm_types import bus_factor
from ..trace.brief import brief
from ..trace.columns import IntColumn, grouped
from ..trace.comm_kernels import Comm, collective_of
from ..trace.frames import to_pandas
from ..trace.intervals import step_function, union
from ..trace.suggest import Suggests
from ..trace.trace import Trace
from .table import INFERRED, Row, Table, TextColumn, WithMean, column, derived, per_second

_KIND = re.compile(r"Memcpy\s+(\w+)|(Memset)|(Memcpy)")


class BandwidthRow(Row):
    device: int = column("number", "Device number.")
    kind: str = column("text", "Kind of copy, such as HtoD, DtoD or Memset; Memcpy if the direction is unknown.")
    count: int = column("count", "Number of copies with a recorded size.")
    bytes: int = column("bytes", "Sum of the recorded sizes.", "bytes")
    total_ns: int = column("ns", "Sum of the durations of copies with a recorded size.")
    busy_ns: int = column("ns", "Time during which at least one copy runs.")
    not_recorded: int = column("count", "Number of copies without a recorded size.")

    title = "copies and memsets"
    shown = (
        TextColumn("kind", lambda row: f"device {row.device} {row.kind}"),
        *("count", "bytes", "total_ns", "bytes_per_second"),
    )

    @derived("bytes/s", "bytes/s")
    def bytes_per_second(self) -> float | None:
        """Sum of the recorded sizes divided by the sum of the copy durations."""
        return per_second(self.bytes, self.total_ns)


@dataclass(frozen=True)
class BandwidthSeries(Suggests):
    """Bandwidth over time of one kind of copy on one device, summed over simultaneous copies.

    The bandwidth changes at each time in `ts` (ns, ascending) and stays constant until the next time.
    """

    device: int
    kind: str
    ts: IntColumn
    bytes_per_second: npt.NDArray[np.float64]

    __repr__ = brief

    def to_pandas(self) -> Any:
        return to_pandas({"ts_ns": self.ts, "bytes_per_second": self.bytes_per_second})


def copy_bandwidth(trace: Trace) -> Table[BandwidthRow]:
    gpu, rows = trace.gpu, []
    for (device, kind), events in _kinds(trace).items():
        known = events[gpu.bytes[events] >= 0]
        busy = union(gpu.ts[known], gpu.end[known]).length
        size, total = int(gpu.bytes[known].sum()), int(gpu.dur[known].sum())
        rows.append(BandwidthRow(device, kind, len(known), size, total, busy, len(events) - len(known)))
    return Table(BandwidthRow, sorted(rows, key=lambda row: (-row.bytes, row.device, row.kind)))


def bandwidth_series(trace: Trace) -> list[BandwidthSeries]:
    """Return the bandwidth over time per device and kind of copy. A copy with duration 0 is assumed to take 1 ns."""
    gpu, series = trace.gpu, []
    for (device, kind), events in sorted(_kinds(trace).items()):
        events = events[gpu.bytes[events] >= 0]
        if not len(events):
            continue
        lasts = np.maximum(gpu.dur[events], 1)
        rate = gpu.bytes[events] / lasts * 1e9
        ts = np.concatenate([gpu.ts[events], gpu.ts[events] + lasts])
        times, running = step_function(ts, np.repeat([1, -1], len(events)))
        _, level = step_function(ts, np.concatenate([rate, -rate]))
        series.append(BandwidthSeries(device, kind, times, np.where(running > 0, np.maximum(level, 0), 0.0)))
    return series


def _kinds(trace: Trace) -> dict[tuple[int, str], IntColumn]:
    gpu, copies = trace.gpu, np.flatnonzero(trace.is_copy)
    names, name = np.unique(gpu.name[copies], return_inverse=True)
    kinds, kind = np.unique([_kind(trace.names[code]) for code in names.tolist()], return_inverse=True)
    members = grouped(gpu.device[copies], kind[name])
    return {(device, str(kinds[code])): copies[rows] for (device, code), rows in members}


def _kind(name: str) -> str:
    match = _KIND.search(name)
    return next(filter(None, match.groups())) if match else name


_NO_COMM = Comm()


class CommunicationRow(WithMean, Row):
    """Communication kernels with the same operation, group and size. A rank that arrives early waits in its kernel."""

    collective: str = column("name", "Collective; empty if neither the trace nor the kernel name shows it.")
    dtype: str = column("name", "Dtype; empty if not recorded.")
    group: str = column("name", "Name and description of the process group; empty if not recorded.")
    group_size: int | None = column("count", "Number of ranks in the process group.", "ranks")
    bytes: int | None = column("bytes", "Size of one message: the larger of input and output.", "bytes")
    count: int = column("count", "Number of communication kernels.")
    total_ns: int = column("ns", "Sum of the kernel durations.")
    min_ns: int = column("ns", "Shortest kernel duration.")

    title = "communication"
    shown = (
        TextColumn("collective", lambda row: row.label),
        *("group_size", "count", "bytes", "mean_ns µs", "algorithm_bandwidth", "bus_bandwidth"),
    )

    @property
    def label(self) -> str:
        return " ".join(filter(None, (self.collective or "(unknown)", self.dtype, self.group)))

    @derived("bytes/s", "bytes/s")
    def algorithm_bandwidth(self) -> float | None:
        """Message size divided by the mean duration."""
        return per_second(None if self.bytes is None else self.bytes * self.count, self.total_ns)

    @derived("bytes/s", "bus GB/s", INFERRED)
    def bus_bandwidth(self) -> float | None:
        """Bandwidth of the slowest link, comparable across collectives and group sizes (as in nccl-tests)."""
        rate, factor = self.algorithm_bandwidth, bus_factor(self.collective, self.group_size)
        return rate * factor if rate is not None and factor is not None else None


def communication(trace: Trace) -> Table[CommunicationRow]:
    """Return one row per collective, dtype, process group and message size, sorted by total time, longest first."""
    durations: defaultdict[tuple[str, str, str, int | None, int | None], list[int]] = defaultdict(list)
    for event in trace.is_comm.nonzero()[0].tolist():
        comm = trace.gpu.comm.get(event, _NO_COMM)
        collective = comm.collective or collective_of(trace.names[trace.gpu.name[event]]) or ""
        group = " ".join(filter(None, (comm.pg_name, comm.pg_desc)))
        key = collective, (comm.dtype or "").lower(), group, _group_size(comm), _message(comm)
        durations[key].append(int(trace.gpu.dur[event]))
    rows = [CommunicationRow(*key, len(times), sum(times), min(times)) for key, times in durations.items()]
    rows.sort(key=lambda row: (-row.total_ns, row.collective, row.dtype, row.group, row.bytes or 0))
    return Table(CommunicationRow, rows)


def _group_size(comm: Comm) -> int | None:
    return comm.group_size or len(comm.pg_ranks or comm.in_split or ()) or None


def _message(comm: Comm) -> int | None:
    """Return the input size or the output size, whichever is larger. `Comm.bytes` is only one of these sizes."""
    if comm.bytes is None:
        return None
    given = comm.in_nelems or comm.out_nelems
    return comm.bytes // given * max(comm.in_nelems or 0, comm.out_nelems or 0) if given else comm.bytes
