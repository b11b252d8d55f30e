"""Communication kernels by name, what they do, and what is filled in from another record."""

from __future__ import annotations

import pytest
from etplus.trace.comm_kernels import Comm, collective_of, is_comm_kernel
from etplus.trace.conventions import MAX_NAME


@pytest.mark.parametrize(
    ("name", "communicates", "collective"),
    [("ncclDevKernel_AllReduce_Sum_f32_RING_LL", True, "allreduce"), ("ncclKernel_AllGather_RING", True, "allgather"),
     ("void ncclDevKernel_Broadcast", True, "broadcast"), ("rcclKernel", True, None),
     ("ncclDevKernel_ReduceScatter_Sum_bf16", True, "reduce_scatter"), ("ncclDevKernel_SendRecv", True, "sendrecv"),
     ("ncclDevKernel_Reduce_Sum", True, "reduce"), ("hccl::alltoall", True, "all_to_all"),
     ("x ncclDevKernel_AllToAll", True, "all_to_all"), ("void vllm::cross_device_reduce_1stage", True, "allreduce"),
     ("my_all_reduce_kernel", True, "allreduce"), ("triton_poi_fused_all_reduce_0", False, "allreduce"),
     ("a rccl", False, None), ("gemm", False, None), ("", False, None)],
)  # fmt: skip
def test_names(name: str, communicates: bool, collective: str | None) -> None:
    assert is_comm_kernel(name) == communicates and collective_of(name) == collective


def test_of_very_long_names_the_beginning_counts() -> None:
    assert is_comm_kernel("x" * (MAX_NAME - 10) + "ncclKernel")
    assert not is_comm_kernel("x" * (MAX_NAME - 9) + "ncclKernel")


def test_only_what_is_not_known_is_filled_in() -> None:
    mine = Comm(collective="allreduce", bytes=0, pg_ranks=[])
    other = Comm(collective="x", bytes=8, pg_ranks=[1], group_size=2, dtype="float32")
    assert mine.filled(other) == Comm(collective="allreduce", bytes=0, pg_ranks=[], group_size=2, dtype="float32")
    assert Comm().filled(other) == other and other.filled(Comm()) == other
