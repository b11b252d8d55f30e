"""Modules of a small trace by class: times with and without what is inside, on the host and on the device."""

from __future__ import annotations

from typing import Any

from etplus.analysis.modules import ModuleRow, module_class, module_table
from etplus.converters.open import load as read_trace
from etplus.trace.unattached import with_unattached
from made_traces import kernel, kineto_of, launch, op


def region(name: str, ts: float, dur: float) -> dict[str, Any]:
    return op(name, ts, dur, cat="user_annotation")


EVENTS = [
    region("nn.Module: Net_0", 0, 100), region("nn.Module: Layer_0", 10, 20), region("nn.Module: Layer_1", 40, 30),
    region("nn.Module: Layer_1", 80, 10), region("## step ##", 200, 50), op("aten::a", 12, 5), op("aten::a", 42, 5),
    op("aten::a", 82, 5), op("aten::b", 72, 5), op("aten::c", 210, 5), op("aten::d", 300, 5),
]  # fmt: skip


def launched() -> list[dict[str, Any]]:
    """A kernel of 1, 2, 4, 8, 16, 32 µs by each of the operators."""
    found = []
    for at, ts in enumerate((13, 43, 83, 73, 211, 301)):
        found += [launch(at + 1, ts), kernel("k", at + 1, 400 + 100 * at, 2**at)]
    return found


def test_modules_by_class() -> None:
    found = module_table(read_trace(kineto_of([*EVENTS, *launched()])))
    assert found == [
        ModuleRow(("## step ##",), 1, 1, 50_000, 50_000, 16_000, 16_000, 0, 0),
        ModuleRow(("Net",), 1, 1, 40_000, 100_000, 8_000, 15_000, 0, 0),
        ModuleRow(("Net", "Layer"), 2, 3, 60_000, 60_000, 7_000, 7_000, 0, 0),
    ]
    assert [(row.module, row.depth) for row in found] == [("## step ##", 0), ("Net", 0), ("Layer ×2", 1)]
    assert found[2].mean_ns == 20_000 and found[2].module == "Layer ×2"


def test_without_modules_or_device() -> None:
    assert module_table(read_trace(kineto_of(EVENTS[5:]))) == []
    rows = module_table(read_trace(kineto_of(EVENTS)))
    assert [(row.path, row.total_ns, row.device_total_ns) for row in rows] == [
        (("Net",), 100_000, 0), (("Net", "Layer"), 60_000, 0), (("## step ##",), 50_000, 0)
    ]  # fmt: skip


def test_classes() -> None:
    names = ("nn.Module: A_1_22", "nn.Module: A", "A_1", "nn.Module: ", "nn.Module: _3")
    assert [module_class(name) for name in names] == ["A_1", "A", "A_1", "nn.Module: ", "_3"]


def test_an_annotation_has_what_other_threads_launch_while_its_own_waits_inside_it() -> None:
    """As `loss.backward()` waits for autograd's threads, which may have annotations of their own."""
    events = [
        region("step", 0, 200), region("backward", 100, 50), op("aten::a", 10, 5), launch(1, 11),
        kernel("forward", 1, 300, 1), op("autograd::engine::evaluate_function: A", 110, 8, tid=2),
        {**launch(2, 111), "tid": 2}, kernel("backward", 2, 310, 2), op("hook", 120, 10, cat="user_annotation", tid=2),
        op("aten::b", 121, 5, tid=2), {**launch(3, 122), "tid": 2}, kernel("of the hook", 3, 320, 4),
        {**launch(4, 150), "tid": 2}, kernel("after it", 4, 330, 8), kernel("launched earlier", 5, 115, 16),
    ]  # fmt: skip
    trace = read_trace(kineto_of(events))
    rows = {row.path: (row.device_self_ns, row.device_total_ns) for row in module_table(with_unattached(trace))}
    assert rows == {
        ("step",): (9_000, 15_000), ("step", "backward"): (2_000, 6_000), ("hook",): (4_000, 4_000)
    }  # fmt: skip
    for path, (_, total) in rows.items():
        assert int(trace.between(path[-1]).gpu.dur.sum()) == total
