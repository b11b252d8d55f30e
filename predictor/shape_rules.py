"""How the extents of an operator's tensors hang together, by families of operators."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..analysis.convolutions import CONVOLUTIONS, GRADIENTS
from ..analysis.outputs import POINTWISE
from .extents import Extents

__all__ = ["FRESH", "Operand", "OpCall", "Shape", "relate"]

Shape = tuple[int, ...]
"""Extents of a tensor, numbers of an `Extents`."""


@dataclass(frozen=True)
class Operand:
    """An argument.

    Attributes:
        tensors: the tensor, or those of a list; None for undefined ones in it.
        value: what stands in its place if it is no tensor.
        masks: of each tensor, whether it is one of truth values.
    """

    tensors: tuple[Shape | None, ...] = ()
    value: Any = None
    masks: tuple[bool, ...] = ()


@dataclass(frozen=True)
class OpCall:
    """A call with the extents of its tensors.

    Attributes:
        name: of the operator, "aten::" left out.
        arguments: in the order of the operator's schema.
        results: the tensors it returned.
        made: others of free sizes that were made within.
    """

    name: str
    arguments: tuple[Operand, ...]
    results: tuple[Shape, ...]
    made: tuple[Shape, ...] = ()

    def tensor(self, position: int) -> Shape | None:
        """The tensor at a position, None if there is none, or several."""
        tensors = self.arguments[position].tensors if position < len(self.arguments) else ()
        return tensors[0] if len(tensors) == 1 else None

    def result(self, position: int = 0) -> Shape | None:
        """A tensor that it returned."""
        return self.results[position] if position < len(self.results) else None

    def value(self, position: int) -> Any:
        """A number, or a list of numbers, among the arguments."""
        return self.arguments[position].value if position < len(self.arguments) else None

    @property
    def inputs(self) -> list[Shape]:
        """All tensors among the arguments."""
        return [shape for argument in self.arguments for shape in argument.tensors if shape is not None]


FRESH = frozenset(
    "empty empty_strided zeros ones full rand randn randint randperm arange linspace new_empty new_zeros new_ones"
    " new_full new_empty_strided resize_ set_ as_strided as_strided_ scalar_tensor eye expand repeat tile".split()
)
"""Operators whose results have sizes that their tensors do not tell: what they are for shows elsewhere."""

_CONVOLVES = {name: one.arguments for names, one in (*CONVOLUTIONS.items(), *GRADIENTS.items()) for name in names.split()}

Rule = Callable[[OpCall, Extents], None]
_RULES: dict[str, Rule] = {}


def relate(call: OpCall, extents: Extents) -> None:
    """Write down what a call tells of its extents: nothing, if its operator is not known."""
    rule = _RULES.get(call.name) or _RULES.get(call.name.removesuffix("_"))
    if rule is not None:
        with contextlib.suppress(IndexError, TypeError, ValueError):  # arguments of another form than the schema's
            rule(call, extents)


def _register(names: str, rule: Rule) -> None:
    for name in names.split():
        _RULES[name] = rule


def _product(pattern: str) -> Rule:
    """A rule from letters for extents: "mk,kn->mn" for inputs and results, one group of letters a tensor.

    "*" stands for any number of extents, "!" behind a group for those of a parameter, "&" for a tensor that is
    broadcast to the first result; an empty group says nothing.
    """
    left, _, right = pattern.partition("->")

    def rule(call: OpCall, extents: Extents) -> None:
        bound: dict[str, int] = {}
        many: dict[int, int] = {}
        for side, find in ((left, call.tensor), (right, call.result)):
            for position, group in enumerate(side.split(",")):
                shape = find(position)
                if shape is None or not group:
                    continue
                if group.endswith("!"):
                    extents.fix(shape)
                if group == "&":
                    _broadcast([shape, call.results[0]], extents)
                    continue
                _bind(group.rstrip("!"), shape, extents, bound, many)

    return rule


def _matmul(pattern: str) -> Rule:
    """The same for matrix products, which may make a workspace, and spread what they add to."""
    product = _product(pattern)

    def rule(call: OpCall, extents: Extents) -> None:
        product(call, extents)
        if pattern.startswith("&") and len(call.tensor(0) or ()) == 1:  # a bias
            extents.fix(call.tensor(0) or ())
        for shape in call.made:
            if len(shape) == 1:
                extents.fix(shape)
            else:
                _match(shape, call.results[0], extents)

    return rule


def _bind(group: str, shape: Shape, extents: Extents, bound: dict[str, int], many: dict[int, int]) -> None:
    """Give the letters of a group their extents; those of "*" by their place from the left."""
    head, star, tail = group.partition("*")
    if len(shape) < len(head) + len(tail) or (not star and len(shape) != len(head)):
        return
    end = len(shape) - len(tail)
    named = [*zip(head, shape, strict=False), *zip(tail, shape[end:], strict=True)]
    for letter, extent in named:
        extents.same(bound.setdefault(letter, extent), extent)
    if star:
        for place, extent in enumerate(shape[len(head) : end]):
            extents.same(many.setdefault(place, extent), extent)


def _broadcast(shapes: Iterable[Shape], extents: Extents) -> None:
    """Tensors whose extents are equal, or 1, counted from the right."""
    columns: dict[int, int] = {}
    for shape in shapes:
        for place, extent in enumerate(reversed(shape)):
            if extents.value[extent] > 1:
                extents.same(columns.setdefault(place, extent), extent)


def _pointwise(call: OpCall, extents: Extents) -> None:
    lists = [argument.tensors for argument in call.arguments if len(argument.tensors) > 1]
    if lists and call.name.startswith("_foreach"):
        singles = [argument.tensors[0] for argument in call.arguments if len(argument.tensors) == 1]
        for row in zip(*lists, strict=False):
            _broadcast([shape for shape in (*row, *singles) if shape is not None], extents)
        return
    _broadcast((*call.inputs, *call.results), extents)
    for shape in call.made if call.results else ():
        _match(shape, call.results[0], extents)


def _view(call: OpCall, extents: Extents) -> None:
    before, after = call.tensor(0), call.result()
    if before is not None and after is not None:
        extents.view(before, after)


def _permuted(call: OpCall, order: Sequence[int], extents: Extents) -> None:
    before, after = call.tensor(0), call.result()
    if before is not None and after is not None and len(order) == len(before) == len(after):
        for place, of in enumerate(order):
            extents.same(before[of], after[place])


def _transpose(call: OpCall, extents: Extents) -> None:
    order = list(range(len(call.tensor(0) or ())))
    if len(order) > 1:
        first, second = (0, 1) if call.name == "t" else (int(call.value(1)), int(call.value(2)))
        order[first], order[second] = order[second], order[first]
    _permuted(call, order, extents)


def _permute(call: OpCall, extents: Extents) -> None:
    rank = len(call.tensor(0) or ())
    order = list(range(rank))[::-1] if call.name == "numpy_T" else [int(one) % rank for one in call.value(1)]
    _permuted(call, order, extents)


def _select(call: OpCall, extents: Extents) -> None:
    before, after = call.tensor(0), call.result()
    if before and after is not None:
        at = int(call.value(1)) % len(before)
        _equal((*before[:at], *before[at + 1 :]), after, extents)


def _equal(left: Sequence[int], right: Sequence[int], extents: Extents) -> None:
    if len(left) == len(right):
        for one, other in zip(left, right, strict=True):
            extents.same(one, other)


def _match(left: Shape, right: Shape, extents: Extents) -> None:
    """Two tensors are of one shape if their numbers are equal."""
    if [extents.value[one] for one in left] == [extents.value[one] for one in right]:
        _equal(left, right, extents)


def _sort(call: OpCall, extents: Extents) -> None:
    for shape in (*call.results, *call.made):
        _match(call.inputs[0], shape, extents)


def _slice(call: OpCall, extents: Extents) -> None:
    """All of an extent, all but one, or a part: where the batch is cut, nothing is said."""
    before, after = call.tensor(0), call.result()
    if not before or after is None or len(before) != len(after):
        return
    at = int(call.value(1) or 0) % len(before)
    _equal((*before[:at], *before[at + 1 :]), (*after[:at], *after[at + 1 :]), extents)
    _part(before[at], after[at], extents)


def _part(whole: int, part: int, extents: Extents) -> None:
    if extents.value[whole] == extents.value[part]:
        extents.same(whole, part)
    elif extents.value[whole] == extents.value[part] + 1 > 2:
        extents.sum_of(whole, (part, extents.new(1)))
    else:
        extents.follow([part], [whole])


def _split(call: OpCall, extents: Extents) -> None:
    """`split_with_sizes`, `split`, `chunk` (tensor, sizes, dim) and `unbind` (tensor, dim)."""
    before = call.tensor(0)
    if not before or not call.results:
        return
    if call.name == "unbind":
        at = int(call.value(1) or 0) % len(before)
        for after in call.results:
            _equal((*before[:at], *before[at + 1 :]), after, extents)
        return
    at = int(call.value(2) or 0) % len(before)
    for after in call.results:
        _equal((*before[:at], *before[at + 1 :]), (*after[:at], *after[at + 1 :]), extents)
        extents.follow([after[at]], [before[at]])
    extents.sum_of(before[at], [after[at] for after in call.results])


def _cat(call: OpCall, extents: Extents) -> None:
    parts = [shape for shape in call.arguments[0].tensors if shape is not None and len(shape)]
    after = call.result()
    if after is None or not parts:
        return
    at = int(call.value(1) or 0) % len(after)
    parts = [part for part in parts if len(part) == len(after)]
    for part in parts:
        _equal((*part[:at], *part[at + 1 :]), (*after[:at], *after[at + 1 :]), extents)
    extents.sum_of(after[at], [part[at] for part in parts])


def _stack(call: OpCall, extents: Extents) -> None:
    after = call.result()
    if after is not None:
        at = int(call.value(1) or 0) % len(after)
        for part in call.arguments[0].tensors:
            _equal(part or (), (*after[:at], *after[at + 1 :]), extents)
        extents.follow([after[at]], ())


def _expand(call: OpCall, extents: Extents) -> None:
    before, after = call.tensor(0), call.result()
    if before is not None and after is not None:
        _broadcast([before, after], extents)


def _repeat(call: OpCall, extents: Extents) -> None:
    before, after = call.tensor(0), call.result()
    if before is None or after is None:
        return
    for place, extent in enumerate(reversed(after)):
        if place < len(before) and extents.value[before[-1 - place]] > 1:
            one = before[-1 - place]
            times = extents.new(extents.value[extent] // extents.value[one])
            extents.fix([times])
            extents.view([times, one], [extent])


def _reduce(call: OpCall, extents: Extents) -> None:
    """Sums, means, maxima over some dimensions, (tensor, dimensions, keepdim)."""
    before = call.tensor(0)
    if not before:
        return
    given = call.value(2 if call.name in ("norm", "linalg_vector_norm") else 1)
    dims = [given] if isinstance(given, int) else given
    if not isinstance(dims, list) or not all(isinstance(one, int) for one in dims):
        dims = range(len(before))
    gone = {one % len(before) for one in dims} or set(range(len(before)))
    for after in call.results:
        if len(after) == len(before):
            after = tuple(one for place, one in enumerate(after) if place not in gone)
        _equal([one for place, one in enumerate(before) if place not in gone], after, extents)
    _broadcast([before, *(shape for shape in call.made if len(shape) == len(before))], extents)


def _norm(call: OpCall, extents: Extents) -> None:
    """Normalisations forward and backward: what has the shape of the data is data, what has fewer dimensions belongs
    to channels."""
    batched = "batch_norm" in call.name or "group_norm" in call.name or "instance_norm" in call.name
    if call.name == "native_layer_norm_backward":  # (2, threads, channels): sums of each thread
        extents.fix(one for shape in call.made if len(shape) == 3 and extents.value[shape[0]] == 2 for one in shape)
    tensors = [*call.inputs, *call.results, *(shape for shape in call.made if len(shape) == 1 and batched)]
    values = [[extents.value[one] for one in shape] for shape in tensors]
    rank = max(map(len, values), default=0)
    if rank < 2:
        return
    data = [shape for shape in tensors if len(shape) == rank]
    _broadcast(data, extents)
    for shape in tensors:
        if len(shape) == 1 and extents.value[shape[0]] == extents.value[data[0][1 if batched else -1]]:
            extents.same(shape[0], data[0][1 if batched else -1])
            extents.fix(shape)
        elif len(shape) < rank and not batched:
            extents.fix(shape)
            _broadcast([data[0], shape], extents)
        elif len(shape) == 1:  # a reserve that the backward takes
            extents.follow(shape, data[0])
    if "group_norm" in call.name:
        for shape in (*call.inputs, *call.results, *call.made):
            if len(shape) == 2 and extents.value[shape[0]] == extents.value[data[0][0]]:  # (batch, groups)
                extents.same(shape[0], data[0][0])
                extents.fix(shape[1:])


def _convolution(call: OpCall, extents: Extents) -> None:
    """(batch, channels, space) of input, output and gradients; weight and bias are parameters, channels are theirs."""
    names = _CONVOLVES[call.name]
    shapes = {name: call.tensor(at) for at, name in enumerate(names)}
    weight, inputs = shapes.get("weight"), shapes.get("input")
    data = [shape for name in ("input", "gradient", "z") if (shape := shapes.get(name)) is not None]
    extents.fix((*(weight or ()), *(shapes.get("bias") or ())))
    for shape in call.results:
        if len(shape) == 1:
            extents.fix(shape)
        elif "gradient" not in names:
            data.append(shape)
        else:
            _gradient(shape, inputs, weight, extents)
    for shape in data:
        extents.fix(shape[1:2])
        extents.same(shape[0], data[0][0])
        extents.follow(shape[2:], data[0][2:])


def _gradient(shape: Shape, inputs: Shape | None, weight: Shape | None, extents: Extents) -> None:
    """A result of a convolution's backward: the gradient of its input or of its weight."""
    values = [extents.value[one] for one in shape]
    of_input = inputs is not None and values == [extents.value[one] for one in inputs]
    of_weight = weight is not None and values == [extents.value[one] for one in weight]
    if of_weight and not of_input:
        extents.fix(shape)
    elif of_input and not of_weight and inputs is not None:
        _equal(shape, inputs, extents)


