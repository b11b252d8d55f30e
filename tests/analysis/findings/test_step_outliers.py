"""Steps that take longer than the others, made, so that what is longer in them is known."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from etplus.analysis.findings.step_outliers import _advice, _causes, _interventions, _LongerInStep, _why
from kept_findings import findings_of, ids, only
from made_jobs import RECORDED, Job, Play, Rank

STEPS, ODD, LAYERS = 8, 5, 6


def program(odd: Callable[[Rank], None], rank: Rank) -> Play:
    """Equal steps of products, and in one of them something more."""
    for number in range(STEPS):
        with rank.op(f"ProfilerStep#{number}", annotation=True):
            for layer in range(LAYERS):
                sides = [rank.tensor(f"x{layer}")], [rank.tensor(f"x{layer + 1}")]
                rank.compute("aten::mm", 200_000, *sides)
                rank.compute("aten::relu", 50_000, *sides)
            if number == ODD:
                odd(rank)
            rank.synchronize()
    yield from ()


def slow_kernel(rank: Rank) -> None:
    for _ in range(4):
        rank.compute("aten::mm", 300_000)


def slow_host(rank: Rank) -> None:
    with rank.op("aten::to"):
        rank.now += 4_000_000


def law(odd: Callable[[Rank], None]) -> int:
    makespan, usual = (Job(partial(program, of), 1).makespan_ns(RECORDED) for of in (odd, lambda rank: None))
    return makespan - usual


@pytest.mark.parametrize("odd", [slow_kernel, slow_host])
def test_a_longer_step_is_named_with_what_is_longer_in_it(odd: Callable[[Rank], None]) -> None:
    finding = only(findings_of(*Job(partial(program, odd), 1).traces()), "outlier-step")
    assert finding.where.step == f"ProfilerStep#{ODD}"
    assert f"--cross-validate {ODD}" in finding.evidence[0].command and f"--cross-validate {ODD}" in finding.check
    assert finding.gain is not None
    assert finding.gain.ns == pytest.approx(law(odd), rel=0.3)
    assert finding.gain.low_ns <= law(odd) <= finding.gain.high_ns


def test_equal_steps_give_no_outlier_step() -> None:
    assert "outlier-step" not in ids(findings_of(*Job(partial(program, lambda rank: None), 1).traces()))


def test_advice_on_an_outlier_step_depends_on_its_causes() -> None:
    def cause(times: int = 6, shapes: int = 0, kernel: bool = True) -> Any:
        return SimpleNamespace(times=times, usual_times=6, shapes=shapes, key=("x", kernel))

    for causes, step, said in (
        ([cause(10), cause()], 5, "find out what this line does only in this step: evaluation"),
        ([cause(), cause(10)], 5, "check the device's clocks"), ([], 5, "check the device's clocks"),
        ([cause(10)], 0, "record after some warm-up steps"), ([cause(kernel=False)], 5, "find out what this line does"),
        ([cause(10), cause(shapes=1)], 0, "pad or bucket the inputs"),
    ):  # fmt: skip
        assert _advice(causes, step).startswith(said)


def test_causes_explain_half_of_the_time_by_up_to_three_names_or_together() -> None:
    def longer(name: str, ns: int, *, kernel: bool = True, shapes: bool = False, times: int = 4) -> _LongerInStep:
        return _LongerInStep((name, kernel), np.arange(2), 100.0 + ns, 100.0, times, 4.0, shapes)

    two = [longer("a", 30), longer("#b", 20, shapes=True), longer("c", 50, kernel=False, times=5)]
    assert [cause.key[0] for cause in _causes(two, 100)] == ["a", "#b"]
    assert [cause.key[0] for cause in _causes(two, 101)] == [] and _causes(two[2:], 100) == two[2:]
    assert len(_causes([longer("a", 60), longer("b", 15), longer("c", 1)], 100)) == 2  # 75 of 100 are enough
    (whole,) = _causes([longer(name, 10, shapes=name == "c") for name in "abcde"], 100)
    assert whole[:1] + whole[2:] == (("5 kernels together", True), 550, 500, 20, 20, True, True)
    shown = [(change.what_if, change.rows.tolist()) for change in _interventions([*two, whole], "step=1", 5)]
    assert [what for what, _ in shown] == [
        "step=1 kernel:name=a*0.7692", "step=1 kernel:name~b*0.8333", "step=1 op:c*0.6667", "step=1 kernel*0.9091"
    ]  # fmt: skip
    assert shown[0][1] == [5, 6] and len(shown[3][1]) == 10
    said = [_why(causes) for causes in (two[:2], two[1:], two[2:], [whole])]
    words = ("kernel a and 1 more takes 1.3 times", "#b and 1 more has shapes", "c is called 5 times", "has shapes")
    assert all(part in text for part, text in zip(words, said, strict=True))
