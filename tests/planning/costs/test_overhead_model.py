"""The walk of the overheads engine with overheads of whole microseconds, step by step."""

from __future__ import annotations

from functools import cache

import msgspec
import numpy as np
import pytest
from etplus.analysis.overheads import Overheads, Statistic
from etplus.planning.costs.fitting import fit
from etplus.planning.costs.model_file import FittedModel
from etplus.planning.costs.overhead_model import (
    _launches,
    _waits,
    _WorkTimes,
    overhead_model,
    overhead_model_of_ranks,
    scaled,
    with_work_of,
)
from etplus.trace.trace import Trace
from synthetic import Timeline


def stat(us: float, n: int = 1) -> Statistic:
    return Statistic(us, 0.5, n, 0, 0, us)


@cache
def fitted() -> FittedModel:
    return fit([program()])


def overheads(**more: object) -> Overheads:
    """T1 of 1 µs, T2 of 2 … T5 of 5, for all names."""
    own = fitted().overheads
    tables = {kind: {} for kind in ("t2", "t3", "t4", "t5")}
    found = {f"t{k}": stat(float(k)) for k in range(1, 6)}
    return msgspec.structs.replace(own, t1=stat(1.0), **{**tables, "all": found, **more})


def program() -> Trace:
    """first 0–40 launches a (30 long) and b (50 long) on stream 7; plain 50–60; second 70–90 launches c on stream 9."""
    trace = Timeline()
    trace.op("first", 0, 40)
    trace.launch("a", 1, 2, 10, 30)
    trace.launch("b", 10, 2, 41, 50)
    trace.op("plain", 50, 10)
    trace.op("second", 70, 20)
    trace.launch("c", 71, 2, 80, 10, stream=9)
    return trace.document()


def model(**more: object) -> FittedModel:
    return msgspec.structs.replace(fitted(), overheads=overheads(**more))


def walk(trace: Trace, of: FittedModel, **more: object) -> tuple[float, dict[str, float]]:
    ns = [float(dur) for dur in trace.gpu.dur.tolist()]
    found = overhead_model(trace, of, ns, np.zeros(len(trace), np.int64), **more)  # type: ignore[arg-type]
    return found.total / 1000, {
        trace.names[trace.gpu.name[event]]: at / 1000 for event, at in found.ready.items()
    }  # fmt: skip


def test_the_walk() -> None:
    """first: 1 + 2, a at 3 + 4 = 7 (ends at 37), host at 7; + 5, b at max(37 + 1, 12 + 4) = 38 (to 88), host at 16; + 3
    = 19. plain: + 1 + 5 = 25. second: + 1 + 2 = 28, c at 32 (to 42), host at 32, + 3 = 35. The device ends at 88."""
    assert walk(program(), model()) == (88.0, {"a": 7.0, "b": 38.0, "c": 32.0})
    slow = model(t5={"plain": stat(100.0), "first": stat(10.0)}, t4={"cudaLaunchKernel": stat(6.0)})
    # 3, a at 9, host 9 + 10 = 19, b at max(40, 25), host 25 + 3 = 28, + 1 + 100 = 129, + 3 = 132, c at 138, host 141
    assert walk(program(), slow) == (148.0, {"a": 9.0, "b": 40.0, "c": 138.0})


def test_a_collective_starts_when_its_last_rank_is_ready() -> None:
    total, ready = walk(program(), model(), not_before={0: 60_000.0})
    assert (total, ready) == (60 + 30 + 1 + 50, {"a": 7.0, "b": 91.0, "c": 32.0})


def test_rows_that_do_not_count_are_not_walked() -> None:
    trace = program()
    rows = np.full(len(trace), -1, np.int64)
    assert overhead_model(trace, model(), [0.0] * 3, rows).total == 0
    for call, row in enumerate(trace.calls.source.tolist()):
        if trace.names[trace.calls.name[call]] == "plain":
            rows[row] = 0
    assert overhead_model(trace, model(), [0.0] * 3, rows).total == 6000


