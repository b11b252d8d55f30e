"""Loops of small operators: found where the ET proves that rounds do not depend on each other, and only there."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from etplus.analysis.findings import Case
from etplus.analysis.findings.small_operators import SmallOperators, operator_loops
from etplus.analysis.findings.work_items import work_items
from kept_findings import findings_of, only
from made_jobs import Job, Play, Rank
from made_traces import MadeDevice

ROUNDS = 40


def _program(names: str, reads: Sequence[str], writes: str) -> Callable[[Rank], Play]:
    """Rounds of operators on tensors; `{0}` is the number of the round, `{1}` that of the next one."""

    def run(rank: Rank) -> Play:
        for number in range(ROUNDS):
            tensors = [rank.tensor(name.format(number, number + 1)) for name in (*reads, writes)]
            for name in names.split():
                rank.compute(f"aten::{name}", 3000, tensors[:-1], tensors[-1:])
        for node in rank.nodes:
            for side in ("inputs", "outputs"):
                node[side]["shapes"] = [[32, 32]] * len(node[side]["values"])
        yield from ()

    return run


_EXPERTS = _program("mm", ["x{0}", "w{0}"], "y{0}")
_LAYERS = _program("mm", ["x{0}", "w{0}"], "x{1}")
_AVERAGES = _program("mul_ add_", ["mean{0}", "w{0}"], "mean{0}")
_FOUR, _FIVE = (_program(f"mul_ add_ div_ sub_{last}", ["mean{0}"], "mean{0}") for last in ("", " neg_"))
_ONE_SUM = _program("add_", ["total", "w{0}"], "total")


@pytest.mark.parametrize(
    ("program", "period"), [(_EXPERTS, 1), (_AVERAGES, 2), (_FOUR, 4), (_FIVE, None), (_LAYERS, None), (_ONE_SUM, None)]
)
def test_only_rounds_that_need_nothing_of_each_other_are_a_loop(program: Any, period: int | None) -> None:
    (loops,) = operator_loops(Case(Job(program, 1).traces()))
    assert [(loop.period, loop.rounds) for loop in loops] == ([] if period is None else [(period, ROUNDS)])


def test_without_an_et_nothing_is_known_of_rounds() -> None:
    device = MadeDevice()
    for _ in range(ROUNDS):
        device.op("aten::mm", [(32, 32)] * 2, ("gemm", 3.0))
    assert operator_loops(Case([device.trace()])) == ((),)


def test_the_gain_is_what_one_operator_leaves_of_the_loop() -> None:
    found = findings_of(*Job(_EXPERTS, 1).traces())
    finding = only(found, "small-operators")
    assert finding.gain is not None and 0.6 * found.makespan_ns < finding.gain.ns < found.makespan_ns
    assert f"{ROUNDS} times in a row" in finding.title and "torch.bmm" in finding.advice

    def little(rank: Rank) -> Play:
        rank.compute("aten::mm", 100_000_000)
        return _EXPERTS(rank)

    case = Case(Job(little, 1).traces())
    assert len(operator_loops(case)[0]) == 1 and not [*SmallOperators().find(case)]


def test_work_items_hold_every_device_event_once() -> None:
    (items,) = work_items(Case(Job(_AVERAGES, 1).traces()))
    gpu = items.trace.gpu
    assert sorted(items.event.tolist()) == list(range(len(gpu))) and items.total_ns == int(gpu.dur.sum())
    assert np.all(np.diff(items.first) > 0)
