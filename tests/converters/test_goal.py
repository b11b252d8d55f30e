"""GOAL: a LogGP simulation of the text ends when the replay does, on any network, and does all that it lists."""

import gzip
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from etplus.converters.conversion import convert
from etplus.converters.goal import _SPARE, _latency_units, _Schedule, goal
from etplus.schemas.comm_types import RECV, SEND
from etplus.schemas.communications import find_communications
from etplus.timeline import Network, on_network
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.rank_coupling import join_ranks
from etplus.trace.errors import ConvertError
from etplus.trace.trace import Trace
from etplus_files import cpu, etplus, gpu, step_by_hand
from loggop import GoalRank, LogGP, parse_goal, run_goal
from made_jobs import JOBS
from support import linked, succeeds

NETWORKS = [(25.0, 5_000), (2.5, 5_000), (0.25, 5_000), (25.0, 100_000)]


def schedule(traces: list[Trace], algorithm: Literal["ring", "direct"] = "ring") -> list[GoalRank]:
    return parse_goal("".join(goal(traces, algorithm)[0]))


def end_ns(ranks: list[GoalRank], network: LogGP) -> float:
    ends = run_goal(ranks, network)
    assert [len(of) for of in ends] == [len(rank.operations) for rank in ranks], "some operations never end"
    return max(max(of.values()) for of in ends)


def replayed_ns(traces: list[Trace], network: Network | None = None) -> int:
    """From the beginning, which may come before the first start on one rank."""
    graphs = [build_graph(trace) for trace in traces]
    constants = [fit_constants(graph) for graph in graphs]
    joined = replace(join_ranks(graphs), shared=None) if len(graphs) > 1 else graphs[0]  # the formula, as in simulators
    return int(replay(joined if network is None else on_network(joined, network), constants).time.max())


@pytest.mark.parametrize("name", ["pairs/gpu_shaped_from_cpu", "pairs/two_threads"])
def test_one_rank_takes_as_long_as_replayed(name: str) -> None:
    trace = linked(name)
    assert end_ns(schedule([trace]), LogGP(0, 0, 0, 0)) == pytest.approx(replayed_ns([trace]), rel=5e-4)


@pytest.mark.parametrize("name", ["fsdp", "pipeline", "moe"])
def test_a_made_job_answers_the_network_as_the_replay_does(name: str) -> None:
    traces = JOBS[name].traces()
    algorithm: Literal["ring", "direct"] = "direct" if name == "moe" else "ring"
    ranks = schedule(traces, algorithm)
    for bandwidth, latency_ns in NETWORKS[::2]:
        ended = end_ns(ranks, LogGP(latency_ns, 0, 0, 1 / bandwidth))
        assert ended == pytest.approx(replayed_ns(traces, Network(bandwidth, latency_ns, algorithm)), rel=0.02)


def test_ranks_send_the_bytes_of_a_ring() -> None:
    traces = JOBS["ddp"].traces()
    ranks = schedule(traces)
    sent = [sum(what.amount for what in rank.operations.values() if what.kind == "send") for rank in ranks]
    assert len(set(sent)) == 1
    found = [comm.bytes or 0 for comm in find_communications(traces[0])]
    assert sent[0] == sum(2 * (len(traces) - 1) * -(-size // len(traces)) for size in found)


def test_parts_of_an_all_to_all_pass_through_the_ranks_between() -> None:
    traces = JOBS["moe"].traces()
    sent = {}
    for algorithm in ("ring", "direct"):
        (rank, *_) = schedule(traces, algorithm)  # type: ignore[arg-type]
        sent[algorithm] = sum(what.kind == "send" for what in rank.operations.values())
    kinds = Counter(comm.kind for comm in find_communications(traces[0]))
    ranks = len(traces)
    assert sent["ring"] - sent["direct"] == kinds[6] * (ranks * (ranks - 1) // 2 - (ranks - 1))


def test_one_rank_becomes_calculations_and_unmatched_ranks_are_refused(tmp_path: Path) -> None:
    linked("pairs/gpu_shaped_from_cpu").write(tmp_path / "rank0.json")
    done = succeeds("convert", "rank0.json", "-o", "job.goal.gz", cwd=tmp_path)
    assert b"only one rank was given" in done.stderr
    (rank,) = parse_goal(gzip.decompress((tmp_path / "job.goal.gz").read_bytes()).decode())
    assert {what.kind for what in rank.operations.values()} == {"calc"}
    silent = etplus([cpu(3, "aten::mm", 0, 100), gpu(7, "gemm", 40, 50)], [], [], rank=1, world_size=2)
    with pytest.raises(ConvertError, match="a simulator would wait forever"):
        convert([step_by_hand(), silent], tmp_path / "two.goal")
    assert not (tmp_path / "two.goal").exists()


def test_ranks_are_numbered_from_0_and_messages_of_a_kernel_paired_one_by_one(tmp_path: Path) -> None:
    ranks = [etplus([cpu(3, "a", 0, 9)], rank=rank, world_size=9) for rank in (6, 2)]
    assert "ranks renumbered: 2 as 0, 6 as 1" in convert(ranks, tmp_path / "x.goal").notes

    def message(kind: int, peer: int) -> Any:
        return SimpleNamespace(kind=kind, peer=peer)

    numbers: Any = SimpleNamespace(numbers=[2, 6])
    others = [message(SEND, 9), message(RECV, 9)]
    own = {0: [*others, message(SEND, 6), message(RECV, 6)], 1: [*others, message(RECV, 2), message(SEND, 2)]}
    first, second = (_Schedule._next_of(numbers, own) for _ in range(2))
    assert [{rank: (comm.kind, comm.peer) for rank, comm in pair.items()} for pair in (first, second)] == [
        {0: (SEND, 6), 1: (RECV, 2)}, {1: (SEND, 2), 0: (RECV, 6)},
    ]  # fmt: skip
    assert own == {0: others, 1: others}
    assert _Schedule._next_of(numbers, {0: [message(0, -1)], 1: [message(0, -1)], 2: []}).keys() == {0, 1}


def test_latencies_that_overlap_have_numbers_of_their_own() -> None:
    """Rank 0 has one from 0 to 10, one from 5 to 15, and one from 10 to 15, when the first has ended; rank 1 has one.
    Lanes and edges without a latency have none."""

    class Edges(SimpleNamespace):
        def __len__(self) -> int:
            return len(self.source)

    edges = Edges(source=np.array([0, 1, 2, 1, 0, 0]), target=np.array([3, 3, 3, 3, 4, 3]))
    graph: Any = SimpleNamespace(edges=edges, traces=[None, None])
    time, lag = np.array([0, 5, 10, 0, 0]), np.array([10, 10, 5, 9, 3, 0])
    unit, units = _latency_units(graph, time, lag, [-1, -1, -1, 0, -1, -1], [0, 0, 0, 0, 1])
    assert unit == [0, 1, 2, 0, 0, 0] and units == [2 * _SPARE, _SPARE]
