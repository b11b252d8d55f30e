"""Inputs of calls between Kineto's form and the ET's, value by value."""

from itertools import product
from typing import Any

import msgspec
import pytest
from etplus.schemas.execution_trace.arguments import DecodedSide, UndecodedSide
from etplus.schemas.kineto.input_args import (
    NO_TENSORS,
    et_inputs,
    input_args,
    input_shapes,
    inputs_key,
    other_input,
    recorded_inputs,
)

EVENT = {
    "args": {
        "Concrete Inputs": ["", "1", "[1, -2]", "True", "0.5", "[3", "", ""],
        "Input Dims": [[2, 3], [], [], [], [], [], [[4], [5, 6]], [[[1]], [[2], [3]]]],
        "Input type": ["float", "Scalar", "ScalarList", "Scalar", "Scalar", "Scalar", "TensorList", ""],
        "Input Strides": [[3, 1], [], [], [], [], [], [[1], [6, 1]], []],
    }
}


def in_terms_of_ets(event: Any) -> Any:
    (text,) = et_inputs([recorded_inputs(msgspec.json.encode(event))], {})
    return msgspec.json.decode(text)


def changed(**args: Any) -> Any:
    return {"args": {**EVENT["args"], **{key.replace("_", " "): value for key, value in args.items()}}}


def test_what_kineto_records_in_the_terms_of_ets() -> None:
    found = in_terms_of_ets(EVENT)
    assert found["values"] == ["", 1, [1, -2], True, 0.5, "[3", "", ""]
    assert found["shapes"] == EVENT["args"]["Input Dims"] and found["strides"] == EVENT["args"]["Input Strides"]
    unknown = "Tensor(unknown)"
    assert found["types"] == [
        "Tensor(float)", "Scalar", "ScalarList", "Scalar", "Scalar", "Scalar", f"GenericList[{unknown},{unknown}]",
        "None",
    ]  # fmt: skip
    lists = in_terms_of_ets(changed(Input_type=["float"] * 7 + ["GenericList"]))["types"]
    assert lists[7] == f"GenericList[GenericList[{unknown}],GenericList[{unknown},{unknown}]]"
    assert lists[6] == f"GenericList[{unknown},{unknown}]" and lists[0] == "Tensor(float)"


def test_recorded_input_lists_of_the_wrong_length_are_left_out() -> None:
    assert in_terms_of_ets(changed(Concrete_Inputs=["1"]))["values"] == [""] * 8
    assert in_terms_of_ets(changed(Concrete_Inputs=["7"] * 8))["values"] == ["7", 7, 7, 7, 7, 7, "7", 7]
    assert "strides" not in in_terms_of_ets(changed(Input_Strides=[[1]]))
    assert "strides" not in in_terms_of_ets({"args": {}})
    nothing = msgspec.json.decode(NO_TENSORS)
    for broken in (changed(Input_Dims=[[1]]), changed(Input_type=[1] * 8), {"args": {}}):
        assert in_terms_of_ets(broken) == nothing == {"values": [], "shapes": [], "types": []}


def test_equal_inputs_are_made_once_and_those_that_cannot_be_read_are_none() -> None:
    key, known = recorded_inputs(msgspec.json.encode(EVENT)), dict[Any, bytes]()
    first = et_inputs([key, key], known)
    assert len(known) == 1 and first[0] is first[1] is et_inputs([key], known)[0]
    assert recorded_inputs(b"[1]") is None and recorded_inputs(b'{"args": 1}') is None
    deep = (b"[" * 5000 + b"]" * 5000, b"[]", b"[]", b"[]")
    assert et_inputs([deep], {}) == [NO_TENSORS]


def test_input_shapes_leave_out_inputs_that_are_no_tensors() -> None:
    assert input_shapes(msgspec.json.encode(EVENT)) == [[2, 3], [[4], [5, 6]], [[[1]], [[2], [3]]]]
    assert input_shapes(b'{"args": {"Input Dims": 1}}') == input_shapes(b"{}") == input_shapes(b"x") == []


def side(types: list[str], values: list[Any], shapes: list[Any], strides: list[Any] | None) -> DecodedSide:
    return DecodedSide(values, shapes, types, strides, True)


