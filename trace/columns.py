"""Functions for columns of numbers that NumPy lacks or that are slow in NumPy."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

IntColumn = npt.NDArray[np.int64]
_Scalar = TypeVar("_Scalar", bound=np.generic)
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_SPARSE = 4  # Lookups use an array if max − min is at most this multiple of the count. Otherwise they sort.


class RowColumn(NamedTuple):
    """A column of `Nodes`: its NumPy type, its null value (None if no row is null), its unit and its meaning."""

    dtype: type[np.generic]
    none: int | None
    unit: str
    about: str


class StringTable:
    """Interned values. The code of a value is its index in `values`. New values are appended when they first occur."""

    def __init__(self, values: Sequence[Any] = ()) -> None:
        self._codes: defaultdict[Any, int] = defaultdict(
            count(len(values)).__next__, zip(values, count(), strict=False)
        )

    @property
    def values(self) -> list[Any]:
        return list(self._codes)

    def codes(self, values: list[Any]) -> npt.NDArray[np.int32]:
        return np.fromiter(map(self._codes.__getitem__, values), np.int32, len(values))

    def recode(self, values: Sequence[Any], codes: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        """Map indices into the list `values` to codes of this table. The list may have unused and repeated values."""
        used, first, back = np.unique(codes, return_index=True, return_inverse=True)
        new = np.empty(len(used), np.int32)
        for k in np.argsort(first).tolist():
            new[k] = self._codes[values[used[k]]]
        found: npt.NDArray[np.int32] = new[back.reshape(-1)]
        return found

    def code(self, value: Any) -> int:
        """Return the code of a value, or −1 if the table does not contain it."""
        return self._codes.get(value, -1)


def run_starts(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that differ from the previous row. All columns must have the same length."""
    first = np.zeros(len(columns[0]), np.bool_)
    first[:1] = True
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return first


def distinct(values: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    """Work like `np.unique`, but ten times as fast, because it sorts instead of hashing. Does not import `numpy.ma`."""
    ordered = np.sort(values, axis=None)
    return ordered[run_starts(ordered)]


def median(values: npt.ArrayLike) -> float:
    """Work like `np.median`, but do not import `numpy.ma`. Return NaN for an empty array."""
    ordered = np.sort(np.asarray(values))
    if not len(ordered):
        return float("nan")
    middle = (len(ordered) - 1) // 2, len(ordered) // 2
    return (float(ordered[middle[0]]) + float(ordered[middle[1]])) / 2


def percentiles_of(values: npt.ArrayLike, *wanted: float) -> list[float]:
    """Work like `np.percentile`, but ten times as fast for short arrays. Does not import `numpy.ma`."""
    ordered = np.sort(np.asarray(values))
    results = []
    for percent in wanted:
        place = percent / 100 * (len(ordered) - 1)
        below = int(place)
        low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
        part = place - below
        results.append(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))
    return results


def without(values: IntColumn, gone: IntColumn) -> IntColumn:
    """Work like `np.setdiff1d`, but sort instead of hashing."""
    left: IntColumn = distinct(values)
    return left[~among(left, gone)]


