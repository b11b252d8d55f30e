"""Find where kernels of compiled code and annotated graphs come from, based on Kineto's arguments and compiler files.

Generated code calls its kernels in sequence, and Inductor numbers these calls (handles) as it writes them. In a trace,
these calls are the outermost operators below `## Call CompiledFxGraph … ##`. C++ kernels appear as
`graph_0_cpp_fused_…` (only with `cpp.enable_kernel_profile`), Triton kernels have their own name, and kernels that
PyTorch runs have the name of a PyTorch operator. Several calls can run the same kernel, and only their order
distinguishes them. Therefore, the linker accepts a match only if the whole sequence agrees."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..schemas.inductor.compile_files import CompiledGraph, CompiledKernel, CompileFiles
from ..schemas.inductor.graph_annotations import Frames, NodeAnnotation, annotated_args
from ..schemas.kineto.input_args import input_shapes
from ..schemas.kineto.kineto_calls import CpuCalls
from ..schemas.kineto.read_kineto import EventTable
from ..trace.brief import brief
from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, distinct, lists_by, mask_at, matching, scatter
from ..trace.errors import UNREADABLE
from ..trace.generated import CompiledSummary, GeneratedKernel, GeneratedKernels
from ..trace.index import as_positions
from ..trace.stacks import COMPILED, GRAPH_ANNOTATION, MODULE_FRAME, Stacks
from .join import Join

_KERNEL_KEYS = "kernel_file", "kernel_hash", "kernel_kwargs", "kernel_backend"
# Number of events to sample per name. If Triton launched any sampled event, all events with its name are read.
_SAMPLES = 3


@dataclass(frozen=True)
class CodeOrigins:
    """The origins of kernels, if the recorded Python frames do not show them."""

    kernels: tuple[GeneratedKernel, ...]
    place: IntColumn  # places of the nodes that run a generated kernel
    kernel: IntColumn  # the kernel that each node runs, as a position in `kernels`
    stacks: Mapping[int, Mapping[int, tuple[Frames, ...]]]  # stacks, keyed by evidence (see `Stacks`), then by place
    summary: dict[str, Any] | None  # the `etplus.compiled` object, None if there are no compiler files

    __repr__ = brief

    def generated(self, row: IntColumn) -> GeneratedKernels:
        if not len(self.place):
            return GeneratedKernels.none()
        rows = row[self.place]
        order = np.argsort(rows, kind="stable")
        return GeneratedKernels(self.kernels, as_positions(rows[order]), self.kernel[order])

    def with_frames(self, stacks: Stacks, row: IntColumn) -> Stacks:
        """Replace the recorded stacks of compiled code and graphs with the stacks in this object."""
        for evidence, of_places in self.stacks.items():
            places = list(of_places)
            of_rows = dict(zip(row[np.array(places, np.int64)].tolist(), of_places.values(), strict=True))
            stacks = stacks.with_stacks(of_rows, evidence)
        return stacks


def find_code_origins(join: Join, files: CompileFiles) -> CodeOrigins:
    compiled = match_compiled(join.kineto.events, join.calls, files.graphs) if files.graphs else None
    kernels, calls, codes = _generated_calls(join, compiled)
    node = join.node_of_call[calls]
    linked = node >= 0
    stacks = {COMPILED: {} if compiled is None else _compiled_stacks(join, compiled)}
    written, annotated = _annotated_stacks(join, files.annotations)
    stacks[COMPILED] = {**written, **stacks[COMPILED]}  # the handler's stacks mix up calls with the same name
    stacks[GRAPH_ANNOTATION] = annotated
    summary = None
    if files.files:
        matched = (0, 0, {}) if compiled is None else (compiled.graph_calls, len(compiled.call), compiled.refused)
        summary = msgspec.to_builtins(CompiledSummary(list(files.files), *matched, len(annotated)))
    known = {evidence: found for evidence, found in stacks.items() if found}
    return CodeOrigins(kernels, join.nodes.node[node[linked]], codes[linked], known, summary)


class _KernelEvent(msgspec.Struct, gc=False):
    args: dict[str, Any] = {}


_decode_kernel = msgspec.json.Decoder(_KernelEvent).decode


def _kernel_args(text: bytes) -> tuple[str, ...]:
    try:
        args = _decode_kernel(text).args
    except UNREADABLE:
        return ("",) * len(_KERNEL_KEYS)
    values = map(args.get, _KERNEL_KEYS)
    return tuple(value if isinstance(value, str) else "" for value in values)


def _generated_calls(
    join: Join, compiled: CompiledCalls | None
) -> tuple[tuple[GeneratedKernel, ...], IntColumn, IntColumn]:
    events, calls = join.kineto.events, join.calls
    args = _triton_args(events, calls.row, calls.name)
    of_call = dict(zip(compiled.call.tolist(), compiled.kernel.tolist(), strict=True)) if compiled is not None else {}
    known: dict[GeneratedKernel, int] = {}
    at, codes = sorted({*args, *of_call}), list[int]()
    for call in at:
        said = args.get(call, ("",) * len(_KERNEL_KEYS))
        if compiled is not None and call in of_call:
            graph, origin = compiled.kernels[of_call[call]]
            kernel = GeneratedKernel(origin.name, graph.region, graph.backward, origin.handle, origin.nodes, *said)
        else:
            kernel = GeneratedKernel(events.names[calls.name[call]], "", None, None, (), *said)
        codes.append(known.setdefault(kernel, len(known)))
    return tuple(known), np.array(at, np.int64), np.array(codes, np.int64)


def _triton_args(events: EventTable, row: IntColumn, name: IntColumn) -> dict[int, tuple[str, ...]]:
    """Return the arguments that Kineto records for Triton kernels, keyed by the call's position in `row`. A name that
    contains "::" belongs to a PyTorch operator. For other names, sample a few calls to see if Triton launched them."""
    is_op = matching(events.category[row], events.categories, "cpu_op".__eq__)
    plain = is_op & ~matching(name, events.names, lambda text: "::" in text or "#" in text)
    samples = _samples(name, plain)
    said = events.records.read(events.index[row[samples]], _kernel_args)
    launching = distinct(name[samples[np.array([any(of) for of in said], np.bool_)]])
    wanted = np.flatnonzero(plain & np.isin(name, launching)) if len(launching) else samples[:0]
    found = zip(wanted.tolist(), events.records.read(events.index[row[wanted]], _kernel_args), strict=True)
    return {call: args for call, args in found if any(args)}


def _samples(key: IntColumn, wanted: npt.NDArray[np.bool_]) -> IntColumn:
    at = np.flatnonzero(wanted)
    order = at[np.argsort(key[at], kind="stable")]
    begin = np.flatnonzero(np.diff(key[order], prepend=-1))
    end = np.append(begin[1:], len(order)) - 1 if len(order) else begin
    return distinct(np.concatenate([order[begin + (end - begin) * k // (_SAMPLES - 1)] for k in range(_SAMPLES)]))


def _compiled_stacks(join: Join, compiled: CompiledCalls) -> dict[int, tuple[Frames, ...]]:
    if not len(compiled.call):
        return {}
    calls = join.calls
    around = nearest(np.arange(len(calls)), calls.parent, mask_at(len(calls), compiled.call))
    kernel = scatter(len(calls), compiled.call, compiled.kernel)
    of_call = np.where(around >= 0, kernel[around], -1)
    of_node = np.append(join.of_nodes(of_call), -1)  # the last entry of the list is for parent −1
    parts = [(join.nodes.node, of_node[:-1]), (join.gpu_places, of_node[join.gpu_parent])]
    parts.append((join.runtime_places, of_node[join.runtime_parent]))
    stacks = [kernel.stacks for _, kernel in compiled.kernels]
    return {
        place: stacks[code]
        for places, codes in parts
        for place, code in zip(places[codes >= 0].tolist(), codes[codes >= 0].tolist(), strict=True)
        if stacks[code]
    }


def _annotated_stacks(
    join: Join, annotations: Mapping[int, NodeAnnotation]
) -> tuple[dict[int, tuple[Frames, ...]], dict[int, tuple[Frames, ...]]]:
    """Return the stacks of GPU events, keyed by place, from Inductor's trace handler and from graph annotations."""
    events, rows = join.kineto.events, join.gpu_row
    if not len(rows):
        return {}, {}
    if not annotations:
        samples = _samples(events.name[rows].astype(np.int64), np.ones(len(rows), np.bool_))
        if not any(own is not None for _, own in _args_of(events, rows[samples])):
            return {}, {}
    written, annotated = dict[int, tuple[Frames, ...]](), dict[int, tuple[Frames, ...]]()
    for place, (ids, own) in zip(join.gpu_places.tolist(), _args_of(events, rows), strict=True):
        given = next((annotations[node] for node in reversed(ids) if node in annotations), None)
        known = [annotation for annotation in (own, given) if annotation is not None]
        module = next((annotation.module for annotation in known if annotation.module), "")
        stacks = next((annotation.stacks for annotation in known if annotation.stacks), ())
        if module or (stacks and (given is not None or ids)):
            frame = (f"{MODULE_FRAME}{module}",) if module else ()
            annotated[place] = tuple((*frame, *stack) for stack in stacks or ((),))
        elif stacks:
            written[place] = stacks
    return written, annotated


