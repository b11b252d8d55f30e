"""Time per module class and per operator, and sequences of kernels that operators launch repeatedly.

Layers of the same class at the same place in the model share one row.
"""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np
import numpy.typing as npt

from ..trace.call_tree import CallTree, nearest, nesting, outermost
from ..trace.columns import IntColumn, distinct, distinct_rows, mask_at, scatter
from ..trace.hierarchy import Hierarchy
from ..trace.index import as_column
from ..trace.intervals import sums
from ..trace.kernel_names import kernel_label
from ..trace.stacks import GRAPH_ANNOTATION
from ..trace.tables import ANNOTATION, OP
from ..trace.trace import Trace
from .breakdown import shape_labels
from .table import SELF_COLUMNS, SELF_TIMES, Row, Table, TextColumn, WithMean, column, derived, inferred, repeated

_MODULE = re.compile(r"nn\.Module: (.+?)(?:_\d+)?")
_ORDINAL = re.compile(r"\.\d+(?=\.|$)")  # the index of a repeated module in a qualified name, such as ".3"
_DOT = re.compile(r"\.(?!\d+(?:\.|$))")  # a dot that no index follows
_REPEATED = "Part of device_self_ns launched before the trace; its {} comes from a later repetition."


class ModuleRow(WithMean, Row):
    """All calls of modules of one class, or all annotations of one name, at the same place in the module tree.

    GPU events that any thread launches while an annotation is open belong to the annotation, because autograd threads
    launch them while `loss.backward()` waits. Backward work belongs to the modules of the forward operator.
    """

    path: tuple[str, ...] = column("name", "Enclosing classes and annotations, then the class.", joined=" / ")
    instances: int = column("count", "Number of distinct modules of the class.")
    count: int = column("count", "Number of calls (of outermost operators if only stacks show the module).", "calls")
    self_ns: int = column("ns", "CPU time, excluding nested modules and annotations.", "host self")
    total_ns: int = column("ns", "CPU time, including nested modules.", "host")
    device_self_ns: int = column("ns", "GPU time, excluding nested modules and annotations.", "GPU self")
    device_total_ns: int = column("ns", "GPU time, including nested modules.", "GPU")
    backward_self_ns: int = inferred("ns", "Backward GPU time, excluding nested modules and annotations.")
    backward_total_ns: int = inferred("ns", "Backward GPU time, including nested modules.", "backward")
    repeated_ns: int = inferred("ns", _REPEATED.format("module"), default=0)

    title = f"modules by class, and annotations{SELF_TIMES}"
    shown = (
        TextColumn("module", lambda row: "  " * row.depth + row.module + repeated(row)),
        *SELF_COLUMNS,
        "backward_total_ns",
    )

    @derived("name")
    def module(self) -> str:
        """Class of the module, followed by the number of distinct modules if there are several."""
        return self.path[-1] + (f" ×{self.instances}" if self.instances > 1 else "")

    @derived("number")
    def depth(self) -> int:
        """Number of enclosing modules and annotations."""
        return len(self.path) - 1


def module_class(name: str) -> str:
    """Return a module's class, such as BertLayer for "nn.Module: BertLayer_23". Other names stay unchanged."""
    match = _MODULE.fullmatch(name)
    return match[1] if match else name


