"""Operators by name: the number of calls, and the CPU and GPU times including and excluding callees."""

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

_REPEATED = "Part of device_self_ns launched before the trace; its operator comes from a later repetition."


class OperatorRow(WithMean, Row):
    """All calls of one operator, on any thread and at any depth.

    The sum of `self_ns` over all rows is the CPU time of operators. The sum of `device_self_ns` is the GPU time that
    they launched."""

    op: str = column("name", "Name of the operator.", "operator")
    shapes: str = column("name", "Shapes of the operator's inputs; empty if not recorded or not requested.")
    count: int = column("count", "Number of calls.", "calls")
    self_ns: int = column("ns", "CPU time, excluding callees.", "host self")
    total_ns: int = column("ns", "CPU time, including callees; recursive calls count only once.", "host")
    device_self_ns: int = column("ns", "GPU time that the operator launched directly.", "GPU self")
    device_total_ns: int = column("ns", "GPU time launched by the operator and its callees.", "GPU")
    launches: int = column("count", "Number of GPU events in device_self_ns.")
    repeated_ns: int = inferred("ns", _REPEATED, default=0)

    title = f"operators{SELF_TIMES}"
    shown = (TextColumn("operator", lambda row: f"{row.op} {row.shapes}".rstrip() + repeated(row)), *SELF_COLUMNS)


def operator_table(trace: Trace, *, by_shape: bool = False) -> Table[OperatorRow]:
    """Return one row per operator (or per operator and input shapes), sorted by GPU self time, then by CPU self time.

    GPU events in replayed graphs belong to the operators that launched them during capture (`Trace.attribution`). A
    captured call is counted once and has no CPU time. An event that was launched before the trace belongs to the
    operator that launches the same event in later iterations."""
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
    launch_key, count = key[launcher[launched]], len(distinct)
    dur, again = trace.gpu.dur[launched], np.where(owner.repetition > 0, trace.gpu.dur, 0)[launched]
    columns = (
        *(np.bincount(key[ops], minlength=count), sums(key[ops], own[ops], count)),
        *(sums(key[outer], (calls.end - calls.ts)[outer], count), sums(launch_key, dur, count)),
        *(sums(key[outer], below[outer], count), np.bincount(launch_key, minlength=count)),
        sums(launch_key, again, count),
    )
    rows = [
        OperatorRow(trace.names[name], labels[shapes], *values)
        for (name, shapes), *values in zip(distinct.tolist(), *(column.tolist() for column in columns), strict=True)
    ]
    return Table(OperatorRow, sorted(rows, key=lambda row: (-row.device_self_ns, -row.self_ns, row.op, row.shapes)))
