"""What-ifs: functions from a replay graph to another one, and the text form in which commands take them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ..schemas.communications import comm_rows
from ..trace.columns import IntColumn
from ..trace.conventions import KERNEL_CATEGORIES, NS_PER_UNIT
from ..trace.errors import UsageError
from ..trace.kinds import CPU, GPU
from .constants import Constants, of_ranks
from .replay_graph import COMM, DURATION, HANDOFF, HOST, LAUNCH, QUEUE, STREAM, SYNC, UNKNOWN, ReplayGraph

Rows = npt.NDArray[np.bool_]

GRAMMAR = """\
kernel*0.5                time of all kernels
kernel:name~gemm*0.5      of kernels with gemm in their name (~ part, = whole)
gpu, copy, memset, comm   likewise: all GPU events, copies, fills, collectives
stream=7*0.8              all that runs on a stream
cpu*0                     all host work, pauses between calls included
op:aten::mul*2            host work of an op and of what it calls
remove op:aten::copy_     an op, what it calls and what it launches
launch_latency=3us        likewise gap=1us; queue_limit=none
rank=3 kernel*1.5         on one rank only (several files)
"""
"""The text forms of a what-if."""

_TIME = re.compile(r"(launch_latency|gap)=(\d+(?:\.\d+)?)(ns|us|µs|ms)", re.ASCII)
_RANK = re.compile(r"rank=(\d{1,9})\s+(.+)", re.ASCII)
_SCALE = re.compile(r"(.+)\*(\d+(?:\.\d*)?(?:e-?\d+)?|\.\d+)", re.ASCII)
_REMOVE = re.compile(r"remove\s+(.+)")
_TARGET = re.compile(r"(kernel|gpu|copy|memset|comm|cpu|op)(?::(?:(?:name)?([~=]))?(.+))?|(stream)=(-?\d{1,18})")
_LATENCIES = {"launch_latency": LAUNCH, "gap": STREAM}
_MOST = 1e6


@dataclass(frozen=True)
class WhatIf:
    """One change, parsed.

    Attributes:
        text: as it was given.
        rank: of which rank alone, None for all.
        action: "scale", "remove", "latency" or "queue".
        target: "kernel", "gpu", "copy", "memset", "comm", "cpu", "op", "stream"; "launch_latency" or "gap".
        exact: the name must be the whole one. name: the name, or its part; "" for any.
        value: factor, ns, or stream.
        stream: for the target "stream".
    """

    text: str
    rank: int | None
    action: str
    target: str = ""
    exact: bool = False
    name: str = ""
    value: float = 0.0
    stream: int = -1


def parse_what_if(text: str) -> WhatIf:
    """Parse one of the forms of `GRAMMAR`.

    Raises:
        UsageError: none of them.
    """
    rest, rank = text.strip(), None
    if (ranked := _RANK.fullmatch(rest)) is not None:
        rank, rest = int(ranked[1]), ranked[2].strip()
    if rest == "queue_limit=none":
        return WhatIf(text, rank, "queue")
    if (time := _TIME.fullmatch(rest)) is not None:
        return WhatIf(text, rank, "latency", time[1], value=float(time[2]) * NS_PER_UNIT[time[3]])
    if (removed := _REMOVE.fullmatch(rest)) is not None:
        return _targeted(WhatIf(text, rank, "remove"), removed[1])
    if (scaled := _SCALE.fullmatch(rest)) is not None and float(scaled[2]) <= _MOST:
        return _targeted(WhatIf(text, rank, "scale", value=float(scaled[2])), scaled[1])
    raise _unknown(text)


def _targeted(what_if: WhatIf, target: str) -> WhatIf:
    found = _TARGET.fullmatch(target.strip())
    if found is None or (found[1] == "op" and not found[3]):
        raise _unknown(what_if.text)
    if found[4]:
        return replace(what_if, target="stream", stream=int(found[5]))
    exact = found[2] == "=" or (found[1] == "op" and found[2] != "~")
    return replace(what_if, target=found[1], exact=exact, name=found[3] or "")


def _unknown(text: str) -> UsageError:
    return UsageError(f"unknown what-if {text!r}; for example 'kernel:name~gemm*0.5', 'cpu*0', 'remove op:aten::copy_'")


def apply_what_ifs(
    graph: ReplayGraph, what_ifs: Sequence[WhatIf], constants: Constants | Sequence[Constants]
) -> ReplayGraph:
    """Apply changes one after the other; see `apply_what_if`."""
    for what_if in what_ifs:
        graph = apply_what_if(graph, what_if, constants)
    return graph


def apply_what_if(
    graph: ReplayGraph, what_if: WhatIf, constants: Constants | Sequence[Constants], *, rows: IntColumn | None = None
) -> ReplayGraph:
    """Apply a change.

    Args:
        constants: of the one rank, or of each rank of a coupled graph.
        rows: int64, the rows that it means, in place of those that its target and its rank select; None for these.

    Raises:
        UsageError: a change that touches nothing in the graph.
    """
    if rows is None:
        meant = _on_rank(graph, what_if)
    else:
        meant = np.zeros(len(graph.start), np.bool_)
        meant[rows] = True
    if what_if.action == "queue":
        return without_queue(graph, meant)
    if what_if.action == "latency":
        return set_latency(graph, _LATENCIES[what_if.target], round(what_if.value), constants, meant)
    if rows is None:
        meant &= select(graph, what_if.target, what_if.name, exact=what_if.exact, stream=what_if.stream)
    if not meant.any():
        raise UsageError(f"what-if {what_if.text!r}: nothing in the trace is meant by it")
    if what_if.action == "remove":
        return remove(graph, meant)
    return scale(graph, meant, what_if.value, gaps=what_if.target == "cpu" and rows is None)


def _on_rank(graph: ReplayGraph, what_if: WhatIf) -> Rows:
    """Rows of the rank that is meant, by what its trace says or else by its place among the files."""
    if what_if.rank is None:
        return np.ones(len(graph.start), np.bool_)
    if what_if.rank not in graph.ranks:
        raise UsageError(f"what-if {what_if.text!r}: there are ranks {', '.join(map(str, sorted(graph.ranks)))}")
    on_rank: Rows = graph.rank_of_row == graph.ranks.index(what_if.rank)
    return on_rank


def select(graph: ReplayGraph, target: str, name: str = "", *, exact: bool = False, stream: int = -1) -> Rows:
    """Rows meant by a target of `GRAMMAR`; of "op" also all that the ops call and launch. bool, one entry a row."""
    parts = []
    for trace in graph.traces:
        wanted = np.array([known == name if exact else name in known for known in trace.names], np.bool_)
        named = wanted[trace.name] if name else np.ones(len(trace), np.bool_)
        categories = {"kernel": KERNEL_CATEGORIES, "copy": ("gpu_memcpy",), "memset": ("gpu_memset",)}.get(target, ())
        category = np.array([category in categories for category in trace.categories], np.bool_)[trace.category]
        # communications whose metadata is known, and those on the host
        rows = comm_rows(trace)
        communicates = np.isin(np.arange(len(trace)), [*trace.comm, *rows[trace.kind[rows] != GPU].tolist()])
        of_kind = {
            "gpu": trace.kind == GPU, "cpu": trace.kind != GPU, "op": trace.kind == CPU,
            "stream": (trace.kind == GPU) & (trace.stream == stream),
            "comm": communicates,
        }.get(target, category & (trace.kind == GPU))  # fmt: skip
        meant = of_kind & named & trace.timed
        parts.append(_with_descendants(trace.parent_row, meant) if target == "op" else meant)
    return np.concatenate(parts)


def _with_descendants(parent: npt.NDArray[np.int64], rows: Rows) -> Rows:
    """The rows and all below them, level by level (as many as calls nest)."""
    inside: Rows = rows.copy()
    while True:
        more = ~inside & (parent >= 0) & inside[parent]
        if not more.any():
            return inside
        inside |= more


def scale(graph: ReplayGraph, rows: Rows, factor: float, *, gaps: bool = False) -> ReplayGraph:
    """Multiply the times of some rows: host work of calls, time on the device of GPU events, communications.

    Args:
        rows: bool, one entry a row. Of what "op" selects only the host work is meant: GPU events below a call that is
            selected are left as they are.
        gaps: also host work between calls, and what remains of pauses after other threads' work (of selected ranks).
    """
    edges, owner = graph.edges, np.maximum(graph.edges.owner, 0)
    beside = graph.column("kind") == GPU
    beside[owner[(edges.owner >= 0) & (edges.kind != HOST)]] = True  # collectives on the host are not its work
    host = rows & ~beside
    mine = host | (rows & beside & ~host.any())
    which = (edges.owner >= 0) & mine[owner] & np.isin(edges.kind, (HOST, DURATION, COMM))
    if gaps:
        target = graph.row[edges.target]
        ranks = np.unique(graph.rank_of_row[rows])
        loose = (edges.owner < 0) & np.isin(edges.kind, (HOST, HANDOFF)) & (target >= 0)
        which |= loose & np.isin(graph.rank_of_row[np.maximum(target, 0)], ranks)
    return graph.scaled(which, factor)


def remove(graph: ReplayGraph, rows: Rows) -> ReplayGraph:
    """Take some rows away: they take no time, neither do their launches, and calls among them wait for nothing. What is
    around them stays in order."""
    target = graph.row[graph.edges.target]
    waits = np.isin(graph.edges.kind, (SYNC, QUEUE, UNKNOWN)) & (target >= 0) & rows[np.maximum(target, 0)]
    graph = replace(graph, edges=graph.edges.take(~waits))
    edges = graph.edges
    target = graph.row[edges.target]
    owned = (edges.owner >= 0) & rows[np.maximum(edges.owner, 0)]
    before = (target >= 0) & rows[np.maximum(target, 0)] & np.isin(edges.kind, (LAUNCH, STREAM))
    return graph.scaled(owned | before, 0.0)


def set_latency(
    graph: ReplayGraph, kind: int, latency_ns: int, constants: Constants | Sequence[Constants], on: Rows
) -> ReplayGraph:
    """Give launches (LAUNCH) or queued GPU events (STREAM) another latency.

    Those that counted the fitted constant count `latency_ns`; those that were shorter remain so in proportion.

    Args:
        on: bool, one entry a row: only before these.
    """
    edges, ranks = graph.edges, of_ranks(constants)
    row = np.maximum(graph.row[edges.target], 0)
    cap = np.array([of.caps()[kind] for of in ranks], np.int64)[graph.rank_of_row[row]]
    which = (edges.kind == kind) & edges.capped & on[row]
    counted = np.minimum(edges.lag, cap)
    share = np.where(cap > 0, counted / np.maximum(cap, 1), 1.0)
    lag = np.where(which, np.rint(share * latency_ns).astype(np.int64), edges.lag)
    return replace(graph, edges=replace(edges, lag=lag, capped=edges.capped & ~which))


def without_queue(graph: ReplayGraph, on: Rows) -> ReplayGraph:
    """Let none of some calls (bool, one entry a row) wait for the launch queue."""
    edges = graph.edges
    waits = (edges.kind == QUEUE) & on[np.maximum(graph.row[edges.target], 0)]
    return replace(graph, edges=edges.take(~waits), queue_limit=None)
