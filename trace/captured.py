"""Captured graphs: links from kernels of replayed CUDA or HIP graphs to the operators that were captured with them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from .brief import Record, RecordStruct
from .columns import IntColumn, StringTable, positions, run_starts
from .comm_kernels import Comm
from .hierarchy import Hierarchy, hierarchy_of
from .index import as_column, as_positions
from .kinds import LINK_NAMES, UNLINKED
from .tables import OP, Calls
from .tensors import Signature, SignatureTable, numbers_matter

if TYPE_CHECKING:
    from .trace import Trace

CallKind = Literal["operator", "annotation", "module"]
# Names that files and row views use for the values of `Calls.kind`.
CALL_KINDS: tuple[CallKind, CallKind, CallKind] = ("operator", "annotation", "module")
# Reasons why a replay belongs to a captured graph. "other grids": kernel names match, but grid sizes differ.
# "padded batch size": the step's batch is smaller than the graph's, and no captured graph is nearer in size.
# "one of several batch sizes": several graphs fit, and the step's batch size is unknown.
EVIDENCE = (
    "kernel names",
    "kernel names per stream",
    "number of kernels",
    "grids",
    "other grids",
    "order in the step",
    "batch size",
    "padded batch size",
    "one of several batch sizes",
    "graph node ids",
)
# Reasons why a replay has no linked kernels, for `GraphReplay.reason`.
GRAPH_REASONS = (
    "no captured graph has these kernels",
    "no graph of this batch size was captured",
    "kernels on several streams, and the capture has no kernel names",
)


class CapturedGraph(RecordStruct, gc=False, frozen=True):
    file: str  # name of the capture file, without folders
    index: int  # index of the graph in that file, counted from 0
    batch_size: int | None  # batch size, None if not recorded
    mode: str  # capture mode ("FULL", "PIECEWISE"), "" if unknown
    launches: int  # number of launch calls in the capture


class GraphReplay(RecordStruct, gc=False, frozen=True):
    correlation: int  # id that the launch call and all GPU events of the replay share
    graph: int | None  # position in `CapturedGraphs.graphs`, None if no captured graph matches
    candidates: int  # number of captured graphs that match the replay's kernels equally well
    evidence: tuple[str, ...]  # reasons from `EVIDENCE` why the graph matches
    reason: str  # one of `GRAPH_REASONS` if `graph` is None, otherwise ""
    events: int  # number of GPU events in the replay
    certain: int  # number of events that have a certain link to an operator
    unverified: int  # number of events that have an unverified link to an operator


@dataclass(frozen=True, repr=False)
class CaptureLinks(Record):
    """Links from GPU events to captured operators. Each link has one entry in every column."""

    event: IntColumn  # the GPU events in ascending order, as rows of the trace or positions in `Trace.unattached`
    op: IntColumn  # position of the event's operator in the columns of `CapturedGraphs`
    link: npt.NDArray[np.int8]  # UNVERIFIED or CERTAIN, for each link
    replay: IntColumn  # position of the event's replay in `CapturedGraphs.replays`

    @staticmethod
    def none() -> CaptureLinks:
        empty = np.zeros(0, np.int64)
        return CaptureLinks(empty, empty, np.zeros(0, np.int8), empty)

    def __len__(self) -> int:
        return len(self.event)

    def of(self, events: IntColumn) -> tuple[IntColumn, npt.NDArray[np.int8], IntColumn]:
        """Return `op`, `link` and `replay` for the given events. Events without a link get −1, UNLINKED and −1."""
        places = positions(self.event, events)
        link = np.append(self.link, np.int8(UNLINKED))[places]
        return np.append(self.op, -1)[places], link, np.append(self.replay, -1)[places]


@dataclass(frozen=True, repr=False)
class CapturedGraphs(Record):
    graphs: tuple[CapturedGraph, ...]  # the captured graphs that were replayed
    replays: tuple[GraphReplay, ...]  # all launches of graphs, in order
    names: list[str]  # names of the calls
    kind: npt.NDArray[np.int8]  # OP, ANNOTATION or MODULE for each call
    parent: IntColumn  # position of the call's caller, −1 for outermost calls; callers precede their callees
    graph: IntColumn  # position in `graphs` of the call's graph, −1 if the call encloses several captures
    texts: list[bytes]  # a JSON object for each call, with the recorded `inputs` and `outputs` of an ET 1.1 node
    comm: dict[int, Comm] = field(default_factory=dict)  # communications of calls, keyed by the call's position
    links: CaptureLinks = field(default_factory=CaptureLinks.none)  # links of the events that are rows of the trace
    unattached: CaptureLinks = field(default_factory=CaptureLinks.none)  # links of the events in `Trace.unattached`
    notes: tuple[str, ...] = ()  # sentences about missing data

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def comm_above(self) -> list[int]:
        """For each call, the nearest call that has an entry in `comm` (itself or a caller), or −1 if there is none."""
        nearest_comm: list[int] = []
        for call, above in enumerate(self.parent.tolist()):
            nearest_comm.append(call if call in self.comm else nearest_comm[above] if above >= 0 else -1)
        return nearest_comm

    @property
    def counts(self) -> dict[str, int]:
        """Number of GPU events in replayed graphs, in total ("events") and by kind of link."""
        events, certain, unverified = (
            sum(getattr(replay, key) for replay in self.replays) for key in ("events", "certain", "unverified")
        )
        linked = certain + unverified
        return {"events": events, "certain": certain, "unverified": unverified, "unlinked": events - linked}

    @property
    def sentences(self) -> list[str]:
        counts, replays = self.counts, len(self.replays)
        if not replays:
            return ["the trace launches no graphs, so the captures were not used", *self.notes]
        linked = counts["certain"] + counts["unverified"]
        lines = [
            f"{linked:,} of {counts['events']:,} kernels and copies of {_launches(replays)} linked to operators in"
            f" the capture ({counts['certain']:,} certain)"
        ]
        for reason in GRAPH_REASONS:
            without = [replay.events for replay in self.replays if replay.reason == reason]
            if without:
                lines.append(f"{sum(without):,} kernels and copies of {_launches(len(without))} not linked: {reason}")
        lost = sum(replay.events - replay.certain - replay.unverified for replay in self.replays if not replay.reason)
        if lost:
            lines.append(f"{lost:,} kernels and copies have no launching operator in the captured graph")
        if padded := sum("padded batch size" in replay.evidence for replay in self.replays):
            lines.append(f"{_launches(padded)} in a step with a smaller batch than the graph's")
        if several := sum("one of several batch sizes" in replay.evidence for replay in self.replays):
            lines.append(f"{_launches(several)} of unknown batch size: the shapes come from one of the matching graphs")
        return [*lines, *self.notes]


def _launches(count: int) -> str:
    return f"{count:,} graph launch{'' if count == 1 else 'es'}"


class CalledWith:
    """A base class for views of calls that provides the shapes and dtypes of their inputs."""

    def _signature(self) -> Signature | None:
        raise NotImplementedError

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the input tensors, or () if they were not recorded."""
        signature = self._signature()
        return tuple(tensor.shape for tensor in signature.tensors) if signature else ()

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Dtypes of the input tensors in PyTorch's spelling. A dtype is "" if it was not recorded."""
        signature = self._signature()
        return tuple(tensor.dtype for tensor in signature.tensors) if signature else ()


