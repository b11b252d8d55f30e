"""Data dependencies: known cases by hand, and whole traces against a plain reading of the same rules."""

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import orjson
import pytest
from etplus.linker.calls import EtCalls, et_calls
from etplus.linker.data_dependencies import data_edges, recorded_data
from etplus.schemas.execution_trace.read_et import ExecutionTrace, read_execution_trace
from hypothesis import given
from hypothesis import strategies as st
from support import Document, et_document, examples, fixture_pair, read_json, shared_trace

Edges = set[tuple[int, int]]
Range = tuple[int, int, int]

STRUCTURAL = re.compile(r"\[pytorch\|profiler\|execution_(graph|trace)\|(process|thread)\]")
IDLE = {
    "aten::result_type", "aten::is_pinned", "aten::_nnz", "aten::sparse_dim", "aten::dense_dim", "aten::is_coalesced",
    "aten::cudnn_is_acceptable", "aten::detach_", "aten::record_stream", "aten::_coalesced_", "aten::as_strided_",
    "detach", "detach_", "torch::autograd::AccumulateGrad",
}  # fmt: skip


def storage_only(name: str) -> bool:
    return name.startswith(("aten::empty", "aten::new_empty", "aten::resize_")) or name == "aten::set_"


def tensors(value: Any) -> Iterator[Range]:
    """(storage, first byte, last byte + 1) of all tensors in a value."""
    if isinstance(value, list) and len(value) == 6 and isinstance(value[5], str):
        _, storage, offset, numel, itemsize, _ = value
        if storage and numel:
            yield storage, offset * itemsize, (offset + numel) * itemsize
    elif isinstance(value, list):
        for item in value:
            yield from tensors(item)


def written_arguments(schema: str) -> tuple[set[int], set[int]]:
    """The arguments that a schema marks, and of these the keyword-only ones."""
    arguments = re.sub(r"\[[^\]]*\]", "", schema.partition("(")[2].rpartition(") ->")[0]).split(", ")
    keyword = arguments.index("*") if "*" in arguments else len(arguments)
    names = [argument for argument in arguments if argument != "*"]
    marked = {i for i, argument in enumerate(names) if "!" in argument}
    return marked, {i for i in marked if i >= keyword}


def touched(node: Document) -> tuple[list[Range], list[Range]]:
    """What a call reads and writes by itself or through its callees."""
    attrs = {attr["name"]: attr["value"] for attr in node.get("attrs", [])} | node
    name, schema = node["name"], attrs.get("op_schema", "")
    autograd = name.startswith("autograd::engine::evaluate_function") or re.search(r"Backward\d+$", name)
    if attrs.get("scope") == 7 or autograd or name in IDLE or "reducer::" in name:
        return [], []
    inputs, outputs = ([list(tensors(v)) for v in (side if isinstance(side, list) else side["values"])]
                       for side in (node["inputs"], node["outputs"]))  # fmt: skip
    given, back = [t for ts in inputs for t in ts], [t for ts in outputs for t in ts]
    fresh = [t for t in back if t[0] not in {g[0] for g in given}]
    if storage_only(name):
        return [], fresh
    marked, out = written_arguments(schema)
    if name.startswith("triton_"):
        marked = set(range(len(inputs)))
    by_name = not marked and (name == "record_param_comms" or re.search(r"[^_]_(\.\w+)?$", name) is not None)
    if by_name and not back:
        marked = {0}
    writes = fresh + [t for i in marked if i < len(inputs) for t in inputs[i]] + (back if by_name else [])
    view = back and not fresh and not marked and not by_name
    shape_only = re.search(r"^aten::(new_\w+|\w+_like)$", name)
    return [] if view or shape_only else [t for i, ts in enumerate(inputs) if i not in out for t in ts], writes


def without(span: Range, others: list[Range]) -> list[Range]:
    """What is left of a range of bytes."""
    storage, left = span[0], [span]
    for begin, end in [(begin, end) for other, begin, end in others if other == storage]:
        parts = [part for _, x, y in left for part in ((x, min(y, begin)), (max(x, end), y))]
        left = [(storage, x, y) for x, y in parts if x < y]
    return left


