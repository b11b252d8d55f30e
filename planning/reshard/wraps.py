"""Which parameters FSDP gathers together: as recorded, by repeated blocks, or as the user says."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, pairwise
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ...schemas.execution_trace.arguments import call_records
from ...trace.brief import brief
from ...trace.errors import UsageError
from ...trace.trace import Trace
from .step_calls import SUM, SUM_IN_PLACE, VIEWS, Call, tensor_values, walked
from .weights import Parameter, Weights

if TYPE_CHECKING:
    from .structure import Model

_LABEL = re.compile(r"FSDP::[a-z_]+(?: for)?(?: \((?P<label>[^)]*)\))?")
_FSDP_CALLS = "fsdp::all_gather_copy_in", "fsdp::split_with_sizes_copy", "fsdp::chunk_cat"
_PERIODS = 64
"""So many distances between alike calls are tried as lengths of a block."""
_LEAST_SHARE = 0.25
"""Another repeated block counts where it has this share of the first one's elements."""


@dataclass
class RecordedWrap:
    """A unit of FSDP2 in a recording.

    Attributes:
        label: the module's name, "" for the root. shards: storages of the rank's parts of parameters.
        gathered: (ts, storages of the gathered parameters). gradients: (ts, storages that are reduced).
    """

    label: str
    shards: tuple[int, ...] = ()
    gathered: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    gradients: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    __repr__ = brief


def recorded_wraps(trace: Trace, begin: int, end: int) -> list[RecordedWrap]:
    """The units of FSDP2 that a step gathers, in order; none for other recordings."""
    calls, names = trace.calls, trace.names
    codes = [code for code, name in enumerate(names) if name.startswith(_FSDP_CALLS)]
    chosen = np.flatnonzero(np.isin(calls.name, codes) & (calls.ts >= begin) & (calls.end <= end))
    chosen = chosen[np.argsort(calls.ts[chosen], kind="stable")]
    found: dict[str, RecordedWrap] = {}
    for call, record in zip(chosen.tolist(), call_records(trace, calls.source[chosen]), strict=True):
        unit = found.setdefault(label := _label(trace, call), RecordedWrap(label))
        lists = [value for value in record.inputs.values if isinstance(value, list) and value]
        lists = [value for value in lists if isinstance(value[0], list)]
        storages = [tuple(tensor[1] for tensor in tensor_values(value)) for value in lists]
        name, ts = names[calls.name[call]], int(calls.ts[call])
        if not storages:
            continue
        if name.startswith(_FSDP_CALLS[0]):
            unit.shards = unit.shards or storages[0]
        elif name.startswith(_FSDP_CALLS[1]):
            unit.gathered.append((ts, storages[-1]))
        else:
            unit.gradients.append((ts, storages[0]))
    return [unit for unit in found.values() if unit.shards]


def _label(trace: Trace, call: int) -> str:
    """The module of the FSDP annotation around a call."""
    while call >= 0:
        matched = _LABEL.match(trace.names[trace.calls.name[call]])
        if matched is not None:
            return matched["label"] or ""
        call = int(trace.calls.parent[call])
    return ""


class CallRange(NamedTuple):
    """Topmost calls [begin, end) of forward."""

    begin: int
    end: int


def repeated_blocks(
    forward: Sequence[Call], weights: Weights, alive: Sequence[int], sizes: Mapping[int, int],
    joined: Set[int] = frozenset(),
) -> list[CallRange]:  # fmt: skip
    """Blocks of calls that follow each other several times, the same operators on parameters of the same shapes.

    Of several ways to cut that which repeats most parameters counts, the shortest block of those. Where it can begin at
    several places, that counts whose blocks have parameters that the optimizer has side by side, as a module has its
    own; then that with the fewest activations alive between blocks; then the last one, as what is before the first
    block often resembles a block's end.

    Args:
        alive: how many activations are alive after each call. sizes: elements of each parameter, by number.
        joined: places of calls that belong to the call before them.
    """
    work = [at for at, call in enumerate(forward) if call.name not in VIEWS and at not in joined]
    codes: dict[tuple[object, ...], int] = {}
    seen = set[int]()
    tokens, elements = np.zeros(len(work), np.int64), np.zeros(len(work), np.int64)
    taken_first: list[list[int]] = []
    for place, at in enumerate(work):
        end = next(k for k in range(at + 1, len(forward) + 1) if k not in joined)
        taken = list(dict.fromkeys(p.number for call in walked(forward[at:end]) for p in weights.read(call)))
        new = [number for number in taken if number not in seen]
        seen.update(new)
        taken_first.append(new)
        token = (forward[at].name, *(sizes[number] for number in taken))
        tokens[place], elements[place] = codes.setdefault(token, len(codes)), sum(sizes[number] for number in new)
    found: list[CallRange] = []
    least = [0.0]
    before = np.array([1, *(alive[at] for at in work[:-1])], np.int64)
    most = np.array([1, *(max(alive[left:right]) for left, right in pairwise(work))], np.int64)

    def search(begin: int, end: int) -> None:
        part = slice(begin, end)
        best = _best(tokens[part], elements[part], (before[part], most[part]), least[0], taken_first[part])
        if best is None:
            return
        first, count, period = best
        part = slice(begin + first, begin + first + period)
        inner = _best(tokens[part], elements[part], (before[part], most[part]), least[0], taken_first[part])
        if inner is not None and inner[1] * inner[2] == period:  # two towers, of which the other's result stays alive
            count, period = count * inner[1], inner[2]
        block = float(elements[begin + first : begin + first + count * period].sum()) / count
        least[0] = least[0] or _LEAST_SHARE * block
        edges = [begin + first + k * period for k in range(count + 1)]
        bounds = [_with_views(forward, work[edge], weights) if edge < len(work) else len(forward) for edge in edges]
        found.extend(CallRange(left, right) for left, right in pairwise(bounds))
        search(begin, edges[0])
        search(edges[-1], end)

    search(0, len(work))
    return sorted([*found, *_of_other_sizes(sorted(found), forward, weights, alive)])


