"""FLOPs and bytes of GPU events: each operator's work is assigned to its main kernels.

Shapes determine the work of most operators (`flops.py`). Attention over a paged cache also needs the sequence lengths
of the requests (`attention.py`). Operators that compute mixtures of experts also need their nested calls
(`experts.py`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..trace.brief import brief
from ..trace.call_tree import CallTree, nearest
from ..trace.columns import IntColumn, distinct, distinct_rows, grouped, matching, run_starts
from ..trace.index import CallIndex
from ..trace.kernel_kinds import computes_products
from ..trace.step_annotations import UNKNOWN_PHASE, StepBatch
from ..trace.tables import OP
from ..trace.tensors import inside_matters, total_bytes
from ..trace.trace import Trace
from .attention import AttentionWork, attention_work, heads_of, is_paged_attention
from .devices import find_device
from .experts import (
    FINISHING_KERNEL,
    ByteRange,
    ExpertWork,
    computes_experts,
    expert_work,
    product_kernels,
    split_kernels,
)
from .flops import MOST_WORK, bytes_moved, computed_in, element_flops, flops, operator, tried

_TENSOR_FLOAT = re.compile(r"tf32|tfloat32|s1688|tensorop_s", re.IGNORECASE)
_CACHE_WRITE = re.compile(r".*(?:reshape_and_cache\w*|store_cache)")
# These kernels combine attention results that were computed over parts of the keys.
_JOINS_PARTS = re.compile(r"reduce|combine|merge|metadata|prepare", re.IGNORECASE)

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Work:
    """FLOPs and bytes of GPU events, with one entry per event of `Trace.gpu`.

    An operator's work is assigned to its longest GEMM, convolution or attention kernel (judging by the name). If there
    is no such kernel, the work is assigned to the longest kernel. Several kernels share the work of the backward of a
    convolution, of an expert layer, of attention over a paged cache, and of an operator that launches the same main
    kernel several times. The FLOPs of the events add up to the FLOPs of their operator."""

    flops: IntColumn  # −1 if the FLOPs are unknown, or if they are assigned to another kernel of the operator
    bytes: IntColumn  # −1 if unknown or assigned to another kernel; a lower bound if they depend on unrecorded data
    most_bytes: IntColumn  # upper bound of `bytes`
    dtype: npt.NDArray[np.int32]  # index into `dtypes`; the dtype selects the peak FLOP/s; 0 ("") if unknown
    dtypes: list[str]
    call: IntColumn  # the call that has the FLOPs; if they are unknown, the launching call; −1 if there is none
    operator_ns: IntColumn  # part of the operator's kernel time, in proportion to the FLOPs; 0 if the FLOPs are unknown
    counted: Mask  # True if the event's operator has known FLOPs or bytes (for copies: if the size is recorded)
    elements: IntColumn  # the longest kernel has the `element_flops` of its call; other events have −1
    elements_ns: IntColumn  # the longest kernel has the total kernel time of its call; other events have 0
    notes: tuple[str, ...] = ()  # sentences that explain why work is unknown

    __repr__ = brief

    def take(self, events: IntColumn) -> Work:
        arrays = ("flops", "bytes", "most_bytes", "dtype", "call", "operator_ns", "counted", "elements", "elements_ns")
        return replace(self, **{name: getattr(self, name)[events] for name in arrays})

    @property
    def all_flops(self) -> IntColumn:
        """FLOPs as int64: `flops` if they are known, otherwise `elements`."""
        return np.where(self.flops >= 0, self.flops, self.elements)

    def coverage(self, durations: IntColumn) -> float | None:
        known, total = int(self.operator_ns.sum() + self.elements_ns.sum()), int(durations.sum())
        return min(known / total, 1.0) if total else None


def work_of_events(trace: Trace) -> Work:
    """Return FLOPs, bytes and dtypes of all GPU events.

    An event gets the FLOPs of the innermost enclosing operator that has known FLOPs, such as `mm` inside `matmul`
    inside `linear`. An event also gets the bytes of that operator, unless a nested operator with known bytes launched
    the event."""
    gpu, calls, caller = trace.gpu, trace.attribution.calls, trace.attribution.call
    of_data = _WorkOfData(trace)
    count, size = _of_calls(trace, of_data)
    _count_triton(trace, size)
    innermost = _innermost(calls.parent, (count >= 0) | of_data.attention) | of_data.experts
    launched = np.flatnonzero((caller >= 0) & ~trace.is_copy)
    owner = nearest(caller, calls.parent, innermost) if len(calls) else caller
    unknown, none = np.full(len(gpu), -1, np.int64), np.zeros(len(gpu), np.int64)
    dtypes = ["", *sorted({signature.dtype for signature in trace.signatures} - {""} | {"float32", "tf32"})]
    codes, sizes = np.zeros(len(gpu), np.int32), (gpu.bytes.copy(), gpu.bytes.copy())
    elements = unknown.copy(), none.copy()
    work = Work(unknown, *sizes, codes, dtypes, caller.copy(), none, gpu.bytes >= 0, *elements)
    named = matching(gpu.name, trace.names, computes_products)
    by_data = of_data.attention | of_data.experts
    parts = np.where(by_data, 0, _parts(trace)[calls.name])
    of_calls = _groups(trace, owner, launched[owner[launched] >= 0], named, parts)
    _give_whole(trace, work, of_calls, caller, count, size)
    for events in of_calls.others():
        call = int(owner[events[0]])
        if by_data[call]:
            _give_data_work(trace, work, of_data, call, events, named)
            continue
        main = _main(trace, events, trace.names[calls.name[call]], named)
        _share(trace, work.flops, main, int(count[call]))
        _share(trace, work.operator_ns, main, int(gpu.dur[events].sum()))
        work.counted[events] = True
        for kernels in main:
            work.call[kernels] = call
            if np.all((caller[kernels] == call) | (size[caller[kernels]] < 0)):
                _share(trace, work.bytes, [kernels], int(size[call]) // len(main))
    within = launched[owner[launched] != caller[launched]]
    of_callers = _groups(trace, caller, within, named, np.ones_like(parts))
    given = of_callers.whole & (size[of_callers.call] >= 0) & (of_callers.most(work.bytes) < 0)
    work.bytes[of_callers.first[given]] = size[of_callers.call[given]]
    work.counted[of_callers.members(given)] = True
    for events in of_callers.others():
        if work.bytes[events].max() < 0:
            main = _main(trace, events, "", named)
            _share(trace, work.bytes, main, int(size[caller[events[0]]]))
            work.counted[events] |= size[caller[events[0]]] >= 0
    _count_elements(trace, work, launched)
    np.maximum(work.most_bytes, work.bytes, out=work.most_bytes)
    _set_dtypes(trace, work)
    notes = tuple(f"calls without FLOPs: {count:,} ({why})" for why, count in of_data.notes.items())
    return replace(work, notes=notes)


def _count_elements(trace: Trace, work: Work, launched: IntColumn) -> None:
    """Assign the FLOPs of each elementwise operator or reduction to the longest kernel that the call launched."""
    calls, caller = trace.attribution.calls, trace.attribution.call
    events = launched[(work.flops[launched] < 0) & (work.operator_ns[launched] == 0)]
    count = np.full(len(calls), -1, np.int64)
    for (name, signature), members in grouped(calls.name[caller[events]], calls.signature[caller[events]]):
        flop = element_flops(trace.names[name], trace.signatures[signature]) if signature >= 0 else None
        count[caller[events[members]]] = -1 if flop is None else flop
    events = events[count[caller[events]] >= 0]
    groups = _groups(trace, caller, events, np.zeros(len(trace.gpu), np.bool_), np.ones(len(calls), np.int64))
    work.elements[groups.first] = count[groups.call]
    work.elements_ns[groups.first] = groups.total(trace.gpu.dur)


def _give_whole(
    trace: Trace, work: Work, groups: _EventGroups, caller: IntColumn, count: IntColumn, size: IntColumn
) -> None:
    """Assign the whole work of a call to one event, for calls in which one event does all the work."""
    event, call = groups.first[groups.whole], groups.call[groups.whole]
    work.flops[event] = np.where(count[call] >= 0, count[call], work.flops[event])
    work.operator_ns[event] = np.maximum(groups.total(trace.gpu.dur)[groups.whole], 0)
    work.counted[groups.members(groups.whole)], work.call[event] = True, call
    own = (caller[event] == call) | (size[caller[event]] < 0)
    work.bytes[event] = np.where(own & (size[call] >= 0), size[call], work.bytes[event])


def _give_data_work(trace: Trace, work: Work, of_data: _WorkOfData, call: int, events: IntColumn, named: Mask) -> None:
    if of_data.attention[call]:
        attending = named[events] & ~of_data.joining[events]
        kernels = events[attending] if attending.any() else events[:1]
        done = of_data.of_attention(call, kernels)
        parts = [] if done is None else [(kernels, done)]
    else:
        parts = of_data.of_experts(call, np.sort(events))
    for kernels, (operations, moved) in parts:
        _share(trace, work.flops, [kernels], operations)
        work.call[kernels] = call
        if moved is not None:
            _share(trace, work.bytes, [kernels], moved.least)
            _share(trace, work.most_bytes, [kernels], moved.most)
    if parts:
        work.counted[events] = True
        done_by = np.concatenate([kernels for kernels, (operations, _) in parts if operations >= 0])
        _share(trace, work.operator_ns, [done_by], int(trace.gpu.dur[events].sum()))


_Amount = tuple[int, ByteRange | None]  # FLOPs (−1 if unknown) and bytes of the kernels


def is_possible(trace: Trace, kernels: IntColumn, dtype: str, operations: int, moved: int | None) -> bool:
    """Return whether the device can do this work in the recorded time of the kernels; True if the device is unknown."""
    device = find_device(trace.properties.get(int(trace.gpu.device[kernels[0]])))
    if device is None:
        return True
    ns = int(trace.gpu.dur[kernels].sum()) + _CLOCK_NS
    peak = device.peak_flops(dtype)
    return (peak is None or operations <= peak * ns / 1e9) and device.least_ns(moved or 0) <= ns


class _WorkOfData:
    """Work that depends on tensor contents: on the sequence lengths of requests or on the routing of tokens to experts.

    `attention` and `experts` mark the calls of `Trace.attribution` with such work. `notes` maps each reason for unknown
    work to a number of calls.
    """

    def __init__(self, trace: Trace) -> None:
        calls = trace.attribution.calls
        self._trace = trace
        self.attention, self.experts = np.zeros(len(calls), np.bool_), np.zeros(len(calls), np.bool_)
        self.cache: str | None = None
        self.notes: Counter[str] = Counter()
        self._done: dict[tuple[object, ...], ExpertWork | None] = {}
        self._attended: dict[tuple[int, int, int], AttentionWork] = {}
        self._inside: dict[int, tuple[int, ...]] = {}

    @cached_property
    def joining(self) -> Mask:
        return matching(self._trace.gpu.name, self._trace.names, _JOINS_PARTS.search)

    @cached_property
    def _tree(self) -> CallTree:
        return CallTree.of(self._trace.attribution.calls.parent)

    def of_attention(self, call: int, kernels: IntColumn) -> _Amount | None:
        calls, names = self._trace.attribution.calls, self._trace.names
        signature = self._trace.signatures[calls.signature[call]]
        batches, step = self._trace.steps.batches, int(self._trace.step_of_event[kernels[0]])
        if self._trace.attribution.repetition[kernels[0]] > 0:  # a step before the recording launched the kernels
            step = -1
        batch = batches[step] if batches and step >= 0 else StepBatch(UNKNOWN_PHASE)
        prefill, decode = batch.prefill, batch.decode
        key = int(calls.name[call]), int(calls.signature[call]), step
        if key not in self._attended:
            count = partial(attention_work, names[key[0]], prefill=prefill, decode=decode, cache=self.cache)
            result = tried(count, signature)
            fits = result is not None and max(result.flops or 0, result.bytes or 0) < MOST_WORK
            self._attended[key] = result if result is not None and fits else AttentionWork(None, None)
        done = self._attended[key]
        if done.flops is None and done.bytes is None:
            self.notes[_NO_SUMS if prefill.pairs is None or decode.pairs is None else _NO_FIT] += 1
            return None
        amount = -1 if done.flops is None else done.flops, done.bytes
        if not is_possible(self._trace, kernels, signature.dtype, *amount):
            self.notes[_TOO_MUCH] += 1
            return None
        return amount[0], None if done.bytes is None else ByteRange(done.bytes, done.bytes)

    def of_experts(self, call: int, events: IntColumn) -> list[tuple[IntColumn, _Amount]]:
        """Return one call's kernels in one replay, grouped by GEMM, and the work of every group."""
        trace, calls = self._trace, self._trace.attribution.calls
        kernels = tuple(trace.names[code] for code in trace.gpu.name[events].tolist())
        computing = product_kernels(kernels)
        if not computing:
            return []
        name = trace.names[calls.name[call]]
        if call not in self._inside:
            self._inside[call] = self._signatures_inside(call) if inside_matters(name) else ()
        inside = self._inside[call]
        key = (name, int(calls.signature[call]), inside, *computing[:2])
        if key not in self._done:
            signatures = [trace.signatures[code] for code in inside]
            count = partial(expert_work, name, inside=signatures, kernels=computing)
            self._done[key] = tried(count, trace.signatures[calls.signature[call]])
        total = self._done[key]
        if total is None or max(total.flops, total.bytes.most) >= MOST_WORK:
            self.notes[_NO_EXPERTS] += 1
            return []
        number = np.array(list(split_kernels(kernels, len(total.products))))
        parts: list[_Amount] = [*((gemm.flops, gemm.bytes) for gemm in total.products), (total.flops, total.bytes)]
        given = [(events[number == at], part) for at, part in enumerate(parts) if (number == at).any()]
        finishing = (number < 0) & [FINISHING_KERNEL.search(kernel) is not None for kernel in kernels]
        return [*given, (events[finishing], (-1, total.gathered))] if finishing.any() else given

    def _signatures_inside(self, call: int) -> tuple[int, ...]:
        """Return the distinct signature codes of all calls nested in a call, in call order."""
        codes = self._trace.attribution.calls.signature[np.sort(self._tree.below(CallIndex(call)))[1:]]
        return tuple(dict.fromkeys(codes[codes >= 0].tolist()))


