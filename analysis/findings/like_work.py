"""Operators that move bytes more slowly than other calls of the same operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...trace.columns import IntColumn, grouped, percentiles_of
from .case import Case, OfWorstRank, RankOfCase
from .eager_attention import in_attention
from .finding import INFERRED, Candidate, Evidence, Intervention
from .proofs import place_of, time_of_work
from .work_items import COPY_WORK, NORM_WORK, POINTWISE_WORK, REDUCTION_WORK, SOFTMAX_WORK, WorkItems, work_items

_BY_BYTES = (POINTWISE_WORK, COPY_WORK, NORM_WORK, REDUCTION_WORK, SOFTMAX_WORK)
_LEAST_NS = 20_000  # The start and tail of a shorter kernel distort its rate.
_SLOWER = 0.5  # A call is slow below this share of the best rate; caches and clocks cause smaller differences.
_LEAST_SHARE_OF_PEAK = 0.5  # minimum share of the peak bandwidth (if the peak is known) that the best rate must reach
_CACHED_BYTES = 64 << 20  # If the cache size is unknown, smaller transfers are assumed to be cached.


_BEST = 80  # The best rate is this percentile instead of the maximum, because caches may speed up individual events.
# Maximum number of shapes to replay, longest first. Each shape needs its own pass over the replay edges.
_REPLAYED = 16
_LEAST_SLOW = 3  # Minimum number of slow events per shape, because a single event may be slow by chance.


@dataclass(frozen=True)
class LikeWork:
    """Slow items that share an operator and a signature, with their rate and the operator's best rate in bytes/ns."""

    items: tuple[int, ...]
    rate: float
    best: float


def slow_among_like(case: Case, rank: int) -> list[LikeWork]:
    """Return memory-bound items that run alone and move bytes more slowly than other calls of the same operator."""
    items = work_items(case)[rank]
    at = _judged(items, case, rank)
    if not len(at):
        return []
    rate = items.bytes[at] / items.ns[at]
    bound = items.bound_ns[at] / items.ns[at]
    found = []
    for _, mine in grouped(items.calls.name[items.call[at]]):
        (best,) = percentiles_of(rate[mine], _BEST)
        good = mine[rate[mine] >= best]
        slow = mine[rate[mine] < _SLOWER * best]
        if not len(slow) or bound[good].min() < _LEAST_SHARE_OF_PEAK:
            continue
        for _, members in grouped(items.calls.signature[items.call[at[slow]]]):
            chosen = at[slow[members]]
            if len(chosen) >= _LEAST_SLOW:
                own = float(items.bytes[chosen].sum() / items.ns[chosen].sum())
                found.append(LikeWork(tuple(chosen.tolist()), own, best))
    return found


def _judged(items: WorkItems, case: Case, rank: int) -> IntColumn:
    if not items.on_device:
        return np.zeros(0, np.int64)
    devices = case.analyses[rank].devices.values()
    cached = max((device.l2_bytes or _CACHED_BYTES for device in devices), default=_CACHED_BYTES)
    wanted = np.isin(items.kind, _BY_BYTES) & (items.bytes > cached) & (items.ns >= _LEAST_NS) & (items.call >= 0)
    wanted &= ~in_attention(case, rank) & (np.diff(items.first) == 1) & (items.bound_ns > 0)
    at = np.flatnonzero(wanted)
    return at[~_beside(items, at)]


def _beside(items: WorkItems, at: IntColumn) -> npt.NDArray[np.bool_]:
    gpu, found = items.trace.gpu, np.zeros(len(at), np.bool_)
    event = items.event[items.first[at]]
    for (device, stream), mine in grouped(gpu.device[event], gpu.stream[event]):
        others = np.flatnonzero((gpu.device == device) & (gpu.stream != stream))
        if len(others):
            others = others[np.argsort(gpu.ts[others], kind="stable")]
            reach = np.maximum.accumulate(gpu.end[others])
            last = np.searchsorted(gpu.ts[others], items.end[at[mine]]) - 1
            found[mine] = (last >= 0) & (reach[np.maximum(last, 0)] > items.ts[at[mine]])
    return found


class SlowerThanLike(OfWorstRank):
    """A memory-bound operator that reaches less than half of its best bandwidth in some calls."""

    id = "slower-than-like-work"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        items, found = work_items(case)[rank], slow_among_like(case, rank)
        if not found:
            return
        found.sort(key=lambda of: -items.time(of.items))
        ns = sum(items.time(of.items) for of in found)
        evidence = tuple(self._evidence(items, of) for of in found[:3])
        first = found[0]
        candidate = Candidate(
            self.id,
            f"{items.label(first.items[0])} moves {first.rate:,.0f} GB/s in {len(first.items)} calls, but"
            f" {first.best:,.0f} GB/s in other calls; the slow calls take {ns / 1e6:,.2f} ms",
            place_of(items.trace, items.rows(at for of in found for at in of.items)),
            evidence,
            ns,
            INFERRED,
            "look at the strides of the inputs of the slow calls: transposed or expanded inputs are read across rows;"
            " let the producer write them in the order in which they are read",
            "the kernel table by shape shows similar rates for all calls",
        )
        changes = tuple(
            Intervention(f"kernel*{of.rate / of.best:.6f}", items.rows(of.items)) for of in found[:_REPLAYED]
        )  # fmt: skip
        yield of.candidate(candidate, changes, 0.5, 1.1)

    def _evidence(self, items: WorkItems, of: LikeWork) -> Evidence:
        signature = items.signature(of.items[0])
        shapes = signature.label if signature is not None else ""
        text = f"{items.label(of.items[0])} {shapes}, {len(of.items)} times at {of.rate:,.0f} of {of.best:,.0f} GB/s"
        return time_of_work(items, text, of.items)
