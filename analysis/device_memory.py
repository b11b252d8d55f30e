"""Device and host memory over time: how much is allocated, the peak, who holds it there, what outlives its iteration.

From the allocators' own events where they were recorded (`profile_memory=True`), else from the storages of the ET's
tensors. docs/reference/analysis.md defines the terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..trace.brief import brief
from ..trace.columns import IntColumn, distinct, distinct_rows
from ..trace.index import CallIndex, Positions, as_positions
from ..trace.intervals import sums
from ..trace.kinds import PHASES
from ..trace.tables import device_label
from ..trace.trace import Trace
from .memory_categories import CATEGORIES, UNKNOWN, Backward, category_of_blocks, category_of_storages
from .storages import Storages, storages_of
from .table import Records, Row, Table, TextColumn, column, derived, inferred

EVENTS, TENSORS = "allocator events", "tensors of the ET"
"""Values of `DeviceMemory.source`."""
_BEFORE = "(allocated before the trace)"
_NOT_RECORDED = "(allocation not recorded)"
_OUTSIDE = "(outside any operator)"
_MAX_DIGITS = 8
"""A longer number of a device is not one."""


class Blocks(NamedTuple):
    """Blocks of memory of a device, one entry each.

    Attributes:
        bytes: int64.
        first, last: int64, positions in the curve from which and until which it is allocated; `last` is the curve's
            length for one that is never freed.
        call: int64, position in `Trace.calls` of the innermost call that allocated it, −1 for none.
        category: int8, index into `CATEGORIES`.
        before: bool, it was there before the trace.
    """

    bytes: IntColumn
    first: IntColumn
    last: IntColumn
    call: Positions[int, CallIndex]
    category: npt.NDArray[np.int8]
    before: npt.NDArray[np.bool_]

    def __repr__(self) -> str:
        return brief(self)

    def take(self, rows: npt.NDArray[Any]) -> Blocks:
        """Those at some positions, or of a mask."""
        return Blocks(*(column[rows] for column in self))  # type: ignore[arg-type]


class MemoryHolder(Row):
    """Blocks that are allocated at the peak, by what allocated them."""

    device: str = column("name", "Device.")
    operator: str = column("name", "Topmost operator, or in brackets what is known instead.", "allocated by")
    modules: tuple[str, ...] = column("name", "Modules and annotations around it, outermost first.", joined=" / ")
    category: str = inferred("text", "Parameter, gradient, activation and so on.")
    blocks: int = column("count", "Number of blocks.")
    bytes: int = column("bytes", "Their size.", "bytes")
    source: str = inferred("name", "Line of own code that called it, empty if unknown.", default="")
    phase: str = inferred("text", "forward, backward, optimizer and so on; empty if unknown.", default="")


class OutlivingRow(Row):
    """Blocks allocated in one iteration and held at its end, over all iterations."""

    device: str = column("name", "Device.")
    operator: str = column("name", "Topmost operator, or in brackets what is known instead.", "allocated by")
    category: str = inferred("text", "Parameter, gradient, activation and so on.")
    blocks: int = column("count", "Number of blocks.")
    bytes: int = column("bytes", "Their size.", "bytes")
    next_bytes: int = column("bytes", "Size of the blocks that are freed in the next iteration.", "freed in next")
    kept_bytes: int = column("bytes", "Size of the blocks that are never freed in the trace.", "never freed")

    title = "memory that outlives the iteration it was allocated in, MB"
    shown = (
        TextColumn("allocated by", lambda row: f"{row.device} {row.operator}"),
        *("category", "blocks", "bytes", "next_bytes", "kept_bytes"),
    )


class MemoryPoint(Row):
    """Memory of a device from one change to the next."""

    device: str = column("name", "Device.")
    ts_ns: int = column("ns", "Time of the change, on the trace's clock.", "time")
    allocated: int = column("bytes", "Bytes allocated.")
    reserved: int | None = column("bytes", "Bytes that the allocator holds, null if not recorded.")


class DeviceMemory(Row):
    """Memory of a device.

    Attributes:
        source: EVENTS or TENSORS.
        ts: int64 ns, ascending. allocated: int64, bytes from that time until the next. reserved: int64, of the
            allocator, −1 if not recorded.
        base: bytes allocated before the trace, as far as is recorded.
        held: the blocks that are known to be allocated.
        holders: of the peak, the most bytes first; their sum is `allocated[peak]`.
        outliving: the most bytes first.
    """

    device: str = column("name", "Device, as str(torch.device).")
    source: str = column("text", "allocator events, or tensors of the Execution Trace.")
    ts: IntColumn
    allocated: IntColumn
    reserved: IntColumn
    base: int
    held: Blocks
    holders: Table[MemoryHolder]
    outliving: Table[OutlivingRow]

    @derived("number")
    def number(self) -> int:
        """Number of the device, −1 for the CPU; 0 if not recorded."""
        number = self.device.rpartition(":")[2]
        return -1 if self.device == "cpu" else int(number) if number.isdecimal() and len(number) < _MAX_DIGITS else 0

    @derived("bytes", "peak")
    def peak_bytes(self) -> int:
        """Bytes allocated at the peak."""
        return int(self.allocated[self.peak])

    @derived("ns", "at")
    def peak_ns(self) -> int:
        """Time of the peak, on the trace's clock."""
        return int(self.ts[self.peak])

    @derived("bytes", "reserved")
    def reserved_peak_bytes(self) -> int | None:
        """Most bytes that the allocator held, null if not recorded."""
        return int(self.reserved.max()) if self.reserves else None

    @derived("bytes", "before")
    def before_bytes(self) -> int:
        """Bytes allocated before the trace, as far as recorded."""
        return self.base

    @derived("bytes", "end")
    def end_bytes(self) -> int:
        """Bytes allocated at the end."""
        return int(self.allocated[-1])

    @derived("count")
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.held.bytes)

    @derived("bytes")
    def allocated_bytes(self) -> int:
        """Sum of the sizes of all blocks."""
        return int(self.held.bytes.sum())

    @property
    def peak(self) -> int:
        """Position of the greatest `allocated`, the first of several."""
        return int(self.allocated.argmax())

    @property
    def reserves(self) -> bool:
        """Whether the allocator's reserved bytes are recorded; that of the CPU reserves nothing."""
        return int(self.reserved.min(initial=0)) >= 0 and int(self.reserved.max(initial=0)) > 0

    def to_pandas(self) -> Any:
        """A pandas DataFrame of its course: allocated and reserved bytes from each time on."""
        return self.curve().to_pandas()

    def curve(self) -> Table[MemoryPoint]:
        """A row for each time at which it changes."""
        points = zip(self.ts.tolist(), self.allocated.tolist(), self.reserved.tolist(), strict=True)
        return Table(
            MemoryPoint,
            (MemoryPoint(self.device, ts, held, None if reserved < 0 else reserved) for ts, held, reserved in points),
        )

    @property
    def by_category(self) -> dict[str, int]:
        """Bytes at the peak by category, the most first."""
        found: dict[str, int] = {}
        for row in self.holders:
            found[row.category] = found.get(row.category, 0) + row.bytes
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def device_memory(trace: Trace, storages: Callable[[], Storages] | None = None) -> Records[DeviceMemory]:
    """Memory of each device that the trace says something about, the greatest peak first.

    Args:
        storages: gives those of the trace where they are needed, if somebody has them.

    Example:
        >>> [(one.device, one.source, one.peak_bytes > 0) for one in device_memory(trace)]
        [('cpu', 'tensors of the ET', True)]
    """
    if len(trace.memory):
        found = _from_events(trace)
    else:
        found = _from_tensors(trace, storages_of(trace) if storages is None else storages())
    return Records(sorted(found, key=lambda memory: (-memory.peak_bytes, memory.device)))


