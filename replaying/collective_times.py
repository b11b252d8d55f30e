"""What a collective takes on links of given bandwidths and latencies, by its algorithm and by the library that runs it.

With N ranks, S bytes of the whole data, B the bandwidth of a rank in one direction, and L the latency of a step:

| kind | ring | direct | halving-doubling |
|---|---|---|---|
| reduce-scatter, all-gather, gather, scatter | (N − 1)/N · S/B + (N − 1) L | … + L | … + log₂N · L |
| all-reduce; barrier, with S = 0 | twice that | twice that | twice that |
| all-to-all | N(N − 1)/2 · (S/N/B + L) | (N − 1)/N · S/B + L | as on a ring |
| broadcast, reduce (a pipelined chain) | S/B + (N − 1) L | S/B + L | S/B + log₂N · L |

By a tree (NCCL's double binary tree, each half of the data on one of two) an all-reduce takes 2 (S/B + log₂N · L),
broadcast and reduce half of that, and other kinds what they do on a ring.

On a ring the parts of an all-to-all pass through the ranks between, so that a link carries N(N − 1)/2 of them: so does
ASTRA-sim (astra-sim/system/collective/Ring.cc), whose default it is. Bandwidth terms of the others are those of "busbw"
(nccl-tests, doc/PERFORMANCE.md), steps those of R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of Collective
Communication Operations in MPICH", 2005.

**Several levels** (nodes, and the fabric between them): one phase a level, from the inner to the outer ones; a
reduce-scatter leaves each rank of a unit its part for the next level, an all-gather is that backwards, an all-reduce
both. So does ASTRA-sim with `"collective-optimization": "localBWAware"` (Sys::generate_collective; every rank has links
of its own on each level). Broadcast, reduce and all-to-all pass all of the data on each level.

Gloo (pytorch/gloo): all-reduce, reduce and all-gather run on rings (allreduce.cc, reduce.cc, allgather.cc; a reduce is
a reduce-scatter and a gather; PyTorch's reduce-scatter is an all-reduce, of which each rank keeps its part:
ProcessGroupGloo.cpp); a broadcast on a binomial tree, in which a rank sends to all its children at once and
passes nothing on before it has all (broadcast.cc), so that with d = log₂N the root's link is busy for d · S/B, its
first child's for (d − 1) · S/B, …; all-to-all sends to all at once (alltoall.cc); a barrier takes log₂N steps
(barrier.cc). It knows no levels: each step of a ring takes what its slowest link does.

NCCL (src/graph/tuning.cc): an all-reduce on a ring or a tree, each by one of three protocols, the fastest for the size.
LL sends a flag with each 4 bytes, half of the bandwidth; LL128 120 of 128 bytes; their steps take 2.7 and 4.0 where
those of Simple take 14 µs (`hwLat`, ring over a network), those of a tree 5.0, 8.5 and 14; on NVLink 0.6, 1.9 and 3.4
on a ring. A ring passes through all ranks of a node before it leaves it (`nInterSteps`), and there is one a NIC: the
links of all ranks of a node carry what leaves it. A tree is a chain within the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Final, Literal, NamedTuple

from ..schemas.chakra.et_def_pb2 import CollectiveCommType as Type

Algorithm = Literal["ring", "direct", "halving-doubling", "tree"]
Library = Literal["gloo", "nccl"]

SHARDS: Final = frozenset({Type.ALL_GATHER, Type.GATHER, Type.SCATTER})
"""Kinds whose size is the part of one rank."""
_CHAINS = frozenset({Type.BROADCAST, Type.REDUCE})
_TWO_PHASES = frozenset({Type.ALL_REDUCE, Type.BARRIER})
_ON_TREES = _CHAINS | _TWO_PHASES
_UNDIVIDED = _CHAINS | {Type.ALL_TO_ALL}
"""Kinds of which each level carries all of the data."""
_SHARES = (0.5, 120 / 128, 1.0)
"""Of NCCL's LL, LL128 and Simple: of the bandwidth."""
_RING_STEPS, _TREE_STEPS = (2.7 / 14, 4 / 14, 1.0), (5 / 14, 8.5 / 14, 1.0)
_INSIDE_STEPS = (0.6 / 3.4, 1.9 / 3.4, 1.0)
"""Of the latency of a step: on a ring, on a tree, and within a node."""


