"""Compute how long a collective takes on links with given bandwidths and latencies, by algorithm and library.

docs/reference/network.md has the formulas. Bandwidth terms follow "busbw" (nccl-tests, doc/PERFORMANCE.md). Step counts
follow Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005. On a ring,
all-to-all data passes through the ranks in between, as in ASTRA-sim (astra-sim/system/collective/Ring.cc). On a tree,
an all-reduce takes 2 (S/B + log₂N · L). A broadcast or reduce takes half of this time. Other kinds use a ring.

**Levels**: A collective has one phase per level, as in ASTRA-sim with `"collective-optimization": "localBWAware"`. In a
reduce-scatter, each rank passes only its shard to the next level. An all-gather works in reverse, and an all-reduce
does both. Broadcast, reduce and all-to-all send all data on every level.

**Gloo** (pytorch/gloo) ignores levels, so the slowest link determines the time of a step. All-reduce, reduce and
all-gather use rings (allreduce.cc, reduce.cc, allgather.cc). PyTorch implements reduce-scatter as an all-reduce
(ProcessGroupGloo.cpp). A broadcast uses a binomial tree (broadcast.cc), in which a rank forwards data only after it has
received all data. With d = log₂N, the link of the root is busy for d · S/B, the link of its first child for
(d − 1) · S/B, and so on. An all-to-all sends to all ranks at the same time (alltoall.cc). A barrier takes log₂N steps
(barrier.cc).

**NCCL** 2.28.3 (src/graph/tuning.cc, `ncclTopoTuneModel` and `ncclTopoGetAlgoTime`) uses the fastest of three protocols
on a ring or, for an all-reduce, also on a tree. L is the step time of LL, the protocol with the lowest latency: 5.0 µs
between nodes and 0.6 µs on NVLink. `_Protocol` has step times (`hwLatencies`), start times (`baseLatencies`), bandwidth
shares, and `treeCorrectionFactor`. `llMaxBws` (Hopper, Intel) limits LL. On a ring between nodes, steps of the protocol
Simple take 1.4 times as long ("plateau effect"). A ring visits all ranks of a node before it leaves the node
(`nInterSteps`). Every NIC has a ring, so all ranks of a node share its outgoing data. A tree is a chain within a node
and has a depth of `log2i(nodes)` between nodes. Broadcast and reduce take all steps of a chain. NVLS, CollNet, PAT and
channel limits are not modeled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Final, Literal, NamedTuple

from ..schemas.comm_types import CollectiveCommType as Type

Algorithm = Literal["ring", "direct", "halving-doubling", "tree"]
Library = Literal["gloo", "nccl"]

# For these collectives, the recorded size is the size of one rank's shard.
SHARDS: Final = frozenset({Type.ALL_GATHER, Type.GATHER, Type.SCATTER})
_CHAINS = frozenset({Type.BROADCAST, Type.REDUCE})
_TWO_PHASES = frozenset({Type.ALL_REDUCE, Type.BARRIER})
_ON_TREES = _CHAINS | _TWO_PHASES
# These collectives send all data on every level of the network.
_UNDIVIDED = _CHAINS | {Type.ALL_TO_ALL}


class _Protocol(NamedTuple):
    """An NCCL protocol. In pairs, the first value is for rings and the second for trees, unless a comment differs."""

    base_ns: tuple[float, float]  # startup time of a collective on a ring and on a tree
    between: tuple[float, float]  # step time between nodes / L; rings with one rank per node use the second value
    inside: tuple[float, float]  # step time inside a node, divided by L
    least_ns: float  # minimum step time inside a node in ns, if a ring spans several nodes
    share: float  # share of the bandwidth that a ring uses
    on_tree: tuple[float, float]  # share of the bandwidth that a tree can use: inside a node, and between nodes
    tree_tenths: tuple[int, ...]  # tenths of `on_tree` that messages of 64 B, 128 B, 256 B, … reach; 10 if larger


def _tenths(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


_LL = _Protocol(
    base_ns=(6600, 6800),
    between=(2.7 / 5, 1),
    inside=(1, 1),
    least_ns=1000,
    share=0.5,
    on_tree=(1 / 3.8, 1 / 3.8),
    tree_tenths=_tenths("10 10 10 10 9 8 7 7 7 7 6 5 4 4 5 6 7 8 9"),
)
_LL128 = _Protocol(
    base_ns=(14000, 14000),
    between=(4 / 5, 8.5 / 5),
    inside=(1.9 / 0.6, 1.25 / 0.6),
    least_ns=1000,
    share=0.92,
    on_tree=(7 / 9, 120 / 128),
    tree_tenths=_tenths("10 10 10 10 10 9 8 8 8 7 6 6 6 6 6 6 8 9 9 9 9"),
)
_SIMPLE = _Protocol(
    base_ns=(8400, 8400),
    between=(14 / 5, 14 / 5),
    inside=(3.4 / 0.6, 4 / 0.6),
    least_ns=3000,
    share=1.0,
    on_tree=(1.0, 1.0),
    tree_tenths=_tenths("9 9 9 9 9 9 9 8 7 6 6 5 5 5 5 6 7 8 7 7 8 9 9"),
)
_TREE_SHARE, _PLATEAU = 0.92, 1.4
_LL_BANDWIDTH = {1: 141.0, 2: 39.0}
# Maximum bandwidth of LL in GB/s if `_LL_BANDWIDTH` does not list the number of nodes.
_LL_BANDWIDTH_OF_MORE = 20.4


class LevelSpan(NamedTuple):
    """Describes how a process group spans one level of a network."""

    ranks: int  # number of ranks; on outer levels, number of units of the level below
    bandwidth: float
    latency_ns: float
    algorithm: Algorithm = "ring"
    in_node: bool = False  # True if the level is inside a node, for the NCCL formulas
    hops: int = 0  # number of links that a step crosses if the topology is a ring, otherwise 0


def collective_ns(kind: int, size: int, spans: Sequence[LevelSpan], library: Library | None = None) -> float:
    """Return how many ns a collective takes after all ranks are ready, or 0 if there are no levels.

    `size` is the input of one rank in bytes (`message_bytes`). `spans` lists the levels, inner levels first. If
    `library` is given, it overrides the algorithms of the levels.
    """
    if not spans:
        return 0.0
    spans = [span._replace(latency_ns=span.latency_ns * max(span.hops, 1)) for span in spans]
    ranks = prod(span.ranks for span in spans)
    whole: float = 0 if kind == Type.BARRIER else size * ranks if kind in SHARDS else size
    if library == "gloo":
        slowest, latency = min(span.bandwidth for span in spans), max(span.latency_ns for span in spans)
        return _gloo_ns(kind, whole, ranks, slowest, latency)
    if library == "nccl":
        return _nccl_ns(kind, whole, spans)
    total = 0.0
    for span in spans:
        total += _phase_ns(kind, whole, span)
        if kind not in _UNDIVIDED:
            whole /= span.ranks
    return total


def _phase_ns(kind: int, whole: float, span: LevelSpan) -> float:
    ranks, bandwidth, latency_ns, algorithm, *_ = span
    if algorithm == "tree" and kind in _ON_TREES:
        return (whole / bandwidth + _depth(ranks) * latency_ns) * (2 if kind in _TWO_PHASES else 1)
    if kind == Type.ALL_TO_ALL and algorithm != "direct":
        return ranks * (ranks - 1) / 2 * (whole / ranks / bandwidth + latency_ns)
    steps = {"direct": 1, "halving-doubling": _depth(ranks)}.get(algorithm, ranks - 1)
    if kind in _CHAINS:
        return whole / bandwidth + steps * latency_ns
    once = whole * (ranks - 1) / ranks / bandwidth + steps * latency_ns
    return once * (2 if kind in _TWO_PHASES else 1)


def _gloo_ns(kind: int, whole: float, ranks: int, bandwidth: float, latency_ns: float) -> float:
    depth, passed = _depth(ranks), whole * (ranks - 1) / ranks / bandwidth
    if kind == Type.BROADCAST:
        return depth * (depth + 1) / 2 * whole / bandwidth + depth * latency_ns
    if kind == Type.BARRIER:
        return depth * latency_ns
    if kind == Type.ALL_TO_ALL:
        return passed + latency_ns
    phases = 2 if kind in (Type.ALL_REDUCE, Type.REDUCE, Type.REDUCE_SCATTER) else 1
    return phases * (passed + (ranks - 1) * latency_ns)


def _nccl_ns(kind: int, whole: float, spans: Sequence[LevelSpan]) -> float:
    ranks, together = prod(span.ranks for span in spans), 1
    bandwidth = spans[0].bandwidth
    for below, span in pairwise(spans):
        together *= below.ranks
        bandwidth = min(bandwidth, span.bandwidth * together)
    if kind == Type.ALL_TO_ALL:  # all messages are sent at the same time, and most of them leave the node
        outer, passed = spans[-1], whole * (ranks - 1) / ranks / bandwidth
        units = prod(span.ranks for span in spans[:-1])
        return max(whole * (ranks - units) / ranks / outer.bandwidth, passed) + outer.latency_ns
    times = [_nccl_ring_ns(kind, whole, spans, bandwidth, protocol) for protocol in (_LL, _LL128, _SIMPLE)]
    if kind in _TWO_PHASES:
        times += [_nccl_tree_ns(whole, spans, bandwidth, protocol) for protocol in (_LL, _LL128, _SIMPLE)]
    return min(times)


def _nccl_ring_ns(kind: int, whole: float, spans: Sequence[LevelSpan], bandwidth: float, by: _Protocol) -> float:
    ranks, nodes = prod(span.ranks for span in spans), prod(span.ranks for span in spans if not span.in_node)
    plateau = _PLATEAU if by is _SIMPLE and kind == Type.ALL_REDUCE else 1
    steps_ns, ranks_left = 0.0, ranks
    for span in spans:
        above = ranks_left // span.ranks
        step_ns = by.inside[0] * span.latency_ns
        if not span.in_node:
            step_ns = by.between[nodes == ranks] * span.latency_ns * plateau
        elif nodes > 1:
            step_ns = max(step_ns, by.least_ns) * plateau
        steps_ns, ranks_left = steps_ns + (ranks_left - above) * step_ns, above
    passed = whole if kind in _CHAINS else whole * (ranks - 1) / ranks
    once = passed / _nccl_speed(bandwidth * by.share, by, nodes) + steps_ns
    return by.base_ns[0] + once * (2 if kind in _TWO_PHASES else 1)


def _nccl_tree_ns(whole: float, spans: Sequence[LevelSpan], bandwidth: float, by: _Protocol) -> float:
    nodes = prod(span.ranks for span in spans if not span.in_node)
    doublings = (int(whole) // 64).bit_length() - 1
    tenths = by.tree_tenths[doublings] if 0 <= doublings < len(by.tree_tenths) else 10
    speed = _nccl_speed(bandwidth * _TREE_SHARE * by.on_tree[nodes > 1], by, nodes) * tenths / 10
    steps_ns = sum(
        by.inside[1] * span.latency_ns * (span.ranks - 1)
        if span.in_node
        else by.between[1] * span.latency_ns * (span.ranks.bit_length() - 1)
        for span in spans
    )
    return by.base_ns[1] + 2 * (whole / speed + steps_ns)


def _nccl_speed(speed: float, by: _Protocol, nodes: int) -> float:
    return min(speed, _LL_BANDWIDTH.get(nodes, _LL_BANDWIDTH_OF_MORE)) if by is _LL else speed


def _depth(ranks: int) -> int:
    return (ranks - 1).bit_length()
