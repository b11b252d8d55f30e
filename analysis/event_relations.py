"""How the events of a trace belong together: who called, launched and waited for whom, forward and backward."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from ..trace.columns import IntColumn, distinct_rows, matching, run_starts
from ..trace.conventions import EDGE_KINDS
from ..trace.tables import OP
from ..trace.trace import Trace

RELATIONS = (*EDGE_KINDS, "caller", "operator", "forward")
"""Kinds of relations: those of the ET+'s edges; the call around a call or runtime call; the innermost call that
launched a device event; the operator whose backward pass an operator is."""
_CALLER, _OPERATOR, _FORWARD, _LAUNCH = (RELATIONS.index(kind) for kind in ("caller", "operator", "forward", "launch"))
_AROUND = re.compile(r"autograd::engine::evaluate_function: ")
"""How the calls begin that autograd's engine records around backward operators, with the same sequence numbers."""
_BACKWARD = re.compile(r".*Backward\d*\Z")


def relations_of(trace: Trace) -> tuple[IntColumn, IntColumn, IntColumn]:
    """All relations of a trace's events: source, target, kind (index into `RELATIONS`), int64, of one length.

    Events are the GPU events, then the calls, then the runtime calls; −1 is a row that is none of them.

    Example:
        >>> source, target, kind = relations_of(trace)
        >>> int(np.count_nonzero(kind == RELATIONS.index("operator"))) == len(trace.gpu)
        True
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
        (_LAUNCH, np.where(gpu.source < 0, gpu.runtime, -1), first_runtime, np.arange(len(gpu))),  # without a row
        (_FORWARD, forward, first_call, first_call + backward),
    ):
        known = source >= 0
        parts.append((source[known] + shift, target[known], np.full(np.count_nonzero(known), kind, np.int64)))
    source, target, kinds = (np.concatenate(column) for column in zip(*parts, strict=True))
    on_page = (source >= 0) | (target >= 0)
    return source[on_page], target[on_page], kinds[on_page]


def event_of_rows(trace: Trace) -> IntColumn:
    """int64, the event of each row of a trace, −1 for a row that is none; one entry more, −1, for row −1."""
    event, first = np.full(len(trace) + 1, -1, np.int64), 0
    for table in (trace.gpu, trace.calls, trace.runtime):
        event[table.source] = np.arange(first, first + len(table))
        first += len(table)
    event[-1] = -1
    return event


def backward_of(trace: Trace) -> tuple[IntColumn, IntColumn]:
    """Operators and those of the backward pass that belong to them, int64 positions in `trace.calls`.

    Autograd numbers the nodes of its graph on each thread; an operator records the number of the node made next, a
    backward operator that of its node and its forward thread. As in Kineto's "fwdbwd" flows, the forward operator is
    the innermost one with the number. Kineto's own operators lack the forward thread: a number that operators of
    several threads have is ambiguous there and left out.
    """
    calls, row = trace.calls, trace.calls.source
    around = matching(calls.name, trace.names, _AROUND.match)
    numbered = np.flatnonzero((calls.kind == OP) & (trace.nodes.seq_id[row] >= 0) & ~around)
    numbers, forward_thread = trace.nodes.seq_id[row[numbered]], trace.nodes.fw_tid[row[numbered]]
    recorded = bool(np.any(forward_thread > 0))
    named: npt.NDArray[np.bool_] = matching(calls.name[numbered], trace.names, _BACKWARD.match)
    is_backward = forward_thread > 0 if recorded else named
    thread = np.where(is_backward, forward_thread, calls.thread[numbered]) if recorded else np.zeros(len(numbered))
    order = np.lexsort((numbered, is_backward, calls.ts[numbered], numbers, thread))
    back, number, of = is_backward[order], numbers[order], thread[order]
    group = np.cumsum(run_starts(number, of)) - 1
    last = np.maximum.accumulate(np.where(back, -1, np.arange(len(order)))) if len(order) else order
    known = back & (last >= 0)
    known[known] &= group[last[known]] == group[known]
    if not recorded:
        pairs = distinct_rows(group[~back], calls.thread[numbered[order[~back]]])[0]
        of_threads = np.bincount(pairs[:, 0], minlength=len(order))  # forward operators of a group: on how many threads
        known &= of_threads[group] < 2
    backward, forward = numbered[order[known]], numbered[order[last[known]]]
    forward_of = np.full(len(calls) + 1, -2, np.int64)
    forward_of[backward] = forward
    outermost = forward_of[calls.parent[backward]] != forward  # not called by a backward operator of the same one
    return forward[outermost], backward[outermost]
