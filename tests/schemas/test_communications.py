"""The communications of one rank in a trace made row by row, so that all that is said of them is known."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from etplus.schemas.comm_types import RECV, SEND, WORLD, CollectiveCommType
from etplus.schemas.communications import (
    FoundComm,
    backend_rows,
    blocking_calls,
    comm_rows,
    find_communications,
    issue_times,
    issuing_calls,
)
from etplus.schemas.etplus.record_store import TextRecords
from etplus.trace.build import TraceBuilder
from etplus.trace.columns import IntColumn
from etplus.trace.comm_kernels import Comm
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.kinds import CPU, GPU, RUNTIME
from etplus.trace.trace import Trace

Row = tuple[int, int, str, int, int, int]
TENSOR = [7, 8, 0, 24, 4, "cpu"]


class Inputs(TextRecords):
    def __init__(self, ids: IntColumn, inputs: dict[int, list[Any]]) -> None:
        self.ids, self.inputs = ids, inputs

    def texts(self, rows: IntColumn) -> list[bytes]:
        sides = ({"values": self.inputs.get(int(self.ids[row]), [])} for row in rows.tolist())
        return [json.dumps({"inputs": side}).encode() for side in sides]


def made(
    calls: Sequence[Row], events: Sequence[Row] = (), runtime: Sequence[Row] = (), *,
    launches: Sequence[tuple[int, int]] = (),
    comm: dict[int, Comm] | None = None, inputs: dict[int, list[Any]] | None = None, info: dict[str, Any] | None = None,
) -> Trace:  # fmt: skip
    """Of rows (id, caller, name, ts, dur, thread); `comm` and `inputs` by id."""
    builder = TraceBuilder("x.json")
    for kind, rows in ((CPU, calls), (GPU, events), (RUNTIME, runtime)):
        if rows:
            ids, callers, names, ts, dur, threads = map(list, zip(*rows, strict=True))
            more: dict[str, Any] = {"category": ["kernel"] * len(ids), "stream": threads, "device": [0] * len(ids)}
            more = more if kind == GPU else {"tid": threads}
            builder.add(kind, id=ids, parent=callers, name=names, ts=ts, dur=dur, **more)
    ids = builder.column("id").copy()
    builder.comm |= {ids.tolist().index(number): found for number, found in (comm or {}).items()}
    edges = np.array([(a, b, EDGE_KINDS.index("launch")) for a, b in launches], np.int64).reshape(-1, 3)
    summary = {"kineto": {"distributed_info": info or {}}}
    return builder.build(Inputs(ids, inputs or {}), summary=summary, edges=edges)


def ids(trace: Trace, rows: IntColumn) -> list[Any]:
    found: list[Any] = trace.nodes.id[rows].tolist()
    return found


KERNELS: list[Row] = [
    (20, 2, "ncclDevKernel_AllReduce", 500, 50, 7), (21, 3, "gemm", 10, 5, 8),
    (22, 3, "ncclDevKernel_SendRecv", 60, 5, 9),
    (23, 99, "ncclDevKernel_AllGather", 5, 5, 9),
]  # fmt: skip
OPS: list[Row] = [(2, 2, "c10d::allreduce_", 100, 10, 1), (3, 3, "c10d::send", 30, 10, 1)]


def test_communication_kernels_are_listed_in_the_order_of_their_launches() -> None:
    comm = {
        20: Comm(dtype="float", in_nelems=10, seq=4), 22: Comm(collective="send", dst_rank=3, bytes=9, pg_name="pp"),
    }  # fmt: skip
    info = {"rank": 0, "world_size": 4, "pg_config": [{"pg_name": "pp", "ranks": [0, 3]}]}
    trace = made(OPS, KERNELS, [(30, 2, "cudaLaunchKernel", 105, 2, 1)], launches=[(30, 20)], comm=comm, info=info)
    assert ids(trace, comm_rows(trace)) == [20, 22, 23]
    assert issue_times(trace, comm_rows(trace)).tolist() == [100, 30, 105, 10, 30, 5, 105]
    first, second, third = find_communications(trace)
    rows = dict(zip(trace.nodes.id.tolist(), range(len(trace)), strict=True))
    assert first == FoundComm(rows[23], CollectiveCommType.ALL_GATHER, -1, None, WORLD, -1, 5)
    assert second == FoundComm(rows[22], SEND, 3, 9, ("pp", (0, 3)), -1, 60)
    assert third == FoundComm(rows[20], CollectiveCommType.ALL_REDUCE, -1, 40, WORLD, 4, 500)
    assert first.understood and second.understood and third.understood


def test_communications_without_a_valid_kind_or_peer_are_not_understood() -> None:
    events: list[Row] = [(20, 2, "ncclDevKernel_Generic", 1, 1, 7), (21, 2, "k", 2, 1, 7), (22, 2, "k", 3, 1, 7),
                         (23, 2, "k", 4, 1, 7)]  # fmt: skip
    comm = {
        21: Comm(collective="recv", src_rank=-1, seq=-1), 22: Comm(collective="recv", src_rank=2**31, seq=2**62),
        23: Comm(collective="recv", src_rank=0, seq=0),
    }  # fmt: skip
    found = list(find_communications(made(OPS[:1], events, comm=comm)))
    assert [(each.kind, each.peer, each.seq, each.understood) for each in found] == [
        (None, -1, -1, False), (RECV, -1, -1, False), (RECV, -1, -1, False), (RECV, 0, 0, True),
    ]  # fmt: skip
    assert [each.bytes for each in found] == [None] * 4


def test_events_are_issued_no_later_than_they_begin() -> None:
    trace = made([(2, 2, "a", 100, 10, 1)], [(20, 2, "ncclKernel", 50, 5, 7)])
    assert issue_times(trace, comm_rows(trace)).tolist() == [100, 50]


HOST: list[Row] = [
    (2, 2, "c10d::allreduce_", 100, 10, 1), (3, 3, "c10d::send", 120, 10, 1), (4, 4, "aten::add", 140, 10, 1),
    (10, 10, "gloo:all_reduce", 200, 50, 2), (11, 11, "gloo:send", 150, 20, 3), (12, 12, "aten::copy_", 210, 5, 2),
    (13, 13, "_c10d_functional::wait_tensor", 145, 200, 1), (14, 14, "aten::mul", 400, 5, 3),
]  # fmt: skip


def test_collectives_of_the_host_begin_with_their_calls() -> None:
    trace = made(HOST, inputs={3: [[TENSOR], None, 5, 0], 10: [TENSOR], 11: [TENSOR, TENSOR]})
    assert ids(trace, comm_rows(trace)) == [10, 11]
    issued = issuing_calls(trace, comm_rows(trace)).items()
    assert {trace.nodes.id[run]: trace.nodes.id[call] for run, call in issued} == {10: 2, 11: 3}
    first, second = find_communications(trace)
    assert (first.kind, first.peer, first.bytes, first.start_ns) == (SEND, 5, 192, 120)
    assert (second.kind, second.peer, second.bytes, second.start_ns) == (CollectiveCommType.ALL_REDUCE, -1, 96, 200)
    assert issuing_calls(trace, np.zeros(0, np.int64)) == {}


def test_host_collectives_are_issued_with_the_last_op_before_them() -> None:
    calls: list[Row] = [(2, 2, "a", 10, 1, 1), (3, 3, "b", 90, 1, 1), (4, 4, "gloo:send", 500, 1, 1),
                        (5, 5, "c", 60, 1, 1),
                        (6, 6, "gloo:recv", 700, 1, 1), (7, 7, "gloo:send", 800, 1, 2)]  # fmt: skip
    trace = made(calls)
    assert issue_times(trace, comm_rows(trace)).tolist() == [10, 90, 90, 60, 90, 800]


def test_wait_calls_are_paired_with_collectives_and_backend_ops_are_found() -> None:
    trace = made(HOST)
    rows = comm_rows(trace)
    assert [ids(trace, pair) for pair in blocking_calls(trace, rows)] == [[10, 13], [11, 13]]
    assert ids(trace, backend_rows(trace, rows)) == [12], "thread 3 runs an op outside of its collectives"
    quiet = made(HOST[:3])
    assert blocking_calls(quiet, comm_rows(quiet)).tolist() == [] == backend_rows(quiet, comm_rows(quiet)).tolist()
    late = made([*HOST[3:5], (13, 13, "_c10d_functional::wait_tensor", 160, 80, 1)])
    assert [ids(late, pair) for pair in blocking_calls(late, comm_rows(late))] == [[11, 13]]
    early = made([(10, 10, "gloo:all_reduce", 5, 5, 2), (13, 13, "_c10d_functional::wait_tensor", 10, 80, 1)])
    assert [ids(early, pair) for pair in blocking_calls(early, comm_rows(early))] == [[10, 13]]


def groups_of(calls: list[Row], inputs: dict[int, list[Any]], **groups: list[int]) -> list[str]:
    listed = [{"pg_name": name.strip("g"), "ranks": ranks} for name, ranks in groups.items()]
    trace = made(calls, inputs=inputs, info={"rank": 0, "world_size": 8, "pg_config": listed})
    return [found.group[0] for found in find_communications(trace)]


FUNCTIONAL: list[Row] = [
    (2, 2, "_c10d_functional::all_reduce", 100, 20, 1), (3, 2, "c10d::allreduce_", 105, 10, 1),
    (4, 4, "c10d::_allgather_base_", 140, 10, 1), (10, 10, "gloo:all_reduce", 110, 5, 2),
    (11, 11, "gloo:all_gather", 150, 5, 2),
]  # fmt: skip


def test_groups_of_host_collectives_are_inferred_from_names_and_sizes() -> None:
    whole, shard = [1, 2, 0, 96, 4, "cpu"], [3, 4, 0, 48, 4, "cpu"]
    inputs = {2: [TENSOR, "sum", "1"], 4: [whole, shard]}
    assert groups_of(FUNCTIONAL, inputs, g1=[0, 1], g2=[0, 4], g3=[0, 1, 2, 3]) == ["1", "2"]
    assert groups_of(FUNCTIONAL, inputs, g1=[0, 1, 2, 3], g2=[0, 4]) == ["1", "2"]
    assert groups_of(FUNCTIONAL, inputs, g1=[0, 1], g2=[0, 4], g3=[0, 5]) == ["1", ""], "two are left"
    assert groups_of(FUNCTIONAL, inputs, g1=[0, 1]) == ["", ""], "one group says nothing"
    assert groups_of(FUNCTIONAL, inputs, g1=[0, 1], g2=[0]) == ["", ""], "groups of one rank do not count"
    assert groups_of(FUNCTIONAL, {**inputs, 2: [TENSOR, "sum", "9"]}, g1=[0, 1], g2=[0, 4, 5]) == ["", "1"]


def test_kernels_without_metadata_have_the_tensors_of_their_op() -> None:
    events: list[Row] = [
        (20, 2, "ncclDevKernel_AllReduce", 110, 5, 7), (21, 3, "ncclDevKernel_AllGather", 130, 5, 7),
        (22, 99, "ncclDevKernel_AllGather", 140, 5, 7), (23, 2, "ncclDevKernel_AllReduce", 150, 5, 7),
    ]  # fmt: skip
    inputs = {2: [TENSOR], 3: [TENSOR, TENSOR], 21: [[1, 2, 0, 5, 1, "cuda:0"]]}
    comm = {23: Comm(collective="allreduce", bytes=3)}
    found = list(find_communications(made(OPS, events, inputs=inputs, comm=comm)))
    assert {each.start_ns: each.bytes for each in found} == {110: 96, 130: 5, 140: None, 150: 3}
    assert all(each.peer == -1 for each in found)
