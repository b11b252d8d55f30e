"""Each rule of docs/reference/replay.md on a timeline small enough to be worked out by hand."""

import numpy as np
import pytest
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.rank_coupling import find_rendezvous, join_ranks
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from made_traces import Timeline, after, ends, starts
from test_graph_building import copying, filled, waiting
from test_rank_coupling import rank


def test_host_work_between_calls_is_kept_and_scales() -> None:
    """outer 0–100 with inner 20–50, then last 130–140.

    Host work: outer 20 + 50, inner 30, pause 30, last 10; in all 140. With inner*2 everything after it is 30 later:
    170. With cpu*0.5: 70. With op outer*2 (its callee included): 2·100 + 30 + 10 = 240.
    """
    trace = Timeline()
    trace.op("outer", 0, 100)
    trace.op("inner", 20, 30)
    trace.op("last", 130, 10)
    graph = trace.graph()
    assert after(graph).makespan_ns == 140_000
    assert ends(after(graph, "op:inner*2")) == {"outer": 130, "inner": 80, "last": 170}
    assert after(graph, "cpu*0.5").makespan_ns == 70_000
    assert ends(after(graph, "op:outer*2")) == {"outer": 200, "inner": 100, "last": 240}
    assert after(graph, "remove op:outer").makespan_ns == 40_000
    assert after(graph, "cpu*0").makespan_ns == 0


def streams() -> Timeline:
    """Kernels a 10–110, b 111–161, c 162–212 on stream 7, launched at 0, 20, 40 by calls of 5; after them d, launched
    at 400 and started at 410, so that the launch latency is 10, the gap 1."""
    trace = Timeline()
    trace.op("op", 0, 500)
    for name, ts, start, length in (("a", 0, 10, 100), ("b", 20, 111, 50), ("c", 40, 162, 50), ("d", 400, 410, 10)):
        trace.launch(name, ts, 5, start, length)
    return trace


def test_a_stream_is_first_in_first_out() -> None:
    """See `streams`. With a*2 (ends at 210): b 211–261, c 262–312, d as it was. With kernel*0.5: a 10–60, b 61–86,
    c 87–112, d 410–415. With launch_latency=2us: a 2–102, b 103–153, c 154–204, d 402–412. With gap=11us: b 121–171,
    c 182–232. With cpu*0: launches at 0, so a 10–110, b 111–161, c 162–212, d 213–223."""
    graph = streams().graph()
    constants = fit_constants(graph)
    assert (constants.launch_latency_ns, constants.gap_ns, constants.queue_limit) == (10_000, 1000, None)
    assert np.array_equal(replay(graph, constants).time, graph.measured)
    assert starts(after(graph, "kernel:name=a*2")) | {"op": 0} == starts(after(graph)) | {"op": 0, "b": 211, "c": 262}
    halved = after(graph, "kernel*0.5")
    assert [ends(halved)[name] for name in "abcd"] == [60, 86, 112, 415]
    sooner = after(graph, "launch_latency=2us")
    assert [starts(sooner)[name] for name in "bcd"] == [111, 162, 402]  # a stream's first keeps its own latency
    assert [starts(after(graph, "gap=11us"))[name] for name in "abcd"] == [10, 121, 182, 410]
    assert [ends(after(graph, "cpu*0"))[name] for name in "abcd"] == [110, 161, 212, 223]


@pytest.mark.parametrize("told", [True, False], ids=["cuda_sync", "guessed"])
def test_a_stream_waits_for_another_ones_event(told: bool) -> None:
    """See `waiting`: b starts 3 after a ends, which is the one event wait and so the fitted gap of waits. With
    a*2 (ends at 410): b 413–423, and c after it at 423 + the stream gap, for which nothing queued tells: 0. With a*0.5
    (ends at 110): b 113–123, c as it was."""
    graph = waiting(stated=told).graph()
    assert after(graph).makespan_ns == graph.measured.max() == 600_000
    later = starts(after(graph, "kernel:name=a*2"))
    assert (later["b"], later["c"]) == (413, 423)
    sooner = starts(after(graph, "kernel:name=a*0.5"))
    assert (sooner["b"], sooner["c"]) == (113, 410)