def unsure_blocks(forward: Sequence[Call], blocks: Sequence[CallRange], weights: Weights) -> bool:
    """Whether blocks may be others: a part has all that a block has twice, or blocks are single layers, before or
    behind which are several of the same kind and of other sizes, or one with the same calls behind it."""
    uses = [at for at, call in enumerate(forward) if any(True for one in call.walk() for _ in weights.taken(one))]
    inside = [Counter(forward[at].name for at in uses if block.begin <= at < block.end) for block in blocks]
    least = min(inside, key=Counter.total, default=Counter[str]())
    if not least:
        return False
    if any(least + least <= names for names in inside):
        return True
    alike = [at for at in uses if forward[at].name in least]
    sides = sum(at < blocks[0].begin for at in alike), sum(at >= blocks[-1].end for at in alike)
    calls = [at for at, call in enumerate(forward) if call.name not in VIEWS]
    names = [forward[at].name for at in calls]
    first, last = bisect_left(calls, blocks[0].begin), bisect_left(calls, blocks[-1].end)
    begin, end = first - bisect_left(calls, blocks[0].end), last - bisect_left(calls, blocks[-1].begin)
    beside = names[max(first + begin, 0) : first] == names[first : first - begin]
    beside |= names[last : last + end] == names[last - end : last]
    return least.total() == 1 and (max(sides) > 1 or beside)


def _with_views(forward: Sequence[Call], begin: int, weights: Weights) -> int:
    """Where a block begins: with the views of parameters before its first call."""
    while begin and forward[begin - 1].name in VIEWS and any(True for _ in weights.read(forward[begin - 1])):
        begin -= 1
    return begin


def _of_other_sizes(
    found: Sequence[CallRange], forward: Sequence[Call], weights: Weights, alive: Sequence[int]
) -> list[CallRange]:
    """Parts between two activations, outside of repeated blocks, that call all that a block does, but for one call at
    its edge; of a single layer around a residual. Such as a block that changes the number of channels. Between blocks
    also all that is there, where it has as many calls with parameters of each kind as a block."""
    if not found:
        return []
    uses = [any(True for one in call.walk() for _ in weights.taken(one)) for call in forward]
    wanted = Counter(call.name for at, call in enumerate(forward) if uses[at] and found[0].begin <= at < found[0].end)
    calls = Counter(call.name for call in forward[found[0].begin : found[0].end] if call.name not in VIEWS)
    more, edges = list[CallRange](), [0, *(edge for block in found for edge in block), len(forward)]
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        inside = 0 < begin < end < len(forward) and wanted.total() > 1
        if inside and wanted == Counter(forward[at].name for at in range(begin, end) if uses[at]):
            more.append(CallRange(begin, end))
            continue
        first = begin
        for at in range(begin, end):
            if alive[at] == 1 or at == end - 1:
                names = Counter(forward[k].name for k in range(first, at + 1) if uses[k])
                part = Counter(call.name for call in forward[first : at + 1])
                if (
                    wanted <= names
                    and (calls - part).total() < 2
                    and (wanted.total() > 1 or max(alive[first : at + 1]) > 1)
                ):
                    more.append(CallRange(first, at + 1))
                first = at + 1
    return more


