"""Messages of `batch_isend_irecv` (linker/comm.py): registered one by one, launched together in one silent kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from etplus.analysis.bandwidth import communication
from etplus.converters.conversion import convert
from etplus.converters.open import load
from etplus.jobs.matching import match_messages
from etplus.jobs.rank_communications import communications
from etplus.linker import link
from etplus.schemas.chakra.et_def_pb2 import NodeType
from etplus.schemas.chakra.stream import read_chakra
from etplus.trace.trace import Trace
from support import Document, assert_valid, et_document, kineto_document

SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def registered(ts: int, name: str, peer: int, count: int, **more: Any) -> Document:
    end = {"Dst Rank": peer} if name == "send" else {"Src Rank": peer}
    args = {"Collective name": name, "dtype": "BFloat16", "In msg nelems": count, "Out msg nelems": count,
            "Group size": 2, "Process Group Name": "3", "Process Group Description": "pp",
            "Process Group Ranks": "[0, 1]", **end}  # fmt: skip
    return {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": ts, "dur": 5, "args": args, **more}


def batch_end(ts: int, *kernels: str, correlation: int = 1, **more: Any) -> list[Document]:
    events: list[Document] = [{"ph": "X", "cat": "cpu_op", "name": "nccl:coalesced", "ts": ts, "dur": 20, **more}]
    for at, name in enumerate(kernels):
        args = {"correlation": correlation + at}
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernelExC", "ts": ts + 2 + 5 * at, "dur": 2,
             "args": args, **more},
            {"ph": "X", "cat": "kernel", "name": name, "ts": ts + 100 + 60 * at, "dur": 50, "pid": 0, "tid": 20,
             "args": {**args, "device": 0, "stream": 20}},
        ]  # fmt: skip
    return events


def trace_of(*events: Document, rank: int = 0) -> Trace:
    return load(orjson.dumps(kineto_document([*events], distributedInfo={"rank": rank, "world_size": 2})))


def messages_of(trace: Trace) -> list[list[tuple[str | None, int | None, int | None]]]:
    kernels = [trace.gpu.comm[event] for event in range(len(trace.gpu))]
    return [
        [(one.collective, one.dst_rank if one.collective == "send" else one.src_rank, one.bytes)
         for one in kernel.inferred_messages or ()]
        for kernel in kernels
    ]  # fmt: skip


def exchange(rank: int) -> Trace:
    """Both ranks send to and receive from the other one in a kernel, 2 MB from rank 0 and 4 MB from rank 1."""
    other, sent, got = 1 - rank, (1 + rank) << 20, (2 - rank) << 20
    own = [registered(10, "send", other, sent), registered(20, "recv", other, got)]
    return trace_of(*(own if rank else own[::-1]), *batch_end(40, SEND_RECV), rank=rank)


def test_a_kernel_has_the_messages_registered_since_the_last_launch_of_its_thread() -> None:
    other = {"tid": 8}
    trace = trace_of(
        registered(10, "send", 1, 1 << 20), registered(20, "recv", 1, 2 << 20), registered(22, "send", 1, 64, **other),
        *batch_end(40, SEND_RECV), registered(210, "recv", 1, 8), *batch_end(240, SEND_RECV, correlation=9),
        *batch_end(500, SEND_RECV, correlation=19, **other),
    )  # fmt: skip
    assert messages_of(trace) == [[("send", 1, 2 << 20), ("recv", 1, 4 << 20)], [("recv", 1, 16)], [("send", 1, 128)]]
    first, single, _ = (trace.gpu.comm[event] for event in range(3))
    assert (first.collective, first.pg_name, first.group_size, first.in_nelems) == ("sendrecv", "3", 2, 1 << 20)
    assert (single.collective, single.src_rank, single.bytes, single.pg_ranks) == ("recv", 1, 16, [0, 1])
    assert max(row.bytes or 0 for row in communication(trace)) == 4 << 20
    received = trace_of(registered(10, "recv", 1, 8), registered(20, "recv", 1, 16), *batch_end(40, SEND_RECV))
    both = received.gpu.comm[0]
    assert (both.collective, both.in_nelems, both.out_nelems, both.bytes) == ("sendrecv", 0, 24, 48)


@pytest.mark.parametrize(
    "events",
    [
        (registered(10, "send", 1, 8), *batch_end(40, SEND_RECV, SEND_RECV)),
        (registered(10, "send", 1, 8), registered(20, "_allgather_base", 1, 8), *batch_end(40, SEND_RECV)),
        (*batch_end(40, SEND_RECV), registered(210, "send", 1, 8)),
        (registered(10, "send", 1, 8), *batch_end(40, "ncclDevKernel_AllGather")),
    ],
    ids=["several kernels", "another collective", "registered later", "not a kernel of messages"],
)
def test_a_kernel_has_no_messages_if_they_may_be_others(events: tuple[Document, ...]) -> None:
    assert not any(messages_of(trace_of(*events)))


def test_the_et_says_what_kineto_does_not() -> None:
    events = [registered(10, "send", 1, 64, args={"Record function id": 1}), *batch_end(40, SEND_RECV)]
    events[1]["args"] = {"Record function id": 2}
    values = [[[1, 2, 0, 64, 4, "cuda:0"]], 5, ["0", "default_pg"], 1, "send", [], [], -1, -1, 2]
    types = ["GenericList[Tensor(float)]", "Int", "Tuple[String,String]", "Int", "String"]
    nodes = [{"id": 3, "name": "record_param_comms", "rf_id": 1, "inputs": {"values": values, "types": types}},
             {"id": 4, "name": "nccl:coalesced", "rf_id": 2}]  # fmt: skip
    document = orjson.dumps(et_document(nodes, "1.1.0-chakra.0.0.4"))
    trace = link(document, orjson.dumps(kineto_document(events)))
    assert messages_of(trace) == [[("send", 1, 256)]]


def test_messages_reach_every_format(tmp_path: Path) -> None:
    ranks = {rank: exchange(rank) for rank in range(2)}
    pairs = match_messages({rank: communications(trace) for rank, trace in ranks.items()})[1]
    found = [(pair.source, pair.target, pair.matched, pair.bytes) for pair in pairs]
    assert found == [(0, 1, 1, 2 << 20), (1, 0, 1, 4 << 20)]
    files = []
    for rank, trace in ranks.items():
        assert_valid(trace.to_dict())
        files.append(tmp_path / f"r{rank}.etplus.json")
        trace.write(files[-1])
        for name in (f"r{rank}.parquet", f"r{rank}.et"):
            convert([files[-1]], tmp_path / name)
            back = load(tmp_path / name)
            assert back.to_dict()["nodes"] == trace.to_dict()["nodes"] and back.comm == trace.comm
            assert back.edges.tolist() == trace.edges.tolist()
        nodes = list(read_chakra(tmp_path / f"r{rank}.et")[1])
        messages = [node for node in nodes if node.type in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)]
        assert len(messages) == 2 and messages[0].data_deps == messages[1].data_deps, "neither waits for the other"
        ids = {node.id for node in messages}
        assert any(ids <= set(node.data_deps) for node in nodes), "one node waits for both"
    convert(files, tmp_path / "job.goal")
    text = (tmp_path / "job.goal").read_text()
    assert text.count("send 2097152b to 1") == text.count("recv 2097152b from 0") == 1
    assert text.count("send 4194304b to 0") == text.count("recv 4194304b from 1") == 1
