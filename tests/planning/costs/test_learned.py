"""Learned predictors: metrics and baselines by hand; training where PyTorch is installed; a clear word where not."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from etplus.planning.learned.graph_baselines import baselines, log_times, quality
from etplus.schemas.graph_arrays import GraphArrays, read_dataset, read_graph
from etplus.trace.errors import TraceFormatError
from support import FIXTURES, call

SWEEP = FIXTURES / "sweep"
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("safetensors") is None, reason="PyTorch and safetensors are not installed"
)


def graphs(split: str) -> list[GraphArrays]:
    """Real graphs of a CPU."""
    return list(read_dataset(SWEEP, split))


def test_baselines_on_the_sweep() -> None:
    train, held = graphs("train"), graphs("test")
    assert len(train) == 16 and len(held) == 4
    found = baselines(train, held)
    assert set(found) == {"mean", "ridge"}
    measured, models = np.exp(log_times(held)), [graph.model for graph in held]
    errors = {name: quality(ns, measured, models).errors for name, ns in found.items()}
    assert errors["ridge"].factor < errors["mean"].factor


def test_commands_without_torch(tmp_path: Path) -> None:
    """What does not learn works; what does says what to install."""
    program = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.split('.')[0] in ('torch', 'safetensors'): raise ImportError('no ' + name)\n"
        "sys.meta_path.insert(0, No())\n"
        "from etplus.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "predict", "train", str(SWEEP), "-o", str(tmp_path / "m")],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2 and b"etplus[learn]" in done.stderr and b"Traceback" not in done.stderr
    done = call("predict", "evaluate", SWEEP)
    assert done.returncode == 0 and b"ridge" in done.stdout


@needs_torch
def test_training_is_repeatable(tmp_path: Path) -> None:
    from etplus.planning.learned.training import predict_graphs, read_trained, train, write_trained

    some, held = graphs("train")[:4], graphs("valid")[:1]
    first, second = (train(some, held, hidden=8, epochs=10, seed=3) for _ in range(2))
    assert predict_graphs(first, held).tolist() == predict_graphs(second, held).tolist()
    write_trained(first, tmp_path / "m.safetensors")
    write_trained(second, tmp_path / "n.safetensors")
    assert (tmp_path / "m.safetensors").read_bytes() == (tmp_path / "n.safetensors").read_bytes()
    again = read_trained(tmp_path / "m.safetensors")
    assert predict_graphs(again, held).tolist() == predict_graphs(first, held).tolist()


def made_graph(name: str, copies: int, seed: int) -> GraphArrays:
    """A graph of several equal parts without edges between them, with cycles, nodes alike, and one without edges."""
    rng = np.random.default_rng(seed)
    count = 30
    feat = np.zeros((count, 140), np.float32)
    feat[:, :2] = rng.integers(0, 2, (count, 2))
    edges = rng.integers(0, count - 1, (60, 2))
    edges = np.unique(edges[edges[:, 0] != edges[:, 1]], axis=0)
    return GraphArrays(
        name, np.tile(feat, (copies, 1)), np.tile(rng.integers(0, 3, count), copies).astype(np.int32),
        np.concatenate([edges + count * i for i in range(copies)]).astype(np.int32), np.zeros(0, np.int32),
        np.zeros((1, 0, 18), np.float32), np.array([10_000], np.int64), np.array([[0, count * copies]], np.int32),
        rng.integers(0, 1000, count * copies),
    )  # fmt: skip


@needs_torch
def test_nodes_alike_are_computed_once_and_nothing_else_changes() -> None:
    """Against the definition: every node by itself, its neighbors one by one."""
    import torch
    from etplus.planning.learned.graph_batches import joined, raw_features, single
    from etplus.planning.learned.training import GraphNet

    torch.manual_seed(0)
    net = GraphNet(8)
    torch.nn.init.normal_(net.pooled.weight)
    center, scale = torch.zeros(net.encode[0].in_features - 16), torch.ones(())
    some = [made_graph("a", 1, 0), made_graph("b", 5, 1), made_graph("c", 2, 0)]
    parts = [single((graph, 0), center, scale) for graph in some]
    assert parts[0].work == parts[2].work <= 30 and parts[1].work <= 30
    with torch.no_grad():
        node, total = net(joined(parts))
        expected, at = [], 0
        for graph in some:
            codes = torch.from_numpy(graph.node_opcode).long()
            first = net.encode(torch.cat([torch.from_numpy(raw_features(graph, 0)), net.opcode(codes)], dim=1))
            state = first
            for linear in net.layers:
                near = torch.zeros(2, len(graph), 8)
                for side, (to, of) in enumerate((graph.edge_index.T, graph.edge_index.T[::-1])):
                    for one in range(len(graph)):
                        if (to == one).any():
                            near[side, one] = state[torch.from_numpy(of[to == one]).long()].mean(dim=0)
                state = state + torch.relu(linear(torch.cat([state, *near], dim=1)))
            log_ns = net.head(torch.cat([first, state], dim=1)).squeeze(1) + net.offset
            found = node[at : at + len(graph)].sort().values
            at += len(graph)
            assert torch.allclose(found, log_ns.sort().values, atol=1e-5)
            expected.append(torch.logsumexp(log_ns, 0) + net.pooled(state.mean(dim=0)).squeeze())
        assert torch.allclose(total, torch.stack(expected), atol=1e-5)


@needs_torch
def test_a_file_of_tpugraphs_trains(tmp_path: Path) -> None:
    from etplus.planning.learned.training import predict_graphs, read_trained, train

    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "a.npz", node_feat=rng.random((6, 140), np.float32), node_opcode=np.arange(6, dtype=np.uint8),
        edge_index=np.array([[1, 0], [2, 1], [0, 5]]), node_config_ids=np.array([1, 4]),
        node_config_feat=rng.random((3, 2, 18), np.float32), config_runtime=np.array([500, 600, 700], np.int32),
        node_splits=np.array([[0, 6]]),
    )  # fmt: skip
    graph = read_graph(tmp_path / "a.npz")
    found = predict_graphs(train([graph], [graph], hidden=4, epochs=1), [graph])
    assert found.shape == (3,) and np.isfinite(found).all()
    (tmp_path / "b").write_bytes(b"no network")
    with pytest.raises(TraceFormatError, match="etplus predict train"):
        read_trained(tmp_path / "b")
