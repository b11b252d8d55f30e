"""Figures: made of real and of awkward traces, the same bytes every time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from etplus.analysis.breakdown import BreakdownRow, DeviceUse
from etplus.analysis.devices import Device
from etplus.analysis.kernel_peaks import KernelRow
from etplus.analysis.summary import Analysis, analyze
from etplus.converters.open import load as read_trace
from etplus.report import plots
from etplus.report.plots import write_plots
from traces import GPU_SHAPED, analysis_of, kernel, kineto_of, launch, op

pytest.importorskip("matplotlib", reason="matplotlib, which draws the figures, is not installed")


def test_figures(tmp_path: Path) -> None:
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        paths = write_plots(analysis_of(f"linked {GPU_SHAPED}"), folder, "x.", "svg")
        assert [path.name for path in paths][:2] == ["x.breakdown.svg", "x.operators.svg"]
        contents.append([path.read_bytes() for path in paths])
    assert contents[0] == contents[1]
    assert b"aten::" in contents[0][1]


@pytest.mark.slow
def test_odd_names_and_lengths(tmp_path: Path) -> None:
    products = [([64, 64], "c10::Half")] * 2
    events = [
        op("aten::mm", 0, 30, products), launch(1, 5), launch(2, 50),
        kernel("gemm $x_1$ <script>&\n\0", 1, 20, 9), kernel("k" * 5000, 2, 30, 0),
    ]  # fmt: skip
    analysis = analyze(read_trace(kineto_of(events)))
    paths = write_plots(analysis, tmp_path, kind="svg")
    assert [path.stem for path in paths] == ["breakdown", "operators", "roofline"]
    assert b"<script" not in (tmp_path / "operators.svg").read_bytes()
    assert all(path.stat().st_size > 5000 for path in write_plots(analysis, tmp_path, kind="png"))


def test_nothing_to_draw(tmp_path: Path) -> None:
    assert write_plots(analyze(read_trace(kineto_of([op("aten::mm", 0, 9)]))), tmp_path) == []


def bars(figure: Any, row: int = 0) -> dict[str, tuple[float, float]]:
    """Label to start and width of the bars of one row, of those that have a width."""
    found = {one.get_label(): one.patches[row] for one in figure.axes[0].containers}
    return {label: (bar.get_x(), bar.get_width()) for label, bar in found.items() if bar.get_width()}


def breakdown_row(op: str, kernel: str, total_ns: int) -> BreakdownRow:
    return BreakdownRow(0, 7, (), op, "", kernel, "kernel", 1, total_ns, 0.0)


def analysis(**tables: Any) -> Analysis:
    return cast("Analysis", SimpleNamespace(**tables))


def test_the_parts_of_a_device_s_time_stand_beside_each_other() -> None:
    ms = 1_000_000
    use = DeviceUse(3, 20 * ms, 18 * ms, 11 * ms, 9 * ms, 0, 6 * ms, 2 * ms, 4 * ms, 3 * ms)
    figure = plots._breakdown(analysis(device_use=[use]))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["device 3"]  # type: ignore[union-attr]
    assert bars(figure) == {
        "computing": (0, 6), "exposed communication": (6, 3), "other copies": (9, 2), "idle": (11, 9)
    }  # fmt: skip
    assert plots._breakdown(analysis(device_use=[])) is None


def test_kernels_of_an_operator_are_stacked_and_small_ones_are_one_bar() -> None:
    ms = 1_000_000
    rows = [breakdown_row("big", f"k{at}", (20 - at) * ms) for at in range(10)]
    rows += [breakdown_row("small", "k0", 2 * ms), breakdown_row("small", "k9", 1 * ms)]
    figure = plots._operators(analysis(breakdown=rows))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["big", "small"]  # type: ignore[union-attr]
    wanted, left = {}, 0
    for at in range(8):
        wanted[f"k{at}"] = (left, 20 - at)
        left += 20 - at
    assert bars(figure) == wanted | {"other kernels": (left, 12 + 11)}
    assert bars(figure, 1) == {"k0": (0, 2), "other kernels": (2, 1)}
    few = plots._operators(analysis(breakdown=[breakdown_row(f"op{at:02}", "k", (30 - at) * ms) for at in range(12)]))
    assert [one.get_label() for one in few.axes[0].containers] == ["k"], "no bar for the rest where there is none"  # type: ignore[union-attr]
    assert [one.get_text() for one in few.axes[0].get_yticklabels()] == [f"op{at:02}" for at in range(10)]  # type: ignore[union-attr]
    assert plots._operators(analysis(breakdown=[])) is None


def kernel_row(device: int, dtype: str, flops: int | None, size: int | None, ns: int) -> KernelRow:
    return KernelRow(device, "k", "kernel", dtype, (), 1, ns, flops, ns, size, size, ns, ns, None, None, None, "")


def test_kernels_stand_below_the_roofs() -> None:
    """A device of 2 TFLOP/s (half in float32) and 1 TB/s: its ridges are at 2 and 1 FLOPs per byte."""
    device = Device(name="D", tflops={"float16": 2, "float32": 1}, memory_gb_s=1000)
    rows = [
        kernel_row(1, "float16", 8_000_000, 1_000_000, 10_000), kernel_row(1, "float32", 400_000, 1_600_000, 2_000),
        kernel_row(1, "int8", 1_000_000, 1_000_000, 5_000), kernel_row(0, "float16", 9, 1, 1),
        kernel_row(1, "float32", None, 7, 1), kernel_row(1, "float32", 7, None, 1),
    ]  # fmt: skip
    figure = plots._roofline(analysis(kernels=rows, devices={1: device, 2: device}))
    axes = figure.axes[0]  # type: ignore[union-attr]
    points = {one.get_label(): (one.get_offsets().tolist(), one.get_sizes().tolist()) for one in axes.collections}
    assert points == {
        "float16 kernels": ([[8.0, 0.8]], [220.0]), "float32 kernels": ([[0.25, 0.2]], [60.0]),
        "int8 kernels": ([[1.0, 0.2]], [120.0]),
    }  # fmt: skip
    roofs = {one.get_label(): one.get_xydata().tolist() for one in axes.lines}
    assert roofs == {
        "float16 2 TFLOP/s": [[0.125, 0.125], [2, 2], [16, 2]], "float32 1 TFLOP/s": [[0.125, 0.125], [1, 1], [16, 1]]
    }  # fmt: skip
    assert axes.get_title() == "D" and axes.get_xscale() == axes.get_yscale() == "log"
    assert plots._roofline(analysis(kernels=rows[3:], devices={})) is None
    assert plots._roofline(analysis(kernels=rows[4:], devices={1: device})) is None


def test_sizes_of_figures() -> None:
    """Inches: a part for each bar, and room for the names of eight kernels."""
    events = [op(f"aten::op{number}", 100 * number, 90) for number in range(12)]
    for number in range(12):
        events += [launch(number + 1, 100 * number + 5), kernel("gemm", number + 1, 2000 + 10 * number, 9)]
    for shown in (3, 12):
        chosen = [event for event in events if event["ts"] < 100 * shown or event["cat"] == "kernel"]
        analysis = analyze(read_trace(kineto_of(chosen)))
        bars_shown = min(len({row.label for row in analysis.breakdown}), 10)
        figure, other = plots._operators(analysis), plots._breakdown(analysis)
        assert figure is not None and other is not None
        assert figure.get_size_inches().tolist() == pytest.approx([9, 2.4 + 0.3 * bars_shown + 8 * 0.17])
        assert other.get_size_inches().tolist() == pytest.approx([7, 1.9])
