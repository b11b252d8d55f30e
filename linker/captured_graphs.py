"""Link the kernels of replayed CUDA and HIP graphs to the operators that launched them during capture.

A replay is one launch call with many kernels. A capture contains the launch calls, each inside an operator, but no
kernels. On every stream, a replay and its capture list the kernel names in the same order. `_CandidateGraphs.fit` finds
the captured graphs that match a replay. It compares the order of the kernel names (over all kernels, by graph node id,
or per stream). If the capture lacks kernel names, it compares the number of kernels and the known names. `_choose`
picks one graph per replay, based on the step's batch size and then on the order of the replays in the step."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.etplus.write_etplus import with_captured
from ..schemas.kineto.event_args import graph_node_args
from ..trace.captured import GRAPH_REASONS, CapturedGraph, CapturedGraphs, CaptureLinks, GraphReplay
from ..trace.columns import (
    IntColumn,
    StringTable,
    distinct,
    distinct_rows,
    inverse_positions,
    lists_by,
    mask_at,
    positions,
    scatter,
)
from ..trace.comm_kernels import Comm, launches_collective
from ..trace.errors import UsageError
from ..trace.kinds import CERTAIN, GPU, RUNTIME, UNVERIFIED
from ..trace.step_annotations import batch_size_in
from ..trace.trace import Trace
from .captures import Capture, kernel_key, with_callers
from .comm import comm_of_tensor, is_all_reduce

_NO_KERNELS, _NO_BATCH, _STREAMS = GRAPH_REASONS
_OTHER_RANK = "the captures come from a different rank than the trace, so their links are not certain"


def link_captured_graphs(trace: Trace, captures: Sequence[Capture]) -> Trace:
    """Link the replayed graphs of a trace to the calls in their captures. Raise UsageError if they are already linked.

    A link is `certain` if the replay has the same kernel names in the same order as the captured graph, and no other
    captured graph has the same names. A link is `unverified` if several graphs match, if only the number of kernels
    matches, if the replay runs on several streams and has no node ids, or if all captures come from another rank.

    Example:
        >>> linked = link_captured_graphs(replay, read_captures(["capture.json.gz"]))  # doctest: +SKIP
    """
    if trace.captured is not None:
        raise UsageError(f"{trace.file}: its graphs are already linked to captures; pass an unlinked trace")
    names = StringTable()
    of_rank = [capture for capture in captures if trace.rank is None or capture.rank in (None, trace.rank)]
    captures = of_rank or captures
    graphs = _CandidateGraphs(_graphs_of(captures, names), own_rank=bool(of_rank))
    replays = graph_launches(trace, names)
    fits = {key: graphs.fit(replay) for key, replay in {replay.key: replay for replay in reversed(replays)}.items()}
    chosen = _choose(graphs, replays, [fits[replay.key] for replay in replays])
    return _with_links(trace, captures, graphs, replays, chosen)


@dataclass(frozen=True)
class _Graph:
    """A captured graph. `at`: its launches' positions in the capture; `launches`: kernel name codes, −1 if unknown."""

    capture: int
    ordinal: int
    at: IntColumn
    launches: IntColumn
    grid: IntColumn
    batch_size: int | None

    @cached_property
    def named(self) -> bool:
        return bool(np.all(self.launches >= 0))


def _graphs_of(captures: Sequence[Capture], names: StringTable) -> list[_Graph]:
    found = []
    for number, capture in enumerate(captures):
        codes = np.array([-1 if key is None else names.codes([key])[0] for key in capture.kernel], np.int64)
        for ordinal, size in enumerate(capture.batch_size):
            at = np.flatnonzero(capture.graph == ordinal)
            if len(at):
                found.append(_Graph(number, ordinal, at, codes[at], capture.grid[at], size))
    return found


class _Fit(NamedTuple):
    """Captured graphs that match a replay equally well, and how each aligns with it. `whole`: all names agree."""

    candidates: tuple[int, ...]
    aligned: tuple[IntColumn, ...]
    whole: bool
    evidence: tuple[str, ...]
    reason: str = ""


