"""The reader of ET+: columns against the file's plain JSON, files of Chakra's linker, and every way to be no ET+."""

import gzip
import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from etplus.linker import link
from etplus.schemas.etplus import read_etplus as etplus_reader
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.errors import TraceFormatError
from etplus.trace.kinds import CPU, GPU, RUNTIME, UNVERIFIED
from etplus.trace.trace import Trace
from etplus_files import step_by_hand
from hypothesis import given
from hypothesis import strategies as st
from support import Document, attr_of, fixture_pair, ns

PAIR = "pairs/gpu_shaped_from_cpu"


def as_bytes(document: Document, **options: Any) -> bytes:
    return json.dumps(document, **options).encode()


@cache
def linked_text(name: str, renumber: bool) -> bytes:
    return b"".join(link(*fixture_pair(name), renumber=renumber).chunks())


def linked(name: str = PAIR, *, renumber: bool = False) -> Document:
    document: Document = json.loads(linked_text(name, renumber))
    return document


def assert_same(document: Trace, plain: Document) -> None:
    rows = [*plain["nodes"], *plain["runtime"]]
    assert len(document) == len(rows)
    assert document.nodes.id.tolist() == [row["id"] for row in rows]
    assert [document.name_of(row) for row in range(len(rows))] == [row["name"] for row in rows]
    kinds = [GPU if "cat" in node else CPU for node in plain["nodes"]] + [RUNTIME] * len(plain["runtime"])
    assert document.nodes.kind.tolist() == kinds
    assert document.nodes.ts.tolist() == [ns(row["ts"]) if "ts" in row else -1 for row in rows]
    assert document.nodes.dur.tolist() == [ns(row.get("dur", 0)) for row in rows]
    exclusive = [ns(row.get("exclusive_dur", 0)) for row in plain["nodes"]]
    assert document.nodes.exclusive[: len(exclusive)].tolist() == exclusive
    for column, none in (("rf_id", 0), ("seq_id", -1), ("scope", 0), ("fw_parent", 0), ("fw_tid", 0)):
        # GPU nodes repeat the attributes of their operator, which are none of their own
        expected = [none if "cat" in node else attr_of(node, column) for node in plain["nodes"]]
        assert getattr(document.nodes, column)[: len(expected)].tolist() == expected
    for column in ("stream", "device", "correlation", "kineto_event"):
        assert getattr(document.nodes, column).tolist() == [row.get(column, -1) for row in rows]
    ids = document.nodes.id
    parents = [row.get("parent", row.get("ctrl_deps")) for row in rows]
    assert document.nodes.parent.tolist() == [-1 if parent is None else parent for parent in parents]
    found = [int(ids[row]) if row >= 0 else None for row in document.nodes.parent_row.tolist()]
    known = set(ids.tolist())
    assert found == [p if p in known and p != row["id"] else None for p, row in zip(parents, rows, strict=True)]
    edges = [[int(ids[a]), int(ids[b]), EDGE_KINDS[kind]] for a, b, kind in document.edges.tolist()]
    assert edges == plain["edges"]
    records = document.records(np.arange(len(document)))
    assert [{key: json.loads(bytes(raw)) for key, raw in record.items()} for record in records] == rows
    comm = {row: node["comm"] for row, node in enumerate(rows) if "comm" in node}
    assert {row: one.members() for row, one in document.comm.items()} == comm


@pytest.mark.parametrize(("name", "renumber"), [("demo/train_cpu", False), (PAIR, True)])
def test_columns_hold_the_values_that_the_file_records(name: str, renumber: bool) -> None:
    plain = linked(name, renumber=renumber)
    assert_same(read_etplus(as_bytes(plain)), plain)


@pytest.mark.parametrize(("block", "layout"), [(64, {}), (3000, {"indent": 1}), (900, {"separators": (",", ":")})])
def test_blocks_may_end_anywhere_in_a_file(monkeypatch: pytest.MonkeyPatch, block: int, layout: dict[str, Any]) -> None:
    monkeypatch.setattr(etplus_reader, "_BLOCK", block)
    plain = step_by_hand().to_dict()
    assert_same(read_etplus(as_bytes(plain, **layout)), plain)


