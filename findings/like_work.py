"""Kernels that are slower than the same kernel is elsewhere in the trace, for the bytes or FLOPs that they do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..trace.columns import grouped
from .eager_attention import in_attention
from .finding import LIKELY, Candidate, Evidence, Intervention
from .module_paths import place_of
from .ranks import Part, on_ranks
from .work_items import COPY_WORK, NORM_WORK, POINTWISE_WORK, REDUCTION_WORK, SOFTMAX_WORK, WorkItems, work_items

if TYPE_CHECKING:
    from .case import Case

_BY_BYTES = (POINTWISE_WORK, COPY_WORK, NORM_WORK, REDUCTION_WORK, SOFTMAX_WORK)
_LEAST_NS = 20_000
"""Shorter kernels are bound by their start and their tail, so that their rate says nothing of the work."""
_SLOWER = 0.5
"""Rate over the best rate of like work: caches and clocks make less difference than this."""
_LEAST_SHARE_OF_PEAK = 0.5
"""Of the bandwidth: the better one has to be good itself, where the peak is known."""
_CACHED_BYTES = 64 << 20
"""Where the device's last cache is not known what moves less may come from it."""


@dataclass(frozen=True)
class LikeWork:
    """Items of one kernel and signature that are slow, and the rate that the kernel reaches elsewhere."""

    items: tuple[int, ...]
    kernel: str
    rate: float
    best: float


def slow_among_like(case: Case, rank: int) -> list[LikeWork]:
    """Items bound by memory that move fewer bytes a second than another signature of the same kernel does."""
    items = work_items(case)[rank]
    if not items.on_device:
        return []
    most_cached = max(
        (device.l2_bytes or _CACHED_BYTES for device in case.analyses[rank].devices.values()), default=_CACHED_BYTES
    )
    wanted = np.isin(items.kind, _BY_BYTES) & (items.bytes > most_cached) & (items.ns >= _LEAST_NS) & (items.call >= 0)
    wanted &= ~in_attention(case, rank)
    at = np.flatnonzero(wanted)
    if not len(at):
        return []
    gpu, calls = items.trace.gpu, items.calls
    kernel = gpu.name[items.event[items.first[at]]]
    single = np.diff(items.first)[at] == 1
    rates: dict[int, list[tuple[float, tuple[int, ...]]]] = {}
    for (code, _, one), mine in grouped(kernel, calls.signature[items.call[at]], single):
        if one:
            chosen = at[mine]
            rate = float(items.bytes[chosen].sum() / items.ns[chosen].sum())
            rates.setdefault(code, []).append((rate, tuple(chosen.tolist())))
    found = []
    for code, those in rates.items():
        best, example = max(those)
        bound, ns = items.bound_ns[list(example)], items.ns[list(example)]
        if (bound < 0).any() or bound.sum() < _LEAST_SHARE_OF_PEAK * ns.sum():
            continue
        found += [
            LikeWork(members, items.trace.names[code], rate, best) for rate, members in those if rate < _SLOWER * best
        ]
    return found


class SlowerThanLike:
    """A kernel bound by memory moves its bytes at half the rate, or less, that it reaches on other tensors of the
    trace."""

    id = "slower-than-like-work"

    def find(self, case: Case) -> Iterator[Candidate]:
        yield from on_ranks(case, self._of_rank)

    def _of_rank(self, case: Case, rank: int) -> Part | None:
        items, found = work_items(case)[rank], slow_among_like(case, rank)
        if not found:
            return None
        found.sort(key=lambda of: -items.time(of.items))
        ns = sum(items.time(of.items) for of in found)
        command = f"etplus analyze {items.trace.file} --by-shape: kernels"
        evidence = tuple(self._evidence(items, of, command) for of in found[:3])
        first = found[0]
        candidate = Candidate(
            self.id,
            f"{items.label(first.items[0])} moves {first.rate:,.0f} GB/s on some tensors and {first.best:,.0f} GB/s on"
            f" others of the trace, by the same kernel; the slow ones take {ns / 1e6:,.2f} ms",
            place_of(items.trace, items.rows(at for of in found for at in of.items)),
            evidence,
            ns,
            LIKELY,
            "look at the strides of the slow ones: a transposed or expanded input is read across rows; make the"
            " producer write"
            " it in the order in which it is read",
            "the rates of the two in the table of kernels by shape are alike",
        )
        changes = tuple(
            Intervention(f"kernel*{of.rate / of.best:.6f}", items.rows(of.items)) for of in found
        )  # fmt: skip
        return Part(candidate, changes, 0.5, 1.1)

    def _evidence(self, items: WorkItems, of: LikeWork, command: str) -> Evidence:
        signature = items.signature(of.items[0])
        shapes = signature.label if signature is not None else ""
        text = f"{items.label(of.items[0])} {shapes}, {len(of.items)} times at {of.rate:,.0f} GB/s, best {of.best:,.0f}"
        return Evidence(text, items.time(of.items), "ns", command)
