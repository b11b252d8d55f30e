"""Norms of gradients, passes of a step, parts of parameters: on made calls."""

from types import SimpleNamespace
from typing import Any

import pytest
from etplus.planning.reshard.clipping import _FINITE, Clipping, find_clipping, whole_gradients
from etplus.planning.reshard.items import CommOp, Shard, SyntheticOp
from etplus.planning.reshard.model import Region, Unit, Weights
from etplus.planning.reshard.step_calls import split_step
from etplus.planning.reshard.weights import _owners
from made_step_calls import Made, made_model, parameter


@pytest.fixture
def made() -> Made:
    return Made(a=3, b=4, t=2, p=2)


def weights_of(made: Made, part: Shard | None = None) -> Weights:
    """Parameters in the storages 121 and 122, whose gradients are in 151 and 152."""
    parameters = [parameter(made, 0, "ba"), parameter(made, 1, "b")]
    found = Weights(parameters, by_storage={121 + k: [Region(0, 99, parameters[k])] for k in range(2)}, part=part)
    step = made.call("step", [], [], made.call("aten::add_", [(21, "ba"), (51, "ba")]),
                     made.call("aten::add_", [(22, "b"), (52, "b")]))  # fmt: skip
    found.optimizer = [(step, list(_owners(step, found.of)))]
    return found


def test_norms_sums_and_copies_of_gradients_are_told_apart(made: Made) -> None:
    early = made.call("aten::linalg_vector_norm", [(60, "t")], [(61, "")])
    norms = [
        made.call("aten::linalg_vector_norm", [(51 + k, side)], [(62 + k, "")]) for k, side in enumerate(("ba", "b"))
    ]
    total = made.call("aten::linalg_vector_norm", [(64, "t")], [(65, "")])
    other = made.call("aten::linalg_vector_norm", [(66, "a")], [(67, "")])
    scaled = made.call("aten::mul_", [(51, "ba"), (65, "")], [(51, "ba")])
    finite = made.call("outer", [], [], made.call(_FINITE, [[(51, "ba"), (52, "b")]]))
    summed = made.call("aten::sum", [(51, "ba")], [(68, "")])
    averaged = made.call("aten::lerp_", [(71, "ba"), (21, "ba"), (72, "b")])
    after = [early, *norms, total, other, scaled, finite, summed, averaged]
    model = made_model(
        made, [Unit(0, [], parameters=weights_of(made).parameters)], after=after, weights=weights_of(made)
    )
    assert find_clipping(model) == Clipping(
        frozenset({151, 152}), frozenset({total.row}), frozenset({summed.row}), frozenset({finite.row}),
        frozenset({171, 121}),
    )  # fmt: skip


def test_norms_of_shards_are_summed_over_ranks_as_powers(made: Made) -> None:
    total = made.call("aten::linalg_vector_norm", [(64, "t")], [(65, "")], dtype="bfloat16")
    power = SyntheticOp("aten::pow", ((2,),), ((2,),), "bfloat16", 2)
    reduced = CommOp("all_reduce", "dp", (2,), 2, "bfloat16", 2, functional=True)
    assert list(Clipping().reduced(total)) == [power, reduced, power]


def test_gradients_of_shards_become_whole_and_the_powers_of_a_recorded_sum_go(made: Made) -> None:
    weights = weights_of(made, Shard(2, 0, flat=False))
    norm = made.call("aten::linalg_vector_norm", [(51, "pa")], [(61, "")])
    power, other = made.call("aten::pow", [(62, "t")]), made.call("aten::pow", [(63, "a")])
    shapes: Any = SimpleNamespace(extents=made.extents)
    assert whole_gradients([norm, power, other], weights, shapes) == [norm, other]
    assert norm.input_shapes == [made.shape("ba")] and other.input_shapes == [made.shape("a")]


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("sizes", [(7, 3), (4, 3), (2, 5), (1,), (10,)])
def test_parts_add_up_to_the_whole(sizes: tuple[int, ...], flat: bool) -> None:
    rows = sizes[0] if not flat else sizes[0] * (sizes[1] if len(sizes) > 1 else 1)
    parts = [Shard(3, index, flat).of(sizes) for index in range(3)]
    most = (rows + 2) // 3
    assert [part[0] for part in parts] == [len(range(rows)[most * k : most * (k + 1)]) for k in range(3)]
    assert all(part[1:] == ([] if flat else list(sizes[1:])) for part in parts)
    rest = 1 if flat or len(sizes) == 1 else sizes[1]
    assert {Shard(3, index, flat).padded(sizes) for index in range(3)} == {most * rest}


def test_a_scalar_is_whole_or_lies_in_the_first_flat_shard() -> None:
    assert Shard(2, 1, flat=False).of(()) == [] and Shard(2, 1, flat=False).padded(()) == 1
    assert Shard(2, 0, flat=True).of(()) == [1] and Shard(2, 1, flat=True).of(()) == [0]
    assert Shard(4, 0, flat=True).padded((3, 3)) == 3 and Shard(4, 0, flat=False).padded((3, 3)) == 3


def test_elements_and_bytes_of_items_follow_from_their_shapes() -> None:
    comm = CommOp("all_gather", "dp", (2, 3), 12, "float32", 4)
    assert comm.elements == 6 and (comm.peer, comm.key, comm.functional) == (-1, None, False)
    add = SyntheticOp("aten::add_", ((2, 3), ()), ((2, 3),), "float32", 4)
    assert add.bytes == 4 * (6 + 1 + 6) and add.schema.startswith("aten::add_.Tensor(")
    assert SyntheticOp("fsdp::split_with_sizes_copy", (), (), "float32", 4).schema == ""


BACK = "autograd::engine::evaluate_function: X"


def shown(*calls: Any) -> list[tuple[list[int], list[int]]]:
    return [([call.row for call in forward], [call.row for call in back]) for forward, back in split_step(calls).passes]


def test_a_forward_pass_is_one_whose_backward_follows() -> None:
    made = Made()
    forward = [made.call("aten::a", sequence=k) for k in (1, 2)]
    back = [made.call(BACK, [], [], made.call("aten::b", sequence=k)) for k in (2, 1)]
    again = made.call("aten::a", sequence=0)
    other, last = (made.call(BACK, [], [], made.call("aten::b", sequence=k)) for k in (9, 0))
    hook, after = made.call("aten::hook"), made.call("aten::norm")
    step = made.call("Optimizer.step#SGD.step", operator=False)
    zero = made.call("Optimizer.zero_grad#SGD.zero_grad", operator=False)
    rows = [call.row for call in forward]
    assert shown(zero, *forward, *back, again, other, last, after, step) == [
        (rows, [call.row for call in back]), ([again.row], [other.row, last.row]),
    ]  # fmt: skip
    assert shown(*forward, back[0], hook, back[1], step) == [(rows, [back[0].row, hook.row, back[1].row])]
    found = split_step([zero, *forward, *back, after, step])
    assert found.before == [zero] and found.after == [after] and found.steps == [step]
    assert shown(*forward, after) == [([*rows, after.row], [])]  # of inference


def test_of_several_steps_the_last_whole_one_counts() -> None:
    made = Made()
    steps = [made.call("Optimizer.step#SGD.step", operator=False) for _ in range(3)]
    forward = [made.call("aten::a", sequence=k) for k in range(2)]
    back = [made.call(BACK, [], [], made.call("aten::b", sequence=k)) for k in range(2)]
    found = split_step([steps[0], forward[0], back[0], steps[1], forward[1], back[1], steps[2]])
    assert found.passes == [([forward[1]], [back[1]])] and found.steps == [steps[2]]