def test_unverified_links_of_files_that_call_them_equivalent_are_read() -> None:
    text = as_bytes(linked())
    new, old = (text.replace(b'"link": "certain"', b'"link": "%b"' % name) for name in (b"unverified", b"equivalent"))
    links = read_etplus(old).nodes.link.tolist()
    assert UNVERIFIED in links and links == read_etplus(new).nodes.link.tolist()


def test_keys_and_attributes_in_any_order_and_number() -> None:
    plain = linked("demo/train_cpu")
    usual = read_etplus(as_bytes(plain))
    plain = {key: plain[key] for key in ("etplus", "edges", "runtime", "schema", "nodes", "pid")}
    plain["nodes"] = [dict(sorted(node.items())) for node in plain["nodes"]]
    again = [{"name": "color", "type": "string", "value": "red"}, {"name": "seq_id", "type": "int64", "value": 77}]
    later = np.where(usual.nodes.kind == CPU, 77, usual.nodes.seq_id)  # the last one of a name counts
    for more, seq_id in ((again[:1] * 20, usual.nodes.seq_id), (again, later)):
        for node in plain["nodes"]:
            node["attrs"] = [*node["attrs"][::-1], *more]
        read = read_etplus(as_bytes(plain))
        assert np.array_equal(read.nodes.seq_id, seq_id)
        for column in ("rf_id", "scope", "fw_parent", "fw_tid", "thread"):
            assert np.array_equal(getattr(read.nodes, column), getattr(usual.nodes, column))


@given(st.integers(0, 4 * 10**18), st.integers(0, 86_400 * 10**9))
def test_times_are_exact_to_the_ns(ts: int, dur: int) -> None:
    text = as_bytes(linked_once()).replace(b'"ts": 987654321.5', b'"ts": %d.%03d' % divmod(ts, 1000))
    document = read_etplus(text.replace(b'"dur": 123456789.5', b'"dur": %d.%03d' % divmod(dur, 1000)))
    row = int(np.flatnonzero(document.nodes.id == 3)[0])
    assert (document.nodes.ts[row], document.nodes.dur[row]) == (ts, dur)


def linked_once() -> Document:
    node = {
        "id": 3, "name": "aten::add", "ctrl_deps": 2, "inputs": {}, "outputs": {}, "attrs": [], "ts": 987654321.5,
        "dur": 123456789.5, "inclusive_dur": 1, "exclusive_dur": 1,
    }  # fmt: skip
    return {"schema": "1.1.0", "nodes": [node], "runtime": [], "edges": [], "etplus": {}}


def test_rank_world_size_and_groups_are_read_and_bad_ones_dropped() -> None:
    groups = [{"pg_name": "0", "ranks": [0, 1]}, {"pg_name": "tp", "ranks": [1]}, {"pg_name": "none"}, 7]
    kineto = {"distributed_info": {"rank": 1, "world_size": 2, "pg_config": groups}, "base_time_ns": 5}
    document = read_etplus(as_bytes({**linked_once(), "etplus": {"kineto": kineto}}))
    assert (document.rank, document.world_size, document.base_time_ns) == (1, 2, 5)
    assert document.process_groups == {"0": [0, 1], "tp": [1]}
    bare = read_etplus(as_bytes({**linked_once(), "etplus": {"kineto": {"distributed_info": {"rank": "x"}}}}))
    assert (bare.rank, bare.world_size, bare.process_groups) == (None, None, {})


def test_runtime_calls_are_on_the_thread_of_their_op_or_on_one_of_their_own() -> None:
    plain = step_by_hand().to_dict()
    plain["runtime"] += [{**plain["runtime"][0], "id": 90 + k, "parent": None, "tid": f"t{k % 2}"} for k in range(3)]
    document = read_etplus(as_bytes(plain))
    assert document.nodes.thread[document.nodes.kind == RUNTIME].tolist() == [1] * 6 + [-2, -3, -2]


