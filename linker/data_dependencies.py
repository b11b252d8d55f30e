"""For every tensor that a call reads, find the call that last wrote its bytes, based on the ET's storage ids.

docs/reference/data_dependencies.md explains the rules, the reasons for them, and what an ET does not record."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..schemas.execution_trace.read_et import ExecutionTrace
from ..schemas.execution_trace.tensors import tensor_uses
from ..schemas.kineto.kineto_calls import CpuCalls
from ..schemas.kineto.read_kineto import KinetoTrace
from ..trace.columns import IntColumn, distinct, inverse_positions, mask_at, matching, positions, scatter
from ..trace.conventions import ANNOTATION_SCOPE
from ..trace.tensors import MAX_STORAGE, TensorUses
from .calls import EtCalls

_Flags = npt.NDArray[np.bool_]

# These calls (over half of all calls) neither access elements nor allocate storage, even if their schema claims it.
# The calls are views, queries of tensor properties, and records that autograd and DDP add around other calls.
_IDLE = re.compile(
    r"autograd::engine::evaluate_function: .*|\w+Backward\d+|torch::autograd::AccumulateGrad|detach_?|"
    r"torch(?:::|\.)distributed(?:::|\.)(?:ddp\.)?reducer::\w+|"
    r"aten::(?:_coalesced_|_nnz|_reshape_alias|alias|as_strided_?|chunk|cudnn_is_acceptable|dense_dim|detach_?|diagonal|"
    r"expand|expand_as|flatten|is_coalesced|is_pinned|lift_fresh|movedim|narrow|numpy_T|permute|record_stream|rename_|"
    r"requires_grad_|resolve_conj|resolve_neg|result_type|select|slice|sparse_dim|split|split_with_sizes|squeeze_?|"
    r"swapaxes_?|swapdims_?|t_?|tensor_split|transpose_?|unbind|unflatten|unfold|unsqueeze_?|view|view_as|"
    r"view_as_complex|view_as_real)"
)
# These calls allocate a tensor's storage but access no element.
_STORAGE_ONLY = re.compile(r"aten::(?:(?:new_)?empty(?:_\w+)?|_?resize\w*_|set_)")
# These calls read only the shape and type of their inputs.
_SHAPE_ONLY = re.compile(r"aten::(?:\w+_like|new_\w+)")
# These calls write to inputs that no schema marks: record_param_comms, and names with a trailing underscore.
_IN_PLACE = re.compile(r"record_param_comms|.*[^_]_(?:\.\w+)?")
# These calls run unknown kernels that may write all their arguments.
_WRITES_ALL = re.compile(r"triton_\w+")

_SCHEMA_TOKEN = re.compile(r"[()\[\],!*]")
_MARKED_STRING = re.compile(rb'(?<=")[^"!]*![^"]*(?=")')
_MAX_ARGUMENTS = 62
_MAX_PIECES = 1 << 20
_PIECES_PER_ACCESS = 16


class _Accesses(NamedTuple):
    """Reads and writes by calls in `EtCalls`. Storages are cut into pieces wherever an access begins or ends."""

    call: IntColumn
    write: _Flags
    piece: IntColumn


class _Tree(NamedTuple):
    """The call tree, depth first: each call's number, the first number after its callees, and its last callee."""

    first: IntColumn
    stop: IntColumn
    last: IntColumn


def data_edges(et: ExecutionTrace, nodes: EtCalls) -> tuple[IntColumn, IntColumn]:
    """Return each data dependency's writer and reader (edge kind `data`), as sorted pairs of positions in `nodes`. A
    writer starts before its reader, and neither calls the other."""
    storage_only = _matching(_STORAGE_ONLY, et, nodes)
    accesses = _accesses(et, nodes, storage_only)
    tree = _tree(nodes.parent)
    covered = _left_to_callees(accesses, tree, ~storage_only)
    working = mask_at(len(nodes), accesses.call[~covered])
    own = np.where(accesses.write, working[accesses.call], ~covered)
    kept = _Accesses(accesses.call[own], accesses.write[own], accesses.piece[own])
    return _last_writers(kept, tree.last)


