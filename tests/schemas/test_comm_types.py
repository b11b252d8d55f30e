"""What a communication is, by hand: kinds by name, sizes, groups, factors."""

import re
from typing import Any

import pytest
from etplus.schemas.comm_types import (
    RECV,
    SEND,
    WORLD,
    CollectiveCommType,
    bus_factor,
    collective_type,
    cut_off_note,
    group_of,
    message_bytes,
    with_inputs,
)
from etplus.trace.comm_kernels import Comm

KIND = CollectiveCommType


@pytest.mark.parametrize(
    ("collective", "name", "expected"),
    [
        ("allreduce", "", KIND.ALL_REDUCE), (None, "ncclDevKernel_AllReduce_Sum_f32", KIND.ALL_REDUCE),
        ("_allgather_base", "", KIND.ALL_GATHER), ("reduce_scatter_tensor", "", KIND.REDUCE_SCATTER),
        ("all_to_all", "", KIND.ALL_TO_ALL), ("broadcast", "", KIND.BROADCAST), ("barrier", "", KIND.BARRIER),
        ("reduce", "", KIND.REDUCE), ("gather", "", KIND.GATHER), ("scatter", "", KIND.SCATTER),
        ("send", "", SEND), (None, "gloo:isend", SEND), (None, "gloo:recvAnySource", RECV), ("irecv", "", RECV),
        (None, "ncclDevKernel_Generic", None), (None, "ncclDevKernel_SendRecv", None),
        ("something", "gloo:all_reduce", KIND.ALL_REDUCE), ("broadcast", "all_reduce", KIND.BROADCAST),
    ],
)  # fmt: skip
def test_the_collective_type_is_from_metadata_or_name(collective: str | None, name: str, expected: int | None) -> None:
    assert collective_type(Comm(collective=collective), name) == expected


@pytest.mark.parametrize(
    ("given", "kind", "expected"),
    [
        ({"dtype": "float", "in_nelems": 3, "out_nelems": 12}, KIND.ALL_REDUCE, 12),
        ({"dtype": "float", "in_nelems": 3, "out_nelems": 12}, KIND.ALL_GATHER, 12),
        ({"dtype": "float", "in_nelems": 0, "out_nelems": 12, "group_size": 4}, KIND.ALL_GATHER, 12),
        ({"dtype": "float", "in_nelems": 0, "out_nelems": 12}, KIND.ALL_GATHER, 48),
        ({"dtype": "float", "in_nelems": 3, "out_nelems": 12}, RECV, 48),
        ({"dtype": "float", "in_nelems": 3, "out_nelems": 12}, KIND.SCATTER, 48),
        ({"dtype": "float", "in_nelems": 3, "out_nelems": 0}, RECV, 12),
        ({"dtype": "float", "in_nelems": 0, "out_nelems": 5}, SEND, 20),
        ({"dtype": "BFloat16", "in_nelems": 7, "bytes": 99}, KIND.REDUCE, 14),
        ({"dtype": "odd", "in_nelems": 7, "bytes": 99}, KIND.REDUCE, 99),
        ({"dtype": "float", "bytes": 99}, KIND.REDUCE, 99),
        ({}, KIND.REDUCE, None), ({"bytes": 0}, KIND.REDUCE, 0), ({"bytes": -1}, KIND.REDUCE, None),
        ({"bytes": 2**62}, KIND.REDUCE, None), ({"bytes": 2**62 - 1}, KIND.REDUCE, 2**62 - 1),
    ],
)  # fmt: skip
def test_message_bytes_follow_from_elements_and_dtype(given: dict[str, Any], kind: int, expected: int | None) -> None:
    assert message_bytes(Comm(**given), kind) == expected


@pytest.mark.parametrize(
    ("collective", "ranks", "expected"),
    [
        ("allreduce", 4, 1.5), ("all_reduce", 2, 1.0), ("allreduce", None, None), ("_reduce_scatter_base", 4, 0.75),
        ("all_to_all", 5, 0.8), ("alltoall", 4, 0.75), ("scatter", 4, 0.75), ("all_gather", 8, 0.875),
        ("broadcast", None, 1.0), ("reduce", 7, 1.0), ("reduce_scatter", None, None), ("recv", 2, 1.0),
        ("sendrecv", 4, 1.0), ("odd", 4, None),
    ],
)  # fmt: skip
def test_bus_factors_depend_on_collective_and_ranks(collective: str, ranks: int | None, expected: float | None) -> None:
    assert bus_factor(collective, ranks) == expected


