"""What a shape rule says of a made call (see golden_rules.py), by hand."""

from typing import Any

import pytest
from etplus.planning.reshape.shapes.layer_rules import LAYER_RULES
from etplus.planning.reshape.shapes.tensor_rules import TENSOR_RULES
from golden_rules import CASES, T, related


@pytest.mark.parametrize(("name", "given", "results", "temporaries", "expected"), CASES)
def test_a_rule_links_sizes(name: str, given: list[Any], results: list[T], temporaries: list[T], expected: str) -> None:
    assert related((TENSOR_RULES | LAYER_RULES)[name], name, given, results, temporaries, False) == expected
