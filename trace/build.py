"""Build a `Trace` from columns that are added in file order."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from .call_tree import on_circles
from .captured import CapturedGraphs
from .columns import IntColumn, RowColumn, StringTable, distinct_rows, int_column, mask_at, matching, positions
from .comm_kernels import Comm
from .conventions import EDGE_KINDS, EPOCH_NS, MAX_NS, STRUCTURAL
from .counterparts import Counterparts
from .errors import TraceFormatError
from .generated import GeneratedKernels
from .index import ColumnOf, Positions, Row, as_column, as_positions
from .kinds import CPU, GPU, RUNTIME
from .node_texts import NO_RECORDS as NO_RECORDS  # other modules import this name from here
from .node_texts import RecordStore
from .nodes import NODE_COLUMNS, Nodes
from .printable import shortened
from .root_facts import EtplusSection, damage_in
from .stacks import Stacks
from .tables import MemoryEvents, UnattachedEvents
from .trace import Trace

# A caller of `add` passes each column as an array or as Python values. Values that do not fit become null.
Values = Sequence[Any] | npt.NDArray[Any]

_REMEDY = "create the file again with trace-link"
_SHOWN = 5  # maximum number of ids that a message lists
_NAME = 60  # maximum length of a name in a message

_DERIVED = ("structural", "parent_row", "thread")
# Callers of `add` pass these columns. `build` computes the remaining columns of `Nodes`.
GIVEN_COLUMNS: dict[str, RowColumn] = {
    **{name: row_column for name, row_column in NODE_COLUMNS.items() if name not in _DERIVED},
    "tid": RowColumn(np.int64, 0, "", "CPU nodes: thread id in the ET; runtime calls: index into `tids`"),
}

# Reasons why an event's times are impossible. A reason's code is its index in this tuple.
IMPOSSIBLE = (
    "",
    "has a negative duration",
    "takes over a day",
    "starts more than a day from most other events",
    "runs on after later events of its stream have ended",
)
_NEGATIVE, _LONG, _FAR, _OVERRUNS = range(1, 5)
# Recordings take minutes. A missing time (0) is over a day off, because clocks started in 1970 or months ago.
_DAY_NS = 86_400 * 10**9
# An event may outlast a later event on its stream by up to 0.1 s, because rounding and early launches cause overlaps.
# ROCm gets the second, longer limit, because its streams share queues in which a collective may wait.
_OVERRUN_NS, _QUEUE_OVERRUN_NS = 10**8, 10**9
_CONCURRENT = "mtia_ccp_events"  # On MTIA, one lane contains overlapping work of several units.


class TraceBuilder:
    """Builds a `Trace`. Callers add the nodes in file order, and then the runtime calls."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.names, self.categories = StringTable(), StringTable([""])
        # Thread ids that Kineto recorded for runtime calls. The column `tid` contains indices into this table or list.
        self.tids: StringTable | Sequence[int | str] = StringTable()
        self.sync_dep: dict[int, list[int]] = {}  # see `Trace.sync_dep`; callers fill this dict
        self.comm: dict[int, Comm] = {}  # maps rows to communications; callers fill this dict
        self.count = 0  # number of rows added so far
        self._blocks: defaultdict[str, list[npt.NDArray[Any]]] = defaultdict(list)

    def add(self, kind: int | npt.NDArray[np.int8], *, id: Values, **columns: Values) -> None:
        """Add rows with a kind, unique nonnegative ids, and other `GIVEN_COLUMNS`. Missing columns become null.
        Pass `name`, `category` and the `tid` of runtime calls as lists of strings or as arrays of codes."""
        size = len(id)
        given: dict[str, Values] = {"kind": np.broadcast_to(np.int8(kind), size), "id": id, **columns}
        interned = {"name": self.names, "category": self.categories}
        if isinstance(kind, int) and kind == RUNTIME and isinstance(self.tids, StringTable):
            interned["tid"] = self.tids
        for name, column in GIVEN_COLUMNS.items():
            values = given.pop(name, None)
            if values is None:
                block = np.full(size, column.none or 0, column.dtype)
            elif isinstance(values, np.ndarray):
                block = values.astype(column.dtype, copy=False)
            elif name in interned:
                block = interned[name].codes(list(values)).astype(column.dtype, copy=False)
            else:
                block = int_column(list(values), -1 if column.none is None else column.none)
                block = block.astype(column.dtype, copy=False)
            self._blocks[name].append(block)
        assert not given, f"not columns of a trace: {', '.join(given)}"
        self.count += size

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return one of `GIVEN_COLUMNS` for all rows added so far. Callers must not modify the array."""
        blocks = self._blocks[name]
        if len(blocks) != 1:
            blocks[:] = [np.concatenate([np.zeros(0, GIVEN_COLUMNS[name].dtype), *blocks])]
        return blocks[0]

    def check(self) -> None:
        if any(self.column(name).sum(dtype=np.float64) >= MAX_NS for name in ("dur", "exclusive")):
            raise TraceFormatError(self.file, "", "durations that add up to over 146 years", _REMEDY)
        ordered = np.sort(self.column("id"))
        repeated = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(repeated):
            raise TraceFormatError(self.file, f"id {repeated[0]}", "two nodes have it", _REMEDY)

    def build(
        self,
        texts: RecordStore,
        *,
        summary: dict[str, Any],
        header: Mapping[str, msgspec.Raw] | None = None,
        flat: bool = False,
        edges: IntColumn | None = None,
        unattached: UnattachedEvents | None = None,
        memory: MemoryEvents | None = None,
        stacks: Stacks | None = None,
        generated: GeneratedKernels | None = None,
        captured: CapturedGraphs | None = None,
        counterparts: Counterparts | None = None,
        thread: ColumnOf[Row, np.int64] | None = None,
        notes: tuple[str, ...] = (),
    ) -> Trace:
        """Return a trace with the added rows. Each row of `edges` contains a source id, a target id and an index into
        EDGE_KINDS. Pass `thread` if it is known. Raise TraceFormatError if an edge does not connect two nodes."""
        columns: dict[str, Any] = {name: self.column(name) for name in GIVEN_COLUMNS}
        self._blocks.clear()
        tid, same_tids, kind = columns.pop("tid"), summary.get("nodes_from") == "kineto", columns["kind"]
        parent_row, summary = self._callers(columns, summary)
        if thread is None:
            tids = self.tids.values if isinstance(self.tids, StringTable) else self.tids
            thread = threads_of_rows(kind, tid, parent_row, tid[kind == RUNTIME], tids, same_tids=same_tids)
        unattached, summary = self._without_impossible_times(columns, unattached, summary)
        structural = matching(columns["name"], self.names.values, STRUCTURAL.fullmatch) & (kind == CPU)
        self.names.codes([*unattached.names, *(captured.names if captured is not None else [])])
        self.names.codes(stacks.module_names if stacks is not None else [])
        self.categories.codes(unattached.categories)
        return Trace(
            file=self.file,
            header={} if header is None else header,
            summary=EtplusSection(summary),
            flat=flat,
            texts=texts,
            nodes=Nodes(structural=as_column(structural), parent_row=parent_row, thread=thread, **columns),
            names=self.names.values,
            categories=self.categories.values,
            sync_dep=self.sync_dep,
            comm=self.comm,
            edges=np.zeros((0, 3), np.int64) if edges is None else self._rows_of(edges, columns["id"]),
            unattached=unattached,
            memory=MemoryEvents.none() if memory is None else memory,
            stacks=Stacks.none() if stacks is None else stacks,
            generated=GeneratedKernels.none() if generated is None else generated,
            notes=notes,
            captured=captured,
            counterparts=Counterparts() if counterparts is None else counterparts,
            own_code=(),
            selection=None,
            given_tables=None,
        )

    def _callers(self, columns: dict[str, Any], summary: dict[str, Any]) -> tuple[Positions[Row, Row], dict[str, Any]]:
        parent_row, circling = parent_rows(columns["id"], columns["parent"])
        if len(circling):
            columns["parent"] = np.where(mask_at(len(parent_row), circling), -1, columns["parent"])
            ids = columns["id"][circling]
            shown = ", ".join(map(str, ids[:_SHOWN].tolist())) + (", ..." if len(ids) > _SHOWN else "")
            are = "1 call is its own caller" if len(ids) == 1 else f"{len(ids):,} calls form cycles of callers"
            broken = f"{PurePath(self.file).name} is broken: {are} (ids {shown}); treated as calls without a caller"
            summary = {**summary, "damage": [*damage_in(summary), broken]}
        return parent_row, summary

    def _without_impossible_times(
        self, columns: dict[str, Any], unattached: UnattachedEvents | None, summary: dict[str, Any]
    ) -> tuple[UnattachedEvents, dict[str, Any]]:
        unattached = UnattachedEvents.none() if unattached is None else unattached
        wrong, rows = self._impossible(columns, unattached), len(columns["ts"])
        if wrong.any():
            sentence = f" is broken: {self._wrong_times(columns, unattached, wrong)}"
            if not any(text.endswith(sentence) for text in damage_in(summary)):  # the file may already report this
                summary = {**summary, "damage": [*damage_in(summary), PurePath(self.file).name + sentence]}
            columns["ts"] = np.where(wrong[:rows], -1, columns["ts"])
            unattached = replace(unattached, ts=np.where(wrong[rows:], -1, unattached.ts))
        for name in ("dur", "exclusive"):  # unfinished calls have negative durations
            columns[name] = np.where(columns["ts"] >= 0, np.maximum(columns[name], 0), 0)
        return replace(unattached, dur=np.where(unattached.ts >= 0, unattached.dur, 0)), summary

    def _impossible(self, columns: dict[str, Any], unattached: UnattachedEvents) -> npt.NDArray[np.int8]:

        def both(name: str, others: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.concatenate([columns[name], others]) if len(unattached) else columns[name]

        names = "ts", "dur", "device", "stream", "correlation"
        return impossible_times(
            **{name: both(name, getattr(unattached, name)) for name in names},
            is_gpu=both("kind", np.full(len(unattached), GPU)) == GPU,
            category=both("category", self.categories.codes(unattached.categories)),
            categories=self.categories.values,
            names=self.names.values,
        )

    def _wrong_times(self, columns: dict[str, Any], unattached: UnattachedEvents, wrong: npt.NDArray[np.int8]) -> str:
        places = np.flatnonzero(wrong)
        shown = []
        for place in places[:_SHOWN].tolist():
            row = place - len(columns["id"])  # places after the last node refer to unattached events
            name = unattached.names[row] if row >= 0 else self.names.values[columns["name"][place]]
            loose = f"not attached, correlation {unattached.correlation[row]}" if row >= 0 else ""
            which = loose or f"id {columns['id'][place]}"
            shown.append(f"{shortened(name, _NAME)} ({which}) {IMPOSSIBLE[wrong[place]]}")
        count = "1 event has impossible times and is excluded"
        if len(places) > 1:
            count = f"{len(places):,} events have impossible times and are excluded"
        return f"{count} from all sums: {'; '.join(shown)}{', ...' if len(places) > _SHOWN else ''}"

    def _rows_of(self, edges: IntColumn, ids: IntColumn) -> IntColumn:
        ends = positions(ids, edges[:, :2].reshape(-1)).reshape(-1, 2)
        strange = np.flatnonzero(np.any(ends < 0, axis=1) | (ends[:, 0] == ends[:, 1]))
        if len(strange):
            a, b, kind = edges[strange[0]].tolist()
            problem = f"[{a}, {b}, {EDGE_KINDS[kind]!r}] does not join two nodes in the file"
            raise TraceFormatError(self.file, f"edges[{strange[0]}]", problem, _REMEDY)
        return np.concatenate([ends, edges[:, 2:]], axis=1)


def built_on_demand(file: str, summary: dict[str, Any], texts: RecordStore, build: Callable[[], Trace]) -> Trace:
    """Return a trace that can be written to a file at once, and that calls `build` when its columns are first used."""
    trace = _ColumnsOnDemand.__new__(_ColumnsOnDemand)
    vars(trace).update(file=file, summary=EtplusSection(summary), texts=texts, captured=None, _build=build)
    return trace


class _ColumnsOnDemand(Trace):
    def __getattr__(self, name: str) -> Any:
        known = vars(self)
        if name not in self.__dataclass_fields__ or "_build" not in known:
            return super().__getattr__(name)  # type: ignore[misc]
        built = vars(known.pop("_build")())
        known.update({**built, **known})
        if damage := damage_in(built["summary"]):  # `build` may have found and reported damage
            known["summary"] = {**known["summary"], "damage": list(damage)}
        return known[name]

    @property
    def damage(self) -> tuple[str, ...]:
        len(self.nodes)
        return super().damage


def parent_rows(ids: IntColumn, parent: IntColumn) -> tuple[Positions[Row, Row], IntColumn]:
    """Return `Nodes.parent_row` without cycles, and the rows that were on cycles. An ET root may be its own caller."""
    rows = positions(ids, parent)
    rows[rows == np.arange(len(ids))] = -1
    if not np.any((parent >= ids) & (rows >= 0)):  # PyTorch gives callers lower ids
        return as_positions(rows), rows[:0]
    circling = np.flatnonzero(on_circles(rows))
    rows[circling] = -1
    return as_positions(rows), circling


def threads_of_rows(
    kind: npt.NDArray[np.int8],
    tid: IntColumn,
    parent_row: IntColumn,
    codes: npt.NDArray[np.integer],
    tids: Sequence[int | str],
    *,
    same_tids: bool,
) -> ColumnOf[Row, np.int64]:
    """Return `Nodes.thread`. For each Kineto thread, the callers of its runtime calls vote on the matching ET thread.
    `codes` has an index into `tids` for each runtime call. Pass `same_tids` if the nodes come from Kineto."""
    thread = np.where(kind == GPU, -1, tid)
    runtime = np.flatnonzero(kind == RUNTIME)
    below = parent_row[runtime] >= 0
    threads, which = distinct_rows(codes[below], thread[parent_row[runtime][below]])
    first, count = positions(which, np.arange(len(threads))), np.bincount(which, minlength=len(threads))
    own = itertools.count(-2, -1)
    known = np.empty(len(tids), np.int64)
    for code, value in enumerate(tids):
        votes = np.flatnonzero(threads[:, 0] == code)
        if len(votes):  # on a tie, choose the thread seen first
            known[code] = threads[votes[np.lexsort((first[votes], -count[votes]))[0]], 1]
        else:
            stated = same_tids and isinstance(value, int) and abs(value) < 2**63  # a damaged tid may be huge
            known[code] = value if stated else next(own)
    thread[runtime] = known[codes]
    return as_column(thread)


def impossible_times(
    ts: IntColumn,
    dur: IntColumn,
    *,
    is_gpu: npt.NDArray[np.bool_],
    device: IntColumn,
    stream: IntColumn,
    correlation: IntColumn,
    category: IntColumn,
    categories: Sequence[str],
    names: Sequence[str],
) -> npt.NDArray[np.int8]:
    """Return an index into `IMPOSSIBLE` for each event. A missing `ts` is −1, and unfinished calls have `dur` < 0."""
    wrong = np.zeros(len(ts), np.int8)
    timed = np.flatnonzero(ts >= 0)
    if not len(timed):
        return wrong
    starts = ts[timed]
    late = starts[starts >= EPOCH_NS]
    of_most = late if len(late) else starts
    middle = np.partition(of_most, len(of_most) // 2)[len(of_most) // 2]
    wrong[timed[np.abs(starts - middle) > _DAY_NS]] = _FAR
    wrong[dur > _DAY_NS] = _LONG
    wrong[is_gpu & (dur < 0)] = _NEGATIVE
    rows = np.flatnonzero(is_gpu & (wrong == 0) & (ts >= 0))
    if _CONCURRENT in categories:
        rows = rows[category[rows] != list(categories).index(_CONCURRENT)]
    shares_queues = any(name.startswith("hip") for name in names)
    limit = _QUEUE_OVERRUN_NS if shares_queues else _OVERRUN_NS
    late = rows[_overruns(ts[rows], dur[rows], device[rows], stream[rows], limit)]
    _, which, counts = np.unique(correlation[rows], return_inverse=True, return_counts=True)
    of_graphs = (counts > 1)[which] & (correlation[rows] >= 0)
    wrong[late[~of_graphs[np.searchsorted(rows, late)]]] = _OVERRUNS
    return wrong


def _overruns(ts: IntColumn, dur: IntColumn, device: IntColumn, stream: IntColumn, limit: int) -> npt.NDArray[np.bool_]:
    if not np.any(dur > limit):  # nearly every trace returns here
        return np.zeros(len(ts), np.bool_)
    lane = distinct_rows(device, stream)[1]
    order = np.lexsort((ts, lane))
    end = (ts + dur - ts.min())[order] // 1000  # shifted times in µs still fit into int64
    # Shift the lanes in time so that all events of a lane end after all events of the previous lane.
    end += lane[order] * (int(end.max()) + 1)
    first_later = np.minimum.accumulate(end[::-1])[::-1]
    overruns = np.zeros(len(ts), np.bool_)
    overruns[order[:-1]] = end[:-1] - first_later[1:] > limit // 1000
    return overruns
