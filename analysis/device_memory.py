"""Device and host memory over time: allocated bytes, what the peak consists of, and blocks that outlive a step.

The data comes from allocator events if they are recorded (`profile_memory=True`), and otherwise from the tensor
storages in the ET. docs/reference/analysis.md defines the terms.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..trace.brief import brief
from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, distinct, distinct_rows, inverse_positions, matching
from ..trace.index import CallIndex, Positions, as_positions
from ..trace.intervals import sums
from ..trace.kinds import PHASES
from ..trace.tables import OP, device_label
from ..trace.trace import Trace
from .storages import Storages, storages_of
from .table import Records, Row, Table, TextColumn, column, derived, inferred

UNKNOWN = "unknown"
CATEGORIES = (UNKNOWN, "parameter", "gradient", "optimizer state", "activation", "temporary")
_UNKNOWN, _PARAMETER, _GRADIENT, _STATE, _ACTIVATION, _TEMPORARY = range(len(CATEGORIES))
_Flags = npt.NDArray[np.bool_]

_OPTIMIZER = re.compile(r"Optimizer\.\w+#.*")  # torch.optim annotates `step` and `zero_grad`
_ZERO_GRAD = re.compile(r"Optimizer\.zero_grad#.*")
_NODE = re.compile(r"autograd::engine::evaluate_function: .*")  # this call contains the operators of a backward node

EVENTS, TENSORS = "allocator events", "tensors of the ET"  # Possible values of `DeviceMemory.source`.
_BEFORE = "(allocated before the trace)"
_NOT_RECORDED = "(allocation not recorded)"
_OUTSIDE = "(outside any operator)"
_MAX_DIGITS = 8  # device numbers have fewer digits
_Curve = tuple[IntColumn, IntColumn, IntColumn]  # times of changes, allocated bytes, reserved bytes
_OPERATOR = "Topmost operator that allocated the blocks or, if it is unknown, the reason in brackets."


class Blocks(NamedTuple):
    bytes: IntColumn
    first: IntColumn  # position in the curve at which the block is allocated
    last: IntColumn  # position in the curve at which the block is freed, or the length of the curve if never freed
    call: Positions[int, CallIndex]  # innermost call that allocated the block, or −1 if there is none
    category: npt.NDArray[np.int8]  # index into `CATEGORIES`
    before: npt.NDArray[np.bool_]  # True if the block was allocated before the trace

    def __repr__(self) -> str:
        return brief(self)

    def take(self, rows: npt.NDArray[Any]) -> Blocks:
        return Blocks(*(column[rows] for column in self))  # type: ignore[arg-type]


class MemoryHolder(Row):
    device: str = column("name", "Device, such as cuda:0.")
    operator: str = column("name", _OPERATOR, "allocated by")
    modules: tuple[str, ...] = column("name", "Enclosing modules and annotations, outermost first.", joined=" / ")
    category: str = inferred("text", "Use of the blocks: parameter, gradient, activation and so on.")
    blocks: int = column("count", "Number of blocks.")
    bytes: int = column("bytes", "Sum of the block sizes.", "bytes")
    source: str = inferred("name", "Line of your code that allocated the blocks; empty if unknown.", default="")
    phase: str = inferred("text", "Phase, such as forward, backward or optimizer; empty if unknown.", default="")


class OutlivingRow(Row):
    """Blocks still allocated at the end of the iteration that allocated them, summed over all iterations."""

    device: str = column("name", "Device, such as cuda:0.")
    operator: str = column("name", _OPERATOR, "allocated by")
    category: str = inferred("text", "Use of the blocks: parameter, gradient, activation and so on.")
    blocks: int = column("count", "Number of blocks.")
    bytes: int = column("bytes", "Sum of the block sizes.", "bytes")
    next_bytes: int = column("bytes", "Bytes freed in the next iteration.", "freed in next")
    kept_bytes: int = column("bytes", "Bytes not freed before the end of the trace.", "never freed")

    title = "memory that outlives the iteration that allocated it, MB"
    shown = (
        TextColumn("allocated by", lambda row: f"{row.device} {row.operator}"),
        *("category", "blocks", "bytes", "next_bytes", "kept_bytes"),
    )


class MemoryPoint(Row):
    device: str = column("name", "Device, such as cuda:0.")
    ts_ns: int = column("ns", "Time of the change on the clock of the trace.", "time")
    allocated: int = column("bytes", "Bytes allocated.")
    reserved: int | None = column("bytes", "Bytes reserved by the allocator; null if not recorded.")


class DeviceMemory(Row):
    """Memory of a device over time.

    Attributes:
        ts: times at which the memory changes, int64 ns, ascending.
        allocated, reserved: bytes from each time in `ts` until the next time; reserved bytes are −1 if unknown.
        base: bytes that were allocated before the trace, if recorded.
        holders: the blocks at the peak, most bytes first; their sizes add up to `allocated[peak]`."""

    device: str = column("name", "Device, formatted like str(torch.device).")
    source: str = column("text", "Data source: 'allocator events' or 'tensors of the ET'.")
    ts: IntColumn
    allocated: IntColumn
    reserved: IntColumn
    base: int
    held: Blocks
    holders: Table[MemoryHolder]
    outliving: Table[OutlivingRow]

    @derived("number")
    def number(self) -> int:
        """Device number; −1 for the CPU, 0 if not recorded."""
        number = self.device.rpartition(":")[2]
        return -1 if self.device == "cpu" else int(number) if number.isdecimal() and len(number) < _MAX_DIGITS else 0

    @derived("bytes", "peak")
    def peak_bytes(self) -> int:
        """Bytes allocated at the peak."""
        return int(self.allocated[self.peak])

    @derived("ns", "at")
    def peak_ns(self) -> int:
        """Time of the peak on the clock of the trace."""
        return int(self.ts[self.peak])

    @derived("bytes", "reserved")
    def reserved_peak_bytes(self) -> int | None:
        """Maximum of the bytes that the allocator reserved; null if not recorded."""
        return int(self.reserved.max()) if self.reserves else None

    @derived("bytes", "before")
    def before_bytes(self) -> int:
        """Bytes allocated before the trace, if recorded."""
        return self.base

    @derived("bytes", "end")
    def end_bytes(self) -> int:
        """Bytes allocated at the end of the trace."""
        return int(self.allocated[-1])

    @derived("count")
    def blocks(self) -> int:
        """Number of allocated blocks."""
        return len(self.held.bytes)

    @derived("bytes")
    def allocated_bytes(self) -> int:
        """Sum of the sizes of all blocks."""
        return int(self.held.bytes.sum())

    @property
    def peak(self) -> int:
        return int(self.allocated.argmax())

    @property
    def reserves(self) -> bool:
        """True if the trace records reserved bytes; the CPU allocator never reserves memory."""
        return int(self.reserved.min(initial=0)) >= 0 and int(self.reserved.max(initial=0)) > 0

    def to_pandas(self) -> Any:
        return self.curve().to_pandas()

    def curve(self) -> Table[MemoryPoint]:
        points = zip(self.ts.tolist(), self.allocated.tolist(), self.reserved.tolist(), strict=True)
        rows = (MemoryPoint(self.device, ts, held, None if size < 0 else size) for ts, held, size in points)
        return Table(MemoryPoint, rows)

    @property
    def by_category(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for row in self.holders:
            total[row.category] += row.bytes
        return dict(total.most_common())


def device_memory(trace: Trace, storages: Callable[[], Storages] | None = None) -> Records[DeviceMemory]:
    """Return the memory per device, largest peak first. Pass `storages` to avoid computing them again."""
    if len(trace.memory):
        memories = _from_events(trace)
    else:
        memories = _from_tensors(trace, storages_of(trace) if storages is None else storages())
    return Records(sorted(memories, key=lambda memory: (-memory.peak_bytes, memory.device)))


def thinned(ts: IntColumn, values: IntColumn, most: int) -> IntColumn:
    """Return the positions of the maximum and the last value in each of `most` equal time spans of a step function."""
    if len(ts) <= 2 * most:
        return np.arange(len(ts))
    part = (ts - ts[0]) // (int(ts[-1] - ts[0]) // most + 1)
    order = np.lexsort((np.arange(len(ts)), -values, part))
    heads = np.flatnonzero(np.diff(part, prepend=-1))
    return distinct(np.concatenate([order[heads], np.append(heads[1:], len(ts)) - 1]))


def _from_events(trace: Trace) -> Iterator[DeviceMemory]:
    memory, backward = trace.memory, Backward.of(trace)
    call = inverse_positions(len(trace) + 1, trace.calls.source)[memory.row]
    for kind, number in distinct_rows(memory.device_type, memory.device)[0].tolist():
        rows = np.flatnonzero((memory.device_type == kind) & (memory.device == number))
        ts, size, allocated = memory.ts[rows], memory.bytes[rows], memory.allocated[rows]
        known = np.flatnonzero(allocated >= 0)
        running = np.cumsum(size)
        base = int(allocated[known[0]] - running[known[0]]) if len(known) else int(-min(running.min(), 0))
        allocated = np.where(allocated >= 0, allocated, base + running)
        first, last = _paired(memory.address[rows], size)
        end = np.append(ts, trace.span.end + 1)[last]
        by = as_positions(call[rows[first]])
        category = category_of_blocks(trace, backward, by, ts[first], end)
        blocks = Blocks(size[first], first, last, by, category, np.zeros(len(first), np.bool_))
        yield _device(trace, device_label(kind, number), EVENTS, (ts, allocated, memory.reserved[rows]), base, blocks)


def _paired(address: IntColumn, size: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return two arrays for one device: positions of allocations, and positions of the next events at their addresses.

    If no such event exists, the second position is the number of events. Allocations without an address are ignored.
    """
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
    order = np.lexsort((step, moments))  # At equal times, the sort puts frees before allocations.
    ts, running = moments[order], np.cumsum(step[order])
    last_of = np.append(np.flatnonzero(np.diff(ts)), len(ts) - 1)
    ts, allocated = ts[last_of], running[last_of]
    first, last = np.searchsorted(ts, begin), np.searchsorted(ts, end)
    last = np.where(end > trace.span.end, len(ts), last)
    kept = ts <= trace.span.end
    blocks = Blocks(size, first, np.minimum(last, np.count_nonzero(kept)), held.call[at], category[at], before)
    none = np.full(np.count_nonzero(kept), -1, np.int64)
    base = int(size[before].sum())
    return _device(trace, device, TENSORS, (ts[kept], allocated[kept], none), base, blocks)


