"""Shape rules of operators that rearrange, join, split, index, multiply and reduce tensors."""

from __future__ import annotations

from collections.abc import Sequence

from ....analysis.operator_outputs import POINTWISE
from .extents import Extents
from .terms import OpCall, Rule, Shape, broadcast, equal, match, part, product, table

_FREE_SIZED = (
    "empty empty_strided zeros ones full rand randn randint randperm arange linspace new_empty new_zeros new_ones"
    " new_full new_empty_strided resize_ set_ as_strided as_strided_ scalar_tensor eye expand repeat tile"
)
FREE_SIZED = frozenset(_FREE_SIZED.split())  # the caller of these operators passes the result sizes
RANDOM = frozenset(("rand", "randn", "randint", "normal"))  # these operators also create random data


def _pointwise(call: OpCall, extents: Extents) -> None:
    lists = [argument.tensors for argument in call.arguments if len(argument.tensors) > 1]
    if lists and call.name.startswith("_foreach"):
        singles = [argument.tensors[0] for argument in call.arguments if len(argument.tensors) == 1]
        for row in zip(*lists, strict=False):
            broadcast([shape for shape in (*row, *singles) if shape is not None], extents)
        return
    broadcast((*call.inputs, *call.results), extents)
    for shape in call.temporaries if call.results else ():
        match(shape, call.results[0], extents)


def _matmul(pattern: str) -> Rule:
    multiply = product(pattern)

    def rule(call: OpCall, extents: Extents) -> None:
        multiply(call, extents)
        if pattern.startswith("&") and len(call.tensor(0) or ()) == 1:  # this is a bias
            extents.fix(call.tensor(0) or ())
        for shape in call.temporaries:
            if len(shape) == 1:
                extents.fix(shape)
            else:
                match(shape, call.results[0], extents)

    return rule


def _view(call: OpCall, extents: Extents) -> None:
    before, after = call.tensor(0), call.result()
    if before is not None and after is not None:
        extents.view(before, after)


def _as_complex(call: OpCall, extents: Extents) -> None:
    """`view_as_complex` drops the last extent (real and imaginary part); `view_as_real` adds it."""
    before, after = call.tensor(0), call.result()
    if before is not None and after is not None:
        shorter, longer = sorted((before, after), key=len)
        equal(shorter, longer[:-1], extents)
        extents.fix(longer[-1:])


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
    order = list(range(rank))[::-1] if call.name == "numpy_T" else [int(dim) % rank for dim in call.value(1)]
    _permuted(call, order, extents)


def _others(shape: Shape, at: int) -> Shape:
    return (*shape[:at], *shape[at + 1 :])


def _select(call: OpCall, extents: Extents) -> None:
    """Rule for `select` (tensor, dim, …) and its inverse `select_backward` (gradient, sizes, dim, …)."""
    before, after = call.tensor(0), call.result()
    if call.name == "select_backward" and before is not None and after:
        equal(before, _others(after, int(call.value(2)) % len(after)), extents)
        for shape in call.temporaries:
            match(shape, after, extents)
    elif call.name == "select" and before and after is not None:
        equal(_others(before, int(call.value(1)) % len(before)), after, extents)


def _sort(call: OpCall, extents: Extents) -> None:
    """Arguments: (tensor, dim, …) or (tensor, stable, dim, …)."""
    before = call.inputs[0]
    dim = next((value for value in map(call.value, (1, 2)) if type(value) is int), -1)
    for shape in (*call.results, *call.temporaries):
        match(before if len(shape) == len(before) else before[dim:][:1], shape, extents)


def _slice(call: OpCall, extents: Extents) -> None:
    """`slice` keeps all or part of an extent; its inverse is `slice_backward` (gradient, sizes, dim, …)."""
    before, after, back = call.tensor(0), call.result(), call.name == "slice_backward"
    if not before or not after or len(before) != len(after):
        return
    at = int(call.value(2 if back else 1) or 0) % len(before)
    equal(_others(before, at), _others(after, at), extents)
    if back:
        part(after[at], before[at], extents)
        for shape in call.temporaries:
            match(shape, after, extents)
    else:
        part(before[at], after[at], extents)


