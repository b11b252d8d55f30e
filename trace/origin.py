"""Find the phase, forward operator, module and source line of calls and GPU events.

Example: `MmBackward0` has the same sequence number as an earlier `aten::mm` on the forward thread, so `aten::mm` is its
forward operator and provides its module and source line. `MmBackward0` and its kernels have the phase "backward"."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from . import kinds
from .brief import Record
from .call_tree import nearest, nesting
from .columns import IntColumn, distinct, distinct_rows, matching, run_starts, scatter
from .comm_kernels import is_comm_kernel
from .index import CallIndex, ColumnOf, GpuIndex, Positions, as_column, as_positions
from .kinds import PHASES, THROUGH
from .stacks import GRAPH_ANNOTATION, MODULE_FRAME, SourceTable
from .tables import ANNOTATION, MODULE, OP

if TYPE_CHECKING:
    from .trace import Trace

__all__ = ["PHASES", "THROUGH", "Origin", "RowOrigin", "origin_of", "origin_of_rows"]

_SEQUENCE = 1
_Paths = list[tuple[str, ...]]

_ENGINE = "autograd::engine::evaluate_function: "
_FUNCTION = re.compile(rf"(?:{_ENGINE})?(?:.*::)?(\w+?)Backward\d*")
_BACKWARD_SCOPE = 1  # at::RecordScope::BACKWARD_FUNCTION in C++
_ACCUMULATES = re.compile(rf"(?:{_ENGINE})?(?:torch::autograd::)?AccumulateGrad")
# FSDP (torch/distributed/fsdp/_fully_shard) reduces gradients in these operators. DDP copies buckets in them.
_REDUCES = re.compile(
    rf"(?:{_ENGINE})?RegisterPostBackwardFunctionBackward|FSDP::post_backward.*"
    r"|torch\.distributed\.ddp\.reducer::.*"
)
_OPTIMIZER = re.compile(r"Optimizer\.(?:step|zero_grad)#.*|(?:aten::)?_(?:fused|foreach)_(?:adam|adamw|sgd|adagrad)\w*")
_DATA = re.compile(r"enumerate\(DataLoader\)#.*|DataLoader")
# A user annotation belongs to a phase if its name contains one of the phase's words.
_BY_WORD = {
    phase: re.compile(rf"(?i)(?:.*[^a-z])?(?:{words})(?:[^a-z].*)?")
    for phase, words in (
        (kinds.FORWARD, "forward|fwd"),
        (kinds.BACKWARD, "backward|bwd"),
        (kinds.OPTIMIZER, "optimi[sz]er|zero_grad"),
    )
}
_FRAMES = (
    (kinds.OPTIMIZER, re.compile(r"(?:.*/)?torch/optim/.*")),
    (kinds.DATA, re.compile(r"(?:.*/)?torch/utils/data/.*")),
)
_COMPILED = re.compile(r"Torch-Compiled Region: .*|## Call CompiledFxGraph .* ##|CompiledFunction")
_MANY_TENSORS = re.compile(r"aten::_(?:foreach|fused)_.*")


@dataclass(frozen=True, repr=False)
class Origin(Record):
    phase: ColumnOf[CallIndex, np.int8]  # index into `PHASES`
    forward: Positions[CallIndex, CallIndex]  # forward call of every call in the backward pass, or −1
    through: ColumnOf[CallIndex, np.int8]  # index into `THROUGH` that shows the evidence for `forward`
    # Position in `Trace.stacks` of the innermost stack entry of the call or its forward call, −1 if there is no stack.
    entry: ColumnOf[CallIndex, np.int64]
    module: ColumnOf[CallIndex, np.int64]  # index in `modules` of the innermost module, −1 if there is none
    modules: list[tuple[str, ...]]  # paths of modules and named regions, outermost first, without "nn.Module: "
    gpu_phase: ColumnOf[GpuIndex, np.int8]  # index into `PHASES`
    gpu_entry: ColumnOf[GpuIndex, np.int64]  # same as `entry`, for GPU events
    gpu_module: ColumnOf[GpuIndex, np.int64]  # same as `module`, for GPU events
    # Call that launched the GPU event; if unknown, the call that launched its counterpart in another iteration.
    gpu_call: Positions[GpuIndex, CallIndex]


def origin_of(trace: Trace) -> Origin:
    named = matching(trace.calls.name, trace.names, _is_backward) & (trace.calls.kind == OP)
    backward = named | (trace.nodes.scope[trace.calls.source] == _BACKWARD_SCOPE)
    trace = _with_lost_callers(trace, backward)
    calls, gpu = trace.calls, trace.gpu
    own_entry = trace.stacks.first_entry(calls.source)
    forward, through = _forward_of(trace, backward)
    phase = _phases(trace, backward, forward, own_entry)
    root = nearest(np.arange(len(phase)), calls.parent, forward >= 0)
    behind = np.where((root >= 0) & (phase == kinds.BACKWARD), np.append(forward, -1)[root], -1)
    table = trace.source_table
    stated = trace.stacks.stated(calls.source)
    entry = _with_forward(own_entry, behind, table, stated)
    paths, module = _module_paths(trace)
    paths, module = _inherited_modules(trace, paths, module, forward, behind, phase)
    gpu_call = gpu.call.copy()
    other = trace.counterpart
    gpu_call[other >= 0] = gpu.call[other[other >= 0]]
    has = gpu_call >= 0
    gpu_phase, gpu_module = np.zeros(len(gpu), np.int8), np.full(len(gpu), -1, np.int64)
    gpu_phase[has], gpu_module[has] = phase[gpu_call[has]], module[gpu_call[has]]
    gpu_module[(other >= 0) & ~gpu.same_module] = -1
    inside = np.isin(gpu_phase, (kinds.BACKWARD, kinds.ACCUMULATION))
    gpu_phase[trace.is_comm & inside] = kinds.GRADIENT_COMMUNICATION
    gpu_phase[trace.is_comm & (gpu_phase == kinds.UNKNOWN)] = kinds.COMMUNICATION
    gpu_own = np.where(gpu.source >= 0, trace.stacks.first_entry(gpu.source), -1)
    gpu_own = np.where(other >= 0, gpu_own[other], gpu_own)
    gpu_behind = scatter(len(gpu), has, behind[gpu_call[has]])
    stated = np.where(gpu.source >= 0, trace.stacks.stated(gpu.source), False) & _has_line(table, gpu_own)
    as_call = has & ((gpu_behind >= 0) | ~_has_own(table, gpu_own)) & ~stated
    paths, gpu_module = _with_annotated(trace, gpu_own, paths, gpu_module)
    gpu_entry = np.where(as_call, scatter(len(gpu), has, entry[gpu_call[has]]), gpu_own)
    passed = nearest(np.arange(len(through)), trace.calls.parent, through > 0)
    through_all = np.where((behind >= 0) & (passed >= 0), np.append(through, 0)[passed], 0).astype(np.int8)
    of_calls = as_column(phase), as_positions(behind), as_column(through_all), as_column(entry), as_column(module)
    of_gpu = as_column(gpu_phase), as_column(gpu_entry), as_column(gpu_module), as_positions(gpu_call)
    return Origin(*of_calls, paths, *of_gpu)


def _with_lost_callers(trace: Trace, backward: npt.NDArray[np.bool_]) -> Trace:
    """Return the trace with callers inferred from times on threads that recompute checkpoints. A recomputation ends
    with an exception. The ET observer then misses the ends of calls, and records wrong callers for later calls."""
    calls = trace.calls
    around = nearest(calls.parent, calls.parent, backward)
    recomputes = (around >= 0) & ~backward & (calls.kind == OP) & (trace.nodes.seq_id[calls.source] >= 0)
    if not trace.times_recorded or not recomputes.any():
        return trace
    order = np.lexsort((np.arange(len(calls)), -calls.end, calls.ts, calls.thread))
    outer = nesting(calls.thread[order], calls.ts[order], calls.end[order])
    by_time = scatter(len(calls), order, np.where(outer >= 0, order[outer], -1))
    ended = (calls.thread[calls.parent] == calls.thread) & (calls.ts >= calls.end[calls.parent])
    lost = ((calls.parent < 0) | ended) & np.isin(calls.thread, calls.thread[recomputes])
    lost &= (by_time < np.arange(len(calls))) & (by_time != calls.parent)
    if not lost.any():
        return trace
    parent = as_positions(np.where(lost, by_time, calls.parent))
    return trace.with_tables(replace(trace.tables, calls=replace(calls, parent=parent)))


def _is_backward(name: str) -> bool:
    function = name.rpartition("::")[2]
    return name.startswith((_ENGINE, "torch::autograd::")) or ("Backward" in function and function.isidentifier())


def _forward_of(trace: Trace, backward: npt.NDArray[np.bool_]) -> tuple[IntColumn, npt.NDArray[np.int8]]:
    calls, rows = trace.calls, trace.calls.source
    forward, through = np.full(len(calls), -1, np.int64), np.zeros(len(calls), np.int8)
    seq, fw_tid = trace.nodes.seq_id[rows], trace.nodes.fw_tid[rows]
    wanted = np.flatnonzero(backward & (forward < 0) & (seq >= 0))
    first = np.flatnonzero(~backward & (seq >= 0) & (calls.kind == OP))
    if len(wanted) and len(first):
        for same_thread in (True, False):
            open_ = wanted[forward[wanted] < 0]
            open_ = open_[(fw_tid[open_] > 0) == same_thread]
            if same_thread:
                forward_call = _last_before(trace, first, calls.thread, open_, fw_tid)
            else:
                forward_call = _on_any_thread(trace, first, open_)
            forward[open_] = forward_call
            through[open_[forward_call >= 0]] = _SEQUENCE
    _add_engine(trace, backward, forward, through)
    return forward, through


def _add_engine(
    trace: Trace, backward: npt.NDArray[np.bool_], forward: IntColumn, through: npt.NDArray[np.int8]
) -> None:
    """Copy the forward call of a backward function to the engine's call, because it has no sequence number."""
    calls = trace.calls
    inner = np.flatnonzero(forward >= 0)
    around = nearest(calls.parent[inner], calls.parent, backward)
    engine = matching(calls.name, trace.names, lambda name: name.startswith(_ENGINE))
    fits = (around >= 0) & engine[np.maximum(around, 0)] & (forward[np.maximum(around, 0)] < 0)
    names = [trace.names[code].removeprefix(_ENGINE) for code in calls.name[around[fits]].tolist()]
    own = [trace.names[code] for code in calls.name[inner[fits]].tolist()]
    same = np.flatnonzero(fits)[np.array([a == b for a, b in zip(names, own, strict=True)], np.bool_)]
    forward[around[same]], through[around[same]] = forward[inner[same]], through[inner[same]]


