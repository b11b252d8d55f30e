"""Read captures. A capture has the launch calls that were captured into CUDA or HIP graphs, and the calls around them.

The device runs nothing during capture, so captured launch calls have no kernel. HIP records each kernel's name and grid
in the arguments of the launch call, but CUDA records neither."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from ..schemas.execution_trace.arguments import WholeSides, whole_sides
from ..schemas.kineto.event_args import LaunchArgs, comm_of, launch_args
from ..schemas.kineto.input_args import NO_TENSORS
from ..schemas.kineto.kineto_calls import CpuCalls, cpu_calls, enclosing_call
from ..schemas.kineto.processes import one_process
from ..schemas.kineto.read_kineto import EventTable, KinetoTrace, read_kineto
from ..schemas.text.files import Source
from ..schemas.text.storage import open_folder
from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, distinct, mask_at, matching, positions, scatter
from ..trace.comm_kernels import Comm
from ..trace.conventions import CPU_CATEGORIES, PROFILER_STEP, PYTHON_CATEGORY
from ..trace.errors import TraceFormatError, UsageError
from ..trace.kinds import CPU
from ..trace.step_annotations import parse_capture
from ..trace.tables import ANNOTATION, MODULE, OP
from ..trace.tensors import inside_matters
from ..trace.trace import Trace
from .comm import RECORD_PARAM_COMMS, comm_of_node
from .join import attach_gpu_events
from .kineto_only import host_side
from .naming import ET, KINETO, look_at

# A Kineto trace of the capture phase, a pair of an ET and that Kineto trace, or a folder that contains these files.
CaptureSource = Source | tuple[Source, Source]
# The function `etplus.link`, passed as an argument because `link` imports this module.
PairLink = Callable[[Source, Source], Trace]

_BEGIN, _END = "StreamBeginCapture", "StreamEndCapture"
# During capture, these runtime calls add device work to a graph as nodes, so the trace has no GPU events for them.
_LAUNCH = re.compile(r"(?:cuda|cu|hip)(?!\w*Graph)\w*(?:Launch\w*Kernel|Memcpy|Memset)\w*")
_COPY_CALL, _FILL_CALL = re.compile(r"\w*Memcpy\w*"), re.compile(r"\w*Memset\w*")
_COPY_KERNEL, _FILL_KERNEL = "__amd_rocclr_copyBuffer", "__amd_rocclr_fillBuffer"
# Matches the input shapes of a call if one of its tensors has three or more dimensions.
_DIMS = re.compile(rb'"Input Dims": ?\[[^"]*\[\d+, ?\d+, ?\d+[^"]*')
# Launch calls of memcpys and memsets do not record the device event's name, so these keys replace it.
COPY, FILL = "<copy>", "<fill>"
_CATEGORY_KIND = {"cpu_op": OP, "user_annotation": ANNOTATION, PYTHON_CATEGORY: MODULE}
_FORWARD = "pass the Kineto trace of the run in which the graphs were captured"


@dataclass(frozen=True)
class Capture:
    """The trace of a capture phase; its launches are in call order."""

    file: str  # name of the trace file, without folders
    rank: int | None  # rank in the job, None if not recorded
    batch_size: tuple[int | None, ...]  # batch size for each graph; None if not recorded
    mode: tuple[str, ...]  # capture mode for each graph; "" if not recorded
    graph: IntColumn  # number of the graph that each launch was captured into; ascending
    kernel: list[str | None]  # `kernel_key` for each launch; None if the capture does not record the kernel
    grid: IntColumn  # grid and block for each launch, shape (n, 2, 3); −1 if not recorded
    op: IntColumn  # position of the innermost call around each launch; −1 if there is none
    name: list[str]  # name, kind and parent of the calls around launches, in order; see `CapturedGraphs`
    kind: npt.NDArray[np.int8]
    parent: IntColumn
    of_graph: IntColumn  # number of the graph that was being captured during each call; −1 if there was none
    texts: list[bytes]  # each call's inputs and outputs, as a JSON object
    comm: dict[int, Comm]  # maps a call's position to the call's communication
    notes: tuple[str, ...] = ()  # notes about launches and files that were skipped


def kernel_key(name: str, category: str = "kernel") -> str:
    """Return the key by which a launch call and its device event are matched. For memcpys and memsets, it is COPY or
    FILL; for all other events, it is the kernel's name. AMD's runtime implements memcpys and memsets as kernels."""
    if category == "gpu_memcpy" or name.startswith(_COPY_KERNEL):
        return COPY
    return FILL if category == "gpu_memset" or name.startswith(_FILL_KERNEL) else name


def captures_of(source: CaptureSource, link: PairLink, progress: bool) -> list[Capture]:
    """Read all captures in a file or folder. The first capture's `notes` also list the files without a capture."""
    found = [(str(name), _read_capture(et, name, link, progress)) for et, name in _files(source)]
    captures = [capture for _, capture in found if capture is not None]
    if not captures:
        where = found[0][0] if isinstance(source, (str, os.PathLike)) else "the capture"
        raise TraceFormatError(where, "", f"no graph is captured in it (no call of …{_BEGIN})", _FORWARD)
    left = tuple(
        f"{Path(name).name}: skipped, because no graph is captured in it" for name, capture in found if capture is None
    )
    return [replace(captures[0], notes=(*left, *captures[0].notes)), *captures[1:]]


