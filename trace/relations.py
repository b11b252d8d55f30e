"""Columns of a trace that follow from all its rows together: the caller's row, and the thread of runtime calls."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .columns import IntColumn, positions
from .index import Column, Positions, Row, as_column, as_positions
from .kinds import GPU, RUNTIME


def parent_rows(ids: IntColumn, parent: IntColumn) -> Positions[Row, Row]:
    """`Trace.parent_row`: the row whose id each row has as its caller's.

    Example:
        >>> parent_rows(np.array([1, 2, 5]), np.array([1, 1, 4])).tolist()
        [-1, 0, -1]
    """
    rows = positions(ids, parent)
    rows[rows == np.arange(len(ids))] = -1
    return as_positions(rows)


def threads_of_rows(
    kind: npt.NDArray[np.int8], tid: IntColumn, parent_row: IntColumn, codes: npt.NDArray[np.integer],
    tids: Sequence[int | str], *, same_tids: bool,
) -> Column[Row, np.int64]:  # fmt: skip
    """`Trace.thread`: that of a runtime call is the one of most of the ops that call from its Kineto thread.

    Args:
        kind, tid, parent_row: columns of all rows; `tid` is that of ET nodes.
        codes: of each runtime call, in row order, the index of its Kineto tid in `tids`.
        same_tids: ops have Kineto's tids (their nodes were made of the Kineto trace).
    """
    thread = np.where(kind == GPU, -1, tid)
    runtime = np.flatnonzero(kind == RUNTIME)
    below = parent_row[runtime] >= 0
    pairs = np.stack([codes[below], thread[parent_row[runtime][below]]], axis=1)
    threads, first, count = np.unique(pairs, axis=0, return_index=True, return_counts=True)
    own = itertools.count(-2, -1)
    known = np.empty(len(tids), np.int64)
    for code, value in enumerate(tids):
        votes = np.flatnonzero(threads[:, 0] == code)
        if len(votes):  # of several with equally many votes the first seen
            known[code] = threads[votes[np.lexsort((first[votes], -count[votes]))[0]], 1]
        else:
            known[code] = value if same_tids and isinstance(value, int) else next(own)
    thread[runtime] = known[codes]
    return as_column(thread)
