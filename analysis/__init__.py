"""What a linked trace, or a Kineto trace alone, shows about where the time goes.

The names below are public; each is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..trace.outer import lazy_names

if TYPE_CHECKING:
    from .bandwidth import bandwidth_series, copy_bandwidth
    from .breakdown import device_use, iterations, stream_use
    from .kernel_peaks import gemm_table
    from .launch_queues import idle_causes, launch_statistics, queue_lengths, queue_use
    from .modules import module_table
    from .operators import operator_table
    from .origins import phase_table, source_table
    from .sequences import kernel_sequences
    from .summary import Analysis, analyse
    from .table import Row, Table, TextColumn, column, derived, describe, inferred
    from .trace_diff import difference, regressions

__all__ = [
    "Analysis", "Row", "Table", "TextColumn", "analyse", "bandwidth_series", "column", "copy_bandwidth", "derived",
    "describe", "device_use", "difference", "gemm_table", "idle_causes", "inferred", "iterations", "kernel_sequences",
    "launch_statistics", "module_table", "operator_table", "phase_table", "queue_lengths", "queue_use", "regressions",
    "source_table", "stream_use",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".summary": "Analysis analyse",
        ".bandwidth": "bandwidth_series copy_bandwidth",
        ".breakdown": "device_use iterations stream_use",
        ".trace_diff": "difference regressions",
        ".launch_queues": "idle_causes launch_statistics queue_lengths queue_use",
        ".kernel_peaks": "gemm_table",
        ".sequences": "kernel_sequences",
        ".table": "Row Table TextColumn column derived describe inferred",
        ".modules": "module_table",
        ".operators": "operator_table",
        ".origins": "phase_table source_table",
    },
    __all__,
)
