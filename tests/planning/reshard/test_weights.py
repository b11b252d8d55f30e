"""Parameters, gradients and buffers, on made calls: by memory, by shapes, by use; whose gradients and updates."""

from types import SimpleNamespace
from typing import Any

import pytest
from etplus.planning.reshard.buffers import broadcasts, find_buffers, unreached_weights
from etplus.planning.reshard.items import Shard
from etplus.planning.reshard.model import ACCUMULATE, Buffer, RecordedWrap, Region, Unit, Weights, accumulations
from etplus.planning.reshard.units import assign_gradients
from etplus.planning.reshard.weights import _owners, find_weights, gradients_of, lists_of, make_whole, relate_gathered
from made_step_calls import Made, made_model, parameter


@pytest.fixture
def made() -> Made:
    return Made(a=3, b=4, c=5, d=4, n=8)


def regions(of: dict[int, Any]) -> dict[int, list[Region]]:
    return {storage: [Region(0, 1 << 40, one)] for storage, one in of.items()}


def test_gradients_within_a_checkpointed_backward_pass_are_assigned(made: Made) -> None:
    weight, inside, given = (made.call(ACCUMULATE, [(number, "ab" if number < 9 else "nb")]) for number in (7, 8, 9))
    again = made.call("autograd::engine::evaluate_function: CheckpointFunctionBackward", [], [], inside, given)
    parameters = [parameter(made, 0, "ab"), parameter(made, 1, "ab")]
    unit = Unit(0, [], [weight, again], parameters)
    assert list(accumulations(unit.backward)) == [weight, inside, given]
    assert assign_gradients(made_model(made, [unit], batch=made.of["n"], weights=Weights(parameters))) == 0
    assert unit.ready == {weight.row: parameters[1], inside.row: parameters[0]}
    assert all(one.accumulates for one in parameters)


def test_parameters_are_memory_that_the_optimizer_changes(made: Made) -> None:
    shapes: Any = SimpleNamespace(extents=made.extents)
    forward = [
        made.call("aten::cat", [[(31, "a"), (1, "a")]], [(2, "n")]),  # a class token, by no operator with weights
        made.call("aten::t", [(21, "ba")], [(41, "ab")]), made.call("aten::mul", [(2, "n"), (22, "b")], [(3, "b")]),
        made.call("aten::mm", [(3, "b"), (41, "ab")], [(4, "b")]), made.call("aten::add", [(4, "b"), (21, "ba")]),
    ]  # fmt: skip
    forward[1].record["outputs"]["values"][0][1] = forward[3].record["inputs"]["values"][1][1] = 121  # views of 21
    calls = [
        made.call("aten::mul_", [(70, "b"), (71, "b")]), made.call("aten::add_", [(22, "b"), (70, "b")]),
        made.call("aten::add_", [(21, "ba"), (72, "ba")]), made.call("aten::add_", [(31, "a"), (73, "a")]),
    ]  # fmt: skip
    step = made.call("Optimizer.step#SGD.step", [], [], *calls, operator=False)
    found = find_weights([step], shapes, forward)
    assert found.evidence == "optimizer"
    assert [(one.number, one.shape) for one in found.parameters] == [
        (0, made.shape("b")), (1, made.shape("ba")), (2, made.shape("a")),
    ]  # fmt: skip
    assert [[one.number for one in found.taken(call)] for call in forward] == [[2], [1], [0], [1], [1]]
    gradients = {storage: one.number for (storage, _), one in gradients_of(found).items()}
    assert gradients == {170: 0, 171: 0, 172: 1, 173: 2}


def test_without_updates_parameters_are_what_layers_use(made: Made) -> None:
    forward = [made.call("aten::linear", [(1, "na"), (21, "ba"), (22, "b")], [(2, "nb")]), made.call("aten::x")]
    step = made.call("Optimizer.step#SGD.step", [], [], operator=False)
    found = find_weights([step], SimpleNamespace(extents=made.extents), forward)  # type: ignore[arg-type]
    assert (found.evidence, found.optimizer, found.by_number.keys()) == ("use", [(step, [])], {21, 22})
    assert [(one.number, one.shape) for one in found.parameters] == [(0, made.shape("ba")), (1, made.shape("b"))]


def test_buffers_are_written_or_have_no_sample(made: Made) -> None:
    shapes: Any = SimpleNamespace(extents=made.extents, sources=[])
    forward = [
        made.call("aten::add_", [(60, "")], [(60, "")]),
        made.call("aten::batch_norm", [(1, "na"), (21, "a"), (22, "a"), (61, "a"), (62, "a")], [(2, "na")]),
        made.call("aten::mul", [(2, "na"), (63, "ca")], [(3, "na")]), made.call("aten::add", [(3, "na"), (64, "")]),
        made.call("aten::add", [(3, "na"), (65, "na")]),
        made.call("aten::linear", [(3, "na"), (66, "ca")], [(4, "nc")]),
        made.call("aten::x", [(2, "na"), (2, "na"), (2, "na"), (67, "a")]),
    ]  # fmt: skip
    weights = Weights(by_storage=regions({121: parameter(made, 0, "a"), 122: parameter(made, 1, "a")}))
    found, frozen = find_buffers(weights, forward, {made.of["n"]}, shapes)
    written = [((), True), ((3,), True), ((3,), True), ((5, 3), False), ((3,), False)]
    assert [(one.sizes, one.written) for one in found] == written
    assert [(one.number, one.shape, one.storage) for one in frozen] == [(0, made.shape("ca"), 166)]
    weights.freeze(frozen)
    assert list(weights.read(forward[-2])) == frozen and not list(weights.taken(forward[-2]))


