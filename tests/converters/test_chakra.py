"""ET+ to Chakra: what an independent reader finds, and each thing that the field's own converter gets wrong."""

import itertools
import json
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import networkx as nx
import numpy as np
import pytest
from etplus.converters.chakra import write_et
from etplus.converters.collectives import Communication, RankComms
from etplus.converters.conversion import convert
from etplus.converters.node_work import rounded
from etplus.converters.preflight import check
from etplus.schemas.chakra.chakra_reader import read_et
from etplus.schemas.chakra.stream import read_chakra, write_chakra
from etplus.schemas.comm_types import RECV as RECV_KIND
from etplus.schemas.comm_types import SEND as SEND_KIND
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.kinds import GPU
from etplus.trace.trace import Trace
from etplus_files import DLRM, cpu, document_of, etplus, gpu, runtime
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from plain_chakra import COLL, COMP, RECV, SEND, PlainNode, read_plain
from random_step import random_step
from support import Document, call, fixture_pair, read_json, succeeds

FEW = ("pairs/gpu_shaped_from_cpu", "pairs/two_threads", DLRM[0], "cpu-pairs/ddp_same.rank0")
TABLE = {
    "is_cpu_op": "bool_val", "num_ops": "int64_val", "tensor_size": "uint64_val", "comm_type": "int64_val",
    "comm_size": "int64_val", "comm_src": "int32_val", "comm_dst": "int32_val", "comm_tag": "int32_val",
    "comm_priority": "int32_val", "pg_name": "string_val", "involved_dim": "bool_list", "stream": "int64_val",
    "tid": "int64_val", "seq_id": "int64_val", "scope": "int64_val", "rf_id": "int64_val", "fw_parent": "int64_val",
    "fw_tid": "int64_val", "op_schema": "string_val", "duration_ns": "int64_val",
}  # fmt: skip
"""Attribute to the member of the oneof that the field's readers take it from."""


def write(document: Trace, folder: Path, **options: Any) -> dict[int, PlainNode]:
    write_et(document, folder / "t.0.et", **options)
    _, nodes = read_plain(folder / "t.0.et")
    assert len({node.id for node in nodes}) == len(nodes), "an id is used twice"
    return {node.id: node for node in nodes}


@cache
def nodes_of(name: str) -> dict[int, PlainNode]:
    """What a pair's file holds."""
    with TemporaryDirectory() as folder:
        return write(document_of(name), Path(folder))


def assert_sound(nodes: dict[int, PlainNode]) -> nx.DiGraph:
    """What holds for every file: no dangling or double dependency, no cycle, attributes of the right type."""
    graph = nx.DiGraph()
    graph.add_nodes_from(nodes)
    for node in nodes.values():
        for deps in (node.ctrl_deps, node.data_deps):
            assert len(set(deps)) == len(deps), f"node {node.id} has a dependency twice"
            assert nodes.keys() >= set(deps), f"node {node.id} depends on nodes that are not there"
            graph.add_edges_from((dep, node.id) for dep in deps)
        for name, (member, _) in node.attributes.items():
            assert TABLE.get(name, member) == member, f"{name} of node {node.id} is {member}"
        assert "is_cpu_op" in node.attributes
        if node.type in (SEND, RECV, COLL):
            assert node.value("is_cpu_op") is False
    assert nx.is_directed_acyclic_graph(graph)
    return graph


@pytest.mark.parametrize("name", FEW)
def test_an_independent_reader_finds_it_sound_and_whole(name: str, tmp_path: Path) -> None:
    document = document_of(name)
    nodes = write(document, tmp_path)
    graph = assert_sound(nodes)
    assert set(nodes) == set(document.nodes.id.tolist())
    seen: set[int] = set()
    for node in nodes.values():
        assert {*node.data_deps, *node.ctrl_deps} <= seen, "a dependency comes after what waits for it"
        seen.add(node.id)
    ids = document.nodes.id.tolist()
    for a, b, _ in document.edges.tolist():
        assert ids[a] in nodes[ids[b]].data_deps
    for row in np.flatnonzero(document.nodes.parent_row >= 0).tolist():
        assert nodes[int(document.nodes.id[row])].ctrl_deps == [int(document.nodes.id[document.nodes.parent_row[row]])]
    streams = defaultdict(list)
    for row in np.flatnonzero(document.nodes.kind == GPU).tolist():
        streams[int(document.nodes.device[row]), int(document.nodes.stream[row])].append(
            (int(document.nodes.ts[row]), int(document.nodes.id[row]))
        )
    for events in streams.values():
        for (_, a), (_, b) in itertools.pairwise(sorted(events)):
            assert graph.has_edge(a, b), "consecutive events of a stream"
    assert check(tmp_path / "t.0.et").ok


