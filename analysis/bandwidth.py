"""Memory bandwidth of copies and memsets: by kind, and over time."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn, grouped
from ..trace.intervals import step_function, union
from ..trace.trace import Trace
from .table import GB_PER_S, MB, MS, Column, Row, Table, per_second

_KIND = re.compile(r"Memcpy\s+(\w+)|(Memset)|(Memcpy)")


class BandwidthRow(Row):
    """Copies or memsets of one kind on a device.

    Attributes:
        kind: "HtoD", "DtoH", "DtoD", "PtoP", …, "Memset"; "Memcpy" where the name does not say.
        count, bytes, total_ns: events whose size is recorded, their bytes and the sum of their durations.
        busy_ns: time in which at least one of them ran.
        not_recorded: events of that kind without a size.
    """

    device: int
    kind: str
    count: int
    bytes: int
    total_ns: int
    busy_ns: int
    not_recorded: int

    title = "copies and memsets"
    columns = (
        Column("kind", lambda row: f"device {row.device} {row.kind}"), Column("count", "count"),
        Column("MB", "bytes", MB), Column("total ms", "total_ns", MS), Column("GB/s", "bytes_per_second", GB_PER_S),
    )  # fmt: skip
    derived = ("bytes_per_second",)

    @property
    def bytes_per_second(self) -> float | None:
        """Bytes over the sum of durations, None without a duration."""
        return per_second(self.bytes, self.total_ns)


@dataclass(frozen=True)
class BandwidthSeries:
    """Bandwidth of one kind of copies over time, as a step function.

    Attributes:
        ts: int64 ns, ascending; bytes_per_second: float64, from that time until the next, summed over copies that run
            at once.
    """

    device: int
    kind: str
    ts: IntColumn
    bytes_per_second: npt.NDArray[np.float64]


def copy_bandwidth(trace: Trace) -> Table[BandwidthRow]:
    """One row a device and kind, the most bytes first.

    Example:
        >>> [row.kind for row in copy_bandwidth(trace)]
        ['Memset', 'HtoD', 'DtoH']
    """
    gpu, rows = trace.gpu, []
    for (device, kind), events in _kinds(trace).items():
        known = events[gpu.bytes[events] >= 0]
        busy = union(gpu.ts[known], gpu.end[known]).length
        rows.append(
            BandwidthRow(
                device, kind, len(known), int(gpu.bytes[known].sum()), int(gpu.dur[known].sum()), busy,
                len(events) - len(known),
            )
        )  # fmt: skip
    return Table(BandwidthRow, sorted(rows, key=lambda row: (-row.bytes, row.device, row.kind)))


def bandwidth_series(trace: Trace) -> list[BandwidthSeries]:
    """Bandwidth over time by device and kind; a copy of no duration counts as one of 1 ns."""
    gpu, found = trace.gpu, []
    for (device, kind), events in sorted(_kinds(trace).items()):
        events = events[gpu.bytes[events] >= 0]
        if not len(events):
            continue
        lasts = np.maximum(gpu.dur[events], 1)
        rate = gpu.bytes[events] / lasts * 1e9
        ts = np.concatenate([gpu.ts[events], gpu.ts[events] + lasts])
        times, running = step_function(ts, np.repeat([1, -1], len(events)))
        _, level = step_function(ts, np.concatenate([rate, -rate]))
        found.append(BandwidthSeries(device, kind, times, np.where(running > 0, np.maximum(level, 0), 0.0)))
    return found


def _kinds(trace: Trace) -> dict[tuple[int, str], IntColumn]:
    """Copies and memsets by device and kind."""
    gpu, copies = trace.gpu, np.flatnonzero(trace.is_copy)
    names, name = np.unique(gpu.name[copies], return_inverse=True)
    kinds, kind = np.unique([_kind(trace.names[code]) for code in names.tolist()], return_inverse=True)
    return {
        (device, str(kinds[of])): copies[members] for (device, of), members in grouped(gpu.device[copies], kind[name])
    }


def _kind(name: str) -> str:
    found = _KIND.search(name)
    return next(filter(None, found.groups())) if found else name
