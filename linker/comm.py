"""Find the messages that communication kernels send: the `comm` object in docs/reference/etplus.md.

The linker reads the arguments of Kineto's event. If any are missing, it uses the ET's record_param_comms around the
launch or, for all-reduces of serving engines, the operator's first tensor. For `batch_isend_irecv`, PyTorch registers
each message with a `record_param_comms` and launches one kernel when the batch ends. No trace records which messages
this kernel carries. The linker assigns all messages that a thread has registered since its last communication launch to
its next one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from ..schemas.comm_types import RECV, SEND, collective_type, tensors_in
from ..schemas.execution_trace.arguments import DecodedSide, decode_call
from ..schemas.execution_trace.read_et import ExecutionTrace
from ..schemas.kineto.event_args import int_list, kernel_comm
from ..trace.columns import IntColumn, distinct, distinct_rows, grouped, lists_by, matching
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
from .join import Join

# PyTorch records a node with this name around every collective.
RECORD_PARAM_COMMS = "record_param_comms"
# For the `record_param_comms` of a `Work.wait`, this string replaces the collective's name.
WAIT = "wait"

# Maps field names in `comm` to the attributes of record_param_comms (since schema 1.1.0) that contain their values.
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
_STRIDED = ("global_rank_start", "global_rank_stride", "pg_size")
# If a kernel lacks any field listed here, all its missing fields are filled from the ET's record_param_comms.
_FROM_ET = ("collective", "in_nelems", "pg_ranks")
_ALL_REDUCE = re.compile("all_?reduce", re.IGNORECASE)
# Matches the dtype in a type such as "GenericList[Tensor(float)]".
_DTYPE = re.compile(r"Tensor\(([^)]*)\)")
# The search for record_param_comms above a launch stops after this many callers, because call trees can be very deep.
_MAX_DEPTH = 63
# Maximum number of node records (JSON strings) to hold in memory at once.
_TEXTS = 1024

T = TypeVar("T")


def comm_of_kernels(join: Join) -> dict[int, Comm]:
    """Return each communication kernel's message, keyed by position in `join.gpu_row`. Unrecorded fields are None."""
    et, nodes, events, rows, parents = join.et, join.nodes, join.kineto.events, join.gpu_row, join.gpu_parent
    wanted, operator = _communicating(join)
    result = dict(zip(wanted.tolist(), map(kernel_comm, events.args_of(rows[wanted])), strict=True))
    partial = [i for i, comm in result.items() if any(comm[field] is None for field in _FROM_ET)]
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


def _communicating(join: Join) -> tuple[IntColumn, IntColumn]:
    """Return the communication kernels' positions in `gpu_row`, and the operator's name code for every event in it.
    Kernels with the same name and operator have the same argument names, so read only the first of them."""
    et, events, rows, parents = join.et, join.kineto.events, join.gpu_row, join.gpu_parent
    operator = et.name[join.nodes.node[parents]].astype(np.int64)
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
    """Return True if the operator is a serving engine's custom all-reduce. It has no `record_param_comms`."""
    return _ALL_REDUCE.search(operator) is not None and "c10d" not in operator


def reduced_tensor(text: bytes) -> dict[str, Any]:
    """Return the size and dtype of an all-reduce's message, based on its first tensor; {} if it has no tensor."""
    inputs = decode_call(text).inputs
    for shape, kind in zip(inputs.shapes, inputs.types, strict=False):
        found = _DTYPE.fullmatch(kind) if isinstance(kind, str) else None
        if found and isinstance(shape, list) and shape and all(type(extent) is int for extent in shape):
            return {"dtype": found[1], "in_nelems": prod(shape), "out_nelems": prod(shape)}
    return {}


def comm_of_tensor(text: bytes) -> Comm:
    given = reduced_tensor(text)
    size = itemsize(given.get("dtype"))
    return Comm(**given, bytes=size * given["in_nelems"] if size else None)


class CommRecord(NamedTuple):
    """The `record_param_comms` fields that pair a `Work.wait` with its collective."""

    collective: str  # name of the collective, or `WAIT` for `Work.wait`
    sequence: int | None  # sequence number of the collective within its group
    group: str  # name of the process group; "" if unknown (before PyTorch 2.4, `Work.wait` does not record it)


def comm_records(et: ExecutionTrace, nodes: EtCalls, positions: IntColumn) -> list[CommRecord | None]:
    """Return the nearest `record_param_comms` at or above each node; None if there is none or the position is −1."""
    return _of_ancestors(et, nodes, positions, _record_of)


