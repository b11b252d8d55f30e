"""Pipelines as sources: their stages as one rank's program, held against recordings of one rank and of each stage."""

from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import etplus
import pytest
from etplus.planning.reshape.shapes.followed_calls import Shapes, shapes_of
from etplus.planning.reshard.job import Resharded, reshard
from etplus.planning.reshard.joined_stages import _merged, _of_made, _StageCall, _StageWriter, join_stages
from etplus.planning.reshard.layout import Layout
from etplus.planning.reshard.stage_steps import StageStep
from etplus.planning.reshard.step_calls import read_step, split_step, tensor_values, walked
from etplus.trace.conventions import EDGE_KINDS
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from reshard_truth import differences, ran, whole_run
from support import FIXTURES, assert_valid, call, fixture_pair

_PIPELINES = FIXTURES / "pipelines"
_SCHEDULE = {"aten::tensor_split", "aten::detach_", "aten::cat"}
"""What PyTorch's schedules call beside the model."""


@cache
def _rank(job: str, rank: int = 0) -> Trace:
    return etplus.link(*(_PIPELINES / job / f"rank{rank}.{kind}.json.gz" for kind in ("et", "kineto")))


@cache
def _derived(job: str, layout: Layout) -> Resharded:
    return reshard([_rank(job, rank) for rank in range(3)], layout)


@pytest.mark.parametrize(("job", "schedule", "parts"), [("gpt.pp3", "1f1b", 3), ("gpt.gpipe3", "gpipe", 2)])
def test_every_stage_is_derived_from_the_joined_program(job: str, schedule: Any, parts: int) -> None:
    found = _derived(job, Layout(pp=3, schedule=schedule))
    recorded = found.derivation.recorded
    assert (recorded.pp, recorded.schedule, recorded.microbatches) == (3, schedule, parts)
    assert found.proof.equal and found.proof.in_order and found.proof.ranks == (0, 1, 2) and not found.doubts
    assert found.proof.communications == 8 * parts and found.proof.operators > 200
    for rank in (0, 2):
        expected = ran(_rank(job, rank))
        assert ran(found.trace(rank)) == expected and len(expected.work) > 5


def test_one_rank_joined_from_three_stages_runs_the_recorded_work() -> None:
    found = _derived("gpt.pp3", Layout(batch=6, microbatches=1))
    different = differences(whole_run(_rank("gpt.single1")), whole_run(found.trace(0)))
    assert not different.work and not different.missing_work and different.order and not different.comms
    assert not found.doubts and found.derivation.rank_batch == 6


def test_the_joined_program_follows_tensors_from_stage_to_stage() -> None:
    joined = join_stages([_rank("gpt.pp3", rank) for rank in range(3)], Layout(pp=3))
    assert_valid(joined.trace.to_dict())
    step = split_step(read_step(joined.trace, shapes_of(joined.trace)))
    assert len(step.passes) == 3 and len(step.steps) == 1
    assert [[call.name for call in forward] for forward, _ in step.passes[1:]] == [
        [call.name for call in step.passes[0][0]]
    ] * 2
    assert not _SCHEDULE & {call.name for forward, back in step.passes for call in (*forward, *back)}
    made = set[int]()
    weights = {value[0] for call in walked(step.steps) for value in tensor_values(call.record.get("inputs"))}
    outside = set[int]()
    for forward, back in step.passes:
        for outer in walked([*forward, *back]):
            outside |= {value[0] for value in tensor_values(outer.record.get("inputs"))} - made - weights
            made |= {value[0] for inner in outer.walk() for value in tensor_values(inner.record.get("outputs"))}
    sizes = [value[3] for forward, _ in step.passes for call in walked(forward)
             for value in tensor_values(call.record.get("inputs")) if value[0] in outside]  # fmt: skip
    # Ids of words, targets, and the weights of the loss: no activations (2 x 12 x 32).
    assert sizes and max(sizes) == 2 * 12
    assert len(joined.begins) == 2 and joined.trace.world_size == 1
    lists = [call for call in walked(step.steps) if "_fused_adamw" in call.name]
    assert len(lists[0].record["inputs"]["values"][0]) == len(
        _derived("gpt.pp3", Layout(pp=3, schedule="1f1b")).derivation.model.parameters
    )


def test_a_pipeline_without_all_its_stages_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="3 stages without stage 1;"):
        reshard([_rank("gpt.pp3", 0), _rank("gpt.pp3", 2)], Layout())
    with pytest.raises(UsageError, match=r"stage 1 receives 2|of one kind are not divisible by 3"):
        reshard([_rank("gpt.pp3", 0), _rank("gpt.gpipe3", 1), _rank("gpt.pp3", 2)], Layout())
    et, kineto = (_PIPELINES / "gpt.pp3" / f"rank1.{kind}.json.gz" for kind in ("et", "kineto"))
    failed = call("reshard", "--et-file", et, "--kineto-file", kineto, "--dp", "2")
    assert failed.returncode == 2 and b"without stages 0, 2;" in failed.stderr
    assert failed.stderr.splitlines()[-1].count(b"pipeline of 3 stages") == 1