def module_table(trace: Trace) -> Table[ModuleRow]:
    """Return one row per place in the module tree: parents before children, siblings by GPU time, then by CPU time.

    Modules are calls in the trace (`nn.Module: …`) or, if there are none, entries in the Python stacks of operators. If
    a CUDA graph has annotations, a kernel's annotation contains the qualified name of its module.
    """
    owner = trace.attribution
    paths, of_path = _folded(trace, owner.hierarchy)
    annotated, annotated_at, names_at = _annotated(trace, paths)
    calls, path = owner.calls, owner.hierarchy.path
    place = of_path[path]
    above = np.where(calls.parent >= 0, path[calls.parent], 0) if len(calls) else path
    is_region = (calls.kind != OP) & (path != above)
    regions = np.flatnonzero(is_region)
    host = (calls.end - calls.ts)[regions]
    inside = _inside(calls.parent, calls.thread, regions, is_region)
    total, self_ns = sums(place[regions], host, len(paths)), sums(place[regions], host, len(paths))
    np.subtract.at(self_ns, place[regions[inside[inside >= 0]]], host[inside >= 0])
    count = np.bincount(place[regions], minlength=len(paths))
    instances = np.bincount(of_path[distinct(path[regions])], minlength=len(paths))
    by_stacks = np.flatnonzero(instances == 0)[1:]  # skip the first path (the root)
    ops = np.flatnonzero(owner.hierarchy.top == np.arange(len(calls)))
    own_host = sums(place[ops], (calls.end - calls.ts)[ops], len(paths))
    self_ns[by_stacks], total[by_stacks] = own_host[by_stacks], _with_inner(paths, own_host)[by_stacks]
    count[by_stacks] = _with_inner(paths, np.bincount(place[ops], minlength=len(paths)))[by_stacks]
    instances[by_stacks] = np.bincount(of_path, minlength=len(paths))[by_stacks]
    events = _with_inner(paths, np.bincount(annotated_at, minlength=len(paths)))
    for row in (row for row in names_at if not count[row]):
        instances[row], count[row] = len(names_at[row]), events[row]
    from_call = (owner.call >= 0) & owner.in_module & ~mask_at(len(trace.gpu), annotated)
    region = nearest(owner.call, calls.parent, is_region)
    by_annotation = np.append(calls.kind == ANNOTATION, False)[region]  # none is open before the trace
    within = np.flatnonzero(from_call & ~(by_annotation & (owner.repetition > 0)))
    within_place, dur = place[owner.call[within]], trace.gpu.dur[within]
    own, again = (sums(within_place, ns, len(paths)) for ns in (dur, np.where(owner.repetition[within] > 0, dur, 0)))
    own += sums(annotated_at, trace.gpu.dur[annotated], len(paths))
    annotations = regions[(calls.kind[regions] == ANNOTATION) & (regions < len(trace.calls))]  # excludes captured calls
    not_placed = (np.append(place, 0)[owner.call] == 0) & ~mask_at(len(trace.gpu), annotated)
    loose = np.flatnonzero(trace.launch_known & not_placed)
    around = _open_at(trace, annotations, trace.launched_ns[loose])
    own += sums(place[around[around >= 0]], trace.gpu.dur[loose[around >= 0]], len(paths))
    device = _with_inner(paths, own)
    rows_of = place[annotations]
    device[rows_of] = sums(rows_of, _launched_in(trace, annotations), len(paths))[rows_of]
    behind = np.append(trace.origin.forward, np.full(len(calls) - len(trace.calls) + 1, -1))[owner.call]
    back = np.flatnonzero((behind >= 0) & from_call)
    backward = sums(place[behind[back]], trace.gpu.dur[back], len(paths))
    host_columns = instances, count, np.maximum(self_ns, 0), total
    columns = (*host_columns, own, device, backward, _with_inner(paths, backward), again)
    rows = [ModuleRow(names, *(int(column[row]) for column in columns)) for row, (_, names) in enumerate(paths)]
    return Table(ModuleRow, _in_tree_order(rows, [parent for parent, _ in paths]))


def _launched_in(trace: Trace, annotations: IntColumn) -> IntColumn:
    """Return, for each annotation, the total duration of the GPU events launched while it was open."""
    known = np.flatnonzero(trace.launch_known)
    known = known[np.argsort(trace.launched_ns[known], kind="stable")]
    launched, until = trace.launched_ns[known], np.append(0, np.cumsum(trace.gpu.dur[known]))
    first, last = (np.searchsorted(launched, at[annotations]) for at in (trace.calls.ts, trace.calls.end))
    inside: IntColumn = until[np.maximum(first, last)] - until[first]
    return inside


def _open_at(trace: Trace, annotations: IntColumn, times: IntColumn) -> IntColumn:
    """Return the most recently opened annotation at each time, on any thread; −1 for none."""
    calls, points = trace.calls, np.arange(len(times)) + len(annotations)
    ts, end = np.append(calls.ts[annotations], times), np.append(calls.end[annotations], times)
    order = np.lexsort((np.arange(len(ts)), -end, ts))  # at equal starts, the longer annotation encloses the other
    around = np.full(len(ts), -1, np.int64)
    inside = nesting(np.zeros(len(ts), np.int64), ts[order], end[order])
    around[order] = np.where(inside >= 0, order[inside], -1)
    return np.append(annotations, -1)[np.where(around[points] < len(annotations), around[points], -1)]


def _with_inner(paths: list[tuple[int, tuple[str, ...]]], own: IntColumn) -> IntColumn:
    total = own.copy()
    for row in sorted(range(1, len(paths)), key=lambda row: -len(paths[row][1])):
        total[paths[row][0]] += total[row]
    return total


