"""The edges of whole files (linker/dependencies.py): order, streams, launches, no cycle."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import networkx as nx
import pytest
from support import Document, assert_valid, linked, ns

Pairs = set[tuple[int, int]]


def edges_of(document: Document, kind: str) -> Pairs:
    return {(source, target) for source, target, found in document["edges"] if found == kind}


@pytest.fixture(scope="module", params=["pairs/gpu_shaped_from_cpu", "pairs/two_threads", "gpu-pairs/dlrm.rank1"])
def document(request: pytest.FixtureRequest) -> Document:
    found = linked(request.param).to_dict()
    assert_valid(found)
    return found


def test_no_edge_contradicts_the_measured_order_and_none_closes_a_cycle(document: Document) -> None:
    timed = {one["id"]: one for one in [*document["nodes"], *document["runtime"]]}
    start = {number: ns(one["ts"]) for number, one in timed.items() if "ts" in one}
    end = {number: begin + ns(timed[number]["dur"]) for number, begin in start.items()}
    graph = nx.DiGraph()
    for number, one in timed.items():
        caller = one.get("ctrl_deps", one.get("parent"))
        if caller not in (None, number):
            graph.add_edge(caller, number)
    for source, target, kind in document["edges"]:
        graph.add_edge(source, target)
        late = end[source] > end[target] + 1000 if kind == "sync" else start[source] > start[target]
        assert source != target and not late, (source, target, kind)
    assert nx.is_directed_acyclic_graph(graph)


def test_streams_and_launches_are_those_of_the_nodes(document: Document) -> None:
    gpu = sorted((node for node in document["nodes"] if "cat" in node), key=lambda node: node["id"])
    streams: dict[Any, list[int]] = defaultdict(list)
    for node in gpu:  # ids are in order of GPU start
        streams[node["device"], node["stream"]].append(node["id"])
    assert edges_of(document, "stream") == {pair for ids in streams.values() for pair in itertools.pairwise(ids)}
    calls = {call["id"]: call["correlation"] for call in document["runtime"]}
    launches = {target: source for source, target in edges_of(document, "launch")}
    assert len(launches) == len(gpu)
    for node in gpu:
        source = launches[node["id"]]
        assert calls.get(source) == node["correlation"] or source == node.get("ctrl_deps", node.get("parent"))


def test_fields_of_nodes_say_what_edges_say(document: Document) -> None:
    nodes = {node["id"]: node for node in document["nodes"]}
    handoffs = {(n["inter_thread_dep"], i) for i, n in nodes.items() if n.get("inter_thread_dep") is not None}
    assert handoffs == edges_of(document, "thread_handoff")
    waited_for = {source for node in nodes.values() for source in node.get("sync_dep", [])}
    assert waited_for <= {source for source, _ in edges_of(document, "sync")}
    assert all("cat" in nodes[source] for source in waited_for)


def test_waits_of_the_fixture_with_a_gpu() -> None:
    """Its README promises nine stream waits, one of them for an event from before the window."""
    document = linked("pairs/gpu_shaped_from_cpu").to_dict()
    dependencies = document["etplus"]["link"]["dependencies"]
    assert dependencies["unresolved"] == 1 and dependencies["inferred"] == 0 and not dependencies["contradicted"]
    streams = {node["id"]: node.get("stream") for node in document["nodes"]}
    waits = edges_of(document, "event")
    assert len(waits) == 8 and all(streams[source] != streams[target] for source, target in waits)
    names = {call["id"]: call["name"] for call in document["runtime"]}
    released = {names[target] for _, target in edges_of(document, "sync")}
    assert {"cudaStreamSynchronize", "cudaDeviceSynchronize"} <= released
