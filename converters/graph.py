"""Write ET+ as a graph in GraphML, Graphviz dot or networkx JSON, or as a picture."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from ..schemas.text.files import open_output
from ..trace.columns import IntColumn, mask_at
from ..trace.conventions import EDGE_KINDS
from ..trace.errors import ConvertError, UsageError
from ..trace.kinds import GPU
from ..trace.trace import Trace
from .exporter import PICTURES

# Default limit on the number of nodes in a picture. Graphviz needs 25 s for 1,700 nodes, and the picture is unreadable.
PICTURE_NODES = 300

_LABEL = 60
_BLOCK = 1 << 20
_COLOURS = {"cpu": "#dbe9f6", "gpu": "#fde2c8", "comm": "#f8cdd1", "runtime": "#e4e4e4"}


def _by_start(trace: Trace, subtree: str | None) -> IntColumn:
    nodes = trace.nodes
    starts = np.where(nodes.timed, nodes.ts, -1)
    rows = np.arange(len(trace)) if subtree is None else np.flatnonzero(_subtree(trace, _root(trace, subtree)))
    return rows[np.lexsort((nodes.id[rows], -nodes.dur[rows], starts[rows]))]


def write_graph(
    traces: Mapping[int, Trace],
    path: str | os.PathLike[str],
    to: str,
    *,
    subtree: str | None = None,
    max_nodes: int | None = None,
) -> tuple[int, list[int]]:
    """Write traces as one graph. If there are several ranks, node ids start with the rank ("3:17").
    `subtree` is the id or name of a node. If `subtree` is set, only this node and its descendants are selected. Write
    the first `max_nodes` selected nodes by start time. Return the number of nodes written, and the number of selected
    nodes per rank. If `to` is "dot" and the name ends in .svg, .pdf or .png, Graphviz draws the graph."""
    if to not in GRAPH_FORMATS:
        raise UsageError(f"unknown graph format {to!r}; one of: {', '.join(GRAPH_FORMATS)}")
    if max_nodes is not None and max_nodes < 1:
        raise UsageError(f"a graph of {max_nodes} nodes cannot be drawn; pass 1 or more")
    parts, selected = list[_TableRows](), list[int]()
    for rank, trace in traces.items():
        rows = _by_start(trace, subtree)
        selected.append(len(rows))
        parts.append(_TableRows(trace, f"{rank}:" if len(traces) > 1 else None, np.sort(rows[:max_nodes])))
    graph = Graph(tuple(parts))
    suffix = Path(path).suffix.lower()
    texts: Iterator[bytes] = (text.encode() for text in GRAPH_FORMATS[to](graph))
    if to == "dot" and suffix in PICTURES:
        texts = iter([_drawn(b"".join(texts), suffix)])
    with open_output(path) as file:
        for block in _blocks(texts):
            file.write(block)
    return len(graph), selected


def _blocks(texts: Iterator[bytes]) -> Iterator[bytes]:
    block = bytearray()
    for text in texts:
        block += text
        if len(block) >= _BLOCK:
            yield bytes(block)
            block.clear()
    yield bytes(block)


def _root(trace: Trace, subtree: str) -> int:
    if subtree.isdecimal():
        rows = np.flatnonzero(trace.nodes.id == int(subtree)) if len(subtree) < 19 else np.zeros(0, np.int64)
    else:
        rows = np.flatnonzero(trace.nodes.name == (trace.names.index(subtree) if subtree in trace.names else -1))
        rows = rows[np.lexsort((trace.nodes.id[rows], trace.nodes.ts[rows]))]
    if not len(rows):
        raise UsageError(f"{trace.file}: no node has the id or name {subtree[:80]!r}")
    return int(rows[0])


def _subtree(trace: Trace, root: int) -> npt.NDArray[np.bool_]:
    chosen = mask_at(len(trace), root)
    launched = trace.edges_of("launch")
    while True:
        parent = trace.nodes.parent_row
        more = (parent >= 0) & chosen[parent] & ~chosen
        more[launched[chosen[launched[:, 0]], 1]] = True
        more &= ~chosen
        if not more.any():
            return chosen
        chosen |= more


def _node_link(graph: Graph) -> Iterator[str]:
    """Yield JSON for `networkx.node_link_graph(data, edges="edges")`. networkx's own output varies by version."""
    nodes = [{"id": node, **dict(zip(names, values, strict=True))} for node, names, values in graph.nodes()]
    edges = [{"source": a, "target": b, "kind": kind} for a, b, kind in graph.edges()]
    trace = {"directed": True, "multigraph": False, "graph": {}, "nodes": nodes, "edges": edges}
    yield orjson.dumps(trace, option=orjson.OPT_INDENT_2).decode() + "\n"


def _dot(graph: Graph) -> Iterator[str]:
    yield "digraph etplus {\n  rankdir=LR; node [shape=box, style=filled, fontname=Helvetica];\n"
    for node, names, values in graph.nodes():
        attributes = dict(zip(names, values, strict=True))
        name = str(attributes["name"])
        label = xml_text(name if len(name) <= _LABEL else name[: _LABEL - 3] + "...")
        if "dur_ns" in attributes:
            label += f"\n{attributes['dur_ns'] / 1000:.3f} µs"
        yield f"  {_quoted(node)} [label={_quoted(label)}, fillcolor={_quoted(_COLOURS[attributes['kind']])}];\n"
    for a, b, kind in graph.edges():
        style = "style=dotted" if kind == CALL else f"label={_quoted(kind)}"
        yield f"  {_quoted(a)} -> {_quoted(b)} [{style}];\n"
    yield "}\n"


