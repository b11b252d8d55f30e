"""A stage's step divided into microbatches, on made calls: order of the schedule, names of tensors, what is dropped."""

from itertools import count
from typing import Any

import pytest
from etplus.planning.reshard.stage_steps import (
    StageMessage,
    StageStep,
    _add_in_place,
    _by_microbatch,
    _divide,
    _drop_schedule,
    _moments,
    _Naming,
)
from etplus.planning.reshard.step_calls import tensor_values, walked
from etplus.trace.errors import UsageError
from made_step_calls import Made

BACK = "autograd::engine::evaluate_function: X"


@pytest.fixture
def made() -> Made:
    return Made(b=4, h=8, s=2)


class _Clock:
    """Times of calls and messages, in the order in which they are made."""

    def __init__(self) -> None:
        self.now = 0

    def call(self, call: Any) -> Any:
        self.now += 1
        call.ts = self.now
        return call

    def message(self, tensor: int, *, sent: bool, onward: bool) -> StageMessage:
        self.now += 1
        return StageMessage(self.now, sent, onward, [tensor, tensor + 100, 0, 32, 4, "cpu"])


def _stage(made: Made, order: str, *, last: bool) -> tuple[StageStep, list[Any]]:
    """A stage that runs forward (F) and backward (B) passes of microbatches in this order, with their messages."""
    clock, calls, done = _Clock(), list[Any](), {"F": 0, "B": 0}
    messages = list[StageMessage]()
    for what in order:
        k = done[what]
        done[what] += 1
        x, y, loss, gradient = (base + k for base in (10, 20, 30, 40))
        if what == "F":
            messages.append(clock.message(x, sent=False, onward=True))
            head = [clock.call(made.call("aten::arange", [], [(50 + k, "h")]))]  # before what arrives is used
            body = made.call("aten::mm", [(x, "bh")], [(y, "bh")], sequence=k)
            tail = [made.call("aten::mse_loss", [(y, "bh")], [(loss, "")])] if last else []
            calls += [*head, clock.call(body), *map(clock.call, tail)]
            if not last:
                messages.append(clock.message(y, sent=True, onward=True))
        else:
            if last:
                calls.append(clock.call(made.call("aten::ones_like", [(loss, "")], [(60 + k, "")])))
            else:
                messages.append(clock.message(gradient, sent=False, onward=False))
            inner = made.call("MmBackward0", [(gradient, "bh")], [(70 + k, "bh")], sequence=k)
            calls.append(clock.call(made.call(BACK, [], [], inner)))
            messages.append(clock.message(70 + k, sent=True, onward=False))
    found = StageStep(None, 1)  # type: ignore[arg-type]
    parts = order.count("F")
    for sent, sides in ((True, found.sent), (False, found.received)):
        for onward in (True, False):
            some = [message for message in messages if (message.sent, message.onward) == (sent, onward)]
            sides[onward] = _by_microbatch(some, parts, None)  # type: ignore[arg-type]
    return found, calls


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("order", "interleaved"), [("FFFBBB", False), ("FBFBFB", True), ("FFBFBB", True), ("FB", False)]
)
def test_microbatches_are_found_in_any_order(made: Made, order: str, interleaved: bool, last: bool) -> None:
    found, calls = _stage(made, order, last=last)
    parts = order.count("F")
    end = max(at for at, call in enumerate(calls) if call.backward) + 1
    _divide(found, calls[:end], parts, last=last)
    for k in range(parts):
        names = [call.name for call in found.forward[k]]
        assert names[:2] == ["aten::arange", "aten::mm"] and found.forward[k][0].tensor_ids("outputs") == [50 + k]
        assert found.forward[k][1].tensor_ids("inputs") == [10 + k]
        assert names[2:] == (["aten::mse_loss", "aten::ones_like"] if last else [])
        (back,) = found.backward[k]
        assert back.children[0].sequence == k
    assert found.interleaved is interleaved


def test_messages_are_divided_evenly_among_microbatches_or_refused(made: Made) -> None:
    clock = _Clock()
    calls, messages = [], []
    for k in range(3):
        calls.append(clock.call(made.call("aten::mm", [], [(k, "bh")])))
        messages += [clock.message(tensor, sent=True, onward=True) for tensor in (k, 90 + k)]
    assert _moments(messages, calls) == 3
    assert [[one.tensor[0] for one in some] for some in _by_microbatch(messages, 3, None)] == [  # type: ignore[arg-type]
        [0, 90], [1, 91], [2, 92],
    ]  # fmt: skip
    assert _by_microbatch([], 3, None) == []  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="6 messages of one kind are not divisible by 4 microbatches"):
        _by_microbatch(messages, 4, type("T", (), {"file": "x"})())


