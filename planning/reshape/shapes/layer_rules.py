"""Shape rules of layers: convolutions, norms, losses, embeddings, attention and recurrent layers."""

from __future__ import annotations

from ....analysis.convolutions import CONVOLUTIONS, GRADIENTS
from .extents import Extents
from .terms import OpCall, Rule, Shape, broadcast, each, equal, match, product, table

_CONVOLVES = {name: convolution.arguments for names, convolution in CONVOLUTIONS.items() for name in names.split()}
_CONVOLVES |= {name: gradient.arguments for names, gradient in GRADIENTS.items() for name in names.split()}


def _norm(call: OpCall, extents: Extents) -> None:
    """Treat tensors with the data's number of dimensions as data, and tensors with fewer dimensions as per-channel."""
    batched = "batch_norm" in call.name or "group_norm" in call.name or "instance_norm" in call.name
    if call.name == "native_layer_norm_backward":  # partial sums per thread have the shape (2, threads, channels)
        extents.fix(
            extent for shape in call.temporaries if len(shape) == 3 and extents.value[shape[0]] == 2 for extent in shape
        )
    tensors = [*call.inputs, *call.results, *(shape for shape in call.temporaries if len(shape) == 1 and batched)]
    rank = max(map(len, tensors), default=0)
    if rank < 2:
        return
    data = [shape for shape in tensors if len(shape) == rank]
    broadcast(data, extents)
    channels = data[0][1 if batched else -1]
    for shape in call.temporaries if call.name.startswith("native_batch_norm") else ():
        sizes = extents.sizes(shape)
        if len(shape) > 1 and sizes[-1] == extents.value[channels] and sizes != extents.sizes(data[0]):
            extents.same(shape[-1], channels)  # a tensor of this shape holds partial sums per thread
            extents.fix(shape)
    for shape in tensors:
        if len(shape) == 1 and extents.value[shape[0]] == extents.value[channels]:
            extents.same(shape[0], channels)
            extents.fix(shape)
        elif len(shape) < rank and not batched:
            extents.fix(shape)
            broadcast([data[0], shape], extents)
        elif len(shape) == 1:  # a buffer that is reserved for backward
            extents.follow(shape, data[0])
    if "group_norm" in call.name:
        for shape in (*call.inputs, *call.results, *call.temporaries):
            if len(shape) == 2 and extents.value[shape[0]] == extents.value[data[0][0]]:  # the shape is (batch, groups)
                extents.same(shape[0], data[0][0])
                extents.fix(shape[1:])


def _convolution(call: OpCall, extents: Extents) -> None:
    """Relate inputs, outputs and gradients, all of shape (batch, channels, *spatial). Weight and bias are fixed."""
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
    values = extents.sizes(shape)
    of_input = inputs is not None and values == extents.sizes(inputs)
    of_weight = weight is not None and values == extents.sizes(weight)
    if of_weight and not of_input:
        extents.fix(shape)
    elif of_input and not of_weight and inputs is not None:
        equal(shape, inputs, extents)


def _pool(call: OpCall, extents: Extents) -> None:
    """Relate the (batch, channels, *spatial) tensors of pooling, resampling and their backward."""
    spatial = 3 if "3d" in call.name else 1 if "1d" in call.name else 2
    data = [shape for shape in (*call.inputs, *call.results) if len(shape) >= spatial]
    for place, shape in enumerate(data):
        for other in data[:place]:
            match(other, shape, extents)
        equal(data[0][:-spatial], shape[:-spatial], extents)
        extents.follow(shape[-spatial:], data[0][-spatial:])


def _loss(call: OpCall, extents: Extents) -> None:
    """Relate scores (batch, classes, …) to targets (batch, …) in any argument order, in forward and backward."""
    scores = max((shape for shape in call.inputs), key=len, default=())
    if len(scores) < 2:
        return
    for shape in (*call.inputs, *call.results):
        if len(shape) == len(scores):
            broadcast([scores, shape], extents)
        elif len(shape) == len(scores) - 1 and extents.value[shape[0]] == extents.value[scores[0]]:
            equal((scores[0], *scores[2:]), shape, extents)