def _pool(call: OpCall, extents: Extents) -> None:
    """Pooling and resampling of (batch, channels, space), forward and backward: space has no batch in it."""
    spatial = 3 if "3d" in call.name else 1 if "1d" in call.name else 2
    data = [shape for shape in (*call.inputs, *call.results) if len(shape) >= spatial]
    for shape in data[1:]:
        _equal(data[0][:-spatial], shape[:-spatial], extents)
        extents.follow(shape[-spatial:], data[0][-spatial:])


def _loss(call: OpCall, extents: Extents) -> None:
    """Scores (batch, classes, …) and targets (batch, …), in any order among the arguments, forward and backward."""
    scores = max((shape for shape in call.inputs), key=len, default=())
    if len(scores) < 2:
        return
    for shape in (*call.inputs, *call.results):
        if len(shape) == len(scores):
            _broadcast([scores, shape], extents)
        elif len(shape) == len(scores) - 1 and extents.value[shape[0]] == extents.value[scores[0]]:
            _equal((scores[0], *scores[2:]), shape, extents)


def _index(call: OpCall, extents: Extents) -> None:
    """Advanced indexing, and writing through it: (tensor, indices, values)."""
    before = call.tensor(0)
    after = call.tensor(2) if "index_put" in call.name else call.result()
    indices = call.arguments[1]
    if before is None:
        return
    if "index_put" in call.name and call.result() is not None:
        _equal(before, call.results[0], extents)
    if after is None or any(indices.masks):
        extents.follow(after or (), before)
        return
    chosen = [i for i, shape in enumerate(indices.tensors) if shape is not None]
    if not chosen or chosen != list(range(chosen[0], chosen[-1] + 1)):
        return
    rank = max(len(indices.tensors[i] or ()) for i in chosen)
    for shape in call.made:
        _match(shape, after, extents)
    middle = after[chosen[0] : chosen[0] + rank]
    _broadcast([*(indices.tensors[i] or () for i in chosen), middle], extents)
    rest = (*before[: chosen[0]], *before[chosen[-1] + 1 :])
    _equal(rest, (*after[: chosen[0]], *after[chosen[0] + rank :]), extents)


