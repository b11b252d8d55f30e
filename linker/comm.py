"""The `comm` object of communication kernels: from Kineto's args, else from the ET's record_param_comms ancestor; of
the all-reduces of serving engines, which record neither, from the tensor that the operator takes.

The positions in record_param_comms' inputs are those of its macro (tensors, sequence, group, rank, collective, in
split, out split, …).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from ..schemas.execution_trace.arguments import DecodedSide, decode_call
from ..schemas.execution_trace.read_et import ExecutionTrace
from ..schemas.kineto.event_args import int_list, kernel_comm
from ..schemas.kineto.read_kineto import EventTable
from ..trace.columns import IntColumn, distinct, distinct_rows, matching
from ..trace.comm_kernels import (
    Comm,
    collective_of,
    has_collective_fields,
    is_comm_kernel,
    launches_collective,
    may_communicate,
)
from ..trace.conventions import KERNEL_CATEGORIES, MAX_RANKS
from ..trace.dtypes import itemsize
from .calls import EtCalls

RECORD_PARAM_COMMS = "record_param_comms"
"""The node that PyTorch records around every collective."""
WAIT = "wait"
"""Name of the collective in the `record_param_comms` of `Work.wait`."""

_ATTRS = {
    "collective": "collective_name",
    "dtype": "dtype",
    "in_nelems": "in_msg_nelems",
    "out_nelems": "out_msg_nelems",
    "group_size": "pg_size",
    "pg_name": "pg_name",
    "pg_desc": "pg_desc",
    "in_split": "in_split_size",
    "out_split": "out_split_size",
}
"""Attributes of record_param_comms since schema 1.1.0."""
_STRIDED = ("global_rank_start", "global_rank_stride", "pg_size")
_OF_ET = ("collective", "in_nelems", "pg_ranks")
"""Fields whose lack on a kernel sends the linker to the ET's record_param_comms."""
_ALL_REDUCE = re.compile("all_?reduce", re.IGNORECASE)
_ELEMENT_TYPE = re.compile(r"Tensor\(([^)]*)\)")
"""In a type like "GenericList[Tensor(float)]"."""
_MAX_DEPTH = 63
_TEXTS = 1024
"""Texts of nodes that are in memory at once."""

T = TypeVar("T")


def comm_of_kernels(
    et: ExecutionTrace, nodes: EtCalls, events: EventTable, rows: IntColumn, parents: IntColumn
) -> dict[int, Comm]:
    """`comm` objects of the communication kernels among GPU events.

    Args:
        rows: int64, event rows of GPU events.
        parents: int64, position in `nodes` of each one's parent.

    Returns:
        By position in `rows`, the fields of docs/reference/etplus.md; None where neither trace records them.
    """
    wanted, operator = _communicating(et, nodes, events, rows, parents)
    result = dict(zip(wanted.tolist(), map(kernel_comm, events.args_of(rows[wanted])), strict=True))
    partial = [i for i, comm in result.items() if any(comm[field] is None for field in _OF_ET)]
    for i, from_et in zip(partial, _of_ancestors(et, nodes, parents[partial], comm_of_node), strict=True):
        if from_et is not None:
            result[i] = {key: from_et.get(key) if value is None else value for key, value in result[i].items()}
    for i, comm in result.items():
        called_by = et.names[operator[i]] if parents[i] >= 0 else ""
        if comm["collective"] is None:
            comm["collective"] = collective_of(events.names[events.name[rows[i]]]) or collective_of(called_by)
        if comm["in_nelems"] is None and comm["collective"] == "allreduce" and is_all_reduce(called_by):
            comm |= reduced_tensor(et.texts.of(nodes.node[parents[i : i + 1]])[0])
        size = itemsize(comm["dtype"])
        elements = comm["in_nelems"] or comm["out_nelems"]
        if comm["pg_ranks"] is not None:
            comm["pg_first_rank"] = None
        comm["bytes"] = size * elements if size and elements is not None else None
    return {i: msgspec.convert(comm, Comm) for i, comm in result.items()}


