"""Every shared job in the real ASTRA-sim: to the last node of every rank, and as long as the replay on each network."""

from pathlib import Path

import pytest
from astra_sim import run_astra
from etplus.converters.conversion import convert
from etplus.linker import link
from etplus.timeline import on_network, parse_network
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.rank_coupling import join_ranks
from etplus.trace.trace import Trace
from support import shared_job, shared_pair

JOBS = [
    *(f"parallel/block.{job}" for job in ("tp4", "ddp4", "fsdp4", "pp2", "fsdp-tp4")),
    *(f"network/{job}/{rate}" for job in ("tp", "ddp-1mb") for rate in ("unlimited", "100mbit")), "gpu-pairs/dlrm",
]  # fmt: skip
NETWORKS = {"x10": (250, 5), "/10": (2.5, 5), "/100": (0.25, 5), "latency x100": (25, 500)}
"""GB/s and µs, against 25 GB/s and 5 µs."""
BASE = (25, 5)
WITHIN = 0.03
_LATE = "a rank that comes last to an all-gather finds the others' data there; the replay counts all of the transfer"
DIFFERENCES = {("parallel/block.fsdp4", "latency x100"): (0.04, _LATE)}
"""Where the response differs by more, by how much, and why."""


def replayed_ns(traces: list[Trace], gbps: float, latency_us: float) -> int:
    graphs = [build_graph(trace) for trace in traces]
    priced = on_network(join_ranks(graphs), parse_network(f"bandwidth={gbps},latency={latency_us}us"))
    return replay(priced, [fit_constants(graph) for graph in graphs]).makespan_ns


@pytest.mark.parametrize("job", JOBS)
def test_a_job_runs_to_the_last_node_and_answers_the_network_as_the_replay_does(job: str, tmp_path: Path) -> None:
    pairs = [shared_pair(f"{job}.rank{rank}") for rank in range(4)] if job == "gpu-pairs/dlrm" else shared_job(job)
    traces, prefix = [link(*pair) for pair in pairs], tmp_path / "job"
    convert(traces, prefix, to="astra-sim")

    def both(gbps: float, latency_us: float) -> tuple[int, int]:
        run = run_astra(prefix, len(traces), gbps, latency_us * 1000)
        assert run.complete, run
        return run.makespan_ns, replayed_ns(traces, gbps, latency_us)

    simulated, replayed = both(*BASE)
    assert simulated == pytest.approx(replayed, rel=0.005)
    for name, network in NETWORKS.items():
        there, here = both(*network)
        response = there / simulated / (here / replayed) - 1
        allowed, reason = DIFFERENCES.get((job, name), (WITHIN, "as the replay"))
        assert abs(response) <= allowed, f"{job} at {name}: {response:+.2%} ({reason})"
        assert there == pytest.approx(here, rel=allowed), f"{job} at {name}"
