"""ET + Kineto -> ET+: one stage a module, one public function a stage."""

from ..trace.link_report import LinkReport
from .captured_graphs import link_captured_graphs
from .captures import read_captures
from .pipeline import LinkOptions, link, trace_of_kineto

__all__ = ["LinkOptions", "LinkReport", "link", "link_captured_graphs", "read_captures", "trace_of_kineto"]
