"""Find the messages of a kernel that sends and receives several (`batch_isend_irecv`).

PyTorch registers each message with a `record_param_comms`, and launches one kernel for all when the batch ends
(`nccl:coalesced`). Neither trace says which messages a kernel has. Messages registered on a thread since its last
launch of a communication are therefore assigned to its next launch: inferred from order, not recorded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from ..schemas.comm_types import RECV, SEND, collective_type
from ..schemas.execution_trace.arguments import decode_call
from ..schemas.kineto.event_args import kernel_comm
from ..trace.columns import IntColumn, grouped, matching
from ..trace.comm_kernels import Comm
from ..trace.dtypes import itemsize
from .comm import RECORD_PARAM_COMMS, WAIT, comm_of_node, peer_in_group
from .join import Join

_OF_GROUP = ("dtype", "group_size", "pg_name", "pg_desc", "pg_ranks", "pg_first_rank")


def with_batched_messages(join: Join, comms: dict[int, Comm]) -> dict[int, Comm]:
    """Add messages to kernels that record none, by position in `join.gpu_row`.

    A kernel gets none if the batch has other communications than messages, or if several kernels end one batch: then
    nothing says which kernel has which message.
    """
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
    """The `record_param_comms` calls of each thread, in order of start."""

    def __init__(self, join: Join) -> None:
        self.join = join
        calls = join.calls
        at = np.flatnonzero(matching(calls.name, join.kineto.events.names, RECORD_PARAM_COMMS.__eq__))
        at = at[np.lexsort((calls.ts[at], calls.thread[at]))]
        self.by_thread: defaultdict[int, list[int]] = defaultdict(list)
        for call in at.tolist():
            self.by_thread[int(calls.thread[call])].append(call)
        self.starts = {thread: calls.ts[of].tolist() for thread, of in self.by_thread.items()}

    def between(self, thread: int, since: int, until: int) -> list[int]:
        """Return the calls of a thread that register something in a span of time."""
        calls, starts = self.by_thread.get(thread, []), self.starts.get(thread, [])
        return calls[bisect_left(starts, since + 1) : bisect_left(starts, until)]

    def messages(self, calls: list[int]) -> list[Comm] | None:
        """Return the messages that calls register, None if one is no message."""
        comms = [comm for comm in self._comms(np.array(calls, np.int64)) if comm.collective != WAIT]
        return comms if comms and all(collective_type(comm, "") in (SEND, RECV) for comm in comms) else None

    def _comms(self, calls: IntColumn) -> Iterator[Comm]:
        """Return what Kineto, else the ET, records about each call."""
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
    """Return a kernel's communication with its messages and the fields that these share."""
    if len(messages) == 1:
        return msgspec.structs.replace(messages[0], inferred_messages=list(messages))
    common = {
        field: getattr(messages[0], field)
        for field in _OF_GROUP
        if all(getattr(message, field) == getattr(messages[0], field) for message in messages)
    }
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