def _record_of(text: bytes) -> CommRecord | None:
    inputs = decode_call(text).inputs
    values, at = inputs.values, _name_at(inputs)
    if at < 0:
        return None
    sequence = values[at - 3] if at >= 3 else None
    if isinstance(sequence, list) and sequence:  # PyTorch 2.4 and later record [number, is_p2p]
        sequence = sequence[0]
    group = values[at - 2]
    named = isinstance(group, list) and bool(group) and isinstance(group[0], str)
    return CommRecord(values[at], sequence if type(sequence) is int else None, group[0] if named else "")


def _of_ancestors(
    et: ExecutionTrace, nodes: EtCalls, positions: IntColumn, read: Callable[[bytes], T]
) -> list[T | None]:
    """Apply `read` to the JSON of the nearest record_param_comms at or above each node; None if there is none."""
    is_record = matching(et.name[nodes.node], et.names, RECORD_PARAM_COMMS.__eq__)
    at = np.array(positions, np.int64)
    for _ in range(_MAX_DEPTH):
        above = np.flatnonzero((at >= 0) & ~is_record[at])
        at[above] = nodes.parent[at[above]]
    found = np.flatnonzero((at >= 0) & is_record[at])
    node = nodes.node[at[found]]
    wanted = distinct(node)
    # Reading the nodes in file order decodes each block of the file only once.
    made = [read(text) for k in range(0, len(wanted), _TEXTS) for text in et.texts.of(wanted[k : k + _TEXTS])]
    result: list[T | None] = [None] * len(at)
    for i, k in zip(found.tolist(), np.searchsorted(wanted, node).tolist(), strict=True):
        result[i] = made[k]
    return result


def _name_at(inputs: DecodedSide) -> int:
    pairs = enumerate(zip(inputs.values, inputs.types, strict=False))
    return next((i for i, (v, t) in pairs if t == "String" and isinstance(v, str)), -1)


def comm_of_node(text: bytes) -> dict[str, Any]:
    """Return the `comm` fields of a record_param_comms. Prefer its attributes (since schema 1.1.0) to its inputs."""
    record, comm = decode_call(text), dict[str, Any]()
    values, types, name_at = record.inputs.values, record.inputs.types, _name_at(record.inputs)
    tensors = tensors_in(values[0]) if values else []
    if name_at >= 0:
        comm["collective"] = values[name_at]
        group = values[name_at - 2] if name_at >= 2 else None
        if isinstance(group, list) and len(group) == 2 and all(isinstance(g, str) for g in group):
            comm["pg_name"], comm["pg_desc"] = group
        splits = [int_list(v) for v in values[name_at + 1 : name_at + 3]]
        comm["in_split"], comm["out_split"] = (*splits, None, None)[:2]
    if tensors:
        comm["in_nelems"] = sum(t[3] for t in tensors)
        found = _DTYPE.search(types[0] if types else "")
        comm["dtype"] = found[1] if found else None
        comm["out_nelems"] = sum(t[3] for v in record.outputs.values for t in tensors_in(v)) or comm["in_nelems"]
    given = {field: record.attributes.get(name) for field, name in _ATTRS.items()}
    given["in_split"], given["out_split"] = int_list(given["in_split"]), int_list(given["out_split"])
    comm.update({key: value for key, value in given.items() if value not in (None, "")})
    comm["pg_ranks"] = _strided(*(record.attributes.get(name) for name in _STRIDED))
    return comm


def peer_in_group(inputs: DecodedSide) -> dict[str, Any]:
    """Return the peer of a message, {} if unknown. PyTorch records the peer's rank within the group. This is the rank
    in the job only if the group contains all ranks."""
    at = _name_at(inputs)
    peer, group = (inputs.values[at - back] if at >= back else None for back in (1, 2))
    of_all = isinstance(group, list) and len(group) == 2 and (group[0] == "0" or group[1] == "default_pg")
    return {"src_rank": peer, "dst_rank": peer} if type(peer) is int and of_all else {}


def _strided(start: Any, stride: Any, size: Any) -> list[int] | None:
    """Return the ranks of a group that PyTorch describes by first rank, stride and size; None if the stride is −1."""
    if not all(type(value) is int for value in (start, stride, size)) or min(start, stride - 1, size - 1) < 0:
        return None
    return list(range(start, start + stride * size, stride)) if start + stride * size < MAX_RANKS else None