def capture_files(name: str) -> list[str]:
    path = Path(name)
    return sorted(str(file) for file in path.rglob("*") if file.is_file()) if path.is_dir() else [name]


def _files(source: CaptureSource) -> list[tuple[Source | None, Source]]:
    if isinstance(source, tuple):
        return [source]
    if not isinstance(source, (str, os.PathLike)) or not Path(source).is_dir():
        return [(None, source)]
    folder = Path(source)
    place = open_folder(str(folder))
    files = [look_at(place, name) for name in sorted(place.files()) if not name.startswith(".")]
    recorded = [file for file in files if file.kind == KINETO]
    if not recorded:
        raise UsageError(f"{folder}: no Kineto trace among {len(files)} files; {_FORWARD}")
    ets = {file.stem: folder / file.name for file in files if file.kind == ET}
    return [(ets.get(file.stem), folder / file.name) for file in recorded]


def _read_capture(et: Source | None, source: Source, link: PairLink, progress: bool) -> Capture | None:
    kineto = one_process(read_kineto(source, progress=progress, modules=True))
    begin, end, thread = _windows(kineto)
    if not len(begin):
        return None
    recorded = link(et, source) if et is not None else None
    rows, graph, lost = _launches(kineto, begin, end, thread)
    calls = cpu_calls(kineto, CPU_CATEGORIES | {PYTHON_CATEGORY})
    events = kineto.events
    op = enclosing_call(calls, events.thread[rows].astype(np.int64), events.ts[rows], events.end[rows])
    kept, parent, op = _around(events, calls, op)
    args = [launch_args(text) for text in events.args_of(rows)]
    names = [events.names[code] for code in events.name[rows].tolist()]
    sizes, modes = _captured_for(kineto, calls, begin, thread)
    rank = kineto.distributed_info.get("rank")
    kinds = np.array([_CATEGORY_KIND.get(category, OP) for category in events.categories], np.int8)
    inside = np.maximum(_graph_at(events, calls.row[kept], begin, end, thread), _OUTSIDE)
    file = Path(kineto.file).name
    return Capture(
        file=file,
        rank=rank if type(rank) is int else None,
        batch_size=sizes,
        mode=modes,
        graph=graph,
        kernel=list(map(_key_of_launch, names, args)),
        grid=np.array([launch.dimensions for launch in args], np.int64).reshape(-1, 2, 3),
        op=op,
        name=[events.names[code] for code in calls.name[kept].tolist()],
        kind=kinds[events.category[calls.row[kept]]],
        parent=parent,
        of_graph=inside,
        texts=_texts(kineto, calls, kept, recorded),
        comm=_comm(events, calls, kept, recorded),
        notes=(f"{file}: skipped {lost} launches made while several graphs were being captured",) if lost else (),
    )