def _device(trace: Trace, device: str, source: str, curve: _Curve, base: int, blocks: Blocks) -> DeviceMemory:
    ts, allocated, reserved = curve
    peak = int(allocated.argmax())
    held = blocks.take((blocks.first <= peak) & (blocks.last > peak))
    holders = _holders(trace, device, held)
    unexplained = int(allocated[peak] - held.bytes.sum())
    if unexplained:
        label = _BEFORE if 0 < unexplained <= base else _NOT_RECORDED
        holders.append(MemoryHolder(device, label, (), UNKNOWN, 0, unexplained))
    holders.sort(key=lambda row: (-row.bytes, row.operator, row.modules, row.category))
    tables = Table(MemoryHolder, holders), Table(OutlivingRow, _outliving(trace, device, ts, blocks))
    return DeviceMemory(device, source, ts, allocated, reserved, base, blocks, *tables)


def _holders(trace: Trace, device: str, blocks: Blocks) -> list[MemoryHolder]:
    path = np.append(trace.hierarchy.path, 0)[blocks.call]
    entry = np.append(trace.origin.entry, -1)[blocks.call]
    phase = np.append(trace.origin.phase.astype(np.int64), 0)[blocks.call]
    line = np.where(entry >= 0, np.append(trace.source_table.of_entry, -1)[entry], -1)
    distinct, group = distinct_rows(_operators(trace, blocks), path, blocks.category, line, phase)
    count, total = np.bincount(group, minlength=len(distinct)), sums(group, blocks.bytes, len(distinct))
    lines = [line.file_line for line in trace.source_table.lines]
    rows = []
    for row, (operator, place, kind, code, part) in enumerate(distinct.tolist()):
        modules = tuple(trace.names[region] for region in trace.hierarchy.regions(place))
        held = CATEGORIES[kind], int(count[row]), int(total[row])
        source = lines[code] if code >= 0 else ""
        rows.append(MemoryHolder(device, _operator_name(trace, operator), modules, *held, source, PHASES[part]))
    return rows


