"""Arguments of device events, one by one."""

from typing import Any

import msgspec
import numpy as np
import pytest
from etplus.schemas.kineto.event_args import (
    ArgsReader,
    comm_of,
    graph_node_args,
    int_list,
    kernel_comm,
    launch_args,
    launch_sizes,
    launch_values,
    size_of_copy,
    sync_args,
)
from etplus_files import etplus, gpu, runtime

KERNEL = {
    "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 256, "Out msg nelems": 128, "Group size": 4,
    "Process Group Name": 3, "Process Group Ranks": "[0, 1]", "Src Rank": 1, "Dst Rank": 2, "Seq": 9,
    "In split size": [1, 2], "Out split size": "[1, 2...",
}  # fmt: skip


def json(value: Any) -> bytes:
    return msgspec.json.encode(value)


def test_kernel_arguments_decode_to_the_fields_of_a_communication() -> None:
    assert kernel_comm(json(KERNEL)) == {
        "collective": "allreduce", "dtype": "Float", "in_nelems": 256, "out_nelems": 128, "group_size": 4,
        "pg_name": "3", "pg_desc": None, "pg_ranks": [0, 1], "src_rank": 1, "dst_rank": 2, "seq": 9,
        "in_split": [1, 2], "out_split": None, "pg_first_rank": None,
    }  # fmt: skip
    assert kernel_comm(b"null") == dict.fromkeys(kernel_comm(b"{}"))
    assert kernel_comm(json({"Process Group Ranks": "[3, 1, ...]"}))["pg_first_rank"] == 3
    assert kernel_comm(json({**KERNEL, "Group size": 1}))["pg_ranks"] is None, "longer than the group"
    assert kernel_comm(json({"Seq": True, "Group size": "4"}))["seq"] is None
    assert kernel_comm(json({"Process Group Ranks": [0, 1]}))["pg_ranks"] == [0, 1]


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({}, 1024), ({"In msg nelems": 0}, 512), ({"In msg nelems": None}, 512), ({"dtype": "odd"}, None),
        ({"In msg nelems": None, "Out msg nelems": None}, None), ({"In msg nelems": 0, "Out msg nelems": 0}, 0),
    ],
)  # fmt: skip
def test_bytes_of_a_communication_follow_from_elements_and_dtype(changes: dict[str, Any], size: int | None) -> None:
    assert comm_of(json({**KERNEL, **changes}), "").bytes == size
    assert comm_of(b"{}", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)").collective == "allreduce"


@pytest.mark.parametrize(
    ("value", "expected"),
    [([1, 2], [1, 2]), ("[1, 2]", [1, 2]), ([], []), ("[1, 2...", None), ([1, True], None), (["1"], None), (7, None),
     (None, None), ("7", None)],
)  # fmt: skip
def test_lists_of_integers_are_read_and_other_values_are_none(value: Any, expected: list[int] | None) -> None:
    assert int_list(value) == expected


@pytest.mark.parametrize(
    ("args", "size"),
    [(b'{"bytes": 4}', 4), (b'{"bytes": 0}', 0), (b'{"bytes": -1}', -1), (b'{"bytes": 4.0}', -1), (b"null", -1),
     (b"{", -1), (b'{"bytes": 4611686018427387903}', 2**62 - 1), (b'{"bytes": 4611686018427387904}', -1)],
)  # fmt: skip
def test_the_size_of_a_copy_is_its_bytes_or_minus_one(args: bytes, size: int) -> None:
    assert size_of_copy(args) == size


def test_arguments_of_launches_graph_nodes_and_synchronization_are_decoded() -> None:
    found = launch_args(b'{"kernel": "k", "grid": [1, 2, 3], "block": [4, 5, 6]}')
    assert (found.kernel, found.dimensions) == ("k", ((1, 2, 3), (4, 5, 6)))
    assert launch_args(b"[").dimensions == launch_args(b'{"grid": [1]}').dimensions == ((-1,) * 3, (-1,) * 3)
    node = graph_node_args(b'{"graph node id": 7, "grid": [1, 1, 1]}')
    assert node is not None and (node.node, node.grid, node.block) == (7, (1, 1, 1), (-1, -1, -1))
    assert graph_node_args(b"{") is sync_args(b"[]") is None
    waited = sync_args(b'{"cuda_sync_kind": "Stream Sync", "stream": 7, "wait_on_cuda_event_record_corr_id": 5}')
    assert waited is not None
    assert (waited.kind, waited.stream, waited.record, waited.wait_on_stream) == ("Stream Sync", 7, 5, -1)


def test_named_arguments_are_returned_undecoded_and_missing_ones_empty() -> None:
    reader = ArgsReader(["stream", "grid"])
    assert reader.read(b'{"args": {"grid": [1, 2], "stream": 7}}') == (b"7", b"[1, 2]")
    assert reader.read(b'{"name": "k"}') == reader.read(b"{") == (b"", b"")


CUDA, HIP, THREADS = "cudaLaunchKernel", "hipExtModuleLaunchKernel", [4, 2, 1]
NONE = [[2 if at != place else none for at in range(3)] for place in range(3) for none in (0, -1)]


@pytest.mark.parametrize(
    ("call", "warp", "grid", "block", "expected"),
    [(CUDA, 32, [8, 2, 1], THREADS, [16, 8]), (HIP, 64, [8, 2, 1], THREADS, [2, 8]),
     (HIP, 32, [8, 2, 1], THREADS, [16, 8]), (HIP, 64, [9, 2, 1], THREADS, [18, 8]),
     ("hipModuleLaunchKernel", 64, [8, 2, 1], THREADS, [16, 8]), (CUDA, 32, [-8, 2, 1], [-4, 2, 1], [0, 0]),
     (CUDA, 32, [1, 1, 1], [1, 1, 1], [1, 1]), (CUDA, 32, [2**31, 2**30, 1], [2, 1, 1], [0, 0]),
     (CUDA, 32, [2**31, 2**31 - 1, 1], [1, 1, 1], [2**62 - 2**31, 1]),
     *((CUDA, 32, *sides, [0, 0]) for one in NONE for sides in ((one, THREADS), (THREADS, one)))],
)  # fmt: skip
def test_grids_convert_to_blocks(call: str, warp: int, grid: list[int], block: list[int], expected: list[int]) -> None:
    event = gpu(4, "k", 1, 1, args={"grid": grid, "block": block}, correlation=5)
    trace = etplus([event], [runtime(5, call, 0, 1)], [[5, 4, "launch"]])
    trace.properties.clear()
    trace.properties[0] = {"warpSize": warp}
    assert launch_sizes(trace)[0].tolist() == expected


def test_without_a_launch_the_name_of_the_kernel_decides() -> None:
    for name, blocks in (("Cijk_Alik", 2), ("k(int)", 16), ("triton_poi", 16)):
        trace = etplus([gpu(4, name, 1, 1, args={"grid": [8, 2, 1], "block": [4, 2, 1]})])
        trace.properties.clear()
        trace.properties[0] = {"warpSize": 64}
        assert launch_sizes(trace).tolist() == [[blocks, 8]]
    assert launch_sizes(etplus([])).shape == (0, 2) and launch_sizes(etplus([])).dtype == np.int64


def test_launch_arguments_beyond_64_bits_do_not_fail() -> None:
    values = launch_values(b'{"grid": [8, 1, 1], "block": 1e999, "shared memory": 1%s}' % (b"0" * 30))
    assert values["grid"] == [8, 1, 1] and values["block"] is None and values["shared memory"] == 1e30
