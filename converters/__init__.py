"""Traces to other formats: an exporter each, those of other packages included.

The names below are public; each is imported when it is first asked for, since together they take a while.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..schemas.files import open_output
    from .builtin import AstraSimOptions, ChakraOptions, EtPlusOptions, GraphOptions, NpzOptions
    from .convert import convert
    from .exporter import Conversion, Exporter, NoOptions
    from .registry import exporters
    from .traces import Traces

__all__ = [
    "AstraSimOptions",
    "ChakraOptions",
    "Conversion",
    "EtPlusOptions",
    "Exporter",
    "GraphOptions",
    "NoOptions",
    "NpzOptions",
    "Traces",
    "convert",
    "exporters",
    "open_output",
]

_HOMES = {
    **dict.fromkeys(("AstraSimOptions", "ChakraOptions", "EtPlusOptions", "GraphOptions", "NpzOptions"), ".builtin"),
    **dict.fromkeys(("Conversion", "Exporter", "NoOptions"), ".exporter"),
    "Traces": ".traces",
    "convert": ".convert",
    "exporters": ".registry",
    "open_output": "..schemas.files",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
