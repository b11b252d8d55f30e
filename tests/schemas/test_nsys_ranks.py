"""The ranks of an export of Nsight Systems, and the choice of one."""

import os
from pathlib import Path

import pytest
from etplus.schemas.nsys.database import PROCESS, NsysRank, ranks_of
from etplus.schemas.text.file_ranks import SeveralRanksError, choose, listed, nearest_to_et, only
from etplus.trace.errors import TraceFormatError, UsageError

RANKS = [NsysRank("x.sqlite", rank, 100 + rank // 2, rank % 2) for rank in range(4)]


class Found:
    """A database of which only the distinct pairs are asked for."""

    name = "x.sqlite"

    def __init__(self, **pairs: set[tuple[int, int]]) -> None:
        self.found, self.asked = pairs, list[tuple[str, ...]]()

    def pairs(self, table: str, *columns: str) -> set[tuple[int, int]]:
        self.asked.append((table, *columns))
        return self.found.get(table.removeprefix("CUPTI_ACTIVITY_KIND_"), set())


def test_ranks_are_by_gpu_then_process_id_then_machine() -> None:
    database = Found(KERNEL={(PROCESS + 7, 1), (3 * PROCESS + 5, 0)}, MEMCPY={(2 * PROCESS + 5, 0)}, RUNTIME={(1, -1)})
    ranks = ranks_of(database, "x.sqlite")  # type: ignore[arg-type]
    assert [(rank.rank, rank.pid, rank.device, rank.process // PROCESS, rank.alone) for rank in ranks] == [
        (0, 5, 0, 2, False), (1, 5, 0, 3, False), (2, 7, 1, 1, False),
    ]  # fmt: skip
    assert {os.fspath(rank) for rank in ranks} == {"x.sqlite"}


def test_processes_without_a_gpu_count_where_none_has_one() -> None:
    (rank,) = ranks_of(Found(RUNTIME={(PROCESS + 9, -1)}), "y")  # type: ignore[arg-type]
    assert rank == NsysRank("y", 0, 9, -1, PROCESS + 9, alone=True) and rank.label == "rank 0 (pid 9, no GPU)"
    with pytest.raises(TraceFormatError, match="no NVTX ranges, CUDA calls or GPU work"):
        ranks_of(Found(), "y")  # type: ignore[arg-type]


def test_ranks_are_chosen_by_number_process_or_gpu_else_refused() -> None:
    assert choose(RANKS, "x") == RANKS and choose(RANKS, "x", rank=2) == [RANKS[2]]
    assert choose(RANKS, "x", pid=101) == RANKS[2:] and choose(RANKS, "x", pid=101, device=0) == [RANKS[2]]
    assert choose(RANKS, "x", rank=0) == [RANKS[0]] == [only(RANKS[:1], "x")]
    with pytest.raises(UsageError, match=r"^x: no rank 7, pid 100, GPU 0; it has rank 0 "):
        choose(RANKS, "x", rank=7, pid=100, device=0)
    with pytest.raises(UsageError, match=r"^x: has rank 0 \(pid 100, GPU 0\), rank 1 .*; choose one with --rank"):
        only(RANKS[:2], "x")


def test_many_ranks_are_shortened() -> None:
    many = [NsysRank("x", rank, rank, 0) for rank in range(10)]
    assert listed(many[:8]).count("rank") == 8 and "more" not in listed(many[:8])
    assert listed(many).endswith("rank 7 (pid 7, GPU 0) and 2 more")


def test_the_ranks_of_a_file_take_its_place_among_the_inputs() -> None:
    error = SeveralRanksError("x.sqlite", RANKS[:2])
    assert error.instead_of_file(["b", Path("x.sqlite"), b"x"]) == ["b", *RANKS[:2], b"x"]
    assert nearest_to_et(RANKS, 101, 3) == [RANKS[3]] and nearest_to_et(RANKS, 7, None) == RANKS
