"""One door to all converters: ET+ or Chakra files of one or several ranks in, any of the formats out."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeGuard

from ..schemas.chakra.stream import read_chakra
from ..schemas.graph_arrays import GraphArrays, write_graph_arrays
from ..schemas.job_report import JobReport, read_job_report
from ..schemas.transaction import check_outputs, protect, transaction
from ..trace.errors import UsageError
from ..trace.trace import Trace
from .astra_sim import HOSTS, Host, for_simulator, write_astra_sim, write_groups
from .chakra import Written, chakra_messages, write_et
from .chakra_back import write_etplus, write_messages
from .chrome import write_chrome
from .collectives import RankComms, agree, survey
from .jsonize import write_json
from .npz import Split, graph_arrays, write_dataset
from .open import load

__all__ = ["EXTENSIONS", "FORMATS", "PACKED", "Conversion", "convert", "format_of", "names_a_file", "open_document"]

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
    "npz": "arrays in the form of TpuGraphs for learning; of several files a folder with a split",
}
"""Name of each output format, and what it is."""

EXTENSIONS = {
    ".et": "chakra", ".jsonl": "jsonl", ".etplus.json": "etplus", ".perfetto.json": "chrome", ".chrome.json": "chrome",
    ".graphml": "graphml", ".gexf": "gexf", ".dot": "dot", ".svg": "dot", ".pdf": "dot", ".png": "dot", ".npz": "npz",
}  # fmt: skip
"""Extension of a file to the format that it gets where none is asked for; all but `PACKED` with ".gz", too."""
PACKED = (".svg", ".pdf", ".png", ".npz")

_PER_RANK = ("chakra", "astra-sim")
_ONE_ONLY = ("json", "jsonl", "etplus")
_RANK_IN_NAME = re.compile(r"rank[_-]?(\d{1,6})|\.(\d{1,6})\.(?:et|json)", re.ASCII | re.IGNORECASE)
_SUFFIX = re.compile(r"(?:\.\d{1,6})?\.et(?:\.gz)?$", re.ASCII)
_NOT_SHOWN = "edges left out, since a node of theirs has no time"

Input = str | os.PathLike[str] | Trace


@dataclass(frozen=True)
class Conversion:
    """What `convert` did.

    Attributes:
        files: names of the files written.
        nodes: how many nodes (for "chrome": slices) they have together.
        counts: what was changed or given up on the way, in words, and how often.
        notes: what else there is to know.
        damage: what was wrong with the traces that the inputs were made of, in sentences.
    """

    files: tuple[str, ...]
    nodes: int
    counts: Counter[str] = field(default_factory=Counter)
    notes: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()


def format_of(output: str | os.PathLike[str]) -> str:
    """The format of `FORMATS` that a file's extension stands for: "dot" for "step.svg".

    Raises:
        UsageError: the extension stands for none.
    """
    name = Path(output).name.lower()
    for extension, form in EXTENSIONS.items():
        if name.removesuffix("" if extension in PACKED else ".gz").endswith(extension):
            return form
    known = ", ".join(EXTENSIONS)
    raise UsageError(f"{os.fspath(output)}: unknown extension; choose a format with --to, or one of {known}")


def names_a_file(output: str | os.PathLike[str], to: str) -> bool:
    """Whether an output of the command is the name of a file, not a prefix or folder for several: it has the format's
    extension, or is "-" or a device."""
    extensions = (".et", ".et.gz") if to in _PER_RANK else tuple(one for one, form in EXTENSIONS.items() if form == to)
    path = Path(output)
    special = path.exists() and not path.is_file() and not path.is_dir()
    return os.fspath(output) == "-" or path.name.lower().endswith(extensions) or special


@transaction()
def convert(
    sources: Input | Sequence[Input],
    output: str | os.PathLike[str],
    *,
    to: str | None = None,
    as_prefix: bool | None = None,
    host: Host = "fold",
    memory_nodes: bool = False,
    rank: int | None = None,
    subtree: str | None = None,
    max_nodes: int | None = None,
    job: str | os.PathLike[str] | None = None,
    split: Split = "model",
    config: Mapping[str, float] | None = None,
) -> Conversion:
    """Convert ET+ or Chakra files.

    Several files are the ranks of one job. A file's rank is what Kineto's `distributedInfo` in it tells, else the
    number in its name ("rank3", ".3.et"), else its place among the files. ::

        convert("et_plus.json.gz", "trace.0.et")
        convert(["rank0.json.gz", "rank1.json.gz"], "job", to="astra-sim")     # job.0.et, job.1.et, ...

    All files that are written appear together, or none of them does.

    Args:
        sources: files, or the document that `link` returned.
        output: the file to write; for several ranks of "chakra" and "astra-sim" a prefix, to which ".<rank>.et" is put.
        to: one of FORMATS; by default the one that the output's extension stands for, see `format_of`.
        as_prefix: take `output` for a prefix (True) or a file (False); by default by the number of files.
        host: for "astra-sim", see `write_astra_sim`.
        memory_nodes: for "chakra", see `write_et`.
        rank: take this one of several files.
        subtree, max_nodes: for graphs, see `select_rows`.
        job: the job_report.json of `etplus batch`: communications that do not match over the ranks are kept as
            computations, so that a simulator does not wait for ever, and the ranks' clocks are aligned.
        split, config: for "npz", see `write_dataset` and `graph_arrays`.

    Raises:
        UsageError: a combination that makes no sense, or a file that cannot be written or is an input.
        TraceFormatError: an input that is not what it should be.
        ConvertError: an input that the format cannot express.
    """
    inputs = [sources] if isinstance(sources, (str, os.PathLike, Trace)) else list(sources)
    if not inputs:
        raise UsageError("nothing to convert; give an ET+ or .et file")
    if host not in HOSTS:
        raise UsageError(f"unknown host mode {host!r}; one of: {', '.join(HOSTS)}")
    to = format_of(output) if to is None else to
    if to not in FORMATS:
        raise UsageError(f"unknown format {to!r}; one of: {', '.join(FORMATS)}")
    for source in inputs:
        if not isinstance(source, Trace):
            protect(source)
    known = None if job is None else read_job_report(os.fspath(job))
    if to in _ONE_ONLY:
        return _one(_only(inputs, rank, to), output, to)
    if to in _PER_RANK:
        write = (
            partial(write_astra_sim, host=host) if to == "astra-sim" else partial(write_et, memory_nodes=memory_nodes)
        )
        prefix = len(inputs) > 1 and rank is None if as_prefix is None else as_prefix
        return _per_rank(inputs, rank, os.fspath(output), write, known, prefix=prefix, simulator=to == "astra-sim")
    if to == "npz":
        return _arrays(inputs, rank, Path(os.fspath(output)), as_prefix, split, config)
    check_outputs([output])
    documents = dict(_documents(inputs, rank, known))
    notes = tuple(f"{one.file}: {note}" for one in documents.values() for note in one.notes)
    damage = tuple(sentence for one in documents.values() for sentence in one.damage)
    if to == "chrome":
        trace = write_chrome(documents, output)
        counts = Counter({_NOT_SHOWN: trace.left_out} if trace.left_out else {})
        return Conversion((os.fspath(output),), trace.slices, counts, notes, damage)
    from .graph import write_graph  # networkx takes longer to import than all the rest

    graph = write_graph(documents, output, to, subtree=subtree, max_nodes=max_nodes)
    total = sum(map(len, documents.values()))
    if len(graph) < total:
        notes += (f"{len(graph)} of {total} nodes were taken",)
    return Conversion((os.fspath(output),), len(graph), notes=notes, damage=damage)


def _arrays(
    inputs: Sequence[Input],
    rank: int | None,
    output: Path,
    as_prefix: bool | None,
    split: Split,
    config: Mapping[str, float] | None,
) -> Conversion:
    """One file, or a dataset: its files need not be ranks of one job."""
    if rank is None and as_prefix is False and len(inputs) > 1:
        raise UsageError(f"{len(inputs)} graphs make a dataset; give a folder's name, without .npz, as the output")
    if rank is None and (len(inputs) > 1 or as_prefix):
        nodes, damage = 0, list[str]()

        def graphs() -> Iterator[GraphArrays]:
            nonlocal nodes
            for source in inputs:
                document = open_document(source)
                damage.extend(document.damage)
                graph = graph_arrays(document, config=config)
                nodes += len(graph)
                yield graph

        files = tuple(write_dataset(graphs(), output, split))
        return Conversion(files, nodes, damage=tuple(damage))
    check_outputs([output])
    (document,) = dict(_documents(inputs, rank, None)).values()
    graph = graph_arrays(document, config=config)
    write_graph_arrays(graph, output)
    return Conversion((os.fspath(output),), len(graph), notes=tuple(document.notes), damage=document.damage)


def open_document(source: Input) -> Trace:
    """The trace in a file of any format, or the trace itself."""
    return source if isinstance(source, Trace) else load(source)


def _is_chakra(source: Input) -> TypeGuard[str | os.PathLike[str]]:
    return not isinstance(source, Trace) and os.fspath(source).endswith((".et", ".et.gz"))


def _documents(inputs: Sequence[Input], rank: int | None, job: JobReport | None) -> Iterator[tuple[int, Trace]]:
    """Ranks and documents one by one, or of one rank only, with the clock offsets that the job's report tells.

    Raises:
        UsageError: two files of a rank, or none of the one that is wanted.
    """
    files: dict[int, str] = {}
    for place, source in enumerate(inputs):
        document = open_document(source)
        own = _rank_of(document, source, place)
        if own in files:
            raise UsageError(f"{files[own]} and {document.file} are both of rank {own}; give one of them")
        files[own] = document.file
        if rank is None or rank == own:
            yield own, document if job is None else document.with_clock_offset(job.offset_of(own))
    if rank is not None and rank not in files:
        raise UsageError(f"no file of rank {rank}; there are ranks {', '.join(map(str, sorted(files)))}")


def _rank_of(document: Trace, source: Input, place: int) -> int:
    if document.rank is not None:
        return document.rank
    named = _RANK_IN_NAME.search("" if isinstance(source, Trace) else Path(source).name)
    return int(named[1] or named[2]) if named else place


def _only(inputs: Sequence[Input], rank: int | None, to: str) -> Input:
    """The one input of formats that hold one rank."""
    if rank is None and len(inputs) > 1:
        raise UsageError(f"{to} holds one rank; give one file, or choose one with --rank")
    if len(inputs) == 1:
        return inputs[0]
    for place, source in enumerate(inputs):
        if _rank_of(open_document(source), source, place) == rank:
            return source
    raise UsageError(f"no file of rank {rank}")


def _one(source: Input, output: str | os.PathLike[str], to: str) -> Conversion:
    check_outputs([output])
    files = (os.fspath(output),)
    if _is_chakra(source):
        if to == "etplus":
            return Conversion(files, write_etplus(source, output))
        return Conversion(files, write_json(output, *read_chakra(source), lines=to == "jsonl"))
    document = open_document(source)
    metadata, nodes, counts = chakra_messages(document)
    if to == "etplus":
        written = write_messages(document.file, metadata, nodes, output)
    else:
        written = write_json(output, metadata, nodes, lines=to == "jsonl")
    return Conversion(files, written, counts, document.notes, document.damage)


def _per_rank(
    inputs: Sequence[Input],
    rank: int | None,
    output: str,
    write: Callable[..., Written],
    job: JobReport | None,
    *,
    prefix: bool,
    simulator: bool,
) -> Conversion:
    """Read every rank for what ranks have to agree on, then (unless there is only one) again to write it."""
    found: list[RankComms] = []
    notes: list[str] = []
    damage: list[str] = []
    last: tuple[int, Trace] | None = None
    for last in _documents(inputs, rank, job):
        found.append(survey(last[1], last[0], job.unmatched(last[0]) if job else ()))
        notes += [f"{last[1].file}: {note}" for note in last[1].notes]
        damage += last[1].damage
    ranks = sorted(one.rank for one in found)
    if len(ranks) > 1 and not prefix:
        raise UsageError(f"{len(ranks)} ranks make as many files; give a prefix, a name without .et (-o PREFIX)")
    if simulator and len(ranks) > 1 and ranks != list(range(len(ranks))):
        missing = next(one for one in range(len(ranks)) if one not in ranks)
        raise UsageError(f"rank {missing} is missing; ASTRA-sim needs all ranks from 0 on")
    agreement = agree(found)
    if simulator:
        agreement = for_simulator(agreement)
    stem = output if prefix else _SUFFIX.sub("", output)
    paths = {one: f"{output}.{one}.et" if prefix else output for one in ranks}
    check_outputs(paths.values())
    counts: Counter[str] = Counter()
    nodes = 0
    for own, document in [last] if len(ranks) == 1 and last else _documents(inputs, rank, job):
        written = write(document, paths[own], comms=agreement.ranks[own])
        nodes += written.nodes
        counts += written.counts
    files = [paths[one] for one in ranks]
    if agreement.groups or (prefix and simulator):
        files += write_groups(agreement, stem)
    return Conversion(tuple(files), nodes, counts, (*agreement.notes, *notes), tuple(damage))
