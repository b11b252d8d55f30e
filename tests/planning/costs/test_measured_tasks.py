"""Tasks of a trace, medians of equal ones, what a rank takes that was not measured."""

from types import SimpleNamespace

import numpy as np
import pytest
from etplus.planning.costs import task as module
from etplus.planning.costs.task import (
    MeasuredTask,
    Task,
    _Caller,
    _Callers,
    gpu_tasks,
    medians,
    pooled,
    unseen_rank_duration,
)
from etplus.trace.index import CallIndex
from etplus.trace.trace import Trace
from made_traces import Timeline


def timeline() -> Trace:
    """An op that launches two kernels, one with a grid, and a copy; and a kernel outside of ops."""
    trace = Timeline()
    trace.op("aten::mm", 0, 40)
    trace.gpu("gemm", 10, 20, trace.call("cudaLaunchKernel", 1, 2), grid=[2, 3, 4], block=[32, 2, 1])
    trace.launch("reduce", 4, 2, 31, 5)
    copy = trace.call("cudaMemcpyAsync", 8, 2)
    trace.gpu("Memcpy DtoD (Device -> Device)", 40, 5, copy, category="gpu_memcpy", bytes=4096)
    trace.launch("alone", 50, 2, 60, 5)
    return trace.document()


def test_gpu_events_become_tasks_with_operator_place_and_blocks() -> None:
    tasks = gpu_tasks(timeline())
    gemm, reduce, copy, alone = tasks
    assert (gemm.op, gemm.kernel, gemm.category, gemm.place) == ("aten::mm", "gemm", "kernel", 0)
    assert (gemm.blocks, gemm.block_threads, gemm.device) == (24, 64, "unknown device")
    assert (reduce.op, reduce.kernel, reduce.place, reduce.blocks) == ("aten::mm", "reduce", 1, 0)
    assert (copy.category, copy.bytes, copy.flops, copy.main, copy.place) == ("gpu_memcpy", 4096, None, True, 2)
    assert (alone.op, alone.place, alone.main, alone.bytes, alone.flops) == ("", 0, False, None, None)
    assert [task.inputs for task in tasks] == [()] * 4


def test_work_that_is_counted_is_the_events_own(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"flops": [0, -1, 9, -1], "bytes": [40, -1, -1, 0], "most_bytes": [120, -1, -1, 5], "dtype": [0, 1, 0, 0]}
    work = SimpleNamespace(dtypes=["float16", "int8"], **{name: np.array(of) for name, of in given.items()})
    monkeypatch.setattr(module, "work_of_events", lambda _: work)
    found = [(task.flops, task.bytes, task.main, task.byte_factor, task.dtype) for task in gpu_tasks(timeline())]
    assert found == [
        (0, 40, True, 2.0, "float16"), (None, None, False, 1.0, "int8"), (None, 4096, True, 1.0, "float16"),
        (None, 0, True, 1.0, "float16"),
    ]  # fmt: skip


def test_the_caller_is_the_innermost_operator_with_tensors() -> None:
    trace = timeline()
    callers = _Callers(trace)
    names = [trace.names[name] for name in trace.calls.name.tolist()]
    assert callers.above(CallIndex(names.index("aten::mm"))) == names.index("aten::mm"), "none has tensors: the first"
    assert callers.above(CallIndex(-1)) == -1
    assert callers.of(CallIndex(-1)) == _Caller("", None, None, None)
    assert callers.of(CallIndex(0)) is callers.of(CallIndex(0))


def test_equal_tasks_become_one_with_median_and_percentiles() -> None:
    a, b, comm = Task("a"), Task("b"), Task("c", collective="all_reduce")
    found = medians([a, b, a, a, comm, comm], [10.0, 5.0, 30.0, 20.0, 7.0, 9.0])
    assert found[0] == MeasuredTask(a, 20.0, 3, pytest.approx(12.0), pytest.approx(28.0))
    assert found[1] == MeasuredTask(b, 5.0, 1, 5.0, 5.0)
    assert found[2] == MeasuredTask(comm, 8.0, 2, pytest.approx(7.2), pytest.approx(8.8), (7.0, 9.0))


def test_pooling_counts_each_trace_once() -> None:
    a = Task("a")
    traces = [MeasuredTask(a, ns, count, ns - 1, ns + 1) for ns, count in ((10.0, 5), (20.0, 1), (90.0, 2))]
    assert pooled([*traces, MeasuredTask(Task("b"), 3.0, 1)]) == [
        MeasuredTask(a, 20.0, 8, 9.0, 91.0), MeasuredTask(Task("b"), 3.0, 1)
    ]  # fmt: skip


def test_pooling_collectives_estimates_an_unseen_rank() -> None:
    task = Task("c", collective="all_reduce", group_size=3)
    ranks = [MeasuredTask(task, 0.0, 2, times=times) for times in ((10.0, 50.0), (40.0, 10.0))]
    expected = unseen_rank_duration(np.array([(10.0, 50.0), (40.0, 10.0)]), 3)
    assert pooled(ranks)[0].ns == expected == pytest.approx((40 + 50) / 2)
    other = MeasuredTask(task, 8.0, 1, times=(8.0,))
    assert pooled([ranks[0], other])[0].ns == 4.0, "not as many times: the median of 0 and 8"


def test_an_unseen_rank_waits_like_the_others_or_arrives_last() -> None:
    """Three of four ranks: where one took about the least of all, the fourth waits like the mean of the others; where
    none did, the fourth was the last and took the least."""
    least = 10.0
    times = np.array([[10.0, 900.0], [15.0, 700.0], [400.0, 500.0]])
    waits, last = (15 + 400) / 2, least
    assert unseen_rank_duration(times, 4) == pytest.approx((waits + last) / 2)
    assert unseen_rank_duration(times) == pytest.approx((waits + last) / 2), "one more than those, by default"
    of_two = ((2 - 1) * 700 + least) / 2
    assert unseen_rank_duration(times, 5) == pytest.approx((waits + of_two) / 2)
    assert unseen_rank_duration(times, 3) == pytest.approx(times.mean())
    at_most = np.array([[10.0, 20.0], [30.0, 40.0]])
    assert unseen_rank_duration(at_most, 3) == pytest.approx((30 + 40) / 2), "up to twice the least is about the least"
    assert unseen_rank_duration(at_most + np.array([[0, 0.1], [0, 0]]), 3) == pytest.approx((30 + 10) / 2)
