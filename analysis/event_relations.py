"""Relations between events of a trace: caller, launch, wait, and forward operator."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn, distinct_rows, matching, run_starts
from ..trace.conventions import EDGE_KINDS
from ..trace.tables import OP
from ..trace.trace import Trace

# These are ET+ edge kinds. "caller" is the enclosing call; "operator" is the innermost call that launched a GPU event.
# "forward" is the forward operator of a backward operator.
RELATIONS = (*EDGE_KINDS, "caller", "operator", "forward")
_CALLER, _OPERATOR, _FORWARD, _LAUNCH = (RELATIONS.index(kind) for kind in ("caller", "operator", "forward", "launch"))
# The autograd engine records this call around each backward operator, with the operator's sequence number.
_AROUND = re.compile(r"autograd::engine::evaluate_function: ")
_BACKWARD = re.compile(r".*Backward\d*\Z")


def relations_of(trace: Trace) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Return three int64 arrays: the source event, the target event and the kind (in `RELATIONS`) of each relation.

    GPU events are numbered first, then calls, then runtime calls. A source or target is −1 if the ET node has no event.
    """
    gpu, calls, runtime = trace.gpu, trace.calls, trace.runtime
    first_call, first_runtime = len(gpu), len(gpu) + len(calls)
    event = event_of_rows(trace)
    forward, backward = backward_of(trace)
    parts = [(event[trace.edges[:, 0]], event[trace.edges[:, 1]], trace.edges[:, 2])]
    for kind, source, shift, target in (
        (_CALLER, calls.parent, first_call, first_call + np.arange(len(calls))),
        (_CALLER, runtime.call, first_call, first_runtime + np.arange(len(runtime))),
        (_OPERATOR, gpu.call, first_call, np.arange(len(gpu))),
        (_LAUNCH, np.where(gpu.source < 0, gpu.runtime, -1), first_runtime, np.arange(len(gpu))),  # if it has no row
        (_FORWARD, forward, first_call, first_call + backward),
    ):
        known = source >= 0
        parts.append((source[known] + shift, target[known], np.full(np.count_nonzero(known), kind, np.int64)))
    source, target, kinds = (np.concatenate(column) for column in zip(*parts, strict=True))
    on_page = (source >= 0) | (target >= 0)
    return source[on_page], target[on_page], kinds[on_page]


def event_of_rows(trace: Trace) -> IntColumn:
    """Return each trace row's event number (int64), or −1. An extra last entry of −1 is selected by index −1."""
    event, first = np.full(len(trace) + 1, -1, np.int64), 0
    for table in (trace.gpu, trace.calls, trace.runtime):
        event[table.source] = np.arange(first, first + len(table))
        first += len(table)
    event[-1] = -1
    return event


def backward_of(trace: Trace) -> tuple[IntColumn, IntColumn]:
    """Return pairs of a forward and a backward operator, as int64 positions in `trace.calls`.

    Autograd numbers the nodes of its graph separately on each thread. A forward operator records the sequence number
    that the next node will get. A backward operator records its node's number and the thread that ran the forward
    operator. As in the "fwdbwd" flows of Kineto, the forward operator is the innermost operator with that number.
    Operators that only Kineto recorded do not have the forward thread, so a number that occurs on several threads is
    ambiguous and skipped."""
    calls, row = trace.calls, trace.calls.source
    around = matching(calls.name, trace.names, _AROUND.match)
    numbered = np.flatnonzero((calls.kind == OP) & (trace.nodes.seq_id[row] >= 0) & ~around)
    numbers, forward_thread = trace.nodes.seq_id[row[numbered]], trace.nodes.fw_tid[row[numbered]]
    recorded = bool(np.any(forward_thread > 0))
    named: npt.NDArray[np.bool_] = matching(calls.name[numbered], trace.names, _BACKWARD.match)
    is_backward = forward_thread > 0 if recorded else named
    thread = np.where(is_backward, forward_thread, calls.thread[numbered]) if recorded else np.zeros(len(numbered))
    order = np.lexsort((numbered, is_backward, calls.ts[numbered], numbers, thread))
    back, number, lane = is_backward[order], numbers[order], thread[order]
    group = np.cumsum(run_starts(number, lane)) - 1
    last = np.maximum.accumulate(np.where(back, -1, np.arange(len(order)))) if len(order) else order
    known = back & (last >= 0)
    known[known] &= group[last[known]] == group[known]
    if not recorded:
        pairs = distinct_rows(group[~back], calls.thread[numbered[order[~back]]])[0]
        threads = np.bincount(pairs[:, 0], minlength=len(order))  # number of forward threads per group
        known &= threads[group] < 2
    backward, forward = numbered[order[known]], numbered[order[last[known]]]
    forward_of = np.full(len(calls) + 1, -2, np.int64)
    forward_of[backward] = forward
    outermost = forward_of[calls.parent[backward]] != forward  # skip callees that share their caller's forward operator
    return forward[outermost], backward[outermost]
