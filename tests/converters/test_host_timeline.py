"""What computations of a rank on the host wait for, and sizes on networks of measured efficiency."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from etplus.converters.collectives import Agreement, Communication, RankComms
from etplus.converters.host_timeline import ReplayedRank, sized_by, with_slowed_work
from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType as Type
from etplus.schemas.comm_types import RECV, SEND
from etplus_files import cpu, etplus

A, B, COMM, OTHER = 2, 3, 4, 5
"""Rows: two computations of a thread, a communication, and a computation of another thread."""


def replayed(*released: tuple[int, int, int]) -> ReplayedRank:
    """Points of A are 1 and 2, of B 5 and 6, of the other thread's 3 and 4."""
    trace = etplus([cpu(3, "a", 0, 10), cpu(4, "b", 20, 10), cpu(5, "comm", 5, 8, tid=3), cpu(6, "c", 12, 2, tid=2)])
    start, end = np.array([-1, -1, 1, 5, -1, 3]), np.array([-1, -1, 2, 6, -1, 4])
    return ReplayedRank(trace, start, end, np.array(released, np.int64).reshape(-1, 3), {}, {}, {}, frozenset())


def test_a_point_at_the_end_of_a_computation_is_a_wait_inside_it_else_before_the_next_of_its_thread() -> None:
    rows = np.array([A, B, OTHER])
    assert replayed((COMM, 2, A)).waits(rows) == ({}, {A: [COMM]})
    assert replayed((COMM, 3, A)).waits(rows) == ({B: [COMM]}, {})
    assert replayed((COMM, 5, B), (COMM, 3, B)).waits(rows) == ({B: [COMM]}, {})
    assert replayed((COMM, 3, OTHER)).waits(rows) == ({OTHER: [COMM]}, {})
    assert replayed((COMM, 7, A), (COMM, 4, COMM)).waits(rows) == ({}, {OTHER: [COMM]})
    assert replayed().waits(rows) == ({}, {})


def test_communications_take_the_time_of_a_network_that_is_less_efficient() -> None:

    def efficiency_of(kind: int, size: int) -> Any:
        return {SEND: SimpleNamespace(times=1.5), Type.ALL_REDUCE: SimpleNamespace(times=0.0001)}.get(kind)

    found = tuple(Communication(row, kind, size) for row, (kind, size) in enumerate(
        ((SEND, 100), (RECV, 100), (Type.ALL_REDUCE, 8), (Type.BARRIER, 8), (SEND, 0))))  # fmt: skip
    agreement = Agreement({0: RankComms(0, 2, found)}, {}, {}, ("n",))
    network: Any = SimpleNamespace(efficiency=(1,), efficiency_of=efficiency_of)
    done = sized_by(agreement, network)
    assert [comm.size for comm in done.ranks[0].found] == [150, 150, 1, 8, 0] and len(done.notes) == 2
    assert sized_by(agreement, SimpleNamespace(efficiency=())) is agreement  # type: ignore[arg-type]


def test_work_that_a_collective_slows_waits_for_half_of_it_as_a_message_to_the_next_rank() -> None:
    timeline: Any = SimpleNamespace(
        slowdown=2.0, ranks={6: SimpleNamespace(beside={1, 3}), 7: SimpleNamespace(beside={1})}
    )
    ranks = {
        rank: RankComms(rank, 2, (Communication(1, Type.ALL_REDUCE, 1000), Communication(2, Type.ALL_REDUCE, 400),
                                  Communication(3, (SEND, RECV)[rank], 64, peer=1 - rank, tag=5)))
        for rank in (0, 1)
    }  # fmt: skip
    agreement = Agreement(ranks, {}, {}, ())
    done, notes = with_slowed_work(agreement, timeline, {0: 6, 1: 7})
    rest = [(0, 500, -1, 0, False), (0, 400, -1, 0, False)]
    parts = [(SEND, 500, 6), (RECV, 500, 6)]
    for rank in (0, 1):
        found = [(comm.kind, comm.size, comm.peer, comm.tag, comm.aside) for comm in done[rank].found]
        first = [(kind, size, 1 - rank, tag, True) for kind, size, tag in parts[:: -1 if rank else 1]]
        assert found == [*first, *rest, ((SEND, RECV)[rank], 64, 1 - rank, 5, False)]
    assert "waits for parts of 1 collectives" in notes[0] and "not slowed by 1 messages" in notes[1]
    timeline.slowdown = 1.0
    assert with_slowed_work(agreement, timeline, {0: 6, 1: 7}) == (ranks, ())