def _folded(trace: Trace, tree: Hierarchy) -> tuple[list[tuple[int, tuple[str, ...]]], IntColumn]:
    """Return the distinct class paths, each with its parent's row, and each hierarchy path's row in this list."""
    paths: list[tuple[int, tuple[str, ...]]] = [(-1, ())]
    known: dict[tuple[int, str], int] = {}
    of_path = np.zeros(len(tree.tree_parent), np.int64)
    for row, (parent, code) in enumerate(
        zip(tree.tree_parent.tolist()[1:], tree.tree_name.tolist()[1:], strict=True), 1
    ):
        key = int(of_path[parent]), module_class(trace.names[code])
        if key not in known:
            known[key] = len(paths)
            paths.append((key[0], (*paths[key[0]][1], key[1])))
        of_path[row] = known[key]
    return paths, of_path


def _annotated(
    trace: Trace, paths: list[tuple[int, tuple[str, ...]]]
) -> tuple[IntColumn, IntColumn, dict[int, set[str]]]:
    """Return the GPU events with a module from a graph annotation, each event's row, and each row's modules.

    Adds a row to `paths` for each part of a qualified name, such as "layers[*]" and "mlp" for "layers.0.mlp".
    """
    source, codes = trace.gpu.source, trace.origin.gpu_module
    stated = trace.stacks.first_evidence(source) == GRAPH_ANNOTATION
    events = np.flatnonzero((source >= 0) & stated & (codes >= 0))
    known = {names: row for row, (_, names) in enumerate(paths)}
    rows, names_at = dict[int, int](), defaultdict[int, set[str]](set)
    for code in distinct(codes[events].astype(np.int64)).tolist():
        parts, row = _DOT.split(trace.origin.modules[code][-1]), 0
        for end, part in enumerate(parts, 1):
            key = (*paths[row][1], _ORDINAL.sub("[*]", part))
            if key not in known:
                known[key] = len(paths)
                paths.append((row, key))
            row = known[key]
            names_at[row].add(".".join(parts[:end]))
        rows[code] = row
    return events, np.array([rows[code] for code in codes[events].tolist()], np.int64), names_at


def _inside(parent: IntColumn, thread: IntColumn, regions: IntColumn, is_region: npt.NDArray[np.bool_]) -> IntColumn:
    """Return the position in `regions` of the region that encloses each region on the same thread; −1 if none."""
    around = nearest(parent[regions], parent, is_region)
    around = np.where((around >= 0) & (thread[around] == thread[regions]), around, -1)
    return np.where(around >= 0, np.searchsorted(regions, around), -1)


def _in_tree_order(rows: list[ModuleRow], parents: list[int]) -> list[ModuleRow]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    order = sorted(range(1, len(rows)), key=lambda k: (-rows[k].device_total_ns, -rows[k].total_ns, rows[k].path))
    for row in order:
        children[parents[row]].append(row)
    ordered, pending = [], children[0][::-1]
    while pending:
        row = pending.pop()
        ordered.append(rows[row])
        pending += children[row][::-1]
    return ordered


class OperatorRow(WithMean, Row):
    """All calls of one operator, on any thread and at any depth.

    The sum of `self_ns` over all rows is the CPU time of operators. The sum of `device_self_ns` is the GPU time that
    they launched."""

    op: str = column("name", "Name of the operator.", "operator")
    shapes: str = column("name", "Shapes of the operator's inputs; empty if not recorded or not requested.")
    count: int = column("count", "Number of calls.", "calls")
    self_ns: int = column("ns", "CPU time, excluding callees.", "host self")
    total_ns: int = column("ns", "CPU time, including callees; recursive calls count only once.", "host")
    device_self_ns: int = column("ns", "GPU time that the operator launched directly.", "GPU self")
    device_total_ns: int = column("ns", "GPU time launched by the operator and its callees.", "GPU")
    launches: int = column("count", "Number of GPU events in device_self_ns.")
    repeated_ns: int = inferred("ns", _REPEATED.format("operator"), default=0)

    title = f"operators{SELF_TIMES}"
    shown = (TextColumn("operator", lambda row: f"{row.op} {row.shapes}".rstrip() + repeated(row)), *SELF_COLUMNS)


