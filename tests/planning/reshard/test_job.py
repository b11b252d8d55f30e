"""Jobs in another layout, on made calls: memory that lives, what could not be derived, groups of more ranks."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from etplus.planning.reshard import job as module
from etplus.planning.reshard.clipping import Clipping
from etplus.planning.reshard.derivation import Derivation, derive
from etplus.planning.reshard.items import CommOp
from etplus.planning.reshard.job import NotDerived, Resharded, not_derived
from etplus.planning.reshard.layout import Layout
from etplus.planning.reshard.memory import _states
from etplus.planning.reshard.model import Buffer, Unit, Weights, Wrap
from etplus.planning.reshard.not_derived import assumptions
from etplus.planning.reshard.plan import Division, Plan
from etplus.trace.errors import UsageError
from made_step_calls import Made, made_model, parameter


@pytest.fixture
def made() -> Made:
    return Made(n=8, h=4, i=10, m=6, u=5, o=1)


@pytest.mark.parametrize(
    ("names", "count"),
    [(["Adam"], 2), (["SGD"], 0), (["SGD", "Adagrad"], 0), (["Mine", "RMSprop"], 1), (["Mine"], 0), ([], 0),
     (["SGD", "momentum"], 1)],
)  # fmt: skip
def test_the_first_known_optimizer_sets_the_states_per_parameter(made: Made, names: list[str], count: int) -> None:
    calls = made.call("aten::add_"), *[made.call("aten::_foreach_mul_")] * ("momentum" in names)
    steps = [(made.call(f"Optimizer.step#{name}.step", [], [], *calls), []) for name in names if name != "momentum"]
    assert _states(derive(made_model(made, [Unit(0, [])], optimizer=steps), Plan((), ()), Layout(), Layout())) == count


def test_unsharded_parameters_and_operators_are_listed_as_not_derived(made: Made) -> None:
    extents = made.extents
    extents.follow([made.of["m"], made.of["u"], made.of["o"], made.of["i"]], [made.of["h"]])
    extents.value[made.of["h"]] = 2
    weights = [parameter(made, 0, "ih"), parameter(made, 1, "mm"), parameter(made, 2, "u")]
    calls = [made.call("aten::a", [(1, "mn")]), made.call("aten::b", [(1, "uo")]), made.call("aten::a", [(1, "m")]),
             made.call("aten::c", [], [(2, "i")])]  # fmt: skip
    trace = SimpleNamespace(self_ns=np.array([0, 10, 20, 30, 40]))
    model = made_model(made, [Unit(0, calls, parameters=weights)], trace=trace, given=(made.of["i"],))
    plan = Plan((Division(made.of["h"], 2, (), (0,), 0),), (0,))
    unsharded = "not sharded: the same on every tensor-parallel rank"
    ops = NotDerived("aten::a", "depends on sharded dimensions in an unknown way", 2, 0.4)
    assert not_derived(derive(model, plan, Layout(tp=2), Layout())) == (
        NotDerived("parameters", unsharded, 1, 36 / (20 + 36 + 5), "parameters"), ops,
    )  # fmt: skip
    assert not_derived(derive(model, plan, Layout(), Layout())) == ()
    made.of |= {"x": extents.new(7), "y": extents.new(9)}
    product = made.call("aten::mm", [(1, "xy")])
    whole = made_model(made, [Unit(0, [product])], trace=SimpleNamespace(self_ns=np.full(9, 7)), batch=made.of["x"])
    kept = NotDerived("aten::mm", unsharded, 1, 1.0)
    assert kept in not_derived(derive(whole, plan, Layout(tp=2), Layout()))
    extents.sum_of(made.of["m"], [made.of["u"], made.of["o"]])
    assert ops not in not_derived(derive(model, plan, Layout(tp=2), Layout()))
    everything = made_model(made, [Unit(0, [], parameters=weights[:1])], trace=trace)
    assert not_derived(derive(everything, plan, Layout(tp=2), Layout())) == ()


def test_unknown_communication_is_listed_with_its_assumptions(made: Made) -> None:
    numbers = {70: parameter(made, 0, "h"), 71: parameter(made, 1, "h")}
    calls = [made.call("aten::mul", [(number, "h")]) for number in (70, 71, 70, 70)] + [made.call("CompiledFunction")]
    units = [Unit(0, calls, [made.call("aten::add")], list(numbers.values()))]
    trace = SimpleNamespace(self_ns=np.zeros(9, int))
    wraps = [Wrap(f"block {k}", [k], (0, 0)) for k in range(2)]
    weights = Weights(list(numbers.values()), by_number=numbers)
    model = made_model(made, units, trace=trace, weights=weights, blocks=wraps)
    fsdp, ddp = (derive(model, Plan((), ()), Layout(dp=2, zero=zero), Layout()) for zero in (3, 0))

    def listed(derivation: Derivation) -> list[tuple[str, int]]:
        return [(row.what, row.count) for row in not_derived(derivation)]

    assert listed(fsdp) == [*[("FSDP units", 1)] * 2, ("compiled regions", 1)] and listed(ddp) == []
    clipping = Clipping(joined=frozenset({7, 8}), scaled=frozenset({9}))
    sharded = derive(model, Plan((), ()), Layout(dp=2, zero=1), Layout())
    assert listed(replace(sharded, clipping=clipping)) == [("clipping", 2), ("gradient scaling", 1)]
    assert len(assumptions(fsdp)) == 2 and [line.split()[0] for line in assumptions(ddp)] == ["the", "tensors"]
    model.inferred = [Buffer((4,), "float32", 4, False), Buffer((), "int64", 8, True)]
    assert "constants read in forward are treated as buffers, not frozen parameters: 1" in assumptions(fsdp)
    model.own_buffers = True  # recorded with DistributedDataParallel
    assert assumptions(ddp) == []
    model.own_buffers = False
    numbers[71].accumulates = False
    assert listed(ddp) == [("gradients", 1)]
    model.weights.frozen, model.buffers = [parameter(made, 2, "h")], [Buffer((4,), "float32", 4, False)]
    assert listed(ddp) == [("buffers", 1), ("compiled regions", 1), ("gradients", 1)]
    model.buffers = [Buffer((4,), "float32", 4, written=True)]  # of a teacher, which runs without autograd
    ddp = derive(model, Plan((), ()), Layout(dp=2), Layout())
    assert listed(ddp) == [("buffers", 1), ("compiled regions", 1), ("gradients", 1)]


def test_parameters_tied_between_stages_are_listed_as_not_derived(made: Made) -> None:
    tied, own = parameter(made, 0, "h"), parameter(made, 1, "h")
    units = [
        Unit(k, [made.call("aten::mul", [(number, "h")]) for number in numbers], parameters=[tied] if k == 0 else [own])
        for k, numbers in enumerate(((70,), (70, 71)))
    ]
    weights = Weights([tied, own], by_number={70: tied, 71: own})
    trace = SimpleNamespace(self_ns=np.zeros(9, int), gpu=())
    model = made_model(made, units, trace=trace, weights=weights, batch=made.of["n"])

    def shown(**layout: int) -> list[tuple[str, int]]:
        gaps = not_derived(derive(model, Plan((), (0, 1)), Layout(**layout), Layout()))  # type: ignore[arg-type]
        return [(row.what, row.count) for row in gaps]

    units[0].alone = False
    assert shown(pp=2) == [("stages", 1), ("tied parameters", 1)] and shown() == []
    units[0].alone = True
    assert shown(pp=2) == [("tied parameters", 1)]


def comm(kind: Any, dimension: str, shape: tuple[int, ...], peer: int = -1) -> CommOp:
    return CommOp(kind, dimension, shape, 1, "float32", 4, peer)


def test_messages_and_collectives_without_matching_partners_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, got = comm("send", "pp", (5,), 4), comm("recv", "pp", (5,), 0)
    back = comm("send", "pp", (5,), 0)
    reduced, summed = comm("all_reduce", "tp", (3,)), comm("all_reduce", "dp", (2,))
    programs = {0: [reduced, summed, sent], 1: [reduced, summed, comm("send", "pp", (5,), 5)],
                2: [reduced, summed, comm("send", "pp", (5,), 6)], 3: [reduced, summed, comm("send", "pp", (5,), 7)],
                **{rank: [reduced, summed, got, back] for rank in (4, 5, 6, 7)}}  # fmt: skip

    monkeypatch.setattr(module, "communications", lambda derivation, rank: programs[rank])

    def matched() -> int:
        derivation: Any = SimpleNamespace(layout=Layout(tp=2, dp=2, pp=2), representative=lambda rank: rank)
        return Resharded(derivation, None).matched()  # type: ignore[arg-type]

    assert matched() == 8 * 2 + 4 * 2
    programs[0] = [*programs[0], comm("all_reduce", "pp", (1,))]
    assert matched() == 24
    programs[4] = [reduced, summed, comm("recv", "pp", (6,), 0)]
    with pytest.raises(UsageError, match="stage 0 sends different messages than stage 1 receives"):
        matched()
    programs[0] = [summed, sent]
    with pytest.raises(UsageError, match="ranks 0 and 1 issue different tp collectives"):
        matched()
    programs[0] = [reduced, sent]
    with pytest.raises(UsageError, match="ranks 0 and 2 issue different dp collectives"):
        matched()
