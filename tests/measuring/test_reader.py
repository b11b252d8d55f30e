"""Arguments as Execution Traces record them, of each kind, and why a call cannot be made again."""

from __future__ import annotations

from typing import Any

import pytest
from etplus.measuring.reader import NOT_RECORDED, recorded_calls
from etplus.measuring.recorded_calls import RecordedCall
from recorded_ops import op, scalar, tensor, trace_of

X = tensor(1, 4, 8)


def found(*given: Any, schema: str = "aten::f(Tensor a, Tensor b, Tensor c) -> Tensor", **more: Any) -> Any:
    """The call as it is read."""
    ((_, call),) = recorded_calls(trace_of(op(more.pop("name", "aten::f"), schema, *given, **more)))
    return call


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
def test_arguments(given: Any, expected: Any) -> None:
    call = found(given)
    assert isinstance(call, RecordedCall) and call.args == (expected,)


REASONS: list[tuple[Any, str]] = [
    (scalar(2**63, "Int"), "an argument of type 'Int' is not recorded"),
    (scalar(True, "Int"), "an argument of type 'Int' is not recorded"),
    (scalar(1, "Bool"), "an argument of type 'Bool' is not recorded"),
    (scalar(3, "Device"), "an argument of type 'Device' is not recorded"),
    (scalar("x" * 1000, "String"), "an argument of type 'String' is not recorded"),
    (scalar(1, "Object" * 9), f"an argument of type {('Object' * 9)[:40]!r} is not recorded"),
    (([1], [[]], "GenericList[Int,Int]", []), "a list among its arguments is not recorded whole"),
    ((3, [], "GenericList[Int]", []), "a list among its arguments is not recorded whole"),
    (tensor(1, -4, 8), "a tensor of it has no valid shape"),
]


@pytest.mark.parametrize(("given", "expected"), REASONS)
def test_reasons(given: Any, expected: str) -> None:
    assert found(given) == expected


def test_calls_that_cannot_be_made() -> None:
    assert found(X, schema="aten::f(") == "its operator schema cannot be parsed"
    assert found(X, schema="c10d::f(Tensor x) -> ()") == "collective: it needs its process group"
    assert found(X, X, schema="aten::f(Tensor x) -> ()") == "2 arguments are recorded, its schema has 1"
    assert found(X, schema="") == NOT_RECORDED
    assert found(X, schema="", name="c10d::x") == "collective: it needs its process group"
    for name in ("relu", "autograd::engine::x", "torch::x", "a::"):
        assert not list(recorded_calls(trace_of(op(name, "", X))))


def test_tensors() -> None:
    """Numbers of the object and its memory, strides (dense where none are recorded), type and results."""
    given = tensor(3, 4, 8, dtype="c10::BFloat16", storage=9, offset=5, strides=[1, 4])
    call = found(given, (*X[:3], None), outputs=(tensor(7, 2),))
    first, second = call.tensors
    assert (first.id, first.storage, first.offset, first.shape, first.strides) == (3, 9, 5, (4, 8), (1, 4))
    assert (first.dtype, second.strides, first.device) == ("bfloat16", (8, 1), "device")
    assert [one.id for one in call.results] == [7] and call.args == ({"tensor": 0}, {"tensor": 1})
    assert found(X, outputs=(tensor(7, -2),)).results == ()