def chakra_linker_file(flat: bool = False) -> Document:
    """As Chakra's own linker writes it: no edges, runtime or etplus; GPU nodes are copies of their ops."""

    def node(number: int, name: str, parent: int, tid: int, ts: float | None, **more: Any) -> Document:
        columns = {"rf_id": number, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": tid, "fw_tid": 0, "op_schema": ""}
        attrs = [{"name": key, "type": "uint64", "value": value} for key, value in columns.items()]
        empty = {"values": [], "shapes": [], "types": []}
        own = {"parent": parent, **columns} if flat else {"ctrl_deps": parent, "attrs": attrs}
        times = {"ts": ts, "inclusive_dur": 8, "exclusive_dur": 4, "inter_thread_dep": None, "sync_dep": []}
        return {"id": number, "name": name, "inputs": empty, "outputs": empty, **own, **(times if ts else {}), **more}

    kernel: Document = {"cat": "kernel", "ph": "X", "stream": 7}
    nodes = [
        node(1, "[pytorch|profiler|execution_trace|process]", 1, 0, 1), node(3, "aten::mm", 1, 1, 10),
        node(4, "gemm", 3, 1, 15.5, **kernel), node(5, "ncclKernel_AllReduce", 3, 1, 50, **kernel, pg_name="0"),
        node(7, "autograd::engine", 1, 2, 300, inter_thread_dep=3), node(10, "aten::item", 1, 1, 360, sync_dep=[5]),
        node(11, "aten::early", 1, 1, 5, sync_dep=[5]), node(13, "never linked", 1, 1, None),
    ]  # fmt: skip
    return {"schema": "1.0.1" if flat else "1.0.3-chakra.0.0.4", "pid": 1, "nodes": nodes}


@pytest.mark.parametrize("flat", [False, True])
def test_files_of_chakras_linker_get_edges(flat: bool) -> None:
    document = read_etplus(as_bytes(chakra_linker_file(flat)))
    ids = document.nodes.id.tolist()
    assert {(ids[a], ids[b], EDGE_KINDS[kind]) for a, b, kind in document.edges.tolist()} == {
        (11, 3, "thread"), (3, 10, "thread"), (3, 4, "launch"), (3, 5, "launch"), (4, 5, "stream"), (5, 10, "sync"),
        (3, 7, "thread_handoff"),
    }  # fmt: skip
    row = ids.index(4)
    assert (document.nodes.ts[row], document.nodes.dur[row], document.nodes.exclusive[row]) == (15_500, 8000, 4000)
    assert document.comm[ids.index(5)].pg_name == "0" and document.flat == flat and not document.nodes.timed[0]
    assert "another linker" in document.notes[0] and "1 inferred edges" in document.notes[1]


@pytest.mark.parametrize(
    ("node", "root", "message"),
    [({"id": "7"}, {}, r"nodes\[3\]: Expected `int`, got `str`"), ({"id": -1}, {}, r"nodes\[3\]: Expected `int` >= 0"),
     ({"ts": "soon"}, {}, r"nodes\[3\]: Expected `float \| null`, got `str`"), ({}, {"nodes": 0}, "is not an array"),
     ({}, {"edges": [[1, 2, "wish"]]}, "unknown kind 'wish'"), ({}, {"edges": [[1, 1, "data"]]}, "not join two nodes"),
     ({}, {"edges": [[1, 2]]}, '"edges": cannot be read'), ({}, {"traceEvents": []}, "a Kineto trace")],
)  # fmt: skip
def test_a_wrong_value_in_an_et_plus_file_is_named(node: Document, root: Document, message: str) -> None:
    plain = step_by_hand().to_dict()
    plain["nodes"][3].update(node)
    with pytest.raises(TraceFormatError, match=f"^<bytes>: .*{message}"):
        read_etplus(as_bytes(plain | root))


def test_input_that_is_no_et_plus_file_is_refused_with_a_reason() -> None:
    plain = linked()
    et = {**plain, "nodes": [node for node in chakra_linker_file()["nodes"] if "ts" not in node]}
    for key in ("etplus", "edges", "runtime"):
        del et[key]
    whole = as_bytes(plain)
    cases = {
        "without times": as_bytes(et), 'no "nodes"': b"{}", "not an ET\\+ file \\(": whole[:-5],
        "must end in .et": b"\x0a\x050.0.4", "is not UTF-8": whole.replace(b"aten::", b"aten:\xff", 1),
        "the file is empty": b"", "the gzip stream is damaged": gzip.compress(whole)[:-2000],
    }  # fmt: skip
    assert len(read_etplus(b'{"schema": "1.0.1", "nodes": [{"id": 3, "name": "a", "parent": 3, "ts": 0}]}')) == 1
    for message, data in cases.items():
        with pytest.raises(TraceFormatError, match=message):
            read_etplus(data)