def among(values: IntColumn, others: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Work like `np.isin`, but faster for sparse numbers."""
    known: IntColumn = distinct(np.asarray(others, np.int64))
    if not len(known):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    found: npt.NDArray[np.bool_] = known[at] == values
    return found


def distinct_rows(*columns: npt.NDArray[np.integer]) -> tuple[IntColumn, IntColumn]:
    """Return the sorted distinct rows as an array with a column per input column, and each row's index in this array.
    The function works like `np.unique(axis=0)`, but ten times as fast if a row can be packed into one int64."""
    packed, room, spans = np.zeros(len(columns[0]), np.int64), 1, list[tuple[int, int]]()
    for column in columns:
        least, most = (int(column.min()), int(column.max())) if len(column) else (0, 0)
        spans.append((least, most - least + 1))
        room *= most - least + 1
        if room >= 2**62:
            rows, inverse = np.unique(np.stack(columns, axis=1).astype(np.int64), axis=0, return_inverse=True)
            return rows, inverse.reshape(-1)
        packed = packed * (most - least + 1) + (column - least)
    keys, which = _numbered(packed, room)
    rows = np.empty((len(keys), len(columns)), np.int64)
    for k, (least, size) in reversed(list(enumerate(spans))):
        keys, rows[:, k] = np.divmod(keys, size)
        rows[:, k] += least
    return rows, which


def _numbered(values: IntColumn, room: int) -> tuple[IntColumn, IntColumn]:
    if room <= _SPARSE * len(values):
        there = mask_at(room, values)
        return np.flatnonzero(there), (np.cumsum(there) - 1)[values]
    order = np.argsort(values)
    first = run_starts(values[order])
    which = np.empty(len(values), np.int64)
    which[order] = np.cumsum(first) - 1
    return values[order[first]], which


def first_places(values: npt.NDArray[_Scalar]) -> tuple[npt.NDArray[_Scalar], IntColumn]:
    """Return the distinct values in ascending order, and the position at which each value first occurs."""
    order = np.argsort(values, kind="stable")
    first = order[run_starts(values[order])]
    return values[first], first


def first_seen(codes: npt.NDArray[np.integer]) -> tuple[IntColumn, IntColumn]:
    """Return the distinct codes in order of first appearance, and the index of each code in that list."""
    rows, which = distinct_rows(codes)
    order = np.argsort(positions(which, np.arange(len(rows))))
    return rows[order, 0], inverse_positions(len(order), order)[which]


def grouped(*keys: npt.NDArray[np.integer]) -> Iterator[tuple[tuple[int, ...], IntColumn]]:
    """Yield each distinct row of the columns in ascending order, together with the sorted positions of its copies."""
    rows, inverse = distinct_rows(*keys)
    small = inverse.astype(np.min_scalar_type(len(rows)))  # NumPy sorts small integer types in linear time
    members = np.split(np.argsort(small, kind="stable"), np.cumsum(np.bincount(inverse))[:-1])
    yield from zip(map(tuple, rows.tolist()), members, strict=False)  # np.split returns one part for an empty array


def largest(group: IntColumn, values: IntColumn, groups: int) -> IntColumn:
    """Return the position of the maximum in each group (the first one if there is a tie), or −1 for empty groups."""
    most = np.full(groups, np.iinfo(np.int64).min)
    np.maximum.at(most, group, values)
    at = np.flatnonzero(values == most[group])[::-1]  # reversed, so that the first position is written last and remains
    return scatter(groups, group[at], at)


def lists_by(keys: Iterable[_Key], values: Iterable[_Value]) -> dict[_Key, list[_Value]]:
    lists: dict[_Key, list[_Value]] = {}
    for key, value in zip(keys, values, strict=True):
        lists.setdefault(key, []).append(value)
    return lists


def matching(
    codes: npt.NDArray[np.integer], values: Sequence[str], fits: Callable[[str], object]
) -> npt.NDArray[np.bool_]:
    """Return a mask of the codes for which `fits` accepts the value. Each value is tested once."""
    wanted = np.fromiter((bool(fits(value)) for value in values), np.bool_, len(values))
    found: npt.NDArray[np.bool_] = wanted[codes]
    return found


def positions(among: IntColumn, wanted: IntColumn) -> IntColumn:
    """Return the index in `among` at which each wanted value first occurs, or −1. Dense numbers take linear time."""
    if not len(among):
        return np.full(len(wanted), -1, np.int64)
    low, high = int(among.min()), int(among.max())
    if high - low <= _SPARSE * (len(among) + len(wanted)):
        place = np.full(high - low + 1, -1, np.int64)
        place[among[::-1] - low] = np.arange(len(among))[::-1]  # reversed, so that the first position is written last
        within = (wanted >= low) & (wanted <= high)
        return np.where(within, place[np.where(within, wanted, low) - low], -1)
    order = np.argsort(among, kind="stable")
    at = np.minimum(np.searchsorted(among, wanted, sorter=order), len(among) - 1)
    return np.where(among[order[at]] == wanted, order[at], -1)


def scatter(size: int, places: Any, values: Any, missing: Any = -1) -> npt.NDArray[Any]:
    """Return a column of `size` entries that has the values at the given places, and `missing` at all other places."""
    column = np.full(size, missing, np.asarray(values).dtype)
    column[places] = values
    return column


def mask_at(size: int, places: Any) -> npt.NDArray[np.bool_]:
    return scatter(size, places, np.True_, False)


def inverse_positions(size: int, places: IntColumn) -> IntColumn:
    """Return the index in `places` of each number from 0 to `size` − 1, or −1. The places must be distinct."""
    return scatter(size, places, np.arange(len(places)))


def joined_ranges(first: IntColumn, size: IntColumn) -> IntColumn:
    """Concatenate ranges of integers. Each range has a first number and a size."""
    ends = np.cumsum(size)
    found: IntColumn = np.arange(int(size.sum())) + np.repeat(first - (ends - size), size)
    return found


def joined_columns(parts: Sequence[dict[str, npt.NDArray[Any]]]) -> dict[str, npt.NDArray[Any]]:
    """Concatenate the columns of all parts. The parts are emptied, so only one column at a time is in memory twice."""
    return {key: np.concatenate([part.pop(key) for part in parts]) for key in list(parts[0])} if parts else {}


def exact_ns(us: npt.NDArray[np.float64]) -> IntColumn:
    """Convert µs with three decimals to exact ns. Below 2**43 µs, half an ulp is under 0.5 ns."""
    whole = np.floor(us)  # multiplying the full value by 1000 would round it
    return whole.astype(np.int64) * 1000 + np.rint((us - whole) * 1000).astype(np.int64)


def decimal_ns(us: Sequence[Decimal | None]) -> IntColumn:
    exact = (0 if value is None else int((value * 1000).to_integral_value()) for value in us)
    return np.fromiter(exact, np.int64, len(us))


def int_column(values: list[Any], missing: int) -> IntColumn:
    """Return the values as a column. Values that are not 64-bit integers become `missing`."""
    if set(map(type, values)) <= {int}:
        with contextlib.suppress(OverflowError):
            return np.fromiter(values, np.int64, len(values))
    return np.fromiter(map(partial(_int_or, missing), values), np.int64, len(values))


def _int_or(missing: int, value: Any) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and -(2**63) <= value < 2**63 else missing
