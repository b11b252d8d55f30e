"""Analysis of a trace. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..trace.outer import lazy_names

if TYPE_CHECKING:
    from .bandwidth import bandwidth_series
    from .launch_queues import queue_lengths
    from .summary import Analysis, analyze
    from .table import Row, Table, TextColumn, column, derived, inferred
    from .trace_diff import difference, regressions

__all__ = ["Analysis", "Row", "Table", "TextColumn", "analyze", "bandwidth_series", "column", "derived"]
__all__ += ["difference", "inferred", "queue_lengths", "regressions"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".summary": "Analysis analyze",
        ".bandwidth": "bandwidth_series",
        ".trace_diff": "difference regressions",
        ".launch_queues": "queue_lengths",
        ".table": "Row Table TextColumn column derived inferred",
    },
    __all__,
)
