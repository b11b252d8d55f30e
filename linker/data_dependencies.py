"""Data dependencies: for each read of a tensor's bytes the call that last wrote them, from the ET's storage ids.

A tensor is `[tensor id, storage id, offset, numel, itemsize, device]`, offset and numel in elements, as PyTorch's
`ExecutionTraceObserver` writes it. A storage id stands for an address, so it may be one tensor's after another's.
docs/data_dependencies.md has the rules and why they are so.
"""

from __future__ import annotations

import contextlib
import re
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..schemas.execution_trace import ANNOTATION_SCOPE, ExecutionTrace
from ..schemas.records import UNREADABLE, IntColumn
from .calls import EtCalls

__all__ = ["data_edges"]

_Flags = npt.NDArray[np.bool_]

_IN_PLACE = re.compile(r"record_param_comms|.*[^_]_(?:\.\w+)?")
"""Names of calls that write into what they are given though no schema may say so: PyTorch's underscore; collectives."""
_IDLE = re.compile(
    r"autograd::engine::evaluate_function: .*|detach_?|aten::(?:_coalesced_|_reshape_alias|alias|as_strided_?|chunk|detach_?|"
    r"diagonal|expand|expand_as|flatten|movedim|narrow|numpy_T|permute|record_stream|rename_|requires_grad_|result_type|"
    r"select|slice|split|split_with_sizes|squeeze_?|swapaxes_?|swapdims_?|t_?|tensor_split|transpose_?|unbind|unflatten|"
    r"unfold|unsqueeze_?|view|view_as|view_as_complex|view_as_real)"
)
"""Calls that touch no element and make no storage, whatever their schema marks: half of a trace."""
_STORAGE_ONLY = re.compile(r"aten::(?:(?:new_)?empty(?:_\w+)?|_?resize\w*_|set_)")
"""Calls that provide a tensor's storage and touch no element."""
_SHAPE_ONLY = re.compile(r"aten::(?:\w+_like|new_\w+)")
"""Calls that take no more than shape and type from what they are given."""

_MAX_ARGUMENTS = 62
_MAX_DIGITS = 15
_MAX_STORAGE = 2**31
_MAX_ITEMSIZE = 999
_MAX_PIECES = 1 << 20
_PIECES_PER_ACCESS = 16

_OPEN, _CLOSE, _COMMA, _QUOTE = 1, 2, 3, 4
_KIND = {"[": _OPEN, "{": _OPEN, "]": _CLOSE, "}": _CLOSE, ",": _COMMA, '"': _QUOTE}
_KINDS = bytes(_KIND.get(chr(byte), 0) for byte in range(256))
_DEPTH = np.array([0, 1, -1, 0, 0], np.int32)
_TENSOR = (_OPEN, *[_COMMA] * 5, _QUOTE, _QUOTE, _CLOSE)
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_BETWEEN_ARGUMENTS = re.compile(r",\s*(?![^(\[]*[)\]])")
_NOTHING = msgspec.Raw(b"[]")


class _Values(msgspec.Struct, gc=False, frozen=True):
    values: msgspec.Raw = _NOTHING


class _Node(msgspec.Struct, gc=False):
    inputs: _Values = _Values()
    outputs: _Values = _Values()


class _FlatNode(msgspec.Struct, gc=False):
    inputs: msgspec.Raw = _NOTHING
    outputs: msgspec.Raw = _NOTHING


class _Tensors(NamedTuple):
    """Tensors that calls were given or gave back.

    Attributes:
        call: int64, position in `EtCalls`.
        output: bool. argument: int64, which of the call's inputs (or outputs) it is or is in.
        storage: int64 id. begin, end: int64, its bytes in the storage.
    """

    call: IntColumn
    output: _Flags
    argument: IntColumn
    storage: IntColumn
    begin: IntColumn
    end: IntColumn


class _Accesses(NamedTuple):
    """Reads and writes, cut where any other of the same storage begins or ends: two are of the same bytes or of none.

    Attributes:
        call: int64, position in `EtCalls`.
        write: bool.
        piece: int64, which bytes.
    """

    call: IntColumn
    write: _Flags
    piece: IntColumn


