"""Find the gradient norms that gradient clipping computes between backward and the optimizer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...trace.brief import brief
from ...trace.dtypes import itemsize
from ..reshape.shapes.followed_calls import Shapes
from .items import CommOp, Item, SyntheticOp
from .model import Model, Parameter, Weights
from .step_calls import VIEWS, Call, is_tensor, walked
from .weights import gradients_of, lists_of, make_whole

_FINITE = "aten::_amp_foreach_non_finite_check_and_unscale_"


@dataclass(frozen=True)
class Clipping:
    """Calls on gradients between backward and the optimizer."""

    storages: frozenset[int] = frozenset()  # storages of the gradients
    joined: frozenset[int] = frozenset()  # rows of calls that combine the gradients' norms into the total norm
    # rows of calls that return per-rank results; it is unknown how to combine these over ranks
    unknown: frozenset[int] = field(default_factory=frozenset)
    scaled: frozenset[int] = field(default_factory=frozenset)  # rows of calls that check for infinite gradients
    # Storages, such as averaged weights, that calls around the optimizer use together with a parameter.
    copies: frozenset[int] = field(default_factory=frozenset)

    __repr__ = brief

    def reduced(self, call: Call) -> Iterator[Item]:
        """Combine norms of sharded gradients over ranks: raise to a power, all-reduce, take the root.

        DTensor combines partial norms in this way (torch/distributed/tensor/_ops/_math_ops.py).
        """
        sizes = (_elements(call),)
        signature = call.signature
        dtype = signature.tensors[0].dtype if signature is not None and signature.tensors else "float32"
        size = itemsize(dtype) or 4
        yield SyntheticOp("aten::pow", (sizes,), (sizes,), dtype, size)
        yield CommOp("all_reduce", "dp", sizes, sizes[0], dtype, size, functional=True)
        yield SyntheticOp("aten::pow", (sizes,), (sizes,), dtype, size)


def _elements(call: Call) -> int:
    return next((value[3] for value in call.tensors("inputs")), 0)


def find_clipping(model: Model) -> Clipping:
    gradients = frozenset(storage for storage, _ in gradients_of(model.weights))
    count, joined, unknown, scaled = len(model.parameters), set[int](), set[int](), set[int]()
    norms = False
    for call in model.after:
        if any(inner.name == _FINITE for inner in call.walk()):
            scaled.add(call.row)
        takes = {value[1] for inner in call.walk() for value in inner.tensors("inputs")}
        if not takes.isdisjoint(gradients):
            norms |= any("norm" in inner.name for inner in call.walk())
            if any("norm" not in inner.name and _shrinks(inner, gradients) for inner in walked([call])):
                unknown.add(call.row)
        elif norms and "norm" in call.name and _elements(call) == count:
            joined.add(call.row)
    copies = frozenset(storage for call in walked(model.after) for storage in _with_parameters(call, model))
    return Clipping(gradients, frozenset(joined), frozenset(unknown), frozenset(scaled), copies)


def _with_parameters(call: Call, model: Model) -> Iterator[int]:
    given = [value for value in call.record.get("inputs", {}).get("values", []) if isinstance(value, list)]
    single = [value for value in given if is_tensor(value)]
    lists = [value for value in given if value and isinstance(value[0], list)]
    rows = [single, *zip(*lists, strict=False)] if lists else [single]
    known = model.weights.by_shard or model.weights.by_storage
    for row in rows:
        sizes = {value[3] for value in row if value[1] in known}
        yield from (value[1] for value in row if value[3] in sizes)


def _shrinks(call: Call, gradients: frozenset[int]) -> bool:
    if call.name in VIEWS or call.children:
        return False
    given = [value for value in call.tensors("inputs") if value[1] in gradients]
    made = list(call.tensors("outputs"))
    return bool(given and made) and max(v[3] for v in made) < max(v[3] for v in given)


def whole_gradients(after: Sequence[Call], weights: Weights, shapes: Shapes) -> list[Call]:
    """Return the calls on unsharded gradients between backward and the optimizer, except FSDP's sums over ranks."""
    gradients = gradients_of(weights)
    count, found = len(weights.parameters), list[Call]()

    def owner_of(value: Sequence[int]) -> Parameter | None:
        return gradients.get((value[1], value[2])) or weights.by_shard.get(value[1])

    for call in after:
        if call.name == "aten::pow" and _elements(call) == count:
            continue
        single = not any(len(tensors) > 1 for tensors in call.inputs)
        values = (value for inner in call.walk() for value in inner.tensors("inputs"))
        owner = next(filter(None, map(owner_of, values)), None) if single else None
        make_whole(call, owner or lists_of([call], owner_of, weights.parameters)[call.row], weights, shapes)
        found.append(call)
    return found