def test_the_host_waits() -> None:
    """A synchronisation in an op waits at its end, one between ops before the next one; a blocking copy at once."""
    inside, between, copying = Timeline(), Timeline(), Timeline()
    for trace, at in ((inside, 30), (between, 45)):
        trace.op("first", 0, 40)
        trace.launch("a", 1, 2, 10, 30)
        trace.call("cudaDeviceSynchronize", at, 3)
        trace.op("plain", 50, 10)
    # 3 + 4 = 7, a until 37; host 10, waits until 37; + 1 + 5
    for trace in (inside, between):
        assert walk(trace.document(), model()) == (43.0, {"a": 7.0})
    copying.op("first", 0, 40)
    call = copying.call("cudaMemcpyAsync", 1, 34)
    copying.gpu("Memcpy DtoH (Device -> Pageable)", 4, 30, call, category="gpu_memcpy")
    # 7, the copy until 37, which the call waits for; + 3
    assert walk(copying.document(), model())[0] == 40.0
    found = _waits(between.document(), np.zeros(len(between.document()), np.int64))
    assert found[0] == set() and len(found[1]) == 1
    document = inside.document()
    assert [document.names[document.calls.name[call]] for call in _waits(document, document.nodes.ts * 0)[0]] == [
        "first"
    ]
    assert _waits(document, document.nodes.ts * 0 - 1) == (set(), [])


def test_launches_by_topmost_operator_in_their_order() -> None:
    trace = Timeline()
    trace.op("outer", 0, 40)
    trace.op("inner", 5, 20)
    trace.launch("late", 30, 2, 60, 5)
    trace.launch("early", 10, 2, 70, 5)
    trace.launch("alone", 100, 2, 110, 5)
    document = trace.document()
    found = {
        document.names[document.calls.name[op]]: [document.names[document.gpu.name[event]] for event in events]
        for op, events in _launches(document).items()
    }
    assert found == {"outer": ["early", "late"]}


def test_ranks_wait_for_each_other() -> None:
    """A rank that begins 100 later makes the first one's a begin at 107: it ends at 137 and b until 188."""
    trace, ns = program(), [30_000.0, 50_000.0, 10_000.0]
    rows = np.zeros(len(trace), np.int64)
    both = [trace, trace], [model(), model()], [ns, ns], [rows, rows]
    assert overhead_model_of_ranks(*both, [0.0, 100_000.0], []) == 188_000
    assert overhead_model_of_ranks(*both, [0.0, 0.0], [{0: 0, 1: 0}]) == 88_000
    early = [0.0, 0.0, 0.0]
    uneven = [trace, trace], [model(), model()], [ns, early], [rows, rows]
    # rank 0's a begins with that of rank 1 at 107; its b is ready at 138 and meets that of rank 1: both until 188
    assert overhead_model_of_ranks(*uneven, [0.0, 100_000.0], [{0: 0, 1: 0}, {0: 1, 1: 1}]) == 188_000
    assert overhead_model_of_ranks(*uneven, [0.0, 100_000.0], []) == 135_000


def test_overheads_of_another_host() -> None:
    own = overheads(t5={"plain": stat(7.0), "mine": stat(9.0)})
    twice = scaled(own, 2.0)
    assert (twice.t1.mean, twice.t1.mean_with_outliers, twice.t1.std, twice.t1.n) == (2.0, 2.0, 1.0, 1)
    assert twice.t5["plain"].mean == 14.0 and twice.all["t4"].mean == 8.0
    known = overheads(t5={"plain": Statistic(5.0, 1.0, 3, 0, 1, 50.0), "none": stat(1.0), "mine": stat(3.0, 0)})
    mixed = with_work_of(own, known, 2.0)
    assert mixed.t5["plain"].mean_with_outliers == mixed.t5["plain"].mean == 10.0
    assert mixed.t5["mine"] == own.t5["mine"] and set(mixed.t5) == {"plain", "mine"} and mixed.t1 == own.t1


def test_times_of_what_was_not_seen_are_means_over_all() -> None:
    times = _WorkTimes(model(t3={"op": Statistic(1.0, 0.0, 2, 0, 1, 30.0)}))
    assert times.t1 == 1000 and [times.of(kind, "x") for kind in (2, 3, 4, 5)] == [2000, 3000, 4000, 5000]
    assert times.of(3, "op") == pytest.approx(30_000), "outliers included"
