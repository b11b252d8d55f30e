"""Replay of Chakra sets without start times, next to ASTRA-sim, which runs such sets as they are."""

from collections.abc import Callable
from pathlib import Path

import pytest
from astra_sim import run_astra
from broken_sets import receive, send
from chakra_sets import COLLECTIVES, MB, Ranks, collective, compute, single_collective, write_set
from etplus.converters.open import load
from etplus.timeline.graph_replay import Replay
from etplus.timeline.replay_ranks import replay_ranks
from support import call, read_json, succeeds

GBPS, LATENCY_NS = 26.8435456, 5000  # 25 of ASTRA-sim's GB
NETWORK = f"bandwidth={GBPS},latency={LATENCY_NS}ns"


def replayed(prefix: Path, ranks: int, network: str | None = NETWORK) -> Replay:
    return replay_ranks([load(f"{prefix}.{rank}.et") for rank in range(ranks)], network=network)


def simulated_ns(prefix: Path, ranks: int) -> int:
    run = run_astra(prefix, ranks, GBPS, LATENCY_NS, EP="1")  # without an endpoint delay it aborts at time 0
    assert run.complete, run.text
    return run.makespan_ns


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_one_collective_takes_what_astra_sim_takes(kind: str, tmp_path: Path) -> None:
    prefix = write_set(tmp_path, single_collective(kind, 8))
    assert replayed(prefix, 8).makespan_ns == pytest.approx(simulated_ns(prefix, 8), rel=0.03)


def weight_gradients_last(ranks: int) -> Ranks:
    """Computations with high ids fill the time in which the next layer waits for its collective."""
    nodes = []
    for layer in range(8):
        nodes.append(compute(2 * layer, 300 + layer, *([2 * layer - 1] if layer else [])))
        nodes.append(collective(2 * layer + 1, "all_reduce", MB * (layer + 1), 2 * layer))
    return [[*nodes, *(compute(100 + layer, 400, 2 * layer) for layer in range(8))]] * ranks


def custom_all_gather(ranks: int) -> Ranks:
    """Each rank passes on what it got from the one before it."""
    return [
        [
            node
            for step in range(ranks - 1)
            for node in (
                send(2 * step, (rank + 1) % ranks, *([2 * step - 1] if step else []), tag=step, size=MB),
                receive(2 * step + 1, (rank - 1) % ranks, *([2 * step - 1] if step else []), tag=step, size=MB),
            )
        ]
        for rank in range(ranks)
    ]


@pytest.mark.parametrize("made", [weight_gradients_last, custom_all_gather])
def test_order_and_messages_are_those_of_astra_sim(made: Callable[[int], Ranks], tmp_path: Path) -> None:
    prefix = write_set(tmp_path, made(8))
    assert replayed(prefix, 8).makespan_ns == pytest.approx(simulated_ns(prefix, 8), rel=0.001)


def test_nothing_measured_is_shown_next_to_the_prediction(tmp_path: Path) -> None:
    prefix = write_set(tmp_path, [[compute(0, 100), compute(1, 200), collective(2, "all_reduce", MB, 0)]] * 2)
    done = call("replay", f"{prefix}.0.et", "--json", tmp_path / "n.json")
    assert done.returncode == 0 and b"measured" not in done.stdout and b"predicted" in done.stdout
    assert done.stderr.count(b"no start times") == 1
    numbers = read_json(tmp_path / "n.json")
    assert numbers["makespan_ns"] == {"predicted": 300_000, "measured": None, "error": None}
    assert numbers["base_error"] is None and numbers["gpu_start_error_ns"] is None
    assert replayed(prefix, 2, None).measured_ns == 0
    done = call("replay", f"{prefix}.0.et", "--cross-validate", "1")
    assert done.returncode == 2 and b"no step was measured" in done.stderr
    succeeds("replay", f"{prefix}.0.et", "--chrome", tmp_path / "c.json")
    assert "predicted" in (timeline := (tmp_path / "c.json").read_text()) and "measured" not in timeline


def test_a_network_for_one_rank_alone_asks_for_the_others(tmp_path: Path) -> None:
    prefix = write_set(tmp_path, single_collective("all_reduce", 32))
    done = call("replay", f"{prefix}.0.et", "--network", NETWORK)
    assert done.returncode == 2 and b"give the files of all ranks" in done.stderr
    alone = write_set(tmp_path, [[compute(0, 5)]] * 32, "alone")
    done = call("replay", *(f"{alone}.{rank}.et" for rank in range(32)), "--network", NETWORK)
    assert done.returncode == 2 and done.stderr.count(b".et") == 3 and b"and 29 more" in done.stderr