def data_edges(et: ExecutionTrace, nodes: EtCalls) -> tuple[IntColumn, IntColumn]:
    """Writer and reader of each data dependency (edge kind `data`).

    Values that are no tensors are passed over, whatever they are.

    Returns:
        Positions in `nodes`, both int64, sorted by writer and reader, no pair twice. A writer starts before its reader,
        and neither is called by the other.
    """
    storage_only = _matching(_STORAGE_ONLY, et, nodes)
    accesses = _accesses(et, nodes, storage_only)
    covered = _left_to_callees(accesses, nodes.parent, ~storage_only)
    working = np.zeros(len(nodes), np.bool_)
    working[accesses.call[~covered]] = True
    own = np.where(accesses.write, working[accesses.call], ~covered)
    return _last_writers(_Accesses(*(column[own] for column in accesses)), nodes.parent)


def _matching(pattern: re.Pattern[str], et: ExecutionTrace, nodes: EtCalls) -> _Flags:
    """Which calls have a name of the pattern."""
    return np.array([pattern.fullmatch(name) is not None for name in et.names], np.bool_)[et.name[nodes.node]]


def _tensors(et: ExecutionTrace, nodes: EtCalls) -> _Tensors:
    """All tensors in the inputs and outputs of the calls that may touch elements; annotations do not.

    The texts are joined, each in brackets of its own, and searched for what a tensor is when its numbers and its
    device are left out, `[,,,,,""]`: a parser would make a list of every tensor first.
    """
    calls = np.flatnonzero((et.scope[nodes.node] != ANNOTATION_SCOPE) & ~_matching(_IDLE, et, nodes))
    text = b"[" + b"][".join(_values(et, nodes.node[calls])) + b"]"
    text = (_ESCAPE.sub(b"__", text) if b"\\" in text else text).translate(None, b" \t\r\n")
    kinds = np.frombuffer(text.translate(_KINDS), np.uint8)
    at = np.flatnonzero(kinds.astype(np.bool_))
    kind = kinds[at]
    quote = kind == _QUOTE
    outside = quote | ~np.logical_xor.accumulate(quote)
    at, kind = at[outside], kind[outside]
    depth = np.cumsum(_DEPTH.take(kind), dtype=np.int32)
    first = _occurrences(kind)
    first = first[depth[first] > 2]
    begins = (kind == _OPEN) & (depth == 1)
    section = np.cumsum(begins, dtype=np.int32)[first] - 1
    commas = np.cumsum((kind == _COMMA) & (depth == 2), dtype=np.int32)
    argument = commas[first] - commas[begins][section]
    data = np.frombuffer(text, np.uint8)
    numbers = [_integers(data, at[first + i] + 1, at[first + i + 1]) for i in range(5)]
    tensor, storage, offset, numel, itemsize = numbers
    good = (tensor >= 0) & (storage > 0) & (storage < _MAX_STORAGE) & (offset >= 0) & (numel > 0)
    good &= (itemsize > 0) & (itemsize <= _MAX_ITEMSIZE)
    begin, end = offset * itemsize, (offset + numel) * itemsize
    columns = calls[section // 2], section % 2 == 1, argument, storage, begin, end
    return _Tensors(*(column[good] for column in columns))


def _values(et: ExecutionTrace, nodes: IntColumn) -> list[msgspec.Raw]:
    """The undecoded values of each node's inputs and outputs, in turn."""
    texts = [et.data[begin:end] for begin, end in zip(et.start[nodes].tolist(), et.end[nodes].tolist(), strict=True)]
    if not et.flat:
        with contextlib.suppress(*UNREADABLE):
            decode = msgspec.json.Decoder(_Node).decode
            return [side.values for node in map(decode, texts) for side in (node.inputs, node.outputs)]
    flat = map(msgspec.json.Decoder(_FlatNode).decode, texts)
    sides = [side for node in flat for side in (node.inputs, node.outputs)]
    return sides if et.flat else list(map(_values_in, sides))


def _values_in(side: msgspec.Raw) -> msgspec.Raw:
    try:
        return msgspec.json.decode(side, type=_Values).values
    except UNREADABLE:
        return _NOTHING


def _occurrences(kind: npt.NDArray[np.uint8]) -> IntColumn:
    """Where in a sequence `_TENSOR` begins."""
    size = max(len(kind) - len(_TENSOR) + 1, 0)
    found = np.ones(size, np.bool_)
    for i, expected in enumerate(_TENSOR):
        found &= kind[i : i + size] == expected
    return np.flatnonzero(found)


def _integers(data: npt.NDArray[np.uint8], begin: IntColumn, end: IntColumn) -> IntColumn:
    """The numbers written in spans of a text; −1 for what has another character than digits, or too many of them."""
    length = end - begin
    good = (length > 0) & (length <= _MAX_DIGITS)
    value = np.zeros(len(begin), np.int64)
    left, place = np.flatnonzero(good), 0
    while len(left):
        digit = data[end[left] - 1 - place] - np.uint8(ord("0"))
        good[left[digit > 9]] = False
        value[left] += digit * np.int64(10**place)
        place += 1
        left = left[length[left] > place]
    return np.where(good, value, -1)


def _accesses(et: ExecutionTrace, nodes: EtCalls, storage_only: _Flags) -> _Accesses:
    """What each call reads and writes by its inputs, outputs, name and schema."""
    tensors = _tensors(et, nodes)
    call, given = tensors.call, ~tensors.output
    key = call * _MAX_STORAGE + tensors.storage
    fresh = tensors.output & ~_within(key, np.sort(key[given]))
    returns, creates = np.zeros((2, len(nodes)), np.bool_)
    returns[call[tensors.output]] = True
    creates[call[fresh]] = True
    written, overwritten = _marked_arguments(et, nodes)
    written[storage_only] = 0
    by_name = _matching(_IN_PLACE, et, nodes) & (written == 0) & ~storage_only
    view = returns & ~creates & (written == 0) & ~by_name
    written[by_name & ~returns] = 1
    shift = np.minimum(tensors.argument, _MAX_ARGUMENTS)
    write = fresh | (given & (written[call] >> shift & 1 == 1)) | (tensors.output & by_name[call])
    blind = view | storage_only | _matching(_SHAPE_ONLY, et, nodes)
    read = given & ~blind[call] & (overwritten[call] >> shift & 1 == 0)
    return _cut(tensors, read, write)


def _marked_arguments(et: ExecutionTrace, nodes: EtCalls) -> tuple[IntColumn, IntColumn]:
    """For each call the arguments that its schema marks as written, and of these the keyword-only ones (`out`).

    Returns:
        Two int64 columns, bit i for argument i.
    """
    written, overwritten = np.zeros((2, len(nodes)), np.int64)
    call_of_node = np.full(len(et), -1, np.int64)
    call_of_node[nodes.node] = np.arange(len(nodes))
    data, known, stop = et.data, dict[bytes, tuple[str, int, int]](), -1
    marks = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("!"))
    owner = np.searchsorted(et.start, marks, side="right") - 1
    within = (owner >= 0) & (marks < et.end[owner])
    for at, node in zip(marks[within].tolist(), owner[within].tolist(), strict=True):
        if at < stop:
            continue
        begin, stop = data.rfind(b'"', 0, at) + 1, data.find(b'"', at)
        schema = data[begin:stop]
        if schema not in known:
            known[schema] = _marks(schema.decode(errors="replace"))
        name, positional, keyword = known[schema]
        if name == et.names[et.name[node]]:
            written[call_of_node[node]] = positional | keyword
            overwritten[call_of_node[node]] = keyword
    return written, overwritten


