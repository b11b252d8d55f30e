"""Communication kernels by name, what they do, and what is filled in from another record."""

import pytest
from etplus.trace.comm_kernels import Comm, collective_of, is_comm_kernel, launches_collective
from etplus.trace.conventions import MAX_NAME

COMMUNICATE = """
    void deep_ep::internode::dispatch<false, 8>(int4*) | void deep_ep::intranode::combine<__nv_bfloat16>(void*)
    void deep_ep::internode::notify_dispatch<false, 8>(int const*) | _ZN7deep_ep9internode8dispatchILb0ELi8EEEvP4int4
    void hybrid_ep::dispatch_kernel<4>(int) | void hybrid_ep::combine_kernel<4>(int) | hybrid_ep::device_sync_kernel
    void pplx::a2a_kernel<4>(int) | a2a_combine_send_kernel | moeCommKernel | rocshmem_put_kernel
    hcom_allGather__12_0_1 | HCCL@hcom_send__1 | HcclAllreduce | oneccl_allgather | ncclKernelAllToAllvDynamic
    ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16 | void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)
    void mscclpp::executionKernel<int>(int) | mscclKernel_Sum_half_LL | void nvshmemi_transfer_rma<1>(int)
    barrier_on_stream_kernel_threadgroup | void multimem_one_shot_all_reduce_kernel<float, 16>(float*)
    void (anonymous namespace)::one_shot_reduce_kernel<float, 16>(float*) | two_shot_all_reduce_kernel_inplace
    void c10d::symmetric_memory::(anonymous namespace)::barrier_kernel(unsigned int**)
    void tensorrt_llm::kernels::moeA2ADispatchKernel<8>(int) | void tensorrt_llm::kernels::twoShotAllReduceKernel<int>()
    void vllm::allgather_lamport<float>(int) | void aiter::reduce_scatter_cross_device_store<bf16>(int)
    EpCombineIntraNodeKernel_bf16 | void mori::moe::EpDispatchInterNodeKernel<float>(int) | void all2all_kernel<4>(int)
    userbuffers_fp16_sum_inplace_gpu_mc_ag | void quickreduce::allreduce_prototype_twoshot<int>(int)
"""
COMPUTE = """
    gemm_fp8 | cutlass_dispatch_gemm | void at::native::vectorized_gather_kernel<16, long>(char*) | small_reduce_kernel
    void (anonymous namespace)::softmax_warp_forward<float, 10, false>(float*) | wall_gather | gemm_all_reduce_kernel
    void cutlass::device_kernel<cutlass::gemm::dispatch_all_reduce<4> >(ncclDevKernelArgs) | cub::DispatchReduceByKey
    void at::native::elementwise_kernel<128, all_reduce_functor>(int, ncclDevKernelArgs) | elementwise_all_reduce_norm
    triton_red_fused_all_gather_into_tensor_native_layer_norm_3 | triton_poi_fused_one_shot_all_reduce_0 | _<all_reduce>
    void deep_ep::layout::get_dispatch_layout<256, 32, 8>(int) | moe_align_block_size_kernel | fused_moe_combine
    void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<int>(int) | scatter_reduce_kernel | cclabel_kernel
"""


def _names(text: str) -> list[str]:
    return [name.strip() for line in text.strip().splitlines() for name in line.split(" | ")]


def test_kernels_of_every_library_communicate() -> None:
    assert [name for name in _names(COMMUNICATE) if not is_comm_kernel(name)] == []


def test_kernels_that_compute_do_not_communicate_whatever_their_arguments_are_called() -> None:
    assert [name for name in _names(COMPUTE) if is_comm_kernel(name)] == []


@pytest.mark.parametrize(
    ("operator", "kernel", "communicates"),
    [("nccl:_all_gather_base", "ring_kernel", True), ("c10d::allreduce_", "ring_kernel", True),
     ("symm_mem::one_shot_all_reduce", "kernel<4>", True), ("_C_custom_ar::all_reduce", "kernel", True),
     ("c10d::allreduce_", "void at::native::vectorized_elementwise_kernel<4, DivFunctor>", False),
     ("nccl:all_gather", "void (anonymous namespace)::copy_kernel<4>(int)", False), ("nccl:coalesced", "kernel", False),
     ("fsdp::all_gather_copy_in", "split_kernel", False), ("fsdp::all_gather_copy_in", "kernel", False),
     ("aten::_all_reduce", "kernel", False), ("c10d::wait", "kernel", False), ("aten::sum", "kernel", False)],
)  # fmt: skip
def test_an_operator_is_evidence_of_its_own_kernel_alone(operator: str, kernel: str, communicates: bool) -> None:
    assert launches_collective(operator, kernel) == communicates


@pytest.mark.parametrize(
    ("name", "communicates", "collective"),
    [("ncclDevKernel_AllReduce_Sum_f32_RING_LL", True, "allreduce"), ("ncclKernel_AllGather_RING", True, "allgather"),
     ("void ncclDevKernel_Broadcast", True, "broadcast"), ("rcclKernel", True, None),
     ("ncclDevKernel_ReduceScatter_Sum_bf16", True, "reduce_scatter"), ("ncclDevKernel_SendRecv", True, "sendrecv"),
     ("ncclDevKernel_Reduce_Sum", True, "reduce"), ("hccl::alltoall", True, "all_to_all"),
     ("x ncclDevKernel_AllToAll", True, "all_to_all"), ("void vllm::cross_device_reduce_1stage", True, "allreduce"),
     ("my_all_reduce_kernel", True, "allreduce"), ("triton_poi_fused_all_reduce_0", False, "allreduce"),
     ("a rccl", False, None), ("gemm", False, None), ("", False, None), ("f<a<b> >::all_reduce(x)", True, "allreduce")],
)  # fmt: skip
def test_the_name_of_a_kernel_tells_its_collective(name: str, communicates: bool, collective: str | None) -> None:
    assert is_comm_kernel(name) == communicates and collective_of(name) == collective


def test_only_the_beginning_of_very_long_names_is_searched() -> None:
    assert is_comm_kernel("x" * (MAX_NAME - 10) + "ncclKernel")
    assert not is_comm_kernel("x" * (MAX_NAME - 9) + "ncclKernel")


def test_only_what_is_not_known_is_filled_in() -> None:
    mine = Comm(collective="allreduce", bytes=0, pg_ranks=[])
    other = Comm(collective="x", bytes=8, pg_ranks=[1], group_size=2, dtype="float32")
    assert mine.filled(other) == Comm(collective="allreduce", bytes=0, pg_ranks=[], group_size=2, dtype="float32")
    assert Comm().filled(other) == other and other.filled(Comm()) == other


def test_members_include_first_rank_and_inferred_messages_only_if_set() -> None:
    message = Comm(collective="send", bytes=4)
    assert {"pg_first_rank", "inferred_messages"}.isdisjoint(message.members()) and message.members()["bytes"] == 4
    whole = Comm(collective="sendrecv", pg_first_rank=1, inferred_messages=[message]).members()
    assert whole["pg_first_rank"] == 1 and whole["inferred_messages"] == [message.members()]
