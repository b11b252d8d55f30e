"""Choose contents for an operator's tensors, such as indices in range, offsets and masks. Does not need torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

# The `kind` of a tensor's contents, and the parameters of this kind. `standalone.filled` creates the values.
# Integer kinds are index (in [low, high)), sorted (ascending, in [0, high)) and offsets (evenly from 0 to high).
# Others are uniform (in [0.1, 1)), rising (ascending floats), value (constant) and mask (`true` ones, evenly spaced).
Fill = dict[str, Any]

_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})


class Given(NamedTuple):
    """The properties of a call that determine the contents of its tensors."""

    op: str  # the name, stripped of its namespace and of an in-place operator's trailing underscore
    # for each argument, the shapes of its tensors; None represents a list element that is not a tensor
    shapes: Mapping[str, Sequence[tuple[int, ...] | None]]
    numbers: Mapping[str, Any]  # values of the other arguments
    results: Sequence[tuple[int, ...]]  # shapes of the returned tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an argument that is a single tensor; () if it has no tensor or several."""
        found = self.shapes.get(name) or ()
        return (found[0] or ()) if len(found) == 1 else ()

    def extent(self, name: str, dim: int) -> int:
        """Return the size of dimension `dim` of an argument's only tensor; 1 if there is no such dimension."""
        shape = self.shape(name)
        return shape[dim] if -len(shape) <= dim < len(shape) else 1

    def number(self, name: str, usual: int) -> int:
        value = self.numbers.get(name)
        return value if type(value) is int else usual


def fill_of(given: Given, argument: str, place: int, dtype: str) -> Fill:
    """Return the contents for a tensor; `place` is the tensor's index in its argument, if the argument is a list."""
    rule = _RULES.get((given.op, argument))
    if rule is not None and (found := rule(given, place, dtype)) is not None:
        return found
    if argument in _BY_ARGUMENT and dtype in _INTEGERS and (found := _BY_ARGUMENT[argument](given, place, dtype)):
        return found
    if dtype == "bool":
        return {"kind": "mask", "true": None}
    if dtype in _INTEGERS:
        return _index(3, 1)
    return {"kind": "uniform"}


def _index(high: int, low: int = 0) -> Fill:
    return {"kind": "index", "low": low, "high": max(high, low + 1)}


def _below_rows(name: str) -> Callable[[Given, int, str], Fill]:
    return lambda given, place, dtype: _index(given.extent(name, 0))


def _below_number(name: str) -> Callable[[Given, int, str], Fill]:
    return lambda given, place, dtype: _index(given.number(name, 1))


def _along_dim(given: Given, place: int, dtype: str) -> Fill:
    shape = given.shape("self") or given.shape("input")
    dim = given.number("dim", 0)
    high = shape[dim] if -len(shape) <= dim < len(shape) else min(shape, default=1)
    return _index(high)


def _advanced(given: Given, place: int, dtype: str) -> Fill:
    shape, dim = given.shape("self"), place
    if dtype in ("bool", "uint8"):
        results = given.results[0] if given.results else ()
        return {"kind": "mask", "true": results[place] if place < len(results) and given.op == "index" else None}
    return _index(shape[dim] if dim < len(shape) else 1)


def _offsets(given: Given, place: int, dtype: str) -> Fill:
    last = given.numbers.get("include_last_offset") is True
    return {"kind": "offsets", "high": math.prod(given.shape("indices")), "last": last}


def _bags(given: Given, place: int, dtype: str) -> Fill:
    bags = given.extent("bag_size", 0) if given.shape("bag_size") else given.extent("offsets", 0)
    return {"kind": "sorted", "high": max(bags, 1)}