def _marks(schema: str) -> tuple[str, int, int]:
    """Operator name of a schema, and its written arguments that are positional and keyword-only, as bits."""
    head, _, rest = schema.partition("(")
    keyword_only, index = False, 0
    marked = [0, 0]
    for argument in _BETWEEN_ARGUMENTS.split(rest.rpartition(") ->")[0]):
        if argument == "*":
            keyword_only = True
            continue
        if "!" in argument.partition("=")[0] and index < _MAX_ARGUMENTS:
            marked[keyword_only] |= 1 << index
        index += 1
    return head.partition(".")[0], marked[0], marked[1]


def _cut(tensors: _Tensors, read: _Flags, write: _Flags) -> _Accesses:
    """Reads and writes as pieces.

    A storage that is cut too finely (some thousand slices, each followed by a read of the whole) counts as one piece
    that whoever writes also reads: its calls stay in order, in a chain.
    """
    which = np.concatenate((np.flatnonzero(read), np.flatnonzero(write)))
    writes = np.arange(len(which)) >= np.count_nonzero(read)
    call, storage = tensors.call[which], tensors.storage[which]
    offsets = _distinct(np.concatenate((tensors.begin[which], tensors.end[which])))
    begin, end = (storage * len(offsets) + np.searchsorted(offsets, side[which]) for side in tensors[4:])
    cuts = _distinct(np.concatenate((begin, end)))
    first = np.searchsorted(cuts, begin)
    count = np.searchsorted(cuts, end) - first
    limit = max(_MAX_PIECES, _PIECES_PER_ACCESS * len(which))
    if count.sum() > limit:
        _, code = np.unique(storage, return_inverse=True)
        total = np.bincount(code, count)
        order = np.argsort(total, kind="stable")
        coarse = np.zeros(len(total), np.bool_)
        coarse[order] = np.cumsum(total[order]) > limit
        coarse = coarse[code]
        first[coarse] = np.searchsorted(cuts, storage[coarse] * len(offsets))
        count[coarse] = 1
        also = np.flatnonzero(coarse & writes)
        call, first, count = (np.concatenate((column, column[also])) for column in (call, first, count))
        writes = np.concatenate((writes, np.zeros(len(also), np.bool_)))
    row = np.repeat(np.arange(len(call)), count)
    piece = np.arange(len(row)) - np.repeat(np.cumsum(count) - count - first, count)
    return _Accesses(call[row], writes[row], piece)