@dataclass(frozen=True)
class CapturedOp(CalledWith):
    """The captured call that launched a kernel of a replayed graph."""

    trace: Trace
    index: int
    link_code: int
    replay: GraphReplay | None = None

    @property
    def _graphs(self) -> CapturedGraphs:
        assert self.trace.captured is not None
        return self.trace.captured

    @property
    def name(self) -> str:
        return self._graphs.names[self.index]

    @property
    def kind(self) -> str:
        """The kind of call: "operator", "annotation" or "module" (the forward of a module)."""
        return CALL_KINDS[int(self._graphs.kind[self.index])]

    @property
    def link(self) -> str:
        """ "certain" or "unverified"."""
        return LINK_NAMES[self.link_code]

    @property
    def evidence(self) -> tuple[str, ...]:
        """Evidence that the replay belongs to the captured graph, from `EVIDENCE`."""
        return self.replay.evidence if self.replay is not None else ()

    @property
    def candidates(self) -> int:
        return self.replay.candidates if self.replay is not None else 0

    @property
    def graph(self) -> CapturedGraph | None:
        at = self.replay.graph if self.replay is not None else None
        return self._graphs.graphs[at] if at is not None else None

    def _signature(self) -> Signature | None:
        code = int(self.trace.tables.captured.signature[self.index])
        return self.trace.signatures[code] if code >= 0 else None

    @property
    def parent(self) -> CapturedOp | None:
        """The caller, or None for an outermost call."""
        above = int(self._graphs.parent[self.index])
        return replace(self, index=above) if above >= 0 else None

    @property
    def modules(self) -> tuple[str, ...]:
        """Named regions (`## … ##`, `nn.Module: …`) around the call, outermost first."""
        tree = self.trace.attribution.hierarchy
        path = int(tree.path[len(self.trace.calls) + self.index])
        return tuple(self.trace.names[code] for code in tree.regions(path))

    def __repr__(self) -> str:
        shapes = f" {list(map(list, self.shapes))}" if self.shapes else ""
        return f"<captured {self.kind} {self.name}{shapes}, {self.link}>"


