"""Messages of `batch_isend_irecv` (linker/comm.py): registered one by one, launched together in one silent kernel."""

from typing import Any

import orjson
import pytest
from etplus.analysis.bandwidth import communication
from etplus.linker import link
from etplus.trace.trace import Trace
from made_traces import kernel, kineto_of, launch, op, traced
from support import Document, et_document

SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def registered(ts: int, name: str, peer: int, count: int, **more: Any) -> Document:
    end = {"Dst Rank": peer} if name == "send" else {"Src Rank": peer}
    args = {"Collective name": name, "dtype": "BFloat16", "In msg nelems": count, "Out msg nelems": count,
            "Group size": 2, "Process Group Name": "3", "Process Group Description": "pp",
            "Process Group Ranks": "[0, 1]", **end}  # fmt: skip
    return op("record_param_comms", ts, 5, args=args) | more


def batch_end(ts: int, *kernels: str, correlation: int = 1, **more: Any) -> list[Document]:
    events = [op("nccl:coalesced", ts, 20, **more)]
    for at, name in enumerate(kernels):
        events.append(launch(correlation + at, ts + 2 + 5 * at, 2, "cudaLaunchKernelExC") | more)
        events.append(kernel(name, correlation + at, ts + 100 + 60 * at, 50, 20))
    return events


def trace_of(*events: Document, rank: int = 0) -> Trace:
    return traced([*events], distributedInfo={"rank": rank, "world_size": 2})


def messages_of(trace: Trace) -> list[list[tuple[str | None, int | None, int | None]]]:
    kernels = [trace.gpu.comm[event] for event in range(len(trace.gpu))]
    return [
        [(one.collective, one.dst_rank if one.collective == "send" else one.src_rank, one.bytes)
         for one in kernel.inferred_messages or ()]
        for kernel in kernels
    ]  # fmt: skip


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
    for args, sizes in (({"In msg nelems": 0}, [16, 0, 32]), ({"Out msg nelems": 0}, [16, 0, 32]),
                        ({"dtype": "Odd"}, [None, 0, None])):  # fmt: skip
        sends = [registered(ts, "send", 1, 8) for ts in (10, 20)]
        kernel = trace_of(*(one | {"args": one["args"] | args} for one in sends), *batch_end(40, SEND_RECV)).gpu.comm[0]
        assert [(kernel.inferred_messages or ())[1].bytes, kernel.out_nelems, kernel.bytes] == sizes


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


def test_a_message_takes_from_the_et_what_kineto_lacks() -> None:
    events = [registered(10, "send", 1, 64, args={"Record function id": 1}), *batch_end(40, SEND_RECV)]
    events[1]["args"] = {"Record function id": 2}
    values = [[[1, 2, 0, 64, 4, "cuda:0"]], 5, ["0", "default_pg"], 1, "send", [], [], -1, -1, 2]
    types = ["GenericList[Tensor(float)]", "Int", "Tuple[String,String]", "Int", "String"]
    nodes = [{"id": 3, "name": "record_param_comms", "rf_id": 1, "inputs": {"values": values, "types": types}},
             {"id": 4, "name": "nccl:coalesced", "rf_id": 2}]  # fmt: skip
    trace = link(orjson.dumps(et_document(nodes, "1.1.0-chakra.0.0.4")), kineto_of(events))
    assert messages_of(trace) == [[("send", 1, 256)]]
