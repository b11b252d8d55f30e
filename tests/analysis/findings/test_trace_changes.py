"""What became slower between two made traces that differ in one thing."""

import json
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import etplus
import pytest
from etplus.analysis.findings import Finding
from etplus.analysis.findings.trace_changes import _settings_of
from etplus.linker import link
from kept_findings import diff
from made_jobs import RECORDED, Job, Play, Rank
from made_trace import made_trace
from made_traces import kernel, launch, op, traced

NAMES = ("aten::mm", "aten::relu", "aten::add", "aten::mul", "aten::softmax")
STEPS = 4
Change = Callable[[Rank, str, int], None]


def plain(rank: Rank, name: str, ns: int) -> None:
    rank.compute(name, ns)


def slow_clock(rank: Rank, name: str, ns: int) -> None:
    rank.compute(name, round(ns * 1.3))


def slow_kernel(rank: Rank, name: str, ns: int) -> None:
    rank.compute(name, ns * (2 if name == "aten::mm" else 1))


def twice(rank: Rank, name: str, ns: int) -> None:
    for _ in range(2 if name == "aten::mm" else 1):
        rank.compute(name, ns)


class OtherLibrary(Rank):
    """Products run another kernel, which takes longer."""

    def _kernel(self, name: str, stream: int, start: int, end: int, *more: Any) -> None:
        product = name.startswith("void aten::mm")
        super()._kernel("cutlass_gemm" if product else name, stream, start, end + 100_000 * product, *more)


def pause(rank: Rank, name: str, ns: int) -> None:
    rank.synchronize()
    rank.now += 100_000 * (name == "aten::mm")
    rank.compute(name, ns)


def program(change: Change, rank: Rank) -> Play:
    for number in range(STEPS):
        with rank.op(f"ProfilerStep#{number}", annotation=True):
            for name in NAMES:
                change(rank, name, 200_000)
            rank.synchronize()
    yield from ()


def made(change: Change, of: type[Rank] = Rank) -> Any:
    return Job(partial(program, change), 1, of=of).traces()[0]


@pytest.mark.parametrize(
    ("change", "of", "name"),
    [
        (slow_clock, Rank, "slower-clock"),
        (slow_kernel, Rank, "slower-kernel"),
        (twice, Rank, "more-launches"),
        (plain, OtherLibrary, "other-kernels"),
        (pause, Rank, "more-idle"),
    ],
)
def test_a_change_is_named_with_what_it_costs(change: Change, of: type[Rank], name: str) -> None:
    found = diff(made(plain), made(change, of)).findings
    assert [finding.id for finding in found] == [name]
    changed, usual = Job(partial(program, change), 1, of=of), Job(partial(program, plain), 1)
    longer = changed.makespan_ns(RECORDED) - usual.makespan_ns(RECORDED)
    assert found[0].cost_ns == pytest.approx(longer / STEPS, rel=0.1)
    assert all(evidence.command.startswith("etplus diff ") for evidence in found[0].evidence)
    assert not diff(made(change, of), made(plain)).findings.all  # nothing became slower the other way


def test_kernels_that_run_less_often_are_not_compared_by_their_time() -> None:
    def two(rank: Rank, name: str, ns: int) -> None:
        rank.compute(name, ns)
        rank.compute(name, ns)

    def half_as_often(rank: Rank, name: str, ns: int) -> None:
        """One call of four times the length in place of two."""
        for _ in range(1 if name == "aten::mm" else 2):
            rank.compute(name, 4 * ns if name == "aten::mm" else ns)

    found = diff(made(two), made(half_as_often)).findings
    assert not {"slower-kernel", "slower-clock"} & {finding.id for finding in found}


def test_kernels_of_which_some_are_faster_have_no_slower_clock() -> None:
    def mixed(rank: Rank, name: str, ns: int) -> None:
        rank.compute(name, round(ns * (0.7 if name in NAMES[:2] else 1.3)))

    assert {finding.id for finding in diff(made(plain), made(mixed)).findings} == {"slower-kernel"}


def test_devices_and_settings_that_differ_come_first() -> None:
    def on(device: str, backend: str, change: Change) -> Any:
        ((_, kineto),) = Job(partial(program, change), 1).texts()
        document = json.loads(kineto) | {"deviceProperties": [{"id": 0, "name": device}]}
        document["distributedInfo"]["nccl_version"] = backend
        return link(None, json.dumps(document).encode())

    found = diff(on("NVIDIA A100", "2.18", plain), on("NVIDIA H100", "2.20", slow_clock)).findings
    assert [finding.id for finding in found] == ["other-device", "other-software", "slower-clock"]
    assert "2.18 in A, 2.20 in B" in found[1].title


def test_settings_are_those_that_the_trace_records() -> None:
    info = {"backend": "gloo", "nccl_version": "2.20", "rank": 0, "world_size": 8}
    for recorded, settings in ((info, ["2.20", "gloo", "8"]), ({}, ["not recorded", "none", "1"])):
        analysis: Any = SimpleNamespace(trace=made_trace({"kineto": {"distributed_info": recorded}}))
        assert [*_settings_of(analysis).values()] == [*settings, "no", "no", "no"]


def test_an_operator_of_the_host_that_takes_longer_is_named() -> None:
    def host(ns: int, rank: Rank) -> Play:
        for number in range(STEPS):
            with rank.op(f"ProfilerStep#{number}", annotation=True):
                for name in NAMES:
                    with rank.op(name):
                        rank.now += ns if name == "aten::mm" else 100_000
        yield from ()

    a, b = (Job(partial(host, ns), 1).traces()[0] for ns in (100_000, 300_000))
    found: list[Finding] = list(diff(a, b).findings)
    assert [(finding.id, finding.where.operator) for finding in found] == [("slower-operator", "aten::mm")]
    assert found[0].cost_ns == pytest.approx(200_000, rel=0.01)


def test_advice_that_was_followed_without_gain_is_reported() -> None:
    def steps(late_ns: int, kernel_ns: int, rank: Rank) -> Play:
        for number in range(STEPS):
            with rank.op(f"ProfilerStep#{number}", annotation=True):
                for name in NAMES:
                    rank.compute(name, kernel_ns)
                    rank.synchronize()
                    rank.now += late_ns
        yield from ()

    reads, slow, fast = (
        Job(partial(steps, *times), 1).traces()[0] for times in ((200_000, 200_000), (0, 400_000), (0, 200_000))
    )
    (finding,) = [each for each in diff(reads, slow).findings if each.id == "followed-without-gain"]
    assert "is gone in B, but the expected gain of" in finding.title
    assert "followed-without-gain" not in {each.id for each in diff(reads, fast).findings}


def test_changes_of_one_per_cent_of_the_time_are_reported() -> None:
    def two(start: float, dur: float, stream: int) -> Any:
        events = [op("aten::mm", 0, 10), launch(1, 1), launch(2, 3), kernel("a", 1, 20, 500)]
        return traced([*events, kernel("b", 2, start, dur, stream)])

    for start, dur, stream, name in ((520, 480, 7, "more-idle"), (510, 490, 8, "less-overlap")):
        for us in (10, 9.999):
            found = etplus.diff(two(start, dur, stream), two(start + us, dur, stream)).findings
            assert [finding.id for finding in found] == [name] * (us == 10)
