"""Which files say something of compiled or captured kernels: those that are given, or those beside a Kineto trace."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ...trace.brief import brief
from ...trace.errors import TraceFormatError
from ..text.files import Source, shown_name
from ..text.sniff import head_of
from .graph_annotations import NodeAnnotation, read_graph_annotations
from .kernel_information import CompiledGraph, read_kernel_information, read_node_mappings

_SIDECAR = re.compile(
    r"(?:(?P<stem>.+?)[._-])?(?:kernel_information|(?:inductor_)?provenance(?:_tracking_node_mappings)?(?:[._-].+)?)"
    r"\.json(?:\.gz)?",
    re.IGNORECASE,
)
_ANNOTATIONS = re.compile(r"kernel_annotations_rank(?P<rank>\d{1,6})(?!\d).*\.json(?:\.gz)?", re.IGNORECASE)
_FOLDER = "provenance"
_TIMELINE = re.compile(r"(?<![a-z0-9])(?:kineto(?:[._-]?trace)?|pt\.trace)(?![a-z])", re.IGNORECASE)
_SUFFIX = re.compile(r"\.(?:json|sqlite|pftrace)(?:\.gz)?$", re.IGNORECASE)
_RANK = re.compile(r"(?<!local)(?<!local[._-])(?<![a-z])rank[-_.]?(\d{1,6})(?!\d)|^(\d{1,6})(?=\.)", re.IGNORECASE)
_EDGES = "._-"
_KINDS = (
    (re.compile(rb"""\s*\{\s*"\((?:'|\\")"""), "information"),
    (re.compile(rb'(?s)\s*\{.{0,64}?"(?:preToPost|postToPre|cppCodeToPost|postToCppCode|version)"\s*:'), "mappings"),
    (re.compile(rb'\s*\{\s*"\d{1,20}"\s*:'), "annotations"),
    (re.compile(rb"\s*\{\s*\}"), "information"),
)
_REMEDY = (
    "give kernel_information.json, inductor_provenance_tracking_node_mappings.json, or graph annotations as JSON, by "
    "node id"
)


@dataclass(frozen=True)
class CompileFiles:
    """What all files say.

    Attributes:
        graphs: compiled graphs, in the order of the files.
        annotations: of the nodes of CUDA graphs, by node id.
        files: names of the files, without folders.
    """

    graphs: tuple[CompiledGraph, ...] = ()
    annotations: dict[int, NodeAnnotation] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    __repr__ = brief

    def __bool__(self) -> bool:
        return bool(self.graphs or self.annotations)


def read_compile_files(sources: Iterable[Source]) -> CompileFiles:
    """Read files, of which the contents say what each is.

    Raises:
        TraceFormatError: a file that is none of them, a pickle among others, which is not read.

    Example:
        >>> read_compile_files([b'{"12": {"module_fqn": "head"}}']).annotations[12].module
        'head'
    """
    graphs, annotations, names = list[CompiledGraph](), dict[int, NodeAnnotation](), list[str]()
    for source in sources:
        name = shown_name(source) if isinstance(source, (str, os.PathLike)) else "<bytes>"
        names.append(Path(name).name)
        kind = _kind_of(source, name)
        if kind == "information":
            graphs += read_kernel_information(source)
        elif kind == "mappings":
            graphs.append(read_node_mappings(source))
        else:
            annotations |= read_graph_annotations(source)
    return CompileFiles(tuple(graphs), annotations, tuple(names))


def _kind_of(source: Source, name: str) -> str:
    if not isinstance(source, (str, os.PathLike, bytes)):
        return "information"
    if not isinstance(source, bytes) and not Path(source).is_file():
        return "information"  # whose reader says what is wrong
    head = head_of(source)
    found = next((kind for form, kind in _KINDS if form.match(head)), None)
    if found is None:
        what = "is a Python pickle, which is not read" if head[:1] == b"\x80" else "says nothing of compiled kernels"
        raise TraceFormatError(name, "", what, _REMEDY)
    return found


def find_compile_files(kineto: object) -> list[str]:
    """The files beside a Kineto trace that are named after it, in order of name; none beside what is no file.

    Beside `NAME.kineto.json.gz` these are `NAME.kernel_information.json` and `NAME.provenance*.json`, gzipped or not; a
    NAME may lack its rank. Where there is no other Kineto trace in the folder they need no NAME. Annotations of graphs
    are `kernel_annotations_rank0*.json`, by rank, beside the trace or one folder above, as PyTorch has them.

    Example:
        >>> find_compile_files("no/such/rank-0.kineto.json.gz")
        []
    """
    if not isinstance(kineto, (str, os.PathLike)) or not Path(kineto).is_file():
        return []
    trace = Path(kineto)
    stem, rank = _stem_and_rank(trace.name)
    beside = _names(trace.parent)
    alone = sum(_TIMELINE.search(name) is not None for name in beside) <= 1
    found = [trace.parent / name for name in beside if _belongs(name, stem, rank, alone)]
    folder = trace.parent / _FOLDER
    if alone and folder.is_dir():
        found += [folder / name for name in _names(folder) if _SUFFIX.search(name)]
    for place in (trace.parent, trace.parent.parent):
        named = {name: of for name in _names(place) if (of := _ANNOTATIONS.fullmatch(name))}
        wanted = [name for name, of in named.items() if rank is None or int(of["rank"]) == rank]
        if wanted and (rank is not None or len({of["rank"] for of in named.values()}) == 1):
            found += [place / name for name in wanted]
            break
    return [str(file) for file in found]


def _belongs(name: str, stem: str, rank: int | None, alone: bool) -> bool:
    sidecar = _SIDECAR.fullmatch(name)
    if sidecar is None:
        return False
    of, of_rank = _stem_and_rank(sidecar["stem"] or "")
    if of_rank is not None and of_rank != rank:
        return False
    return of == stem or (alone and not of)


def _stem_and_rank(name: str) -> tuple[str, int | None]:
    """A trace's name without suffixes, the word for its kind and its rank; and its rank."""
    stem = _TIMELINE.sub("", _SUFFIX.sub("", name))
    rank = _RANK.search(stem)
    if rank is not None:
        stem = stem[: rank.start()] + stem[rank.end() :]
    return re.sub(r"[._-]+", ".", stem).strip(_EDGES).lower(), int(rank[1] or rank[2]) if rank is not None else None


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except OSError:
        return []
