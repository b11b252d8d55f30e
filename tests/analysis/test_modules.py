"""Modules of a small trace by class: times with and without what is inside, on the host and on the device."""

from __future__ import annotations

from typing import Any

from etplus.analysis.modules import ModuleRow, module_class, module_table
from etplus.converters.open import load as read_trace
from traces import kernel, kineto_of, launch, op


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
    assert [(row.label, row.depth) for row in found] == [("## step ##", 0), ("Net", 0), ("Layer ×2", 1)]
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
