"""One door to all converters: ET+ or Chakra files of one or several ranks in, any of the formats out."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..schemas.errors import UsageError
from ..schemas.etplus import EtPlus
from ..schemas.etplus_document import EtPlusDocument
from ..schemas.etplus_reader import read_etplus
from .astra_sim import HOSTS, Host, for_simulator, write_astra_sim, write_groups
from .chakra import Written, chakra_messages, write_et
from .chakra_back import read_et, write_as_etplus, write_etplus
from .chrome import write_chrome
from .collectives import Agreement, agree, survey
from .graph import GRAPH_FORMATS, write_graph
from .jsonize import write_json

__all__ = ["FORMATS", "Conversion", "convert", "open_document"]

FORMATS = {
    "chakra": "Chakra protobuf (.et) with all that the ET+ holds",
    "astra-sim": "Chakra protobuf that ASTRA-sim runs to the end, and its group file",
    "json": "a Chakra trace as one JSON array",
    "jsonl": "the same, one JSON object a line",
    "etplus": "a Chakra trace, or an ET+ of another linker, as ET+",
    "chrome": "Chrome trace for ui.perfetto.dev, a process a rank",
    "graphml": "graph for networkx, yEd, Cytoscape",
    "gexf": "graph for Gephi",
    "dot": "graph for Graphviz; OUT.svg, .pdf or .png is drawn with it",
    "networkx-json": "graph as networkx.node_link_graph reads it",
}
"""Name of each output format, and what it is."""

_PER_RANK = ("chakra", "astra-sim")
_ONE_ONLY = ("json", "jsonl", "etplus")
_RANK_IN_NAME = re.compile(r"(?:rank|[._-])_?(\d{1,6})(?=[._-]|$)", re.ASCII | re.IGNORECASE)
_SUFFIX = re.compile(r"(?:\.(?:0|[1-9]\d*))?\.et(?:\.gz)?$|\.et(?:\.gz)?$", re.ASCII)

Input = str | os.PathLike[str] | EtPlus


@dataclass(frozen=True)
class Conversion:
    """What `convert` did.

    Attributes:
        files: names of the files written.
        nodes: how many nodes (for "chrome": slices) they have together.
        counts: what was changed or given up on the way, in words, and how often.
        notes: what else there is to know.
    """

    files: tuple[str, ...]
    nodes: int
    counts: Counter[str] = field(default_factory=Counter)
    notes: tuple[str, ...] = ()


def convert(
    sources: Input | Sequence[Input],
    output: str | os.PathLike[str],
    *,
    to: str = "chakra",
    as_prefix: bool | None = None,
    host: Host = "fold",
    memory_nodes: bool = False,
    rank: int | None = None,
    subtree: str | None = None,
    max_nodes: int | None = None,
) -> Conversion:
    """Convert ET+ or Chakra files.

    Several files are the ranks of one job. A file's rank is what Kineto's `distributedInfo` in it tells, else the number
    in its name ("rank3", ".3.et"), else its place among the files.

    Args:
        sources: files, or the document that `link` returned.
        output: the file to write; for several ranks of "chakra" and "astra-sim" a prefix, to which ".<rank>.et" is put.
        to: one of FORMATS.
        as_prefix: take `output` for a prefix (True) or a file (False); by default by the number of files.
        host: for "astra-sim", see `write_astra_sim`.
        memory_nodes: for "chakra", see `write_et`.
        rank: take this one of several files.
        subtree, max_nodes: for graphs, see `select_rows`.

    Raises:
        UsageError: a combination that makes no sense, or a file that cannot be written.
        TraceFormatError: an input that is not what it should be.
        ConvertError: an input that the format cannot express.
    """
    if to not in FORMATS:
        raise UsageError(f"unknown format {to!r}; one of: {', '.join(FORMATS)}")
    if host not in HOSTS:
        raise UsageError(f"unknown host mode {host!r}; one of: {', '.join(HOSTS)}")
    inputs = [sources] if isinstance(sources, (str, os.PathLike, EtPlus)) else list(sources)
    if not inputs:
        raise UsageError("nothing to convert; give an ET+ or .et file")
    ranks = _Ranks(inputs, rank)
    _refuse_overwriting(inputs, output)
    if to in _PER_RANK:
        prefix = len(ranks) > 1 if as_prefix is None else as_prefix
        if len(ranks) > 1 and not prefix:
            raise UsageError(f"{len(ranks)} ranks need as many files; give --out PREFIX")
        write = partial(write_astra_sim, host=host) if to == "astra-sim" else partial(_write_et, memory_nodes)
        return _per_rank(ranks, output, write, prefix=prefix, simulator=to == "astra-sim")
    if to in _ONE_ONLY:
        return _one(ranks, output, to)
    documents = dict(ranks.documents())
    notes = _notes(documents)
    if to == "chrome":
        trace = write_chrome(documents, output)
        unseen = {"edges left out, since a node of theirs has no time": trace.left_out} if trace.left_out else {}
        return Conversion((os.fspath(output),), trace.slices, Counter(unseen), notes)
    graph = write_graph(documents, output, to, subtree=subtree, max_nodes=max_nodes)
    total = sum(map(len, documents.values()))
    if len(graph) < total:
        notes += (f"{len(graph)} of {total} nodes were taken",)
    return Conversion((os.fspath(output),), len(graph), notes=notes)


def open_document(source: Input) -> EtPlusDocument:
    """Read a file of either kind: Chakra where the name ends in .et or .et.gz, else ET+."""
    if not isinstance(source, EtPlus) and _SUFFIX.search(os.fspath(source)):
        return read_et(source)
    return read_etplus(source)
