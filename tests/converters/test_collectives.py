"""What a communication is: names, sizes, groups, and those of gloo, which runs on the host."""

from typing import Any

import pytest
from etplus.converters.collectives import (
    _ALONE,
    _NO_PEER,
    _UNKNOWN,
    Communication,
    RankComms,
    agree,
    matched,
    rank_recording,
    survey,
)
from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from etplus.schemas.comm_types import RECV, SEND
from etplus.schemas.communications import comm_rows
from etplus.trace.errors import ConvertError
from etplus_files import cpu, document_of, etplus, gpu, step_by_hand
from random_step import digest, random_step

KERNEL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def test_groups_are_numbered_by_name_ranks_and_size() -> None:
    groups: list[dict[str, Any]] = [
        {"pg_name": "0"}, {"pg_name": None}, {"pg_name": "x", "pg_ranks": [0, 1, 2, 3]},
        {"pg_name": "y", "group_size": 4}, {"pg_name": "dp"}, {"pg_name": "tp", "pg_ranks": [2, 0]},
        {"pg_name": "12", "pg_ranks": [0, 3]}, {"pg_name": "unknown"},
    ]  # fmt: skip
    kernels = [gpu(10 + at, KERNEL, 10.0 * at, 5, comm={"collective": "allreduce", "bytes": 8, **group},
                   pg_name=group["pg_name"]) for at, group in enumerate(groups)]  # fmt: skip
    config = [{"pg_name": "dp", "ranks": [0, 1]}]
    document = etplus([cpu(3, "op", 0, 500), *kernels], rank=0, world_size=4, pg_config=config)
    agreement = agree([survey(document, 0)])
    assert [comm.group for comm in agreement.ranks[0].found] == [0, 0, 0, 0, 1, 2, 12, 3]
    assert agreement.groups == {1: [0, 1], 2: [0, 2], 12: [0, 3]}
    assert agreement.names == {1: "dp", 2: "tp", 3: "unknown", 12: "12"}


def test_what_is_no_communication_to_simulate_is_counted() -> None:
    comms = [{"collective": "teleport"}, {"collective": "send"}, {"collective": "allreduce"}]
    kernels = [gpu(4 + k, KERNEL, 10 * k, 5, comm={"bytes": 4, **comm}, pg_name=None) for k, comm in enumerate(comms)]
    found = survey(etplus([cpu(3, "op", 0, 99), *kernels]), 0, unmatched={6})
    assert found.found == () and found.counts == {_UNKNOWN: 1, _NO_PEER: 1, _ALONE: 1}


def test_gloo_runs_on_the_host_in_one_order_on_all_ranks() -> None:
    orders = []
    for rank in (0, 1):
        document = document_of(f"cpu-pairs/ddp_same.rank{rank}")
        comms = survey(document, rank).found
        assert len(comms) == len(comm_rows(document)) == 36
        assert {document.name_of(comm.row).partition(":")[0] for comm in comms} == {"gloo"}
        peers = [comm for comm in comms if comm.kind in (SEND, RECV)]
        assert [(comm.kind, comm.peer, comm.size) for comm in peers] == [(RECV if rank else SEND, 1 - rank, 20)] * 3
        assert {comm.size for comm in comms if comm.kind == Type.ALL_REDUCE} == {20, 1088}
        orders.append([(comm.kind, comm.size) for comm in comms if comm.kind >= 0])
    assert orders[0] == orders[1]


MADE = [
    "c8e8a07e", "d8a7453b", "c4f4778d", "c9fd4b55", "e133a5b8", "396a272f", "c4fd8e65", "6decd698",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(len(MADE)))
def test_random_ranks_agree_on_their_stored_digests(seed: int) -> None:
    """Four ranks of which two send to the other's number: groups, tags and what is found."""
    agreed = agree([survey(random_step(seed + rank, world=4), rank) for rank in range(4)])
    found = [(rank, comms.world, comms.found, sorted(comms.counts.items())) for rank, comms in agreed.ranks.items()]
    assert digest([*found, agreed.groups, agreed.names, agreed.notes]) == MADE[seed]


def test_messages_have_one_number_on_both_ends() -> None:

    def message(kind: int, peer: int, seq: int = -1) -> Communication:
        return Communication(0, kind, 8, peer=peer, seq=seq)

    ranks = [
        RankComms(0, 2, (message(SEND, 1, 5), message(RECV, 1), message(SEND, 1, 6), message(SEND, 1, 8))),
        RankComms(1, 2, (message(RECV, 0, 6), message(SEND, 0), message(RECV, 0, 8))),
    ]
    agreed = agree(ranks).ranks
    assert [[(comm.kind, comm.tag) for comm in agreed[rank].found] for rank in (0, 1)] == [
        [(SEND, 2), (RECV, 0), (SEND, 0), (SEND, 1)], [(RECV, 0), (SEND, 0), (RECV, 1)],
    ]  # fmt: skip


def test_groups_are_numbered_by_name_where_it_is_a_free_number() -> None:
    def in_group(name: str, *members: int) -> Communication:
        return Communication(0, 0, 8, named=(name, members))

    names = [("5", 0, 1), ("5", 1, 2), ("0", 0, 2), ("01", 0, 3), ("tp", 1, 3), ("99999999999", 0, 1)]
    found = tuple(in_group(name, *members) for name, *members in names)
    agreed = agree([RankComms(rank, 4, found) for rank in range(4)])
    assert {number: (agreed.names[number], ranks) for number, ranks in agreed.groups.items()} == {
        1: ("01", [0, 3]), 2: ("0", [0, 2]), 3: ("5", [1, 2]), 4: ("99999999999", [0, 1]), 5: ("5", [0, 1]),
        6: ("tp", [1, 3]),
    }  # fmt: skip


def test_what_one_rank_lacks_becomes_a_computation_if_asked() -> None:
    traces = [step_by_hand(), etplus([cpu(3, "a", 0, 9)], rank=1, world_size=2)]
    surveyed = [survey(trace, rank) for rank, trace in enumerate(traces)]
    recorded = {rank: rank_recording(trace) for rank, trace in enumerate(traces)}
    kept, (note,) = matched(surveyed, recorded, degrade=True)
    assert [len(comms.found) for comms in surveyed] == [1, 0] and [comms.found for comms in kept] == [(), ()]
    told = "warning: degraded: 1 communication that differ between ranks, 0.030 ms, became computations of "
    assert note.startswith(told)
    with pytest.raises(
        ConvertError, match=r"rank 1 lacks ALL_REDUCE of 1,024 bytes, collective 0 \(from 0\) of all ranks, "
    ):
        matched(surveyed, recorded, degrade=False)