class LevelSpan(NamedTuple):
    """How a process group spans one level of a network.

    Attributes:
        ranks: how many of its ranks (on outer levels: units of the level below) are neighbours there.
        bandwidth: bytes a ns of a rank in one direction. latency_ns: of a step.
        algorithm: of its phase.
    """

    ranks: int
    bandwidth: float
    latency_ns: float
    algorithm: Algorithm = "ring"


def collective_ns(kind: int, size: int, spans: Sequence[LevelSpan], library: Library | None = None) -> float:
    """What a collective takes when all its ranks are ready, ns; see the module's docstring.

    Args:
        size: bytes, as in `message_bytes`: of one rank's input.
        spans: levels, the inner ones first; 0 where they are none.
        library: whose algorithms; None for those of the levels.

    Example:
        >>> collective_ns(Type.ALL_TO_ALL, 4000, [LevelSpan(4, 1.0, 0.0)])
        6000.0
        >>> collective_ns(Type.BROADCAST, 1000, [LevelSpan(4, 1.0, 0.0)], "gloo")
        3000.0
        >>> collective_ns(Type.ALL_REDUCE, 8000, [LevelSpan(4, 10.0, 0.0), LevelSpan(2, 1.0, 0.0)])
        3200.0
    """
    if not spans:
        return 0.0
    ranks = prod(of.ranks for of in spans)
    whole: float = 0 if kind == Type.BARRIER else size * ranks if kind in SHARDS else size
    if library == "gloo":
        slowest, latency = min(of.bandwidth for of in spans), max(of.latency_ns for of in spans)
        return _gloo_ns(kind, whole, ranks, slowest, latency)
    if library == "nccl":
        return _nccl_ns(kind, whole, spans)
    total = 0.0
    for of in spans:
        total += _phase_ns(kind, whole, of)
        if kind not in _UNDIVIDED:
            whole /= of.ranks
    return total


def _phase_ns(kind: int, whole: float, of: LevelSpan) -> float:
    """What a collective of one level takes."""
    ranks, bandwidth, latency_ns, algorithm = of
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
    outer, inner = spans[-1], spans[:-1]
    ranks, together = prod(of.ranks for of in spans), 1
    bandwidth = spans[0].bandwidth
    for below, of in pairwise(spans):
        together *= below.ranks
        bandwidth = min(bandwidth, of.bandwidth * together)
    passed = whole * (ranks - 1) / ranks / bandwidth
    if kind == Type.ALL_TO_ALL:  # messages to all others at once, most of which leave the node
        units = prod(of.ranks for of in inner)
        return max(whole * (ranks - units) / ranks / outer.bandwidth, passed) + outer.latency_ns
    if kind in _CHAINS:
        passed = whole / bandwidth
    phases = 2 if kind in _TWO_PHASES else 1
    outer_steps = outer.ranks - 1
    inner_ns = sum(
        (prod(of.ranks for of in spans[at:]) - prod(of.ranks for of in spans[at + 1 :])) * of.latency_ns
        for at, of in enumerate(inner)
    )
    times = [
        phases * (passed / share + outer_steps * step * outer.latency_ns + inside * inner_ns)
        for share, step, inside in zip(_SHARES, _RING_STEPS, _INSIDE_STEPS, strict=True)
    ]
    if kind in _TWO_PHASES:
        chain_ns = sum((of.ranks - 1) * of.latency_ns for of in inner)
        times += [
            2 * (whole / bandwidth / share + _depth(outer.ranks) * step * outer.latency_ns + inside * chain_ns)
            for share, step, inside in zip(_SHARES, _TREE_STEPS, _INSIDE_STEPS, strict=True)
        ]
    return min(times)


def _depth(ranks: int) -> int:
    """log2, rounded up."""
    return (ranks - 1).bit_length()