_CLOCK_NS = 1000  # Some traces have times in whole µs.
_NO_SUMS = "the step annotation has no sums of sequence lengths"
_NO_FIT = "the shapes do not match the sums of sequence lengths of the step"
_TOO_MUCH = "the device cannot process all keys in the recorded time, so queries probably see only some keys"
_NO_EXPERTS = "neither the weights nor the experts per token are recorded"


def _of_calls(trace: Trace, of_data: _WorkOfData) -> tuple[IntColumn, IntColumn]:
    """Return the FLOPs and bytes of every call (−1: unknown), and mark calls with data-dependent work in `of_data`."""
    calls = trace.attribution.calls
    count, size = np.full(len(calls), -1, np.int64), np.full(len(calls), -1, np.int64)
    ops = np.flatnonzero((calls.kind == OP) & (calls.signature >= 0))
    caches = set[str]()
    pairs, which = distinct_rows(calls.name[ops], calls.signature[ops])
    counted, moved = np.full(len(pairs), -1, np.int64), np.full(len(pairs), -1, np.int64)
    attention, experts = np.zeros(len(pairs), np.bool_), np.zeros(len(pairs), np.bool_)
    for row, (code, signature_code) in enumerate(pairs.tolist()):
        name, signature = trace.names[code], trace.signatures[signature_code]
        operations = flops(name, signature)
        if operations is None and is_paged_attention(name):
            attention[row] = tried(partial(heads_of, name), signature) is not None
            continue
        if computes_experts(name):
            experts[row] = True
            continue
        if _CACHE_WRITE.fullmatch(name) and len(signature.tensors) > 2:
            caches.add(signature.tensors[2].dtype)
        for column, value in ((counted, operations), (moved, bytes_moved(name, signature))):
            column[row] = -1 if value is None else value
    count[ops], size[ops] = counted[which], moved[which]
    of_data.attention[ops], of_data.experts[ops] = attention[which], experts[which]
    of_data.cache = caches.pop() if len(caches) == 1 else None
    return count, size


