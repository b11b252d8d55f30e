"""Convert runs of graphs to tensors and join them into batches.

Nodes that a network cannot distinguish share a row. For example, two `aten::relu` nodes with equal features and equal
neighbors share a row of `feat`. Both nodes also share a row after a layer over the edges, and `row` maps both to this
row. So a graph of ten identical iterations costs about as much as a graph of one iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...schemas.graph_arrays import CONFIG_FEATURES, NODE_FEATURES, GraphArrays, opcodes
from ...trace.columns import IntColumn

Run = tuple[GraphArrays, int]  # A run is a graph and the index of its configuration.
# Number of network layers that aggregate over edges.
LAYERS = 2
_TILE = 24
# A node has four kinds of inputs: features, configuration, mean configuration over the graph, and tile configuration.
INPUTS = NODE_FEATURES + 2 * CONFIG_FEATURES + _TILE
_MIX = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB], np.uint64)  # multipliers of SplitMix64 (Steele et al., 2014)


@dataclass(frozen=True)
class Layer:
    """One aggregation over edges, from p input rows to c output rows. Each output row represents identical nodes."""

    own: Tensor  # shape (c): for each class, its input row
    # Edges of one node per class, shape (2, m). Each edge has its class and the input row of the node at the other end.
    inputs: Tensor
    outputs: Tensor


@dataclass(frozen=True)
class GraphBatch:
    """A batch of g graphs, joined into a single graph with n nodes.

    Nodes with equal features share one of u rows. After each layer, nodes with equal states and equal neighbors share a
    row.
    """

    feat: Tensor  # shape (u, INPUTS): scaled inputs
    opcode: Tensor  # shape (u)
    layers: tuple[Layer, ...]  # one aggregation per layer; each layer reads the rows of the previous layer
    row: Tensor  # shape (n): for each node, its row in the last layer; nodes of a graph are adjacent
    graph: Tensor  # shape (n): for each node, the index of its graph
    rows: Tensor  # shape (g, 1 + layers): for each graph, its number of feature rows and of rows in each layer
    node_log: Tensor  # shape (n): for each node, the log of its self time in ns; NaN if unknown
    graph_log: Tensor  # shape (g): for each graph, the log of its time in ns

    @property
    def work(self) -> int:
        """Number of rows in the last layer; the computation time is about proportional to it."""
        return int(self.rows[:, -1].sum())


def single(run: Run, center: Tensor, scale: Tensor) -> GraphBatch:
    """Convert one run to a batch that `joined` can combine with others. `center` and `scale` have shape (INPUTS)."""
    graph, c = run
    known, own = len(opcodes()), graph.node_runtime
    codes = np.where(graph.node_opcode > known, 0, np.maximum(graph.node_opcode, 0))
    raw = raw_features(graph, c)
    first, row = _distinct(np.concatenate([raw, codes[:, None].astype(np.float32)], axis=1))
    layers, sizes, edges = list[Layer](), [len(first)], graph.edge_index.astype(np.int64)
    for _ in range(LAYERS):
        layer, row = _aggregated(row, edges)
        layers.append(layer)
        sizes.append(len(layer.own))
    node_log = np.full(len(graph), np.nan) if own is None else np.log(own + 1.0)
    return GraphBatch(
        (torch.from_numpy(raw[first]) - center) / scale,
        torch.from_numpy(codes[first]).long(),
        tuple(layers),
        torch.from_numpy(row),
        torch.zeros(len(graph), dtype=torch.long),
        torch.tensor([sizes]),
        torch.from_numpy(node_log).float(),
        torch.tensor([np.log(max(int(graph.config_runtime[c]), 1))]).float(),
    )


def joined(singles: Sequence[GraphBatch]) -> GraphBatch:
    rows = torch.cat([run.rows for run in singles])
    begins = (torch.cumsum(rows, 0) - rows).T  # per layer and graph
    layers = []
    for at, of in enumerate(zip(*(run.layers for run in singles), strict=True)):
        before, here = begins[at], begins[at + 1]
        edges = torch.stack([here, before], dim=1)[:, :, None]
        layers.append(
            Layer(
                torch.cat([run.own + begin for run, begin in zip(of, before, strict=True)]),
                torch.cat([run.inputs + begin for run, begin in zip(of, edges, strict=True)], dim=1),
                torch.cat([run.outputs + begin for run, begin in zip(of, edges, strict=True)], dim=1),
            )
        )
    sizes = torch.tensor([len(run.row) for run in singles])
    return GraphBatch(
        torch.cat([run.feat for run in singles]),
        torch.cat([run.opcode for run in singles]),
        tuple(layers),
        torch.cat([run.row + begin for run, begin in zip(singles, begins[-1], strict=True)]),
        torch.repeat_interleave(torch.arange(len(singles)), sizes),
        rows,
        torch.cat([run.node_log for run in singles]),
        torch.cat([run.graph_log for run in singles]),
    )


def dealt(singles: Sequence[GraphBatch], graphs: int, nodes: int) -> Iterator[GraphBatch]:
    """Yield batches of at most `graphs` runs and `nodes` nodes, in order. A larger run gets a batch to itself."""
    begin, held = 0, 0
    for at, run in enumerate(singles):
        if at > begin and (at - begin == graphs or held + len(run.row) > nodes):
            yield joined(singles[begin:at])
            begin, held = at, 0
        held += len(run.row)
    if begin < len(singles):
        yield joined(singles[begin:])


def raw_features(graph: GraphArrays, c: int) -> npt.NDArray[np.float32]:
    out = np.zeros((len(graph), INPUTS), np.float32)
    out[:, :NODE_FEATURES] = graph.node_feat
    if len(graph.node_config_ids):
        own, all_of = NODE_FEATURES, NODE_FEATURES + CONFIG_FEATURES
        out[graph.node_config_ids, own:all_of] = graph.node_config_feat[c]
        out[:, all_of : all_of + CONFIG_FEATURES] = graph.node_config_feat[c].mean(axis=0)
    if graph.config_feat is not None:
        out[:, -_TILE:] = graph.config_feat[c]
    return out


def _distinct(rows: npt.NDArray[np.float32] | npt.NDArray[np.uint64]) -> tuple[IntColumn, IntColumn]:
    """Return the index of the first row in each set of equal rows, and for each row the index of its set."""
    wide = np.ascontiguousarray(rows)
    whole = wide.view(np.dtype((np.void, wide.itemsize * wide.shape[1]))).ravel()
    _, first, code = np.unique(whole, return_index=True, return_inverse=True)
    return first, code.reshape(-1)


def _aggregated(row: IntColumn, edges: IntColumn) -> tuple[Layer, IntColumn]:
    """Return the layer built from `edges`, an (m, 2) array of [consumer, producer], and every node's row after it.

    The method is color refinement (Weisfeiler and Leman, 1968): nodes of a class stay together only if the multisets of
    their neighbors' classes are equal. The multisets are compared by sums of 64-bit hashes.
    """
    consumer, producer = edges[:, 0], edges[:, 1]
    hashes, sums = _hashed(row), np.zeros((len(row), 3), np.uint64)
    sums[:, 0] = row
    np.add.at(sums[:, 1], consumer, hashes[producer])
    np.add.at(sums[:, 2], producer, hashes[consumer])
    first, code = _distinct(sums)
    kept = np.zeros(len(row), np.bool_)
    kept[first] = True
    inputs, outputs = (
        torch.from_numpy(np.stack([code[at[kept[at]]], row[of[kept[at]]]]))
        for at, of in ((consumer, producer), (producer, consumer))
    )
    return Layer(torch.from_numpy(row[first]), inputs, outputs), code


def _hashed(row: IntColumn) -> npt.NDArray[np.uint64]:
    mixed = (row.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, by in zip((30, 27), _MIX, strict=True):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * by
    return mixed ^ (mixed >> np.uint64(31))