def _split(call: OpCall, extents: Extents) -> None:
    """Rule for `split_with_sizes`, `split`, `chunk` (tensor, sizes, dim) and `unbind` (tensor, dim)."""
    before = call.tensor(0)
    if not before or not call.results:
        return
    if call.name == "unbind":
        at = int(call.value(1) or 0) % len(before)
        for after in call.results:
            equal(_others(before, at), after, extents)
        return
    at = int(call.value(2) or 0) % len(before)
    for after in call.results:
        equal(_others(before, at), _others(after, at), extents)
        extents.follow([after[at]], [before[at]])
    extents.sum_of(before[at], [after[at] for after in call.results])


def _cat(call: OpCall, extents: Extents) -> None:
    parts = [shape for shape in call.arguments[0].tensors if shape]
    after = call.result()
    if after is None or not parts:
        return
    at = int(call.value(1) or 0) % len(after)
    parts = [shape for shape in parts if len(shape) == len(after)]
    for shape in parts:
        equal(_others(shape, at), _others(after, at), extents)
    extents.sum_of(after[at], [shape[at] for shape in parts])


def _stack(call: OpCall, extents: Extents) -> None:
    after = call.result()
    if after is not None:
        at = int(call.value(1) or 0) % len(after)
        for tensor in call.arguments[0].tensors:
            equal(tensor or (), _others(after, at), extents)
        extents.beside(after)


def _expand(call: OpCall, extents: Extents) -> None:
    before, after = call.tensor(0), call.result()
    if before is not None and after is not None:
        broadcast([before, after], extents)
        old = [1] * (len(after) - len(before)) + extents.sizes(before)
        extents.number(new for new, size in zip(after, old, strict=True) if size == 1)


def _pad(call: OpCall, extents: Extents) -> None:
    """The padding argument is [before, after, …], starting at the last extent. Negative padding crops."""
    before, after, counts = call.tensor(0), call.result(), call.value(1)
    if before is None or after is None or not isinstance(counts, list):
        return
    more = [sum(counts[at : at + 2]) for at in range(0, len(counts), 2)] + [0] * len(before)
    for left, right, count in zip(reversed(before), reversed(after), more, strict=False):
        if count:
            beside = extents.new(abs(count))
            extents.fix([beside])
            extents.sum_of(*((right, (left, beside)) if count > 0 else (left, (right, beside))))
        else:
            extents.same(left, right)