def thinned(ts: IntColumn, values: IntColumn, most: int) -> IntColumn:
    """Positions of a step function's points that show its course: the greatest and the last of each of `most` spans.

    Example:
        >>> thinned(np.arange(6), np.array([1, 5, 2, 0, 3, 1]), 2).tolist()
        [1, 2, 4, 5]
    """
    if len(ts) <= 2 * most:
        return np.arange(len(ts))
    part = (ts - ts[0]) // (int(ts[-1] - ts[0]) // most + 1)
    order = np.lexsort((np.arange(len(ts)), -values, part))
    heads = np.flatnonzero(np.diff(part, prepend=-1))
    return distinct(np.concatenate([order[heads], np.append(heads[1:], len(ts)) - 1]))


def _from_events(trace: Trace) -> Iterator[DeviceMemory]:
    memory, backward = trace.memory, Backward.of(trace)
    position = np.full(len(trace) + 1, -1, np.int64)
    position[trace.calls.source] = np.arange(len(trace.calls))
    call = position[memory.row]
    for kind, number in distinct_rows(memory.device_type, memory.device)[0].tolist():
        at = np.flatnonzero((memory.device_type == kind) & (memory.device == number))
        ts, size, allocated = memory.ts[at], memory.bytes[at], memory.allocated[at]
        known = np.flatnonzero(allocated >= 0)
        running = np.cumsum(size)
        base = int(allocated[known[0]] - running[known[0]]) if len(known) else int(-min(running.min(), 0))
        allocated = np.where(allocated >= 0, allocated, base + running)
        first, last = _paired(memory.address[at], size)
        end = np.append(ts, trace.span.end + 1)[last]
        by = as_positions(call[at[first]])
        category = category_of_blocks(trace, backward, by, ts[first], end)
        blocks = Blocks(size[first], first, last, by, category, np.zeros(len(first), np.bool_))
        yield _device(trace, device_label(kind, number), EVENTS, ts, allocated, memory.reserved[at], base, blocks)


