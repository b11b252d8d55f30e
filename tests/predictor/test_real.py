"""The acceptance of the replay on real traces: constants fitted once, host work as measured."""

from __future__ import annotations

from functools import cache

import pytest
from etplus.linker import link
from etplus.predictor.critical import resource_bounds
from etplus.predictor.ranks import couple, match_collectives
from etplus.predictor.replay import ReplayGraph, build_graph, fit_constants, replay
from etplus.predictor.summary import Summary, summarize
from etplus.predictor.whatif import apply_what_ifs, parse_what_if
from support import shared_pair, shared_trace
from synthetic import after

PAIRS = ("resnet103", "linear", "dlrm.rank0", "dlrm.rank1", "dlrm.rank2", "dlrm.rank3")
ALONE = (
    "h100_bert", "mi300_bert", "mi250_minitoy", "mi210_gpu_only", "alexnet", "cuda_event_sync", "sglang_decode_graph",
    "torch_compile_triton",
)  # fmt: skip


@cache
def paired(name: str) -> ReplayGraph:
    return build_graph(link(*shared_pair(f"gpu-pairs/{name}")))


@cache
def alone(name: str) -> ReplayGraph:
    return build_graph(link(None, shared_trace(f"gpu-kineto/{name}.json.gz")))


def summary_of(graph: ReplayGraph) -> Summary:
    constants = fit_constants(graph)
    return summarize(replay(graph, constants), constants)


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_replay_as_they_were_measured(name: str) -> None:
    summary = summary_of(paired(name))
    assert abs(summary.error) <= 0.005 and summary.start_error <= 0.01


@pytest.mark.parametrize("name", ALONE)
def test_traces_without_an_et_replay_as_they_were_measured(name: str) -> None:
    summary = summary_of(alone(name))
    assert abs(summary.error) <= 0.005 and summary.start_error <= 0.01


@pytest.mark.parametrize(
    ("name", "latency_us"),
    [("h100_bert", (5, 8)), ("dlrm.rank0", (6, 8)), ("linear", (14, 31)), ("mi300_bert", (5, 25))],
)
def test_launch_latencies_are_those_of_the_devices(name: str, latency_us: tuple[int, int]) -> None:
    constants = fit_constants(alone(name) if name in ALONE else paired(name))
    assert latency_us[0] * 1000 <= constants.launch_latency_ns <= latency_us[1] * 1000


def test_ranks_of_a_job_wait_for_each_other() -> None:
    graphs = [paired(f"dlrm.rank{k}") for k in range(4)]
    constants = [fit_constants(graph) for graph in graphs]
    meetings, notes = match_collectives([graph.document for graph in graphs])
    assert len(meetings) == 8 and all(m.rank == (0, 1, 2, 3) for m in meetings) and not notes
    joint = couple(graphs)
    summary = summarize(replay(joint, constants), constants)
    assert abs(summary.error) <= 0.005 and summary.start_error <= 0.01
    slower = apply_what_ifs(joint, [parse_what_if("rank=2 kernel*3")], constants)
    assert replay(slower, constants).makespan_ns > summary.predicted_ns  # ranks 1 and 3 are longer, but they wait


@pytest.mark.parametrize("name", [*PAIRS, "h100_bert", "mi300_bert", "mi210_gpu_only", "torch_compile_triton"])
def test_changes_keep_within_their_bounds(name: str) -> None:
    """Without host work the device is what limits: its busiest stream, waits between streams and the launches."""
    graph = alone(name) if name in ALONE else paired(name)
    base = after(graph).makespan_ns
    assert after(graph, "gpu*1", "cpu*1").makespan_ns == base
    for change in ("gpu*0.5", "gpu*2", "cpu*0", "cpu*0.5", "launch_latency=0us", "gpu*0"):
        result = after(graph, change)
        assert max(resource_bounds(result).values()) <= result.makespan_ns
    assert after(graph, "gpu*0.5").makespan_ns <= base <= after(graph, "gpu*2").makespan_ns
    idle = after(graph, "cpu*0")
    assert idle.makespan_ns <= resource_bounds(idle)["busiest stream"] + 0.05 * base


def test_a_busy_device_with_half_the_work_takes_about_half_the_time() -> None:
    """torch_compile_triton's stream is busy for 97% of the time."""
    graph = alone("torch_compile_triton")
    halved = after(graph, "kernel*0.5")
    assert halved.makespan_ns <= 0.55 * after(graph).makespan_ns
    assert halved.makespan_ns <= resource_bounds(halved)["busiest stream"] * 1.1
