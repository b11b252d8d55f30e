"""Derived nodes and their file records. A record is generated only when it is read."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
import orjson

from ... import __version__
from ...schemas.etplus.record_store import MadeRecords
from ...schemas.etplus.write_etplus import FORMAT_VERSION
from ...schemas.execution_trace.arguments import listed_attributes
from ...trace.build import TraceBuilder
from ...trace.comm_kernels import Comm
from ...trace.conventions import ANNOTATION_SCOPE, EDGE_KINDS
from ...trace.index import Row
from ...trace.kinds import CERTAIN, CPU, GPU, RUNTIME, UNLINKED
from ...trace.trace import Trace

IN_MEMORY = "<bytes>"  # messages show this instead of a file name if a trace is in memory
LAUNCH = "cudaLaunchKernel"
LAUNCH_NS = 5_000  # a launch takes this much CPU time
_NO_ARGUMENTS: dict[str, Any] = {"values": [], "shapes": [], "types": []}
Arguments = dict[str, Any] | orjson.Fragment | None  # a node's inputs or outputs, as in an ET or as encoded JSON
NodeTensors = tuple[Arguments, Arguments]
Tensors = NodeTensors | Callable[[], NodeTensors]


@dataclass(slots=True)
class MadeNode:
    """A derived call, or a derived GPU event if it has a category. Some record fields are generated on demand."""

    id: int
    name: str
    parent: int
    tid: int = 0
    scope: int = 0
    sequence: int = -1
    schema: str = ""
    tensors: Tensors = (None, None)
    begin: int = -1
    dur: int = 0
    own: int = 0
    comm: dict[str, Any] | None = None
    category: str = ""
    stream: int = -1
    device: int = -1
    correlation: int = -1
    args: Callable[[], dict[str, Any]] = dict

    def close(self, begin: int, end: int, own: int) -> None:
        self.begin, self.dur = begin, max(end - begin, 0)
        self.own = max(min(own, self.dur), 0)

    def record(self) -> dict[str, Any]:
        inputs, outputs = self.tensors() if callable(self.tensors) else self.tensors
        given = {"rf_id": self.id, "seq_id": self.sequence, "scope": self.scope, "tid": self.tid}
        attrs = [] if self.category else listed_attributes({**given, "op_schema": self.schema})
        found: dict[str, Any] = {
            "id": self.id,
            "name": self.name,
            "ctrl_deps": self.parent,
            "inputs": inputs or _NO_ARGUMENTS,
            "outputs": outputs or _NO_ARGUMENTS,
            "attrs": attrs,
        }
        times = {"ts": _us(self.begin), "dur": _us(self.dur), "inclusive_dur": _us(self.dur)}
        if self.category:
            found |= {
                "cat": self.category, "ph": "X", **times, "exclusive_dur": _us(self.dur), "stream": self.stream,
                "device": self.device, "correlation": self.correlation, "kineto_event": 0, "args": self.args(),
            }  # fmt: skip
        elif self.begin >= 0:
            found |= {
                **times,
                "exclusive_dur": _us(self.own),
                "kineto_event": 0,
                "link": "certain",
                "inter_thread_dep": None,
                "sync_dep": [],
            }
        return found if self.comm is None else found | {"comm": self.comm, "pg_name": self.comm["pg_name"]}


class Launch(NamedTuple):
    id: int
    begin: int
    tid: int
    correlation: int
    parent: int

    def record(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": LAUNCH,
            "ts": _us(self.begin),
            "dur": _us(LAUNCH_NS),
            "tid": str(self.tid),
            "correlation": self.correlation,
            "parent": self.parent,
            "kineto_event": 0,
        }


def _rank_text(
    root: Mapping[str, Any], rows: Sequence[MadeNode | Launch], count: int, edges: Sequence[tuple[int, int, str]]
) -> Iterator[bytes]:
    nodes, runtime = (
        b"[" + b",".join(orjson.dumps(row.record()) for row in part) + b"]" for part in (rows[:count], rows[count:])
    )
    parts = {"nodes": nodes, "runtime": runtime, "edges": orjson.dumps(edges)}
    members = (b'"%b":%b' % (key.encode(), parts.get(key) or orjson.dumps(value)) for key, value in root.items())
    yield b"{" + b",".join(members) + b"}"


# these attributes of `MadeNode` become columns of the node table
_COLUMNS = ("id", "parent", "name", "category", "dur", "scope", "tid", "stream", "device", "correlation")


class NodeWriter:
    """Collects the derived nodes, runtime calls and edges of one step, and builds a trace of them."""

    def __init__(self, source: Trace) -> None:
        self.source = source
        self.nodes: list[MadeNode] = []
        self.runtime: list[Launch] = []
        self.edges: set[tuple[int, int, str]] = set()
        self.busy: dict[Any, tuple[int, int]] = {}  # for each lane, the end and ID of its last event
        self.begin = self.now = 1_000_000
        self.ids = 2
        process = self.node("[pytorch|profiler|execution_trace|process]", 1, 0).id
        thread = self.node("[pytorch|profiler|execution_trace|thread]", process, 1).id
        self.step = self.node("ProfilerStep#0", thread, 1, scope=ANNOTATION_SCOPE)

    def node(self, name: str, parent: int, tid: int, tensors: Tensors = (None, None), **fields: Any) -> MadeNode:
        self.ids += 1
        self.nodes.append(MadeNode(self.ids, name, parent, tid, tensors=tensors, **fields))
        return self.nodes[-1]

    def event(
        self,
        name: str,
        category: str,
        lane: Hashable,
        dur: int,
        caller: int,
        tid: int,
        *,
        ready: int = 0,
        **fields: Any,
    ) -> tuple[int, int]:
        """Add a GPU event and its launch; return the IDs of the previous event in the lane (or −1) and of the event.

        The event starts when it is launched, the lane is free, and the time `ready` is reached.
        """
        launch, number, correlation = self.ids + 1, self.ids + 2, len(self.runtime) + 1
        self.ids = number
        self.runtime.append(Launch(launch, self.now, tid, correlation, caller))
        self.now += LAUNCH_NS
        free, last = self.busy.get(lane, (0, -1))
        begin = max(self.now, free, ready)
        fields |= {"begin": begin, "dur": dur, "own": dur, "category": category, "correlation": correlation}
        self.nodes.append(MadeNode(number, name, caller, **fields))
        self.edges |= {(launch, number, "launch"), *([(last, number, "stream")] if last >= 0 else [])}
        self.busy[lane] = begin + dur, number
        return last, number

    def finish(self, pid: int, distributed: Mapping[str, Any], *, own: bool) -> Trace:
        """Build the trace. Its rows are the derived nodes, followed by the runtime calls.

        If `own` is True, the self time of the step is its whole time, otherwise 0.
        """
        end = max([self.now, *(end for end, _ in self.busy.values())])
        self.step.close(self.begin, end, end - self.begin if own else 0)
        ordered = sorted(self.edges, key=lambda edge: (*edge[:2], EDGE_KINDS.index(edge[2])))
        header = {"schema": "1.1.1-chakra.0.0.4", "pid": pid, "time": "", "start_ts": 0, "finish_ts": 0}
        kineto = self.source.summary.get("kineto")
        summary = {
            "version": FORMAT_VERSION,
            "tool_version": __version__,
            "kineto": {
                "file_name": self.source.file,
                "base_time_ns": 0,
                "schema_version": 1,
                "device_properties": kineto.get("device_properties", []) if isinstance(kineto, dict) else [],
                "distributed_info": distributed,
            },
            "damage": [],
            "unattached": {},
            "inferred_edges": [],
        }
        root = {**header, "nodes": [], "runtime": [], "edges": [], "unattached": [], "etplus": summary}
        rows: Sequence[MadeNode | Launch] = [*self.nodes, *self.runtime]
        records = MadeRecords(
            lambda wanted: [orjson.dumps(rows[row].record()) for row in wanted.tolist()],
            partial(_rank_text, root, rows, len(self.nodes), ordered),
        )
        return _rows(self.nodes, self.runtime).build(
            records,
            summary=summary,
            header={key: msgspec.Raw(orjson.dumps(value)) for key, value in {**header, "unattached": []}.items()},
            edges=np.array([(a, b, EDGE_KINDS.index(kind)) for a, b, kind in ordered], np.int64).reshape(-1, 3),
        )


def _rows(nodes: Sequence[MadeNode], runtime: Sequence[Launch]) -> TraceBuilder:
    builder = TraceBuilder(IN_MEMORY)
    on_device = np.array([bool(node.category) for node in nodes], np.bool_)
    begin = np.array([node.begin for node in nodes], np.int64)
    columns = {name: [getattr(node, name) for node in nodes] for name in _COLUMNS}
    columns["rf_id"] = [0 if node.category else node.id for node in nodes]
    builder.add(
        np.where(on_device, np.int8(GPU), np.int8(CPU)),
        ts=begin,
        exclusive=[node.own for node in nodes],
        kineto_event=np.where(begin < 0, -1, 0),
        seq_id=[node.sequence for node in nodes],
        link=np.where((begin < 0) | on_device, UNLINKED, CERTAIN),
        **columns,
    )
    builder.add(
        RUNTIME,
        id=[launch.id for launch in runtime],
        name=[LAUNCH] * len(runtime),
        parent=[launch.parent for launch in runtime],
        ts=[launch.begin for launch in runtime],
        dur=[LAUNCH_NS] * len(runtime),
        tid=[str(launch.tid) for launch in runtime],
        correlation=[launch.correlation for launch in runtime],
        kineto_event=[0] * len(runtime),
    )
    builder.comm = {row: msgspec.convert(node.comm, Comm) for row, node in enumerate(nodes) if node.comm is not None}
    return builder


def _us(ns: int) -> float:
    return ns / 1000


def event_args(trace: Trace, row: Row) -> dict[str, Any]:
    (record,) = trace.records(np.array([row]))
    return msgspec.json.decode(record["args"]) or {}
