"""Find out which rank recorded a file, based on its process groups, annotations, messages and `distributedInfo`.

An ET does not record its rank. When the observer starts, `torch.profiler` records the process groups of the process as
an annotation `## process_group:init ##`: a JSON list with `pg_name`, `pg_desc`, `group_size` and `ranks` (empty for the
group of all ranks). `record_param_comms` (NCCL and similar backends) records the rank within the group; for rooted
collectives and messages, it records the root or the peer instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..schemas.comm_types import CollectiveCommType, collective_type
from ..schemas.execution_trace.arguments import PROCESS_GROUPS, CallRecord, decode_call, recorded_groups
from ..trace.comm_kernels import Comm, is_comm_kernel
from ..trace.conventions import MAX_RANKS

if TYPE_CHECKING:  # these readers are slow to import, and identifying files by name does not need them
    from ..schemas.execution_trace.read_et import ExecutionTrace
    from ..schemas.kineto.read_kineto import KinetoTrace

INIT = PROCESS_GROUPS
_RUN = re.compile(r"etplus\.run=([\w-]{1,64}) rank=(\d{1,6})")
_DEFAULT_GROUP = "default_pg"
# Names of calls that communicate with other processes.
COMMUNICATION = re.compile(
    r"c10d::|_c10d_functional|c10d_functional::|record_param_comms|(?:nccl|gloo|mpi|ucc|xccl|hccl|oneccl):|"
    r"## process_group|DistributedDataParallel|FullyShardedDataParallel|FSDP::"
)
_NOT_ROOTED = (
    CollectiveCommType.ALL_REDUCE, CollectiveCommType.ALL_GATHER, CollectiveCommType.REDUCE_SCATTER,
    CollectiveCommType.ALL_TO_ALL,
)  # fmt: skip
# Index of the peer in the inputs of `c10d::send` and `c10d::recv_`.
_PEER_AT = 2
# Maximum number of nodes to read for each name. One node is enough evidence, and an ET can contain a million.
_NODES_READ = 256
_MAX_LISTED = 1 << 16


@dataclass(frozen=True)
class Claim:
    """What one file shows about the rank of its process and the size of the job."""

    ranks: frozenset[int] | None = None  # possible ranks of the process; None if unknown
    world_size: int | None = None  # number of ranks in the job; None if unknown
    communicates: bool = False  # True if calls or kernels in the file communicate with other processes
    runs: frozenset[str] = frozenset()  # recording ids in annotations that `etplus.recording` writes

    @property
    def rank(self) -> int | None:
        return next(iter(self.ranks)) if self.ranks is not None and len(self.ranks) == 1 else None


def _recordings(names: Iterable[str]) -> Claim:
    found = [annotation.groups() for annotation in map(_RUN.fullmatch, names) if annotation]
    ranks = frozenset(filter(_is_rank, (int(rank) for _, rank in found)))
    return Claim(ranks if len(ranks) == 1 else None, runs=frozenset(run for run, _ in found))


def group_ranks(groups: Iterable[Any]) -> Claim:
    """Return the rank and job size that follow from process groups. Each group has `ranks`, `pg_desc`, and either
    `group_size` (ET) or `pg_size` (`distributedInfo.pg_config`)."""
    ranks: frozenset[int] | None = None
    world_size = None
    for group in groups:
        if not isinstance(group, dict):
            continue
        size = group.get("group_size", group.get("pg_size"))
        if group.get("pg_desc") == _DEFAULT_GROUP:
            world_size = size if _is_count(size) else world_size
        elif isinstance(members := group.get("ranks"), list) and members and all(map(_is_rank, members)):
            ranks = _both(ranks, frozenset(members))
    return Claim(ranks or None, world_size)


def rank_of_et(et: ExecutionTrace) -> Claim:
    """Return what process groups, collectives and the peers of messages show about the rank of an Execution Trace."""
    groups = [group for node in _nodes(et, INIT) for group in recorded_groups(node.inputs)]
    claim = group_ranks(groups)
    ranks, world_size = claim.ranks, claim.world_size
    for rank, size in filter(None, map(_rank_of_collective, _nodes(et, "record_param_comms"))):
        ranks = _both(ranks, frozenset((rank,)))
        world_size = size or world_size
    if world_size is not None and world_size <= _MAX_LISTED and len(groups) == 1:  # peers are ranks in the job
        inputs = (node.inputs.values for name in ("c10d::send", "c10d::recv_") for node in _nodes(et, name))
        peers = {peer for values in inputs for peer in values[_PEER_AT : _PEER_AT + 1] if type(peer) is int}
        if others := peers & set(range(world_size)):
            ranks = _both(ranks, frozenset(range(world_size)) - others)
    recorded = _recordings(et.names)
    ranks = recorded.ranks if ranks is None else ranks
    return Claim(ranks or None, world_size, any(map(COMMUNICATION.search, et.names)), recorded.runs)


def rank_of_kineto(kineto: KinetoTrace) -> Claim:
    """Return what `rank`, `world_size` and `pg_config` in `distributedInfo` show about a Kineto trace's rank."""
    info = kineto.distributed_info
    groups = info.get("pg_config")
    claim = group_ranks(groups if isinstance(groups, list) else [])
    rank: Any = info.get("rank")
    world_size = info.get("world_size")
    communicates = any(is_comm_kernel(name) or COMMUNICATION.search(name) for name in kineto.events.names)
    recorded = _recordings(kineto.events.names)
    ranks = frozenset((rank,)) if _is_rank(rank) else claim.ranks
    world_size = world_size if _is_count(world_size) else claim.world_size
    return Claim(recorded.ranks if ranks is None else ranks, world_size, communicates, recorded.runs)


def _both(ranks: frozenset[int] | None, others: frozenset[int]) -> frozenset[int]:
    return others if ranks is None else ranks & others


def _is_rank(value: Any) -> bool:
    return type(value) is int and 0 <= value < MAX_RANKS


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < MAX_RANKS


def _nodes(et: ExecutionTrace, name: str) -> Iterator[CallRecord]:
    if name not in et.names:
        return
    rows = np.flatnonzero(et.name == et.names.index(name))[:_NODES_READ]
    yield from map(decode_call, et.texts.of(rows))


def _rank_of_collective(node: CallRecord) -> tuple[int, int | None] | None:
    """Return the rank and the number of ranks that a `record_param_comms` node shows (schema 1.0.2 or later). Three
    consecutive inputs are the group (name and description), the rank in the group, and the name of the collective. In
    older schemas, the first input is a number that does not identify the group."""
    values = node.inputs.values
    for group, rank, name in zip(values, values[1:], values[2:], strict=False):
        if isinstance(group, list) and len(group) == 2 and _is_rank(rank) and isinstance(name, str):
            break
    else:
        return None
    if collective_type(Comm(), name) not in _NOT_ROOTED:
        return None
    if group[1] == _DEFAULT_GROUP:
        size = node.attributes.get("pg_size")
        return rank, size if _is_count(size) else None
    start, stride = node.attributes.get("global_rank_start"), node.attributes.get("global_rank_stride")
    if type(start) is int and type(stride) is int and start >= 0 and stride > 0:
        return start + stride * rank, None
    return None
