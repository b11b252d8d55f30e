"""ET + Kineto -> ET+: one stage a module, one public function a stage."""

from ..trace.link_report import LinkReport
from .pipeline import LinkOptions, link, trace_of_kineto

__all__ = ["LinkOptions", "LinkReport", "link", "trace_of_kineto"]
