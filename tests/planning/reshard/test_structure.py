"""What a step consists of, on made calls: parameters, what is alive, units, the loss, whose gradients and updates."""

from types import SimpleNamespace
from typing import Any

import pytest
from etplus.planning.reshape.shapes.extents import Extents
from etplus.planning.reshape.shapes.followed_calls import Shapes
from etplus.planning.reshard import units as units_module
from etplus.planning.reshard.model import Unit, Weights, contracted
from etplus.planning.reshard.structure import _part_of_batch, find_batches
from etplus.planning.reshard.units import _split_loss, alive_after, relate_loss
from made_step_calls import Made, made_model, parameter


@pytest.fixture
def made() -> Made:
    return Made(a=3, b=4, c=5, d=4, n=8)


@pytest.fixture
def no_aliases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units_module, "_aliases", lambda trace: {})


def test_only_products_have_a_contracted_extent(made: Made) -> None:
    factors = [(1, "ab"), (2, "bc")]
    assert contracted(made.call("aten::mm", factors)) == made.shape("b")
    assert contracted(made.call("aten::addmm", [(9, "c"), *factors])) == made.shape("b")
    for name, given in (("aten::add", factors), ("aten::mm", []), ("aten::addmm", [(9, "c")]), ("aten::mm", [(1, "")])):
        assert contracted(made.call(name, given)) == ()


def test_both_sides_of_pairs_are_a_batch_each(made: Made) -> None:
    made.of["m"], made.of["w"] = made.extents.new(8), made.extents.new(16)
    made.extents.sum_of(made.of["w"], made.shape("nm"))
    sources = [SimpleNamespace(shape=made.shape(one), data=True) for one in ("na", "ma")]
    shapes: Any = SimpleNamespace(extents=made.extents, sources=sources, votes=[made.shape("w")], voters=[0], mixed=[])
    (batch,) = find_batches(shapes, [[]])
    assert {batch} == set(made.extents.roots(made.shape("nm")))


def test_the_loss_begins_at_a_loss_operator_or_the_first_scalar(made: Made) -> None:

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


def test_tensors_within_a_loss_have_the_extents_of_its_inputs(made: Made) -> None:
    extents = made.extents
    loose = [extents.new(8), extents.new(5)]
    made.of |= {"l": loose[0], "m": loose[1]}
    extents.follow(loose, [made.of["a"]])
    inner = made.call("aten::x", [(3, "lm")], [])
    loss = made.call("aten::nll_loss", [(1, "nc"), (2, "n")], [], inner, made.call("aten::y", [(4, "l")]))
    relate_loss(made_model(made, [], loss_forward=[loss]))
    assert [extents.root(of) for of in loose] == [extents.root(made.of["n"]), extents.root(made.of["c"])]


def test_what_is_alive_of_what_is_used_once(made: Made, no_aliases: None) -> None:
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


def test_a_batch_joined_from_pairs_is_recognized_within_microbatches() -> None:
    extents = Extents()
    wholes, (joined, left, right) = [extents.new(8), extents.new(8)], (extents.new(size) for size in (8, 4, 4))
    for whole, part in zip(wholes, (left, right), strict=True):
        extents.sum_of(whole, (part, extents.new(4)))
    extents.sum_of(joined, (left, right))
    shapes: Any = SimpleNamespace(extents=extents)
    assert _part_of_batch(joined, shapes, set()) == joined
    assert _part_of_batch(joined, shapes, set(wholes)) == extents.root(left) == extents.root(right)


@pytest.mark.parametrize(("sizes", "batch"), [((1, 16), False), ((4, 16), True), ((4, 1), True)])
def test_no_batch_is_found_if_there_is_one_sample(sizes: tuple[int, int], batch: bool) -> None:
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