def operator_table(trace: Trace, *, by_shape: bool = False) -> Table[OperatorRow]:
    """Return one row per operator (or per operator and input shapes), sorted by GPU self time, then by CPU self time.

    GPU events in replayed graphs belong to the operators that launched them during capture (`Trace.attribution`). A
    captured call is counted once and has no CPU time. An event that was launched before the trace belongs to the
    operator that launches the same event in later iterations."""
    owner = trace.attribution
    calls = owner.calls
    ops = np.flatnonzero(calls.kind == OP)
    if not len(ops):
        return Table(OperatorRow)
    labels, label_of = shape_labels(trace)
    label = label_of[calls.signature[ops]] if by_shape else np.zeros(len(ops), np.int64)
    distinct, inverse = distinct_rows(calls.name[ops], label)
    key = scatter(len(calls), ops, inverse)
    own = np.zeros(len(calls), np.int64)
    own[: len(trace.self_ns)] = trace.self_ns
    launcher = nearest(owner.call, calls.parent, calls.kind == OP)
    outer, launched = np.flatnonzero(outermost(calls.parent, key)), np.flatnonzero(launcher >= 0)
    device = np.zeros(len(calls), np.int64)
    np.add.at(device, launcher[launched], trace.gpu.dur[launched])
    below = CallTree.of(calls.parent).totals(calls.parent, as_column(device))
    launch_key, count = key[launcher[launched]], len(distinct)
    dur, again = trace.gpu.dur[launched], np.where(owner.repetition > 0, trace.gpu.dur, 0)[launched]
    columns = (
        *(np.bincount(key[ops], minlength=count), sums(key[ops], own[ops], count)),
        *(sums(key[outer], (calls.end - calls.ts)[outer], count), sums(launch_key, dur, count)),
        *(sums(key[outer], below[outer], count), np.bincount(launch_key, minlength=count)),
        sums(launch_key, again, count),
    )
    rows = [
        OperatorRow(trace.names[name], labels[shapes], *values)
        for (name, shapes), *values in zip(distinct.tolist(), *(column.tolist() for column in columns), strict=True)
    ]
    return Table(OperatorRow, sorted(rows, key=lambda row: (-row.device_self_ns, -row.self_ns, row.op, row.shapes)))


class KernelSequence(Row):
    """Calls of one operator that launch the same GPU events in the same order."""

    op: str = column("name", "Name of the topmost operator.", "operator")
    kernels: tuple[str, ...] = column("name", "GPU events that the operator launched, in order of start.", joined=" | ")
    count: int = column("count", "Number of calls.", "calls")
    gpu_ns: int = column("ns", "Sum of the durations of the GPU events.", "GPU")
    host_ns: int = column("ns", "CPU time of the calls.")

    title = "sequences of kernels that an operator launches"
    shown = (
        *(TextColumn("", lambda row: ""), TextColumn("kernels", lambda row: len(row.kernels), "count")),
        *("count", "gpu_ns", "host_ns"),
    )

    def above(self) -> str:
        return f"{self.op}: {', '.join(map(kernel_label, self.kernels))}"


def kernel_sequences(trace: Trace, *, least: int = 3) -> Table[KernelSequence]:
    """Return sequences of `least` or more GPU events that one call of a topmost operator launches, most frequent first.

    HTA's `get_frequent_cuda_kernel_sequences` covers only one operator at a time; this function covers all topmost
    operators."""
    gpu, calls = trace.gpu, trace.calls
    top = np.append(trace.hierarchy.top, -1)[gpu.call]
    events = np.flatnonzero(top >= 0)
    events = events[np.lexsort((gpu.ts[events], top[events]))]
    begin = np.flatnonzero(np.diff(top[events], prepend=-1))
    long = np.diff(begin, append=len(events)) >= least
    call, kernels = top[events[begin]][long], gpu.name[events].astype(np.int32).tobytes()
    device = np.add.reduceat(gpu.dur[events], begin)[long] if len(begin) else call
    ends = 4 * begin[long], 4 * np.append(begin, len(events))[1:][long]
    groups: defaultdict[tuple[int, bytes], list[int]] = defaultdict(lambda: [0, 0, 0])
    columns = (calls.name[call], *ends, device, calls.end[call] - calls.ts[call])
    for op, start, end, on_device, on_host in zip(*(values.tolist() for values in columns), strict=True):
        sums = groups[op, kernels[start:end]]
        for k, value in enumerate((1, on_device, on_host)):
            sums[k] += value
    rows = [
        KernelSequence(trace.names[op], tuple(trace.names[code] for code in np.frombuffer(text, np.int32)), *sums)
        for (op, text), sums in groups.items()
    ]
    return Table(KernelSequence, sorted(rows, key=lambda row: (-row.count, -row.gpu_ns, row.op, row.kernels)))
