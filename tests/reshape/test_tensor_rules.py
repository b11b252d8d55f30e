"""What the shape rules of operators that move, join and reduce tensors say of calls with extents of several sizes."""

from __future__ import annotations

from typing import Any

import pytest
from etplus.reshape.shapes.tensor_rules import TENSOR_RULES
from shape_rules import T, related

CASES: list[tuple[str, list[Any], list[T], list[T], str]] = [
    ("add", [T((4, 1, 7)), T((5, 7)), 1], [T((4, 5, 7))], [T((4, 5, 7)), T((4, 4))], "abc dc adc adc ef"),
    ("_foreach_add", [[T((3,)), T((5, 2))], [T((3,)), T((5, 2))], T((1,))], [], [], "a bc a bc d"),
    ("relu", [T((3, 5))], [], [T((3, 5))], "ab cd"),
    ("view", [T((6, 5))], [T((2, 15))], [], "ab cd; a=c*e; d=e*b"),
    ("view", [T((6, 5))], [T((30,))], [], "ab c; c=a*b"),
    ("reshape", [T((6, 5))], [T((31,))], [], "ab c; c~ab"),
    ("transpose", [T((3, 5, 7)), 0, -1], [T((7, 5, 3))], [], "abc cba"),
    ("transpose", [T((3,))], [T((3,))], [], "a a"),
    ("t", [T((3, 5))], [T((5, 3))], [], "ab ba"),
    ("permute", [T((3, 5, 7)), [2, -3, 1]], [T((7, 3, 5))], [], "abc cab"),
    ("permute", [T((3, 5, 7)), [2, 0]], [T((7, 3))], [], "abc de"),
    ("numpy_T", [T((3, 5, 7))], [T((7, 5, 3))], [], "abc cba"),
    ("sort", [T((3, 5)), 1], [T((3, 5)), T((3, 5))], [T((3, 5)), T((3,))], "ab ab ab ab c"),
    ("select", [T((3, 5, 7)), -2, 0], [T((3, 7))], [], "abc ac"),
    ("select", [T((3,)), 0, 0], [T(())], [], "a -"),
    ("slice", [T((9, 5)), 0, 0, 9], [T((9, 5))], [], "ab ab"),
    ("slice", [T((9, 5)), 0, 0, 8], [T((8, 5))], [], "ab cb; a=c+d"),
    ("slice", [T((9, 5)), 0, 0, 4], [T((4, 5))], [], "ab cb; c~a"),
    ("slice", [T((2, 5)), None, 0, 1], [T((1, 5))], [], "ab cb; c~a"),
    ("slice", [T((9, 5)), 0], [T((4,))], [], "ab c"),
    ("narrow", [T((9, 5)), -1, 0, 5], [T((9, 5))], [], "ab ab"),
    ("split", [T((9, 5)), 4, 0], [T((4, 5)), T((4, 5)), T((1, 5))], [], "ab cb db eb; a=c+d+e; c~a; d~a; e~a"),
    ("chunk", [T((9, 6)), 2, -1], [T((9, 3)), T((9, 3))], [], "ab ac ad; b=c+d; c~b; d~b"),
    ("split", [T((9, 6)), 3], [T((3, 6)), T((3, 6)), T((3, 6))], [], "ab cb db eb; a=c+d+e; c~a; d~a; e~a"),
    ("unbind", [T((2, 5)), 0], [T((5,)), T((5,))], [], "ab b b"),
    ("unbind", [T((5, 2)), 1], [T((5,)), T((5,))], [], "ab a a"),
    ("unbind", [T((2, 5))], [], [], "ab"),
    ("cat", [[T((3, 5)), T((4, 5)), T((0,))], 0], [T((7, 5))], [], "ab cb d eb; e=a+c"),
    ("cat", [[T((3, 5)), T((3, 2))], -1], [T((3, 7))], [], "ab ac ad; d=b+c"),
    ("cat", [[T((3, 5))]], [], [], "ab"),
    ("stack", [[T((3, 5)), T((3, 5))], 1], [T((3, 2, 5))], [], "ab ab acb; beside acb"),
    ("stack", [[T((3, 5)), T((3, 5))]], [T((2, 3, 5))], [], "ab ab cab; beside cab"),
    ("expand", [T((1, 5)), [3, 5]], [T((3, 5))], [], "ab cb"),
    ("repeat", [T((3, 1)), [4, 2, 6]], [T((4, 6, 6))], [], "ab cde; d=f!*a"),
    ("repeat", [T((3,)), [2]], [], [], "a"),
    ("sum", [T((3, 5, 7)), [1]], [T((3, 7))], [], "abc ac"),
    ("sum", [T((3, 5, 7)), [-1], True], [T((3, 5, 1))], [], "abc abd"),
    ("sum", [T((3, 5)), None], [T(())], [T((3, 5)), T((5,))], "ab - ab c"),
    ("mean", [T((3, 5)), []], [T(())], [], "ab -"),
    ("max", [T((3, 5)), 1], [T((3,)), T((3,))], [], "ab a a"),
    ("norm", [T((3, 5)), 2, [0]], [T((5,))], [], "ab b"),
    ("linalg_vector_norm", [T((3, 5)), 2, [1]], [T((3,))], [], "ab a"),
    ("sum", [T(()), [0]], [T(())], [], "- -"),
    ("mm", [T((3, 5)), T((5, 7))], [T((3, 7))], [T((3, 7)), T((9,))], "ab bc ac ac d!"),
    ("addmm", [T((7,)), T((3, 5)), T((5, 7))], [T((3, 7))], [], "a! bc ca! ba!"),
    ("addmm", [T((1, 7)), T((3, 5)), T((5, 7))], [T((3, 7))], [], "ab cd db cb"),
    ("bmm", [T((2, 3, 5)), T((2, 5, 7))], [T((2, 3, 7))], [], "abc acd abd"),
    ("baddbmm", [T((2, 1, 7)), T((2, 3, 5)), T((2, 5, 7))], [T((2, 3, 7))], [], "abc ade aec adc"),
    ("addbmm", [T((3, 7)), T((2, 3, 5)), T((2, 5, 7))], [T((3, 7))], [], "ab cad cdb ab"),
    ("mv", [T((3, 5)), T((5,))], [T((3,))], [], "ab b a"),
    ("addmv", [T((3,)), T((3, 5)), T((5,))], [T((3,))], [], "a ab b a"),
    ("dot", [T((3,)), T((3,))], [T(())], [], "a a -"),
    ("outer", [T((3,)), T((5,))], [T((3, 5))], [], "a b ab"),
    ("linear", [T((2, 3, 5)), T((7, 5)), T((7,))], [T((2, 3, 7))], [], "abc! d!c! d! abd!"),
    ("linear", [T((5,)), T((7, 5))], [T((7,))], [], "a! b!a! b!"),
    ("embedding", [T((50, 8)), T((3, 4))], [T((3, 4, 8))], [], "a!b! cd cdb!"),
    ("embedding_dense_backward", [T((3, 4, 8)), T((3, 4)), 50], [T((50, 8))], [], "abc! ab d!c!"),
    ("index", [T((9, 5, 7)), [T((3, 4))]], [T((3, 4, 5, 7))], [], "abc de debc"),
    ("index", [T((9, 5, 7)), [None, T((3,)), T((1,))]], [T((9, 3))], [T((9, 3))], "abc d e ad ad"),
    ("index", [T((9, 5, 7)), [T((3,)), None, T((3,))]], [T((3, 5))], [], "abc d e fg"),
    ("index_put", [T((9, 5)), [T((3,))], T((3, 5))], [T((9, 5))], [], "ab c cb ab"),
    ("index_select", [T((9, 5)), 0, T((4,))], [T((4, 5))], [], "ab c cb"),
    ("index_select", [T((9, 5)), -1, T((2,))], [T((9, 2))], [], "ab c ac"),
    ("gather", [T((9, 5)), 1, T((9, 2))], [T((9, 2))], [], "ab ac ac"),
    ("scatter", [T((9, 5)), 0, T((4, 5)), 0.0], [T((9, 5))], [], "ab cb de"),
    ("slice_backward", [T((8, 5)), [9, 5], 0, 0, 8], [T((9, 5))], [T((9, 5))], "ab cb cb; c=a+d"),
    ("slice_backward", [T((9, 4)), [9, 5], 1, 0, 4], [T((9, 5))], [], "ab ac; c=b+d"),
    ("select_backward", [T((3, 7)), [3, 5, 7], 1, 0], [T((3, 5, 7))], [T((3, 5, 7))], "ab acb acb"),
    ("topk", [T((3, 9)), 2, -1], [T((3, 2)), T((3, 2))], [], "ab ac! ad!"),
    ("one_hot", [T((3, 4)), 10], [T((3, 4, 10))], [T((3, 4, 10))], "ab abc! abc!"),
]  # fmt: skip
"""Operator, arguments, results, tensors made within, and what `related` says: classes of the tensors in this order."""


@pytest.mark.parametrize(("name", "given", "results", "temporaries", "expected"), CASES)
def test_a_rule(name: str, given: list[Any], results: list[T], temporaries: list[T], expected: str) -> None:
    assert related(TENSOR_RULES[name], name, given, results, temporaries) == expected
