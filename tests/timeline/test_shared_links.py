"""Transfers of the host that share links, threads of a backend, and processors: small cases whose times are known."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from etplus.schemas.comm_types import RECV, SEND
from etplus.timeline import beside_transfers
from etplus.timeline.beside_transfers import plain_work, time_beside, time_covered, undisturbed_lags, unevenness
from etplus.timeline.constants import Constants
from etplus.timeline.graph_replay import replay
from etplus.timeline.host_backends import _links
from etplus.timeline.replay_graph import DURATION, HANDOFF, HOST, Edges, ReplayGraph, SharedTransfers
from etplus.timeline.shared_links import Links, share_alone
from etplus_files import cpu, etplus
from hypothesis import given
from hypothesis import strategies as st
from support import examples

BOTH = (0, 1)
"""Links of a collective of rank 0."""


def graph(issues: list[int], work: list[int], links: list[Links], workers: int = 2, rank: int = 0) -> ReplayGraph:
    """Collectives issued at some times; rows 0, 1, … of a trace with as many operators. Point 2k + 1 and 2k + 2 are the
    ends of row k."""
    count = len(issues)
    trace = etplus([cpu(3 + k, f"op{k}", 10 * k, 5) for k in range(count)], rank=rank, world_size=2)
    rows = np.flatnonzero(trace.nodes.timed)[-count:]
    start = np.full(len(trace), -1, np.int64)
    end = start.copy()
    start[rows], end[rows] = np.arange(count) * 2 + 1, np.arange(count) * 2 + 2
    row = np.concatenate([[-1], np.repeat(rows, 2)])
    edges = Edges.joined([
        Edges.of(HANDOFF, np.zeros(count, np.int64), start[rows], np.array(issues, np.int64)),
        Edges.of(DURATION, start[rows], end[rows], np.array(work, np.int64), rows),
    ])  # fmt: skip
    edges = edges.take(np.lexsort((edges.source, edges.target)))
    shared = SharedTransfers(
        rows, tuple(links), np.ones(count), np.where([len(of) == 2 and of == BOTH for of in links], 0, -1), (workers,),
        np.zeros(count, np.int64), np.array(work, np.int64),
    )  # fmt: skip
    return ReplayGraph((trace,), row, start, end, np.zeros(len(row), np.int64), edges, shared=shared)


def ends(of: ReplayGraph) -> list[int]:
    assert of.shared is not None
    return replay(of, Constants(0, 0)).time[of.end[of.shared.rows]].tolist()


@pytest.mark.parametrize(
    ("issues", "work", "workers", "wanted"),
    [
        ([0], [10], 2, [10]),
        ([0, 0], [10, 10], 2, [20, 20]),  # each has half of the link
        ([0, 4], [10, 10], 2, [16, 20]),
        ([0, 0, 0], [10, 10, 10], 2, [20, 20, 30]),  # the third waits for a thread
        ([0, 0, 0], [10, 10, 10], 1, [10, 20, 30]),
        ([0, 1, 2], [4, 10, 2], 2, [7, 16, 11]),
        ([0, 20], [10, 10], 2, [10, 30]),
    ],
)
def test_links_are_shared_and_threads_taken_in_order(
    issues: list[int], work: list[int], workers: int, wanted: list[int]
) -> None:
    assert ends(graph(issues, work, [BOTH] * len(work), workers)) == pytest.approx(wanted, abs=1)


def test_messages_one_way_follow_each_other_and_directions_do_not_meet() -> None:
    messages = (
        ((SEND, 0), (2, 1)), ((RECV, 0), (3, 0)), ((SEND, 2), (2, 5)), ((RECV, 2), (3, 4)), ((SEND, -1), (2,)),
        ((RECV, -1), (3,)), ((0, 0), (2, 3)),
    )  # fmt: skip
    for (kind, peer), links in messages:
        assert _links(1, SimpleNamespace(kind=kind, peer=peer)) == links  # type: ignore[arg-type]
    there, back = (0, 3), (1, 2)
    assert ends(graph([0, 0, 0], [10, 10, 10], [there, there, back])) == [10, 20, 10]


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=7), st.integers(1, 3))
def test_a_recording_of_a_shared_link_replays_as_it_was(jobs: list[tuple[int, int]], workers: int) -> None:
    jobs.sort()
    issues, work = [1000 * issue for issue, _ in jobs], [1000 * ns for _, ns in jobs]
    first = graph(issues, work, [BOTH] * len(jobs), workers)
    done = replay(first, Constants(0, 0))
    assert first.shared is not None
    begin, end = done.time[first.start[first.shared.rows]], done.time[first.end[first.shared.rows]]
    alone = share_alone(begin.tolist(), end.tolist(), [BOTH] * len(jobs))
    assert alone * (end - begin) == pytest.approx(work, abs=20)
    busy = 0
    for issue, ns in zip(issues, work, strict=True):
        busy = max(busy, issue) + ns
    assert int(end.max()) == pytest.approx(busy, abs=20)


def test_work_beside_a_transfer_takes_longer() -> None:
    of = graph([0], [8], [BOTH])
    assert of.shared is not None
    work = Edges.of(HOST, np.array([1]), np.array([3]), np.array([10]))
    row = np.append(of.row, of.shared.rows[0])
    edges = Edges.joined([of.edges, work])
    for beside, wanted in (((0, 0), 10), ((20_000_000, 10_000_000), 14)):
        shared = replace(of.shared, beside=beside)
        with_work = ReplayGraph(of.traces, row, of.start, of.end, np.zeros(len(row), np.int64), edges, shared=shared)
        assert replay(with_work, Constants(0, 0)).time[3] == wanted


@pytest.mark.parametrize("rank", [0, 1])
def test_work_takes_less_without_the_transfer_that_covers_most_of_it(rank: int) -> None:
    of = graph([0], [8], [(2 * rank, 2 * rank + 1)], rank=rank)
    assert of.shared is not None
    edges = Edges.joined([of.edges, Edges.of(HOST, np.array([1]), np.array([3]), np.array([10]))])
    row, measured = np.append(of.row, of.shared.rows[0]), np.array([0, 0, 8, 10])
    shared = replace(of.shared, beside=(20_000_000, 10_000_000))
    made = ReplayGraph(of.traces, row, of.start, of.end, measured, edges, shared=shared)
    assert [column.tolist() for column in time_covered(made, np.array([2]))] == [[8], [10]]
    assert plain_work(made) == {2: pytest.approx(0.6)} and undisturbed_lags(made).tolist() == [0, 8, 6]
    assert undisturbed_lags(replace(made, shared=replace(of.shared, beside=(0, 0)))).tolist() == [0, 8, 10]


def test_the_slowdown_beside_transfers_is_that_of_equal_operators() -> None:
    assert time_beside([([2, 2, 9], [(3, 3), (4, 2)]), ([], [(50, 50)]), ([7], [])]) == (5, 5 - 1 - 2)
    assert time_beside([([5], [(3, 3)])]) == (3, 3) and time_beside([([1], [(9, 4)])]) == (4, 0)


def test_evenness_is_the_spread_of_equal_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [([10, 5, *[10] * 7, 20], [(99, 9)]), ([1, 100], [])]
    monkeypatch.setattr(beside_transfers, "equal_operators", lambda _: groups)
    assert unevenness(graph([0], [8], [BOTH])) == (0.5, 1.0)
    groups[0][0].append(20)
    assert unevenness(graph([0], [8], [BOTH])) == (1.0, 2.0)
    del groups[0]
    assert unevenness(graph([0], [8], [BOTH])) == (1.0, 1.0)