@pytest.mark.parametrize(
    ("given", "groups", "world", "expected"),
    [({"pg_ranks": [3, 1, 1]}, {}, 8, ("", (1, 3))), ({"pg_name": "2"}, {"2": [4, 0]}, 8, ("2", (0, 4))),
     ({"pg_name": "2", "pg_ranks": [5]}, {"2": [4, 0]}, 8, ("2", (5,))), ({"pg_name": "2"}, {"2": [1, 0]}, 2, WORLD),
     ({}, {}, None, WORLD), ({"pg_name": "0"}, {}, 8, WORLD), ({"pg_name": "0"}, {"0": [2, 3]}, 8, ("0", (2, 3))),
     ({"pg_name": "tp"}, {}, 8, ("tp", ())), ({"pg_name": "tp", "group_size": 8}, {}, 8, WORLD),
     ({"pg_name": "tp", "group_size": 8}, {}, None, ("tp", ())),
     ({"pg_name": "tp", "group_size": 4}, {}, 8, ("tp", ())), ({"pg_name": "0", "group_size": 4}, {}, 8, ("0", ())),
     ({"pg_name": "2", "pg_ranks": [0, 1, 2], "group_size": 2}, {}, 8, ("2", ())),
     ({"pg_name": "2", "pg_first_rank": 1}, {}, 8, ("2 from rank 1", ())),
     ({"pg_name": "2", "pg_first_rank": 1}, {"2": [1, 3]}, 8, ("2", (1, 3))),
     ({"pg_name": "0", "pg_first_rank": 0, "group_size": 8}, {}, 8, WORLD)],
)  # fmt: skip
def test_a_group_has_its_recorded_ranks_or_is_the_world(
    given: dict[str, Any], groups: dict[str, list[int]], world: int | None, expected: Any
) -> None:
    assert group_of(Comm(**given), groups, world) == expected


TENSOR = [7, 8, 0, 24, 4, "cpu"]


@pytest.mark.parametrize(
    ("values", "caller", "expected"),
    [
        ([TENSOR], None, Comm(bytes=96)), ([[TENSOR, TENSOR], 3, "x"], None, Comm(bytes=192)),
        ([[7, 8, 0, 24, 4], [7, 8, 0, 24, 4, 0], [7, 8, 0, 24.0, 4, "cpu"]], None, Comm()), ([], None, Comm()),
        ([TENSOR], [TENSOR, None, 5, 0], Comm(bytes=96, src_rank=5, dst_rank=5)),
        ([TENSOR], [TENSOR, None], Comm(bytes=96)),
        ([TENSOR], [TENSOR, None, 5], Comm(bytes=96, src_rank=5, dst_rank=5)),
        ([TENSOR], [TENSOR, None, True], Comm(bytes=96)), ([TENSOR], [TENSOR, None, "5"], Comm(bytes=96)),
    ],
)  # fmt: skip
def test_recorded_inputs_give_bytes_and_peers(values: list[Any], caller: list[Any] | None, expected: Comm) -> None:
    assert with_inputs(Comm(), values, caller) == expected
    assert with_inputs(Comm(bytes=5), values, None) == Comm(bytes=5), "a known size stays"


def test_collectives_have_chakras_numbers() -> None:
    from etplus.schemas.chakra import et_def_pb2

    ours = {name: value for name, value in vars(CollectiveCommType).items() if name.isupper()}
    assert ours and ours == {name: et_def_pb2.CollectiveCommType.Value(name) for name in ours}


def test_groups_whose_lists_of_ranks_were_cut_off_are_named() -> None:
    (note,) = cut_off_note([("2 from rank 1", ()), ("tp", (0, 1)), ("3 from rank 0", ()), ("2 from rank 1", ())])
    assert "of the groups '2 from rank 1', '3 from rank 0': only" in note
    (note,) = cut_off_note([(f"{number} from rank 0", ()) for number in range(100, 120)])
    assert "'100 from rank 0', " in note and re.search(r"' and 1\d more: only", note)
    assert cut_off_note([("tp", (0, 1)), ("2", ())]) == ()