def in_module_order(
    blocks: Sequence[set[int]], sizes: Mapping[int, Sequence[int]]
) -> tuple[list[list[int]], bool]:  # fmt: skip
    """The parameters of blocks, by the optimizer's order, in which those of a module follow each other: what lies
    between two of a block belongs to it, such as a table of positions that all blocks read; what no other block has and
    lies apart does not, such as a tensor that enters the first block as an activation.

    Args:
        sizes: of each parameter, by number.

    Returns:
        the sorted numbers of each block; and whether a block has more at an edge than others have, which may be the
        root's.
    """
    owner = {number: k for k, block in enumerate(blocks) for number in block}
    between = {n: owner[n - 1] for n in sizes if n not in owner and n - 1 in owner and owner[n - 1] == owner.get(n + 1)}
    shapes = [[tuple(sizes[number]) for number in sorted(block)] for block in blocks]
    found, loose = list[list[int]](), False
    for k, block in enumerate(blocks):
        others = [shapes[other] for other in range(len(blocks)) if other != k]
        apart = {n for n in block if owner.get(n - 1) != k and owner.get(n + 1) != k}
        kept = sorted(block - apart)
        if not apart or not any(Counter(tuple(sizes[n]) for n in kept) == Counter(other) for other in others):
            kept = sorted(block)
        own = [tuple(sizes[n]) for n in kept]
        shorter = [other for other in others if 0 < len(other) < len(own) and own not in others]
        loose |= any(other in (own[-len(other) :], own[: len(other)]) for other in shorter)
        found.append(sorted({*kept, *(n for n, of in between.items() if of == k)}))
    return found, loose


def _best(
    tokens: npt.NDArray[np.int64], elements: npt.NDArray[np.int64],
    alive: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], least: float, numbers: Sequence[Sequence[int]],
) -> tuple[int, int, int] | None:  # fmt: skip
    """First call, number and length of the blocks that repeat the most elements.

    Between blocks no more is alive than before the first one: parts of a residual block are none.

    Args:
        alive: activations behind the call before each, and the most up to it, with views between.
    """
    before, most = alive
    found: tuple[tuple[int, int], tuple[int, int, int]] | None = None
    for period in _periods(tokens, elements):
        for begin, end in _runs(tokens[:-period] == tokens[period:]):
            count = (end - begin) // period + 1
            if count < 2 or (least and period < 3):
                continue
            starts = range(begin, begin + (end - begin) % period + 1)
            inside = {at: before[at + period : at + count * period : period] for at in starts}
            pieces = dict(zip(starts, _pieces(numbers, starts, count, period), strict=True))
            first = min(starts, key=lambda at: (pieces[at], int(inside[at].sum()) + int(before[at]), -at))
            parts = elements[first : first + count * period].reshape(count, period).sum(1)
            covered = int(parts.sum())
            if parts[0] <= 0 or parts[-1] <= 0 or covered / count < least or inside[first].max() > most[first]:
                continue
            key = covered, -period
            if found is None or key > found[0]:
                found = key, (first, count, period)
    return None if found is None else found[1]


def _pieces(numbers: Sequence[Sequence[int]], starts: range, count: int, period: int) -> Iterator[int]:
    """Of blocks that begin at each start, in how many runs of consecutive numbers their parameters fall."""
    found = 0
    for at in starts:
        if not found or numbers[at - 1]:  # else the blocks have the same parameters as at the start before
            found = 0
            for begin in range(at, at + count * period, period):
                mine = sorted(chain.from_iterable(numbers[begin : begin + period]))
                found += 1 + sum(right - left > 1 for left, right in pairwise(mine))
        yield found


def _periods(tokens: npt.NDArray[np.int64], elements: npt.NDArray[np.int64]) -> list[int]:
    """Distances between calls alike that take new parameters, the most frequent ones."""
    last: dict[int, list[int]] = {}
    counts = Counter[int]()
    for at in np.flatnonzero(elements > 0).tolist():
        before = last.setdefault(int(tokens[at]), [])
        counts.update(at - other for other in before[-8:])
        before.append(at)
    return sorted(period for period, _ in counts.most_common(_PERIODS))


