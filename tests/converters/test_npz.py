"""Arrays in the form of TpuGraphs: types and shapes, what they say, datasets, files of others."""

from pathlib import Path

import numpy as np
import pytest
from etplus.converters.conversion import convert
from etplus.converters.npz import NODE_NAMES, graph_arrays, split_of, write_dataset
from etplus.linker import link
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.schemas.graph_arrays import GraphArrays, opcodes, read_dataset
from etplus.trace.errors import ConvertError, UsageError
from etplus_files import cpu, etplus
from random_step import digest, random_step
from support import fixture_pair, read_json


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("npz") / "step__b1.json"
    path.write_bytes(b"".join(link(*fixture_pair("pairs/gpu_shaped_from_cpu")).chunks()))
    return path


def test_arrays_have_tpugraphs_types_and_shapes_and_the_same_bytes_twice(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.npz"
    done = convert(file, out, to="npz", config={"threads": 4})
    with np.load(out, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    n, nc, m = len(arrays["node_opcode"]), len(arrays["node_config_ids"]), len(arrays["edge_index"])
    expected = {
        "node_feat": ("float32", (n, 140)), "node_opcode": ("int32", (n,)), "edge_index": ("int32", (m, 2)),
        "node_config_ids": ("int32", (nc,)), "node_config_feat": ("float32", (1, nc, 18)),
        "config_runtime": ("int64", (1,)), "node_splits": ("int32", (1, 2)), "node_runtime": ("int64", (n,)),
    }  # fmt: skip
    assert {name: (str(of.dtype), of.shape) for name, of in arrays.items()} == expected
    assert done.nodes == n > 100 and m > n and nc > 0
    assert (arrays["node_config_feat"][0, :, 0] == 2).all() and not arrays["node_config_feat"][..., 1:].any()
    convert(file, tmp_path / "b.npz", to="npz", config={"threads": 4})
    assert (tmp_path / "b.npz").read_bytes() == out.read_bytes()


def test_arrays_hold_the_times_and_features_of_a_trace(file: Path) -> None:
    document = read_etplus(file)
    graph = graph_arrays(document)
    begin, end = document.span
    assert graph.config_runtime.tolist() == [end - begin] and graph.model == "step"
    u, v = graph.edge_index.T
    assert (u != v).all() and u.max() < len(graph)
    on_gpu = graph.node_feat[:, NODE_NAMES.index("is GPU event")] == 1
    assert np.count_nonzero(on_gpu) == np.count_nonzero(document.nodes.kind == 1)
    assert graph.node_runtime is not None
    assert graph.node_runtime[on_gpu].sum() == document.nodes.dur[document.nodes.kind == 1].sum()
    addmm = graph.node_opcode == opcodes()["aten::addmm"]
    assert addmm.any() and (graph.node_feat[addmm & ~on_gpu, NODE_NAMES.index("log2 FLOPs")] > 0).all()
    assert set(graph.node_config_ids.tolist()) == set(np.flatnonzero(graph.node_feat[:, 3] > 0).tolist())


def test_datasets_keep_a_model_together(file: Path, tmp_path: Path) -> None:
    one = graph_arrays(read_etplus(file))
    graphs = [GraphArrays(f"m{i // 3}__v{i % 3}", *list(vars(one).values())[1:]) for i in range(60)]
    split = {graph.name: split_of(graph, "model") for graph in graphs}
    assert all(len({split[f"m{i}__v{j}"] for j in range(3)}) == 1 for i in range(20))
    assert set(split.values()) == {"train", "valid", "test"}
    assert len({split_of(graph, "graph") for graph in graphs[:12]}) > 1
    assert len(write_dataset(graphs[:6], tmp_path / "set", "graph")) == 6
    found = [graph.name for part in ("train", "valid", "test") for graph in read_dataset(tmp_path / "set", part)]
    assert sorted(found) == [f"m{i}__v{j}" for i in range(2) for j in range(3)]
    told = read_json(tmp_path / "set" / "vocabulary.json")
    assert told["version"] == 1 and told["opcodes"] == opcodes() and len(told["node_features"]) <= 140
    with pytest.raises(UsageError, match="two graphs"):
        write_dataset([graphs[0], graphs[0]], tmp_path / "twice")
    with pytest.raises(UsageError, match="no such folder"):
        list(read_dataset(tmp_path / "none", "train"))


MADE = ["7d8bfc86", "d9f7ef28", "7f8bef7b"]


@pytest.mark.parametrize("seed", range(len(MADE)))
def test_made_steps_become_the_same_arrays_as_ever(seed: int) -> None:
    found = vars(graph_arrays(random_step(seed), "made", {"threads": 3, "batch": 8})).values()
    rounded = (np.round(value, 4).tolist() if isinstance(value, np.ndarray) else value for value in found)
    assert digest(rounded) == MADE[seed]


def test_node_features_cap_the_depth_and_count_calls() -> None:
    nodes = [cpu(3 + k, "a", k, 1000 - 2 * k, parent=2 + k if k else 2) for k in range(34)]
    nodes += [cpu(100 + k, "b", 100 + k, 1, parent=36) for k in range(66)]
    graph = graph_arrays(etplus(nodes), "made")
    depth, calls = (graph.node_feat[:, NODE_NAMES.index(name)].astype(int).tolist() for name in ("depth", "calls"))
    assert depth == [*range(1, 33), *[32] * 68] and calls == [*[1] * 33, 64, *[0] * 66]
    chain = [[k, k - 1] for k in range(1, 34)]
    assert graph.edge_index.tolist() == [*chain, *([k, 33] for k in range(34, 100))]
    assert (graph.config_runtime.tolist(), graph.node_splits.tolist()) == ([1_000_000], [[0, 100]])
    with pytest.raises(ConvertError, match="no operator has a time"):
        graph_arrays(etplus([cpu(3, "a")]), "empty")
