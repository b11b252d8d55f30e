"""Derived layouts of model families against recordings of them, what a result says of itself
(planning/reshard/proof.py); and of options of DDP and FSDP2, units by the optimizer's order, pairs and towers.

The tests also cover planning/reshard/wraps.py, planning/reshard/structure.py, planning/reshard/buffers.py,
planning/reshard/blocks.py and not_derived.py.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from etplus.planning.reshard.explain import explain
from etplus.planning.reshard.items import CommOp, RecordedOp
from etplus.planning.reshard.job import Resharded, reshard
from etplus.planning.reshard.layout import Layout
from etplus.planning.reshard.not_derived import not_derived
from etplus.planning.reshard.rank_program import program
from etplus.planning.reshard.step_calls import walked
from etplus.trace.errors import UsageError
from reshard_truth import differences, kept_run, recording, whole_run
from support import FIXTURES, call, run

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
    text = explain(job.derivation)
    assert "buffers: 21, inferred: 21 written by the forward pass" in text and "stage" not in text
    assert json.loads(json.dumps(report))["proof"]["equal"]


def test_recurrent_layers_have_parameters_and_a_reserve_that_is_not_derived() -> None:
    job = _derived("lstm", _DDP)
    recorded = whole_run(recording("lstm.ddp2"))
    found = differences(recorded, whole_run(job.trace(0)))
    assert not found.comms and recorded.comms == [("allreduce_", (70_720,), (0, 1))]
    assert {name for name, _ in found.work} == {"aten::mkldnn_rnn_layer_backward"}
    assert len(job.doubts) == 1 and "aten::mkldnn_rnn_layer_backward" in job.doubts[0]


def test_microbatches_are_passes_of_the_step() -> None:
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
    with pytest.raises(UsageError, match="a batch of 8 per rank is not divisible by 3 microbatches"):
        _derived("accum", Layout(microbatches=3))


def _comms(job: Resharded) -> list[tuple[str, int, str]]:
    """Kind, elements and dimension of what the first rank communicates."""
    found = []
    for item in program(job.derivation, 0):
        comms = [c for of in item.after.values() for c in of] if isinstance(item, RecordedOp) else [item]
        found += [(c.kind, c.elements, c.dimension) for c in comms if isinstance(c, CommOp)]
    return found


def test_ddp_broadcasts_buffers_before_each_forward_that_follows_a_reduction() -> None:
    twice = replace(_DDP, microbatches=2)
    layouts = _DDP, twice, replace(twice, no_sync=True), _FSDP, Layout()
    counts = [sum(kind == "broadcast" for kind, _, _ in _comms(_derived("cnn", layout))) for layout in layouts]
    assert counts == [2, 4, 2, 0, 0]


def test_gathered_units_count_in_the_memory_at_its_peak() -> None:
    """At its most: both blocks' inputs, the copy of the last one's gradients, the first one's parameters, whole and, as
    Gloo copies, twice on the way."""
    job = _derived("accum", replace(_FSDP, microbatches=1))
    block = 4 * 131_968
    memory = job.memory[0]
    assert memory.parameters == 4 * 197_952 and memory.buffers == block // 2 + 4 * block
    assert _derived("accum", replace(_FSDP, microbatches=1, fsdp_wrap="each")).memory[0].total == memory.total


def test_weights_that_do_not_reach_the_loss_are_doubted() -> None:
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


def test_a_model_read_wrongly_fails_its_proof_and_is_doubted() -> None:
    job = reshard(recording("cnn.single1"), _DDP)
    model = job.derivation.model
    model.units[0].forward.remove(next(call for call in model.units[0].forward if call.name == "aten::conv2d"))
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
    words = [*"--dp 2 --batch 8 --json".split(), tmp_path / "r.json", "--explain"]
    done = run("etplus", "reshard", *_files("lstm.single1"), *words)
    assert done.returncode == 3 and b"doubt " in done.stderr and b"mkldnn_rnn_layer" in done.stderr
    assert b"strong scaling: 4 samples per rank, 8 in all" in done.stdout and b"70,720" in done.stdout
    assert b"10 parameters of 70,720 elements" in done.stdout
    report = json.loads((tmp_path / "r.json").read_bytes())
    assert report["doubts"] and report["gradients"][0]["communicated"] == 70_720
    files = _files("cnn.single1")
    done = call("reshard", *files, "--dp", "2", "--zero", "3", "--explain", tmp_path / "why.txt")
    assert done.returncode == 0 and b"NOT" not in done.stdout
    assert (tmp_path / "why.txt").read_text().startswith("parameters: 23 with 32,338 elements")


_KEPT = replace(_FSDP, reshard_after_forward=False)


@cache
def _option(model: str, layout: Layout) -> Resharded:
    return reshard(recording(f"{model}.single1", "layouts"), layout)


@pytest.mark.parametrize(
    ("model", "name", "layout"),
    [
        ("decoder", "fsdp2", _FSDP), ("pairs", "ddp2", _DDP), ("towers", "fsdp2", _FSDP), ("frozen", "fsdp2", _FSDP),
        ("decoder", "unused2", replace(_DDP, find_unused_parameters=True)),
        ("decoder", "kept2", _KEPT),
    ],
)  # fmt: skip
def test_a_derived_layout_runs_as_recorded(model: str, name: str, layout: Layout) -> None:
    job, recorded = _option(model, layout), kept_run(f"{model}.{name}", "layouts")
    assert differences(recorded, whole_run(job.trace(0))).equal and recorded.comms
    assert not job.doubts and job.proof.equal and job.gradients[0].whole


def test_ddp_options_of_the_command_change_the_communication(tmp_path: Path) -> None:
    given = str(tmp_path / "rank0.etplus.json.gz")
    recording("decoder.single1", "layouts").save(given)
    for option, comms in (("--no-broadcast-buffers", 1), ("--find-unused-parameters", 3)):
        found = call("reshard", given, "--dp", "2", "--batch", "8", option, "--json", str(tmp_path / "x.json"))
        report = json.loads((tmp_path / "x.json").read_text())
        assert found.returncode == 0 and report["matched"] == comms and not report["doubts"]


def test_calls_that_are_not_derived_are_doubted() -> None:
    job = _option("decoder", _FSDP)
    step, owned = job.derivation.model.weights.optimizer[0]
    sums = [one for one in walked(job.derivation.model.loss_backward) if one.name == "aten::sum"]
    sums += [one for unit in job.derivation.model.units for one in walked(unit.backward) if one.name == "aten::sum"]
    assert not any(row.what == "optimizer" for row in not_derived(job.derivation))
    model = replace(job.derivation.model, optimizer=[(replace(step, children=[*step.children, sums[0]]), owned)])
    rows = not_derived(replace(job.derivation, model=model))
    assert [row.kind for row in rows if row.what == "optimizer"] == ["communication"]
