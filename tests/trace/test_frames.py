"""The dependency graph of a small trace, node by node."""

import sys

import numpy as np
import pytest
from etplus.trace.build import NO_RECORDS, TraceBuilder
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.errors import UsageError
from etplus.trace.frames import Nullable, to_arrow, to_networkx, to_pandas
from etplus.trace.kinds import CPU, GPU, RUNTIME


def test_the_graph_has_all_rows_calls_and_edges() -> None:
    pytest.importorskip("networkx")
    builder = TraceBuilder("made.json")
    names = ["root", "mm", "late"]
    builder.add(CPU, id=[10, 11, 12], parent=[10] * 3, name=names, ts=[0, 100, -1], dur=[900, 50, 0])
    builder.add(GPU, id=[20], parent=[11], name=["gemm"], category=["kernel"], ts=[300], dur=[40])
    builder.add(RUNTIME, id=[30], parent=[11], name=["cudaLaunchKernel"], ts=[110], dur=[20], tid=["main"])
    edges = np.array([[30, 20, EDGE_KINDS.index("launch")], [30, 20, EDGE_KINDS.index("sync")]])
    graph = to_networkx(builder.build(NO_RECORDS, summary={}, edges=edges))
    assert dict(graph.nodes(data=True)) == {
        10: {"name": "root", "kind": "cpu", "ts": 0, "dur": 900},
        11: {"name": "mm", "kind": "cpu", "ts": 100, "dur": 50},
        12: {"name": "late", "kind": "cpu"},
        20: {"name": "gemm", "kind": "gpu", "ts": 300, "dur": 40},
        30: {"name": "cudaLaunchKernel", "kind": "runtime", "ts": 110, "dur": 20},
    }
    edges = sorted((a, b, data["kind"]) for a, b, data in graph.edges(data=True))
    assert edges == [(10, 11, "call"), (10, 12, "call"), (11, 20, "call"), (11, 30, "call"), (30, 20, "launch"),
                     (30, 20, "sync")]  # fmt: skip


def test_missing_numbers_are_null_in_pandas_and_arrow() -> None:
    missing = np.array([False, True, False])
    numbers = {"n": Nullable(np.array([1, 2, 3]), missing), "x": Nullable(np.array([0.5, 1, 2]), missing)}
    columns = {**numbers, "name": ["a", "b", "c"]}
    pandas = pytest.importorskip("pandas")
    frame = to_pandas(columns)
    assert frame["n"].tolist() == [1, pandas.NA, 3] and frame["x"].isna().tolist() == missing.tolist()
    pytest.importorskip("pyarrow")
    table = to_arrow({**columns, "none": [None] * 3}, {"n": {"about": "numbers"}})
    assert table.to_pydict() == {"n": [1, None, 3], "x": [0.5, None, 2], "name": ["a", "b", "c"], "none": [None] * 3}
    assert table.schema.field("n").metadata == {b"about": b"numbers"}
    assert str(table.schema.field("none").type) == "string"
    flags = to_arrow({"is": Nullable(np.array([True, False, True]), missing)})
    assert flags.to_pydict() == {"is": [True, None, True]}


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"needs pandas; try: pip install 'etplus\[frames\]'"):
        to_pandas({})
