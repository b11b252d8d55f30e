"""The parts of parameters that ranks hold, and what items of a program say of themselves."""

from __future__ import annotations

import pytest
from etplus.planning.reshard.items import CommOp, Shard, SyntheticOp


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("sizes", [(7, 3), (4, 3), (2, 5), (1,), (10,)])
def test_parts_add_up_to_the_whole(sizes: tuple[int, ...], flat: bool) -> None:
    """As `torch.chunk` divides: rows, or all elements, in equal parts but for the last ones."""
    rows = sizes[0] if not flat else sizes[0] * (sizes[1] if len(sizes) > 1 else 1)
    parts = [Shard(3, index, flat).of(sizes) for index in range(3)]
    most = (rows + 2) // 3
    assert [part[0] for part in parts] == [len(range(rows)[most * k : most * (k + 1)]) for k in range(3)]
    assert all(part[1:] == ([] if flat else list(sizes[1:])) for part in parts)
    rest = 1 if flat or len(sizes) == 1 else sizes[1]
    assert {Shard(3, index, flat).padded(sizes) for index in range(3)} == {most * rest}


def test_a_number_is_one_part() -> None:
    assert Shard(2, 1, flat=False).of(()) == [] and Shard(2, 1, flat=False).padded(()) == 1
    assert Shard(2, 0, flat=True).of(()) == [1] and Shard(2, 1, flat=True).of(()) == [0]
    assert Shard(4, 0, flat=True).padded((3, 3)) == 3 and Shard(4, 0, flat=False).padded((3, 3)) == 3


def test_sizes_of_items() -> None:
    comm = CommOp("all_gather", "dp", (2, 3), 12, "float32", 4)
    assert comm.elements == 6 and (comm.peer, comm.key, comm.functional) == (-1, None, False)
    add = SyntheticOp("aten::add_", ((2, 3), ()), ((2, 3),), "float32", 4)
    assert add.bytes == 4 * (6 + 1 + 6) and add.schema.startswith("aten::add_.Tensor(")
    assert SyntheticOp("fsdp::split_with_sizes_copy", (), (), "float32", 4).schema == ""
