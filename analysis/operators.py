"""Every operator by name: how often it ran, its time on the host and on the device, alone and with what it calls."""

from __future__ import annotations

import numpy as np

from ..trace.call_tree import CallTree, nearest, outermost
from ..trace.columns import distinct_rows
from ..trace.index import as_column
from ..trace.intervals import sums
from ..trace.tables import OP
from ..trace.trace import Trace
from .breakdown import shape_labels
from .table import SELF_COLUMNS, SELF_TIMES, Row, Table, TextColumn, WithMean, column, inferred, repeated


class OperatorRow(WithMean, Row):
    """All calls of an operator, on whichever thread and at whichever depth.

    The sum of `self_ns` over all rows is the CPU time of operators; that of `device_self_ns` is the duration of all GPU
    events launched by operators.
    """

    op: str = column("name", "Operator.", "operator")
    shapes: str = column("name", "Shapes of its inputs, empty if not recorded or not asked for.")
    count: int = column("count", "Number of calls.", "calls")
    self_ns: int = column("ns", "CPU time without the calls inside.", "host self")
    total_ns: int = column("ns", "CPU time; a call inside another of the same row counts once.", "host")
    device_self_ns: int = column("ns", "GPU time that it launched itself, with no operator between.", "GPU self")
    device_total_ns: int = column("ns", "GPU time launched inside it.", "GPU")
    launches: int = column("count", "Number of GPU events in device_self_ns.")
    repeated_ns: int = inferred(
        "ns", "Part of device_self_ns launched before the trace, whose operator is known by repetition.", default=0
    )

    title = f"operators{SELF_TIMES}"
    shown = (TextColumn("operator", lambda row: f"{row.op} {row.shapes}".rstrip() + repeated(row)), *SELF_COLUMNS)


def operator_table(trace: Trace, *, by_shape: bool = False) -> Table[OperatorRow]:
    """One row an operator, the longest device time by itself first, then the longest host time by itself.

    GPU events of replayed graphs count to the operators of the capture, where it was read (`Trace.attribution`); calls
    of captures have no host time and are counted once, as they were captured. Those that were launched before the
    trace count to the operators of their counterparts.

    Args:
        by_shape: one row an operator and the shapes of its inputs.

    Example:
        >>> [row.op for row in operator_table(trace)][:2]
        ['aten::mm', 'aten::addmm']
    """
    owner = trace.attribution
    calls = owner.calls
    ops = np.flatnonzero(calls.kind == OP)
    if not len(ops):
        return Table(OperatorRow)
    labels, label_of = shape_labels(trace)
    label = label_of[calls.signature[ops]] if by_shape else np.zeros(len(ops), np.int64)
    distinct, inverse = distinct_rows(calls.name[ops], label)
    key = np.full(len(calls), -1, np.int64)
    key[ops] = inverse
    own = np.zeros(len(calls), np.int64)
    own[: len(trace.self_ns)] = trace.self_ns
    launcher = nearest(owner.call, calls.parent, calls.kind == OP)
    outer, launched = np.flatnonzero(outermost(calls.parent, key)), np.flatnonzero(launcher >= 0)
    device = np.zeros(len(calls), np.int64)
    np.add.at(device, launcher[launched], trace.gpu.dur[launched])
    below = CallTree.of(calls.parent).totals(calls.parent, as_column(device))
    of, count = key[launcher[launched]], len(distinct)
    columns = (
        np.bincount(key[ops], minlength=count), sums(key[ops], own[ops], count),
        sums(key[outer], (calls.end - calls.ts)[outer], count), sums(of, trace.gpu.dur[launched], count),
        sums(key[outer], below[outer], count), np.bincount(of, minlength=count),
        sums(of, np.where(owner.repetition > 0, trace.gpu.dur, 0)[launched], count),
    )  # fmt: skip
    rows = [
        OperatorRow(trace.names[name], labels[shapes], *values)
        for (name, shapes), *values in zip(distinct.tolist(), *(column.tolist() for column in columns), strict=True)
    ]
    return Table(OperatorRow, sorted(rows, key=lambda row: (-row.device_self_ns, -row.self_ns, row.op, row.shapes)))
