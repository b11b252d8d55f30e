"""The work of a trace as a list of items. An item is a kernel with its launching operator, or a CPU operator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...trace.brief import brief
from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, distinct, distinct_rows, grouped, largest, matching, run_starts
from ...trace.conventions import MAX_NAME
from ...trace.intervals import sums
from ...trace.kernel_kinds import GPU_KINDS, gpu_kind
from ...trace.kernel_names import kernel_label
from ...trace.printable import shortened
from ...trace.tables import OP, Calls
from ...trace.tensors import Signature
from ...trace.trace import Trace
from ..attention import ATTENTION
from ..flops import Product, product, returned
from ..operator_outputs import COMPARISONS, POINTWISE, REDUCTIONS, plain_name

if TYPE_CHECKING:
    from .case import Case

# These are the values of `WorkItems.kind`; FUSED_WORK means work that a compiler or library has already fused.
(
    OTHER_WORK, POINTWISE_WORK, COPY_WORK, REDUCTION_WORK, NORM_WORK, SOFTMAX_WORK, SOFTMAX_BACKWARD_WORK, PRODUCT_WORK,
    FUSED_WORK, FUSED_ATTENTION_WORK,
) = range(10)  # fmt: skip

_SOFTMAX = frozenset("_softmax softmax _safe_softmax _masked_softmax".split())
_NORMS = frozenset("native_layer_norm layer_norm rms_norm _fused_rms_norm native_group_norm group_norm".split())
_COPIES = frozenset("copy_ clone contiguous _to_copy".split())
_MORE_POINTWISE_TEXT = (
    "fill_ zero_ native_dropout bernoulli_ masked_fill_ addcmul_ addcdiv_ lerp_ masked_scale _masked_scale"
    " native_dropout_backward hardswish_ sigmoid_ relu_ tanh_ exp_ sqrt_ reciprocal_"
)
_MORE_POINTWISE = frozenset(_MORE_POINTWISE_TEXT.split())
_REDUCTION_NAMES = frozenset(f"{' '.join(REDUCTIONS)} var std var_mean std_mean norm cumsum _log_softmax".split())
_POINTWISE_NAMES = frozenset(f"{POINTWISE} {COMPARISONS}".split()) - _COPIES
_PRODUCT_NAMES = frozenset("mm bmm matmul addmm baddbmm linear addbmm mv addmv _scaled_mm _scaled_mm_v2".split())
_ATTENTION_NAMES = frozenset(" ".join(ATTENTION).split())
# These operators only return views.
_VIEWS_TEXT = (
    "view empty empty_like empty_strided as_strided transpose t permute expand reshape _reshape_alias slice select "
    "unsqueeze squeeze detach detach_ alias split split_with_sizes chunk unbind narrow view_as expand_as resize_ set_ "
    "to result_type item _unsafe_view movedim unfold lift_fresh resolve_conj resolve_neg empty_permuted stride_ "
    "unflatten flatten contiguous_ dropout numpy_T is_nonzero _has_compatible_shallow_copy_type new_empty "
    "new_empty_strided swapaxes mT diagonal real _nested_tensor_size"
)
_VIEWS = frozenset(_VIEWS_TEXT.split())
_LONGEST_NAME = 80
# Each operator listed here forms one item with all its callees, such as `addmm` with the copy of the bias.
_WHOLE_TEXT = (
    "mm bmm addmm baddbmm addbmm mv addmv dot _softmax _log_softmax native_layer_norm native_batch_norm native_dropout"
    " mkldnn_convolution convolution_backward"
)
_WHOLE = frozenset(_WHOLE_TEXT.split())
_WRAPPER = re.compile(r"autograd::engine::|torch::autograd::|\w*Backward\d*$|\w+::\w*Backward\d*$")
_FUSED = re.compile(r"triton_|_fused_|fused_|multi_tensor_apply|graph_\d+_cpp_fused|cpp_fused", re.IGNORECASE)
_ON_DEVICE = re.compile(r"DtoD|Device -> Device")
_SOFTMAX_KERNEL = re.compile(r"(?<!log_)softmax(?!_cross)", re.IGNORECASE)
_BACKWARD_KERNEL = re.compile(r"backward|bwd|_bw_", re.IGNORECASE)


@dataclass(frozen=True)
class WorkItems:
    """The compute work of a trace as items, sorted by stream (or thread) and start.

    If the trace has a device, an item is a sequence of GPU events launched by one call. Otherwise, an item is a CPU
    operator that does not contain another computing operator.
    """

    trace: Trace  # the trace, including GPU events that were not attached to a row
    shell: str  # the shell argument that selects the trace
    on_device: bool  # True if the items are GPU events, not CPU operators
    lane: IntColumn  # for each item, the int64 number of its stream or thread
    ts: IntColumn  # for each item, its int64 start, ns
    end: IntColumn  # for each item, its int64 end, ns
    ns: IntColumn  # for each item, the int64 duration of its events or CPU operator, ns
    kind: npt.NDArray[np.int8]  # for each item, its int8 kind, such as POINTWISE_WORK
    call: IntColumn  # for each item, the int64 position of its operator in `calls`; −1 if there is none
    calls: Calls  # the calls of the trace, then the calls recorded while capturing graphs
    first: IntColumn  # int64 position of each item's first entry in `event`; the last value is the length of `event`
    event: IntColumn  # int64 positions of the items' GPU events or calls
    bound_ns: IntColumn  # int64 minimum time of each item at the device peaks without caching, ns; −1 if unknown
    flops: IntColumn  # int64; −1 if unknown
    bytes: IntColumn  # int64; −1 if unknown

    __repr__ = brief

    def __len__(self) -> int:
        return len(self.ns)

    @cached_property
    def siblings(self) -> tuple[IntColumn, IntColumn]:
        """Operators sorted by caller, thread and time, and each call's position in this order (−1 if none)."""
        calls = self.trace.calls
        ops = np.flatnonzero(calls.kind == OP)
        order = ops[np.lexsort((ops, calls.thread[ops], calls.parent[ops]))]
        place = np.full(len(calls), -1, np.int64)
        place[order] = np.arange(len(order))
        return order, place

    def name(self, item: int) -> str:
        call = int(self.call[item])
        return self.trace.name_at(int(self.calls.name[call])) if call >= 0 else self.kernel(item)

    @cached_property
    def kernel_name(self) -> npt.NDArray[np.int32]:
        """For every item, the name code of its longest kernel (the first one on ties) or, on a CPU, of its operator."""
        gpu, calls = self.trace.gpu, self.trace.calls
        ns = (gpu.dur if self.on_device else calls.end - calls.ts)[self.event]
        item = np.repeat(np.arange(len(self)), np.diff(self.first))
        longest = largest(item, ns, len(self))
        return (gpu.name if self.on_device else calls.name)[self.event[longest]]

    def kernel(self, item: int) -> str:
        return self.trace.name_at(int(self.kernel_name[item]))

    def label(self, item: int) -> str:
        """Return the operator's name, or the kernel's short name if the operator is unknown, for use in a sentence."""
        name = self.name(item)
        return shortened(name if self.call[item] >= 0 else kernel_label(name), _LONGEST_NAME)

    def kernel_text(self, item: int) -> str:
        return shortened(kernel_label(self.kernel(item)), _LONGEST_NAME)

    @cached_property
    def on_numbers(self) -> npt.NDArray[np.bool_]:
        """Mask of items that only have one-element tensors. PyTorch creates such tensors for Python numbers."""
        scalar = np.append([_is_scalar(signature) for signature in self.trace.signatures], False).astype(np.bool_)
        found: npt.NDArray[np.bool_] = scalar[self.signature_code]
        return found

    @cached_property
    def signature_code(self) -> npt.NDArray[np.int32]:
        return np.append(self.calls.signature, np.int32(-1))[self.call]

    def signature(self, item: int) -> Signature | None:
        code = int(self.signature_code[item])
        return self.trace.signatures[code] if code >= 0 else None

    def product(self, item: int) -> Product | None:
        """Return the dimensions of the item's GEMM; None for other items or unknown dimensions."""
        signature = self.signature(item)
        return None if signature is None else product(self.name(item), signature)

    def output(self, item: int) -> tuple[int, ...] | None:
        signature = self.signature(item)
        found = None if signature is None else returned(self.name(item), signature)
        return found[0].shape if found else None

    def events(self, items: Iterable[int]) -> IntColumn:
        parts = [self.event[self.first[item] : self.first[item + 1]] for item in items]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def rows(self, items: Iterable[int]) -> IntColumn:
        """Return the trace rows of the items' GPU events or calls. Events that have no row are omitted."""
        table = self.trace.gpu if self.on_device else self.trace.calls
        found = table.source[self.events(items)]
        return found[found >= 0]

    def all_rows(self, items: Iterable[int]) -> IntColumn:
        """Return the rows to remove with some items: their events and operators, with all callees and launches.

        Operators in captured graphs are kept, and so are operators that also launch other items.
        """
        items = list(items)
        calls, trace = self.call[np.array(items, np.int64)], self.trace
        mine = distinct(calls[(calls >= 0) & (calls < len(trace.calls))])
        count = np.bincount(self.call[self.call >= 0], minlength=len(self.calls))
        mine = mine[np.bincount(calls[calls >= 0], minlength=len(self.calls))[mine] == count[mine]]
        inside = np.zeros(len(trace), np.bool_)
        inside[trace.calls.source[mine]] = True
        below = nearest(trace.nodes.parent_row, trace.nodes.parent_row, inside) >= 0
        inside |= below
        inside[self.rows(items)] = True
        return np.flatnonzero(inside)

    def time(self, items: Iterable[int]) -> int:
        return int(self.ns[np.array(list(items), np.int64)].sum())

    def host_ns(self, items: Iterable[int]) -> int:
        """Return the host time of the items' operators; 0 on a CPU, because `ns` already contains it."""
        if not self.on_device:
            return 0
        calls = distinct(self.call[np.array(list(items), np.int64)])
        calls = calls[(calls >= 0) & (calls < len(self.trace.calls))]
        return int((self.trace.calls.end[calls] - self.trace.calls.ts[calls]).sum())

    def stake_ns(self, items: Sequence[int]) -> int:
        """Return the time at stake for some items: their own time plus the host time of their operators."""
        return self.time(items) + self.host_ns(items)

    @property
    def command(self) -> str:
        return f"etplus analyze {self.shell}"

    @property
    def what(self) -> str:
        """Display name of the summed time: "device time" or "operator time"."""
        return "device time" if self.on_device else "operator time"

    @property
    def total_ns(self) -> int:
        return int(self.ns.sum())


