"""Units of FSDP, on made calls: blocks that repeat, alike blocks of other sizes, what a layout asks for."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from etplus.planning.reshard.blocks import CallRange, in_module_order, repeated_blocks, unsure_blocks
from etplus.planning.reshard.model import Unit, Weights, Wrap
from etplus.planning.reshard.wraps import boundaries, candidates, chosen_wraps, sums_of_units
from etplus.trace.errors import UsageError
from made_step_calls import Made, made_model, parameter


@pytest.fixture
def made() -> Made:
    return Made(n=8, a=4, b=6)


def chain(made: Made, *layers: str) -> tuple[list[Any], Weights, dict[int, int], list[int]]:
    """Layers one after the other: each letter is an operator with a parameter of as many elements as its size, "+" one
    without; with what is alive behind each."""
    weights, forward, sizes, alive = Weights(), [], dict[int, int](), list[int]()
    for layer in layers:
        for letter in layer:
            given: list[Any] = [(1, "n")]
            if letter.isalpha():
                number = len(sizes)
                weights.by_number[50 + number] = parameter(made, number, "a")
                weights.parameters.append(weights.by_number[50 + number])
                sizes[number] = ord(letter.lower())
                given.append((50 + number, "a"))
            forward.append(made.call(f"aten::{letter.lower() if letter.isalpha() else 'add'}", given, [(1, "n")]))
            alive.append(2)
        alive[-1] = 1
    return forward, weights, sizes, alive


def blocks(made: Made, *layers: str) -> list[tuple[int, int]]:
    forward, weights, sizes, alive = chain(made, *layers)
    return [tuple(block) for block in repeated_blocks(forward, weights, alive, sizes)]  # type: ignore[misc]


def test_repeated_layers_form_blocks_and_single_layers_form_none(made: Made) -> None:
    assert blocks(made, "e", "np+", "np+", "np+", "nh") == [(1, 4), (4, 7), (7, 10)]
    assert blocks(made, "nqnu", "nqnu", "n") == [(0, 4), (4, 8)]  # not qnun twice
    assert blocks(made, "e", "h") == [] == blocks(made, "e") == blocks(made, "+", "+")
    encoder_decoder = blocks(made, "e", "abc", "abc", "e", "abcd", "abcd", "h")
    assert encoder_decoder == [(1, 4), (4, 7), (8, 12), (12, 16)]


def test_repeated_blocks_around_a_different_one_are_found(made: Made) -> None:
    for middle, edges in ((("n", "p", "q"), [1, 5, 9, 12, 16, 20]), (("n", "p", "m"), [1, 5, 9])):
        forward, weights, sizes, alive = chain(made, "e", "npq+", "npq+", *middle, "npq+", "npq+", "h")
        sizes |= {number: sizes[number] + (20 if number < 10 else 40) for number in range(7, 16)}
        found = [tuple(block) for block in repeated_blocks(forward, weights, alive, sizes)]
        assert found[: len(edges) - 1] == list(pairwise(edges)) and len(found) == (5 if "q" in middle else 4)


def test_two_blocks_with_more_alive_between_them_are_inside_a_residual_unless_it_was_alive_before(made: Made) -> None:
    forward, weights, sizes, alive = chain(made, "e", "np+", "np+", "h")
    alive = [1, *(count + 1 for count in alive[1:-1]), 0]
    assert repeated_blocks(forward, weights, alive, sizes) == []
    slice_ = made.call("aten::slice", [(9, "n")], [(8, "n")])
    found = repeated_blocks([forward[0], slice_, *forward[1:]], weights, [1, 2, *alive[1:]], sizes)
    assert [tuple(block) for block in found] == [(2, 5), (5, 8)]


def test_two_towers_of_blocks_are_not_two_blocks(made: Made) -> None:
    tower = ("i", "np+", "np+", "np+", "o")
    assert blocks(made, *tower, *tower) == [(1, 4), (4, 7), (7, 10), (12, 15), (15, 18), (18, 21)]


def test_exits_between_blocks_are_not_part_of_them() -> None:
    sizes = {k: ((9,), (8,), (7, 7), (7,))[k % 4] for k in range(16)} | dict.fromkeys(range(16, 19), (5, 5))
    exits = [{*range(4 * k, 4 * k + 4), 16 + k} for k in range(3)]
    found, loose = in_module_order(exits, sizes)
    assert found == [list(range(k, k + 4)) for k in (0, 4, 8, 12)] and not loose
    found, loose = in_module_order([{0, 1}, {4, 5, 6, 7}], sizes)
    assert found == [[0, 1], [4, 5, 6, 7]] and loose


def test_weights_and_biases_in_separate_groups_of_the_optimizer_are_one_block() -> None:
    sizes = dict.fromkeys(range(6), (4, 4)) | dict.fromkeys(range(6, 13), (4,))
    found, _ = in_module_order([{2 * k, 2 * k + 1, 6 + 2 * k, 7 + 2 * k} for k in range(3)], sizes)
    assert found == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]


def test_single_layers_with_an_activation_may_be_blocks_of_other_sizes(made: Made) -> None:
    for layers, unsure in ((("a+", "b+", "b+", "b+"), True), (("a", "b+", "b+", "b+"), False)):
        forward, weights, _, _ = chain(made, *layers)
        for call in forward:
            call.name = "aten::relu" if call.name == "aten::add" else "aten::linear"
        edges = list(range(len(layers[0]), len(forward) + 1, 2))
        found = [CallRange(left, right) for left, right in pairwise(edges)]
        assert unsure_blocks(forward, found, weights, [1] * len(forward)) is unsure


@pytest.mark.parametrize(
    ("layers", "attention", "unsure"),
    [
        (("pq+", "rs+") * 2, "", True), (("pq+", "qp+") * 3, "", True), (("pq+",) * 3, "", False),
        (("pq+", "rs+") * 2, "p", False), (("pq+", "pq+", "rs+") * 2, "p", False),
        (("pq+", "rs+", "tu+") * 2, "p", True), (("pq+", "rs+") * 2, "pr", True),
    ],
)  # fmt: skip
def test_classes_of_blocks_in_turn_may_be_blocks_of_their_own(
    made: Made, layers: tuple[str, ...], attention: str, unsure: bool
) -> None:
    forward, weights, sizes, alive = chain(made, *layers)
    for one in weights.parameters:
        one.shape = one.shape * 2
    found = repeated_blocks(forward, weights, alive, sizes)
    for call in forward:
        call.name = f"aten::attention_{call.name[-1]}" if call.name[-1] in attention else call.name
    assert len(found) > 1 and unsure_blocks(forward, found, weights, alive) is unsure


def test_repeated_blocks_with_two_live_tensors_inside_are_found(made: Made) -> None:
    forward, weights, sizes, _ = chain(made, "en", "qmnun", "qmnun", "qmnun", "h")
    alive = [1 if call.name in ("aten::n", "aten::e", "aten::h") else 2 for call in forward]
    assert [tuple(block) for block in repeated_blocks(forward, weights, alive, sizes)] == [(2, 7), (7, 12), (12, 17)]


def test_parts_of_a_residual_block_are_not_blocks_themselves(made: Made) -> None:
    assert blocks(made, "s", "abab+", "abab+", "h") == [(1, 6), (6, 11)]
    assert blocks(made, "abc", "yzyz", "h") == []


def test_a_boundary_is_where_the_unit_of_the_parameters_changes(made: Made) -> None:
    forward, weights, *_ = chain(made, "e", "np", "np", "h")
    assert boundaries(forward, weights, {1: "x", 2: "x", 3: "y", 4: "y"}) == {1, 3, 5}


def test_parameters_are_wrapped_as_the_layout_asks(made: Made) -> None:
    units = [Unit(k, [], parameters=[parameter(made, k, letters, k)]) for k, letters in enumerate(("a", "ab", ""))]
    units[2].parameters = []
    model = made_model(made, units)

    def found(wanted: str | None) -> list[tuple[str, list[int], tuple[int, int]]]:
        wraps = chosen_wraps(model, wanted, lambda one: made.extents.sizes(one.shape))
        return [(wrap.label, wrap.parameters, wrap.units) for wrap in wraps]

    assert found(None) == [("", [0, 1], (0, 2))]
    assert found("each") == [("unit 0", [0], (0, 0)), ("unit 1", [1], (1, 1))]
    assert found("20") == [("", [0], (0, 2)), ("unit 1", [1], (1, 1))]
    model.blocks = [Wrap("", [1]), Wrap("block 0", [0])]
    assert found(None) == [("", [1], (-1, -1)), ("block 0", [0], (-1, -1))]
    model.trace = type("T", (), {"file": "x"})()
    with pytest.raises(UsageError, match="x: no recorded module has the class Block"):
        found("Block")


def test_modules_of_a_class_are_units_from_their_first_to_their_last_parameter(made: Made) -> None:
    weights = Weights([parameter(made, k, letter) for k, letter in enumerate("aaabb")])
    weights.by_number = {70 + one.number: one for one in weights.parameters}
    reads = [[(71, "a")], [(70, "a"), (71, "a")], [(72, "a")], [(73, "b"), (70, "a")], [(74, "b")]]
    units = [Unit(k, [made.call("aten::mul", read)], parameters=weights.parameters) for k, read in enumerate(reads)]
    names = ["x", *(f"nn.Module: {name}" for name in ("Net_0", "Block_0", "Block_1", "Head_0", "Head_1"))]
    modules = dict(zip(range(1, 6), ([0, 1, 2], [1, 2], [1, 3], [1, 4], [5]), strict=True))
    trace = SimpleNamespace(names=names, hierarchy=SimpleNamespace(path=range(9), regions=modules.get))
    model = made_model(made, units, weights=weights, trace=trace)
    found = [(wrap.label[-7:], wrap.parameters, wrap.units) for wrap in chosen_wraps(model, "Block", lambda one: ())]
    assert found == [("", [3, 4], (0, 4)), ("Block_0", [0, 1], (0, 1)), ("Block_1", [2], (2, 2))]
    assert candidates(model) == "Head (2 modules) or Block (2 modules)"  # of 10 and 8 elements
    names[3], names[5], units[0].parameters = "nn.Module: Other_0", "y", []
    assert candidates(model).startswith("each (4 units) or a minimum number of elements")


def test_sums_of_gradients_over_units_are_in_place_only_without_units(made: Made) -> None:
    def found(third: str, *added: tuple[int, ...], labels: str = "xyz", wrapped: bool = True) -> list[int]:
        """Unit 2 makes tensor 50 and unit 1 (at -1) tensor 51; unit 0 adds two in place, or reads one."""
        calls = [made.call("aten::add_" if one[1:] else "aten::relu", [(k, "n") for k in one]) for one in added]
        units = [Unit(0, [], calls), Unit(1, [], [made.call("aten::add", [(1, "n")], [(51, "n")])]),
                 Unit(2, [], [made.call(third, [(2, "n")], [(50, "n")])])]  # fmt: skip
        wraps = [Wrap("", [9], (0, 2)), *(Wrap(label, [k], (k, k)) for k, label in enumerate(labels) if label != "-")]
        rows = {call.row: at for at, call in enumerate([*units[1].backward, *calls], -1)}
        return [rows[row] for row in sums_of_units(made_model(made, units, wraps=wraps if wrapped else []), wraps)]

    assert found("aten::mm", (50, 51)) == [-1] and found("aten::add", (50, 52), (50, 51), (50, 5), wrapped=False) == [1]
    assert found("aten::mm", (50, 52)) == [] == found("aten::mm", (50, 52), (50, 51), wrapped=False)
    assert not any(found("aten::mm", (50, 51), labels=labels) for labels in ("x-z", "xzz", "zyz", "xy-"))
    assert found("aten::mm", (50,), (50, 51)) == [] == found("aten::add", (50, 51), (51, 52), wrapped=False)
