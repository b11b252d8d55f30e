"""Find the repeated blocks of a model in its forward pass. FSDP usually gathers one block at a time.

Each topmost call that computes becomes a token that consists of its name and its parameter sizes. A run of tokens
repeats if it equals the run that starts `period` tokens later. The repetition with the most parameter elements wins;
ties go to the shortest period.

Example: `E A r B A r B A r B H` (embedding, three MLPs with two linears and a relu, head). Tokens 1 to 6 equal tokens 4
to 9, so period 3 gives three blocks, each with A and B.

1. A repetition can start at several tokens (`r B A` also repeats twice); `_first_of` chooses the start.
2. If blocks repeat inside the blocks, as in two towers, `_inner` uses the inner blocks. The search then continues
   before the first and after the last block, because a model may have an encoder and a decoder.
3. `_of_other_sizes` adds blocks with the same calls but different sizes, such as a block that changes the number of
   channels.
4. `in_module_order` moves parameters that lie between blocks to the root: exits, skip connections, learned queries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .model import Weights
from .step_calls import VIEWS, Call, walked

# Number of distances to try as periods, most frequent first. All parameters of a block repeat with the same period.
_PERIODS = 64
_COMPARED = 8  # measure a token's distances to this many earlier identical ones; longer distances span several blocks
_LEAST_SHARE = 0.25  # further blocks need this share of the first blocks' size; smaller repetitions are pairs of layers
_LEAST_PERIOD = 3  # further blocks need this many calls; shorter repetitions are pairs of layers

_LEAST_FURTHER = 4  # if only sizes match, a block needs this many parameters; a weight and a bias are too common
_EMBEDDING = "aten::embedding"
# `_parts_of` returns such a string for a single module, such as a decoder layer or a layer with or without attention.
# Other results, such as "mm" for alternating MLPs of two classes, may be one or several FSDP units.
_USUAL_PARTS = frozenset(("", "m", "a", "am", "aam"))

_Integers = npt.NDArray[np.int64]


class CallRange(NamedTuple):
    """The range [begin, end) of topmost forward calls."""

    begin: int
    end: int


class _Repetition(NamedTuple):
    """A run of `blocks` blocks that each have `period` tokens. The first block starts at token `first`."""

    first: int
    blocks: int
    period: int


@dataclass(frozen=True)
class _Tokens:
    place: list[int]  # index of the call in the forward pass
    code: _Integers  # identical tokens have the same code
    elements: _Integers  # number of elements in `new`
    new: list[list[int]]  # parameters that no earlier call uses
    before: _Integers  # number of live activations after the previous token's call
    most: _Integers  # maximum number of live activations between the previous token's call and this call
    layer: npt.NDArray[np.bool_]  # True if the call uses new parameters and is not an embedding

    def part(self, begin: int, end: int) -> _Tokens:
        return _Tokens(*(column[begin:end] for column in vars(self).values()))


def repeated_blocks(
    forward: Sequence[Call],
    weights: Weights,
    alive: Sequence[int],
    sizes: Mapping[int, int],
    joined: Set[int] = frozenset(),
) -> list[CallRange]:
    tokens = _tokens_of(forward, weights, alive, sizes, joined)
    found: list[CallRange] = []
    waiting, least = [(0, len(tokens.place))], 0.0
    while waiting:
        begin, end = waiting.pop()
        best = _best(tokens.part(begin, end), least)
        if best is None:
            continue
        first, count, period = begin + best.first, best.blocks, best.period
        last = first + count * period
        inner = _inner(tokens.part(first, first + period), least)
        starts: Sequence[int] = range(first, last, period)
        if inner is not None:
            starts = [start + inner.first + k * inner.period for start in starts for k in range(inner.blocks)]
            period = inner.period
        least = least or _LEAST_SHARE * float(sum(tokens.elements[k : k + period].sum() for k in starts)) / len(starts)
        for start in starts:
            edges = (start, start + period)
            places = [tokens.place[edge] if edge < len(tokens.place) else len(forward) for edge in edges]
            found.append(CallRange(*(_with_views(forward, k, weights) if k < len(forward) else k for k in places)))
        waiting += [(last, end), (begin, first)]
    return sorted([*found, *_of_other_sizes(sorted(found), forward, weights, alive)])


def _tokens_of(
    forward: Sequence[Call], weights: Weights, alive: Sequence[int], sizes: Mapping[int, int], joined: Set[int]
) -> _Tokens:
    places = [place for place, call in enumerate(forward) if call.name not in VIEWS and place not in joined]
    codes: dict[tuple[object, ...], int] = {}
    seen = set[int]()
    code, new = list[int](), list[list[int]]()
    for place in places:
        end = next(k for k in range(place + 1, len(forward) + 1) if k not in joined)
        taken = list(dict.fromkeys(p.number for call in walked(forward[place:end]) for p in weights.read(call)))
        new.append([number for number in taken if number not in seen])
        seen.update(taken)
        token = (forward[place].name, *(sizes[number] for number in taken))
        code.append(codes.setdefault(token, len(codes)))
    elements = [sum(sizes[number] for number in numbers) for numbers in new]
    before = [1, *(alive[place] for place in places[:-1])]
    most = [1, *(max(alive[left:right]) for left, right in pairwise(places))]
    arrays = [np.array(values, np.int64) for values in (code, elements, before, most)]
    layer = np.array([bool(one) and forward[k].name != _EMBEDDING for one, k in zip(new, places, strict=True)], bool)
    return _Tokens(places, arrays[0], arrays[1], new, arrays[2], arrays[3], layer)


def _inner(block: _Tokens, least: float) -> _Repetition | None:
    """Return repeated blocks that make up most of a larger block, as in two towers.

    Without a residual connection, at least three inner blocks are required, because two equal layers are common.
    """
    inner = _best(block, least, strict=True)
    if inner is None or inner.blocks * inner.period == len(block.place):
        return inner
    begin, end = inner.first, inner.first + inner.blocks * inner.period
    residual = block.most[begin + 1 : begin + inner.period].max(initial=0) > block.before[begin]
    most = 2 * block.elements[begin:end].sum() > block.elements.sum()
    return inner if most and (residual or inner.blocks > 2) else None


def _best(tokens: _Tokens, least: float, *, strict: bool = False) -> _Repetition | None:
    """Return the repetition with the most elements; ties go to the shortest period.

    Args:
        least: minimum number of elements per block; 0 for the first search.
        strict: reject repetitions with more live activations between blocks than before the first block. If False,
            accept them for three or more multi-layer blocks: exits and skip connections keep activations live.
    """
    best: tuple[tuple[int, int], _Repetition] | None = None
    for period in _periods(tokens):
        for begin, end in _runs(tokens.code[:-period] == tokens.code[period:]):
            count = (end - begin) // period + 1
            if count < 2 or (least and period < _LEAST_PERIOD):
                continue
            first = _first_of(tokens, range(begin, begin + (end - begin) % period + 1), count, period)
            between = tokens.before[first + period : first + count * period : period]
            parts = tokens.elements[first : first + count * period].reshape(count, period).sum(1)
            covered = int(parts.sum())
            if parts[0] <= 0 or parts[-1] <= 0 or covered / count < least:
                continue
            layers = int(np.count_nonzero(tokens.layer[first : first + period]))
            if layers == 0:
                continue
            if (strict or layers == 1 or count < 3) and between.max() > tokens.most[first]:  # part of a residual block
                continue
            key = covered, -period
            if best is None or key > best[0]:
                best = key, _Repetition(first, count, period)
    return None if best is None else best[1]


def _first_of(tokens: _Tokens, starts: range, count: int, period: int) -> int:
    """Return the start of the first block.

    Prefer blocks with consecutive parameters in the optimizer, because a module's parameters are consecutive. Among
    these, prefer few activations between blocks, and then a late start, because calls before the first block often
    look like the end of a block.
    """
    pieces = dict(zip(starts, _pieces(tokens.new, starts, count, period), strict=True))
    between = {k: int(tokens.before[k : k + count * period : period].sum()) for k in starts}
    return min(starts, key=lambda start: (pieces[start], between[start], -start))


def _pieces(numbers: Sequence[Sequence[int]], starts: range, count: int, period: int) -> Iterator[int]:
    found = 0
    for start in starts:
        if not found or numbers[start - 1]:  # otherwise the parameters are the same as for the previous start
            found = 0
            for begin in range(start, start + count * period, period):
                own = sorted(chain.from_iterable(numbers[begin : begin + period]))
                found += 1 + sum(right - left > 1 for left, right in pairwise(own))
        yield found


def _periods(tokens: _Tokens) -> list[int]:
    earlier: dict[int, list[int]] = {}
    counts = Counter[int]()
    for place in np.flatnonzero(tokens.elements > 0).tolist():
        before = earlier.setdefault(int(tokens.code[place]), [])
        counts.update(place - other for other in before[-_COMPARED:])
        before.append(place)
    return sorted(period for period, _ in counts.most_common(_PERIODS))


def _runs(equal: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    edges = np.diff(equal.astype(np.int8), prepend=0, append=0)
    yield from zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True)


def _with_views(forward: Sequence[Call], begin: int, weights: Weights) -> int:
    while begin and forward[begin - 1].name in VIEWS and any(True for _ in weights.read(forward[begin - 1])):
        begin -= 1
    return begin


def _of_other_sizes(
    found: Sequence[CallRange], forward: Sequence[Call], weights: Weights, alive: Sequence[int]
) -> list[CallRange]:
    """Find blocks with the same calls as a repeated block, but with different sizes.

    Such a block has a single live activation before and after it, and lacks at most one call. If the repeated block is
    a single layer, only layers with a residual connection are accepted. Calls between two repeated blocks also form a
    block if the operators that use parameters are the same as in the repeated block.
    """
    if not found:
        return []
    uses = [weights.takes(call) for call in forward]
    block = range(found[0].begin, found[0].end)
    wanted = Counter(forward[k].name for k in block if uses[k])
    calls = Counter(forward[k].name for k in block if forward[k].name not in VIEWS)
    single = wanted.total() <= 1
    more, edges = list[CallRange](), [0, *(edge for bounds in found for edge in bounds), len(forward)]
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        between_blocks = 0 < begin < end < len(forward) and not single
        if between_blocks and wanted == Counter(forward[k].name for k in range(begin, end) if uses[k]):
            more.append(CallRange(begin, end))
            continue
        first = begin
        for last in range(begin, end):
            if alive[last] != 1 and last != end - 1:
                continue
            part = range(first, last + 1)
            takers = Counter(forward[k].name for k in part if uses[k])
            lacking = calls - Counter(forward[k].name for k in part)
            residual = not single or max(alive[first : last + 1]) > 1
            if wanted <= takers and lacking.total() < 2 and residual:
                more.append(CallRange(first, last + 1))
            first = last + 1
    return more


def unsure_blocks(forward: Sequence[Call], blocks: Sequence[CallRange], weights: Weights, alive: Sequence[int]) -> bool:
    """Return whether a different division into blocks is equally likely.

    A block may be a sequence of modules, or may contain the calls of another block twice. Single-layer blocks may be
    next to several layers of the same kind, or next to the same calls.
    """
    kinds: dict[
        tuple[str, ...], str
    ] = {}  # compare call names, because other modules' activations may hide a block's residual connections
    for block in blocks:
        parts = _parts_of(forward, block, weights, alive)
        key = tuple(call.name for call in forward[block.begin : block.end])
        kinds[key] = min(parts, kinds.get(key, parts), key=len)
    if not _USUAL_PARTS.issuperset(kinds.values()) or {"a", "m"} <= set(kinds.values()):
        return True
    uses = [place for place, call in enumerate(forward) if weights.takes(call)]
    inside = [Counter(forward[k].name for k in uses if block.begin <= k < block.end) for block in blocks]
    least = min(inside, key=Counter.total, default=Counter[str]())
    if not least:
        return False
    if any(least + least <= names for names in inside):
        return True
    same_kind = [k for k in uses if forward[k].name in least]
    sides = sum(k < blocks[0].begin for k in same_kind), sum(k >= blocks[-1].end for k in same_kind)
    calls = [place for place, call in enumerate(forward) if call.name not in VIEWS]
    names = [forward[place].name for place in calls]
    first, last = bisect_left(calls, blocks[0].begin), bisect_left(calls, blocks[-1].end)
    begin, end = first - bisect_left(calls, blocks[0].end), last - bisect_left(calls, blocks[-1].begin)
    repeats = names[max(first + begin, 0) : first] == names[first : first - begin]
    repeats |= names[last : last + end] == names[last - end : last]
    return least.total() == 1 and (max(sides) > 1 or repeats)


def _parts_of(forward: Sequence[Call], block: CallRange, weights: Weights, alive: Sequence[int]) -> str:
    """Return one letter for each part of a block. A part ends when a single activation is live.

    "a" is attention. "m" is any other part with a residual connection, or two layers without a residual connection.
    Parts without a weight matrix are skipped.
    """
    base, first, parts, layers = alive[block.begin - 1] if block.begin else 1, block.begin, "", 0
    for last in range(block.begin, block.end):
        if alive[last] > base and last < block.end - 1:
            continue
        calls, residual = list(walked(forward[first : last + 1])), max(alive[first : last + 1]) > base
        matrices = sum(any(len(p.shape) > 1 for p in weights.taken(call)) for call in forward[first : last + 1])
        first, layers = last + 1, 0 if residual else layers + matrices
        if residual and matrices:
            parts += "a" if any("attention" in call.name for call in calls) else "m"
        elif matrices and layers == 2:
            parts += "m"
    return parts


def in_module_order(blocks: Sequence[set[int]], sizes: Mapping[int, Sequence[int]]) -> tuple[list[list[int]], bool]:
    """Correct the parameters of each block by the optimizer's order, because a module's parameters are adjacent in it.

    A parameter (such as a position table that all blocks read) joins a block if it lies between the block's parameters.
    Distant parameters move to the root if the remaining parameters match another block. Examples are exits between
    blocks, and a tensor that enters the first block as an activation. Return the sorted parameter numbers of each
    block, and True if extra parameters at a block's edge may belong to the root.
    """
    owner = {number: k for k, block in enumerate(blocks) for number in block}
    between = {n: owner[n - 1] for n in sizes if n not in owner and n - 1 in owner and owner[n - 1] == owner.get(n + 1)}
    is_vector = [len(sizes[number]) < 2 for number in sorted(sizes)]
    grouped = sum(left != right for left, right in pairwise(is_vector)) < len(blocks)  # weight-decay groups do this
    bridged = [block | {n for n in between if between[n] == k} for k, block in enumerate(blocks)]
    kept = [[n for n in _longest_runs(block, sizes, grouped=grouped) if n not in between] for block in bridged]
    shapes = [Counter(tuple(sizes[n]) for n in numbers) for numbers in kept]
    kept = [own if shapes.count(shapes[k]) > 1 else sorted(blocks[k]) for k, own in enumerate(kept)]
    kept += _further(kept, sizes, {n for numbers in kept for n in numbers} | between.keys())
    orders = [[tuple(sizes[n]) for n in numbers] for numbers in kept]
    loose = any(
        0 < len(other) < len(own)
        and own not in orders[:k] + orders[k + 1 :]
        and other in (own[-len(other) :], own[: len(other)])
        for k, own in enumerate(orders)
        for other in orders
    )
    return [sorted([*own, *(n for n in between if between[n] == k)]) for k, own in enumerate(kept)], loose


def _further(blocks: Sequence[list[int]], sizes: Mapping[int, Sequence[int]], taken: Set[int]) -> Iterator[list[int]]:
    """Yield other runs of parameters with the same sizes as most blocks, such as blocks without a skip connection."""
    orders = Counter(tuple(tuple(sizes[n]) for n in numbers) for numbers in blocks if _is_run(numbers))
    wanted, count = orders.most_common(1)[0] if orders else ((), 0)
    if count < 2 or len(wanted) < _LEAST_FURTHER:
        return
    free = sorted(sizes.keys() - taken)
    place = 0
    while place + len(wanted) <= len(free):
        run = free[place : place + len(wanted)]
        equal = _is_run(run) and tuple(tuple(sizes[n]) for n in run) == wanted
        if equal:
            yield run
        place += len(wanted) if equal else 1


def _is_run(numbers: Sequence[int]) -> bool:
    return len(numbers) > 0 and numbers[-1] - numbers[0] == len(numbers) - 1


def _longest_runs(block: set[int], sizes: Mapping[int, Sequence[int]], *, grouped: bool) -> list[int]:
    """Return the longest run of consecutive parameters. If vectors form a separate group, return one run per group."""
    runs = list[list[int]]()
    for number in sorted(block):
        if not runs or runs[-1][-1] != number - 1:
            runs.append([])
        runs[-1].append(number)
    longest: dict[bool, list[int]] = {}
    for run in runs:
        key = grouped and len(sizes[run[0]]) < 2
        if len(run) > len(longest.get(key, [])):
            longest[key] = run
    return sorted(chain.from_iterable(longest.values()))
