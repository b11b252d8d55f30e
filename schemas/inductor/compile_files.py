"""Read files about compiled or captured kernels. The user passes such files, or they are next to a Kineto trace."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ...trace.brief import brief
from ...trace.errors import UNREADABLE, TraceFormatError
from ..text.files import Source, load, shown_name
from ..text.sniff import head_of
from .graph_annotations import Frames, NodeAnnotation, frames_of_traceback, read_graph_annotations

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
    graphs: tuple[CompiledGraph, ...] = ()
    annotations: dict[int, NodeAnnotation] = field(default_factory=dict)  # Maps CUDA graph node ids to annotations.
    files: tuple[str, ...] = ()  # file names without folders

    __repr__ = brief

    def __bool__(self) -> bool:
        return bool(self.graphs or self.annotations)


def read_compile_files(sources: Iterable[Source]) -> CompileFiles:
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
        return "information"  # `read_kernel_information` reports that the file is missing.
    head = head_of(source)
    found = next((kind for form, kind in _KINDS if form.match(head)), None)
    if found is None:
        what = "is a Python pickle, which is not read" if head[:1] == b"\x80" else "has no data on compiled kernels"
        raise TraceFormatError(name, "", what, _REMEDY)
    return found


def find_compile_files(kineto: object) -> list[str]:
    """Return the compiler's files that belong to `NAME.kineto.json.gz`, such as `NAME.kernel_information.json`.

    A file's NAME may lack the rank, or be missing if the folder contains only one Kineto trace. Graph annotations
    (`kernel_annotations_rank0*.json`) are in the trace's folder or in its parent, where PyTorch writes them.
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


_REGION = re.compile(r"""\((['"])(.*)\1, (True|False)\)""", re.DOTALL)
_KERNEL_REMEDY = "give the file with the output of torch._inductor.debug.get_kernel_information_jsons()"
_MAPPING_REMEDY = "give inductor_provenance_tracking_node_mappings.json from the output of torch._inductor.config.trace"
_DIRECTION = re.compile(r"(?:^|[._])(?:\d+_)?(forward|backward|inference)(?=[._]|$)")


@dataclass(frozen=True)
class CompiledKernel:
    """A call in generated code: a kernel that Inductor generated, or an operator that the code calls."""

    name: str  # such as "triton_poi_fused_gelu_1", "extern_kernels.addmm" or "torch.ops.aten.sort.default"
    handle: int  # Handles increase in call order.
    stacks: tuple[Frames, ...] = ()  # distinct stacks of the kernel's source nodes, in file order
    nodes: tuple[str, ...] = ()  # names of the kernel's source nodes in the graph before autograd
    # Shapes of an operator's tensor inputs; None if a shape was not recorded, or if a size is not an integer.
    shapes: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True)
class CompiledGraph:
    region: str  # such as "Torch-Compiled Region: 0/0"; "" if not recorded
    backward: bool | None  # None if not recorded
    kernels: tuple[CompiledKernel, ...]  # may include kernels of graphs that were compiled earlier
    file: str


class _Kernel(msgspec.Struct, gc=False):
    stack_traces: list[str] = []
    pre_grad_nodes: list[str] = []
    input_shapes: list[list[Any]] | None = None


_Given = dict[str, dict[str, _Kernel | list[str] | None]]


class _Mappings(msgspec.Struct, gc=False):
    cppCodeToPost: dict[str, list[str]]
    postToPre: dict[str, list[str]] = {}


def read_kernel_information(source: Source) -> tuple[CompiledGraph, ...]:
    blob = load(source, trace=False)
    try:
        given = msgspec.json.decode(blob.data, type=_Given)
    except UNREADABLE as error:
        problem = f"is not kernel information from Inductor ({error})"
        raise TraceFormatError(blob.name, "", problem, _KERNEL_REMEDY) from None
    graphs = []
    for key, kernels in given.items():
        found = _REGION.fullmatch(key)
        if found is None:
            problem = "does not name a compiled region and direction"
            raise TraceFormatError(blob.name, f"key {key[:80]!r}", problem, _KERNEL_REMEDY)
        known = {name: _Kernel(given) if isinstance(given, list) else given for name, given in kernels.items()}
        made = [_kernel(name, kernel) for name, kernel in known.items()]
        graphs.append(CompiledGraph(found[2], found[3] == "True", _in_order(made), blob.name))
    return tuple(graphs)


def read_node_mappings(source: Source) -> CompiledGraph:
    """Read the node mappings of a graph. Only the file's or folder's name shows if the graph is forward or backward."""
    blob = load(source, trace=False)
    try:
        given = msgspec.json.decode(blob.data, type=_Mappings)
    except UNREADABLE as error:
        raise TraceFormatError(blob.name, "", f"has no node mappings ({error})", _MAPPING_REMEDY) from None
    made = [
        _kernel(name, _Kernel(pre_grad_nodes=[pre for node in nodes for pre in given.postToPre.get(node, ())]))
        for name, nodes in given.cppCodeToPost.items()
    ]
    found = _DIRECTION.findall("_".join(re.split(r"[/\\]", blob.name)[-2:]))
    return CompiledGraph("", found[-1] == "backward" if found else None, _in_order(made), blob.name)


def _kernel(key: str, given: _Kernel | None) -> CompiledKernel | None:
    """Return the kernel, or None if its name has no handle: Inductor lists some kernels again without a handle."""
    name, _, handle = key.rpartition(":")
    if not name or not (handle.isascii() and handle.isdecimal()) or len(handle) > 9:
        return None
    given = given or _Kernel()
    stacks = (frames_of_traceback(text) for text in given.stack_traces)
    shapes = given.input_shapes
    known = shapes is not None and all(type(size) is int for shape in shapes for size in shape)
    return CompiledKernel(
        name,
        int(handle),
        tuple(dict.fromkeys(stack for stack in stacks if stack)),
        tuple(dict.fromkeys(given.pre_grad_nodes)),
        tuple(map(tuple, shapes)) if shapes is not None and known else None,
    )


def _in_order(kernels: list[CompiledKernel | None]) -> tuple[CompiledKernel, ...]:
    return tuple(sorted((kernel for kernel in kernels if kernel is not None), key=lambda kernel: kernel.handle))
