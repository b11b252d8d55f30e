"""Findings of work on the host: data loading, loops over small operators, double precision, Python between calls."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, distinct_rows, grouped, matching
from ..trace.intervals import intersection, union
from ..trace.kinds import BACKWARD, DATA, OPTIMIZER
from ..trace.printable import shortened
from ..trace.tables import OP
from ..trace.trace import Trace
from .case import Case
from .finding import LIKELY, MEASURED, POSSIBLE, Candidate
from .profiler_cost import event_cost_ns
from .ranks_of_case import RankOfCase, worst_rank

DATA_LOADING = 0.03
"""Share of the makespan in which the thread of the steps waits for data: with workers it takes next to nothing."""
FEWEST_REPEATED = 8
"""So often at least a line calls the same operator in a step, in a module: less is no loop worth rewriting."""
SMALL_NS = 30_000
"""A call that takes less, without the cost of its recording, is mostly the call: dispatching takes 1 to 10 µs."""
LOOP = 0.03
"""Share of the makespan that a loop over small operators must take."""
MOST_LOOPS = 3
DOUBLE = 0.1
"""Share of the makespan that operators in double precision must take."""
PYTHON = 0.4
"""Share of the steps outside of any operator: Python, the interpreter's calls of operators, what is not recorded."""
_READS = re.compile(r"aten::(?:item|is_nonzero|_local_scalar_dense)")
_UNBIND = re.compile(r"aten::(?:unbind|split|chunk)")
_DOUBLE_TYPES = ("float64", "complex128")


def _rows_below(trace: Trace, calls: IntColumn) -> IntColumn:
    """Rows of calls and of all that they call on the host."""
    inside = np.zeros(len(trace.calls), np.bool_)
    inside[calls] = True
    parent = trace.calls.parent
    chosen = np.zeros(len(trace.calls), np.bool_)
    chosen[nearest(np.arange(len(parent)), parent, inside) >= 0] = True
    runtime = trace.runtime.source[np.append(chosen, False)[trace.runtime.call]]
    return np.concatenate([trace.calls.source[chosen], runtime])


class DataLoading:
    """The steps wait for their data."""

    id = "data-loading"

    def find(self, case: Case) -> Iterator[Candidate]:
        return worst_rank(case, self._of_rank)

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace, calls = of.trace, of.trace.calls
        loading = trace.origin.phase == DATA
        roots = np.flatnonzero(loading & ~np.append(loading, False)[calls.parent])
        working = np.unique(calls.thread[(calls.kind == OP) & ~loading])
        roots = roots[np.isin(calls.thread[roots], working)]  # not on threads of its own
        taken = union(calls.ts[roots], calls.end[roots]).length
        makespan = of.case.makespan_ns
        if not len(roots) or taken < DATA_LOADING * makespan:
            return
        rest = max(makespan - taken, 0)
        names = sorted({trace.names[code] for code in calls.name[roots].tolist()})
        yield Candidate(
            self.id,
            f"the steps wait {taken / 1e6:,.1f} ms for data, {taken / makespan:.1%} of the time, in {len(roots):,} "
            "calls of "
            f"{shortened(names[0], 60)}",
            of.where(calls.source[roots]),
            (of.evidence("data loading (in the head)", of.case.analyses[of.number].host.loading_ns, "ns"),),
            taken,
            MEASURED,
            "load the next batches while this one is worked on: DataLoader(num_workers=…, prefetch_factor=…, "
            "persistent_workers=True), or decode and augment on the device",
            "the data loading that `etplus analyze` prints in its head falls",
            (of.change("cpu*0", _rows_below(trace, roots)),),
            low=min(rest / max(taken, 1), 0.9),
        )  # fmt: skip


