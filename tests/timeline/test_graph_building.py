"""All edges of the graphs of small traces; lags in µs, `<` is a start, `>` an end, `=` a submission.

The tests also cover thread_edges.py.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.rank_coupling import join_ranks
from etplus.timeline.replay_graph import LINK_KINDS, ReplayGraph
from etplus.trace.errors import ConvertError
from made_traces import Timeline, sync
from test_rank_coupling import rank

GOLDEN = Path(__file__).with_name("graphs.txt")
"""The expected lines, written by `PYTHONPATH=tests python tests/replaying/test_graph_building.py`."""


def lines(graph: ReplayGraph) -> list[str]:
    """The edges, the notes, and the constants."""
    edges, rank = graph.edges, graph.rank_of_row

    def point(number: int) -> str:
        row = int(graph.row[number])
        if row < 0:
            return "begin" if number == 0 else "meeting"
        side = "<" if graph.start[row] == number else ">" if graph.end[row] == number else "="
        return f"{graph.name_of(row)}{f'@{rank[row]}' if len(graph.traces) > 1 else ''}{side}"

    columns = (edges.kind, edges.source, edges.target, edges.lag, edges.owner, edges.capped)
    found = [
        f"{LINK_KINDS[kind]}: {point(source)} -> {point(target)} {lag / 1000:g}"
        + (f" of {graph.name_of(owner)}" if owner >= 0 else "")
        + " capped" * capped
        for kind, source, target, lag, owner, capped in zip(*(column.tolist() for column in columns), strict=True)
    ]
    measured = " ".join(f"{point(k)}{ns / 1000:g}" for k, ns in enumerate(graph.measured.tolist()))
    fitted = [repr(fit_constants(graph))] if len(graph.traces) == 1 else []
    return [*found, measured, *graph.notes, *fitted]


def streams() -> Timeline:
    """Four kernels on a stream, the first three queued; a graph launch of two on another; one that nobody launched."""
    trace = Timeline()
    trace.op("op", 0, 500)
    for name, ts, start, length in (("a", 0, 10, 100), ("b", 20, 111, 50), ("c", 40, 162, 50), ("d", 400, 410, 10)):
        trace.launch(name, ts, 5, start, length)
    call = trace.call("cudaGraphLaunch", 60, 8)
    for name, start, length in (("x", 80, 10), ("y", 92, 20)):
        trace.gpu(name, start, length, call, stream=9)
    trace.gpu("alone", 30, 5, 999, stream=11)
    trace.gpu("next", 40, 5, 998, stream=11)
    return trace


def waiting(*, stated: bool = True) -> Timeline:
    """A stream that waits for another one's event, and a later kernel of it."""
    trace = Timeline()
    trace.op("op", 0, 600)
    trace.launch("a", 0, 5, 10, 200)
    record = trace.call("cudaEventRecord", 6, 1)
    wait = trace.call("cudaStreamWaitEvent", 8, 1)
    if stated:
        told_wait = sync(
            "Stream Wait Event", 8, stream=9, correlation=wait, wait_on_stream=7,
            wait_on_cuda_event_record_corr_id=record,
        )  # fmt: skip
        trace.events.append(told_wait)
    trace.launch("b", 20, 5, 213, 10, stream=9)
    trace.launch("c", 400, 5, 410, 10, stream=9)
    trace.launch("d", 500, 5, 510, 10)
    return trace


def copying(name: str) -> Timeline:
    """A copy behind a kernel that blocks its thread, or does not; a synchronization; an idle stream."""
    blocks = "Pageable" in name
    trace = Timeline()
    trace.launch("k", 0, 5, 10, 100)
    trace.gpu(name, 111, 30, trace.call("cudaMemcpyAsync", 50, 95 if blocks else 5), category="gpu_memcpy")
    trace.op("next", 150 if blocks else 60, 10)
    trace.launch("idle", 310, 5, 320, 10)
    trace.launch("last", 340, 5, 350, 80)
    trace.call("cudaDeviceSynchronize", 360, 72)
    trace.call("cudaDeviceSynchronize", 440, 300)
    trace.op("end", 750, 1)
    return trace


