"""A recorded data-parallel job on more ranks (weak scaling): its own traces in larger process groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from ..schemas.etplus.read_etplus import read_etplus
from ..trace.errors import UsageError
from ..trace.trace import Trace

__all__ = ["scaled_trace"]


def scaled_trace(traces: Sequence[Trace], rank: int, ranks: int) -> Trace:
    """A rank of a data-parallel job on another number of ranks: the work and messages of a recorded rank.

    Rank r runs what the recorded rank r mod k of k does. A group of all recorded ranks becomes one of all new ranks;
    what a rank sends in an all-to-all stays, divided over all new ranks. Measured times stay.

    Raises:
        UsageError: a group that is not that of all ranks.
    """
    source = traces[rank % len(traces)]
    world = source.world_size or len(traces)
    document = source.to_dict()
    for node in document["nodes"]:
        comm = node.get("comm")
        if comm is not None:
            node["comm"] = _scaled(comm, world, ranks, source.file)
    summary = document.setdefault("etplus", {})
    kineto = dict(summary.get("kineto") or {})
    info = dict(kineto.get("distributed_info") or {})
    groups = [
        {**one, "pg_size": ranks, "ranks": list(range(ranks))}
        for one in info.get("pg_config") or []
        if isinstance(one, dict) and one.get("pg_size") == world
    ]
    info |= {"rank": rank, "world_size": ranks} | ({"pg_config": groups, "pg_count": len(groups)} if groups else {})
    summary["kineto"] = {**kineto, "distributed_info": info}
    return read_etplus(orjson.dumps(document))


def _scaled(comm: Mapping[str, Any], world: int, ranks: int, file: str) -> dict[str, Any]:
    members, size = comm.get("pg_ranks"), comm.get("group_size")
    found = size or len(members or ())
    if found and found != world:
        raise UsageError(
            f"{file}: a process group has {found} of {world} ranks; only jobs with the group of all "
            "ranks can be scaled without --from"
        )
    new = dict(comm)
    if members:
        new["pg_ranks"] = list(range(ranks))
    if size:
        new["group_size"] = ranks
    for side in ("in", "out"):
        if comm.get(f"{side}_split"):
            new[f"{side}_split"] = _divided(sum(comm[f"{side}_split"]), ranks)
    return new


def _divided(whole: int, parts: int) -> list[int]:
    each, more = divmod(whole, parts)
    return [each + (k < more) for k in range(parts)]
