"""Lines that say how traces are replayed, with changes and on networks, for the golden files (see goldens.py)."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import orjson
from chakra_sets import write_set
from etplus.converters.open import load
from etplus.linker import link
from etplus.timeline import iterations
from etplus.timeline.beside_transfers import equal_operators, plain_work, unevenness
from etplus.timeline.constants import fit_constants
from etplus.timeline.critical import critical_chain, critical_path, resource_bounds, with_origins
from etplus.timeline.graph_building import build_graph
from etplus.timeline.graph_replay import Replay, predicted_traces
from etplus.timeline.meant_rows import select, step_of_row
from etplus.timeline.network_description import NetworkLevel
from etplus.timeline.network_file import fit_network, job_samples, library_of, parse_network
from etplus.timeline.predicted_graph import predicted_graph, scheduled, without_turns
from etplus.timeline.replay_graph import ReplayGraph
from etplus.timeline.replay_ranks import replay_ranks
from etplus.timeline.replay_summary import summarize
from etplus.timeline.replay_text import render, render_full
from etplus.timeline.untraced import gain_range, recording_costs, without_recording
from etplus.trace.errors import EtplusError, UsageError
from etplus.trace.trace import Trace
from golden_analysis import RANDOM, flat, traces_of
from golden_converting import SETS
from made_host_jobs import RANDOM_HOST_JOBS
from random_pair import random_pair

LINKED = tuple(f"linked {seed}" for seed in range(10))
HOST = ("host ddp", "host pipeline", "host random 0", "host random 2")
CASES = ("recomputation", "launch_bound", *HOST, *SETS, *RANDOM, *LINKED)
CHANGES = (
    ["kernel*0.5"], ["cpu*0.5", "op:~mm*2"], ["step=1 kernel:~mm*0"], ["no wait ~ynchronize", "comm*0.25"],
    ["phase~backw cpu*0.5"], ["rank=1 kernel*2"], ["launch_latency=1us", "gap=1us", "stream=7*0.5"],
    ["queue_limit=none", "remove op:~add"], ["no launch gaps", "fuse kernel:~mm*0.4"], ["overlap comm"],
    ["phase=recomputation remove op:~aten", "window=0-1ms cpu*2"], ["phase~recomp cpu*0.3", "module~Linear cpu*2"],
    ["phase=forward kernel*0.5"], ["kernel*bound/0.5"], ["launch_latency=1us"], ["gap=2us"], ["fuse gpu"],
    ["module=Linear_0 cpu*0.5", 'module="Sequential_0 / ReLU_0" cpu*0.3'],
)  # fmt: skip
NETWORKS = (
    "bandwidth=25,latency=5us", "bandwidth=0.5,latency=20", "bandwidth=10,latency=1us,algorithm=direct",
    "bandwidth=10,latency=1us,library=nccl", "bandwidth=2,library=gloo",
)  # fmt: skip
NO_NETWORKS = ("bandwidth=0", "latency=5", "x=1", "latency=2h", "latency=2s", "library=mpi", "algorithm=star",
               "library=gloo,algorithm=ring")  # fmt: skip
LEVELS = (
    (), (NetworkLevel(2, 300.0, 1000), NetworkLevel(6, 50.0, 2000, "direct")),
    (NetworkLevel(4, 300.0, 1000, topology="ring"), NetworkLevel(12, 90.0, 1500, "tree")),
)  # fmt: skip
FIRST = {"random 1": 2, "random 2": 12, "random 3": 4, "host random 2": 5}
"""The row that is moved to the front: a kernel, a copy, an operator with kernels, and calls of collectives."""
KINDS, SIZES, RANKS = range(11), (1, 4096, 1 << 20, 1 << 26), (1, 2, 3, 8, 24, (0, 6), (0, 1, 6, 7), (1, 4, 13), (3, 1))


def _chakra_set(name: str) -> list[Trace]:
    with tempfile.TemporaryDirectory() as folder:
        write_set(Path(folder), SETS[name])
        return [load(path).with_(file=path.name) for path in sorted(Path(folder).glob("*.et"))]


def _from_row(row: int, trace: Trace) -> Trace:
    """The trace with the rows before this one at its end."""
    document = orjson.loads(b"".join(trace.chunks()))
    return load(orjson.dumps(document | {"nodes": document["nodes"][row:] + document["nodes"][:row]}))


def _linked(seed: int, rank: int | None = None) -> Trace:
    """A random pair, linked, with a GPU event or its operator as its first row."""
    et, kineto = map(orjson.dumps, random_pair(seed, rank))
    trace = link(None if seed % 2 else et, kineto, data_dependencies=True)
    rows = [row for row in trace.gpu.source.tolist() if row >= 0][:1] if seed % 4 < 2 else [3]
    return _from_row(rows[0], trace) if rows else trace


def timeline_lines(name: str) -> list[str]:
    """The replay without changes, with `CHANGES`, and on `NETWORKS`; and what is fitted to the traces."""
    traces, lines = [], list[str]()
    if name in LINKED:
        number = LINKED.index(name)
        traces = [_linked(number)] if number < 8 else [_linked(number, rank) for rank in (0, 1)]
    else:
        traces = _chakra_set(name) if name in SETS else traces_of(name)
    traces = [_from_row(FIRST[name], trace) for trace in traces] if name in FIRST else traces
    some = slice(1, None, 4) if name in RANDOM_HOST_JOBS else slice(CASES.index(name) % 2, None, 2)
    some = slice(LINKED.index(name) % 6, None, 6) if name in LINKED else some
    unchanged = replay_ranks(traces)
    lines += _replay_lines("unchanged", unchanged, unchanged)
    for change in CHANGES[some]:
        lines += _tried(" ".join(change), traces, unchanged, change, None)
    for network in NETWORKS[some]:
        lines += _tried(network, traces, unchanged, [], network)
    graph = unchanged.graph
    recorded = without_recording(graph, 0.5), without_recording(graph, 1.0, typical=True)
    for label, other in (*zip(("half", "typical"), recorded, strict=True), ("no turns", without_turns(graph))):
        lines += flat(label, [other.edges.lag, other.edges.source, other.edges.kind])
    if graph.shared is not None:
        lines += flat("beside", [unevenness(graph), plain_work(graph), *equal_operators(graph)])
    samples = job_samples(traces)
    lines += flat("samples", [tuple(sample) for sample in samples])
    lines += flat("fitted", repr(fit_network(samples, library_of(traces))).split() if samples else [])
    for trace in traces[:1]:
        own = build_graph(trace)
        lines += flat("constants", vars(fit_constants(own)))
        lines += flat("recording", [vars(recording_costs(trace))])
        lines += flat("steps", [step_of_row(trace), select(own, "kernel"), select(own, "op", "mm")])
        for made in (predicted_graph(trace), scheduled(predicted_graph(trace))):
            lines += flat("points", [made.measured])
            lines += flat("predicted", [made.edges.source, made.edges.target, made.edges.lag, made.edges.kind])
        lines += _held_out(own)
        for row in trace.calls.source[:8:3].tolist() if len(traces) == 1 else ():
            path = critical_path(unchanged, (trace.name_of(row), 0))
            lines += flat("between", [path.edge, path.by_kind, [*path.by_op.items()]])
        chain = critical_chain(trace)
        lines += flat("chain", vars(chain) if chain is not None else {})
    return lines


def _held_out(graph: ReplayGraph) -> Iterator[str]:
    try:
        for index in range(len(iterations.find_iterations(graph.trace))):
            held = iterations.predict_iteration(graph, index, keep_outliers=index == 1)
            yield from flat("held out", {**vars(held), "error": held.error, "spread": held.spread})
    except EtplusError as error:
        yield str(error)


def _is_network(text: str) -> bool:
    try:
        return bool(parse_network(text))
    except UsageError:
        return False


def network_lines(_: str) -> list[str]:
    """What communications take on a few networks, ns."""
    lines = [f"{part}{text} {_is_network(part + text)}" for part in ("", "bandwidth=5,") for text in NO_NETWORKS]
    for text in (*NETWORKS, "bandwidth=1,latency=50ns,algorithm=halving-doubling"):
        for kind, ranks, levels in product(KINDS, RANKS, LEVELS):
            try:
                network = replace(parse_network(text), levels=levels)
                times = [network.transfer_ns(kind, size, ranks) for size in SIZES]
            except (KeyError, EtplusError) as error:
                times = [type(error).__name__]
            lines += flat(f"{text} {kind} {ranks} {levels[1:]}", times)
    return lines


def _tried(label: str, traces: list[Trace], unchanged: Replay, change: list[str], network: str | None) -> Iterator[str]:
    try:
        changed = replay_ranks(traces, change, network)
    except EtplusError as error:
        yield f"{label}: {error}"
        return
    yield from _replay_lines(label, changed, unchanged)


def _replay_lines(label: str, found: Replay, unchanged: Replay) -> Iterator[str]:
    constants = [fit_constants(build_graph(trace)) for trace in found.graph.traces]
    before = None if found is unchanged else unchanged
    summary = summarize(found, constants, before=before, span=found.answer_range, untraced=found.untraced)
    yield from flat(label, summary.to_dict())
    yield from flat(label, [found.start, found.end, found.lag, vars(found.unexplained)])
    path = critical_path(found)
    yield from flat(label, [path.edge, path.by_kind, [*path.by_op.items()], resource_bounds(found)])
    if len(found.graph.traces) == 1:
        origins = with_origins(path, found, found.graph.trace)
        yield from flat(label, [origins.by_source, origins.by_phase])
        yield from flat(label, list(gain_range([0.2, 0.1, 0.3], found.graph, low=0.9, high=1.2, doubt=0.1)))
    for trace in predicted_traces(found):
        yield from flat(label, [trace.nodes.ts, trace.nodes.dur])
    if label in ("unchanged", NETWORKS[0], "kernel*0.5"):
        yield from render(summary).split("\n")
        yield from render_full(summary).split("\n")