def slow_launch() -> Timeline:
    """One call of 1005 µs that loads a module before it launches."""
    trace = Timeline()
    trace.op("op", 0, 1300)
    for name, ts in (("a", 0), ("b", 50), ("d", 1250)):
        trace.launch(name, ts, 5, ts + 10, 10)
    trace.launch("slow", 200, 1005, 1210, 10)
    return trace


def threads() -> Timeline:
    """A thread that waits for a burst of another; one that begins late; one that polls; annotations around."""
    trace = Timeline()
    trace.op("step", 0, 2600, tid=1, category="user_annotation")
    trace.op("first", 0, 300, tid=1)
    trace.op("inner", 20, 100, tid=1)
    trace.op("work", 350, 500, tid=2)
    trace.op("more", 850, 500, tid=2)
    trace.op("last", 1450, 100, tid=1)
    trace.op("late", 2000, 300, tid=3)
    for k in range(3):
        trace.call("cudaEventQuery", 100 + 900 * k, 2, tid=4)
        trace.call("cudaGetLastError", 103 + 900 * k, 1, tid=4)
    trace.op("A", 2400, 100, tid=1)
    trace.op("B", 2450, 120, tid=1)
    return trace


def stalled() -> Timeline:
    """A stream that stalls for 500 µs before its fourth kernel, for a reason that the trace does not tell."""
    trace = Timeline()
    for k in range(6):
        stall = 500 if k >= 3 else 0
        trace.launch(f"k{k}", 100 * k, 5, 100 * k + 10 + stall * (k == 3) + (500 if k > 3 else 0), 20)
    return trace


CASES: dict[str, Callable[[], Timeline]] = {
    "streams": streams,
    "a wait that is stated": waiting,
    "a wait that is inferred": lambda: waiting(stated=False),
    "a blocking copy": lambda: copying("Memcpy DtoH (Device -> Pageable)"),
    "a pinned copy": lambda: copying("Memcpy DtoH (Device -> Pinned)"),
    "a slow launch": slow_launch,
    "threads": threads,
    "a stall": stalled,
}


def text_of(name: str) -> str:
    ranks = [rank(0, 0, 10, 90), rank(1, 50, 60, 40)] if name == "two ranks" else [CASES[name]()]
    graphs = [one.graph() for one in ranks]
    graph = join_ranks(graphs) if len(graphs) > 1 else graphs[0]
    return "\n".join([f"== {name}", *lines(graph)])


@pytest.mark.parametrize("name", [*CASES, "two ranks"])
def test_the_edges_of_a_graph_equal_the_golden_text(name: str) -> None:
    expected = next(part for part in GOLDEN.read_text().split("\n\n") if part.startswith(f"== {name}\n"))
    assert text_of(name).split("\n") == expected.rstrip("\n").split("\n")


@pytest.mark.parametrize("name", CASES)
def test_a_replay_without_changes_gives_the_measured_times(name: str) -> None:
    graph = CASES[name]().graph()
    assert abs(replay(graph, fit_constants(graph)).time - graph.measured).max() <= 20_000


def test_a_launch_into_a_full_queue_waits_for_a_kernel_to_start() -> None:
    graph = filled(150, 70).graph()
    assert graph.queue_limit == 70
    waits = [line for line in lines(graph) if line.startswith("launch queue")]
    assert len(waits) == 80 and waits[-1] == "launch queue: k< -> cudaLaunchKernel> 1 capped"


def test_without_times_there_is_nothing_to_replay() -> None:
    trace = Timeline()
    trace.op("op", 0, 5)
    document = trace.document()
    empty = document.with_(ts=document.nodes.ts * 0 - 1)
    with pytest.raises(ConvertError, match="no node has a time"):
        build_graph(empty)


if __name__ == "__main__":
    GOLDEN.write_text("\n\n".join(text_of(name) for name in [*CASES, "two ranks"]) + "\n")


@pytest.mark.parametrize(("length", "submits"), [(15, False), (15.001, True)])
def test_a_slow_call_takes_over_three_times_the_median(length: float, submits: bool) -> None:
    trace = Timeline()
    for k in range(4):
        trace.launch(f"k{k}", 100 * k, 5, 100 * k + 10, 20)
    trace.launch("slow", 500, length, 520, 20)
    assert [line for line in lines(trace.graph()) if line.startswith("host work") and "=" in line] == [
        "host work: cudaLaunchKernel< -> cudaLaunchKernel= 10.001 of cudaLaunchKernel",
        "host work: cudaLaunchKernel= -> cudaLaunchKernel> 5 of cudaLaunchKernel",
    ] * submits  # fmt: skip


