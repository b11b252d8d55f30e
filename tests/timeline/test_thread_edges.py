"""Chains of threads, handoffs between them, and polling threads: whole results, by hand and against a brute force."""

from dataclasses import replace

import numpy as np
import pytest
from etplus.timeline.graph_events import GraphEvents
from etplus.timeline.host_backends import host_collectives
from etplus.timeline.replay_graph import HANDOFF, HOST, LINK_KINDS, ORDER, Edges
from etplus.timeline.thread_edges import handoffs, host_chains, without_polling
from etplus.trace.conventions import ANNOTATION_SCOPE
from etplus.trace.host_waits import LONG_PAUSE_NS
from etplus.trace.trace import Trace
from hypothesis import given
from hypothesis import strategies as st
from made_traces import Timeline, after, starts
from support import examples

FEW = examples(40)
Shown = list[tuple[str, str, float, str]]


def shown(points: GraphEvents, edges: Edges) -> Shown:
    """Edges as (source, target, lag in µs, whose time or which kind); `<` is a start, `>` an end."""
    trace = points.trace

    def point(number: int) -> str:
        row = int(points.row[number])
        return f"{trace.name_of(row)}{'<' if points.start[row] == number else '>'}" if row >= 0 else "begin"

    def owner(row: int, kind: int) -> str:
        return trace.name_of(row) if row >= 0 else "" if kind == HOST else LINK_KINDS[kind]

    columns = (edges.source, edges.target, edges.lag, edges.owner, edges.kind)
    return [
        (point(source), point(target), lag / 1000, owner(row, kind))
        for source, target, lag, row, kind in zip(*(column.tolist() for column in columns), strict=True)
    ]


def test_each_thread_is_one_chain_of_nested_calls() -> None:
    trace = Timeline()
    trace.op("a", 0, 100, tid=1)
    trace.op("b", 0, 40, tid=1)
    trace.op("c", 40, 30, tid=1)
    trace.op("d", 100, 10, tid=1)
    trace.op("e", 30, 5, tid=2)
    trace.gpu("kernel", 20, 5, 99)
    points, chains = host_chains(GraphEvents.of(trace.document()))
    assert shown(points, chains) == [
        ("begin", "a<", 0, ""), ("a<", "b<", 0, "a"), ("b<", "b>", 40, "b"), ("b>", "c<", 0, "a"),
        ("c<", "c>", 30, "c"), ("c>", "a>", 30, "a"), ("a>", "d<", 0, ""), ("d<", "d>", 10, "d"),
        ("begin", "e<", 30, ""), ("e<", "e>", 5, "e"),
    ]  # fmt: skip
    assert set(chains.kind.tolist()) == {HOST} and not chains.capped.any()
    none, same, shared, notes = host_collectives(points, chains)
    assert (len(none), same, shared, notes) == (0, chains, None, [])


def test_calls_that_overlap_end_where_their_end_takes_effect() -> None:
    trace = Timeline()
    trace.op("a", 0, 100, tid=1)
    trace.op("b", 50, 80, tid=1)
    trace.op("c", 140, 10, tid=1)
    trace.op("d", 20, 10, tid=2)
    points, chains = host_chains(GraphEvents.of(trace.document()))
    assert shown(points, chains) == [
        ("begin", "a<", 0, ""), ("a<", "b<", 50, "a"), ("b<", "b>", 80, "b"), ("b>", "a>", 0, "a"),
        ("a>", "c<", 10, ""), ("c<", "c>", 10, "c"), ("begin", "d<", 20, ""), ("d<", "d>", 10, "d"),
    ]  # fmt: skip
    row = [points.trace.name_of(k) for k in range(len(points.trace))].index("a")
    assert points.measured[points.end[row]] == 130_000