def test_a_constant_with_the_number_of_samples_is_a_buffer_if_it_stays(made: Made) -> None:
    made.of["k"], made.of["w"] = made.extents.new(8), made.extents.new(16)
    shapes: Any = SimpleNamespace(extents=made.extents, sources=[])
    forward = [made.call("aten::mul", [(2, "n"), (60, "k")], [(3, "nk")])]
    assert find_buffers(Weights(), forward, {made.of["n"]}, shapes) == ([], [])
    made.extents.sum_of(made.of["w"], [made.of["k"], made.of["k"]])
    made.extents.fix([made.of["w"]])
    (buffer,), _ = find_buffers(Weights(), forward, {made.of["n"]}, shapes)
    assert buffer.sizes == (8,)


def test_batch_norms_in_evaluation_have_counters_that_no_call_takes(made: Made) -> None:
    shapes: Any = SimpleNamespace(extents=made.extents, sources=[])
    norm = made.call("aten::batch_norm", [(1, "na"), (21, "a"), (22, "a"), (61, "a"), (62, "a")], [(2, "na")])
    weights = Weights(by_storage=regions({121: parameter(made, 0, "a"), 122: parameter(made, 1, "a")}))
    for training, sizes in ((True, [((3,), 4)] * 2), (False, [((3,), 4), ((3,), 4), ((), 8)])):
        norm.record["inputs"]["values"][5:] = [training]
        found, _ = find_buffers(weights, [norm, norm], {made.of["n"]}, shapes)
        assert [(one.sizes, one.itemsize) for one in found] == sizes


def test_buffers_are_broadcast_in_the_order_of_each_types_first() -> None:
    counter, mean = Buffer((), "int64", 8, written=True), Buffer((4,), "float32", 4, written=True)
    index, mask = Buffer((9, 9), "int64", 8, written=False), Buffer((9,), "float32", 4, written=False)
    assert broadcasts([counter, mean, mean]) == [("float32", 4, [(4,), (4,)]), ("int64", 8, [(1,)])]
    assert broadcasts([index, counter, mask]) == [("int64", 8, [(81,), (1,)]), ("float32", 4, [(9,)])]


def test_what_is_gathered_again_has_the_extents_of_its_parameter(made: Made) -> None:
    known, sizes = parameter(made, 0, "ba"), [made.extents.new(size) for size in (4, 3)]
    made.of["x"], made.of["y"] = sizes
    again = made.call("aten::t", [(50, "xy")])
    relate_gathered(Weights(by_number={50: known}), [again], SimpleNamespace(extents=made.extents))  # type: ignore[arg-type]
    assert made.extents.roots(again.input_shapes[0]) == made.extents.roots(known.shape)


def test_lists_of_an_optimizer_call_are_matched_with_parameters(made: Made) -> None:
    weights = [parameter(made, number, letters) for number, letters in enumerate(("ba", "ba", "b", "b", "b"))]
    matrices = [(21, "ba"), (22, "ba")], [(51, "ba"), (52, "ba")]
    biases = [(23, "b"), (24, "b"), (25, "b")], [(53, "b"), (54, "b"), (55, "b")]
    calls = [
        made.call("aten::_foreach_lerp_", [[(31, "ba"), (32, "ba")], matrices[1]]),
        made.call("aten::_foreach_add_", [matrices[0], [(31, "ba"), (32, "ba")]]),
        made.call("aten::_foreach_add_", list(biases)),
    ]
    of = Weights(weights, by_storage=regions({121 + k: weights[k] for k in range(5)}))
    step = made.call("Optimizer.step", [], [], *calls)
    of.optimizer, of.lists = [(step, list(_owners(step, of.of)))], lists_of(calls, of.of, weights)
    assert [of.lists_of(call)[2] for call in calls[:2]] == [weights[:2]] * 2
    assert of.lists_of(calls[2])[3] == weights[2:]
    found = {storage: one.number for (storage, _), one in gradients_of(of).items()}
    assert {storage: found[storage] for storage in range(151, 156)} == {151 + k: k for k in range(5)}


