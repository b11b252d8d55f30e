"""Steps that take longer than the others, made, so that what is longer in them is known."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from etplus.analysis.findings import Case, Finding, Findings
from etplus.analysis.findings.step_outliers import _advice
from etplus.linker import link
from kept_findings import find_findings
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


def found(odd: Callable[[Rank], None]) -> Findings:
    ((et, kineto),) = Job(partial(program, odd), 1).texts()
    return find_findings(Case([link(et, kineto)]))


def law(odd: Callable[[Rank], None]) -> int:
    makespan, usual = (Job(partial(program, of), 1).makespan_ns(RECORDED) for of in (odd, lambda rank: None))
    return makespan - usual


def only(findings: Findings) -> Finding:
    (finding,) = [finding for finding in findings if finding.id == "outlier-step"]
    return finding


@pytest.mark.parametrize("odd", [slow_kernel, slow_host])
def test_a_longer_step_is_named_with_what_is_longer_in_it(odd: Callable[[Rank], None]) -> None:
    finding = only(found(odd))
    assert finding.where.step == f"ProfilerStep#{ODD}"
    assert f"--cross-validate {ODD}" in finding.evidence[0].command and f"--cross-validate {ODD}" in finding.check
    assert finding.gain is not None
    assert finding.gain.ns == pytest.approx(law(odd), rel=0.3)
    assert finding.gain.low_ns <= law(odd) <= finding.gain.high_ns


def test_equal_steps_are_no_finding() -> None:
    assert "outlier-step" not in {finding.id for finding in found(lambda rank: None)}


def test_advice_follows_the_first_cause() -> None:
    def cause(times: int = 6, shapes: int = 0, kernel: bool = True) -> Any:
        return SimpleNamespace(times=times, usual_times=6, shapes=shapes, key=("x", kernel))

    for causes, step, said in (
        ([cause(10), cause()], 5, "find out what this line does only in this step: evaluation"),
        ([cause(), cause(10)], 5, "check the device's clocks"), ([], 5, "check the device's clocks"),
        ([cause(10)], 0, "record after some warm-up steps"), ([cause(kernel=False)], 5, "find out what this line does"),
        ([cause(10), cause(shapes=1)], 0, "pad or bucket the inputs"),
    ):  # fmt: skip
        assert _advice(causes, step).startswith(said)
