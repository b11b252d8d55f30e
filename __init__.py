"""etplus joins a PyTorch Execution Trace and a Kineto trace of the same job into ET+, a timed operator graph.

    trace = etplus.link("et.json.gz", "kineto.json.gz")     # or etplus.load("anything")
    print(trace.link_report.to_text())
    trace.save("et_plus.json.gz")

See docs/library.md for what a `Trace` can do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .converters.convert import convert
    from .converters.open import load
    from .linker import link
    from .linker.batch import link_many
    from .predictor.replay import build_graph, fit_constants, replay
    from .predictor.reshard.job import reshard
    from .predictor.reshard.layout import Layout
    from .trace.errors import EtplusError
    from .trace.trace import Trace

__version__ = "0.2.0"

_HOMES = {
    "EtplusError": ".trace.errors",
    "Layout": ".predictor.reshard.layout",
    "Trace": ".trace.trace",
    "build_graph": ".predictor.replay",
    "convert": ".converters.convert",
    "fit_constants": ".predictor.replay",
    "link": ".linker",
    "link_many": ".linker.batch",
    "load": ".converters.open",
    "replay": ".predictor.replay",
    "reshard": ".predictor.reshard.job",
}
__all__ = [  # the keys of _HOMES, written out for type checkers
    "EtplusError", "Layout", "Trace", "__version__", "build_graph", "convert", "fit_constants", "link", "link_many",
    "load", "replay", "reshard",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that ``import etplus`` stays cheap."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
