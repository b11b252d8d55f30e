"""Convert runs of graphs to batches of tensors, and train a network on them with early stopping.

Nodes that a network cannot distinguish share a row. For example, two `aten::relu` nodes with equal features and equal
neighbors share a row of `feat`. Both nodes also share a row after a layer over the edges, and `row` maps both to this
row. So a graph of ten identical iterations costs about as much as a graph of one iteration.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from ...schemas.graph_arrays import CONFIG_FEATURES, NODE_FEATURES, GraphArrays, opcodes
from ...schemas.text.files import load, open_output
from ...trace.columns import IntColumn, mask_at
from ...trace.errors import TraceFormatError, UsageError
from .graph_baselines import runs

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
    kept = mask_at(len(row), first)
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


# Maximum number of graphs per training step, graphs per batch without gradients, and nodes per batch.
_GRAPHS, _HELD, _NODES = 16, 64, 32_000
EPOCHS = 150  # Training takes at most this many epochs by default; `_WORK` may lower the number.
# Default limit on the sum of `GraphBatch.work` over all epochs, equivalent to about five minutes of CPU time.
_WORK = 14_000_000
_RATE, _DECAY = 3e-3, 1e-3
_PATIENCE = 25
_RISING, _HALVING = 5, 50
_VERSION, _KIND = 1, "sage"


class Trained:
    """A trained network: scaling of its inputs, validation error (mean |log ratio|), and number of epochs."""

    def __init__(self, net: GraphNet, center: Tensor, scale: Tensor, valid: float = float("inf"), epochs: int = 0):
        self.net, self.center, self.scale, self.valid, self.epochs = net, center, scale, valid, epochs


def train(
    graphs: Sequence[GraphArrays],
    valid: Sequence[GraphArrays],
    *,
    hidden: int = 64,
    epochs: int | None = None,
    seed: int = 0,
    report: Callable[[int, float], None] | None = None,
) -> Trained:
    """Train a network on graphs. Stop after 25 epochs without a better validation error, and keep the best network.

    The loss is smooth L1 on the log times of graphs and, if known, of nodes. On one machine, the same data and seed
    always give the same weights.

    Args:
        epochs: maximum number of epochs; by default EPOCHS, but fewer if there are many nodes.
        report: called after each epoch, with the epoch number and the validation error.
    """
    if not graphs or not valid:
        raise UsageError("training needs graphs in train/ and in valid/; give a dataset with more graphs")
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    state = _TrainingState(hidden, graphs)
    singles = [single(run, state.center, state.scale) for run in runs(graphs)]
    held = _batches(runs(valid), state.center, state.scale)
    if epochs is None:  # allow enough epochs for early stopping to take effect
        epochs = min(EPOCHS, max(_PATIENCE, _WORK // sum(run.work for run in singles)))
    while state.epoch < epochs and state.epoch - state.best_epoch < _PATIENCE:
        for group in state.optimizer.param_groups:
            group["lr"] = _RATE * min((state.epoch + 1) / _RISING, 1.0) * 0.5 ** (state.epoch / _HALVING)
        order = np.random.default_rng((seed, state.epoch)).permutation(len(singles))
        for batch in dealt([singles[i] for i in order.tolist()], _GRAPHS, _NODES):
            _descend(state, batch)
        state.epoch += 1
        error = _error(state.net, held)
        if error < state.best_error:
            state.best_error, state.best_epoch = error, state.epoch
            state.best = {name: value.clone() for name, value in state.net.state_dict().items()}
        if report is not None:
            report(state.epoch, error)
    state.net.load_state_dict(state.best)
    return Trained(state.net, state.center, state.scale, state.best_error, state.epoch)


def _descend(state: _TrainingState, batch: GraphBatch) -> None:
    state.optimizer.zero_grad()
    node, graph = state.net(batch)
    loss = nn.functional.smooth_l1_loss(graph, batch.graph_log, beta=0.1)
    known = torch.isfinite(batch.node_log)
    if known.any():
        loss = loss + 0.5 * nn.functional.smooth_l1_loss(node[known], batch.node_log[known], beta=0.5)
    loss.backward()
    nn.utils.clip_grad_norm_(state.net.parameters(), 1.0)
    state.optimizer.step()


class _TrainingState:
    def __init__(self, hidden: int, graphs: Sequence[GraphArrays]) -> None:
        rows = np.concatenate([raw_features(graph, 0) for graph in graphs])
        self.center = torch.from_numpy(rows.mean(axis=0))
        self.scale = torch.from_numpy(np.maximum(rows.std(axis=0), 0.1))
        self.net = GraphNet(hidden)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=_RATE, weight_decay=_DECAY)
        self.epoch = self.best_epoch = 0
        self.best_error = float("inf")
        self.best = {name: value.clone() for name, value in self.net.state_dict().items()}


def _batches(runs: Sequence[Run], center: Tensor, scale: Tensor) -> list[GraphBatch]:
    return list(dealt([single(run, center, scale) for run in runs], _HELD, _NODES))


def _error(net: GraphNet, held: Sequence[GraphBatch]) -> float:
    with torch.no_grad():
        wrong = torch.cat([(net(batch)[1] - batch.graph_log).abs() for batch in held])
    return float(wrong.mean())


def predict_graphs(trained: Trained, graphs: Sequence[GraphArrays]) -> npt.NDArray[np.float64]:
    with torch.no_grad():
        held = _batches(runs(graphs), trained.center, trained.scale)
        found = [trained.net(batch)[1] for batch in held]
    return np.exp(torch.cat(found).double().numpy()) if found else np.zeros(0)


def write_trained(trained: Trained, path: str | os.PathLike[str]) -> None:
    tensors = {f"net.{name}": value for name, value in trained.net.state_dict().items()}
    tensors |= {"center": trained.center, "scale": trained.scale}
    meta = {"version": _VERSION, "kind": _KIND, "hidden": trained.net.hidden}
    meta |= {"valid": trained.valid, "epochs": trained.epochs}
    with open_output(path) as out:
        out.write(save_tensors({k: v.contiguous() for k, v in tensors.items()}, {"etplus": json.dumps(meta)}))


def read_trained(path: str | os.PathLike[str]) -> Trained:
    tensors, meta = _read(path)
    try:
        net = GraphNet(meta["hidden"])
        net.load_state_dict({k.removeprefix("net."): v for k, v in tensors.items() if k.startswith("net.")})
        center, scale = tensors["center"], tensors["scale"]
        if center.shape != (INPUTS,) or scale.shape != (INPUTS,):
            raise ValueError(f"scaling of {tuple(center.shape)} features")
        return Trained(net, center, scale, float(meta["valid"]), int(meta["epochs"]))
    except (KeyError, RuntimeError, ValueError, TypeError) as error:
        text = str(error).splitlines()[0]
        raise TraceFormatError(str(path), "", f"no network ({text})", "make it with `etplus predict train`") from None


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    blob = load(path, trace=False)
    try:
        tensors = load_tensors(blob.data)
        # safetensors cannot read metadata from memory. The first 8 bytes of the file are the length of its header.
        size = int.from_bytes(blob.data[:8], "little")
        meta = json.loads(json.loads(blob.data[8 : 8 + size])["__metadata__"]["etplus"])
        if meta["version"] != _VERSION or meta["kind"] != _KIND or not 0 < meta["hidden"] <= 4096:
            raise ValueError("another version")
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise TraceFormatError(blob.name, "", f"no network ({error})", "make it with `etplus predict train`") from None
    return tensors, meta


class GraphNet(nn.Module):
    """Predicts the log times of nodes and graphs. A graph's time is the sum of its nodes' times × a learned correction.

    `hidden` is the width of a node's state.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.opcode = nn.Embedding(len(opcodes()) + 1, 16)
        self.encode = nn.Sequential(nn.Linear(INPUTS + 16, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.layers = nn.ModuleList(nn.Linear(3 * hidden, hidden) for _ in range(LAYERS))
        self.head = nn.Linear(2 * hidden, 1)
        self.pooled = nn.Linear(hidden, 1)
        nn.init.zeros_(self.pooled.weight)
        nn.init.zeros_(self.pooled.bias)
        self.offset = nn.Parameter(torch.tensor(8.0))

    def forward(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Return the log times (in ns) of the n nodes and of the g graphs."""
        first = self.encode(torch.cat([batch.feat, self.opcode(batch.opcode)], dim=1))
        state = first
        for linear, layer in zip(self.layers, batch.layers, strict=True):
            own = state.index_select(0, layer.own)
            inputs, outputs = (_mean(state, edges, len(own)) for edges in (layer.inputs, layer.outputs))
            first = first.index_select(0, layer.own)
            state = own + torch.relu(linear(torch.cat([own, inputs, outputs], dim=1)))
        node = self.head(torch.cat([first, state], dim=1)).squeeze(1) + self.offset
        pooled = self.pooled(state).squeeze(1)  # this layer is linear, so it commutes with the mean
        node, pooled = (states.index_select(0, batch.row) for states in (node, pooled))
        count, graph = len(batch.graph_log), batch.graph
        top = torch.full((count,), -1e9).scatter_reduce(0, graph, node.detach(), "amax")
        total = torch.zeros(count).index_add_(0, graph, torch.exp(node - top.index_select(0, graph)))
        correction = torch.zeros(count).index_add_(0, graph, pooled) / torch.bincount(graph, minlength=count)
        return node, top + torch.log(total) + correction


def _mean(state: Tensor, edges: Tensor, count: int) -> Tensor:
    target, source = edges
    total = torch.zeros(count, state.shape[1]).index_add_(0, target, state.index_select(0, source))
    return total / torch.bincount(target, minlength=count).clamp(min=1)[:, None]