def _count_triton(trace: Trace, size: IntColumn) -> None:
    """Count the bytes of Triton kernels (operators that have the kernel's name). Each pointer's tensor counts once.

    If a kernel was too fast to move all bytes of its buffers, it read only part of a table, so the bytes stay unknown.
    """
    calls, caller, gpu = trace.attribution.calls, trace.attribution.call, trace.gpu
    if not len(calls):
        return
    own = (caller >= 0) & (calls.name[caller] == gpu.name) & (size[caller] < 0) & (calls.signature[caller] >= 0)
    for (call,), events in grouped(caller[own]):
        kernels = np.flatnonzero(own)[events]
        moved = total_bytes(trace.signatures[calls.signature[call]].tensors)
        if moved and is_possible(trace, kernels[:1], "", 0, moved):
            size[call] = moved


def _innermost(parent: IntColumn, chosen: Mask) -> Mask:
    outer = np.zeros(len(parent), np.bool_)
    above = distinct(parent[chosen])
    while len(above := above[above >= 0]):
        above = above[~outer[above]]
        outer[above] = True
        above = distinct(parent[above])
    return chosen & ~outer


class _EventGroups(NamedTuple):
    """GPU events grouped by call, replay and repetition.

    In each group, events with the name of a GEMM, convolution or attention come first. Longer events precede shorter
    ones."""

    events: IntColumn  # the events, sorted by group
    begin: IntColumn  # for each group: position of its first event in `events`
    end: IntColumn  # for each group: position after its last event in `events`
    call: IntColumn  # the call that launched each group
    whole: Mask  # for each group: True if its first event does all the work of the call

    @property
    def first(self) -> IntColumn:
        return self.events[self.begin]

    def members(self, groups: Mask) -> IntColumn:
        return self.events[np.repeat(groups, self.end - self.begin)]

    def others(self) -> Iterator[IntColumn]:
        for begin, end in zip(self.begin[~self.whole].tolist(), self.end[~self.whole].tolist(), strict=True):
            yield self.events[begin:end]

    def total(self, values: IntColumn) -> IntColumn:
        return np.add.reduceat(values[self.events], self.begin) if len(self.begin) else self.begin

    def most(self, values: IntColumn) -> IntColumn:
        return np.maximum.reduceat(values[self.events], self.begin) if len(self.begin) else self.begin


