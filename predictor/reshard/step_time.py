"""The time of a step: ranks of all stages replayed together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..ranks import couple
from ..replay import build_graph, fit_constants, replay

if TYPE_CHECKING:
    from .job import Resharded

__all__ = ["step_time"]


def step_time(job: Resharded) -> int:
    """Replay one rank of each stage; those that exchange messages wait for each other. ns."""
    layout = job.layout
    traces = [job.trace(layout.rank(0, 0, stage)) for stage in range(layout.pp)]
    graphs = [build_graph(trace) for trace in traces]
    constants = [fit_constants(graph) for graph in graphs]
    if len(graphs) == 1:
        return replay(graphs[0], constants[0]).makespan_ns
    return replay(couple(graphs), constants).makespan_ns
