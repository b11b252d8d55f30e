"""Derived layouts of model families against recordings of them, and what a result says of itself
(planning/reshard/proof.py)."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import etplus
import pytest
from etplus.planning.reshard.explain import explain
from etplus.planning.reshard.items import CommOp, RecordedOp
from etplus.planning.reshard.job import Resharded, reshard
from etplus.planning.reshard.layout import Layout
from etplus.planning.reshard.rank_program import program
from etplus.planning.reshard.recorded_job import recorded_layout
from etplus.trace.errors import UsageError
from reshard_truth import differences, recording, whole_run
from support import FIXTURES, call, run, shared_pair

_DDP, _FSDP = Layout(dp=2, batch=8), Layout(dp=2, batch=8, zero=3)


@cache
def _derived(family: str, layout: Layout) -> Resharded:
    return reshard(recording(f"{family}.single1"), layout)


def test_buffers_and_gradients_of_a_network_with_batch_norm() -> None:
    job = _derived("cnn", _DDP)
    recorded = whole_run(recording("cnn.ddp2"))
    found = differences(recorded, whole_run(job.trace(0)))
    assert found.equal and found.order and len(recorded.comms) == 3 and not job.doubts
    report = job.to_dict()
    assert report["parameters"]["buffers"] == 21 and report["parameters"]["count"] == 23
    assert "buffers: 21, inferred: 21 written in forward" in explain(job.derivation)
    assert json.loads(json.dumps(report))["proof"]["equal"]


def test_recurrent_layers_have_parameters_and_a_reserve_that_is_not_derived() -> None:
    job = _derived("lstm", _DDP)
    recorded = whole_run(recording("lstm.ddp2"))
    found = differences(recorded, whole_run(job.trace(0)))
    assert not found.comms and recorded.comms == [("allreduce_", (70_720,), (0, 1))]
    assert {name for name, _ in found.work} == {"aten::mkldnn_rnn_layer_backward"}
    assert len(job.doubts) == 1 and "aten::mkldnn_rnn_layer_backward" in job.doubts[0]


def test_a_data_parallel_recording_is_derived_from_itself() -> None:
    job = reshard(recording("lstm.ddp2"), Layout(batch=8))
    assert job.proof.equal and job.proof.communications > 0


def test_microbatches_are_passes_of_the_step() -> None:
    """Each has its part of the batch; gradients are reduced after each, or after the last."""
    recorded = _derived("accum", Layout())
    assert [recorded.derivation.model.extents.value[k] for k in recorded.derivation.model.batches] == [4, 4]
    assert recorded.proof.equal and recorded.scaling.startswith("the recorded batch: 8 samples per rank in 2")
    halves = _derived("accum", _DDP)
    assert halves.scaling.startswith("strong scaling: 4 samples per rank in 2 microbatches of 2, 8 in all")
    assert [kind for kind, _, _ in _comms(halves)] == ["all_reduce"] * 4
    assert len(_comms(_derived("accum", replace(_DDP, no_sync=True)))) == 2
    sharded = [kind for kind, _, _ in _comms(_derived("accum", _FSDP))]
    assert sharded.count("all_gather") == 12 and sharded.count("reduce_scatter") == 6
    assert all(job.gradients[0].whole and not job.doubts for job in (halves, _derived("accum", _FSDP)))
    with pytest.raises(UsageError, match="a batch of 8 per rank does not divide into 3 microbatches"):
        _derived("accum", Layout(microbatches=3))


def test_every_recorded_pass_reduces_over_tensor_parallel_ranks() -> None:
    """As often in both of the recorded passes: twice what the first one alone does in a step of one microbatch."""
    layout = Layout(tp=2, dp=2, zero=3)
    twice, once = (
        [(kind, size) for kind, size, dimension in _comms(_derived("accum", one)) if dimension == "tp"]
        for one in (layout, replace(layout, microbatches=1))
    )
    assert once and sorted(twice) == sorted([(kind, elements // 2) for kind, elements in once] * 2)


def _comms(job: Resharded) -> list[tuple[str, int, str]]:
    """Kind, elements and dimension of what the first rank communicates."""
    found = []
    for item in program(job.derivation, 0):
        comms = [c for of in item.after.values() for c in of] if isinstance(item, RecordedOp) else [item]
        found += [(c.kind, c.elements, c.dimension) for c in comms if isinstance(c, CommOp)]
    return found


def test_ddp_broadcasts_buffers_before_each_forward_that_follows_a_reduction() -> None:
    """Two dtypes: floats of batch norms and their counters."""
    twice = replace(_DDP, microbatches=2)
    layouts = _DDP, twice, replace(twice, no_sync=True), _FSDP, Layout()
    counts = [sum(kind == "broadcast" for kind, _, _ in _comms(_derived("cnn", layout))) for layout in layouts]
    assert counts == [2, 4, 2, 0, 0]


def test_memory_of_units_that_are_gathered() -> None:
    """At its most: both blocks' inputs, the copy of the last one's gradients, the first one's parameters, whole and, as
    Gloo copies, twice on the way."""
    job = _derived("accum", replace(_FSDP, microbatches=1))
    block = 4 * 131_968
    memory = job.memory[0]
    assert memory.parameters == 4 * 197_952 and memory.buffers == block // 2 + 4 * block
    assert _derived("accum", replace(_FSDP, microbatches=1, fsdp_wrap="each")).memory[0].total == memory.total


def test_weights_that_do_not_reach_the_loss_are_doubted() -> None:
    """DDP reduces those of the second output layer, too, and a map of those in use; one rank does not show it."""
    recorded = whole_run(recording("twohead.ddp2"))
    assert recorded.comms == [("allreduce_", (218_400,), (0, 1)), ("allreduce_", (16,), (0, 1))]
    doubts = _derived("twohead", _DDP).doubts
    assert any("weights without a gradient" in doubt and "(2)" in doubt for doubt in doubts)
    for layout in (_FSDP, Layout(tp=2)):
        assert not any("without a gradient" in doubt for doubt in _derived("twohead", layout).doubts)


def test_blocks_are_gathered_and_the_rest_in_the_root() -> None:
    job = _derived("cnn", _FSDP)
    assert [(wrap.label, len(wrap.parameters)) for wrap in job.derivation.wraps] == [
        ("", 5), ("block 0", 6), ("block 1", 6), ("block 2", 6),
    ]  # fmt: skip
    text = explain(job.derivation)
    assert "FSDP units: inferred" in text and "block 2: 6 parameters" in text
    each = _derived("cnn", Layout(dp=2, batch=8, zero=3, fsdp_wrap="each"))
    assert len(_comms(each)) > len(_comms(job)) and not each.doubts


def test_a_wrong_reading_is_not_silent() -> None:
    """Calls that are lost, gradients of no known parameter, recorded communication that is not derived."""
    job = reshard(recording("cnn.single1"), _DDP)
    model = job.derivation.model
    convolution = next(call for call in model.units[0].forward if call.name == "aten::conv2d")
    model.units[0].forward.remove(convolution)
    model.unmatched = 2
    assert not job.proof.equal and job.proof.missing.total() > 0 and job.proof.share > 0.01
    lost, unknown = sorted(job.doubts)[::-1]
    assert "from itself loses" in lost
    assert unknown == "communication not derived: gradients: their parameters are unknown (2)"
    job = reshard(recording("cnn.ddp2"), Layout(batch=8))
    job.derivation.model.buffers.clear()
    assert job.doubts == [
        "deriving the recorded layout from itself gives different communication: recorded broadcast of 336, broadcast "
        "of 7, derived none"
    ]


def _files(name: str) -> list[str | Path]:
    et, kineto = (FIXTURES / "families" / name / f"rank0.{kind}.json.gz" for kind in ("et", "kineto"))
    return ["--et-file", et, "--kineto-file", kineto]


def test_the_command_ends_with_status_3_and_says_why(tmp_path: Path) -> None:
    done = run(
        "etplus",
        "reshard",
        *_files("lstm.single1"),
        "--dp",
        "2",
        "--batch",
        "8",
        "--json",
        tmp_path / "r.json",
        "--explain",
    )
    assert done.returncode == 3 and b"doubt " in done.stderr and b"mkldnn_rnn_layer" in done.stderr
    assert b"strong scaling: 4 samples per rank, 8 in all" in done.stdout and b"70,720" in done.stdout
    assert b"10 parameters of 70,720 elements" in done.stdout
    report = json.loads((tmp_path / "r.json").read_bytes())
    assert report["doubts"] and report["gradients"][0]["communicated"] == 70_720
    files = _files("cnn.single1")
    done = call("reshard", *files, "--dp", "2", "--zero", "3", "--explain", tmp_path / "why.txt")
    assert done.returncode == 0 and b"NOT" not in done.stdout
    assert (tmp_path / "why.txt").read_text().startswith("parameters: 23 with 32,338 elements")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["block.ddp4", "block.fsdp-tp4", "block.pp2", "mlp.fsdp2"])
def test_a_recorded_layout_is_derived_from_itself(name: str) -> None:
    """Each given rank is held against what is derived for it."""
    ranks = int(name[-1])
    traces = [etplus.link(*shared_pair(f"parallel/{name}/rank{rank}")) for rank in range(ranks)]
    was = recorded_layout(traces)
    assert was.ranks == ranks
    job = reshard(traces, Layout(tp=was.tp, batch=16), recorded=was)
    assert job.proof.equal and job.proof.in_order, job.proof
    assert job.proof.ranks == tuple(range(ranks)) and not job.doubts


@pytest.mark.slow
def test_a_rank_that_differs_is_said() -> None:
    traces = [etplus.link(*shared_pair(f"parallel/block.{name}")) for name in ("ddp2/rank0", "ddp4/rank1")]
    job = reshard(traces, Layout(batch=16), recorded=Layout(dp=2))
    assert list(job.proof.different) == [1]
    operators, communications = job.proof.different[1]
    assert operators > 50 and communications == 0  # of half the batch; the gradients are the same
    assert job.doubts and job.proof.to_dict()["different"][0]["rank"] == 1
