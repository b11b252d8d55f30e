"""Find the communications of one rank, in program order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from ..trace.call_tree import nearest
from ..trace.columns import IntColumn, matching, positions, without
from ..trace.comm_kernels import Comm
from ..trace.conventions import MAX_RANKS
from ..trace.index import Row
from ..trace.kinds import CPU, GPU
from ..trace.root_facts import groups_in
from ..trace.trace import Trace
from .comm_types import (
    COLLECTIVES,
    HOST_COLLECTIVE,
    RECV,
    SEND,
    Group,
    collective_type,
    group_of,
    message_bytes,
    with_inputs,
)
from .execution_trace.arguments import PROCESS_GROUPS, call_records, recorded_groups
from .kineto.host_calls import WAIT, group_size_of, named_group, outermost_calls, pair_with_calls, remaining_group

UNKNOWN: Final = 1000  # the kind of a collective that could not be identified
COMMUNICATION_COLUMNS = ("node", "kind", "bytes", "group", "peer", "seq", "start", "end", "on_host")
COMM_KINDS = COLLECTIVES | {"SEND": SEND, "RECV": RECV, "COLLECTIVE": UNKNOWN}
_NAMES = {kind: name for name, kind in COMM_KINDS.items()}
_MAX_SEQ = 2**62
_FUNCTIONAL = "_c10d_functional::"


@dataclass(frozen=True)
class FoundComm:
    row: int
    kind: int | None  # a CollectiveCommType, SEND or RECV; None if unknown
    peer: int  # the other rank of a point-to-point message; −1 for collectives, or if unknown
    bytes: int | None  # the size that `message_bytes` returns; None if unknown
    group: Group  # the name of the process group in the trace, and its ranks
    seq: int  # sequence number in the trace; −1 if not recorded
    # Time when the transfer can start. For a send on the host, this is the start of the call that writes to the socket.
    start_ns: int
    described: str = ""  # the group's description in the trace, such as "tp"; "" if not recorded

    @property
    def understood(self) -> bool:
        return self.kind is not None and (self.kind >= 0 or self.peer >= 0)


def find_communications(trace: Trace) -> Iterator[FoundComm]:
    """Yield a rank's communications in program order: the order in which the host launched or called them."""
    return iter(trace.once(_communications))


def _communications(trace: Trace) -> list[FoundComm]:
    found = []
    rows = comm_rows(trace)
    rows = rows[np.lexsort((trace.nodes.id[rows], issue_times(trace, rows)[rows]))]
    groups, world = known_groups(trace), trace.world_size
    calls = issuing_calls(trace, rows)
    host_groups = _host_groups(trace, calls)
    given = zip(rows.tolist(), _with_inputs(trace, rows, calls), strict=True)
    for row, comm in ((row, message) for row, whole in given for message in whole.inferred_messages or [whole]):
        if row in host_groups and comm.pg_name is None:
            comm = msgspec.structs.replace(comm, pg_name=host_groups[row])
        kind = collective_type(comm, trace.name_of(Row(row)))
        peer = comm.dst_rank if kind == SEND else comm.src_rank if kind == RECV else None
        sent = calls[row] if kind == SEND and row in calls else row
        peer = -1 if peer is None or not 0 <= peer < MAX_RANKS else peer
        size = None if kind is None else message_bytes(comm, kind)
        seq = comm.seq if comm.seq is not None and 0 <= comm.seq < _MAX_SEQ else -1
        start = int(min(trace.nodes.ts[row], trace.nodes.ts[sent]))
        group = group_of(comm, groups, world)
        found.append(FoundComm(row, kind, peer, size, group, seq, start, comm.pg_desc or ""))
    return found


def known_groups(trace: Trace) -> dict[str, list[int]]:
    return trace.once(_known_groups)


def _known_groups(trace: Trace) -> dict[str, list[int]]:
    named = matching(trace.nodes.name, trace.names, PROCESS_GROUPS.__eq__)
    rows = np.flatnonzero(named & (trace.nodes.kind == CPU))
    recorded = (groups_in(recorded_groups(record.inputs)) for record in call_records(trace, rows))
    return {name: ranks for groups in recorded for name, ranks in groups.items()} | trace.process_groups


