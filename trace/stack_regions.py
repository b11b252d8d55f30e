"""Frames of stacks as further nodes of the call tree.

For example, `aten::mm` begins in the frames `nn.Module: Net`, `nn.Module: Linear`, its caller in `nn.Module: Net`. Then
`nn.Module: Linear` is put between the two.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from .call_tree import nearest
from .columns import IntColumn, distinct_rows, matching
from .stacks import Stacks, is_module


def frames_between(
    stacks: Stacks, entry: IntColumn, parent: IntColumn, wanted: npt.NDArray[np.bool_]
) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Put frames between calls and their callers: those in which the call began and the caller did not.

    Args:
        entry: innermost entry of each call's stack, −1 for none.
        parent: each call's caller, −1 for none.
        wanted: by entry, whether to put its frame in.

    Returns:
        the new `parent` of the calls and then of the added frames, whose callers may come after them; name codes of the
        frames in the stacks; number of calls that each frame contains.
    """
    innermost = nearest(np.arange(len(stacks)), stacks.above, wanted)
    around = nearest(stacks.above, stacks.above, wanted)  # of a frame the next one outside of it
    inner = np.where(entry >= 0, np.append(innermost, -1)[entry], -1)
    outer = np.where(parent >= 0, np.append(inner, -1)[parent], -1)
    at = np.flatnonzero((inner >= 0) & (inner != outer))
    pairs, of = distinct_rows(parent[at], inner[at])
    sizes = np.bincount(of, minlength=len(pairs)).tolist()
    callers = np.where(pairs[:, 0] >= 0, np.append(inner, -1)[pairs[:, 0]], -1).tolist()
    found, count = np.array(parent, np.int64), len(parent)
    first, above, added, calls = [-1] * len(pairs), list[int](), list[int](), list[int]()
    for pair, ((caller, one), stop) in enumerate(zip(pairs.tolist(), callers, strict=True)):
        chain = list[int]()
        while one >= 0 and one != stop:
            chain.append(one)
            one = int(around[one])
        if one != stop:
            continue  # the caller is in another frame, such as that of another thread's call
        first[pair] = count + len(added)
        above += [*range(first[pair] + 1, first[pair] + len(chain)), caller]
        added += chain
        calls += [sizes[pair]] * len(chain)
    begin = np.array(first, np.int64)[of]
    found[at[begin >= 0]] = begin[begin >= 0]
    names = stacks.name[np.array(added, np.int64)].astype(np.int64)
    return np.concatenate([found, np.array(above, np.int64)]), names, np.array(calls, np.int64)


def module_regions(
    stacks: Stacks, entry: IntColumn, parent: IntColumn, codes: Mapping[str, int]
) -> tuple[IntColumn, npt.NDArray[np.int32]]:
    """Put the frames of modules between calls and their callers.

    Args:
        codes: by name, the modules' frames among them.

    Returns:
        the new `parent` of the calls and then of the added regions; name codes of the regions.

    Example:
        >>> stacks = Stacks.none().with_stacks({5: [["nn.Module: Net_0", "nn.Module: Linear_0", "a.py(1): f"]]})
        >>> codes = {"nn.Module: Net_0": 3, "nn.Module: Linear_0": 4}
        >>> parent, name = module_regions(stacks, np.array([-1, 2]), np.array([-1, 0]), codes)
        >>> parent.tolist(), name.tolist()
        ([-1, 2, 3, 0], [4, 3])
    """
    wanted = matching(stacks.name, stacks.names, is_module)
    found, added, _ = frames_between(stacks, entry, parent, wanted)
    return found, np.array([codes[stacks.names[code]] for code in added.tolist()], np.int32)
