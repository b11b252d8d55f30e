"""Find eager attention: several operators that one fused attention operator could replace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ...trace.columns import mask_at
from ..flops import Product
from .case import Case, OfWorstRank, RankOfCase
from .finding import CONFIRMED, INFERRED, Candidate, Intervention
from .proofs import place_of, time_of_work, time_on_host
from .work_items import COPY_WORK, POINTWISE_WORK, PRODUCT_WORK, SOFTMAX_WORK, WorkItems, work_items

_REACH = 8  # maximum number of items between softmax and a GEMM: enough for scale, mask, cast, dropout and copies
# Maximum number of attention sizes to replay. Each size needs its own pass over the replay edges.
_CLASSES = 8
# Number of queries and of keys in a tile of a fused kernel. Partial and full tiles take the same time.
_TILE = 64
# Low, usual and high share of the bound that fused kernels reach. The bound is the longer of FLOP time and byte time.
# FlashAttention-2 reports 50 to 73% of the peak on an A100 and 35 to 40% on an H100 for head sizes 64 and 128.
# FlashAttention-3 reports 75% on an H100. ROCm kernels reach 30 to 45%.
_SHARES = (0.3, 0.45, 0.7)
_LAUNCH_NS = 3_000  # minimum duration of a kernel
_BACKWARD_WORK = 2.5  # A fused backward recomputes the scores, so it runs five GEMMs; the forward runs two.
# If no peak is known, the fused operator is assumed to take this multiple of the time of both GEMMs (high, usual, low).
# On a CPU, fusing small attention layers gains little: 12% for an untraced step that spends 65% of its time in them.
_OF_PRODUCTS, _OF_PRODUCTS_CPU = (1.15, 0.95, 0.6), (2.0, 1.5, 1.0)

# Users cannot change the implementation of these fused PyTorch operators.
_ONE_OPERATOR = frozenset(("aten::_native_multi_head_attention", "aten::_transformer_encoder_layer_fwd"))


@dataclass(frozen=True)
class AttentionGroup:
    items: tuple[int, ...]  # the forward items in order, including `softmax` and the GEMMs `first` and `last`
    softmax: int
    first: int
    last: int
    backward: tuple[int, ...] = ()  # () if the backward items are unknown
    products: tuple[Product, Product] | None = None  # the sizes of both GEMMs, or None if shapes are not recorded


def attention_groups(case: Case) -> tuple[tuple[AttentionGroup, ...], ...]:
    return case.once(lambda of: tuple(_groups(items) for items in work_items(of)), "attention groups")


def _groups(items: WorkItems) -> tuple[AttentionGroup, ...]:
    found = []
    for softmax in np.flatnonzero(items.kind == SOFTMAX_WORK).tolist():
        first, last = (_product_beside(items, softmax, step) for step in (-1, 1))
        if first is None or last is None:
            continue
        group = _checked(items, first, softmax, last)
        if group is not None:
            found.append(group)
    return _with_backward(items, found)


def _product_beside(items: WorkItems, softmax: int, step: int) -> int | None:
    for at in range(softmax + step, softmax + step * (_REACH + 1), step):
        if not 0 <= at < len(items) or items.lane[at] != items.lane[softmax]:
            return None
        if items.kind[at] == PRODUCT_WORK:
            return at
        if items.kind[at] not in (POINTWISE_WORK, COPY_WORK):
            return None
    return None


def _checked(items: WorkItems, first: int, softmax: int, last: int) -> AttentionGroup | None:
    one, other, scores = items.product(first), items.product(last), items.output(softmax)
    if one is None or other is None or not scores:
        batched = all(items.name(at).rpartition("::")[2] in ("bmm", "baddbmm") for at in (first, last))
        fits = batched and scores is None
        products = None
    else:
        size = prod(scores)
        makes = one.batch * one.m * one.n == size and one.n == scores[-1]
        uses = other.batch * other.m * other.k == size and other.k == scores[-1]
        fits, products = makes and uses and one.batch > 1 and len(scores) > 2, (one, other)
    if not fits:
        return None
    if any(name in _ONE_OPERATOR for name in _callers(items, softmax)):
        return None
    inside = range(_begin(items, first), last + 1)
    return AttentionGroup(tuple(inside), softmax, first, last, products=products)


def _begin(items: WorkItems, first: int) -> int:
    calls, call = items.calls, items.call
    top = int(calls.parent[call[first]]) if call[first] >= 0 else -1
    at = first
    while at > 0 and top >= 0 and items.kind[at - 1] == COPY_WORK and items.lane[at - 1] == items.lane[first]:
        above = int(call[at - 1])
        while above >= 0 and above != top:
            above = int(calls.parent[above])
        if above != top:
            break
        at -= 1
    return at


def _with_backward(items: WorkItems, groups: Sequence[AttentionGroup]) -> tuple[AttentionGroup, ...]:
    origin, calls = items.trace.origin, items.trace.calls
    owner = np.full(len(calls) + 1, -1, np.int64)
    for number, group in enumerate(groups):
        mine = items.call[list(group.items)]
        mine = mine[(mine >= 0) & (mine < len(calls))]
        owner[mine] = number
        above = calls.parent[mine]  # Autograd numbers `aten::softmax` but not its callee `aten::_softmax`.
        named = [at for at in above.tolist() if at >= 0 and items.trace.names[calls.name[at]].startswith("aten::")]
        owner[named] = number
    call = np.where(items.call < len(calls), items.call, -1)
    forward = np.append(origin.forward, -1)[call]
    of = owner[np.where(forward >= 0, forward, len(calls))]
    backward: dict[int, list[int]] = {}
    for item in np.flatnonzero(of >= 0).tolist():
        backward.setdefault(int(of[item]), []).append(item)
    return tuple(
        replace(group, backward=tuple(sorted(set(backward.get(number, ())) - set(group.items))))
        for number, group in enumerate(groups)
    )


def in_attention(case: Case, rank: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of the rank's items that belong to eager attention. Other findings skip these items."""
    items = work_items(case)[rank]
    groups = attention_groups(case)[rank]
    every = [at for group in groups for at in (*group.items, *group.backward)]
    return mask_at(len(items), every) if every else np.zeros(len(items), np.bool_)


