"""Norms of gradients between backward and the optimizer, on made calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from etplus.planning.reshard.clipping import _FINITE, Clipping, find_clipping, whole_gradients
from etplus.planning.reshard.items import CommOp, Shard, SyntheticOp
from etplus.planning.reshard.model import Region, Unit, Weights
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
    """A norm of as many numbers as there are parameters is the total one only behind norms of gradients."""
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
    assert list(Clipping().reduced(total, 2)) == [power, reduced, power]


def test_gradients_of_shards_become_whole_and_the_powers_of_a_recorded_sum_go(made: Made) -> None:
    weights = weights_of(made, Shard(2, 0, flat=False))
    norm = made.call("aten::linalg_vector_norm", [(51, "pa")], [(61, "")])
    power, other = made.call("aten::pow", [(62, "t")]), made.call("aten::pow", [(63, "a")])
    shapes: Any = SimpleNamespace(extents=made.extents)
    assert whole_gradients([norm, power, other], weights, shapes) == [norm, other]
    assert norm.input_shapes == [made.shape("ba")] and other.input_shapes == [made.shape("a")]
