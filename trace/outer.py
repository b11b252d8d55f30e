"""Import a part of an outer ring by name. The core works without `analysis/` and `planning/`, if not installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .errors import UsageError

_PRODUCT = __name__.rpartition(".trace.")[0]


def installed(part: str) -> bool:
    """Return whether `etplus.PART` is installed, as in "analysis"."""
    return find_spec(f"{_PRODUCT}.{part}") is not None


def outer(module: str) -> Any:
    """Return the module `etplus.MODULE`, as in "analysis.counters".

    Raises:
        UsageError: the part that the module belongs to is not installed.
    """
    part = module.partition(".")[0]
    if not installed(part):
        raise UsageError(f"{_PRODUCT}.{part} is not installed; install all parts of {_PRODUCT}")
    return import_module(f"{_PRODUCT}.{module}")