def test_parts_in_lists_become_whole(made: Made) -> None:
    made.of["p"], made.of["q"] = made.extents.new(2), made.extents.new(8)
    weights = [parameter(made, 0, "ba"), parameter(made, 1, "qa")]
    each = made.call("aten::add_", [(22, "ba"), (52, "ba")])
    call = made.call("aten::_foreach_add_", [[(22, "ba"), (21, "pa")], [(52, "ba"), (51, "pa")]], [], each)
    shapes: Any = SimpleNamespace(extents=made.extents)
    assert each.input_shapes == [made.shape("ba")] * 2
    make_whole(call, {2: weights[::-1]}, Weights(weights, part=Shard(2, 0, flat=False)), shapes)
    assert call.inputs == ((made.shape("qa"), made.shape("ba")),) * 2
    assert each.input_shapes == [made.shape("qa")] * 2


def test_weights_of_layers_that_no_backward_reaches_have_no_gradient(made: Made) -> None:
    forward = [
        made.call("aten::linear", [(1, "na"), (21, "ba")], [(2, "nb")], sequence=0),
        made.call("aten::linear", [(1, "na"), (22, "ba")], [(3, "nb")], sequence=1),
    ]
    back = [made.call("aten::mm", sequence=1)]
    assert unreached_weights([(forward, back)], Weights()) == {121}
    known = Weights(by_storage=regions({121: parameter(made, 0, "ba")}))
    assert unreached_weights([(forward, back)], known) == set() == unreached_weights([(forward, [])], Weights())


def test_parameters_are_found_within_packed_memory_by_offset(made: Made) -> None:
    first, second = parameter(made, 0, "a"), parameter(made, 1, "b")
    weights = Weights(by_storage={100: [Region(0, 10, first), Region(10, 30, second)]}, by_number={7: first})
    within = {
        (0, 5): [first], (9, 1): [first], (10, 5): [second], (29, 1): [second], (0, 30): [first, second],
        (5, 25): [first, second], (5, 24): [first], (30, 5): [],
    }  # fmt: skip
    for (begin, count), expected in within.items():
        assert list(weights.within([1, 100, begin, count])) == expected, (begin, count)
    assert weights.within([7, 999, 0, 1]) == (first,) and weights.within([8, 999, 0, 1]) == ()


def test_gathered_memory_holds_the_shards_that_were_gathered_last(made: Made) -> None:
    made.of["p"], shapes = made.extents.new(2), SimpleNamespace(extents=made.extents)
    sides: Any = [[(30, "ba")], [(31, "b")]], [[(31, "b"), (41, "b")]], [[(40, "cb")]]
    forward = [made.call("aten::x", *each) for each in sides]
    forward[1].record["inputs"]["values"][1][1], forward[2].record["inputs"]["values"][0][1] = 131, 130
    gathered = [RecordedWrap("y", (503, 504), [(25, (130,))]), RecordedWrap("x", (501, 502), [(10, (130, 131))])]
    one = made.call("aten::add_", [(402, "p"), (452, "p")])
    both = made.call("aten::_foreach_add_", [[(401, "pa"), (402, "p")]])
    step = made.call("Optimizer.step", [], [], made.call("aten::mul", [(403, "p")]), one, both)
    for part, elements in ((None, [4, 12, 20]), (Shard(2, 0, flat=False), [2, 6, 12])):
        found = find_weights([step], shapes, forward, gathered, part)  # type: ignore[arg-type]
        assert [weight.elements for weight in found.parameters] == elements
    assert {number: weight.number for number, weight in found.by_number.items()} == {41: 0, 30: 1, 40: 2}
    shown = [*(weight.shape for weight in found.parameters), *one.input_shapes, *both.input_shapes]
    assert shown == [*map(made.shape, ("b", "ba", "cb", "b", "b", "ba", "b"))]


def test_updates_of_other_memory_belong_to_weights_of_equal_sizes(made: Made) -> None:
    made.of |= {"x": made.extents.new(4), "y": made.extents.new(3)}
    forward = [
        made.call("aten::div", [(83, "b")], dtype="int64"), made.call("aten::t", [(21, "ba")], [(41, "ab")]),
        made.call("aten::linear", [(2, "nb"), (41, "ab"), (22, "b")], [(3, "nb")]), made.call("aten::div", [(23, "b")]),
    ]  # fmt: skip

    def found(*calls: Any) -> Weights:
        return find_weights([made.call("step", [], [], *calls)], SimpleNamespace(extents=made.extents), forward)  # type: ignore[arg-type]

    bias, matrix = made.call("aten::add_", [(61, "x"), (62, "xy")]), made.call("aten::add_", [(62, "xy"), (61, "x")])
    single = found(bias, made.call("aten::add_", [(65, "a"), (72, "a")]), matrix, bias)
    assert {number: one.number for number, one in single.by_number.items()} == {22: 0, 21: 1}
    assert [owner and owner.number for _, owner in single.optimizer[0][1]] == [0, 1, 1, 0]
    assert single.evidence == "shapes" and made.extents.root(made.of["x"]) == made.extents.root(made.of["b"])
    assert [*found(bias, made.call("aten::_foreach_add_", [[(62, "xy"), (61, "x")]])).by_number] == [21, 22]
