"""What a collective takes on links of one bandwidth and latency, by its algorithm and by the library that runs it.

With N ranks, S bytes of the whole data, B the bandwidth of a rank in one direction, and L the latency of a step:

| kind | ring | direct | halving-doubling |
|---|---|---|---|
| reduce-scatter, all-gather, gather, scatter | (N − 1)/N · S/B + (N − 1) L | … + L | … + log₂N · L |
| all-reduce; barrier, with S = 0 | twice that | twice that | twice that |
| all-to-all | N(N − 1)/2 · (S/N/B + L) | (N − 1)/N · S/B + L | as on a ring |
| broadcast, reduce (a pipelined chain) | S/B + (N − 1) L | S/B + L | S/B + log₂N · L |

On a ring the parts of an all-to-all pass through the ranks between, so that a link carries N(N − 1)/2 of them: so does
ASTRA-sim (astra-sim/system/collective/Ring.cc), whose default it is. Bandwidth terms of the others are those of "busbw"
(nccl-tests, doc/PERFORMANCE.md), steps those of R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of Collective
Communication Operations in MPICH", 2005.

Gloo (pytorch/gloo): all-reduce, reduce and all-gather run on rings (allreduce.cc, reduce.cc, allgather.cc; a reduce is
a reduce-scatter and a gather; PyTorch's reduce-scatter is an all-reduce, of which each rank keeps its part:
ProcessGroupGloo.cpp); a broadcast on a binomial tree, in which a rank sends to all its children at once and
passes nothing on before it has all (broadcast.cc), so that with d = log₂N the root's link is busy for d · S/B, its
first child's for (d − 1) · S/B, …; all-to-all sends to all at once (alltoall.cc); a barrier takes log₂N steps
(barrier.cc).

NCCL (src/graph/tuning.cc): an all-reduce on a ring or a tree, each by one of three protocols, the fastest for the size.
LL sends a flag with each 4 bytes, half of the bandwidth; LL128 120 of 128 bytes; their steps take 2.7 and 4.0 where
those of Simple take 14 µs (`hwLat`, ring over a network), those of a tree 5.0, 8.5 and 14.
"""

from __future__ import annotations

from typing import Final, Literal

from ..schemas.chakra.et_def_pb2 import CollectiveCommType as Type

Algorithm = Literal["ring", "direct", "halving-doubling"]
Library = Literal["gloo", "nccl"]

SHARDS: Final = frozenset({Type.ALL_GATHER, Type.GATHER, Type.SCATTER})
"""Kinds whose size is the part of one rank."""
_CHAINS = frozenset({Type.BROADCAST, Type.REDUCE})
_TWO_PHASES = frozenset({Type.ALL_REDUCE, Type.BARRIER})
_RING_PROTOCOLS = ((0.5, 2.7 / 14), (120 / 128, 4 / 14), (1.0, 1.0))
_TREE_PROTOCOLS = ((0.5, 5 / 14), (120 / 128, 8.5 / 14), (1.0, 1.0))
"""NCCL's LL, LL128 and Simple: share of the bandwidth, and of the latency of a step."""


def collective_ns(
    kind: int, size: int, ranks: int, bandwidth: float, latency_ns: float, algorithm: Algorithm, library: Library | None
) -> float:
    """What a collective takes when all its ranks are ready, ns; see the module's docstring.

    Args:
        size: bytes, as in `message_bytes`: of one rank's input. ranks: two or more. bandwidth: bytes a ns.
        library: whose algorithms; None for those of `algorithm`.

    Example:
        >>> collective_ns(Type.ALL_TO_ALL, 4000, 4, 1.0, 0.0, "ring", None)
        6000.0
        >>> collective_ns(Type.BROADCAST, 1000, 4, 1.0, 0.0, "ring", "gloo")
        3000.0
    """
    whole = 0 if kind == Type.BARRIER else size * ranks if kind in SHARDS else size
    if library == "gloo":
        return _gloo_ns(kind, whole, ranks, bandwidth, latency_ns)
    if library == "nccl":
        return _nccl_ns(kind, whole, ranks, bandwidth, latency_ns)
    if kind == Type.ALL_TO_ALL and algorithm != "direct":
        return ranks * (ranks - 1) / 2 * (whole / ranks / bandwidth + latency_ns)
    steps = {"ring": ranks - 1, "direct": 1, "halving-doubling": _depth(ranks)}[algorithm]
    if kind in _CHAINS:
        return whole / bandwidth + steps * latency_ns
    once = whole * (ranks - 1) / ranks / bandwidth + steps * latency_ns
    return once * (2 if kind in _TWO_PHASES else 1)


def _gloo_ns(kind: int, whole: int, ranks: int, bandwidth: float, latency_ns: float) -> float:
    depth, passed = _depth(ranks), whole * (ranks - 1) / ranks / bandwidth
    if kind == Type.BROADCAST:
        return depth * (depth + 1) / 2 * whole / bandwidth + depth * latency_ns
    if kind == Type.BARRIER:
        return depth * latency_ns
    if kind == Type.ALL_TO_ALL:
        return passed + latency_ns
    phases = 2 if kind in (Type.ALL_REDUCE, Type.REDUCE, Type.REDUCE_SCATTER) else 1
    return phases * (passed + (ranks - 1) * latency_ns)


def _nccl_ns(kind: int, whole: int, ranks: int, bandwidth: float, latency_ns: float) -> float:
    passed, steps = whole * (ranks - 1) / ranks / bandwidth, ranks - 1
    if kind == Type.ALL_TO_ALL:
        return passed + latency_ns
    if kind in _CHAINS:
        passed = whole / bandwidth
    phases = 2 if kind in _TWO_PHASES else 1
    times = [phases * (passed / share + steps * part * latency_ns) for share, part in _RING_PROTOCOLS]
    if kind in _TWO_PHASES:
        times += [
            2 * (whole / bandwidth / share + _depth(ranks) * part * latency_ns) for share, part in _TREE_PROTOCOLS
        ]
    return min(times)


def _depth(ranks: int) -> int:
    """log2, rounded up."""
    return (ranks - 1).bit_length()
