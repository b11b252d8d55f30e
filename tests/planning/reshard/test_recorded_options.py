"""Options of DDP and FSDP2, units by the optimizer's order, pairs and towers, against fixtures/layouts.

The tests also cover planning/reshard/wraps.py, planning/reshard/structure.py, planning/reshard/buffers.py,
planning/reshard/blocks.py and not_derived.py.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from etplus.planning.reshard.items import CommOp
from etplus.planning.reshard.job import Resharded, reshard
from etplus.planning.reshard.layout import Layout
from etplus.planning.reshard.not_derived import not_derived
from etplus.planning.reshard.rank_program import program
from etplus.planning.reshard.recorded_job import recorded_layout
from etplus.planning.reshard.step_calls import walked
from etplus.trace.errors import UsageError
from reshard_truth import differences, kept_run, recording, whole_run
from support import call

_DDP, _FSDP = Layout(dp=2, batch=8), Layout(dp=2, batch=8, zero=3)
_KEPT = replace(_FSDP, reshard_after_forward=False)


@cache
def _derived(model: str, layout: Layout) -> Resharded:
    return reshard(recording(f"{model}.single1", "layouts"), layout)


@pytest.mark.parametrize(
    ("model", "name", "layout"),
    [
        ("decoder", "fsdp2", _FSDP), ("pairs", "ddp2", _DDP), ("towers", "fsdp2", _FSDP), ("frozen", "fsdp2", _FSDP),
        ("decoder", "unused2", replace(_DDP, find_unused_parameters=True)),
        ("decoder", "kept2", _KEPT),
    ],
)  # fmt: skip
def test_a_layout_is_as_recorded(model: str, name: str, layout: Layout) -> None:
    job, recorded = _derived(model, layout), kept_run(f"{model}.{name}", "layouts")
    assert differences(recorded, whole_run(job.trace(0))).equal and recorded.comms
    assert not job.doubts and job.proof.equal and job.gradients[0].whole


def test_units_hold_what_lies_between_their_parameters() -> None:
    """The table of positions is the first block's; the queries, which enter that as activations, are the root's."""
    wraps = {wrap.label: wrap.parameters for wrap in _derived("decoder", _FSDP).derivation.wraps}
    assert wraps[""][0] == 0 and [len(wraps[f"block {k}"]) for k in range(3)] == [11, 10, 10]


def test_blocks_are_found_between_exits_and_in_a_frozen_tower() -> None:
    assert [len(wrap.parameters) for wrap in _derived("exits", _FSDP).derivation.wraps] == [8, 4, 4, 4]
    frozen = _derived("frozen", _FSDP)
    assert [len(wrap.parameters) for wrap in frozen.derivation.wraps] == [4, 4, 4, 4, 4]
    assert "FSDP also wraps frozen weights that run without autograd: 8" in frozen.assumptions


def test_what_is_kept_is_not_gathered_again_and_takes_memory() -> None:
    again, kept = _derived("decoder", _FSDP), _derived("decoder", _KEPT)
    gathers = [sum(one.kind == "all_gather" for one in _comms(job)) for job in (again, kept)]
    assert gathers == [7, 4] and kept.memory[0].total > again.memory[0].total


def _comms(job: Resharded) -> list[CommOp]:
    return [item for item in program(job.derivation, 0) if isinstance(item, CommOp)]


def test_options_of_the_command(tmp_path: Path) -> None:
    given = str(tmp_path / "rank0.etplus.json.gz")
    recording("decoder.single1", "layouts").save(given)
    for option, comms in (("--no-broadcast-buffers", 1), ("--find-unused-parameters", 3)):
        found = call("reshard", given, "--dp", "2", "--batch", "8", option, "--json", str(tmp_path / "x.json"))
        report = json.loads((tmp_path / "x.json").read_text())
        assert found.returncode == 0 and report["matched"] == comms and not report["doubts"]


def test_buckets_of_which_all_parameters_are_looked_for() -> None:
    """In the order of the parameters, each reduced when it is full and those before it are; the map behind the last."""
    job = _derived("decoder", Layout(dp=2, batch=8, find_unused_parameters=True, bucket_mib=1))
    reduced = [one.elements for one in _comms(job) if one.kind == "all_reduce"]
    assert len(reduced) == 2 and reduced[-1] == len(job.derivation.model.parameters)


def test_calls_that_are_not_derived_are_doubted() -> None:
    job = _derived("decoder", _FSDP)
    step, owned = job.derivation.model.weights.optimizer[0]
    sums = [one for one in walked(job.derivation.model.loss_backward) if one.name == "aten::sum"]
    sums += [one for unit in job.derivation.model.units for one in walked(unit.backward) if one.name == "aten::sum"]
    assert not any(row.what == "optimizer" for row in not_derived(job.derivation))
    model = replace(job.derivation.model, optimizer=[(replace(step, children=[*step.children, sums[0]]), owned)])
    rows = not_derived(replace(job.derivation, model=model))
    assert [row.kind for row in rows if row.what == "optimizer"] == ["communication"]


def test_divided_experts_are_no_source() -> None:
    trace: Any = SimpleNamespace(names=["aten::topk", "c10d::alltoall_base_"], file="rank0.et.json")
    with pytest.raises(UsageError, match="experts sharded over ranks"):
        recorded_layout([trace])
