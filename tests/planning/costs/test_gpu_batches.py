"""Another batch size on a GPU, between two fitted ones: generated recordings whose kernels' true times are known."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import etplus
import pytest
from etplus.planning.costs.end_to_end import Prediction, predict
from etplus.planning.costs.fitting import fit
from etplus.planning.reshape.shape_change import batch_change
from etplus.trace.trace import Trace
from recorded_ops import MM, op, tensor
from support import et_document, kineto_document, recorded_with

DEVICE = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}
WIDTHS = (256, 4096, 4096, 1024, 64)
RELU = "aten::relu(Tensor self) -> Tensor"


ADD = "aten::add_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)"


def kernels(batch: int) -> list[tuple[dict[str, Any], str, float]]:
    """The calls of a step of an MLP, without a backward pass, with their kernels and µs.

    Products take more with the batch, by steps: the library takes another kernel from 32 samples on. The first `relu`
    takes the same at all sizes, the second grows, the third is faster at a greater batch.
    """
    calls, number = [], 100
    given = tensor(1, batch, WIDTHS[0])
    for layer, (wide, out) in enumerate(pairwise(WIDTHS)):
        made, active = tensor(number, batch, out), tensor(number + 1, batch, out)
        weight = tensor(10 + layer, wide, out)
        name = "sgemm_32x32_nn" if batch < 32 else "sgemm_128x64_nn"
        took = 3.0 + wide * out * 4 / 2e6 * (1.0 + 0.3 * (batch >= 16) + batch / 128)
        calls.append((op("aten::mm", MM, given, weight, outputs=(made,)), name, took))
        took = (4.0, 3.0 + batch * out / 40_000, 9.0 - batch / 16, 2.0)[layer]
        name = "void at::native::vectorized_elementwise_kernel<4, relu>"
        calls.append((op("aten::relu", RELU, made, outputs=(active,)), name, took))
        given, number = active, number + 2
    for layer, (wide, out) in enumerate(pairwise(WIDTHS)):
        weight = tensor(10 + layer, wide, out)
        updated = op("aten::add_", ADD, weight, tensor(90 + layer, wide, out), outputs=(weight,))
        calls.append((updated, "multi_tensor_apply_kernel", 3.0 + wide * out * 12 / 2e6))
    return calls


@cache
def recorded(batch: int) -> Trace:
    """One step: the host calls every 6 µs, and kernels queue; the last calls are the optimizer's."""
    calls = kernels(batch)
    step = len(calls) - len(WIDTHS) + 1
    calls.insert(step, ({"name": "Optimizer.step#SGD.step"}, "", 0.0))
    nodes, events, free = list[dict[str, Any]](), list[dict[str, Any]](), 0.0
    for at, (call, kernel, took) in enumerate(calls):
        number, begin = at + 1, 1000 + 6.0 * at
        args = {"External id": number}
        nodes.append({**call, "id": at + 3, "rf_id": number, "parent": step + 3 if at > step else 2})
        events.append(
            {"ph": "X", "cat": "cpu_op", "name": call["name"], "ts": begin, "dur": 5.0 if kernel else 35.0,
             "args": {"Record function id": number, "Ev Idx": at, **args}}
        )  # fmt: skip
        if kernel:
            args |= {"correlation": number}
            start = max(begin + 8, free + 1)
            free = start + took
            launched = {"stream": 7, "device": 0, "block": [128, 1, 1], "grid": [batch, 64, 1]}
            events += [
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": begin + 1, "dur": 3.0,
                 "args": args},
                {"ph": "X", "cat": "kernel", "name": kernel, "ts": start, "dur": took, "pid": 0, "tid": 7,
                 "args": args | launched},
            ]  # fmt: skip
    kineto = kineto_document(events, deviceProperties=[DEVICE])
    et = et_document(nodes, **recorded_with(kineto))
    return etplus.link(json.dumps(et).encode(), json.dumps(kineto).encode())


def by_call(one: Prediction) -> dict[tuple[str, tuple[int, ...]], float]:
    """ns by operator and features of what it returns."""
    found = dict[tuple[str, tuple[int, ...]], float]()
    for row in one.kernels:
        key = row.op, row.shapes.replace("[8,", "[b,").replace("[16,", "[b,").replace("[32,", "[b,")
        found[key] = found.get(key, 0.0) + row.predicted_ns
    return found


@pytest.mark.parametrize("source", [8, 32])
def test_kernels_and_steps_between_two_fitted_batch_sizes_are_between_theirs(source: int) -> None:
    model = fit([recorded(8), recorded(32)])
    low, high = (predict(recorded(batch), model) for batch in (8, 32))
    middle = predict(recorded(source), model, shape=batch_change(16, source), force=True)
    assert by_call(low).keys() == by_call(middle).keys() == by_call(high).keys()
    for call, ns in by_call(middle).items():
        ends = sorted((by_call(low)[call], by_call(high)[call]))
        assert ends[0] - 1 <= ns <= ends[1] + 1, call
    ends = sorted((low.predicted_ns, high.predicted_ns))
    assert ends[0] <= middle.predicted_ns <= ends[1]
    for row in middle.kernels:
        assert row.bound_ns is None or row.bound_ns <= row.predicted_ns
