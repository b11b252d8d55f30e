"""Detect problems in a trace, and replay each fix to estimate its gain.

Every public name is imported on first access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...trace.outer import lazy_names

if TYPE_CHECKING:
    from .case import Case
    from .find import Findings, find_findings
    from .finding import Candidate, Detector, Evidence, Finding, Gain, Intervention, Where
    from .proofs import where_of
    from .trace_changes import TraceChanges, changes

__all__ = ["Candidate", "Case", "Detector", "Evidence", "Finding", "Findings", "Gain", "Intervention", "TraceChanges"]
__all__ += ["Where", "changes", "find_findings", "where_of"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".case": "Case",
        ".find": "Findings find_findings",
        ".finding": "Candidate Detector Evidence Finding Gain Intervention Where",
        ".proofs": "where_of",
        ".trace_changes": "TraceChanges changes",
    },
    __all__,
)
