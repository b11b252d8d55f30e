"""ET+ as a graph, read back by networkx, Graphviz and an XML parser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import networkx as nx
import numpy as np
import pytest
from etplus.converters.graph import GRAPH_FORMATS, select_rows, to_networkx, write_graph
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from etplus_files import cpu, document_of, etplus, gpu, runtime

EVIL = 'a"b\\<&>\n\t\0\x01\x1b é \u2028 ]]> </label> \ufffe'
NAME = "pairs/gpu_shaped_from_cpu"


def test_nodes_and_edges_are_those_of_the_document() -> None:
    document = document_of(NAME)
    graph = to_networkx(document)
    assert set(graph) == set(document.id.tolist())
    kinds: dict[tuple[int, int], list[str]] = {}
    for row in np.flatnonzero(document.parent_row >= 0).tolist():
        kinds[int(document.id[document.parent_row[row]]), int(document.id[row])] = ["call"]
    for a, b, kind in document.edges.tolist():
        kinds.setdefault((int(document.id[a]), int(document.id[b])), []).append(EDGE_KINDS[kind])
    assert {(a, b): of["kind"] for a, b, of in graph.edges(data=True)} == {e: "+".join(k) for e, k in kinds.items()}
    assert nx.is_directed_acyclic_graph(graph)
    row = int(np.flatnonzero(document.kind == 1)[0])
    assert graph.nodes[int(document.id[row])] == {
        "name": document.name_of(row), "kind": "gpu", "ts_ns": int(document.ts[row]),
        "dur_ns": int(document.dur[row]), "stream": int(document.stream[row]),
    }  # fmt: skip


def test_ranks_of_one_program_have_isomorphic_call_trees() -> None:
    trees = []
    for rank in (0, 1):
        graph = to_networkx(document_of(f"gpu-pairs/dlrm.rank{rank}"))
        calls = [(a, b) for a, b, of in graph.edges(data=True) if "call" in of["kind"].split("+")]
        tree = nx.DiGraph(graph.edge_subgraph(calls).subgraph(n for n in graph if graph.nodes[n]["kind"] == "cpu"))
        trees.append(tree.to_undirected())
    assert len(trees[0]) > 1600
    hashes = {nx.weisfeiler_lehman_graph_hash(tree, node_attr="name", iterations=8) for tree in trees}
    assert len(hashes) == 1


def evil() -> Trace:
    return etplus([cpu(3, EVIL, 0, 9), gpu(4, EVIL, 1, 2)], [runtime(5, EVIL, 1, 1)], [[5, 4, "launch"]])


def test_graphml_and_gexf_read_back(tmp_path: Path) -> None:
    for name, document in (("real", document_of(NAME)), ("evil", evil())):
        for to, read in (("graphml", nx.read_graphml), ("gexf", nx.read_gexf)):
            path = tmp_path / f"{name}.{to}"
            graph = write_graph({0: document}, path, to)
            ElementTree.fromstring(path.read_bytes())
            back = read(path)
            assert {int(node) for node in back} == set(graph)
            assert back.number_of_edges() == graph.number_of_edges()
            kinds = {of["kind"] for _, _, of in back.edges(data=True)}
            assert kinds == {of["kind"] for _, _, of in graph.edges(data=True)}
            names = [{_letters(of["name"]) for _, of in g.nodes(data=True)} for g in (back, graph)]
            assert names[0] == names[1]


def _letters(name: str) -> str:
    return "".join(c for c in name if c.isalnum())


def test_networkx_json_reads_back(tmp_path: Path) -> None:
    graph = write_graph({0: evil()}, tmp_path / "g.json", "networkx-json")
    data = json.loads((tmp_path / "g.json").read_bytes())
    try:
        back = nx.node_link_graph(data, edges="edges")
    except TypeError:  # before networkx 3.4
        back = nx.node_link_graph(data, link="edges")
    assert nx.utils.graphs_equal(back, graph)
    assert back.nodes[3]["name"] == EVIL


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_takes_it(tmp_path: Path) -> None:
    write_graph({0: evil()}, tmp_path / "g.dot", "dot")
    done = subprocess.run(["dot", "-Tjson", tmp_path / "g.dot"], capture_output=True, check=True)
    drawn = json.loads(done.stdout, strict=False)  # Graphviz does not escape tabs
    assert {node["name"] for node in drawn["objects"]} == {"1", "2", "3", "4", "5"}
    assert len(drawn["edges"]) == 5
    for suffix, magic in ((".svg", b"<svg"), (".pdf", b"%PDF"), (".png", b"PNG")):
        write_graph({0: document_of(NAME)}, tmp_path / f"g{suffix}", "dot", max_nodes=30)
        assert magic in (tmp_path / f"g{suffix}").read_bytes()


def test_without_graphviz_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"Graphviz is needed to draw \.svg"):
        write_graph({0: document_of(NAME)}, tmp_path / "g.svg", "dot")
    assert not (tmp_path / "g.svg").exists()


def test_a_part_of_the_graph() -> None:
    document = document_of(NAME)
    first = select_rows(document, max_nodes=40)
    assert len(first) == 40
    assert document.structural[first].sum() == document.structural.sum()
    rest = np.setdiff1d(np.flatnonzero(document.timed), first)
    assert document.ts[first].max() <= document.ts[rest].min()
    step = int(
        np.flatnonzero([name.startswith("ProfilerStep") for name in map(document.name_of, range(len(document)))])[0]
    )
    for chosen in (document.name_of(step), str(document.id[step])):
        rows = select_rows(document, subtree=chosen)
        inside = set(rows.tolist())
        assert step in inside
        for row in range(len(document)):
            if document.parent_row[row] in inside:
                assert row in inside
        graph = to_networkx(document, rows)
        assert set(nx.descendants(graph, int(document.id[step]))) == set(graph) - {int(document.id[step])}
    assert len(select_rows(document, subtree=document.name_of(step), max_nodes=5)) == 5


def test_several_ranks_are_one_graph(tmp_path: Path) -> None:
    one = etplus([cpu(3, "a", 0), cpu(4, "b", 2)], [], [[3, 4, "thread"]])
    graph = write_graph({0: one, 5: one}, tmp_path / "g.json", "networkx-json")
    assert set(graph) == {f"{rank}:{node}" for rank in (0, 5) for node in (1, 2, 3, 4)}
    assert graph.edges["5:3", "5:4"]["kind"] == "thread"


def test_bad_requests(tmp_path: Path) -> None:
    document = document_of(NAME)
    for choice, message in (
        ({"max_nodes": 0}, "0 nodes make no graph"),
        ({"subtree": "no such op"}, "no node has the id or name 'no such op'"),
        ({"subtree": "9" * 30}, "no node has the id or name"),
    ):
        with pytest.raises(UsageError, match=message):
            write_graph({0: document}, tmp_path / "g.dot", "dot", **choice)
    with pytest.raises(UsageError, match="unknown graph format 'png'; one of: graphml, gexf, dot, networkx-json"):
        write_graph({0: document}, tmp_path / "g.dot", "png")
    assert not list(tmp_path.iterdir())
    assert set(GRAPH_FORMATS) == {"graphml", "gexf", "dot", "networkx-json"}
