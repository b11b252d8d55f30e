"""Numbers of events on the page, and where tiles begin, by going through the events one by one."""

from __future__ import annotations

import numpy as np
import pytest
from etplus.report import tiles
from etplus.report.tiles import LaneLayout, tiles_of
from pages import unpacked


def layout_of(*rows: tuple[int, int, int]) -> LaneLayout:
    """Of lane, depth and start of events."""
    return LaneLayout.of(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))


def test_events_are_numbered_by_lane_row_and_start() -> None:
    layout = layout_of((1, 0, 5), (0, 1, 9), (0, 0, 7), (0, 1, 2), (0, 0, 3))
    assert layout.order.tolist() == [4, 2, 3, 1, 0] and layout.number.tolist() == [4, 3, 1, 2, 0]
    assert layout.starts.tolist() == [0, 2, 4] and layout.counts.tolist() == [2, 2, 1]
    assert [part.tolist() for part in layout.parts()] == [[4, 2], [3, 1], [0]]


def test_numbers_among_all_events() -> None:
    """Of seven events three are laid out; the entry behind the last is for the event −1."""
    found = layout_of((0, 0, 8), (0, 0, 4), (0, 0, 6)).numbers_among(np.array([1, 3, 6]), 7)
    assert found.tolist() == [-1, 2, -1, 0, -1, -1, 1, -1]


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_a_tile_is_of_one_row(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_TILE", size)
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
