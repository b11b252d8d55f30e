"""Steps of inference as Chakra sets: replayed graphs with the operators of their capture, collectives, single steps."""

from pathlib import Path
from typing import Any

import pytest
from captured import capture_events, replay_events
from etplus.analysis.summary import analyze
from etplus.converters.conversion import convert
from etplus.linker import link
from etplus.trace.selection import part_of
from etplus.trace.trace import Trace
from made_traces import kineto_of
from plain_chakra import COLL
from served import Batch, serve
from simulator import Network, job_makespan_ns, read_set

PREFILL, DECODE = Batch(prefill=[(64, 64)]), Batch(decode=[(1, 65), (1, 9)])
STEPS = [PREFILL, DECODE, DECODE, PREFILL, DECODE]
NCCL = {
    "Collective name": "allreduce", "In msg nelems": 32 * 4096, "Out msg nelems": 32 * 4096, "Group size": 2,
    "dtype": "BFloat16", "Process Group Name": "0", "Process Group Description": "tp", "Process Group Ranks": "[0, 1]",
}  # fmt: skip
OWN = {"Input Dims": [[32, 4096], [32, 4096]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}


@pytest.fixture(scope="module")
def served() -> Trace:
    return serve(STEPS, seed=2).trace()


@pytest.mark.parametrize("steps", ["0", "1-2"])
def test_a_simulated_step_takes_as_long_as_recorded(served: Trace, steps: str, tmp_path: Path) -> None:
    convert([served], tmp_path / "job", to="astra-sim", replicate=2, steps=steps, as_prefix=True)
    simulated = job_makespan_ns(read_set(tmp_path / "job"), Network(25))
    rows = analyze(part_of(served, steps=steps)).serving_steps
    recorded = max(row.start_ns + row.latency_ns for row in rows) - min(row.start_ns for row in rows)
    assert simulated == pytest.approx(recorded, rel=0.02, abs=3000)


def captured_layers(op: str, args: dict[str, Any], kernel: str) -> Trace:
    """Three captured layers that end with an all-reduce over two tensor-parallel ranks."""
    layers = 3 * [
        ("gemm_a", "aten::mm"), ("attention", "vllm::unified_attention"), ("gemm_b", "aten::addmm"), (kernel, op),
    ]  # fmt: skip
    capture, replay = capture_events([layers], sizes=[32]), replay_events([[(name, 7) for name, _ in layers]], batch=32)
    for event in capture:
        if event["name"] == op:
            event["args"] |= args
    groups = [{"pg_name": "0", "pg_desc": "tp", "ranks": [0, 1]}]
    info = {"backend": "nccl", "rank": 0, "world_size": 2, "pg_config": groups}
    files = [kineto_of(events, distributedInfo=info) for events in (replay, capture)]
    return link(None, files[0], graph_captures=[files[1]])


@pytest.mark.parametrize(
    ("op", "args", "kernel"),
    [
        ("record_param_comms", NCCL, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
        ("_C_custom_ar::all_reduce", OWN, "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)"),
    ],
)  # fmt: skip
def test_collectives_of_a_captured_decode_answer_to_the_network(
    op: str, args: dict[str, Any], kernel: str, tmp_path: Path
) -> None:
    trace = captured_layers(op, args, kernel)
    assert {comm.bytes for comm in trace.comm.values()} == {32 * 4096 * 2} and len(trace.comm) == 3
    convert([trace], tmp_path / "job", to="astra-sim", replicate=2, as_prefix=True)
    job = read_set(tmp_path / "job")
    assert [sum(node.type == COLL for node in nodes) for nodes in job.ranks.values()] == [3, 3]
    assert {node.value("comm_size") for node in job.ranks[0] if node.type == COLL} == {32 * 4096 * 2}
    slow, fast = (job_makespan_ns(job, Network(bandwidth)) for bandwidth in (1, 100))
    size = 32 * 4096 * 2  # the last all-reduce runs beside what the host does after the launch
    assert 2 * size * 0.99 < slow - fast <= 3 * size
