"""Another batch size: shapes against recordings at both, rules and their limits, the command."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from etplus.linker import link
from etplus.planning.costs.end_to_end import predict, predict_ranks
from etplus.planning.costs.fitting import fit
from etplus.planning.costs.model_file import FittedModel, write_model
from etplus.planning.reshape.reshape import reshaped
from etplus.planning.reshape.shape_change import batch_change
from etplus.planning.reshape.shapes.extents import Extents
from etplus.planning.reshape.shapes.terms import Shape
from etplus.schemas.etplus.read_etplus import read_etplus
from etplus.trace.errors import UsageError
from etplus.trace.tables import OP
from etplus.trace.tensors import Signature
from etplus.trace.trace import Trace
from hypothesis import given
from hypothesis import strategies as st
from support import FIXTURES, call, examples, fixture_pair, plain, shared_pair

BATCHES = FIXTURES / "batches"
PAIRS = (
    ("conv_w8_d2", 8, 32), ("mlp_w128_d2", 8, 128), ("transformer_w32_d1", 4, 16), ("dlrm_w16_d3", 4, 16),
)  # fmt: skip
"""Models and their batch sizes. 128 is the MLP's width, too; 16 the transformer's length and DLRM's width; 4 the number
of the transformer's heads and of DLRM's features."""


def path(model: str, batch: int) -> Path:
    return BATCHES / f"{model}__b{batch}_t1.json.gz"


@cache
def recorded(model: str, batch: int) -> Trace:
    return read_etplus(path(model, batch))


@cache
def gpu_shaped() -> Trace:
    return read_etplus(b"".join(link(*fixture_pair("pairs/gpu_shaped_from_cpu")).chunks()))


@cache
def model_of_both() -> FittedModel:
    return fit([recorded("mlp_w128_d2", 8), recorded("mlp_w128_d2", 128)])


def edited(document: Trace, old: bytes, new: bytes) -> Trace:
    """The document with another text in its nodes."""
    data = b"".join(document.chunks())
    assert old in data
    return read_etplus(data.replace(old, new))


def operators(trace: Trace) -> list[int]:
    return [call for call in range(len(trace.calls)) if trace.calls.kind[call] == OP]


def name_of(trace: Trace, call: int) -> str:
    return trace.names[trace.calls.name[call]]


def shapes(trace: Trace, call: int) -> tuple[list[Any], list[Any]]:
    one = trace.signature_of(call) or Signature(())
    taken = [[tensor.shape for tensor in argument.tensors] for argument in one.inputs]
    return taken, [tensor.shape for tensor in one.outputs or ()]


# Against recordings


@pytest.mark.parametrize(("model", "before", "after"), [PAIRS[0], PAIRS[1][:1] + PAIRS[1][:0:-1], *PAIRS[2:]])
def test_shapes_are_those_recorded_at_the_other_batch_size(model: str, before: int, after: int) -> None:
    done, real = reshaped(recorded(model, before), batch_change(after)), recorded(model, after)
    assert (done.recorded_size, done.new_size) == (before, after) and done.changed > 0.3 * done.calls
    mine, others = operators(done.trace), operators(real)
    names = [name_of(done.trace, call) for call in mine], [name_of(real, call) for call in others]
    blocks = SequenceMatcher(None, *names, autojunk=False).get_matching_blocks()
    pairs = [(mine[a + i], others[b + i]) for a, b, size in blocks for i in range(size)]
    assert len(pairs) > 0.95 * len(mine)
    told = [(one, other) for one, other in pairs if not done.unknown[one]]
    wrong = [name_of(real, other) for one, other in told if shapes(done.trace, one) != shapes(real, other)]
    assert not wrong
    assert len(told) > 0.99 * len(pairs)
    assert sum(one.count for one in done.underived) == np.count_nonzero(done.unknown)


def test_the_same_size_changes_nothing_and_two_changes_are_one() -> None:
    one = recorded("dlrm_w16_d3", 4)
    same = reshaped(one, batch_change(4))
    assert same.changed == 0 and same.trace.signatures == one.signatures
    stated, found = reshaped(one, batch_change(64, 4)), reshaped(one, batch_change(64))
    assert stated.trace.signatures == found.trace.signatures and (stated.recorded_size, stated.changed) == (
        4,
        found.changed,
    )


def test_an_unknown_operator_is_listed_with_what_depends_on_it() -> None:
    """No rule knows the activations, so that their results may have any shape. Nothing is wrong for that: if backward
    tells of them all is found, else what is not told stays as recorded and is named."""
    one = edited(recorded("mlp_w128_d2", 8), b'"aten::relu"', b'"mine::relu"')
    one = edited(one, b'"aten::clamp_min"', b'"mine::clamp"')
    assert not reshaped(one, batch_change(128)).underived
    one = edited(one, b'"aten::threshold_backward"', b'"mine::threshold"')
    done, real = reshaped(one, batch_change(128)), recorded("mlp_w128_d2", 128)
    listed = {row.op: row for row in done.underived}
    assert done.changed > 10 and {"mine::relu", "mine::clamp", "mine::threshold", "aten::addmm"} <= set(listed)
    for one_call, other in zip(operators(done.trace), operators(real), strict=True):
        assert done.unknown[one_call] or shapes(done.trace, one_call) == shapes(real, other)
        if done.unknown[one_call]:
            assert name_of(done.trace, one_call) in listed
    assert all(0 <= row.share < 1 and row.count > 0 for row in done.underived)


def test_what_cannot_be_told_is_an_error() -> None:
    one = recorded("mlp_w128_d2", 8)
    with pytest.raises(UsageError, match="no input has an extent of 77"):
        reshaped(one, batch_change(4, 77))
    bare = read_etplus(b"".join(link(None, fixture_pair("demo/train_cpu")[1]).chunks()))
    with pytest.raises(UsageError, match="no recorded tensors"):
        reshaped(bare, batch_change(4))
    other = recorded("mlp_w128_d2", 8)
    for name in (b"linear", b"addmm", b"mm"):
        other = edited(other, b'"aten::' + name + b'"', b'"mine::' + name + b'"')
    with pytest.raises(UsageError, match=r"cannot determine .* \(candidates: none\); give it: --set batch=32:128"):
        reshaped(other, batch_change(4))


@pytest.mark.parametrize(
    ("pair", "size", "most"), [("gpu-pairs/resnet103", 32, 0.0), ("gpu-pairs/dlrm.rank0", 16, 0.5)],
)  # fmt: skip
def test_traces_of_gpus(pair: str, size: int, most: float) -> None:
    """All of ResNet, and all but the exchange of features of DLRM."""
    one = read_etplus(b"".join(link(*shared_pair(pair)).chunks()))
    done = reshaped(one, batch_change(2 * size))
    assert done.recorded_size == size and done.changed > 0.2 * done.calls
    assert np.count_nonzero(done.unknown) <= most * done.calls
    before, after = one.gpu, done.trace.gpu
    ratios = after.bytes[before.bytes > 0] / before.bytes[before.bytes > 0]
    assert set(np.round(ratios, 3)) <= {1.0, 2.0}
    reduced = [event for event, comm in before.comm.items() if comm.collective == "allreduce"]
    assert all(after.comm[event] == before.comm[event] for event in reduced)


# Rules


@examples(60)
@given(st.data())
def test_reshapes_are_right_or_unknown(data: st.DataObject) -> None:
    """Programs of permutations, joins and splits, written for any batch and recorded at 4, are solved for 12."""
    extents = Extents()
    batch = extents.new(4)
    sizes = data.draw(st.lists(st.sampled_from([2, 3, 4, 6, 8]), min_size=1, max_size=3))
    dims: list[list[int]] = [[0], *([size] for size in sizes)]  # factors, 0 for the batch

    def recorded_shape(at: int) -> list[int]:
        return [int(np.prod([factor or at for factor in dim])) for dim in dims]

    shape: Shape = (batch, *(extents.new(size) for size in sizes))
    extents.fix(shape[1:])
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            order = data.draw(st.permutations(range(len(dims))))
            dims, shape = [dims[i] for i in order], tuple(shape[i] for i in order)
            continue
        at = data.draw(st.integers(0, len(dims) - 1))
        if data.draw(st.booleans()) and at + 1 < len(dims):
            dims = [*dims[:at], dims[at] + dims[at + 1], *dims[at + 2 :]]
        elif len(dims[at]) > 1:
            cut = data.draw(st.integers(1, len(dims[at]) - 1))
            dims = [*dims[:at], dims[at][:cut], dims[at][cut:], *dims[at + 1 :]]
        after = tuple(extents.new(size) for size in recorded_shape(4))
        extents.view(shape, after)
        shape = after
    known = extents.solve({extents.root(batch): 12}, [])
    told = [known.get(extents.root(extent)) for extent in shape]
    assert all(one in (None, real) for one, real in zip(told, recorded_shape(12), strict=True))
    assert None not in told


# Prediction


def test_times_follow_the_shapes() -> None:
    """Fitted on both sizes, the one recording predicts the other's time as well as that one itself."""
    small, large = recorded("mlp_w128_d2", 8), recorded("mlp_w128_d2", 128)
    own, other = predict(large, model_of_both()), predict(small, model_of_both(), shape=batch_change(128))
    assert other.predicted_ns == pytest.approx(own.predicted_ns, rel=0.1)
    assert other.measured_ns == predict(small, model_of_both()).measured_ns
    assert other.baselines["recorded × 128/8"] == 16 * other.measured_ns
    told = other.to_dict()
    assert told["error"] is None and told["ratio"] == other.predicted_ns / other.measured_ns and other.changed
    assert (told["shapes"][0]["was"], told["shapes"][0]["to"], told["shapes"][0]["dimension"]) == (8, 128, "batch")