def test_a_blocking_copy_holds_its_thread() -> None:
    """See `copying`. With k*2 (ends at 210): copy 211–241, call returns 4 after it at 245, next 250–260. With k*0.1
    (ends at 20): the copy is launched at 50 and starts at 60 (latency 10), ends at 90; call returns at 94, next 99."""
    graph = copying("Memcpy DtoH (Device -> Pageable)").graph()
    assert starts(after(graph))["next"] == 150
    assert starts(after(graph, "kernel:name=k*2"))["next"] == 250
    assert starts(after(graph, "kernel:name=k*0.1"))["next"] == 99
    pinned = after(copying("Memcpy DtoH (Device -> Pinned)").graph(), "kernel:name=k*2")
    assert (starts(pinned)["next"], ends(pinned)["Memcpy DtoH (Device -> Pinned)"]) == (60, 241), "it goes on"


def test_a_synchronization_waits_for_what_is_pending() -> None:
    """k 10–110, launched at 0; cudaDeviceSynchronize 20–112, next at 120. With k*2: it returns 2 after 210, next at
    220. With k*0.05 (ends at 15, before the call): the call's own cost remains, 3 µs: 20–23, next at 31."""
    trace = Timeline()
    trace.launch("k", 0, 5, 10, 100)
    trace.call("cudaDeviceSynchronize", 20, 92)
    trace.op("next", 120, 10)
    graph = trace.graph()
    assert after(graph).makespan_ns == 130_000
    assert starts(after(graph, "kernel*2"))["next"] == 220
    assert starts(after(graph, "kernel*0.05"))["next"] == 31


def test_the_launch_queue_has_a_limit() -> None:
    """See `filled`, 400 kernels, limit 100: kernel k starts at 10 + 51k, so that the last one ends at 20409.

    With kernel*0.5 kernel k starts at 10 + 26k and the last one ends at 10 + 26·399 + 25 = 10409: the calls that had
    waited for the queue wait half as long. The host's last call returns when kernel 299 has started: at 10 + 26·299 + 1
    = 7785. With queue_limit=none a call takes its usual 1 µs, so that call 399 is at 798–799.
    """
    graph = filled(400, 100).graph()
    assert graph.queue_limit == fit_constants(graph).queue_limit == 100
    assert np.array_equal(after(graph).time, graph.measured)
    halved = after(graph, "kernel*0.5")
    assert halved.makespan_ns == 10_409_000
    last = np.flatnonzero(graph.trace.nodes.kind == 2)[-1]
    assert halved.end[last] == 7_785_000
    assert after(graph, "queue_limit=none").end[last] == 799_000


def test_work_handed_between_threads_moves_when_earlier_work_changes() -> None:
    """first 0–300 and last 1450–1550 on thread 1; between them work 350–1350 on thread 2, 50 after first and 100 before
    last. With work*2: last 2450–2550. With first*0: work 50–1050, last 1150–1250. With cpu*0: nothing is left."""
    trace = Timeline()
    trace.op("first", 0, 300, tid=1)
    trace.op("work", 350, 1000, tid=2)
    trace.op("last", 1450, 100, tid=1)
    graph = trace.graph()
    assert after(graph).makespan_ns == 1_550_000
    assert starts(after(graph, "op:work*2"))["last"] == 2450
    assert starts(after(graph, "op:first*0")) == {"first": 0, "work": 50, "last": 1150}
    assert after(graph, "cpu*0").makespan_ns == 0


_TWO = {"Group size": 2, "Process Group Ranks": "[0, 1]"}


def twice(number: int, seqs: tuple[int, int], groups: tuple[str, str] = ("0", "0"), world: int = 2) -> Trace:
    """A rank with two all-reduces on one stream, 10–100 and 210–300."""
    trace, more = (
        rank(number, launch, 10 + launch, 90, world, **_TWO, **{"Seq": seq, "Process Group Name": group})
        for launch, seq, group in zip((0, 200), seqs, groups, strict=True)
    )
    for event in more.events:
        later = {"correlation": 2} if "correlation" in event["args"] else {}
        trace.events.append({**event, "args": {**event["args"], **later}})
    return trace.document()


def test_collectives_in_contradicting_orders_are_refused() -> None:
    documents = [twice(0, (3, 4), ("5", "6"), world=3), twice(1, (4, 3), ("6", "5"), world=3)]
    with pytest.raises(UsageError, match="conflicting orders"):
        join_ranks([build_graph(document) for document in documents])
    joined = find_rendezvous([twice(number, seqs) for number, seqs in enumerate(((3, 4), (4, 3)))])
    assert len(joined.found) == 2 and len({met.row for met in joined.found}) == 2 and not joined.notes