@dataclass(frozen=True, repr=False)
class Attribution(Record):
    """The operator that launched each GPU event, its captured original, or its counterpart."""

    calls: Calls  # the calls of the trace, followed by captured calls with times of 0
    call: IntColumn  # position in `calls` of the GPU event's operator, −1 if it is unknown
    hierarchy: Hierarchy  # modules and annotations around `calls`
    # GPU events with the same counterpart are numbered from 1. Events without a counterpart have the number 0.
    repetition: IntColumn
    in_module: npt.NDArray[np.bool_]  # True if the GPU event belongs to the modules that enclose its operator


def attribution_of(trace: Trace) -> Attribution:
    calls, gpu, captured = trace.calls, trace.gpu, trace.tables.captured
    if not len(captured):
        return _with_counterparts(trace, calls, gpu.call, trace.hierarchy)
    shifted = replace(captured, parent=as_positions(np.where(captured.parent >= 0, captured.parent + len(calls), -1)))
    joined = calls.joined(shifted)
    call = np.where(gpu.captured_by >= 0, gpu.captured_by + len(calls), gpu.call)
    return _with_counterparts(trace, joined, call, hierarchy_of(trace, joined))


def _with_counterparts(trace: Trace, calls: Calls, call: IntColumn, hierarchy: Hierarchy) -> Attribution:
    gpu, other = trace.gpu, trace.counterpart
    of_other = np.where(other >= 0, call[other], -1)
    repeated = np.flatnonzero((call < 0) & (of_other >= 0))
    order = repeated[np.argsort(gpu.counterpart[repeated], kind="stable")]
    begins = np.flatnonzero(run_starts(gpu.counterpart[order]))
    repetition = np.zeros(len(gpu), np.int64)
    repetition[order] = np.arange(len(order)) - np.repeat(begins, np.diff(begins, append=len(order))) + 1
    in_module = (repetition == 0) | gpu.same_module
    return Attribution(calls, np.where(repetition > 0, of_other, call), hierarchy, repetition, in_module)


def captured_calls(trace: Trace, table: SignatureTable) -> Calls:
    """Return a table of the calls in captured graphs. Add their signatures to `table`. These calls have no times."""
    graphs = trace.captured
    if graphs is None:
        return Calls.none()
    none, zero = as_positions(np.full(len(graphs), -1, np.int64)), as_column(np.zeros(len(graphs), np.int64))
    wanted = [numbers_matter(name) for name in graphs.names]
    signature = np.where(graphs.kind == OP, table.codes(graphs.texts, wanted), -1).astype(np.int32)
    names = StringTable(trace.names).codes(graphs.names)
    columns = as_column(names), as_column(graphs.kind), as_positions(graphs.parent)
    return Calls(*columns, none, zero, zero, as_column(signature), none)
