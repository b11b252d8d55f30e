"""The ids of the rows of a join, kept or given anew, and all columns of a small pair of traces."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.linker import link, pipeline
from etplus.linker.linked_rows import LinkedRows, Numbering
from etplus.trace.build import GIVEN_COLUMNS
from etplus.trace.conventions import EDGE_KINDS
from made_joins import PAIR_ET, PAIR_KINETO
from made_traces import kernel, launch, op
from support import kineto_document


class Et(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.id)


def numbering(*, renumber: bool) -> Numbering:
    """ET nodes 5, 2 and 9 in the file's order; of three GPU events two are below 9, one below 2; two runtime calls."""
    join: Any = SimpleNamespace(
        et=Et(id=np.array([5, 2, 9]), parent=np.array([2, 2, 5])),
        nodes=SimpleNamespace(node=np.array([1, 0, 2])), gpu_parent=np.array([2, 0, 2]),
        runtime_row=np.array([7, 8]),
    )  # fmt: skip
    return Numbering.of(join, renumber=renumber)


def test_new_rows_are_numbered_after_the_largest_id() -> None:
    found = numbering(renumber=False)
    assert found.id.tolist() == [5, 2, 9, 10, 11, 12, 13, 14]
    assert found.order.tolist() == [1, 0, 2, 3, 4, 5, 6, 7], "parents first"
    rows = np.array([0, 4, 7])
    assert found.rows(rows).tolist() == found.places(rows).tolist() == [1, 4, 7]


def test_renumbered_each_node_is_followed_by_its_gpu_nodes() -> None:
    found = numbering(renumber=True)
    assert found.id.tolist() == [3, 1, 4, 5, 2, 6, 7, 8]
    assert found.order.tolist() == [1, 4, 0, 2, 3, 5, 6, 7], "in order of ids"
    places = np.arange(8)
    assert found.rows(places).tolist() == [2, 0, 3, 4, 1, 5, 6, 7]
    assert found.places(found.rows(places)).tolist() == places.tolist()


def test_pairs_and_edges_between_ids_are_sorted() -> None:
    found = numbering(renumber=True)
    assert found.pairs([(3, 0), (1, 4)]) == [(1, 2), (5, 3)]
    table = np.array([[2, 0, 1], [1, 4, 3], [1, 4, 2], [1, 0, 5]])
    assert found.edges(table).tolist() == [[1, 2, 2], [1, 2, 3], [1, 3, 5], [4, 3, 1]]


