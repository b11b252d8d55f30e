"""Solve for the extents (dimension sizes) of tensors after a change, using equal extents, products and sums.

Example: a tensor of shape (a, b) = (32, 50) goes through `view(1600)` and is then concatenated with itself. The view
relates 1600 to the product a · b, and `cat` relates 3200 to the sum 1600 + 1600. If a becomes 8, the solver derives 400
and 800.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from math import prod

_ATTEMPTS = 9  # Maximum number of solver runs. Each run leaves out the contradictory classes that earlier runs found.


class Extents:
    """Classes of equal extents. Each extent is an integer ID that is valid only in this object.

    A class may be a product of other classes in row-major order (`view`) or a sum of other classes (`cat`). It may also
    follow other classes: it keeps its value if all of them keep their values.
    """

    def __init__(self) -> None:
        self.value: list[int] = []
        self._above: list[int] = []
        self._factors: dict[int, tuple[int, ...]] = {}
        self._sums: list[tuple[int, tuple[int, ...]]] = []
        self._follows: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self._fixed: list[int] = []
        self._beside: list[Sequence[int]] = []
        self.numbers: list[int] = []
        self._cuts: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = []

    def new(self, value: int) -> int:
        self._above.append(len(self._above))
        self.value.append(value)
        return len(self.value) - 1

    def sizes(self, extents: Iterable[int]) -> list[int]:
        return [self.value[extent] for extent in extents]

    def root(self, extent: int) -> int:
        above = self._above
        while above[extent] != extent:
            above[extent] = above[above[extent]]
            extent = above[extent]
        return extent

    def fix(self, extents: Iterable[int]) -> None:
        """Mark extents that do not change with the batch, such as the extents of parameters."""
        self._fixed += extents

    def fixed(self) -> set[int]:
        """Return the classes of fixed extents; a fixed product is replaced by its factors."""
        return set(self.leaves(self._fixed))

    def same(self, left: int, right: int) -> None:
        left, right = self.root(left), self.root(right)
        if left == right or self.value[left] != self.value[right]:
            return
        parts = self._factors.pop(right, None)
        self._above[right] = left
        if parts is None:
            return
        if left in self._factors:
            self._align(self._factors[left], parts)
        else:
            self._factors[left] = parts

    def sum_of(self, whole: int, parts: Sequence[int]) -> None:
        if sum(self.value[part] for part in parts) == self.value[whole]:
            self._sums.append((whole, tuple(parts)))

    def follow(self, extents: Iterable[int], others: Iterable[int]) -> None:
        """Record that `extents` keep their values if all of `others` do."""
        self._follows.append((tuple(extents), tuple(dict.fromkeys(others))))

    def beside(self, extents: Sequence[int]) -> None:
        """Record that at most one extent in a tensor's `extents` changes, unless other relations disagree."""
        self._beside.append(extents)

    def number(self, extents: Iterable[int]) -> None:
        """Record that extents were passed as plain numbers: they change only as multiples of a changed extent."""
        self.numbers += extents

    def view(self, before: Sequence[int], after: Sequence[int]) -> None:
        left, right = ([extent for extent in side if self.value[extent] != 1] for side in (before, after))
        sizes = [prod(self.value[extent] for extent in side) for side in (left, right)]
        if sizes[0] != sizes[1] or not sizes[0]:
            self.follow(after, before)
            return
        self._align(left, right)

    def leaves(self, extents: Iterable[int]) -> list[int]:
        """Return the classes of the extents in order, with products replaced by their factors."""
        found, stack = [], list(extents)[::-1]
        while stack:
            root = self.root(stack.pop())
            if root in self._factors:
                stack += self._factors[root][::-1]
            else:
                found.append(root)
        return found

    def _align(self, left: Sequence[int], right: Sequence[int]) -> None:
        for group in self._groups(self.leaves(left), self.leaves(right)):
            mine, other = (self.leaves(side) for side in group)  # earlier groups may have changed the leaves
            if len(mine) == len(other) == 1:
                self.same(mine[0], other[0])
            elif len(mine) == 1:
                self._factors[mine[0]] = tuple(other)
            elif len(other) == 1:
                self._factors[other[0]] = tuple(mine)
            elif len(self._groups(mine, other)) > 1:
                self._align(mine, other)
            else:
                self._cut(mine, other)

    def _groups(self, left: Sequence[int], right: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        """Split two lists of extents into pairs of groups that have equal products and are as short as possible."""
        found, queues = [], (deque(left), deque(right))
        while queues[0] and queues[1]:
            group = [queues[0].popleft()], [queues[1].popleft()]
            sizes = [self.value[side[0]] for side in group]
            while sizes[0] != sizes[1]:
                less = int(sizes[1] < sizes[0])
                group[less].append(queues[less].popleft())
                sizes[less] *= self.value[group[less][-1]]
            found.append(group)
        return found

    def _cut(self, left: Sequence[int], right: Sequence[int]) -> None:
        """Split the extents in each list at the boundaries in the other list, if the sizes are divisible."""
        queues, pieces = (deque(left), deque(right)), list[int]()
        while queues[0] and queues[1]:
            pair = [self.root(queue.popleft()) for queue in queues]
            known = [self._factors.get(root) for root in pair]
            if known[0] or known[1]:  # an earlier split already applies
                for queue, extent, parts in zip(queues, pair, known, strict=True):
                    queue.extendleft(reversed(parts or (extent,)))
                continue
            if self.value[pair[0]] == self.value[pair[1]]:
                self.same(*pair)
                continue
            more = int(self.value[pair[1]] > self.value[pair[0]])
            large, small = pair[more], pair[1 - more]
            if self.value[large] % self.value[small]:
                rest = (*pair, *queues[0], *queues[1])
                self.follow(rest, rest)
                break
            parts = self.new(self.value[small]), self.new(self.value[large] // self.value[small])
            self._factors[large] = parts
            pieces += parts
            queues[more].extendleft(reversed(parts))
            queues[1 - more].appendleft(small)
        self._cuts.append((tuple(left), tuple(right), tuple(pieces)))

    def solve(
        self, changed: Mapping[int, int], beside: Iterable[Sequence[int]] = (), kept: Iterable[int] = ()
    ) -> dict[int, int]:
        """Derive the new values of all classes that have a derivation.

        A class without a derivation keeps its value only if it is not a multiple of a changed class and follows no
        class.

        Args:
            changed: maps classes to their new values.
            beside: extents of external tensors. At most one extent per tensor changes, unless relations disagree.
            kept: classes that keep their values.
        """
        kept = {*kept, *self.fixed()}
        tensors, dead = [*beside, *self._beside], frozenset[int]()
        for _ in range(_ATTEMPTS):  # run again, and leave classes with contradictions unknown
            solver = self._solved(changed, kept, tensors, dead)
            if solver.dead <= dead:
                return solver.known
            dead |= solver.dead
        return {}

    def _solved(
        self, changed: Mapping[int, int], kept: set[int], beside: Sequence[Sequence[int]], dead: frozenset[int]
    ) -> _Solver:
        solver = _Solver(self, changed, kept, dead)
        solver.run()
        for tensor in beside:
            if any(solver.changes(extent) for extent in tensor):
                solver.keep(tensor)
        solver.run()
        periods = {self.value[root] for root in changed}
        solver.keep(extent for extent in self.numbers if all(self.value[extent] % period for period in periods))
        following = {root for some, basis in self.following for root in some if root not in basis}
        solver.keep(
            extent
            for extent, value in enumerate(self.value)
            if self.root(extent) == extent and extent not in following and all(value % period for period in periods)
        )
        solver.run()
        solver.keep_beside()
        solver.run()
        return solver

    def roots(self, extents: Iterable[int]) -> tuple[int, ...]:
        return tuple(self.root(extent) for extent in extents)

    @property
    def products(self) -> dict[int, tuple[int, ...]]:
        return {self.root(whole): self.roots(parts) for whole, parts in self._factors.items()}

    @property
    def sums(self) -> list[tuple[int, tuple[int, ...]]]:
        return [(self.root(whole), self.roots(parts)) for whole, parts in self._sums]

    @property
    def following(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        return [(self.roots(some), self.roots(basis)) for some, basis in self._follows]

    def ambiguous(self, changed: Mapping[int, int]) -> set[int]:
        """Return the parts of split extents that may stay the same because another extent of the shape may change."""
        found = set[int]()
        for left, right, parts in self._cuts:
            for root in set(self.leaves((*left, *right))) & changed.keys():
                for side in (left, right):
                    if sum(self.value[extent] % self.value[root] == 0 for extent in side) > 1:
                        found.update(self.root(part) for part in parts)
        return found - changed.keys()


class _Solver:
    """Propagates values along the relations until no value changes anymore. Classes in `dead` get no value."""

    def __init__(self, extents: Extents, changed: Mapping[int, int], kept: set[int], dead: frozenset[int]) -> None:
        self._extents, self._value = extents, extents.value
        self._products, self._sums, self._follows = extents.products, extents.sums, extents.following
        ways = {value > self._value[root] for root, value in changed.items() if value != self._value[root]}
        self._one_way = len(ways) < 2
        self.dead = extents.ambiguous(changed)
        self.known = {
            extent: value for extent, value in enumerate(self._value) if value < 2 and extents.root(extent) == extent
        }
        for root, value in changed.items():
            self.known[root] = value
            if root in self._products:  # it is unknown which factors of the product change
                self.dead.update(set(extents.leaves([root])) - changed.keys() - kept)
        for root in kept:
            if root in changed:
                self.dead.add(root)
                self.known.pop(root)
            else:
                self.dead.discard(root)
                self.known[root] = self._value[root]
        self.dead |= dead
        for root in dead:
            self.known.pop(root, None)

    def changes(self, extent: int) -> bool:
        root = self._extents.root(extent)
        return self.known.get(root, self._value[root]) != self._value[root]

    def keep(self, extents: Iterable[int]) -> None:
        """Keep the recorded values of extents that have no derived value. For a product, keep its factors' values."""
        for root in self._extents.leaves(extents):
            if root not in self.dead:
                self.known.setdefault(root, self._value[root])

    def keep_beside(self) -> None:
        """If a factor of a product changes and only one other factor is unknown, let that factor keep its value."""
        for whole, parts in self._products.items():
            missing = [part for part in parts if part not in self.known]
            if whole not in self.known and len(missing) == 1 and any(self.changes(part) for part in parts):
                self.keep(missing)

    def run(self) -> None:
        before = -1
        while before != len(self.known) + len(self.dead):
            before = len(self.known) + len(self.dead)
            for whole, parts in self._products.items():
                self._product(whole, parts)
            for whole, parts in self._sums:
                self._sum(whole, parts)
            if before == len(self.known) + len(self.dead):
                for whole, parts in self._sums:  # concatenations come last, because they may get more parts
                    if all(self.known.get(part) == self._value[part] for part in parts):
                        self.keep([whole])
                for some, basis in self._follows:
                    if all(self.known.get(of) == self._value[of] for of in basis):
                        self.keep(extent for extent in some if extent not in self.dead)

    def _set(self, root: int, value: int) -> None:
        if root in self.dead:
            return
        if self.known.setdefault(root, value) != value:  # two relations give different values
            del self.known[root]
            self.dead.add(root)

    def _product(self, whole: int, parts: Sequence[int]) -> None:
        missing = [part for part in parts if part not in self.known]
        known = prod(self.known[part] for part in parts if part in self.known)
        if not missing:
            self._set(whole, known)
        elif whole in self.known and len(missing) == 1 and known and self.known[whole] % known == 0:
            self._set(missing[0], self.known[whole] // known)

    def _sum(self, whole: int, parts: Sequence[int]) -> None:
        missing = [part for part in parts if part not in self.known]
        known = sum(self.known[part] for part in parts if part in self.known)
        if not missing:
            if any(self.changes(part) for part in parts):
                self._set(whole, known)
        elif self._one_way and whole in self.known and not self.changes(whole):
            self.keep(missing)  # all changes have the same direction, so no part of an unchanged sum changes
        elif whole in self.known and self.known[whole] >= known:
            rest, alike = self.known[whole] - known, {tuple(self._extents.leaves([part])) for part in missing}
            if len(alike) == 1 and rest % len(missing) == 0:
                self._set(missing[0], rest // len(missing))
