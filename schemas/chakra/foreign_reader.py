"""Read the kernels, host operators and communications of Chakra traces that other programs wrote.

Chakra's own converter, text converters and trace generators write no start times. For such traces, `list_schedule`
predicts the times of nodes, and `Trace.times_recorded` is False. A node is ready when all its dependencies have ended.
As in simulators, each free stream or thread starts the ready node with the lowest id. The first node in `ctrl_deps` is
the caller. A caller runs for its self time before its callees start, and its duration includes the callees.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ... import __version__
from ...trace.build import NO_RECORDS
from ...trace.columns import IntColumn, distinct_rows, positions
from ...trace.comm_kernels import Comm
from ...trace.conventions import EDGE_KINDS, NO_START_TIMES, PREDICTED, TIMES
from ...trace.errors import TraceFormatError
from ...trace.index import as_column, as_positions
from ...trace.kinds import CPU, GPU
from ...trace.trace import Trace
from ..etplus.read_etplus import Node as EtPlusNode
from ..etplus.read_etplus import NodeRows
from ..etplus.record_store import MadeRecords
from ..etplus.write_etplus import FORMAT_VERSION
from ..execution_trace.arguments import ATTRIBUTES, FLAT_TENSORS, TENSOR_KEYS, listed_attributes
from . import row_reading as reading
from .attributes import values_of
from .comm_groups import find_groups, read_groups
from .et_def_pb2 import CollectiveCommType, Node, NodeType
from .list_schedule import list_schedule

_encode = msgspec.json.Encoder().encode
_HEADER = {"schema": msgspec.Raw(_encode("1.1.0-chakra.0.0.4"))}
# Matches the rank in `<prefix>.<rank>.et`; Chakra traces record their rank only in the file name.
_RANK = re.compile(r"\.([0-9]{1,7})\.et(?:\.gz)?$")
_COMM_TYPES = (NodeType.COMM_COLL_NODE, NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE)
_MEMORY_TYPES = (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE)
_METADATA_TYPES = (NodeType.METADATA_NODE, NodeType.INVALID_NODE)
_MAX_MICROS = 2**51
_CLASS = 1 << 40  # A lane's number is its class times _CLASS, plus the number of its stream or thread.
_HOST, _GPU, _COMM, _NOTHING = range(4)  # The classes of lanes; metadata nodes do not run, so they belong to _NOTHING.
_COMM_STREAM = _CLASS - 1  # communications that have no stream get this one, so that they can overlap kernels


def read_foreign(file: str, messages: Iterator[reading.Encoded], path: str) -> Trace:
    rows, needs, bodies = NodeRows(file), _Waits(file), list[bytes]()
    for block in reading.blocks_of(messages):
        reading.check_ids(file, block)
        nodes = []
        for node, body in block:
            values = values_of(node.attr)
            needs.add(node, values)
            nodes.append(_columns(node, values))
            bodies.append(body)
        times = reading.time_columns(file, [node.id for node, _ in block], [_times(node) for node, _ in block])
        rows.add(nodes, times, runtime=False)
    trace = rows.trace(_HEADER, msgspec.Raw(_encode(_summary(path))), NO_RECORDS, needs.edges)
    caller = np.where(trace.nodes.kind[trace.nodes.parent_row] == CPU, trace.nodes.parent_row, -1)
    named = as_column(np.where(caller >= 0, trace.nodes.parent, trace.nodes.id))  # Roots are their own parents.
    trace = trace.with_(parent=named, parent_row=as_positions(caller))
    if not np.any(trace.nodes.ts > 0):
        trace = _laid_out(trace, needs)
    texts = MadeRecords(partial(_texts, trace, bodies), partial(_file_text, trace, bodies))
    return trace.with_(flat=False, texts=texts)


def _summary(path: str) -> dict[str, Any]:
    rank, job = _RANK.search(path), dict[str, Any]()
    if rank is not None:
        job["rank"] = int(rank[1])
        groups = find_groups(path[: rank.start()])
        if groups is not None:
            job["pg_config"] = [{"pg_name": str(name), "ranks": ranks} for name, ranks in read_groups(groups).items()]
    kineto = {"file_name": Path(path).name, "base_time_ns": 0, "distributed_info": job or None}
    return {"version": FORMAT_VERSION, "tool_version": __version__, "kineto": kineto}


def _laid_out(trace: Trace, needs: _Waits) -> Trace:
    count, lane = len(trace), needs.resources()
    source, target = needs.pairs()
    own, by_id = np.arange(count), np.argsort(trace.nodes.id, kind="stable")
    pairs = ([2 * own, 2 * source + 1], [2 * own + 1, 2 * target], [trace.nodes.dur, np.zeros_like(source)])
    begins, ends, lags = map(np.concatenate, pairs)
    time = list_schedule(2 * count, begins, ends, lags, 2 * by_id, 2 * by_id + 1, lane[by_id]).time
    start, end = time[::2], time[1::2].copy()
    if np.any(end < 0):
        place = f"node {trace.nodes.id[np.flatnonzero(end < 0)[0]]}"
        raise TraceFormatError(trace.file, place, "waits for itself through other nodes", reading.CHECK)
    called = (trace.nodes.parent_row >= 0) & trace.nodes.timed & (trace.nodes.kind == CPU)
    called &= trace.nodes.thread[trace.nodes.parent_row] == trace.nodes.thread
    at = np.flatnonzero(called)
    while len(at):  # Each iteration handles one level of nested calls.
        above = trace.nodes.parent_row[at]
        longer = end[at] > end[above]
        np.maximum.at(end, above[longer], end[at[longer]])
        at = above[longer]
        at = at[called[at]]
    return trace.with_(
        ts=as_column(np.where(trace.nodes.timed, start, -1)),
        dur=as_column(np.where(trace.nodes.timed, end - start, 0)),
        summary={**trace.summary, TIMES: PREDICTED, "damage": [*trace.damage, NO_START_TIMES]},
    )


def _texts(trace: Trace, messages: list[bytes], rows: IntColumn) -> list[bytes]:
    return [_text(trace, messages, row) for row in rows.tolist()]


def _file_text(trace: Trace, messages: list[bytes]) -> Iterator[bytes]:
    yield reading.document_head(trace.header)
    for row in range(len(trace)):
        yield (reading.SEPARATOR if row else b"") + _text(trace, messages, row)
    ids = trace.nodes.id[trace.edges[:, :2]]
    yield from reading.document_tail((), np.column_stack([ids, trace.edges[:, 2]]), _encode(trace.summary))


def _text(trace: Trace, messages: list[bytes], row: int) -> bytes:
    node = Node.FromString(messages[row])
    values, on_device = values_of(node.attr), bool(trace.nodes.kind[row] == GPU)
    record: dict[str, Any] = {"id": node.id, "name": node.name, "ctrl_deps": int(trace.nodes.parent[row])}
    record |= {side: {key: [] for key in TENSOR_KEYS} for side in FLAT_TENSORS}
    record["attrs"] = listed_attributes({} if on_device else values)
    nodes = trace.nodes
    if nodes.ts[row] >= 0:
        times = (int(column[row]) for column in (nodes.ts, nodes.dur, nodes.dur, nodes.exclusive))
        keys = ("ts", "dur", "inclusive_dur", "exclusive_dur")
        record |= dict(zip(keys, map(reading.micros_text, times), strict=True))
    if on_device:
        numbers = {name: int(getattr(nodes, name)[row]) for name in ("stream", "device", "correlation")}
        record |= {"cat": trace.categories[trace.nodes.category[row]], "ph": "X", **numbers, "args": {}}
    if row in trace.comm:
        record |= {"comm": trace.comm[row], "pg_name": trace.comm[row].pg_name}
    return _encode(record)


class _Waits:
    def __init__(self, file: str) -> None:
        self.file = file
        self.ids, self.lanes, self.receives = array("q"), array("q"), array("b")
        self.source, self.target = array("q"), array("q")
        self.caller, self.called = array("q"), array("q")

    def add(self, node: Node, values: dict[str, Any]) -> None:
        reading.check_range(self.file, node)
        deps = dict.fromkeys([*node.data_deps, *node.ctrl_deps[1:]])
        self.ids.append(node.id)
        self.lanes.append(_lane(node, values))
        self.receives.append(node.type == NodeType.COMM_RECV_NODE)
        self.source.extend(deps)
        self.target.extend([node.id] * len(deps))
        if node.ctrl_deps and node.ctrl_deps[0] != node.id:
            self.caller.append(node.ctrl_deps[0])
            self.called.append(node.id)

    def edges(self) -> IntColumn:
        """Return the distinct edges between node ids. Only callers on the device have edges to their callees."""
        ids = np.frombuffer(self.ids, np.int64)
        source, target = self.pairs(callers_on_host=False)
        found = np.column_stack([ids[source], ids[target], _kinds(np.frombuffer(self.lanes, np.int64), source, target)])
        return distinct_rows(*found.T)[0]

    def pairs(self, *, callers_on_host: bool = True) -> tuple[IntColumn, IntColumn]:
        """Return the rows of dependencies, and the rows that wait for them. Callees also wait for their callers."""
        ids, lanes, source, target, caller, called = (
            np.frombuffer(column, np.int64)
            for column in (self.ids, self.lanes, self.source, self.target, self.caller, self.called)
        )
        needed = reading.rows_of_dependencies(self.file, ids, source, target)
        above = positions(ids, caller)
        known = above >= 0
        if not callers_on_host:
            known &= np.isin(lanes[above] // _CLASS, (_GPU, _COMM))
        waiting = positions(ids, np.concatenate([target, called[known]]))
        return np.concatenate([needed, above[known]]), waiting

    def resources(self) -> IntColumn:
        """Return the stream or thread that a row occupies; −1 for metadata and receives, because they occupy none."""
        lanes, receives = np.frombuffer(self.lanes, np.int64), np.frombuffer(self.receives, np.int8)
        runs = lanes // _CLASS
        number = distinct_rows(runs == _HOST, lanes % _CLASS)[1]
        return np.where((runs == _NOTHING) | (receives > 0), -1, number)


def _columns(node: Node, values: dict[str, Any]) -> EtPlusNode:
    found: dict[str, Any] = {"id": node.id, "name": node.name}
    found["ctrl_deps"] = node.ctrl_deps[0] if node.ctrl_deps else node.id
    runs = _class_of(node, values)
    if runs in (_HOST, _NOTHING):
        return EtPlusNode(**found, **{name: values[name] for name in ATTRIBUTES if name in values})
    category = "gpu_memcpy" if node.type in _MEMORY_TYPES else "kernel"
    comm = _comm(node, values) if runs == _COMM else None
    stream = values.get("stream", 0 if comm is None else 2 if node.type == NodeType.COMM_RECV_NODE else 1)
    return EtPlusNode(**found, cat=category, stream=stream, device=0, correlation=0, comm=comm)


def _times(node: Node) -> tuple[int, int, int]:
    """Return `ts`, `dur` and `exclusive` in ns; `ts` is −1 for metadata nodes, and 0 if it was not recorded."""
    if node.type in _METADATA_TYPES:
        return -1, 0, 0
    ts, dur = (1000 * min(micros, _MAX_MICROS) for micros in (node.start_time_micros, node.duration_micros))
    return ts, dur, dur


def _lane(node: Node, values: dict[str, Any]) -> int:
    runs = _class_of(node, values)
    number = values.get("tid", 0) if runs == _HOST else values.get("stream", _COMM_STREAM if runs == _COMM else 0)
    return runs * _CLASS + int(number) % _CLASS


def _class_of(node: Node, values: dict[str, Any]) -> int:
    if node.type in _COMM_TYPES:
        return _COMM
    if node.type in _METADATA_TYPES:
        return _NOTHING
    return _HOST if values.get("is_cpu_op") else _GPU


def _kinds(lanes: IntColumn, source: IntColumn, target: IntColumn) -> IntColumn:
    a, b = (np.where(lanes[of] >= _NOTHING * _CLASS, _HOST, lanes[of] // _CLASS) for of in (source, target))
    same, first, second = lanes[source] == lanes[target], a == _HOST, b == _HOST
    cases = [first & second & same, first & second, first, second, (a == _COMM) & (b == _COMM), same]
    names = ("thread", "thread_handoff", "launch", "sync", "comm", "stream")
    return np.select(cases, [EDGE_KINDS.index(name) for name in names], EDGE_KINDS.index("event"))


def _comm(node: Node, values: dict[str, Any]) -> Comm:
    kind: int = values.get("comm_type", -1)
    names = {NodeType.COMM_SEND_NODE: "send", NodeType.COMM_RECV_NODE: "recv"}
    known = kind in CollectiveCommType.values()
    return Comm(
        collective=names.get(node.type) or (CollectiveCommType.Name(kind).lower() if known else None),
        bytes=values.get("comm_size"),
        pg_name=values.get("pg_name"),
        src_rank=values.get("comm_src"),
        dst_rank=values.get("comm_dst"),
        seq=values.get("comm_tag") if node.type in names else None,
    )
