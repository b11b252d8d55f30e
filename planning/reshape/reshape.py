"""Derive the operator shapes of a linked trace at different input sizes.

Example: `batch=64` for a recording with 32 samples. `SizeEvidence.find` decides which extents of 32 are the batch size,
`Extents.solve` propagates 64 through all operators, and `reshaped` writes the new shapes. It also lists the operators
that have shapes that cannot be derived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...trace.brief import brief
from ...trace.errors import UsageError
from ...trace.index import CallIndex
from ...trace.tables import OP
from ...trace.tensors import Argument, Signature, Tensor
from ...trace.trace import Trace
from .shape_change import ShapeChange, SizeChange
from .shapes.extents import Extents
from .shapes.followed_calls import LOADER, Shapes, shapes_of
from .shapes.terms import Shape


@dataclass(frozen=True)
class Underived:
    """Calls of one operator that have underivable dimensions. Such dimensions stay the same or scale in proportion."""

    op: str
    count: int
    first: int  # number of calls that start the gap, because their input shapes are known
    share: float  # share of the GPU time, or of the operator self time if the trace has no GPU events


@dataclass(frozen=True)
class Reshaped:
    """A trace with new shapes but with its recorded times."""

    trace: Trace
    unknown: npt.NDArray[np.bool_]  # for each call, True if some dimensions could not be derived
    # for each recorded call, the number of new calls; not 1 if a data loader makes one call per sample
    repeats: npt.NDArray[np.float64]
    sizes: tuple[SizeChange, ...]
    calls: int  # number of operator calls
    changed: int  # number of operator calls with changed shapes
    underived: tuple[Underived, ...]

    __repr__ = brief

    @property
    def recorded_size(self) -> int:
        """Recorded size of the first changed dimension; 0 if no dimension changed."""
        return (self.sizes[0].recorded_size or 0) if self.sizes else 0

    @property
    def new_size(self) -> int:
        """New size of the first changed dimension; 0 if no dimension changed."""
        return self.sizes[0].new_size if self.sizes else 0

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; docs/reference/predict.md describes its keys."""
        return {
            "dimension": self.sizes[0].dimension if self.sizes else None,
            "was": self.recorded_size,
            "to": self.new_size,
            "sizes": [
                {"dimension": size.dimension, "was": size.recorded_size, "to": size.new_size} for size in self.sizes
            ],
            "calls": self.calls,
            "changed": self.changed,
            "underived": [asdict(row) for row in self.underived],
        }


def reshaped(trace: Trace, change: ShapeChange) -> Reshaped:
    """Derive the operator shapes of a trace for new input sizes.

    Changes are propagated through all calls by tensor identity and operator rules, never just because two sizes are
    equal.

    Raises:
        UsageError: a recorded size is ambiguous, or no tensor has the recorded size.

    Example:
        >>> from etplus.planning.reshape.shape_change import batch_change
        >>> done = reshaped(trace, batch_change(64))
        >>> done.recorded_size != 64, done.new_size, done.changed > 0
        (True, 64, True)
    """
    shapes = shapes_of(trace)
    extents, evidence = shapes.extents, SizeEvidence(trace.file, shapes)
    sizes, changed = list[SizeChange](), dict[int, int]()
    for size in change.sizes:
        roots, recorded_size = evidence.find(size.dimension, size.recorded_size)
        sizes.append(replace(size, recorded_size=recorded_size))
        changed = dict.fromkeys(roots, size.new_size) | changed
    known = extents.solve(changed, [source.shape for source in shapes.sources if source.data])
    new = [known.get(extents.root(extent)) for extent in range(len(extents.value))]
    likely = in_proportion(extents, known)
    table = _Signatures(trace, shapes, new, likely)
    codes = trace.calls.signature.copy()
    unknown, first, count, calls = np.zeros(len(codes), np.bool_), np.zeros(len(codes), np.bool_), 0, 0
    for call in np.flatnonzero((trace.calls.kind == OP) & (codes >= 0)).tolist():
        code, taken, unknown[call] = table.code(call)
        parent = int(trace.calls.parent[call])
        first[call] = unknown[call] and taken and not (parent >= 0 and unknown[parent])
        calls, count = calls + 1, count + int(code != codes[call])
        codes[call] = code
    calls_there = replace(trace.calls, signature=codes)
    moved = trace.with_tables(replace(trace.tables, signatures=table.values, calls=calls_there))
    listed = _underived(trace, unknown, first)
    return Reshaped(_scaled(moved, trace), unknown, _repeats(trace, sizes), tuple(sizes), calls, count, listed)


