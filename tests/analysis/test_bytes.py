"""Bytes and FLOPs that follow from shapes: against numpy doing the same, or counting element by element.

Modules: operator_outputs, analysis.flops.
"""

import random
from typing import Any

import numpy as np
import pytest
from etplus.analysis.event_work import work_of_events
from etplus.analysis.flops import bytes_moved, flops
from etplus.converters.open import load as read_trace
from etplus.trace.tensors import Argument, Signature, Tensor
from made_traces import kernel, launch, op, traced


def tensor(array: np.ndarray[Any, Any]) -> Argument:
    return Argument((Tensor(array.shape, array.dtype.name),))


def call(*arguments: Any) -> Signature:
    """Arrays are tensors, lists of arrays lists of tensors, everything else a value."""
    inputs = []
    for one in arguments:
        if isinstance(one, np.ndarray):
            inputs.append(tensor(one))
        elif isinstance(one, list) and any(isinstance(part, np.ndarray) for part in one):
            inputs.append(Argument(tuple(part for array in one for part in tensor(array).tensors)))
        else:
            inputs.append(Argument((), one))
    return Signature(tuple(inputs))


def test_cat_moves_its_inputs_twice_and_mismatched_inputs_are_unknown() -> None:
    wide, narrow = np.zeros((2, 3, 4), np.float16), np.zeros((2, 1, 4), np.float16)
    assert bytes_moved("aten::cat", call([wide, narrow, wide], -2)) == 2 * 2 * (24 + 8 + 24)
    assert bytes_moved("aten::cat", call([np.zeros((0,), np.float32), np.zeros((2, 3), np.float32)], 1)) == 48
    assert bytes_moved("aten::cat", call([np.zeros(2, np.float32), np.zeros(2, np.float64)], 0)) is None
    assert bytes_moved("aten::cat", call([np.zeros((2, 3)), np.zeros((3, 2))], 0)) is None
    unnamed = Argument((Tensor((2,), ""), Tensor((3,), "")))
    assert bytes_moved("aten::cat", Signature((unnamed, Argument((), 0)))) is None, "Kineto names no types of lists"


@pytest.mark.parametrize(
    ("name", "arguments", "gradients"),
    [
        ("native_layer_norm_backward", lambda x, w, m: [x, x, [w.size], m, m, w, w], [0, 5, 6]),
        ("native_batch_norm_backward", lambda x, w, m: [x, x, w, w, w, m, m, True, 1e-5], [1, 2, 2]),
        ("native_group_norm_backward", lambda x, w, m: [x, x, m, m, w, 4, 6, 5, 2], [1, 4, 4]),
        ("_fused_rms_norm_backward", lambda x, w, m: [x, x, [w.size], m, w], [1, 4]),
    ],
)
def test_normalization_backward_writes_only_wanted_gradients(name: str, arguments: Any, gradients: list[int]) -> None:
    given = arguments(np.zeros((4, 6, 5), np.float16), np.zeros(5, np.float32), np.zeros((4, 6, 1), np.float32))
    read = sum(one.nbytes for one in given if isinstance(one, np.ndarray))
    for mask in range(2 ** len(gradients)):
        wanted = [bool(mask >> bit & 1) for bit in range(len(gradients))]
        written = sum(given[at].nbytes for at, wants in zip(gradients, wanted, strict=True) if wants)
        assert bytes_moved(f"aten::{name}", call(*given, wanted)) == read + written
    assert bytes_moved(f"aten::{name}", call(*given, None)) is None, "which are wanted is not recorded"


def test_backward_of_batch_normalization_of_cudnn_and_miopen() -> None:
    image, weight = np.zeros((2, 8, 5, 5), np.float16), np.zeros(8, np.float32)
    given = [image, image, weight, weight, weight, weight, weight, 1e-5]
    read = sum(one.nbytes for one in given if isinstance(one, np.ndarray))
    for name in ("cudnn", "miopen"):
        moved = bytes_moved(f"aten::{name}_batch_norm_backward", call(*given))
        assert moved == read + image.nbytes + 2 * weight.nbytes


def test_out_tensors_count_as_written_but_not_as_read() -> None:
    a, b, c = np.zeros((8192, 8192), np.float32), np.zeros((8192, 4096), np.float32), np.zeros((8192, 4096), np.float32)
    whole = a.nbytes + b.nbytes + c.nbytes
    for name in ("aten::mm", "aten::mm.out"):
        assert bytes_moved(name, call(a, b, c)) == whole
        assert bytes_moved(name, Signature(call(a, b, c).inputs, tensor(c).tensors)) == whole
        assert flops(name, call(a, b, c)) == 2 * 8192 * 8192 * 4096
    assert bytes_moved("aten::mm", call(a, b, np.zeros(0, np.float32))) == whole, "resized by the call"
    assert bytes_moved("aten::addmm", call(c[0], a, b, 1, 1, c)) == c[0].nbytes + whole
    assert bytes_moved("aten::cat", call([c, c], 0, np.zeros((16384, 4096), np.float32))) == 4 * c.nbytes
    assert bytes_moved("aten::sum", call(c, None, np.zeros((), np.float32))) == c.nbytes + 4, "over everything"
    arange = Signature(call(0, 5, 1, np.zeros(5)).inputs, tensor(np.zeros(5)).tensors)
    assert bytes_moved("aten::arange", arange) == 40


