"""Order within launches of CUDA graphs (`gpu_order`), against random graphs whose dependencies are known."""

from dataclasses import dataclass

import networkx as nx
import orjson
from etplus.linker import link
from hypothesis import assume, given
from hypothesis import strategies as st
from made_traces import call, edge_names, gpu, kineto_of, op
from support import Document, assert_valid, examples

ARROW = 2**40
Pairs = set[tuple[str, str]]


@dataclass(frozen=True)
class Node:
    """A node of a graph: what it waits for (ordinals) besides the one before it on its stream, and what it is."""

    stream: int
    waits_for: tuple[int, ...]
    dur: int
    category: str = "kernel"


@st.composite
def graphs(draw: st.DrawFn, empty: bool) -> list[Node]:
    nodes: list[Node] = []
    for k in range(draw(st.integers(2, 12))):
        waits_for = tuple(sorted(draw(st.sets(st.integers(0, k - 1), max_size=2)))) if k else ()
        kinds = ["kernel", "gpu_memcpy", "graph_event_node", "graph_host_node"] if empty else ["kernel"]
        nodes.append(Node(draw(st.integers(7, 9)), waits_for, draw(st.integers(5, 40)), draw(st.sampled_from(kinds))))
    return nodes


def scheduled(nodes: list[Node]) -> list[tuple[int, int]]:
    free: dict[int, int] = {}
    times: list[tuple[int, int]] = []
    taken: set[int] = set()
    for node in nodes:
        start = max([100, free.get(node.stream, 0), *(times[w][1] for w in node.waits_for)])
        end = start + node.dur
        while end in taken:
            end += 1
        taken.add(end)
        free[node.stream] = end
        times.append((start, end))
    return times


def recorded(nodes: list[Node], *, arrows: bool, launches: int = 1) -> bytes:
    times, events, flow = scheduled(nodes), list[Document](), ARROW
    for launch in range(launches):
        shift, correlation = 2000 * launch, 11 + launch
        events.append(call("cudaGraphLaunch", 10 + shift, 5, correlation))
        for k, (node, (start, end)) in enumerate(zip(nodes, times, strict=True)):
            events.append(gpu(f"{launch}.{k}", start + shift, end - start, correlation, node.stream, node.category,
                              **{"graph node id": k + 1}))  # fmt: skip
            for source in node.waits_for if arrows else ():
                ends = (("s", nodes[source].stream, times[source][1]), ("f", node.stream, start))
                events += [{"ph": ph, "id": flow, "pid": 0, "tid": tid, "ts": ts + shift, "cat": "ac2g", "name": "ac2g"}
                           for ph, tid, ts in ends]  # fmt: skip
                flow += 1
    return kineto_of([op("op", 0, 20), *events])


def dependencies(nodes: list[Node], launch: int) -> Pairs:
    """Pairs of nodes with work, of which one waits for the other directly or through nodes without."""
    graph = nx.DiGraph((w, k) for k, node in enumerate(nodes) for w in node.waits_for)
    work = {k for k, node in enumerate(nodes) if node.category in ("kernel", "gpu_memcpy")}
    found: Pairs = set()
    for target in work & set(graph):
        pending = list(graph.predecessors(target))
        while pending:
            source = pending.pop()
            if source in work:
                found.add((f"{launch}.{source}", f"{launch}.{target}"))
            else:
                pending += graph.predecessors(source)
    return found


@examples(25)
@given(graphs(empty=True), st.integers(1, 2))
def test_arrows_become_graph_edges_and_change_no_launches(nodes: list[Node], launches: int) -> None:
    assume(any(node.waits_for for node in nodes))
    trace = link(None, recorded(nodes, arrows=True, launches=launches))
    assert_valid(trace.to_dict())
    expected = set[tuple[str, str]]().union(*(dependencies(nodes, launch) for launch in range(launches)))
    assert edge_names(trace, "graph") == expected
    assert not trace.summary["inferred_edges"]
    plain = link(None, recorded(nodes, arrows=False, launches=launches))
    assert edge_names(trace, "launch") == edge_names(plain, "launch")
    assert edge_names(trace, "stream") == edge_names(plain, "stream")


def test_arrows_with_lost_ends_are_counted() -> None:
    document = orjson.loads(recorded([Node(7, (), 10), Node(8, (0,), 50), Node(7, (1,), 10)], arrows=True))
    for event in document["traceEvents"]:
        if event["ph"] == "s" and event["id"] == ARROW:
            event["ts"] += 5000
    trace = link(None, orjson.dumps(document))
    assert edge_names(trace, "graph") == {("0.1", "0.2")} and trace.report.dependencies["unresolved"] == 1