class _CandidateGraphs:
    def __init__(self, graphs: list[_Graph], *, own_rank: bool) -> None:
        self.graphs, self.own_rank = graphs, own_rank
        self.by_order: dict[bytes, list[int]] = defaultdict(list)
        self.by_names: dict[bytes, list[int]] = defaultdict(list)
        self.by_count: dict[int, list[int]] = defaultdict(list)
        for i, graph in enumerate(graphs):
            if graph.named:
                self.by_order[graph.launches.tobytes()].append(i)
                self.by_names[np.sort(graph.launches).tobytes()].append(i)
            else:
                self.by_count[len(graph.launches)].append(i)

    def fit(self, replay: GraphLaunch) -> _Fit:
        by_node = replay.node_order
        if by_node is not None and (found := self.by_order.get(replay.codes[by_node].tobytes())):
            launch = inverse_positions(len(by_node), by_node)
            return self._by_grids(replay, found, launch, ("kernel names", "graph node ids"))
        in_time = np.arange(len(replay.codes))
        if replay.streams == 1 and (found := self.by_order.get(replay.codes.tobytes())):
            return self._by_grids(replay, found, in_time, ("kernel names",))
        if replay.streams > 1 and (found := self.by_names.get(np.sort(replay.codes).tobytes())):
            return self._on_streams(replay, found)
        return self._by_number(replay, by_node)

    def _by_grids(self, replay: GraphLaunch, found: list[int], aligned: IntColumn, evidence: tuple[str, ...]) -> _Fit:
        agree = [_grids_agree(self.graphs[i], aligned, replay) for i in found]
        if False in agree:
            fitting = [i for i, same in zip(found, agree, strict=True) if same is not False]
            evidence = (*evidence, "grids" if fitting else "other grids")
            found = fitting or found
        whole = "other grids" not in evidence and not self.by_count.get(len(replay.codes))
        return _Fit(tuple(found), (aligned,) * len(found), whole, evidence)

    def _on_streams(self, replay: GraphLaunch, found: list[int]) -> _Fit:
        """Pair each name's k-th kernel with its k-th launch, because the order between streams is unknown."""
        in_order = np.argsort(replay.codes, kind="stable")
        launches = (np.argsort(self.graphs[i].launches, kind="stable") for i in found)
        aligned = tuple(scatter(len(in_order), in_order, launch) for launch in launches)
        return _Fit(tuple(found), aligned, False, ("kernel names per stream",))

    def _by_number(self, replay: GraphLaunch, by_node: IntColumn | None) -> _Fit:
        count = len(replay.codes)
        order = np.arange(count) if by_node is None else by_node
        launches = {i: self.graphs[i].launches for i in self.by_count.get(count, ())}
        found = [i for i, codes in launches.items() if np.all((codes == replay.codes[order]) | (codes < 0))]
        if not found:
            return _Fit((), (), False, (), _NO_KERNELS)
        if replay.streams > 1 and by_node is None:
            return _Fit((), (), False, (), _STREAMS)
        evidence = ("number of kernels",) if by_node is None else ("number of kernels", "graph node ids")
        return _Fit(tuple(found), (inverse_positions(count, order),) * len(found), False, evidence)


def _grids_agree(graph: _Graph, launch: IntColumn, replay: GraphLaunch) -> bool | None:
    """Return True if the grids match, None if unknown. Some HIP tracers multiply the grid by the block size."""
    captured, ran = graph.grid[launch], replay.grid
    known = np.all(captured[:, 0] >= 0, axis=1) & np.all(ran[:, 0] >= 0, axis=1)
    if not known.any():
        return None
    captured, ran = captured[known], ran[known]
    same = np.all(captured[:, 0] == ran[:, 0], axis=1)
    for blocks, threads in ((captured, ran), (ran, captured)):
        same |= np.all(blocks[:, 0] * blocks[:, 1] == threads[:, 0], axis=1)
    return bool(same.all())


class _Choice(NamedTuple):
    graph: int | None = None
    launch: IntColumn = np.zeros(0, np.int64)
    certain: bool = False
    candidates: int = 0
    evidence: tuple[str, ...] = ()
    reason: str = ""