def _args_of(events: EventTable, rows: IntColumn) -> Iterable[tuple[list[int], NodeAnnotation | None]]:
    return map(annotated_args, events.records.args(events.index[rows]))


_REGION, _GRAPH = "Torch-Compiled Region: ", "## Call CompiledFxGraph "
_FORWARD, _BACKWARD = "CompiledFunction", "CompiledFunctionBackward"
_OF_GRAPH = re.compile(r"graph_\d+_(?=cpp_)")
# In `torch._inductor.kernel`, these kernels have different names than their operators.
_AS_OPERATOR = {"bias_addmm": "addmm", "mm_dtype": "mm", "bmm_dtype": "bmm"}
_BIASED = "extern_kernels.bias_addmm"
# Reasons why etplus does not know which kernels a call of a compiled graph ran.
Refusal = Literal[
    "its region is not in the files", "its region has no kernels in the files", "its forward is not in the trace",
    "its kernels are in another order", "its operators have other shapes", "several graphs fit",
]  # fmt: skip


@dataclass(frozen=True)
class GraphCall:
    call: int  # position of the graph's call among all calls
    owner: int  # position of the region or backward call that called the graph
    region: str  # name of the region; "" for a backward call if its forward call is not in the trace
    backward: bool
    kernels: IntColumn  # positions of the outermost operators below the call, in order


