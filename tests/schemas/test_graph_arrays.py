"""Graphs as arrays: what is written is read, and what does not fit is refused with a reason."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from etplus.schemas.graph_arrays import (
    CONFIG_FEATURES,
    NODE_FEATURES,
    GraphArrays,
    opcodes,
    read_dataset,
    read_graph,
    vocabulary,
    write_graph_arrays,
    write_vocabulary,
)
from etplus.trace.errors import TraceFormatError, UsageError


def arrays(count: int = 3, **changes: Any) -> dict[str, Any]:
    """Of a layout file of TpuGraphs; None leaves an array out."""
    given = {
        "node_feat": np.arange(count * NODE_FEATURES, dtype=np.float32).reshape(count, NODE_FEATURES),
        "node_opcode": np.arange(count, dtype=np.uint8), "edge_index": np.array([[0, 1], [2, 0]])[: count - 1],
        "node_config_ids": np.array([1, 2]), "node_config_feat": np.ones((4, 2, CONFIG_FEATURES)),
        "config_runtime": np.array([5, 6, 7, 8]), "node_splits": np.array([[0, count]]),
    }  # fmt: skip
    return {name: values for name, values in {**given, **changes}.items() if values is not None}


def read(**given: Any) -> GraphArrays:
    held = io.BytesIO()
    np.savez(held, **given)
    return read_graph(held.getvalue())


def test_arrays_have_the_types_that_they_are_said_to_have() -> None:
    graph = read(**arrays())
    assert len(graph) == 3 and graph.node_runtime is None and graph.config_feat is None
    types = {name: values.dtype for name, values in vars(graph).items() if isinstance(values, np.ndarray)}
    assert types == {
        "node_feat": np.float32, "node_opcode": np.int32, "edge_index": np.int32, "node_config_ids": np.int32,
        "node_config_feat": np.float32, "config_runtime": np.int64, "node_splits": np.int32,
    }  # fmt: skip
    assert graph.edge_index.tolist() == [[0, 1], [2, 0]] and graph.config_runtime.tolist() == [5, 6, 7, 8]


def test_missing_arrays_of_a_graph_get_empty_defaults() -> None:
    few = arrays(node_config_ids=None, node_config_feat=None, node_splits=None)
    graph = read(**few, node_runtime=np.array([1, 2, 3], np.int32))
    assert graph.node_splits.tolist() == [[0, 3]] and graph.node_config_ids.tolist() == []
    assert graph.node_config_feat.shape == (4, 0, CONFIG_FEATURES)
    assert graph.node_runtime is not None and graph.node_runtime.dtype == np.int64
    tile = read(**few, config_feat=np.ones((4, 24)))
    assert tile.config_feat is not None and tile.config_feat.dtype == np.float32
    assert read(**arrays(edge_index=np.zeros((0, 2)))).edge_index.shape == (0, 2)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"node_feat": np.zeros((2, NODE_FEATURES))}, "node_feat is (2, 140), expected (3, 140)"),
        ({"node_feat": np.zeros((0, NODE_FEATURES)), "node_opcode": np.zeros(0)}, "node_feat is (0, 140)"),
        ({"node_feat": np.full((3, NODE_FEATURES), np.inf)}, "some features are not finite"),
        ({"node_config_feat": np.full((4, 2, CONFIG_FEATURES), np.nan)}, "some features are not finite"),
        ({"edge_index": np.array([[0, 3]])}, "edge_index refers to unknown nodes"),
        ({"edge_index": np.array([[-1, 0]])}, "edge_index refers to unknown nodes"),
        ({"node_config_ids": np.array([0, 3])}, "node_config_ids refers to unknown nodes"),
        ({"node_config_ids": np.array([-1, 0])}, "node_config_ids refers to unknown nodes"),
        ({"node_config_ids": np.array([0])}, "node_config_feat is (4, 2, 18), expected (4, 1, 18)"),
        ({"config_feat": np.ones((4, 23))}, "config_feat is (4, 23), expected (4, 24)"),
        ({"node_runtime": np.ones(4)}, "node_runtime is (4,), expected (3,)"),
        ({"node_opcode": None}, "not a graph (no 'node_opcode')"),
        ({"node_opcode": np.array(["a", "b", "c"])}, "invalid literal"),
    ],
)  # fmt: skip
def test_invalid_arrays_are_refused_with_the_problem_and_a_remedy(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(TraceFormatError) as error:
        read(**arrays(**changes))
    assert problem in str(error.value) and "etplus convert --to npz" in str(error.value)


def test_what_is_written_is_read_and_the_same_graph_gives_the_same_bytes(tmp_path: Path) -> None:
    for more in ({}, {"node_runtime": np.array([3, 4, 5])}, {"config_feat": np.ones((4, 24), np.float32)}):
        graph = read(**arrays(), **more)
        for name in ("net__a.npz", "b.npz"):
            write_graph_arrays(graph, tmp_path / name)
        again = read_graph(tmp_path / "net__a.npz")
        pairs = [(getattr(graph, name), getattr(again, name)) for name in vars(graph) if name != "name"]
        assert all((a is None and b is None) or (np.array_equal(a, b) and a.dtype == b.dtype) for a, b in pairs)
        assert again.name == "net__a" and again.model == "net"
        assert (tmp_path / "net__a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_files_that_are_no_npz_archives_are_refused() -> None:
    for data in (b"PK no zip", b"\x93NUMPY", b"text"):
        with pytest.raises(TraceFormatError, match="not a graph"):
            read_graph(data)


def test_datasets_are_read_in_order_and_missing_folders_refused(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    for name in ("b", "a", "c__1"):
        write_graph_arrays(read(**arrays()), tmp_path / "train" / f"{name}.npz")
    (tmp_path / "train" / "other.txt").write_text("")
    assert [graph.name for graph in read_dataset(tmp_path, "train")] == ["a", "b", "c__1"]
    with pytest.raises(UsageError, match="valid: no such folder"):
        list(read_dataset(tmp_path, "valid"))


def test_the_vocabulary_numbers_opcodes_from_one_and_is_written(tmp_path: Path) -> None:
    codes = opcodes()
    assert sorted(codes.values()) == list(range(1, len(codes) + 1)) and "aten::mm" in codes
    said = vocabulary(("x", "y"), ("z",))
    assert said["opcodes"] == codes and said["node_features"] == ["x", "y"] and said["config_features"] == ["z"]
    write_vocabulary(tmp_path, said)
    assert json.loads((tmp_path / "vocabulary.json").read_bytes()) == said