def _index_select(call: OpCall, extents: Extents) -> None:
    before, index, after = call.tensor(0), call.tensor(2), call.result()
    if before and index and after and len(before) == len(after):
        at = int(call.value(1)) % len(before)
        _equal((*before[:at], index[0], *before[at + 1 :]), after, extents)


def _gather(call: OpCall, extents: Extents) -> None:
    before, index, after = call.tensor(0), call.tensor(2), call.result()
    if before and index and after and len(before) == len(index):
        at = int(call.value(1)) % len(before)
        _equal((*before[:at], *before[at + 1 :]), (*index[:at], *index[at + 1 :]), extents)
        _equal(index, after if "gather" == call.name else before, extents)


def _bag(call: OpCall, extents: Extents) -> None:
    """Embedding bags, (weight or gradient, indices, offsets, …): every bag has equally many indices."""
    backward = "backward" in call.name
    first, indices = call.tensor(0), call.tensor(1)
    bags = first if backward else call.result()
    if not first or not indices or not bags:
        return
    extents.fix(call.results[0] if backward and call.results else first)
    bag = bags[0]
    others = [shape for shape in (*call.inputs[2:], *call.results[1:]) if len(shape) == 1]
    for shape in others:
        if extents.value[shape[0]] == extents.value[bag]:
            extents.same(shape[0], bag)
        elif extents.value[shape[0]] == extents.value[indices[0]]:
            extents.same(shape[0], indices[0])
        elif extents.value[shape[0]] == extents.value[bag] + 1:
            extents.sum_of(shape[0], (bag, extents.new(1)))
    for shape in call.made:
        if len(shape) == 1 and extents.value[shape[0]] == extents.value[indices[0]] + 1:  # counts to be summed up
            extents.sum_of(shape[0], (indices[0], extents.new(1)))
    if len(indices) == 2:
        extents.same(indices[0], bag)
    else:
        _each(indices[0], bag, extents)


