"""Calls of a step: tensors in values of an ET, names that communicate, which step, and host time between calls."""

from types import SimpleNamespace
from typing import Any

import etplus
import numpy as np
import pytest
from etplus.planning.reshape.shapes.followed_calls import shapes_of
from etplus.planning.reshard import step_calls
from etplus.planning.reshard.step_calls import (
    COMMUNICATES,
    _kept,
    _set_leads,
    is_tensor,
    read_step,
    step_window,
    tensor_values,
    walked,
)
from etplus.trace.errors import UsageError
from etplus.trace.tables import ANNOTATION, OP
from support import FIXTURES

TENSOR = [1, 2, 0, 4, 4, "cpu"]


def test_tensors_are_found_in_values_at_any_depth() -> None:
    assert is_tensor(TENSOR) and not is_tensor([*TENSOR, 1]) and not is_tensor([1, 2, 0, 4, 4, 5])
    assert not is_tensor([1, 2, 0, 4, True, "cpu"]) and not is_tensor([1, 2, 0, 4, "x", "cpu"])
    other = [7, *TENSOR[1:]]
    assert list(tensor_values({"values": [TENSOR, 3, [other, "x", [TENSOR]]]})) == [TENSOR, other, TENSOR]
    assert list(tensor_values([other])) == [other] and list(tensor_values(None)) == [] == list(tensor_values({}))


def test_communication_calls_are_recognized_by_their_names() -> None:
    for name in ("c10d::allreduce_", "gloo:send", "nccl:all_reduce", "record_param_comms", "FSDP::x",
                 "torch::distributed::reducer::mul_out", "_c10d_functional::wait_tensor", "fsdp::x"):  # fmt: skip
        assert COMMUNICATES.fullmatch(name), name
    for name in ("aten::mm", "my::c10d::x", "gloo", "Optimizer.step#SGD.step"):
        assert not COMMUNICATES.fullmatch(name), name


def marked(*steps: tuple[int, int, int]) -> Any:
    """A trace with steps: number, start, end; an operator of the same name is none."""
    names = [*(f"ProfilerStep#{number}" for number, _, _ in steps), "ProfilerStep#9"]
    begins, ends = ([*(step[at] for step in steps), 0] for at in (1, 2))
    calls = SimpleNamespace(
        kind=np.array([ANNOTATION] * len(steps) + [OP]), name=np.arange(len(names)), ts=np.array(begins),
        end=np.array(ends),
    )  # fmt: skip
    return SimpleNamespace(calls=calls, names=names, file="x", span=(5, 500), steps=SimpleNamespace(batches=()))


def test_the_step_of_median_duration_is_chosen_by_default() -> None:
    three = marked((1, 0, 90), (2, 90, 120), (3, 120, 170))
    assert step_window(three, None) == (120, 170) and step_window(three, 2) == (90, 120)
    assert step_window(marked((4, 0, 9), (5, 10, 30)), None) == (0, 9)  # of two the shorter one
    assert step_window(marked((2, 50, 60), (1, 30, 40)), None) == (30, 40)  # of equal ones the earlier
    assert step_window(marked(), None) == (5, 500)
    with pytest.raises(UsageError, match="x: no ProfilerStep#9; leave --step out"):
        step_window(three, 9)


def made(name: str, ts: int = 0, end: int = 0, *children: Any, sequence: int = -1) -> Any:
    return SimpleNamespace(
        name=name, ts=ts, end=end, children=list(children), lead=0, sequence=sequence,
        operator=not name.startswith("Optimizer"), backward=name.startswith("autograd::engine::evaluate_function: "),
    )  # fmt: skip


def test_the_lead_of_a_call_is_the_host_time_before_it() -> None:
    inner, below = made("aten::b", 35, 38), made("aten::x", 12, 14)
    calls = [made("Optimizer.step", 30, 40, inner), made("aten::a", 10, 20, below), made("aten::c", 15, 18)]
    _set_leads(calls, 4)
    assert [call.lead for call in calls] == [10, 6, 0] and (inner.lead, below.lead) == (5, 0)


def test_wrappers_are_replaced_by_their_callees_and_communication_is_dropped() -> None:
    deep = made("autograd::engine::evaluate_function: X")
    comm = made("gloo:all_reduce", 0, 0, deep, made("aten::copy_"))
    inner, other = made("aten::mm"), made("aten::t", sequence=3)
    wrapper = made("_ToTorchTensor", 0, 0, inner, other, sequence=7)
    again = made("aten::add")
    subclass = made("aten::add", 0, 0, made("PythonSubclass", 0, 0, again), sequence=9)
    plain = made("aten::relu", 0, 0, made("c10d::x"))
    assert _kept([comm, wrapper, subclass, plain]) == [deep, inner, other, again, plain]
    assert (inner.sequence, other.sequence, again.sequence, plain.children) == (7, 3, 9, [])


def test_calls_that_touch_the_ends_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = etplus.load(FIXTURES / "batches" / "mlp_w128_d2__b8_t1.json.gz")
    calls, shapes = trace.calls, shapes_of(trace)
    one = next(at for at in range(len(calls)) if trace.names[calls.name[at]] == "aten::addmm")
    begin, end = int(calls.ts[one]), int(calls.end[one])

    def rows(begin: int, end: int) -> list[int]:
        monkeypatch.setattr(step_calls, "step_window", lambda trace, step: (begin, end))
        return sorted(call.row for call in walked(read_step(trace, shapes)))

    inside = calls.source[(calls.ts >= begin) & (calls.end <= end)].tolist()
    assert rows(begin, end) == sorted(inside) and calls.source[one] in inside
    assert calls.source[one] not in rows(begin + 1, end + 10**6) and calls.source[one] not in rows(
        begin - 10**6, end - 1
    )
    with pytest.raises(UsageError, match="no calls in the step"):
        rows(begin, begin - 1)