def work_items(case: Case) -> tuple[WorkItems, ...]:
    """Return the work items of a case, per rank.

    Example:
        >>> from etplus.analysis.findings import Case
        >>> [len(items) > 0 for items in work_items(Case([trace]))]
        [True]
    """
    return case.once(lambda of: tuple(_items_of(of, rank) for rank in range(len(of.traces))), "work items")


def phases_of(items: WorkItems) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    known = items.call < len(items.trace.calls)
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = np.where(
        known & (items.call >= 0), np.append(items.trace.origin.phase, 0)[np.where(known, items.call, -1)], 0
    )
    return found.astype(np.int64)


def _items_of(case: Case, rank: int) -> WorkItems:
    analysis = case.analyses[rank]
    trace = analysis.trace
    if not len(trace.gpu):
        return _of_cpu(trace, case.shell(rank))
    gpu, attribution = trace.gpu, trace.attribution
    calls = attribution.calls
    kept = np.flatnonzero(~trace.is_comm)
    op = nearest(attribution.call, calls.parent, calls.kind == OP) if len(calls) else attribution.call
    lane = distinct_rows(gpu.device, gpu.stream)[1]
    order = kept[np.lexsort((kept, gpu.ts[kept], lane[kept]))]
    replay, repetition = gpu.graph_replay[order], attribution.repetition[order]
    alone = np.where(op[order] >= 0, 0, np.arange(len(order)) + 1)
    starts = np.flatnonzero(run_starts(lane[order], op[order], replay, repetition, alone))
    first = np.append(starts, len(order))
    group = np.repeat(np.arange(len(starts)), np.diff(first))
    ends = np.maximum.reduceat(gpu.end[order], starts) if len(starts) else starts
    work = analysis.work
    flops, moved = (_known_sum(group, column[order], len(starts)) for column in (work.flops, work.bytes))
    bound = np.zeros(len(order))
    known = np.zeros(len(order), np.bool_)
    for number, device in analysis.devices.items():
        for code, dtype in enumerate(work.dtypes):
            mine = (gpu.device[order] == number) & (work.dtype[order] == code)
            peak = device.peak_flops(dtype)
            computes, moves = mine & (work.flops[order] > 0), mine & (work.bytes[order] >= 0)
            if peak:
                bound[computes] = work.flops[order[computes]] / peak * 1e9
            passed = work.bytes[order[moves]] / device.bytes_per_second * 1e9
            bound[moves] = np.maximum(bound[moves], passed)
            known |= moves & (~computes | bool(peak))
    bound_ns = np.where(
        np.bincount(group[known], minlength=len(starts)) > 0, np.bincount(group, bound, len(starts)), -1
    ).astype(np.int64)  # fmt: skip
    kind = _kinds(trace, calls, op[order[starts]], gpu.name[order[starts]], trace.is_copy[order[starts]])
    return WorkItems(
        trace, case.shell(rank), True,
        lane[order[starts]], gpu.ts[order[starts]], ends, sums(group, gpu.dur[order], len(starts)), kind,
        op[order[starts]], calls, first, order, bound_ns, flops, moved,
    )  # fmt: skip


