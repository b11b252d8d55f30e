"""The reader of ET+: columns against the file's plain JSON, files of Chakra's linker, and every way to be no ET+."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
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
from support import Document, attr_of, fixture_pair, ns, shared_pair

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
    """Hold columns against the file as plain JSON."""
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
def test_columns_are_what_the_file_says(name: str, renumber: bool) -> None:
    plain = linked(name, renumber=renumber)
    assert_same(read_etplus(as_bytes(plain)), plain)


@pytest.mark.parametrize("name", ["gpu-pairs/linear", "gpu-pairs/dlrm.rank0"])
def test_real_gpu_pairs(name: str) -> None:
    """Both layouts; times of over 2**43 µs, where a double is not exact any more."""
    result = link(*shared_pair(name))
    document = read_etplus(b"".join(result.chunks()))
    plain = result.to_dict()
    assert document.flat == (plain["schema"] == "1.0.1")
    assert document.nodes.id.tolist() == [row["id"] for row in [*plain["nodes"], *plain["runtime"]]]
    rows = [*plain["nodes"], *plain["runtime"]]
    assert document.nodes.ts.tolist() == [round(Decimal(str(row["ts"])) * 1000) if "ts" in row else -1 for row in rows]


@pytest.mark.parametrize(("block", "layout"), [(64, {}), (3000, {"indent": 1}), (900, {"separators": (",", ":")})])
def test_blocks_may_end_anywhere(monkeypatch: pytest.MonkeyPatch, block: int, layout: dict[str, Any]) -> None:
    monkeypatch.setattr(etplus_reader, "_BLOCK", block)
    plain = step_by_hand().to_dict()
    assert_same(read_etplus(as_bytes(plain, **layout)), plain)


def test_a_cut_inside_an_element_is_followed_by_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What separates two nodes also separates two objects inside one: the block then ends at the next place that fits,
    each place is tried once, and the rest of the file is not read as one block."""
    monkeypatch.setattr(etplus_reader, "_BLOCK", 200)
    plain = linked("demo/train_cpu")
    lookalike = [{"id": number} for number in range(40)]
    plain["nodes"] = [{"id": node["id"], "x": lookalike, **node} for node in plain["nodes"]]
    decode, tried, sizes = etplus_reader.decode_raws, set[bytes](), list[int]()

    def decode_once(text: bytes) -> list[Any]:
        assert text not in tried, "the same cut twice"
        tried.add(text)
        decoded = decode(text)
        sizes.append(len(text))
        return decoded

    monkeypatch.setattr(etplus_reader, "decode_raws", decode_once)
    document = read_etplus(as_bytes(plain))
    assert document.nodes.id.tolist() == [row["id"] for row in [*plain["nodes"], *plain["runtime"]]]
    assert len(tried) > len(sizes), "some cuts were inside an element"
    assert max(sizes) <= 200 + 2 * max(len(as_bytes(node)) for node in plain["nodes"])


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
    again = [{"name": "seq_id", "type": "int64", "value": 77}, {"name": "color", "type": "string", "value": "red"}]
    changes: list[Callable[[list[Document]], list[Document]]] = [
        lambda attrs: attrs[::-1],
        lambda attrs: [*attrs, *[again[1]] * 20],
        lambda attrs: [*attrs, *again],
    ]
    for change in changes:
        plain_too = copy.deepcopy(plain)
        for node in plain_too["nodes"]:
            node["attrs"] = change(node["attrs"])
        read = read_etplus(as_bytes(plain_too))
        later = np.where(usual.nodes.kind == CPU, 77, usual.nodes.seq_id)  # the last one of a name counts
        assert np.array_equal(read.nodes.seq_id, later if change is changes[-1] else usual.nodes.seq_id)
        for column in ("rf_id", "scope", "fw_parent", "fw_tid", "thread"):
            assert np.array_equal(getattr(read.nodes, column), getattr(usual.nodes, column))


@given(st.integers(0, 4 * 10**18), st.integers(0, 86_400 * 10**9))
def test_times_are_exact_to_the_ns(ts: int, dur: int) -> None:
    plain = linked_once()
    text = as_bytes(plain).replace(b'"ts": 987654321.5', b'"ts": %d.%03d' % divmod(ts, 1000))
    document = read_etplus(text.replace(b'"dur": 123456789.5', b'"dur": %d.%03d' % divmod(dur, 1000)))
    row = int(np.flatnonzero(document.nodes.id == 3)[0])
    assert (document.nodes.ts[row], document.nodes.dur[row]) == (ts, dur)


