"""Operator arguments at different input sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...trace.outer import lazy_names

if TYPE_CHECKING:
    from .reshape import Reshaped, reshaped
    from .shape_change import ShapeChange, SizeChange, batch_change, parse_changes

__all__ = ["Reshaped", "ShapeChange", "SizeChange", "batch_change", "parse_changes", "reshaped"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {".reshape": "Reshaped reshaped", ".shape_change": "ShapeChange SizeChange batch_change parse_changes"},
    __all__,
)