@dataclass(frozen=True)
class CompiledCalls:
    call: IntColumn  # positions among all calls, ascending
    kernel: IntColumn  # the kernel that each call runs, as a position in `kernels`
    kernels: tuple[tuple[CompiledGraph, CompiledKernel], ...]  # each kernel and the graph that contains it
    graph_calls: int  # number of calls of compiled graphs in the trace
    refused: dict[str, int]  # number of unmatched calls of compiled graphs, keyed by the reason


def match_compiled(events: EventTable, calls: CpuCalls, graphs: Sequence[CompiledGraph]) -> CompiledCalls:
    found, refused = list[tuple[int, CompiledGraph, CompiledKernel]](), Counter[str]()
    known = _Graphs(graphs)
    made = graph_calls(events, calls)
    for _, siblings in groupby(sorted(made, key=lambda graph: (graph.owner, graph.call)), lambda graph: graph.owner):
        fits = [known.fit(graph_call, events, calls) for graph_call in siblings]
        several = sum(not isinstance(fit, str) for fit in fits) > 1  # the files contain only one graph for this region
        for fit in fits:
            if isinstance(fit, str) or several:
                refused[fit if isinstance(fit, str) else "several graphs fit"] += 1
            else:
                found += [(call, fit.graph, kernel) for call, kernel in fit.pairs]
    found.sort(key=lambda match: match[0])
    kernels: dict[tuple[object, ...], tuple[int, tuple[CompiledGraph, CompiledKernel]]] = {}
    codes = []
    for _, graph, kernel in found:
        key = graph.file, graph.region, graph.backward, kernel.handle, kernel.name
        codes.append(kernels.setdefault(key, (len(kernels), (graph, kernel)))[0])
    at = np.array([call for call, _, _ in found], np.int64)
    listed = tuple(kernel for _, kernel in kernels.values())
    return CompiledCalls(at, np.array(codes, np.int64), listed, len(made), dict(sorted(refused.items())))


