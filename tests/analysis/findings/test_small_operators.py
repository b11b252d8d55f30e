"""Loops of small operators: found where the ET proves that rounds do not depend on each other, and only there."""

from pathlib import Path

import numpy as np
import pytest
from etplus import link
from etplus.analysis.findings import Case, Finding
from etplus.analysis.findings.small_operators import operator_loops
from etplus.analysis.findings.work_items import work_items
from etplus.trace.trace import Trace
from kept_findings import find_findings
from made_jobs import Job, Play, Rank
from made_traces import MadeDevice

ROUNDS = 40


def _shaped(rank: Rank) -> None:
    for node in rank.nodes:
        for side in ("inputs", "outputs"):
            node[side]["shapes"] = [[32, 32]] * len(node[side]["values"])


def _experts(rank: Rank) -> Play:
    """Products of each expert's own tokens."""
    for number in range(ROUNDS):
        reads = [rank.tensor(f"x{number}"), rank.tensor(f"w{number}")]
        rank.compute("aten::mm", 3000, reads, [rank.tensor(f"y{number}")])
    _shaped(rank)
    yield from ()


def _layers(rank: Rank) -> Play:
    """The same products, each of what the one before has made."""
    for number in range(ROUNDS):
        reads = [rank.tensor(f"x{number}"), rank.tensor(f"w{number}")]
        rank.compute("aten::mm", 3000, reads, [rank.tensor(f"x{number + 1}")])
    _shaped(rank)
    yield from ()


def _averages(rank: Rank) -> Play:
    """Moving averages of weights, in place."""
    for number in range(ROUNDS):
        mean, weight = rank.tensor(f"mean{number}"), rank.tensor(f"w{number}")
        rank.compute("aten::mul_", 3000, [mean], [mean])
        rank.compute("aten::add_", 3000, [mean, weight], [mean])
    _shaped(rank)
    yield from ()


def _four(rank: Rank, last: str = "aten::sub_") -> Play:
    """The longest round that is looked for."""
    for number in range(ROUNDS):
        mean = rank.tensor(f"mean{number}")
        for name in ("aten::mul_", "aten::add_", "aten::div_", last):
            rank.compute(name, 3000, [mean], [mean])
    _shaped(rank)
    yield from ()


def _one_sum(rank: Rank) -> Play:
    """Everything is added to one tensor."""
    for number in range(ROUNDS):
        total, weight = rank.tensor("total"), rank.tensor(f"w{number}")
        rank.compute("aten::add_", 3000, [total, weight], [total])
    _shaped(rank)
    yield from ()


def _trace(program: object, folder: Path) -> Trace:
    (pair,) = Job(program, 1).write(folder)  # type: ignore[arg-type]
    return link(*pair)


@pytest.mark.parametrize(
    ("program", "period"), [(_experts, 1), (_averages, 2), (_four, 4), (_layers, None), (_one_sum, None)]
)  # fmt: skip
def test_only_rounds_that_need_nothing_of_each_other_are_a_loop(
    program: object, period: int | None, tmp_path: Path
) -> None:
    (loops,) = operator_loops(Case([_trace(program, tmp_path)]))
    assert [(loop.period, loop.rounds) for loop in loops] == ([] if period is None else [(period, ROUNDS)])


def test_without_an_et_nothing_is_known_of_rounds() -> None:
    device = MadeDevice()
    for _ in range(ROUNDS):
        device.op("aten::mm", [(32, 32)] * 2, ("gemm", 3.0))
    assert operator_loops(Case([device.trace()])) == ((),)


def test_the_gain_is_what_one_operator_leaves_of_the_loop(tmp_path: Path) -> None:
    found = find_findings(Case([_trace(_experts, tmp_path)]))
    finding = next(one for one in found if one.id == "small-operators")
    assert finding.gain is not None and 0.6 * found.makespan_ns < finding.gain.ns < found.makespan_ns
    assert f"{ROUNDS} times in a row" in finding.title and "torch.bmm" in finding.advice


def test_float64_is_a_finding_and_float32_is_none() -> None:
    found: dict[str, Finding | None] = {}
    for dtype, factor in (("f64", 1.0), ("f32", 0.5)):
        device = MadeDevice()
        for _ in range(8):
            device.op(
                "aten::mul", [(4096, 4096)] * 2, ("vectorized_elementwise_kernel<Mul>", 400 * factor), dtype=dtype
            )
            device.op("aten::tanh", [(64, 64)], ("vectorized_elementwise_kernel<Tanh>", 5.0), dtype="f32")
        every = {one.id: one for one in find_findings(Case([device.trace()]))}
        found[dtype] = every.get("double-precision")
    double = found["f64"]
    assert found["f32"] is None and double is not None and double.gain is not None
    assert abs(double.gain.ns - 8 * 200_000) < 0.3 * 8 * 200_000
    assert double.evidence[0].value == 8 * 400_000


def test_every_item_is_there_once(tmp_path: Path) -> None:
    (items,) = work_items(Case([_trace(_averages, tmp_path)]))
    gpu = items.trace.gpu
    assert sorted(items.event.tolist()) == list(range(len(gpu))) and items.total_ns == int(gpu.dur.sum())
    assert np.all(np.diff(items.first) > 0)
