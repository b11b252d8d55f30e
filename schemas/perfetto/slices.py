"""Slices of tracks from packets that say where they begin and where they end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn

__all__ = ["ends_of_slices"]


def ends_of_slices(begins: npt.NDArray[np.bool_], track: IntColumn, ts: IntColumn) -> IntColumn:
    """For each begin of a slice, in order, the position of its end; −1 for a slice that does not end.

    A track's slices nest: an end closes the slice that began last (TrackEvent in Perfetto's documentation). PyTorch
    writes the begins of many slices and then, in the same order, their ends; there each end is known by its place, also
    where rounded times overlap.

    Args:
        begins: bool, one entry a begin or end in file order. track: int64 of each. ts: int64 ns of each.
    """
    by_place = _by_place(begins, track, ts)
    return _by_nesting(begins, track, ts) if by_place is None else by_place


def _by_place(begins: npt.NDArray[np.bool_], track: IntColumn, ts: IntColumn) -> IntColumn | None:
    order = np.argsort(track, kind="stable")
    same = track[order][1:] == track[order][:-1]
    if np.all(ts[order][1:][same] >= ts[order][:-1][same]):
        return None  # in order of time, as tracks are recorded
    bounds = np.flatnonzero(np.diff(begins.astype(np.int8), prepend=0, append=0))
    if len(bounds) % 2 or not len(bounds) or bounds[0] != 0:
        return None
    first, middle = bounds[::2], bounds[1::2]
    last = np.append(first[1:], len(begins))
    if np.any(middle - first != last - middle):
        return None
    start = np.flatnonzero(begins)
    end = start + np.repeat(middle - first, middle - first)
    fits = bool(np.all(track[start] == track[end]) and np.all(ts[start] <= ts[end]))
    return end if fits else None


def _by_nesting(begins: npt.NDArray[np.bool_], track: IntColumn, ts: IntColumn) -> IntColumn:
    number = np.cumsum(begins) - 1
    found = np.full(int(np.count_nonzero(begins)), -1, np.int64)
    order = np.lexsort((ts, track))
    opened: list[int] = []
    previous = None
    for at, lane, begin in zip(order.tolist(), track[order].tolist(), begins[order].tolist(), strict=True):
        if lane != previous:
            opened, previous = [], lane
        if begin:
            opened.append(int(number[at]))
        elif opened:
            found[opened.pop()] = at
    return found
