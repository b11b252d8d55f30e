"""Two networks from graphs to times: a GRU over nodes in topological order, and mean aggregation over edges."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...schemas.graph_arrays import opcodes
from .batches import INPUTS, LAYERS, PIECE, Batch

__all__ = ["KINDS", "GraphNet"]

KINDS = tuple(LAYERS)


class GraphNet(nn.Module):
    """Log times of nodes, and of graphs as the log of the sum of their nodes' times, corrected by the pooled state.

    Args:
        kind: one of KINDS. hidden: width of the state of a node.
    """

    def __init__(self, kind: str, hidden: int) -> None:
        super().__init__()
        self.kind, self.hidden = kind, hidden
        self.opcode = nn.Embedding(len(opcodes()) + 1, 16)
        self.encode = nn.Sequential(nn.Linear(INPUTS + 16, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        if kind == "gru":
            self.gru = nn.GRU(hidden, hidden, batch_first=True)
        else:
            self.layers = nn.ModuleList(nn.Linear(3 * hidden, hidden) for _ in range(LAYERS[kind]))
        self.head = nn.Linear(2 * hidden, 1)
        self.pooled = nn.Linear(hidden, 1)
        nn.init.zeros_(self.pooled.weight)
        nn.init.zeros_(self.pooled.bias)
        self.offset = nn.Parameter(torch.tensor(8.0))

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log ns of nodes, (n), and of graphs, (g)."""
        first = self.encode(torch.cat([batch.feat, self.opcode(batch.opcode)], dim=1))
        first, state = (self._recurrent if self.kind == "gru" else self._aggregated)(first, batch)
        node = self.head(torch.cat([first, state], dim=1)).squeeze(1) + self.offset
        pooled = self.pooled(state).squeeze(1)  # linear, so of means what its means are
        if self.kind != "gru":
            node, pooled = (one.index_select(0, batch.row) for one in (node, pooled))
        count, graph = len(batch.graph_log), batch.graph
        top = torch.full((count,), -1e9).scatter_reduce(0, graph, node.detach(), "amax")
        total = torch.zeros(count).index_add_(0, graph, torch.exp(node - top.index_select(0, graph)))
        correction = torch.zeros(count).index_add_(0, graph, pooled) / torch.bincount(graph, minlength=count)
        return node, top + torch.log(total) + correction

    def _recurrent(self, first: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """States of nodes before and after the GRU. Pieces are padded at their end, which no state depends on."""
        sizes = torch.bincount(batch.graph, minlength=len(batch.graph_log))
        pieces = (sizes + PIECE - 1).div(PIECE, rounding_mode="floor") * PIECE
        place = torch.arange(len(batch.row)) + torch.repeat_interleave(
            torch.cumsum(pieces, 0) - pieces - torch.cumsum(sizes, 0) + sizes, sizes
        )
        padded = torch.zeros(int(pieces.sum()), dtype=torch.long).index_copy_(0, place, batch.row)
        after, _ = self.gru(first.index_select(0, padded).view(-1, PIECE, self.hidden))
        return first.index_select(0, batch.row), after.reshape(-1, self.hidden).index_select(0, place)

    def _aggregated(self, first: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """States of the rows of the last layer before and after all layers."""
        state = first
        for linear, layer in zip(self.layers, batch.layers, strict=True):
            own = state.index_select(0, layer.own)
            inputs, outputs = (_mean(state, edges, len(own)) for edges in (layer.inputs, layer.outputs))
            first = first.index_select(0, layer.own)
            state = own + torch.relu(linear(torch.cat([own, inputs, outputs], dim=1)))
        return first, state


def _mean(state: Tensor, edges: Tensor, count: int) -> Tensor:
    """(count, hidden), mean of the states of the sources of each target's edges (2, m); 0 without edges."""
    target, source = edges
    total = torch.zeros(count, state.shape[1]).index_add_(0, target, state.index_select(0, source))
    return total / torch.bincount(target, minlength=count).clamp(min=1)[:, None]