def communication_columns(trace: Trace, *, unknown: bool = False) -> tuple[tuple[Group, ...], IntColumn]:
    """Return a rank's process groups, and its communications as int64 rows in the order of `COMMUNICATION_COLUMNS`.

    The communications are in program order. Times are wall-clock ns, and `group` is an index into the process groups.
    Messages are omitted if their peer is unknown. Communications of unknown kind are omitted unless `unknown` is True.
    """
    groups: dict[Group, int] = {}
    rows = []
    for found in find_communications(trace):
        if not found.understood and (found.kind is not None or not unknown):
            continue
        kind, size = UNKNOWN if found.kind is None else found.kind, -1 if found.bytes is None else found.bytes
        group = groups.setdefault(found.group, len(groups))
        node, end, on_host = trace.nodes.id[found.row], trace.nodes.end[found.row], trace.nodes.kind[found.row] != GPU
        rows.append((node, kind, size, group, found.peer, found.seq, found.start_ns, end, on_host))
    table = np.array(rows, np.int64).reshape(-1, len(COMMUNICATION_COLUMNS))
    times = [COMMUNICATION_COLUMNS.index("start"), COMMUNICATION_COLUMNS.index("end")]
    table[:, times] += trace.base_time_ns
    return tuple(groups), np.ascontiguousarray(table.T)


def kind_name(kind: int) -> str:
    return _NAMES[kind]


def comm_rows(trace: Trace) -> IntColumn:
    """Return the rows that communicate: GPU events with `comm` or a communication name, and nodes like "gloo:send"."""
    on_host = (trace.nodes.kind == CPU) & matching(trace.nodes.name, trace.names, HOST_COLLECTIVE.fullmatch)
    return np.flatnonzero((trace.communicates | on_host) & trace.nodes.timed)


def issue_times(trace: Trace, communicating: IntColumn) -> IntColumn:
    """Return the time (ns) when the host issued each row: its launch, else the start of its caller, else its own start.

    A host collective runs later, on a backend thread. To have the same place on all ranks, it gets the start of the
    last operator with a smaller id. If times were not recorded, rows that the host did not issue are ordered by id.
    """
    issued: IntColumn = trace.nodes.ts.copy() if trace.times_recorded else np.zeros_like(trace.nodes.ts)
    parent = trace.nodes.parent_row
    called = (trace.nodes.kind == GPU) & (parent >= 0) & trace.nodes.timed[parent]
    issued[called] = np.minimum(trace.nodes.ts[called], trace.nodes.ts[parent[called]])
    launches = trace.edges_of("launch")
    issued[launches[:, 1]] = trace.nodes.ts[launches[:, 0]]
    calls = np.flatnonzero((trace.nodes.kind == CPU) & trace.nodes.timed)
    calls = calls[np.lexsort((trace.nodes.id[calls], trace.nodes.thread[calls]))]
    on_host = np.isin(calls, communicating)
    for lane in np.split(np.arange(len(calls)), np.flatnonzero(np.diff(trace.nodes.thread[calls])) + 1):
        latest = np.maximum.accumulate(np.where(on_host[lane], -1, trace.nodes.ts[calls[lane]]))
        late = on_host[lane] & (latest >= 0)
        issued[calls[lane][late]] = latest[late]
    return issued


def blocking_calls(trace: Trace, communicating: IntColumn) -> IntColumn:
    """Return int64 (n, 2) pairs: a host collective, and the `wait_tensor` call during which the collective ended."""
    runs = communicating[trace.nodes.kind[communicating] != GPU]
    waits = np.flatnonzero(
        (trace.nodes.kind == CPU) & trace.nodes.timed & matching(trace.nodes.name, trace.names, WAIT.fullmatch)
    )
    waits = waits[np.argsort(trace.nodes.ts[waits], kind="stable")]
    at = np.searchsorted(trace.nodes.ts[waits], trace.nodes.end[runs], side="right") - 1
    pairs = np.stack([runs[at >= 0], waits[at[at >= 0]]], axis=1)
    return pairs[trace.nodes.end[pairs[:, 0]] <= trace.nodes.end[pairs[:, 1]]]


