"""ET+ as a graph, read back by networkx, Graphviz and an XML parser."""

import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import networkx as nx
import numpy as np
import pytest
from etplus.converters.graph import GRAPH_FORMATS, _blocks, write_graph
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from etplus_files import cpu, document_of, etplus, gpu, runtime, step_by_hand
from random_step import digest, random_step

EVIL = 'a"b\\<&>\n\t\0\x01\x1b é \u2028 ]]> </label> \ufffe'
NAME = "pairs/gpu_shaped_from_cpu"


def written(path: Path, documents: dict[int, Trace], **choice: Any) -> nx.DiGraph:
    """What networkx reads of the graph, as "networkx-json" has it."""
    count, _ = write_graph(documents, path / "written.json", "networkx-json", **choice)
    data = json.loads((path / "written.json").read_bytes())
    try:
        graph = nx.node_link_graph(data, edges="edges")
    except TypeError:  # before networkx 3.4
        graph = nx.node_link_graph(data, link="edges")
    assert len(graph) == count
    return graph


def test_nodes_and_edges_are_those_of_the_document(tmp_path: Path) -> None:
    document = document_of(NAME)
    graph = written(tmp_path, {0: document})
    assert set(graph) == set(document.nodes.id.tolist())
    kinds: dict[tuple[int, int], list[str]] = {}
    for row in np.flatnonzero(document.nodes.parent_row >= 0).tolist():
        kinds[int(document.nodes.id[document.nodes.parent_row[row]]), int(document.nodes.id[row])] = ["call"]
    for a, b, kind in document.edges.tolist():
        kinds.setdefault((int(document.nodes.id[a]), int(document.nodes.id[b])), []).append(EDGE_KINDS[kind])
    assert {(a, b): of["kind"] for a, b, of in graph.edges(data=True)} == {e: "+".join(k) for e, k in kinds.items()}
    assert any(len(k) > 1 for k in kinds.values())
    assert nx.is_directed_acyclic_graph(graph)
    row = int(np.flatnonzero(document.nodes.kind == 1)[0])
    assert graph.nodes[int(document.nodes.id[row])] == {
        "name": document.name_of(row), "kind": "gpu", "ts_ns": int(document.nodes.ts[row]),
        "dur_ns": int(document.nodes.dur[row]), "stream": int(document.nodes.stream[row]),
    }  # fmt: skip


EVIL_TRACE = etplus([cpu(3, EVIL, 0, 9), gpu(4, EVIL, 1, 2)], [runtime(5, EVIL, 1, 1)], [[5, 4, "launch"]])


def reference(graph: nx.DiGraph) -> bytes:
    """What networkx itself writes of a graph, of texts that XML can hold."""
    clean = nx.DiGraph()
    for node, of in graph.nodes(data=True):
        values = {
            key: re.sub("[^\\t\\n\\r -\\ufffd]", "\ufffd", v) if isinstance(v, str) else v for key, v in of.items()
        }
        clean.add_node(node, **values)
    clean.add_edges_from(graph.edges(data=True))
    file = io.BytesIO()
    nx.write_graphml_xml(clean, file)
    return file.getvalue()


@pytest.mark.parametrize("ranks", [1, 3])
def test_graphml_equals_that_of_networkx(ranks: int, tmp_path: Path) -> None:
    untimed = {key: value for key, value in gpu(4, "k", 1, 2).items() if key not in ("ts", "dur")}
    others = {3: step_by_hand(), 4: etplus([cpu(3, "a"), untimed])} if ranks == 3 else {}
    given = {0: EVIL_TRACE, **others}
    write_graph(given, tmp_path / "graph", "graphml")
    ours = ElementTree.fromstring((tmp_path / "graph").read_bytes())
    theirs = ElementTree.fromstring(reference(written(tmp_path, given)))
    assert ElementTree.canonicalize(ElementTree.tostring(ours), strip_text=True) == ElementTree.canonicalize(
        ElementTree.tostring(theirs), strip_text=True
    )


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_reads_the_dot_file_and_draws_pictures(tmp_path: Path) -> None:
    write_graph({0: EVIL_TRACE}, tmp_path / "g.dot", "dot")
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


