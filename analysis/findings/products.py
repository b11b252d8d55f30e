"""Findings about GEMMs far below the device peak, explained by their size, kernel or dtype."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...trace.columns import matching
from ...trace.conventions import MAX_NAME
from ...trace.dtypes import itemsize
from ...trace.kernel_kinds import computes_products
from ..devices import Device
from ..flops import Product
from ..summary import Analysis
from .case import Case, OfWorstRank, RankOfCase
from .finding import CONFIRMED, INFERRED, PREDICTED, Candidate, Evidence, Intervention
from .proofs import place_of, time_of_work
from .work_items import PRODUCT_WORK, WorkItems, work_items

# A GEMM is slow if it reaches less than this share of its bound. For large aligned sizes, libraries reach 60 to 80%.
# Power limits, clocks or a partly filled last wave of tiles may explain 40 to 60%.
_SLOW = 0.4
# Share of the bound that GEMMs of suitable sizes reach: low, usual, high.
_REACHED = (0.35, 0.55, 0.8)
# Minimum duration of a GEMM. Launch and ramp-up dominate the time of shorter GEMMs.
_LEAST_NS = 10_000
# Minimum duration of a kernel.
_LAUNCH_NS = 3_000
# Maximum number of GEMM sizes to replay, longest first. Each size needs its own pass over the replay edges.
_REPLAYED = 16
# Minimum FLOPs per GEMM if no peak is known. Smaller GEMMs may be memory-bound.
_LARGE_FLOPS = 10**9
# Smallest dimension of a tensor core tile (mma.m16n8k16, MFMA 16×16).
_SMALL = 16
# Alignment of rows in bytes. Kernels load 16 bytes at a time from aligned rows; cuBLAS is slower on unaligned rows.
# See NVIDIA, Matrix Multiplication Background User's Guide, requirements to use tensor cores.
_ALIGNED_BYTES = 16
# Changing the sizes is worthwhile only if the GEMMs take at least this share of the operator time.
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class ProductGroup:
    # Positions of the GEMMs in `WorkItems`.
    items: tuple[int, ...]
    op: str
    # Dimensions per GEMM; None if shapes are not recorded.
    extents: Product | None
    # The dtype is "tf32" if the kernel name contains it.
    dtype: str
    # Total time of the GEMMs, ns.
    ns: int
    # Total minimum time of the GEMMs at the device peaks, ns; −1 if unknown.
    bound_ns: int
    # Share of the peak FLOP/s that the GEMMs reach; None if unknown.
    flops_share: float | None
    # True if no peak is known. In this case, the fastest GEMM in the trace is assumed to reach `_REACHED` of its bound.
    compared: bool = False

    @property
    def reached(self) -> float | None:
        """Share of the bound that the GEMMs reach; None if unknown."""
        return self.bound_ns / self.ns if self.bound_ns >= 0 and self.ns else None

    @property
    def text(self) -> str:
        if self.extents is None:
            return self.op
        batch, m, n, k = self.extents
        return f"{self.op} {f'{batch:,} × ' if batch > 1 else ''}({m:,}, {k:,}) · ({k:,}, {n:,})"


def product_groups(case: Case) -> tuple[tuple[ProductGroup, ...], ...]:
    return case.once(lambda of: tuple(_groups(of, rank) for rank in range(len(of.traces))), "products")


def _groups(case: Case, rank: int) -> tuple[ProductGroup, ...]:
    items, analysis = work_items(case)[rank], case.analyses[rank]
    if not items.on_device:
        return ()
    work, members = analysis.work, dict[tuple[str, Product | None, str, str], list[int]]()
    for item in np.flatnonzero(items.kind == PRODUCT_WORK).tolist():
        event = int(items.event[items.first[item]])
        extents, dtype = items.product(item), work.dtypes[work.dtype[event]]
        members.setdefault((items.label(item), extents, dtype, items.kernel(item)), []).append(item)
    found = []
    for (op, extents, dtype, _), at in members.items():
        ns, bound = items.time(at), items.bound_ns[at]
        device = analysis.devices.get(int(items.trace.gpu.device[items.event[items.first[at[0]]]]))
        peak = None if device is None else device.peak_flops(dtype)
        flops = items.flops[at]
        share = float(flops.sum() / peak / ns * 1e9) if peak and ns and (flops >= 0).all() else None
        found.append(
            ProductGroup(tuple(at), op, extents, dtype, ns, int(bound.sum()) if (bound >= 0).all() else -1, share)
        )
    found.sort(key=lambda group: (-group.ns, group.text, group.dtype))
    return tuple(_compared(items, found))


def _compared(items: WorkItems, groups: Sequence[ProductGroup]) -> list[ProductGroup]:
    flops = [items.flops[list(group.items)] for group in groups]
    rates = {
        at: float(done.sum() / group.ns)
        for at, (group, done) in enumerate(zip(groups, flops, strict=True))
        if group.bound_ns < 0 and group.ns and (done >= 0).all()
    }
    best: dict[str, float] = {}
    for at, rate in rates.items():
        if flops[at].min() >= _LARGE_FLOPS and not why_slow_extents(groups[at]):
            best[groups[at].dtype] = max(best.get(groups[at].dtype, 0.0), rate)
    return [
        replace(group, bound_ns=round(group.ns * rates[at] / best[group.dtype] * _REACHED[1]), compared=True)
        if at in rates and group.dtype in best and flops[at].min() >= _LARGE_FLOPS
        else group
        for at, group in enumerate(groups)
    ]


def _slow(group: ProductGroup) -> bool:
    reached = group.reached
    return reached is not None and reached < _SLOW and group.ns >= _LEAST_NS * len(group.items)


def why_slow_extents(group: ProductGroup) -> str:
    """Return the reason why a GEMM of this size is slow; "" if the size is suitable.

    Rows of the operands and of the result start at multiples of `n` or `k` elements. Rows of a transposed operand start
    at multiples of `m`, but traces may not record transposition.

    Example:
        >>> why_slow_extents(ProductGroup((0,), "aten::bmm", Product(96, 3137, 3137, 64), "bfloat16", 1, 1, None))
        'n = 3,137 is odd'
    """
    if group.extents is None:
        return ""
    batch, m, n, k = group.extents
    size = itemsize("float32" if group.dtype == "tf32" else group.dtype)
    small = [f"{name} = {extent:,}" for name, extent in (("m", m), ("n", n), ("k", k)) if extent < _SMALL]
    if small and batch > 1:
        return f"{' and '.join(small)} fill{'s' if len(small) == 1 else ''} less than a tile of {_SMALL}"
    if size is None:
        return ""
    unaligned = {
        name: extent for name, extent in (("n", n), ("k", k)) if extent * size % _ALIGNED_BYTES and extent >= _SMALL
    }
    texts = [
        f"{name} = {extent:,} is {'odd' if extent % 2 else f'not a multiple of {_ALIGNED_BYTES // size}'}"
        for name, extent in unaligned.items()
    ]
    return " and ".join(texts)


def _change(items: WorkItems, groups: Sequence[ProductGroup]) -> tuple[list[Intervention], float, float]:
    changes, least, middle, most = [], 0.0, 0.0, 0.0
    for group in sorted(groups, key=lambda group: -group.ns)[:_REPLAYED]:
        slow, usual, fast = (group.bound_ns / share + _LAUNCH_NS * len(group.items) for share in _REACHED)
        if usual >= group.ns:
            continue
        changes.append(Intervention(f"kernel*{usual / group.ns:.6f}", items.rows(group.items)))
        least, middle, most = least + max(group.ns - slow, 0), middle + group.ns - usual, most + group.ns - fast
    return changes, least / middle if middle else 0.0, most / middle if middle else 0.0


def _share_text(group: ProductGroup) -> str:
    if group.compared:
        return f"{(group.reached or 0) / _REACHED[1]:.0%} of the rate of the fastest GEMM of this dtype"
    flops = "" if group.flops_share is None else f"{group.flops_share:.1%} of peak FLOP/s, "
    return f"{flops}{group.reached or 0:.0%} of its bound"


class ProductDimensions(OfWorstRank):
    """Slow GEMMs with dimensions that do not fill a tile or that prevent aligned loads.

    The estimated gain assumes that they become as fast as GEMMs of suitable sizes (`_REACHED`).
    """

    id = "product-dimensions"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        items = work_items(case)[rank]
        groups = [group for group in product_groups(case)[rank] if _slow(group) and why_slow_extents(group)]
        changes, low, high = _change(items, groups)
        if not changes:
            return
        ns = sum(group.ns for group in groups)
        groups.sort(key=lambda group: ("odd" not in why_slow_extents(group), -group.ns))
        evidence = [
            time_of_work(
                items,
                f"{group.text} in {group.dtype}, {len(group.items)} times, {group.ns / 1e6:,.3f} ms:"
                f" {why_slow_extents(group)}; {_share_text(group)}",
                group.items,
            )
            for group in groups[:4]
        ]  # fmt: skip
        evidence += _older_kernels(items, groups)
        first = groups[0]
        every = [at for group in groups for at in group.items]
        candidate = Candidate(
            self.id,
            f"GEMMs with unsuitable dimensions take {ns / 1e6:,.1f} ms, {ns / max(items.total_ns, 1):.0%} of"
            f" {items.what} (for example {first.text}: {why_slow_extents(first)}; {_share_text(first)})",
            place_of(items.trace, items.rows(every)),
            tuple(evidence),
            ns,
            PREDICTED if any(group.compared for group in groups) else INFERRED,
            "pad the dimensions to multiples of 64, or at least of 8 for 16-bit and 16 for 8-bit dtypes (sequence"
            " length, vocabulary, hidden size); combine many small GEMMs in a fused kernel or one larger GEMM",
            "the GEMMs reach more of the peak in the GEMM table, and kernel names contain align8",
            least_share=_LEAST_SHARE,
        )  # fmt: skip
        yield of.candidate(candidate, tuple(changes), low, high)


# The following code finds kernels that were built for an older architecture.

_MADE_FOR = (
    (re.compile(r"ISA(\d\d)[0-9a-f]_"), 1), (re.compile(r"(?:^|[^a-z0-9])sm(\d{2,3})_"), 1),
    (re.compile(r"cutlass_(\d{2,3})_"), 1),
)  # fmt: skip
_NAMED = {"volta_": 70, "turing_": 75, "ampere_": 80}
# GEMMs in full float32 do not use tensor cores, so the same kernels run on all architectures.
_NO_TENSOR_CORES = re.compile(r"sgemm|scudnn|dgemm|simt|gemv|f32f32_f32f32_f32|_SB_|_DB_", re.IGNORECASE)


def made_for(kernel: str) -> int | None:
    """Return the compute capability in a kernel name, multiplied by 10, such as 80 for 8.0.

    Return None if the name does not contain it, or if the kernel does not use tensor cores.

    Example:
        >>> [made_for(name) for name in ("cutlass_80_tensorop_bf16_s16816gemm_bf16", "volta_sgemm_64x64_tn")]
        [80, None]
    """
    if _NO_TENSOR_CORES.search(kernel, 0, MAX_NAME):
        return None
    for pattern, part in _MADE_FOR:
        found = pattern.search(kernel, 0, MAX_NAME)
        if found is not None:
            return int(found[part])
    return next((arch for word, arch in _NAMED.items() if kernel.startswith(word)), None)


def _capability(items: WorkItems, item: int) -> int | None:
    properties = items.trace.properties.get(int(items.trace.gpu.device[items.event[items.first[item]]]), {})
    major, minor = properties.get("computeMajor"), properties.get("computeMinor")
    return major * 10 + minor if isinstance(major, int) and isinstance(minor, int) else None


def _older(items: WorkItems, group: ProductGroup) -> tuple[int, int] | None:
    made, device = made_for(items.kernel(group.items[0])), _capability(items, group.items[0])
    return (made, device) if made is not None and device is not None and made // 10 < device // 10 else None


def _older_kernels(items: WorkItems, groups: Sequence[ProductGroup]) -> list[Evidence]:
    old = [(group, found) for group in groups if (found := _older(items, group)) is not None]
    if not old:
        return []
    made, device = old[0][1]
    text = f"GEMM kernels for compute capability {made / 10:.1f} on a device with {device / 10:.1f}"
    return [time_of_work(items, text, [at for group, _ in old for at in group.items])]


class OldKernels(OfWorstRank):
    """Slow GEMMs of suitable sizes that run kernels built for an older device generation."""

    id = "older-architecture"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        items = work_items(case)[rank]
        groups = [
            group
            for group in product_groups(case)[rank]
            if _slow(group) and not why_slow_extents(group) and _older(items, group) is not None
        ]
        changes, low, high = _change(items, groups)
        if not changes:
            return
        made, device = _older(items, groups[0]) or (0, 0)
        ns = sum(group.ns for group in groups)
        evidence = tuple(
            time_of_work(
                items, f"{group.text} on {items.kernel_text(group.items[0])}; {_share_text(group)}", group.items
            )
            for group in groups[:4]
        )  # fmt: skip
        candidate = Candidate(
            self.id,
            f"GEMMs take {ns / 1e6:,.1f} ms on kernels made for compute capability {made / 10:.1f},"
            f" on a device with {device / 10:.1f}: they reach {groups[0].reached or 0:.0%} of their bound",
            place_of(items.trace, items.rows(at for group in groups for at in group.items)),
            evidence,
            ns,
            PREDICTED,
            "update CUDA and cuBLAS; try torch.compile with max_autotune, or larger batches: libraries choose kernels"
            " of older generations for small GEMMs and for sizes or addresses that new kernels do not support",
            "kernel names contain sm90 or nvjet, and the kernels reach more of the peak",
            least_share=_LEAST_SHARE,
        )
        yield of.candidate(candidate, tuple(changes), low, high)


# The following code finds float32 GEMMs that do not use TF32.

_FULL_FLOAT32 = re.compile(r"sgemm|scudnn|simt_|ffma|f32f32_f32f32_f32|cudnn.*float.*fprop|fft2d_c2r", re.IGNORECASE)
# TF32 time divided by float32 time: worst, usual and best case. The peaks differ by a factor of 8 (A100) or 7.4 (H100).
# NVIDIA measured speedups of 2× to 5× for networks with GEMMs and convolutions.
_FACTORS = (0.6, 0.3, 0.15)
# Minimum ratio of the TF32 peak to the float32 peak.
_WORTH = 2.0


def _uses_tf32(device: Device, properties: Any) -> bool:
    tf32, full = device.tflops.get("tf32"), device.tflops.get("float32")
    nvidia = properties.get("warpSize") == 32 and properties.get("computeMajor", 0) >= 8
    return bool(nvidia and tf32 and full and tf32 >= _WORTH * full)


class NoTensorFloat(OfWorstRank):
    """GEMMs and convolutions in full float32 on a device that supports TF32."""

    id = "float32-without-tf32"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        items, analysis = work_items(case)[rank], case.analyses[rank]
        if not items.on_device:
            return
        trace = items.trace
        found = self._full(items, analysis)
        if not found:
            return
        ns = items.time(found)
        slow, usual, fast = (factor * ns for factor in _FACTORS)
        bound = self._memory_ns(items, analysis.devices, found)
        slow, usual, fast = (min(max(part, bound), ns) for part in (slow, usual, fast))
        if usual >= ns:
            return
        names = sorted({items.kernel_text(item) for item in found})
        device = next(iter(analysis.devices.values()))
        text = f"GEMMs and convolutions on full float32 kernels: {', '.join(names[:4])}"
        ratio = device.tflops["tf32"] / device.tflops["float32"]
        candidate = Candidate(
            self.id,
            f"GEMMs and convolutions in full float32 take {ns / 1e6:,.1f} ms,"
            f" {ns / max(items.total_ns, 1):.0%} of {items.what}, although the device supports TF32",
            place_of(trace, items.rows(found)),
            (time_of_work(items, f"{text} (the TF32 peak is {ratio:,.1f} times the float32 peak)", found),),
            ns,
            CONFIRMED,
            'use torch.set_float32_matmul_precision("high"), torch.backends.cudnn.allow_tf32 = True, or autocast to'
            " bfloat16, unless you need full float32 precision",
            "kernel names contain tf32, and the table of kernels shows type tf32",
            least_share=_LEAST_SHARE,
        )
        change = Intervention(f"kernel*{usual / ns:.6f}", items.rows(found))
        yield of.candidate(candidate, (change,), (ns - slow) / (ns - usual), (ns - fast) / (ns - usual))

    def _full(self, items: WorkItems, analysis: Analysis) -> list[int]:
        trace, event = items.trace, items.event[items.first[:-1]]
        able = [
            number for number, device in analysis.devices.items()
            if _uses_tf32(device, trace.properties.get(number, {}))
        ]  # fmt: skip
        found = np.isin(trace.gpu.device[event], able) & (items.ns >= _LEAST_NS)
        found &= matching(analysis.work.dtype[event], analysis.work.dtypes, ("", "float32").__contains__)
        found[found] = matching(
            items.kernel_name[found], trace.names,
            lambda name: computes_products(name) and _FULL_FLOAT32.search(name, 0, MAX_NAME),
        )  # fmt: skip
        return np.flatnonzero(found).tolist()

    def _memory_ns(self, items: WorkItems, devices: Any, found: Sequence[int]) -> float:
        moved = items.bytes[found]
        event = int(items.event[items.first[found[0]]])
        device = devices[int(items.trace.gpu.device[event])]
        return float(moved[moved >= 0].sum() / device.bytes_per_second * 1e9)
