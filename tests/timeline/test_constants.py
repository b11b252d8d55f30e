"""Constants fitted on graphs by hand, where each latency and gap is given as a number of ns."""

import numpy as np
import pytest
from etplus.timeline.constants import SYNC_RETURN_NS, Constants, counted_lags, fit_constants, of_ranks
from etplus.timeline.replay_graph import EVENT, HOST, LAUNCH, QUEUE, STREAM, SYNC, Edges, ReplayGraph
from etplus.trace.errors import UsageError
from made_traces import Timeline


def by_hand(measured: list[int], *edges: tuple[int, int, int], ranks: int = 1, limit: int | None = None) -> ReplayGraph:
    """A graph of points with the given times and edges of (kind, source, target); point k is of row k − 1."""
    trace = Timeline()
    for k in range(len(measured)):
        trace.op("op", k, 1)
    kinds, source, target = (np.array(column, np.int64) for column in zip(*edges, strict=True))
    times = np.array(measured, np.int64)
    made = Edges(
        source, target, times[target] - times[source], kinds.astype(np.int8), np.full(len(edges), -1),
        np.ones(len(edges), np.bool_),
    )  # fmt: skip
    rows = np.arange(len(times)) - 1
    skewed = trace.document().with_(summary={"link": {"dependencies": {"clock_skew_ns": 123}}})
    return ReplayGraph((skewed,) * ranks, rows, rows + 1, rows + 1, times, made, limit)


def test_launch_latency_is_the_median_of_idle_streams() -> None:
    """Launches at 0 (row 0's point and the beginning), work that begins 10, 20, 31 after; the stream was free at the
    launch exactly (counts), before it (counts), 1 ns after it (does not); a fourth is a stream's first."""
    graph = by_hand(
        [0, 100, 100, 110, 200, 150, 220, 300, 301, 331, 400, 900],
        (LAUNCH, 1, 3), (STREAM, 2, 3), (LAUNCH, 4, 6), (STREAM, 5, 6), (LAUNCH, 7, 9), (STREAM, 8, 9),
        (LAUNCH, 10, 11), limit=7,
    )  # fmt: skip
    assert fit_constants(graph) == Constants(15, 0, 0, SYNC_RETURN_NS, 7, 123)


def test_a_streams_first_counts_where_nothing_else_does() -> None:
    graph = by_hand([0, 40, 1_000_000, 1_000_001], (LAUNCH, 0, 1), (LAUNCH, 0, 2), (LAUNCH, 0, 3))
    assert fit_constants(graph).launch_latency_ns == (40 + 1_000_000) // 2
    assert fit_constants(by_hand([0, 1_000_001], (LAUNCH, 0, 1))).launch_latency_ns == 0


def test_gaps_are_those_of_work_that_was_queued() -> None:
    """A latency of 10 (idle). What was launched over 10 before the stream was free was queued: gaps 5, 7 and exactly
    100 µs; what was launched exactly 10 before was not (gap 9), and a gap of a ns over 100 µs counts for nothing."""
    graph = by_hand(
        [0, 0, 10, 20, 31, 36, 51, 58, 70, 80, 89, 101, 112, 100_112, 200_000, 300_000, 400_001],
        (LAUNCH, 1, 2), (STREAM, 0, 2),
        (LAUNCH, 3, 5), (STREAM, 4, 5), (LAUNCH, 3, 7), (STREAM, 6, 7),
        (LAUNCH, 8, 10), (STREAM, 9, 10), (LAUNCH, 11, 13), (STREAM, 12, 13), (LAUNCH, 14, 16), (STREAM, 15, 16),
    )  # fmt: skip
    found = fit_constants(graph)
    assert (found.launch_latency_ns, found.gap_ns, found.event_gap_ns) == (10, 7, 7)


def test_a_negative_stream_gap_is_fitted_as_zero() -> None:
    graph = by_hand([0, 0, 10, 20, 60, 50], (LAUNCH, 1, 2), (STREAM, 0, 2), (LAUNCH, 3, 5), (STREAM, 4, 5))
    assert fit_constants(graph).gap_ns == 0


def test_waits_for_other_streams_have_a_gap_of_their_own() -> None:
    """Lags 3, 5 and exactly `SYNC_RETURN_NS` count; their targets tell no launch latency. One of a ns more is no wait:
    its target's latency of 60 counts."""
    late = SYNC_RETURN_NS
    graph = by_hand(
        [0, 1000, 1003, 1005, 1000 + late, 1001 + late, 941 + late, 900],
        (EVENT, 1, 2), (EVENT, 1, 3), (EVENT, 1, 4), (EVENT, 1, 5),
        (LAUNCH, 0, 2), (LAUNCH, 0, 3), (LAUNCH, 0, 4), (LAUNCH, 6, 5),
    )  # fmt: skip
    found = fit_constants(graph)
    assert (found.launch_latency_ns, found.gap_ns, found.event_gap_ns) == (60, 0, 5)


def test_constants_are_fitted_to_the_chosen_rows_only() -> None:
    graph = by_hand([0, 10, 30], (LAUNCH, 0, 1), (LAUNCH, 0, 2))
    assert fit_constants(graph).launch_latency_ns == 20
    assert fit_constants(graph, np.array([True, False, False])).launch_latency_ns == 10
    assert fit_constants(graph, np.array([False, True, False])).launch_latency_ns == 30
    assert fit_constants(graph, np.array([False, False, True])).launch_latency_ns == 0
    waits = by_hand([0, 4, 8], (EVENT, 0, 1), (EVENT, 0, 2))
    assert fit_constants(waits, np.array([False, True, False])).event_gap_ns == 8


def test_lags_are_capped_by_kind() -> None:
    graph = by_hand(
        [0, 100, 100, 100, 100, 100, 100],
        (HOST, 0, 1), (LAUNCH, 0, 2), (STREAM, 0, 3), (EVENT, 0, 4), (SYNC, 0, 5), (QUEUE, 0, 6),
    )  # fmt: skip
    constants = Constants(50, 40, 30, 20)
    assert counted_lags(graph, constants).tolist() == [100, 50, 40, 30, 20, 20]
    assert counted_lags(graph, Constants(500, 100, 101, 99)).tolist() == [100, 100, 100, 100, 99, 99]
    assert of_ranks(constants) == (constants,) and of_ranks([constants]) == (constants,)


def test_each_rank_is_capped_by_its_own_constants() -> None:
    graph = by_hand([0, 100, 100], (LAUNCH, 0, 1), (LAUNCH, 0, 2), ranks=2)
    graph.edges.lag[:] = 100
    graph.row[2] = len(graph.trace)
    assert counted_lags(graph, [Constants(50, 0), Constants(60, 0)]).tolist() == [50, 60]
    with pytest.raises(UsageError, match="constants of 1 ranks for a graph of 2"):
        counted_lags(graph, Constants(1, 1))