PROCESS, THREAD = (f"[pytorch|profiler|execution_trace|{name}]" for name in ("process", "thread"))
KEPT: dict[str, list[Any]] = {
    "id": [1, 2, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15],
    "parent": [1, 1, 2, 4, 2, 2, 6, 6, 9, 6, -1, 9],
    "name": [PROCESS, THREAD, "outer", "inner", "lost", "late",
             "first kernel", "second kernel", "Memcpy DtoD", "cudaGraphLaunch", "cudaDeviceSynchronize",
             "cudaMemcpyAsync"],
    "category": ["", "", "", "", "", "", "kernel", "kernel", "gpu_memcpy", "", "", ""],
    "ts": [-1, -1, 10000, 15000, -1, 400000, 40000, 62000, 420000, 16000, 392000, 410000],
    "dur": [0, 0, 380000, 10000, 0, 50000, 20000, 3000, 0, 2000, 3000, 20000],
    "exclusive": [0, 0, 370000, 10000, 0, 50000, 20000, 3000, 0, 0, 0, 0],
    "rf_id": [0, 0, 11, 12, 0, 13, 0, 0, 0, 0, 0, 0],
    "fw_parent": [0, 0, 0, 77, 0, 4, 0, 0, 0, 0, 0, 0],
    "seq_id": [-1, -1, 3, -1, -1, 5, -1, -1, -1, -1, -1, -1],
    "scope": [7, 7, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    "fw_tid": [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
    "link": [0, 0, 2, 2, 0, 2, 0, 0, 0, 0, 0, 0],
    "stream": [-1, -1, -1, -1, -1, -1, 7, 7, 9, -1, -1, -1],
    "device": [-1, -1, -1, -1, -1, -1, 0, 0, 1, -1, -1, -1],
    "correlation": [-1, -1, -1, -1, -1, -1, 1, 1, 2, 1, 4, 2],
    "kineto_event": [-1, -1, 1, 2, -1, 4, 0, 7, 6, 3, 11, 5],
    "inter_thread_dep": [-1, -1, -1, -1, -1, 4, -1, -1, -1, -1, -1, -1],
    "tid": [1, 1, 1, 1, 1, 2, 0, 0, 0, 1, 2, 2],
}  # fmt: skip
ORDER = [0, 1, 2, 3, 6, 7, 4, 5, 8, 9, 10, 11]
"""Rows by id, the GPU events of each node after it."""
ANEW = {name: [values[at] for at in ORDER] for name, values in KEPT.items()} | {
    "id": list(range(1, 13)),
    "parent": [1, 1, 2, 3, 4, 4, 2, 2, 8, 4, -1, 8],
    "fw_parent": [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0],
    "inter_thread_dep": [-1, -1, -1, -1, -1, -1, -1, 3, -1, -1, -1, -1],
}


@pytest.fixture(params=[False, True], ids=["kept", "anew"])
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[LinkedRows, Any, bool]:
    """Rows of the pair, its trace, and whether nodes are numbered anew."""
    given: list[Any] = []
    built = pipeline.linked_trace

    def linked_trace(*arguments: Any, renumber: bool) -> Any:
        given.extend(arguments)
        return built(*arguments, renumber=renumber)

    monkeypatch.setattr(pipeline, "linked_trace", linked_trace)
    trace = link(orjson.dumps(PAIR_ET), orjson.dumps(PAIR_KINETO), renumber=request.param, whole_job=True)
    join, _, dependencies, code, _ = given
    return LinkedRows.of(join, dependencies, code, Numbering.of(join, renumber=request.param)), trace, request.param


def test_every_column_has_its_value_in_every_row(case: tuple[LinkedRows, Any, bool]) -> None:
    rows, _, anew = case
    expected = ANEW if anew else KEPT
    assert set(GIVEN_COLUMNS) == {*expected, "kind"}
    for chosen in (np.arange(12), np.array([7, 0, 9]), np.arange(0)):
        for name, values in expected.items():
            found = rows.column(name, chosen).tolist()
            if texts := {"name": rows.names, "category": rows.categories}.get(name):
                found = [texts[code] for code in found]
            assert found == [values[row] for row in chosen], name
    assert rows.kind.tolist() == ([0, 0, 0, 0, 1, 1, 0, 0, 1, 2, 2, 2] if anew else [0] * 6 + [1] * 3 + [2] * 3)
    assert rows.tids == [b"70", b"7", b"8"] and not rows.flat


@pytest.mark.parametrize(("base", "ts", "whole"), [(None, 10, True), (None, 10.5, False), (0, 10, False)])
def test_times_in_whole_us_of_files_before_2024_stay_integers(base: int | None, ts: float, whole: bool) -> None:
    kineto = kineto_document([op("aten::mm", ts, 5), launch(1, 12), kernel("gemm", 1, 20, 3)])
    header = {} if base is None else {"baseTimeNanoseconds": base}
    document = link(None, orjson.dumps({"traceEvents": kineto["traceEvents"], **header})).to_dict()
    (node,) = (node for node in document["nodes"] if node["name"] == "gemm")
    assert (type(node["ts"]), type(node["dur"])) == ((int, int) if whole else (float, float))


def test_edges_waits_and_memory_follow_the_rows(case: tuple[LinkedRows, Any, bool]) -> None:
    rows, _, anew = case
    kept = [[4, 9, "thread_handoff"], [10, 11, "stream"], [11, 14, "sync"]]
    kept += [[13, 10, "launch"], [13, 11, "launch"], [15, 12, "launch"]]
    ids = dict(zip(KEPT["id"], range(12), strict=True))
    new = {number: 1 + ORDER.index(place) for number, place in ids.items()}
    expected = sorted([new[a], new[b], kind] for a, b, kind in kept) if anew else kept
    assert [[a, b, EDGE_KINDS[kind]] for a, b, kind in rows.edges.tolist()] == expected
    assert rows.sync_dep == ({7: [6]} if anew else {5: [11]})
    parents = [0, 1, 3, 4, 5, 2, 4, 4, 2, 4, -1, 2]
    assert rows.node_of(np.arange(12)).tolist() == ([parents[at] for at in ORDER] if anew else parents)
    memory = rows.memory
    assert memory.row.tolist() == [-1, 3, 2]
    assert (memory.ts.tolist(), memory.bytes.tolist()) == ([5000, 17000, 30000], [32, 64, -64])
    assert memory.kineto_event.tolist() == [13, 12, 14] and memory.device_type.tolist() == [0, 1, 1]
    assert memory.reserved.tolist() == [-1, 128, 128] and memory.address.tolist() == [2, 1, 1]


def test_events_without_a_row_are_unattached(case: tuple[LinkedRows, Any, bool]) -> None:
    rows = case[0]
    assert rows.unattached.tolist() == [9, 8]
    every, last = rows.unattached_events(0, 2), rows.unattached_events(1, 2)
    assert (every.names, every.categories) == (["before", "stray"], ["kernel", "kernel"])
    assert (every.ts.tolist(), every.dur.tolist()) == ([1000, 30000], [2000, 4000])
    assert (every.correlation.tolist(), every.reason.tolist()) == ([3, 99], [2, 1])
    assert (last.names, last.reason.tolist(), last.stream.tolist(), last.device.tolist()) == (["stray"], [1], [7], [0])
    assert last.args == [b'{"stream":7,"device":0,"correlation":99}']


def test_the_trace_has_the_same_columns(case: tuple[LinkedRows, Any, bool]) -> None:
    rows, trace, anew = case
    expected = ANEW if anew else KEPT
    assert [trace.name_of(row) for row in range(12)] == expected["name"]
    assert [trace.categories[code] for code in trace.nodes.category.tolist()] == expected["category"]
    threads = [1, 1, 1, 1, -1, -1, 1, 2, -1] if anew else [1, 1, 1, 1, 1, 2, -1, -1, -1]
    assert trace.nodes.kind.tolist() == rows.kind.tolist() and trace.nodes.thread.tolist()[:9] == threads
    for name in ("id", "ts", "dur", "link", "exclusive", "stream", "kineto_event", "seq_id"):
        assert getattr(trace.nodes, name).tolist() == expected[name], name
    assert trace.sync_dep == rows.sync_dep and trace.unattached.names == ["before", "stray"]
    assert sorted(trace.nodes.id[trace.edges[:, :2]].tolist()) == sorted(rows.edges[:, :2].tolist())