def _repeat(call: OpCall, extents: Extents) -> None:
    before, after = call.tensor(0), call.result()
    if before is None or after is None:
        return
    for place, extent in enumerate(reversed(after)):
        if place < len(before) and extents.value[before[-1 - place]] > 1:
            old = before[-1 - place]
            times = extents.new(extents.value[extent] // extents.value[old])
            extents.fix([times])
            extents.view([times, old], [extent])
    for shape in call.temporaries:
        match(shape, after, extents)


def _unfold(call: OpCall, extents: Extents) -> None:
    """`unfold` (tensor, dim, size, step) appends an extent of the window size."""
    before, after, size = call.tensor(0), call.result(), call.value(2)
    if not before or after is None or len(after) != len(before) + 1:
        return
    at = int(call.value(1)) % len(before)
    equal(_others(before, at), _others(after[:-1], at), extents)
    if extents.value[before[at]] > size:
        extents.fix(after[-1:])
    if size == call.value(3) and extents.value[before[at]] % size == 0:
        extents.view([before[at]], [after[at], after[-1]])
    else:
        extents.follow([after[at]], [before[at]])


def _reduce(call: OpCall, extents: Extents) -> None:
    """Rule for sums, means, maxima and similar reductions (tensor, dimensions, keepdim)."""
    before = call.tensor(0)
    if not before:
        return
    given = call.value(2 if call.name in ("norm", "linalg_vector_norm") else 1)
    dims = [given] if isinstance(given, int) else given
    if not isinstance(dims, list) or not all(isinstance(dim, int) for dim in dims):
        dims = range(len(before))
    gone = {dim % len(before) for dim in dims} or set(range(len(before)))
    for after in call.results:
        if len(after) == len(before):
            after = tuple(extent for place, extent in enumerate(after) if place not in gone)
        equal([extent for place, extent in enumerate(before) if place not in gone], after, extents)
    broadcast([before, *(shape for shape in call.temporaries if len(shape) == len(before))], extents)


def _index(call: OpCall, extents: Extents) -> None:
    """Rule for advanced indexing (tensor, indices, values), both for reads and for writes."""
    before = call.tensor(0)
    after = call.tensor(2) if "index_put" in call.name else call.result()
    indices = call.arguments[1]
    if before is None:
        return
    if "index_put" in call.name and call.result() is not None:
        equal(before, call.results[0], extents)
    if after is None or any(indices.masks):
        extents.follow(after or (), before)
        return
    chosen = [i for i, shape in enumerate(indices.tensors) if shape is not None]
    if not chosen or chosen != list(range(chosen[0], chosen[-1] + 1)):
        return
    rank = max(len(indices.tensors[i] or ()) for i in chosen)
    for shape in call.temporaries:
        match(shape, after, extents)
    middle = after[chosen[0] : chosen[0] + rank]
    broadcast([*(indices.tensors[i] or () for i in chosen), middle], extents)
    rest = (*before[: chosen[0]], *before[chosen[-1] + 1 :])
    equal(rest, (*after[: chosen[0]], *after[chosen[0] + rank :]), extents)


def _index_select(call: OpCall, extents: Extents) -> None:
    before, index, after = call.tensor(0), call.tensor(2), call.result()
    if before and index and after and len(before) == len(after):
        at = int(call.value(1)) % len(before)
        equal((*before[:at], index[0], *before[at + 1 :]), after, extents)


def _grouped_mm(call: OpCall, extents: Extents) -> None:
    """Rule for grouped GEMMs (left, right, group ends). The groups divide rows, columns or the inner dimension."""
    left, right, after = call.tensor(0), call.tensor(1), call.result()
    if left is None or right is None or after is None:
        return
    ends = call.tensor(2) or ()
    pattern = {(2, 3): "rk,gkn->rn", (2, 2): "mr,rn->gmn", (3, 3): "gmk,gkn->gmn", (3, 2): "gmk,kr->mr"}
    product(pattern[len(left), len(right)])(call, extents)
    groups = [shape[0] for shape in (left, right, after) if len(shape) == 3] + list(ends)
    for other in groups[1:]:
        extents.same(groups[0], other)


def _index_add(call: OpCall, extents: Extents) -> None:
    """Arguments: (tensor, dim, index, rows)."""
    before, index, rows, after = call.tensor(0), call.tensor(2), call.tensor(3), call.result()
    if before and index and rows and len(before) == len(rows):
        at = int(call.value(1)) % len(before)
        equal((*before[:at], index[0], *before[at + 1 :]), rows, extents)
        equal(before, after or (), extents)
        for shape in call.temporaries:
            match(shape, rows, extents)


def _gather(call: OpCall, extents: Extents) -> None:
    before, index, after = call.tensor(0), call.tensor(2), call.result()
    if before and index and after and len(before) == len(index):
        at = int(call.value(1)) % len(before)
        equal(_others(before, at), _others(index, at), extents)
        equal(index, after if call.name == "gather" else before, extents)


def _topk(call: OpCall, extents: Extents) -> None:
    before = call.tensor(0)
    if before:
        at = int(call.value(2)) % len(before)
        for after in call.results:
            equal(_others(before, at), _others(after, at), extents)
            extents.fix(after[at : at + 1])


def _chosen_backward(call: OpCall, extents: Extents) -> None:
    """`value_selecting_reduction_backward` (gradient, dim, indices, sizes, keepdim) for `topk`, `max`, `sort`."""
    gradient, indices, after = call.tensor(0), call.tensor(2), call.result()
    if gradient is not None and indices is not None:
        equal(gradient, indices, extents)
        if after and len(after) == len(indices):
            at = int(call.value(1)) % len(after)
            equal(_others(indices, at), _others(after, at), extents)
            for shape in call.temporaries:
                match(shape, after, extents)


def _one_hot(call: OpCall, extents: Extents) -> None:
    before, after = call.tensor(0), call.result()
    if before and after:
        equal(before, after[:-1], extents)
        extents.fix(after[-1:])
        for shape in call.temporaries:
            match(shape, after, extents)


_LIKE_POINTWISE = (
    "abs_ copy clone_ alias detach lift_fresh resolve_conj resolve_neg to _to_copy contiguous fill zero ones_like"
    " zeros_like empty_like full_like rand_like randn_like bernoulli normal uniform random exponential relu6 _softmax"
    " _log_softmax softmax log_softmax _softmax_backward_data _log_softmax_backward_data native_dropout dropout"
    " feature_dropout cumsum cumprod flip roll square sgn isnan isinf isfinite isneginf isposinf eq ne lt le gt ge"
    " logical_and logical_or logical_xor bitwise_xor nan_to_num log2 log10 exp2 sinh cosh tan asin acos atan atan2"
    " erfinv erfc frac trunc remainder float_power xlogy log_sigmoid_forward log_sigmoid_backward logit"
    " binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits mse_loss mse_loss_backward"
    " l1_loss smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward kl_div poisson_nll_loss"
    " pin_memory _pin_memory record_stream masked_fill where addcmul addcdiv rsub true_divide divide multiply"
    " subtract threshold hardshrink softshrink rrelu_with_noise celu selu hardswish_backward hardsigmoid_backward"
    " mish_backward _foreach_add _foreach_mul _foreach_div _foreach_sub _foreach_addcmul _foreach_addcdiv"
    " _foreach_sqrt _foreach_zero _foreach_neg _foreach_lerp expand_as type_as nccl:all_reduce nccl:broadcast"
    " c10d::allreduce c10d::broadcast real imag conj _conj complex polar angle"
)
TENSOR_RULES: dict[str, Rule] = table(
    {
        f"{POINTWISE} {_LIKE_POINTWISE}": _pointwise,
        "view reshape _unsafe_view _reshape_alias flatten unflatten squeeze unsqueeze ravel": _view,
        "view_as_complex view_as_real": _as_complex,
        "transpose t swapaxes swapdims": _transpose,
        "permute numpy_T": _permute,
        "sort argsort": _sort,
        "select select_backward": _select,
        "slice narrow slice_backward": _slice,
        "split split_with_sizes chunk unbind unsafe_split": _split,
        "cat concat concatenate": _cat,
        "stack": _stack,
        "expand": _expand,
        "repeat tile": _repeat,
        "unfold": _unfold,
        "pad constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d": _pad,
        "sum mean amax amin max.dim max min argmax argmin prod logsumexp var std var_mean std_mean any all norm"
        " linalg_vector_norm nansum median count_nonzero": _reduce,
        "mm _int_mm": _matmul("mk,kn->mn"),
        "addmm _addmm_activation": _matmul("&,mk,kn->mn"),
        "bmm": _matmul("bmk,bkn->bmn"),
        "baddbmm": _matmul("&,bmk,bkn->bmn"),
        "addbmm": product("&,bmk,bkn->mn"),
        "_grouped_mm": _grouped_mm,
        "mv": product("mk,k->m"),
        "addmv": product("&,mk,k->m"),
        "dot vdot": product("k,k->"),
        "ger outer": product("m,n->mn"),
        "linear": product("*i,oi!,o!->*o"),
        "embedding": product("vd!,*->*d"),
        "embedding_dense_backward": product("*d,*->vd!"),
        "index _index_put_impl index_put _unsafe_index": _index,
        "index_select": _index_select,
        "index_add": _index_add,
        "gather scatter scatter_add": _gather,
        "topk": _topk,
        "value_selecting_reduction_backward": _chosen_backward,
        "one_hot": _one_hot,
    }
)