def _on_any_thread(trace: Trace, first: IntColumn, wanted: IntColumn) -> IntColumn:
    """Return forward calls if the forward thread is unknown. If several threads have candidates, names must match."""
    thread, nowhere = trace.calls.thread, np.zeros(len(trace.calls), np.int64)
    threads = distinct(thread[first])
    if len(threads) == 1:
        return _last_before(trace, first, nowhere, wanted, nowhere)
    parts = (_last_before(trace, first[thread[first] == one], nowhere, wanted, nowhere) for one in threads.tolist())
    several = np.zeros(len(wanted), np.int64)
    only, alike, fitting = np.full((3, len(wanted)), -1, np.int64)
    fitting[:] = 0
    for candidates in parts:
        has = np.flatnonzero(candidates >= 0)
        several[has] += 1
        only[has] = candidates[has]
        fits = has[_named_alike(trace, candidates[has], wanted[has])]
        fitting[fits] += 1
        alike[fits] = candidates[fits]
    return np.where(several == 1, only, np.where(fitting == 1, alike, -1))


def _named_alike(trace: Trace, forward: IntColumn, backward: IntColumn) -> npt.NDArray[np.bool_]:
    name = trace.calls.name
    pairs, of = distinct_rows(name[forward], name[backward])
    texts = ((trace.names[a], _FUNCTION.fullmatch(trace.names[b])) for a, b in pairs.tolist())
    same = [found is not None and _letters(found[1]) == _letters(text.rpartition("::")[2]) for text, found in texts]
    return np.array(same, np.bool_)[of]


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def _last_before(
    trace: Trace, first: IntColumn, thread: IntColumn, wanted: IntColumn, fw_thread: IntColumn
) -> IntColumn:
    calls, seq = trace.calls, trace.nodes.seq_id[trace.calls.source]
    both = np.concatenate([first, wanted])
    thread_of = np.concatenate([thread[first], fw_thread[wanted]])
    is_wanted = np.arange(len(both)) >= len(first)
    order = np.lexsort((both, is_wanted, calls.ts[both], seq[both], thread_of))
    last = np.where(is_wanted[order], -1, np.arange(len(both)))
    starts = run_starts(seq[both][order], thread_of[order])
    group = np.maximum.accumulate(np.where(starts, np.arange(len(both)), 0))
    last = np.maximum.accumulate(last)
    forward_call = np.where(last >= group, both[order][np.maximum(last, 0)], -1)
    return scatter(len(both), order, forward_call)[len(first) :]


