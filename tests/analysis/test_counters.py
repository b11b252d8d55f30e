"""Counters of traces made by hand: which ones there are, their names, units, and what a chart is given."""

import numpy as np
import pytest
from etplus.analysis.counters import Counter, counters, drawn
from etplus.analysis.device_memory import device_memory
from etplus.converters.open import load as read_trace
from made_traces import kernel, kineto_of, launch, memory_event, op


def copies() -> list[dict]:  # type: ignore[type-arg]
    copy = kernel("Memcpy HtoD (Pinned -> Device)", 2, 30, 10)
    copy["cat"], copy["args"]["bytes"] = "gpu_memcpy", 50_000
    return [op("aten::mm", 0, 100), launch(1, 5), launch(2, 10), kernel("gemm", 1, 20, 10), copy]


def test_all_counters() -> None:
    events = [*copies(), memory_event(40, 2_000_000, 1, 3_000_000), memory_event(50, -2_000_000, 1, 1_000_000)]
    trace = read_trace(kineto_of(events))
    found = list(counters(trace))
    told = [(one.kind, one.device, one.name, one.unit, (one.ts - trace.span.start).tolist(), one.values.tolist())
            for one in found]  # fmt: skip
    assert told == [
        ("queue", 0, "queue length of stream 7", "launches", [5_000, 10_000, 20_000, 30_000], [1, 2, 1, 0]),
        ("bandwidth", 0, "memory bandwidth HtoD", "GB/s", [30_000, 40_000], [5, 0]),
        ("allocated", 0, "memory allocated", "MB", [40_000, 50_000], [3, 1]),
        ("reserved", 0, "memory reserved", "MB", [40_000, 50_000], [1.048576, 1.048576]),
    ]
    assert [one.title(3) for one in found[1:3]] == ["GPU 3 memory bandwidth HtoD", "GPU 3 memory allocated"]
    assert found[0]._replace(device=-1).title(3) == "CPU queue length of stream 7"
    assert [one.kind for one in counters(trace, [])] == ["queue", "bandwidth"]
    assert [one.kind for one in counters(trace, device_memory(trace))] == [one.kind for one in found]


def test_memory_that_is_not_reserved_has_one_counter() -> None:
    events = [op("aten::mm", 0, 100), memory_event(40, 8, 1, 9, **{"Total Reserved": -1})]
    assert [one.kind for one in counters(read_trace(kineto_of(events)))] == ["allocated"]


def test_allocations_before_the_trace_count_at_its_start() -> None:
    events = [op("aten::mm", 100, 100)]
    events += [memory_event(ts, 1_000_000, ts, 1_000_000 * number) for number, ts in enumerate((10, 50, 120), 1)]
    trace = read_trace(kineto_of(events))
    allocated = next(one for one in counters(trace) if one.kind == "allocated")
    first = max((ts for ts in (10_000, 50_000) if ts <= trace.span.start), default=None)
    wanted = [(50_000, 2.0), (120_000, 3.0)] if first is not None else [(10_000, 1.0), (50_000, 2.0), (120_000, 3.0)]
    assert allocated.values.tolist() == [value for _, value in wanted]
    assert allocated.ts.tolist() == [max(ts, trace.span.start) for ts, _ in wanted]


@pytest.mark.parametrize(("unit", "scale"), [("MB", 1e6), ("GB/s", 1e9), ("launches", 1)])
def test_a_chart_has_whole_bytes_and_times_from_the_start(unit: str, scale: float) -> None:
    counter = Counter("kind", 2, "name", unit, np.array([100, 250]), np.array([3, 1.5 if scale > 1 else 1]))
    (row,) = drawn([counter], 40, 5)
    assert (row["kind"], row["device"], row["title"]) == ("kind", 2, "GPU 2 name")
    assert row["ts"].tolist() == [60, 210]
    assert row["values"].tolist() == [3 * scale, (1.5 if scale > 1 else 1) * scale]