def linked_once() -> Document:
    node = {
        "id": 3, "name": "aten::add", "ctrl_deps": 2, "inputs": {}, "outputs": {}, "attrs": [], "ts": 987654321.5,
        "dur": 123456789.5, "inclusive_dur": 1, "exclusive_dur": 1,
    }  # fmt: skip
    return {"schema": "1.1.0", "nodes": [node], "runtime": [], "edges": [], "etplus": {}}


def test_rank_world_and_groups() -> None:
    groups = [{"pg_name": "0", "ranks": [0, 1]}, {"pg_name": "tp", "ranks": [1]}, {"pg_name": "none"}, 7]
    info = {"rank": 1, "world_size": 2, "pg_config": groups}
    document = read_etplus(
        as_bytes({**linked_once(), "etplus": {"kineto": {"distributed_info": info, "base_time_ns": 5}}})
    )
    assert (document.rank, document.world_size, document.base_time_ns) == (1, 2, 5)
    assert document.process_groups == {"0": [0, 1], "tp": [1]}
    bare = read_etplus(as_bytes({**linked_once(), "etplus": {"kineto": {"distributed_info": {"rank": "x"}}}}))
    assert (bare.rank, bare.world_size, bare.process_groups) == (None, None, {})


def test_runtime_calls_are_on_the_thread_of_their_op_or_on_one_of_their_own() -> None:
    plain = step_by_hand().to_dict()
    plain["runtime"] += [{**plain["runtime"][0], "id": 90 + k, "parent": None, "tid": f"t{k % 2}"} for k in range(3)]
    document = read_etplus(as_bytes(plain))
    assert document.nodes.thread[document.nodes.kind == RUNTIME].tolist() == [1] * 6 + [-2, -3, -2]


