"""Matplotlib axes of analyses and jobs."""

import sys
from typing import Any

import made_jobs
import pytest
from etplus import Job
from etplus.report.plots import device_use_axes
from etplus.trace.errors import UsageError
from traces import GPU_SHAPED, analysis_of

plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")


@pytest.fixture(autouse=True)
def no_window() -> Any:
    plt.switch_backend("Agg")
    yield
    plt.close("all")


def widths(axes: Any) -> list[list[float]]:
    return [[bar.get_width() for bar in bars] for bars in axes.containers]


def test_the_plotted_bars_are_the_gpu_use_of_the_trace() -> None:
    analysis = analysis_of(f"linked {GPU_SHAPED}")
    (use,) = analysis.device_use
    axes = analysis.plot()
    compute, exposed, other, idle = (sum(bars) * 1e6 for bars in widths(axes))
    assert [text.get_text() for text in axes.get_legend().get_texts()][::3] == ["computing", "idle"]
    assert (compute, exposed, idle) == pytest.approx((use.compute_ns, use.exposed_communication_ns, use.idle_ns))
    assert compute + exposed + other == pytest.approx(use.busy_ns)


def test_a_figure_needs_matplotlib_and_gpu_events(monkeypatch: pytest.MonkeyPatch) -> None:
    axes = analysis_of(f"linked {GPU_SHAPED}").plot()
    assert axes.get_xlabel() == "GPU time, ms" and axes.figure.get_size_inches() == pytest.approx((7, 1.9))
    assert axes.get_legend()._ncols == 4
    with pytest.raises(UsageError, match="nothing to plot"):
        device_use_axes({})
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"figures need matplotlib .*etplus\[plots\]"):
        device_use_axes({})


def test_gpu_time_of_the_ranks_of_a_job() -> None:
    job = Job(made_jobs.Job(made_jobs.ddp, 3).traces())
    axes = job.plot()
    assert [text.get_text().split(",")[0] for text in axes.get_yticklabels()] == [f"rank {rank}" for rank in range(3)]
    assert [sum(parts) * 1e6 for parts in zip(*widths(axes), strict=True)] == pytest.approx(
        [row.busy_ns + row.idle_ns for row in job.summary().ranks]
    )
