"""Findings about fusion: chains of elementwise operators, and optimizers that loop over parameters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt

from ...trace.call_tree import nearest
from ...trace.columns import grouped, matching
from ...trace.kinds import ACCUMULATION, GPU, GRADIENT_COMMUNICATION, OPTIMIZER
from ..flops import bytes_moved, returned
from ..operator_outputs import WRITES_ONLY, plain_name
from .case import Case, OfWorstRank, RankOfCase
from .eager_attention import in_attention
from .finding import INFERRED, PREDICTED, Candidate, Intervention
from .proofs import place_of, time_of_work, time_on_host
from .small_operators import operator_loops
from .work_items import (
    COPY_WORK,
    NORM_WORK,
    POINTWISE_WORK,
    REDUCTION_WORK,
    SOFTMAX_WORK,
    WorkItems,
    phases_of,
    work_items,
)

_FUSES = (POINTWISE_WORK, COPY_WORK, REDUCTION_WORK, NORM_WORK, SOFTMAX_WORK)
_REDUCES = (REDUCTION_WORK, NORM_WORK, SOFTMAX_WORK)
# Minimum saving, as a share of the operator time. Other effects of compiling, good or bad, can be about this large.
_LEAST_SAVED = 0.02
# Range of the real saving, relative to the estimate. Fusion saves less if backward needs the intermediate results.
# Fusion saves more if the fused kernel also absorbs neighboring loads and stores.
_LOW, _HIGH = 0.6, 1.15
_OPTIMIZER_OPS = 3  # minimum number of operators per parameter; fusing only one or two (plain SGD) gains little
_OPTIMIZER_LOW, _OPTIMIZER_HIGH = 0.7, 1.15
# Share of the host time that remains with a fused optimizer: Python still collects parameters, gradients and states.
# Measured 0.31 for Adam on a transformer with 28 parameters (PyTorch 2.13).
_FUSED_HOST = 0.3
_STEP = re.compile(r"Optimizer\.step#")


@dataclass(frozen=True)
class FusableChain:
    """Consecutive items in which, according to the shapes, each item reads the output of the previous item."""

    items: tuple[int, ...]  # positions of the items, all on one stream
    fused_ns: float  # estimated time of one fused kernel
    saved_bytes: int  # 0 if sizes are unknown


_WRITES_ONLY = frozenset(WRITES_ONLY.split())  # These operators overwrite their first tensor without reading it.


class _Shapes:
    def __init__(self, items: WorkItems) -> None:
        calls = items.calls
        self.items, self.reduces = items, np.isin(items.kind, _REDUCES)
        self.of = np.full(len(items), -1, np.int64)
        self.read: list[frozenset[tuple[int, ...]]] = []
        self.written: list[tuple[int, ...] | None] = []
        self.written_bytes: list[int] = []
        self.moved: list[int] = []
        at = np.flatnonzero(items.call >= 0)
        at = at[calls.signature[items.call[at]] >= 0]
        call = items.call[at]
        for number, ((name, signature), mine) in enumerate(grouped(calls.name[call], calls.signature[call])):
            self.of[at[mine]] = number
            found, text = items.trace.signatures[signature], items.trace.names[name]
            read = found.tensors[1:] if plain_name(text) in _WRITES_ONLY else found.tensors
            self.read.append(frozenset(tensor.shape for tensor in read))
            output = returned(text, found)
            self.written.append(output[0].shape if output else None)
            self.written_bytes.append((output[0].nbytes or 0) if output else 0)
            self.moved.append(bytes_moved(text, found) or 0)

    def follows(self, one: int, other: int) -> bool:
        first, then = int(self.of[one]), int(self.of[other])
        if first < 0 or then < 0:
            return self._same_operator(one, other)
        if first == then and self.items.name(one).endswith("_"):
            return False  # these are two in-place operators on different tensors
        shape = self.written[first]
        return shape is not None and prod(shape) > 1 and shape in self.read[then]

    def _same_operator(self, one: int, other: int) -> bool:
        calls, first, then = self.items.calls, int(self.items.call[one]), int(self.items.call[other])
        if first < 0 or then < 0:
            return False
        above = int(calls.parent[first])
        if above < 0 or above != int(calls.parent[then]):
            return False
        return self.items.trace.name_at(int(calls.name[above])).startswith("aten::")

    @cached_property
    def on_numbers(self) -> npt.NDArray[np.bool_]:
        found = [bool(read) and all(prod(shape) <= 1 for shape in read) for read in self.read]
        return np.array([*found, False], np.bool_)[self.of]


def casts(items: WorkItems) -> npt.NDArray[np.bool_]:
    """Return a mask of the items that read tensors of one dtype and write tensors of another."""
    signatures = items.trace.signatures
    found = [len({tensor.dtype for tensor in signature.tensors if tensor.dtype}) > 1 for signature in signatures]
    return np.array([*found, False], np.bool_)[items.signature_code]


def fusable_chains(case: Case) -> tuple[tuple[FusableChain, ...], ...]:
    return case.once(lambda of: tuple(_chains(of, rank) for rank in range(len(of.traces))), "fusable chains")


def _chains(case: Case, rank: int) -> tuple[FusableChain, ...]:
    items, shapes = work_items(case)[rank], _Shapes(work_items(case)[rank])
    phase = phases_of(items)
    fits = np.isin(items.kind, _FUSES) & ~in_attention(case, rank)
    fits &= ~np.isin(phase, (ACCUMULATION, GRADIENT_COMMUNICATION))
    fits[[at for loop in operator_loops(case)[rank] for at in loop.items]] = False
    fits &= casts(items) | (items.kind != COPY_WORK) | (phase == OPTIMIZER)  # `Copies` reports changes of layout.
    found: list[FusableChain] = []
    chain: list[int] = []
    before = np.cumsum(~shapes.on_numbers)  # running count of the items that process tensors
    for item in np.flatnonzero(fits & ~shapes.on_numbers).tolist():
        if chain and (
            before[item] - before[chain[-1]] > 1
            or not _continues(items, shapes, chain, item, optimizer=bool(phase[item] == OPTIMIZER))
        ):
            found += _priced(items, shapes, chain)
            chain = []
        chain.append(item)
    found += _priced(items, shapes, chain)
    return tuple(found)


def _continues(items: WorkItems, shapes: _Shapes, chain: list[int], item: int, *, optimizer: bool) -> bool:
    last = chain[-1]
    if items.lane[last] != items.lane[item] or len(chain) >= _LONGEST:
        return False
    if optimizer and shapes.of[item] == shapes.of[chain[0]]:
        return False  # This item updates another parameter of the same shape.
    return shapes.follows(last, item)


_LONGEST = 64  # Maximum number of items in a chain, because compilers also split longer chains.


def _priced(items: WorkItems, shapes: _Shapes, chain: list[int]) -> list[FusableChain]:
    if len(chain) < 2:
        return []
    kinds, ns = items.kind[chain], items.ns[chain]
    if not np.any(kinds == POINTWISE_WORK):
        return []
    of = shapes.of[chain]
    moved = [shapes.moved[at] if at >= 0 else 0 for at in of.tolist()]
    if not all(moved):
        return [FusableChain(tuple(chain), float(ns.max()), 0)]
    saved = sum(2 * shapes.written_bytes[at] for at in of[:-1].tolist())
    saved = min(saved, sum(moved) - shapes.written_bytes[of[-1]])
    least = float(ns[shapes.reduces[chain]].max(initial=0))
    fused = max(float(ns.sum()) * (1 - saved / sum(moved)), least)
    return [FusableChain(tuple(chain), fused, saved)]


class ElementwiseChains(OfWorstRank):
    """Consecutive elementwise operators that each read and write memory, although one fused kernel could run them all.

    The gain is the time that the chain spends on moving intermediate results, plus the time of the removed launches.
    """

    id = "elementwise-chains"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        items, phase = work_items(case)[rank], phases_of(work_items(case)[rank])
        chains = [chain for chain in fusable_chains(case)[rank] if phase[chain.items[0]] != OPTIMIZER]
        ns = sum(items.time(chain.items) for chain in chains)
        saved = ns - sum(chain.fused_ns for chain in chains)
        if saved < _LEAST_SAVED * items.total_ns or not chains:
            return
        count = sum(len(chain.items) for chain in chains)
        evidence = []
        for names, same in _by_names(items, chains)[:3]:
            shown = " → ".join(names[:5]) + (f" → … ({len(names)} operators)" if len(names) > 5 else "")
            text = f"{shown}, {len(same):,} times"
            evidence.append(time_of_work(items, text, [at for chain in same for at in chain.items]))
        every = [at for chain in chains for at in chain.items]
        evidence += time_on_host(items, every)
        known = all(chain.saved_bytes for chain in chains)
        candidate = Candidate(
            self.id,
            f"{count:,} elementwise operators in {len(chains):,} chains take {ns / 1e6:,.2f} ms; fused they would take"
            f" {(ns - saved) / 1e6:,.2f} ms",
            place_of(items.trace, items.rows(every)),
            tuple(evidence),
            items.stake_ns(every),
            INFERRED if known else PREDICTED,
            "use torch.compile on the enclosing module, or call a fused operator if PyTorch has one"
            " (nn.functional.rms_norm, layer_norm, addcmul)",
            "kernels named triton_ (or cpp_fused) replace these operators",
        )  # fmt: skip
        yield of.candidate(candidate, _fused(items, chains), _LOW, _HIGH)


def _by_names(items: WorkItems, chains: Sequence[FusableChain]) -> list[tuple[tuple[str, ...], list[FusableChain]]]:
    found: dict[tuple[str, ...], list[FusableChain]] = {}
    for chain in chains:
        found.setdefault(tuple(items.label(at) for at in chain.items), []).append(chain)
    return sorted(found.items(), key=lambda pair: (-sum(items.time(one.items) for one in pair[1]), pair[0]))


def _fused(items: WorkItems, chains: Sequence[FusableChain]) -> tuple[Intervention, ...]:
    kept = [max(chain.items, key=lambda at: (int(items.ns[at]), -at)) for chain in chains]
    gone = set[int]().union(*(chain.items for chain in chains)) - set(kept)
    factor = sum(chain.fused_ns for chain in chains) / max(items.time(kept), 1)
    word = "kernel" if items.on_device else f"op:{items.name(kept[0])}"
    return (
        Intervention(f"remove op:{items.name(min(gone))}", items.all_rows(sorted(gone))),
        Intervention(f"{word}*{factor:.6f}", items.rows(kept)),
    )


class OptimizerLoop(OfWorstRank):
    """An optimizer that runs several operators per parameter, although one fused kernel could update all parameters.

    A fused optimizer needs only a few launches: it reads parameters, gradients and states once, and writes parameters
    and states once. The estimate assumes that it moves these bytes at the highest rate of the unfused operators.
    """

    id = "optimizer-loop"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        items, phase = work_items(case)[rank], phases_of(work_items(case)[rank])
        mine = np.flatnonzero((phase == OPTIMIZER) & np.isin(items.kind, _FUSES)).tolist()
        chains = [chain for chain in fusable_chains(case)[rank] if phase[chain.items[0]] == OPTIMIZER]
        chains = [chain for chain in chains if len(chain.items) >= _OPTIMIZER_OPS]
        every = [at for chain in chains for at in chain.items]
        if 2 * len(every) < len(mine) or len(chains) < _OPTIMIZER_OPS:
            return
        ns, fused = items.time(mine), self._fused_ns(items, chains)
        if ns - fused < _LEAST_SAVED * items.total_ns:
            return
        calls = items.trace.calls
        step_ns = int((calls.end - calls.ts)[matching(calls.name, items.trace.names, _STEP.match)].sum())
        names = Counter(items.label(at) for at in mine)
        what = ", ".join(f"{name} × {count:,}" for name, count in names.most_common(4))
        candidate = Candidate(
            self.id,
            f"the optimizer runs {len(mine):,} elementwise operators, looping over the parameters: {ns / 1e6:,.2f} ms",
            place_of(items.trace, items.rows(mine)),
            (time_of_work(items, f"operators of the optimizer phase: {what}", mine), *time_on_host(items, mine)),
            max(items.stake_ns(mine), step_ns + (ns if items.on_device else 0)),
            INFERRED,
            "pass fused=True to the torch.optim optimizer (Adam, AdamW, SGD, Adagrad)"
            + (", or foreach=True" if items.on_device else "; foreach=True gains little on a CPU, where it also loops"),
            "the optimizer phase has only a few kernels named multi_tensor_apply"
            if items.on_device
            else "the optimizer phase has one operator such as aten::_fused_adam_ per step",
        )
        yield of.candidate(candidate, self._changes(items, mine, fused), _OPTIMIZER_LOW, _OPTIMIZER_HIGH)

    def _changes(self, items: WorkItems, mine: Sequence[int], fused: float) -> tuple[Intervention, ...]:
        trace = items.trace
        steps = matching(trace.calls.name, trace.names, _STEP.match)
        inside = np.zeros(len(trace), np.bool_)
        inside[trace.calls.source[steps]] = True
        inside |= nearest(trace.nodes.parent_row, trace.nodes.parent_row, inside) >= 0
        inside[items.all_rows(mine)] = True
        host = Intervention(f"cpu*{_FUSED_HOST}", np.flatnonzero(inside & (trace.nodes.kind != GPU)))
        if not items.on_device:
            return (host,)
        kept, gone = mine[:1], mine[1:]
        return (
            host,
            Intervention(f"remove kernel:{items.kernel(gone[0])}", items.rows(gone)),
            Intervention(f"kernel*{fused / max(items.time(kept), 1):.6f}", items.rows(kept)),
        )

    def _fused_ns(self, items: WorkItems, chains: Sequence[FusableChain]) -> float:
        fused = sum(chain.fused_ns for chain in chains)
        if not all(chain.saved_bytes for chain in chains):
            return fused / 2
        left = [self._left(items, chain) for chain in chains]
        rates = [size / chain.fused_ns for size, chain in zip(left, chains, strict=True) if chain.fused_ns]
        return min(sum(left) / max(rates), fused) if rates else fused

    def _left(self, items: WorkItems, chain: FusableChain) -> int:
        moved = 0
        for at in chain.items:
            signature = items.signature(at)
            moved += (bytes_moved(items.name(at), signature) or 0) if signature is not None else 0
        return moved - chain.saved_bytes
