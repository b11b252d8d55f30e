"""ET + Kineto -> ET+: one stage a module, one public function a stage."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..trace.link_report import LinkReport
from .pipeline import LinkOptions, link, trace_of_kineto

if TYPE_CHECKING:
    from .captured_graphs import link_captured_graphs
    from .captures import read_captures

__all__ = ["LinkOptions", "LinkReport", "link", "link_captured_graphs", "read_captures", "trace_of_kineto"]

_HOMES = {"link_captured_graphs": ".captured_graphs", "read_captures": ".captures"}


def __getattr__(name: str) -> Any:
    """Import what only traces of replayed graphs need when it is first asked for."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
