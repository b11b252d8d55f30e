"""Calls that synchronize and cost nothing where they were recorded: on slower networks they hold the host."""

from functools import partial
from pathlib import Path
from typing import Any

import made_jobs
import pytest
import simulator
from etplus.converters.conversion import convert
from etplus.timeline import Network, on_network
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph, has_assumed_waits
from etplus.timeline.graph_replay import replay
from etplus.timeline.rank_coupling import join_ranks
from etplus.trace.trace import Trace
from made_jobs import ALL_GATHER, ALL_REDUCE, AUTOGRAD, COMPUTE, UNSHARD, Job, Play, Rank

BANDWIDTHS = (250, 50, 25, 0.25)
"""At 50 and 25 GB/s transfers take about as long as the host works beside them."""
_LAYERS = 4


def ddp(rank: Rank, *, on_event: bool) -> Play:
    """Data parallel, whose timers wait for the event that the step before recorded after its all-reduces; or a stream
    is waited for, as `.item()` of the loss does."""
    numel, last = made_jobs._BYTES // 4, None
    for number in range(3):
        with made_jobs._step(rank, number):
            if last is not None:
                rank._call("cudaEventSynchronize" if on_event else "cudaStreamSynchronize", last.ns + 2000)
            for layer in range(_LAYERS):
                made_jobs._forward(rank, layer)
            works = []
            with rank.on(thread=AUTOGRAD):
                for layer in reversed(range(_LAYERS)):
                    made_jobs._backward(rank, layer)
                    whole = rank.tensor(f"g{layer}", numel)
                    works.append((yield from rank.collective(ALL_REDUCE, made_jobs._BYTES, [whole])))
                for work in works:
                    rank.wait(work, python=False)
                if on_event:
                    with rank.op("torch.distributed.ddp.reducer::copy_bucket_to_grad", [whole], [whole]):
                        rank.compute("aten::copy_", 3000, [whole], [whole])
                    last = rank._record(COMPUTE)
            made_jobs._update(rank, _LAYERS, lambda layer: rank.tensor(f"g{layer}", numel))
            if not on_event:
                last = rank._record(COMPUTE)
            rank.now += 400_000  # the host reads the next batch
    rank.synchronize()


def limited_fsdp(rank: Rank) -> Play:
    """FSDP1, which gathers a layer only when the computation two layers before has freed its parameters."""
    freed = list[Any]()
    for number in range(2):
        with made_jobs._step(rank, number):
            for layer in range(8):
                if len(freed) == 2:
                    with rank.op("FullyShardedDataParallel.rate_limiter", annotation=True):
                        rank._call("cudaEventSynchronize", freed.pop(0).ns + 2000)
                tensors = [rank.tensor(f"shard{layer}")], [rank.tensor(f"w{layer}")]
                with rank.on(stream=UNSHARD):
                    rank.wait((yield from rank.collective(ALL_GATHER, made_jobs._BYTES // rank.ranks, *tensors)))
                rank.wait_stream(UNSHARD, COMPUTE)
                rank.compute("aten::mm", 50_000 * (1 + layer % 3), tensors[1], [rank.tensor("x")])
                freed.append(rank._record(COMPUTE))
    rank.synchronize()


def replays_as(job: Job, ranks: list[Trace], error: float, *, assumed_waits: bool = True) -> bool:
    """Whether the replay takes what the job does on each network."""
    assert all(has_assumed_waits(trace) for trace in ranks)
    graphs = [build_graph(trace, assumed_waits=assumed_waits) for trace in ranks]
    joint, constants = join_ranks(graphs), [fit_constants(graph) for graph in graphs]
    return all(
        replay(on_network(joint, Network(bandwidth, 5000)), constants).makespan_ns
        == pytest.approx(job.makespan_ns(simulator.Network(bandwidth, 5000)), rel=error)
        for bandwidth in BANDWIDTHS
    )


def test_fsdps_rate_limiter_waits_for_the_layer_before_the_last() -> None:
    job = Job(limited_fsdp, 2)
    assert replays_as(job, job.traces(), 0.002)


@pytest.mark.parametrize("on_event", [True, False])
def test_replays_answer_networks_like_the_job(on_event: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, ns in (("_FORWARD", 8_000), ("_BACKWARD", 12_000), ("_UPDATE", 3_000)):
        monkeypatch.setattr(made_jobs, name, ns)
    job = Job(partial(ddp, on_event=on_event), 2)
    ranks = job.traces()
    assert replays_as(job, ranks, 0.02) and not replays_as(job, ranks, 0.02, assumed_waits=False)
    convert(ranks, tmp_path / "set", to="astra-sim")
    simulated = simulator.read_set(tmp_path / "set")
    for bandwidth in BANDWIDTHS:
        network = simulator.Network(bandwidth, 5000)
        assert simulator.job_makespan_ns(simulated, network) == pytest.approx(job.makespan_ns(network), rel=0.02)