def _fused_ns(items: WorkItems, group: AttentionGroup, case: Case, rank: int) -> tuple[float, float, float]:
    products_ns = items.time([group.first, group.last])
    work = 1 + (_BACKWARD_WORK if group.backward else 0)
    bound = _bound_ns(items, group, case, rank)
    if bound is None:
        backward = [at for at in group.backward if items.kind[at] == PRODUCT_WORK]
        own = products_ns + (items.time(backward) if backward else 0)
        slow, middle, fast = (share * own for share in (_OF_PRODUCTS if items.on_device else _OF_PRODUCTS_CPU))
        return slow, middle, fast
    slow, middle, fast = (bound * work / share + _LAUNCH_NS for share in _SHARES)
    return slow, middle, fast


def _bound_ns(items: WorkItems, group: AttentionGroup, case: Case, rank: int) -> float | None:
    if group.products is None or not items.on_device:
        return None
    analysis, event = case.analyses[rank], int(items.events([group.first])[0])
    device = analysis.devices.get(int(items.trace.gpu.device[event]))
    dtype = analysis.work.dtypes[analysis.work.dtype[event]]
    peak = None if device is None else device.peak_flops(dtype)
    signature = items.signature(group.first)
    if device is None or not peak or signature is None:
        return None
    one, other = group.products
    queries, keys = (-(-extent // _TILE) * _TILE for extent in (one.m, one.n))
    flops = 2 * one.batch * queries * keys * (one.k + other.n)
    size = (signature.tensors[0].nbytes or 0) // max(signature.tensors[0].numel, 1)
    moved = one.batch * (one.m * one.k + one.n * one.k + other.k * other.n + other.m * other.n) * size
    return max(flops / peak * 1e9, moved / device.bytes_per_second * 1e9)


class EagerAttention(OfWorstRank):
    """Eager attention runs GEMM, softmax and GEMM as separate operators, and moves all scores through memory.

    The gain assumes one fused operator per attention, with the usual share of the device peaks (`_SHARES`). If no peak
    is known, the fused operator is assumed to take about the time of both GEMMs.
    """

    id = "eager-attention"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        items, groups = work_items(case)[rank], attention_groups(case)[rank]
        classes: dict[object, list[AttentionGroup]] = {}
        for group in groups:
            taken = items.time((*group.items, *group.backward))
            if _fused_ns(items, group, case, rank)[1] < taken:
                classes.setdefault((group.products, bool(group.backward)), []).append(group)
        if not classes:
            return
        changes: list[Intervention] = []
        gone: list[int] = []
        spans, least, most, middle = 0, 0.0, 0.0, 0.0
        for members in _few(list(classes.values())):
            taken = sum(items.time((*group.items, *group.backward)) for group in members)
            slow, usual, fast = np.sum([_fused_ns(items, group, case, rank) for group in members], axis=0).tolist()
            kept = [group.first for group in members]
            gone += [at for group in members for at in (*group.items, *group.backward) if at != group.first]
            factor = usual / max(items.time(kept), 1)
            word = "kernel" if items.on_device else f"op:{items.name(kept[0])}"
            changes.append(Intervention(f"{word}*{factor:.6f}", items.rows(kept)))
            spans, middle = spans + taken, middle + taken - usual
            least, most = least + max(taken - slow, 0.0), most + taken - fast
        changes.insert(0, Intervention("remove op:aten::_softmax", items.all_rows(gone)))
        yield of.candidate(
            self._candidate(items, [group for members in classes.values() for group in members], spans),
            tuple(changes), least / middle, most / middle,
        )  # fmt: skip

    def _candidate(self, items: WorkItems, groups: Sequence[AttentionGroup], taken: int) -> Candidate:
        every = [at for group in groups for at in (*group.items, *group.backward)]
        softmax = [group.softmax for group in groups]
        ns, total = items.time(softmax), max(items.total_ns, 1)
        evidence = [
            time_of_work(items, f"{len(groups)} attentions (GEMMs, softmax and operators in between)", every),
            time_of_work(items, "softmax between two batched GEMMs", softmax),
        ]
        copies = [at for at in every if items.kind[at] in (POINTWISE_WORK, COPY_WORK)]
        if copies:
            names = ", ".join(sorted({items.label(at) for at in copies})[:4])
            evidence.append(time_of_work(items, f"operators before and between the GEMMs: {names}", copies))
        inside_sdpa = any("scaled_dot_product" in name for name in _callers(items, groups[0].first))
        advice = (
            "scaled_dot_product_attention used its math backend: to see why, use torch.nn.attention.sdpa_kernel("
            "SDPBackend.FLASH_ATTENTION), which warns about masks, dtypes and head sizes that no fused kernel supports"
            if inside_sdpa
            else "use scaled_dot_product_attention instead of the two GEMMs and softmax (from torch.nn.functional;"
            ' in transformers models: attn_implementation="sdpa")'
        )
        extents = max(groups, key=lambda group: items.time(group.items)).products
        shape = "" if extents is None else f" over {extents[0].m:,} × {extents[0].n:,} scores"
        return Candidate(
            "eager-attention",
            f"eager attention{shape} takes {taken / 1e6:,.1f} ms, {taken / total:.0%} of {items.what} "
            f"(softmax alone {ns / total:.0%})",
            place_of(items.trace, items.rows(every)),
            (*evidence, *time_on_host(items, every)),
            items.stake_ns(every),
            CONFIRMED if extents is not None else INFERRED,
            advice,
            "an attention kernel replaces the softmax kernels",
        )  # fmt: skip


def _few(classes: list[list[AttentionGroup]]) -> list[list[AttentionGroup]]:
    classes.sort(key=len, reverse=True)
    rest = [group for members in classes[_CLASSES:] for group in members]
    return [*classes[:_CLASSES], *([rest] if rest else [])]


def _callers(items: WorkItems, item: int) -> Iterator[str]:
    at = int(items.call[item])
    while at >= 0:
        yield items.trace.names[items.calls.name[at]]
        at = int(items.calls.parent[at])