def test_gpu_traces_and_several_ranks() -> None:
    one = gpu_shaped()
    model = fit([one])
    done = predict(one, model, shape=batch_change(64), device="V100 SXM2")
    assert done.predicted_ns > 0 and done.shapes[0].new_size == 64
    joint = predict_ranks([one, one], model, shape=batch_change(64))
    assert len(joint.shapes) == 2 and joint.changed and joint.predicted_ns > 0


def test_copies_grow_with_what_is_copied() -> None:
    one = gpu_shaped()
    before, done = one, reshaped(one, batch_change(64))
    grown = done.trace.gpu.bytes / np.maximum(before.gpu.bytes, 1)
    assert set(grown[before.gpu.bytes > 0]) <= {1.0, 64 / done.recorded_size}
    assert all(done.trace.gpu.comm[event] == comm for event, comm in before.gpu.comm.items())


def test_the_command(tmp_path: Path) -> None:
    write_model(model_of_both(), str(tmp_path / "m.json"))
    file, model = path("mlp_w128_d2", 8), ("--model", tmp_path / "m.json")
    done = call("predict", "run", file, *model, "--set", "batch=128")
    # Uncertain: the model is of two traces, and no other was held out.
    assert done.returncode == 3 and b"weakest link" in done.stderr
    assert max(map(len, done.stdout.decode().splitlines())) <= 80
    said = " ".join(done.stdout.decode().split())
    assert "predicted" in said and "ms at batch 128" in said and "ms at batch 8 (" in said
    again = call("predict", "run", file, *model, "--set", "batch=8:128", "--json", "-")
    told = orjson.loads(again.stdout)
    assert told["shapes"][0]["was"] == 8 and told["error"] is None and told["ratio"] > 1
    odd = tmp_path / "odd.json"
    odd.write_bytes(re.sub(b'"aten::(relu|clamp_min|threshold_backward)"', rb'"mine::\1"', plain(file)))
    listed = call("predict", "run", odd, *model, "--set", "batch=128")
    assert listed.returncode == 3 and b"keep their recorded shapes" in listed.stdout
    for wrong in ("depth=3", "batch=77:8"):
        failed = call("predict", "run", file, *model, "--set", wrong)
        assert failed.returncode == 2 and failed.stderr.count(b"\n") == 1 and not failed.stdout
