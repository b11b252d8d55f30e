"""A finding: many kernels that take no longer than a launch does."""

from collections.abc import Iterator

from etplus.analysis import Analysis, Finding

LAUNCH_NS = 5_000


def short_kernels(analysis: Analysis) -> Iterator[Finding]:
    short = [kernel for kernel in analysis.trace.kernels if kernel.duration_ns < LAUNCH_NS]
    if len(short) > len(analysis.trace.kernels) / 2:
        yield Finding(
            f"{len(short)} of {len(analysis.trace.kernels)} kernels take less than their launch",
            cost_ns=sum(LAUNCH_NS - kernel.duration_ns for kernel in short),
            evidence="durations of trace.kernels",
            advice="capture a CUDA graph, or torch.compile",
        )