def _parts(trace: Trace) -> IntColumn:
    """Return, for each name code, the number of kernels that share the work of the operator with that name."""
    found, names = np.ones(len(trace.names), np.int64), trace.names
    for code in distinct(trace.attribution.calls.name).tolist():
        entry = operator(names[code])
        found[code] = 1 if entry is None else entry.parts
    return found


def _groups(trace: Trace, call: IntColumn, events: IntColumn, named: Mask, parts: IntColumn) -> _EventGroups:
    """Group events by call. `parts` is the number of kernels that share the work of each call; 0 means any number."""
    replay, repetition = trace.gpu.graph_replay[events], trace.attribution.repetition[events]
    order = np.lexsort((events, -trace.gpu.dur[events], ~named[events], repetition, replay, call[events]))
    events = events[order]
    begin = np.flatnonzero(run_starts(call[events], replay[order], repetition[order]))
    end = np.append(begin, len(events))[1:]
    own, name = call[events[begin]], trace.gpu.name[events]
    same = np.concatenate([[0], np.cumsum(name == np.repeat(name[begin], end - begin))])
    whole = (parts[own] == 1) & (same[end] - same[begin] == 1) | (parts[own] > 0) & (end - begin == 1)
    return _EventGroups(events, begin, end, own, whole)


def _main(trace: Trace, events: IntColumn, op: str, named: Mask) -> list[IntColumn]:
    """Return the main kernels of an operator's group: one list of events for each part of the operator's work.

    A list has several events if the operator launches the same kernel several times, once per chunk of its tensors.
    """
    name, entry = trace.gpu.name[events], operator(op)
    first = list(dict.fromkeys(name[named[events]].tolist() or name[:1].tolist()))
    return [events[name == code] for code in first[: entry.parts if entry is not None else 1]]


