"""Routed experts divided over ranks, against recordings of ranks that exchange tokens all-to-all (expert_calls.py)."""

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import etplus
import pytest
from astra_sim import run_astra
from etplus.planning.reshard.expert_regions import ExpertRegions, _in_proportion
from etplus.planning.reshard.experts import GROUPED, find_layers
from etplus.planning.reshard.items import CommOp
from etplus.planning.reshard.job import Resharded, reshard
from etplus.planning.reshard.layout import Layout
from etplus.planning.reshard.rank_program import program
from etplus.trace.errors import UsageError
from etplus.trace.trace import Trace
from reshard_truth import kept_run, whole_run
from support import FIXTURES, read_json, succeeds

_STYLES = ("loop", "indexed", "capacity", "grouped")
_LITERAL = "aten::detach_", "aten::contiguous"
"""What `torch.tensor` of counts calls, and a caller of `clone`."""


@cache
def _recorded(name: str) -> Trace:
    folder = FIXTURES / "experts" / name
    return etplus.link(folder / "rank0.et.json.gz", folder / "rank0.kineto.json.gz")


@cache
def _derive(style: str, layout: Layout) -> Resharded:
    return reshard(_recorded(f"{style}.single1"), layout)


def _divided(style: str) -> Resharded:
    return _derive(style, Layout(dp=2, ep=2, batch=8, routing="recorded"))


@pytest.mark.parametrize("style", _STYLES)
def test_divided_experts_run_the_recorded_work_and_communication(style: str) -> None:
    """Work with its sizes and order, but for tokens, which may be taken at any moment before they are sent; tokens that
    are sent and received; gradients of what all ranks have."""
    recorded, job = kept_run(f"{style}.ep2"), _divided(style)
    derived = whole_run(job.trace(0))
    works = [[one for one in run.work if one[0] not in _LITERAL] for run in (recorded, derived)]
    assert Counter(works[0]) == Counter(works[1])
    assert [one for one in works[0] if one[0] != "aten::index"] == [one for one in works[1] if one[0] != "aten::index"]
    issued = [(name, sizes) for name, sizes, _ in recorded.comms]
    assert [(name, sizes) for name, sizes, _ in derived.comms] == issued
    assert Counter(name for name, _ in issued)["alltoall_base_"] >= 4
    assert not job.doubts and job.proof.equal and job.gradients[0].whole
    first, second = ([type(item) for item in program(job.derivation, rank)] for rank in (0, 1))
    assert first == second, "each has two experts, or a part of one that is of all"
    assert job.matched() == len(issued) * len(job.rank_map)


def test_each_rank_holds_only_its_own_experts() -> None:
    job = _divided("loop")
    derivation = job.derivation
    experts = [one.number for one in derivation.model.parameters if one in derivation.experts.parameters]
    ranks = [{one.number for one in derivation.parameters(0, index)} for index in range(2)]
    assert ranks[0] & ranks[1] == ranks[0] - set(experts) and ranks[0] | ranks[1] >= set(experts)
    assert len(experts) == 16 and len(ranks[0] & set(experts)) == 8
    assert job.memory[0].parameters == 4 * (2 * (2 * 32 * 48 + 48 + 32) + 5_488)
    stacked = _divided("indexed").derivation
    assert {stacked.sizes(one) for one in stacked.experts.parameters} == {(2, 32, 48), (2, 48, 32)}


def test_ranks_with_the_same_experts_sum_their_gradients() -> None:
    job = _derive("loop", Layout(dp=8, ep=2, batch=8, routing="recorded"))
    layout, found = job.layout, [item for item in program(job.derivation, 3) if isinstance(item, CommOp)]
    at = layout.coordinates(3)
    assert layout.group("ep", at) == (2, 3) and layout.group("edp", at) == (1, 3, 5, 7)
    sums = {comm.dimension: comm.elements for comm in found if comm.kind == "all_reduce"}
    assert sums == {"dp": 5_488, "edp": 6_304}
    assert (job.gradients[0].communicated, job.gradients[0].whole) == (11_792, True)
    assert job.rank_map == {0: [0, 2, 4, 6], 1: [1, 3, 5, 7]}
    groups = {name: ranks for name, ranks in job.trace(3).process_groups.items() if name.startswith("e")}
    assert groups == {"ep_2": [2, 3], "edp_1": [1, 3, 5, 7]}


