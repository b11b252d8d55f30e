"""Work in float64, which the model was hardly meant to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .finding import MEASURED, Candidate, Intervention
from .module_paths import place_of
from .proofs import time_of_work
from .ranks_of_case import RankOfCase, worst_rank
from .work_items import PRODUCT_WORK, WorkItems, work_items

if TYPE_CHECKING:
    from .case import Case

_LEAST_SHARE = 0.05
"""Of the time of a trace: sums and losses are often kept in float64 on purpose, and take less."""
_FACTORS = (0.65, 0.5, 0.4)
"""Time in float32 over that in float64, at least saved to most: half the bytes, and half the width of vectors."""


class DoublePrecision:
    """Operators on tensors of float64: twice the bytes and, on most devices, a fraction of the FLOP/s of float32."""

    id = "double-precision"

    def find(self, case: Case) -> Iterator[Candidate]:
        return worst_rank(case, self._of_rank)

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
            text = f"{evidence[0].text} (the device's peak in float32 is {ratio:,.0f} times that)"
            evidence[0] = replace(evidence[0], text=text)
        candidate = Candidate(
            self.id,
            f"operators on float64 take {ns / 1e6:,.2f} ms, {ns / max(items.total_ns, 1):.0%} of {items.what}",
            place_of(items.trace, items.rows(found)),
            tuple(evidence),
            ns,
            MEASURED,
            "find where float64 comes from: arrays of NumPy (torch.from_numpy(x).float()),"
            " torch.set_default_dtype; cast"
            " it once, at the input",
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
    """Time of a product in float32 over that in float64: what is likely, and the most.

    A product that FLOPs bound gains what the device's peaks differ by, one that bytes bound half. On devices whose
    tensor cores compute in float64 the peaks are alike: there it may gain nothing (measured on an H100: 17%).
    """
    if ratio is None:
        return _FACTORS[1], _FACTORS[0]
    if ratio >= 1 / _FACTORS[1]:
        return 1 / ratio, _FACTORS[0]
    return (1 / ratio + _FACTORS[1]) / 2, min(1 / ratio, 1.0)


def _in_double(items: WorkItems) -> list[int]:
    """Items whose operator has a tensor of float64 with more than one element."""
    double = [
        any(tensor.dtype == "float64" and tensor.numel > 1 for tensor in signature.tensors)
        for signature in items.trace.signatures
    ]
    if not any(double):
        return []
    code = np.where(items.call >= 0, np.append(items.calls.signature, -1)[items.call], -1)
    found: list[int] = np.flatnonzero(np.append(np.array(double, np.bool_), False)[code]).tolist()
    return found


def _peak_ratio(case: Case, rank: int) -> float | None:
    """Peak FLOP/s in float32 over those in float64, None where they are not known."""
    for device in case.analyses[rank].devices.values():
        full, double = device.peak_flops("float32"), device.peak_flops("float64")
        if full and double:
            return full / double
    return None
