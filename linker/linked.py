"""The linked trace as one value: both tables, who is linked to whom, and the ids that everything has in the output."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..schemas.etplus.write_etplus import Numbering
from ..trace.columns import IntColumn, scatter
from .calls import TracePair
from .data_dependencies import data_edges


@dataclass(frozen=True)
class LinkedTrace(TracePair):
    """What the stages after attachment work on.

    Attributes:
        node_of_call: int64, for each of `calls` the position in `nodes` that is linked to it, −1 for none.
        gpu_row: int64, event row of each attached GPU event, in order of GPU start.
        gpu_parent: int64, position in `nodes` of each one's parent.
        gpu_launcher: int64, event row of the runtime call that launched each, −1 for none.
        runtime_row: int64, event row of each runtime call in the window, in order of start.
        runtime_parent: int64, position in `nodes` of each one's innermost linked caller, −1 for none.
        numbering: ids in the output.
        has_storages: the nodes may name the storages of tensors; those made of a Kineto trace cannot.
    """

    node_of_call: IntColumn
    gpu_row: IntColumn
    gpu_parent: IntColumn
    gpu_launcher: IntColumn
    runtime_row: IntColumn
    runtime_parent: IntColumn
    numbering: Numbering
    has_storages: bool = True

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

    def node_id(self, position: IntColumn) -> IntColumn:
        """Ids of calls of `nodes`."""
        return self.numbering.node[self.nodes.node[position]]