def chakra_linker_file(layout: str = "attrs") -> Document:
    """As Chakra's own linker writes it: no edges, runtime or etplus; GPU nodes are copies of their ops."""

    def node(number: int, name: str, parent: int, tid: int, **more: Any) -> Document:
        columns = {"rf_id": number, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": tid, "fw_tid": 0, "op_schema": ""}
        attrs = [{"name": key, "type": "uint64", "value": value} for key, value in columns.items()]
        empty = {"values": [], "shapes": [], "types": []}
        own = {"ctrl_deps": parent, "inputs": empty, "outputs": empty, "attrs": attrs}
        return {"id": number, "name": name, **(own if layout == "attrs" else {"parent": parent, **columns}), **more}

    def timed(ts: float, dur: float, dep: int | None = None, sync: list[int] = []) -> Document:  # noqa: B006
        return {"ts": ts, "inclusive_dur": dur, "exclusive_dur": dur / 2, "inter_thread_dep": dep, "sync_dep": sync}

    kernel = {"cat": "kernel", "ph": "X", "stream": 7}
    nccl = {"cat": "kernel", "ph": "X", "stream": 20, "pg_name": "0"}
    nodes = [
        node(1, "[pytorch|profiler|execution_trace|process]", 1, 0, **timed(0, 500)),
        node(2, "[pytorch|profiler|execution_trace|thread]", 1, 1),
        node(3, "aten::mm", 2, 1, **timed(10, 20)),
        node(4, "gemm", 3, 1, **timed(15.5, 30), **kernel),
        node(5, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 3, 1, **timed(50, 10), **nccl),
        node(6, "aten::add", 2, 1, **timed(40, 5)),
        node(7, "autograd::engine", 2, 2, **timed(300, 10, dep=6)),
        node(8, "MulBackward", 2, 2, **timed(320, 10, dep=6)),
        node(9, "gemm", 8, 2, **timed(325, 10), **kernel),
        node(10, "aten::item", 2, 1, **timed(360, 10, sync=[9])),
        node(11, "aten::early", 2, 1, **timed(5, 1, sync=[9])),
        node(12, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 8, 2, **timed(340, 10), **nccl),
        node(13, "never linked", 2, 1),
    ]  # fmt: skip
    return {"schema": "1.0.3-chakra.0.0.4" if layout == "attrs" else "1.0.1", "pid": 1, "nodes": nodes}


@pytest.mark.parametrize("layout", ["attrs", "flat"])
def test_files_of_chakras_linker_get_edges(layout: str) -> None:
    document = read_etplus(as_bytes(chakra_linker_file(layout)))
    ids = document.nodes.id
    edges = {(int(ids[a]), int(ids[b]), EDGE_KINDS[kind]) for a, b, kind in document.edges.tolist()}
    assert edges == {
        *((11, 3, "thread"), (3, 6, "thread"), (6, 10, "thread"), (7, 8, "thread")),
        *((3, 4, "launch"), (3, 5, "launch"), (8, 9, "launch"), (8, 12, "launch")),
        *((4, 9, "stream"), (5, 12, "stream"), (5, 12, "comm")),
        *((9, 10, "sync"), (6, 7, "thread_handoff")),
    }
    assert document.flat == (layout == "flat")
    row = ids.tolist().index(4)
    assert (document.nodes.ts[row], document.nodes.dur[row], document.nodes.exclusive[row]) == (15_500, 30_000, 15_000)
    assert document.comm[ids.tolist().index(5)].pg_name == "0"
    assert "other linker" in document.notes[0].replace("another", "other")
    assert "1 inferred edges" in document.notes[1]
    assert not document.nodes.timed[0]


def set_node(**fields: Any) -> Callable[[Document], None]:
    def spoil(document: Document) -> None:
        document["nodes"][3].update(fields)

    return spoil


def set_root(**fields: Any) -> Callable[[Document], None]:
    return lambda document: document.update(fields)


def drop(key: str) -> Callable[[Document], None]:
    return lambda document: document["nodes"][3].pop(key)


def repeat_id(document: Document) -> None:
    document["runtime"][0]["id"] = document["nodes"][0]["id"]


BAD = [
    (set_node(id="7"), r"nodes\[3\]: Expected `int`, got `str`"),
    (set_node(id=-1), r"nodes\[3\]: Expected `int` >= 0"),
    (set_node(id=2**63), r"nodes\[3\]: Expected `int` <= 9223372036854775807"),
    (set_node(name=None), r"nodes\[3\]: Expected `str`, got `null`"),
    (set_node(ts="soon"), r"nodes\[3\]: Expected `float \| null`, got `str`"),
    (set_node(ts=1e300), r"nodes\[3\]"),
    (set_node(comm={"bytes": "many"}), r"nodes\[3\].*bytes|nodes\[3\]: Expected `int \| null`"),
    (set_node(sync_dep=[-4]), r"nodes\[3\]"),
    (drop("id"), r"nodes\[3\]: Object missing required field `id`"),
    (drop("name"), r"nodes\[3\]: Object missing required field `name`"),
    (repeat_id, "two nodes have it"),
    (set_root(nodes=None), '"nodes": is not an array'),
    (set_root(runtime="x"), '"runtime": is not an array'),
    (set_root(edges=7), '"edges": is not an array'),
    (set_root(edges=[[1, 2]]), '"edges": cannot be read'),
    (set_root(edges=[[1, 2, "wish"]]), "unknown kind 'wish'"),
    (set_root(edges=[[1, 999999, "data"]]), r"edges\[0\]: \[1, 999999, 'data'\] does not join two nodes"),
    (set_root(edges=[[1, 1, "data"]]), "does not join two nodes"),
    (set_root(edges=[[1, 2**70, "data"]]), "cannot be read|beyond 64 bits"),
    (set_root(etplus=[]), '"etplus": is not an object'),
    (set_root(traceEvents=[]), "a Kineto trace"),
]


@pytest.mark.parametrize(("spoil", "message"), BAD)
def test_what_is_wrong_is_named(spoil: Callable[[Document], None], message: str) -> None:
    plain = linked()
    spoil(plain)
    with pytest.raises(TraceFormatError, match=message) as caught:
        read_etplus(as_bytes(plain))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("<bytes>: ")


def test_what_is_no_etplus(tmp_path: Path) -> None:
    plain = linked()
    et = {**plain, "nodes": [node for node in chakra_linker_file()["nodes"] if "ts" not in node]}
    for key in ("etplus", "edges", "runtime"):
        del et[key]
    whole = as_bytes(plain)
    cases = {
        "without times": as_bytes(et),
        'no "nodes"': b"{}",
        "not an ET\\+ file \\(": whole[:-5],
        "must end in .et": b"\x0a\x050.0.4",
        "is not UTF-8": whole.replace(b"aten::", b"aten:\xff", 1),
        "the file is empty": b"",
        "the gzip stream is damaged": gzip.compress(whole)[:-2000],
    }
    for message, data in cases.items():
        with pytest.raises(TraceFormatError, match=message):
            read_etplus(data)
    with pytest.raises(TraceFormatError, match="no such file"):
        read_etplus(tmp_path / "none.json")
    with pytest.raises(TraceFormatError, match="is a directory"):
        read_etplus(tmp_path)


def test_nesting_without_end_is_an_error_of_ours() -> None:
    deep = b'{"schema": "1.0.1", "nodes": [{"id": 1, "name": "x", "ts": 1, "inputs": ' + b"[" * 100_000
    with pytest.raises(TraceFormatError):
        read_etplus(deep + b"]" * 100_000 + b"}]}")