def _known_sum(group: IntColumn, values: IntColumn, count: int) -> IntColumn:
    known = values >= 0
    has = np.bincount(group[known], minlength=count) > 0
    return np.where(has, sums(group[known], values[known], count), -1)


def _of_cpu(trace: Trace, shell: str) -> WorkItems:
    calls = trace.calls
    views = matching(calls.name, trace.names, lambda name: plain_name(name) in _VIEWS or bool(_WRAPPER.match(name)))
    is_op = calls.kind == OP
    scalar = np.array([_is_scalar(signature) for signature in trace.signatures] + [False], np.bool_)
    works = is_op & ~views & ~scalar[calls.signature]
    # The self time of a single small call is noisy, so this compares sums over all calls with the same name.
    own_ns, ns = (np.bincount(calls.name, column)[calls.name] for column in (trace.self_ns, calls.dur))
    mostly_own = works & (2 * own_ns >= ns)
    mostly_own |= is_op & matching(calls.name, trace.names, lambda name: plain_name(name) in _WHOLE)
    works &= nearest(calls.parent, calls.parent, mostly_own) < 0
    around = nearest(calls.parent[works], calls.parent, works)
    works[around[around >= 0]] = False
    at = np.flatnonzero(works)
    at = at[np.lexsort((at, calls.ts[at], calls.thread[at]))]
    count = len(at)
    none = np.full(count, -1, np.int64)
    kind = _kinds(trace, calls, at, calls.name[at], np.zeros(count, np.bool_))
    return WorkItems(
        trace, shell, False,
        calls.thread[at], calls.ts[at], calls.end[at], calls.end[at] - calls.ts[at], kind, at, calls,
        np.arange(count + 1), at, none, none, none,
    )  # fmt: skip


