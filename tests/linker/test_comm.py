"""What communication kernels communicate: from Kineto's arguments, else from the ET's record_param_comms."""

from typing import Any

import numpy as np
import orjson
import pytest
from etplus.linker import link
from etplus.linker.calls import et_calls
from etplus.linker.comm import CommRecord, comm_of_tensor, comm_records, is_all_reduce, reduced_tensor
from etplus.schemas.execution_trace.read_et import read_execution_trace
from etplus.trace.comm_kernels import Comm
from made_traces import event, kernel, kineto_of, launch, op, traced
from support import Document, assert_valid, et_document

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ARGS: Document = {
    "Collective name": "allreduce", "In msg nelems": 100, "Out msg nelems": 100, "Group size": 4, "dtype": "BFloat16",
    "In split size": "[]", "Out split size": "[]", "Process Group Name": "3", "Process Group Description": "tp",
    "Process Group Ranks": "[0, 2, 4, 6]", "Seq": 17,
}  # fmt: skip
FIELDS = {"collective", "dtype", "in_nelems", "out_nelems", "bytes", "group_size", "pg_name", "pg_desc", "pg_ranks",
          "src_rank", "dst_rank", "seq", "in_split", "out_split"}  # fmt: skip


def kernel_of(nodes: list[Document], args: Document, name: str = NCCL, schema: str = "1.1.0-chakra.0.0.4") -> Document:
    kineto = kineto_of([op("op", 1, 9, rf_id=1), launch(5, 2), kernel(name, 5, 4, 3, 20, 1, **args)])
    document = link(orjson.dumps(et_document(nodes, schema)), kineto).to_dict()
    assert_valid(document)
    (found,) = (node for node in document["nodes"] if node.get("cat") == "kernel")
    return found


def comm_of(nodes: list[Document], args: Document, name: str = NCCL, **options: Any) -> Document:
    kernel = kernel_of(nodes, args, name, **options)
    comm: Document = kernel["comm"]
    assert set(comm) - {"pg_first_rank"} == FIELDS and kernel["pg_name"] == comm["pg_name"]
    return comm


OP: list[Document] = [{"id": 3, "name": "op", "rf_id": 1}]


def test_a_communication_is_read_from_the_kernel() -> None:
    assert comm_of(OP, ARGS) == {
        "collective": "allreduce", "dtype": "BFloat16", "in_nelems": 100, "out_nelems": 100, "bytes": 200,
        "group_size": 4, "pg_name": "3", "pg_desc": "tp", "pg_ranks": [0, 2, 4, 6], "src_rank": None,
        "dst_rank": None, "seq": 17, "in_split": [], "out_split": [],
    }  # fmt: skip
    comm = comm_of(OP, {**ARGS, "Collective name": "send", "Src Rank": 1, "Dst Rank": 0}, "ncclDevKernel_SendRecv(int)")
    assert (comm["collective"], comm["src_rank"], comm["dst_rank"]) == ("send", 1, 0)
    for write in (list, str):
        comm = comm_of(OP, {**ARGS, "In split size": write([25] * 4), "Process Group Ranks": write([0, 2])})
        assert comm["in_split"] == [25, 25, 25, 25] and comm["pg_ranks"] == [0, 2]


def test_without_arguments_the_name_of_a_communication_kernel_tells_the_collective() -> None:
    comm = comm_of(OP, {})
    assert comm["collective"] == "allreduce" and comm["bytes"] is None
    assert comm_of(OP, {}, "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)")["collective"] is None
    kernel = kernel_of(OP, {}, "void gemm<nccl_tile>()")
    assert "comm" not in kernel and "pg_name" not in kernel


def test_ranks_of_a_group_that_are_not_all_known() -> None:
    comm = comm_of(OP, CUT_OFF)
    assert comm["pg_ranks"] is None and comm["pg_first_rank"] == 1
    assert "pg_first_rank" not in comm_of(OP, ARGS)
    assert comm_of(OP, {**ARGS, "Process Group Ranks": "[0, 1, 2, 3, 4]"})["pg_ranks"] is None


CUT_OFF = {**ARGS, "Process Group Ranks": "[1, 3, ...]"}


@pytest.mark.parametrize(
    ("start", "stride", "size", "ranks"),
    [(1, 2, 4, [1, 3, 5, 7]), (5, 1, 1, [5]), (0, 2**64 - 1, 4, None), (2**64 - 1, 2**64 - 1, 4, None),
     (0, 1, 2**40, None), (0, 0, 4, None)],
)  # fmt: skip
def test_the_et_says_the_ranks_of_a_group_by_start_and_stride(
    start: int, stride: int, size: int, ranks: list[int] | None
) -> None:
    attrs = {"global_rank_start": start, "global_rank_stride": stride, "pg_size": size}
    nodes = [{"id": 3, "name": "record_param_comms", "attrs": attrs}, {**OP[0], "id": 4, "parent": 3}]
    comm = comm_of(nodes, CUT_OFF)
    assert comm["pg_ranks"] == ranks and comm.get("pg_first_rank") == (1 if ranks is None else None)