def _tables(call: OpCall, extents: Extents) -> None:
    """FBGEMM's lookups in several tables (…, dimension offsets, …, indices, offsets, …): offsets are tables × batch + 1,
    bags have equally many indices."""
    starts, indices, offsets = ((2, 7, 8) if call.name.startswith("fbgemm::dense") else (6, 11, 12))
    of_dims, chosen, bounds, after = call.tensor(starts), call.tensor(indices), call.tensor(offsets), call.result()
    if not of_dims or not chosen or not bounds or not after:
        return
    extents.fix((after[1], *(one for at, arg in enumerate(call.arguments) if at not in (indices, offsets)
                             for shape in arg.tensors if shape is not None for one in shape)))  # fmt: skip
    tables, bags = extents.new(extents.value[of_dims[0]] - 1), extents.new(extents.value[bounds[0]] - 1)
    extents.fix([tables])
    extents.view([bags], [tables, after[0]])
    extents.sum_of(bounds[0], (bags, extents.new(1)))
    _each(chosen[0], bags, extents)


def _each(many: int, few: int, extents: Extents) -> None:
    """Of one extent there is a fixed number for each of another."""
    if extents.value[few] and extents.value[many] % extents.value[few] == 0:
        times = extents.new(extents.value[many] // extents.value[few])
        extents.fix([times])
        extents.view([many], [few, times])


def _permute_sparse(call: OpCall, extents: Extents) -> None:
    """(order, lengths (features, batch), values, …) -> lengths and values of the features in that order."""
    before, after = call.tensor(1), call.result()
    if before and after and len(before) == len(after) == 2:
        extents.same(before[1], after[1])
        for values in (call.tensor(2), call.result(1)):
            _each((values or before)[0], before[1], extents)


def _cumsum_complete(call: OpCall, extents: Extents) -> None:
    before, after = call.tensor(0), call.result()
    if before and after:
        extents.sum_of(after[-1], (before[-1], extents.new(1)))


def _all_to_all(call: OpCall, extents: Extents) -> None:
    """(output, input, …) of equal size."""
    after, before = call.tensor(0), call.tensor(1)
    if after and before:
        _match(before, after, extents)


def _of_slice(call: OpCall, extents: Extents) -> None:
    """`slice_backward` (gradient, sizes, dim, …)."""
    before, after = call.tensor(0), call.result()
    if before and after and len(before) == len(after):
        at = int(call.value(2)) % len(after)
        _equal((*before[:at], *before[at + 1 :]), (*after[:at], *after[at + 1 :]), extents)
        _part(after[at], before[at], extents)
        for shape in call.made:
            _match(shape, after, extents)


def _of_select(call: OpCall, extents: Extents) -> None:
    """`select_backward` (gradient, sizes, dim, …)."""
    before, after = call.tensor(0), call.result()
    if before is not None and after:
        at = int(call.value(2)) % len(after)
        _equal(before, (*after[:at], *after[at + 1 :]), extents)
        for shape in call.made:
            _match(shape, after, extents)


def _attention(call: OpCall, extents: Extents) -> None:
    """(batch, head, sequence, dimension) of query, key, value and what has their shapes; masks and logarithms of sums
    of exponentials. Backward begins with the gradient of the output."""
    first = 1 if "backward" in call.name else 0
    query, key, value = (call.tensor(first + place) for place in range(3))
    if not query or not key or not value or not len(query) == len(key) == len(value) == 4:
        return
    if call.name.endswith("_for_cpu"):  # a block of the scores for each thread
        scratch = (shape for shape in call.made if len(shape) == 2 or 0 in map(extents.value.__getitem__, shape))
        extents.fix(one for shape in scratch for one in shape)
    _product("bhse,bgte,bgtd->")(OpCall(call.name, call.arguments[first:], ()), extents)
    output = (*query[:3], value[3])
    others = [shape for at in range(first + 3, len(call.arguments)) if (shape := call.tensor(at)) is not None]
    for shape in (*((call.arguments[0].tensors[0] or (),) if first else ()), *others, *call.results):
        if len(shape) == 4:
            sizes = [extents.value[one] for one in shape]
            scores = (*query[:3], key[2])
            known = (output, query, key, value) if sizes[3] != extents.value[key[2]] else (scores, output)
            like = next((one for one in known if [extents.value[e] for e in one] == sizes), scores)
            _broadcast([like, shape], extents)
        elif len(shape) == 3:
            _broadcast([query[:3], shape], extents)


def _encoder_layer(call: OpCall, extents: Extents) -> None:
    """Fused inference of an encoder layer, or its attention: data (batch, sequence, dimension), parameters, a mask."""
    data = [shape for shape in call.inputs if len(shape) == 3]
    for argument in call.arguments:
        extents.fix(one for shape in argument.tensors if shape is not None and len(shape) < 3 for one in shape)
    _broadcast([*data, *(shape for shape in call.results if len(shape) == 3)], extents)


def _recurrent(call: OpCall, extents: Extents) -> None:
    """`lstm`, `gru` and the like (input, states, parameters, …, batch_first), and a layer of them in oneDNN."""
    data = call.tensor(0)
    if not data or len(data) != 3:
        return
    layer = call.name.startswith("mkldnn")
    time, batch = (1, 0) if not layer and call.value(8) is True else (0, 1)
    weights = [shape for argument in (call.arguments[1:5] if layer else call.arguments[2:3])
               for shape in argument.tensors if shape is not None]  # fmt: skip
    extents.fix((data[2], *(one for shape in weights for one in shape)))
    of_weights = [[extents.value[one] for one in shape] for shape in weights]
    for shape in (*call.inputs[1:], *call.results):
        sizes = [extents.value[one] for one in shape]
        if sizes in of_weights:
            extents.fix(shape)
        elif len(shape) == 3 and sizes[:2] == [extents.value[one] for one in data[:2]]:
            _equal(shape[:2], data[:2], extents)
            extents.fix(shape[2:])
        elif len(shape) in (2, 3) and sizes[-2] == extents.value[data[batch]]:  # states (…, batch, hidden)
            extents.same(shape[-2], data[batch])
            extents.fix((*shape[:-2], shape[-1]))


def _topk(call: OpCall, extents: Extents) -> None:
    before = call.tensor(0)
    if before:
        at = int(call.value(2)) % len(before)
        for after in call.results:
            _equal((*before[:at], *before[at + 1 :]), (*after[:at], *after[at + 1 :]), extents)
            extents.fix(after[at : at + 1])


def _one_hot(call: OpCall, extents: Extents) -> None:
    before, after = call.tensor(0), call.result()
    if before and after:
        _equal(before, after[:-1], extents)
        extents.fix(after[-1:])
        for shape in call.made:
            _match(shape, after, extents)


def _cells(call: OpCall, extents: Extents) -> None:
    """Fused cells: gates (batch, n × hidden), states (batch, hidden), biases."""
    rows = [shape for shape in (*call.inputs, *call.results) if len(shape) == 2]
    for shape in (*call.inputs, *call.results):
        if len(shape) == 1:
            extents.fix(shape)
    for shape in rows[1:]:
        if extents.value[shape[0]] == extents.value[rows[0][0]]:
            extents.same(shape[0], rows[0][0])
        extents.follow([shape[1]], [rows[0][1]])


_register(
    POINTWISE
    + " abs_ copy clone_ alias detach lift_fresh resolve_conj resolve_neg to _to_copy contiguous fill zero ones_like"
    " zeros_like empty_like full_like rand_like randn_like bernoulli normal uniform random exponential relu6"
    " _softmax _log_softmax softmax log_softmax _softmax_backward_data _log_softmax_backward_data native_dropout"
    " dropout feature_dropout cumsum cumprod flip roll square sgn isnan isinf isfinite isneginf isposinf eq ne lt le gt ge"
    " logical_and logical_or logical_xor bitwise_xor nan_to_num log2 log10 exp2 sinh cosh tan asin acos atan atan2"
    " erfinv erfc frac trunc remainder float_power xlogy log_sigmoid_forward log_sigmoid_backward logit"
    " binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits mse_loss mse_loss_backward"
    " l1_loss smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward kl_div poisson_nll_loss"
    " pin_memory _pin_memory record_stream masked_fill where addcmul addcdiv rsub true_divide divide multiply subtract"
    " threshold hardshrink softshrink prelu rrelu_with_noise celu selu hardswish_backward hardsigmoid_backward"
    " mish_backward _foreach_add _foreach_mul _foreach_div _foreach_sub _foreach_addcmul _foreach_addcdiv"
    " _foreach_sqrt _foreach_zero _foreach_neg _foreach_lerp view_as reshape_as expand_as type_as"
    " nccl:all_reduce nccl:broadcast c10d::allreduce c10d::broadcast",
    _pointwise,
)
_register("view reshape _unsafe_view _reshape_alias flatten unflatten squeeze unsqueeze ravel view_as_real", _view)
_register("transpose t swapaxes swapdims", _transpose)
_register("permute numpy_T", _permute)
_register("sort argsort", _sort)
_register("select", _select)
_register("slice narrow", _slice)
_register("split split_with_sizes chunk unbind unsafe_split", _split)
_register("cat concat concatenate", _cat)
_register("stack", _stack)
_register("expand", _expand)
_register("repeat tile", _repeat)
_register(
    "sum mean amax amin max.dim max min argmax argmin prod logsumexp var std var_mean std_mean any all norm"
    " linalg_vector_norm nansum median count_nonzero",
    _reduce,
)
_register("mm _int_mm", _matmul("mk,kn->mn"))
_register("addmm _addmm_activation", _matmul("&,mk,kn->mn"))
_register("bmm", _matmul("bmk,bkn->bmn"))
_register("baddbmm", _matmul("&,bmk,bkn->bmn"))
_register("addbmm", _product("&,bmk,bkn->mn"))
_register("mv", _product("mk,k->m"))
_register("addmv", _product("&,mk,k->m"))
_register("dot vdot", _product("k,k->"))
_register("ger outer", _product("m,n->mn"))
_register("linear", _product("*i,oi!,o!->*o"))
_register("embedding", _product("vd!,*->*d"))
_register("embedding_dense_backward", _product("*d,*->vd!"))
_register("embedding_bag _embedding_bag _embedding_bag_forward_only _embedding_bag_backward", _bag)
_register("_embedding_bag_dense_backward _embedding_bag_sparse_backward", _bag)
_register(
    "native_layer_norm layer_norm native_layer_norm_backward rms_norm _fused_rms_norm _fused_rms_norm_backward"
    " native_batch_norm native_batch_norm_backward batch_norm _batch_norm_impl_index cudnn_batch_norm"
    " cudnn_batch_norm_backward miopen_batch_norm miopen_batch_norm_backward _native_batch_norm_legit"
    " _batch_norm_with_update batch_norm_backward native_group_norm native_group_norm_backward group_norm",
    _norm,
)
_register(" ".join(_CONVOLVES), _convolution)
_register(
    "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool1d avg_pool2d"
    " avg_pool2d_backward avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d"
    " _adaptive_avg_pool2d_backward adaptive_max_pool2d mkldnn_max_pool2d mkldnn_max_pool2d_backward"
    " upsample_nearest2d upsample_bilinear2d upsample_nearest2d_backward upsample_bilinear2d_backward",
    _pool,
)
_register(
    "nll_loss nll_loss_nd nll_loss_forward nll_loss_backward nll_loss2d nll_loss2d_forward nll_loss2d_backward"
    " cross_entropy_loss",
    _loss,
)
_register("index _index_put_impl index_put _unsafe_index", _index)
_register("index_select", _index_select)
_register("gather scatter scatter_add", _gather)
_register("slice_backward", _of_slice)
_register("select_backward", _of_select)
_register(
    "fbgemm::split_embedding_codegen_lookup_adagrad_function fbgemm::split_embedding_codegen_lookup_sgd_function"
    " fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"
    " fbgemm::split_embedding_codegen_lookup_adam_function fbgemm::dense_embedding_codegen_lookup_function",
    _tables,
)
_register("fbgemm::permute_2D_sparse_data", _permute_sparse)
_register("fbgemm::asynchronous_complete_cumsum", _cumsum_complete)
_register("c10d::alltoall_base", _all_to_all)
_register(
    "scaled_dot_product_attention _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention"
    " _scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu"
    " _scaled_dot_product_flash_attention_backward"
    " _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward"
    " _scaled_dot_product_flash_attention_for_cpu_backward",
    _attention,
)
_register("_transformer_encoder_layer_fwd _native_multi_head_attention", _encoder_layer)
_register("lstm gru rnn_tanh rnn_relu mkldnn_rnn_layer mkldnn_rnn_layer_backward", _recurrent)
_register("topk", _topk)
_register("one_hot", _one_hot)
_register(
    "_thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl _thnn_fused_lstm_cell_backward _thnn_fused_gru_cell"
    " _thnn_fused_gru_cell_backward",
    _cells,
)