def _communicating(
    et: ExecutionTrace, nodes: EtCalls, events: EventTable, rows: IntColumn, parents: IntColumn
) -> tuple[IntColumn, IntColumn]:
    """Return the positions in `rows` of communication kernels, and of every event the name code of its operator.

    Evidence is what Kineto wrote of the kernel, the operator that launched it, or its name. Kineto writes the same
    fields for all kernels of one name and operator, so the first of them is asked.
    """
    operator = et.name[nodes.node[parents]].astype(np.int64)
    operator[parents < 0] = -1
    kernels = events.mask(KERNEL_CATEGORIES)[rows]
    named = matching(events.name[rows], events.names, is_comm_kernel)
    unclear = np.flatnonzero(kernels & ~named & matching(events.name[rows], events.names, may_communicate))
    pairs, kind = distinct_rows(events.name[rows[unclear]], operator[unclear])
    first = np.full(len(pairs), len(unclear), np.int64)
    np.minimum.at(first, kind, np.arange(len(unclear)))
    launched = [code >= 0 and launches_collective(et.names[code], events.names[name]) for name, code in pairs.tolist()]
    said = map(has_collective_fields, events.args_of(rows[unclear[first]]))
    evident = np.array(launched, np.bool_) | np.fromiter(said, np.bool_, len(pairs))
    named[unclear[evident[kind]]] = True
    return np.flatnonzero(named), operator


def is_all_reduce(operator: str) -> bool:
    """Whether an operator is a serving engine's own all-reduce, which no `record_param_comms` is around.

    Example:
        >>> [is_all_reduce(name) for name in ("_C_custom_ar::all_reduce", "c10d::allreduce_", "aten::sum")]
        [True, False, False]
    """
    return _ALL_REDUCE.search(operator) is not None and "c10d" not in operator


def reduced_tensor(text: bytes) -> dict[str, Any]:
    """Elements and type of an all-reduce's message, by the first tensor that its operator takes; {} without one.

    Args:
        text: JSON object of the call, with `inputs` as ET nodes have them.
    """
    inputs = decode_call(text).inputs
    for shape, kind in zip(inputs.shapes, inputs.types, strict=False):
        found = _ELEMENT_TYPE.fullmatch(kind) if isinstance(kind, str) else None
        if found and isinstance(shape, list) and shape and all(type(extent) is int for extent in shape):
            return {"dtype": found[1], "in_nelems": prod(shape), "out_nelems": prod(shape)}
    return {}


def comm_of_tensor(text: bytes) -> Comm:
    """What an operator communicates that reduces the first tensor it takes; nothing is known without one."""
    given = reduced_tensor(text)
    size = itemsize(given.get("dtype"))
    return Comm(**given, bytes=size * given["in_nelems"] if size else None)


class CommRecord(NamedTuple):
    """What a `record_param_comms` says for pairing `Work.wait` with its collective.

    Attributes:
        collective: its name, `WAIT` for `Work.wait`.
        sequence: number of the collective within its group; that of `Work.wait` is the number of what it waits for.
        group: name of the process group, "" if unknown (PyTorch before 2.4 writes none for `Work.wait`).
    """

    collective: str
    sequence: int | None
    group: str


def comm_records(et: ExecutionTrace, nodes: EtCalls, positions: IntColumn) -> list[CommRecord | None]:
    """For each of some nodes (−1 for none) the nearest `record_param_comms` at or above it, None without one."""
    return _of_ancestors(et, nodes, positions, _record_of)


def _record_of(text: bytes) -> CommRecord | None:
    inputs = decode_call(text).inputs
    values, at = inputs.values, _name_at(inputs)
    if at < 0:
        return None
    sequence = values[at - 3] if at >= 3 else None
    if isinstance(sequence, list) and sequence:  # with whether it is point to point, since PyTorch 2.4
        sequence = sequence[0]
    group = values[at - 2]
    named = isinstance(group, list) and bool(group) and isinstance(group[0], str)
    return CommRecord(values[at], sequence if type(sequence) is int else None, group[0] if named else "")


