"""Find what generated the kernels of compiled code and of annotated graphs, from Kineto's arguments and from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..schemas.inductor import CompileFiles, NodeAnnotation, annotated_args
from ..schemas.inductor.graph_annotations import Frames
from ..schemas.kineto.read_kineto import EventTable
from ..trace.brief import brief
from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, distinct, mask_at, matching, scatter
from ..trace.errors import UNREADABLE
from ..trace.generated import CompiledSummary, GeneratedKernel, GeneratedKernels
from ..trace.index import as_positions
from ..trace.stacks import COMPILED, GRAPH_ANNOTATION, MODULE_FRAME, Stacks
from .join import Join

if TYPE_CHECKING:
    from .compiled_calls import CompiledCalls

_KERNEL_KEYS = "kernel_file", "kernel_hash", "kernel_kwargs", "kernel_backend"
_SAMPLES = 3
"""Events of a name whose arguments are read before those of all are."""


@dataclass(frozen=True)
class CodeOrigins:
    """Origins of kernels besides recorded Python frames, by place (see `Join`).

    Attributes:
        kernels: generated kernels. place: int64, of nodes. kernel: int64, position in `kernels` of each one's.
        stacks: by evidence of `Stacks`, the stacks of places.
        summary: `etplus.compiled`; None without files.
    """

    kernels: tuple[GeneratedKernel, ...] = ()
    place: IntColumn = field(default_factory=lambda: np.zeros(0, np.int64))
    kernel: IntColumn = field(default_factory=lambda: np.zeros(0, np.int64))
    stacks: Mapping[int, Mapping[int, tuple[Frames, ...]]] = field(default_factory=dict)
    summary: dict[str, Any] | None = None

    __repr__ = brief

    def generated(self, row: IntColumn) -> GeneratedKernels:
        """Return the generated kernels of a trace; `row` is that of each place."""
        if not len(self.place):
            return GeneratedKernels.none()
        rows = row[self.place]
        order = np.argsort(rows, kind="stable")
        return GeneratedKernels(self.kernels, as_positions(rows[order]), self.kernel[order])

    def with_frames(self, stacks: Stacks, row: IntColumn) -> Stacks:
        """Replace recorded stacks of compiled code and of graphs by these."""
        for evidence, of_places in self.stacks.items():
            places = list(of_places)
            of_rows = dict(zip(row[np.array(places, np.int64)].tolist(), of_places.values(), strict=True))
            stacks = stacks.with_stacks(of_rows, evidence)
        return stacks


def find_code_origins(join: Join, files: CompileFiles) -> CodeOrigins:
    """Find what generated the kernels of a trace, and the source lines that they implement."""
    compiled = _match_compiled(join, files) if files.graphs else None
    kernels, calls, codes = _generated_calls(join, compiled)
    node = join.node_of_call[calls]
    linked = node >= 0
    stacks = {COMPILED: {} if compiled is None else _compiled_stacks(join, compiled)}
    written, annotated = _annotated_stacks(join, files.annotations)
    stacks[COMPILED] = {**written, **stacks[COMPILED]}  # the handler does not tell calls of one name apart
    stacks[GRAPH_ANNOTATION] = annotated
    summary = None
    if files.files:
        matched = (0, 0, {}) if compiled is None else (compiled.graph_calls, len(compiled.call), compiled.refused)
        summary = msgspec.to_builtins(CompiledSummary(list(files.files), *matched, len(annotated)))
    known = {evidence: found for evidence, found in stacks.items() if found}
    return CodeOrigins(kernels, join.nodes.node[node[linked]], codes[linked], known, summary)


def _match_compiled(join: Join, files: CompileFiles) -> CompiledCalls:
    from .compiled_calls import match_compiled  # of the few traces that the compiler's files are beside

    return match_compiled(join.kineto.events, join.calls, files.graphs)


class _KernelArgs(msgspec.Struct, gc=False):
    kernel_file: Any = ""
    kernel_hash: Any = ""
    kernel_kwargs: Any = ""
    kernel_backend: Any = ""


class _KernelEvent(msgspec.Struct, gc=False):
    args: _KernelArgs = msgspec.field(default_factory=_KernelArgs)


_decode_kernel = msgspec.json.Decoder(_KernelEvent).decode


def _kernel_args(text: bytes) -> tuple[str, ...]:
    """Return what Triton's launcher records about a kernel, "" for missing values."""
    try:
        args = _decode_kernel(text).args
    except UNREADABLE:
        return ("",) * len(_KERNEL_KEYS)
    values = (getattr(args, key) for key in _KERNEL_KEYS)
    return tuple(value if isinstance(value, str) else "" for value in values)


