"""Which `c10d::` call issued which collective on the host, and what it says of the process group.

A backend of the host (Gloo, MPI) runs its collectives on threads of its own: the node that a trace has of one names
neither its call nor its group. Calls and collectives are in one order, each direction of messages in its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, matching

_ISSUING_CALL: Final = re.compile(r"c10d::\w+", re.ASCII)
WAIT: Final = re.compile(r"_?c10d_functional::wait_tensor", re.ASCII)
"""Names of the operators in which the host waits for a functional collective."""

_MESSAGES = ("send", "recv")
_SHARDED = ("_allgather_base_", "_reduce_scatter_base_")
"""Calls with one tensor of the whole and one of a rank's shard."""


def outermost_calls(
    parent: IntColumn, name: npt.NDArray[np.integer], names: Sequence[str], timed: npt.NDArray[np.bool_]
) -> IntColumn:
    """Positions of the calls that issue a collective: of several of one name inside each other the outermost.

    Args:
        parent: by position that of the caller, −1 for none.
        name: by position a code in `names`.
        timed: by position, whether it counts.
    """
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
    """Pairs of a collective on the host and the call that issued it, int64 (n, 2), ascending.

    The n-th of one with the n-th of the other; where there are not as many of both, the last call before it.

    Args:
        runs, calls: their numbers in the order of calls, ascending.
        run_names, call_names: of each its name.
        numbered: a collective got its number when it was issued, so that the last call before it always issued it.

    Example:
        >>> names = ["c10d::send", "c10d::allreduce_"]
        >>> pair_with_calls([3, 4], ["gloo:all_reduce", "gloo:send"], [1, 2], names).tolist()
        [[3, 2], [4, 1]]
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
    """ "send" or "recv" of a message, "" of a collective."""
    return next((kind for kind in _MESSAGES if kind in name.rpartition(":")[2]), "")


def named_group(values: Sequence[Any], groups: Collection[str]) -> str | None:
    """The process group that the inputs of a `_c10d_functional::` call name: the last one does.

    Example:
        >>> named_group([[426, 419, 0, 32768, 4, "cpu"], "sum", "3"], {"0", "3"})
        '3'
    """
    last = values[-1] if values else None
    return last if isinstance(last, str) and last in groups else None


def group_size_of(call: str, values: Sequence[Any]) -> int | None:
    """Ranks of the group of a call with a tensor of the whole and one of a shard: how often one fits into the other.

    Args:
        call: its name.
        values: its inputs; tensors are [tensor, storage, offset, elements, item size, device].

    Example:
        >>> whole, shard = [10, 11, 0, 33344, 4, "cpu"], [36, 11, 0, 16672, 4, "cpu"]
        >>> group_size_of("c10d::_allgather_base_", [whole, shard, "<Object>", False, -1])
        2
    """
    if not call.endswith(_SHARDED):
        return None
    elements = [value[3] for value in values[:2] if isinstance(value, list) and len(value) == 6]
    if len(elements) < 2 or not all(type(element) is int and element > 0 for element in elements):
        return None
    size, rest = divmod(max(elements), min(elements))
    return None if rest else size


def remaining_group(size: int | None, groups: Mapping[str, Sequence[int]], named: Collection[str]) -> str | None:
    """The only group of so many ranks that no other call names; None where there is not exactly one.

    Args:
        groups: name and ranks of the process groups that this rank is in.
        named: those that are named by calls.
    """
    fitting = [name for name, ranks in groups.items() if len(ranks) == size]
    if len(fitting) > 1:
        fitting = [name for name in fitting if name not in named]
    return fitting[0] if len(fitting) == 1 else None
