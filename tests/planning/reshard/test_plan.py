"""Plans that were edited: what is taken, and what is refused."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import etplus
import pytest
from etplus.planning.reshard.model import Model
from etplus.planning.reshard.plan import _after_forward, _layers, make_plan, plan_from_dict
from etplus.planning.reshard.structure import read_model
from etplus.trace.errors import UsageError
from support import FIXTURES


@cache
def model(name: str = "mlp_w128_d2__b8_t1") -> Model:
    return read_model(etplus.load(FIXTURES / "batches" / f"{name}.json.gz"))


def test_a_plan_is_read_as_it_was_written() -> None:
    for name in ("mlp_w128_d2__b8_t1", "transformer_w32_d1__b16_t1"):
        plan = make_plan(model(name))
        assert plan_from_dict(plan.to_dict(model(name)), model(name)) == plan
    assert plan.divided == {division.extent for division in plan.divisions} and len(plan.divisions) > 1


def test_layers_are_distributed_evenly() -> None:
    plan = make_plan(model())
    assert plan.layers == (0, 1) and plan.stage_of(model(), 2) == [0, 1, 1]
    assert replace(plan, layers=(1, 2)).stage_of(model(), 2) == [0, 0, 1] and plan.stage_of(model(), 1) == [0, 0, 0]
    assert replace(plan, stages=(0, 0, 1)).stage_of(model(), 2) == [0, 0, 1]
    for changed, stages, says in (
        ({}, 3, "2 layers are not divisible by pp=3 stages"),
        ({"layers": ()}, 2, "the model has no layers to divide into pp=2 stages"),
        ({"stages": (0, 1)}, 2, "stages must be 0 to 1; edit the plan"),
        ({"stages": (0, 2, 2)}, 2, "stages must be 0 to 1; edit the plan"),
        ({"stages": (1, 0, 1)}, 2, "not in ascending order"),
    ):
        with pytest.raises(UsageError, match=says):
            replace(plan, **changed).stage_of(model(), stages)


def test_layers_reach_from_the_first_to_the_last_repeated_unit() -> None:
    units: list[Any] = [SimpleNamespace(number=at, kind=kind) for at, kind in enumerate("abcbda")]
    assert _layers(units[1:5]) == [1, 2, 3] and _layers(units) == [0, 1, 2, 3, 4, 5] and _layers(units[:3]) == []


def edited(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    found = copy.deepcopy(make_plan(model("transformer_w32_d1__b16_t1")).to_dict(model("transformer_w32_d1__b16_t1")))
    change(found)
    return found


REFUSED: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda plan: plan.update(version=1), "the plan has version 1, expected 2"),
    (lambda plan: plan.pop("units"), r"cannot be read \(KeyError"),
    (lambda plan: plan.update(units=3), r"cannot be read \(TypeError"),
    (lambda plan: plan["tensor_parallel"][0].update(size="x"), r"cannot be read \(ValueError"),
    (lambda plan: plan["units"].pop(), "belongs to a different model"),
    (lambda plan: plan["units"][0].update(stage=0), "to some units only"),
    (lambda plan: plan["units"][0].update(stage="x"), "to some units only"),
    (lambda plan: plan["tensor_parallel"][0].update(size=7), "divides a dimension of size 7, but no parameter"),
]


@pytest.mark.parametrize(("change", "says"), REFUSED)
def test_invalid_plans_are_refused_with_the_reason(change: Callable[[dict[str, Any]], object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        plan_from_dict(edited(change), model("transformer_w32_d1__b16_t1"))
    with pytest.raises(UsageError, match="cannot be read"):
        plan_from_dict([], model())


def test_stages_layers_and_divisions_of_an_edited_plan_are_used() -> None:
    def stages(plan: dict[str, Any]) -> None:
        for unit in plan["units"]:
            unit.update(stage=unit["number"] // 3, layer=unit["number"] == 2)
        del plan["tensor_parallel"][1:]

    found = plan_from_dict(edited(stages), model("transformer_w32_d1__b16_t1"))
    assert found.stages == (0, 0, 0, 1, 1) and found.layers == (2,) and len(found.divisions) == 1


def test_a_result_is_reduced_after_the_view_that_follows_its_layer() -> None:
    product, view, other = (SimpleNamespace(name=f"aten::{name}") for name in ("mm", "view", "add"))
    for calls, after in (([product, view], view), ([product, other], product), ([product], product)):
        assert _after_forward([view, *calls], 1, product) is after  # type: ignore[arg-type]