class _Loops:
    """Lines of own code that call small operators again and again, in one step and module."""

    id = ""
    reads = False

    def find(self, case: Case) -> Iterator[Candidate]:
        return worst_rank(case, self._of_rank)

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace, calls, origin = of.trace, of.trace.calls, of.trace.origin
        cost = event_cost_ns(trace)
        top = np.flatnonzero(trace.hierarchy.top == np.arange(len(calls)))
        phase = origin.phase[top]
        table = trace.source_table
        line = np.append(table.of_entry, -1)[origin.entry[top]] if len(table.of_entry) else np.full(len(top), -1)
        inside = _calls_inside(trace)[top]
        taken = calls.end[top] - calls.ts[top]
        small = taken - cost * inside < SMALL_NS
        on_device = np.isin(top, trace.hierarchy.top[np.unique(trace.gpu.call[trace.gpu.call >= 0])])
        fits = (line >= 0) & (phase != BACKWARD) & (phase != OPTIMIZER) & small & ~on_device
        chosen = top[fits]
        keys, group = distinct_rows(calls.name[chosen], line[fits], origin.module[chosen], calls.thread[chosen])
        steps = trace.step_of_call[chosen]
        rounds = np.array([len(np.unique(steps[group == at])) for at in range(len(keys))], np.int64)
        count = np.bincount(group, minlength=len(keys)) / np.maximum(rounds, 1)
        often = count >= FEWEST_REPEATED
        reading = matching(keys[:, 0], trace.names, _READS.fullmatch) if len(keys) else often
        found = []
        for (code,), at in grouped(keys[often][:, 1]) if often.any() else ():
            of_line = np.flatnonzero(often)[at]
            mine = chosen[np.isin(group, of_line)]
            if bool(reading[of_line].any()) == self.reads:
                found.append(self._loop(of, mine, int(code), float(count[of_line].max())))
        found.sort(key=lambda one: -(one.cost_ns or 0))
        yield from found[:MOST_LOOPS]

    def _loop(self, of: RankOfCase, mine: IntColumn, line: int, count: float) -> Candidate:
        """The finding of one line, with the iteration over a tensor (`unbind`) that feeds its loop."""
        trace, calls = of.trace, of.trace.calls
        feeding = _feeding(trace, mine)
        every = np.concatenate([mine, feeding])
        taken = int((calls.end[every] - calls.ts[every]).sum())
        names = [trace.names[code] for code in np.unique(calls.name[mine]).tolist()]
        place = trace.source_table.lines[line]
        what = " and ".join(names[:3])
        split = f", with {len(feeding):,} calls of {trace.names[calls.name[feeding[0]]]}" if len(feeding) else ""
        return Candidate(
            self.id,
            f"{place.file}:{place.line} calls {what} {count:,.0f} times a step on little data: {taken / 1e6:,.1f} "
            f"ms{split}",
            of.where(calls.source[every], source=f"{place.file}:{place.line}"),
            tuple(
                of.evidence(
                    f"all calls of {name}", int((calls.name == trace.name_codes[name]).sum()), "calls",
                    f"select count(*) from calls where name = '{name}' and ts_ns is not null",
                )
                for name in names[:3]
            ),
            taken,
            LIKELY,
            self.advice,
            f"{names[0]} is called fewer times (`etplus analyze`, operators)",
            (of.change(f"cpu*{max(2 / count, 0.01):.3g}", _rows_below(trace, every)),),
            low=0.3,
            high=1.2,
            least_share=LOOP,
        )  # fmt: skip

    advice = ""


def _calls_inside(trace: Trace) -> IntColumn:
    """int64, of each call how many there are below it, itself included."""
    calls = trace.calls
    count: IntColumn = np.ones(len(calls), np.int64)
    at: IntColumn = np.arange(len(calls))
    while len(at):  # level by level, as many as calls nest
        at = calls.parent[at]
        at = at[at >= 0]
        np.add.at(count, at, 1)
    return count


def _feeding(trace: Trace, mine: IntColumn) -> IntColumn:
    """Calls that take a tensor apart right before a loop over its parts: on the loop's thread in its file, and what
    they yield is at least as many views as the loop has rounds."""
    calls = trace.calls
    apart = np.flatnonzero(matching(calls.name, trace.names, _UNBIND.fullmatch) & (calls.kind == OP))
    apart = apart[trace.hierarchy.top[apart] == apart]
    views = np.bincount(calls.parent[calls.parent >= 0], minlength=len(calls))[apart]
    apart = apart[(views >= FEWEST_REPEATED) & np.isin(calls.thread[apart], calls.thread[mine])]
    following = np.searchsorted(calls.ts[mine], calls.end[apart])
    near = following < len(mine)
    apart, following = apart[near], following[near]
    between = calls.ts[mine[following]] - calls.end[apart]
    near_enough: IntColumn = apart[between < calls.end[apart] - calls.ts[apart]]
    return near_enough