def _bag(call: OpCall, extents: Extents) -> None:
    """Relate embedding bags (weight or gradient, indices, offsets, …). All bags have the same number of indices."""
    backward = "backward" in call.name
    first, indices = call.tensor(0), call.tensor(1)
    bags = first if backward else call.result()
    if not first or not indices or not bags:
        return
    extents.fix((*(call.results[0] if backward and call.results else first), *bags[1:]))
    bag = bags[0]
    others = [shape for shape in (*call.inputs[2:], *call.results[1:]) if len(shape) == 1]
    for shape in others:
        if extents.value[shape[0]] == extents.value[bag]:
            extents.same(shape[0], bag)
        elif extents.value[shape[0]] == extents.value[indices[0]]:
            extents.same(shape[0], indices[0])
        elif extents.value[shape[0]] == extents.value[bag] + 1:
            extents.sum_of(shape[0], (bag, extents.new(1)))
    for made in call.temporaries:
        if len(made) == 1 and extents.value[made[0]] == extents.value[indices[0]] + 1:  # counts, summed up later
            extents.sum_of(made[0], (indices[0], extents.new(1)))
    if len(indices) == 2:
        extents.same(indices[0], bag)
    else:
        each(indices[0], bag, extents)


def _tables(call: OpCall, extents: Extents) -> None:
    """Relate the arguments (…, dimension offsets, …, indices, offsets, …) of FBGEMM lookups if all bags have one size.

    The number of offsets is tables × batch + 1.
    """
    starts, indices, offsets = (2, 7, 8) if call.name.startswith("fbgemm::dense") else (6, 11, 12)
    of_dims, chosen, bounds, after = call.tensor(starts), call.tensor(indices), call.tensor(offsets), call.result()
    if not of_dims or not chosen or not bounds or not after:
        return
    extents.fix((after[1], *(extent for at, arg in enumerate(call.arguments) if at not in (indices, offsets)
                             for shape in arg.tensors if shape is not None for extent in shape)))  # fmt: skip
    tables, bags = extents.new(extents.value[of_dims[0]] - 1), extents.new(extents.value[bounds[0]] - 1)
    extents.fix([tables])
    extents.view([bags], [tables, after[0]])
    extents.sum_of(bounds[0], (bags, extents.new(1)))
    each(chosen[0], bags, extents)


def _permute_sparse(call: OpCall, extents: Extents) -> None:
    """Relate (order, lengths, values, …) to reordered lengths and values; lengths have shape (features, batch)."""
    before, after = call.tensor(1), call.result()
    if before and after and len(before) == len(after) == 2:
        extents.same(before[1], after[1])
        for values in (call.tensor(2), call.result(1)):
            each((values or before)[0], before[1], extents)


def _cumsum_complete(call: OpCall, extents: Extents) -> None:
    before, after = call.tensor(0), call.result()
    if before and after:
        extents.sum_of(after[-1], (before[-1], extents.new(1)))


def _all_to_all(call: OpCall, extents: Extents) -> None:
    after, before = call.tensor(0), call.tensor(1)
    if after and before:
        match(before, after, extents)


def _attention(call: OpCall, extents: Extents) -> None:
    """Relate query, key and value of shape (batch, head, sequence, dimension). Backward starts with the gradient."""
    first = 1 if "backward" in call.name else 0
    query, key, value = (call.tensor(first + place) for place in range(3))
    if not query or not key or not value or not len(query) == len(key) == len(value) == 4:
        return
    if "_for_cpu" in call.name:  # scratch memory depends on the number of threads, not on the batch
        scratch = (shape for shape in call.temporaries if len(shape) < 3 or 0 in extents.sizes(shape))
        extents.follow((extent for shape in scratch for extent in shape), (*query[2:], *key[2:], value[3]))
    if extents.value[query[1]] == extents.value[key[1]] and len(extents.leaves(key[1:2])) > 1:  # key heads are repeated
        extents.follow((key[1], value[1]), query[1:2])
    product("bhse,bgte,bgtd->")(OpCall(call.name, call.arguments[first:], ()), extents)
    output, scores = (*query[:3], value[3]), (*query[:3], key[2])
    results = (query, key, value) if first else (output,)
    alike: list[tuple[Shape, Shape]] = [*zip(results, call.results, strict=False)]
    if first:
        alike.append((output, call.tensor(0) or ()))
    for shape in (*call.results[len(results) :], *(call.tensor(at) for at in range(first + 3, len(call.arguments)))):
        if shape is not None and len(shape) == 3:  # log-sum-exp
            alike.append((query[:3], shape))
        elif shape is not None and len(shape) == 4:  # `shape` is the shape of the output or of a mask
            saved = first and extents.sizes(shape) == extents.sizes(output)
            alike.append((output if saved else scores, shape))
    for pair in alike:
        broadcast(pair, extents)