def graph_calls(events: EventTable, calls: CpuCalls) -> list[GraphCall]:
    """Return the calls of compiled graphs in a trace, in order. A backward call belongs to the same region as its
    forward call. That is the last earlier call of a compiled function with the same sequence number. Autograd
    increments the number with each node that it creates, so earlier calls with the same number created no node."""
    kinds = np.array([_kind_of(name) for name in events.names], np.int8)[calls.name]
    graphs = np.flatnonzero(kinds == 1)
    if not len(graphs):
        return []
    owners = nearest(calls.parent[graphs], calls.parent, (kinds == 2) | (kinds == 4))
    is_op = np.array([category == "cpu_op" for category in events.categories], np.bool_)[events.category[calls.row]]
    inside = mask_at(len(calls), graphs)
    above = nearest(calls.parent, calls.parent, is_op | inside)
    outermost = np.flatnonzero(is_op & (above >= 0) & inside[above])
    order = outermost[np.argsort(above[outermost], kind="stable")]
    begin = np.searchsorted(above[order], graphs)
    end = np.searchsorted(above[order], graphs, side="right")
    forwards = np.flatnonzero((kinds == 3) & (calls.seq >= 0))
    made = []
    for graph, owner, first, last in zip(graphs.tolist(), owners.tolist(), begin.tolist(), end.tolist(), strict=True):
        if owner < 0:
            continue
        region, backward = owner, bool(kinds[owner] == 4)
        if backward:
            region = _region_of_backward(calls, forwards, kinds == 2, owner)
        name = events.names[calls.name[region]] if region >= 0 else ""
        made.append(GraphCall(graph, owner, name, backward, np.sort(order[first:last])))
    return made


def _kind_of(name: str) -> int:
    """Return 1 for the call of a graph, 2 for a region, 3 for a compiled function, 4 for its backward, else 0."""
    if name.startswith(_GRAPH):
        return 1
    return 2 if name.startswith(_REGION) else {_FORWARD: 3, _BACKWARD: 4}.get(name, 0)


def _region_of_backward(calls: CpuCalls, forwards: IntColumn, is_region: npt.NDArray[np.bool_], backward: int) -> int:
    same = forwards[(calls.seq[forwards] == calls.seq[backward]) & (calls.ts[forwards] < calls.ts[backward])]
    if calls.seq[backward] < 0 or not len(same):
        return -1
    forward = same[np.argmax(calls.ts[same])]
    return int(nearest(calls.parent[forward : forward + 1], calls.parent, is_region)[0])


class _CompiledFit(NamedTuple):
    graph: CompiledGraph
    pairs: list[tuple[int, CompiledKernel]]


