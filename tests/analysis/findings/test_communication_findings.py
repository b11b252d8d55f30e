"""Findings of communication and of late ranks, on made jobs whose time with and without the problem is known.

Modules: communication_findings, analysis.findings.stragglers, rank_times.
"""

from functools import cache, partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from etplus.analysis.findings import Findings
from etplus.analysis.findings.communication_findings import _issuing, _latency
from etplus.analysis.findings.rank_times import RankTimes, uncovered
from etplus.analysis.findings.stragglers import _cause, _causes, _interventions, _LongerOnRank
from etplus.linker import link
from etplus.trace.intervals import union
from kept_findings import findings_of, only
from made_jobs import JOBS, RECORDED, Job, Play, Rank, ddp
from made_traces import Timeline, kineto_of, op
from simulator import ALL_REDUCE, Network

SLOW = Network(bandwidth=30, latency=5000)
"""GB/s, ns: an all-reduce of all layers of `ddp` takes about half as long as its backward pass."""
FAST = Network(bandwidth=1000, latency=100)


@cache
def found(job: Job, network: Network) -> Findings:
    return findings_of(*job.traces(waits=True, network=network))


UNBUCKETED, BUCKETED = Job(partial(ddp, bucket=6), 2), Job(ddp, 2)
"""In one bucket, all gradients are reduced at once, when the backward pass is over."""


def test_a_reduction_at_the_end_is_exposed_and_in_buckets_it_is_not():
    law = UNBUCKETED.makespan_ns(SLOW) - BUCKETED.makespan_ns(SLOW)
    finding = only(found(UNBUCKETED, SLOW), "exposed-communication")
    assert law > 0.05 * UNBUCKETED.makespan_ns(SLOW)
    assert finding.gain.ns == pytest.approx(law, rel=0.3)
    assert finding.gain.low_ns <= law <= finding.gain.high_ns
    assert "exposed-communication" not in {other.id for other in found(BUCKETED, SLOW)}


def test_what_is_hidden_or_takes_no_time_is_no_finding():
    for job in (UNBUCKETED, JOBS["fsdp"]):
        assert not found(job, RECORDED).all


def test_a_network_slower_than_all_compute_is_told_from_one_that_could_be_hidden():
    slow = Network(bandwidth=1, latency=5000)
    findings = found(BUCKETED, slow)
    finding = only(findings, "communication-bound")
    law = BUCKETED.makespan_ns(slow) - BUCKETED.makespan_ns(Network(bandwidth=2, latency=2500))
    assert finding.gain.ns == pytest.approx(law, rel=0.1)
    assert "exposed-communication" not in {other.id for other in findings}