def _runs(equal: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Where runs of True begin and end."""
    edges = np.diff(np.concatenate(([0], equal.astype(np.int8), [0])))
    yield from zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True)


@dataclass(eq=False)
class Wrap:
    """Parameters that FSDP gathers and reduces together.

    Attributes:
        label: the module's name or the number of the block; "" for the root, which has what no other unit has.
        parameters: their numbers, in the order of the optimizer. units: first and last unit that uses them.
        again: it is recorded to be gathered again in backward; None where that is not recorded.
    """

    label: str
    parameters: list[int] = field(default_factory=list)
    units: tuple[int, int] = (-1, -1)
    again: bool | None = None

    __repr__ = brief

    @property
    def root(self) -> bool:
        """It is the root."""
        return not self.label


def boundaries(forward: Sequence[Call], weights: Weights, label_of: Mapping[int, str]) -> set[int]:
    """Places of the topmost calls with which another unit begins, or the root's parameters are used again.

    Args:
        label_of: of each parameter's number the unit's label, "" for the root.
    """
    found, current, seen = set[int](), "", set[int]()
    for at, call in enumerate(forward):
        for parameter in (p for inner in call.walk() for p in weights.read(inner)):
            label = label_of.get(parameter.number, "")
            if parameter.number not in seen and label != current:
                found.add(at)
                current = label
            seen.add(parameter.number)
    return found


def sums_of_units(model: Model, wraps: Sequence[Wrap]) -> set[int]:
    """Rows of sums of gradients that autograd does in place without FSDP alone, or with recorded units with FSDP alone:
    of an activation that several units take, such as what a decoder attends to, each unit of FSDP sums the gradients of
    its own before they are added up, and the first sum of all is not done in place."""
    label_of = {k: wrap.label for wrap in wraps if not wrap.root for k in range(wrap.units[0], wrap.units[1] + 1)}
    found = set[int]()
    for one in model.passes:
        made, added = dict[int, tuple[Call, str]](), dict[tuple[str, int], int]()  # by storage: where; how often
        read = set[tuple[str, int]]()
        for unit in reversed(one.units):
            label = label_of.get(unit.number, "")
            for call in walked(unit.backward):
                storages = [value[1] for value in tensor_values(call.record.get("inputs"))]
                sums = call.name == SUM_IN_PLACE.name and bool(storages)
                key = label, storages[0] if sums else -1
                if sums and key not in read and key[1] in made and made[key[1]][1] not in ("", label):
                    added[key] = added.get(key, 0) + 1
                    own = made.get(storages[-1])
                    if model.wraps and own is not None and own[0].name == SUM.name:
                        found |= {own[0].row} if own[1] not in ("", made[key[1]][1]) else set()
                    elif not model.wraps and added[key] == 2 and made[key[1]][0].name == SUM.name:
                        found.add(call.row)
                    storages = storages[1:]
                elif call.operator and call.name.startswith("aten::"):
                    made |= {value[1]: (call, label) for value in tensor_values(call.record.get("outputs"))}
                read |= {(label, storage) for storage in storages}
    return found


def chosen_wraps(
    model: Model, wanted: str | None, sizes: Callable[[Parameter], Sequence[int]]
) -> list[Wrap]:  # fmt: skip
    """The units of FSDP that a layout asks for (`Layout.fsdp_wrap`).

    Raises:
        UsageError: no such module.
    """
    if wanted is None:
        rest = [one.number for one in (*model.parameters, *model.weights.frozen)]
        return model.wraps or model.blocks or [Wrap("", rest, (0, len(model.units) - 1))]
    if wanted in ("each", "") or wanted.isdecimal():
        least = int(wanted) if wanted.isdecimal() else 0
        found = []
        for unit in model.units:
            if unit.parameters and sum(prod(sizes(parameter)) for parameter in unit.parameters) >= least:
                numbers = sorted(parameter.number for parameter in unit.parameters)
                found.append(Wrap(f"unit {unit.number}", numbers, (unit.number, unit.number)))
        return _with_root(model, found)
    return _with_root(model, _of_modules(model, wanted))


def _with_root(model: Model, found: list[Wrap]) -> list[Wrap]:
    taken = {number for wrap in found for number in wrap.parameters}
    rest = [one.number for one in (*model.parameters, *model.weights.frozen) if one.number not in taken]
    return [*([Wrap("", rest, (0, len(model.units) - 1))] if rest else []), *found]


def _regions(trace: Trace, call: Call) -> list[str]:
    """Named regions around a call, outermost first."""
    tree = trace.hierarchy
    return [trace.names[code] for code in tree.regions(int(tree.path[call.index]))]


def _of_modules(model: Model, name: str) -> list[Wrap]:
    """Units of the outermost modules of a class, where the recording has modules."""
    trace = model.trace
    wanted = re.compile(rf"nn\.Module: {re.escape(name)}(?:_\d+)?")
    found: dict[str, Wrap] = {}
    seen = set[int]()
    for unit in model.units:
        for call in walked(unit.forward):
            label = next((one for one in _regions(trace, call) if wanted.fullmatch(one)), None)
            for parameter in model.weights.read(call) if label is not None else ():
                if parameter.number not in seen:
                    seen.add(parameter.number)
                    wrap = found.setdefault(str(label), Wrap(str(label), [], (unit.number, unit.number)))
                    wrap.parameters.append(parameter.number)
                    wrap.units = wrap.units[0], unit.number
    if not found:
        raise UsageError(
            f"{trace.file}: no module of class {name} is recorded; record with with_modules=True and with_stack=True, "
            "or give --fsdp-wrap each or a number of elements"
        )
    for wrap in found.values():
        wrap.parameters.sort()
    return list(found.values())
