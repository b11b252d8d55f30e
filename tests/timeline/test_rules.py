"""Each rule of docs/reference/replay.md on a timeline small enough to be worked out by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest
from etplus.timeline.constants import fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.rank_coupling import find_rendezvous, join_ranks
from etplus.timeline.whatif import apply_what_ifs, parse_what_if
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from made_traces import Timeline, after, ends, starts
from test_graph_building import copying, filled, slow_launch, waiting
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


def test_a_graph_launch_is_a_chain() -> None:
    """One call at 0 launches x 20–30, y 32–52, z 54–64 (gap 2). With y*2: y 32–72, z 74–84. With kernel*0.5:
    x 20–25, y 27–37, z 39–44. The call's own 8 µs of host work make no difference to them."""
    trace = Timeline()
    trace.op("op", 0, 10)
    call = trace.call("cudaGraphLaunch", 0, 8)
    for name, start, length in (("x", 20, 10), ("y", 32, 20), ("z", 54, 10)):
        trace.gpu(name, start, length, call)
    graph = trace.graph()
    assert after(graph).makespan_ns == 64_000
    assert starts(after(graph, "kernel:name=y*2"))["z"] == 74
    assert [ends(after(graph, "kernel*0.5"))[name] for name in "xyz"] == [25, 37, 44]


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


def test_a_pinned_copy_does_not_hold_its_thread() -> None:
    """See `copying`: next starts at 60 whatever the device does; with k*2 the copy is at 211–241 all the same."""
    graph = copying("Memcpy DtoH (Device -> Pinned)").graph()
    result = after(graph, "kernel:name=k*2")
    assert starts(result)["next"] == 60
    assert ends(result)["Memcpy DtoH (Device -> Pinned)"] == 241


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


def test_a_slow_launch_submits_at_its_end() -> None:
    """Calls of 5 with a latency of 10, and one at 200 that takes 1005 (it loads a module): its kernel starts at 1210.
    The usual 5 µs before its return, at 1200, the work is submitted; with cpu*0 everything is submitted at 0, and its
    kernel, the third, comes after the others."""
    trace = slow_launch()
    graph = trace.graph()
    assert fit_constants(graph).launch_latency_ns == 10_000
    assert starts(after(graph))["slow"] == 1210
    assert starts(after(graph, "cpu*0"))["slow"] == 30


def threads() -> Timeline:
    """Thread 1: first 0–300, then nothing until last 1450–1550; thread 2: work 350–1350."""
    trace = Timeline()
    trace.op("first", 0, 300, tid=1)
    trace.op("work", 350, 1000, tid=2)
    trace.op("last", 1450, 100, tid=1)
    return trace


def test_threads_hand_over() -> None:
    """See `threads`: work begins 50 after first, last 100 after work. With work*2: last 2450–2550. With first*0: work
    50–1050, last 1150–1250. With cpu*0: nothing is left."""
    graph = threads().graph()
    assert after(graph).makespan_ns == 1_550_000
    assert starts(after(graph, "op:work*2"))["last"] == 2450
    assert starts(after(graph, "op:first*0")) == {"first": 0, "work": 50, "last": 1150}
    assert after(graph, "cpu*0").makespan_ns == 0


def test_a_collective_waits_for_the_last_rank() -> None:
    """Rank 0 launches at 0, its kernel 10–100; rank 1 at 50, 60–100: the transfer takes 40, the rest is waiting.

    With rank 1's op before it three times as long (launch at 150, kernel 160) both end at 200. With comm*2 both end at
    60 + 80 = 140. On its own, uncoupled, rank 0 would notice nothing of rank 1.
    """
    graphs = [build_graph(trace.document()) for trace in (rank(0, 0, 10, 90), rank(1, 50, 60, 40))]
    constants = [fit_constants(graph) for graph in graphs]
    joint = join_ranks(graphs)
    assert replay(joint, constants).makespan_ns == 100_000
    kernels = np.flatnonzero(joint.column("kind") == 1)

    def ends_after(text: str) -> list[int]:
        changed = apply_what_ifs(joint, [parse_what_if(text)], constants)
        return (replay(changed, constants).end[kernels] // 1000).tolist()

    assert ends_after("rank=1 op:before*3") == [200, 200]
    assert ends_after("comm*2") == [140, 140]
    assert ends_after("rank=0 cpu*5") == [100, 100]


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
    """Of two groups; within a group the order on the device is the order."""
    documents = [twice(0, (3, 4), ("5", "6"), world=3), twice(1, (4, 3), ("6", "5"), world=3)]
    with pytest.raises(UsageError, match="conflicting orders"):
        join_ranks([build_graph(document) for document in documents])
    joined = find_rendezvous([twice(number, seqs) for number, seqs in enumerate(((3, 4), (4, 3)))])
    assert len(joined.found) == 2 and len({met.row for met in joined.found}) == 2 and not joined.notes


def test_messages_meet() -> None:
    """A send and its receive, by another kind of kernel argument; each rank waits for the other."""

    def talking(number: int, name: str, start: int) -> Trace:
        trace = rank(number, 0, 10, 20, 3, **_TWO)
        comm = {"Collective name": name, "In msg nelems": 4, "Out msg nelems": 4, "dtype": "Float", "Group size": 2,
                "Process Group Name": "0", "Src Rank": 0, "Dst Rank": 1}  # fmt: skip
        call = trace.call("cudaLaunchKernel", 50, 5)
        trace.gpu("ncclDevKernel_SendRecv", start, 100 - start, call, stream=30, **comm)
        return trace.document()

    joined = find_rendezvous([talking(0, "send", 60), talking(1, "recv", 90)])
    assert [met.transfer_ns for met in joined.found] == [20_000, 10_000]


def launching(kernels: list[float], host: list[float], limit: int) -> tuple[Timeline, float]:
    """A simulation of its own: each launch takes 2 µs, or until 4 µs after there is room in the queue; the latency is
    6, the gap 1.2. Returns the trace, and when the last kernel ended."""
    trace, now, free = Timeline(), 0.0, -9.0
    starts: list[float] = []
    for length, work in zip(kernels, host, strict=True):
        start = max(now + 6, free + 1.2)
        starts.append(start)
        room = starts[len(starts) - 1 - limit] + 4 if len(starts) > limit else 0.0
        end = max(now + 2, room)
        trace.launch("k", round(now, 3), round(end - now, 3), round(start, 3), round(length, 3))
        now, free = end + work, start + length
    return trace, free


def test_a_full_queue_is_predicted_as_a_simulation_has_it() -> None:
    """1500 kernels behind a queue of 300: half as long, they take what the simulation of half as long ones takes."""
    rng = random.Random(3)
    kernels = [float(rng.choice((3, 4, 5, 8, 30))) for _ in range(1500)]
    host = [rng.uniform(0.5, 2) for _ in range(1500)]
    trace, whole = launching(kernels, host, 300)
    _, half = launching([length / 2 for length in kernels], host, 300)
    graph = trace.graph()
    assert graph.queue_limit is not None and abs(graph.queue_limit - 300) <= 2
    assert after(graph).makespan_ns / 1000 == pytest.approx(whole, rel=0.001)
    assert after(graph, "kernel*0.5").makespan_ns / 1000 == pytest.approx(half, rel=0.005)