def _quoted(value: Any) -> str:
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


_TYPES = {"name": "string", "kind": "string"}

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")

_GRAPHML = """\
<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
"""


def xml_text(text: str) -> str:
    """Replace the characters that are not allowed in XML 1.0 (https://www.w3.org/TR/xml/#charsets)."""
    return _NOT_XML.sub("\ufffd", text)


def graphml(graph: Graph) -> Iterator[str]:
    keys = {name: at for at, name in enumerate(dict.fromkeys(chain(*graph.attributes())))}  # sorted by first use
    yield _GRAPHML
    declared = [*((key, "node") for key in keys), ("kind", "edge")]
    for number, (name, element) in reversed([*enumerate(declared)]):
        kind = _TYPES.get(name, "long")
        yield f'  <key id="d{number}" for="{element}" attr.name="{name}" attr.type="{kind}" />\n'
    yield '  <graph edgedefault="directed">\n'
    data = {key: f'      <data key="d{number}">%s</data>\n' for key, number in keys.items()}
    parts = {names: "".join(data[name] for name in names) for names in graph.attributes()}
    texts = {names: f'    <node id="%s">\n{part}    </node>\n' for names, part in parts.items()}
    for node, names, (name, *others) in graph.nodes():
        yield texts[names] % (node, _content(name), *others)
    edge = f'    <edge source="%s" target="%s">\n      <data key="d{len(keys)}">%s</data>\n    </edge>\n'
    for ends_and_kind in graph.edges():
        yield edge % ends_and_kind
    yield "  </graph>\n</graphml>\n\n"


@lru_cache(maxsize=1 << 14)
def _content(text: str) -> str:
    return escape(xml_text(text), quote=False)


CALL = "call"

_KINDS = ("cpu", "gpu", "runtime", "comm")
_COMM = _KINDS.index("comm")
Label = int | str


@dataclass(frozen=True)
class _TableRows:
    """The selected rows of a trace, sorted. `prefix` is added before node ids. If it is None, node ids are numbers."""

    trace: Trace
    prefix: str | None
    rows: IntColumn

    def labels(self) -> list[Label]:
        ids: list[Label] = self.trace.nodes.id.tolist()
        return ids if self.prefix is None else [f"{self.prefix}{number}" for number in ids]

    def attributes(self) -> list[tuple[str, ...]]:
        trace, rows = self.trace, self.rows
        codes, first = np.unique(2 * trace.nodes.timed[rows] + (trace.nodes.kind[rows] == GPU), return_index=True)
        return [_ATTRIBUTES[bool(code // 2), bool(code % 2)] for code in codes[np.argsort(first)].tolist()]

    def nodes(self) -> Iterator[tuple[Label, tuple[str, ...], tuple[Any, ...]]]:
        trace, rows = self.trace, self.rows
        nodes = trace.nodes
        labels, on_gpu = self.labels(), nodes.kind[rows] == GPU
        kinds = nodes.kind.astype(np.int64)
        kinds[list(trace.comm)] = _COMM
        lane = np.where(on_gpu, nodes.stream[rows], nodes.thread[rows])
        columns = (column[rows].tolist() for column in (nodes.name, kinds, nodes.timed, nodes.ts, nodes.dur))
        values = zip(rows.tolist(), *columns, lane.tolist(), on_gpu.tolist(), strict=True)
        for row, name, kind, timed, ts, dur, where, gpu in values:
            times = (ts, dur) if timed else ()
            yield labels[row], _ATTRIBUTES[timed, gpu], (trace.names[name], _KINDS[kind], *times, where)

    def edges(self) -> Iterator[tuple[Label, Label, str]]:
        trace, count, labels = self.trace, len(self.trace), self.labels()
        wanted = mask_at(count, self.rows)
        called = np.flatnonzero(trace.nodes.parent_row >= 0)
        calls = np.stack([trace.nodes.parent_row[called], called, np.full(len(called), len(EDGE_KINDS))], axis=1)
        edges = np.concatenate([calls, trace.edges])
        source, target, kind = edges[wanted[edges[:, 0]] & wanted[edges[:, 1]]].T
        pairs, first, pair = np.unique(source * count + target, return_index=True, return_inverse=True)
        names = (*EDGE_KINDS, CALL)
        kinds = [names[code] for code in kind[first].tolist()]
        for place in np.setdiff1d(np.arange(len(pair)), first).tolist():
            kinds[pair[place]] += "+" + names[kind[place]]
        for place in np.lexsort((first, pairs // count)).tolist():
            a, b = divmod(int(pairs[place]), count)
            yield labels[a], labels[b], kinds[place]


@dataclass(frozen=True)
class Graph:
    parts: tuple[_TableRows, ...]

    def __len__(self) -> int:
        return sum(len(part.rows) for part in self.parts)

    def attributes(self) -> list[tuple[str, ...]]:
        return list(dict.fromkeys(names for part in self.parts for names in part.attributes()))

    def nodes(self) -> Iterator[tuple[Label, tuple[str, ...], tuple[Any, ...]]]:
        for part in self.parts:
            yield from part.nodes()

    def edges(self) -> Iterator[tuple[Label, Label, str]]:
        for part in self.parts:
            yield from part.edges()


# Maps a pair of flags (the node has times, the node is a GPU event) to the names of the node's attributes.
_ATTRIBUTES = {
    (timed, gpu): ("name", "kind", *(("ts_ns", "dur_ns") if timed else ()), "stream" if gpu else "thread")
    for timed in (False, True)
    for gpu in (False, True)
}


GRAPH_FORMATS = {"graphml": graphml, "dot": _dot, "networkx-json": _node_link}
