"""Find the module path and the topmost operator of each call, and add stack frames to the call tree."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from .brief import Record
from .call_tree import Mask, levels, nearest
from .columns import IntColumn, distinct_rows, matching
from .conventions import PROFILER_STEP
from .index import CallIndex, ColumnOf, Positions, as_column, as_positions
from .stacks import Stacks, is_module
from .tables import MODULE, OP, Calls

if TYPE_CHECKING:
    from .trace import Trace

_NAMED_REGION = re.compile(r"## .* ##|## .*|nn\.Module: .*")


@dataclass(frozen=True, repr=False)
class Hierarchy(Record):
    """A tree of modules and annotations, and the position of each call in this tree. A call's topmost operator is its
    outermost operator below a module or annotation. Inside an operator, named regions (`## … ##`, `nn.Module: …`)
    start a new path in the tree, and other annotations are ignored."""

    # Topmost operator of every call, or −1 for annotations that are not inside an operator.
    top: Positions[CallIndex, CallIndex]
    # Tree row of the call's innermost region (the call itself or a caller), or 0 if there is none.
    path: ColumnOf[CallIndex, np.int64]
    # A tree row is a path of regions. The columns contain its parent row and the name code of its last region.
    # Row 0 is the empty path, so its parent and its name code are −1.
    tree_parent: IntColumn
    tree_name: IntColumn

    def regions(self, path: int) -> list[int]:
        codes = []
        while path > 0:
            codes.append(int(self.tree_name[path]))
            path = int(self.tree_parent[path])
        return codes[::-1]


def hierarchy_of(trace: Trace, calls: Calls) -> Hierarchy:
    """Return the hierarchy of calls. If no call is a module, use the module frames from the stacks instead."""
    parent, name, kind = calls.parent, calls.name, calls.kind
    if len(trace.stacks) and not np.any(kind == MODULE):
        entry = trace.stacks.first_entry(calls.source)
        wanted = matching(trace.stacks.name, trace.stacks.names, is_module)
        around, frames, _ = frames_between(trace.stacks, entry, calls.parent, wanted)
        added = np.array([trace.name_codes[trace.stacks.names[code]] for code in frames.tolist()], np.int32)
        parent, name = as_positions(around), as_column(np.concatenate([name, added]))
        kind = as_column(np.append(kind, np.full(len(added), MODULE, np.int8)))
    is_op = kind == OP
    named, steps = (matching(name, trace.names, form.fullmatch) for form in (_NAMED_REGION, PROFILER_STEP))
    placed = place_calls(parent, name, is_op, ~is_op & named, steps)
    top, path = placed.top[: len(calls)], placed.path[: len(calls)]
    return Hierarchy(as_positions(top), as_column(path), placed.tree_parent, placed.tree_name)


def place_calls(
    parent: Positions[CallIndex, CallIndex], name: npt.NDArray[np.int32], is_op: Mask, is_region: Mask, is_step: Mask
) -> Hierarchy:
    """Find the topmost operator and the module path of each call, one level of the call tree at a time."""
    top, path = np.full(len(parent), -1, np.int64), np.zeros(len(parent), np.int64)
    tree_parent, tree_name = [np.array([-1])], [np.array([-1])]
    known = 1
    for rows in levels(parent):
        above = parent[rows]
        inner_top = np.where(above >= 0, top[above], -1)
        inner_path = np.where(above >= 0, path[above], 0)
        parts = ~is_op[rows] & ~is_step[rows] & (is_region[rows] | (inner_top < 0))
        top[rows] = np.where(parts, -1, np.where(is_op[rows] & (inner_top < 0), rows, inner_top))
        path[rows] = inner_path
        if parts.any():
            distinct, codes = distinct_rows(inner_path[parts], name[rows[parts]])
            path[rows[parts]] = known + codes
            tree_parent.append(distinct[:, 0])
            tree_name.append(distinct[:, 1])
            known += len(distinct)
    return Hierarchy(as_positions(top), as_column(path), np.concatenate(tree_parent), np.concatenate(tree_name))


def frames_between(
    stacks: Stacks, entry: IntColumn, parent: IntColumn, wanted: npt.NDArray[np.bool_]
) -> tuple[IntColumn, IntColumn, IntColumn]:
    """Insert the wanted stack frames between each call and its caller. `entry` has the innermost stack entry of each
    call (or −1), `parent` has its caller, and `wanted` is a mask of stack entries. Return three columns: the new
    `parent` of all calls and of the frames appended to them, the name code of each added frame in the stacks, and the
    number of calls in each added frame. In the new `parent`, a caller may come after its callees."""
    innermost = nearest(np.arange(len(stacks)), stacks.above, wanted)
    around = nearest(stacks.above, stacks.above, wanted)  # the nearest wanted frame that encloses each frame
    inner = np.where(entry >= 0, np.append(innermost, -1)[entry], -1)
    outer = np.where(parent >= 0, np.append(inner, -1)[parent], -1)
    places = np.flatnonzero((inner >= 0) & (inner != outer))
    pairs, pair_of = distinct_rows(parent[places], inner[places])
    sizes = np.bincount(pair_of, minlength=len(pairs)).tolist()
    callers = np.where(pairs[:, 0] >= 0, np.append(inner, -1)[pairs[:, 0]], -1).tolist()
    new_parent, count = np.array(parent, np.int64), len(parent)
    first, above, added, calls = [-1] * len(pairs), list[int](), list[int](), list[int]()
    for pair, ((caller, frame), stop) in enumerate(zip(pairs.tolist(), callers, strict=True)):
        chain = list[int]()
        while frame >= 0 and frame != stop:
            chain.append(frame)
            frame = int(around[frame])
        if frame != stop:
            continue  # the frames of the caller do not enclose the call, for example on another thread
        first[pair] = count + len(added)
        above += [*range(first[pair] + 1, first[pair] + len(chain)), caller]
        added += chain
        calls += [sizes[pair]] * len(chain)
    begin = np.array(first, np.int64)[pair_of]
    new_parent[places[begin >= 0]] = begin[begin >= 0]
    names = stacks.name[np.array(added, np.int64)].astype(np.int64)
    return np.concatenate([new_parent, np.array(above, np.int64)]), names, np.array(calls, np.int64)