def _is_scalar(signature: Signature) -> bool:
    return bool(signature.tensors) and all(tensor.numel <= 1 for tensor in signature.tensors)


def _kinds(
    trace: Trace, calls: Calls, op: IntColumn, kernel: npt.NDArray[np.int32], is_copy: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int8]:
    found = np.zeros(len(op), np.int8)
    op_name = np.where(op >= 0, np.append(calls.name, 0)[op], -1)
    for (code, of_kernel), at in grouped(op_name, kernel):
        found[at] = _kind_of(trace.names[code] if code >= 0 else "", trace.names[of_kernel])
    inside = matching(kernel, trace.names, _ON_DEVICE.search)
    found[is_copy & ~((found == COPY_WORK) & inside)] = OTHER_WORK
    return found


def _kind_of(op: str, kernel: str) -> int:
    if _FUSED.search(kernel, 0, MAX_NAME) or _FUSED.search(op, 0, MAX_NAME):
        return FUSED_WORK
    if op.startswith("aten::"):
        return _kind_of_op(plain_name(op))
    return OTHER_WORK if op else _kind_of_kernel(kernel)


def _kind_of_op(name: str) -> int:
    plain = name.removesuffix("_") if name not in _COPIES | _MORE_POINTWISE else name
    for kind, names in (
        (FUSED_ATTENTION_WORK, _ATTENTION_NAMES), (SOFTMAX_WORK, _SOFTMAX), (NORM_WORK, _NORMS), (COPY_WORK, _COPIES),
        (REDUCTION_WORK, _REDUCTION_NAMES), (POINTWISE_WORK, _POINTWISE_NAMES | _MORE_POINTWISE),
        (SOFTMAX_BACKWARD_WORK, {"_softmax_backward_data"}),
        (PRODUCT_WORK, _PRODUCT_NAMES),
    ):  # fmt: skip
        if name in names or plain in names:
            return kind
    return OTHER_WORK


def _kind_of_kernel(kernel: str) -> int:
    if _SOFTMAX_KERNEL.search(kernel, 0, MAX_NAME):
        return SOFTMAX_BACKWARD_WORK if _BACKWARD_KERNEL.search(kernel, 0, MAX_NAME) else SOFTMAX_WORK
    kind = GPU_KINDS[gpu_kind(kernel, "kernel", is_comm=False)]
    return {
        "GEMM": PRODUCT_WORK, "Attention": FUSED_ATTENTION_WORK, "Elementwise": POINTWISE_WORK,
        "Reduction and softmax": REDUCTION_WORK,
    }.get(kind, OTHER_WORK)  # fmt: skip
