"""Scale a data-parallel job to another number of ranks: recorded traces with larger or smaller process groups.

Example: rank 5 of a job of 1,024 ranks, recorded on 4, is the recorded rank 1 with `dp_0` of ranks 0 to 1,023.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...trace.brief import brief
from ...trace.errors import UsageError
from ...trace.trace import Trace
from .layout import Layout
from .made_records import comms_of, edited


def is_only_scaled(trace: Trace, layout: Layout, was: Layout) -> bool:
    """Return whether only the number of data-parallel ranks changes, without FSDP."""
    fsdp = any(name.startswith("FSDP::") for name in trace.names)
    only_dp = layout.tp == layout.pp == layout.ep == was.tp == was.pp == 1 and not layout.zero
    same_batch = layout.batch is None and layout.microbatches is None
    return only_dp and same_batch and not fsdp and layout.dp > 1 and was.dp > 1


@dataclass(frozen=True)
class Scaled:
    """A recorded data-parallel job on another number of ranks.

    Rank r runs the calls of the recorded rank r mod k. Groups of all recorded ranks become groups of all new ranks, and
    the rows of an all-to-all are split over them.
    """

    traces: Sequence[Trace]
    layout: Layout

    __repr__ = brief

    def trace(self, rank: int) -> Trace:
        self.layout.check(rank)
        ranks, source = self.layout.ranks, self.traces[rank % len(self.traces)]
        world = source.world_size or len(self.traces)
        comms = {row: _scaled(comm, world, ranks, source.file) for row, comm in comms_of(source).items()}
        kineto = dict(source.summary.get("kineto") or {})
        info = dict(kineto.get("distributed_info") or {})
        groups = [
            {**group, "pg_size": ranks, "ranks": list(range(ranks))}
            for group in info.get("pg_config") or []
            if isinstance(group, dict) and group.get("pg_size") == world
        ]
        info |= {"rank": rank, "world_size": ranks} | ({"pg_config": groups, "pg_count": len(groups)} if groups else {})
        return edited(source, comms, source.summary | {"kineto": {**kineto, "distributed_info": info}})

    @cached_property
    def rank_map(self) -> dict[int, list[int]]:
        count = len(self.traces)
        return {k: list(range(k, self.layout.ranks, count)) for k in range(min(count, self.layout.ranks))}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; keys as in docs/reference/reshard.md."""
        return {
            "layout": {"tp": 1, "dp": self.layout.dp, "pp": 1, "zero": 0, "ranks": self.layout.ranks},
            "recorded": {"tp": 1, "dp": self.traces[0].world_size or len(self.traces), "pp": 1},
            "rank_map": {  # as [first, last, stride]
                str(rank): [[ranks[0], ranks[-1], len(self.traces) if len(ranks) > 1 else 1]]
                for rank, ranks in self.rank_map.items()
            },
            "network": None,
            "not_derived": [],
            "scaling": f"weak scaling: each of {self.layout.dp:,} ranks works on the samples of a recorded one",
        }


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
            each, more = divmod(sum(comm[f"{side}_split"]), ranks)
            new[f"{side}_split"] = [each + (rank < more) for rank in range(ranks)]
    return new