def handed(trace: Timeline) -> tuple[Shown, Shown]:
    """The handoffs where the trace records none, and what remains of the chains' pauses for which they are."""
    document = trace.document()
    points, chains = host_chains(GraphEvents.of(replace(document, edges=document.edges[:0])))
    passed, left = handoffs(points, chains)
    assert set(passed.kind.tolist()) <= {HANDOFF}
    assert np.array_equal(left.lag, np.where(left.kind == ORDER, 0, chains.lag))
    return shown(points, passed), shown(points, left.take(left.kind == ORDER))


@pytest.mark.parametrize(("start", "late"), [(200, False), (200.001, True)])
def test_a_late_beginning_follows_what_another_thread_did_last(start: float, late: bool) -> None:
    trace = Timeline()
    trace.op("a", 0, 100, tid=1)
    trace.op("b", 150, 100, tid=1)
    trace.op("c", start, 10, tid=2)
    passed, left = handed(trace)
    assert passed == ([("b<", "c<", pytest.approx(start - 150), LINK_KINDS[HANDOFF])] if late else [])
    assert left == ([("begin", "c<", 0, LINK_KINDS[ORDER])] if late else [])


@pytest.mark.parametrize(
    ("begin", "end", "pause", "joined"),
    [
        (100, 201, 202, True), (100, 200.999, 202, False), (150, 302, 202, True), (150, 302.001, 202, False),
        (99.999, 250, 202, False), (100, 300, 200, False), (100, 300, 200.001, True), (150, 250, 202, True),
    ],
)  # fmt: skip
def test_a_burst_is_whole_within_the_second_half_of_a_pause(
    begin: float, end: float, pause: float, joined: bool
) -> None:
    trace = Timeline()
    trace.op("before", 0, 100, tid=1)
    trace.op("after", 100 + pause, 10, tid=1)
    trace.op("burst", begin, end - begin, tid=2)
    passed, left = handed(trace)
    assert passed == [("burst>", "after<", pytest.approx(100 + pause - end), LINK_KINDS[HANDOFF])] * joined
    assert left == [("before>", "after<", 0, LINK_KINDS[ORDER])] * joined


def brute(points: GraphEvents, chains: Edges) -> set[tuple[int, int]]:
    """Handoffs of a trace that records none: of bursts that end pauses, of what begins them, and of late threads."""
    trace = points.trace
    thread_of, begins, ends = trace.nodes.thread, points.measured[points.start], points.measured[points.end]
    found: set[tuple[int, int]] = set()
    ordered = set()
    rows = [row for row in range(len(trace)) if trace.nodes.scope[row] != ANNOTATION_SCOPE]
    rows.sort(key=lambda row: (thread_of[row], trace.nodes.ts[row], row))
    blocks: list[list[int]] = []
    for row in rows:
        same = bool(blocks) and thread_of[blocks[-1][0]] == thread_of[row]
        if same and begins[row] < max(ends[k] for k in blocks[-1]):
            blocks[-1].append(row)
        else:
            blocks.append([row])
    edges = list(zip(chains.source.tolist(), chains.target.tolist(), chains.lag.tolist(), strict=True))
    position = {target: k for k, (_, target, _) in enumerate(edges)}
    for k, (source, target, lag) in enumerate(edges):
        owner = int(chains.owner[k])
        if source == 0 or lag <= LONG_PAUSE_NS or (owner >= 0 and trace.nodes.scope[owner] != ANNOTATION_SCOPE):
            continue
        begin, until = int(points.measured[source]), int(points.measured[target])
        best: tuple[int, int] | None = None
        for number, block in enumerate(blocks):
            thread = thread_of[block[0]]
            done = max(int(ends[row]) for row in block)
            if thread == thread_of[points.row[target]] or not until - (until - begin) // 2 <= done <= until:
                continue
            own = [other for other in blocks if thread_of[other[0]] == thread]
            at = own.index(block)
            idle = all(max(ends[row] for row in other) <= begin for other in own if begins[other[0]] < begin)
            over = all(begins[other[0]] >= until for other in own[at + 1 :])
            last = all(max(ends[row] for row in other) > until for other in own[at + 1 :])
            if begins[block[0]] >= begin and idle and over and last and (best is None or done > best[0]):
                best = done, number
        if best is None:
            continue
        block = blocks[best[1]]
        thread = thread_of[block[0]]
        final = [row for row in block if ends[row] == best[0]][-1]
        found.add((int(points.end[final]), target))
        ordered.add(k)
        first = next(other for other in blocks if thread_of[other[0]] == thread and begins[other[0]] >= begin)
        into = position[int(points.start[first[0]])]
        if edges[into][2] > LONG_PAUSE_NS:
            found.add((source, edges[into][1]))
            ordered.add(into)
    in_time = sorted((target for _, target, _ in edges), key=lambda point: int(points.measured[point]))
    for k, (source, target, lag) in enumerate(edges):
        if source == 0 and lag > LONG_PAUSE_NS and k not in ordered:
            own_thread = thread_of[points.row[target]]
            earlier = [
                point
                for point in in_time
                if points.measured[point] < points.measured[target] and thread_of[points.row[point]] != own_thread
            ]
            found.add((earlier[-1] if earlier else 0, target))
    return found


