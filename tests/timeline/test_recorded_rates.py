"""The same jobs recorded on links of four speeds: predictions from each to each, and their ranges."""

import json
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
from etplus.linker import link
from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from etplus.schemas.communications import comm_rows
from etplus.timeline.constants import fit_constants
from etplus.timeline.critical import resource_bounds
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.host_backends import with_settled_ends
from etplus.timeline.network import on_network
from etplus.timeline.network_description import Network
from etplus.timeline.network_file import Sample, fit_network, read_calibration, read_network, write_networks
from etplus.timeline.rank_coupling import join_ranks
from etplus.timeline.replay_ranks import answer_range
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from support import call, refused, shared_job, shared_trace, succeeds


@cache
def networks() -> dict[str, Network]:
    """As Gloo's all-reduces alone show them."""
    found = read_calibration(shared_trace("network/gloo-2/times.json"))
    assert found is not None
    fitted = {rate: fit_network(samples) for rate, samples in found.items()}
    return {rate: Network(of.bandwidth, of.latency_ns) for rate, of in fitted.items()}


def test_other_network_rates_are_predicted_within_fifteen_percent() -> None:
    errors, took, links = [], traced_ms("network-ops/nnf"), {"250mbit": 0.03125, "1gbit": 0.125, "4gbit": 0.5}
    for source in ("250mbit", "4gbit"):
        graphs = [build_graph(link(*pair)) for pair in shared_job(f"network-ops/nnf/{source}")]
        joint, constants = join_ranks(graphs), [fit_constants(graph) for graph in graphs]
        for target in took.keys() - {source}:
            network = Network(links[target], 100_000)
            done, span = replay(on_network(joint, network), constants), answer_range(joint, network, [], constants)
            errors.append(abs(done.makespan_ns / 1e6 / took[target] - 1))
            assert span.low_ns <= took[target] * 1e6 <= span.high_ns
            assert max(resource_bounds(done).values()) <= took[target] * 1e6
    assert errors and max(errors) <= 0.15


def test_other_work_on_the_machine_does_not_make_small_transfers_slow(tmp_path: Path) -> None:
    took = {1 << power: {"ms": 2 + (1 << power) / 1e6, "least_ms": 1 + (1 << power) / 1e6} for power in range(17, 24)}
    fits = []
    for name, times in (("quiet", took), ("noisy", {**took, 1 << 18: {"ms": 90.0, "least_ms": 80.0}})):
        file = tmp_path / name
        kinds = {"all_reduce": times, "all_gather": {1 << 17: took[1 << 17]}, "gossip": took}
        rates = {"any": {kind: {str(size): one for size, one in of.items()} for kind, of in kinds.items()}}
        file.write_text(json.dumps({"settings": {"ranks": 4}, "rates": rates}))
        found = read_calibration(str(file))
        assert found is not None
        fits.append(fit_network(found["any"]))
    with pytest.raises(UsageError, match="no network can be fitted"):
        fit_network([])
    quiet, noisy = fits
    assert (quiet.bandwidth, quiet.latency_ns, quiet.library) == (1.5, 333_333.0, "gloo"), "1.5 bytes and 6 latencies"
    assert [(of.kind, of.over_bytes, of.times, of.low, of.high) for of in quiet.kinds] == [
        ("all_reduce", 1 << 16, 1.0, 0.5308, 1.0), ("all_reduce", 1 << 20, 1.0, 0.7559, 1.0),
        ("all_gather", 0, 2.0, 1.062, 2.0),
    ]  # fmt: skip
    assert noisy.bandwidth == pytest.approx(quiet.bandwidth, rel=0.05)
    assert noisy.latency_ns == pytest.approx(quiet.latency_ns, rel=0.1)


@cache
def traces(job: str, rate: str) -> tuple[Trace, ...]:
    return tuple(link(*pair) for pair in shared_job(f"network/{job}/{rate}"))


def traced_ms(job: str) -> dict[str, float]:
    rates = json.loads(shared_trace(f"{job}/times.json").read_bytes())["rates"]
    return {rate: max(rank["traced_ms"] for rank in ranks.values()) for rate, ranks in rates.items()}


def test_a_wait_that_ends_before_its_collective_does() -> None:
    (first, _), late = traces("ddp-1mb", "100mbit"), 2_000_000
    rows = comm_rows(first)
    moved = first.with_(dur=first.nodes.dur + late * np.isin(np.arange(len(first)), rows))
    plain, settled = with_settled_ends(first), with_settled_ends(moved)
    waited = plain.nodes.dur[rows] > 100_000_000
    assert waited.sum() > 3
    assert np.all(np.abs(settled.nodes.dur[rows] - plain.nodes.dur[rows])[waited] < 500_000)


def test_a_network_fitted_to_nccl_collectives_recovers_its_rates(tmp_path: Path) -> None:
    network, random = Network(20.0, 5000.0, library="nccl"), Random(1)

    def measured() -> list[Sample]:
        kinds = [Type.ALL_REDUCE, Type.ALL_GATHER, Type.REDUCE_SCATTER]
        sizes = [(kind, 1 << power) for kind in kinds for power in range(10, 29)]
        times = [network.transfer_ns(kind, size, 8) * random.uniform(0.9, 1.1) for kind, size in sizes]
        return [Sample(kind, size, 8, ns, ns) for (kind, size), ns in zip(sizes, times, strict=True)]

    found = fit_network(measured(), "nccl")
    assert found.library == "nccl" and found.bandwidth == pytest.approx(20, rel=0.03)
    assert found.latency_ns == pytest.approx(5000, rel=0.06)
    write_networks({"job": found}, tmp_path / "network.json")
    fitted = read_network(tmp_path / "network.json")
    within = [
        fitted.transfer_ns(of.kind, of.size, 8, "low") <= of.ns <= fitted.transfer_ns(of.kind, of.size, 8, "high")
        for of in measured()
    ]
    assert 0.65 < sum(within) / len(within) < 0.95


def test_networks_fitted_into_a_file_are_read_by_name(tmp_path: Path) -> None:
    times, file = shared_trace("network/gloo-2/times.json"), tmp_path / "network.json"
    assert b"100mbit" in succeeds("predict", "fit", "--network", times, "-o", file).stdout
    of = read_network(file, "500mbit")
    assert of.library == "gloo" and of.bandwidth == networks()["500mbit"].bandwidth
    low, usual, high = (one.transfer_ns(2, 4 << 20, 2) for one in (of.at("low"), of, of.at("high")))
    assert low < usual < high
    refused("replay", file, "--network", file)
    write_networks({}, file)
    assert call("replay", times, "--network", file).returncode == 2