def _bag_size(given: Given, place: int, dtype: str) -> Fill:
    bags = max(given.extent("bag_size", 0), 1)
    return {"kind": "value", "value": max(given.extent("indices", 0) // bags, 1)}


def _classes(given: Given, place: int, dtype: str) -> Fill | None:
    shape = given.shape("self")
    if dtype not in _INTEGERS:
        return None
    return _index(shape[1] if len(shape) > 1 else given.extent("self", 0))


def _window(given: Given, place: int, dtype: str) -> Fill:
    spatial = 3 if "3d" in given.op else 2
    return _index(math.prod(given.shape("self")[-spatial:]))


def _count_true(given: Given, place: int, dtype: str) -> Fill | None:
    results = given.results[0] if given.results else ()
    return {"kind": "mask", "true": results[0] if results else None}


def _lengths(given: Given, place: int, dtype: str) -> Fill:
    first = given.numbers.get("batch_first") is True
    return {"kind": "value", "value": given.extent("input", 1 if first else 0)}


def _batch_sizes(given: Given, place: int, dtype: str) -> Fill:
    rows = given.extent("data", 0)
    return {"kind": "value", "value": max(rows // max(given.extent("batch_sizes", 0), 1), 1)}


def _repeats(given: Given, place: int, dtype: str) -> Fill:
    rows = given.results[0][0] if given.results and given.results[0] else 1
    return {"kind": "value", "value": rows // max(given.extent("repeats", 0), 1)}


def _coordinates(given: Given, place: int, dtype: str) -> Fill:
    size = given.numbers.get("size")
    extents = [extent for extent in size if type(extent) is int] if isinstance(size, list) else []
    return _index(min(extents, default=1))


def _rising(given: Given, place: int, dtype: str) -> Fill | None:
    return None if dtype in _INTEGERS else {"kind": "rising"}


# Each rule applies to one argument of an operator. If a rule returns None, the argument's name and dtype decide.
_RULES: dict[tuple[str, str], Callable[[Given, int, str], Fill | None]] = {
    ("embedding", "indices"): _below_rows("weight"),
    ("embedding_renorm", "indices"): _below_rows("self"),
    ("index", "indices"): _advanced,
    ("_unsafe_index", "indices"): _advanced,
    ("index_put", "indices"): _advanced,
    ("_index_put_impl", "indices"): _advanced,
    ("_unsafe_index_put", "indices"): _advanced,
    ("take", "index"): lambda given, place, dtype: _index(math.prod(given.shape("self"))),
    ("put", "index"): lambda given, place, dtype: _index(math.prod(given.shape("self"))),
    ("nonzero", "self"): lambda given, place, dtype: _count_true(given, place, dtype) if dtype == "bool" else None,
    ("masked_select", "mask"): _count_true,
    ("_pack_padded_sequence", "lengths"): _lengths,
    ("lstm", "batch_sizes"): _batch_sizes,
    ("gru", "batch_sizes"): _batch_sizes,
    ("rnn_tanh", "batch_sizes"): _batch_sizes,
    ("rnn_relu", "batch_sizes"): _batch_sizes,
    ("_pad_packed_sequence", "batch_sizes"): _batch_sizes,
    ("repeat_interleave", "repeats"): _repeats,
    ("searchsorted", "sorted_sequence"): _rising,
    ("bucketize", "boundaries"): _rising,
    ("one_hot", "self"): _below_number("num_classes"),
    ("cross_entropy_loss", "target"): _classes,
} | {
    (f"{name}{suffix}", "target"): _classes
    for name in ("nll_loss", "nll_loss2d")
    for suffix in ("", "_forward", "_backward", "_nd")
} | {
    (f"{name}{suffix}", argument): rule
    for name in ("_embedding_bag", "embedding_bag")
    for suffix in ("", "_forward_only")
    for argument, rule in (("indices", _below_rows("weight")), ("offsets", _offsets))
} | {
    (f"{name}_{suffix}", "indices"): _below_number("num_weights")
    for name, suffix in (
        ("embedding", "backward"), ("embedding", "dense_backward"), ("embedding", "sparse_backward"),
        ("_embedding_bag", "backward"), ("_embedding_bag", "dense_backward"), ("_embedding_bag", "sparse_backward"),
    )
} | {
    (f"_embedding_bag_{kind}backward", argument): rule
    for kind in ("", "dense_", "sparse_", "per_sample_weights_")
    for argument, rule in (("offsets", _offsets), ("offset2bag", _bags), ("bag_size", _bag_size),
                           ("maximum_indices", _below_number("num_weights")))
} | {
    (f"{name}_pool{spatial}d_{suffix}", "indices"): _window
    for name in ("max", "adaptive_max", "fractional_max")
    for spatial in (2, 3)
    for suffix in ("with_indices_backward", "backward")
} | {
    (name, "indices"): _coordinates
    for name in ("sparse_coo_tensor", "_sparse_coo_tensor_unsafe", "_sparse_coo_tensor_with_dims_and_tensors")
}  # fmt: skip

# If an operator has no rule, the argument name decides the contents of an integer tensor.
_BY_ARGUMENT: dict[str, Callable[[Given, int, str], Fill]] = {
    "index": _along_dim,  # gather, scatter, index_select, index_add, …
    "target": lambda given, place, dtype: _index(given.extent("self", 1 if len(given.shape("self")) > 1 else 0)),
}