def test_views_keep_their_memory_and_buffers_begin_anew(made: Made) -> None:
    naming = _Naming(count(1000))
    one = made.call("aten::mm", [(1, "h")], [(2, "h")])
    view = made.call("aten::view", [(2, "h")], [(3, "h")])
    view.record["outputs"]["values"][0][1] = 102
    again = made.call("aten::mm", [(3, "h")], [(2, "h")])
    for call in (one, view, again):
        naming.follow(call)
    first, seen, new = (tensor_values(call.record["outputs"])[0][:2] for call in (one, view, again))
    assert first[1] == seen[1] != new[1] and len({first[0], seen[0], new[0]}) == 3
    naming.follow(own := made.call("aten::add_", [(2, "h")], [], made.call("aten::x", [], [(2, "h")])))
    assert tensor_values(own.children[0].record["outputs"])[0][0] == new[0]
    tensor = [2, 102, 0, 8, 4, "cpu"]
    naming.begin_anew(tensor)
    assert tensor[0] not in (first[0], new[0]) and tensor[1] not in (first[1], new[1])


def test_calls_that_the_pipeline_schedule_makes_are_dropped(made: Made) -> None:
    step = StageStep(None, 0)  # type: ignore[arg-type]
    split = made.call("aten::tensor_split", [(1, "bh")], [(2, "bh"), (3, "bh")])
    chunk = made.call("aten::chunk", [(1, "bh")], [(4, "bh"), (5, "bh")])
    own = made.call("aten::chunk", [(6, "bh")], [(7, "bh")])
    products = [made.call("aten::mm", [(of, "bh"), (4 + k, "bh")], [(10 + k, "bh")]) for k, of in enumerate((2, 3))]
    detached = [made.call("aten::detach", [(10 + k, "bh")], [(20 + k, "bh")]) for k in range(2)]
    memory = made.call("aten::empty_strided", [], [(30, "bh")])
    step.forward = [[split, chunk, own, products[0], detached[0], memory], [products[1], detached[1]]]
    accumulate = [
        made.call(f"{BACK[:-1]}torch::autograd::AccumulateGrad", [], [],
                  made.call("aten::detach", [(40 + k, "bh")], [(50 + k, "bh")]))
        for k in range(4)
    ]  # fmt: skip
    step.backward = [accumulate[:2], [accumulate[2], made.call("aten::detach_", [(10, "bh")], [(10, "bh")])]]
    clock = _Clock()
    step.sent = {
        True: [[clock.message(20, sent=True, onward=True)], [clock.message(21, sent=True, onward=True)]],
        False: [[clock.message(51, sent=True, onward=False)], []],
    }
    step.received = {True: [], False: []}
    scale = made.call("aten::div_", [(50, "bh"), (60, "")], [(50, "bh")])
    norm = made.call("aten::linalg_vector_norm", [(50, "bh")], [(61, "")])
    join = made.call("aten::cat", [[(20, "bh"), (21, "bh")]], [(62, "bh")])
    step.after = [join, scale, norm]
    _drop_schedule(step)
    assert step.forward == [[own, products[0]], [products[1]]]
    assert step.backward == [[accumulate[0]], [accumulate[2]]] and step.after == [norm]
    assert step.same[20] == 10 and step.same[21] == 11 and step.same[51] == 41 and 50 not in step.same
    assert {split.row, join.row, detached[0].row} <= step.dropped and scale.row not in step.dropped
    assert not {call.row for call in walked([own, *products, accumulate[0]])} & step.dropped


def test_gradients_that_arrive_are_added_to_in_place(made: Made) -> None:
    inner = made.call("aten::add", [(1, "bh"), (2, "bh")], [(3, "bh")])
    other = made.call("aten::add", [(2, "bh"), (1, "bh")], [(4, "bh")])
    same: dict[int, int] = {}
    _add_in_place(made.call(BACK, [], [], inner, other), {1}, same)
    assert (inner.name, other.name) == ("aten::add_", "aten::add") and same == {3: 1, 103: 101}
