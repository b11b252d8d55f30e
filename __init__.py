"""etplus joins a PyTorch Execution Trace and a Kineto trace of the same job into ET+, a timed operator graph."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .converters.convert import convert
    from .linker import link
    from .linker.batch import link_many
    from .predictor.replay import build_graph, fit_constants, replay
    from .trace.errors import EtplusError

__version__ = "0.2.0"
__all__ = [
    "EtplusError",
    "__version__",
    "build_graph",
    "convert",
    "fit_constants",
    "link",
    "link_many",
    "replay",
]

_HOMES = {
    "convert": ".converters.convert",
    "link": ".linker",
    "link_many": ".linker.batch",
    "build_graph": ".predictor.replay",
    "fit_constants": ".predictor.replay",
    "replay": ".predictor.replay",
    "EtplusError": ".trace.errors",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that ``import etplus`` stays cheap."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
