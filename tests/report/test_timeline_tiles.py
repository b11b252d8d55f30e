"""Numbers of events on the page, and where tiles begin, by going through the events one by one."""

import numpy as np
import pytest
from etplus.report import packed
from etplus.report.packed import Field, LaneLayout, fields_of, pack, pack_json, tiles_of
from pages import unpacked, unpacked_json


def layout_of(*rows: tuple[int, int, int]) -> LaneLayout:
    """Of lane, depth and start of events."""
    return LaneLayout.of(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))


def test_events_are_numbered_by_lane_row_and_start() -> None:
    layout = layout_of((1, 0, 5), (0, 1, 9), (0, 0, 7), (0, 1, 2), (0, 0, 3))
    assert layout.order.tolist() == [4, 2, 3, 1, 0] and layout.number.tolist() == [4, 3, 1, 2, 0]
    assert layout.starts.tolist() == [0, 2, 4] and layout.counts.tolist() == [2, 2, 1]
    assert [part.tolist() for part in layout.parts()] == [[4, 2], [3, 1], [0]]


def test_each_event_gets_its_number_in_the_layout_and_others_none() -> None:
    found = layout_of((0, 0, 8), (0, 0, 4), (0, 0, 6)).numbers_among(np.array([1, 3, 6]), 7)
    assert found.tolist() == [-1, 2, -1, 0, -1, -1, 1, -1]


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_a_new_tile_starts_with_each_row_or_when_full(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_TILE", size)
    events = sorted(
        (lane, depth, at) for lane, depth, count in ((0, 0, 7), (0, 1, 3), (2, 1, 4)) for at in range(count)
    )
    wanted = [
        at for at, (*row, start) in enumerate(events)
        if start % size == 0 or at == 0 or row != list(events[at - 1][:2])
    ]  # fmt: skip
    assert layout_of(*events).starts.tolist() == wanted


def test_a_tile_ends_with_its_latest_end() -> None:
    ts, dur = np.array([30, 10, 50]), np.array([5, 48, 1])
    found = tiles_of(layout_of((4, 2, 30), (4, 2, 10), (5, 0, 50)), {"ts": ts, "dur": dur})
    assert [found[key].tolist() for key in ("lane", "depth", "from", "to", "count")] == [
        [4, 5], [2, 0], [10, 50], [58, 51], [2, 1]
    ]  # fmt: skip
    assert [unpacked(text, found["fields"], int(n)) for text, n in zip(found["data"], found["count"], strict=True)] == [
        {"ts": [10, 30], "dur": [48, 5]}, {"ts": [50], "dur": [1]}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ([], 1), ([127], 1), ([128], 2), ([-128], 1), ([-129], 2), ([0, 32767], 2), ([32768], 3), ([-32768, 5], 2),
        ([2**31 - 1], 4), ([2**31], 5), ([2**62], 8), ([2**63 - 1], 8),
    ],
)  # fmt: skip
def test_columns_are_as_narrow_as_their_values(values: list[int], size: int) -> None:
    columns = {"a": np.array(values, np.int64)}
    assert fields_of(columns) == [Field("a", size)]
    field = {"name": "a", "size": size, "delta": False}
    assert unpacked(pack(fields_of(columns), columns), [field], len(values))["a"] == values


def test_a_column_of_differences_is_wide_enough_for_them() -> None:
    columns = {"a": np.array([-100, 100], np.int64)}
    assert fields_of(columns, ["a"]) == [Field("a", 2, delta=True)]
    assert fields_of(columns) == [Field("a", 1)]


@pytest.mark.parametrize(
    ("values", "size"),
    [([-128], 1), ([-129], 2), ([127, 0], 1), ([128], 2), ([0, 128], 2), ([-1, 127], 2), ([-1, 126], 1), ([], 1)],
)  # fmt: skip
def test_distances_take_the_fewest_bytes_that_hold_them(values: list[int], size: int) -> None:
    columns = {"a": np.array(values, np.int64)}
    fields = fields_of(columns, {"a"})
    assert fields == [Field("a", size, delta=True)]
    form = [{"name": "a", "size": size, "delta": True}]
    assert unpacked(pack(fields, columns), form, len(values))["a"] == values


def test_packed_columns_are_unpacked_to_the_same_values() -> None:
    columns = {"a": np.array([1, -300]), "b": np.array([7, 8]), "c": np.array([2**40, 2**40 + 1])}
    fields = fields_of(columns, ["c"])
    assert [(one.name, one.size, one.delta) for one in fields] == [("a", 2, False), ("b", 1, False), ("c", 6, True)]
    form = [{"name": one.name, "size": one.size, "delta": one.delta} for one in fields]
    assert unpacked(pack(fields, columns), form, 2) == {name: column.tolist() for name, column in columns.items()}


def test_a_packed_document_unpacks_to_the_same_values() -> None:
    assert unpacked_json(pack_json({"a": np.arange(3), "b": ["é"]})) == {"a": [0, 1, 2], "b": ["é"]}
