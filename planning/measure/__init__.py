"""Time operators of a trace on this machine, and write scripts that reproduce them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...trace.outer import lazy_names

if TYPE_CHECKING:
    from .measured import Measured, read_measured, write_measured
    from .timing import Options, measure

__all__ = ["Measured", "Options", "measure", "read_measured", "write_measured"]

__getattr__, __dir__ = lazy_names(
    __name__, {".measured": "Measured read_measured write_measured", ".timing": "Options measure"}, __all__
)