class _Graphs:
    def __init__(self, graphs: Sequence[CompiledGraph]) -> None:
        self.by_region = lists_by(((graph.region, graph.backward) for graph in graphs), graphs)

    def fit(self, graph_call: GraphCall, events: EventTable, calls: CpuCalls) -> _CompiledFit | Refusal:
        candidates = self._candidates(graph_call)
        if not candidates:
            return "its region is not in the files" if graph_call.region else "its forward is not in the trace"
        if not any(graph.kernels for graph in candidates):
            return "its region has no kernels in the files"
        fits = list[_CompiledFit]()
        refusal: Refusal = "its kernels are in another order"
        for graph in candidates:
            fit = self._aligned(graph_call, graph, events, calls)
            if fit is None:
                continue
            if all(_shapes_agree(events, calls.row[call], kernel) for call, kernel in fit.pairs):
                fits.append(fit)
            else:
                refusal = "its operators have other shapes"
        if not fits:
            return refusal
        origins = [[(call, kernel.stacks, kernel.nodes) for call, kernel in fit.pairs] for fit in fits]
        return fits[0] if origins.count(origins[0]) == len(origins) else "several graphs fit"

    def _candidates(self, of: GraphCall) -> list[CompiledGraph]:
        if of.region:
            found = self.by_region.get((of.region, of.backward))
            if found:
                return found
            again = f"{of.region}_"  # after a recompilation, Dynamo appends a number to the name, as in 0/0_1
            regions = [key for key in self.by_region if key[1] == of.backward and key[0].startswith(again)]
            if regions:
                return [graph for region in regions for graph in self.by_region[region]]
        return [*self.by_region.get(("", of.backward), ()), *self.by_region.get(("", None), ())]

    def _aligned(
        self, graph_call: GraphCall, graph: CompiledGraph, events: EventTable, calls: CpuCalls
    ) -> _CompiledFit | None:
        """Return pairs of calls and kernels; None if their sequences differ. Skip operators that are not kernels of the
        graph. Also skip kernels that no call runs, such as C++ kernels if `cpp.enable_kernel_profile` is off."""
        names = [called_as_event(events.names[code]) for code in calls.name[graph_call.kernels].tolist()]
        occurring = set(names)
        kernels = [(_called_as(kernel.name), kernel) for kernel in graph.kernels]
        for own in self._own(graph, kernels):
            listed = [(name, kernel) for name, kernel in own if name in occurring]
            wanted = {name for name, _ in listed}
            called = zip(names, graph_call.kernels.tolist(), strict=True)
            made = [(name, call) for name, call in called if name in wanted]
            if made and [name for name, _ in made] == [name for name, _ in listed]:
                pairs = [(call, kernel) for (_, call), (_, kernel) in zip(made, listed, strict=True)]
                return _CompiledFit(graph, pairs)
        return None

    def _own(
        self, graph: CompiledGraph, kernels: list[tuple[str, CompiledKernel]]
    ) -> list[list[tuple[str, CompiledKernel]]]:
        """Return the lists of kernels that the graph may run. A file may repeat the kernels of a shorter backward graph
        first, so one list contains all kernels and the others omit such a repetition."""
        if not graph.backward:
            return [kernels]
        others = (other for (_, backward), found in self.by_region.items() if backward for other in found)
        lists = [other.kernels for other in others if other.file == graph.file]
        begins = {len(own) for own in lists if len(own) < len(graph.kernels) and graph.kernels[: len(own)] == own}
        return [kernels, *(kernels[begin:] for begin in sorted(begins, reverse=True))]


@lru_cache(maxsize=1 << 14)
def called_as_event(name: str) -> str:
    """Return an event's name for comparison: "::mm" for "aten::mm", "cpp_fused_0" for "graph_0_cpp_fused_0"."""
    space, colons, operator = name.rpartition("::")
    return f"::{operator}" if colons and space else _OF_GRAPH.sub("", name)


@lru_cache(maxsize=1 << 14)
def _called_as(kernel: str) -> str:
    """Return the name of a kernel in Inductor's files for comparison: "::addmm" for "extern_kernels.addmm"."""
    parts = kernel.split(".")
    if len(parts) == 1:
        return kernel
    operator = parts[3] if parts[:2] == ["torch", "ops"] and len(parts) > 3 else parts[1]
    return f"::{_AS_OPERATOR.get(operator, operator)}"


def _shapes_agree(events: EventTable, row: int, kernel: CompiledKernel) -> bool:
    if not kernel.shapes:
        return True
    recorded = input_shapes(events.records.texts.of(events.index[row : row + 1])[0])
    flat = [tuple(shape) for given in recorded for shape in (given if isinstance(given[0], list) else [given])]
    wanted = [shape for shape in kernel.shapes if shape][kernel.name == _BIASED :]
    left = iter(flat)
    return not flat or all(shape in left for shape in wanted)
