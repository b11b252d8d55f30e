"""What a builder makes of rows: nulls, interned texts, callers, threads, no records (trace/node_texts.py)."""

import re

import numpy as np
import pytest
from etplus.trace.build import NO_RECORDS, TraceBuilder, built_on_demand
from etplus.trace.comm_kernels import Comm
from etplus.trace.conventions import EDGE_KINDS, MAX_NS
from etplus.trace.errors import TraceFormatError
from etplus.trace.kinds import CPU, GPU, RUNTIME
from etplus.trace.node_texts import texts_at
from etplus.trace.nodes import NODE_COLUMNS
from etplus.trace.tables import UnattachedEvents
from etplus.trace.trace import Trace


def builder_of(ids: list[int], **columns: list[object]) -> TraceBuilder:
    builder = TraceBuilder("made.json")
    builder.add(CPU, id=ids, name=["op"] * len(ids), **columns)
    return builder


def test_columns_that_are_left_out_hold_their_null() -> None:
    trace = builder_of([7, 9]).build(NO_RECORDS, summary={})
    for name, column in NODE_COLUMNS.items():
        values = getattr(trace.nodes, name)
        assert values.dtype == column.dtype and len(values) == 2 and column.about, name
        if column.none is not None and name != "thread":
            assert set(values.tolist()) == {column.none}, name
    assert trace.nodes.thread.tolist() == [0, 0], "the ET's null of `tid`"
    assert trace.categories == [""] and trace.names == ["op"] and not len(trace.unattached) and not len(trace.memory)


def test_values_that_are_no_integers_become_minus_one() -> None:
    trace = builder_of([1, 2, 3], stream=["default", 2.0, 2**70], seq_id=[None, 5, "x"]).build(NO_RECORDS, summary={})
    assert trace.nodes.stream.tolist() == [-1, 2, -1] and trace.nodes.seq_id.tolist() == [-1, 5, -1]


def test_blocks_are_joined_in_their_order() -> None:
    builder = builder_of([3, 1], parent=[3, 3])
    builder.add(np.array([GPU, CPU], np.int8), id=[5, 4], name=["k", "op"], category=["kernel", ""], parent=[1, 1])
    assert builder.count == 4
    trace = builder.build(NO_RECORDS, summary={})
    assert trace.nodes.id.tolist() == [3, 1, 5, 4] and trace.nodes.kind.tolist() == [CPU, CPU, GPU, CPU]
    assert trace.nodes.parent_row.tolist() == [-1, 0, 1, 1], "who names itself has no caller"
    assert trace.names == ["op", "k"]
    assert trace.nodes.name.tolist() == [0, 0, 1, 0] == trace.nodes.category.tolist()


def test_codes_of_names_and_threads_are_used_directly() -> None:
    builder = TraceBuilder("made.json")
    builder.add(CPU, id=[1, 2, 3], name=builder.names.recode(["unused", "b", "a", "b"], np.array([3, 2, 1])))
    builder.tids = ["x", "y", "x"]
    builder.add(RUNTIME, id=[4, 5, 6], name=["r"] * 3, tid=np.array([2, 0, 2]))
    trace = builder.build(NO_RECORDS, summary={})
    assert trace.names == ["b", "a", "r"] and trace.nodes.name.tolist() == [0, 1, 0, 2, 2, 2]
    assert trace.nodes.thread[3:].tolist() == [-4, -2, -4], "threads of no ops have numbers of their own, one a code"


def test_edges_between_ids_become_edges_between_rows() -> None:
    kind = EDGE_KINDS.index("data")
    trace = builder_of([30, 10, 20]).build(NO_RECORDS, summary={}, edges=np.array([[10, 20, kind], [30, 10, kind]]))
    assert trace.edges.tolist() == [[1, 2, kind], [0, 1, kind]]


def test_ids_are_unique_and_durations_have_a_bound() -> None:
    with pytest.raises(TraceFormatError, match="id 5: two nodes have it"):
        builder_of([5, 1, 5]).check()
    for column in ("dur", "exclusive"):
        with pytest.raises(TraceFormatError, match="146 years"):
            builder_of([1, 2], **{column: [MAX_NS // 2, MAX_NS // 2]}).check()
        builder_of([1, 2], **{column: [MAX_NS // 4, MAX_NS // 4]}).check()


def test_names_of_unattached_events_are_interned() -> None:
    one = np.array([1])
    events = UnattachedEvents(["k"], ["kernel"], one, one, one, one, one, one.astype(np.int8), [b"{}"])
    trace = builder_of([1]).build(NO_RECORDS, summary={}, unattached=events)
    assert trace.names == ["op", "k"] and trace.categories == ["", "kernel"]


def test_process_and_thread_nodes_are_structural() -> None:
    builder = TraceBuilder("made.json")
    names = [f"[pytorch|profiler|execution_trace|{what}]" for what in ("process", "thread", "op")]
    builder.add(CPU, id=[1, 2, 3], name=names)
    builder.add(GPU, id=[4], name=names[:1], category=["kernel"])
    assert builder.build(NO_RECORDS, summary={}).nodes.structural.tolist() == [True, True, False, False]


def test_edges_between_unknown_or_equal_ids_are_refused() -> None:
    kind = EDGE_KINDS.index("sync")
    for ends in ((2, 7), (9, 1), (2, 2)):
        edges = np.array([[1, 2, 0], [*ends, kind]])
        said = re.escape(f"made.json: edges[1]: [{ends[0]}, {ends[1]}, 'sync'] does not join two nodes in the file")
        with pytest.raises(TraceFormatError, match=said):
            builder_of([1, 2]).build(NO_RECORDS, summary={}, edges=edges)


def test_a_trace_is_built_when_it_is_asked_for() -> None:
    built: list[int] = []

    def build() -> Trace:
        built.append(1)
        return builder_of([7, 9]).build(NO_RECORDS, summary={"other": 1})

    trace = built_on_demand("x.json", {"a": 1}, NO_RECORDS, build)
    assert trace.file == "x.json" and trace.summary == {"a": 1} and trace.captured is None and not built
    with pytest.raises(AttributeError, match="no attribute 'color'"):
        _ = trace.color  # type: ignore[attr-defined]
    assert not built and trace.nodes.id.tolist() == [7, 9] and len(trace) == 2 and built == [1]
    assert trace.file == "x.json" and trace.summary == {"a": 1}, "what is known stays"


def test_a_trace_without_records_returns_empty_texts_and_cannot_be_written() -> None:
    rows = np.array([1, 0])
    which, texts = NO_RECORDS.tensor_texts(rows)
    assert NO_RECORDS.texts(rows) == [texts[at] for at in which] == texts[:] == [b"{}", b"{}"]
    assert list(NO_RECORDS.records(rows)) == [{}, {}] and NO_RECORDS.decoded(0) == {}
    assert NO_RECORDS.copy_sizes(rows).tolist() == [-1, -1] and NO_RECORDS.args_size(b"{}") == -1
    assert NO_RECORDS.args_comm(b"{}", "k") == Comm() and list(NO_RECORDS.other_events()) == []
    assert list(NO_RECORDS.chunks()) == []
    assert list(texts_at([b"a", b"b", b"c", b"d"], np.array([3, 1, 2]))) == [b"d", b"b", b"c"]
    for refused in (NO_RECORDS.document, lambda: NO_RECORDS.write("x.json")):
        with pytest.raises(NotImplementedError, match="no records"):
            refused()
