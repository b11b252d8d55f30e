"""Derive a recorded job in other parallel layouts: tensor, data and pipeline parallelism, and combinations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...trace.outer import lazy_names

if TYPE_CHECKING:
    from .job import Resharded, reshard
    from .layout import Layout, parse_layout

__all__ = ["Layout", "Resharded", "parse_layout", "reshard"]

__getattr__, __dir__ = lazy_names(__name__, {".job": "Resharded reshard", ".layout": "Layout parse_layout"}, __all__)