def test_graphs_of_no_nodes_unknown_subtrees_and_formats_are_refused(tmp_path: Path) -> None:
    document = document_of(NAME)
    for choice, message in (
        ({"max_nodes": 0}, "a graph of 0 nodes cannot be drawn"),
        ({"subtree": "no such op"}, "no node has the id or name 'no such op'"),
    ):
        with pytest.raises(UsageError, match=message):
            write_graph({0: document}, tmp_path / "g.dot", "dot", **choice)
    with pytest.raises(UsageError, match="unknown graph format 'png'; one of: graphml, dot, networkx-json"):
        write_graph({0: document}, tmp_path / "g.dot", "png")
    assert not list(tmp_path.iterdir())


MADE = ["80305b87", "a66ce087", "34f7b0dd"]


@pytest.mark.parametrize("seed", range(len(MADE)))
def test_random_steps_are_written_to_their_stored_digests(seed: int, tmp_path: Path) -> None:
    """All formats of one rank, of two, and of what the first kernel's operator calls and launches."""
    traces = {0: random_step(seed), 1: random_step(seed + 1)}
    texts: list[object] = []
    for form in GRAPH_FORMATS:
        choices: list[tuple[dict[int, Trace], dict[str, Any]]] = [
            ({0: traces[0]}, {}), (traces, {"max_nodes": 9}), ({0: traces[0]}, {"subtree": "aten::mm"}),
            ({0: traces[0]}, {"subtree": "10", "max_nodes": 3}),
        ]  # fmt: skip
        for ranks, choice in choices:
            texts.append(write_graph(ranks, tmp_path / "made.txt", form, **choice)[0])
            texts.append((tmp_path / "made.txt").read_bytes())
    assert digest(texts) == MADE[seed]


def test_a_subtree_and_a_limit_choose_the_rows(tmp_path: Path) -> None:
    trace = step_by_hand()

    def ids(**choice: Any) -> set[int]:
        return set(written(tmp_path, {0: trace}, **choice))

    assert ids() == set(trace.nodes.id.tolist()) and ids(max_nodes=1) == {1} and ids(max_nodes=4) == {1, 2, 3, 4}
    below = {3, 4, 20, 21, 25, 7, 8, 13}
    assert ids(subtree="aten::mm") == ids(subtree="3") == below and ids(subtree="4") == {4}
    assert ids(subtree="3", max_nodes=2) == {3, 4} and ids(subtree="gemm") == {7} and ids(subtree="1") == ids()
    for wrong in ("none", "0", "9" * 18, "9" * 19):
        with pytest.raises(UsageError, match="no node has the id or name"):
            ids(subtree=wrong)
    twice = etplus([cpu(3, "a", 50, 10), cpu(4, "a", 20, 10), cpu(5, "a", 20, 10)])
    assert list(written(tmp_path, {0: twice}, subtree="a")) == [4]


def test_a_dot_file_cuts_and_escapes_names(tmp_path: Path) -> None:
    nodes = [cpu(3, "n" * 60, 0, 10), cpu(4, "n" * 61, 1, 2.5, parent=3), cpu(5, 'a"\\b', parent=3)]
    assert write_graph({0: etplus(nodes, [], [[3, 4, "data"]])}, tmp_path / "g.dot", "dot", subtree="3")[0] == 3
    assert (tmp_path / "g.dot").read_text().splitlines() == [
        "digraph etplus {", "  rankdir=LR; node [shape=box, style=filled, fontname=Helvetica];",
        f'  "3" [label="{"n" * 60}\\n10.000 µs", fillcolor="#dbe9f6"];',
        f'  "4" [label="{"n" * 57}...\\n2.500 µs", fillcolor="#dbe9f6"];',
        '  "5" [label="a\\"\\\\b", fillcolor="#dbe9f6"];', '  "3" -> "4" [label="call+data"];',
        '  "3" -> "5" [style=dotted];', "}",
    ]  # fmt: skip


def test_texts_are_joined_into_blocks_of_a_megabyte() -> None:
    texts = [b"a" * ((1 << 20) - 1), b"b", b"c", b"d" * (1 << 20), b"e"]
    assert list(map(len, _blocks(iter(texts)))) == [1 << 20, (1 << 20) + 1, 1]
    assert b"".join(_blocks(iter(texts))) == b"".join(texts) and list(_blocks(iter([]))) == [b""]
