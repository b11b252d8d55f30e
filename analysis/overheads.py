"""Host overheads around operators and launches, per operator and runtime call, pooled over files.

There are five types, with c the host's cost of one profiler event and only topmost operators (see `hierarchy`):

- T1: gap between consecutive operators with the same thread and calling operator, minus c; below 200 µs.
- T2: from an operator's start to its first launch, minus c per event before it.
- T3: from the end of an operator's last launch to its end, minus c per event after it.
- T4: the launching call, as measured.
- T5: between two launches, minus c per event between them. Without launches, the operator's duration minus c per
event.

Launches are the runtime calls that started a GPU event; events are the calls inside the operator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from ..schemas.text.files import Source, read_struct
from ..trace.brief import brief
from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, StringTable, grouped, percentiles_of, run_starts
from ..trace.tables import OP
from ..trace.trace import Trace

# Host cost of one profiler event.
DEFAULT_EVENT_NS = 2000

_T1_BELOW_NS = 200_000
_FENCE = 1.5


@dataclass(frozen=True)
class OverheadRows:
    """Single measurements in ns, unclipped and with outliers."""

    # int8, 1 to 5.
    type: npt.NDArray[np.int8]
    # int32 code into `keys`: the operator (T2, T3, T5), the runtime call (T4), "" (T1).
    key: npt.NDArray[np.int32]
    # int64 ns, may be negative.
    value: IntColumn
    keys: list[str]
    # Operator and its launching runtime calls, to the number of occurrences.
    sequences: Mapping[tuple[str, tuple[str, ...]], int]
    # Number of gaps of 200 µs or more, which are left out.
    too_long: int

    __repr__ = brief


class Statistic(msgspec.Struct, frozen=True):
    """Statistics of rows, in µs."""

    # `mean` and `std` exclude outliers and, for T1, clipped rows.
    mean: float
    std: float
    # Number of rows in `mean`.
    n: int
    # Negative rows, set to zero. For T1, these operators have no gap between them and are left out of `mean`.
    clipped: int
    # Rows beyond 1.5 interquartile ranges, left out.
    outliers: int
    # `mean` including outliers.
    mean_with_outliers: float

    __repr__ = brief

    @property
    def expected(self) -> float:
        """Average µs of a gap, including outliers and clipped rows."""
        rows = self.n + self.outliers
        return self.mean_with_outliers * rows / (rows + self.clipped) if rows else 0.0


class Overheads(msgspec.Struct, frozen=True):
    """All overheads by name; keys are operators (T2, T3, T5, launches) or runtime calls (T4)."""

    # Gaps between operators.
    t1: Statistic
    t2: dict[str, Statistic]
    t3: dict[str, Statistic]
    t4: dict[str, Statistic]
    t5: dict[str, Statistic]
    # "t2", "t3", "t4", "t5" to the statistic over all keys.
    all: dict[str, Statistic]
    # Operator to its most frequent sequence of launching calls.
    launches: dict[str, list[str]]
    # Subtracted per event.
    cpu_event_overhead_us: float
    too_long: int = 0
    # The traces.
    files: tuple[str, ...] = ()

    __repr__ = brief


def overhead_rows(
    trace: Trace,
    event_ns: int = DEFAULT_EVENT_NS,
    *,
    by_shape: bool = False,
    counted: npt.NDArray[np.bool_] | None = None,
) -> OverheadRows:
    """Measure the overheads of one trace.

    Args:
        event_ns: host cost of one profiler event.
        by_shape: key operators by name and input shapes.
        counted: mask by `source` of the calls to count; all if None.
    """
    runtime, top = trace.runtime, trace.hierarchy.top
    ops = np.flatnonzero(top == np.arange(len(trace.calls)))
    launches, owner = _launches(trace)
    if not trace.times_recorded:  # gaps between operators mean nothing
        ops = ops[:0]
    every = np.flatnonzero(runtime.launches)
    if counted is not None:
        ops, every = ops[counted[trace.calls.source[ops]]], every[counted[runtime.source[every]]]
        of = counted[trace.calls.source[owner]]
        launches, owner = launches[of], owner[of]
    gaps = _gaps(trace, ops) - event_ns
    short = gaps[gaps < _T1_BELOW_NS]
    table = StringTable([""])
    labels = _labels(trace, ops, by_shape)
    called = table.codes([trace.names[code] for code in runtime.name[every].tolist()])
    parts = [(1, np.zeros(len(short), np.int32), short), (4, called, (runtime.end - runtime.ts)[every])]
    for kind, of_ops, value in _of_operators(trace, ops, launches, owner, event_ns):
        parts.append((kind, table.codes([labels[op] for op in of_ops.tolist()]), value))
    kinds, keys, values = zip(*parts, strict=True)
    return OverheadRows(
        type=np.repeat(np.array(kinds, np.int8), [*map(len, values)]),
        key=np.concatenate(keys),
        value=np.concatenate(values),
        keys=table.values,
        sequences=_sequences(trace, labels, launches, owner),
        too_long=len(gaps) - len(short),
    )


def _launches(trace: Trace) -> tuple[IntColumn, IntColumn]:
    runtime, top = trace.runtime, trace.hierarchy.top
    launches = np.flatnonzero(runtime.launches & (runtime.call >= 0))
    launches = launches[top[runtime.call[launches]] >= 0]
    owner = top[runtime.call[launches]]
    order = np.lexsort((runtime.ts[launches], owner))
    return launches[order], owner[order]


def _of_operators(
    trace: Trace, ops: IntColumn, launches: IntColumn, owner: IntColumn, event_ns: int
) -> list[tuple[int, IntColumn, IntColumn]]:
    calls, top = trace.calls, trace.hierarchy.top
    inside = np.flatnonzero((top >= 0) & (top != np.arange(len(calls))))
    start, end = trace.runtime.ts[launches], trace.runtime.end[launches]
    before = _counts_before(top[inside], calls.ts[inside], owner, start)
    total = np.bincount(top[inside], minlength=len(calls))
    first, last = run_starts(owner), run_starts(owner[::-1])[::-1]
    later, bare = np.flatnonzero(~first), ops[~np.isin(ops, owner)]
    return [
        (2, owner[first], start[first] - calls.ts[owner[first]] - before[first] * event_ns),
        (3, owner[last], calls.end[owner[last]] - end[last] - (total[owner] - before)[last] * event_ns),
        (5, owner[later], start[later] - end[later - 1] - (before[later] - before[later - 1]) * event_ns),
        (5, bare, calls.end[bare] - calls.ts[bare] - total[bare] * event_ns),
    ]


def pool(parts: Sequence[OverheadRows]) -> OverheadRows:
    """Concatenate the rows of several traces."""
    table = StringTable()
    keys = [table.codes(part.keys)[part.key] if len(part.key) else part.key for part in parts]
    sequences: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for part in parts:
        sequences.update(part.sequences)
    return OverheadRows(
        np.concatenate([part.type for part in parts]), np.concatenate(keys),
        np.concatenate([part.value for part in parts]), table.values, sequences, sum(part.too_long for part in parts),
    )  # fmt: skip


def summarize(rows: OverheadRows, event_ns: int = DEFAULT_EVENT_NS, files: Sequence[str] = ()) -> Overheads:
    """Summarize rows by operator or call.

    Args:
        event_ns, files: metadata of the result.
    """
    by_key: dict[int, dict[str, Statistic]] = {}
    for kind in (2, 3, 4, 5):
        mine = np.flatnonzero(rows.type == kind)
        named = {rows.keys[key]: _statistic(rows.value[mine[at]]) for (key,), at in grouped(rows.key[mine])}
        by_key[kind] = dict(sorted(named.items()))
    gaps = rows.value[rows.type == 1]
    launches: dict[str, list[str]] = {}
    for (op, calls), _ in sorted(rows.sequences.items(), key=lambda item: (item[0][0], -item[1], item[0][1])):
        launches.setdefault(op, list(calls))
    return Overheads(
        t1=_statistic(gaps[gaps > 0], clipped=int(np.count_nonzero(gaps <= 0))),
        t2=by_key[2], t3=by_key[3], t4=by_key[4], t5=by_key[5],
        all={f"t{kind}": _statistic(rows.value[rows.type == kind]) for kind in (2, 3, 4, 5)},
        launches=launches, cpu_event_overhead_us=event_ns / 1000, too_long=rows.too_long, files=tuple(files),
    )  # fmt: skip


def read_overheads(source: Source) -> Overheads:
    """Read the output of `etplus analyze --overheads`.

    Raises:
        TraceFormatError: the file is missing or has another format.
    """
    return read_struct(source, Overheads, "no file of overheads", "make it with `etplus analyze --overheads`")[0]


def _gaps(trace: Trace, ops: IntColumn) -> IntColumn:
    calls = trace.calls
    above = nearest(calls.parent[ops], calls.parent, calls.kind == OP) if len(ops) else ops
    order = np.lexsort((calls.ts[ops], above, calls.thread[ops]))
    ops, above = ops[order], above[order]
    same = (calls.thread[ops[1:]] == calls.thread[ops[:-1]]) & (above[1:] == above[:-1])
    gaps: IntColumn = (calls.ts[ops[1:]] - calls.end[ops[:-1]])[same]
    return gaps


def _counts_before(group: IntColumn, ts: IntColumn, of: IntColumn, at: IntColumn) -> IntColumn:
    groups, times = np.concatenate([group, of]), np.concatenate([ts, at])
    asks = np.repeat([False, True], [len(group), len(of)])
    order = np.lexsort((asks, times, groups))
    counted = np.cumsum(~asks[order])
    start = np.searchsorted(groups[order], groups[order])
    before = counted - np.where(start > 0, counted[start - 1], 0)
    result = np.empty(len(groups), np.int64)
    result[order] = before
    return result[len(group) :]


def _labels(trace: Trace, ops: IntColumn, by_shape: bool) -> dict[int, str]:
    labels = {}
    for op, name in zip(ops.tolist(), trace.calls.name[ops].tolist(), strict=True):
        signature = trace.signature_of(op) if by_shape else None
        labels[op] = trace.names[name] + (f" {signature.label}" if signature is not None and signature.tensors else "")
    return labels


def _sequences(
    trace: Trace, labels: dict[int, str], launches: IntColumn, owner: IntColumn
) -> Counter[tuple[str, tuple[str, ...]]]:
    names, begin = trace.runtime.name[launches].astype(np.int32).tobytes(), np.flatnonzero(run_starts(owner))
    ends = (4 * begin).tolist(), (4 * np.append(begin, len(owner))[1:]).tolist()
    spans = zip(owner[begin].tolist(), *ends, strict=True)
    found = Counter((labels[op], names[start:end]) for op, start, end in spans)
    sequences: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for (label, text), count in found.items():
        sequences[label, tuple(trace.names[code] for code in np.frombuffer(text, np.int32))] += count
    return sequences


def _statistic(value: IntColumn, clipped: int = 0) -> Statistic:
    if not len(value):
        return Statistic(0.0, 0.0, 0, clipped, 0, 0.0)
    us = np.maximum(value, 0) / 1000
    low, high = percentiles_of(us, 25, 75)
    reach = _FENCE * (high - low)
    kept = us[(us >= low - reach) & (us <= high + reach)]
    return Statistic(
        float(kept.mean()), float(kept.std()), len(kept), clipped + int(np.count_nonzero(value < 0)),
        len(us) - len(kept), float(us.mean()),
    )  # fmt: skip