def _share(trace: Trace, column: IntColumn, main: list[IntColumn], total: int) -> None:
    """Divide a total equally among the lists of kernels, and within each list in proportion to duration."""
    if total < 0:
        return
    for part, kernels in enumerate(main):
        amount = total // len(main) + (total % len(main) if part == 0 else 0)
        if len(kernels) == 1:
            column[kernels] = amount
            continue
        dur = trace.gpu.dur[kernels].tolist()
        whole = sum(dur)
        shares = [amount * ns // whole if whole else amount // len(dur) for ns in dur]
        shares[0] += amount - sum(shares)
        column[kernels] = shares


def _set_dtypes(trace: Trace, work: Work) -> None:
    calls = trace.attribution.calls
    codes = {dtype: code for code, dtype in enumerate(work.dtypes)}
    of_signature = np.array([*(codes[signature.dtype] for signature in trace.signatures), 0], np.int32)
    events = np.flatnonzero(work.call >= 0)
    work.dtype[events] = of_signature[calls.signature[work.call[events]]]
    events = events[work.flops[events] >= 0]
    for (name, signature), at in grouped(calls.name[work.call[events]], calls.signature[work.call[events]]):
        dtype = computed_in(trace.names[name], trace.signatures[signature])
        if dtype not in codes:
            codes[dtype] = len(work.dtypes)
            work.dtypes.append(dtype)
        work.dtype[events[at]] = codes[dtype]
    tensor_float = matching(trace.gpu.name, trace.names, _TENSOR_FLOAT.search)
    work.dtype[tensor_float & (work.dtype == codes["float32"])] = codes["tf32"]