def _choose(graphs: _CandidateGraphs, replays: list[GraphLaunch], fits: list[_Fit]) -> list[_Choice]:
    narrowed = [_of_batch(graphs, replay, fit) for replay, fit in zip(replays, fits, strict=True)]
    keys = [(replay.step, fit.candidates) for replay, fit in zip(replays, narrowed, strict=True)]
    alike = lists_by(keys, range(len(keys)))
    chosen: dict[int, _Choice] = {}
    for (_, candidates), members in alike.items():
        sizes = [graphs.graphs[candidate].batch_size for candidate in candidates]
        pool = [at for at, size in enumerate(sizes) if size == sizes[0]]  # compare order within one batch size only
        further = ["one of several batch sizes"] if len(pool) < len(sizes) else []
        further += ["order in the step"] if len(pool) > 1 and len(members) % len(pool) == 0 else []
        for k, i in enumerate(members):
            fit = narrowed[i]
            if not candidates:
                chosen[i] = _Choice(reason=fit.reason)
                continue
            at = pool[k % len(pool)]
            certain = graphs.own_rank and fit.whole and len(fits[i].candidates) == 1
            evidence = (*fit.evidence, *further)
            chosen[i] = _Choice(candidates[at], fit.aligned[at], certain, len(candidates), evidence)
    return [chosen[i] for i in range(len(replays))]


def _of_batch(graphs: _CandidateGraphs, replay: GraphLaunch, fit: _Fit) -> _Fit:
    """Keep the candidates with the step's batch size or, because servers pad batches, with the next larger size."""
    sizes = [graphs.graphs[i].batch_size for i in fit.candidates]
    if not replay.batch or None in sizes or not sizes:
        return fit
    wanted = set(replay.batch) & set(sizes)
    evidence = "batch size"
    if not wanted:
        greater = [size for size in sizes if size is not None and size > replay.batch[0]]
        if not greater:
            return _Fit((), (), False, (), _NO_BATCH)
        wanted, evidence = {min(greater)}, "padded batch size"
    kept = [at for at, size in enumerate(sizes) if size in wanted]
    candidates, aligned = tuple(fit.candidates[at] for at in kept), tuple(fit.aligned[at] for at in kept)
    return _Fit(candidates, aligned, fit.whole and evidence == "batch size", (*fit.evidence, evidence))


def _with_links(
    trace: Trace,
    captures: Sequence[Capture],
    graphs: _CandidateGraphs,
    replays: list[GraphLaunch],
    chosen: list[_Choice],
) -> Trace:
    used = sorted({choice.graph for choice in chosen if choice.graph is not None})
    place_of, calls = _captured_calls(captures, [graphs.graphs[i] for i in used])
    described = list[CapturedGraph]()
    for graph in map(graphs.graphs.__getitem__, used):
        capture = captures[graph.capture]
        size, mode = graph.batch_size, capture.mode[graph.ordinal]
        described.append(CapturedGraph(capture.file, graph.ordinal, size, mode, len(graph.launches)))
    parts: list[npt.NDArray[np.int64]] = []
    listed = []
    for number, (replay, choice) in enumerate(zip(replays, chosen, strict=True)):
        place, certain, unverified = None, 0, 0
        if choice.graph is not None:
            graph, launch = graphs.graphs[choice.graph], choice.launch
            op = np.append(place_of[graph.capture], -1)[captures[graph.capture].op[graph.at[launch]]]
            has = np.flatnonzero(op >= 0)
            link = np.full(len(has), CERTAIN if choice.certain else UNVERIFIED)
            parts.append(np.stack([replay.events[has], op[has], link, np.full(len(has), number)]))
            certain, unverified = (len(has), 0) if choice.certain else (0, len(has))
            place = used.index(choice.graph)
        counts = len(replay.events), certain, unverified
        listed.append(
            GraphReplay(replay.correlation, place, choice.candidates, choice.evidence, choice.reason, *counts)
        )
    links = np.concatenate(parts, axis=1) if parts else np.zeros((4, 0), np.int64)
    links = links[:, np.argsort(links[0], kind="stable")]
    attached = links[0] < len(trace)
    captured = CapturedGraphs(
        graphs=tuple(described),
        replays=tuple(listed),
        **calls,
        links=_links(links[:, attached], 0),
        unattached=_links(links[:, ~attached], len(trace)),
        notes=(*([] if graphs.own_rank else [_OTHER_RANK]), *(note for capture in captures for note in capture.notes)),
    )
    names = StringTable(trace.names)
    names.codes(captured.names)
    return with_captured(trace.with_(names=names.values, comm=_comm(trace, captured)), captured)


