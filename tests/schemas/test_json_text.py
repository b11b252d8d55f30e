"""Columns of numbers from many small objects."""

import msgspec
import pytest
from etplus.schemas.comm_types import CollectiveCommType
from etplus.schemas.text.json_text import NumberRows


class _Pair(msgspec.Struct):
    a: float = -1.0
    b: float = -1.0


_ROWS = NumberRows(_Pair(), {"a": b"\xa1a", "b": b"\xa1b"})


def test_columns_are_the_numbers():
    columns = _ROWS.columns([_Pair(1.0, -2.0), _Pair(), _Pair(2.0**53 - 1, 0.0)])
    assert columns is not None
    assert {name: column.tolist() for name, column in columns.items()} == {"a": [1, -1, 2**53 - 1], "b": [-2, -1, 0]}


@pytest.mark.parametrize("value", [0.5, 2.0**53, -(2.0**60)])
def test_numbers_that_a_column_would_change_make_none(value):
    assert _ROWS.columns([_Pair(), _Pair(b=value)]) is None


def test_collectives_have_chakras_numbers():
    from etplus.schemas.chakra import et_def_pb2

    ours = {name: value for name, value in vars(CollectiveCommType).items() if name.isupper()}
    assert ours and ours == {name: et_def_pb2.CollectiveCommType.Value(name) for name in ours}