def _distinct(values: IntColumn) -> IntColumn:
    """Sorted, without repetitions: what `np.unique` does, which looks for them by hashing at ten times the cost."""
    values = np.sort(values)
    return values[np.concatenate((values[:1] == values[:1], values[1:] != values[:-1]))]


def _within(values: IntColumn, ordered: IntColumn) -> _Flags:
    """Which values are among the sorted ones."""
    at = np.searchsorted(ordered, values)
    found = at < len(ordered)
    found[found] = ordered[at[found]] == values[found]
    return found


def _left_to_callees(accesses: _Accesses, parent: IntColumn, counting: _Flags) -> _Flags:
    """Which accesses a callee, at any depth, makes in the same way to the same bytes.

    Args:
        counting: by call, whether what it does takes the work off its callers.
    """
    size = len(parent)
    first, stop = _depth_first(parent)
    group = (accesses.piece * 2 + accesses.write) * size
    key = group + first[accesses.call]
    callees = np.sort(key[counting[accesses.call]])
    after = np.searchsorted(callees, key, side="right")
    covered = after < len(callees)
    covered[covered] = callees[after[covered]] < (group + stop[accesses.call])[covered]
    return covered


def _depth_first(parent: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Each call's number in depth-first order, and the first number after those of all its callees."""
    parents = parent.tolist()
    size = [1] * len(parents)
    for call in range(len(parents) - 1, -1, -1):
        if parents[call] >= 0:
            size[parents[call]] += size[call]
    free, number, roots = [0] * len(parents), [0] * len(parents), 0
    for call, caller in enumerate(parents):
        if caller >= 0:
            number[call] = free[caller]
            free[caller] += size[call]
        else:
            number[call] = roots
            roots += size[call]
        free[call] = number[call] + 1
    first = np.array(number, np.int64)
    return first, first + np.array(size, np.int64)


def _last_writers(accesses: _Accesses, parent: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Pairs of calls: the one that last wrote a piece, and the one that reads it.

    A call reads when it starts. It has written when its last callee, at any depth, has started (the ET tells no more
    about ends): later than all of these have, and unseen by whatever started before.
    """
    size = len(parent)
    starts, ends = _moments(parent)
    call_at, write_at = np.zeros(2 * size, np.int64), np.zeros(2 * size, np.bool_)
    call_at[starts] = call_at[ends] = np.arange(size)
    write_at[ends] = True
    moment = np.where(accesses.write, ends[accesses.call], starts[accesses.call])
    piece, moment = np.divmod(_distinct(accesses.piece * (2 * size) + moment), 2 * size)
    write = write_at[moment]
    latest = np.maximum.accumulate(np.where(write, np.arange(len(write)), 0))
    reads = np.flatnonzero(~write & write[latest] & (piece[latest] == piece))
    pairs = _distinct(call_at[moment[latest[reads]]] * size + call_at[moment[reads]])
    source, target = np.divmod(pairs, size)
    return source, target


def _moments(parent: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Each call's start and end among the starts and ends of all, 0 to 2n − 1."""
    last = list(range(len(parent)))
    for call, caller in zip(range(len(last) - 1, -1, -1), parent[::-1].tolist(), strict=True):
        if caller >= 0:
            last[caller] = max(last[caller], last[call])
    latest = np.array(last, np.int64)
    calls = np.arange(len(last))
    order = np.lexsort((-calls, latest))
    ends = np.empty(len(last), np.int64)
    ends[order] = calls + latest[order] + 1
    return calls + np.searchsorted(latest[order], calls), ends