def _operators(trace: Trace, blocks: Blocks) -> IntColumn:
    """Return the name code of the topmost operator, or otherwise of the annotation, that allocated each block.

    The code is −1 if no call allocated the block and −2 if the block was allocated before the trace.
    """
    top = np.append(trace.hierarchy.top, -1)[blocks.call]
    name = np.append(trace.calls.name, -1)[np.where(top >= 0, top, blocks.call)]
    return np.where(blocks.before, -2, name).astype(np.int64)


def _operator_name(trace: Trace, code: int) -> str:
    return trace.name_at(code) if code >= 0 else _BEFORE if code == -2 else _OUTSIDE


def _outliving(trace: Trace, device: str, ts: IntColumn, blocks: Blocks) -> list[OutlivingRow]:
    """Return the blocks freed after the iteration that allocated them, grouped by operator and category."""
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
    columns = (count, total, soon, kept)
    rows = [
        OutlivingRow(
            device, _operator_name(trace, operator), CATEGORIES[kind], *(int(column[row]) for column in columns)
        )
        for row, (operator, kind) in enumerate(distinct.tolist())
    ]
    return sorted(rows, key=lambda row: (-row.bytes, row.operator, row.category))


# Categories


@dataclass(frozen=True)
class Backward:
    """Each call's optimizer step and backward node, and the start times of optimizer annotations in ns."""

    optimizer: IntColumn  # for each call: its innermost optimizer annotation (possibly the call itself); −1 if none
    node: IntColumn  # for each call outside the optimizer: the innermost autograd node that encloses it; −1 if none
    optimizer_ts: IntColumn
    zero_grad_ts: IntColumn

    @staticmethod
    def of(trace: Trace) -> Backward:
        calls, every = trace.calls, np.arange(len(trace.calls))
        optimizer, zero, node = (
            matching(calls.name, trace.names, pattern.fullmatch) for pattern in (_OPTIMIZER, _ZERO_GRAD, _NODE)
        )
        optimizer, zero, node = optimizer & (calls.kind != OP), zero & (calls.kind != OP), node & (calls.kind == OP)
        around = nearest(every, calls.parent, optimizer)
        inside = np.where(around >= 0, -1, nearest(every, calls.parent, node))
        return Backward(around, inside, np.sort(calls.ts[optimizer]), np.sort(calls.ts[zero]))


