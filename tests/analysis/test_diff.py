"""Two traces side by side."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from etplus.analysis.breakdown import launched_in
from etplus.analysis.summary import analyze
from etplus.analysis.trace_diff import difference
from etplus.converters.open import load as read_trace
from made_traces import kernel, kineto_of, launch, op
from traces import GPU_SHAPED, analysis_of

BERTS = ("gpu-kineto/h100_bert", "gpu-kineto/mi300_bert")


def steps(count: int, *, gap: float = 100, extra: float = 0) -> bytes:
    """The same step so many times, after a kernel of the set-up (µs) if there is one."""
    events: list[dict[str, Any]] = [launch(999, 1), kernel("set-up", 999, 2, extra)] if extra else []
    for k in range(count):
        at = 10 + gap * k
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{k}", "ts": at, "dur": 80, "args": {}},
            op("aten::mm", at + 1, 50), launch(k + 1, at + 2), kernel("gemm", k + 1, at + 70, 20),
        ]  # fmt: skip
    return kineto_of(events)


def test_the_same_step_25_times_is_the_same() -> None:
    """Also where kernels end, or even start, after their step; and whatever was launched before the first."""
    once, often = (analyze(read_trace(steps(*one))) for one in ((1,), (25,)))
    found = difference(once, often)
    assert found.per_iteration and (found.iterations_a, found.iterations_b) == (1, 25)
    assert found.total_a == found.total_b == 20_000 and [row.ratio for row in found.ops + found.kernels] == [1, 1]
    whole = difference(once, often, total=True)
    assert not whole.per_iteration and whole.total_b == 25 * whole.total_a


def test_totals_where_one_has_no_iterations() -> None:
    one = analyze(read_trace(kineto_of([op("aten::mm", 0, 9), launch(1, 5), kernel("gemm", 1, 20, 9)])))
    found = difference(one, analyze(read_trace(steps(5))))
    assert not found.per_iteration and found.total_b == 100_000


@pytest.mark.parametrize("name", ["gpu-kineto/h100_bert", f"linked {GPU_SHAPED}"])
def test_real_iterations_against_a_brute_force(name: str) -> None:
    """An event belongs to the iteration that is open when its launch begins."""
    analysis = analysis_of(name)
    trace, gpu = analysis.trace, analysis.trace.gpu
    expected, kernels = [], Counter[str]()
    for event in range(len(gpu)):
        call, launcher = int(gpu.call[event]), int(gpu.runtime[event])
        at = trace.runtime.ts[launcher] if launcher >= 0 else trace.calls.ts[call] if call >= 0 else gpu.ts[event]
        mine = [k for k, one in enumerate(analysis.iterations) if one.start <= at < one.end]
        expected.append(mine[0] if mine else -1)
        if mine:
            kernels[trace.names[gpu.name[event]]] += int(gpu.dur[event])
    assert launched_in(trace, analysis.iterations).tolist() == expected
    found = difference(analysis, analysis)
    if analysis.iterations:
        count = len(analysis.iterations)
        assert {row.name: row.a.total_ns for row in found.kernels if row.a} == {
            name: pytest.approx(total / count) for name, total in kernels.items()
        }
        assert found.outside_a[0] == expected.count(-1)