def backend_rows(trace: Trace, communicating: IntColumn) -> IntColumn:
    """Return operators on backend threads, such as Gloo's copies. A collective's time includes its copies."""
    runs = communicating[trace.nodes.kind[communicating] != GPU]
    rows = without(np.flatnonzero((trace.nodes.kind == CPU) & trace.nodes.timed), runs)
    runs = runs[np.argsort(trace.nodes.ts[runs], kind="stable")]
    until = np.maximum.accumulate(trace.nodes.end[runs])
    at = np.searchsorted(trace.nodes.ts[runs], trace.nodes.ts[rows], side="right") - 1
    if not len(runs):
        return rows[:0]
    inside = (at >= 0) & (trace.nodes.end[rows] <= until[at])
    return rows[~np.isin(trace.nodes.thread[rows], trace.nodes.thread[rows[~inside]])]


def issuing_calls(trace: Trace, communicating: IntColumn) -> dict[int, int]:
    """Map each host collective to the `c10d::` call that issued it; see `pair_with_calls`."""
    runs = communicating[trace.nodes.kind[communicating] != GPU]
    if not len(runs):
        return {}
    issuing = outermost_calls(
        trace.nodes.parent_row, trace.nodes.name, trace.names, (trace.nodes.kind == CPU) & trace.nodes.timed
    )
    (run_ids, run_names), (call_ids, call_names) = (_by_id(trace, rows) for rows in (runs, issuing))
    pairs = pair_with_calls(run_ids.tolist(), run_names, call_ids.tolist(), call_names)
    run, call = (positions(trace.nodes.id, side) for side in pairs.T)
    return dict(zip(run.tolist(), call.tolist(), strict=True))


def _by_id(trace: Trace, rows: IntColumn) -> tuple[IntColumn, list[str]]:
    rows = rows[np.argsort(trace.nodes.id[rows], kind="stable")]
    return trace.nodes.id[rows], [trace.name_of(row) for row in rows.tolist()]


def _host_groups(trace: Trace, calls: Mapping[int, int]) -> dict[int, str]:
    """Map each host collective to a process group: the group in its call, or the only group of the right size."""
    groups = {name: ranks for name, ranks in known_groups(trace).items() if len(ranks) > 1}
    if len(groups) < 2:
        return {}
    runs, call = np.array(list(calls.items()), np.int64).reshape(-1, 2).T
    functional = matching(trace.nodes.name, trace.names, lambda name: name.startswith(_FUNCTIONAL))
    around = nearest(call, trace.nodes.parent_row, functional)
    records = call_records(trace, np.stack([call, np.where(around >= 0, around, call)], axis=1).ravel())
    named: dict[int, str] = {}
    sizes: dict[int, int | None] = {}
    for run, by, above in zip(runs.tolist(), call.tolist(), around.tolist(), strict=True):
        own, of_above = next(records).inputs.values, next(records).inputs.values
        name = named_group(of_above, groups) if above >= 0 else None
        if name is None:
            sizes[run] = group_size_of(trace.name_of(by), own)
        else:
            named[run] = name
    taken = frozenset(named.values())
    left = {run: remaining_group(size, groups, taken) for run, size in sizes.items()}
    return named | {run: name for run, name in left.items() if name is not None}


def _with_inputs(trace: Trace, rows: IntColumn, calls: Mapping[int, int]) -> Iterator[Comm]:
    """Yield the metadata of each communication. Infer metadata that was not recorded from the tensors of the call.

    The peer of a host operator such as "gloo:send" comes from the `c10d::` call that issued the operator.
    """
    comms = [trace.comm.get(row, Comm()) for row in rows.tolist()]
    bare = [comm.collective is None and comm.in_nelems is None for comm in comms]
    lacking = rows[np.array(bare, np.bool_)]
    on_gpu = trace.nodes.kind[lacking] == GPU
    issued_by = np.array([calls.get(row, -1) for row in lacking.tolist()], np.int64)
    caller = np.where(on_gpu, trace.nodes.parent_row[lacking], issued_by)
    records = call_records(trace, np.stack([lacking, np.where(caller >= 0, caller, lacking)], axis=1).ravel())
    known = zip((caller >= 0).tolist(), on_gpu.tolist(), records, records, strict=True)
    for comm, lacks in zip(comms, bare, strict=True):
        if not lacks:
            yield comm
            continue
        called, gpu, own, called_by = next(known)
        inputs, of_caller = own.inputs.values, called_by.inputs.values if called else []
        if gpu:
            yield with_inputs(comm, inputs or of_caller, None)
        else:
            yield with_inputs(comm, inputs, of_caller if called else None)