GRID = st.tuples(st.integers(1, 3), st.integers(0, 12), st.integers(1, 6), st.sampled_from([0, 0, 1]))
"""Thread, start, length (of 100 µs), and 1 µs more: many things happen at once, and pauses are of exactly 200 µs."""


@FEW
@given(st.lists(GRID, min_size=2, max_size=10))
def test_handoffs_are_those_of_a_brute_force(pieces: list[tuple[int, int, int, int]]) -> None:
    trace = Timeline()
    for k, (thread, start, length, more) in enumerate(pieces):
        trace.op(f"op{k}", 100 * start + more, 100 * length, tid=thread)
    document = trace.document()
    points, chains = host_chains(GraphEvents.of(replace(document, edges=document.edges[:0])))
    passed, left = handoffs(points, chains)
    assert set(zip(passed.source.tolist(), passed.target.tolist(), strict=True)) == brute(points, chains)
    assert np.array_equal(passed.lag, points.between(passed.source, passed.target))
    ended = np.isin(left.target, passed.target)
    assert np.array_equal(left.kind == ORDER, ended) and np.array_equal(left.lag, np.where(ended, 0, chains.lag))


def test_threads_that_only_poll_lose_their_times() -> None:
    """Of threads 0, 1 and 2, the first two only query (one of them once, with an annotation around); thread 2 gets
    errors without a query, thread 3 also runs an op, thread 4 an operator of such a name."""
    trace = Timeline()
    trace.call("cudaEventQuery", 0, 2, tid=0)
    trace.call("cudaGetLastError", 5, 2, tid=0)
    trace.call("hipStreamQuery", 6, 1, tid=1)
    trace.op("polling", 5, 5, tid=1, category="user_annotation")
    trace.call("cudaGetLastError", 8, 1, tid=2)
    trace.call("cudaEventQuery", 10, 1, tid=3)
    trace.op("op", 12, 1, tid=3)
    trace.op("cudaEventQuery", 20, 1, tid=4)
    trace.gpu("kernel", 30, 5, 99, stream=0)
    document = trace.document()
    idle, notes = without_polling(document)
    assert notes == ["3 calls of threads that only poll (2) are left out: polling is not work"]
    left = document.nodes.timed & ~idle.nodes.timed
    names = [document.name_of(row) for row in np.flatnonzero(left).tolist()]
    assert sorted(names) == ["cudaEventQuery", "cudaGetLastError", "hipStreamQuery", "polling"]
    assert set(idle.nodes.ts[left].tolist()) == {-1} and set(idle.nodes.dur[left].tolist()) == {0}
    assert np.array_equal(idle.nodes.ts[~left], document.nodes.ts[~left])
    assert np.array_equal(idle.nodes.dur[~left], document.nodes.dur[~left])