def test_tokens_stay_in_proportion() -> None:
    assert _in_proportion([3, 3, 1], 4) == [2, 2, 0] and _in_proportion([0, 0], 0) == [0, 0]


def test_routing_that_is_not_stated_is_a_doubt() -> None:
    assert any("expert routing" in doubt for doubt in _derive("grouped", Layout(dp=2, ep=2)).doubts)
    assert any("could not be derived" in doubt for doubt in _derive("capacity", Layout(dp=2, batch=8)).doubts)
    assert not _derive("grouped", Layout(dp=2)).doubts
    assert not _derive("grouped", Layout(dp=2, batch=8, routing="recorded")).doubts


def test_layouts_never_compared_with_a_recording_are_doubted() -> None:
    assert any("with tensor parallelism was never compared" in doubt for doubt in _derive("loop", Layout(tp=2)).doubts)
    job = _divided("loop")
    derivation = replace(job.derivation, plan=replace(job.derivation.plan, stages=(0, 1)))
    piped = replace(job, derivation=replace(derivation, layout=replace(job.layout, pp=2)))
    assert any("with expert and pipeline parallelism" in doubt for doubt in piped.doubts)


def test_counts_that_no_call_shows_are_not_taken_as_recorded() -> None:
    model = _divided("grouped").derivation.model
    products = [inner for inner in model.calls() if GROUPED in inner.name]
    children = [product.children for product in products]
    for product in products:
        product.children = []
    try:
        (unit,) = (unit for unit in model.units if find_layers(unit.forward, model.weights, model.extents))
        assert not find_layers(unit.forward, model.weights, model.extents)[0].grouped
        regions = ExpertRegions(model, Layout(dp=2, ep=2), {})
        assert (regions.layers[0].routing, regions.layers[0].own) == ("uniform", (48, 48, 48, 48))
        assert regions.stated and regions.kind(0) == regions.kind(1)
        with pytest.raises(UsageError, match="is not recorded, because one GEMM computes all experts"):
            ExpertRegions(model, Layout(dp=2, ep=2, routing="recorded"), {})
    finally:
        for product, known in zip(products, children, strict=True):
            product.children = known


def test_ranks_that_send_other_tokens_are_an_error() -> None:
    first = CommOp("all_to_all", "ep", (3, 4), 8, "float32", 4, splits=((1, 2), (1, 1)))
    second = CommOp("all_to_all", "ep", (4, 4), 20, "float32", 4, splits=((1, 3), (2, 3)))
    derivation: Any = SimpleNamespace(layout=Layout(dp=2, ep=2), representative=lambda rank: rank)
    job = Resharded(derivation, None)  # type: ignore[arg-type]
    assert job._matched_tokens(0, {0: [first], 1: [second]}) == job._matched_tokens(1, {0: [first], 1: [second]}) == 1
    with pytest.raises(UsageError, match="rank 0 sends different tokens than rank 1 receives"):
        job._matched_tokens(0, {0: [first], 1: [first]})


def test_the_command_divides_experts(tmp_path: Path) -> None:
    folder = FIXTURES / "experts" / "capacity.single1"
    files = ["--et-file", folder / "rank0.et.json.gz", "--kineto-file", folder / "rank0.kineto.json.gz"]
    wanted = ["--dp", "4", "--ep", "2", "--batch", "8", "--json", tmp_path / "report"]
    done = succeeds("reshard", *files, *wanted, "--routing", "recorded", "--to", "astra-sim", "-o", tmp_path / "job")
    said = b" ".join(done.stdout.split())
    assert b"4 ranks (tp 1 x dp 4 x pp 1, ep 2), 1 of them different" in said and b"2 on each of 2 ranks" in said
    report = read_json(tmp_path / "report")
    assert report["layout"]["ep"] == 2 and report["experts"]["tokens"] == "recorded"
    ran = run_astra(tmp_path / "job", 4, TOPO="FullyConnected")
    assert ran.complete and abs(ran.makespan_ns / report["step_ns"] - 1) < 0.03