def plain_data_edges(document: Document) -> Edges:
    """Node ids of writers and readers."""
    calls = {n["id"]: n for n in sorted(document["nodes"], key=lambda n: n["id"]) if not STRUCTURAL.match(n["name"])}
    callers: dict[int, list[int]] = {}
    access = {number: touched(node) for number, node in calls.items()}
    below: dict[int, tuple[list[Range], list[Range]]] = defaultdict(lambda: ([], []))
    ends: dict[int, int] = {}
    for number, node in calls.items():
        parent = node.get("parent", node.get("ctrl_deps"))
        callers[number] = [parent, *callers[parent]] if parent in calls and parent < number else []
        for call in [number, *callers[number]]:
            ends[call] = number
        for call in callers[number] if not storage_only(node["name"]) else []:
            below[call][0].extend(access[number][0] + access[number][1])
            below[call][1].extend(access[number][1])
    memory: dict[int, list[tuple[Range, int]]] = defaultdict(list)
    found: Edges = set()
    own = {c: tuple([left for r in access[c][k] for left in without(r, below[c][k])] for k in (0, 1)) for c in calls}
    moments = [(number, 0, number) for number in calls] + [(end, 1, -number) for number, end in ends.items()]
    for _, is_end, signed in sorted(moments):
        number = abs(signed)
        if is_end and (own[number][0] or own[number][1]):
            for span in access[number][1]:
                kept = [(left, w) for old, w in memory[span[0]] for left in without(old, [span])]
                memory[span[0]] = [*kept, (span, number)]
        for span in own[number][0] if not is_end else []:
            found |= {(w, number) for (_, begin, end), w in memory[span[0]] if begin < span[2] and span[1] < end}
    return found


LAYOUTS = ("1.0.1", "1.1.1-chakra.0.0.4")
COPY = "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)"
ADD_OUT = "aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)"
FOREACH_ADD = "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()"


def tensor(storage: int, offset: int = 0, numel: int = 8, itemsize: int = 4) -> list[Any]:
    return [900 + storage, storage, offset, numel, itemsize, "cuda:0"]


A, B, C, D = (tensor(storage) for storage in (10, 20, 30, 40))


def op(number: int, name: str, inputs: Any = (), outputs: Any = (), schema: str = "", **fields: Any) -> Document:
    sides = {side: {"values": v, "shapes": [], "types": []} for side, v in (("inputs", inputs), ("outputs", outputs))}
    return {"id": number, "name": name, "op_schema": schema, **sides, **fields}


@cache
def calls_of(source: bytes | Path) -> tuple[ExecutionTrace, EtCalls]:
    et = read_execution_trace(source)
    return et, et_calls(et, [])


def edges_of(source: bytes | Path) -> Edges:
    """Data dependencies by node id; what must hold for every trace is checked on the way."""
    et, nodes = calls_of(source)
    writers, readers = data_edges(et, nodes)
    pairs = list(zip(writers.tolist(), readers.tolist(), strict=True))
    assert all(one < other for one, other in itertools.pairwise(pairs)), "sorted, and none twice"
    for writer, reader in pairs:
        assert writer < reader
        ancestor = reader
        while ancestor >= 0:
            ancestor = int(nodes.parent[ancestor])
            assert ancestor != writer, "a callee reads from its caller"
    ids = et.id[nodes.node].tolist()
    return {(ids[writer], ids[reader]) for writer, reader in pairs}


def edges(*nodes: Document) -> Edges:
    flat, other = (edges_of(json.dumps(et_document(list(nodes), schema)).encode()) for schema in LAYOUTS)
    assert flat == other
    return flat


def test_a_reader_depends_on_the_last_writer() -> None:
    found = edges(
        op(3, "aten::mm", [A], [B]), op(4, "aten::relu", [B], [C]), op(5, "aten::mm", [A], [B]),
        op(6, "aten::relu", [B], [D]), op(7, "aten::add", [B, C], [A]),
    )  # fmt: skip
    assert found == {(3, 4), (5, 6), (5, 7), (4, 7)}