def _windows(kineto: KinetoTrace) -> tuple[IntColumn, IntColumn, IntColumn]:
    events = kineto.events
    is_begin, is_end = ([name.endswith(word) for name in events.names] for word in (_BEGIN, _END))
    rows = np.flatnonzero(events.runtime_mask() & np.array(is_begin, np.bool_)[events.name])
    ends = np.flatnonzero(events.runtime_mask() & np.array(is_end, np.bool_)[events.name])
    both = np.concatenate([rows, ends])
    both = both[np.argsort(events.ts[both], kind="stable")]
    opened: dict[int, list[int]] = {}
    end_of: dict[int, int] = {}
    begins = set(rows.tolist())
    for row in both.tolist():
        stack = opened.setdefault(int(events.thread[row]), [])
        if row in begins:
            stack.append(row)
        elif stack:
            end_of[stack.pop()] = int(events.ts[row])
    last = int(events.end.max(initial=0))
    rows = rows[np.argsort(events.ts[rows], kind="stable")]
    ends = np.array([end_of.get(row, last) for row in rows.tolist()], np.int64)
    return events.ts[rows], ends, events.thread[rows].astype(np.int64)


def _launches(
    kineto: KinetoTrace, begin: IntColumn, end: IntColumn, thread: IntColumn
) -> tuple[IntColumn, IntColumn, int]:
    """Return the event rows of all captured launch calls (by graph, then time), their graphs, and the number of skipped
    calls. Skip calls on threads that capture nothing while several others do, because their graph is ambiguous."""
    events = kineto.events
    calls = np.flatnonzero(events.runtime_mask())
    rows = calls[_launching(events, calls)[events.name[calls]]]
    of_trace = cpu_calls(kineto)
    launched = attach_gpu_events(kineto, of_trace, np.ones(len(of_trace), np.bool_)).launcher
    rows = rows[~np.isin(rows, launched)]
    rows = rows[np.argsort(events.ts[rows], kind="stable")]
    graph = _graph_at(events, rows, begin, end, thread)
    lost = int(np.count_nonzero(graph == _SEVERAL))
    captured = graph >= 0
    rows, graph = rows[captured], graph[captured]
    order = np.argsort(graph, kind="stable")
    return rows[order], graph[order], lost


def _launching(events: EventTable, calls: IntColumn) -> npt.NDArray[np.bool_]:
    """Return a mask of event names: True for known launch calls, and for calls that record a kernel as an argument."""
    codes, first = np.unique(events.name[calls], return_index=True)
    launching = np.zeros(len(events.names), np.bool_)
    for code, args in zip(codes.tolist(), events.args_of(calls[first]), strict=True):
        launching[code] = _LAUNCH.fullmatch(events.names[code]) is not None or launch_args(args).kernel is not None
    return launching


_OUTSIDE, _SEVERAL = -1, -2


def _graph_at(events: EventTable, rows: IntColumn, begin: IntColumn, end: IntColumn, thread: IntColumn) -> IntColumn:
    """Return the graph being captured when each event starts: the innermost on its thread, or else the only one."""
    ts, graph = events.ts[rows], np.full(len(rows), _OUTSIDE, np.int64)
    for number, (first, last, own) in enumerate(zip(begin.tolist(), end.tolist(), thread.tolist(), strict=True)):
        graph[(events.thread[rows] == own) & (first <= ts) & (ts <= last)] = number  # the inner capture begins later
    for at in np.flatnonzero(graph == _OUTSIDE).tolist():
        opened = np.flatnonzero((begin <= ts[at]) & (ts[at] <= end))
        graph[at] = _OUTSIDE if not len(opened) else opened[0] if len(opened) == 1 else _SEVERAL
    return graph


