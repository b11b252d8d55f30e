"""Arguments as Execution Traces record them, of each kind, and why a call cannot be made again."""

from typing import Any

import pytest
from etplus.planning.measure.recorded_calls import (
    NOT_RECORDED,
    RecordedCall,
    _Arguments,
    _float,
    _split,
    _UncallableError,
    recorded_calls,
)
from recorded_ops import op, read_call, scalar, tensor, trace_of

X = tensor(1, 4, 8)


def found(*given: Any, schema: str = "aten::f(Tensor a, Tensor b, Tensor c) -> Tensor", **more: Any) -> Any:
    """The call as it is read."""
    return read_call(op(more.pop("name", "aten::f"), schema, *given, **more))


ARGUMENTS: list[tuple[Any, Any]] = [
    (X, {"tensor": 0}), (scalar(-3, "Int"), -3), (scalar(2**63 - 1, "SymInt"), 2**63 - 1), (scalar(True, "Bool"), True),
    (scalar(1.5, "Double"), 1.5), (scalar("inf", "Double"), {"float": "inf"}), (scalar("<None>", "Int"), None),
    (scalar(0, "None"), None), (scalar(0, "Generator"), None), (scalar("x", "String"), "x"),
    (scalar("cpu", "Device"), {"device": "device"}), (scalar("cuda:1", "Device"), {"device": "device"}),
    (([1, True], [[], []], "GenericList[Int,Bool]", [[], []]), [1, True]),
    (([X[0], "<None>"], [[4, 8], []], "GenericList[Tensor(float),None]", [[8, 1], []]), [{"tensor": 0}, None]),
    (([X[0]], [], "GenericList[Tensor(float)]", None), [{"tensor": 0}]),
    (("", [], "Tensor(nullptr (uninitialized))", []), None),
]  # fmt: skip


@pytest.mark.parametrize(("given", "expected"), ARGUMENTS)
def test_each_kind_of_recorded_argument_is_read_as_its_value(given: Any, expected: Any) -> None:
    call = found(given)
    assert isinstance(call, RecordedCall) and call.args == (expected,)


REASONS: list[tuple[Any, str]] = [
    (scalar(2**63, "Int"), "an argument of type 'Int' is not recorded"),
    (scalar(True, "Int"), "an argument of type 'Int' is not recorded"),
    (scalar(1, "Bool"), "an argument of type 'Bool' is not recorded"),
    (scalar(3, "Device"), "an argument of type 'Device' is not recorded"),
    (scalar("x" * 1000, "String"), "an argument of type 'String' is not recorded"),
    (scalar(1, "Object" * 9), f"an argument of type {('Object' * 9)[:40]!r} is not recorded"),
    (([1], [[]], "GenericList[Int,Int]", []), "a list argument is not fully recorded"),
    ((3, [], "GenericList[Int]", []), "a list argument is not fully recorded"),
    (tensor(1, -4, 8), "one of its tensors has an invalid shape"),
]


@pytest.mark.parametrize(("given", "expected"), REASONS)
def test_a_call_with_an_unusable_argument_is_refused_with_the_reason(given: Any, expected: str) -> None:
    assert found(given) == expected


def test_calls_that_cannot_be_made_have_a_reason() -> None:
    assert found(X, schema="aten::f(") == "its operator schema cannot be parsed"
    assert found(X, schema="c10d::f(Tensor x) -> ()") == "collective: it needs its process group"
    assert found(X, X, schema="aten::f(Tensor x) -> ()") == "2 arguments are recorded, but its schema has 1"
    assert found(X, schema="") == NOT_RECORDED
    assert found(X, schema="", name="c10d::x") == "collective: it needs its process group"
    for name in ("relu", "autograd::engine::x", "torch::x", "a::"):
        assert not list(recorded_calls(trace_of(op(name, "", X))))


def test_tensors_keep_storage_and_strides_and_are_dense_without_strides() -> None:
    given = tensor(3, 4, 8, dtype="c10::BFloat16", storage=9, offset=5, strides=[1, 4])
    call = found(given, (*X[:3], None), outputs=(tensor(7, 2),))
    first, second = call.tensors
    assert (first.id, first.storage, first.offset, first.shape, first.strides) == (3, 9, 5, (4, 8), (1, 4))
    assert (first.dtype, second.strides, first.device) == ("bfloat16", (8, 1), "device")
    assert [one.id for one in call.results] == [7] and call.args == ({"tensor": 0}, {"tensor": 1})
    assert found(X, outputs=(tensor(7, -2),)).results == ()


def test_what_is_not_as_long_as_its_list() -> None:
    for strides in ([1, 4, 7], [1], 3, "12"):
        assert found((*X[:3], strides)).tensors[0].strides == (8, 1)
    kind = "GenericList[Tensor(float),Tensor(float)]"
    both = ([X[0], X[0]], [[4, 8], [4, 8]], kind)
    assert [one.strides for one in found((*both, [[1, 4], [1, 4]])).tensors] == [(1, 4), (1, 4)]
    for steps in ([[1, 4]], [[1, 4]] * 3, "12", None):
        assert [one.strides for one in found((*both, steps)).tensors] == [(8, 1), (8, 1)]
    for shapes in ([[4, 8]], [[4, 8]] * 3, "48", 3):
        read = _Arguments("cpu")
        assert read._argument(both[0], shapes, kind, None) == [{"tensor": 0}, {"tensor": 1}]
        assert [one.shape for one in read.tensors] == [(), ()] and {one.device for one in read.tensors} == {"cpu"}
    for given in ((X[0], [2**63, 8], X[2], X[3]), (X[0], [True, 8], X[2], None), (X[0], [4.0, 8], X[2], None)):
        assert found(given) == "one of its tensors has an invalid shape"
    for strides in ([2**63, 1], [-1, 1], [True, 1]):
        assert found((*X[:3], strides)) == "one of its tensors has invalid strides"
    assert found((*X[:3], [2**63 - 1, 0])).tensors[0].strides == (2**63 - 1, 0)


def test_unknown_dtypes_and_values_not_of_their_type_are_refused() -> None:
    assert found(tensor(1, 4, dtype="mine")) == "the element size of dtype 'mine' is unknown"
    assert [*_split("A,B[C,D],E(F,G)")] == ["A", "B[C,D]", "E(F,G)"] and [*_split("")] == [] and [*_split("A")] == ["A"]
    assert [_float(one) for one in (3, -0.5)] == [3.0, -0.5]
    assert [_float(one) for one in ("-Infinity", "NaN")] == [{"float": "-infinity"}, {"float": "nan"}]
    for wrong in (True, "1.5", None, "x"):
        with pytest.raises(_UncallableError, match="a numeric argument"):
            _float(wrong)
    least, most = (found(scalar(value, "Int")) for value in (-(2**63), -(2**63) - 1))
    assert least.args == (-(2**63),) and most == "an argument of type 'Int' is not recorded"
    assert found(scalar("x" * 999, "String")).args == ("x" * 999,)
    assert found(scalar(0, "Bool")) == "an argument of type 'Bool' is not recorded"


def test_a_call_with_more_tensors_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etplus.planning.measure.recorded_calls._MOST_TENSORS", 2)
    assert len(found(X, X).tensors) == 2 and found(X, X, X) == "it takes more than 2 tensors"


def test_arguments_not_recorded_in_the_format_of_torch_are_reported() -> None:
    assert found(([1, 2], [4, 8], "Tensor(float)", [])) == "its arguments are not recorded in torch's format"
    assert found(X, X, X).args == ({"tensor": 0}, {"tensor": 1}, {"tensor": 2})