def many_messages(count: int, rank: Rank) -> Play:
    """As many all-reduces of 1 MB together, one after the other, and compute."""
    tensor = rank.tensor("g", (1 << 20) // 4 // count)
    for number in range(3):
        with rank.op(f"ProfilerStep#{number}", annotation=True):
            rank.compute("aten::mm", 1_000_000, [tensor], [tensor])
            for _ in range(count):
                rank.wait((yield from rank.collective(ALL_REDUCE, (1 << 20) // count, [tensor])))
    rank.synchronize()


MESSAGES = {count: Job(partial(many_messages, count), 2) for count in (1, 32)}


def test_small_messages_gain_what_one_of_their_size_together_would_take():
    network = Network(bandwidth=50, latency=20_000)
    law = MESSAGES[32].makespan_ns(network) - MESSAGES[1].makespan_ns(network)
    assert only(found(MESSAGES[32], network), "small-messages").gain.ns == pytest.approx(law, rel=0.3)
    assert "small-messages" not in {other.id for other in found(MESSAGES[1], network)}


LATE, RATIO = 2, 1.5


class SlowRank(Rank):
    """From the second step on one rank's backward products take longer."""

    def compute(self, name: str, ns: int, *sides: Any) -> None:
        started = any(node["name"] == "ProfilerStep#1" for node in self.nodes)
        slow = self.rank == LATE and started and name == "aten::mm" and ns == 400_000
        super().compute("aten::bmm" if ns == 400_000 else name, round(ns * RATIO) if slow else ns, *sides)


class EvenRank(Rank):
    """The same program on equal devices."""

    def compute(self, name: str, ns: int, *sides: Any) -> None:
        super().compute("aten::bmm" if ns == 400_000 else name, ns, *sides)


def test_a_straggler_is_named_with_its_kernel_since_when_and_what_it_costs():
    slow, even = Job(ddp, 4, of=SlowRank), Job(ddp, 4, of=EvenRank)
    law = slow.makespan_ns(FAST) - even.makespan_ns(FAST)
    finding = only(found(slow, FAST), "straggler")
    assert finding.where.rank == LATE
    assert finding.where.kernel == "void aten::bmm_kernel()"
    assert finding.gain.ns == pytest.approx(law, rel=0.3)
    assert finding.gain.low_ns <= law <= finding.gain.high_ns
    second = next(node["ts"] for node in slow.play(FAST)[LATE].events if node["name"] == "ProfilerStep#1") * 1000
    assert finding.where.start_ns >= second - 1_000_000  # on the trace's clock, which begins with the first event
    assert not found(even, FAST).all


class MoreWork(Rank):
    """One rank does each forward product twice."""

    def compute(self, name: str, ns: int, *sides: Any) -> None:
        for _ in range(2 if self.rank == LATE and ns == 200_000 else 1):
            super().compute(name, ns, *sides)


def test_a_rank_with_more_work_is_told_from_a_slow_one():
    more, even = Job(ddp, 4, of=MoreWork), Job(ddp, 4)
    finding = only(found(more, FAST), "unlike-work")
    assert finding.where.rank == LATE
    assert finding.gain.ns == pytest.approx(more.makespan_ns(FAST) - even.makespan_ns(FAST), rel=0.3)
    assert "straggler" not in {other.id for other in found(more, FAST)}


def test_a_rank_alone_says_that_waiting_for_others_may_be_part_of_it():
    finding = only(findings_of(UNBUCKETED.traces(waits=True, network=SLOW)[0]), "exposed-communication")
    assert "waits for late ranks" in finding.evidence[0].text


def test_uncovered_time_equals_a_count_of_every_ns():
    busy = union(np.array([2, 8]), np.array([4, 9]))
    begin, end = (side.reshape(-1) for side in np.triu_indices(12))
    wanted = [sum(not (2 <= ns < 4 or ns == 8) for ns in range(a, b)) for a, b in zip(begin, end, strict=True)]
    assert uncovered(busy, begin, end).tolist() == wanted


def test_operators_around_a_communication_do_not_count_as_compute():
    inner = [op("step", 0, 100), op("c10d::allreduce_", 1, 90), op("gloo:all_reduce", 2, 80)]
    more = [op("aten::mm", 200, 50), op("autograd::engine::evaluate_function: X", 300, 50)]
    trace = link(None, kineto_of([*inner, *more]))
    none = np.zeros(0, np.int64)
    compute = RankTimes(trace, 0, cast(Any, SimpleNamespace(on_host=np.ones(1, np.bool_))), none, none).compute
    assert (compute.start.tolist(), compute.end.tolist()) == ([200_000], [250_000])
    assert uncovered(compute, np.array([-5]), np.array([200_002])).tolist() == [200_005]


def test_a_latency_follows_from_sizes_of_which_one_is_twice_another():
    sizes, ns = np.array([10, 0, 10, 20]), np.array([7, 1, 5, 8])
    assert _latency(sizes, ns) == (2.0, True) and _latency(sizes - (sizes == 20), ns) == (5.0, False)


def test_causes_of_a_late_rank_explain_half_of_the_wait():
    def longer(name: str, ns: int, *, kernel: bool = True, usual: float = 100.0) -> _LongerOnRank:
        return _LongerOnRank(name, kernel, np.arange(2), usual + ns, usual, 4, 4.0)

    extras = [longer("a", 30), longer("b", 20, usual=0.0), longer("c", 50, kernel=False)]
    assert _causes(extras, 100) == extras[:2] and _causes(extras, 101) == [] and _causes(extras[1:], 100) == extras[2:]
    assert len(_causes([longer("a", 60), longer("b", 15), longer("c", 1)], 100)) == 2
    names = [change.what_if for change in _interventions(1, extras, extras)]
    assert names == ["rank=1 kernel:name=a*0.7692", "rank=1 kernel:name=b*0", "rank=1 op:c*0.6667"]
    four = [longer(name, 25) for name in "abcd"]
    (whole,) = _interventions(1, four, [*four, *extras[2:]])
    assert whole.what_if == "rank=1 kernel*0.8" and len(whole.rows) == 8
    said = [_cause(causes, 50) for causes in (extras[2:], [longer("b", 25, usual=0.0)], [longer("b", 24)], four)]
    parts = ("c takes", "kernel b takes", "1 kernels take", "kernel a takes")
    assert all(text.startswith(part) for part, text in zip(parts, said, strict=True))
    assert ["1.50 times" in said[0], "do not run" in said[1], "1.24 times" in said[2]] == [True] * 3


def test_the_issuing_operator_is_named_if_it_issues_nothing_else():
    made = Timeline()
    for k, name in enumerate(("c10d::allreduce_", "c10d::send", "c10d::send", "aten::mm")):
        made.op(name, 100 * k, 50)
        made.launch(f"ncclDevKernel_{k}", 100 * k + 5, 1, 100 * k + 9, 20)
    trace = made.document()
    rank = RankTimes(trace, 0, cast(Any, None), trace.gpu.source, trace.gpu.source)
    found = [_issuing(rank, np.array(at)) for at in ([0], [1], [1, 2], [0, 1], [3])]
    assert found == ["c10d::allreduce_", "", "c10d::send", "", ""]
