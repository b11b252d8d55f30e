"""Link an ET with a Kineto trace. Each stage is a module; `pipeline` lists the stages in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..trace.outer import lazy_names

if TYPE_CHECKING:
    from ..trace.link_report import LinkReport
    from .captured_graphs import link_captured_graphs
    from .pipeline import LinkOptions, link, read_captures, trace_of_kineto

__all__ = ["LinkOptions", "LinkReport", "link", "link_captured_graphs", "read_captures", "trace_of_kineto"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".captured_graphs": "link_captured_graphs",
        ".pipeline": "LinkOptions link read_captures trace_of_kineto",
        "..trace.link_report": "LinkReport",
    },
    __all__,
)