def _generated_calls(
    join: Join, compiled: CompiledCalls | None
) -> tuple[tuple[GeneratedKernel, ...], IntColumn, IntColumn]:
    """Return the generated kernels, the calls that launched one, and the position of each one's kernel."""
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
    """Return what Kineto records about the Triton kernel that a call launches, by position in `row`.

    PyTorch's operators have a namespace. For every other name, a few calls show whether it is a kernel.
    """
    is_op = matching(events.category[row], events.categories, "cpu_op".__eq__)
    plain = is_op & ~matching(name, events.names, lambda text: "::" in text or "#" in text)
    samples = _samples(name, plain)
    said = events.records.read(events.index[row[samples]], _kernel_args)
    launching = distinct(name[samples[np.array([any(of) for of in said], np.bool_)]])
    wanted = np.flatnonzero(plain & np.isin(name, launching)) if len(launching) else samples[:0]
    found = zip(wanted.tolist(), events.records.read(events.index[row[wanted]], _kernel_args), strict=True)
    return {call: args for call, args in found if any(args)}


def _samples(key: IntColumn, wanted: npt.NDArray[np.bool_]) -> IntColumn:
    """Return positions of the first, a middle and the last wanted event of every key, ascending."""
    at = np.flatnonzero(wanted)
    order = at[np.argsort(key[at], kind="stable")]
    begin = np.flatnonzero(np.diff(key[order], prepend=-1))
    end = np.append(begin[1:], len(order)) - 1 if len(order) else begin
    return distinct(np.concatenate([order[begin + (end - begin) * k // (_SAMPLES - 1)] for k in range(_SAMPLES)]))


def _compiled_stacks(join: Join, compiled: CompiledCalls) -> dict[int, tuple[Frames, ...]]:
    """Return, by place, the stacks of everything at or below a call of a kernel."""
    if not len(compiled.call):
        return {}
    calls = join.calls
    around = nearest(np.arange(len(calls)), calls.parent, mask_at(len(calls), compiled.call))
    kernel = scatter(len(calls), compiled.call, compiled.kernel)
    of_call = np.where(around >= 0, kernel[around], -1)
    of_node = join.of_nodes(of_call)
    parts = (
        (join.nodes.node, of_node),
        (join.gpu_places, _of_parents(of_node, join.gpu_parent)),
        (join.runtime_places, _of_parents(of_node, join.runtime_parent)),
    )
    stacks = [kernel.stacks for _, kernel in compiled.kernels]
    return {
        place: stacks[code]
        for places, codes in parts
        for place, code in zip(places[codes >= 0].tolist(), codes[codes >= 0].tolist(), strict=True)
        if stacks[code]
    }


def _of_parents(of_node: IntColumn, parent: IntColumn) -> IntColumn:
    return np.where(parent >= 0, of_node[parent], -1) if len(of_node) else parent


def _annotated_stacks(
    join: Join, annotations: Mapping[int, NodeAnnotation]
) -> tuple[dict[int, tuple[Frames, ...]], dict[int, tuple[Frames, ...]]]:
    """Return, by place of a GPU event, the stacks that Inductor's trace handler wrote, and those of its graph
    annotation, whose outermost frame is the module."""
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
        module = next(
            (annotation.module for annotation in (own, given) if annotation is not None and annotation.module), ""
        )
        stacks = next(
            (annotation.stacks for annotation in (own, given) if annotation is not None and annotation.stacks), ()
        )
        if module or (stacks and (given is not None or ids)):
            frame = (f"{MODULE_FRAME}{module}",) if module else ()
            annotated[place] = tuple((*frame, *stack) for stack in stacks or ((),))
        elif stacks:
            written[place] = stacks
    return written, annotated


def _args_of(events: EventTable, rows: IntColumn) -> Iterable[tuple[list[int], NodeAnnotation | None]]:
    return map(annotated_args, events.records.args(events.index[rows]))