def category_of_storages(trace: Trace, backward: Backward, held: Storages) -> tuple[npt.NDArray[np.int8], IntColumn]:
    """Return each storage's category, derived from the calls that use it, and the time (ns) when it is released.

    A storage that a backward node uses last is released when the node ends. A gradient is released when the next
    `zero_grad` begins. Parameters and optimizer state are never released during the trace.
    """
    calls = trace.calls
    in_optimizer, in_backward = backward.optimizer >= 0, backward.node >= 0
    stepped, derived = held.any_use(in_optimizer), held.any_use(in_backward)
    forward = held.any_use(~in_optimizer & ~in_backward)
    before = held.call < 0
    made = np.maximum(held.call, 0)
    by_optimizer, by_backward = (~before & mask[made] for mask in (in_optimizer, in_backward))
    top = trace.hierarchy.top[made]
    inside = held.end <= calls.end[np.where(top >= 0, top, made)]
    step_end = calls.end[np.maximum(backward.optimizer[made], 0)]
    cases = (
        (before & stepped & forward, _PARAMETER),
        (before & stepped & derived, _GRADIENT),
        (before & stepped, _STATE),
        (before, _UNKNOWN),
        (by_optimizer & (held.end > step_end), _STATE),
        (by_optimizer, _TEMPORARY),
        (by_backward & stepped, _GRADIENT),
        (by_backward | inside, _TEMPORARY),
    )
    category = _first_case(cases)
    node = backward.node[held.uses]
    node_end = np.where(node >= 0, calls.end[np.maximum(node, 0)], 0)
    end = np.maximum(held.end, np.maximum.reduceat(node_end, held.first[:-1]))
    after = trace.span.end + 1
    released = np.append(backward.zero_grad_ts, after)[np.searchsorted(backward.zero_grad_ts, end)]
    end = np.where(category == _GRADIENT, released, end)
    return category, np.where(np.isin(category, (_PARAMETER, _STATE)), after, end)


def category_of_blocks(
    trace: Trace, backward: Backward, call: Positions[int, CallIndex], begin: IntColumn, end: IntColumn
) -> npt.NDArray[np.int8]:
    """Return each block's category, derived from its lifetime and from the call that allocated it."""
    if not len(trace.calls):
        return np.full(len(call), _UNKNOWN, np.int8)
    calls, made = trace.calls, np.maximum(call, 0)
    top = trace.hierarchy.top[made]
    inside = end <= calls.end[np.where(top >= 0, top, made)]
    optimizer, node = backward.optimizer[made], backward.node[made]
    left_step = end > calls.end[np.maximum(optimizer, 0)]
    stepped = np.append(backward.optimizer_ts, np.iinfo(np.int64).max)[np.searchsorted(backward.optimizer_ts, begin)]
    kept = end > trace.span.end
    cases = (
        (call < 0, _UNKNOWN),
        ((optimizer >= 0) & left_step, _STATE),
        (optimizer >= 0, _TEMPORARY),
        ((node >= 0) & (end > stepped), _GRADIENT),
        ((node >= 0) & kept, _UNKNOWN),
        ((node >= 0) | inside, _TEMPORARY),
        (kept, _UNKNOWN),
    )
    return _first_case(cases)


def _first_case(cases: Sequence[tuple[_Flags, int]]) -> npt.NDArray[np.int8]:
    conditions, categories = zip(*cases, strict=True)
    category: npt.NDArray[np.int8] = np.select(conditions, categories, _ACTIVATION).astype(np.int8)
    return category
