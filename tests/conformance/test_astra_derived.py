"""Derived sets in the real ASTRA-sim: other layouts of a job, one trace on many ranks, some ranks of a job."""

import json
from pathlib import Path
from typing import Any

import pytest
from astra_sim import run_astra, run_config
from etplus.converters.conversion import convert
from etplus.converters.preflight import check
from etplus.linker import link
from etplus.planning.reshard.job import Resharded, reshard
from etplus.planning.reshard.layout import Layout
from etplus.timeline import Network, on_network
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.network_description import NetworkLevel
from etplus.timeline.network_file import network_dict
from etplus.timeline.rank_coupling import join_ranks
from etplus_files import DLRM, document_of
from support import shared_job, succeeds
from test_astra_jobs import replayed_ns

LAYOUTS = ["--dp 2 --zero 3", "--pp 2 --tp 2"]


def runs(prefix: Path) -> bool:
    """Whether the set passes `check`, and runs to the last node of every rank, for longer on a slower network."""
    assert check(prefix, profile="astra-sim").ok
    ranks = len(list(prefix.parent.glob(f"{prefix.name}.*.et")))
    fast, slow = (run_astra(prefix, ranks, gbps) for gbps in (25, 0.025))
    return fast.complete and slow.complete and slow.makespan_ns > fast.makespan_ns


@pytest.mark.parametrize("layout", LAYOUTS)
def test_another_layout_of_a_recorded_job_runs(layout: str, tmp_path: Path) -> None:
    [(et, kineto)] = shared_job("parallel/block.single1")
    words = ["--et-file", et, "--kineto-file", kineto, *layout.split(), "--to", "astra-sim", "-o", tmp_path / "job"]
    succeeds("reshard", *words)
    assert runs(tmp_path / "job")


def test_one_network_gives_one_time_in_all_commands(tmp_path: Path) -> None:
    [(et, kineto)] = shared_job("parallel/block.single1")
    network = tmp_path / "network.json"
    level = {"ranks": 2, "bandwidth": 20, "latency_ns": 1000}
    network.write_text(json.dumps({"bandwidth": 1, "latency_ns": 20_000, "levels": [level]}))

    def told(*words: str | Path) -> dict[str, Any]:
        succeeds(*words, "--network", network, "--json", tmp_path / "told.json")
        return dict(json.loads((tmp_path / "told.json").read_bytes()))

    job, prefix = tmp_path / "job", tmp_path / "set"
    derived = told("reshard", "--et-file", et, "--kineto-file", kineto, "--tp", "4", "-o", job)
    replayed = told("replay", job)
    converted = told("convert", job, "--to", "astra-sim", "-o", prefix)
    checked = told("check", prefix, "--profile", "astra-sim")
    assert derived["network"] == replayed["network"] == converted["network"]
    assert checked["ok"] and not checked["counts"] and not checked["skipped"]
    assert replayed["makespan_ns"]["predicted"] == pytest.approx(derived["step_ns"], rel=0.001)
    assert max(run_config(prefix)) == pytest.approx(derived["step_ns"], rel=0.01)


@pytest.mark.parametrize(
    ("source", "layout"),
    [
        ("block.single1", Layout(tp=4, dp=2, pp=2, zero=1, microbatches=4)),
        ("block.pp2", Layout(tp=2, dp=8, zero=2, batch=128, microbatches=1)),
        ("block.single1", Layout(tp=2, dp=32)),
    ],
)
def test_sets_of_16_and_64_ranks_take_as_long_as_predicted(source: str, layout: Layout, tmp_path: Path) -> None:
    """To the last node of every rank, within 3% of the step time and of the replay, on a network that connects all
    ranks alike."""
    job = reshard([link(*pair) for pair in shared_job(f"parallel/{source}")], layout)
    assert isinstance(job, Resharded) and layout.ranks in (16, 64)
    traces = [job.trace(rank) for rank in range(layout.ranks)]
    convert(traces, tmp_path / "job", to="astra-sim")
    ran = run_astra(tmp_path / "job", layout.ranks, 25.0, 5000.0, timeout_s=240, TOPO="FullyConnected")
    assert ran.complete
    assert ran.makespan_ns == pytest.approx(job.step_ns, rel=0.03)
    assert ran.makespan_ns == pytest.approx(replayed_ns(traces, 25.0, 5.0), rel=0.03)


def test_a_set_of_16_ranks_on_a_ring(tmp_path: Path) -> None:
    ring = Network(25.0, levels=(NetworkLevel(16, 25.0, 5000.0, topology="ring"),))
    (tmp_path / "ring.json").write_text(json.dumps(network_dict(ring)))
    layout = Layout(tp=4, dp=4)
    job = reshard([link(*pair) for pair in shared_job("parallel/block.single1")], layout, network=ring)
    assert isinstance(job, Resharded)
    traces = [job.trace(rank) for rank in range(layout.ranks)]
    done = convert(traces, tmp_path / "job", to="astra-sim", network=str(tmp_path / "ring.json"))
    assert done.network == network_dict(ring) and "[ Ring ]" in (tmp_path / "job.network.yml").read_text()
    graphs = [build_graph(trace) for trace in traces]
    priced = replay(on_network(join_ranks(graphs), ring), [fit_constants(graph) for graph in graphs])
    simulated = max(run_config(tmp_path / "job"))
    assert simulated == pytest.approx(job.step_ns, rel=0.03)
    assert simulated == pytest.approx(priced.makespan_ns, rel=0.03)


def test_one_trace_on_several_ranks_runs(tmp_path: Path) -> None:
    convert(document_of(DLRM[0]), tmp_path / "job", to="astra-sim", replicate=8)
    assert runs(tmp_path / "job")


def test_some_of_the_ranks_of_a_job_run(tmp_path: Path) -> None:
    convert([document_of(name) for name in DLRM[1:]], tmp_path / "job", to="astra-sim", renumber_ranks=True, skew=False)
    assert runs(tmp_path / "job")