def _links(columns: IntColumn, first: int) -> CaptureLinks:
    event, op, link, replay = columns
    return CaptureLinks(event - first, op, link.astype(np.int8), replay)


def _comm(trace: Trace, captured: CapturedGraphs) -> dict[int, Comm]:
    comm = dict(trace.comm)
    for row, op in zip(captured.links.event.tolist(), captured.links.op.tolist(), strict=True):
        source = captured.comm_above[op]
        if not trace.communicates[row] and not launches_collective(captured.names[op], trace.name_of(row)):
            continue
        given = comm.get(row, Comm())
        if source >= 0:
            comm[row] = given.filled(captured.comm[source])
        elif given.bytes is None and given.collective == "allreduce" and is_all_reduce(captured.names[op]):
            comm[row] = given.filled(comm_of_tensor(captured.texts[op]))
        elif not trace.communicates[row]:
            comm[row] = given
    return comm


def _captured_calls(captures: Sequence[Capture], graphs: list[_Graph]) -> tuple[dict[int, IntColumn], dict[str, Any]]:
    """Merge the captured calls into a table. Return where each capture's calls are, and the table's columns."""
    place, names, texts, comm = dict[int, IntColumn](), list[str](), list[bytes](), dict[int, Comm]()
    kind, parent, of_graph = [np.zeros(0, np.int8)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number in sorted({graph.capture for graph in graphs}):
        capture = captures[number]
        own = [(i, graph) for i, graph in enumerate(graphs) if graph.capture == number]
        kept = with_callers(np.concatenate([capture.op[graph.at] for _, graph in own]), capture.parent)
        silent = ~mask_at(len(capture.name), with_callers(capture.op, capture.parent))  # these calls launch nothing
        kept = distinct(np.append(kept, np.flatnonzero(silent & np.isin(capture.parent, kept))))
        place[number] = scatter(len(capture.name), kept, len(names) + np.arange(len(kept)))
        ordinals = scatter(len(capture.batch_size) + 1, [graph.ordinal for _, graph in own], [i for i, _ in own])
        above = capture.parent[kept]
        parent.append(np.where(above >= 0, place[number][above], -1))
        kind.append(capture.kind[kept])
        of_graph.append(ordinals[capture.of_graph[kept]])
        for call in kept.tolist():
            if call in capture.comm:
                comm[len(names)] = capture.comm[call]
            names.append(capture.name[call])
            texts.append(capture.texts[call])
    columns = {"kind": np.concatenate(kind), "parent": np.concatenate(parent), "graph": np.concatenate(of_graph)}
    return place, {"names": names, **columns, "texts": texts, "comm": comm}


_GRAPH_LAUNCH = re.compile(r"\w*GraphLaunch\w*")


@dataclass(frozen=True)
class GraphLaunch:
    correlation: int
    events: IntColumn  # row in the trace; for an unattached event, len(trace) plus its position in `Trace.unattached`
    codes: IntColumn  # each event's name code
    stream: IntColumn
    grid: IntColumn  # each event's grid and block, shape (n, 2, 3); −1 if not recorded
    node: IntColumn  # each event's `graph node id`; 0 if not recorded
    step: int  # number of the step; shared by all launches in the step
    batch: tuple[int, ...]  # batch sizes in the annotations around the launch, innermost annotation first

    @cached_property
    def key(self) -> tuple[bytes, ...]:
        """Return the lookup key. Replays that have the same key match the same captured graphs."""
        ranks = np.argsort(np.argsort(self.node, kind="stable"), kind="stable")
        return tuple(column.tobytes() for column in (self.codes, self.stream, self.grid, ranks))

    @property
    def streams(self) -> int:
        return len(distinct(self.stream))

    @property
    def node_order(self) -> IntColumn | None:
        """Indices that sort the events by node id; None if the ids are unknown. Node ids increase during capture."""
        known = bool(np.all(self.node > 0)) and len(distinct(self.node)) == len(self.node)
        return np.argsort(self.node, kind="stable") if known else None


def graph_launches(trace: Trace, names: StringTable) -> list[GraphLaunch]:
    """Return all graph launches that have device events, in call order. Add new kernel names to `names`."""
    launching = np.array([_GRAPH_LAUNCH.fullmatch(name) is not None for name in trace.names], np.bool_)
    nodes = trace.nodes
    launches = np.flatnonzero((nodes.kind == RUNTIME) & launching[nodes.name] & (nodes.correlation > 0))
    launches = launches[np.argsort(nodes.ts[launches], kind="stable")]
    rows, rest = np.flatnonzero(nodes.kind == GPU), trace.unattached
    events = np.append(rows, len(trace) + np.arange(len(rest)))
    correlation, ts, device, stream = (
        np.append(getattr(nodes, key)[rows], getattr(rest, key)) for key in ("correlation", "ts", "device", "stream")
    )
    launch = positions(nodes.correlation[launches], correlation)
    order = np.lexsort((events, ts, launch))
    order = order[launch[order] >= 0]
    events, launch = events[order], launch[order]
    lane = distinct_rows(device[order], stream[order])[1]
    codes = np.array(names.codes(list(_keys(trace, events))), np.int64)
    grid, node = _launched_as(trace, events)
    steps = _steps(trace, launches)
    bounds = [0, *(np.flatnonzero(np.diff(launch, append=-1)) + 1).tolist()]
    found = []
    for a, b in pairwise(bounds):
        k = int(launch[a])
        correlation_id = int(trace.nodes.correlation[launches[k]])
        found.append(GraphLaunch(correlation_id, events[a:b], codes[a:b], lane[a:b], grid[a:b], node[a:b], *steps[k]))
    return found


def _keys(trace: Trace, events: IntColumn) -> Iterator[str]:
    rest = trace.unattached
    for event in events.tolist():
        if event < len(trace):
            yield kernel_key(trace.name_of(event), trace.categories[trace.nodes.category[event]])
        else:
            yield kernel_key(rest.names[event - len(trace)], rest.categories[event - len(trace)])


def _launched_as(trace: Trace, events: IntColumn) -> tuple[IntColumn, IntColumn]:
    grid, node = np.full((len(events), 2, 3), -1, np.int64), np.zeros(len(events), np.int64)
    records = trace.records(events[events < len(trace)])
    for at, event in enumerate(events.tolist()):
        attached = event < len(trace)
        args = bytes(next(records).get("args", b"{}")) if attached else trace.unattached.args[event - len(trace)]
        found = graph_node_args(args)
        if found is not None:
            grid[at], node[at] = found.dimensions, found.node if found.node < 2**63 else 0
    return grid, node


def _steps(trace: Trace, launches: IntColumn) -> list[tuple[int, tuple[int, ...]]]:
    """Return each launch call's step and batch sizes. A step is the outermost annotation that has a batch size."""
    sizes = [batch_size_in(name) for name in trace.names]
    ordinal = [-1] * len(launches) if trace.steps.inferred else trace.steps.of(trace.nodes.ts[launches]).tolist()
    steps = []
    for launch, step in zip(launches.tolist(), ordinal, strict=True):
        found, row, outermost = list[int](), int(trace.nodes.parent_row[launch]), -2 - step
        while row >= 0:
            size = sizes[trace.nodes.name[row]]
            if size is not None:
                found.append(size)
                outermost = row
            row = int(trace.nodes.parent_row[row])
        steps.append((outermost, tuple(found)))
    return steps
