"""What a step consists of, on made calls: parameters, what is alive, units, the loss, whose gradients and updates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from etplus.planning.reshape.shapes.extents import Extents
from etplus.planning.reshape.shapes.followed_calls import Shapes
from etplus.planning.reshard import units as units_module
from etplus.planning.reshard.model import ACCUMULATE, Region, Unit, Weights, contracted
from etplus.planning.reshard.structure import _part_of_batch, find_batches
from etplus.planning.reshard.units import _aliases, _split_loss, alive_after, assign_backward, cut_units, relate_loss
from etplus.trace.errors import UsageError
from made_step_calls import Made, made_model, parameter


@pytest.fixture
def made() -> Made:
    return Made(a=3, b=4, c=5, d=4, n=8)


@pytest.fixture
def no_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units_module, "_aliases", lambda trace: {})


def test_inner_extent_of_products(made: Made) -> None:
    factors = [(1, "ab"), (2, "bc")]
    assert contracted(made.call("aten::mm", factors)) == made.shape("b")
    assert contracted(made.call("aten::addmm", [(9, "c"), *factors])) == made.shape("b")
    assert contracted(made.call("aten::bmm", [(1, "nab"), (2, "nbc")])) == made.shape("b")
    for name, given in (("aten::add", factors), ("aten::mm", []), ("aten::addmm", [(9, "c")]), ("aten::mm", [(1, "")])):
        assert contracted(made.call(name, given)) == ()


def layers(made: Made) -> list[Any]:
    """Two layers of one shape and a third one: of tensor 1, which is given."""
    return [
        made.call("aten::linear", [(1, "na"), (21, "ba"), (22, "b")], [(2, "nb")]),
        made.call("aten::linear", [(2, "nb"), (23, "db"), (24, "d")], [(3, "nd")]),
        made.call("aten::linear", [(3, "nd"), (25, "bd")], [(4, "nb")]),
    ]


def test_what_is_alive(made: Made, no_aliases: None) -> None:
    """Results that are used later, and what the model is given; parameters are not activations."""
    calls = [
        made.call("aten::linear", [(1, "na"), (21, "ba")], [(2, "nb")]),
        made.call("aten::relu", [(2, "nb")], [(3, "nb")]),
        made.call("aten::linear", [(3, "nb"), (23, "db")], [(4, "nd")]),
        made.call("aten::add", [(2, "nb"), (4, "nd")], [(5, "nb")]), made.call("aten::mul", [(5, "nb")], [(21, "ba")]),
        made.call("aten::sum", [(21, "ba")], [(6, "")]),
    ]  # fmt: skip
    weights = {21: parameter(made, 0, "ba"), 23: parameter(made, 1, "db")}
    trace: Any = None
    assert (alive_after(trace, calls, Weights(by_number=weights))) == [1, 2, 2, 1, 0, 0]
    late = [
        made.call("aten::view", [(1, "na")], [(1, "na")]),
        *calls[:1],
        made.call("aten::add", [(1, "na"), (2, "nb")]),
    ]
    assert (alive_after(trace, late, Weights(by_number=weights))) == [1, 2, 0]


def test_numbers_are_given_again(made: Made, no_aliases: None) -> None:
    """To a tensor from outside in other memory, and to a view of a parameter: the activation before it is gone."""
    weights = {21: parameter(made, 0, "ba"), 23: parameter(made, 1, "db"), 3: parameter(made, 1, "db")}
    calls = [
        made.call("aten::linear", [(1, "na"), (21, "ba")], [(2, "nb")], made.call("aten::mean", [], [(3, "n")])),
        made.call("aten::add_", [(2, "nb")], [(2, "nb")]), made.call("aten::relu", [(2, "nb")], [(4, "nb")]),
    ]  # fmt: skip
    calls[1].record["inputs"]["values"][0][1] = calls[1].record["outputs"]["values"][0][1] = 777
    trace: Any = None
    of = Weights(by_number={21: weights[21]})
    assert (alive_after(trace, calls[:2], of)) == [0, 0]
    again = made.call("aten::t", [(23, "db")], [(3, "bd")])
    again.record["outputs"]["values"][0][1] = 123
    of = Weights(by_number={21: weights[21]}, by_storage={123: [Region(0, 99, weights[23])]})
    uses = made.call("aten::mm", [(4, "nb"), (3, "bd")], [(5, "nd")])
    uses.record["inputs"]["values"][1][1] = 123
    assert (alive_after(trace, [calls[0], calls[2], again, uses], of)) == [1, 1, 1, 0]


def test_both_sides_of_pairs_are_a_batch_each(made: Made) -> None:
    made.of["m"], made.of["w"] = made.extents.new(8), made.extents.new(16)
    made.extents.sum_of(made.of["w"], made.shape("nm"))
    sources = [SimpleNamespace(shape=made.shape(one), data=True) for one in ("na", "ma")]
    shapes: Any = SimpleNamespace(extents=made.extents, sources=sources, votes=[made.shape("w")], voters=[0], mixed=[])
    (batch,) = find_batches(shapes, [[]])
    assert {batch} == set(made.extents.roots(made.shape("nm")))


def test_results_of_communication_are_what_they_were_made_of(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["aten::mm", "c10d::allreduce_", "gloo:send"]
    trace: Any = SimpleNamespace(names=names, nodes=SimpleNamespace(name=np.array([1, 0, 2, 1, 1, 1])))
    asked: list[Any] = []

    def records(given: Any, rows: Any) -> Any:
        asked.extend(rows.tolist())
        for before, after in (((1,), (2,)), ((2,), (3,)), ((4,), (4,)), ((), (5,)), ((1,), (3,))):
            sides = ([[number, 0, 0, 1, 4, "cpu"] for number in side] for side in (before, after))
            yield SimpleNamespace(
                **dict(zip(("inputs", "outputs"), (SimpleNamespace(values=s) for s in sides), strict=True))
            )

    monkeypatch.setattr(units_module, "call_records", records)
    assert _aliases(trace) == {2: 1, 3: 1} and asked == [0, 2, 3, 4, 5]


def test_units_are_cut_where_one_activation_is_alive(made: Made, no_aliases: None) -> None:
    """What has no parameters belongs to the unit before it; what follows the last one with parameters is the loss."""
    extra = made.call("aten::relu", [(2, "nb")], [(12, "nb")])
    one, two, three = layers(made)
    loss, scalar = made.call("aten::mse_loss", [(4, "nb")], [(9, "")]), made.call("aten::mul", [(9, "")], [(10, "")])
    weights = {
        21: parameter(made, 0, "ba", -1), 22: parameter(made, 1, "b", -1), 23: parameter(made, 2, "db", -1),
        24: parameter(made, 3, "d", -1), 25: parameter(made, 4, "bd", -1),
    }  # fmt: skip
    shapes, trace = SimpleNamespace(extents=made.extents), SimpleNamespace(file="x")
    forward, of = [one, extra, two, three, loss, scalar], Weights(by_number=weights)
    alive = alive_after(None, forward, of)  # type: ignore[arg-type]
    units, rest = cut_units(trace, forward, of, shapes, alive)  # type: ignore[arg-type]
    assert [unit.forward for unit in units] == [[one, extra], [two], [three]] and rest == [loss, scalar]
    assert [[of.number for of in unit.parameters] for unit in units] == [[0, 1], [2, 3], [4]]
    assert [of.unit for of in weights.values()] == [0, 0, 1, 1, 2] and [unit.number for unit in units] == [0, 1, 2]
    assert [unit.kind for unit in units] == ["4x3 4", "4x4 4", "4x4"]
    assert [unit.output for unit in units] == [made.shape(letters) for letters in ("nb", "nd", "nb")]
    with pytest.raises(UsageError, match="x: no parameters were found"):
        cut_units(trace, [extra, loss], Weights(), shapes, [1, 0])  # type: ignore[arg-type]


def test_where_the_loss_begins(made: Made) -> None:
    """Behind the last call with parameters: at a name, at a scalar."""

    def after(*calls: Any) -> int:
        first = made.call("aten::linear", [(21, "ba")], [(2, "")])
        unit = Unit(0, [first, *calls])
        loss = _split_loss(unit, Weights(by_number={21: parameter(made, 0, "ba", -1)}))
        assert [*unit.forward, *loss] == [first, *calls]
        return len(loss)

    plain, scalar = made.call("aten::relu", [], [(3, "nb")]), made.call("aten::mean", [], [(4, "")])
    assert after() == 0 == after(plain) == after(made.call("aten::x", [], []))
    assert after(plain, scalar, plain) == 2 and after(made.call("aten::nll_loss", [], [(3, "nb")]), scalar) == 2
    assert after(plain, plain, made.call("aten::broadcast_tensors", [], [(3, "nb")])) == 1
    assert after(made.call("aten::aminmax", [], [(3, ""), (4, "n")])) == 0
    unknown = made.call("aten::mean", [], [(4, "")])
    unknown.signature = None
    assert after(unknown) == 0
    unit = Unit(0, [plain, scalar])
    assert _split_loss(unit, Weights()) == [] and unit.forward == [plain, scalar]


def test_whose_backward(made: Made) -> None:
    """By sequence numbers, 0 too; what has none belongs to the unit before it, and never to a later one again."""
    units = [Unit(0, [made.call("a", sequence=0)]), Unit(1, [made.call("b", [], [], made.call("c", sequence=1))])]
    loss = [made.call("loss", sequence=2), made.call("without")]

    def back(sequence: int, name: str = "autograd") -> Any:
        return made.call(name, [], [], made.call("aten::x", sequence=sequence))

    calls = [back(-1), back(2), back(1), back(-1), back(2), back(0), back(1, ACCUMULATE), back(1)]
    assert assign_backward(units, loss, calls) == calls[:2]
    assert units[1].backward == calls[2:5] and units[0].backward == calls[5:]


def test_the_batch_is_what_most_layers_take_as_data(made: Made) -> None:
    one = made.extents.new(1)
    outers = [made.shape("an")] * 2 + [made.shape("n")] + [(one,)] * 4 + [made.shape("c")] * 3
    shapes: Any = SimpleNamespace(extents=made.extents, votes=outers, voters=[0] * len(outers), mixed=[], sources=[])
    assert find_batches(shapes, [[]]) == [made.of["c"]]
    made.extents.fix(made.shape("c"))
    assert find_batches(shapes, [[]]) == [made.of["a"]]
    shapes.mixed = list(made.shape("a"))  # elements meet along it: the sequence comes first
    assert find_batches(shapes, [[]]) == [made.of["n"]]
    made.extents.fix(made.shape("an"))
    assert find_batches(shapes, [[]]) == [-1]


def test_each_pass_has_its_batch(made: Made) -> None:
    first, second = made.call("aten::linear"), made.call("aten::linear")
    shapes: Any = SimpleNamespace(
        extents=made.extents,
        votes=[made.shape("a"), made.shape("n")],
        voters=[first.row, second.row],
        mixed=[],
        sources=[],
    )
    assert find_batches(shapes, [[first], [second]]) == [made.of["a"], made.of["n"]]


def test_tensors_within_a_loss_have_the_extents_of_its_inputs(made: Made) -> None:
    extents = made.extents
    loose = [extents.new(8), extents.new(5)]
    made.of |= {"l": loose[0], "m": loose[1]}
    extents.follow(loose, [made.of["a"]])
    inner = made.call("aten::x", [(3, "lm")], [])
    loss = made.call("aten::nll_loss", [(1, "nc"), (2, "n")], [], inner, made.call("aten::y", [(4, "l")]))
    relate_loss(made_model(made, [], loss_forward=[loss]))
    assert [extents.root(of) for of in loose] == [extents.root(made.of["n"]), extents.root(made.of["c"])]


def test_sizes_where_classes_change(made: Made) -> None:
    extents = made.extents
    whole, joined = extents.new(12), extents.new(9)
    made.of |= {"w": whole, "s": joined}
    extents.view([whole], [made.of["a"], made.of["b"]])
    extents.sum_of(joined, [made.of["b"], made.of["c"]])
    model = made_model(made, [])
    assert model.shape(made.shape("wsn"), {}) == [12, 9, 8]
    assert model.shape(made.shape("wsn"), {made.of["b"]: 2}) == [6, 7, 8]
    assert model.shape(made.shape("wsn"), {made.of["n"]: 2, joined: 3, made.of["b"]: 1}) == [3, 3, 2]
    assert model.parts(made.shape("wn")) == ((made.of["a"], made.of["b"]), (made.of["n"],))


def test_what_is_alive_of_what_is_used_once(made: Made, no_aliases: None) -> None:
    """A tensor that nothing returned is no activation; of the first call with parameters only its first tensor is."""
    trace: Any = None
    weights = {21: parameter(made, 0, "ba"), 22: parameter(made, 1, "b")}
    calls = [
        made.call("aten::x", [(30, "n")], [(2, "n")]),
        made.call("aten::linear", [(1, "na"), (31, "n"), (21, "ba")], [(3, "nb")]),
        made.call("aten::copy_", [(31, "n")], [(30, "n")]),
        made.call("aten::y", [(30, "n"), (1, "na"), (31, "n")], [(4, "n")]),
    ]  # fmt: skip
    assert (alive_after(trace, calls, Weights(by_number=weights))) == [1, 1, 1, 0]
    calls = [made.call("aten::linear", [(21, "ba"), (1, "na")], [(3, "nb")]), made.call("aten::y", [(1, "na")])]
    assert (alive_after(trace, calls, Weights(by_number=weights))) == [0, 0]
    calls = [  # a norm of weights takes parameters alone
        made.call("aten::_weight_norm", [(21, "ba"), (22, "b")], [(5, "ba")]),
        made.call("aten::linear", [(1, "na"), (5, "ba")], [(3, "nb")]),
        made.call("aten::add", [(3, "nb"), (1, "na")], [(4, "nb")]),
    ]
    assert (alive_after(trace, calls, Weights(by_number=weights))) == [2, 2, 0]


def test_a_batch_of_pairs_within_microbatches() -> None:
    """Each side of the pairs is divided into microbatches; what is put together of both has the samples of one."""
    extents = Extents()
    wholes, (joined, left, right) = [extents.new(8), extents.new(8)], (extents.new(size) for size in (8, 4, 4))
    for whole, part in zip(wholes, (left, right), strict=True):
        extents.sum_of(whole, (part, extents.new(4)))
    extents.sum_of(joined, (left, right))
    shapes: Any = SimpleNamespace(extents=extents)
    assert _part_of_batch(joined, shapes, set()) == joined
    assert _part_of_batch(joined, shapes, set(wholes)) == extents.root(left) == extents.root(right)


@pytest.mark.parametrize(("sizes", "batch"), [((1, 16), False), ((4, 16), True), ((4, 1), True)])
def test_of_one_sample_no_batch_is_found(sizes: tuple[int, int], batch: bool) -> None:
    """Else the sequence would be taken for it, and divided."""
    extents = Extents()
    votes = [tuple(extents.new(size) for size in sizes) for _ in range(3)]
    first = votes[0]
    for vote in votes[1:]:
        for left, right in zip(first, vote, strict=True):
            extents.same(left, right)
    rows = extents.new(sizes[0] * sizes[1])  # of a product of both, which is the sequence itself where one sample is
    extents.same(rows, first[1]) if sizes[0] == 1 else extents.same(rows, first[0]) if sizes[1] == 1 else None
    shapes = Shapes(extents, votes=[*votes, (rows,)], voters=[1, 2, 3, 4], mixed=[first[1]])
    assert find_batches(shapes, [[]]) == [extents.root(first[0]) if batch else -1]
