"""Collectives that run on the host in the replay: beside their caller, and coupled over the ranks.

The tests also cover shared_links.py.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import simulator
from etplus.linker import link
from etplus.timeline import Network, host_backends, on_network
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import Replay, replay
from etplus.timeline.rank_coupling import find_rendezvous, join_ranks
from etplus.timeline.replay_ranks import answer_range
from etplus.timeline.whatif import apply_what_ifs, parse_what_if
from etplus.trace.trace import Trace
from golden_analysis import traces_of
from made_host_jobs import HOST_JOBS, RANDOM_HOST_JOBS, HostRank
from made_jobs import RECORDED, Job, Play


def replayed(ranks: list[Trace], network: Network | None = None, *changes: str) -> Replay:
    graphs = [build_graph(trace) for trace in ranks]
    constants = [fit_constants(graph) for graph in graphs]
    graph = join_ranks(graphs)
    graph = graph if network is None else on_network(graph, network)
    return replay(apply_what_ifs(graph, [parse_what_if(one) for one in changes], constants), constants)


@pytest.mark.parametrize("name", HOST_JOBS)
def test_coupled_ranks_answer_as_the_job_does(name: str) -> None:
    ranks = HOST_JOBS[name].traces()
    assert replayed(ranks).makespan_ns == pytest.approx(HOST_JOBS[name].makespan_ns(RECORDED), abs=1000)
    for bandwidth in (2.5, 0.025):
        truth = HOST_JOBS[name].makespan_ns(simulator.Network(bandwidth, 5000))
        assert replayed(ranks, Network(bandwidth, 5000)).makespan_ns == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize("name", RANDOM_HOST_JOBS)
def test_collectives_that_wait_for_a_thread_keep_their_order_although_calls_reach_it_late(name: str) -> None:
    base = replayed(traces_of(name))
    assert base.makespan_ns == pytest.approx(base.measured_ns, rel=1e-4)


def test_a_transfer_lasts_from_the_last_start_to_the_first_end() -> None:
    found = find_rendezvous(HOST_JOBS["ddp"].traces())
    assert [met.own_ns for met in found.found] == [*[(0, 10_000, 20_000)] * 7, (45_000, 0, 10_000)]
    assert [met.transfer_ns for met in found.found] == [25_401, 20_401, 15_401, 10_401, 10_401, 5401, 401, 5401]
    assert found.begin_ns == (0, 400_000, 800_000) and all(met.on_host and not met.message for met in found.found)
    first, *_, last = find_rendezvous(HOST_JOBS["pipeline"].traces()).found
    assert (first.own_ns, first.early_ns, first.transfer_ns, first.sent_ns) == ((0, 0), (43_000, 0), 68_101, 68_101)
    assert first.message and first.on_host and first.rank == (0, 1) and last.message


def late_senders(rank: HostRank) -> Play:
    """A sender asks for the end of each message after the work that follows, and its span ends only then. That work
    takes twice as long as the first batch's, since the receiver has begun to use the same processor."""
    tensors = [rank.tensor(f"x{batch}", 1 << 18) for batch in range(6)]
    sent = None
    with rank.op("ProfilerStep#0", annotation=True):
        for batch, x in enumerate(tensors):
            with rank.op("aten::mm", [tensors[0]], [x]):
                rank.now += 4_000_000 if sent else 2_000_000
            if sent:
                sent["dur"] = rank.now / 1000 - sent["ts"]
            if batch >= 2:
                end = yield from rank.message(x, 0, 1)
                if rank.rank:
                    rank.wait_for(end)
                else:
                    sent = rank.events[-1]


def test_work_is_beside_a_message_only_while_its_data_moves() -> None:
    job = Job(late_senders, ranks=2, of=HostRank)
    ranks = job.traces()
    base = replayed(ranks)
    assert base.graph.shared is not None and base.graph.shared.slowdown == 1
    assert base.makespan_ns == base.measured_ns
    for bandwidth in (25, 2.5, 0.25):
        truth = job.makespan_ns(simulator.Network(bandwidth, 5000))
        assert replayed(ranks, Network(bandwidth, 5000)).makespan_ns == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize(("covered_ms", "told"), [(50, False), (51, True)])
def test_a_pause_mostly_during_collectives_that_none_explains_is_told(
    monkeypatch: pytest.MonkeyPatch, covered_ms: int, told: bool
) -> None:
    ms = 1_000_000
    measured = np.array([0, 200, 300, 190, 200 + covered_ms, 210, 220, 400]) * ms
    points: Any = SimpleNamespace(
        measured=measured, host_comm=np.array([0, 1]), start=np.array([3, 5]), end=np.array([4, 6])
    )
    chains: Any = SimpleNamespace(source=np.array([1]), target=np.array([2]), lag=np.array([100 * ms]))
    monkeypatch.setattr(host_backends, "_pauses", lambda *_: np.array([0]))
    note = "no collective explains 1 pause of a thread during collectives (100.0 ms, 25%): kept as host work"
    assert host_backends._unexplained(points, chains, np.array([False])) == [note] * told
    assert host_backends._unexplained(points, chains, np.array([True])) == []


def test_the_answer_range_has_limits_and_reasons(tmp_path: Path) -> None:
    graph = join_ranks([build_graph(link(*pair)) for pair in HOST_JOBS["ddp"].write(tmp_path)])
    constants = [fit_constants(build_graph(trace)) for trace in graph.traces]
    span = answer_range(graph, Network(2.5, 5000), [], constants)
    assert (span.low_ns, span.high_ns) == (23_062_717, 37_749_216) and len(span.reasons) > 1
    assert "25% less or more" in span.reasons[0]