@given(arrays.arrays(np.int64, st.integers(0, 60), elements=st.integers(0, 5000)), st.randoms(use_true_random=False))
def test_rounding_to_microseconds_carries_its_error_along_a_lane(durations: Any, random: Any) -> None:
    lane = np.array([random.randrange(3) for _ in durations], np.int64)
    ts = np.array([random.randrange(100) for _ in durations], np.int64)
    micros = rounded(durations, lane, ts)
    assert np.all(np.abs(1000 * micros - durations) <= 1000)
    for one in range(3):
        rows = np.flatnonzero(lane == one)
        rows = rows[np.lexsort((rows, ts[rows]))]
        assert np.all(np.abs(1000 * np.cumsum(micros[rows]) - np.cumsum(durations[rows])) <= 500)


def test_time_of_callees_and_waits_is_not_counted_as_work(tmp_path: Path) -> None:
    document = etplus(
        [
            cpu(3, "step", 0, 100, scope=7), cpu(4, "aten::mm", 5, 20, parent=3),
            cpu(5, "aten::item", 60, 30, parent=3), gpu(6, "gemm", 20, 50, parent=4),
            cpu(7, "backward", 30, 25, parent=2, tid=2),
        ],
        [runtime(20, "cudaLaunchKernel", 10, 5, parent=4), runtime(21, "cudaStreamSynchronize", 65, 7, parent=5)],
        [[20, 6, "launch"], [6, 21, "sync"]],
    )  # fmt: skip
    nodes = write(document, tmp_path)
    assert {number: nodes[number].value("duration_ns") for number in (3, 4, 5, 6, 7, 20, 21)} == {
        3: (5 + (30 - 25) + (60 - 55) + 10) * 1000,  # before 4, to 7, after 7, after 5
        4: 15_000, 5: 23_000, 6: 50_000, 7: 25_000, 20: 5_000,
        21: 2_000,  # waits until 70, ends at 72
    }  # fmt: skip
    assert nodes[21].value("inclusive_ns") == 7_000


def test_successive_collectives_of_a_group_are_connected() -> None:
    nodes = nodes_of(DLRM[0])
    collectives = sorted((n for n in nodes.values() if n.type == COLL), key=lambda node: node.value("start_ns"))
    assert len(collectives) == 8
    for a, b in itertools.pairwise(collectives):
        assert a.id in b.data_deps
    for node in collectives:
        assert node.value("pg_name") == "0"
        assert node.value("comm_size") == json.loads(node.value("comm"))["bytes"]
    assert Counter(node.value("comm_type") for node in collectives) == {6: 5, 0: 3}  # ALL_TO_ALL, ALL_REDUCE
    nodes = nodes_of("cpu-pairs/ddp_same.rank0")
    assert sum(node.type == COLL for node in nodes.values()) == 33
    assert [node.value("comm_tag") for node in nodes.values() if node.type == SEND] == [0, 1, 2]


