"""Finding about loops that run small operators on tensors that one operator could process together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...trace.call_tree import nearest
from ...trace.columns import IntColumn, distinct, grouped, mask_at, matching, median
from ...trace.intervals import union
from ...trace.kinds import ACCUMULATION, BACKWARD, GPU, GRADIENT_COMMUNICATION, OPTIMIZER
from ..storages import Storages
from ..summary import Analysis
from .case import Case, OfWorstRank, RankOfCase
from .finding import INFERRED, Candidate, Intervention
from .proofs import place_of, time_of_work, time_on_host
from .work_items import OTHER_WORK, WorkItems, phases_of, work_items

# Minimum number of rounds of a loop. Loops with fewer rounds are often the layers of a model.
_LEAST_ROUNDS = 8
# Maximum number of loops to replay, longest first. Each loop needs its own pass over the graph.
_MOST_WINDOWS = 16
# Maximum number of operators per round.
_MOST_PERIOD = 4
# Maximum duration of a small CPU operator. While the profiler records, a call costs 5 to 40 µs.
_SMALL_NS = 100_000
# Maximum duration of a small kernel. Starting a kernel takes 2 to 5 µs.
_SMALL_KERNEL_NS = 10_000
# Ids of storages up to this size are unreliable, because PyTorch allocates and frees single numbers without a record.
_NUMBER_BYTES = 64
# Minimum share of the makespan that the loops take on the host.
_LEAST_SHARE = 0.02
# Share of a loop's time that remains if one operator processes all tensors: worst, usual and best case.
# Measured: 0.1 for 48 GEMMs of 16 × 32 × 32 run as one `bmm`, 0.3 for `_foreach_lerp_` (PyTorch 2.13, CPU).
_LEFT = (0.35, 0.12, 0.03)


@dataclass(frozen=True)
class OperatorLoop:
    """A loop that repeats the same operators. Each repetition is called a round."""

    # Positions of the loop's items in `WorkItems`, in order.
    items: tuple[int, ...]
    # Number of operators per round.
    period: int
    # The host calls take place between `begin` and `end`, in ns.
    begin: int
    end: int

    @property
    def rounds(self) -> int:
        return len(self.items) // self.period


def operator_loops(case: Case) -> tuple[tuple[OperatorLoop, ...], ...]:
    return case.once(lambda of: tuple(map(_loops, work_items(of), of.analyses)), "operator loops")


def _loops(items: WorkItems, analysis: Analysis) -> tuple[OperatorLoop, ...]:
    at = _eligible(items)
    found: list[OperatorLoop] = []
    if not len(at):
        return ()
    name = items.calls.name[items.call[at]]
    thread, ts, end = (getattr(items.calls, column)[items.call[at]] for column in ("thread", "ts", "end"))
    order = np.lexsort((ts, thread))
    at, name, thread, ts, end = at[order], name[order], thread[order], ts[order], end[order]
    large = _medians(items, at) > (_SMALL_KERNEL_NS if items.on_device else _SMALL_NS)
    key = np.where(large, -1 - np.arange(len(at)), name)
    independent = _Independence(items, analysis)
    lengths = np.stack([_runs(key, thread, period) for period in range(1, _MOST_PERIOD + 1)])
    periods, lengths = np.argmax(lengths, axis=0) + 1, lengths.max(axis=0)
    after = 0
    for place in np.flatnonzero(lengths // periods >= _LEAST_ROUNDS).tolist():
        if place < after:
            continue
        period, length = int(periods[place]), int(lengths[place])
        after = place + length - length % period
        for first in range(place, place + period):  # A round may start at any of its operators.
            last = after - (period if first > place else 0) + first - place
            members = tuple(at[first:last].tolist())
            if independent.holds(members, period):
                found.append(OperatorLoop(members, period, int(ts[first]), int(end[last - 1])))
                break
    return tuple(found)


def _medians(items: WorkItems, at: IntColumn) -> npt.NDArray[np.float64]:
    call, found = items.call[at], np.zeros(len(at))
    for _, mine in grouped(items.calls.name[call], items.calls.signature[call]):
        found[mine] = median(items.ns[at[mine]])
    return found


def _eligible(items: WorkItems) -> IntColumn:
    phase = phases_of(items)
    known = (items.call >= 0) & (items.call < len(items.trace.calls))
    known &= ~np.isin(phase, (ACCUMULATION, GRADIENT_COMMUNICATION, OPTIMIZER, BACKWARD))
    at = np.flatnonzero(known & ~items.on_numbers)
    names = items.calls.name[items.call[at]]
    reads = matching(names, items.trace.names, lambda name: name.startswith("aten::_local_scalar"))
    kept: IntColumn = at[~(reads & (items.kind[at] == OTHER_WORK))]
    return kept


def _runs(key: IntColumn, thread: IntColumn, period: int) -> IntColumn:
    count = len(key)
    ends = np.full(count, count)  # one period later, if the operator or thread there differs; otherwise `count`
    same = (key[period:] == key[:-period]) & (thread[period:] == thread[:-period])
    ends[: len(same)] = np.where(same, count, np.arange(period, period + len(same)))
    length = np.minimum.accumulate(ends[::-1])[::-1] - np.arange(count)
    return np.where(length >= 2 * period, length, 0)


class _Independence:
    """Tests whether a round of a loop uses results of another round."""

    def __init__(self, items: WorkItems, analysis: Analysis) -> None:
        self._items, self._analysis = items, analysis

    @property
    def _held(self) -> Storages:
        return self._analysis.storages

    @cached_property
    def _by_use(self) -> tuple[IntColumn, IntColumn]:
        storage = np.repeat(np.arange(len(self._held)), np.diff(self._held.first))
        order = np.argsort(self._held.uses, kind="stable")
        return self._held.uses[order], storage[order]

    def holds(self, members: Sequence[int], period: int) -> bool:
        if not len(self._held):
            return False
        uses, of_storage = self._by_use
        calls = self._items.call[list(members)]
        begin, end = np.searchsorted(uses, calls), np.searchsorted(uses, calls + 1)
        made: dict[int, int] = {}
        for number, (call, first, last) in enumerate(zip(calls.tolist(), begin.tolist(), end.tolist(), strict=True)):
            in_place = self._items.name(members[number]).endswith("_")
            turn, used = number // period, of_storage[first:last]
            used = used[self._held.bytes[used] > _NUMBER_BYTES]
            for storage, times in Counter(used.tolist()).items():
                writes = (in_place and times > 1) or int(self._held.call[storage]) == call  # both read and written
                if storage in made and made[storage] != turn:
                    return False
                if writes:
                    made[storage] = turn
        return bool(made)


class SmallOperators(OfWorstRank):
    """A Python loop of small operators over tensors that one operator could process together.

    The gain is the loop's host and device time, minus the time that a single operator would need (`_LEFT`).
    """

    id = "small-operators"

    def _of_rank(self, of: RankOfCase) -> Iterator[Candidate]:
        case, rank = of.case, of.number
        items, loops = work_items(case)[rank], operator_loops(case)[rank]
        ns = sum(end - begin for _, begin, end in (_with_ends(items, loop) for loop in loops))
        if not loops or ns < _LEAST_SHARE * case.makespan_ns:
            return
        every = [at for loop in loops for at in loop.items]
        longest = max(loops, key=lambda loop: loop.end - loop.begin)
        names = ", ".join(items.label(at) for at in longest.items[: longest.period])
        product = any(name in names for name in ("mm", "matmul"))
        candidate = Candidate(
            self.id,
            f"{names} run {longest.rounds} times in a row on independent tensors; such loops take {ns / 1e6:,.2f} ms",
            place_of(items.trace, items.rows(every)),
            (
                time_of_work(items, f"{len(every):,} operators in loops", every),
                *time_on_host(items, every),
            ),
            ns + self._backward_ns(items, loops),
            INFERRED,
            "stack the tensors and call torch.bmm or one operator with a batch dimension (torch.vmap)"
            if product
            else "call a torch._foreach_ operator on the list of tensors, or use torch.compile on the loop",
            "the operators table shows one operator instead of the loop",
        )
        slow, usual, fast = ((1 - left) / (1 - _LEFT[1]) for left in _LEFT)
        yield of.candidate(candidate, self._changes(items, loops), slow / usual, fast / usual)

    def _backward_ns(self, items: WorkItems, loops: Sequence[OperatorLoop]) -> int:
        calls, tops = items.trace.calls, _with_backward(items, loops)
        backward = tops[items.trace.origin.forward[tops] >= 0]
        return union(calls.ts[backward], calls.end[backward]).length

    def _changes(self, items: WorkItems, loops: Sequence[OperatorLoop]) -> tuple[Intervention, ...]:
        trace, calls, left = items.trace, items.trace.calls, _LEFT[1]
        inside = np.zeros(len(trace), np.bool_)
        inside[calls.source[_with_backward(items, loops)]] = True
        inside |= nearest(trace.nodes.parent_row, trace.nodes.parent_row, inside) >= 0
        changes = list[Intervention]()
        for loop in sorted(loops, key=lambda loop: loop.begin - loop.end)[:_MOST_WINDOWS]:  # includes Python time
            tops, begin, end = _with_ends(items, loop)
            span = begin - trace.nodes.span.start, end - trace.nodes.span.start
            changes.append(Intervention(f"window={span[0]}ns-{span[1]}ns cpu*{left}"))
            mine = np.zeros(len(trace), np.bool_)
            mine[calls.source[tops]] = True
            inside &= ~(nearest(trace.nodes.parent_row, trace.nodes.parent_row, mine) >= 0) & ~mine
        if np.any(inside & (trace.nodes.kind != GPU)):
            changes.append(Intervention(f"cpu*{left}", np.flatnonzero(inside & (trace.nodes.kind != GPU))))
        if items.on_device:
            every = [at for loop in loops for at in loop.items]
            changes.append(Intervention(f"kernel*{left}", items.rows(every)))
        return tuple(changes)


def _with_backward(items: WorkItems, loops: Sequence[OperatorLoop]) -> IntColumn:
    calls, forward = items.trace.calls, items.trace.origin.forward
    tops = distinct(np.concatenate([_with_ends(items, loop)[0] for loop in loops]))
    inside = nearest(np.arange(len(calls)), calls.parent, mask_at(len(calls), tops)) >= 0
    backward = (forward >= 0) & np.append(inside, False)[forward]
    found: IntColumn = np.flatnonzero(backward | np.isin(np.arange(len(calls)), tops))
    return found


_OPENS = frozenset(("aten::unbind", "aten::split", "aten::chunk", "aten::tensor_split", "aten::split_with_sizes"))
# These operators combine the results of all rounds of a loop.
_CLOSES = frozenset(("aten::stack", "aten::cat"))


def _with_ends(items: WorkItems, loop: OperatorLoop) -> tuple[IntColumn, int, int]:
    calls, names = items.trace.calls, items.trace.names
    tops = _tops(items, loop.items)
    order, place = items.siblings
    alike = tops[(calls.parent[tops] == calls.parent[tops[0]]) & (calls.thread[tops] == calls.thread[tops[0]])]
    first, last = int(place[alike[0]]), int(place[alike[-1]])

    def beside(at: int, others: Container[str]) -> bool:
        if not 0 <= at < len(order):
            return False
        call = order[at]
        same = calls.parent[call] == calls.parent[tops[0]] and calls.thread[call] == calls.thread[tops[0]]
        return bool(same) and names[calls.name[call]] in others

    while beside(first - 1, _OPENS):
        first -= 1
    while beside(last + 1, _CLOSES):
        last += 1
    every = distinct(np.concatenate([tops, order[first : last + 1]]))
    return every, int(calls.ts[every[0]]), int(calls.end[every[-1]])


def _tops(items: WorkItems, members: Sequence[int]) -> IntColumn:
    top = items.trace.hierarchy.top[items.call[list(members)]]
    return distinct(top[top >= 0])