def test_in_place_calls_read_and_write() -> None:
    schema = "aten::relu_(Tensor(a!) self) -> Tensor(a!)"
    calls = [op(4, "aten::relu_", [A], [A], schema), op(5, "aten::exp_", [A], [A]), op(6, "mylib::scale_.v2", [A])]
    assert edges(op(3, "aten::mm", [B], [A]), *calls, op(7, "aten::neg", [A], [B])) == {(3, 4), (4, 5), (5, 6), (6, 7)}
    assert edges(op(3, "aten::__and__", [A, B], []), op(4, "aten::neg", [A], [C])) == set()


def test_a_caller_that_works_too_is_the_writer() -> None:
    found = edges(
        op(3, "aten::addmm", [A, B], [C]), op(4, "aten::copy_", [C, A], [C], COPY, parent=3), op(5, "aten::x", [C], [])
    )
    assert found == {(3, 5)}


def test_a_collective_depends_on_writers_and_its_readers_on_it() -> None:
    found = edges(
        op(3, "aten::mm", [D], [A]), op(4, "c10d::allreduce_", [[A], "<Object>"], [[A], "<Object>"]),
        op(5, "record_param_comms", [[A], 7, "allreduce"], [[A]], parent=4),
        op(6, "nccl:all_reduce", [A], [], parent=5, scope=7),
        op(7, "c10d::alltoall_base_", [B, A, "<Object>"], ["<Object>"]),
        op(8, "record_param_comms", [A, 8, "all_to_all"], [B], parent=7), op(9, "aten::x", [A, B], []),
        op(10, "c10d::allgather_", [[[C, D]], [B]], [[[C, D]], "<Object>"]), op(11, "aten::x", [C], []),
        op(12, "aten::x", [B], []),
    )  # fmt: skip
    assert found == {(3, 5), (5, 8), (5, 9), (8, 9), (8, 10), (10, 11), (8, 12)}


def test_strings_that_look_like_tensors_are_not_read() -> None:
    strings = ['[1,10,0,8,4,"cuda:0"]', 'a "quoted" \\', "[", '],[1,10,0,8,4,"x"]']
    assert edges(op(3, "aten::a", [], [A]), op(4, "aten::b", [*strings, B], [C])) == set()
    assert edges(op(3, "aten::a", [], [A]), op(4, "aten::b", [*strings, A], [C])) == {(3, 4)}
    calls = [op(3, "aten::a", [], [A]), op(4, "aten::add", [B, C, 1, [[A]]], [C], ADD_OUT), op(5, "aten::b", [A], [])]
    assert edges_of(orjson.dumps(et_document(calls), option=orjson.OPT_INDENT_2)) == {(4, 5)}, "white space"


NO_TENSORS: list[Any] = [
    [1, 10, 0, 8, 4], [1, 10, 0, 8, 4, 5], [1, 10, 0, 8, 4, "cpu", 0], [1, 10, 0, 8, "4", "cpu"],
    [True, 10, 0, 8, 4, ""], [1, 10, 0, 8, 4, None], [1, 10, 0, 8, 4, ["cpu"]], [1, 10, -1, 8, 4, "cpu"],
    [1, 10, 0, 0, 4, "cpu"], [1, 10, 0, 8, 0, "cpu"], [1, 0, 0, 8, 4, "cpu"], [-1, 10, 0, 8, 4, "cpu"],
    [1, -10, 0, 8, 4, "cpu"], [1, 10, 0, 10**18, 4, "cpu"], [1, 10, 10**30, 8, 4, "cpu"], [1, 10, 0, 8, 10**9, "cpu"],
    [1, 10, 0, 8.0, 4, "cpu"], [[1], 10, 0, 8, 4, "cpu"], [1, 10, 0, 1e3, 4, "cpu"], [2**31, 2**31, 0, 8, 4, "cpu"],
    [1, 10, 0, -8, 4, "cpu"], {"a": 1, "b": [2]}, [], "", None, 1.5, [[[[]]]],
]  # fmt: skip


