"""What a linked trace, or a Kineto trace alone, shows about where the time goes.

The names below are public; each is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bandwidth import bandwidth_series, copy_bandwidth
    from .breakdown import device_use, iterations, stream_use
    from .diff import difference, regressions
    from .gemms import gemm_table
    from .launches import idle_causes, launch_statistics, queue_lengths, queue_use
    from .modules import module_table
    from .operators import operator_table
    from .sequences import kernel_sequences
    from .summary import Analysis, analyse

_HOMES = {
    **dict.fromkeys(("Analysis", "analyse"), ".summary"),
    **dict.fromkeys(("bandwidth_series", "copy_bandwidth"), ".bandwidth"),
    **dict.fromkeys(("device_use", "iterations", "stream_use"), ".breakdown"),
    **dict.fromkeys(("difference", "regressions"), ".diff"),
    **dict.fromkeys(("idle_causes", "launch_statistics", "queue_lengths", "queue_use"), ".launches"),
    "gemm_table": ".gemms",
    "kernel_sequences": ".sequences",
    "module_table": ".modules",
    "operator_table": ".operators",
}
__all__ = [  # the keys of _HOMES, written out for type checkers
    "Analysis", "analyse", "bandwidth_series", "copy_bandwidth", "device_use",
    "difference", "gemm_table", "idle_causes", "iterations", "kernel_sequences", "launch_statistics", "module_table",
    "operator_table", "queue_lengths", "queue_use", "regressions", "stream_use",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
