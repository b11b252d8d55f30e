"""Calls of both traces, each with its caller: ET nodes by id, Kineto CPU events by time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..schemas.execution_trace.read_et import ExecutionTrace
from ..schemas.kineto.kineto_calls import CpuCalls
from ..schemas.kineto.read_kineto import KinetoTrace
from ..trace.columns import IntColumn, positions


@dataclass(frozen=True)
class EtCalls:
    """The ET's calls in order of start: all nodes except process and thread nodes."""

    node: IntColumn  # position in the `ExecutionTrace`
    parent: IntColumn  # position in this table, −1 if the caller is a thread node or is missing from the file
    orphan: npt.NDArray[np.bool_]  # the caller's node is missing from the file
    thread: IntColumn  # the ET's thread ordinal (`tid`)
    name: IntColumn  # code of the name in Kineto's list of names, −1 if Kineto lacks the name
    seq: IntColumn  # sequence number, −1 for none

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True)
class TracePair:
    """Both traces and their calls."""

    et: ExecutionTrace
    kineto: KinetoTrace
    nodes: EtCalls
    calls: CpuCalls

    @property
    def rf_ids(self) -> tuple[IntColumn, IntColumn]:
        """`rf_id` of `nodes` and of `calls`."""
        return self.et.rf_id[self.nodes.node], self.kineto.events.rf_id[self.calls.row]


def et_calls(et: ExecutionTrace, kineto_names: list[str]) -> EtCalls:
    """Return the ET's calls by id, that is, in order of start. Ignore parent ids above a call's own id (cycles)."""
    nodes = np.flatnonzero(~et.structural)
    nodes = nodes[np.argsort(et.id[nodes], kind="stable")]
    ids, parents = et.id[nodes], et.parent[nodes]
    at = positions(ids, parents)
    found = (at >= 0) & (parents < ids)
    known = np.isin(parents, et.id[et.structural]) | found
    parent, name = np.where(found, at, -1), _kineto_codes(et.names, kineto_names)[et.name[nodes]]
    return EtCalls(node=nodes, parent=parent, orphan=~known, thread=et.tid[nodes], name=name, seq=et.seq_id[nodes])


def _kineto_codes(et_names: list[str], kineto_names: list[str]) -> IntColumn:
    codes = {name: code for code, name in enumerate(kineto_names)}
    result: IntColumn = np.full(len(et_names), -1, np.int64)
    for i, name in enumerate(et_names):
        # Kineto drops newlines, turns backslashes into slashes, and records names outside printable ASCII as "unknown"
        spellings = [name, name.replace("\n", "").replace("\\", "/")]
        if not (name.isascii() and name.isprintable()):
            spellings.append("unknown")
        result[i] = next((codes[spelling] for spelling in spellings if spelling in codes), -1)
    return result


def exclusive_durations(calls: CpuCalls) -> IntColumn:
    """Return each call's duration in ns minus the durations of its direct children on the same thread."""
    children = np.flatnonzero(calls.parent >= 0)
    parents = calls.parent[children]
    inside = np.minimum(calls.end[children], calls.end[parents]) - calls.ts[children]
    covered = np.zeros(len(calls), np.int64)
    np.add.at(covered, parents, inside)  # not np.bincount: its float64 weights are inexact beyond 2**53
    return calls.end - calls.ts - covered