def test_where_nothing_polls_or_nothing_else_happens_all_stays() -> None:
    trace = Timeline()
    trace.op("op", 0, 5)
    document = trace.document()
    assert without_polling(document) == (document, [])
    only = Timeline()
    only.call("cudaEventQuery", 0, 2)
    document = only.document()
    assert without_polling(document) == (document, [])


@pytest.mark.parametrize(("done", "target"), [(999, "mark<"), (1000, "mark<"), (1000.001, "next<")])
def test_of_pauses_with_annotations_between_the_longest_is_taken(done: float, target: str) -> None:
    """On thread 2 an op begins before the pause, so that it is no burst, and ends when given."""
    trace = Timeline()
    trace.op("first", 0, 100, tid=1)
    trace.op("mark", 1000, 400, tid=1, category="user_annotation")
    trace.op("next", 1300, 50, tid=1)
    trace.op("other", 50, done - 50, tid=2)
    document = trace.document()
    row = {document.name_of(k): k for k in range(len(document))}
    points, chains = host_chains(GraphEvents.of(document))
    source, pause = points.timed_edges("thread_handoff")
    assert (row["other"], row["next"]) in set(zip(source.tolist(), pause.tolist(), strict=True))
    passed, _ = handoffs(points, chains)
    assert ("other>", target) in [(a, b) for a, b, _, _ in shown(points, passed)]


@FEW
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(0, 6)), min_size=1, max_size=14))
def test_boundaries_are_those_of_a_stack_of_open_calls(calls: list[tuple[int, int, int]]) -> None:
    line = Timeline()
    for number, (thread, ts, dur) in enumerate(calls):
        line.op(f"op{number}", ts, dur, tid=thread + 1)
    points = GraphEvents.of(line.document())
    trace = points.trace
    order, before = trace.nodes.lane_order(trace.nodes.thread, np.flatnonzero(trace.nodes.timed), nested=True)
    expected, opened = [], list[int]()
    for row, first in zip(order.tolist(), (before < 0).tolist(), strict=True):
        while opened and (first or trace.nodes.end[opened[-1]] <= trace.nodes.ts[row]):
            expected.append((int(points.end[opened[-1]]), opened.pop()))
        expected.append((int(points.start[row]), opened[-1] if opened else -1))
        opened.append(row)
    expected += [(int(points.end[row]), row) for row in reversed(opened)]
    edges = host_chains(points)[1]
    assert list(zip(edges.target.tolist(), edges.owner.tolist(), strict=True)) == expected


def test_a_handoff_never_runs_backward() -> None:
    """Thread 1: A 0–500, and B 100–900, begun in A and shown on its thread though it runs elsewhere; so A has ended
    when B has, at 900. Thread 2: first 0–10, then last 720–740. A (500) seems to have ended the pause of thread 2; but
    where its end takes effect it cannot have: last stays at 720, and does not move to 900."""
    trace = Timeline()
    trace.op("first", 0, 10, tid=2)
    trace.op("A", 0, 500, tid=1)
    trace.op("B", 100, 800, tid=1)
    trace.op("last", 720, 20, tid=2)
    graph = trace.graph()
    document = graph.trace
    source, target, _ = document.edges_of("thread_handoff").T
    assert [(document.name_of(a), document.name_of(b)) for a, b in zip(source, target, strict=True)] == [("A", "last")]
    assert starts(after(graph))["last"] == 720
    assert after(graph).makespan_ns == 900_000


PIECES = st.tuples(st.integers(1, 4), st.integers(0, 2500), st.integers(0, 1200))


def overlapping(pieces: list[tuple[int, int, int]]) -> Trace:
    trace = Timeline()
    for k, (thread, start, length) in enumerate(pieces):
        trace.op(f"op{k}", start, length, tid=thread)
    return trace.document()