def test_values_that_are_no_tensors_are_skipped() -> None:
    for value in NO_TENSORS:
        calls = [op(3, "aten::a", [value], [A]), op(4, "aten::a", [], [value]), op(5, "aten::b", [value, C], [])]
        assert edges(*calls, op(6, "aten::c", [[value, B], A], [])) == {(3, 6)}, value


def test_thousands_of_slices_with_as_many_reads_of_the_whole_stay_in_order() -> None:
    count = 1100
    slices = (tensor(10, i, 1) for i in range(count))
    calls = [op(3 + i, "aten::neg", [B], [slice_]) for i, slice_ in enumerate(slices)]
    calls += [op(3 + count + i, "aten::cat", [tensor(10, 0, count)], []) for i in range(count)]
    calls += [op(3 + 2 * count, "aten::neg", [A], [C]), op(4 + 2 * count, "aten::neg", [C], [])]
    graph: nx.DiGraph[int] = nx.DiGraph(edges_of(orjson.dumps(et_document(calls))))
    assert graph.number_of_edges() < 3 * count
    assert nx.ancestors(graph, 2 + 2 * count) == set(range(3, 3 + count))
    assert graph.has_edge(3 + 2 * count, 4 + 2 * count)


@pytest.mark.parametrize("name", ["", "ddp_one.rank0", "thr_jitfork", "tf_sgd_foreach_one"])
def test_recorded_traces_have_the_edges_of_the_plain_reading(name: str) -> None:
    path = shared_trace(f"cpu-pairs/{name}.et.json.gz") if name else fixture_pair("pairs/two_threads")[0]
    found = edges_of(path)
    assert found and found == plain_data_edges(read_json(path))


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """Traces of random calls: names of all sorts, few storages, ranges that overlap, two threads, nesting, lists."""
    some = st.builds(tensor, st.integers(0, 3), st.integers(0, 6), st.integers(0, 6), st.sampled_from((1, 2)))
    value = st.one_of(some, some, st.lists(some, max_size=3), st.just(1), st.just("<None>"), st.just('"[1,'))
    values = st.lists(value, max_size=4)
    named = st.sampled_from([
        ("aten::mm", ""), ("aten::mm", ""), ("aten::linear", ""), ("aten::view", ""), ("aten::copy_", COPY),
        ("aten::add", ADD_OUT), ("aten::_foreach_add_", FOREACH_ADD), ("aten::relu_", ""), ("aten::empty_strided", ""),
        ("aten::zeros_like", ""), ("record_param_comms", ""), ("c10d::allreduce_", ""), ("triton_poi_0", ""),
        ("AddBackward0", ""), ("aten::resize_", "aten::resize_(Tensor(a!) self) -> Tensor(a!)"), ("outer", ""),
    ])  # fmt: skip
    nodes: list[Document] = []
    for number in range(3, 3 + draw(st.integers(0, 14))):
        name, schema = draw(named)
        inputs = draw(values)
        outputs = draw(st.one_of(values, st.just(inputs)))
        parent = draw(st.sampled_from([2, 2, *range(3, number), 99]))
        if name == "aten::view":
            outputs = inputs
        fields = {"parent": parent, "tid": draw(st.integers(1, 2)), "scope": draw(st.sampled_from((0, 0, 0, 7)))}
        nodes.append(op(number, name, inputs, outputs, schema, **fields))
    return et_document(draw(st.permutations(nodes)), draw(st.sampled_from(LAYOUTS)))


@examples(80)
@given(documents())
def test_generated_traces_have_the_edges_of_the_plain_reading(document: Document) -> None:
    assert edges_of(orjson.dumps(document)) == plain_data_edges(document)


def test_recorded_data_edges_join_only_linked_calls() -> None:
    kineto: Any = SimpleNamespace(events=range(5), data=np.array([[1, 3], [3, 1], [1, 2], [2, 1], [4, 3]]))
    calls: Any = SimpleNamespace(row=np.array([1, 2, 3]))
    edges = recorded_data(kineto, calls, np.array([0, -1, 1]))
    assert [side.tolist() for side in edges] == [[0, 1], [1, 0]]
