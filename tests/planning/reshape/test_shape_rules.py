"""What a shape rule says of a made call (see golden_rules.py), by hand."""

from typing import Any

import pytest
from etplus.planning.reshape.shapes.followed_calls import roles
from etplus.planning.reshape.shapes.layer_rules import LAYER_RULES
from etplus.planning.reshape.shapes.tensor_rules import TENSOR_RULES
from etplus.planning.reshape.shapes.terms import OpCall, Operand
from golden_rules import CASES, T, related


@pytest.mark.parametrize(("name", "given", "results", "temporaries", "expected"), CASES)
def test_a_rule_links_sizes(name: str, given: list[Any], results: list[T], temporaries: list[T], expected: str) -> None:
    assert related((TENSOR_RULES | LAYER_RULES)[name], name, given, results, temporaries, False) == expected


def test_operators_mix_elements_along_some_extents() -> None:
    for name, value, mixed in (
        ("mean", [-1], (3,)), ("mean", [0, 1], (1, 2)), ("sum", [], ()), ("sum", [0, 1, 2], ()), ("select", -2, (2,)),
    ):  # fmt: skip
        assert roles(OpCall(name, (Operand(((1, 2, 3),)), Operand(value=value)), ())) == ((), mixed), (name, value)