@pytest.mark.parametrize(("from_et", "numbers"), [(True, "ScalarList"), (False, "TensorList")])
def test_an_et_s_inputs_as_kineto_writes_them(from_et: bool, numbers: str) -> None:
    tensor = [1, 2, 0, 6, 4, "cpu"]
    types = ["Tensor(c10::Half)", "Int", "Double", "Bool", "GenericList[Int,Int]", "GenericList[Tensor(float)]", "None",
             "Scalar", "String"]  # fmt: skip
    values = [tensor, 7, 2.0, True, [1, 0.25], [tensor], None, 1e12, "sum"]
    shapes = [[2, 3], [], [], [], [[], []], [[3]], [], [], []]
    assert input_args(side(types, values, shapes, [[3, 1]] + [[]] * 8), from_et=from_et) == {
        "Input Dims": shapes, "Input Strides": [[3, 1]] + [[]] * 8,
        "Input type": ["c10::Half", "Scalar", "Scalar", "Scalar", numbers, "TensorList", "", "Scalar", ""],
        "Concrete Inputs": ["", "7", "2.", "True", "[1, 0.25]", "", "", "1000000000000", "sum"],
    }  # fmt: skip


def test_strides_that_do_not_fit_and_sides_that_are_not_whole() -> None:
    assert "Input Strides" not in input_args(side(["Int"], [1], [[]], []), from_et=True)
    assert "Input Strides" not in input_args(side(["Int"], [1], [[]], None), from_et=True)
    assert input_args(DecodedSide([1], [[]], ["Int"], None, False), from_et=True) == {}
    texts = input_args(side(["Double"] * 4, [1e10, -3.0, 0.1, "<None>"], [[]] * 4, None), from_et=True)
    assert texts["Concrete Inputs"] == ["10000000000", "-3.", "0.10000000000000001", ""]


@pytest.mark.parametrize(
    ("types", "values", "shapes", "recorded", "found"),
    [("Int", 3, [], ("3", [], "Scalar"), ""), ("Int", 3, [], ("4", [], "Scalar"), "3 in the ET, 4"),
     ("Tensor(float)", 3, [2], ("", [3], "Scalar"), ""), ("Tensor(float)", 3, [2], ("", [2], "Float"), ""),
     ("Tensor(float)", 3, [2], ("", [2], "double"), "float [2] in the ET, double [2]"),
     ("GenericList[Tensor(float)]", 3, [[3]], ("", [[4]], "TensorList"), "tensors [[3]] in the ET, TensorList [[4]]")],
)  # fmt: skip
def test_the_first_different_input_is_named(types: str, values: Any, shapes: Any, recorded: Any, found: str) -> None:
    given = UndecodedSide(*(msgspec.Raw(msgspec.json.encode([one])) for one in (values, shapes, types)))
    said = other_input(given, (*(msgspec.json.encode([one]) for one in recorded), b"[]"))
    assert said == (f"{found} in the Kineto trace (input 1)" if found else "")


def test_inputs_that_differ_in_ids_of_tensors_alone_have_one_key() -> None:
    values = ['[[7, 8, 0, 2, 4, "cuda:0"], 3]', '[[9, 1, 4, 2, 4, "cuda:0"], 3]', '[[7, 8, 0, 2, 4, "x"], 4]',
              '["", 3]', "[3]", "3", "[[[7]], [3]]", ""]  # fmt: skip
    types = ['["Tensor(float)", "Int"]', '["Tensor(half)", "Int"]', '["GenericList[Tensor(float)]", "Tuple"]',
             '["GenericList[Int,String]", "Int"]', '["Tuple", "Int"]', '["Int"]', "[1, 2]"]  # fmt: skip
    shown = dict[Any, dict[str, Any]]()
    for given, kinds in product(values, types):
        inputs = UndecodedSide(msgspec.Raw(given.encode()), msgspec.Raw(b"[[2], []]"), msgspec.Raw(kinds.encode()))
        args = input_args(inputs.decoded(), from_et=True)
        assert shown.setdefault(inputs_key(inputs), args) == args
    one, other = (
        UndecodedSide(msgspec.Raw(given.encode()), msgspec.Raw(b"[[2], []]"), msgspec.Raw(types[0].encode()))
        for given in values[:2]
    )
    assert inputs_key(one) == inputs_key(other) and shown[inputs_key(one)]["Concrete Inputs"] == ["", "3"]
