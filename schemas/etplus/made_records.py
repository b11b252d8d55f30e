"""Nodes that are made, not recorded, and their records: texts that a file has, made when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import orjson

from ...trace.columns import IntColumn
from ...trace.comm_kernels import Comm
from ...trace.index import Row
from ...trace.trace import Record, Trace
from ..execution_trace.arguments import listed_attributes
from .record_store import TextRecords

IN_MEMORY = "<bytes>"  # what a trace that is read from memory is called in messages
LAUNCH = "cudaLaunchKernel"
LAUNCH_NS = 5_000
"""What a launch takes on the host."""
_NO_ARGUMENTS: dict[str, Any] = {"values": [], "shapes": [], "types": []}
Arguments = dict[str, Any] | orjson.Fragment | None
"""Inputs or outputs of a node, as in an ET, or as its JSON; None for none at all."""
NodeTensors = tuple[Arguments, Arguments]
"""Inputs and outputs."""


@dataclass(slots=True)
class MadeNode:
    """A call, or with a category a GPU event; what is in the file and not in columns is made when it is asked for."""

    id: int
    name: str
    parent: int
    tid: int = 0
    scope: int = 0
    sequence: int = -1
    schema: str = ""
    tensors: NodeTensors | Callable[[], NodeTensors] = (None, None)
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
        """Say when it ran, ns."""
        self.begin, self.dur = begin, max(end - begin, 0)
        self.own = max(min(own, self.dur), 0)

    def record(self) -> dict[str, Any]:
        """The node as the file has it."""
        inputs, outputs = self.tensors() if callable(self.tensors) else self.tensors
        found: dict[str, Any] = {
            "id": self.id, "name": self.name, "ctrl_deps": self.parent, "inputs": inputs or _NO_ARGUMENTS,
            "outputs": outputs or _NO_ARGUMENTS, "attrs": [] if self.category else self._attrs(),
        }  # fmt: skip
        times = {"ts": _us(self.begin), "dur": _us(self.dur), "inclusive_dur": _us(self.dur)}
        if self.category:
            found |= {
                "cat": self.category, "ph": "X", **times, "exclusive_dur": _us(self.dur), "stream": self.stream,
                "device": self.device, "correlation": self.correlation, "kineto_event": 0, "args": self.args(),
            }  # fmt: skip
        elif self.begin >= 0:
            found |= {
                **times, "exclusive_dur": _us(self.own), "kineto_event": 0, "link": "certain", "inter_thread_dep": None,
                "sync_dep": [],
            }  # fmt: skip
        return found if self.comm is None else found | {"comm": self.comm, "pg_name": self.comm["pg_name"]}

    def _attrs(self) -> list[dict[str, Any]]:
        given = {"rf_id": self.id, "seq_id": self.sequence, "scope": self.scope, "tid": self.tid}
        return listed_attributes({**given, "op_schema": self.schema})


class Launch(NamedTuple):
    """A runtime call that launches an event."""

    id: int
    begin: int
    tid: int
    correlation: int
    parent: int

    def record(self) -> dict[str, Any]:
        """The call as the file has it."""
        return {
            "id": self.id, "name": LAUNCH, "ts": _us(self.begin), "dur": _us(LAUNCH_NS), "tid": str(self.tid),
            "correlation": self.correlation, "parent": self.parent, "kineto_event": 0,
        }  # fmt: skip


@dataclass(frozen=True)
class RankRecords(TextRecords):
    """Of a rank's nodes and launches.

    Attributes:
        root: the members of the file's object; those of `nodes`, `runtime` and `edges` only keep their place.
        rows: nodes, then runtime calls. nodes: how many are nodes. edges: between ids.
    """

    root: Mapping[str, Any]
    rows: Sequence[MadeNode | Launch]
    nodes: int
    edges: Sequence[tuple[int, int, str]]

    def texts(self, rows: IntColumn) -> list[bytes]:
        """The JSON objects of rows, braces included."""
        return [orjson.dumps(self.rows[row].record()) for row in rows.tolist()]

    def chunks(self) -> Iterator[bytes]:
        """The file's text."""
        nodes, runtime = (
            b"[" + b",".join(orjson.dumps(row.record()) for row in rows) + b"]"
            for rows in (self.rows[: self.nodes], self.rows[self.nodes :])
        )
        parts = {"nodes": nodes, "runtime": runtime, "edges": orjson.dumps(self.edges)}
        members = (b'"%b":%b' % (key.encode(), parts.get(key) or orjson.dumps(of)) for key, of in self.root.items())
        yield b"{" + b",".join(members) + b"}"


def _us(ns: int) -> float:
    return ns / 1000


def comms_of(trace: Trace) -> dict[int, dict[str, Any]]:
    """The `comm` objects of a file, by row."""
    rows = np.array(sorted(trace.comm), np.int64)
    records = zip(rows.tolist(), trace.records(rows), strict=True)
    return {row: msgspec.json.decode(record["comm"]) for row, record in records if "comm" in record}


def event_args(trace: Trace, row: Row) -> dict[str, Any]:
    """What Kineto recorded of a GPU event beside its times."""
    (record,) = trace.records(np.array([row]))
    return msgspec.json.decode(record["args"]) or {}


def header_of(members: Mapping[str, Any]) -> Record:
    """Members of a root as `Trace.header` has them."""
    return {key: msgspec.Raw(orjson.dumps(value)) for key, value in members.items()}


def edited(trace: Trace, comms: Mapping[int, dict[str, Any]], summary: dict[str, Any]) -> Trace:
    """A trace with other communications and another `etplus` in its root, in its file as well.

    Args:
        comms: `comm` objects by row; the others stay.
    """
    return trace.with_(
        file=IN_MEMORY, summary=summary, texts=_EditedRecords(trace, comms, summary),
        header=header_of({key: msgspec.json.decode(value) for key, value in trace.header.items()}),
        comm={**trace.comm, **{row: msgspec.convert(comm, Comm) for row, comm in comms.items()}},
    )  # fmt: skip


@dataclass(frozen=True)
class _EditedRecords(TextRecords):
    """The records of a trace with other communications (by row) and another `etplus` (`summary`) in its root."""

    source: Trace
    comms: Mapping[int, dict[str, Any]]
    summary: Mapping[str, Any]

    def texts(self, rows: IntColumn) -> list[bytes]:
        """The JSON objects of rows, braces included."""
        found = []
        for row, text in zip(rows.tolist(), self.source.texts.texts(rows), strict=True):
            record = orjson.loads(text)
            found.append(orjson.dumps(record | {"comm": self.comms[row]} if row in self.comms else record))
        return found

    def chunks(self) -> Iterator[bytes]:
        """The file's text."""
        document = self.source.to_dict() | {"etplus": self.summary}
        for row, comm in self.comms.items():
            document["nodes"][row]["comm"] = comm
        yield orjson.dumps(document)
