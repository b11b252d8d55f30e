"""What holds of every replay: on random programs monotony and the order of a file; on real traces small errors."""

import random
from functools import cache
from pathlib import Path

import numpy as np
import orjson
import pytest
from etplus.linker import link
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.timeline.constants import Constants, fit_constants
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import replay
from etplus.timeline.rank_coupling import find_rendezvous, join_ranks
from etplus.timeline.replay_graph import ReplayGraph
from etplus.timeline.replay_summary import Summary, summarize
from etplus.timeline.whatif import apply_what_ifs, parse_what_if
from hypothesis import assume, given
from hypothesis import strategies as st
from made_traces import Timeline
from support import examples, gpu_traces, linked, shared_trace

FEW = examples(40)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["op", "launch", "launch", "sync", "copy", "nest"]),
        st.integers(0, 1), st.integers(0, 300), st.integers(1, 60), st.sampled_from([7, 20]),
    ),
    min_size=1, max_size=25,
)  # fmt: skip
Steps = list[tuple[str, int, int, int, int]]


def played(steps: Steps) -> Timeline:
    """A program on two threads and two streams; what waits ends when what it waits for has ended."""
    trace = Timeline()
    now, free = [0, 500], {7: 0, 20: 0}
    for number, (kind, thread, pause, length, stream) in enumerate(steps):
        begin = now[thread] + pause
        end = begin + length
        start = max(begin + 8, free[stream] + 1)
        if kind == "launch":
            trace.launch(f"k{number}", begin, length, start, 3 * length, stream)
            free[stream] = start + 3 * length
            trace.events[-2]["tid"] = thread
        elif kind == "copy":
            end = start + length + 3
            call = trace.call("cudaMemcpyAsync", begin, end - begin, tid=thread)
            trace.gpu("Memcpy DtoH (Device -> Pageable)", start, length, call, stream, "gpu_memcpy")
            free[stream] = start + length
        elif kind == "sync":
            end = max(end, *free.values()) + 2
            trace.call("cudaDeviceSynchronize", begin, end - begin, tid=thread)
        else:
            trace.op(f"op{number}", begin, length, tid=thread)
            if kind == "nest":
                trace.op(f"below{number}", begin + length // 3, length // 2, tid=thread)
        now[thread] = end
    return trace


@FEW
@given(STEPS, st.randoms(use_true_random=False))
def test_slower_input_never_gives_an_earlier_time(steps: Steps, rng: random.Random) -> None:
    graph = played(steps).graph()
    constants = fit_constants(graph)
    base = replay(graph, constants).time
    extra = np.array([rng.choice([0, 0, 1, 7, 40_000]) for _ in range(len(graph.edges))], np.int64)
    assert np.all(replay(graph.with_latencies(graph.edges.lag + extra), constants).time >= base)
    factor = np.array([rng.choice([1.0, 1.0, 1.5, 4.0]) for _ in range(len(graph.start))])
    slower = np.rint(graph.durations * factor).astype(np.int64)
    assert np.all(replay(graph, constants, durations=slower).time >= base - 1)  # shares are rounded to ns
    patient = Constants(constants.launch_latency_ns + 5000, constants.gap_ns + 10, constants.event_gap_ns + 10)
    assert np.all(replay(graph, patient).time >= base)


@FEW
@given(STEPS, st.randoms(use_true_random=False))
def test_the_order_of_a_file_changes_nothing(steps: Steps, rng: random.Random) -> None:
    trace = played(steps)
    assume(trace.events)
    document = link(None, orjson.dumps({"baseTimeNanoseconds": 1, "traceEvents": trace.events})).to_dict()
    graph = build_graph(read_etplus(orjson.dumps(document)))
    for key in ("nodes", "runtime", "edges"):
        rng.shuffle(document[key])
    other = build_graph(read_etplus(orjson.dumps(document)))
    assert fit_constants(other) == fit_constants(graph)
    assert times_by_id(other) == times_by_id(graph)


def times_by_id(graph: ReplayGraph) -> dict[int, tuple[int, int]]:
    result = replay(graph, fit_constants(graph))
    return dict(zip(graph.trace.nodes.id.tolist(), zip(result.start, result.end, strict=True), strict=True))


MAKESPAN, STARTS = 0.003, 0.005
"""What the errors may be where no wait is unexplained."""


@cache
def summary_of(kineto: Path) -> Summary:
    graph = build_graph(link(None, kineto))
    constants = fit_constants(graph)
    return summarize(replay(graph, constants), constants)


@pytest.mark.parametrize("path", gpu_traces("gpu-kineto", "gpu-pairs", "graph-capture", "cuspy"))
def test_traces_without_an_et_replay_as_they_were_measured(path: Path) -> None:
    summary = summary_of(path)
    share = summary.unexplained.share
    assert abs(summary.error) <= max(MAKESPAN, share) and summary.start_error <= max(STARTS, share)
    (constants,) = summary.constants
    assert constants.launch_latency_ns <= 1_000_000 and constants.gap_ns <= 100_000


@pytest.mark.parametrize(
    ("name", "least"), [("gpu-kineto/sglang_decode_graph", 0.95), ("graph-capture/vllm_piecewise.capture", 0.6)]
)
def test_waits_for_work_cut_off_by_the_window_are_unexplained(name: str, least: float) -> None:
    summary = summary_of(shared_trace(f"{name}.json.gz"))
    assert least <= summary.unexplained.share < 1
    assert summary.path.by_kind["unknown wait"] >= least * summary.predicted_ns


def test_ranks_of_a_job_wait_for_each_other() -> None:
    graphs = [build_graph(linked(f"gpu-pairs/dlrm.rank{k}")) for k in range(4)]
    constants = [fit_constants(graph) for graph in graphs]
    joined = find_rendezvous([graph.trace for graph in graphs])
    assert len(joined.found) == 8 and all(m.rank == (0, 1, 2, 3) for m in joined.found) and not joined.notes
    joint = join_ranks(graphs)
    summary = summarize(replay(joint, constants), constants)
    assert abs(summary.error) <= MAKESPAN and summary.start_error <= STARTS
    slower = apply_what_ifs(joint, [parse_what_if("rank=2 kernel*3")], constants)
    assert replay(slower, constants).makespan_ns > summary.predicted_ns  # ranks 1 and 3 are longer, but they wait
