"""Detect which extents of a recording are the batch size or the sequence length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ....trace.errors import UsageError
from .followed_calls import Shapes


@dataclass(frozen=True)
class _Claim:
    """Evidence that a class of input extents is the batch size or sequence length."""

    root: int
    size: int
    votes: int  # number of layers (operators with weights) that have this extent in their data
    mixed: bool  # True if operators mix elements along this extent
    place: int  # first position of the extent in any input's shape


class SizeEvidence:
    def __init__(self, file: str, shapes: Shapes) -> None:
        if not shapes.sources:
            raise UsageError(f"{file}: it has no recorded tensors; record the execution trace with tensors")
        self._file, self._shapes, self._extents = file, shapes, shapes.extents
        self._fixed = shapes.extents.fixed()
        self._sums = dict(shapes.extents.sums)
        for root in self._extents.leaves(extent for source in shapes.sources for extent in source.shape):
            self._sums.pop(root, None)

    def find(self, dimension: str, recorded_size: int | None) -> tuple[set[int], int]:
        size, tiers = (self._batch if dimension == "batch" else self._seq)(recorded_size)
        found = set[int]()
        for tier in (*tiers, self._anywhere(size)):
            found = found or self._one_each(tier)
        if not found:
            raise UsageError(
                f"{self._file}: no input has a dimension of size {size}; give the recorded {dimension} size, "
                "or leave it out to detect it automatically"
            )
        return found, size

    def _batch(self, recorded_size: int | None) -> tuple[int, list[list[int]]]:
        """Return the batch size, and lists of candidate extents in order of priority.

        The first list contains extents along which a data loader stacks samples, and input extents that reach layers
        but are never mixed.
        """
        value, apart = self._extents.value, [claim for claim in self.claims if not claim.mixed]
        loaded = [root for root in self._extents.leaves(self._shapes.loaded) if value[root] > 1]
        if recorded_size is None:
            recorded_size = self._likeliest("batch", Counter(value[root] for root in loaded) or self._sizes_apart())
        stacked = [root for root in loaded if value[root] == recorded_size]
        return recorded_size, [
            [*stacked, *_of_size(apart, recorded_size, voted=True)],
            _of_size(self.claims, recorded_size, voted=True),
            _of_size(self.claims, recorded_size, voted=False),
        ]

    def _seq(self, recorded_size: int | None) -> tuple[int, list[list[int]]]:
        """Return the sequence length, and lists of candidates. The first list has extents along which layers mix."""
        mixed = [claim for claim in self.claims if claim.mixed and claim.votes]
        if recorded_size is None:
            recorded_size = self._likeliest("seq", _votes(mixed))
        return recorded_size, [
            _of_size(mixed, recorded_size, voted=True),
            _of_size(self.claims, recorded_size, voted=False),
        ]

    @cached_property
    def claims(self) -> list[_Claim]:
        """Classes of the forward pass's input extents (except parameter extents), most votes first."""
        place = dict[int, int]()
        for source in self._shapes.sources:
            for at, extent in enumerate(source.shape if source.forward else ()):
                for root in self._origins([extent]):
                    place[root] = min(at, place.get(root, at))
        mixed, value = set(self._origins(self._shapes.mixed)), self._extents.value
        votes = Counter(root for outer in self._shapes.votes for root in self._origins(outer))
        found = [
            _Claim(root, value[root], votes[root], root in mixed, at)
            for root, at in place.items()
            if root not in self._fixed and value[root] > 1
        ]
        return sorted(found, key=lambda claim: (-claim.votes, claim.place))

    def _origins(self, extents: Iterable[int]) -> list[int]:
        found, seen, stack = dict[int, None](), set[int](), self._extents.leaves(extents)[::-1]
        while stack:
            root = stack.pop()
            if root in self._sums and root not in seen:
                seen.add(root)
                stack += self._extents.leaves(self._sums[root])[::-1]
            elif root not in seen:
                found[root] = None
        return list(found)

    def _sizes_apart(self) -> Counter[int]:
        most = max((claim.votes for claim in self.claims), default=0)
        apart = [claim for claim in self.claims if not claim.mixed and 2 * claim.votes >= most]
        first = self._one_each([claim.root for claim in apart])
        if not apart:
            return _votes(self.claims)
        return _votes(
            [claim for claim in self.claims if not claim.mixed and (claim.root in first or claim not in apart)]
        )

    def _likeliest(self, dimension: str, by_size: Counter[int]) -> int:
        """Return the size with at least twice the votes of any other size, or raise UsageError."""
        ranked = by_size.most_common(2)
        if not ranked or (len(ranked) > 1 and ranked[0][1] < 2 * ranked[1][1]):
            found = ", ".join(str(size) for size, _ in ranked) or "none"
            raise UsageError(
                f"{self._file}: cannot determine the recorded {dimension} size (candidates: {found}); give it: "
                f"--set {dimension}=32:128"
            )
        return ranked[0][0]

    @cached_property
    def _inputs(self) -> list[set[int]]:
        return [set(self._origins(source.shape)) for source in self._shapes.sources if source.forward]

    def _one_each(self, roots: Iterable[int]) -> set[int]:
        """Keep at most one class per input, the first; other extents of the input may be equal by chance."""
        chosen, taken = set[int](), [False] * len(self._inputs)
        for root in roots:
            mine = [number for number, extents in enumerate(self._inputs) if root in extents]
            if root not in chosen and not any(taken[number] for number in mine):
                chosen.add(root)
                for number in mine:
                    taken[number] = True
        return chosen

    def _anywhere(self, size: int) -> list[int]:
        extents, derived = self._extents, {*self._extents.products, *(whole for whole, _ in self._extents.sums)}
        calls = (call for side in (self._shapes.inputs, self._shapes.results) for call in side.values())
        tensors = (shape for call in calls for tensors in call for shape in tensors)
        found = dict.fromkeys(
            extents.root(extent) for shape in tensors for extent in shape or () if extents.value[extent] == size
        )
        return [root for root in found if root not in self._fixed and root not in derived]


def _votes(claims: Sequence[_Claim]) -> Counter[int]:
    found = Counter[int]()
    for claim in claims:
        if claim.votes:
            found[claim.size] += claim.votes
    return found


def _of_size(claims: Sequence[_Claim], size: int, *, voted: bool) -> list[int]:
    return [claim.root for claim in claims if claim.size == size and (claim.votes or not voted)]
