"""Convert traces to and from other formats. Other packages can register their own exporters and readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..trace.outer import lazy_names

if TYPE_CHECKING:
    from ..schemas.text.files import open_output
    from .builtin import AstraSimOptions, ChakraOptions, EtPlusOptions, GraphOptions, NpzOptions
    from .conversion import convert
    from .exporter import Conversion, Exporter, NoOptions
    from .open import Opened, Reader
    from .registry import exporters
    from .traces import Traces

__all__ = [
    "AstraSimOptions", "ChakraOptions", "Conversion", "EtPlusOptions", "Exporter", "GraphOptions", "NoOptions",
    "NpzOptions", "Opened", "Reader", "Traces", "convert", "exporters", "open_output",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".builtin": "AstraSimOptions ChakraOptions EtPlusOptions GraphOptions NpzOptions",
        ".exporter": "Conversion Exporter NoOptions",
        ".traces": "Traces",
        ".conversion": "convert",
        ".open": "Opened Reader",
        ".registry": "exporters",
        "..schemas.text.files": "open_output",
    },
    __all__,
)
