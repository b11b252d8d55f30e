"""Findings about layout conversions, copies and recomputed forward work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...trace.columns import matching
from ...trace.conventions import MAX_NAME
from ...trace.kernel_names import kernel_label
from ...trace.kinds import GRADIENT_COMMUNICATION, OPTIMIZER, RECOMPUTATION
from ...trace.printable import shortened
from .case import Case, OfWorstRank, RankOfCase
from .eager_attention import in_attention
from .finding import CONFIRMED, INFERRED, PREDICTED, Candidate, Evidence, Intervention
from .fusable import casts, fusable_chains
from .memory_use import capacity
from .proofs import place_of, quoted, sql, time_of_work, time_on_host
from .work_items import COPY_WORK, WorkItems, phases_of, work_items

# These cuDNN and MIOpen kernels convert tensors to and from the layout of a convolution.
_LAYOUT_KERNEL = re.compile(
    r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|batched_transpose_|transpose_NCHW|transpose_NHWC", re.IGNORECASE
)
_LONGEST_NAME = 80
_LEAST_LAYOUT = 0.02
# Minimum share of device time that copies take. Every model copies some tensors to split and join them.
_LEAST_COPIES = 0.03
# Minimum size of a copy. Smaller copies spend most of their time on call overhead.
_LEAST_COPY_BYTES = 1 << 16
# Minimum duration of a copy of unrecorded size.
_LEAST_COPY_NS = 5_000
# Minimum share of the device time that recomputation takes. Recomputing only activations and norms takes less.
# Recomputing only these cheap operators already saves most of the memory.
_LEAST_RECOMPUTED = 0.05
_COMPUTES = re.compile(r"aten::|triton_|_C::|flash_attn")
_DISTRIBUTES = re.compile(r"Redistribute|TorchTensor(?:Backward)?$|c10d")
# Minimum share of free device memory. If less memory is free, the model only fits because of the recomputation.
_HEADROOM = 0.3


class LayoutConversions(OfWorstRank):
    """Kernels around convolutions that convert between NCHW and NHWC."""

    id = "layout-conversions"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        items = work_items(case)[rank]
        trace, gpu = items.trace, items.trace.gpu
        changed = np.flatnonzero(matching(gpu.name, trace.names, lambda name: _LAYOUT_KERNEL.search(name, 0, MAX_NAME)))
        ns = int(gpu.dur[changed].sum())
        if ns < _LEAST_LAYOUT * items.total_ns or not ns:
            return
        codes = Counter(gpu.name[changed].tolist())
        names = Counter[str]()
        for code, count in codes.items():
            names[shortened(kernel_label(trace.names[code]), _LONGEST_NAME)] += count
        full = sorted({trace.names[code] for code in codes})
        wanted = f"from device where name in ({', '.join(map(quoted, full))})"
        rows = gpu.source[changed]
        rows = rows[rows >= 0]
        text = ", ".join(f"{name} × {count:,}" for name, count in names.most_common(3))
        candidate = Candidate(
            self.id,
            f"conversions between NCHW and NHWC take {ns / 1e6:,.2f} ms, {ns / max(items.total_ns, 1):.0%} of"
            f" {items.what}, in {len(changed):,} kernels",
            place_of(trace, rows),
            (
                Evidence(text, ns, "ns", sql(items.shell, f"select sum(duration_ns) {wanted}")),
                Evidence(
                    "kernels that only convert a layout", len(changed), "events",
                    sql(items.shell, f"select count(*) {wanted}"),
                ),
            ),
            ns,
            CONFIRMED,
            "use channels_last for model and inputs (model.to(memory_format=torch.channels_last)): convolutions on"
            " tensor cores use NHWC",
            "the kernels nchwToNhwc and nhwcToNchw (batched_transpose) are gone",
        )  # fmt: skip
        launches = gpu.runtime[changed]
        launching = trace.runtime.source[launches[launches >= 0]]
        change = Intervention("remove kernel:nchwToNhwc", np.concatenate([rows, launching]))
        yield of.candidate(candidate, (change,), 0.7, 1.1)


class Copies(OfWorstRank):
    """Operators that copy a tensor to another layout or dtype on the same device."""

    id = "tensor-copies"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        items, phase = work_items(case)[rank], phases_of(work_items(case)[rank])
        counted = in_attention(case, rank)
        counted[[at for chain in fusable_chains(case)[rank] for at in chain.items]] = True
        wanted = (items.kind == COPY_WORK) & ~counted & ~np.isin(phase, (OPTIMIZER, GRADIENT_COMMUNICATION))
        found = np.flatnonzero(wanted & (items.call >= 0) & _copies_much(items)).tolist()
        ns = items.time(found) if found else 0
        if ns < _LEAST_COPIES * items.total_ns or not ns:
            return
        cast = [at for at, yes in zip(found, casts(items)[found].tolist(), strict=True) if yes]
        around: dict[str, list[int]] = {}
        for at in found:
            around.setdefault(_outer_name(items, at), []).append(at)
        most = sorted(around.items(), key=lambda pair: (-items.time(pair[1]), pair[0]))[:3]
        evidence = [
            time_of_work(items, f"copies in {name}", at) for name, at in most
        ]  # fmt: skip
        if cast:
            evidence.append(time_of_work(items, "copies to a different dtype", cast))
        mostly_casts = 2 * items.time(cast) > ns if cast else False
        candidate = Candidate(
            self.id,
            f"copies of tensors to a different {'dtype' if mostly_casts else 'layout or dtype'} take"
            f" {ns / 1e6:,.2f} ms, {ns / max(items.total_ns, 1):.0%} of {items.what}, in {len(found):,} calls",
            place_of(items.trace, items.rows(found)),
            (*evidence, *time_on_host(items, found)),
            items.stake_ns(found),
            PREDICTED,
            "keep weights in the dtype of the computation (model.to(torch.bfloat16)), or use torch.compile, which"
            " fuses casts into the operators that read them"
            if mostly_casts
            else "look for permute and transpose before .contiguous(), .reshape() or matmul on this line: store"
            " the tensor in the order in which it is read, or use an operator that accepts strides (einsum may choose a"
            " different order)",
            "the operators table shows fewer calls of aten::copy_ and aten::clone",
        )
        yield of.candidate(candidate, (Intervention("remove op:aten::copy_", items.all_rows(found)),), 0.3, 1.25)


def _copies_much(items: WorkItems) -> npt.NDArray[np.bool_]:
    sizes = [[tensor.nbytes for tensor in signature.tensors] for signature in items.trace.signatures]
    known = np.array([bool(each) and None not in each for each in sizes] + [False])[items.signature_code]
    large = [any(size is not None and size >= _LEAST_COPY_BYTES for size in each) for each in sizes]
    return np.where(known, np.array([*large, False])[items.signature_code], items.ns >= _LEAST_COPY_NS)


def _outer_name(items: WorkItems, item: int) -> str:
    name, at = items.name(item), int(items.call[item])
    while at >= 0:
        text = items.trace.names[items.calls.name[at]]
        name = text if text.startswith("aten::") else name
        at = int(items.calls.parent[at])
    return name


class Recomputation(OfWorstRank):
    """Forward operators that the backward pass runs again (activation checkpointing), although enough memory is free.

    The gain assumes that nothing is recomputed. Selective recomputation gains less.
    """

    id = "recomputation"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        items, phase = work_items(case)[rank], phases_of(work_items(case)[rank])
        found = [at for at in np.flatnonzero(phase == RECOMPUTATION).tolist() if _computes(items, at)]
        ns = items.time(found) if found else 0
        if ns < _LEAST_RECOMPUTED * items.total_ns or not ns:
            return
        left = _memory_left(case, rank)
        if left is not None and left < _HEADROOM:
            return
        command = items.command
        evidence = [time_of_work(items, "operators of the recomputation phase", found)]
        if left is not None:
            evidence.append(Evidence("share of device memory that is never reserved", left, "share", command))
        candidate = Candidate(
            self.id,
            f"recomputing forward work in backward takes {ns / 1e6:,.2f} ms, {ns / max(items.total_ns, 1):.0%} of"
            f" {items.what}" + ("" if left is None else f", while {left:.0%} of device memory is free"),
            place_of(items.trace, items.rows(found)),
            (*evidence, *time_on_host(items, found)),
            items.stake_ns(found),
            PREDICTED if left is None else INFERRED,
            "checkpoint fewer layers, or recompute selectively: torch.utils.checkpoint with context_fn ="
            " create_selective_checkpoint_contexts, which keeps the results of GEMMs and attention",
            "the recomputation phase is shorter, and peak memory still fits",
        )
        rows = items.all_rows(found)
        yield of.candidate(candidate, (Intervention("remove op:CheckpointFunctionBackward", rows),), 0.8, 1.3)


def _computes(items: WorkItems, item: int) -> bool:
    at = int(items.call[item])
    if not _COMPUTES.match(items.name(item)):
        return False
    while at >= 0 and not _DISTRIBUTES.search(items.trace.names[items.calls.name[at]]):
        at = int(items.calls.parent[at])
    return at < 0


def _memory_left(case: Case, rank: int) -> float | None:
    for memory in case.analyses[rank].memory:
        whole = capacity(case.traces[rank], memory)
        if whole is not None:
            return max(1 - max(int(memory.reserved.max()), memory.peak_bytes) / whole, 0.0)
    return None