@pytest.mark.parametrize(("late", "waits"), [(20, False), (20.001, True)])
def test_a_wait_is_unknown_over_twice_the_launch_latency(late: float, waits: bool) -> None:
    trace = Timeline()
    for k in range(4):
        trace.launch(f"k{k}", 100 * k, 5, 100 * k + 10, 20)
    trace.launch("late", 500, 5, 510 + late, 20)
    found = [line for line in lines(trace.graph()) if line.startswith("unknown")]
    assert found == ["unknown wait: cudaLaunchKernel< -> late< 30.001"] * waits


@pytest.mark.parametrize(("length", "waits"), [(100, False), (100.001, True)])
def test_a_synchronization_that_finds_nothing_takes_up_to_100(length: float, waits: bool) -> None:
    trace = Timeline()
    trace.launch("k", 0, 5, 10, 20)
    trace.call("cudaDeviceSynchronize", 500, length)
    found = [line for line in lines(trace.graph()) if line.startswith("unknown")]
    assert found == ["unknown wait: cudaDeviceSynchronize< -> cudaDeviceSynchronize> 100.001"] * waits


def filled(count: int, limit: int, *, late: int = 1) -> Timeline:
    """Kernels of 50 µs of which no more than `limit` may be outstanding; calls return so late after there is room."""
    trace, ts, start = Timeline(), 0, [10 + 51 * k for k in range(count)]
    for k in range(count):
        end = max(ts + 1, start[k - limit] + late if k >= limit else 0)
        trace.launch("k", ts, end - ts, start[k], 50)
        ts = end + 1
    return trace


@pytest.mark.parametrize(("count", "limit", "found"), [(150, 64, 64), (150, 63, None), (85, 64, 64), (84, 64, None)])
def test_a_limit_of_the_queue_is_at_least_64_and_seen_20_times(count: int, limit: int, found: int | None) -> None:
    """Some kernels begin on the way to the limit; from the 66th call on as many are outstanding, or one fewer. What
    begins as a call returns has left the queue."""
    assert filled(count, limit).graph().queue_limit == found == filled(count, limit, late=0).graph().queue_limit


def test_of_two_queues_that_are_as_sharp_that_of_the_stream_counts() -> None:
    trace = filled(150, 64)
    trace.launch("late", -10, 1, 100_000, 50, stream=9)
    graph = trace.graph()
    assert graph.queue_limit == 64
    assert len([line for line in lines(graph) if line.startswith("launch queue")]) == 150 - 64


@pytest.mark.parametrize(("length", "late", "found"), [(40, 12, 70), (40, 12.001, None), (3, 2, None), (3.001, 2, 70)])
def test_calls_that_all_wait_return_alike_and_take_over_3(length: float, late: float, found: int | None) -> None:
    """Of what was in the queue before the first call 70 begin, one every 100 µs; calls return by turns 2 and `late`
    after there is room: a difference of up to a quarter of their length."""
    trace = Timeline()
    for k in range(70):
        trace.gpu("alone", 100 * k + 100, 50, 9000 + k)
    for k in range(100):
        end = 100 * k + 100 + (late if k % 2 else 2)
        trace.launch("k", end - length, length, 100 * (k + 70) + 100, 50)
    graph = trace.graph()
    assert graph.queue_limit == found
    if length < 40:
        return
    waits = [line for line in lines(graph) if line.startswith("launch queue")]
    assert len(waits) == (100 if found else 0) and len(set(waits)) == (4 if found else 0)


@pytest.mark.parametrize(("own", "found"), [(30, None), (29.99, 64)])
def test_calls_that_wait_take_over_half_as_long_again(own: float, found: int | None) -> None:
    trace, ts, start = Timeline(), 0.0, [40 + 46 * k for k in range(400)]
    for k in range(400):
        end = max(ts + own, start[k - 64] + 1 if k >= 64 else 0)
        trace.launch("k", ts, end - ts, start[k], 40)
        ts = end + 1
    assert trace.graph().queue_limit == found
