"""Chakra back to ET+: nothing of ours is lost, foreign files say what they can, broken ones say what is wrong."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from etplus.converters.chakra import write_et
from etplus.converters.conversion import convert
from etplus.linker import link
from etplus.schemas.chakra import et_def_pb2 as pb
from etplus.schemas.chakra.attributes import KIND_BITS, ORDER, attribute
from etplus.schemas.chakra.chakra_reader import read_et
from etplus.schemas.chakra.stream import write_chakra
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.schemas.perfetto.packets import protos
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.errors import TraceFormatError, UsageError
from etplus.trace.kinds import CPU, GPU
from etplus.trace.trace import Trace
from etplus_files import PAIRS, cpu, etplus, gpu, linked, normal, runtime
from hypothesis import given
from hypothesis import strategies as st
from support import Document, assert_valid, examples, fixture_pair, run


def there_and_back(source: Any, folder: Path) -> Document:
    write_et(source if isinstance(source, Trace) else read_etplus(source), folder / "t.0.et")
    return check_columns(read_et(folder / "t.0.et")).to_dict()


def check_columns(trace: Trace) -> Trace:
    """The trace, whose columns and records are to be those that its ET+ file would give."""
    saved = read_etplus(b"".join(trace.chunks()))
    for field in dataclasses.fields(Trace):
        ours, theirs = (getattr(one, field.name) for one in (trace, saved))
        if field.name not in ("file", "texts"):
            np.testing.assert_equal(plain(ours), plain(theirs), field.name)
    rows = np.arange(len(trace))
    assert trace.texts.texts(rows) == saved.texts.texts(rows)
    assert repr(trace.signatures) == repr(saved.signatures)
    return trace


def plain(value: Any) -> Any:
    """A field of a trace, with undecoded JSON as bytes and objects as their fields."""
    if isinstance(value, msgspec.Raw):
        return bytes(value)
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if dataclasses.is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    return value


@pytest.mark.parametrize("name", PAIRS)
def test_a_linked_pair_comes_back_whole(name: str, tmp_path: Path) -> None:
    result = linked(name)
    back = there_and_back(result, tmp_path)
    assert normal(back) == normal(result.to_dict())
    assert_valid(back)


def test_a_renumbered_file_comes_back_whole(tmp_path: Path) -> None:
    result = link(*fixture_pair("pairs/gpu_shaped_from_cpu"), renumber=True)
    back = there_and_back(result, tmp_path)
    assert normal(back) == normal(result.to_dict())
    assert_valid(back)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
starts = st.integers(10**15 - 10**8, 10**15).map(lambda ns: ns / 1000)
durations = st.integers(0, 10**8).map(lambda ns: ns / 1000)
"""Within 0.1 s, so that the times are possible; see `impossible_times`."""
KNOWN_IN_SUMMARY = ("version", "tool_version", "nodes_from", "damage")
"""Members of `etplus` that a file keeps; `schemas/known_fields.py` drops members that etplus does not know."""


@st.composite
def documents(draw: st.DrawFn) -> Document:
    """ET+ documents in either layout: a tree of ops, some linked, GPU events and runtime calls below them."""
    flat = draw(st.booleans())
    count = draw(st.integers(1, 8))
    ids = sorted(draw(st.sets(st.integers(1, 2**63 - 1), min_size=count, max_size=count)))
    nodes = [draw(ops(flat, number, ids[:at])) for at, number in enumerate(ids)]
    last = ids[-1]
    events = draw(st.integers(0, 5)) if last < 2**62 else 0
    gpu_ids, call_ids = [last + 1 + at for at in range(events)], [last + 10 + at for at in range(events)]
    nodes += [draw(gpu_events(flat, number, ids)) for number in gpu_ids]
    calls = [draw(runtime_calls(number, ids)) for number in call_ids]
    everything = [*ids, *gpu_ids, *call_ids]
    pairs = st.tuples(st.sampled_from(everything), st.sampled_from(everything), st.sampled_from(EDGE_KINDS))
    rising = draw(st.sets(pairs.filter(lambda edge: edge[0] < edge[1]), max_size=6))
    summary = draw(st.dictionaries(st.sampled_from(KNOWN_IN_SUMMARY), st.text(max_size=8), max_size=3))
    order = [[a, b, kind] for a, b, kind in sorted(rising, key=lambda e: (e[0], e[1], EDGE_KINDS.index(e[2])))]
    root = {"schema": "1.0.1" if flat else "1.1.1-chakra.0.0.4", "pid": 1, "time": draw(st.text(max_size=5))}
    return {**root, "nodes": nodes, "runtime": calls, "edges": order, "etplus": summary}


def _layout(draw: st.DrawFn, flat: bool, number: int, parent: int) -> Document:
    values = {"rf_id": draw(st.integers(0, 2**40)), "fw_parent": 0, "seq_id": draw(st.integers(-1, 99)), "scope": 0,
              "tid": draw(st.integers(0, 5)), "fw_tid": 0, "op_schema": draw(st.text(max_size=9))}  # fmt: skip
    tensors = [draw(st.lists(json_values, max_size=2)) for _ in range(6)]
    common = {"id": number, "name": draw(st.text(max_size=12))}
    if flat:
        keys = ("inputs", "input_shapes", "input_types", "outputs", "output_shapes", "output_types")
        return {**common, "parent": parent, **values, **dict(zip(keys, tensors, strict=True))}
    kinds = {"seq_id": "int64", "op_schema": "string"}
    attrs = [{"name": key, "type": kinds.get(key, "uint64"), "value": value} for key, value in values.items()]
    attrs += [{"name": "kernel_file", "type": "string", "value": draw(st.text(max_size=4))}] * draw(st.integers(0, 1))
    more = {"strides": []} if draw(st.booleans()) else {}
    inputs, outputs = (
        {**dict(zip(("values", "shapes", "types"), part, strict=True)), **more} for part in (tensors[:3], tensors[3:])
    )
    return {**common, "ctrl_deps": parent, "inputs": inputs, "outputs": outputs, "attrs": attrs}


def _times(draw: st.DrawFn) -> Document:
    dur = draw(durations)
    return {"ts": draw(starts), "dur": dur, "inclusive_dur": dur, "exclusive_dur": draw(durations)}


@st.composite
def ops(draw: st.DrawFn, flat: bool, number: int, earlier: list[int]) -> Document:
    parent = draw(st.sampled_from([*earlier, number, 2**62 + 5]))
    node = _layout(draw, flat, number, parent)
    if draw(st.booleans()):
        waits = {"inter_thread_dep": draw(st.none() | st.sampled_from([number, *earlier])),
                 "sync_dep": draw(st.lists(st.sampled_from([number, *earlier]), max_size=2))}  # fmt: skip
        linked = {"kineto_event": draw(st.integers(0, 10**6)), "link": draw(st.sampled_from(["certain", "equivalent"]))}
        node |= {**_times(draw), **linked, **waits}
    if draw(st.booleans()):
        node |= {"et_id": draw(st.integers(0, 99)), "more": draw(json_values)}
    return node


@st.composite
def gpu_events(draw: st.DrawFn, flat: bool, number: int, parents: list[int]) -> Document:
    node = _layout(draw, flat, number, draw(st.sampled_from(parents)))
    dur = draw(durations)
    node |= {"cat": draw(st.sampled_from(["kernel", "gpu_memcpy"])), "ph": "X", "ts": draw(starts), "dur": dur,
             "inclusive_dur": dur, "exclusive_dur": dur, "stream": draw(st.integers(-1, 9)), "device": 0,
             "correlation": draw(st.integers(-1, 2**40)), "kineto_event": 3,
             "args": draw(st.dictionaries(st.text(max_size=4), json_values, max_size=3))}  # fmt: skip
    if draw(st.booleans()):
        name = draw(st.none() | st.text(max_size=4))
        comm = {"comm": {"collective": draw(st.none() | st.text(max_size=4)), "pg_name": name}}
        node |= {**draw(st.sampled_from([comm, {}])), "pg_name": name}
    return node


@st.composite
def runtime_calls(draw: st.DrawFn, number: int, parents: list[int]) -> Document:
    return {
        "id": number, "name": draw(st.text(max_size=9)), "ts": draw(starts), "dur": draw(durations),
        "tid": draw(st.integers(-5, 2**40) | st.text(max_size=4)), "correlation": draw(st.integers(-1, 99)),
        "parent": draw(st.none() | st.sampled_from(parents)), "kineto_event": draw(st.integers(0, 99)),
    }  # fmt: skip


def test_fields_without_an_attribute_of_their_own_are_columns(tmp_path: Path) -> None:
    """Those of other linkers: a number as text or as 7.0, `comm` on the host, waits of GPU events, a group alone."""
    nodes = [
        cpu(3, "op", 0.0, stream=7.0, device="0", comm={"collective": "send"}, link="guessed"),
        gpu(4, "k", 1.0, 2.0, inter_thread_dep=3, sync_dep=[3], pg_name="7"),
    ]
    write_et(etplus(nodes), tmp_path / "t.0.et")
    trace = check_columns(read_et(tmp_path / "t.0.et"))
    assert trace.nodes.stream.tolist()[2:] == [7, 7] and trace.nodes.device.tolist()[2:] == [-1, 0]
    assert trace.nodes.inter_thread_dep.tolist()[2:] == [-1, 3] and trace.sync_dep == {3: [3]}
    assert trace.comm[2].collective == "send" and trace.comm[3].pg_name == "7"


def test_of_an_attribute_that_comes_twice_the_last_counts(tmp_path: Path) -> None:
    document = json.loads(b"".join(linked("pairs/gpu_shaped_from_cpu").chunks()))
    last = document["nodes"][-1]["attrs"]
    last.append({"name": "rf_id", "type": "uint64", "value": 77})
    write_et(read_etplus(json.dumps(document).encode()), tmp_path / "t.0.et")
    assert 77 in check_columns(read_et(tmp_path / "t.0.et")).nodes.rf_id


@pytest.mark.parametrize(
    "arguments", [("report", "t.0.et", "-o", "out.html"), ("convert", "t.0.et", "-o", "out.pftrace")]
)
def test_a_broken_attribute_is_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """`args` are read when they are needed."""
    if any(str(word).endswith(".pftrace") for word in arguments):
        try:
            protos()
        except UsageError as error:  # perfetto's messages need a newer protobuf than the oldest that Chakra's need
            pytest.skip(str(error))
    from etplus.converters.chakra import chakra_messages

    metadata, nodes, _ = chakra_messages(etplus([cpu(3, "op", 0.0), gpu(4, "k", 1.0, 2.0)]))
    messages = list(nodes)
    first_attribute("args", string_val='{"a": ')(messages)
    write_chakra(tmp_path / "t.0.et", metadata, messages)
    done = run("etplus", *arguments, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    assert b"t.0.et: node 4: an attribute is not JSON" in done.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["t.0.et"]


@pytest.mark.slow
@examples(60)
@given(document=documents())
def test_any_document_comes_back_whole(tmp_path_factory: pytest.TempPathFactory, document: Document) -> None:
    folder = tmp_path_factory.mktemp("et")
    back = there_and_back(json.dumps(document).encode(), folder)
    assert normal(back) == normal(document)
    again = there_and_back(json.dumps(back).encode(), folder)
    assert normal(again) == normal(document)


def test_read_et_and_conversion_to_etplus_agree(tmp_path: Path) -> None:
    document = linked("pairs/gpu_shaped_from_cpu")
    write_et(document, tmp_path / "t.0.et.gz")
    written = convert(tmp_path / "t.0.et.gz", tmp_path / "back.etplus.json")
    from_file, direct = read_etplus(tmp_path / "back.etplus.json"), read_et(tmp_path / "t.0.et.gz")
    assert written.nodes == len(direct) == len(document)
    assert direct.file == str(tmp_path / "t.0.et.gz")
    assert b"".join(from_file.chunks()) == b"".join(direct.chunks())
    direct.write(tmp_path / "saved.json")
    assert (tmp_path / "saved.json").read_bytes() == (tmp_path / "back.etplus.json").read_bytes()
    order = np.argsort(document.nodes.id), np.argsort(direct.nodes.id)
    for column in ("id", "ts", "dur", "exclusive", "kind", "thread", "stream", "parent"):
        assert getattr(document.nodes, column)[order[0]].tolist() == getattr(direct.nodes, column)[order[1]].tolist()


def test_texts_that_are_no_utf8_are_replaced(tmp_path: Path) -> None:
    """Only in what a hostile file escapes: the reader takes valid UTF-8 alone."""
    document = etplus([cpu(3, "x\0y\u2028é", 0, inputs=["\ud83d\ude00"])])
    write_et(document, tmp_path / "t.0.et")
    assert read_et(tmp_path / "t.0.et").name_of(2) == "x\0y\u2028é"


def foreign() -> list[pb.Node]:
    def node(number: int, kind: int, deps: list[int], *, micros: int = 5, **values: Any) -> pb.Node:
        attributes = [attribute(name, value) for name, value in values.items()]
        return pb.Node(
            id=number, name=f"n{number}", type=kind, data_deps=deps, attr=attributes,  # type: ignore[arg-type]
            duration_micros=micros, start_time_micros=10 * number,
        )  # fmt: skip

    return [
        node(1, pb.METADATA_NODE, []),
        node(2, pb.COMP_NODE, [], is_cpu_op=True, tid=1),
        node(3, pb.COMP_NODE, [2], is_cpu_op=True, tid=1),
        node(4, pb.COMP_NODE, [2], is_cpu_op=True, tid=2),
        node(5, pb.COMP_NODE, [3], stream=7),
        node(6, pb.COMP_NODE, [5], stream=7),
        node(7, pb.COMM_COLL_NODE, [6], stream=20, comm_type=6, comm_size=640, pg_name="3"),
        node(8, pb.COMM_SEND_NODE, [7], stream=20, comm_dst=1, comm_src=0, comm_tag=4, comm_size=64),
        node(9, pb.MEM_LOAD_NODE, [8], stream=7),
        node(10, pb.COMP_NODE, [9], is_cpu_op=True, tid=1),
    ]


def test_a_foreign_file_says_what_it_can(tmp_path: Path) -> None:
    write_chakra(tmp_path / "x.0.et", pb.GlobalMetadata(version="0.0.4"), foreign())
    document = check_columns(read_et(tmp_path / "x.0.et"))
    assert document.nodes.id.tolist() == [*range(1, 11)]
    assert document.nodes.kind.tolist() == [CPU] * 4 + [GPU] * 5 + [CPU]
    assert document.nodes.ts.tolist() == [-1, *(10_000 * number for number in range(2, 11))]
    assert set(document.nodes.dur[1:].tolist()) == {5_000}
    comm = document.comm
    assert (comm[6].collective, comm[6].bytes, comm[6].pg_name) == ("all_to_all", 640, "3")
    assert (comm[7].collective, comm[7].src_rank, comm[7].dst_rank) == ("send", 0, 1)
    ids = document.nodes.id
    assert {(int(ids[a]), int(ids[b]), EDGE_KINDS[k]) for a, b, k in document.edges.tolist()} == {
        (2, 3, "thread"), (2, 4, "thread_handoff"), (3, 5, "launch"), (5, 6, "stream"), (6, 7, "event"),
        (7, 8, "comm"), (8, 9, "event"), (9, 10, "sync"),
    }  # fmt: skip


def first_attribute(name: str, **value: Any) -> Callable[[list[pb.Node]], None]:
    def spoil(nodes: list[pb.Node]) -> None:
        node = next(node for node in nodes if any(one.name == name for one in node.attr))
        kept = [one for one in node.attr if one.name != name]
        del node.attr[:]
        node.attr.extend([*kept, *([pb.AttributeProto(name=name, **value)] if value else [])])

    return spoil


def dangling(nodes: list[pb.Node]) -> None:
    node = next(node for node in nodes if node.data_deps)
    node.data_deps[0] = 4711


def huge_id(nodes: list[pb.Node]) -> None:
    nodes[-1].id = 2**63


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (first_attribute("args", string_val='{"a": '), "an attribute is not JSON"),
        (first_attribute("comm", string_val="no"), "an attribute is not JSON"),
        (first_attribute("kineto_tid", string_val="{]"), "an attribute is not JSON"),
        (first_attribute("data_dep_kinds"), "data_deps but 0 kinds"),
        (dangling, "depends on 4711, which is not in the file"),
        (huge_id, "an id beyond 63 bits"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, spoil: Callable[[list[pb.Node]], None], message: str) -> None:
    from etplus.converters.chakra import chakra_messages

    document = etplus(
        [cpu(3, "op", 0), gpu(4, "ncclDevKernel_AllReduce", 1, 1, comm={"bytes": 4}, pg_name=None)],
        [runtime(5, "cudaLaunchKernel", 0, 1)],
        [[5, 4, "launch"]],
    )
    metadata, nodes, _ = chakra_messages(document)
    messages = list(nodes)
    spoil(messages)
    write_chakra(tmp_path / "t.0.et", metadata, messages)
    with pytest.raises(TraceFormatError, match=message) as caught:
        convert(tmp_path / "t.0.et", tmp_path / "out.etplus.json")
    assert "t.0.et: node" in str(caught.value)
    assert not (tmp_path / "out.etplus.json").exists()


def test_what_is_no_chakra_file(tmp_path: Path) -> None:
    (tmp_path / "x.et").write_bytes(b"not protobuf at all")
    with pytest.raises(TraceFormatError):
        read_et(tmp_path / "x.et")
    write_et(linked("demo/train_cpu"), tmp_path / "t.0.et")
    whole = (tmp_path / "t.0.et").read_bytes()
    (tmp_path / "cut.et").write_bytes(whole[:-7])
    with pytest.raises(TraceFormatError, match="cut off"):
        convert(tmp_path / "cut.et", tmp_path / "out.etplus.json")
    assert not (tmp_path / "out.etplus.json").exists()


def test_bits_of_kinds_never_change() -> None:
    """What `data_dep_kinds` of files that are already written mean."""
    first = ("thread", "launch", "stream", "event", "sync", "thread_handoff", "data", "comm")
    assert EDGE_KINDS[:8] == first and ORDER == 1 << 8
    assert KIND_BITS.tolist() == [*(1 << k for k in range(8)), 1 << 9]