def _encoder_layer(call: OpCall, extents: Extents) -> None:
    """Relate data (batch, sequence, dimension) of a fused encoder layer or its attention; the parameters are fixed."""
    data = [shape for shape in call.inputs if len(shape) == 3]
    for argument in call.arguments:
        extents.fix(extent for shape in argument.tensors if shape is not None and len(shape) < 3 for extent in shape)
    broadcast([*data, *(shape for shape in call.results if len(shape) == 3)], extents)


def _recurrent(call: OpCall, extents: Extents) -> None:
    """Rule for `lstm`, `gru` and similar operators (input, states, parameters, …, batch_first) and oneDNN's layers."""
    data = call.tensor(0)
    if not data or len(data) != 3:
        return
    layer = call.name.startswith("mkldnn")
    batch = 0 if not layer and call.value(8) is True else 1
    weights = [
        shape
        for argument in (call.arguments[1:5] if layer else call.arguments[2:3])
        for shape in argument.tensors
        if shape is not None
    ]
    extents.fix((data[2], *(extent for shape in weights for extent in shape)))
    of_weights = [extents.sizes(shape) for shape in weights]
    for shape in (*call.inputs[1:], *call.results):
        sizes = extents.sizes(shape)
        if sizes in of_weights:
            extents.fix(shape)
        elif len(shape) == 3 and sizes[:2] == extents.sizes(data[:2]):
            equal(shape[:2], data[:2], extents)
            extents.fix(shape[2:])
        elif len(shape) in (2, 3) and sizes[-2] == extents.value[data[batch]]:  # `shape` is (…, batch, hidden)
            extents.same(shape[-2], data[batch])
            extents.fix((*shape[:-2], shape[-1]))


LAYER_RULES: dict[str, Rule] = table(
    {
        "embedding_bag _embedding_bag _embedding_bag_forward_only _embedding_bag_backward": _bag,
        "_embedding_bag_dense_backward _embedding_bag_sparse_backward": _bag,
        "native_layer_norm layer_norm native_layer_norm_backward rms_norm _fused_rms_norm _fused_rms_norm_backward"
        " native_batch_norm native_batch_norm_backward batch_norm _batch_norm_impl_index cudnn_batch_norm"
        " cudnn_batch_norm_backward miopen_batch_norm miopen_batch_norm_backward _native_batch_norm_legit"
        " _batch_norm_with_update batch_norm_backward native_group_norm native_group_norm_backward group_norm": _norm,
        " ".join(_CONVOLVES): _convolution,
        "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool1d"
        " avg_pool2d avg_pool2d_backward avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d"
        " _adaptive_avg_pool2d_backward adaptive_max_pool2d mkldnn_max_pool2d mkldnn_max_pool2d_backward"
        " upsample_nearest2d upsample_bilinear2d upsample_nearest2d_backward upsample_bilinear2d_backward"
        " max_pool3d_with_indices max_pool3d_with_indices_backward avg_pool3d_backward adaptive_avg_pool3d"
        " _adaptive_avg_pool3d _adaptive_avg_pool3d_backward upsample_bicubic2d upsample_bicubic2d_backward": _pool,
        "nll_loss nll_loss_nd nll_loss_forward nll_loss_backward nll_loss2d nll_loss2d_forward nll_loss2d_backward"
        " cross_entropy_loss": _loss,
        "fbgemm::split_embedding_codegen_lookup_adagrad_function fbgemm::split_embedding_codegen_lookup_sgd_function"
        " fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"
        " fbgemm::split_embedding_codegen_lookup_adam_function"
        " fbgemm::dense_embedding_codegen_lookup_function": _tables,
        "fbgemm::permute_2D_sparse_data": _permute_sparse,
        "fbgemm::asynchronous_complete_cumsum": _cumsum_complete,
        "c10d::alltoall_base": _all_to_all,
        "scaled_dot_product_attention _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention"
        " _scaled_dot_product_cudnn_attention _scaled_dot_product_flash_attention_for_cpu"
        " _scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward"
        " _scaled_dot_product_cudnn_attention_backward"
        " _scaled_dot_product_flash_attention_for_cpu_backward": _attention,
        "_transformer_encoder_layer_fwd _native_multi_head_attention": _encoder_layer,
        "lstm gru rnn_tanh rnn_relu mkldnn_rnn_layer mkldnn_rnn_layer_backward": _recurrent,
    }
)
