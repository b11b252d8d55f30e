"""The edges of whole files, against what can be read off the finished document: order, streams, launches, no cycle."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from etplus.linker import link
from support import FIXTURE_PAIRS, Document, assert_valid, fixture_pair, ns, read_json, shared_pair

Edges = dict[str, set[tuple[int, int]]]


class Linked:
    """An ET+ document with its edges by kind, and everything that has a time by id."""

    def __init__(self, et: Path, kineto: Path) -> None:
        self.document: Document = link(et, kineto).to_dict()
        assert_valid(self.document)
        self.events: list[Document] = read_json(kineto)["traceEvents"]
        self.nodes: dict[int, Document] = {node["id"]: node for node in self.document["nodes"]}
        self.runtime: dict[int, Document] = {call["id"]: call for call in self.document["runtime"]}
        self.gpu = sorted((n for n in self.nodes.values() if "cat" in n), key=lambda n: n["id"])
        self.edges: Edges = defaultdict(set)
        for source, target, kind in self.document["edges"]:
            self.edges[kind].add((source, target))

    def timed(self, number: int) -> Document:
        return self.nodes[number] if number in self.nodes else self.runtime[number]

    def start(self, number: int) -> int:
        return ns(self.timed(number)["ts"])

    def end(self, number: int) -> int:
        return self.start(number) + ns(self.timed(number)["dur"])

    def event(self, number: int) -> Document:
        return self.events[self.timed(number)["kineto_event"]]


@pytest.fixture(scope="module", params=["pairs/gpu_shaped_from_cpu", "pairs/two_threads", "gpu-pairs/dlrm.rank1"])
def linked(request: pytest.FixtureRequest) -> Linked:
    name = request.param
    return Linked(*(fixture_pair(name) if name in FIXTURE_PAIRS else shared_pair(name)))


def test_no_edge_contradicts_the_measured_order(linked: Linked) -> None:
    for kind, edges in linked.edges.items():
        for source, target in edges:
            assert source != target
            if kind == "sync":
                assert linked.end(source) <= linked.end(target) + 1000
            else:
                assert linked.start(source) <= linked.start(target), (kind, source, target)


def test_call_tree_and_edges_have_no_cycle(linked: Linked) -> None:
    graph = nx.DiGraph()
    for number, node in linked.nodes.items():
        caller = node.get("ctrl_deps", node.get("parent"))
        if caller != number:
            graph.add_edge(caller, number)
    graph.add_edges_from((c["parent"], number) for number, c in linked.runtime.items() if c["parent"] is not None)
    graph.add_edges_from(itertools.chain.from_iterable(linked.edges.values()))
    assert nx.is_directed_acyclic_graph(graph)


def test_stream_edges_are_the_order_of_each_stream(linked: Linked) -> None:
    streams: dict[Any, list[int]] = defaultdict(list)
    for node in linked.gpu:  # ids are in order of GPU start
        streams[node["device"], node["stream"]].append(node["id"])
    assert linked.edges["stream"] == {pair for ids in streams.values() for pair in itertools.pairwise(ids)}


def test_every_gpu_node_has_the_launch_of_its_correlation(linked: Linked) -> None:
    launches = {target: source for source, target in linked.edges["launch"]}
    assert len(launches) == len(linked.edges["launch"]) == len(linked.gpu)
    for node in linked.gpu:
        source = launches[node["id"]]
        if source in linked.runtime:
            assert linked.runtime[source]["correlation"] == node["correlation"]
        else:
            assert source == node.get("ctrl_deps", node.get("parent"))


def test_thread_edges_are_the_order_of_top_level_operators(linked: Linked) -> None:
    """Operators below no other linked operator; annotations around them do not count."""
    threads: dict[Any, list[tuple[int, int, int]]] = defaultdict(list)
    for number, node in linked.nodes.items():
        if "link" in node and (event := linked.event(number))["cat"] == "cpu_op":
            threads[event["pid"], event["tid"]].append((linked.start(number), -linked.end(number), number))
    expected = set()
    for rows in threads.values():
        top: list[tuple[int, int, int]] = []
        for row in sorted(rows):
            if not top or row[0] >= -top[-1][1]:
                top.append(row)
        expected |= {(a[2], b[2]) for a, b in itertools.pairwise(top)}
    apart = {(a, b) for a, b in linked.edges["thread"] ^ expected if linked.start(a) != linked.start(b)}
    assert len(apart) <= 0.01 * len(expected), "but for ties of times in whole µs"


def test_the_fields_of_the_nodes_say_the_same(linked: Linked) -> None:
    handoffs = {(n["inter_thread_dep"], i) for i, n in linked.nodes.items() if n.get("inter_thread_dep") is not None}
    assert handoffs == linked.edges["thread_handoff"]
    waited_for = {source for source, _ in linked.edges["sync"]}
    for number, node in linked.nodes.items():
        for source in node.get("sync_dep", []):
            assert "cat" in linked.nodes[source] and source in waited_for
            assert linked.end(source) <= linked.end(number)


def test_waits_of_the_fixture_with_a_gpu() -> None:
    """Its README promises nine stream waits, one of them for an event from before the window, and FIFO streams."""
    linked = Linked(*fixture_pair("pairs/gpu_shaped_from_cpu"))
    dependencies = linked.document["etplus"]["link"]["dependencies"]
    assert dependencies["unresolved"] == 1 and dependencies["inferred"] == 0 and not dependencies["contradicted"]
    assert len(linked.edges["event"]) == 8
    for source, target in linked.edges["event"]:
        assert linked.nodes[source]["stream"] != linked.nodes[target]["stream"]
        assert linked.end(source) <= linked.start(target)
    released = {linked.runtime[target]["name"] for _, target in linked.edges["sync"]}
    assert {"cudaStreamSynchronize", "cudaDeviceSynchronize"} <= released