def _around(events: EventTable, calls: CpuCalls, op: IntColumn) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Return three arrays: calls around launches and callees that describe them, each call's caller, and the call
    around each launch. Omit annotations that only mark the capture (SGLang, vLLM, profiler steps)."""
    names = [parse_capture(name) is None and PROFILER_STEP.fullmatch(name) is None for name in events.names]
    wanted = np.array(names, np.bool_)[calls.name]
    every = with_callers(op, calls.parent)
    around = every[wanted[every]]
    kept = distinct(np.concatenate([around, _describing(events, calls, every)]))
    above = nearest(calls.parent[kept], calls.parent, mask_at(len(calls), around))
    return kept, positions(kept, above), positions(kept, nearest(op, calls.parent, wanted))


def _describing(events: EventTable, calls: CpuCalls, every: IntColumn) -> IntColumn:
    """Return calls that launch nothing but show the input shapes of an operator's work (`inside_matters`). Return each
    kind of call only once per operator. Consider only calls that have a tensor with three or more dimensions."""
    of_interest = matching(calls.name, events.names, inside_matters)
    of_interest &= mask_at(len(calls), every)
    if not of_interest.any():
        return every[:0]
    operator = nearest(calls.parent, calls.parent, of_interest)
    op = np.array([_CATEGORY_KIND.get(category, OP) == OP for category in events.categories], np.bool_)
    inside = np.flatnonzero((operator >= 0) & ~mask_at(len(calls), every) & op[events.category[calls.row]])
    found: dict[tuple[int, int, bytes], int] = {}
    args = events.args_of(calls.row[inside])
    columns = (inside, operator[inside], calls.name[inside])
    for call, operator_of, name, text in zip(*(column.tolist() for column in columns), args, strict=True):
        if dims := _DIMS.search(text):
            found.setdefault((operator_of, name, dims[0]), call)
    return np.array(sorted(found.values()), np.int64)


def with_callers(ops: IntColumn, parent: IntColumn) -> IntColumn:
    """Return the calls in `ops` (ignore −1) and all their direct and indirect callers, sorted."""
    found, at = [ops[:0]], distinct(ops[ops >= 0])
    while len(at):
        found.append(at)
        at = distinct(parent[at])
        at = at[at >= 0]
    return distinct(np.concatenate(found))


def _captured_for(
    kineto: KinetoTrace, calls: CpuCalls, begin: IntColumn, thread: IntColumn
) -> tuple[tuple[int | None, ...], tuple[str, ...]]:
    """Return the batch size and capture mode for each graph. They are read from the annotation around its capture."""
    sizes, modes = list[int | None](), list[str]()
    for call in enclosing_call(calls, thread, begin, begin).tolist():
        size, mode = None, ""
        while call >= 0 and size is None:
            if found := parse_capture(kineto.events.names[calls.name[call]]):
                size, mode = found.size, found.mode
            call = int(calls.parent[call])
        sizes.append(size)
        modes.append(mode)
    return tuple(sizes), tuple(modes)


def _key_of_launch(name: str, args: LaunchArgs) -> str | None:
    if args.kernel is not None:
        return kernel_key(args.kernel)
    return COPY if _COPY_CALL.fullmatch(name) else FILL if _FILL_CALL.fullmatch(name) else None


def _texts(kineto: KinetoTrace, calls: CpuCalls, kept: IntColumn, recorded: Trace | None) -> list[bytes]:
    """Return each call's inputs and outputs from the ET. If a call has no ET node, return only Kineto's inputs."""
    pair, match = host_side(kineto, calls)
    node_of_call = scatter(len(calls), match.call, pair.nodes.node)
    nodes = map(whole_sides, pair.et.texts.tensors_of(node_of_call[kept]))
    given = [WholeSides() if bytes(node.inputs) == NO_TENSORS else WholeSides(node.inputs) for node in nodes]
    if recorded is not None:
        rows = _nodes_of(recorded, kineto.events.index[calls.row[kept]])
        has = np.flatnonzero(rows >= 0)
        for at, text in zip(has.tolist(), recorded.texts.texts(rows[has]), strict=True):
            given[at] = whole_sides(text)
    return [msgspec.json.encode(sides) for sides in given]


def _nodes_of(recorded: Trace, events: IntColumn) -> IntColumn:
    """Return each Kineto event's linked node; −1 for none. In a linked trace, node rows precede all other rows."""
    return positions(recorded.nodes.kineto_event[: np.count_nonzero(recorded.nodes.kind == CPU)], events)


def _comm(events: EventTable, calls: CpuCalls, kept: IntColumn, recorded: Trace | None) -> dict[int, Comm]:
    at = np.flatnonzero(np.array([name == RECORD_PARAM_COMMS for name in events.names], np.bool_)[calls.name[kept]])
    rows = calls.row[kept[at]]
    found = {call: comm_of(args, "") for call, args in zip(at.tolist(), events.args_of(rows), strict=True)}
    if recorded is not None:
        for call, node in zip(at.tolist(), _nodes_of(recorded, events.index[rows]).tolist(), strict=True):
            if node >= 0:
                (text,) = recorded.texts.texts(np.array([node]))
                found[call] = found[call].filled(msgspec.convert(comm_of_node(text), Comm))
    return found
