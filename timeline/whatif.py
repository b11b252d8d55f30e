"""Parse what-ifs from the text in commands, and apply them to a replay graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..trace.columns import IntColumn, mask_at
from ..trace.conventions import NS_PER_UNIT
from ..trace.errors import UsageError
from ..trace.intervals import Span
from ..trace.selection import parse_window
from .constants import Constants
from .graph_changes import (
    Change,
    fused,
    of_their_ranks,
    overlapped,
    remove,
    scale,
    set_latency,
    to_bound,
    without_launch_gaps,
    without_queue,
    without_waits,
)
from .meant_rows import PARTS, Rows, Within, check_part, rows_within, select
from .replay_graph import LAUNCH, STREAM, ReplayGraph

GRAMMAR = """\
kernel*0.5                time of all kernels
kernel:name~gemm*0.5      of kernels with gemm in their name (~ part, = whole)
gpu, copy, memset, comm   of GPU events, copies, memsets, communication
kernel:~gemm*bound/0.6    to their time at 60% of the device's peak
stream=7*0.8              everything on a stream
cpu*0                     all host work, including pauses between calls
op:aten::mul*2            host work of an operator and of its callees
remove op:aten::copy_     an operator, its callees, and their launches
no wait aten::item        calls and their callees wait for nothing (~ part)
no launch gaps            GPU work is launched together, like a captured graph
fuse kernel:~_add_*0.4    merge neighbors on a stream, with 0.4 of their time
overlap comm              only optimizer and calls wait for communication
launch_latency=3us        also gap=1us and queue_limit=none
module=Linear_3 kernel*2  only in a module; also phase, op, step, source
                          (train.py:7): = whole, ~ part; window=10-12ms
