"""ET + Kineto -> ET+: one stage a module, one public function a stage."""

from .pipeline import LinkResult, link
from .report import LinkReport

__all__ = ["LinkReport", "LinkResult", "link"]