class HostLoop(_Loops):
    """Values are read one by one."""

    id = "host-loop"
    reads = True
    advice = "read all values at once: .tolist() of one tensor, or sum and compare on tensors and read the result"


class SmallOperators(_Loops):
    """A loop of small operators."""

    id = "small-operators"
    advice = (
        "one call for all: torch._foreach_ operators on lists of tensors, a batched product (torch.bmm, "
        "torch.vmap), a stacked "
        "tensor in place of a list; or torch.compile"
    )


class DoublePrecision:
    """Operators of floating-point numbers of 64 bits."""

    id = "double-precision"

    def find(self, case: Case) -> Iterator[Candidate]:
        return worst_rank(case, self._of_rank)

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace, calls, gpu = of.trace, of.trace.calls, of.trace.gpu
        double = np.array([signature.dtype in _DOUBLE_TYPES for signature in trace.signatures] + [False], np.bool_)
        mine = double[calls.signature] & (calls.kind == OP)
        events = np.flatnonzero(np.append(mine, False)[gpu.call] & trace.is_kernel)
        host = np.flatnonzero(mine)
        own = np.where(mine, trace.self_ns, 0)
        taken = int(gpu.dur[events].sum()) if len(gpu) else int(own.sum())
        if taken < DOUBLE * of.case.makespan_ns:
            return
        rows = gpu.source[events] if len(gpu) else calls.source[host]
        count = len(np.unique(calls.name[host]))
        what = f"{len(events):,} kernels" if len(gpu) else f"{len(host):,} calls of {count} operators"
        yield Candidate(
            self.id,
            f"{what} work in float64, {taken / 1e6:,.1f} ms",
            of.where(rows),
            (of.evidence(f"{'kernels' if len(gpu) else 'operators'} with operands in float64: time", taken, "ns"),),
            taken,
            LIKELY,
            "convert data and model to float32 (.float(); NumPy arrays are float64 by themselves: "
            "torch.as_tensor(array, dtype=torch.float32)), if the precision suffices",
            "shapes and types of `etplus analyze --by-shape` show float32",
            (of.change("kernel*0.5" if len(gpu) else "cpu*0.5", rows),),
            low=0.6,
            high=1.9 if len(gpu) else 1.2,
        )  # fmt: skip


class PythonOverhead:
    """A CPU is busy with Python between the operators."""

    id = "python-overhead"

    def find(self, case: Case) -> Iterator[Candidate]:
        return worst_rank(case, self._of_rank)

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace, calls = of.trace, of.trace.calls
        if len(trace.gpu) or not len(trace.steps):
            return  # beside a device it costs only where the device waits, which `LaunchBound` finds
        steps = trace.steps
        within = union(steps.start, steps.end)
        ops = np.flatnonzero(trace.hierarchy.top == np.arange(len(calls)))
        busy = intersection(union(calls.ts[ops], calls.end[ops]), within).length
        outside = within.length - busy
        cost = event_cost_ns(trace) * len(calls)
        if outside < PYTHON * within.length or outside < cost:
            return
        yield Candidate(
            self.id,
            f"{outside / 1e6:,.1f} ms of the steps ({outside / within.length:.0%}) are outside of any operator",
            of.where(calls.source[ops], operator=None),
            (of.evidence("time of all steps", within.length, "ns", "select sum(dur_ns) from steps"),),
            outside,
            POSSIBLE,
            "look at the lines between the operators (record with_stack=True; py-spy shows what is not PyTorch's): "
            "move "
            "work out of the step, or use torch.compile, which calls operators without Python",
            "the operators' share of the steps rises",
        )  # fmt: skip
