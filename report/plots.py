"""Matplotlib figures for papers: use of streams, kernels per operator, roofline."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..analysis.breakdown import DeviceUse
from ..analysis.devices import Device
from ..analysis.kernel_peaks import KernelRow
from ..analysis.summary import Analysis
from ..schemas.text.files import open_output
from ..trace.errors import UsageError
from ..trace.text_tables import shorten

if TYPE_CHECKING:  # an extra
    from matplotlib.figure import Figure

_MS = 1e6
_OPS, _KERNELS = 10, 8
_NAME = 44
_LEGEND_NAME = 60
# Same input, same bytes.
_FIXED: dict[Any, Any] = {"svg.hashsalt": "etplus", "svg.fonttype": "none"}
_NO_DATE: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}


def require_matplotlib() -> None:
    """Check that matplotlib can be imported.

    Raises:
        UsageError: matplotlib cannot be imported.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise UsageError(f"figures need matplotlib ({error}): pip install 'etplus[plots]'") from None


def write_plots(analysis: Analysis, folder: Path, stem: str = "", kind: str = "png") -> list[Path]:
    """Write "breakdown", "operators" and "roofline"; skip figures without data.

    Args:
        folder: an existing folder.
        stem: prefix of the file names.
        kind: "png", "svg" or "pdf".

    Raises:
        UsageError: matplotlib cannot be imported, or a file cannot be written.
    """
    require_matplotlib()
    import matplotlib as mpl

    written = []
    with mpl.rc_context(_FIXED):
        for name, draw in (("breakdown", _breakdown), ("operators", _operators), ("roofline", _roofline)):
            figure = draw(analysis)
            if figure is None:
                continue
            path = folder / f"{stem}{name}.{kind}"
            with open_output(path) as out:
                figure.savefig(out, format=kind, dpi=150, metadata=_NO_DATE[kind])
            written.append(path)
    return written


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _breakdown(analysis: Analysis) -> Figure | None:
    if not analysis.device_use:
        return None
    figure = _figure(7, 1.4 + 0.5 * len(analysis.device_use))
    _draw_use(figure.subplots(), {f"device {use.device}": use for use in analysis.device_use})
    return figure


def device_use_axes(uses: Mapping[str, DeviceUse]) -> Any:
    """Return axes of a new figure, for a notebook: a bar for each device.

    Raises:
        UsageError: matplotlib cannot be imported, or there is no device.
    """
    require_matplotlib()
    from matplotlib import pyplot

    if not uses:
        raise UsageError("nothing to plot: the trace has no GPU events")
    _, axes = pyplot.subplots(figsize=(7, 1.4 + 0.5 * len(uses)), layout="constrained")
    _draw_use(axes, uses)
    return axes


def _draw_use(axes: Any, uses: Mapping[str, DeviceUse]) -> None:
    columns = {
        "computing": [use.compute_ns for use in uses.values()],
        "exposed communication": [use.exposed_communication_ns for use in uses.values()],
        "other copies": [use.busy_ns - use.compute_ns - use.exposed_communication_ns for use in uses.values()],
        "idle": [use.idle_ns for use in uses.values()],
    }
    left = np.zeros(len(uses))
    for (name, values), color in zip(columns.items(), ("C0", "C3", "C1", "0.85"), strict=True):
        axes.barh(list(uses), np.array(values) / _MS, left=left, label=name, color=color)
        left += np.array(values) / _MS
    axes.set_xlabel("time, ms")
    axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize="small")


def _operators(analysis: Analysis) -> Figure | None:
    by_op: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in analysis.breakdown:
        by_op[row.label][row.kernel] += row.total_ns
    ops = sorted(by_op, key=lambda op: (-by_op[op].total(), op))[:_OPS]
    if not ops:
        return None
    by_kernel = Counter[str]()
    for op in ops:
        by_kernel.update(by_op[op])
    kernels = sorted(by_kernel, key=lambda kernel: (-by_kernel[kernel], kernel))
    figure = _figure(9, 2.4 + 0.3 * len(ops) + 0.17 * _KERNELS)
    axes = figure.subplots()
    labels = [_plain(op, _NAME) for op in ops]
    left = np.zeros(len(ops))
    rest = np.zeros(len(ops))
    for at, kernel in enumerate(kernels):
        values = np.array([by_op[op][kernel] for op in ops]) / _MS
        if at >= _KERNELS:
            rest += values
            continue
        axes.barh(range(len(ops)), values, left=left, label=_plain(kernel, _LEGEND_NAME), color=f"C{at}")
        left += values
    if rest.any():
        axes.barh(range(len(ops)), rest, left=left, label="other kernels", color="0.8")
    axes.set_yticks(range(len(ops)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("device time, ms")
    figure.legend(loc="outside lower center", fontsize="x-small", frameon=False)
    return figure


def _roofline(analysis: Analysis) -> Figure | None:
    points = [row for row in analysis.kernels if row.intensity and row.flops_per_second]
    known = [(number, analysis.devices[number]) for number in sorted(analysis.devices)]
    if not points or not known:
        return None
    number, device = known[0]
    points = [row for row in points if row.device == number]
    figure = _figure(7, 4.6)
    axes = figure.subplots()
    colors = {dtype: f"C{at}" for at, dtype in enumerate(sorted({row.dtype for row in points}))}
    _draw_roofs(axes, device, points, colors)
    for dtype, color in colors.items():
        own = [row for row in points if row.dtype == dtype]
        x, y = [row.intensity or 0 for row in own], [(row.flops_per_second or 0) / 1e12 for row in own]
        size = [20 + 200 * row.total_ns / analysis.kernels[0].total_ns for row in own]
        axes.scatter(x, y, s=size, color=color, alpha=0.7, label=f"{dtype} kernels", edgecolors="none")
    axes.set(xscale="log", yscale="log", xlabel="FLOPs per byte", ylabel="TFLOP/s", title=device.name)
    axes.legend(fontsize="small", frameon=False)
    axes.grid(alpha=0.3, which="both", linewidth=0.5)
    return figure


def _draw_roofs(axes: Any, device: Device, points: Sequence[KernelRow], colors: dict[str, str]) -> None:
    lowest = min(min(row.intensity or 1.0 for row in points), 1.0) / 2
    peaks = {dtype: device.peak_flops(dtype) for dtype in colors}
    ridges = [peak / device.bytes_per_second for peak in peaks.values() if peak]
    highest = 2 * max([*ridges, *(row.intensity or 1.0 for row in points)])
    for dtype, peak in peaks.items():
        if peak:
            x = np.array([lowest, peak / device.bytes_per_second, highest])
            y = np.minimum(x * device.bytes_per_second, peak) / 1e12
            axes.plot(x, y, color=colors[dtype], linewidth=1, label=f"{dtype} {peak / 1e12:g} TFLOP/s")


def _plain(name: str, room: int) -> str:
    """Escape a name: matplotlib reads text between dollar signs as a formula."""
    return shorten(name, room).replace("$", r"\$")
