"""Build a flame graph of CPU time. Calls with the same name and caller are merged, and only the longest are kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..trace.call_tree import levels, name_paths, nesting
from ..trace.columns import IntColumn, StringTable, distinct, matching
from ..trace.conventions import PROFILER_STEP
from ..trace.hierarchy import frames_between
from ..trace.intervals import sums
from ..trace.printable import shortened, thread_label
from ..trace.stacks import is_module
from ..trace.tables import MODULE, OP
from ..trace.trace import Trace

_LONGEST_NAME = 400
# Name code of the node that replaces all iterations of the profiler.
STEP = 2**31
# Values of `kind`. A `THREAD` node is the parent of a thread's outermost calls.
OPERATOR, REGION, RUNTIME, THREAD, PYTHON = range(5)


def flame_graph(trace: Trace, most: int = 4000) -> dict[str, Any]:
    """Return one call tree per thread. Calls with the same call path share one node.

    A frame of a recorded stack encloses the calls that were made in it, and its duration is the sum of their durations.
    All iterations of the profiler (`ProfilerStep#…`) share one node. A call stays below its own thread even if another
    thread caused it. A thread's total is the sum of its outermost calls. Any other node's total is at least its
    callees' total.

    Args:
        most: maximum number of nodes. The longest are kept.

    Returns:
        `FlameColumns` of `page/src/types.d.ts`. Callers precede callees, and siblings are sorted by decreasing time.

    Example:
        >>> tree = flame_graph(trace)
        >>> [tree["names"][name] for name in tree["name"][:1]]
        ['CPU thread 1']
    """
    names: list[str] = trace.names
    parent, thread, name, kind, dur = _calls(trace)
    counted = None
    if len(trace.stacks):
        parent, thread, name, kind, dur, counted = _with_stacks(trace, parent, thread, name, kind, dur)
        names = [*names, *trace.stacks.names]
    steps = matching(name, names, PROFILER_STEP.fullmatch)
    name = np.where(steps, STEP, name)
    threads, of_thread = np.unique(thread, return_inverse=True)
    node_of, above, key = name_paths(parent, name, of_thread.reshape(-1) - len(threads))
    node_of, above = node_of + len(threads), np.append(np.full(len(threads), -1), above + len(threads))
    key = np.append(-1 - np.arange(len(threads)), key)
    count, total = sums(node_of, np.ones(len(name), np.int64), len(key)), sums(node_of, dur, len(key))
    if counted is not None:
        count = sums(node_of, counted, len(key))
    kinds, depth = np.full(len(key), THREAD), np.zeros(len(key), np.int64)
    kinds[node_of] = kind
    by_depth = levels(above)
    for rows in reversed(by_depth[1:]):  # a thread's total is this sum; overlapping callees can outlast their caller
        callers, caller = np.unique(above[rows], return_inverse=True)
        total[callers] = np.maximum(total[callers], sums(caller.reshape(-1), total[rows], len(callers)))
    for level, rows in enumerate(by_depth):
        depth[rows] = level
    kept = np.lexsort((key, depth, -total))[:most]  # No caller takes less time than its callees.
    order = kept[np.lexsort((key[kept], -total[kept], depth[kept]))]
    place = np.append(np.zeros(len(key), np.int64), -1)
    place[order] = np.arange(len(order))
    labels = StringTable()
    return {
        "name": labels.codes(_labels(key[order].tolist(), names, threads.tolist())),
        "names": labels.values,
        "parent": place[above[order]],
        "kind": kinds[order],
        "count": count[order],
        "total": total[order],
        "left_out": len(key) - len(order),
    }


def _labels(keys: list[int], names: list[str], threads: list[int]) -> list[str]:
    texts = (
        "ProfilerStep" if key == STEP else names[key] if key >= 0 else thread_label(threads[-1 - key]) for key in keys
    )
    return [shortened(text, _LONGEST_NAME) for text in texts]


def _calls(trace: Trace) -> tuple[IntColumn, IntColumn, IntColumn, IntColumn, IntColumn]:
    """Return columns of all calls and runtime calls: caller on the same thread or −1, thread, name code, kind, ns."""
    calls, runtime = trace.calls, trace.runtime
    first = len(calls)
    order = np.lexsort((-runtime.end, runtime.ts, runtime.thread))
    inner = nesting(runtime.thread[order], runtime.ts[order], runtime.end[order])
    around = np.full(len(runtime), -1, np.int64)
    around[order[inner >= 0]] = first + order[inner[inner >= 0]]
    parent = np.concatenate([calls.parent, np.where(around >= 0, around, runtime.call)])
    thread = np.concatenate([calls.thread, runtime.thread])
    parent = np.where((parent >= 0) & (np.append(thread, 0)[parent] == thread), parent, -1)
    kind = np.concatenate([np.where(calls.kind == OP, OPERATOR, REGION), np.full(len(runtime), RUNTIME)])
    dur = np.concatenate([calls.end - calls.ts, runtime.end - runtime.ts])
    return parent, thread, np.concatenate([calls.name, runtime.name]).astype(np.int64), kind, np.maximum(dur, 0)


def _with_stacks(
    trace: Trace, parent: IntColumn, thread: IntColumn, name: IntColumn, kind: IntColumn, dur: IntColumn
) -> tuple[IntColumn, IntColumn, IntColumn, IntColumn, IntColumn, IntColumn]:
    """Add rows for the frames around calls to the columns of `_calls`, and a column with the number of calls."""
    stacks = trace.stacks
    entry = stacks.first_entry(np.concatenate([trace.calls.source, trace.runtime.source]))
    modules = np.any(trace.calls.kind == MODULE)  # module frames would repeat these calls
    wanted = ~(matching(stacks.name, stacks.names, is_module) & modules)
    parent, added, calls = frames_between(stacks, entry, parent, wanted)
    of_frame = np.full(len(parent), -1, np.int64)
    of_frame[: len(thread)] = thread
    pending = np.flatnonzero(parent >= len(thread))  # A frame gets the thread of the calls inside it.
    while len(pending):
        of_frame[parent[pending]] = of_frame[pending]
        pending = parent[pending]
        pending = distinct(pending[parent[pending] >= len(thread)])
    more = len(added)
    counted = np.concatenate([np.ones(len(dur), np.int64), calls])
    name, kind = np.concatenate([name, len(trace.names) + added]), np.concatenate([kind, np.full(more, PYTHON)])
    return parent, of_frame, name, kind, np.concatenate([dur, np.zeros(more, np.int64)]), counted