_GATHERS = ("aten::cat", "aten::concat", "aten::stack")


def _repeats(trace: Trace, sizes: Sequence[SizeChange]) -> npt.NDArray[np.float64]:
    """For each recorded call, return the number of new calls.

    A data loader calls operators once per sample, except for operators that join samples.
    """
    ratio = next(
        (size.new_size / size.recorded_size for size in sizes if size.dimension == "batch" and size.recorded_size), 1.0
    )
    calls, names = trace.calls, trace.names
    found, inside = np.ones(len(calls)), np.zeros(len(calls), np.bool_)
    for call, above in enumerate(calls.parent.tolist()):
        name = names[calls.name[call]]
        if above < 0 or not inside[above]:
            inside[call] = LOADER in name
        else:
            gathers = names[calls.name[above]] in _GATHERS
            inside[call] = not gathers or name in _GATHERS or name == "aten::unsqueeze"
        if inside[call] and name not in _GATHERS:
            found[call] = ratio
    return found


def in_proportion(extents: Extents, known: Mapping[int, int]) -> dict[int, int]:
    """If extents depend on changed extents in an unknown way, scale them by the largest change that they depend on."""
    ratio = {root: Fraction(new, extents.value[root]) for root, new in known.items() if extents.value[root]}
    found = dict[int, int]()
    for some, basis in extents.following:
        most = max(
            (ratio.get(of, Fraction(1)) for of in basis), key=lambda share: max(share, 1 / share or 1), default=1
        )
        for root in some:
            if most != 1 and root not in ratio:
                ratio[root] = Fraction(most)
                found[root] = max(round(extents.value[root] * most), 1)
    return found


