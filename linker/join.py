"""The stage that attaches: which node each GPU event and runtime call of a pair belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..schemas.kineto.kineto_calls import enclosing_call
from ..trace.columns import IntColumn, scatter
from .attach import Attachment, attach_gpu_events
from .calls import TracePair
from .data_dependencies import data_edges
from .kineto_only import adopt_unattached
from .match.result import Match


@dataclass(frozen=True)
class Join(TracePair):
    """A matched pair with its attachments, as positions in the tables of both traces.

    A row of the trace has a *place*: ET nodes come first, then attached GPU events, then runtime calls.

    Attributes:
        match: the call that each of `nodes` is linked to.
        node_of_call: int64, for each of `calls` the position in `nodes` that is linked to it, −1 for none.
        attachment: the launch of every GPU event.
        gpu_row: int64, event row of each attached GPU event, in order of GPU start.
        gpu_parent: int64, position in `nodes` of each one's parent.
        gpu_launcher: int64, event row of the runtime call that launched each, −1 for none.
        runtime_row: int64, event row of each runtime call in the window, in order of start.
        runtime_parent: int64, position in `nodes` of each one's innermost linked caller, −1 for none.
        has_storages: the nodes can name storages of tensors; nodes made from a Kineto trace cannot.
    """

    match: Match
    node_of_call: IntColumn
    attachment: Attachment
    gpu_row: IntColumn
    gpu_parent: IntColumn
    gpu_launcher: IntColumn
    runtime_row: IntColumn
    runtime_parent: IntColumn
    has_storages: bool = True

    @property
    def gpu_places(self) -> IntColumn:
        """int64, the place of each attached GPU event."""
        return len(self.et) + np.arange(len(self.gpu_row))

    @property
    def runtime_places(self) -> IntColumn:
        """int64, the place of each runtime call."""
        return len(self.et) + len(self.gpu_row) + np.arange(len(self.runtime_row))

    @cached_property
    def data_edges(self) -> tuple[IntColumn, IntColumn]:
        """Writers and readers of tensors; finding them takes as long as matching, so only on request."""
        if not self.has_storages:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return data_edges(self.et, self.nodes)

    @cached_property
    def call_of_node(self) -> IntColumn:
        """int64, for each of `nodes` the position in `calls` that is linked to it, −1 for none."""
        return self.of_nodes(np.arange(len(self.calls)))

    @cached_property
    def node_times(self) -> tuple[IntColumn, IntColumn]:
        """int64 ns, start and end of each of `nodes`, −1 if it is not linked."""
        return self.of_nodes(self.calls.ts), self.of_nodes(self.calls.end)

    def of_nodes(self, values: IntColumn) -> IntColumn:
        """int64, for each of `nodes` the value (one per call) of its call, −1 if it is not linked."""
        at = np.flatnonzero(self.node_of_call >= 0)
        return scatter(len(self.nodes), self.node_of_call[at], values[at])


def join_traces(pair: TracePair, match: Match, *, alone: bool = False) -> Join:
    """Attach GPU events and runtime calls to the nodes of linked calls.

    Args:
        alone: there is no ET. The process then adopts what has no operator, and no runtime call is left out.
    """
    calls, at = pair.calls, np.flatnonzero(match.call >= 0)
    node_of_call = scatter(len(calls), match.call[at], at)
    attachment = attach_gpu_events(pair.kineto, calls, node_of_call >= 0)
    has, nodes = np.flatnonzero(attachment.call >= 0), pair.nodes
    parent = scatter(len(attachment.row), has, node_of_call[attachment.call[has]])
    if alone:
        nodes, attachment, parent = adopt_unattached(pair, attachment, parent)
    runtime = _runtime_calls(pair, node_of_call >= 0, whole=alone)
    events, attached = pair.kineto.events, np.flatnonzero(parent >= 0)
    return Join(
        pair.et,
        pair.kineto,
        nodes,
        calls,
        match,
        node_of_call,
        attachment,
        gpu_row=attachment.row[attached],
        gpu_parent=parent[attached],
        gpu_launcher=attachment.launcher[attached],
        runtime_row=runtime,
        runtime_parent=linked_caller(
            pair, node_of_call, events.thread[runtime], events.ts[runtime], events.end[runtime]
        ),
        has_storages=not alone,
    )


def _runtime_calls(pair: TracePair, linked: npt.NDArray[np.bool_], *, whole: bool) -> IntColumn:
    """Event rows of runtime and driver calls between the first and the last linked call, in order of start."""
    events, calls = pair.kineto.events, pair.calls
    rows = np.flatnonzero(events.runtime_mask())
    if not whole:
        begin, end = calls.ts[linked].min(initial=2**63 - 1), calls.end[linked].max(initial=-1)
        rows = rows[(events.ts[rows] >= begin) & (events.ts[rows] <= end)]
    return rows[np.argsort(events.ts[rows], kind="stable")]


def linked_caller(
    pair: TracePair, node_of_call: IntColumn, thread: npt.NDArray[np.int32], ts: IntColumn, end: IntColumn
) -> IntColumn:
    """Position in `nodes` of the innermost linked call around some events of threads, −1 for none."""
    op = enclosing_call(pair.calls, thread.astype(np.int64), ts, end, node_of_call >= 0)
    return scatter(len(op), op >= 0, node_of_call[op[op >= 0]])
