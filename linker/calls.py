"""Represent the calls in both traces and find each call's caller. An ET node records its caller's id, but Kineto's
callers must be derived from the times of its CPU events."""

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
    """The calls that the ET records, in order of start. These are all nodes except process and thread nodes."""

    node: IntColumn  # index of the call's node in the `ExecutionTrace`
    parent: IntColumn  # index of the caller in this table; −1 if the caller is a thread node or is not in the file
    orphan: npt.NDArray[np.bool_]  # True if the caller's node is missing from the file
    thread: IntColumn  # thread ordinal that the ET records (`tid`)
    name: IntColumn  # index of the call's name in Kineto's list of names; −1 if the list does not contain it
    seq: IntColumn  # sequence number of the autograd node, −1 if the ET has none

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True)
class TracePair:
    et: ExecutionTrace
    kineto: KinetoTrace
    nodes: EtCalls
    calls: CpuCalls

    @property
    def rf_ids(self) -> tuple[IntColumn, IntColumn]:
        return self.et.rf_id[self.nodes.node], self.kineto.events.rf_id[self.calls.row]


def et_calls(et: ExecutionTrace, kineto_names: list[str]) -> EtCalls:
    """Return the ET's calls by id, that is, in order of start. Ignore parent ids that would form cycles."""
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
    result = np.empty(len(et_names), np.int64)
    for i, name in enumerate(et_names):
        # Kineto drops newlines, writes "\" as "/", and replaces names that are not printable ASCII with "unknown"
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
    np.add.at(covered, parents, inside)  # np.bincount adds in float64, so it is inexact above 2**53
    return calls.end - calls.ts - covered