def _phases(
    trace: Trace, backward: npt.NDArray[np.bool_], forward: IntColumn, entry: IntColumn
) -> npt.NDArray[np.int8]:
    calls, names = trace.calls, trace.names
    named = calls.kind != OP
    mark = np.full(len(calls), -1, np.int8)
    for code, words in _BY_WORD.items():
        mark[(calls.kind == ANNOTATION) & matching(calls.name, names, words.fullmatch)] = code
    mark[calls.kind == MODULE] = kinds.FORWARD
    mark[matching(calls.name, names, _OPTIMIZER.fullmatch)] = kinds.OPTIMIZER
    mark[named & matching(calls.name, names, _DATA.fullmatch)] = kinds.DATA
    mark[backward] = kinds.BACKWARD
    mark[matching(calls.name, names, _ACCUMULATES.fullmatch)] = kinds.ACCUMULATION
    mark[matching(calls.name, names, _REDUCES.fullmatch)] = kinds.GRADIENT_COMMUNICATION
    # operators have a sequence number only if autograd records them (at::GradMode); backward operators have none
    differentiable = (calls.kind == OP) & ~backward & (trace.nodes.seq_id[calls.source] >= 0)
    around = nearest(calls.parent, calls.parent, backward)
    again = (around >= 0) & (differentiable | (calls.kind == MODULE))
    mark[again & ~_in_grad_mode(trace, backward, differentiable)[around]] = kinds.RECOMPUTATION
    _mark_stacks(trace, mark, entry)
    behind = forward[forward >= 0]
    mark[behind[mark[behind] < 0]] = kinds.FORWARD
    free = nearest(np.arange(len(calls)), calls.parent, mark >= 0) < 0
    mark[free & (differentiable | matching(calls.name, names, _COMPILED.fullmatch))] = kinds.FORWARD
    if backward.any():
        mark[free & matching(calls.name, names, _MANY_TENSORS.fullmatch)] = kinds.OPTIMIZER
    at = nearest(np.arange(len(calls)), calls.parent, mark >= 0)
    phase = np.where(at >= 0, mark[at], kinds.UNKNOWN).astype(np.int8)
    communicates = matching(calls.name, names, _communicates)
    phase[communicates & np.isin(phase, (kinds.BACKWARD, kinds.ACCUMULATION))] = kinds.GRADIENT_COMMUNICATION
    inside = nearest(np.arange(len(calls)), calls.parent, communicates) >= 0
    phase[inside & (phase == kinds.UNKNOWN)] = kinds.COMMUNICATION
    if kinds.RECOMPUTATION in phase:
        _mark_detaches(trace, phase)
    return phase