@pytest.mark.parametrize(
    ("comm", "kernel"),
    [
        ({"collective": "teleport", "bytes": 4}, "ncclDevKernel_AllThings"),
        ({"collective": None}, "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"),
        ({"collective": None}, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
        ({"collective": "send"}, "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
    ],
)
def test_communication_that_is_not_understood_becomes_computation(comm: Document, kernel: str, tmp_path: Path) -> None:
    document = etplus([cpu(3, "op", 0, 20), gpu(4, kernel, 5, 7, comm=comm, pg_name=None), gpu(5, "next", 20, 1)])
    done = write_et(document, tmp_path / "t.0.et")
    nodes = {node.id: node for node in read_plain(tmp_path / "t.0.et")[1]}
    assert (nodes[4].type, nodes[4].micros) == (COMP, 7)
    ((text, count),) = done.counts.items()
    assert count == 1
    assert "kept as computations" in text


def test_messages_have_source_target_and_tag(tmp_path: Path) -> None:
    def message(number: int, ts: float, **comm: Any) -> Document:
        fields = {"dtype": "BFloat16", "in_nelems": 10, "out_nelems": 10, **comm}
        return gpu(number, "ncclDevKernel_SendRecv", ts, 2, comm=fields, pg_name=None)

    document = etplus(
        [
            cpu(3, "op", 0, 99), message(4, 10, collective="send", src_rank=1, dst_rank=2),
            message(5, 20, collective="recv", src_rank=2, dst_rank=1),
            message(6, 30, collective="send", src_rank=1, dst_rank=2),
            message(7, 40, collective="send", src_rank=1, dst_rank=0),
        ],
        rank=1, world_size=3,
    )  # fmt: skip
    nodes = write(document, tmp_path)
    fields = ("comm_src", "comm_dst", "comm_tag", "comm_size")
    assert {number: (nodes[number].type, *map(nodes[number].value, fields)) for number in (4, 5, 6, 7)} == {
        4: (SEND, 1, 2, 0, 20), 5: (RECV, 2, 1, 0, 20), 6: (SEND, 1, 2, 1, 20), 7: (SEND, 1, 0, 0, 20),
    }  # fmt: skip
    assert_sound(nodes)


@pytest.mark.parametrize("parent", [None, 0, 1, 999])
def test_a_caller_that_is_no_node_is_kept(parent: int | None, tmp_path: Path) -> None:
    found = write(etplus([cpu(3, "a", 0, 9)], [runtime(10, "cudaLaunchKernel", 1, 1, parent)]), tmp_path)[10]
    assert found.ctrl_deps == ([1] if parent == 1 else [])
    assert found.value("call_parent") == (None if parent == 1 else parent)
    assert read_et(tmp_path / "t.0.et").to_dict()["runtime"][0]["parent"] == parent


def test_waits_for_other_threads_are_kept_also_for_node_0(tmp_path: Path) -> None:
    waits = [cpu(3, "a", 0, 9, inter_thread_dep=0), cpu(4, "b", 9, 9, inter_thread_dep=3, sync_dep=[3]), cpu(5, "c")]
    nodes = write(etplus(waits), tmp_path)
    assert [nodes[number].value("inter_thread_dep") for number in (3, 4, 5)] == [0, 3, None]
    back = {node["id"]: node for node in read_et(tmp_path / "t.0.et").to_dict()["nodes"]}
    assert [back[number]["inter_thread_dep"] for number in (3, 4)] == [0, 3] and back[4]["sync_dep"] == [3]


@pytest.mark.parametrize("name", ["pairs/gpu_shaped_from_cpu", "cpu-pairs/weird_names"])
def test_chakra_files_equal_those_that_protobuf_writes(name: str, tmp_path: Path) -> None:
    write_et(document_of(name), tmp_path / "ours.et")
    metadata, nodes = read_chakra(tmp_path / "ours.et")
    write_chakra(tmp_path / "protobuf.et", metadata, nodes)
    assert (tmp_path / "ours.et").read_bytes() == (tmp_path / "protobuf.et").read_bytes()


def test_nodes_do_not_depend_on_those_encoded_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = random_step(1)
    for to, more in (("chakra", {}), ("astra-sim", {"replicate": 2})):
        written = []
        for rows in (1 << 20, 7):
            for module in ("chakra", "astra_nodes"):
                monkeypatch.setattr(f"etplus.converters.{module}.ROWS", rows)
            convert(document, tmp_path / to, to=to, as_prefix=True, **more)  # type: ignore[arg-type]
            written.append((tmp_path / f"{to}.0.et").read_bytes())
        assert written[0] == written[1]


ATTRS = [
    {"name": name, "type": kind, "value": none}
    for name, kind, none in (
        ("rf_id", "uint64", 5), ("fw_parent", "uint64", 0), ("seq_id", "int64", -1), ("scope", "uint64", 0),
        ("tid", "uint64", 1), ("fw_tid", "uint64", 0), ("op_schema", "string", 'a "b" \\ é'),
    )
]  # fmt: skip
BACKEND = {"name": "kernel_backend", "type": "string", "value": "triton"}


def changed(position: int, **change: Any) -> list[Document]:
    return [{**one, **change} if at == position else one for at, one in enumerate(ATTRS)]


@pytest.mark.parametrize("separators", [(",", ":"), (" ,\n ", ":")])
@pytest.mark.parametrize(
    ("attrs", "further"),
    [
        (ATTRS, None), ([*ATTRS, BACKEND], [BACKEND]),
        ([*ATTRS, BACKEND, {"name": "rf_id", "type": "uint64", "value": 6}, {"name": "x"}], "those"),
        ([*ATTRS, *[BACKEND] * 40], "unusual"), (ATTRS[::-1], "unusual"), (ATTRS[:-1], "unusual"),
        (changed(0, value=5.0), "unusual"), (changed(0, value=2**64), "unusual"), (changed(4, value=-1), "unusual"),
        (changed(4, doc="x"), "unusual"), (changed(2, type="int32"), "unusual"), (changed(6, value=None), "unusual"),
    ],
)  # fmt: skip
def test_attributes_of_every_form_are_kept(
    attrs: list[Any], further: Any, separators: tuple[str, str], tmp_path: Path
) -> None:
    thread = [{**one, "value": 7} if one["name"] == "scope" else one for one in ATTRS]
    name = "[pytorch|profiler|execution_trace|thread]"
    sides = {side: {"values": [], "shapes": [], "types": []} for side in ("inputs", "outputs")}
    times = dict.fromkeys(("ts", "dur", "inclusive_dur", "exclusive_dur"), 1.0)
    nodes = [
        {"id": 2, "name": name, "ctrl_deps": 1, **sides, "attrs": thread},
        {"id": 3, "name": "op", "ctrl_deps": 2, **sides, "attrs": attrs, **times, "color": [1, {}]},
    ]
    root = {"schema": "1.1.1", "nodes": nodes, "runtime": [], "edges": [], "etplus": {"version": "1.1"}}
    node = write(read_etplus(json.dumps(root, separators=separators).encode()), tmp_path)[3]
    fields = json.loads(node.value("et_fields"))
    assert fields["color"] == [1, {}]
    if further == "unusual":
        assert fields["attrs"] == attrs
        return
    assert "attrs" not in fields
    assert {one["name"]: node.value(one["name"]) for one in ATTRS} == {one["name"]: one["value"] for one in ATTRS}
    those = attrs[len(ATTRS) :]
    assert node.value("et_attrs") == (json.dumps(those, separators=separators) if those else None)
    back = read_et(tmp_path / "t.0.et").to_dict()
    assert next(one for one in back["nodes"] if one["id"] == 3)["attrs"] == attrs


def test_an_execution_trace_alone_becomes_nodes_without_durations(tmp_path: Path) -> None:
    et, _ = fixture_pair("pairs/one_of_n")
    refused = call("convert", et, "-o", tmp_path / "x.0.et")
    assert refused.returncode == 2 and b"--without-times" in refused.stderr
    succeeds("convert", et, "-o", tmp_path / "x.0.et", "--without-times")
    metadata, nodes = read_chakra(tmp_path / "x.0.et")
    written, header = list(nodes), read_json(et)
    assert [node.id for node in written] == sorted(node["id"] for node in header["nodes"])
    assert not any(node.duration_micros or node.start_time_micros for node in written)
    kept = {given.name: given.string_val or given.uint64_val for given in metadata.attr}
    for name in ("schema", "pid", "time", "start_ts", "finish_ts"):
        assert kept[name] == header[name]


def test_copies_and_fills_become_memory_nodes_if_asked(tmp_path: Path) -> None:
    copies = [gpu(4 + k, name, 10 * k, 2, cat=cat) for k, (name, cat) in enumerate(
        (("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy"), ("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy"),
         ("Memset (Device)", "gpu_memset"), ("gemm", "kernel")))]  # fmt: skip
    document = etplus([cpu(3, "op", 0, 99), *copies])
    assert [write(document, tmp_path)[number].type for number in (4, 5, 6, 7)] == [COMP] * 4
    as_memory = write(document, tmp_path, memory_nodes=True)
    assert [as_memory[number].type for number in (4, 5, 6, 7)] == [2, 3, 2, COMP]  # load, store


def test_several_messages_of_one_kernel_are_nodes_before_it(tmp_path: Path) -> None:
    trace = etplus([cpu(3, "op", 0, 99), gpu(4, "first", 5, 3), gpu(5, "ncclDevKernel_SendRecv", 10.7, 6)], rank=0)
    row = trace.nodes.id.tolist().index(5)
    comms = RankComms(
        0, 2, (Communication(row, SEND_KIND, 16, peer=1), Communication(row, RECV_KIND, 8, peer=1, tag=3))
    )
    nodes = write(trace, tmp_path, comms=comms)
    sent, got = (node for node in nodes.values() if node.value("message_of") == 5)
    assert [(node.type, node.value("comm_size"), node.value("comm_tag"), node.data_deps) for node in (sent, got)] == [
        (SEND, 16, 0, [4]), (RECV, 8, 3, [4]),
    ]  # fmt: skip
    assert (sent.start, sent.micros, got.start, got.micros) == (11, 6, 11, 6) and nodes[5].micros == 0
    assert list(nodes)[-3:] == [sent.id, got.id, 5] and min(sent.id, got.id) > 5