def _of_ancestors(
    et: ExecutionTrace, nodes: EtCalls, positions: IntColumn, read: Callable[[bytes], T]
) -> list[T | None]:
    """What a function makes of the text of the nearest record_param_comms at or above each node, None without one."""
    is_record = matching(et.name[nodes.node], et.names, RECORD_PARAM_COMMS.__eq__)
    at = np.array(positions, np.int64)
    for _ in range(_MAX_DEPTH):
        above = np.flatnonzero((at >= 0) & ~is_record[at])
        at[above] = nodes.parent[at[above]]
    found = np.flatnonzero((at >= 0) & is_record[at])
    node = nodes.node[at[found]]
    wanted = distinct(node)
    made: list[T] = []  # each text is read once, in the order of the file, so that no piece of it is looked for twice
    for first in range(0, len(wanted), _TEXTS):
        made += map(read, et.texts.of(wanted[first : first + _TEXTS]))
    result: list[T | None] = [None] * len(at)
    for i, k in zip(found.tolist(), np.searchsorted(wanted, node).tolist(), strict=True):
        result[i] = made[k]
    return result


def _name_at(inputs: DecodedSide) -> int:
    """The position of the collective's name among the inputs of a record_param_comms, −1 for none."""
    pairs = enumerate(zip(inputs.values, inputs.types, strict=False))
    return next((i for i, (v, t) in pairs if t == "String" and isinstance(v, str)), -1)


def comm_of_node(text: bytes) -> dict[str, Any]:
    """Fields of `comm` in the text of a record_param_comms node: its attributes (schema 1.1.0 on), else its inputs."""
    record, comm = decode_call(text), dict[str, Any]()
    values, types, name_at = record.inputs.values, record.inputs.types, _name_at(record.inputs)
    tensors = _tensors(values[0]) if values else []
    if name_at >= 0:
        comm["collective"] = values[name_at]
        group = values[name_at - 2] if name_at >= 2 else None
        if isinstance(group, list) and len(group) == 2 and all(isinstance(g, str) for g in group):
            comm["pg_name"], comm["pg_desc"] = group
        splits = [int_list(v) for v in values[name_at + 1 : name_at + 3]]
        comm["in_split"], comm["out_split"] = (*splits, None, None)[:2]
    if tensors:
        comm["in_nelems"] = sum(t[3] for t in tensors)
        found = _ELEMENT_TYPE.search(types[0] if types else "")
        comm["dtype"] = found[1] if found else None
        comm["out_nelems"] = sum(t[3] for v in record.outputs.values for t in _tensors(v)) or comm["in_nelems"]
    given = {field: record.attributes.get(name) for field, name in _ATTRS.items()}
    given["in_split"], given["out_split"] = int_list(given["in_split"]), int_list(given["out_split"])
    comm.update({key: value for key, value in given.items() if value not in (None, "")})
    comm["pg_ranks"] = _strided(*(record.attributes.get(name) for name in _STRIDED))
    return comm


def peer_in_group(inputs: DecodedSide) -> dict[str, Any]:
    """Return the other rank of a message, by the inputs of its record_param_comms; {} if its ranks are not known.

    The position of a rank in the group is that in the job only for the group of all ranks.
    """
    at = _name_at(inputs)
    peer, group = (inputs.values[at - back] if at >= back else None for back in (1, 2))
    of_all = isinstance(group, list) and len(group) == 2 and (group[0] == "0" or group[1] == "default_pg")
    return {"src_rank": peer, "dst_rank": peer} if type(peer) is int and of_all else {}


def _strided(start: Any, stride: Any, size: Any) -> list[int] | None:
    """The ranks of a group that PyTorch describes by the first, their distance and number; −1 if they have no one."""
    if not all(type(value) is int for value in (start, stride, size)) or min(start, stride - 1, size - 1) < 0:
        return None
    return list(range(start, start + stride * size, stride)) if start + stride * size < MAX_RANKS else None


def _tensors(value: Any) -> list[list[Any]]:
    """All tensors [tensor, storage, offset, numel, itemsize, device] in a value, lists of them included."""
    found, pending = [], [value]
    while pending:
        item = pending.pop()
        if not isinstance(item, list):
            continue
        if len(item) == 6 and all(type(v) is int for v in item[:5]) and isinstance(item[5], str):
            found.append(item)
        else:
            pending.extend(reversed(item))
    return found