def test_arguments_of_unexpected_types_cost_only_themselves() -> None:
    comm = comm_of(OP, {**ARGS, "Group size": "four", "Seq": 1.5})
    assert comm["collective"] == "allreduce" and comm["in_nelems"] == 100 and comm["pg_name"] == "3"
    assert comm["group_size"] is None and comm["seq"] is None


def record_param_comms(**attrs: Any) -> list[Document]:
    tensor = [40, 41, 0, 512, 4, "cuda:0"]
    inputs = {
        "values": [[tensor], 9, ["5", "dp"], 0, "all_to_allv", [128, 384], [256, 256], 0, 1, 8],
        "shapes": [[[512]], [], [[], []], [], [], [], [], [], [], []],
        "types": ["GenericList[Tensor(float)]", "Int", "Tuple[String,String]", "Int", "String", "GenericList[Int,Int]",
                  "GenericList[Int,Int]", "Int", "Int", "Int"],
    }  # fmt: skip
    outputs = {"values": [[tensor, tensor]], "shapes": [[[512], [512]]], "types": ["GenericList[Tensor(float)]"]}
    parent = {"id": 3, "name": "record_param_comms", "inputs": inputs, "outputs": outputs, "attrs": attrs}
    return [parent, {"id": 4, "name": "op", "rf_id": 1, "parent": 3}]


def test_the_nearest_record_at_or_above_a_node() -> None:
    et = read_execution_trace(orjson.dumps(et_document([{"id": 2, "name": "before"}, *record_param_comms()[:1]])))
    found = comm_records(et, et_calls(et, []), np.array([-1, 0, 1]))
    assert found == [None, None, CommRecord("all_to_allv", 9, "5")]


@pytest.mark.parametrize("schema", ["1.0.1", "1.0.3-chakra.0.0.4"])
def test_a_communication_is_read_from_inputs_of_record_param_comms(schema: str) -> None:
    comm = comm_of(record_param_comms(), {}, schema=schema)
    assert (comm["collective"], comm["dtype"]) == ("all_to_allv", "float")
    assert (comm["in_nelems"], comm["out_nelems"], comm["bytes"]) == (512, 1024, 2048)
    assert (comm["pg_name"], comm["pg_desc"]) == ("5", "dp")
    assert (comm["in_split"], comm["out_split"]) == ([128, 384], [256, 256])


def test_attributes_of_record_param_comms_go_before_its_inputs() -> None:
    comm = comm_of(record_param_comms(collective_name="allreduce", dtype="Half", in_msg_nelems=7, pg_size=16), {})
    assert (comm["collective"], comm["dtype"], comm["in_nelems"], comm["bytes"]) == ("allreduce", "Half", 7, 14)
    assert comm["group_size"] == 16 and comm["pg_name"] == "5"


def test_the_kernel_goes_before_the_et() -> None:
    comm = comm_of(record_param_comms(), ARGS)
    assert (comm["collective"], comm["in_nelems"], comm["pg_name"]) == ("allreduce", 100, "3")


def test_a_comm_node_without_inputs_tells_nothing() -> None:
    nodes = [{"id": 3, "name": "record_param_comms"}, {"id": 4, "name": "op", "rf_id": 1, "parent": 3}]
    assert comm_of(nodes, {})["collective"] == "allreduce"


@pytest.mark.parametrize(
    ("operator", "kernel", "args", "communicates", "correlation"),
    [("op", "my_ring", ARGS, True, 5), ("op", "my_ring", ARGS, True, None), ("op", "my_ring", {}, False, 5),
     ("nccl:all_reduce", "my_ring", {}, True, 5), ("nccl:all_reduce", "my_ring", {}, False, None),
     ("c10d::allreduce_", "void at::native::vectorized_elementwise_kernel<4, Div>", {}, False, 5),
     ("op", "void deep_ep::internode::dispatch<false, 8>(int4*)", {}, True, 5), ("op", "gemm_fp8", {}, False, 5)],
)  # fmt: skip
def test_arguments_operators_and_names_tell_what_communicates(
    operator: str, kernel: str, args: Document, communicates: bool, correlation: int | None
) -> None:
    args = {"stream": 7, **args} if correlation is None else {"stream": 7, **args, "correlation": correlation}
    trace = traced([op(operator, 1, 9), launch(5, 2), event("kernel", kernel, 14, 3, args)])
    assert trace.is_comm.tolist() == [communicates]
    assert trace.communicates[trace.gpu.source].tolist() == [communicates]


def test_all_reduces_of_serving_engines_send_their_first_tensor() -> None:
    inputs = {"values": [[1, 2, 0, 32, 2, "cuda:0"]], "shapes": [[4, 8]], "types": ["Tensor(c10::BFloat16)"]}
    calls = [{"id": 3, "name": "_C_custom_ar::all_reduce", "inputs": inputs}, {"id": 4, "name": "x"}]
    text, without = (orjson.dumps(node) for node in et_document(calls)["nodes"][2:])
    assert comm_of_tensor(text) == Comm(dtype="c10::BFloat16", in_nelems=32, out_nelems=32, bytes=64)
    assert reduced_tensor(without) == {} and comm_of_tensor(without) == Comm()
    assert is_all_reduce("_C_custom_ar::all_reduce") and not is_all_reduce("c10d::allreduce_")