class _Signatures:
    def __init__(self, trace: Trace, shapes: Shapes, new: Sequence[int | None], likely: Mapping[int, int]) -> None:
        self._trace, self._shapes, self._new, self._likely = trace, shapes, new, likely
        self.values = list(trace.signatures)
        self._codes: dict[Hashable, tuple[int, bool, bool]] = {}

    def code(self, call: int) -> tuple[int, bool, bool]:
        row, old = int(self._trace.calls.source[call]), int(self._trace.calls.signature[call])
        inputs, results = self._shapes.inputs.get(row, ()), self._shapes.results.get(row, ())
        flat = [shape for tensors in (*inputs, *results) for shape in tensors if shape is not None]
        name = int(self._trace.calls.name[call])
        key = old, name, tuple(tuple((self._new[extent], self._size(extent)) for extent in shape) for shape in flat)
        if key not in self._codes:
            code, taken, known = self._made(old, inputs, results)
            if self._trace.names[name] in _GATHERS and not _adds_up(self.values[code]):
                code, known = self._of_more(code, known=known)
            self._codes[key] = code, taken, not known
        return self._codes[key]

    def _of_more(self, code: int, *, known: bool) -> tuple[int, bool]:
        """Return the code of a call that joins samples, with one input per sample, and True if its shapes are known."""
        (first, *others), outputs = self.values[code].inputs, self.values[code].outputs or ()
        parts, whole = set(first.tensors), sum(output.numel for output in outputs)
        sample = parts.pop() if len(parts) == 1 else None
        if not known or sample is None or not sample.numel or whole % sample.numel:
            return code, False
        more = Argument((sample,) * (whole // sample.numel), first.value)
        self.values.append(Signature((more, *others), outputs))
        return len(self.values) - 1, True

    def _made(
        self, old: int, inputs: Sequence[Sequence[Shape | None]], results: Sequence[Sequence[Shape | None]]
    ) -> tuple[int, bool, bool]:
        signature = self._trace.signatures[old]
        arguments, taken = [], len(inputs) == len(signature.inputs)
        for argument, shapes in zip(signature.inputs, inputs, strict=False):
            tensors, done = self._tensors(argument.tensors, shapes)
            taken &= done
            arguments.append(argument._replace(tensors=tensors))
        outputs, done = self._tensors(signature.outputs or (), [shape for result in results for shape in result])
        made = Signature((*arguments, *signature.inputs[len(arguments) :]), outputs)
        if made == signature:
            return old, taken, taken and done
        self.values.append(made)
        return len(self.values) - 1, taken, taken and done

    def _tensors(self, tensors: tuple[Tensor, ...], shapes: Sequence[Shape | None]) -> tuple[tuple[Tensor, ...], bool]:
        value = self._shapes.extents.value
        defined = [shape for shape in shapes if shape is not None]
        known = all(self._new[extent] is not None for shape in defined for extent in shape)
        if [tensor.shape for tensor in tensors] != [tuple(value[extent] for extent in shape) for shape in defined]:
            return tensors, known and all(self._new[extent] == value[extent] for shape in defined for extent in shape)
        made = []
        for tensor, shape in zip(tensors, defined, strict=True):
            made.append(Tensor(tuple(self._size(extent) for extent in shape), tensor.dtype))
        return tuple(made), known

    def _size(self, extent: int) -> int:
        extents, new = self._shapes.extents, self._new[extent]
        return self._likely.get(extents.root(extent), extents.value[extent]) if new is None else new


def _adds_up(signature: Signature) -> bool:
    return sum(tensor.numel for tensor in signature.tensors) == sum(output.numel for output in signature.outputs or ())


def _scaled(trace: Trace, before: Trace) -> Trace:
    """Scale copies and collectives in proportion to the first tensor of the calling operator."""
    sizes, comm = trace.gpu.bytes.copy(), dict(trace.gpu.comm)
    for event in np.flatnonzero((sizes > 0) | np.isin(np.arange(len(sizes)), list(comm))).tolist():
        call = _above(trace, trace.gpu.call[event])
        new, old = (side.signature_of(call) if call >= 0 else None for side in (trace, before))
        if new is None or old is None or not old.tensors or not old.tensors[0].numel:
            continue
        ratio = Fraction(new.tensors[0].numel, old.tensors[0].numel)
        sizes[event] = int(sizes[event] * ratio) if sizes[event] > 0 else sizes[event]
        if event in comm:
            old_comm = comm[event]
            counts = {name: getattr(old_comm, name) for name in ("in_nelems", "out_nelems", "bytes")}
            grown = {name: None if count is None else int(count * ratio) for name, count in counts.items()}
            comm[event] = msgspec.structs.replace(old_comm, **grown)
    return trace.with_tables(replace(trace.tables, gpu=replace(trace.gpu, bytes=sizes, comm=comm)))


def _above(trace: Trace, call: CallIndex) -> CallIndex:
    while call >= 0:
        signature = trace.signature_of(call)
        if signature is not None and signature.tensors:
            return call
        call = trace.calls.parent[call]
    return CallIndex(-1)


def _underived(trace: Trace, unknown: npt.NDArray[np.bool_], first: npt.NDArray[np.bool_]) -> tuple[Underived, ...]:
    calls, gpu = trace.calls, trace.gpu
    if len(gpu):
        own = np.zeros(len(calls), np.int64)
        for event, call in enumerate(gpu.call.tolist()):
            if (owner := _above(trace, call)) >= 0:
                own[owner] += gpu.dur[event]
        whole = int(gpu.dur.sum())
    else:
        own = np.where(calls.kind == OP, trace.nodes.exclusive[calls.source], 0)
        whole = int(own.sum())
    count, begins, times = Counter[str](), Counter[str](), Counter[str]()
    for index in np.flatnonzero(unknown).tolist():
        name = trace.names[calls.name[index]]
        count[name] += 1
        begins[name] += int(first[index])
        times[name] += int(own[index])
    found = [Underived(name, count[name], begins[name], times[name] / max(whole, 1)) for name in count]
    return tuple(sorted(found, key=lambda row: (not row.first, -row.share, row.op)))


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
