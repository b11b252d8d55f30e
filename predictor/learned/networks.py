"""Two networks from graphs to times: a GRU over nodes in topological order, and mean aggregation over edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ...schemas.graph_arrays import CONFIG_FEATURES, NODE_FEATURES, GraphArrays, opcodes

__all__ = ["KINDS", "Batch", "GraphNet", "batch_of", "joined", "single"]

KINDS = ("gru", "sage")
_TILE = 24
_PIECE = 64
"""Nodes after which the GRU begins anew: ten times as fast as one state through hundreds of nodes."""
INPUTS = NODE_FEATURES + 2 * CONFIG_FEATURES + _TILE
"""Node features, the node's own configuration, the mean one of the graph, the tile configuration."""


@dataclass(frozen=True)
class Batch:
    """Runs as one graph of n nodes in g graphs.

    Attributes:
        feat: (n, INPUTS), scaled. opcode: (n). graph: (n), which graph a node is in; nodes of a graph are adjacent
            in topological order. edges: (m, 2), rows [consumer, producer].
        node_log: (n), log of own times in ns, NaN where unknown. graph_log: (g), log of the times of the graphs.
    """

    feat: Tensor
    opcode: Tensor
    graph: Tensor
    edges: Tensor
    node_log: Tensor
    graph_log: Tensor


def batch_of(runs: Sequence[tuple[GraphArrays, int]], centre: Tensor, scale: Tensor) -> Batch:
    """Several runs (graph and number of its configuration) together."""
    return joined([single(run, centre, scale) for run in runs])


def single(run: tuple[GraphArrays, int], centre: Tensor, scale: Tensor) -> Batch:
    """One run; many are made once and joined anew for every step."""
    graph, c = run
    order = _topological(graph)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    feat = torch.from_numpy(raw_features(graph, c)[order]).float()
    known, own = len(opcodes()), graph.node_runtime
    codes = np.where(graph.node_opcode > known, 0, np.maximum(graph.node_opcode, 0))[order]
    node_log = np.full(len(order), np.nan) if own is None else np.log(own[order] + 1.0)
    return Batch(
        (feat - centre) / scale, torch.from_numpy(codes).long(), torch.zeros(len(order), dtype=torch.long),
        torch.from_numpy(place[graph.edge_index]).long(), torch.from_numpy(node_log).float(),
        torch.tensor([np.log(max(int(graph.config_runtime[c]), 1))]).float(),
    )  # fmt: skip


def joined(singles: Sequence[Batch]) -> Batch:
    """Runs, each made by `single`, as one graph."""
    sizes = torch.tensor([len(one.opcode) for one in singles])
    first = torch.cumsum(sizes, 0) - sizes
    edges = [one.edges + begin for one, begin in zip(singles, first.tolist(), strict=True)]
    return Batch(
        torch.cat([one.feat for one in singles]), torch.cat([one.opcode for one in singles]),
        torch.repeat_interleave(torch.arange(len(singles)), sizes), torch.cat(edges),
        torch.cat([one.node_log for one in singles]), torch.cat([one.graph_log for one in singles]),
    )  # fmt: skip


def raw_features(graph: GraphArrays, c: int) -> npt.NDArray[np.float32]:
    """(n, INPUTS) of one configuration, unscaled."""
    out = np.zeros((len(graph), INPUTS), np.float32)
    out[:, :NODE_FEATURES] = graph.node_feat
    if len(graph.node_config_ids):
        own, all_of = NODE_FEATURES, NODE_FEATURES + CONFIG_FEATURES
        out[graph.node_config_ids, own:all_of] = graph.node_config_feat[c]
        out[:, all_of : all_of + CONFIG_FEATURES] = graph.node_config_feat[c].mean(axis=0)
    if graph.config_feat is not None:
        out[:, -_TILE:] = graph.config_feat[c]
    return out


def _topological(graph: GraphArrays) -> npt.NDArray[np.int64]:
    """Producers before consumers as far as there are no cycles; among free nodes the order of the file."""
    consumer, producer = graph.edge_index[:, 0], graph.edge_index[:, 1]
    if (producer < consumer).all():
        return np.arange(len(graph))
    level: npt.NDArray[np.int64] = np.zeros(len(graph), np.int64)
    for _ in range(len(graph)):
        deeper = level.copy()
        np.maximum.at(deeper, consumer, level[producer] + 1)
        deeper = np.minimum(deeper, len(graph))
        if (deeper == level).all():
            break
        level = deeper
    return np.argsort(level, kind="stable")


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
            self.layers = nn.ModuleList(nn.Linear(3 * hidden, hidden) for _ in range(2))
        self.head = nn.Linear(2 * hidden, 1)
        self.pooled = nn.Linear(hidden, 1)
        nn.init.zeros_(self.pooled.weight)
        nn.init.zeros_(self.pooled.bias)
        self.offset = nn.Parameter(torch.tensor(8.0))

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Log ns of nodes, (n), and of graphs, (g)."""
        first = self.encode(torch.cat([batch.feat, self.opcode(batch.opcode)], dim=1))
        state = self._recurrent(first, batch) if self.kind == "gru" else self._aggregated(first, batch)
        node = self.head(torch.cat([first, state], dim=1)).squeeze(1) + self.offset
        count = len(batch.graph_log)
        top = torch.full((count,), -1e9).scatter_reduce(0, batch.graph, node.detach(), "amax")
        total = torch.zeros(count).index_add_(0, batch.graph, torch.exp(node - top[batch.graph]))
        sizes = torch.zeros(count).index_add_(0, batch.graph, torch.ones(len(node)))
        mean = torch.zeros(count, self.hidden).index_add_(0, batch.graph, state) / sizes[:, None]
        return node, top + torch.log(total) + self.pooled(mean).squeeze(1)

    def _recurrent(self, first: Tensor, batch: Batch) -> Tensor:
        sizes = torch.bincount(batch.graph, minlength=len(batch.graph_log)).tolist()
        pieces = [piece for nodes in torch.split(first, sizes) for piece in torch.split(nodes, _PIECE)]
        packed = nn.utils.rnn.pack_sequence(pieces, enforce_sorted=False)
        return torch.cat(nn.utils.rnn.unpack_sequence(self.gru(packed)[0]))

    def _aggregated(self, state: Tensor, batch: Batch) -> Tensor:
        consumer, producer = batch.edges[:, 0], batch.edges[:, 1]
        for layer in self.layers:
            inputs, outputs = (_mean(state, a, b) for a, b in ((consumer, producer), (producer, consumer)))
            state = state + torch.relu(layer(torch.cat([state, inputs, outputs], dim=1)))
        return state


def _mean(state: Tensor, target: Tensor, source: Tensor) -> Tensor:
    """Mean of the states of the sources of each node's edges; 0 without edges."""
    total = torch.zeros_like(state).index_add_(0, target, state[source])
    count = torch.zeros(len(state)).index_add_(0, target, torch.ones(len(target)))
    return total / count.clamp(min=1)[:, None]
