"""Passes of a step, on made calls: microbatches whose gradients are accumulated, steps that follow each other."""

from __future__ import annotations

from typing import Any

from etplus.planning.reshard.passes import split_step
from made_step_calls import Made

BACK = "autograd::engine::evaluate_function: X"


def shown(*calls: Any) -> list[tuple[list[int], list[int]]]:
    return [([call.row for call in forward], [call.row for call in back]) for forward, back in split_step(calls).passes]


def test_a_forward_pass_is_one_whose_backward_follows() -> None:
    made = Made()
    forward = [made.call("aten::a", sequence=k) for k in (0, 1)]
    back = [made.call(BACK, [], [], made.call("aten::b", sequence=k)) for k in (1, 0)]
    again = made.call("aten::a", sequence=2)
    last = made.call(BACK, [], [], made.call("aten::b", sequence=2))
    hook, after = made.call("aten::hook"), made.call("aten::norm")
    step = made.call("Optimizer.step#SGD.step", operator=False)
    zero = made.call("Optimizer.zero_grad#SGD.zero_grad", operator=False)
    rows = [call.row for call in forward]
    assert shown(zero, *forward, *back, again, last, after, step) == [
        (rows, [call.row for call in back]), ([again.row], [last.row]),
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