def test_device_events_follow_their_calls_into_the_joined_trace() -> None:
    source = etplus.link(*fixture_pair("pairs/gpu_shaped_from_cpu"))
    top = [call for call in read_step(source, Shapes()) if call.operator]
    stages = [StageStep(source, k, forward=[top], backward=[[]]) for k in range(2)]
    writer = _StageWriter(source, {})
    writer.write(stages)
    made = writer.trace()
    assert_valid(made.to_dict())
    below = {call.index for call in walked(top)}
    events = [k for k in range(len(source.gpu)) if int(source.gpu.call[k]) in below and k not in source.gpu.comm]
    expected = sorted((source.names[source.gpu.name[k]], int(source.gpu.dur[k])) for k in events) * 2
    found = [(made.names[made.gpu.name[k]], int(made.gpu.dur[k])) for k in range(len(made.gpu))]
    assert len(events) > 5 and sorted(found) == sorted(expected)
    callers = [source.names[source.calls.name[int(source.gpu.call[k])]] for k in events] * 2
    assert sorted(made.names[made.calls.name[call]] for call in made.gpu.call.tolist()) == sorted(callers)
    for stream in set(made.gpu.stream.tolist()):
        of = sorted((int(ts), int(end)) for ts, end, at in zip(made.gpu.ts, made.gpu.end, made.gpu.stream, strict=True)
                    if at == stream)  # fmt: skip
        assert all(end <= ts for (_, end), (ts, _) in pairwise(of))
    assert (made.edges[:, 2] == EDGE_KINDS.index("launch")).sum() == len(found)


def _listed(tensors: list[int], numbers: list[float], total: int) -> _StageCall:
    """A call on a list of tensors of one element and a list of numbers, which returns one tensor with as many."""
    side = {
        "values": [[[number, number, 0, 1, 4, "cpu"] for number in tensors], numbers, 7],
        "shapes": [[[1]] * len(tensors), [[]] * len(numbers), []],
        "types": [f"GenericList[{','.join(['Tensor(float)'] * len(tensors))}]",
                  f"GenericList[{','.join(['Double'] * len(numbers))}]", "Int"],
    }  # fmt: skip
    made = {
        "values": [[total, total, 0, len(tensors), 4, "cpu"]], "shapes": [[len(tensors)]], "types": ["Tensor(float)"],
    }  # fmt: skip
    call = SimpleNamespace(name="aten::stack")
    return _StageCall(call, SimpleNamespace(), {"inputs": side, "outputs": made}, own=5)  # type: ignore[arg-type]


def test_list_calls_of_all_stages_merge_into_one_call() -> None:
    calls = [_listed([1, 2], [0.1, 0.2], 50), _listed([3], [0.3], 60)]
    after = [_listed([50], [1.0], 70), _listed([60], [1.0], 80)]
    for one, number in zip(after, (50, 60), strict=True):
        one.call.name = "aten::norm"
        one.sides["inputs"] = {
            "values": [[number, number, 0, 9, 4, "cpu"]],
            "shapes": [[9]],
            "types": ["Tensor(float)"],
        }
    same: dict[int, int] = {}
    merged = _merged([[calls[0], after[0]], [calls[1], after[1]]], same)
    assert [one.call.name for one in merged] == ["aten::stack", "aten::norm"] and merged[0].own == 10
    given = merged[0].sides["inputs"]
    assert [value[0] for value in given["values"][0]] == [1, 2, 3] and given["values"][1:] == [[0.1, 0.2, 0.3], 7]
    assert given["shapes"][:2] == [[[1]] * 3, [[]] * 3]
    assert given["types"][0] == "GenericList[Tensor(float),Tensor(float),Tensor(float)]"
    assert given["types"][1] == "GenericList[Double,Double,Double]"
    assert merged[0].sides["outputs"]["shapes"] == [[3]] == merged[1].sides["inputs"]["shapes"]
    assert same[60] == 50
    other = _listed([4], [0.4], 90)
    other.sides["inputs"]["values"].pop()  # of another form: not merged
    assert len(_merged([[_listed([1], [0.1], 50)], [other]], {})) == 2
    other.sides["inputs"] = {"values": [[4, 4, 0, 9, 1, "cpu"]]}  # nine elements of one byte
    assert _of_made(other, {4}) and not _of_made(other, set())
    other.sides["inputs"]["values"][0][3] = 1
    assert _of_made(other, set())
