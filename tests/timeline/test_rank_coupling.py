"""Ranks as one graph: points, edges and clocks of two or three small ranks, whole."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import predicted_traces, replay
from etplus.timeline.rank_coupling import Rendezvous, _join, find_rendezvous, join_ranks
from etplus.timeline.replay_graph import COMM, DURATION, HANDOFF, HOST, LINK_KINDS, Edges, ReplayGraph
from etplus.trace.errors import UsageError
from made_traces import Timeline


def rank(number: int, launch: float, start: float, dur: float, ranks: int = 2, **more: Any) -> Timeline:
    """A rank that launches an all-reduce after an op of that length and then works for 20."""
    trace = Timeline(distributedInfo={"backend": "nccl", "rank": number, "world_size": ranks})
    if launch:
        trace.op("before", 0, launch)
    trace.op("reduce", launch, 5)
    comm = {"Collective name": "allreduce", "In msg nelems": 4, "Out msg nelems": 4, "dtype": "Float",
            "Group size": ranks, "Process Group Name": "0", "Process Group Ranks": str(list(range(ranks))), "Seq": 3,
            **more}  # fmt: skip
    trace.gpu("ncclDevKernel_AllReduce", start, dur, trace.call("cudaLaunchKernel", launch, 5), stream=20, **comm)
    trace.op("after", launch + 5, 20)
    return trace


def test_each_rank_waits_for_the_last_to_reach_a_collective() -> None:
    traces = [rank(k, launch, start, dur, 3).document() for k, (launch, start, dur) in
              enumerate([(0, 10, 90), (50, 60, 40), (20, 30, 70)])]  # fmt: skip
    found = find_rendezvous(traces)
    [met] = found.found
    assert (met.rank, met.transfer_ns, met.on_host, met.message) == ((0, 1, 2), 40_000, False, False)
    assert [trace.name_of(row) for trace, row in zip(traces, met.row, strict=True)] == ["ncclDevKernel_AllReduce"] * 3
    assert met.own_ns == (0, 0, 0) and met.early_ns == (0, 0, 0) and found.notes == () and found.begin_ns == (0, 0, 0)
    assert met.blocked == [(k, row, 0, 40_000) for k, row in enumerate(met.row)]
    graphs = [trace.graph() for trace in (rank(0, 0, 10, 90, 3), rank(1, 50, 60, 40, 3), rank(2, 20, 30, 70, 3))]
    joint = join_ranks(graphs)
    edges, names = joint.edges, joint.name_of
    arriving = np.flatnonzero((edges.kind == COMM) & (joint.row[edges.target] < 0))
    into = [(names(int(joint.row[edges.source[k]])), int(edges.lag[k])) for k in arriving.tolist()]
    assert into == [("ncclDevKernel_AllReduce", 0)] * 3
    out = (edges.kind == COMM) & (joint.row[edges.target] >= 0)
    assert (
        edges.lag[out].tolist() == [40_000] * 3 and edges.owner[out].tolist() == joint.row[edges.target[out]].tolist()
    )
    assert not np.any(edges.kind == DURATION)
    assert joint.ranks == [0, 1, 2] and len(joint) == sum(map(len, graphs)) - 2 + 1
    result = replay(joint, [fit_constants(graph) for graph in graphs])
    assert np.array_equal(result.time, joint.measured) and result.makespan_ns == 100_000
    assert [int(result.end[int(joint.first_row[k]) + met.row[k]]) for k in range(3)] == [100_000] * 3
    slow = joint.scaled((edges.kind == HOST) & (joint.rank_of_row[np.maximum(joint.row[edges.target], 0)] == 2), 3.0)
    assert replay(slow, [fit_constants(graph) for graph in graphs]).makespan_ns > 100_000


def test_a_message_and_a_collective_on_the_host() -> None:
    """Points 1–2 and 3–4 of two rows of one rank, 5–6 of the other's. The collective's second rank takes 3 longer by
    itself; a sender on the host goes on, and the message's receiver was ready 2 before its start."""
    start, end = np.array([1, 3, 5]), np.array([2, 4, 6])
    measured = np.array([0, 10, 30, 40, 50, 12, 33])
    both = Rendezvous((0, 1), (0, 0), 18, (0, 3), (0, 1), on_host=True)
    message = Rendezvous((0, 1), (1, 0), 7, (0, 0), (0, 2), on_host=True, message=True)
    assert both.blocked == [(0, 0, 0, 18), (1, 0, 3, 18)] and message.blocked == [(1, 0, 0, 7)]
    assert replace(message, sent_ns=4).blocked == [(0, 1, 0, 4), (1, 0, 0, 7)], "the sender is done earlier"
    assert Rendezvous((0, 1), (1, 0), 7, (0, 0), (0, 2), message=True).blocked == [(0, 1, 0, 7), (1, 0, 0, 7)]
    nothing = Edges.of(HANDOFF, *[np.zeros(0, np.int64)] * 3)
    edges, met_at = _join([both, message], np.array([0, 2, 3]), start, end, measured, nothing)
    assert met_at.tolist() == [11, 40, 30], "the last one's readiness, and where the second rank's own time begins"
    columns = (edges.kind, edges.source, edges.target, edges.lag, edges.owner)
    shown = [(LINK_KINDS[kind], *more) for kind, *more in zip(*(of.tolist() for of in columns), strict=True)]
    comm, handoff = LINK_KINDS[COMM], LINK_KINDS[HANDOFF]
    assert shown == [
        (comm, 1, 7, 0, -1), (comm, 5, 7, -1, -1), (comm, 3, 8, 0, -1), (comm, 5, 8, -2, -1),
        (comm, 7, 2, 18, 0), (comm, 7, 9, 18, 2), (comm, 8, 6, 7, 2), (handoff, 9, 6, 3, -1),
    ]  # fmt: skip
    handed = Edges.of(HANDOFF, np.array([1]), np.array([5]), np.array([2]))
    issued, _ = _join([both, message], np.array([0, 2, 3]), start, end, measured, handed)
    assert (issued.source.tolist()[:4], issued.lag.tolist()[:4]) == ([1, 5, 3, 1], [0, -1, 0, 0]), "ready when issued"