def _paired(address: IntColumn, size: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Positions of the allocations among a device's events, and of each what ends it: the next event of that address,
    the number of events if there is none. Blocks without an address are not followed."""
    order = np.argsort(address, kind="stable")
    after = np.full(len(order), len(order), np.int64)
    same = address[order[1:]] == address[order[:-1]]
    after[order[:-1][same]] = order[1:][same]
    first = np.flatnonzero((size > 0) & (address != -1))
    return first, after[first]


def _from_tensors(trace: Trace, held: Storages) -> Iterator[DeviceMemory]:
    if not len(held):
        return
    backward = Backward.of(trace)
    category, end = category_of_storages(trace, backward, held)
    device = np.array(held.device)
    for name in sorted(set(held.device) - {"meta"}):
        yield _device_of_storages(trace, name, held, np.flatnonzero(device == name), category, end)


def _device_of_storages(
    trace: Trace, device: str, held: Storages, at: IntColumn, category: npt.NDArray[np.int8], until: IntColumn
) -> DeviceMemory:
    begin, end, size, before = held.begin[at], until[at], held.bytes[at], held.call[at] < 0
    moments = np.concatenate([begin, end])
    step = np.concatenate([size, -size])
    order = np.lexsort((step, moments))  # what ends makes room for what begins then
    ts, running = moments[order], np.cumsum(step[order])
    last_of = np.append(np.flatnonzero(np.diff(ts)), len(ts) - 1)
    ts, allocated = ts[last_of], running[last_of]
    first, last = np.searchsorted(ts, begin), np.searchsorted(ts, end)
    last = np.where(end > trace.span.end, len(ts), last)
    kept = ts <= trace.span.end
    blocks = Blocks(size, first, np.minimum(last, np.count_nonzero(kept)), held.call[at], category[at], before)
    none = np.full(np.count_nonzero(kept), -1, np.int64)
    base = int(size[before].sum())
    return _device(trace, device, TENSORS, ts[kept], allocated[kept], none, base, blocks)


def _device(
    trace: Trace, device: str, source: str, ts: IntColumn, allocated: IntColumn, reserved: IntColumn, base: int,
    blocks: Blocks,
) -> DeviceMemory:  # fmt: skip
    peak = int(allocated.argmax())
    held = blocks.take((blocks.first <= peak) & (blocks.last > peak))
    holders = _holders(trace, device, held)
    rest = int(allocated[peak] - held.bytes.sum())
    if rest:
        holders.append(MemoryHolder(device, _BEFORE if 0 < rest <= base else _NOT_RECORDED, (), UNKNOWN, 0, rest))
    holders.sort(key=lambda row: (-row.bytes, row.operator, row.modules, row.category))
    outliving = _outliving(trace, device, ts, blocks)
    tables = Table(MemoryHolder, holders), Table(OutlivingRow, outliving)
    return DeviceMemory(device, source, ts, allocated, reserved, base, blocks, *tables)


def _holders(trace: Trace, device: str, blocks: Blocks) -> list[MemoryHolder]:
    path = np.append(trace.hierarchy.path, 0)[blocks.call]
    entry, phase = (np.append(column, none)[blocks.call] for column, none in _origins(trace))
    line = np.where(entry >= 0, np.append(trace.source_table.of_entry, -1)[entry], -1)
    distinct, group = distinct_rows(_operators(trace, blocks), path, blocks.category, line, phase)
    count, total = np.bincount(group, minlength=len(distinct)), sums(group, blocks.bytes, len(distinct))
    lines = [f"{line.file}:{line.line}" for line in trace.source_table.lines]
    return [
        MemoryHolder(
            device, _operator_name(trace, operator), tuple(trace.names[code] for code in trace.hierarchy.regions(at)),
            CATEGORIES[kind], int(count[row]), int(total[row]), lines[of] if of >= 0 else "", PHASES[part],
        )
        for row, (operator, at, kind, of, part) in enumerate(distinct.tolist())
    ]  # fmt: skip


def _origins(trace: Trace) -> tuple[tuple[IntColumn, int], tuple[IntColumn, int]]:
    """By call the entry of its stack and its phase, each with what stands for none."""
    return (trace.origin.entry, -1), (trace.origin.phase.astype(np.int64), 0)


def _operators(trace: Trace, blocks: Blocks) -> IntColumn:
    """Of each block the name code of the topmost operator that allocated it, else of the annotation; −1 for none, −2 if
    it was there before."""
    top = np.append(trace.hierarchy.top, -1)[blocks.call]
    name = np.append(trace.calls.name, -1)[np.where(top >= 0, top, blocks.call)]
    return np.where(blocks.before, -2, name).astype(np.int64)


def _operator_name(trace: Trace, code: int) -> str:
    return trace.name_at(code) if code >= 0 else _BEFORE if code == -2 else _OUTSIDE


def _outliving(trace: Trace, device: str, ts: IntColumn, blocks: Blocks) -> list[OutlivingRow]:
    """By operator and category, blocks whose iteration ends before they are freed."""
    steps = trace.steps
    if not len(steps) or not len(blocks.bytes):
        return []
    step = np.where(blocks.before, -1, steps.of(ts[blocks.first]))
    freed = np.append(ts, np.iinfo(np.int64).max)[blocks.last]
    late = (step >= 0) & (freed > steps.end[step])
    blocks, step, freed = blocks.take(late), step[late], freed[late]
    following = np.append(steps.end, -1)[step + 1]
    distinct, group = distinct_rows(_operators(trace, blocks), blocks.category)
    size = len(distinct)
    never = blocks.last == len(ts)
    count, total = np.bincount(group, minlength=size), sums(group, blocks.bytes, size)
    soon = sums(group, np.where(freed <= following, blocks.bytes, 0), size)
    kept = sums(group, np.where(never, blocks.bytes, 0), size)
    rows = [
        OutlivingRow(
            device, _operator_name(trace, operator), CATEGORIES[kind], int(count[at]), int(total[at]), int(soon[at]),
            int(kept[at]),
        )
        for at, (operator, kind) in enumerate(distinct.tolist())
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row.bytes, row.operator, row.category))
