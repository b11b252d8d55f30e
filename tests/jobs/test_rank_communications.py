"""The columns of a rank's communications, from what is found in its trace."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from etplus.jobs.rank_communications import COLUMNS, communications
from etplus.schemas import communications as communications_module
from etplus.schemas.chakra.et_def_pb2 import CollectiveCommType
from etplus.schemas.comm_types import RECV, SEND, WORLD
from etplus.schemas.communications import UNKNOWN
from etplus.trace.kinds import CPU, GPU

REDUCE = CollectiveCommType.ALL_REDUCE
TP = ("tp", (0, 1))


def found(
    row: int, kind: int | None, group: Any = WORLD, size: int | None = 8, *, understood: bool = True, **more: int
) -> Any:
    rest = {"peer": -1, "seq": -1, "start_ns": 100 * row, **more}
    return SimpleNamespace(row=row, kind=kind, group=group, bytes=size, understood=understood, **rest)


def columns(monkeypatch: pytest.MonkeyPatch, *every: Any, unknown: bool = False) -> tuple[Any, list[tuple[int, ...]]]:
    """The groups, and the rows by `COLUMNS`; of five rows the second and the fourth ran on the host."""
    kinds = np.array([GPU, CPU, GPU, CPU, GPU], np.int8)
    finish = 100 * np.arange(5) + 7
    nodes = SimpleNamespace(id=np.arange(5) + 50, end=finish, kind=kinds)
    trace: Any = SimpleNamespace(nodes=nodes, base_time_ns=10_000, times_recorded=True)
    monkeypatch.setattr(communications_module, "find_communications", lambda _: every)
    table = communications(trace, unknown=unknown)
    assert all(getattr(table, name).dtype == np.int64 for name in COLUMNS)
    return table.groups, list(zip(*(getattr(table, name).tolist() for name in COLUMNS), strict=True))


def test_each_communication_of_a_rank_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, rows = columns(
        monkeypatch, found(0, REDUCE), found(1, SEND, TP, 16, peer=1, seq=4), found(2, RECV, TP, None, peer=1),
        found(4, REDUCE, start_ns=390),
    )  # fmt: skip
    assert groups == (WORLD, TP)
    assert rows == [
        (50, REDUCE, 8, 0, -1, -1, 10_000, 10_007, 0), (51, SEND, 16, 1, 1, 4, 10_100, 10_107, 1),
        (52, RECV, -1, 1, 1, -1, 10_200, 10_207, 0), (54, REDUCE, 8, 0, -1, -1, 10_390, 10_407, 0),
    ]  # fmt: skip


def test_what_is_not_understood_is_left_out_or_of_an_unknown_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    every = found(0, None, TP, understood=False), found(1, SEND, understood=False), found(3, REDUCE)
    assert columns(monkeypatch, *every) == ((WORLD,), [(53, REDUCE, 8, 0, -1, -1, 10_300, 10_307, 1)])
    groups, rows = columns(monkeypatch, *every, unknown=True)
    assert groups == (TP, WORLD) and [row[:4] for row in rows] == [(50, UNKNOWN, 8, 0), (53, REDUCE, 8, 1)]
    assert columns(monkeypatch) == ((), [])
