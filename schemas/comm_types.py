"""Derive the kind, size, process group and peer of a communication from metadata, names and inputs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ..trace.comm_kernels import Comm
from ..trace.dtypes import itemsize

_MAX_BYTES = 2**62
_FROM_RANK = " from rank "  # If only a group's first rank is known, its name ends with this string and the rank.
_NAMED = 3


class CollectiveCommType:
    """Constants of Chakra's enumeration in et_def.proto, copied here because importing protobuf is slow."""

    ALL_REDUCE: Final = 0
    REDUCE: Final = 1
    ALL_GATHER: Final = 2
    GATHER: Final = 3
    SCATTER: Final = 4
    BROADCAST: Final = 5
    ALL_TO_ALL: Final = 6
    REDUCE_SCATTER: Final = 7
    REDUCE_SCATTER_BLOCK: Final = 8
    BARRIER: Final = 9


COLLECTIVES: Final[dict[str, int]] = {name: kind for name, kind in vars(CollectiveCommType).items() if name.isupper()}


SEND: Final = -1
RECV: Final = -2

Group = tuple[str, tuple[int, ...]]  # name and ranks of a process group; the ranks are () if they were not recorded
WORLD: Final[Group] = ("", ())  # the group of all ranks in the job

# Matches host operators that transfer the data themselves. Operators named "nccl:…" only launch a kernel.
HOST_COLLECTIVE = re.compile(r"(?:gloo|mpi|ucc):\w+", re.ASCII)

# Maps parts of names to kinds of collectives. Longer parts come first, because they contain shorter ones.
_LONGER_FIRST = "ALL_REDUCE REDUCE_SCATTER ALL_GATHER ALL_TO_ALL BROADCAST BARRIER REDUCE GATHER SCATTER".split()
_PARTS = {name.replace("_", "").lower(): COLLECTIVES[name] for name in _LONGER_FIRST}
_POINT_TO_POINT = {"send": SEND, "isend": SEND, "recv": RECV, "irecv": RECV, "recvanysource": RECV}
_BY_OUTPUT = frozenset({RECV, CollectiveCommType.SCATTER})


def collective_type(comm: Comm, name: str) -> int | None:
    """Return the CollectiveCommType, SEND or RECV that a communication's metadata or name implies; None if unknown.

    RCCL may run any collective in `ncclDevKernel_Generic`. Without metadata, a `SendRecv` kernel may be an all-to-all.
    """
    for text in (comm.collective or "", name):
        plain = re.sub(r"[^a-z]", "", text.rpartition(":")[2].lower())
        if plain in _POINT_TO_POINT:
            return _POINT_TO_POINT[plain]
        for part, value in _PARTS.items():
            if part in plain:
                return value
    return None


def message_bytes(comm: Comm, kind: int) -> int | None:
    """Return the message size for simulators in bytes: one rank's input, or its output for receives and scatters."""
    size = itemsize(comm.dtype)
    inputs, outputs = comm.in_nelems, comm.out_nelems
    if kind == CollectiveCommType.ALL_GATHER and not inputs and outputs and comm.group_size:
        inputs = outputs // comm.group_size
    elements = (outputs or inputs) if kind in _BY_OUTPUT else (inputs or outputs)
    total = comm.bytes if size is None or elements is None else size * elements
    return total if total is not None and 0 <= total < _MAX_BYTES else None


_ALL_REDUCE = ("allreduce", "all_reduce")
_SCATTERED = ("allgather", "all_gather", "scatter", "all_to_all", "alltoall")


def bus_factor(collective: str, ranks: int | None) -> float | None:
    """Return the traffic on the slowest link per byte of the buffer ("busbw" in NCCL's tests); None if unknown.

    The factor is 2(n − 1)/n for all-reduce and (n − 1)/n for all-gather, reduce-scatter, all-to-all and scatter. The
    factor is 1 for broadcast, reduce and point-to-point. Simulators use `message_bytes` instead.
    """
    if collective.startswith(("broadcast", "reduce")) and "scatter" not in collective:
        return 1.0
    if collective in ("send", "recv", "sendrecv"):
        return 1.0
    if ranks is None:
        return None
    if any(part in collective for part in _ALL_REDUCE):
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if any(part in collective for part in _SCATTERED) else None


def group_of(comm: Comm, groups: Mapping[str, Sequence[int]], world: int | None) -> Group:
    name = comm.pg_name or ""
    ranks = set(comm.pg_ranks or groups.get(name) or ())
    if 0 < (comm.group_size or 0) < len(ranks):
        ranks = set()
    whole = not world or not 0 < (comm.group_size or 0) < world  # An impossible size is ignored.
    if len(ranks) == world or (not ranks and ((name in ("", "0") and whole) or (world and comm.group_size == world))):
        return WORLD
    if not ranks and comm.pg_first_rank is not None:
        name += f"{_FROM_RANK}{comm.pg_first_rank}"
    return name, tuple(sorted(ranks))


def cut_off_note(groups: Iterable[Group]) -> tuple[str, ...]:
    names = sorted({name for name, ranks in groups if not ranks and _FROM_RANK in name})
    if not names:
        return ()
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"the profiler truncated the rank lists of the groups {', '.join(map(repr, names[:_NAMED]))}{more}: only the"
        " input ranks that list the same first rank are known to be members; link with the Execution Traces, which list"
        " all ranks",
    )


def with_inputs(comm: Comm, values: list[Any], caller: list[Any] | None) -> Comm:
    tensors = tensors_in(values)
    if comm.bytes is None and tensors:
        comm = msgspec.structs.replace(comm, bytes=sum(t[3] * t[4] for t in tensors))
    if caller is None:
        return comm
    peer = caller[2] if len(caller) > 2 and type(caller[2]) is int else None
    return msgspec.structs.replace(comm, src_rank=peer, dst_rank=peer)


def tensors_in(value: Any) -> list[list[Any]]:
    """Return all tensors in nested lists. A tensor is [tensor, storage, offset, numel, itemsize, device]."""
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