_OF_GROUP = ("dtype", "group_size", "pg_name", "pg_desc", "pg_ranks", "pg_first_rank")


def with_batched_messages(join: Join, comms: dict[int, Comm]) -> dict[int, Comm]:
    """Add messages to communication kernels that do not record any. `comms` maps positions in `join.gpu_row` to
    messages. Skip batches with other communication or with several kernels at their end: no trace records which kernel
    carries which message."""
    launched = [i for i in comms if join.gpu_launcher[i] >= 0]
    silent = {i for i in launched if comms[i].in_nelems is None and comms[i].collective in (None, "sendrecv")}
    if not silent:
        return comms
    events, launcher = join.kineto.events, join.gpu_launcher[launched]
    thread, ts = events.thread[launcher].astype(np.int64), events.ts[launcher]
    registered, found = _Registration(join), dict(comms)
    for _, lane in grouped(thread, thread):
        lane = lane[np.argsort(ts[lane], kind="stable")]
        kernels, times = [launched[at] for at in lane.tolist()], ts[lane].tolist()
        own = thread[lane[0]]
        batches = [registered.between(own, since, until) for since, until in pairwise([-1, *times])]
        for k, (i, batch) in enumerate(zip(kernels, batches, strict=True)):
            shared = k + 1 < len(kernels) and kernels[k + 1] in silent and not batches[k + 1]
            if i in silent and batch and not shared:
                found[i] = comms[i] if (messages := registered.messages(batch)) is None else _joined(comms[i], messages)
    return found


class _Registration:
    def __init__(self, join: Join) -> None:
        self.join = join
        calls = join.calls
        at = np.flatnonzero(matching(calls.name, join.kineto.events.names, RECORD_PARAM_COMMS.__eq__))
        at = at[np.lexsort((calls.ts[at], calls.thread[at]))]
        self.by_thread: dict[int, list[int]] = lists_by(calls.thread[at].tolist(), at.tolist())
        self.starts = {thread: calls.ts[of].tolist() for thread, of in self.by_thread.items()}

    def between(self, thread: int, since: int, until: int) -> list[int]:
        calls, starts = self.by_thread.get(thread, []), self.starts.get(thread, [])
        return calls[bisect_left(starts, since + 1) : bisect_left(starts, until)]

    def messages(self, calls: list[int]) -> list[Comm] | None:
        comms = [comm for comm in self._comms(np.array(calls, np.int64)) if comm.collective != WAIT]
        return comms if comms and all(collective_type(comm, "") in (SEND, RECV) for comm in comms) else None

    def _comms(self, calls: IntColumn) -> Iterator[Comm]:
        join = self.join
        nodes = join.node_of_call[calls]
        for args, node in zip(join.kineto.events.args_of(join.calls.row[calls]), nodes.tolist(), strict=True):
            known = kernel_comm(args)
            if node >= 0 and None in (known["collective"], known["in_nelems"], known["pg_ranks"]):
                (text,) = join.et.texts.of(join.nodes.node[[node]])
                of_node = comm_of_node(text) | peer_in_group(decode_call(text).inputs)
                known = {field: of_node.get(field) if value is None else value for field, value in known.items()}
            size, elements = itemsize(known["dtype"]), known["in_nelems"] or known["out_nelems"]
            known["bytes"] = size * elements if size and elements is not None else None
            yield msgspec.convert(known, Comm)


def _joined(kernel: Comm, messages: Sequence[Comm]) -> Comm:
    if len(messages) == 1:
        return msgspec.structs.replace(messages[0], inferred_messages=list(messages))
    fields = {field: [getattr(message, field) for message in messages] for field in _OF_GROUP}
    common = {field: values[0] for field, values in fields.items() if values.count(values[0]) == len(values)}
    sent, received = (
        [message.in_nelems or message.out_nelems for message in messages if collective_type(message, "") == kind]
        for kind in (SEND, RECV)
    )
    elements = [None if None in of or "dtype" not in common else sum(n or 0 for n in of) for of in (sent, received)]
    size = itemsize(common.get("dtype"))
    total = elements[0] or elements[1]
    known = {"collective": "sendrecv", "in_nelems": elements[0], "out_nelems": elements[1], **common}
    known["bytes"] = size * total if size and total is not None else None
    return msgspec.structs.replace(kernel, **known, inferred_messages=list(messages))
