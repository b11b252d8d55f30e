"""Findings about host work: data loading, reading tensor values one at a time, time in Python, and pauses."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ...timeline.untraced import pauses, recording_costs
from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, distinct, grouped, mask_at, matching
from ...trace.intervals import intersection, union
from ...trace.kinds import DATA, FORWARD, UNKNOWN
from ...trace.printable import shortened
from ...trace.tables import OP
from ...trace.trace import Trace
from .case import OfWorstRank, RankOfCase
from .finding import CONFIRMED, INFERRED, PREDICTED, Candidate
from .proofs import quoted

# Minimum time that the step thread waits for data, as a share of the makespan. With worker processes, 1 to 2% is usual.
DATA_LOADING = 0.05
# Minimum number of reads per line and step. Rewriting shorter loops is not worthwhile.
FEWEST_REPEATED = 8
# Minimum time of a loop that reads values one at a time, as a share of the makespan.
LOOP = 0.03
MOST_LOOPS = 3
# Minimum share of the step time outside operators, that is, in Python code, dispatch and unrecorded work.
PYTHON = 0.4
UNRECORDED = 0.03
# Maximum number of pauses to replay, longest first; each pause needs its own what-if.
MOST_PAUSES = 12
_LOADING = re.compile(r"DataLoader|^$")
_READS = re.compile(r"aten::(?:item|is_nonzero|_local_scalar_dense)")
_UNBIND = re.compile(r"aten::(?:unbind|split|chunk)")


def _rows_below(trace: Trace, calls: IntColumn) -> IntColumn:
    parent = trace.calls.parent
    chosen = nearest(np.arange(len(parent)), parent, mask_at(len(parent), calls)) >= 0
    runtime = trace.runtime.source[np.append(chosen, False)[trace.runtime.call]]
    return np.concatenate([trace.calls.source[chosen], runtime])


class DataLoading(OfWorstRank):
    id = "data-loading"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace, calls = of.trace, of.trace.calls
        loading = trace.origin.phase == DATA
        roots = np.flatnonzero(loading & ~np.append(loading, False)[calls.parent])
        working = distinct(calls.thread[(calls.kind == OP) & ~loading])
        roots = roots[np.isin(calls.thread[roots], working)]  # Exclude threads that only load data.
        taken = union(calls.ts[roots], calls.end[roots]).length
        makespan = of.case.makespan_ns
        if not len(roots) or taken < DATA_LOADING * makespan:
            return
        rest = max(makespan - taken, 0)
        names = sorted({trace.names[code] for code in calls.name[roots].tolist()})
        yield Candidate(
            self.id,
            f"the steps wait {taken / 1e6:,.1f} ms for data, {taken / makespan:.1%} of the time, in {len(roots):,} "
            f"call{'s' * (len(roots) != 1)} of {shortened(names[0], 60)}",
            of.where(calls.source[roots]),
            (of.evidence("data loading time at the top", of.case.analyses[of.number].host.loading_ns, "ns"),),
            taken,
            CONFIRMED,
            "load the next batches during the current step: DataLoader(num_workers=…, prefetch_factor=…, "
            "persistent_workers=True), or decode and augment on the device",
            "the data loading time at the top of `etplus analyze` falls",
            (of.change("cpu*0", _rows_below(trace, roots)),),
            low=min(rest / max(taken, 1), 0.9),
            high=1.2,
        )  # fmt: skip


class HostLoop(OfWorstRank):
    """A source line that reads values of a CPU tensor one at a time."""

    id = "host-loop"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace, calls, origin = of.trace, of.trace.calls, of.trace.origin
        if len(trace.gpu) or not len(calls):
            return  # `SynchronizingCalls` reports reads from a device.
        reads = matching(calls.name, trace.names, _READS.fullmatch)
        reads &= (trace.hierarchy.top == np.arange(len(calls))) & np.isin(origin.phase, (UNKNOWN, FORWARD))
        chosen = np.flatnonzero(reads)
        line = np.append(trace.source_table.of_entry, -1)[origin.entry[chosen]]
        chosen, line = chosen[line >= 0], line[line >= 0]
        found = []
        for (code, _), at in grouped(line, calls.thread[chosen]):
            count = len(at) / max(len(distinct(trace.step_of_call[chosen[at]])), 1)
            if count >= FEWEST_REPEATED:
                found.append(self._loop(of, chosen[at], int(code), count))
        yield from sorted(found, key=lambda one: -(one.cost_ns or 0))[:MOST_LOOPS]

    def _loop(self, of: RankOfCase, mine: IntColumn, line: int, count: float) -> Candidate:
        trace, calls = of.trace, of.trace.calls
        feeding = _feeding(trace, mine)
        every = np.concatenate([mine, feeding])
        taken = int((calls.end[every] - calls.ts[every]).sum())
        name, place = trace.names[calls.name[mine[0]]], trace.source_table.lines[line]
        apart = f", with {len(feeding):,} calls of {trace.names[calls.name[feeding[0]]]}" if len(feeding) else ""
        return Candidate(
            self.id,
            f"{place.file}:{place.line} reads {count:,.0f} values per step one by one with {name}: "
            f"{taken / 1e6:,.1f} ms{apart}",
            of.where(calls.source[every], source=f"{place.file}:{place.line}"),
            (
                of.evidence(
                    f"calls of {name}", int((calls.name == trace.name_codes[name]).sum()), "calls",
                    f"select count(*) from calls where name = {quoted(name)} and start_ns is not null",
                ),
            ),
            taken,
            INFERRED,
            "read all values in one call (tensor.tolist()), or compute on tensors and read only the result",
            f"the operators table of `etplus analyze` shows fewer calls of {name}",
            (of.change(f"cpu*{max(2 / count, 0.01):.3g}", _rows_below(trace, every)),),
            low=0.3,
            high=1.2,
            least_share=LOOP,
        )  # fmt: skip


def _feeding(trace: Trace, mine: IntColumn) -> IntColumn:
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


class PythonOverhead(OfWorstRank):
    """Steps that spend a large share of their time in Python, between operators."""

    id = "python-overhead"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace, calls = of.trace, of.trace.calls
        within = union(trace.steps.start, trace.steps.end)
        if len(trace.gpu) or not within.length:
            return  # If the trace has a GPU, this time matters only while the GPU waits, and `LaunchBound` reports it.
        ops = np.flatnonzero((trace.hierarchy.top == np.arange(len(calls))) | (trace.origin.phase == DATA))
        busy = intersection(union(calls.ts[ops], calls.end[ops]), within).length
        outside = within.length - busy
        cost = sum(int(part.sum()) for part in recording_costs(trace).of_rows(trace))
        if outside < PYTHON * within.length or outside < cost:
            return
        yield Candidate(
            self.id,
            f"the steps spend {outside / 1e6:,.1f} ms ({outside / within.length:.0%}) outside operators",
            of.where(calls.source[ops], operator=None),
            (of.evidence("duration of all steps", within.length, "ns", "select sum(duration_ns) from steps"),),
            outside,
            PREDICTED,
            "look at the Python code between the operators: record with_stack=True, or use py-spy for code outside "
            "PyTorch; then move work out of the step, or use torch.compile, which runs operators without Python",
            "operators take a larger share of the steps",
        )  # fmt: skip


class UnrecordedTime(OfWorstRank):
    """Steps with a similar pause at the same place, such as a sleep, I/O or Python code without PyTorch."""

    id = "unrecorded-host-time"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        trace, graph = of.trace, of.case.graphs[of.number]
        edges, at = graph.edges, pauses(graph)
        names, nodes = np.append(trace.nodes.name, -1), trace.nodes
        at = at[~matching(names[edges.owner[at]], [*trace.names, ""], _LOADING.search)]  # others: `DataLoading`
        row = graph.row[edges.target[at]]
        step = trace.steps.of(graph.measured[edges.target[at]] + nodes.span.start - 1, nodes.thread[row])
        at, row, step = at[step >= 0], row[step >= 0], step[step >= 0]
        ends = edges.target[at] == graph.end[row]  # True for pauses that end when an annotation ends
        for (name, _), mine in grouped(np.where(ends, -1, nodes.name[row]), nodes.thread[row]):
            by_step = np.bincount(step[mine], edges.lag[at[mine]], len(trace.steps))
            taken, steps = int(by_step.sum()), int(np.count_nonzero(by_step))
            even = 2 * steps > len(trace.steps) > 1 and 2 * by_step[by_step > 0].min() > by_step.max()
            if even and taken >= UNRECORDED * of.case.untraced_ns:  # other programs may cause uneven pauses
                before = "the end of the step" if name < 0 else shortened(trace.names[name], 60)
                yield self._candidate(of, at[mine], before, taken, steps)

    def _candidate(self, of: RankOfCase, at: IntColumn, before: str, taken: int, steps: int) -> Candidate:
        graph = of.case.graphs[of.number]
        edges = graph.edges
        longest = at[np.argsort(-edges.lag[at], kind="stable")][:MOST_PAUSES]
        spans = np.stack([graph.measured[edges.source[longest]], graph.measured[edges.target[longest]]], axis=1)
        return Candidate(
            self.id,
            f"each step spends {taken / steps / 1e6:,.1f} ms before {before} without any recorded call",
            of.where(graph.row[edges.target[at]]),
            (of.evidence(f"time without recorded calls before {before}, in {steps:,} steps", taken, "ns"),),
            taken,
            CONFIRMED,
            "look for a sleep, I/O, logging, or Python code without PyTorch before this place (py-spy shows it), and "
            "move it out of the step or to a thread",
            "the pause is gone from the timeline of `etplus report`",
            tuple(of.change(f"window={begin}ns-{end}ns cpu*0") for begin, end in spans.tolist()),
        )
