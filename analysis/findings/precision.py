"""Findings about dtypes that are wider than necessary: float64, and float32 on a busy device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...trace.columns import matching
from .case import Case, OfWorstRank, RankOfCase
from .finding import CONFIRMED, PREDICTED, Candidate, Intervention
from .proofs import place_of, time_of_work
from .work_items import PRODUCT_WORK, WorkItems, work_items

_LEAST_SHARE = 0.05  # minimum share of the operator time; intended float64 sums and losses take less
# float32 time over float64 time: worst, usual and best case. float32 needs half the bytes and vector operations.
_FACTORS = (0.65, 0.5, 0.4)


class DoublePrecision(OfWorstRank):
    """Operators on float64 tensors. They move twice the bytes, and most devices have far fewer FLOP/s in float64."""

    id = "double-precision"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        items = work_items(case)[rank]
        found = _in_double(items)
        ns = items.time(found) if found else 0
        if ns < _LEAST_SHARE * items.total_ns or not ns:
            return
        names: dict[str, list[int]] = {}
        for at in found:
            names.setdefault(items.label(at), []).append(at)
        most = sorted(names.items(), key=lambda pair: (-items.time(pair[1]), pair[0]))[:3]
        products = [at for at in found if items.kind[at] == PRODUCT_WORK]
        ratio = _peak_ratio(case, rank)
        evidence = [time_of_work(items, f"{name} on float64", at) for name, at in most]
        if ratio is not None:
            text = f"{evidence[0].text} (the float32 peak of the device is {ratio:,.0f} times the float64 peak)"
            evidence[0] = replace(evidence[0], text=text)
        candidate = Candidate(
            self.id,
            f"operators on float64 take {ns / 1e6:,.2f} ms, {ns / max(items.total_ns, 1):.0%} of {items.what}",
            place_of(items.trace, items.rows(found)),
            tuple(evidence),
            ns,
            CONFIRMED,
            "find the source of float64: NumPy arrays (use torch.from_numpy(x).float()) or torch.set_default_dtype; "
            "cast once, at the input",
            "the tables of operators by shape and of kernels show float32",
        )
        others = sorted(set(found) - set(products))
        by_product, kept = _products_in_single(ratio)
        word = "kernel" if items.on_device else f"op:{items.name(found[0])}"
        changes = tuple(
            Intervention(f"{word}*{factor:.4f}", items.rows(some))
            for some, factor in ((products, by_product), (others, _FACTORS[1]))
            if some
        )
        low, high = ((1 - factor) / (1 - _FACTORS[1]) for factor in (_FACTORS[0], _FACTORS[2]))
        if products:
            low = min(low, (1 - kept) / (1 - by_product))
        yield of.candidate(candidate, changes, low, high)


def _products_in_single(ratio: float | None) -> tuple[float, float]:
    """Return the usual and the worst ratio of a GEMM's float32 time to its float64 time."""
    if ratio is None:
        return _FACTORS[1], _FACTORS[0]
    if ratio >= 1 / _FACTORS[1]:
        return 1 / ratio, _FACTORS[0]
    return (1 / ratio + _FACTORS[1]) / 2, min(1 / ratio, 1.0)


def _in_double(items: WorkItems) -> list[int]:
    double = [
        any(tensor.dtype == "float64" and tensor.numel > 1 for tensor in signature.tensors)
        for signature in items.trace.signatures
    ]
    if not any(double):
        return []
    found: list[int] = np.flatnonzero(np.append(np.array(double, np.bool_), False)[items.signature_code]).tolist()
    return found


def _peak_ratio(case: Case, rank: int) -> float | None:
    for device in case.analyses[rank].devices.values():
        full, double = device.peak_flops("float32"), device.peak_flops("float64")
        if full and double:
            return full / double
    return None


# bfloat16 time divided by float32 or TF32 time (worst, usual and best case), for GEMMs and for other operators.
_MIXED_PRODUCTS, _MIXED_OTHERS = (0.8, 0.5, 0.3), (0.9, 0.65, 0.5)
_WORTH = 2.0  # minimum ratio of the bfloat16 peak to the float32 peak of the device
# Minimum busy time as a share of the makespan, and minimum time of float32 GEMMs as a share of the busy time.
_BUSY, _IN_FLOAT32 = 0.8, 0.3


class MixedPrecision:
    """A device that is busy with float32 GEMMs although 16-bit dtypes are faster on it."""

    id = "mixed-precision"

    def find(self, case: Case) -> Iterator[Candidate]:
        if len(case.traces) == 1:  # Jobs are skipped, because the trace of a single rank also shows the problem.
            yield from self._of_rank(RankOfCase(case, 0))

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        items, analysis = work_items(case)[rank], case.analyses[rank]
        if not items.on_device or not len(items):
            return
        busy = sum(use.busy_ns for use in analysis.device_use) / max(len(analysis.device_use), 1)
        dtypes = analysis.work.dtypes
        dtype = analysis.work.dtype[items.event[items.first[:-1]]]
        products = items.kind == PRODUCT_WORK
        single = matching(dtype, dtypes, ("float32", "tf32").__contains__)
        half = products & matching(dtype, dtypes, ("float16", "bfloat16").__contains__)
        at = np.flatnonzero(products & single)
        ns = int(items.ns[at].sum())
        faster = all((device.peak_flops("bfloat16") or 0) >= _WORTH * (device.peak_flops("float32") or np.inf)
                     for device in analysis.devices.values())  # fmt: skip
        if busy < _BUSY * case.makespan_ns or ns < _IN_FLOAT32 * items.total_ns or half.any() or not faster:
            return
        others = np.flatnonzero(single & ~products)
        candidate = Candidate(
            self.id,
            f"the device is busy {busy / case.makespan_ns:.0%} of the time, and GEMMs in float32 or TF32 take"
            f" {ns / max(items.total_ns, 1):.0%} of {items.what}: no GEMM runs in 16 bits",
            place_of(items.trace, items.rows(at.tolist())),
            (time_of_work(items, "GEMMs in float32 or TF32", at.tolist()),),
            ns + int(items.ns[others].sum()),
            PREDICTED,
            'use torch.autocast("cuda", torch.bfloat16) for forward and loss, and check that the loss stays the same',
            "the table of kernels shows type bfloat16, and the forward phase is shorter",
        )
        changes = [Intervention(f"kernel*{_MIXED_PRODUCTS[1]}", items.rows(at.tolist()))]
        if len(others):
            changes.append(Intervention(f"kernel*{_MIXED_OTHERS[1]}", items.rows(others.tolist())))
        low, high = ((1 - _MIXED_PRODUCTS[end]) / (1 - _MIXED_PRODUCTS[1]) for end in (0, 2))
        yield of.candidate(candidate, tuple(changes), low, high)