def _mark_detaches(trace: Trace, phase: npt.NDArray[np.int8]) -> None:
    """Mark the `detach` calls with which a checkpoint passes recomputed tensors to the backward pass."""
    calls = trace.calls
    order = np.lexsort((-calls.end, calls.ts, calls.thread))
    detaches = (matching(calls.name, trace.names, ("aten::detach", "detach").__contains__) & (phase == kinds.BACKWARD))[
        order
    ]
    previous = np.maximum.accumulate(np.where(detaches, 0, np.arange(len(order))))
    phase[order[detaches & (phase[order[previous]] == kinds.RECOMPUTATION)]] = kinds.RECOMPUTATION


def _in_grad_mode(
    trace: Trace, backward: npt.NDArray[np.bool_], differentiable: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return a mask of the backward calls with `create_graph=True`. All operators that they call have sequence numbers.
    A checkpoint also calls operators without sequence numbers. The extra last entry is for calls without a root."""
    calls = trace.calls
    direct = (calls.parent >= 0) & ~backward & (calls.kind != ANNOTATION)
    without = np.append(matching(calls.name, trace.names, lambda name: "Checkpoint" in name), False)
    without[calls.parent[direct & ~differentiable]] = True  # these callers do not build a graph
    return ~without


def _communicates(name: str) -> bool:
    return is_comm_kernel(name) or name.startswith(("nccl:", "c10d::", "gloo:", "mpi:", "record_param_comms"))


def _mark_stacks(trace: Trace, mark: npt.NDArray[np.int8], entry: IntColumn) -> None:
    stacks = trace.stacks
    if not len(stacks):
        return
    of_name = np.full(len(stacks.names), -1, np.int8)
    for code, name in enumerate(stacks.names):
        if name.startswith(MODULE_FRAME):
            of_name[code] = kinds.FORWARD
        for phase, files in _FRAMES:
            if files.fullmatch(name):
                of_name[code] = phase
    of_entry = of_name[stacks.name]
    innermost = nearest(np.arange(len(stacks)), stacks.above, of_entry >= 0)
    marked = nearest(np.arange(len(mark)), trace.calls.parent, mark >= 0) >= 0
    unmarked = np.flatnonzero((entry >= 0) & ~marked)
    found = innermost[entry[unmarked]]
    mark[unmarked] = np.where(found >= 0, of_entry[np.maximum(found, 0)], -1)


def _inherited_modules(
    trace: Trace, paths: _Paths, module: IntColumn, forward: IntColumn, behind: IntColumn, phase: npt.NDArray[np.int8]
) -> tuple[_Paths, IntColumn]:
    """Give each call without a module the module of its forward call. Add the outer modules to recomputed modules."""
    if not len(module):
        return paths, module
    at = nearest(np.arange(len(phase)), trace.calls.parent, forward >= 0)
    checkpoint = np.where((phase == kinds.RECOMPUTATION) & (at >= 0), forward[np.maximum(at, 0)], -1)
    again = np.flatnonzero((checkpoint >= 0) & (module >= 0) & (module[checkpoint] >= 0))
    known = {path: code for code, path in enumerate(paths)}
    pairs, pair = distinct_rows(module[again], module[checkpoint[again]])
    whole = []
    for inner, outer in ((paths[inner], paths[outer]) for inner, outer in pairs.tolist()):
        above = outer[: outer.index(inner[0])] if inner[0] in outer else outer  # modules around it, from forward
        whole.append(known.setdefault(above + inner, len(known)))
    module = np.where((module < 0) & (checkpoint >= 0), module[checkpoint], module)
    module[again] = np.array(whole, np.int64)[pair]
    return list(known), np.where((module < 0) & (behind >= 0), module[behind], module)


def _has_own(table: SourceTable, entry: IntColumn) -> npt.NDArray[np.bool_]:
    own = np.array([line.own for line in table.lines], np.bool_)
    code = np.where(entry >= 0, table.of_entry[np.maximum(entry, 0)], -1) if len(table.of_entry) else entry
    return scatter(len(entry), code >= 0, own[code[code >= 0]], False)


def _has_line(table: SourceTable, entry: IntColumn) -> npt.NDArray[np.bool_]:
    return (entry >= 0) & (np.append(table.of_entry, -1)[entry] >= 0)


def _with_forward(entry: IntColumn, behind: IntColumn, table: SourceTable, stated: npt.NDArray[np.bool_]) -> IntColumn:
    if not len(entry):
        return entry
    of_forward = np.where(behind >= 0, entry[np.maximum(behind, 0)], -1)
    own_line = stated & _has_line(table, entry)
    return np.where(_has_own(table, of_forward) & ~own_line, of_forward, entry)


def _with_annotated(
    trace: Trace, entry: IntColumn, paths: list[tuple[str, ...]], module: IntColumn
) -> tuple[list[tuple[str, ...]], IntColumn]:
    stacks, source = trace.stacks, trace.gpu.source
    if not np.any(stacks.evidence == GRAPH_ANNOTATION):
        return paths, module
    known = {path: code for code, path in enumerate(paths)}
    module = module.copy()
    annotated = np.flatnonzero((entry >= 0) & (stacks.first_evidence(source) == GRAPH_ANNOTATION))
    of_entry = dict[int, int]()
    for event, annotation in zip(annotated.tolist(), entry[annotated].tolist(), strict=True):
        if annotation not in of_entry:
            path = tuple(name.removeprefix(MODULE_FRAME) for name in stacks.modules(annotation))
            of_entry[annotation] = known.setdefault(path, len(known)) if path else -1
        if of_entry[annotation] >= 0:
            module[event] = of_entry[annotation]
    return list(known), module


def _module_paths(trace: Trace) -> tuple[list[tuple[str, ...]], IntColumn]:
    tree, known = trace.hierarchy, dict[tuple[str, ...], int]()
    paths: list[tuple[str, ...]] = [()]
    code_of = [-1]
    columns = tree.tree_parent.tolist()[1:], tree.tree_name.tolist()[1:]
    for above, code in zip(*columns, strict=True):
        name = trace.names[code]
        path: tuple[str, ...] = paths[above]
        path = (*path, name.removeprefix(MODULE_FRAME)) if name.startswith(MODULE_FRAME) else path
        paths.append(path)
        code_of.append(known.setdefault(path, len(known)) if path else -1)
    return list(known), np.array(code_of, np.int64)[tree.path]


class RowOrigin(NamedTuple):
    """The innermost stack entry, phase and module of each node. A missing entry or module is −1."""

    entry: IntColumn
    phase: IntColumn
    module: IntColumn


def origin_of_rows(trace: Trace) -> RowOrigin:
    """Return the origins of all nodes. Runtime calls have their caller's origin, but their own recorded stacks."""
    return trace.once(_origin_of_rows)


def _origin_of_rows(trace: Trace) -> RowOrigin:
    origin = trace.origin
    entry = _by_row(trace, origin.entry, origin.gpu_entry, -1)
    runtime, own = trace.runtime.source, trace.stacks.first_entry(trace.runtime.source)
    entry[runtime] = np.where(own >= 0, own, entry[runtime])
    phase = _by_row(trace, origin.phase, origin.gpu_phase, kinds.UNKNOWN)
    return RowOrigin(entry, phase, _by_row(trace, origin.module, origin.gpu_module, -1))


def _by_row(trace: Trace, of_calls: npt.NDArray[np.integer], of_gpu: npt.NDArray[np.integer], none: int) -> IntColumn:
    column, on_gpu = np.full(len(trace), none, np.int64), trace.gpu.source >= 0
    column[trace.calls.source] = of_calls
    column[trace.runtime.source] = np.append(of_calls, none)[trace.runtime.call]
    column[trace.gpu.source[on_gpu]] = of_gpu[on_gpu]
    return column
