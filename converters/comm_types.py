"""Which collective a name means: in traces' metadata, in the kernels of NCCL and RCCL, in the annotations of gloo."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..schemas.chakra.et_def_pb2 import CollectiveCommType
from ..schemas.comm_kernels import is_comm_kernel
from ..schemas.dtypes import itemsize
from ..schemas.etplus_document import Comm

__all__ = ["HOST_COLLECTIVE", "RECV", "SEND", "collective_type", "is_comm_kernel", "message_bytes"]

_MAX_BYTES = 2**62

SEND: Final = -1
RECV: Final = -2

HOST_COLLECTIVE = re.compile(r"(?:gloo|mpi|ucc):\w+", re.ASCII)
"""Names of the host nodes that are collectives themselves. (Those of "nccl:" only launch a kernel, which is one.)"""

_PARTS: Sequence[tuple[str, int]] = (
    ("allreduce", CollectiveCommType.ALL_REDUCE),
    ("reducescatter", CollectiveCommType.REDUCE_SCATTER),
    ("allgather", CollectiveCommType.ALL_GATHER),
    ("alltoall", CollectiveCommType.ALL_TO_ALL),
    ("broadcast", CollectiveCommType.BROADCAST),
    ("barrier", CollectiveCommType.BARRIER),
    ("reduce", CollectiveCommType.REDUCE),
    ("gather", CollectiveCommType.GATHER),
    ("scatter", CollectiveCommType.SCATTER),
)
"""Parts of names, those that contain another one before it."""
_POINT_TO_POINT = {"send": SEND, "isend": SEND, "recv": RECV, "irecv": RECV, "recvanysource": RECV}
_BY_OUTPUT = frozenset({RECV, CollectiveCommType.SCATTER})


def collective_type(comm: Comm, name: str) -> int | None:
    """What a communication is.

    Args:
        comm: what the traces tell of it.
        name: of its kernel, or of its host node ("gloo:all_reduce").

    Returns:
        a CollectiveCommType, SEND, RECV, or None where neither tells: RCCL's `ncclDevKernel_Generic` is all of them,
        and a kernel `SendRecv` without metadata can be an all-to-all as well as messages.
    """
    for text in (comm.collective or "", name):
        plain = re.sub(r"[^a-z]", "", text.rpartition(":")[2].lower())
        if plain in _POINT_TO_POINT:
            return _POINT_TO_POINT[plain]
        for part, value in _PARTS:
            if part in plain:
                return value
    return None


def message_bytes(comm: Comm, kind: int) -> int | None:
    """Size of a communication as simulators want it, None if unknown.

    The input of one rank, of an all-gather its shard; the output of what has no input on some ranks: receive, scatter.
    """
    size = itemsize(comm.dtype)
    inputs, outputs = comm.in_nelems, comm.out_nelems
    if kind == CollectiveCommType.ALL_GATHER and not inputs and outputs and comm.group_size:
        inputs = outputs // comm.group_size
    elements = (outputs or inputs) if kind in _BY_OUTPUT else (inputs or outputs)
    total = comm.bytes if size is None or elements is None else size * elements
    return total if total is not None and 0 <= total < _MAX_BYTES else None