def test_a_convolution_reads_only_inputs_that_its_weights_cover() -> None:
    rng = random.Random(3)
    for _ in range(40):
        stride, extent, kernel_of = rng.randint(1, 4), rng.randint(5, 20), rng.randint(1, 4)
        image, weight = np.zeros((2, 3, extent, extent), np.float32), np.zeros((5, 3, kernel_of, kernel_of), np.float32)
        count = (extent - kernel_of) // stride + 1
        met = {at * stride + k for at in range(count) for k in range(kernel_of)}
        moved = bytes_moved("aten::conv2d", call(image, weight, None, [stride] * 2, [0, 0], [1, 1], 1))
        assert moved is not None
        written = 4 * 2 * 5 * count**2
        least = 4 * 2 * 3 * len(met) ** 2 + weight.nbytes + written
        assert least <= moved <= image.nbytes + weight.nbytes + written
        assert moved == least or stride < kernel_of, "gaps between the places are not read"


@pytest.mark.parametrize(
    ("name", "buffers", "twice"),
    [
        ("triton_poi_fused__unsafe_view_mul_silu_2", [[8, 4096, 8192], [32768, 8192]], True),
        ("triton_poi_fused__unsafe_view_add_3", [[8, 4096, 2048], [8, 4096, 2048], [32768, 2048]], True),
        ("triton_poi_fused_add_cos_sin_0", [[10, 10], [10, 10], [10, 10]], False),
        ("triton_red_fused__unsafe_view_add_1", [[8, 4, 20], [32, 20], [20], [8, 4, 20]], False),
        ("triton_poi_fused_relu_0", [[8, 20]], True),
        ("triton_poi_fused_zeros_like_0", [[8, 20]], False),
        ("triton_poi_fused_addmm_relu_0", [[8, 20], [20]], True),
        ("triton_poi_fused_convolution_1", [[8, 16, 5, 5], [16]], True),
    ],
)
def test_triton_buffers_that_are_read_and_written_count_twice(name: str, buffers: list[list[int]], twice: bool) -> None:
    sizes = [int(np.prod(one)) for one in buffers]
    signature = Signature(tuple(Argument((Tensor(tuple(one), "bfloat16"),)) for one in buffers))
    assert bytes_moved(name, signature) == 2 * (sum(sizes) + twice * sizes[0])


def test_triton_embedding_kernels_read_only_a_part_of_their_tables() -> None:
    shapes = [((8192,), "int32"), ((201088, 2880), "bfloat16"), ((8192, 2880), "bfloat16")]
    signature = Signature(tuple(Argument((Tensor(shape, kind),)) for shape, kind in shapes))
    assert bytes_moved("triton_poi_fused_embedding_0", signature) == 8192 * 4 + 2 * 8192 * 2880 * 2
    assert bytes_moved("triton_red_fused_embedding_rms_norm_0", signature) == 8192 * 4 + 2 * 8192 * 2880 * 2


def test_an_expanded_index_of_rows_is_read_once() -> None:
    table, index, chosen = np.empty((131072, 4096), np.float16), np.empty(64, np.int64), np.empty((64, 4096), np.int64)
    expanded = Argument(tensor(chosen).tensors, expanded=(1,))
    gathered = Signature((*call(table, 0).inputs, expanded, Argument((), False)))
    assert bytes_moved("aten::gather", gathered) == index.nbytes + 2 * 64 * 4096 * 2


def test_expanded_tensors_count_only_the_elements_they_store() -> None:
    args = {
        "Input Dims": [[64, 1000], [64, 1000], []], "Input type": ["float", "float", "Scalar"],
        "Input Strides": [[1000, 1], [0, 1], []], "Concrete Inputs": ["", "", "False"],
    }  # fmt: skip
    trace = traced([op("aten::copy_", 0, 30) | {"args": args}, launch(1, 5), kernel("elementwise", 1, 20, 10)])
    assert work_of_events(trace).bytes.tolist() == [4 * (64 * 1000 + 1000)]
    assert work_of_events(read_trace(b"".join(trace.chunks()))).bytes.tolist() == [4 * (64 * 1000 + 1000)]
