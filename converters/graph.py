"""ET+ as a graph: for networkx, and as GraphML, GEXF, Graphviz dot, JSON or a picture."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import networkx as nx
import numpy as np
import orjson

from ..schemas.files import open_output
from ..trace.columns import IntColumn
from ..trace.conventions import EDGE_KINDS
from ..trace.errors import ConvertError, UsageError
from ..trace.kinds import CPU, GPU
from ..trace.trace import Trace
from .exporter import PICTURES

__all__ = ["GRAPH_FORMATS", "select_rows", "to_networkx", "write_graph"]

if TYPE_CHECKING:
    Graph = nx.DiGraph[Any]
else:
    Graph = nx.DiGraph
_CALL = "call"
_LABEL = 60
_COLOURS = {"cpu": "#dbe9f6", "gpu": "#fde2c8", "comm": "#f8cdd1", "runtime": "#e4e4e4"}


def to_networkx(document: Trace, rows: IntColumn | None = None) -> Graph:
    """A directed graph of nodes and runtime calls.

    Its nodes are ids, with `name`, `kind` ("cpu", "gpu", "comm" or "runtime") and, where there are times, `ts_ns`,
    `dur_ns`; ops and calls have `thread`, GPU events `stream`. Its edges have `kind`: "call" for caller to callee, else
    one of EDGE_KINDS; several between the same two are joined by "+".

    Args:
        rows: int64, only these rows and what lies between them; all by default.
    """
    graph: Graph = nx.DiGraph()
    wanted = np.zeros(len(document), np.bool_)
    wanted[np.arange(len(document)) if rows is None else rows] = True
    graph.add_nodes_from(_nodes(document, np.flatnonzero(wanted)))
    callees = np.flatnonzero(wanted & (document.parent_row >= 0))
    callees = callees[wanted[document.parent_row[callees]]]
    ids = document.id
    calls = zip(ids[document.parent_row[callees]].tolist(), ids[callees].tolist(), strict=True)
    graph.add_edges_from(calls, kind=_CALL)
    edges = document.edges[wanted[document.edges[:, 0]] & wanted[document.edges[:, 1]]]
    for a, b, kind in zip(ids[edges[:, 0]].tolist(), ids[edges[:, 1]].tolist(), edges[:, 2].tolist(), strict=True):
        before = graph.edges[a, b]["kind"] + "+" if graph.has_edge(a, b) else ""
        graph.add_edge(a, b, kind=before + EDGE_KINDS[kind])
    return graph


def select_rows(document: Trace, *, subtree: str | None = None, max_nodes: int | None = None) -> IntColumn:
    """Rows for a picture that stays readable.

    Args:
        subtree: only a node and all that it calls and launches: its id, or its name (then the first one's to start).
        max_nodes: only so many, those that start first; callers before what they call.

    Raises:
        UsageError: no such node, or a limit below 1.
    """
    if max_nodes is not None and max_nodes < 1:
        raise UsageError(f"{max_nodes} nodes make no graph; give 1 or more")
    starts = np.where(document.timed, document.ts, -1)
    chosen = np.ones(len(document), np.bool_)
    if subtree is not None:
        chosen = _subtree(document, _root(document, subtree))
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort((document.id[rows], -document.dur[rows], starts[rows]))]
    return np.sort(rows[:max_nodes])


def write_graph(documents: Mapping[int, Trace], path: str | os.PathLike[str], to: str, **choice: Any) -> Graph:
    """Write documents as one graph; the ids of several ranks have their rank before them ("3:17").

    With `to` "dot" and a name that ends in .svg, .pdf or .png, Graphviz draws it.

    Args:
        documents: by rank.
        to: one of GRAPH_FORMATS.
        choice: for `select_rows`.

    Raises:
        UsageError: an unknown format, Graphviz is not installed, or the output cannot be written.
        ConvertError: Graphviz fails.
    """
    if to not in GRAPH_FORMATS:
        raise UsageError(f"unknown graph format {to!r}; one of: {', '.join(GRAPH_FORMATS)}")
    parts = {rank: to_networkx(one, select_rows(one, **choice)) for rank, one in documents.items()}
    if len(parts) == 1:
        (graph,) = parts.values()
    else:
        names = ({node: f"{rank}:{node}" for node in part} for rank, part in parts.items())
        renamed = [nx.relabel_nodes(part, of) for part, of in zip(parts.values(), names, strict=True)]
        graph = cast("Graph", nx.union_all(renamed))
    suffix = Path(path).suffix.lower()
    text = GRAPH_FORMATS[to](graph)
    if to == "dot" and suffix in PICTURES:
        text = _drawn(text, suffix)
    with open_output(path) as file:
        file.write(text)
    return graph


def _nodes(document: Trace, rows: IntColumn) -> Iterator[tuple[int, dict[str, Any]]]:
    kinds = {CPU: "cpu", GPU: "gpu"}
    for row in rows.tolist():
        kind = int(document.kind[row])
        values: dict[str, Any] = {
            "name": document.name_of(row),
            "kind": "comm" if row in document.comm else kinds.get(kind, "runtime"),
        }
        if document.timed[row]:
            values |= {"ts_ns": int(document.ts[row]), "dur_ns": int(document.dur[row])}
        column = "stream" if kind == GPU else "thread"
        yield int(document.id[row]), {**values, column: int(getattr(document, column)[row])}


def _root(document: Trace, subtree: str) -> int:
    if subtree.isdecimal():
        found = np.flatnonzero(document.id == int(subtree)) if len(subtree) < 19 else np.zeros(0, np.int64)
    else:
        found = np.flatnonzero(document.name == (document.names.index(subtree) if subtree in document.names else -1))
        found = found[np.lexsort((document.id[found], document.ts[found]))]
    if not len(found):
        raise UsageError(f"{document.file}: no node has the id or name {subtree[:80]!r}")
    return int(found[0])


def _subtree(document: Trace, root: int) -> Any:
    chosen = np.zeros(len(document), np.bool_)
    chosen[root] = True
    launched = document.edges_of("launch")
    while True:
        parent = document.parent_row
        more = (parent >= 0) & chosen[parent] & ~chosen
        more[launched[chosen[launched[:, 0]], 1]] = True
        more &= ~chosen
        if not more.any():
            return chosen
        chosen |= more


def _graphml(graph: Graph) -> bytes:
    return _written(nx.write_graphml, graph)


def _gexf(graph: Graph) -> bytes:
    labelled: Graph = nx.DiGraph()
    labelled.add_nodes_from((node, {"label": _xml(of["name"]), **of}) for node, of in graph.nodes(data=True))
    labelled.add_edges_from(graph.edges(data=True))
    return _written(nx.write_gexf, labelled)


def _written(write: Callable[..., None], graph: Graph) -> bytes:
    """What a networkx writer of XML makes of a graph whose texts XML can hold."""
    clean: Graph = nx.DiGraph()
    clean.add_nodes_from((node, {key: _xml(v) for key, v in of.items()}) for node, of in graph.nodes(data=True))
    clean.add_edges_from(graph.edges(data=True))
    buffer = io.BytesIO()
    write(clean, buffer)
    return buffer.getvalue() + b"\n"


def _xml(value: Any) -> Any:
    """Without the characters that XML 1.0 has no way to write."""
    if not isinstance(value, str):
        return value
    return "".join(c if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff") else "\ufffd" for c in value)


def _node_link(graph: Graph) -> bytes:
    """What `networkx.node_link_graph(data, edges="edges")` reads; its writer's keywords differ between versions."""
    nodes = [{"id": node, **of} for node, of in graph.nodes(data=True)]
    edges = [{"source": a, "target": b, **of} for a, b, of in graph.edges(data=True)]
    document = {"directed": True, "multigraph": False, "graph": {}, "nodes": nodes, "edges": edges}
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


def _dot(graph: Graph) -> bytes:
    lines = ["digraph etplus {", "  rankdir=LR; node [shape=box, style=filled, fontname=Helvetica];"]
    for node, of in graph.nodes(data=True):
        label = _xml(of["name"] if len(of["name"]) <= _LABEL else of["name"][: _LABEL - 3] + "...")
        if "dur_ns" in of:
            label += f"\n{of['dur_ns'] / 1000:.3f} µs"
        lines.append(f"  {_quoted(node)} [label={_quoted(label)}, fillcolor={_quoted(_COLOURS[of['kind']])}];")
    for a, b, of in graph.edges(data=True):
        style = "style=dotted" if of["kind"] == _CALL else f"label={_quoted(of['kind'])}"
        lines.append(f"  {_quoted(a)} -> {_quoted(b)} [{style}];")
    return "\n".join([*lines, "}", ""]).encode()


def _quoted(value: Any) -> str:
    """A dot string."""
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


def _drawn(text: bytes, suffix: str) -> bytes:
    program = shutil.which("dot")
    if program is None:
        raise UsageError(f"Graphviz is needed to draw {suffix} files; install it (program `dot`), or write a .dot file")
    done = subprocess.run([program, f"-T{suffix[1:]}"], input=text, capture_output=True, check=False)
    if done.returncode:
        problem = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ConvertError(f"Graphviz could not draw the graph: {problem[-1] if problem else done.returncode}")
    return done.stdout


GRAPH_FORMATS: dict[str, Callable[[Graph], bytes]] = {
    "graphml": _graphml,
    "gexf": _gexf,
    "dot": _dot,
    "networkx-json": _node_link,
}
"""Name of each format and what makes its text."""