rank=3 kernel*1.5         on one rank only (several files)
"""

_TIME = re.compile(r"(launch_latency|gap)=(\d+(?:\.\d*)?)(ns|us|µs|ms)", re.ASCII)
_RANK = re.compile(r"rank=(\d{1,9})\s+(.+)", re.ASCII)
_PART = re.compile(rf"({'|'.join(PARTS)})([=~])(?:\"([^\"]+)\"|(\S+))\s+(.+)")
_NUMBER = r"(\d+(?:\.\d*)?(?:e-?\d+)?|\.\d+)"
_SCALE = re.compile(rf"(.+)\*{_NUMBER}", re.ASCII)
_BOUND = re.compile(rf"(.+)\*bound/{_NUMBER}", re.ASCII)
_REMOVE = re.compile(r"remove\s+(.+)")
_NO_WAIT = re.compile(r"no\s+wait\s+(?:(?:name)?([~=]))?(.+)")
_NO_LAUNCH_GAPS = re.compile(r"no\s+launch\s+gaps")
_OVERLAP = re.compile(r"overlap\s+(.+)")
_FUSE = re.compile(rf"fuse\s+(.+?)(?:\*{_NUMBER})?", re.ASCII)
_TARGET = re.compile(r"(kernel|gpu|copy|memset|comm|cpu|op)(?::(?:(?:name)?([~=]))?(.+))?|(stream)=(-?\d{1,18})")
_ACTIONS = {"remove": _REMOVE, "overlap": _OVERLAP, "fuse": _FUSE, "bound": _BOUND, "scale": _SCALE}
# These actions apply only to GPU events.
_ON_DEVICE = ("bound", "fuse", "overlap")
_LATENCIES = {"launch_latency": LAUNCH, "gap": STREAM}
_MOST = 1e6


@dataclass(frozen=True)
class WhatIf:
    """A parsed change. The change applies only to rows that are in all parts of `within`.

    Attributes:
        rank: the rank to change, or None for all ranks.
        action: "scale", "bound", "remove", "no wait", "no launch gaps", "fuse", "overlap", "latency", or "queue".
        target: "kernel", "gpu", "copy", "memset", "comm", "cpu", "op", "stream", "launch_latency", "gap", or "call".
        exact: True if `name` must be the whole name, False if it may be a part of it. "" matches any name.
        value: a factor, a share of the bound, or a time in ns, depending on `action`.
    """

    text: str
    rank: int | None
    action: str
    target: str = ""
    exact: bool = False
    name: str = ""
    value: float = 0.0
    stream: int = -1
    within: tuple[Within, ...] = ()


def parse_what_if(text: str) -> WhatIf:
    """Parse one of the forms in `GRAMMAR`. Raise UsageError for any other string."""
    text_left, rank = text.strip(), None
    within: list[Within] = []
    while True:
        if rank is None and (ranked := _RANK.fullmatch(text_left)) is not None:
            rank, text_left = int(ranked[1]), ranked[2].strip()
        elif (part := _PART.fullmatch(text_left)) is not None:
            within.append(Within(part[1], part[3] or part[4], part[2] == "="))
            check_part(within[-1])
            text_left = part[5].strip()
        else:
            break
    return _acted(WhatIf(text, rank, "", within=tuple(within)), text_left)


def _acted(what_if: WhatIf, action_text: str) -> WhatIf:
    if action_text == "queue_limit=none":
        return replace(what_if, action="queue")
    if (time := _TIME.fullmatch(action_text)) is not None:
        return replace(what_if, action="latency", target=time[1], value=float(time[2]) * NS_PER_UNIT[time[3]])
    if (wait := _NO_WAIT.fullmatch(action_text)) is not None:
        return replace(what_if, action="no wait", target="call", exact=wait[1] != "~", name=wait[2])
    if _NO_LAUNCH_GAPS.fullmatch(action_text) is not None:
        return replace(what_if, action="no launch gaps", target="gpu")
    for action, pattern in _ACTIONS.items():
        if (match := pattern.fullmatch(action_text)) is not None:
            value = float(match[2] or 1) if pattern.groups > 1 else 0.0
            if value <= _MOST and (value > 0 or action != "bound"):
                return _targeted(replace(what_if, action=action, value=value), match[1])
    raise _unknown(what_if.text)


def _targeted(what_if: WhatIf, target: str) -> WhatIf:
    match, on_device = _TARGET.fullmatch(target.strip()), what_if.action in _ON_DEVICE
    if match is None or (match[1] == "op" and not match[3]) or (match[1] in ("op", "cpu") and on_device):
        raise _unknown(what_if.text)
    if match[4]:
        return replace(what_if, target="stream", stream=int(match[5]))
    exact = match[2] == "=" or (match[1] == "op" and match[2] != "~")
    return replace(what_if, target=match[1], exact=exact, name=match[3] or "")


def _unknown(text: str) -> UsageError:
    return UsageError(f"unknown what-if {text!r}; for example 'kernel:name~gemm*0.5', 'cpu*0', 'remove op:aten::copy_'")


# Returns the time of every graph row at the device's peak rates, in int64 ns, or −1 if it is unknown.
Bounds = Callable[[], IntColumn]


def apply_what_ifs(
    graph: ReplayGraph,
    what_ifs: Sequence[WhatIf],
    constants: Constants | Sequence[Constants],
    bounds: Bounds | None = None,
) -> ReplayGraph:
    for what_if in what_ifs:
        graph = find_change(graph, what_if, constants, bounds)(graph)
    return graph


def find_change(
    graph: ReplayGraph,
    what_if: WhatIf,
    constants: Constants | Sequence[Constants],
    bounds: Bounds | None = None,
    *,
    rows: IntColumn | None = None,
) -> Change:
    """Return a function that applies a change to this graph or to any graph with the same edges but different lags.

    If `rows` is given, it replaces the rows that the target, the rank and the parts in `within` select.

    Raises:
        UsageError: the change does not affect any row.
    """
    if rows is None:
        meant = _on_rank(graph, what_if)
        for part in what_if.within:
            meant &= rows_within(graph, part)
    else:
        meant = mask_at(len(graph.start), rows)
    within = meant
    if what_if.action == "queue":
        return without_queue(graph, meant)
    if what_if.action == "latency":
        return set_latency(graph, _LATENCIES[what_if.target], round(what_if.value), constants, meant)
    if rows is None:
        meant = within & select(graph, what_if.target, what_if.name, exact=what_if.exact, stream=what_if.stream)
    if not meant.any():
        raise UsageError(f"what-if {what_if.text!r}: nothing in the trace matches")
    if what_if.action == "scale":
        windows = [parse_window(part.value) for part in what_if.within if part.key == "window"]
        during = Span(max(w.start for w in windows), min(w.end for w in windows)) if windows else None
        gaps = within & of_their_ranks(graph, meant) if what_if.target == "cpu" else False
        return scale(graph, meant, what_if.value, gaps=gaps, during=during)
    return _change_of_rows(graph, what_if, meant, bounds)


def _change_of_rows(graph: ReplayGraph, what_if: WhatIf, meant: Rows, bounds: Bounds | None) -> Change:
    match what_if.action:
        case "remove":
            return remove(graph, meant)
        case "no wait":
            return without_waits(graph, meant)
        case "no launch gaps":
            return without_launch_gaps(graph, meant)
        case "fuse":
            return fused(graph, meant, what_if.value)
        case "overlap":
            return overlapped(meant)
    assert what_if.action == "bound"
    known = None if bounds is None else bounds()
    if known is None or not np.any(known[meant] >= 0):
        raise UsageError(
            f"what-if {what_if.text!r}: the bound of these events is unknown; it needs a known device and "
            "operator shapes (record_shapes)"
        )
    return to_bound(graph, meant, what_if.value, known)


def _on_rank(graph: ReplayGraph, what_if: WhatIf) -> Rows:
    if what_if.rank is None:
        return np.ones(len(graph.start), np.bool_)
    if what_if.rank not in graph.ranks:
        raise UsageError(f"what-if {what_if.text!r}: there are ranks {', '.join(map(str, sorted(graph.ranks)))}")
    on_rank: Rows = graph.rank_of_row == graph.ranks.index(what_if.rank)
    return on_rank
