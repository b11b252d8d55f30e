"""Graphs as GraphML and GEXF, which are XML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from html import escape
from itertools import chain

from .graph_table import Graph

__all__ = ["gexf", "graphml", "xml_text"]

_TYPES = {"name": "string", "kind": "string"}
_IN_ATTRIBUTE = str.maketrans({'"': "&quot;", "\r": "&#13;", "\n": "&#10;", "\t": "&#09;"})

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")

_GRAPHML = """\
<?xml version='1.0' encoding='utf-8'?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://graphml.graphdrawing.org/xmlns http://graphml.graphdrawing.org/xmlns/1.0/graphml.xsd">
"""
_GEXF = """\
<?xml version='1.0' encoding='utf-8'?>
<gexf xmlns="http://www.gexf.net/1.2draft" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" \
xsi:schemaLocation="http://www.gexf.net/1.2draft http://www.gexf.net/1.2draft/gexf.xsd" version="1.2">
  <meta>
    <creator>etplus</creator>
  </meta>
  <graph defaultedgetype="directed" mode="static" name="">
"""


def xml_text(text: str) -> str:
    """A text without the characters that XML 1.0 cannot hold (https://www.w3.org/TR/xml/#charsets)."""
    return _NOT_XML.sub("\ufffd", text)


def graphml(graph: Graph) -> Iterator[str]:
    """A graph as GraphML (http://graphml.graphdrawing.org), as networkx writes it."""
    keys = _numbered(graph)
    yield _GRAPHML
    declared = [*((key, "node") for key in keys), ("kind", "edge")]
    for at, (name, of) in reversed([*enumerate(declared)]):
        yield f'  <key id="d{at}" for="{of}" attr.name="{name}" attr.type="{_TYPES.get(name, "long")}" />\n'
    yield '  <graph edgedefault="directed">\n'
    data = {key: f'      <data key="d{at}">%s</data>\n' for key, at in keys.items()}
    texts = _templates(graph, '    <node id="%s">\n', data, "    </node>\n")
    for node, names, (name, *others) in graph.nodes():
        yield texts[names] % (node, _content(name), *others)
    edge = f'    <edge source="%s" target="%s">\n      <data key="d{len(keys)}">%s</data>\n    </edge>\n'
    for one in graph.edges():
        yield edge % one
    yield "  </graph>\n</graphml>\n\n"


def gexf(graph: Graph) -> Iterator[str]:
    """A graph as GEXF 1.2 (https://gexf.net), as networkx writes it but without the date."""
    keys = _numbered(graph)
    yield _GEXF
    yield f'    <attributes mode="static" class="edge">\n{_declared(len(keys), "kind")}    </attributes>\n'
    yield '    <attributes mode="static" class="node">\n'
    yield from (_declared(at, name) for name, at in keys.items())
    yield "    </attributes>\n    <nodes>\n"
    data = {key: f'          <attvalue for="{at}" value="%s" />\n' for key, at in keys.items()}
    end = "        </attvalues>\n      </node>\n"
    texts = _templates(graph, '      <node id="%s" label="%s">\n        <attvalues>\n', data, end)
    for node, names, (name, *others) in graph.nodes():
        yield texts[names] % (node, _value(name), _value(name), *others)
    yield "    </nodes>\n    <edges>\n"
    edge = (
        '      <edge source="%s" target="%s" id="%d">\n        <attvalues>\n'
        f'          <attvalue for="{len(keys)}" value="%s" />\n        </attvalues>\n      </edge>\n'
    )
    for at, (source, target, kind) in enumerate(graph.edges()):
        yield edge % (source, target, at, kind)
    yield "    </edges>\n  </graph>\n</gexf>\n\n"


def _numbered(graph: Graph) -> dict[str, int]:
    """The attributes of the nodes, numbered in the order in which they first appear."""
    return {name: at for at, name in enumerate(dict.fromkeys(chain(*graph.attributes())))}


def _templates(graph: Graph, begin: str, data: dict[str, str], end: str) -> dict[tuple[str, ...], str]:
    """By the names of a node's attributes its text, with a %s for each value."""
    return {names: begin + "".join(data[name] for name in names) + end for names in graph.attributes()}


def _declared(number: int, name: str) -> str:
    return f'      <attribute id="{number}" title="{name}" type="{_TYPES.get(name, "long")}" />\n'


@lru_cache(maxsize=1 << 14)
def _content(text: str) -> str:
    """A text as content of an element."""
    return escape(xml_text(text), quote=False)


@lru_cache(maxsize=1 << 14)
def _value(text: str) -> str:
    """A text as value of an attribute."""
    return escape(xml_text(text), quote=False).translate(_IN_ATTRIBUTE)