def test_what_not_all_ranks_have_alike_is_not_joined() -> None:
    traces = [rank(0, 0, 10, 90), rank(1, 50, 60, 40)]
    traces[0].gpu("ncclDevKernel_AllReduce", 200, 5, traces[0].call("cudaLaunchKernel", 190, 2), stream=20, **{
        "Collective name": "allreduce", "In msg nelems": 4, "Out msg nelems": 4, "dtype": "Float", "Group size": 2,
        "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": 4,
    })  # fmt: skip
    for seq in (5, 6):
        traces[0].gpu("ncclDevKernel_SendRecv", 100 * seq, 5, traces[0].call("cudaLaunchKernel", 100 * seq - 9, 2), **{
            "Collective name": "recv", "In msg nelems": 4, "Out msg nelems": 4, "dtype": "Float", "Group size": 2,
            "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Seq": seq, "Src Rank": 1, "Dst Rank": 0,
        })  # fmt: skip
    found = find_rendezvous([trace.document() for trace in traces])
    assert len(found.found) == 1
    assert found.notes == (
        "1 of 2 collectives of all ranks are not coupled: they differ between ranks",
        "2 sends and receives without a partner are not coupled",
    )


def test_joining_fewer_than_two_ranks_is_refused() -> None:
    graph: ReplayGraph = rank(0, 0, 10, 90).graph()
    for graphs in ([], [graph]):
        with pytest.raises(UsageError, match="at least two ranks"):
            join_ranks(graphs)


@pytest.mark.parametrize("kind", ["broadcast", "allreduce"])
def test_where_no_collective_synchronizes_any_sets_the_clocks(kind: str) -> None:
    """The second rank's clock is a second later, and its all-reduce or broadcast ends there at the same
    time; so its first op, at 0 of its clock, begins a second before the other rank's."""
    more = {"Collective name": kind}
    traces = [rank(0, 0, 10, 90, **more).document(), rank(1, 1_000_050, 1_000_060, 40, **more).document()]
    found = find_rendezvous(traces)
    assert [met.transfer_ns for met in found.found] == [40_000]
    assert found.begin_ns == (1_000_000_000, 0)
    graphs = [build_graph(trace) for trace in traces]
    done = replay(join_ranks(graphs), [fit_constants(graph) for graph in graphs])
    for made, trace in zip(predicted_traces(done), traces, strict=True):
        assert made.nodes.ts.tolist() == trace.nodes.ts.tolist(), "by the clock of each"
