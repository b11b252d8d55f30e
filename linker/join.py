"""Who belongs to whom of two traces: the links of calls, the parents of GPU events and of runtime calls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..schemas.kineto.kineto_calls import enclosing_call
from ..trace.columns import IntColumn, scatter
from .attach import Attachment
from .calls import TracePair
from .data_dependencies import data_edges
from .match.result import Match


@dataclass(frozen=True)
class Join(TracePair):
    """What the stages after attachment work on: positions in the tables of both traces, no copies of their columns.

    The rows of the trace that is built of it are numbered by place: the ET's nodes, then attached GPU events, then
    runtime calls.

    Attributes:
        match: the call that each of `nodes` is linked to.
        node_of_call: int64, for each of `calls` the position in `nodes` that is linked to it, −1 for none.
        attachment: the launch of every GPU event.
        gpu_row: int64, event row of each attached GPU event, in order of GPU start.
        gpu_parent: int64, position in `nodes` of each one's parent.
        gpu_launcher: int64, event row of the runtime call that launched each, −1 for none.
        runtime_row: int64, event row of each runtime call in the window, in order of start.
        runtime_parent: int64, position in `nodes` of each one's innermost linked caller, −1 for none.
        has_storages: the nodes may name the storages of tensors; those made of a Kineto trace cannot.
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
        """See `data_dependencies.data_edges`; found when first asked for, which takes as long as matching does."""
        if not self.has_storages:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return data_edges(self.et, self.nodes)

    @cached_property
    def call_of_node(self) -> IntColumn:
        """int64, for each of `nodes` the position in `calls` that is linked to it, −1 for none."""
        return self.of_nodes(np.arange(len(self.calls)))

    @cached_property
    def node_times(self) -> tuple[IntColumn, IntColumn]:
        """int64 ns, start and end of each of `nodes`, −1 for one that is not linked."""
        return self.of_nodes(self.calls.ts), self.of_nodes(self.calls.end)

    def of_nodes(self, values: IntColumn) -> IntColumn:
        """int64, for each of `nodes` the value (one entry a call) of its call, −1 for one that is not linked."""
        at = np.flatnonzero(self.node_of_call >= 0)
        return scatter(len(self.nodes), self.node_of_call[at], values[at])


def linked_caller(
    pair: TracePair, node_of_call: IntColumn, thread: npt.NDArray[np.int32], ts: IntColumn, end: IntColumn
) -> IntColumn:
    """Position in `nodes` of the innermost linked call around each of some events of threads, −1 for none."""
    calls = pair.calls
    op = enclosing_call(calls, thread.astype(np.int64), ts, end, node_of_call >= 0)
    return scatter(len(op), op >= 0, node_of_call[op[op >= 0]])
