"""Which extents of a recording are its batch size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...trace.errors import UsageError
from .calls import Shapes

__all__ = ["find_batch"]


@dataclass(frozen=True)
class _Claim:
    """What speaks for a class of extents of inputs as the batch.

    Attributes:
        votes: calls of operators with weights whose data has it. mixed: elements meet along it.
        place: the least at which it is an extent of an input.
    """

    root: int
    size: int
    votes: int
    mixed: bool
    place: int


def find_batch(file: str, shapes: Shapes, was: int | None) -> tuple[set[int], int]:
    """The classes of extents that are the batch, and its size.

    The batch is what a data loader stacks; without one, the extents of inputs that most operators with weights have in
    their data and along which elements do not meet, the first such of an input.

    Args:
        was: the recorded size, None to find it.

    Raises:
        UsageError: nothing, or more than one size, has good claims.
    """
    if not shapes.sources:
        raise UsageError(f"{file}: no tensors are recorded in it; record the execution trace with its tensors")
    origins, value = _Origins(shapes), shapes.extents.value
    claims = _claims(shapes, origins)
    loaded = [root for root in shapes.extents.leaves(shapes.loaded) if value[root] > 1]
    inputs = [set(origins.of(one.shape)) for one in shapes.sources if one.forward]
    if was is None:
        was = _likeliest(file, Counter(value[root] for root in loaded) or _by_size(claims, inputs))
    sized = [one for one in claims if one.size == was]
    tiers = (
        [one.root for one in sized if one.votes and not one.mixed], [one.root for one in sized if one.votes],
        [one.root for one in sized], _anywhere(shapes, was),
    )  # fmt: skip
    found = {root for root in loaded if value[root] == was}
    for number, tier in enumerate(tiers):
        if not (found and number):
            found = _one_each(tier, found, inputs)
    if not found:
        raise UsageError(f"{file}: no input has an extent of {was}; give the recorded batch size, or none to find it")
    return found, was


class _Origins:
    """The classes that determine others: factors of products, and parts of sums that are no extents of inputs."""

    def __init__(self, shapes: Shapes) -> None:
        self._extents = shapes.extents
        self._sums = dict(shapes.extents.sums)
        for root in shapes.extents.leaves(extent for one in shapes.sources for extent in one.shape):
            self._sums.pop(root, None)

    def of(self, extents: Iterable[int]) -> list[int]:
        """Those of some extents, each once, in order."""
        found, seen, stack = dict[int, None](), set[int](), self._extents.leaves(extents)[::-1]
        while stack:
            one = stack.pop()
            if one in self._sums and one not in seen:
                seen.add(one)
                stack += self._extents.leaves(self._sums[one])[::-1]
            elif one not in seen:
                found[one] = None
        return list(found)


def _claims(shapes: Shapes, origins: _Origins) -> list[_Claim]:
    """Extents of inputs of the forward pass that are no parameters', the most voted for first."""
    extents, place = shapes.extents, dict[int, int]()
    for source in shapes.sources:
        for at, extent in enumerate(source.shape if source.forward else ()):
            for root in origins.of([extent]):
                place[root] = min(at, place.get(root, at))
    fixed, mixed = extents.fixed(), set(origins.of(shapes.mixed))
    votes = Counter(root for outer in shapes.votes for root in origins.of(outer))
    found = [
        _Claim(root, extents.value[root], votes[root], root in mixed, at)
        for root, at in place.items() if root not in fixed and extents.value[root] > 1
    ]  # fmt: skip
    return sorted(found, key=lambda one: (-one.votes, one.place))


def _by_size(claims: Sequence[_Claim], inputs: Sequence[set[int]]) -> Counter[int]:
    """Votes by size: of what is not mixed, if that has at least half of the most votes, else of all."""
    most = max((one.votes for one in claims), default=0)
    apart = [one for one in claims if not one.mixed and 2 * one.votes >= most]
    first = _one_each([one.root for one in apart], set(), inputs)
    found = Counter[int]()
    for one in claims:
        if one.votes and (not apart or (not one.mixed and (one.root in first or one not in apart))):
            found[one.size] += one.votes
    return found


def _likeliest(file: str, by_size: Counter[int]) -> int:
    """The size with at least twice the votes of any other.

    Raises:
        UsageError: there is none.
    """
    ranked = by_size.most_common(2)
    if not ranked or (len(ranked) > 1 and ranked[0][1] < 2 * ranked[1][1]):
        found = ", ".join(str(size) for size, _ in ranked) or "none"
        raise UsageError(
            f"{file}: cannot determine the recorded batch size (candidates: {found}); give it: --set batch=32:128"
        )
    return ranked[0][0]


def _one_each(roots: Iterable[int], found: set[int], inputs: Sequence[set[int]]) -> set[int]:
    """Classes with those found, no two of which belong to one input: the earlier ones count."""
    chosen = set(found)
    taken = [bool(extents & chosen) for extents in inputs]
    for root in roots:
        mine = [number for number, extents in enumerate(inputs) if root in extents]
        if root not in chosen and not any(taken[number] for number in mine):
            chosen.add(root)
            for number in mine:
                taken[number] = True
    return chosen


def _anywhere(shapes: Shapes, was: int) -> list[int]:
    """Extents of that size of whatever tensors, where they follow from no others."""
    extents = shapes.extents
    fixed, derived = extents.fixed(), {*extents.products, *(whole for whole, _ in extents.sums)}
    calls = (call for side in (shapes.inputs, shapes.results) for call in side.values())
    tensors = (shape for call in calls for tensors in call for shape in tensors)
    found = dict.fromkeys(extents.root(one) for shape in tensors for one in shape or () if extents.value[one] == was)
    return [root for root in found if root not in fixed and root not in derived]