def recorded_data(kineto: KinetoTrace, calls: CpuCalls, node_of_call: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return the producers and readers that the timeline records (`KinetoTrace.data`) if both calls are linked."""
    if not len(kineto.data):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    node = scatter(len(kineto.events), calls.row, node_of_call)
    producer, reader = node[kineto.data].T
    both = (producer >= 0) & (reader >= 0)
    return producer[both], reader[both]


def _matching(pattern: re.Pattern[str], et: ExecutionTrace, nodes: EtCalls) -> _Flags:
    return matching(et.name[nodes.node], et.names, pattern.fullmatch)


def _accesses(et: ExecutionTrace, nodes: EtCalls, storage_only: _Flags) -> _Accesses:
    touching = np.flatnonzero((et.scope[nodes.node] != ANNOTATION_SCOPE) & ~_matching(_IDLE, et, nodes))
    tensors = tensor_uses(et.texts.of(nodes.node[touching]))
    call, output, given = touching[tensors.node], tensors.output, ~tensors.output
    key = call * MAX_STORAGE + tensors.storage
    fresh = output & (positions(key[given], key) < 0)
    returns, creates = mask_at(len(nodes), call[output]), mask_at(len(nodes), call[fresh])
    written, overwritten = _marked_arguments(et, nodes)
    written[storage_only] = 0
    written[_matching(_WRITES_ALL, et, nodes)] = -1
    by_name = _matching(_IN_PLACE, et, nodes) & (written == 0) & ~storage_only
    view = returns & ~creates & (written == 0) & ~by_name
    written[by_name & ~returns] = 1
    bit = np.minimum(tensors.argument, _MAX_ARGUMENTS)
    write = fresh | (given & (written[call] >> bit & 1 == 1)) | (output & by_name[call])
    blind = view | storage_only | _matching(_SHAPE_ONLY, et, nodes)
    read = given & ~blind[call] & (overwritten[call] >> bit & 1 == 0)
    return _cut(call, tensors, read, write)


def _marked_arguments(et: ExecutionTrace, nodes: EtCalls) -> tuple[IntColumn, IntColumn]:
    """Return two bit masks per call: the arguments that its schema marks as written with "!", and the keyword-only ones
    among them (`out`). A string that contains "!" is a schema only if it starts with the operator's name."""
    written, overwritten = np.zeros((2, len(nodes)), np.int64)
    call_of_node = inverse_positions(len(et), nodes.node)
    known: dict[bytes, tuple[str, int, int]] = {}
    for block, first in enumerate(et.texts.first[:-1].tolist()):
        for node, text in enumerate(et.texts.cut(block)[1], first):
            if b"!" not in text or (call := int(call_of_node[node])) < 0:
                continue
            for schema in _MARKED_STRING.findall(text):
                if schema not in known:
                    known[schema] = _marks(schema.decode(errors="replace"))
                operator, positional, keyword_only = known[schema]
                if operator == et.names[et.name[node]]:
                    written[call] = positional | keyword_only
                    overwritten[call] = keyword_only
    return written, overwritten


def _marks(schema: str) -> tuple[str, int, int]:
    """Return a schema's operator, and the bit masks of its marked positional and keyword-only arguments. A schema looks
    like "aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)"."""
    marks, keyword_only, index, depth = [0, 0], False, 0, 0
    for token in _SCHEMA_TOKEN.findall(schema):
        if token in "([":
            depth += 1
        elif token in ")]":
            depth -= 1
            if depth <= 0:
                break
        elif token == "!" and 0 <= index < _MAX_ARGUMENTS:
            marks[keyword_only] |= 1 << index
        elif depth == 1 and token == ",":
            index += 1
        elif depth == 1 and token == "*":
            keyword_only, index = True, index - 1
    return schema.partition("(")[0].partition(".")[0], marks[0], marks[1]


def _cut(call: IntColumn, tensors: TensorUses, read: _Flags, write: _Flags) -> _Accesses:
    """Cut each read and write into accesses to pieces of storage. A storage that has too many cuts remains one piece
    (for example, thousands of slices, each with a read of the whole storage). In this case, each writer of the storage
    also becomes a reader, so all calls that use the storage form a chain."""
    which = np.concatenate((np.flatnonzero(read), np.flatnonzero(write)))
    writes = np.arange(len(which)) >= np.count_nonzero(read)
    call, storage = call[which], tensors.storage[which]
    begin, end = tensors.begin[which], tensors.end[which]
    offsets = distinct(np.concatenate((begin, end)))
    begin, end = (storage * len(offsets) + np.searchsorted(offsets, side) for side in (begin, end))
    cuts = distinct(np.concatenate((begin, end)))
    first = np.searchsorted(cuts, begin)
    count = np.searchsorted(cuts, end) - first
    limit = max(_MAX_PIECES, _PIECES_PER_ACCESS * len(which))
    if count.sum() > limit:
        _, code = np.unique(storage, return_inverse=True)
        total = np.bincount(code, count)
        order = np.argsort(total, kind="stable")
        coarse = scatter(len(total), order, np.cumsum(total[order]) > limit)[code]
        first[coarse] = np.searchsorted(cuts, storage[coarse] * len(offsets))
        count[coarse] = 1
        also = np.flatnonzero(coarse & writes)
        call, first, count = (np.concatenate((column, column[also])) for column in (call, first, count))
        writes = np.concatenate((writes, np.zeros(len(also), np.bool_)))
    row = np.repeat(np.arange(len(call)), count)
    piece = np.arange(len(row)) - np.repeat(np.cumsum(count) - count - first, count)
    return _Accesses(call[row], writes[row], piece)


def _left_to_callees(accesses: _Accesses, tree: _Tree, counting: _Flags) -> _Flags:
    """Return a mask of the accesses that a callee performs instead of the call itself. A callee performs a write if it
    writes the same bytes, and a read if it accesses them."""
    group = accesses.piece * len(counting)
    key = group + tree.first[accesses.call]
    until = group + tree.stop[accesses.call]
    callee = counting[accesses.call]
    covered = np.empty(len(key), np.bool_)
    for kind, by in ((~accesses.write, callee), (accesses.write, callee & accesses.write)):
        callees = np.append(np.sort(key[by]), np.iinfo(np.int64).max)
        covered[kind] = callees[np.searchsorted(callees, key[kind], side="right")] < until[kind]
    return covered


def _last_writers(accesses: _Accesses, last: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return pairs of calls: the last writer of a piece of storage, and a later reader of the same piece. An ET does
    not record when a call ends. Assume that a call reads when it starts and writes when its last callee starts."""
    size = len(last)
    starts, ends = _moments(last)
    call_at, write_at = np.zeros(2 * size, np.int64), np.zeros(2 * size, np.bool_)
    call_at[starts] = call_at[ends] = np.arange(size)
    write_at[ends] = True
    moment = np.where(accesses.write, ends[accesses.call], starts[accesses.call])
    piece, moment = np.divmod(distinct(accesses.piece * (2 * size) + moment), max(2 * size, 1))
    write = write_at[moment]
    latest = np.maximum.accumulate(np.where(write, np.arange(len(write)), 0))
    reads = np.flatnonzero(~write & write[latest] & (piece[latest] == piece))
    pairs = distinct(call_at[moment[latest[reads]]] * size + call_at[moment[reads]])
    source, target = np.divmod(pairs, max(size, 1))
    return source, target


def _moments(last: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Number the starts and ends of all calls from 0 to 2n − 1, so that each call ends after its callees."""
    calls = np.arange(len(last))
    order = np.lexsort((-calls, last))
    ends = scatter(len(last), order, calls + last[order] + 1)
    return calls + np.searchsorted(last[order], calls), ends


def _tree(parent: IntColumn) -> _Tree:
    parents = parent.tolist()
    size, last, number = [1] * len(parents), list(range(len(parents))), [0] * len(parents)
    for call in range(len(parents) - 1, -1, -1):
        caller = parents[call]
        if caller >= 0:
            size[caller] += size[call]
            last[caller] = max(last[caller], last[call])
    free, roots = [0] * len(parents), 0
    for call, caller in enumerate(parents):
        if caller >= 0:
            number[call] = free[caller]
            free[caller] += size[call]
        else:
            number[call] = roots
            roots += size[call]
        free[call] = number[call] + 1
    first = np.array(number, np.int64)
    return _Tree(first, first + np.array(size, np.int64), np.array(last, np.int64))
