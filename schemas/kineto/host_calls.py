"""Match collectives of host backends (Gloo, MPI) to the `c10d::` calls that issued them, based on their order."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, matching

_ISSUING_CALL: Final = re.compile(r"c10d::\w+", re.ASCII)
# Matches the operator in which the host waits for a functional collective.
WAIT: Final = re.compile(r"_?c10d_functional::wait_tensor", re.ASCII)

_MESSAGES = ("send", "recv")
_SHARDED = ("_allgather_base_", "_reduce_scatter_base_")  # These calls take a full tensor and a shard as inputs.


def outermost_calls(
    parent: IntColumn, name: npt.NDArray[np.integer], names: Sequence[str], timed: npt.NDArray[np.bool_]
) -> IntColumn:
    """Return the `timed` calls that issue a collective. Skip a call inside another call with the same name."""
    calls = matching(name, names, _ISSUING_CALL.fullmatch)
    above = nearest(parent, parent, calls)
    return np.flatnonzero(calls & timed & ((above < 0) | (name[above] != name)))


def pair_with_calls(
    runs: Sequence[int],
    run_names: Sequence[str],
    calls: Sequence[int],
    call_names: Sequence[str],
    *,
    numbered: bool = False,
) -> IntColumn:
    """Pair host collectives with the calls that issued them. Return the pairs as sorted int64 (n, 2).

    Positions increase in the order of the calls. Within each kind, the n-th collective belongs to the n-th call. If the
    counts differ, or if collectives were `numbered` when they were issued, a collective belongs to the previous call.
    """
    pairs = []
    for kind in (*_MESSAGES, ""):
        mine = [run for run, name in zip(runs, run_names, strict=True) if _kind(name) == kind]
        by = [call for call, name in zip(calls, call_names, strict=True) if _kind(name) == kind]
        if len(mine) == len(by) and not numbered:
            pairs += list(zip(mine, by, strict=True))
        else:
            before = np.searchsorted(by, mine) - 1
            pairs += [(run, by[j]) for run, j in zip(mine, before.tolist(), strict=True) if j >= 0]
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)


def _kind(name: str) -> str:
    return next((kind for kind in _MESSAGES if kind in name.rpartition(":")[2]), "")


def named_group(values: Sequence[Any], groups: Collection[str]) -> str | None:
    """Return the process group named by the last input of a `_c10d_functional::` call, if it is in `groups`."""
    last = values[-1] if values else None
    return last if isinstance(last, str) and last in groups else None


def group_size_of(call: str, values: Sequence[Any]) -> int | None:
    """Return the group size: elements in the full tensor divided by elements in the shard (entry 3 of each tensor)."""
    if not call.endswith(_SHARDED):
        return None
    elements = [value[3] for value in values[:2] if isinstance(value, list) and len(value) == 6]
    if len(elements) < 2 or not all(type(element) is int and element > 0 for element in elements):
        return None
    size, rest = divmod(max(elements), min(elements))
    return None if rest else size


def remaining_group(size: int | None, groups: Mapping[str, Sequence[int]], named: Collection[str]) -> str | None:
    """Return the only group with `size` ranks. If several match, return the only match outside `named`, or None."""
    fitting = [name for name, ranks in groups.items() if len(ranks) == size]
    if len(fitting) > 1:
        fitting = [name for name in fitting if name not in named]
    return fitting[0] if len(fitting) == 1 else None
